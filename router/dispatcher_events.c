// The dispatcher towards the workers: what they report, and what happens when they fail.
#include "router/dispatcher_private.h"

#include "base/clock.h"
#include "base/log.h"
#include "router/registry_cancel.h"

#include <inttypes.h>
#include <stdio.h>

#define REFUSED_PAUSE_US 50000 // before a worker that refused is asked again
#define FAILED_PAUSE_US 5000
#define PAUSE_MAX_US 1000000
#define HARMLESS_TOKENS 16    // an attempt that came so far did not kill its worker
#define EARLY_BYTES_MAX 65536 // of updates that wait for the first token
#define EARLY_MAX_US 2000000  // and how long

// ---- further attempts -------------------------------------------------------------------------

// Where it decodes it may not be computed, so there is no other way for it.
static bool handoffs_failed(const exchange *x)
{
    return x->handoff_failures >= HANDOFF_FAILURES_MAX &&
           !x->dispatcher->router->settings->local_prefill;
}

static void give_up(exchange *x)
{
    char message[640];
    if (handoffs_failed(x)) {
        snprintf(message, sizeof message,
                 "the request could not be handed over to a decode worker (attempts %u), and "
                 "policy.local_prefill is off: %s",
                 x->attempt, x->last_failure.text);
        exchange_fail(x, 502, "handoff_failed", message);
        return;
    }
    snprintf(message, sizeof message, "the request failed on the workers (attempts %u): %s",
             x->attempt, x->last_failure.text);
    exchange_fail(x, x->last_failure.code == STATUS_OVERLOADED ? 503 : 502, "worker_failed",
                  message);
}

// A worker that refused or failed is not asked again at once, and ever less often.
static uint64_t pause_us(const exchange *x)
{
    uint64_t first = x->last_failure.code == STATUS_OVERLOADED ? REFUSED_PAUSE_US : FAILED_PAUSE_US;
    uint64_t pause = first << (x->failures < 10 ? x->failures : 10);
    return pause < PAUSE_MAX_US ? pause : PAUSE_MAX_US;
}

void dispatcher_retry(dispatcher *d, exchange *x, const char *reason, uint64_t culprit, bool died)
{
    uint64_t now = clock_now_us();
    dispatcher_recall(d, x);
    if (x->moving)
        dispatcher_migrated(d, x, "failed");
    d->counts.running--;
    dispatcher_line_of(x)->running--;
    x->avoid = culprit;
    // A worker that dies soon after it took a request may have died of it.
    if (died)
        x->deaths = x->attempt_tokens >= HARMLESS_TOKENS ? 1 : x->deaths + 1;
    if (x->failing_since_us == 0)
        x->failing_since_us = now;
    x->not_before_us = died ? 0 : now + pause_us(x);
    x->failures++;
    dispatcher_enqueue(d, x);
    log_warn("request", "%s attempt %u failed reason %s received %zu cause \"%s\"", x->id,
             x->attempt, reason, x->stream.received.count, x->last_failure.text);
    const char *model = exchange_model_name(x);
    router_metrics_add(d->router->metrics, ROUTER_METRIC_RETRIES, reason, model, 1);
    if (x->deaths >= (uint64_t)d->router->settings->poison_deaths) {
        log_error("request",
                  "%s is poison: workers died with it deaths %u prompt_tokens %zu last %s", x->id,
                  x->deaths, x->prompt->tokens.count, x->last_failure.text);
        exchange_fail(x, 500, "poison",
                      "several workers died with this request; it is not tried again");
        return;
    }
    x->alone = x->deaths + 1 >= (uint64_t)d->router->settings->poison_deaths;
    if (now >= x->failing_since_us + (uint64_t)d->router->settings->retry_budget_us) {
        give_up(x);
        return;
    }
    dispatcher_pump(d);
}

// ---- reports ----------------------------------------------------------------------------------

// The exchange that a report is about, if the report is of its present attempt and of a worker that
// takes part in it. `goes_on`: the worker works on it, and is told where that is in vain.
static exchange *report_target(dispatcher *d, registry_worker *w, const message_request_id *id,
                               uint32_t attempt, bool goes_on)
{
    exchange *x = exchange_find(d, id);
    const char *stale = NULL;
    bool leaving = x && x->moving && x->prefill.serial == w->serial && attempt + 1 == x->attempt;
    if (!x || x->state != EXCHANGE_RUNNING)
        stale = "ended_request";
    else if (x->attempt != attempt && !leaving)
        stale = "older_attempt";
    else if (x->decode.serial != w->serial && x->prefill.serial != w->serial)
        stale = "other_worker";
    if (!stale)
        return x;
    router_metrics_add(d->router->metrics, ROUTER_METRIC_STALE, stale,
                       w->model->prompt.identity.name, 1);
    if (goes_on && id->router == d->router->incarnation)
        registry_cancel_again(d->router->registry, w, id->number, attempt);
    return NULL;
}

