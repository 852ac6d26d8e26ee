#include "router/router_metrics.h"

#include <stdlib.h>

static const double token_buckets[] = { 0.001, 0.0025, 0.005, 0.0075, 0.01, 0.015, 0.02, 0.03,
                                        0.05,  0.075,  0.1,   0.15,   0.25, 0.5,   1,    2.5 };
#define TOKEN_BUCKETS token_buckets, sizeof token_buckets / sizeof *token_buckets

// clang-format off
#define COUNTER(name, help, ...) { name, METRICS_COUNTER, help, { __VA_ARGS__ }, NULL, 0 }
#define GAUGE(name, help, ...) { name, METRICS_GAUGE, help, { __VA_ARGS__ }, NULL, 0 }
#define HISTOGRAM(name, help, ...) { name, METRICS_HISTOGRAM, help, { __VA_ARGS__ }, NULL, 0 }

static const metrics_spec specs[ROUTER_METRIC_COUNT] = {
    [ROUTER_METRIC_REQUESTS] = COUNTER("penstock_requests_total",
        "Completion requests by how they ended: stop, length, abort, error, rejected.", "outcome", "model"),
    [ROUTER_METRIC_HTTP] = COUNTER("penstock_http_responses_total",
        "HTTP answers by route and status code; code 0: the client left before one.",
        "route", "code"),
    [ROUTER_METRIC_TTFT] = HISTOGRAM("penstock_time_to_first_token_seconds",
        "From the request's arrival to its first token in the router.", "model"),
    [ROUTER_METRIC_TOKEN_TIME] = { "penstock_time_per_output_token_seconds", METRICS_HISTOGRAM,
        "Mean time between the tokens of a finished request after its first.", { "model" },
        TOKEN_BUCKETS },
    [ROUTER_METRIC_REQUEST_TIME] = HISTOGRAM("penstock_request_seconds",
        "From the request's arrival to its end, finished requests only.", "model"),
    [ROUTER_METRIC_QUEUE_TIME] = HISTOGRAM("penstock_queue_seconds",
        "From the parsed request to its first ticket.", "model"),
    [ROUTER_METRIC_PREFILL_TIME] = HISTOGRAM("penstock_prefill_seconds",
        "Computation of a prompt, as its worker reports it.", "model"),
    [ROUTER_METRIC_HANDOFF_TIME] = HISTOGRAM("penstock_handoff_seconds",
        "From the end of the prefill to the first decode step, where these were on two workers.", "model"),
    [ROUTER_METRIC_MIGRATION_PAUSE] = HISTOGRAM("penstock_migration_pause_seconds",
        "From the last token of a decode worker that drains to the first of the one that goes on.", "model"),
    [ROUTER_METRIC_PROMPT_TOKENS] = COUNTER("penstock_prompt_tokens_total",
        "Prompt tokens of requests that were placed.", "model"),
    [ROUTER_METRIC_CACHED_TOKENS] = COUNTER("penstock_cached_tokens_total",
        "Prompt tokens that no worker had to compute.", "model"),
    [ROUTER_METRIC_GENERATED_TOKENS] = COUNTER("penstock_generated_tokens_total",
        "Tokens that were billed to requests.", "model"),
    [ROUTER_METRIC_HANDOFF_BYTES] = COUNTER("penstock_handoff_bytes_total",
        "Bytes of KV pages that prefill workers have handed over.", "model"),
    [ROUTER_METRIC_RETRIES] = COUNTER("penstock_retries_total",
        "Further attempts by cause: a worker lost, left or stuck, a ticket refused, failed or not sent, tokens that cannot be, scores that did not come.", "reason", "model"),
    [ROUTER_METRIC_FALLBACKS] = COUNTER("penstock_fallbacks_total",
        "Requests that did not go the usual way: short_prompt, no_prefill_worker, handoff_failed, mixed_numeric_ids, other_version.", "reason", "model"),
    [ROUTER_METRIC_MIGRATIONS] = COUNTER("penstock_migrations_total",
        "Answers that left a decode worker that drains: moved, failed, ended before, or recomputed for want of room.",
        "result", "model"),
    [ROUTER_METRIC_STALE] = COUNTER("penstock_stale_messages_total",
        "Reports of workers that were dropped: ended_request, older_attempt, other_worker.", "kind", "model"),
    [ROUTER_METRIC_VERSIONS] = COUNTER("penstock_version_requests_total",
                                       "Requests by the version of the model that they began on.",
                                       "fingerprint", "model"),
    [ROUTER_METRIC_UNKNOWN_FIELDS] = COUNTER("penstock_unknown_request_fields_total",
        "Fields of request bodies that nobody documents and that were ignored."),
    [ROUTER_METRIC_KEY_REQUESTS] = COUNTER("penstock_key_requests_total",
        "HTTP answers by the name of the API key and status code.", "key", "code"),
    [ROUTER_METRIC_KEY_TOKENS] = COUNTER("penstock_key_tokens_total",
        "Tokens by the name of the API key: prompt, completion.", "key", "kind"),
    [ROUTER_METRIC_KEY_REFUSALS] = COUNTER("penstock_key_refusals_total",
        "Requests refused for their API key: missing, unknown, not_admin, requests, tokens, too_large, concurrent, model, class.",
        "reason"),
    [ROUTER_METRIC_REGISTRATIONS_REFUSED] = COUNTER("penstock_registrations_refused_total",
        "Workers that were not let in."),
    [ROUTER_METRIC_WORKERS_LOST] = COUNTER("penstock_workers_lost_total",
        "Workers that left, died or were replaced.", "model"),
    [ROUTER_METRIC_WORKERS] = GAUGE("penstock_workers",
        "Workers by role and state: joining, alive, suspect, unhealthy, draining, cordoned.", "role", "state", "model"),
    [ROUTER_METRIC_REQUESTS_NOW] = GAUGE("penstock_requests",
        "Requests at present: parsing, waiting, running.", "state", "model"),
    [ROUTER_METRIC_CONNECTIONS] = GAUGE("penstock_http_connections",
        "Open client connections."),
    [ROUTER_METRIC_WAITING_TIME] = GAUGE("penstock_queue_oldest_seconds",
        "How long the request at the front of the line has waited; 0 where none waits.", "model"),
    [ROUTER_METRIC_CREDIT_PAGES] = GAUGE("penstock_credit_pages",
        "Page credits of this router by role: granted, spent.", "role", "state", "model"),
    [ROUTER_METRIC_CREDIT_SEQUENCES] = GAUGE("penstock_credit_sequences",
        "Sequence credits of this router by role: granted, spent.", "role", "state", "model"),
    [ROUTER_METRIC_POOL_PAGES] = GAUGE("penstock_pool_pages",
        "Pages of the workers' pools by role, as they report them: free, held, quarantined.",
        "role", "state", "model"),
    [ROUTER_METRIC_READY] = GAUGE("penstock_ready", "1 where requests can be served now.", "model"),
    [ROUTER_METRIC_DRAINING] = GAUGE("penstock_draining", "1 after SIGTERM."),
    [ROUTER_METRIC_STARTED] = GAUGE("penstock_start_time_seconds",
        "When the process started, in Unix time."),
    [ROUTER_METRIC_BUILD] = GAUGE("penstock_build_info",
        "1, with the version as a label.", "version"),
};
// clang-format on

