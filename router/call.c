#include "router/dispatcher_private.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/random.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

static call *call_new(dispatcher *d, http_request *http, request_kind kind)
{
    call *c = calloc(1, sizeof *c);
    if (!c)
        return NULL;
    c->dispatcher = d;
    c->http = http;
    c->kind = kind;
    c->shape = answer_shape_of(kind);
    c->number = d->next_number++;
    c->arrived_us = http_request_arrived_us(http);
    snprintf(c->id, sizeof c->id, "%s-%016" PRIx64 "%08" PRIx64, c->shape->id_prefix,
             d->router->incarnation, c->number);
    c->next = d->calls;
    if (c->next)
        c->next->previous = c;
    d->calls = c;
    timeline *t = history_add(d->router->history, c->number);
    slice http_id = http_request_id(http);
    snprintf(t->id, sizeof t->id, "%s", c->id);
    snprintf(t->http_id, sizeof t->http_id, "%.*s", (int)http_id.size, http_id.data);
    t->arrived = c->arrived_us;
    return c;
}

static void call_free(call *c)
{
    if (c->previous)
        c->previous->next = c->next;
    else
        c->dispatcher->calls = c->next;
    if (c->next)
        c->next->previous = c->previous;
    for (size_t i = 0; i < c->choice_count; i++)
        exchange_close(&c->exchanges[i]);
    free(c->exchanges);
    free(c->choices);
    request_close(&c->request);
    buffer_close(&c->body);
    free(c);
}

static timeline *call_timeline(call *c)
{
    return history_number(c->dispatcher->router->history, c->number);
}

// ---- the end ----------------------------------------------------------------------------------

static void end_note(call *c, const char *outcome, bool finished)
{
    router_metrics *m = c->dispatcher->router->metrics;
    uint64_t now = clock_now_us();
    timeline *t = call_timeline(c);
    answer_usage usage = answer_usage_of(&c->answer);
    uint32_t attempts = 0;
    if (t && c->choice_count == 0) { // no exchange tells it
        t->outcome = outcome;
        t->done = now;
    }
    for (size_t i = 0; i < c->choice_count; i++)
        attempts = c->exchanges[i].attempt > attempts ? c->exchanges[i].attempt : attempts;
    const char *model = c->request.model ? c->request.model->prompt.identity.name : "";
    router_metrics_add(m, ROUTER_METRIC_REQUESTS, outcome, model, 1);
    // A prompt counts once a worker was told to compute it.
    gate_settle(c->dispatcher->router->gate, &c->hold, attempts ? usage.prompt : 0,
                usage.generated);
    if (finished)
        router_metrics_observe(m, ROUTER_METRIC_REQUEST_TIME, model,
                               timeline_seconds(c->arrived_us, now));
    log_info("request",
             "%s outcome %s prompt_tokens %" PRIu64 " cached_tokens %" PRIu64 " tokens %" PRIu64
             " choices %zu attempts %u prefill %s decode %s first_token_ms %.1f total_ms %.1f",
             c->id, outcome, usage.prompt, usage.cached, usage.generated, c->choice_count, attempts,
             t && t->prefill_worker[0] ? t->prefill_worker : "-",
             t && t->decode_worker[0] ? t->decode_worker : "-",
             timeline_seconds(c->arrived_us, c->first_token_us) * 1000,
             timeline_seconds(c->arrived_us, now) * 1000);
}

// The call is over, whatever is left of it: what its exchanges held finds another use.
static void call_end(call *c, const char *outcome, bool finished)
{
    dispatcher *d = c->dispatcher;
    for (size_t i = 0; i < c->choice_count; i++)
        exchange_abandon(&c->exchanges[i], outcome);
    end_note(c, outcome, finished);
    call_free(c);
    dispatcher_pump(d);
}

static void error_respond(call *c, http_request *http, int status_code, const char *param,
                          const char *code, const char *message)
{
    buffer body = { 0 };
    if ((status_code == 429 || status_code == 503) && c->retry_after_s >= 0) {
        char text[16];
        snprintf(text, sizeof text, "%d",
                 c->retry_after_s ? c->retry_after_s
                                  : dispatcher_retry_after(c->dispatcher, &c->request));
        http_answer_field(http, "Retry-After", text);
    }
    c->shape->error(status_code, param, code, message, false, &body);
    http_respond(http, status_code, "application/json", buffer_slice(&body));
    buffer_close(&body);
}

