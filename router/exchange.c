// An exchange towards its client: begin, parse, deliver, end.
#include "router/dispatcher_private.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/random.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

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

timeline *exchange_timeline(exchange *x)
{
    return history_number(x->dispatcher->router->history, x->number);
}

static exchange *exchange_new(dispatcher *d, http_request *http, request_kind kind)
{
    exchange *x = calloc(1, sizeof *x);
    if (!x)
        return NULL;
    x->dispatcher = d;
    x->http = http;
    x->kind = kind;
    x->number = d->next_number++;
    snprintf(x->id, sizeof x->id, "%s-%016" PRIx64 "%08" PRIx64,
             kind == REQUEST_CHAT ? "chatcmpl" : "cmpl", d->router->incarnation, x->number);
    x->all_next = d->all;
    if (x->all_next)
        x->all_next->all_previous = x;
    d->all = x;
    exchange **bucket = bucket_of(d, x->number);
    x->bucket_next = *bucket;
    *bucket = x;
    timeline *t = history_add(d->router->history, x->number);
    slice http_id = http_request_id(http);
    snprintf(t->id, sizeof t->id, "%s", x->id);
    snprintf(t->http_id, sizeof t->http_id, "%.*s", (int)http_id.size, http_id.data);
    t->arrived = http_request_arrived_us(http);
    return x;
}

static void exchange_free(exchange *x)
{
    dispatcher *d = x->dispatcher;
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
    stream_close(&x->stream);
    request_close(&x->request);
    buffer_close(&x->body);
    buffer_close(&x->early);
    free(x);
}

// ---- the end ----------------------------------------------------------------------------------

static double seconds(uint64_t from, uint64_t to)
{
    return from && to > from ? (double)(to - from) / 1e6 : 0;
}

// Histograms of a request that was answered, and its tokens.
static void metrics_note(exchange *x, const timeline *t, bool finished)
{
    router_metrics *m = x->dispatcher->router->metrics;
    size_t billed = x->stream.billed;
    router_metrics_add(m, ROUTER_METRIC_GENERATED_TOKENS, NULL, NULL, (double)billed);
    if (x->attempt > 0) {
        router_metrics_add(m, ROUTER_METRIC_PROMPT_TOKENS, NULL, NULL,
                           (double)x->request.prompt.count);
        router_metrics_add(m, ROUTER_METRIC_CACHED_TOKENS, NULL, NULL,
                           (double)x->answer.cached_tokens);
    }
    if (x->first_token_us && t)
        router_metrics_observe(m, ROUTER_METRIC_TTFT, seconds(t->arrived, x->first_token_us));
    if (!finished || !t)
        return;
    router_metrics_observe(m, ROUTER_METRIC_REQUEST_TIME, seconds(t->arrived, t->done));
    if (billed > 1)
        router_metrics_observe(m, ROUTER_METRIC_TOKEN_TIME,
                               seconds(x->first_token_us, x->last_token_us) / (double)(billed - 1));
    if (t->prefill_begun && t->prefill_done)
        router_metrics_observe(m, ROUTER_METRIC_PREFILL_TIME,
                               seconds(t->prefill_begun, t->prefill_done));
    if (t->prefill_worker[0] && t->prefill_done && t->first_step)
        router_metrics_observe(m, ROUTER_METRIC_HANDOFF_TIME,
                               seconds(t->prefill_done, t->first_step));
}

// Out of the queue and the counts, before the answer: an answer may bring the client's next request
// in.
static void exchange_detach(exchange *x)
{
    if (x->state == EXCHANGE_WAITING)
        dispatcher_dequeue(x->dispatcher, x);
    if (x->state == EXCHANGE_RUNNING) {
        x->dispatcher->counts.running--;
        dispatcher_line_of(x)->running--;
    }
    x->state = EXCHANGE_IDLE;
}

static void exchange_end(exchange *x, const char *outcome)
{
    dispatcher *d = x->dispatcher;
    timeline *t = exchange_timeline(x);
    uint64_t now = clock_now_us();
    exchange_detach(x);
    if (x->moving)
        dispatcher_migrated(d, x, "ended");
    if (t) {
        t->outcome = outcome;
        t->done = now;
        t->completion_tokens = x->stream.billed;
        t->prompt_tokens = x->request.prompt.count;
        t->cached_tokens = x->answer.cached_tokens;
        t->first_token = x->first_token_us;
    }
    bool finished = strcmp(outcome, "stop") == 0 || strcmp(outcome, "length") == 0;
    metrics_note(x, t, finished);
    router_metrics_add(d->router->metrics, ROUTER_METRIC_REQUESTS, outcome, NULL, 1);
    log_info("request",
             "%s outcome %s prompt_tokens %zu cached_tokens %" PRIu64
             " tokens %zu attempts %u prefill %s "
             "decode %s first_token_ms %.1f total_ms %.1f",
             x->id, outcome, x->request.prompt.count, x->answer.cached_tokens, x->stream.billed,
             x->attempt, t && t->prefill_worker[0] ? t->prefill_worker : "-",
             t && t->decode_worker[0] ? t->decode_worker : "-",
             t ? seconds(t->arrived, x->first_token_us) * 1000 : 0,
             t ? seconds(t->arrived, now) * 1000 : 0);
    exchange_free(x);
    dispatcher_pump(d);
}

