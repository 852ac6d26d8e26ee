// Jobs: how a ticket comes in, waits, enters the engine and ends.
#include "worker/station.h"
#include "worker/station_private.h"

#include "base/clock.h"
#include "worker/ticket.h"

#include <stdio.h>

#define TRIES_MAX 16 // waiting tickets looked at in one round
#define ALONE_WAITS_US 5000000
#define RETRY_US 100000 // until one that found no room is looked at again although nothing happened

// ---- ends --------------------------------------------------------------------------------------

void station_hold(station *s, job *j, const int32_t *pages, int32_t count)
{
    for (int32_t i = 0; i < count; i++) {
        engine_page_hold(s->engine, pages[i]);
        j->held[j->held_count++] = pages[i];
    }
}

static void station_release(station *s, job *j)
{
    while (j->held_count > 0)
        engine_page_release(s->engine, j->held[--j->held_count]);
}

void station_end(station *s, job *j, bool keep)
{
    if (j->sequence != NULL && s->role->closing != NULL)
        s->role->closing(s, j);
    if (j->sequence != NULL)
        engine_sequence_close(s->engine, j->sequence, keep);
    j->sequence = NULL;
    guide_release(j->guide);
    j->guide = NULL;
    j->state = JOB_ENDING;
    j->recompute = false;
    message_free(j->message);
    j->message = NULL;
    if (!j->transfer) {
        station_release(s, j);
        job_remove(s->jobs, j);
    } else if (!j->stopping) {
        j->stopping = true;
        if (j->sends)
            handoff_send_cancel(s->handoff, j->key);
        else
            handoff_seat_close(s->handoff, j->key);
    }
}

void station_fail(station *s, job *j, status code, const char *text)
{
    if (j->router != NULL) {
        report_failed(j, code, text);
        page_failed(s->page, code);
        log_info(s->role->name, "failed request %llu attempt %u reason %s",
                 (unsigned long long)j->key.number, j->key.attempt, text);
    }
    // What was computed is right whatever became of its transfer, unless it is no number.
    station_end(s, j, code != STATUS_NUMERIC);
}

static void refuse(station *s, worker_router *router, const handoff_key *key, status code,
                   const char *text)
{
    report_refused(router, key, code, text);
    page_refused(s->page, code);
    log_info(s->role->name, "refused request %llu attempt %u reason %s",
             (unsigned long long)key->number, key->attempt, text);
}

static void refuse_job(station *s, job *j, status code, const char *text)
{
    refuse(s, j->router, &j->key, code, text);
    station_end(s, j, true);
}

// ---- tickets -----------------------------------------------------------------------------------

// Why a ticket cannot be taken at all; STATUS_OK where it can.
static status ticket_check(station *s, const message_ticket *t, error *failure)
{
    sequence_request request;
    if (worker_draining(s->worker))
        return error_set(failure, STATUS_UNAVAILABLE, "", "the worker drains");
    if (fault_fires(FAULT_TICKET_REFUSE))
        return error_set(failure, STATUS_OVERLOADED, "", "the fault point ticket.refuse is armed");
    if (engine_pages_needed(s->engine, (int32_t)t->n_tokens) > engine_facts_of(s->engine)->pages)
        return error_set(failure, STATUS_CONTEXT_LENGTH, "prompt",
                         "the prompt has %zu tokens and the page pool holds %lld", t->n_tokens,
                         (long long)engine_facts_of(s->engine)->pages *
                             engine_facts_of(s->engine)->layout.page_tokens);
    return ticket_read(t, s->role->mode, NULL, s->biases, &request, failure);
}

static handoff_token token_of(const Penstock__PlanPeer *peer)
{
    return handoff_token_of(peer->token.data, peer->token.len);
}

static status grammar_take(station *s, job *j, error *failure)
{
    j->guide = guides_take(s->guides, slice_of(j->message->ticket->grammar));
    return j->guide != NULL ? STATUS_OK
                            : error_set(failure, STATUS_OVERLOADED, "grammar",
                                        "the grammars of other tickets leave no room for one more");
}