static void times_note(timeline *t, const registry_worker *w, const Penstock__WorkerTimes *times)
{
    if (!t || !times)
        return;
    bool decode = w->role == POLICY_DECODE;
    *(decode ? &t->decode_clock_error_us : &t->prefill_clock_error_us) =
        w->clock_error_us == UINT64_MAX ? 0 : w->clock_error_us;
    if (times->prefill_begun)
        t->prefill_begun = registry_align(w, times->prefill_begun);
    if (times->prefill_done)
        t->prefill_done = registry_align(w, times->prefill_done);
    if (times->first_page && (!decode || !t->first_page))
        t->first_page = registry_align(w, times->first_page); // when it was sent, where known
    if (times->last_page && (decode || !t->last_page))
        t->last_page = registry_align(w, times->last_page); // when it was received, where known
    if (times->first_step && decode)
        t->first_step = registry_align(w, times->first_step);
}

// The decode worker holds more pages the longer the answer is.
static void credits_follow(dispatcher *d, exchange *x)
{
    registry_worker *w = registry_find(d->router->registry, x->decode.serial);
    if (!w)
        return;
    uint64_t pages =
        policy_pages(w->page_tokens, x->prompt->tokens.count + x->stream.received.count);
    dispatcher_grow(d, w, &x->decode, pages);
}

// The prompt is computed: it is no longer outstanding.
static void outstanding_settle(dispatcher *d, exchange_share *share)
{
    registry_worker *w = share->serial ? registry_find(d->router->registry, share->serial) : NULL;
    if (w && share->tokens > 0) {
        w->tokens_outstanding -= share->tokens;
        registry_touch(d->router->registry, w);
    }
    share->tokens = 0;
}

static void tokens_note(dispatcher *d, exchange *x, const registry_worker *w,
                        const message_token_update *u, size_t known)
{
    uint64_t now = clock_now_us();
    bool progress = !x->by_prefill || x->decode.serial == w->serial;
    if (known == 0) {
        // Hits of the worker that computed the prompt; never more than there is.
        uint64_t prompt = x->prompt->tokens.count;
        x->choice->cached_tokens = u->cached_tokens < prompt ? u->cached_tokens : prompt;
        x->first_token_us = now;
        d->counts.prompt_tokens += prompt - x->choice->cached_tokens;
        timeline *t = exchange_timeline(x);
        if (t)
            t->first_token = now;
    }
    d->counts.tokens += x->stream.received.count - known;
    outstanding_settle(d, &x->prefill);
    outstanding_settle(d, &x->decode);
    x->last_token_us = now;
    // The prefill worker's token alone is no progress: a pair that cannot talk makes one each time.
    if (progress) {
        x->failing_since_us = 0;
        x->failures = 0;
        x->avoid = 0;
    }
    x->attempt_tokens += x->stream.received.count - known;
    credits_follow(d, x);
}

// ---- the first token's race ---------------------------------------------------------------------
// The prefill worker reports the first token, the decode worker the next ones, on another socket:
// these may come first, and wait. So it is where a decode worker goes on for another one.

static void on_update(dispatcher *d, registry_worker *w, const message_token_update *u);

static bool update_is_early(const exchange *x, const registry_worker *w,
                            const message_token_update *u)
{
    bool other_reports = x->moving || (x->by_prefill && x->attempt_tokens == 0);
    return other_reports && x->decode.serial == w->serial &&
           u->first_index > x->stream.received.count;
}

// False: there is too much of it.
static bool early_keep(exchange *x, const message_token_update *u)
{
    Penstock__TokenBatch batch = PENSTOCK__TOKEN_BATCH__INIT;
    Penstock__ToRouter m = PENSTOCK__TO_ROUTER__INIT;
    Penstock__TokenUpdate *updates[] = { (Penstock__TokenUpdate *)u };
    buffer packed = { 0 };
    batch.n_updates = 1;
    batch.updates = updates;
    m.body_case = PENSTOCK__TO_ROUTER__BODY_TOKENS;
    m.tokens = &batch;
    message_pack(&m.base, &packed);
    if (x->early.size == 0)
        x->early_since_us = clock_now_us();
    x->early.limit = EARLY_BYTES_MAX;
    buffer_append(&x->early, &packed.size, sizeof packed.size);
    buffer_append_slice(&x->early, buffer_slice(&packed));
    bool kept = !x->early.overflow && !packed.overflow;
    buffer_close(&packed);
    return kept;
}