void call_fail(call *c, int status_code, const char *code, const char *message)
{
    http_request *http = c->http;
    buffer *out = &c->dispatcher->out;
    for (size_t i = 0; http && i < c->choice_count; i++)
        if (c->exchanges[i].fresh) // its tokens come before the error
            exchange_deliver(&c->exchanges[i]);
    for (size_t i = 0; i < c->choice_count; i++)
        exchange_abandon(&c->exchanges[i], "error");
    c->http = NULL;
    if (http && c->streaming) {
        // After the first byte an error is an event, and the stream ends without its end mark.
        buffer_clear(out);
        c->shape->error(status_code, NULL, code, message, true, out);
        http_stream_write(http, buffer_slice(out));
        http_stream_end(http);
    } else if (http) {
        error_respond(c, http, status_code, NULL, code, message);
    }
    call_end(c, "error", false);
}

// The client has gone: nobody waits for the rest.
static void on_client_gone(void *context)
{
    call *c = context;
    c->http = NULL;
    if (!c->parsing) // else the helper thread has it, and parse_done ends it
        call_end(c, "abort", false);
}

// ---- the beginning ----------------------------------------------------------------------------

static void call_refuse(call *c, int status_code, const char *code, const char *param,
                        const char *message)
{
    http_request *http = c->http;
    c->http = NULL;
    error_respond(c, http, status_code, param, code, message);
    call_end(c, "rejected", false);
}

static void parse_failure_answer(call *c)
{
    const error *failure = &c->parse_failure;
    int status_code = 400;
    const char *code = NULL;
    if (failure->code == STATUS_NOT_FOUND) {
        status_code = 404;
        code = "model_not_found";
        gate_model_missed(c->dispatcher->router->gate, c->http);
    } else if (failure->code == STATUS_CONTEXT_LENGTH) {
        code = "context_length_exceeded";
    } else if (failure->code == STATUS_UNSUPPORTED) {
        code = "unsupported_parameter";
    } else if (status_must_act(failure->code) != STATUS_OWNER_REQUEST) {
        status_code = 500;
        code = "internal_error";
    }
    call_refuse(c, status_code, code, failure->param[0] ? failure->param : NULL, failure->text);
}

// The client's own timeout, and never more than the router's; 0: none.
static uint64_t deadline_of(const call *c)
{
    uint64_t limit_us = (uint64_t)c->dispatcher->router->settings->request_timeout_us;
    uint64_t own_us = (uint64_t)(c->request.timeout_s * 1e6);
    if (own_us != 0 && (limit_us == 0 || own_us < limit_us))
        limit_us = own_us;
    return limit_us ? c->queued_us + limit_us : 0;
}

// False: it was refused, because the line is full or so long that its answer would come too late.
static bool may_wait(call *c)
{
    dispatcher *d = c->dispatcher;
    if (!dispatcher_queue_takes(d, &c->request)) {
        call_refuse(c, 429, "queue_full", NULL, "too many requests are waiting already");
        return false;
    }
    const dispatcher_line *line = &d->lines[c->request.model->index];
    size_t ahead = dispatcher_waiting(line);
    double wait_s = admission_wait_s(&line->rate, ahead);
    double left_s = (double)(c->deadline_us - c->queued_us) / 1e6;
    if (c->deadline_us == 0 || ahead == 0 || wait_s <= left_s)
        return true;
    char message[160];
    snprintf(message, sizeof message,
             "requests wait for about %.1f s now, and this one must be answered in %.1f s", wait_s,
             left_s);
    call_refuse(c, 429, "deadline_unreachable", NULL, message);
    return false;
}

// False: it was refused for what its key may do.
static bool may_spend(call *c)
{
    gate *g = c->dispatcher->router->gate;
    gate_refusal refusal;
    if (request_is_computed(c->kind) ? gate_grant(g, c->http, &c->request, &c->hold, &refusal)
                                     : gate_grant_model(g, c->http, c->request.model, &refusal))
        return true;
    c->retry_after_s = refusal.retry_after_s ? refusal.retry_after_s : -1;
    call_refuse(c, refusal.status_code, refusal.code, refusal.param, refusal.message);
    return false;
}