void exchange_fail(exchange *x, int status_code, const char *code, const char *message)
{
    dispatcher *d = x->dispatcher;
    http_request *http = x->http;
    dispatcher_recall(d, x);
    exchange_detach(x);
    x->http = NULL;
    if (http && x->streaming) {
        // After the first byte an error is an event, and the stream ends without its end mark.
        buffer_clear(&d->out);
        answer_error_chunk(http_error_type(status_code), code, message, &d->out);
        http_stream_write(http, buffer_slice(&d->out));
        http_stream_end(http);
    } else if (http) {
        if (status_code == 429 || status_code == 503) {
            char text[16];
            snprintf(text, sizeof text, "%d", dispatcher_retry_after(x));
            http_answer_field(http, "Retry-After", text);
        }
        http_respond_error(http, status_code, NULL, NULL, code, message);
    }
    exchange_end(x, "error");
}

// The client has gone: nobody waits for the rest.
static void on_client_gone(void *context)
{
    exchange *x = context;
    x->http = NULL;
    if (x->state == EXCHANGE_PARSING)
        return; // the helper thread has it; exchange_parsed ends it
    dispatcher_recall(x->dispatcher, x);
    exchange_end(x, "abort");
}

// ---- the beginning ----------------------------------------------------------------------------

static void exchange_refuse(exchange *x, int status_code, const char *code, const char *param,
                            const char *message)
{
    http_request *http = x->http;
    if (status_code == 429) {
        char text[16];
        snprintf(text, sizeof text, "%d", dispatcher_retry_after(x));
        http_answer_field(http, "Retry-After", text);
    }
    x->http = NULL;
    http_respond_error(http, status_code, NULL, param, code, message);
    exchange_end(x, "rejected");
}

static void parse_failure_answer(exchange *x)
{
    const error *failure = &x->parse_failure;
    int status_code = 400;
    const char *code = NULL;
    if (failure->code == STATUS_NOT_FOUND) {
        status_code = 404;
        code = "model_not_found";
    } else if (failure->code == STATUS_CONTEXT_LENGTH) {
        code = "context_length_exceeded";
    } else if (failure->code == STATUS_UNSUPPORTED) {
        code = "unsupported_parameter";
    } else if (status_must_act(failure->code) != STATUS_OWNER_REQUEST) {
        status_code = 500;
        code = "internal_error";
    }
    exchange_refuse(x, status_code, code, failure->param[0] ? failure->param : NULL, failure->text);
}

// The client's own timeout, and never more than the router's; 0: none.
static uint64_t deadline_of(const exchange *x)
{
    uint64_t limit_us = (uint64_t)x->dispatcher->router->settings->request_timeout_us;
    uint64_t own_us = (uint64_t)(x->request.timeout_s * 1e6);
    if (own_us != 0 && (limit_us == 0 || own_us < limit_us))
        limit_us = own_us;
    return limit_us ? x->queued_us + limit_us : 0;
}

// False: it was refused, because the line is full or so long that its answer would come too late.
static bool may_wait(exchange *x)
{
    if (dispatcher_queue_full(x)) {
        exchange_refuse(x, 429, "queue_full", NULL, "too many requests are waiting already");
        return false;
    }
    const dispatcher_line *line = dispatcher_line_of(x);
    size_t ahead = dispatcher_waiting(line);
    double wait_s = admission_wait_s(&line->rate, ahead);
    double left_s = (double)(x->deadline_us - x->queued_us) / 1e6;
    if (x->deadline_us == 0 || ahead == 0 || wait_s <= left_s)
        return true;
    char message[160];
    snprintf(message, sizeof message,
             "requests wait for about %.1f s now, and this one must be answered in %.1f s", wait_s,
             left_s);
    exchange_refuse(x, 429, "deadline_unreachable", NULL, message);
    return false;
}

// A client that tries again with the same Idempotency-Key gets the same text from any router.
static uint64_t seed_of(const exchange *x)
{
    slice key = http_request_field(x->http, "Idempotency-Key");
    return key.size > 0 ? hash64_of(key.data, key.size, 0) : random_system();
}

