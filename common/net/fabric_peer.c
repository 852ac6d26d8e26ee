#include "net/fabric_private.h"

#include "base/clock.h"
#include "base/log.h"

#include <stdio.h>
#include <stdlib.h>

#define CLOSE_FLUSH_US 500000
#define CLOSE_DRAIN_US 2000000

fabric_endpoint *fabric_endpoint_of(const fabric *f, fabric_peer peer)
{
    if (peer == 0)
        return NULL;
    fabric_endpoint *e = &f->peers[peer % f->settings.peers_max];
    return e->state != FABRIC_PEER_FREE && e->id == peer ? e : NULL;
}

fabric_endpoint *fabric_endpoint_by_ep(fabric *f, ucp_ep_h ep)
{
    for (uint32_t i = 0; i < f->settings.peers_max; i++)
        if (f->peers[i].state == FABRIC_PEER_OPEN && f->peers[i].ep == ep)
            return &f->peers[i];
    return NULL;
}

// A free endpoint with a new id; the id modulo peers_max is its place.
static fabric_endpoint *take_endpoint(fabric *f)
{
    for (uint32_t i = 0; i < f->settings.peers_max; i++) {
        fabric_endpoint *e = &f->peers[i];
        if (e->state != FABRIC_PEER_FREE)
            continue;
        fabric_peer id = ++f->peers_made * f->settings.peers_max + i;
        *e = (fabric_endpoint){ .id = id, .heard_us = f->now_us };
        return e;
    }
    return NULL;
}

void fabric_heard(fabric *f, fabric_endpoint *e)
{
    e->heard_us = f->now_us;
    e->pulse_asked = false;
    if (e->suspect)
        log_info(FABRIC_TAG, "peer %llu answers again", (unsigned long long)e->id);
    e->suspect = false;
    fabric_owes(f, e);
}

void fabric_owes(fabric *f, fabric_endpoint *e)
{
    bool owes = e->sends || e->receives || e->messages || e->pulse_asked;
    if (!owes)
        e->owed_since_us = 0;
    else if (e->owed_since_us == 0)
        e->owed_since_us = f->now_us;
}

static void fail_endpoint(fabric_endpoint *e, status code)
{
    if (e->state != FABRIC_PEER_OPEN)
        return;
    e->state = FABRIC_PEER_FAILING;
    e->code = code;
}

// UCX calls this inside progress; the endpoint is closed later, by the loop.
static void on_error(void *argument, ucp_ep_h ep, ucs_status_t code)
{
    fabric *f = argument;
    fabric_endpoint *e = fabric_endpoint_by_ep(f, ep);
    if (e) {
        log_debug(FABRIC_TAG, "peer %llu failed: %s", (unsigned long long)e->id,
                  ucs_status_string(code));
        fail_endpoint(e, fabric_status(code));
    }
}

static ucs_status_t create_endpoint(fabric *f, fabric_endpoint *e, ucp_ep_params_t *params)
{
    params->field_mask |= UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE | UCP_EP_PARAM_FIELD_ERR_HANDLER;
    params->err_mode = UCP_ERR_HANDLING_MODE_PEER;
    params->err_handler.cb = on_error;
    params->err_handler.arg = f;
    ucs_status_t code = ucp_ep_create(f->worker, params, &e->ep);
    if (code == UCS_OK)
        e->state = FABRIC_PEER_OPEN;
    f->posted = true;
    return code;
}

status fabric_connect(fabric *f, const char *host, uint16_t port, fabric_peer *peer, error *failure)
{
    struct sockaddr_storage address;
    socklen_t size;
    status result = fabric_resolve(host, port, false, &address, &size, failure);
    if (result != STATUS_OK)
        return result;
    fabric_endpoint *e = take_endpoint(f);
    if (e == NULL)
        return error_set(failure, STATUS_FULL, "", "all %u endpoints of the fabric are in use",
                         f->settings.peers_max);
    ucp_ep_params_t params = {
        .field_mask = UCP_EP_PARAM_FIELD_SOCK_ADDR | UCP_EP_PARAM_FIELD_FLAGS,
        .flags = UCP_EP_PARAMS_FLAGS_CLIENT_SERVER,
        .sockaddr = { (const struct sockaddr *)&address, size },
    };
    ucs_status_t code = create_endpoint(f, e, &params);
    if (code != UCS_OK)
        return error_set(failure, fabric_status(code), "", "%s port %u cannot be reached: %s", host,
                         port, ucs_status_string(code));
    *peer = e->id;
    return STATUS_OK;
}

