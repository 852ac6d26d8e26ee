#include "router/status_api.h"

#include "base/clock.h"
#include "router/dispatcher.h"
#include "router/gate.h"
#include "router/pulse.h"
#include "router/status_guesses.h"

#include <inttypes.h>
#include <stdio.h>

void status_api_health(http_request *http, void *context)
{
    (void)context; // that this runs is the proof
    http_respond(http, 200, "application/json", SLICE("{\"status\":\"ok\"}"));
}

void status_api_ready(http_request *http, void *context)
{
    router *r = context;
    char reason[160];
    buffer out = { 0 };
    bool ready = router_ready(r, NULL, reason);
    if (ready) {
        buffer_append_text(&out, "{\"ready\":true}");
        http_respond(http, 200, "application/json", buffer_slice(&out));
    } else {
        http_answer_field(http, "Retry-After", "1");
        http_respond_error(http, 503, NULL, NULL, "not_ready", reason);
    }
    buffer_close(&out);
}

// ---- metrics ----------------------------------------------------------------------------------

#define STATES 6

static void gauges_of_role(router *r, const served_model *model, policy_role role)
{
    static const char *const states[] = { "alive",     "suspect",  "joining",
                                          "unhealthy", "draining", "cordoned" };
    double in_state[STATES] = { 0 }, granted = 0, spent = 0, pages_free = 0, held = 0,
           quarantined = 0, sequences = 0, sequences_spent = 0;
    for (size_t i = 0; i < registry_count(r->registry); i++) {
        const registry_worker *w = registry_at(r->registry, i);
        if (w->role != role || w->model != model)
            continue;
        for (size_t k = 0; k < STATES; k++)
            in_state[k] += strcmp(states[k], registry_state_name(w)) == 0;
        granted += (double)w->page_credits;
        spent += (double)w->pages_spent;
        sequences += w->sequences;
        sequences_spent += w->sequences_spent;
        pages_free += (double)w->beat.pages_free;
        held += (double)w->beat.pages_held;
        quarantined += (double)w->beat.pages_quarantined;
    }
    router_metrics *m = r->metrics;
    const char *name = policy_role_name(role), *of = model->prompt.identity.name;
    for (size_t k = 0; k < STATES; k++)
        router_metrics_set(m, ROUTER_METRIC_WORKERS, name, states[k], of, in_state[k]);
    router_metrics_set(m, ROUTER_METRIC_CREDIT_PAGES, name, "granted", of, granted);
    router_metrics_set(m, ROUTER_METRIC_CREDIT_PAGES, name, "spent", of, spent);
    router_metrics_set(m, ROUTER_METRIC_CREDIT_SEQUENCES, name, "granted", of, sequences);
    router_metrics_set(m, ROUTER_METRIC_CREDIT_SEQUENCES, name, "spent", of, sequences_spent);
    router_metrics_set(m, ROUTER_METRIC_POOL_PAGES, name, "free", of, pages_free);
    router_metrics_set(m, ROUTER_METRIC_POOL_PAGES, name, "held", of, held);
    router_metrics_set(m, ROUTER_METRIC_POOL_PAGES, name, "quarantined", of, quarantined);
}

// A counter that lives elsewhere: move the metric up to it.
static void counter_follow(router_metrics *m, router_metric metric, uint64_t value)
{
    double behind = (double)value - router_metrics_value(m, metric, NULL, NULL);
    if (behind > 0)
        router_metrics_add(m, metric, NULL, NULL, behind);
}

// The line of a model, and its workers.
static void gauges_of_model(router *r, const served_model *model)
{
    router_metrics *m = r->metrics;
    char reason[160];
    const char *of = model->prompt.identity.name;
    dispatcher_counts counts = dispatcher_count_model(r->dispatcher, model);
    gauges_of_role(r, model, POLICY_PREFILL);
    gauges_of_role(r, model, POLICY_DECODE);
    router_metrics_set(m, ROUTER_METRIC_REQUESTS_NOW, "waiting", of, NULL, (double)counts.waiting);
    router_metrics_set(m, ROUTER_METRIC_REQUESTS_NOW, "running", of, NULL, (double)counts.running);
    router_metrics_set(m, ROUTER_METRIC_WAITING_TIME, of, NULL, NULL,
                       (double)counts.oldest_us / 1e6);
    router_metrics_set(m, ROUTER_METRIC_READY, of, NULL, NULL, router_ready(r, model, reason));
}

void status_api_metrics(http_request *http, void *context)
{
    router *r = context;
    router_metrics *m = r->metrics;
    buffer out = { 0 };
    dispatcher_counts counts = dispatcher_count(r->dispatcher);
    for (size_t i = 0; i < r->models.count; i++)
        gauges_of_model(r, &r->models.items[i]);
    counter_follow(m, ROUTER_METRIC_REGISTRATIONS_REFUSED, registry_refused(r->registry));
    router_metrics_set(m, ROUTER_METRIC_REQUESTS_NOW, "parsing", "", NULL, (double)counts.parsing);
    router_metrics_set(m, ROUTER_METRIC_CONNECTIONS, NULL, NULL, NULL,
                       (double)gate_connections(r->gate));
    router_metrics_set(m, ROUTER_METRIC_DRAINING, NULL, NULL, NULL, r->draining);
    router_metrics_set(m, ROUTER_METRIC_STARTED, NULL, NULL, NULL, (double)r->started_s);
    router_metrics_render(m, &out);
    http_respond(http, 200, "text/plain; version=0.0.4; charset=utf-8", buffer_slice(&out));
    buffer_close(&out);
}

