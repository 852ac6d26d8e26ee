#include "handoff/handoff_private.h"

#include "base/log.h"

#include <stdio.h>

static slice pack(handoff *h, const message_fabric *m)
{
    buffer_clear(&h->scratch);
    message_pack(&m->base, &h->scratch);
    CHECK(h->scratch.size > 0 && h->scratch.size <= FABRIC_HEADER_MAX);
    return buffer_slice(&h->scratch);
}

static void say(handoff *h, handoff_pair *p, const message_fabric *m)
{
    status result = fabric_send_message(h->net, p->peer, pack(h, m));
    if (result == STATUS_OK || result == STATUS_PEER_CLOSED)
        return; // the failure of a closed peer is on its way as an event
    log_warn(HANDOFF_TAG, "peer %s takes no message: %s", p->address, status_text(result));
    fabric_fail(h->net, p->peer, STATUS_PEER_SILENT);
}

// The parts of a Transfer, kept together while they are packed.
typedef struct transfer_parts {
    Penstock__Transfer transfer;
    Penstock__RequestId request;
} transfer_parts;

static Penstock__Transfer *transfer_of(transfer_parts *parts, handoff_key key, uint64_t generation)
{
    penstock__transfer__init(&parts->transfer);
    penstock__request_id__init(&parts->request);
    parts->request.router = key.router;
    parts->request.number = key.number;
    parts->transfer.request = &parts->request;
    parts->transfer.attempt = key.attempt;
    parts->transfer.generation = generation;
    return &parts->transfer;
}

handoff_key wire_key(const Penstock__Transfer *t)
{
    return (handoff_key){ t->request->router, t->request->number, t->attempt };
}

#define HEADER(field, kind)                                                                        \
    message_fabric m;                                                                              \
    penstock__fabric_header__init(&m);                                                             \
    m.field = &body;                                                                               \
    m.body_case = PENSTOCK__FABRIC_HEADER__BODY_##kind

void wire_hello(handoff *h, handoff_pair *p)
{
    const handoff_identity *id = &h->identity;
    Penstock__ModelIdentity model = PENSTOCK__MODEL_IDENTITY__INIT;
    Penstock__Hello body = PENSTOCK__HELLO__INIT;
    HEADER(hello, HELLO);
    model.name = (char *)id->model_name;
    model.architecture = (char *)id->architecture;
    model.kv_layout = (char *)id->kv_layout;
    model.weights = (ProtobufCBinaryData){ sizeof(id->weights), (uint8_t *)&id->weights };
    model.numeric_id = (ProtobufCBinaryData){ sizeof(id->numeric_id), (uint8_t *)&id->numeric_id };
    model.page_tokens = id->page_tokens;
    model.page_bytes = id->page_bytes;
    model.context = id->context;
    model.vocabulary = id->vocabulary;
    body.protocol = MESSAGE_FABRIC_PROTOCOL;
    body.incarnation = id->incarnation;
    body.wanted = p->incarnation;
    if (p->token.half[0] | p->token.half[1])
        body.token = (ProtobufCBinaryData){ sizeof(p->token), (uint8_t *)&p->token };
    body.model = &model;
    say(h, p, &m);
}

void wire_hello_reply(handoff *h, handoff_pair *p, bool accepted, const char *reason)
{
    Penstock__HelloReply body = PENSTOCK__HELLO_REPLY__INIT;
    HEADER(hello_reply, HELLO_REPLY);
    body.accepted = accepted;
    body.reason = (char *)reason;
    body.incarnation = h->identity.incarnation;
    say(h, p, &m);
}

void wire_confirm(handoff *h, handoff_pair *p)
{
    Penstock__Probe body = PENSTOCK__PROBE__INIT;
    HEADER(probe, PROBE);
    body.sequence = HANDOFF_PROBE_ROUNDS;
    say(h, p, &m);
}

status wire_probe(handoff *h, handoff_pair *p, bool answer, const uint8_t *data)
{
    Penstock__Probe body = PENSTOCK__PROBE__INIT;
    HEADER(probe, PROBE);
    body.sequence = p->round;
    body.bytes = HANDOFF_PROBE_BYTES;
    body.checksum = hash64_of(data, HANDOFF_PROBE_BYTES, 0);
    body.answer = answer;
    fabric_piece piece = { (void *)data, HANDOFF_PROBE_BYTES };
    uint64_t token = HANDOFF_TOKEN_PROBE | (uint64_t)(p - h->pairs);
    status result = fabric_send_data(h->net, p->peer, pack(h, &m), &piece, 1, token);
    p->probe_held += result == STATUS_OK;
    return result;
}

void wire_seat_open(handoff *h, const handoff_seat *s)
{
    transfer_parts parts;
    Penstock__SeatOpen body = PENSTOCK__SEAT_OPEN__INIT;
    HEADER(seat_open, SEAT_OPEN);
    body.transfer = transfer_of(&parts, s->key, s->generation);
    body.first_page = (uint32_t)s->first_page;
    body.page_count = (uint32_t)s->page_count;
    say(h, s->pair, &m);
}