void fabric_on_connection(ucp_conn_request_h request, void *owner)
{
    fabric *f = owner;
    if (f->closing || f->accept_count == FABRIC_ACCEPTS_MAX)
        ucp_listener_reject(f->listener, request);
    else
        f->accepts[f->accept_count++] = request;
}

static void accept_one(fabric *f, ucp_conn_request_h request)
{
    char host[64] = "unknown", address[80];
    uint16_t port = 0;
    ucp_conn_request_attr_t from = { .field_mask = UCP_CONN_REQUEST_ATTR_FIELD_CLIENT_ADDR };
    if (ucp_conn_request_query(request, &from) == UCS_OK)
        fabric_format_address(&from.client_address, host, &port);
    fabric_endpoint *e = take_endpoint(f);
    if (e == NULL) {
        log_warn(FABRIC_TAG, "peer refused address %s reason all %u endpoints are in use", host,
                 f->settings.peers_max);
        ucp_listener_reject(f->listener, request);
        return;
    }
    ucp_ep_params_t params = { .field_mask = UCP_EP_PARAM_FIELD_CONN_REQUEST,
                               .conn_request = request };
    ucs_status_t code = create_endpoint(f, e, &params);
    if (code != UCS_OK) {
        log_warn(FABRIC_TAG, "peer lost address %s reason %s", host, ucs_status_string(code));
        return;
    }
    snprintf(address, sizeof(address), strchr(host, ':') ? "[%s]:%u" : "%s:%u", host, port);
    f->handled = true;
    f->handlers.accepted(f->handlers.owner, e->id, address);
}

void fabric_accept_all(fabric *f)
{
    while (f->accept_count > 0)
        accept_one(f, f->accepts[--f->accept_count]);
}

void fabric_fail(fabric *f, fabric_peer peer, status code)
{
    fabric_endpoint *e = fabric_endpoint_of(f, peer);
    if (e)
        fail_endpoint(e, code);
}

void fabric_set_busy(fabric *f, fabric_peer peer, bool busy)
{
    fabric_endpoint *e = fabric_endpoint_of(f, peer);
    if (e)
        e->busy = busy;
}

static void begin_close(fabric *f, fabric_endpoint *e)
{
    ucp_request_param_t params = { .op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS,
                                   .flags = UCP_EP_CLOSE_FLAG_FORCE };
    ucs_status_ptr_t request = ucp_ep_close_nbx(e->ep, &params);
    e->state = FABRIC_PEER_DRAINING;
    f->posted = true;
    e->drain_us = f->now_us;
    e->close_request = UCS_PTR_IS_PTR(request) ? request : NULL;
    if (UCS_PTR_IS_ERR(request))
        log_warn(FABRIC_TAG, "peer %llu does not close: %s", (unsigned long long)e->id,
                 ucs_status_string(UCS_PTR_STATUS(request)));
}

// True when the endpoint is gone and nothing of it is held by UCX any more.
static bool is_drained(fabric_endpoint *e)
{
    if (e->close_request && ucp_request_check_status(e->close_request) != UCS_INPROGRESS) {
        ucp_request_free(e->close_request);
        e->close_request = NULL;
    }
    return e->close_request == NULL && !e->sends && !e->receives && !e->messages;
}

void fabric_advance_peers(fabric *f)
{
    for (uint32_t i = 0; i < f->settings.peers_max; i++) {
        fabric_endpoint *e = &f->peers[i];
        if (e->state == FABRIC_PEER_FAILING) {
            begin_close(f, e);
            f->handled = true;
            f->handlers.failed(f->handlers.owner, e->id, e->code);
        } else if (e->state == FABRIC_PEER_DRAINING && is_drained(e)) {
            e->state = FABRIC_PEER_FREE;
            f->handled = true;
            f->handlers.closed(f->handlers.owner, e->id);
        } else if (e->state == FABRIC_PEER_DRAINING && !e->drain_logged &&
                   f->now_us - e->drain_us > FABRIC_DRAIN_US) {
            e->drain_logged = true;
            log_warn(FABRIC_TAG, "peer %llu still holds %u sends and %u receives after its close",
                     (unsigned long long)e->id, e->sends, e->receives);
        }
    }
}