void station_ticket(station *s, worker_event *event)
{
    const message_ticket *t = event->message->ticket;
    handoff_key key = { t->request->router, t->request->number, t->attempt };
    error failure;
    page_count(s->page, PAGE_TICKETS, 1);
    if (job_came_before(s->jobs, &key) || job_find(s->jobs, &key, false) != NULL)
        return; // a repetition, or older than what came, also where that has ended since
    // Also of a ticket that is refused: its sender may serve others over the same endpoint.
    if (t->prefill != NULL && s->role->seats)
        handoff_admit(s->handoff, t->prefill->incarnation, token_of(t->prefill));
    job *other = job_find(s->jobs, &key, true);
    if (other != NULL)
        station_end(s, other, true); // the router gave that attempt up
    status result = ticket_check(s, t, &failure);
    job *j = result == STATUS_OK ? job_add(s->jobs, &key) : NULL;
    if (result == STATUS_OK && j == NULL)
        result = error_set(&failure, STATUS_OVERLOADED, "", "the table of tickets is full");
    if (result != STATUS_OK) {
        refuse(s, event->router, &key, result, failure.text);
        return;
    }
    j->router = event->router;
    j->state = JOB_WAITING;
    j->times.received = event->arrived_us;
    j->deadline_us = t->timeout_us > 0 ? event->arrived_us + t->timeout_us : 0;
    j->token_count = (int32_t)t->n_tokens;
    j->prompt_count = (int32_t)t->prompt_count;
    j->alone = t->alone;
    j->class = t->priority == 0 ? SEQUENCE_INTERACTIVE : SEQUENCE_BATCH;
    j->message = event->message;
    event->message = NULL;
    result = s->role->begin(s, j, &failure);
    if (result == STATUS_OK && j->message->ticket->grammar[0] != 0)
        result = grammar_take(s, j, &failure);
    if (result != STATUS_OK) {
        refuse_job(s, j, result, failure.text);
        return;
    }
    station_admit(s);
    bool full = job_count_in(s->jobs, JOB_WAITING) > s->config->queue.waiting;
    if (full && (j = job_find(s->jobs, &key, false)) != NULL && j->state == JOB_WAITING)
        refuse_job(s, j, STATUS_OVERLOADED, "too many tickets wait already");
}

void station_cancel(station *s, const worker_event *event)
{
    const Penstock__Cancel *c = event->message->cancel;
    handoff_key key = { c->request->router, c->request->number, c->attempt };
    job *j = job_find(s->jobs, &key, false);
    if (j != NULL && j->state != JOB_ENDING && j->router == event->router)
        station_end(s, j, true);
}

void station_migrate(station *s, const worker_event *event)
{
    const Penstock__Migrate *m = event->message->migrate;
    handoff_key key = { m->request->router, m->request->number, m->attempt };
    job *j = job_find(s->jobs, &key, false);
    if (j != NULL && j->state == JOB_RUNNING && j->router == event->router &&
        s->role->migrate != NULL)
        s->role->migrate(s, j, m);
}

void station_send_begin(station *s, job *j, const Penstock__PlanPeer *to)
{
    handoff_peer peer = { .incarnation = to->incarnation,
                          .port = (uint16_t)to->port,
                          .token = token_of(to) };
    snprintf(peer.host, sizeof(peer.host), "%s", to->host);
    j->transfer = j->sends = true;
    handoff_send_begin(s->handoff, j->key, &peer);
}

void station_router_gone(station *s, const worker_router *router)
{
    // Ending one job may take it out of the list: go from the back.
    for (int32_t i = job_count(s->jobs) - 1; i >= 0; i--) {
        job *j = job_at(s->jobs, i);
        if (j->router != router)
            continue;
        j->router = NULL;
        if (j->state != JOB_ENDING)
            station_end(s, j, true);
    }
}

// ---- waiting -----------------------------------------------------------------------------------

