#include "net/fabric_private.h"

#include "base/log.h"

#include <stdlib.h>

_Static_assert(sizeof(fabric_piece) == sizeof(ucp_dt_iov_t) &&
                   offsetof(fabric_piece, data) == offsetof(ucp_dt_iov_t, buffer) &&
                   offsetof(fabric_piece, size) == offsetof(ucp_dt_iov_t, length),
               "a list of pieces is passed to UCX as it is");

// A window of sends and two of receives for each peer: a receive returns before the send that its
// return allows can be announced, and the second window is for their crossing.
static uint32_t receives_max(const fabric *f)
{
    return 2 * f->settings.window;
}

status fabric_slots_open(fabric *f)
{
    size_t data = f->settings.window + receives_max(f);
    f->slot_count = data * f->settings.peers_max + FABRIC_MESSAGES_MAX;
    f->slots = calloc(f->slot_count, sizeof(f->slots[0]));
    return f->slots ? STATUS_OK : STATUS_NO_MEMORY;
}

static fabric_slot *take_slot(fabric *f, fabric_endpoint *e, fabric_slot_kind kind, uint64_t token)
{
    fabric_slot *slot = f->free_slots;
    if (kind == FABRIC_SLOT_MESSAGE && f->messages == FABRIC_MESSAGES_MAX)
        return NULL;
    if (slot)
        f->free_slots = slot->next;
    else if (f->slots_used < f->slot_count)
        slot = &f->slots[f->slots_used++];
    else
        return NULL;
    f->messages += kind == FABRIC_SLOT_MESSAGE;
    slot->next = NULL;
    slot->owner = f;
    slot->kind = kind;
    slot->peer = e->id;
    slot->peer_index = (uint32_t)(e - f->peers);
    slot->token = token;
    slot->count = 0;
    return slot;
}

static void release_slot(fabric_slot *slot)
{
    fabric *f = slot->owner;
    f->messages -= slot->kind == FABRIC_SLOT_MESSAGE;
    slot->next = f->free_slots;
    f->free_slots = slot;
}

static uint32_t *held_count(fabric_endpoint *e, fabric_slot_kind kind)
{
    if (kind == FABRIC_SLOT_MESSAGE)
        return &e->messages;
    return kind == FABRIC_SLOT_SEND ? &e->sends : &e->receives;
}

// A request came back. Handlers hear of it from the loop, not from here: UCX may call this from
// inside of the very call that posted the request.
static void on_returned(fabric_slot *slot, ucs_status_t code)
{
    fabric *f = slot->owner;
    if (slot->kind == FABRIC_SLOT_RECEIVE)
        f->peers[slot->peer_index].posted--;
    slot->code = fabric_status(code);
    slot->next = NULL;
    *f->returned_end = slot;
    f->returned_end = &slot->next;
}

static void on_sent(void *request, ucs_status_t code, void *slot)
{
    on_returned(slot, code);
    ucp_request_free(request);
}

static void on_received(void *request, ucs_status_t code, size_t size, void *slot)
{
    (void)size;
    on_returned(slot, code);
    ucp_request_free(request);
}

void fabric_deliver_returned(fabric *f)
{
    fabric_slot *slot;
    while ((slot = f->returned)) {
        f->returned = slot->next;
        if (f->returned == NULL)
            f->returned_end = &f->returned;
        // The endpoint of a request stays in its place until the last request came back.
        fabric_endpoint *e = &f->peers[slot->peer_index];
        CHECK(e->id == slot->peer && *held_count(e, slot->kind) > 0);
        --*held_count(e, slot->kind);
        if (slot->code == STATUS_OK && slot->kind != FABRIC_SLOT_MESSAGE)
            fabric_heard(f, e);
        fabric_owes(f, e);
        fabric_slot_kind kind = slot->kind;
        fabric_peer peer = slot->peer;
        uint64_t token = slot->token;
        status code = slot->code;
        release_slot(slot);
        f->handled |= kind != FABRIC_SLOT_MESSAGE;
        if (kind == FABRIC_SLOT_SEND)
            f->handlers.sent(f->handlers.owner, peer, token, code);
        else if (kind == FABRIC_SLOT_RECEIVE)
            f->handlers.received(f->handlers.owner, peer, token, code);
    }
}