void wire_seat_closed(handoff *h, const handoff_seat *s)
{
    transfer_parts parts;
    Penstock__SeatClosed body = PENSTOCK__SEAT_CLOSED__INIT;
    HEADER(seat_closed, SEAT_CLOSED);
    if (s->pair == NULL)
        return; // it never heard of the seat
    body.transfer = transfer_of(&parts, s->key, s->generation);
    body.reason = (char *)status_text(s->code);
    say(h, s->pair, &m);
}

void wire_received(handoff *h, const handoff_seat *s)
{
    transfer_parts parts;
    Penstock__Received body = PENSTOCK__RECEIVED__INIT;
    HEADER(received, RECEIVED);
    body.transfer = transfer_of(&parts, s->key, s->generation);
    say(h, s->pair, &m);
}

void wire_send_ended(handoff *h, handoff_pair *p, handoff_key key, uint64_t generation, status code)
{
    transfer_parts parts;
    Penstock__SendEnded body = PENSTOCK__SEND_ENDED__INIT;
    HEADER(send_ended, SEND_ENDED);
    body.transfer = transfer_of(&parts, key, generation);
    body.reason = (char *)status_text(code);
    say(h, p, &m);
}

void wire_record(handoff *h, const handoff_send *s)
{
    transfer_parts parts;
    Penstock__Token token = PENSTOCK__TOKEN__INIT;
    Penstock__HandoverRecord body = PENSTOCK__HANDOVER_RECORD__INIT;
    HEADER(record, RECORD);
    token.id = s->record.next_token;
    body.transfer = transfer_of(&parts, s->key, s->generation);
    body.computed = (uint32_t)s->record.computed;
    body.page_runs = s->runs;
    body.next_token = &token;
    body.n_made = (size_t)s->record.made_count;
    body.made = (int32_t *)s->record.made;
    say(h, s->pair, &m);
}

slice wire_page_run(handoff *h, const handoff_send *s, int32_t first, int32_t count,
                    uint64_t checksum)
{
    transfer_parts parts;
    Penstock__PageRun body = PENSTOCK__PAGE_RUN__INIT;
    HEADER(page_run, PAGE_RUN);
    body.transfer = transfer_of(&parts, s->key, s->generation);
    body.first_page = (uint32_t)first;
    body.page_count = (uint32_t)count;
    body.checksum = checksum;
    return pack(h, &m);
}

static status unequal(error *failure, const char *field, const char *theirs, const char *ours)
{
    return error_set(failure, STATUS_PEER_MISMATCH, field,
                     "model.%s is %s at the prefill worker and %s at the decode worker; the two "
                     "must be equal",
                     field, theirs, ours);
}

static status compare_text(const char *field, const char *theirs, const char *ours, error *failure)
{
    char quoted[2][72];
    if (strcmp(theirs, ours) == 0)
        return STATUS_OK;
    snprintf(quoted[0], sizeof(quoted[0]), "\"%.66s\"", theirs);
    snprintf(quoted[1], sizeof(quoted[1]), "\"%.66s\"", ours);
    return unequal(failure, field, quoted[0], quoted[1]);
}

static status compare_number(const char *field, uint64_t theirs, uint64_t ours, error *failure)
{
    char text[2][24];
    if (theirs == ours)
        return STATUS_OK;
    snprintf(text[0], sizeof(text[0]), "%llu", (unsigned long long)theirs);
    snprintf(text[1], sizeof(text[1]), "%llu", (unsigned long long)ours);
    return unequal(failure, field, text[0], text[1]);
}

static status compare_hash(const char *field, ProtobufCBinaryData theirs, hash128 ours,
                           error *failure)
{
    hash128 value;
    char text[2][33];
    if (theirs.len != sizeof(value))
        return unequal(failure, field, "no hash", "one");
    memcpy(&value, theirs.data, sizeof(value));
    if (hash128_equal(value, ours))
        return STATUS_OK;
    hash128_format(value, text[0]);
    hash128_format(ours, text[1]);
    return unequal(failure, field, text[0], text[1]);
}

status wire_wanted(const handoff *h, const Penstock__Hello *hello, error *failure)
{
    uint64_t own = h->identity.incarnation;
    if (hello->wanted == own)
        return STATUS_OK;
    return error_set(failure, STATUS_PEER_MISMATCH, "wanted",
                     "incarnation %016llx is wanted, but this address is now incarnation %016llx; "
                     "the worker was restarted",
                     (unsigned long long)hello->wanted, (unsigned long long)own);
}

