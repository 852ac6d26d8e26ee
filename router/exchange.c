#include "router/dispatcher_private.h"

#include "base/clock.h"

#include <stdio.h>

// ---- tables -----------------------------------------------------------------------------------

static exchange **bucket_of(dispatcher *d, uint64_t number)
{
    return &d->buckets[number % EXCHANGE_BUCKETS];
}

exchange *exchange_find(dispatcher *d, const message_request_id *id)
{
    if (id->router != d->router->incarnation)
        return NULL;
    exchange *x = *bucket_of(d, id->number);
    while (x && x->number != id->number)
        x = x->bucket_next;
    return x;
}

const char *exchange_model_name(const exchange *x)
{
    return x->request->model->prompt.identity.name;
}

timeline *exchange_timeline(exchange *x)
{
    return history_number(x->dispatcher->router->history, x->number);
}

static void tables_enter(exchange *x)
{
    dispatcher *d = x->dispatcher;
    x->all_next = d->all;
    if (x->all_next)
        x->all_next->all_previous = x;
    d->all = x;
    exchange **bucket = bucket_of(d, x->number);
    x->bucket_next = *bucket;
    *bucket = x;
}

static void tables_leave(exchange *x)
{
    dispatcher *d = x->dispatcher;
    if (d->walk == x)
        d->walk = x->all_next;
    if (x->all_previous)
        x->all_previous->all_next = x->all_next;
    else
        d->all = x->all_next;
    if (x->all_next)
        x->all_next->all_previous = x->all_previous;
    exchange **link = bucket_of(d, x->number);
    while (*link != x)
        link = &(*link)->bucket_next;
    *link = x->bucket_next;
}

// ---- the beginning ----------------------------------------------------------------------------

// Choices behind the first one have numbers and time lines of their own.
static void identify(exchange *x, size_t index, uint64_t number)
{
    const call *c = x->call;
    history *h = x->dispatcher->router->history;
    x->number = number ? number : x->dispatcher->next_number++;
    if (index == 0)
        snprintf(x->id, sizeof x->id, "%s", c->id);
    else
        snprintf(x->id, sizeof x->id, "%s-%u", c->id, (unsigned)index);
    timeline *t = number ? history_number(h, number) : history_add(h, x->number);
    if (!t)
        return;
    snprintf(t->id, sizeof t->id, "%s", x->id);
    t->arrived = c->arrived_us;
    t->parsed = c->queued_us;
    t->model = c->request.model->prompt.identity.name;
    t->prompt_tokens = x->prompt->tokens.count;
}

status exchange_begin(exchange *x, call *c, size_t index, uint64_t number)
{
    dispatcher *d = c->dispatcher;
    x->dispatcher = d;
    x->call = c;
    x->request = &c->request;
    x->prompt = &c->request.prompts[index / c->request.choices];
    x->draw = (uint32_t)(index % c->request.choices);
    status result = stream_begin(&x->stream, x->request, (size_t)x->prompt->max_tokens,
                                 x->request->model->prompt.tokens);
    if (result != STATUS_OK)
        return result;
    result = stream_prompt(&x->stream, &x->prompt->tokens);
    if (result != STATUS_OK) {
        stream_close(&x->stream);
        return result;
    }
    x->choice = &c->choices[index];
    *x->choice = (answer_choice){
        .index = index, .stream = &x->stream, .prompt = x->prompt, .fingerprint = x->fingerprint
    };
    identify(x, index, number);
    x->version_draw = versions_draw(http_request_field(c->http, "Idempotency-Key"), c->number);
    tables_enter(x);
    dispatcher_enqueue(d, x);
    return STATUS_OK;
}

void exchange_close(exchange *x)
{
    CHECK(x->state == EXCHANGE_IDLE);
    stream_close(&x->stream);
    buffer_close(&x->early);
}

// ---- the end ----------------------------------------------------------------------------------