// Send what the slot holds. It always comes back through on_returned, unless this fails. Never with
// UCP_OP_ATTR_FLAG_NO_IMM_CMPL: with it, UCX 1.13 sends a list of pieces as if it were bytes.
static status post_send(fabric *f, fabric_endpoint *e, fabric_slot *slot, unsigned id, size_t size)
{
    ucp_request_param_t params = {
        .op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA |
                        UCP_OP_ATTR_FIELD_FLAGS | UCP_OP_ATTR_FIELD_DATATYPE,
        .cb.send = on_sent,
        .user_data = slot,
        .datatype = ucp_dt_make_contig(1),
        .flags = UCP_AM_SEND_FLAG_REPLY,
    };
    const void *data = NULL;
    size_t count = 0;
    params.flags |= slot->count ? UCP_AM_SEND_FLAG_RNDV : UCP_AM_SEND_FLAG_EAGER;
    if (slot->count == 1) {
        data = slot->pieces[0].data;
        count = slot->pieces[0].size;
    } else if (slot->count > 1) {
        params.datatype = UCP_DATATYPE_IOV;
        data = slot->pieces;
        count = slot->count;
    }
    // Counted first: the callback may run inside of the call.
    uint32_t *held = held_count(e, slot->kind);
    ++*held;
    f->posted = true;
    ucs_status_ptr_t request = ucp_am_send_nbx(e->ep, id, slot->header, size, data, count, &params);
    fabric_owes(f, e);
    if (UCS_PTR_IS_PTR(request))
        return STATUS_OK;
    if (request == NULL) {
        on_returned(slot, UCS_OK);
        return STATUS_OK;
    }
    --*held;
    release_slot(slot);
    return fabric_status(UCS_PTR_STATUS(request));
}

status fabric_send_message(fabric *f, fabric_peer peer, slice header)
{
    CHECK(header.size > 0 && header.size <= FABRIC_HEADER_MAX);
    fabric_endpoint *e = fabric_endpoint_of(f, peer);
    if (e == NULL || e->state != FABRIC_PEER_OPEN)
        return STATUS_PEER_CLOSED;
    if (e->messages >= FABRIC_MESSAGES_MAX / 2)
        return STATUS_FULL;
    fabric_slot *slot = take_slot(f, e, FABRIC_SLOT_MESSAGE, 0);
    if (slot == NULL)
        return STATUS_FULL;
    memcpy(slot->header, header.data, header.size);
    return post_send(f, e, slot, FABRIC_AM_MESSAGE, header.size);
}

void fabric_send_pulse(fabric *f, fabric_endpoint *e, uint8_t kind)
{
    fabric_slot *slot = take_slot(f, e, FABRIC_SLOT_MESSAGE, 0);
    if (slot == NULL)
        return; // so many unsent messages are a sign of their own: the peer owes them
    slot->header[0] = kind;
    post_send(f, e, slot, FABRIC_AM_PULSE, 1);
}

uint32_t fabric_window(const fabric *f, fabric_peer peer)
{
    const fabric_endpoint *e = fabric_endpoint_of(f, peer);
    if (e == NULL || e->state != FABRIC_PEER_OPEN)
        return 0;
    return f->settings.window - e->sends;
}

status fabric_send_data(fabric *f, fabric_peer peer, slice header, const fabric_piece *pieces,
                        uint32_t count, uint64_t token)
{
    CHECK(header.size > 0 && header.size <= FABRIC_HEADER_MAX);
    CHECK(count > 0 && count <= FABRIC_PIECES_MAX);
    fabric_endpoint *e = fabric_endpoint_of(f, peer);
    if (e == NULL || e->state != FABRIC_PEER_OPEN)
        return STATUS_PEER_CLOSED;
    fabric_slot *slot = NULL;
    if (e->sends < f->settings.window)
        slot = take_slot(f, e, FABRIC_SLOT_SEND, token);
    if (slot == NULL)
        return STATUS_AGAIN;
    slot->count = count;
    memcpy(slot->header, header.data, header.size);
    memcpy(slot->pieces, pieces, count * sizeof(pieces[0]));
    return post_send(f, e, slot, FABRIC_AM_DATA, header.size);
}

// The sender of an active message: the endpoint that UCX says it came on, never a field of it.
static fabric_endpoint *sender_of(fabric *f, const ucp_am_recv_param_t *params, size_t size)
{
    if (!(params->recv_attr & UCP_AM_RECV_ATTR_FIELD_REPLY_EP))
        return NULL;
    fabric_endpoint *e = fabric_endpoint_by_ep(f, params->reply_ep);
    if (e == NULL)
        return NULL;
    fabric_heard(f, e);
    f->handled = true;
    if (size > 0 && size <= FABRIC_HEADER_MAX)
        return e;
    fabric_fail(f, e->id, STATUS_PEER_PROTOCOL);
    return NULL;
}