static bool in_engine(const job *j)
{
    return j->sequence != NULL;
}

// A job that must be alone enters an empty engine, and nobody enters beside it.
static bool alone_allows(const station *s, const job *entering)
{
    for (int32_t i = 0; i < job_count(s->jobs); i++) {
        const job *j = job_at(s->jobs, i);
        if (in_engine(j) && (j->alone || entering->alone))
            return false;
    }
    return true;
}

void station_count_reused(station *s, job *j)
{
    j->cached_tokens = sequence_reused(j->sequence);
    s->state.cached_tokens += (uint64_t)j->cached_tokens;
    page_count(s->page, PAGE_CACHED_TOKENS, j->cached_tokens);
}

static bool compiling(const job *j)
{
    return j->guide != NULL && guide_state_of(j->guide) == GUIDE_COMPILING;
}

static status grammar_begin(const job *j, const sequence_guide **wanted, error *failure)
{
    if (guide_state_of(j->guide) == GUIDE_REFUSED)
        return guide_refusal(j->guide, failure);
    *wanted = guide_begin(j->guide);
    return *wanted != NULL ? STATUS_OK
                           : error_set(failure, STATUS_OVERLOADED, "grammar", "memory is short");
}

// False where it found no room; otherwise the job entered or was refused.
static bool enter(station *s, job *j)
{
    sequence_request request;
    error failure;
    CHECK(ticket_read(j->message->ticket, s->role->mode, j, s->biases, &request, &failure) ==
          STATUS_OK);
    status result = STATUS_OK;
    if (j->guide != NULL)
        result = grammar_begin(j, &request.guide, &failure);
    if (result == STATUS_OK)
        result = engine_sequence_open(s->engine, &request, &j->sequence, &failure);
    if (result == STATUS_OVERLOADED) {
        j->tried_pages = engine_pages_free(s->engine);
        j->tried_open = engine_sequences_open(s->engine);
        j->tried_us = clock_now_us();
        return false;
    }
    if (result != STATUS_OK) {
        refuse_job(s, j, result, failure.text);
        return true;
    }
    j->cached_tokens = sequence_reused(j->sequence);
    s->role->enter(s, j);
    message_free(j->message);
    j->message = NULL;
    return true;
}

// Nothing became free since it last found no room. What others need to grow, and what of it is
// known by now, change slowly: it is looked at again now and then.
static bool tried_in_vain(const station *s, const job *j)
{
    return j->tried_open >= 0 && engine_pages_free(s->engine) <= j->tried_pages &&
           engine_sequences_open(s->engine) >= j->tried_open &&
           clock_now_us() - j->tried_us < RETRY_US;
}

static bool class_full(const station *s, sequence_class class)
{
    const station_settings *q = &s->config->queue;
    int64_t limit = class == SEQUENCE_BATCH ? q->batch_sequences : q->interactive_sequences;
    int64_t count = 0;
    for (int32_t i = 0; limit > 0 && i < job_count(s->jobs); i++) {
        const job *j = job_at(s->jobs, i);
        count += in_engine(j) && j->class == class;
    }
    return limit > 0 && count >= limit;
}

// In which row it waits: 0 goes first.
static int row_of(const station *s, const job *j)
{
    int64_t waited_us = (int64_t)(clock_now_us() - j->times.received);
    return j->class == SEQUENCE_BATCH && waited_us < s->config->queue.batch_patience_us;
}

// Let one ticket in; false where none can enter now.
static bool admit_one(station *s)
{
    job *blocked = NULL; // the first that found no room
    int tries = 0;
    for (int row = 0; row < 2 && blocked == NULL; row++)
        for (int32_t i = 0; i < job_count(s->jobs) && tries < TRIES_MAX; i++) {
            job *j = job_at(s->jobs, i);
            if (j->state != JOB_WAITING || compiling(j) || row_of(s, j) != row ||
                class_full(s, j->class))
                continue;
            if (!alone_allows(s, j) ||
                (blocked != NULL && blocked->overtaken >= s->config->queue.overtaking))
                return false;
            tries++;
            if (tried_in_vain(s, j) || !enter(s, j)) {
                blocked = blocked != NULL ? blocked : j;
                continue;
            }
            if (blocked != NULL) {
                blocked->overtaken++;
                page_count(s->page, PAGE_OVERTAKES, 1);
            }
            return true;
        }
    return false;
}