status wire_compare(const handoff *h, const Penstock__Hello *hello, error *failure)
{
    const handoff_identity *id = &h->identity;
    const Penstock__ModelIdentity *model = hello->model;
    status result;
    if (hello->protocol != MESSAGE_FABRIC_PROTOCOL)
        return error_set(failure, STATUS_PEER_MISMATCH, "protocol",
                         "the prefill worker speaks protocol %u, the decode worker %u",
                         hello->protocol, MESSAGE_FABRIC_PROTOCOL);
    TRY(compare_text("name", model->name, id->model_name, failure));
    TRY(compare_text("architecture", model->architecture, id->architecture, failure));
    TRY(compare_hash("weights", model->weights, id->weights, failure));
    TRY(compare_hash("numeric_id", model->numeric_id, id->numeric_id, failure));
    TRY(compare_text("kv_layout", model->kv_layout, id->kv_layout, failure));
    TRY(compare_number("page_tokens", model->page_tokens, id->page_tokens, failure));
    TRY(compare_number("page_bytes", model->page_bytes, id->page_bytes, failure));
    TRY(compare_number("context", model->context, id->context, failure));
    TRY(compare_number("vocabulary", model->vocabulary, id->vocabulary, failure));
    return STATUS_OK;
fail:
    return result;
}

// Messages that only a ready pair may exchange, and only in their direction.
static bool transfer_message(handoff *h, handoff_pair *p, const message_fabric *m)
{
    bool to_prefill = m->body_case == PENSTOCK__FABRIC_HEADER__BODY_SEAT_OPEN ||
                      m->body_case == PENSTOCK__FABRIC_HEADER__BODY_SEAT_CLOSED ||
                      m->body_case == PENSTOCK__FABRIC_HEADER__BODY_RECEIVED;
    if (p->state != PAIR_READY || to_prefill != p->client)
        return false;
    switch (m->body_case) {
    case PENSTOCK__FABRIC_HEADER__BODY_SEAT_OPEN:
        send_on_seat_open(h, p, m->seat_open);
        return true;
    case PENSTOCK__FABRIC_HEADER__BODY_SEAT_CLOSED:
        send_on_message(h, p, wire_key(m->seat_closed->transfer),
                        m->seat_closed->transfer->generation, SEND_SEAT_CLOSED);
        return true;
    case PENSTOCK__FABRIC_HEADER__BODY_RECEIVED:
        send_on_message(h, p, wire_key(m->received->transfer), m->received->transfer->generation,
                        SEND_RECEIVED);
        return true;
    case PENSTOCK__FABRIC_HEADER__BODY_RECORD:
        seat_on_record(h, p, m->record);
        return true;
    case PENSTOCK__FABRIC_HEADER__BODY_SEND_ENDED:
        seat_on_send_ended(h, p, m->send_ended);
        return true;
    default:
        return false;
    }
}

void wire_on_message(void *owner, fabric_peer peer, slice header)
{
    handoff *h = owner;
    handoff_pair *p = pair_of(h, peer);
    message_fabric *m;
    error failure;
    if (p == NULL || p->state == PAIR_CLOSING || p->state == PAIR_REFUSED)
        return;
    if (message_unpack_fabric(header, &m, &failure) != STATUS_OK) {
        pair_on_unreadable(h, p, &failure);
        return;
    }
    if (m->body_case == PENSTOCK__FABRIC_HEADER__BODY_HELLO)
        pair_on_hello(h, p, &m);
    else if (m->body_case == PENSTOCK__FABRIC_HEADER__BODY_HELLO_REPLY)
        pair_on_reply(h, p, m->hello_reply);
    else if (m->body_case == PENSTOCK__FABRIC_HEADER__BODY_PROBE)
        pair_on_confirm(h, p, m->probe);
    else if (!transfer_message(h, p, m)) {
        log_warn(HANDOFF_TAG, "peer %s sent a message of kind %d out of place", p->address,
                 (int)m->body_case);
        pair_apply(h, p, PAIR_BAD, STATUS_PEER_PROTOCOL);
    }
    message_free(m);
}

bool wire_on_place(void *owner, fabric_peer peer, slice header, size_t size,
                   fabric_placement *placement)
{
    handoff *h = owner;
    handoff_pair *p = pair_of(h, peer);
    message_fabric *m;
    error failure;
    if (p == NULL || p->state == PAIR_CLOSING || p->state == PAIR_REFUSED)
        return false;
    if (message_unpack_fabric(header, &m, &failure) != STATUS_OK) {
        pair_on_unreadable(h, p, &failure);
        return false;
    }
    bool placed = false;
    if (m->body_case == PENSTOCK__FABRIC_HEADER__BODY_PROBE)
        placed = pair_place_probe(h, p, m->probe, size, placement);
    else if (m->body_case == PENSTOCK__FABRIC_HEADER__BODY_PAGE_RUN && p->state == PAIR_READY &&
             !p->client)
        placed = seat_place_run(h, p, m->page_run, size, placement);
    else
        pair_apply(h, p, PAIR_BAD, STATUS_PEER_PROTOCOL);
    message_free(m);
    return placed;
}