// ---- /cluster ---------------------------------------------------------------------------------

static void append_beat(const registry_worker *w, buffer *out)
{
    const registry_beat *b = &w->beat;
    buffer_printf(
        out,
        ",\"pages_free\":%" PRIu64 ",\"pages_held\":%" PRIu64 ",\"pages_quarantined\":%" PRIu64
        ",\"sequences_running\":%u,\"sequences_waiting\":%u,\"tokens_waiting\":%" PRIu64
        ",\"steps\":%" PRIu64 ",\"step_ms\":%.3f,\"prefill_tokens\":%" PRIu64
        ",\"decode_tokens\":%" PRIu64 ",\"cached_tokens\":%" PRIu64 ",\"preemptions\":%" PRIu64
        ",\"handoff_bytes\":%" PRIu64 ",\"handoff_failures\":%" PRIu64 ",\"handoff_gbps\":%.3f,"
        "\"transport\":",
        b->pages_free, b->pages_held, b->pages_quarantined, b->sequences_running,
        b->sequences_waiting, b->tokens_waiting, b->steps, (double)b->step_us / 1000,
        b->prefill_tokens, b->decode_tokens, b->cached_tokens, b->preemptions, b->handoff_bytes,
        b->handoff_failures, b->handoff_gbps);
    buffer_append_json(out, slice_of(b->transport));
    status_guesses_append(&b->guesses, out);
}

static void append_worker(const registry_worker *w, uint64_t now, buffer *out)
{
    char numeric[33], weights[33];
    hash128_format(w->numeric_id, numeric);
    hash128_format(w->weights, weights);
    buffer_append_text(out, "{\"name\":");
    buffer_append_json(out, slice_of(w->name));
    buffer_printf(out,
                  ",\"role\":\"%s\",\"state\":\"%s\",\"incarnation\":\"%016" PRIx64
                  "\",\"protocol\":%u,\"version\":",
                  policy_role_name(w->role), registry_state_name(w), w->incarnation, w->protocol);
    buffer_append_json(out, slice_of(w->version));
    buffer_append_text(out, ",\"model\":");
    buffer_append_json(out, slice_of(w->model->prompt.identity.name));
    buffer_printf(out, ",\"weights\":\"%s\",\"numeric_id\":\"%s\",\"kv_layout\":", weights,
                  numeric);
    buffer_append_json(out, slice_of(w->kv_layout));
    buffer_append_text(out, ",\"fabric\":");
    buffer buffer_fabric = { .limit = 400 };
    if (w->fabric_host[0])
        buffer_printf(&buffer_fabric, strchr(w->fabric_host, ':') ? "[%s]:%u" : "%s:%u",
                      w->fabric_host, w->fabric_port);
    buffer_append_json(out, buffer_slice(&buffer_fabric));
    buffer_close(&buffer_fabric);
    buffer_printf(
        out,
        ",\"threads\":%u,\"page_tokens\":%u,\"context\":%u,\"pages\":%" PRIu64
        ",\"credits_pages\":%" PRIu64 ",\"credits_pages_spent\":%" PRIu64
        ",\"credits_tokens\":%" PRIu64
        ",\"credits_sequences\":%u,\"credits_sequences_spent\":%u,\"tokens_outstanding\":%" PRIu64
        ",\"prefill_tokens_per_s\":%.1f,\"silent_ms\":%.1f,\"joined_s\":%.1f",
        w->threads, w->page_tokens, w->context, w->pages, w->page_credits, w->pages_spent,
        w->token_credits, w->sequences, w->sequences_spent, w->tokens_outstanding,
        w->prefill_tokens_per_s, (double)(now - w->heard_us) / 1000,
        (double)(now - w->joined_us) / 1e6);
    if (w->clock_error_us != UINT64_MAX)
        buffer_printf(out, ",\"clock_error_ms\":%.3f", (double)w->clock_error_us / 1000);
    append_beat(w, out);
    buffer_append_byte(out, '}');
}

// What holds at this moment only.
static void answer_fresh(http_request *http, buffer *out)
{
    http_answer_field(http, "Cache-Control", "no-store");
    http_respond(http, 200, "application/json", buffer_slice(out));
    buffer_close(out);
}

static void append_reason(bool ready, const char *reason, buffer *out)
{
    if (ready)
        buffer_append_text(out, "null");
    else
        buffer_append_json(out, slice_of(reason));
}