static ucs_status_t on_message(void *owner, const void *header, size_t header_size, void *data,
                               size_t size, const ucp_am_recv_param_t *params)
{
    (void)data;
    fabric *f = owner;
    fabric_endpoint *e = sender_of(f, params, header_size);
    if (e == NULL)
        return UCS_OK;
    if (size > 0)
        fabric_fail(f, e->id, STATUS_PEER_PROTOCOL);
    else
        f->handlers.message(f->handlers.owner, e->id, (slice){ header, header_size });
    return UCS_OK;
}

static ucs_status_t on_pulse(void *owner, const void *header, size_t header_size, void *data,
                             size_t size, const ucp_am_recv_param_t *params)
{
    (void)data;
    (void)size;
    fabric *f = owner;
    fabric_endpoint *e = sender_of(f, params, header_size);
    if (e && *(const uint8_t *)header == FABRIC_PULSE_ASK)
        fabric_send_pulse(f, e, FABRIC_PULSE_ANSWER);
    return UCS_OK;
}

static ucs_status_t receive_into(fabric *f, fabric_endpoint *e, void *data,
                                 const fabric_placement *placement)
{
    fabric_slot *slot = take_slot(f, e, FABRIC_SLOT_RECEIVE, placement->token);
    CHECK(slot != NULL); // on_data looked
    slot->count = placement->count;
    memcpy(slot->pieces, placement->pieces, placement->count * sizeof(slot->pieces[0]));
    bool one = slot->count == 1;
    ucp_request_param_t params = {
        .op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA |
                        UCP_OP_ATTR_FIELD_DATATYPE | UCP_OP_ATTR_FLAG_NO_IMM_CMPL,
        .cb.recv_am = on_received,
        .user_data = slot,
        .datatype = one ? ucp_dt_make_contig(1) : UCP_DATATYPE_IOV,
    };
    e->receives++;
    e->posted++;
    f->posted = true;
    fabric_owes(f, e);
    ucs_status_ptr_t request =
        ucp_am_recv_data_nbx(f->worker, data, one ? slot->pieces[0].data : slot->pieces,
                             one ? slot->pieces[0].size : slot->count, &params);
    if (UCS_PTR_IS_ERR(request))
        on_returned(slot, UCS_PTR_STATUS(request));
    return UCS_INPROGRESS;
}

static ucs_status_t on_data(void *owner, const void *header, size_t header_size, void *data,
                            size_t size, const ucp_am_recv_param_t *params)
{
    fabric *f = owner;
    fabric_endpoint *e = sender_of(f, params, header_size);
    if (e == NULL || f->closing)
        return UCS_OK;
    bool rendezvous = params->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV;
    if (!rendezvous || size == 0 || size > f->settings.data_max || e->posted >= receives_max(f) ||
        (!f->free_slots && f->slots_used == f->slot_count)) {
        log_warn(FABRIC_TAG, "peer %llu announced %zu bytes against the rules",
                 (unsigned long long)e->id, size);
        fabric_fail(f, e->id, STATUS_PEER_PROTOCOL);
        return UCS_OK;
    }
    fabric_placement placement = { .count = 0 };
    slice head = { header, header_size };
    if (!f->handlers.place(f->handlers.owner, e->id, head, size, &placement))
        return UCS_OK;
    size_t placed = 0;
    CHECK(placement.count > 0 && placement.count <= FABRIC_PIECES_MAX);
    for (uint32_t i = 0; i < placement.count; i++)
        placed += placement.pieces[i].size;
    CHECK(placed == size);
    return receive_into(f, e, data, &placement);
}

status fabric_set_handlers(fabric *f)
{
    static const struct {
        unsigned id;
        ucp_am_recv_callback_t handler;
    } rows[] = {
        { FABRIC_AM_MESSAGE, on_message },
        { FABRIC_AM_DATA, on_data },
        { FABRIC_AM_PULSE, on_pulse },
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        ucp_am_handler_param_t params = {
            .field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB |
                          UCP_AM_HANDLER_PARAM_FIELD_ARG | UCP_AM_HANDLER_PARAM_FIELD_FLAGS,
            .id = rows[i].id,
            .cb = rows[i].handler,
            .arg = f,
            .flags = UCP_AM_FLAG_WHOLE_MSG,
        };
        if (ucp_worker_set_am_recv_handler(f->worker, &params) != UCS_OK)
            return STATUS_IO;
    }
    return STATUS_OK;
}