// The first token is here. The exchange may end in any of the updates, so it is not touched again.
static void early_replay(dispatcher *d, exchange *x)
{
    registry_worker *w = registry_find(d->router->registry, x->decode.serial);
    buffer early = x->early;
    x->early = (buffer){ 0 };
    for (size_t at = 0, size; w && at + sizeof size <= early.size; at += size) {
        message_to_router *m = NULL;
        memcpy(&size, early.data + at, sizeof size);
        at += sizeof size;
        if (message_unpack_to_router((slice){ early.data + at, size }, &m, NULL) == STATUS_OK)
            on_update(d, w, m->tokens->updates[0]);
        message_free(m);
    }
    buffer_close(&early);
}

static void gap_retry(dispatcher *d, exchange *x, const registry_worker *w, stream_result result)
{
    error_set(&x->last_failure, STATUS_PEER_PROTOCOL, "", "worker %s reported %s", w->name,
              result == STREAM_GAP ? "tokens with a gap before them" : "tokens that cannot be");
    dispatcher_retry(d, x, result == STREAM_GAP ? "token_gap" : "bad_tokens", w->serial, false);
}

static void on_update(dispatcher *d, registry_worker *w, const message_token_update *u)
{
    exchange *x =
        report_target(d, w, u->request, u->attempt, u->finish == PENSTOCK__FINISH__FINISH_NONE);
    if (!x)
        return;
    if (x->migrations == 0) // the time line is of the first hand-off
        times_note(exchange_timeline(x), w, u->times);
    x->decode_spoke = x->decode_spoke || x->decode.serial == w->serial;
    if (u->finish == PENSTOCK__FINISH__FINISH_FAILED) {
        exchange_fail(x, 500, "numeric_failure", "the model gave no number for this request");
        return;
    }
    if (update_is_early(x, w, u)) {
        if (!early_keep(x, u))
            gap_retry(d, x, w, STREAM_GAP);
        return;
    }
    if (stream_lacks_scores(&x->stream)) {
        error_set(&x->last_failure, STATUS_PEER_PROTOCOL, "",
                  "worker %s gave no log-probabilities of the prompt", w->name);
        dispatcher_retry(d, x, "no_scores", w->serial, false);
        return;
    }
    size_t known = x->stream.received.count;
    stream_result result = stream_push(&x->stream, u);
    if (result == STREAM_GAP || result == STREAM_BROKEN) {
        gap_retry(d, x, w, result);
        return;
    }
    if (x->moving && x->decode.serial == w->serial)
        dispatcher_migrated(d, x, "moved");
    if (x->stream.received.count > known)
        tokens_note(d, x, w, u, known);
    if (result == STREAM_DONE) {
        // Whoever goes on with it may stop: after a stop string both, after the prefill worker's
        // word the decode worker, and the prefill worker where the decode worker did without it.
        if (x->decode.serial == w->serial && !x->stream.stopped_by_text)
            dispatcher_release(d, &x->decode);
        dispatcher_recall(d, x);
    }
    if (result == STREAM_DONE) {
        exchange_deliver(x);
    } else if (result == STREAM_MORE) {
        exchange_deliver_soon(x);
        if (x->early.size > 0)
            early_replay(d, x);
    }
}

static void on_scores(dispatcher *d, registry_worker *w, const Penstock__PromptScores *m)
{
    exchange *x = report_target(d, w, m->request, m->attempt, true);
    stream_result result = x ? stream_scores_push(&x->stream, m) : STREAM_NOTHING;
    if (result == STREAM_GAP || result == STREAM_BROKEN)
        gap_retry(d, x, w, result);
}

static void on_failed(dispatcher *d, registry_worker *w, const message_request_id *id,
                      uint32_t attempt, uint32_t code, const char *text, bool refused)
{
    exchange *x = report_target(d, w, id, attempt, false);
    if (!x)
        return;
    status failure = code > STATUS_OK && code < STATUS_COUNT ? (status)code : STATUS_INTERNAL;
    error_set(&x->last_failure, failure, "", "worker %s: %s", w->name,
              text[0] ? text : status_text(failure));
    // Of what a worker reports, only a hand-off ends by the other worker's doing.
    if (!refused && status_must_act(failure) == STATUS_OWNER_PEER)
        x->handoff_failures++;
    bool given_back = failure == STATUS_UNAVAILABLE && !refused && !x->moving;
    if (given_back && w->role == POLICY_DECODE) // it drained, and there was no room elsewhere
        router_metrics_add(d->router->metrics, ROUTER_METRIC_MIGRATIONS, "recomputed",
                           exchange_model_name(x), 1);
    // The worker that failed it holds nothing more of it: no Cancel is due there.
    exchange_share *share = x->decode.serial == w->serial ? &x->decode : &x->prefill;
    dispatcher_release(d, share);
    if (failure == STATUS_NUMERIC) {
        exchange_fail(x, 500, "numeric_failure", "the model gave no number for this request");
    } else if (failure == STATUS_INVALID || failure == STATUS_TOO_LARGE ||
               failure == STATUS_CONTEXT_LENGTH || failure == STATUS_UNSUPPORTED) {
        exchange_fail(x, 400, "refused_by_worker", x->last_failure.text);
    } else if (failure == STATUS_DEADLINE) {
        exchange_fail(x, 504, "deadline", "the request was not answered in time");
    } else {
        dispatcher_retry(d, x, refused ? "refused" : "failed", w->serial, false);
    }
}