// A client that tries again with the same Idempotency-Key gets the same text from any router.
static uint64_t seed_of(const call *c)
{
    slice key = http_request_field(c->http, "Idempotency-Key");
    return key.size > 0 ? hash64_of(key.data, key.size, 0) : random_system();
}

static void answer_prepare(call *c)
{
    c->answer = (answer){ .id = c->id,
                          .created_s = clock_wall_s(),
                          .model = c->request.model->prompt.identity.name,
                          .request = &c->request,
                          .choices = c->choices };
}

// Its exchanges stand in the line. False: no memory, and what has begun is left to call_end.
static bool exchanges_begin(call *c)
{
    size_t count = c->request.prompt_count * c->request.choices;
    c->exchanges = calloc(count, sizeof *c->exchanges);
    c->choices = calloc(count, sizeof *c->choices);
    if (!c->exchanges || !c->choices)
        return false;
    answer_prepare(c);
    for (size_t i = 0; i < count; i++) {
        if (exchange_begin(&c->exchanges[i], c, i, i == 0 ? c->number : 0) != STATUS_OK)
            return false;
        c->answer.choice_count = ++c->choice_count;
        c->open++;
    }
    return true;
}

// The complete answer goes out. False: it found no room, and the client is told so; half of an
// answer is none.
static bool whole_respond(call *c)
{
    buffer *out = &c->dispatcher->out;
    http_request *http = c->http;
    buffer_clear(out);
    c->shape->whole(&c->answer, out);
    bool complete = !out->overflow;
    c->http = NULL;
    if (complete)
        http_respond(http, 200, "application/json", buffer_slice(out));
    else
        error_respond(c, http, 503, NULL, "no_memory",
                      "there is no memory for this answer; ask for less at a time");
    return complete;
}

// A question about a prompt: no worker is asked.
static void answer_at_once(call *c)
{
    if (!may_spend(c))
        return;
    answer_prepare(c);
    call_end(c, whole_respond(c) ? "stop" : "error", false);
}

static void call_parsed(call *c)
{
    dispatcher *d = c->dispatcher;
    c->parsing = false;
    d->counts.parsing--;
    if (!c->http) {
        call_end(c, "abort", false);
        return;
    }
    http_request_forget_body(c->http);
    buffer_close(&c->body);
    if (c->parse_result != STATUS_OK) {
        parse_failure_answer(c);
        return;
    }
    router_metrics_add(d->router->metrics, ROUTER_METRIC_UNKNOWN_FIELDS, NULL, NULL,
                       (double)c->request.unknown_fields);
    if (!request_is_computed(c->kind)) {
        answer_at_once(c);
        return;
    }
    c->queued_us = c->written_us = clock_now_us();
    c->deadline_us = deadline_of(c);
    if (!may_wait(c) || !may_spend(c))
        return;
    if (!c->request.sampling.has_seed)
        c->request.sampling.seed = (int64_t)seed_of(c);
    if (exchanges_begin(c))
        dispatcher_pump(d);
    else
        call_fail(c, 503, "no_memory", "there is no memory for the request");
}

static void parse(call *c, slice body, const model_encoders *e)
{
    router *r = c->dispatcher->router;
    request_rules rules = { .models = &r->models, .hidden = c->hidden, .settings = r->settings };
    c->parse_result = request_parse(&rules, c->kind, body, e, &c->request, &c->parse_failure);
}

static void parse_on_helper(void *context, const model_encoders *e)
{
    call *c = context;
    parse(c, buffer_slice(&c->body), e);
}

static void parse_done(void *context)
{
    call_parsed(context);
}

// False: it was refused.
static bool may_begin(call *c)
{
    dispatcher *d = c->dispatcher;
    const router *r = d->router;
    size_t under_way = d->counts.parsing + d->counts.waiting + d->counts.running;
    if (r->draining) {
        call_refuse(c, 503, "draining", NULL, "the router is being shut down");
        return false;
    }
    if (under_way >= (size_t)r->settings->running_max) {
        call_refuse(c, 429, "too_many_requests", NULL, "too many requests are under way");
        return false;
    }
    return true;
}