// Histograms of a sequence, and its tokens.
static void metrics_note(exchange *x, const timeline *t, bool finished)
{
    router_metrics *m = x->dispatcher->router->metrics;
    size_t billed = x->stream.billed;
    const char *model = exchange_model_name(x);
    router_metrics_add(m, ROUTER_METRIC_GENERATED_TOKENS, model, NULL, (double)billed);
    if (x->attempt > 0) {
        router_metrics_add(m, ROUTER_METRIC_PROMPT_TOKENS, model, NULL,
                           (double)x->prompt->tokens.count);
        router_metrics_add(m, ROUTER_METRIC_CACHED_TOKENS, model, NULL,
                           (double)x->choice->cached_tokens);
    }
    if (!finished || !t)
        return;
    if (billed > 1)
        router_metrics_observe(m, ROUTER_METRIC_TOKEN_TIME, model,
                               timeline_seconds(x->first_token_us, x->last_token_us) /
                                   (double)(billed - 1));
    if (t->prefill_begun && t->prefill_done)
        router_metrics_observe(m, ROUTER_METRIC_PREFILL_TIME, model,
                               timeline_seconds(t->prefill_begun, t->prefill_done));
    if (t->prefill_worker[0] && t->prefill_done && t->first_step)
        router_metrics_observe(m, ROUTER_METRIC_HANDOFF_TIME, model,
                               timeline_seconds(t->prefill_done, t->first_step));
}

static void fresh_leave(exchange *x)
{
    if (!x->fresh)
        return;
    x->fresh = false;
    if (x->fresh_previous)
        x->fresh_previous->fresh_next = x->fresh_next;
    else
        x->dispatcher->fresh = x->fresh_next;
    if (x->fresh_next)
        x->fresh_next->fresh_previous = x->fresh_previous;
    x->fresh_previous = x->fresh_next = NULL;
}

// Out of the line, the counts and the tables, before the answer: an answer may bring the client's
// next request in. Its credits have returned.
static void end(exchange *x, const char *outcome, bool finished)
{
    dispatcher *d = x->dispatcher;
    timeline *t = exchange_timeline(x);
    if (x->state == EXCHANGE_WAITING)
        dispatcher_dequeue(d, x);
    if (x->state == EXCHANGE_RUNNING) {
        d->counts.running--;
        dispatcher_line_of(x)->running--;
    }
    x->state = EXCHANGE_IDLE;
    if (x->moving)
        dispatcher_migrated(d, x, "ended");
    if (t) {
        t->outcome = outcome;
        t->done = clock_now_us();
        t->completion_tokens = x->stream.billed;
        t->cached_tokens = x->choice->cached_tokens;
        t->first_token = x->first_token_us;
    }
    metrics_note(x, t, finished);
    tables_leave(x);
    fresh_leave(x);
    x->ended = true;
    x->call->open--;
}

void exchange_deliver(exchange *x)
{
    dispatcher *d = x->dispatcher;
    bool done = x->stream.done, last = done && x->call->open == 1;
    fresh_leave(x);
    if (done) {
        dispatcher_release(d, &x->decode);
        dispatcher_release(d, &x->prefill);
        end(x, stream_finish_name(&x->stream), true);
    }
    call_progress(x->call, x);
    if (done && !last) // else the call has ended, with all of it
        dispatcher_pump(d);
}

void exchange_deliver_soon(exchange *x)
{
    dispatcher *d = x->dispatcher;
    if (x->fresh)
        return;
    x->fresh = true;
    x->fresh_next = d->fresh;
    if (x->fresh_next)
        x->fresh_next->fresh_previous = x;
    d->fresh = x;
}

void exchange_fail(exchange *x, int status_code, const char *code, const char *message)
{
    call_fail(x->call, status_code, code, message);
}

void exchange_abandon(exchange *x, const char *outcome)
{
    if (x->ended)
        return;
    dispatcher_recall(x->dispatcher, x);
    end(x, outcome, false);
}