void fabric_judge_silence(fabric *f)
{
    for (uint32_t i = 0; i < f->settings.peers_max; i++) {
        fabric_endpoint *e = &f->peers[i];
        if (e->state != FABRIC_PEER_OPEN)
            continue;
        if (e->busy && !e->pulse_asked &&
            f->now_us - e->heard_us > (uint64_t)f->settings.fail_us / 5) {
            e->pulse_asked = true;
            fabric_send_pulse(f, e, FABRIC_PULSE_ASK);
            fabric_owes(f, e);
        }
        if (e->owed_since_us == 0)
            continue;
        uint64_t since_us = e->heard_us > e->owed_since_us ? e->heard_us : e->owed_since_us;
        uint64_t silent_us = f->now_us > since_us ? f->now_us - since_us : 0;
        if (silent_us > (uint64_t)f->settings.fail_us) {
            log_warn(FABRIC_TAG, "peer %llu failed silent_ms %llu sends %u receives %u",
                     (unsigned long long)e->id, (unsigned long long)silent_us / 1000, e->sends,
                     e->receives);
            fail_endpoint(e, STATUS_PEER_SILENT);
        } else if (silent_us > (uint64_t)f->settings.suspect_us && !e->suspect) {
            e->suspect = true;
            log_warn(FABRIC_TAG, "peer %llu suspect silent_ms %llu", (unsigned long long)e->id,
                     (unsigned long long)silent_us / 1000);
        }
    }
}

// Turn for at most `limit_us`, until no endpoint is open (or, before the close, none holds
// messages).
static bool wait_for_peers(fabric *f, bool messages_only, int64_t limit_us)
{
    uint64_t end_us = clock_now_us() + (uint64_t)limit_us;
    for (;;) {
        bool waiting = false;
        while (ucp_worker_progress(f->worker))
            fabric_deliver_returned(f);
        fabric_deliver_returned(f);
        for (uint32_t i = 0; i < f->settings.peers_max; i++) {
            fabric_endpoint *e = &f->peers[i];
            if (e->state == FABRIC_PEER_DRAINING && is_drained(e))
                e->state = FABRIC_PEER_FREE;
            waiting |= messages_only ? e->state == FABRIC_PEER_OPEN && e->messages > 0
                                     : e->state != FABRIC_PEER_FREE;
        }
        if (!waiting || clock_now_us() >= end_us)
            return !waiting;
        clock_sleep_us(1000);
    }
}

// Always by force: a graceful close that the other side does not answer can neither be ended nor
// turned into a forced one. The last words get their time before it.
void fabric_close_peers(fabric *f)
{
    f->now_us = clock_now_us();
    wait_for_peers(f, true, CLOSE_FLUSH_US);
    for (uint32_t i = 0; i < f->settings.peers_max; i++) {
        fabric_endpoint *e = &f->peers[i];
        if (e->state == FABRIC_PEER_OPEN || e->state == FABRIC_PEER_FAILING)
            begin_close(f, e);
    }
    if (!wait_for_peers(f, false, CLOSE_DRAIN_US))
        log_error(FABRIC_TAG, "endpoints did not drain before the fabric closed");
}

// UCX tells the transport of a lane only in its description for people:
// "#   lane[0]:  2:tcp/lo.0 md[1] -> ... am am_bw#0".
void fabric_transport(fabric *f, fabric_peer peer, char name[32])
{
    name[0] = 0;
    fabric_endpoint *e = fabric_endpoint_of(f, peer);
    char *text = NULL;
    size_t size = 0;
    FILE *stream = e && e->state == FABRIC_PEER_OPEN ? open_memstream(&text, &size) : NULL;
    if (stream == NULL)
        return;
    ucp_ep_print_info(e->ep, stream);
    fclose(stream);
    char *rest = NULL;
    for (char *line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
        char *lane = strstr(line, "lane["), *colon = lane ? strchr(lane, ':') : NULL;
        char *second = colon ? strchr(colon + 1, ':') : NULL;
        size_t length = second ? strcspn(second + 1, "/ ") : 0;
        bool carries = second && strstr(second, " am");
        if (carries && length > 0 && length < 32 && name[0] == 0)
            snprintf(name, 32, "%.*s", (int)length, second + 1);
    }
    free(text);
}