static void on_handed_over(dispatcher *d, registry_worker *w, const Penstock__HandedOver *m)
{
    timeline *t = m->request->router == d->router->incarnation
                      ? history_number(d->router->history, m->request->number)
                      : NULL;
    bool first = w->role == POLICY_PREFILL;        // not a sequence that moved on
    if (t && first && m->attempt == t->attempts) { // also after the last token
        t->handed_over = clock_now_us();
        t->handed_over_bytes = m->bytes;
        router_metrics_add(d->router->metrics, ROUTER_METRIC_HANDOFF_BYTES,
                           w->model->prompt.identity.name, NULL, (double)m->bytes);
        times_note(t, w, m->times);
    }
    exchange *x = exchange_find(d, m->request);
    if (!x || x->attempt != m->attempt || x->prefill.serial != w->serial)
        return;
    dispatcher_release(d, &x->prefill);
    if (!first) // a draining worker may begin its next move
        dispatcher_migrate(d);
    dispatcher_pump(d);
}

void dispatcher_on_message(registry_worker *w, const message_to_router *m, void *context)
{
    router *r = context;
    dispatcher *d = r->dispatcher;
    switch (m->body_case) {
    case PENSTOCK__TO_ROUTER__BODY_TOKENS:
        for (size_t i = 0; i < m->tokens->n_updates; i++)
            on_update(d, w, m->tokens->updates[i]);
        break;
    case PENSTOCK__TO_ROUTER__BODY_SCORES:
        on_scores(d, w, m->scores);
        break;
    case PENSTOCK__TO_ROUTER__BODY_REFUSED:
        on_failed(d, w, m->refused->request, m->refused->attempt, m->refused->code,
                  m->refused->text, true);
        break;
    case PENSTOCK__TO_ROUTER__BODY_FAILED:
        on_failed(d, w, m->failed->request, m->failed->attempt, m->failed->code, m->failed->text,
                  false);
        break;
    case PENSTOCK__TO_ROUTER__BODY_HANDED_OVER:
        on_handed_over(d, w, m->handed_over);
        break;
    case PENSTOCK__TO_ROUTER__BODY_SEAT: // changes nothing: its credits were spent with the ticket
        report_target(d, w, m->seat->request, m->seat->attempt, true);
        break;
    default:
        break;
    }
}

void dispatcher_on_settled(void *context)
{
    router *r = context;
    while (r->dispatcher->fresh)
        exchange_deliver(r->dispatcher->fresh);
}

void dispatcher_on_changed(void *context)
{
    router *r = context;
    if (r->dispatcher)
        dispatcher_pump(r->dispatcher);
}

// ---- time -------------------------------------------------------------------------------------

// It may end by it. What the tick has brought about so far is later than its `now`.
static void exchange_tick(dispatcher *d, exchange *x, uint64_t now)
{
    const router_settings *settings = d->router->settings;
    if (x->state == EXCHANGE_WAITING && x->failing_since_us &&
        now >= x->failing_since_us + (uint64_t)settings->retry_budget_us) {
        give_up(x);
        return;
    }
    registry_worker *w =
        x->early.size > 0 ? registry_find(d->router->registry, x->decode.serial) : NULL;
    if (w && x->state == EXCHANGE_RUNNING && now >= x->early_since_us + EARLY_MAX_US)
        gap_retry(d, x, w, STREAM_GAP);
}

void dispatcher_on_tick(void *context)
{
    dispatcher *d = context;
    uint64_t now = clock_now_us();
    for (size_t i = 0; i < d->router->models.count; i++)
        admission_rate_tick(&d->lines[i].rate, now, dispatcher_waiting(&d->lines[i]));
    // An end may end others too (room for the queue, and what follows from it): then begin again.
    for (call *c = d->calls; c;)
        c = call_tick(c, now) ? d->calls : c->next;
    CHECK(!d->walk);
    for (exchange *x = d->all; x; x = d->walk) {
        d->walk = x->all_next;
        exchange_tick(d, x, now);
    }
    dispatcher_leave_stuck(d);
    dispatcher_migrate(d);
    dispatcher_pump(d);
    http_timer_start(d->tick, DISPATCHER_TICK_US);
}

void dispatcher_cut_all(dispatcher *d)
{
    for (call *c = d->calls; c;) {
        if (c->parsing) {
            c = c->next;
            continue;
        }
        d->router->drain_cut = true;
        call_fail(c, 503, "draining", "the router is being shut down");
        c = d->calls;
    }
}