// Interactive tickets first, each class in order of arrival. One that finds no room lets a few
// smaller ones of its row pass, so that they do not wait for what only a large one needs; then it
// holds them back, so that room gathers for it.
void station_admit(station *s)
{
    while (admit_one(s))
        ;
}

// How long a ticket may wait. One that must be alone holds the engine of its other worker
// meanwhile, and where another router's request waits there and is here, both would wait for each
// other: it goes back soon, and its router plans it again.
static uint64_t patience_us(const station *s, const job *j)
{
    uint64_t usual_us = (uint64_t)s->config->queue.waiting_us;
    return j->alone && usual_us > ALONE_WAITS_US ? ALONE_WAITS_US : usual_us;
}

// Deadlines of clients, and of waiting.
void station_expire(station *s)
{
    uint64_t now_us = clock_now_us();
    for (int32_t i = job_count(s->jobs) - 1; i >= 0; i--) {
        job *j = job_at(s->jobs, i);
        if (j->state == JOB_ENDING)
            continue;
        if (j->deadline_us != 0 && now_us >= j->deadline_us)
            station_fail(s, j, STATUS_DEADLINE, "its deadline passed");
        else if (j->state == JOB_WAITING && now_us - j->times.received > patience_us(s, j))
            refuse_job(s, j, STATUS_OVERLOADED, "no room became free in time");
    }
}

// ---- drain -------------------------------------------------------------------------------------

// What has not begun goes back at once.
void station_drain(station *s)
{
    for (int32_t i = job_count(s->jobs) - 1; i >= 0; i--) {
        job *j = job_at(s->jobs, i);
        if (j->state == JOB_WAITING)
            refuse_job(s, j, STATUS_UNAVAILABLE, "the worker drains");
    }
}

void station_give_back(station *s)
{
    for (int32_t i = job_count(s->jobs) - 1; i >= 0; i--) {
        job *j = job_at(s->jobs, i);
        if (j->state != JOB_ENDING)
            station_fail(s, j, STATUS_UNAVAILABLE, "the worker leaves before it was done");
    }
}

// ---- transfers ---------------------------------------------------------------------------------

// Count a transfer that is over.
static void count_transfer(station *s, const job *j, const handoff_event *event)
{
    if (event->kind == HANDOFF_DELIVERED || event->kind == HANDOFF_SEAT_FILLED) {
        page_count(s->page, PAGE_HANDOFFS_DELIVERED, 1);
        page_observe(s->page, PAGE_HANDOFF_SECONDS,
                     (double)(event->last_page_us - event->first_page_us) * 1e-6);
    } else if (j->stopping && !j->transfer_failed)
        page_count(s->page, PAGE_HANDOFFS_CANCELLED, 1);
    else
        page_count(s->page, PAGE_HANDOFFS_FAILED, 1);
}

void station_transfer(station *s, const handoff_event *event)
{
    job *j = job_find(s->jobs, &event->key, false);
    if (j == NULL || !j->transfer)
        return; // the last word on a transfer that we stopped while it ended by itself
    bool over = event->kind != HANDOFF_SEAT_READY && event->kind != HANDOFF_SHIPPED &&
                event->kind != HANDOFF_SEAT_FAILED;
    if (over) {
        j->transfer = false;
        count_transfer(s, j, event);
    }
    if (event->kind == HANDOFF_SEAT_FAILED)
        j->transfer_failed = true;
    if (over)
        station_release(s, j);
    if (over && j->state == JOB_ENDING)
        job_remove(s->jobs, j);
    else if (over || !j->stopping)
        s->role->transfer(s, j, event);
}