void call_begin(dispatcher *d, http_request *http, request_kind kind)
{
    router *r = d->router;
    slice body = http_request_body(http);
    call *c = call_new(d, http, kind);
    if (!c) {
        http_respond_error(http, 503, NULL, NULL, "no_memory",
                           "there is no memory for the request");
        return;
    }
    c->hidden = gate_hidden_models(r->gate, http);
    c->salted = gate_salt(r->gate, http, c->salt);
    http_request_on_close(http, on_client_gone, c);
    if (!may_begin(c))
        return;
    c->parsing = true;
    d->counts.parsing++;
    if (body.size <= r->settings->offload_bytes && !request_may_have_grammar(body)) {
        parse(c, body, &r->encoders);
        call_parsed(c);
        return;
    }
    c->parse_result =
        error_set(&c->parse_failure, STATUS_INTERNAL, "", "the request was not parsed");
    buffer_append_slice(&c->body, body); // the client may go while the helper reads
    offload_job job = { parse_on_helper, parse_done, c };
    status result = c->body.overflow ? STATUS_NO_MEMORY : offload_submit(r->offload, &job);
    if (result == STATUS_OK)
        return;
    d->counts.parsing--;
    c->parsing = false;
    if (result == STATUS_FULL)
        call_refuse(c, 429, "too_many_requests", NULL,
                    "too many large requests are being read, or ones with grammars");
    else
        call_refuse(c, 503, "no_memory", NULL, "there is no memory for the request");
}

// ---- delivering -------------------------------------------------------------------------------

// The first byte of the answer goes out.
static void first_byte_note(call *c)
{
    for (size_t i = 0; i < c->choice_count; i++) {
        timeline *t = exchange_timeline(&c->exchanges[i]);
        if (t)
            t->first_byte = clock_now_us();
    }
}

static void stream_open(call *c)
{
    if (c->streaming)
        return;
    c->streaming = true;
    http_answer_field(c->http, "Cache-Control", "no-cache");
    http_answer_field(c->http, "X-Accel-Buffering", "no");
    http_stream_begin(c->http, 200, "text/event-stream; charset=utf-8");
    first_byte_note(c);
}

static void deliver_stream(call *c, exchange *x)
{
    buffer *out = &c->dispatcher->out;
    buffer_clear(out);
    c->shape->chunk(&c->answer, x->choice, out);
    if (c->open == 0)
        c->shape->end(&c->answer, out);
    if (out->size == 0)
        return;
    stream_open(c);
    c->written_us = clock_now_us();
    http_stream_write(c->http, buffer_slice(out)); // cut: the close call follows
}

static bool deliver_whole(call *c)
{
    answer_rank(&c->answer);
    first_byte_note(c);
    return whole_respond(c);
}

// What became of all choices: "length" where one of them was cut.
static const char *outcome_of(const call *c)
{
    const char *outcome = "stop";
    for (size_t i = 0; i < c->choice_count; i++)
        if (c->exchanges[i].stream.finish == PENSTOCK__FINISH__FINISH_LENGTH)
            outcome = stream_finish_name(&c->exchanges[i].stream);
    return outcome;
}

void call_progress(call *c, exchange *x)
{
    if (c->first_token_us == 0 && x->first_token_us != 0) {
        c->first_token_us = x->first_token_us;
        router_metrics_observe(c->dispatcher->router->metrics, ROUTER_METRIC_TTFT,
                               c->request.model->prompt.identity.name,
                               timeline_seconds(c->arrived_us, c->first_token_us));
    }
    if (c->http && c->request.stream)
        deliver_stream(c, x);
    if (c->open > 0)
        return;
    http_request *http = c->http;
    if (http && c->request.stream) {
        c->http = NULL;
        http_stream_end(http);
    } else if (http && !deliver_whole(c)) {
        call_end(c, "error", true);
        return;
    }
    call_end(c, outcome_of(c), true);
}

// A comment line, so that nobody on the way takes a silent stream for dead.
static void comment_write(call *c)
{
    stream_open(c);
    c->written_us = clock_now_us();
    http_stream_write(c->http, SLICE(": waiting\n\n"));
}

bool call_tick(call *c, uint64_t now)
{
    uint64_t silence_us = (uint64_t)c->dispatcher->router->settings->silence_us;
    if (c->parsing)
        return false;
    if (c->deadline_us && now >= c->deadline_us) {
        call_fail(c, 504, "deadline", "the request was not answered in time");
        return true;
    }
    if (c->http && c->request.stream && now >= c->written_us + silence_us)
        comment_write(c);
    return false;
}
