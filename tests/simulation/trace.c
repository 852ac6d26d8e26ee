#include "trace.h"

#include "net/message.h"

#include <inttypes.h>

static void request_trace(const process *from, const char *what, const message_request_id *id,
                          uint32_t attempt, const char *more, uint64_t number)
{
    world_trace("%s <- %s request %" PRIu64 " attempt %u%s%" PRIu64, what, from->name, id->number,
                attempt, more, number);
}

static void to_worker_trace(const process *from, const message_to_worker *m)
{
    if (m->body_case == PENSTOCK__TO_WORKER__BODY_TICKET)
        request_trace(from, "ticket", m->ticket->request, m->ticket->attempt, " tokens ",
                      m->ticket->n_tokens);
    else if (m->body_case == PENSTOCK__TO_WORKER__BODY_CANCEL)
        request_trace(from, "cancel", m->cancel->request, m->cancel->attempt, " ", 0);
    else if (m->body_case == PENSTOCK__TO_WORKER__BODY_DRAIN)
        world_trace("drain <- %s", from->name);
}

static void to_router_trace(const process *from, const message_to_router *m)
{
    switch (m->body_case) {
    case PENSTOCK__TO_ROUTER__BODY_TOKENS:
        for (size_t i = 0; i < m->tokens->n_updates; i++) {
            const message_token_update *u = m->tokens->updates[i];
            request_trace(from, u->finish ? "last token" : "token", u->request, u->attempt,
                          " index ", u->first_index);
        }
        break;
    case PENSTOCK__TO_ROUTER__BODY_REFUSED:
        request_trace(from, "refused", m->refused->request, m->refused->attempt, " code ",
                      m->refused->code);
        break;
    case PENSTOCK__TO_ROUTER__BODY_FAILED:
        request_trace(from, "failed", m->failed->request, m->failed->attempt, " code ",
                      m->failed->code);
        break;
    case PENSTOCK__TO_ROUTER__BODY_SEAT:
        request_trace(from, "seat", m->seat->request, m->seat->attempt, " pages ", m->seat->pages);
        break;
    case PENSTOCK__TO_ROUTER__BODY_HANDED_OVER:
        request_trace(from, "handed over", m->handed_over->request, m->handed_over->attempt,
                      " bytes ", m->handed_over->bytes);
        break;
    case PENSTOCK__TO_ROUTER__BODY_GOODBYE:
        world_trace("goodbye <- %s", from->name);
        break;
    default:
        break;
    }
}

void trace_pair(const process *from, bool to_worker, slice data)
{
    message_to_worker *down = NULL;
    message_to_router *up = NULL;
    if (!world_traces())
        return;
    if (to_worker && message_unpack_to_worker(data, &down, NULL) == STATUS_OK)
        to_worker_trace(from, down);
    else if (!to_worker && message_unpack_to_router(data, &up, NULL) == STATUS_OK)
        to_router_trace(from, up);
    message_free(down);
    message_free(up);
}

static void transfer_trace(const process *from, const char *what, const Penstock__Transfer *t,
                           uint64_t number)
{
    world_trace("%s <- %s request %" PRIu64 " attempt %u generation %" PRIu64 " %" PRIu64, what,
                from->name, t->request->number, t->attempt, t->generation, number);
}

void trace_fabric(const process *from, slice data, size_t size)
{
    message_fabric *m = NULL;
    if (!world_traces() || message_unpack_fabric(data, &m, NULL) != STATUS_OK)
        return;
    switch (m->body_case) {
    case PENSTOCK__FABRIC_HEADER__BODY_HELLO:
        world_trace("hello <- %s", from->name);
        break;
    case PENSTOCK__FABRIC_HEADER__BODY_SEAT_OPEN:
        transfer_trace(from, "seat open", m->seat_open->transfer, m->seat_open->first_page);
        break;
    case PENSTOCK__FABRIC_HEADER__BODY_SEAT_CLOSED:
        transfer_trace(from, "seat closed", m->seat_closed->transfer, 0);
        break;
    case PENSTOCK__FABRIC_HEADER__BODY_PAGE_RUN:
        transfer_trace(from, "page run", m->page_run->transfer, size);
        break;
    case PENSTOCK__FABRIC_HEADER__BODY_RECORD:
        transfer_trace(from, "record", m->record->transfer, m->record->computed);
        break;
    case PENSTOCK__FABRIC_HEADER__BODY_RECEIVED:
        transfer_trace(from, "received", m->received->transfer, 0);
        break;
    case PENSTOCK__FABRIC_HEADER__BODY_SEND_ENDED:
        transfer_trace(from, "send ended", m->send_ended->transfer, 0);
        break;
    default:
        break;
    }
    message_free(m);
}
