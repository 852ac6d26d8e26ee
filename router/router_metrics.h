// Every metric of the router, in one table (router_metrics.c), and the series that the loop
// updates.
//
// Labels come from fixed lists: routes, outcomes, reasons, roles, models; never from clients.
// Gauges are set when somebody scrapes, from the state itself, so that they cannot go stale.
#pragma once

#include "base/metrics.h"
#include "router/models.h"
#include "router/trend.h"

// One row of the table in router_metrics.c each; the comment names the labels.
typedef enum router_metric {
    ROUTER_METRIC_REQUESTS,         // outcome, model
    ROUTER_METRIC_HTTP,             // route, code
    ROUTER_METRIC_TTFT,             // model
    ROUTER_METRIC_TOKEN_TIME,       // model
    ROUTER_METRIC_REQUEST_TIME,     // model
    ROUTER_METRIC_QUEUE_TIME,       // model
    ROUTER_METRIC_PREFILL_TIME,     // model
    ROUTER_METRIC_HANDOFF_TIME,     // model
    ROUTER_METRIC_MIGRATION_PAUSE,  // model
    ROUTER_METRIC_PROMPT_TOKENS,    // model
    ROUTER_METRIC_CACHED_TOKENS,    // model
    ROUTER_METRIC_GENERATED_TOKENS, // model
    ROUTER_METRIC_HANDOFF_BYTES,    // model
    ROUTER_METRIC_RETRIES,          // reason, model
    ROUTER_METRIC_FALLBACKS,        // reason, model
    ROUTER_METRIC_MIGRATIONS,       // result, model
    ROUTER_METRIC_STALE,            // kind, model
    ROUTER_METRIC_VERSIONS,         // fingerprint, model
    ROUTER_METRIC_UNKNOWN_FIELDS,
    ROUTER_METRIC_KEY_REQUESTS, // key, code
    ROUTER_METRIC_KEY_TOKENS,   // key, kind
    ROUTER_METRIC_KEY_REFUSALS, // reason
    ROUTER_METRIC_REGISTRATIONS_REFUSED,
    ROUTER_METRIC_WORKERS_LOST, // model
    // Gauges: set by status_api_metrics.
    ROUTER_METRIC_WORKERS,      // role, state, model
    ROUTER_METRIC_REQUESTS_NOW, // state, model
    ROUTER_METRIC_CONNECTIONS,
    ROUTER_METRIC_WAITING_TIME,     // model
    ROUTER_METRIC_CREDIT_PAGES,     // role, state, model
    ROUTER_METRIC_CREDIT_SEQUENCES, // role, state, model
    ROUTER_METRIC_POOL_PAGES,       // role, state, model
    ROUTER_METRIC_READY,            // model
    ROUTER_METRIC_DRAINING,
    ROUTER_METRIC_STARTED,
    ROUTER_METRIC_BUILD, // version
    ROUTER_METRIC_COUNT,
} router_metric;

typedef struct router_metrics router_metrics;

// STATUS_NO_MEMORY. The loop's thread opens, updates and renders. Series of these models are there
// from the start.
status router_metrics_open(const models *served, router_metrics **opened);
void router_metrics_close(router_metrics *m); // NULL is allowed
// As many label values as the metric has; a model's is its name, and "" where a request named none
// that exists.
void router_metrics_add(router_metrics *m, router_metric metric, const char *label,
                        const char *label_two, double amount);
void router_metrics_set(router_metrics *m, router_metric metric, const char *label,
                        const char *label_two, const char *label_three, double value);
// Histograms; all of them are in seconds.
void router_metrics_observe(router_metrics *m, router_metric metric, const char *label,
                            double seconds);
// What a counter or gauge stands at.
double router_metrics_value(router_metrics *m, router_metric metric, const char *label,
                            const char *label_two);
// The sum over the series with these labels; NULL stands for any.
double router_metrics_total(router_metrics *m, router_metric metric, const char *label,
                            const char *label_two);
// From now on times to the first token and per token are noted there too; NULL: nowhere.
void router_metrics_follow(router_metrics *m, trend *follower);
// Append the Prometheus text.
void router_metrics_render(router_metrics *m, buffer *out);
// Append the table that deploy/METRICS.md shows.
void router_metrics_describe(buffer *out);