// One model: its names, and what its own line and workers do.
static void append_served(const router *r, const served_model *model, buffer *out)
{
    char reason[160], weights[33];
    dispatcher_counts counts = dispatcher_count_model(r->dispatcher, model);
    bool ready = router_ready(r, model, reason);
    hash128_format(model->prompt.identity.weights, weights);
    buffer_append_text(out, "{\"name\":");
    buffer_append_json(out, slice_of(model->prompt.identity.name));
    buffer_append_text(out, ",\"aliases\":[");
    for (size_t i = 0; i < model->source->aliases.count; i++) {
        if (i)
            buffer_append_byte(out, ',');
        buffer_append_json(out, slice_of(model->source->aliases.items[i]));
    }
    buffer_printf(out,
                  "],\"weights\":\"%s\",\"context\":%u,\"requests_waiting\":%zu,"
                  "\"requests_running\":%zu,\"ready\":%s,\"not_ready_reason\":",
                  weights, model_context(model), counts.waiting, counts.running,
                  ready ? "true" : "false");
    append_reason(ready, reason, out);
    buffer_append_byte(out, '}');
}

void status_api_cluster(http_request *http, void *context)
{
    router *r = context;
    char reason[160];
    buffer out = { 0 };
    uint64_t now = clock_now_us();
    dispatcher_counts counts = dispatcher_count(r->dispatcher);
    bool ready = router_ready(r, NULL, reason);
    buffer_append_text(&out, "{\"model\":");
    buffer_append_json(&out, slice_of(r->models.items[0].prompt.identity.name));
    buffer_append_text(&out, ",\"models\":[");
    for (size_t i = 0; i < r->models.count; i++) {
        if (i)
            buffer_append_byte(&out, ',');
        append_served(r, &r->models.items[i], &out);
    }
    buffer_printf(&out,
                  "],\"version\":\"%s\",\"incarnation\":\"%016" PRIx64
                  "\",\"uptime_s\":%.1f,\"ready\":%s,\"not_ready_reason\":",
                  PENSTOCK_VERSION, r->incarnation, (double)(now - r->started_us) / 1e6,
                  ready ? "true" : "false");
    append_reason(ready, reason, &out);
    buffer_printf(&out,
                  ",\"draining\":%s,\"requests_parsing\":%zu,\"requests_waiting\":%zu,"
                  "\"requests_running\":%zu,\"connections\":%zu,\"workers\":[",
                  r->draining ? "true" : "false", counts.parsing, counts.waiting, counts.running,
                  gate_connections(r->gate));
    for (size_t i = 0; i < registry_count(r->registry); i++) {
        if (i)
            buffer_append_byte(&out, ',');
        append_worker(registry_at(r->registry, i), now, &out);
    }
    buffer_append_byte(&out, ']');
    pulse_render(r->pulse, &out);
    buffer_append_byte(&out, '}');
    answer_fresh(http, &out);
}

// ---- the last minutes, requests, and the page
// ----------------------------------------------------------------

void status_api_trend(http_request *http, void *context)
{
    router *r = context;
    slice rest = http_request_rest(http);
    buffer out = { 0 };
    uint64_t from = 0;
    for (size_t i = 0; i < rest.size; i++) {
        if (rest.data[i] < '0' || rest.data[i] > '9' || i == 18) {
            http_respond_error(http, 404, NULL, NULL, "not_found",
                               "/trend/ is followed by the number of a sample");
            return;
        }
        from = from * 10 + (uint64_t)(rest.data[i] - '0');
    }
    trend_render(pulse_trend(r->pulse), from, &out);
    answer_fresh(http, &out);
}

#define REQUESTS_SHOWN 40 // of the newest

void status_api_requests(http_request *http, void *context)
{
    router *r = context;
    buffer out = { 0 };
    buffer_append_text(&out, "{\"requests\":");
    history_render_newest(r->history, REQUESTS_SHOWN, &out);
    buffer_append_byte(&out, '}');
    answer_fresh(http, &out);
}

void status_api_request(http_request *http, void *context)
{
    router *r = context;
    const timeline *t = history_find(r->history, http_request_rest(http));
    if (!t) {
        http_respond_error(http, 404, NULL, NULL, "not_found",
                           "no recent request has this id (an answer's id or X-Request-Id)");
        return;
    }
    buffer out = { 0 };
    history_render(t, &out);
    http_respond(http, 200, "application/json", buffer_slice(&out));
    buffer_close(&out);
}

// Nothing on the page comes from elsewhere, and nothing on it can run that is not its own file.
void status_api_page(http_request *http, void *context)
{
    (void)context;
    for (size_t i = 0; i < ui_file_count; i++) {
        const ui_file *file = &ui_files[i];
        if (!slice_equal(http_request_path(http), slice_of(file->path)))
            continue;
        http_answer_field(http, "Content-Security-Policy",
                          "default-src 'none'; script-src 'self'; style-src 'self'; img-src "
                          "'self'; connect-src 'self'; "
                          "base-uri 'none'; form-action 'none'; frame-ancestors 'none'");
        http_answer_field(http, "X-Content-Type-Options", "nosniff");
        http_answer_field(http, "Referrer-Policy", "no-referrer");
        http_answer_field(http, "Cache-Control", "no-cache");
        http_respond(http, 200, file->type, (slice){ (const char *)file->data, file->size });
        return;
    }
    http_respond_error(http, 404, NULL, NULL, "not_found", "there is nothing at this path");
}
