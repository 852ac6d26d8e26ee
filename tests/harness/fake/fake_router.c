#include "fake_router.h"

#include "base/clock.h"
#include "base/queue.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define WORKERS_MAX 32
#define PATIENCE_MS 60000

struct fake_worker {
    fake_router *router;
    mailbox_pair *pair;
    message_control_request *join; // owns the registration
    message_to_router *beat;       // the last
    bool up, down;
    uint64_t spoke_us;
};

struct fake_router {
    queue *events;
    mailbox_server *server;
    fake_worker *workers[WORKERS_MAX];
    int worker_count, joins, leaves;
    uint64_t id;
    bool silent;
    message_to_router *last;
    bool older; // of the protocol before
};

fake_router *fake_router_open(void)
{
    fake_router *r = calloc(1, sizeof(*r));
    static uint64_t last_id;
    error failure;
    assert_non_null(r);
    r->id = ++last_id;
    assert_int_equal(queue_open(4096, &r->events), STATUS_OK);
    assert_int_equal(mailbox_server_open("tcp://127.0.0.1:0", 4, &mailbox_limits_default, r->events,
                                         NULL, &r->server, &failure),
                     STATUS_OK);
    return r;
}

void fake_router_close(fake_router *r)
{
    mailbox_server_close(r->server);
    for (int i = 0; i < r->worker_count; i++) {
        mailbox_pair_close(r->workers[i]->pair);
        message_free(r->workers[i]->join);
        message_free(r->workers[i]->beat);
    }
    for (mailbox_event *event; (event = queue_pop(r->events)) != NULL;)
        mailbox_event_free(event);
    for (int i = 0; i < r->worker_count; i++)
        free(r->workers[i]);
    message_free(r->last);
    queue_close(r->events);
    free(r);
}

const char *fake_router_url(const fake_router *r)
{
    return mailbox_server_url(r->server);
}

void fake_router_older(fake_router *r)
{
    r->older = true;
}

void fake_router_speak(fake_router *r, bool speak)
{
    r->silent = !speak;
}

int fake_router_joins(const fake_router *r)
{
    return r->joins;
}

int fake_router_leaves(const fake_router *r)
{
    return r->leaves;
}

// ---- pumping -----------------------------------------------------------------------------------

static void join_take(fake_router *r, message_control_request *m)
{
    for (int i = 0; i < r->worker_count; i++) {
        fake_worker *w = r->workers[i];
        if (w->join->register_->incarnation == m->register_->incarnation &&
            strcmp(w->join->register_->pair_url, m->register_->pair_url) == 0) {
            message_free(r->workers[i]->join); // it asked again; its credits may have changed
            r->workers[i]->join = m;
            return;
        }
    }
    assert_true(r->worker_count < WORKERS_MAX);
    fake_worker *w = calloc(1, sizeof(*w));
    assert_non_null(w);
    w->router = r;
    w->join = m;
    r->workers[r->worker_count++] = w;
    assert_int_equal(mailbox_pair_dial(m->register_->pair_url, &mailbox_limits_default, r->events,
                                       w, &w->pair, NULL),
                     STATUS_OK);
}

static void control_take(fake_router *r, mailbox_event *event)
{
    message_control_request *m;
    error failure = { 0 };
    if (message_unpack_control_request(event->data, &m, &failure) != STATUS_OK)
        fail_msg("a registration is not valid: %s", failure.text);
    Penstock__ControlReply reply = PENSTOCK__CONTROL_REPLY__INIT;
    reply.accepted = !r->older || m->protocol == MESSAGE_PROTOCOL - 1;
    reply.reason = (char *)(reply.accepted ? "" : "protocol is 2; this program speaks 1");
    reply.router = r->id;
    reply.heartbeat_ms = 100;
    reply.dead_after_ms = 1000;
    if (!reply.accepted) {
        message_free(m);
    } else if (m->body_case == PENSTOCK__CONTROL_REQUEST__BODY_REGISTER) {
        r->joins++;
        join_take(r, m);
    } else {
        r->leaves++;
        message_free(m);
    }
    buffer bytes = { 0 };
    message_pack(&reply.base, &bytes);
    mailbox_reply(event, buffer_slice(&bytes));
    buffer_close(&bytes);
}