struct router_metrics {
    metrics *registry;
    metrics_spec specs[ROUTER_METRIC_COUNT];
    trend *follower;                            // NULL: none
    metrics_series *plain[ROUTER_METRIC_COUNT]; // of metrics without labels
};

// Series that alarms look at exist from the start: a rate over a series that appears with its first
// event misses that event.
static const struct {
    router_metric metric;
    const char *label;
} known[] = {
    { ROUTER_METRIC_REQUESTS, "stop" },
    { ROUTER_METRIC_REQUESTS, "length" },
    { ROUTER_METRIC_REQUESTS, "abort" },
    { ROUTER_METRIC_REQUESTS, "error" },
    { ROUTER_METRIC_REQUESTS, "rejected" },
    { ROUTER_METRIC_RETRIES, "decode_worker_lost" },
    { ROUTER_METRIC_RETRIES, "prefill_worker_lost" },
    { ROUTER_METRIC_RETRIES, "worker_left" },
    { ROUTER_METRIC_RETRIES, "worker_stuck" },
    { ROUTER_METRIC_RETRIES, "refused" },
    { ROUTER_METRIC_RETRIES, "failed" },
    { ROUTER_METRIC_RETRIES, "send_failed" },
    { ROUTER_METRIC_RETRIES, "token_gap" },
    { ROUTER_METRIC_RETRIES, "bad_tokens" },
    { ROUTER_METRIC_RETRIES, "no_scores" },
    { ROUTER_METRIC_FALLBACKS, "short_prompt" },
    { ROUTER_METRIC_FALLBACKS, "no_prefill_worker" },
    { ROUTER_METRIC_FALLBACKS, "handoff_failed" },
    { ROUTER_METRIC_FALLBACKS, "mixed_numeric_ids" },
    { ROUTER_METRIC_FALLBACKS, "other_version" },
    { ROUTER_METRIC_MIGRATIONS, "moved" },
    { ROUTER_METRIC_MIGRATIONS, "failed" },
    { ROUTER_METRIC_MIGRATIONS, "ended" },
    { ROUTER_METRIC_MIGRATIONS, "recomputed" },
};