void exchange_parsed(exchange *x)
{
    dispatcher *d = x->dispatcher;
    router *r = d->router;
    timeline *t = exchange_timeline(x);
    uint64_t now = clock_now_us();
    x->state = EXCHANGE_IDLE;
    d->counts.parsing--;
    if (!x->http) {
        exchange_end(x, "abort");
        return;
    }
    http_request_forget_body(x->http);
    buffer_close(&x->body);
    if (x->parse_result != STATUS_OK) {
        parse_failure_answer(x);
        return;
    }
    router_metrics_add(r->metrics, ROUTER_METRIC_UNKNOWN_FIELDS, NULL, NULL,
                       (double)x->request.unknown_fields);
    x->queued_us = x->written_us = now;
    x->deadline_us = deadline_of(x);
    if (!may_wait(x))
        return;
    if (!x->request.sampling.has_seed)
        x->request.sampling.seed = (int64_t)seed_of(x);
    x->version_draw = versions_draw(http_request_field(x->http, "Idempotency-Key"), x->number);
    stream_begin(&x->stream, &x->request, x->request.model->prompt.tokens);
    x->answer = (answer){ .id = x->id,
                          .created_s = clock_wall_s(),
                          .model = x->request.model->prompt.identity.name,
                          .fingerprint = x->fingerprint,
                          .request = &x->request,
                          .stream = &x->stream };
    if (t) {
        t->parsed = now;
        t->prompt_tokens = x->request.prompt.count;
    }
    dispatcher_enqueue(d, x);
    dispatcher_pump(d);
}

static void parse(exchange *x, slice body, const model_encoders *e)
{
    router *r = x->dispatcher->router;
    request_rules rules = { .models = &r->models, .settings = r->settings };
    x->parse_result = request_parse(&rules, x->kind, body, e, &x->request, &x->parse_failure);
}

static void parse_on_helper(void *context, const model_encoders *e)
{
    exchange *x = context;
    parse(x, buffer_slice(&x->body), e);
}

static void parse_done(void *context)
{
    exchange_parsed(context);
}

void dispatcher_begin(dispatcher *d, http_request *http, request_kind kind)
{
    router *r = d->router;
    slice body = http_request_body(http);
    exchange *x = exchange_new(d, http, kind);
    if (!x) {
        http_respond_error(http, 503, NULL, NULL, "no_memory",
                           "there is no memory for the request");
        return;
    }
    x->state = EXCHANGE_PARSING;
    d->counts.parsing++;
    http_request_on_close(http, on_client_gone, x);
    size_t under_way = d->counts.parsing + d->counts.waiting + d->counts.running;
    if (r->draining || under_way > (size_t)r->settings->running_max) {
        d->counts.parsing--;
        x->state = EXCHANGE_IDLE;
        if (r->draining)
            exchange_refuse(x, 503, "draining", NULL, "the router is being shut down");
        else
            exchange_refuse(x, 429, "too_many_requests", NULL, "too many requests are under way");
        return;
    }
    if (body.size <= r->settings->offload_bytes) {
        parse(x, body, &r->encoders);
        exchange_parsed(x);
        return;
    }
    x->parse_result =
        error_set(&x->parse_failure, STATUS_INTERNAL, "", "the request was not parsed");
    buffer_append_slice(&x->body, body); // the client may go while the helper reads
    offload_job job = { parse_on_helper, parse_done, x };
    status result = x->body.overflow ? STATUS_NO_MEMORY : offload_submit(r->offload, &job);
    if (result == STATUS_OK)
        return;
    d->counts.parsing--;
    x->state = EXCHANGE_IDLE;
    exchange_refuse(x, 429, "too_many_requests", NULL, "too many large requests are being read");
}

// ---- delivering -------------------------------------------------------------------------------

static void stream_open(exchange *x)
{
    timeline *t = exchange_timeline(x);
    if (x->streaming)
        return;
    x->streaming = true;
    http_answer_field(x->http, "Cache-Control", "no-cache");
    http_answer_field(x->http, "X-Accel-Buffering", "no");
    http_stream_begin(x->http, 200, "text/event-stream; charset=utf-8");
    if (t)
        t->first_byte = clock_now_us();
}

void exchange_comment(exchange *x)
{
    stream_open(x);
    x->written_us = clock_now_us();
    http_stream_write(x->http, SLICE(": waiting\n\n"));
}

static void deliver_stream(exchange *x)
{
    buffer *out = &x->dispatcher->out;
    buffer_clear(out);
    answer_chunk(&x->answer, out);
    if (x->stream.done) {
        if (x->request.include_usage)
            answer_usage_chunk(&x->answer, out);
        answer_done_mark(out);
    }
    if (out->size == 0)
        return;
    stream_open(x);
    x->written_us = clock_now_us();
    http_stream_write(x->http, buffer_slice(out)); // cut: the close call follows
}

static void deliver_whole(exchange *x)
{
    timeline *t = exchange_timeline(x);
    buffer *out = &x->dispatcher->out;
    http_request *http = x->http;
    buffer_clear(out);
    answer_whole(&x->answer, out);
    if (t)
        t->first_byte = clock_now_us();
    x->http = NULL;
    http_respond(http, 200, "application/json", buffer_slice(out));
}

void exchange_deliver(exchange *x)
{
    if (x->http && x->request.stream)
        deliver_stream(x);
    if (!x->stream.done)
        return;
    http_request *http = x->http;
    exchange_detach(x);
    dispatcher_release(x->dispatcher, &x->decode);
    dispatcher_release(x->dispatcher, &x->prefill);
    if (http && x->request.stream) {
        x->http = NULL;
        http_stream_end(http);
    } else if (http) {
        deliver_whole(x);
    }
    exchange_end(x, stream_finish_name(&x->stream));
}