static void beats_send(fake_router *r)
{
    uint64_t now_us = clock_now_us();
    Penstock__RouterBeat beat = PENSTOCK__ROUTER_BEAT__INIT;
    message_to_worker message = PENSTOCK__TO_WORKER__INIT;
    beat.clock_us = now_us;
    message.body_case = PENSTOCK__TO_WORKER__BODY_BEAT;
    message.beat = &beat;
    for (int i = 0; i < r->worker_count && !r->silent; i++) {
        fake_worker *w = r->workers[i];
        if (!w->up || w->down || now_us - w->spoke_us < 100000)
            continue;
        w->spoke_us = now_us;
        fake_worker_send(w, &message);
    }
}

// True where the test must see it.
static bool pair_take(fake_router *r, mailbox_event *from, fake_event *event)
{
    fake_worker *w = from->owner;
    bool seen = false;
    *event = (fake_event){ .from = w };
    if (from->kind == MAILBOX_UP)
        w->up = true;
    else if (from->kind == MAILBOX_DOWN)
        w->down = seen = true;
    else if (!w->down) {
        message_to_router *m;
        error failure = { 0 };
        if (message_unpack_to_router(from->data, &m, &failure) != STATUS_OK)
            fail_msg("a worker's message is not valid: %s", failure.text);
        if (m->body_case == PENSTOCK__TO_ROUTER__BODY_BEAT) {
            message_free(w->beat);
            w->beat = m;
        } else {
            message_free(r->last);
            r->last = event->message = m;
            seen = true;
        }
    }
    mailbox_event_free(from);
    return seen;
}

bool fake_router_next(fake_router *r, int timeout_ms, fake_event *event)
{
    uint64_t end_us = clock_now_us() + (uint64_t)timeout_ms * 1000;
    do {
        beats_send(r);
        mailbox_event *from = queue_pop_wait(r->events, 20000);
        if (from == NULL)
            continue;
        if (from->kind == MAILBOX_REQUEST)
            control_take(r, from);
        else if (pair_take(r, from, event))
            return true;
    } while (clock_now_us() < end_us);
    return false;
}

void fake_router_pump(fake_router *r, int ms)
{
    fake_event event;
    uint64_t end_us = clock_now_us() + (uint64_t)ms * 1000;
    while (clock_now_us() < end_us)
        fake_router_next(r, 20, &event);
}

fake_worker *fake_router_worker(fake_router *r, int count)
{
    uint64_t end_us = clock_now_us() + PATIENCE_MS * 1000ull;
    while (clock_now_us() < end_us) {
        if (r->worker_count >= count && r->workers[count - 1]->up &&
            r->workers[count - 1]->beat != NULL)
            return r->workers[count - 1];
        fake_router_pump(r, 20);
    }
    fail_msg("worker %d did not join", count);
    return NULL;
}

const message_worker_beat *fake_worker_beat(const fake_worker *w)
{
    assert_non_null(w->beat);
    return w->beat->beat;
}

const message_register *fake_worker_register(const fake_worker *w)
{
    return w->join->register_;
}

bool fake_worker_connected(const fake_worker *w)
{
    return w->up && !w->down;
}

bool fake_worker_idle(fake_router *r, const fake_worker *w, int timeout_ms)
{
    uint64_t end_us = clock_now_us() + (uint64_t)timeout_ms * 1000;
    do {
        fake_router_pump(r, 150); // longer than a heartbeat: what it says is new
        const message_worker_beat *b = fake_worker_beat(w);
        if (b->sequences_running == 0 && b->sequences_waiting == 0 && b->pages_held == 0 &&
            b->pages_quarantined == 0 && b->pages_free == fake_worker_register(w)->pages)
            return true;
    } while (clock_now_us() < end_us);
    return false;
}

// ---- sending -----------------------------------------------------------------------------------

void fake_worker_send_bytes(fake_worker *w, slice bytes)
{
    mailbox_pair_send(w->pair, bytes, false);
}

void fake_worker_send(fake_worker *w, const message_to_worker *message)
{
    buffer bytes = { 0 };
    message_pack(&message->base, &bytes);
    fake_worker_send_bytes(w, buffer_slice(&bytes));
    buffer_close(&bytes);
}

void fake_worker_drop(fake_worker *w)
{
    mailbox_pair_close(w->pair);
    w->pair = NULL;
    w->down = true;
}