// Those that belong to a model: their labels end with it.
static const router_metric known_of_models[] = {
    ROUTER_METRIC_TTFT,
    ROUTER_METRIC_TOKEN_TIME,
    ROUTER_METRIC_REQUEST_TIME,
    ROUTER_METRIC_QUEUE_TIME,
    ROUTER_METRIC_PROMPT_TOKENS,
    ROUTER_METRIC_CACHED_TOKENS,
    ROUTER_METRIC_GENERATED_TOKENS,
    ROUTER_METRIC_PREFILL_TIME,
    ROUTER_METRIC_HANDOFF_TIME,
    ROUTER_METRIC_MIGRATION_PAUSE,
    ROUTER_METRIC_HANDOFF_BYTES,
    ROUTER_METRIC_WORKERS_LOST,
};

static metrics_series *series(router_metrics *m, router_metric metric, const char *label,
                              const char *label_two, const char *label_three)
{
    const char *labels[METRICS_LABELS_MAX] = { label, label_two, label_three };
    return m->plain[metric] ? m->plain[metric] : metrics_series_of(m->registry, metric, labels);
}

static void known_begin(router_metrics *m, const char *model)
{
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        router_metrics_add(m, known[i].metric, known[i].label, model, 0);
    for (size_t i = 0; i < sizeof known_of_models / sizeof *known_of_models; i++)
        series(m, known_of_models[i], model, NULL, NULL);
}

status router_metrics_open(const models *served, router_metrics **opened)
{
    router_metrics *m = calloc(1, sizeof *m);
    if (!m)
        return STATUS_NO_MEMORY;
    for (size_t i = 0; i < ROUTER_METRIC_COUNT; i++) {
        m->specs[i] = specs[i];
        if (specs[i].kind == METRICS_HISTOGRAM && !specs[i].buckets) {
            m->specs[i].buckets = metrics_latency_buckets;
            m->specs[i].bucket_count = metrics_latency_bucket_count;
        }
    }
    status result = metrics_open(m->specs, ROUTER_METRIC_COUNT, &m->registry);
    if (result != STATUS_OK) {
        free(m);
        return result;
    }
    for (size_t i = 0; i < ROUTER_METRIC_COUNT; i++)
        if (!specs[i].labels[0])
            m->plain[i] = metrics_series_of(m->registry, i, NULL);
    for (size_t i = 0; i < served->count; i++)
        known_begin(m, served->items[i].prompt.identity.name);
    router_metrics_set(m, ROUTER_METRIC_BUILD, PENSTOCK_VERSION, NULL, NULL, 1);
    *opened = m;
    return STATUS_OK;
}

void router_metrics_close(router_metrics *m)
{
    if (!m)
        return;
    metrics_close(m->registry);
    free(m);
}

void router_metrics_add(router_metrics *m, router_metric metric, const char *label,
                        const char *label_two, double amount)
{
    metrics_add(series(m, metric, label, label_two, NULL), amount);
}

void router_metrics_set(router_metrics *m, router_metric metric, const char *label,
                        const char *label_two, const char *label_three, double value)
{
    metrics_set(series(m, metric, label, label_two, label_three), value);
}

void router_metrics_observe(router_metrics *m, router_metric metric, const char *label,
                            double seconds)
{
    metrics_observe(series(m, metric, label, NULL, NULL), seconds);
    if (m->follower && (metric == ROUTER_METRIC_TTFT || metric == ROUTER_METRIC_TOKEN_TIME))
        trend_note(m->follower, metric == ROUTER_METRIC_TTFT ? TREND_FIRST_TOKEN : TREND_TOKEN,
                   seconds);
}

void router_metrics_follow(router_metrics *m, trend *follower)
{
    m->follower = follower;
}

double router_metrics_total(router_metrics *m, router_metric metric, const char *label,
                            const char *label_two)
{
    const char *labels[METRICS_LABELS_MAX] = { label, label_two };
    return metrics_total(m->registry, metric, labels);
}

double router_metrics_value(router_metrics *m, router_metric metric, const char *label,
                            const char *label_two)
{
    return metrics_value(series(m, metric, label, label_two, NULL));
}

void router_metrics_render(router_metrics *m, buffer *out)
{
    metrics_render(m->registry, out);
}

void router_metrics_describe(buffer *out)
{
    metrics_describe(specs, ROUTER_METRIC_COUNT, out);
}