void fake_ticket_make(fake_ticket *t, uint64_t number, const int32_t *tokens, size_t count,
                      uint32_t max_tokens)
{
    penstock__to_worker__init(&t->message);
    penstock__ticket__init(&t->ticket);
    penstock__request_id__init(&t->request);
    penstock__sampling__init(&t->sampling);
    penstock__plan_peer__init(&t->prefill);
    penstock__plan_peer__init(&t->decode);
    t->message.body_case = PENSTOCK__TO_WORKER__BODY_TICKET;
    t->message.ticket = &t->ticket;
    t->ticket.request = &t->request;
    t->request.router = 77;
    t->request.number = number;
    t->ticket.tokens = (int32_t *)tokens;
    t->ticket.n_tokens = count;
    t->ticket.prompt_count = (uint32_t)count;
    t->ticket.max_tokens = max_tokens;
    t->ticket.ignore_eos = true;
    t->ticket.logits_hash = true;
    t->ticket.sampling = &t->sampling;
    t->sampling.top_p = 1;
    t->sampling.typical_p = 1;
    t->sampling.repetition_penalty = 1;
}

void fake_worker_cancel(fake_worker *w, uint64_t number, uint32_t attempt)
{
    Penstock__RequestId request = PENSTOCK__REQUEST_ID__INIT;
    Penstock__Cancel cancel = PENSTOCK__CANCEL__INIT;
    message_to_worker message = PENSTOCK__TO_WORKER__INIT;
    request.router = 77;
    request.number = number;
    cancel.request = &request;
    cancel.attempt = attempt;
    message.body_case = PENSTOCK__TO_WORKER__BODY_CANCEL;
    message.cancel = &cancel;
    fake_worker_send(w, &message);
}

// ---- answers -----------------------------------------------------------------------------------

static void update_take(fake_answer *a, const message_token_update *u)
{
    for (size_t i = 0; i < u->n_tokens; i++) {
        uint32_t index = u->first_index + (uint32_t)i;
        assert_true(index < 512);
        if (a->seen[index])
            assert_int_equal(a->tokens[index], u->tokens[i]->id);
        a->seen[index] = true;
        a->tokens[index] = u->tokens[i]->id;
        a->hashes[index] = u->tokens[i]->logits_hash;
        a->length = (int)index + 1 > a->length ? (int)index + 1 : a->length;
    }
    // The decode worker's tokens may overtake the prefill worker's first one: two sockets.
    while (a->count < a->length && a->seen[a->count])
        a->count++;
    a->handing_over = a->handing_over || u->handing_over;
    if (u->first_index == 0)
        a->cached_tokens = u->cached_tokens;
    if (u->times != NULL && u->times->first_step != 0)
        a->times_first_step = true;
    if (u->finish != PENSTOCK__FINISH__FINISH_NONE)
        a->finish = (int32_t)u->finish;
}

void fake_answer_take(fake_answer *a, uint64_t number, const fake_event *event)
{
    const message_to_router *m = event->message;
    if (m == NULL)
        return;
    if (m->body_case == PENSTOCK__TO_ROUTER__BODY_TOKENS) {
        for (size_t i = 0; i < m->tokens->n_updates; i++)
            if (m->tokens->updates[i]->request->number == number)
                update_take(a, m->tokens->updates[i]);
    } else if (m->body_case == PENSTOCK__TO_ROUTER__BODY_REFUSED &&
               m->refused->request->number == number) {
        a->refused_code = m->refused->code;
        snprintf(a->text, sizeof(a->text), "%s", m->refused->text);
    } else if (m->body_case == PENSTOCK__TO_ROUTER__BODY_FAILED &&
               m->failed->request->number == number) {
        a->failed_code = m->failed->code;
        snprintf(a->text, sizeof(a->text), "%s", m->failed->text);
    } else if (m->body_case == PENSTOCK__TO_ROUTER__BODY_SEAT)
        a->seats += m->seat->request->number == number;
    else if (m->body_case == PENSTOCK__TO_ROUTER__BODY_HANDED_OVER)
        a->handed_over += m->handed_over->request->number == number;
}

static bool ended(const fake_answer *a)
{
    return (a->finish != 0 && a->count == a->length) || a->refused_code != 0 || a->failed_code != 0;
}

bool fake_answer_wait(fake_router *r, fake_answer *a, uint64_t number, int timeout_ms)
{
    uint64_t end_us = clock_now_us() + (uint64_t)timeout_ms * 1000;
    fake_event event;
    while (!ended(a) && clock_now_us() < end_us)
        if (fake_router_next(r, 50, &event))
            fake_answer_take(a, number, &event);
    return ended(a);
}

fake_answer fake_worker_ask(fake_worker *w, const fake_ticket *t, int timeout_ms)
{
    fake_answer a = { 0 };
    fake_worker_send(w, &t->message);
    assert_true(fake_answer_wait(w->router, &a, t->request.number, timeout_ms));
    return a;
}
