#include "worker/page.h"

#include "base/log.h"

#include <ctype.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

enum {
    SPEC_TICKETS,
    SPEC_TOKENS,
    SPEC_PREEMPTIONS,
    SPEC_OVERTAKES,
    SPEC_HANDOFFS,
    SPEC_STEP_SECONDS,
    SPEC_STEP_PREDICTED_SECONDS,
    SPEC_STEP_RATIO,
    SPEC_STEP_ROWS,
    SPEC_BATCH,
    SPEC_HANDOFF_SECONDS,
    SPEC_HANDOFF_BYTES,
    SPEC_PAIRS_CLOSED,
    SPEC_PAGES,
    SPEC_PAGES_EVICTED,
    SPEC_SEQUENCES,
    SPEC_GRAMMAR_BYTES,
    SPEC_REFUSALS,
    SPEC_FAILURES,
    SPEC_FALLBACKS,
    SPEC_GUESSES,
    SPEC_GUESS_POSITIONS,
    SPEC_GUESS_STEPS,
    SPEC_GUESS_ROWS,
    SPEC_GUESS_ALPHA,
    SPEC_GUESS_BREAK_EVEN,
    SPEC_GUESS_STEP_TOKENS,
    SPEC_GUESS_GAINED,
    SPEC_GUESS_DRAFT,
    SPEC_READY,
    SPECS
};

static const double step_bounds[] = { 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1,
                                      0.25,  0.5,    1,     2.5,  5,     10 };
static const double ratio_bounds[] = { 0.25, 0.5, 0.7, 0.8, 0.9, 1, 1.1, 1.2, 1.4, 2, 4, 8 };
static const double row_bounds[] = { 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024 };
static const double handoff_bounds[] = { 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1,
                                         0.25,  0.5,    1,     2.5,  5,     10 };
#define BOUNDS(array) array, sizeof(array) / sizeof(array[0])

// clang-format off
static const metrics_spec specs[SPECS] = {
    [SPEC_TICKETS] = { "penstock_worker_tickets_total", METRICS_COUNTER, "Tickets that arrived.", { NULL }, NULL, 0 },
    [SPEC_TOKENS] = { "penstock_worker_tokens_total", METRICS_COUNTER, "Tokens computed, and prompt tokens found in the prefix cache: prefill, decode, cached.", { "phase", NULL }, NULL, 0 },
    [SPEC_PREEMPTIONS] = { "penstock_worker_preemptions_total", METRICS_COUNTER, "Sequences given back because the page pool was full, by class: interactive, batch.", { "class", NULL }, NULL, 0 },
    [SPEC_OVERTAKES] = { "penstock_worker_overtakes_total", METRICS_COUNTER, "Tickets that entered before an earlier one that found no room.", { NULL }, NULL, 0 },
    [SPEC_HANDOFFS] = { "penstock_worker_handoffs_total", METRICS_COUNTER, "Transfers of a KV cache that ended: delivered, failed, cancelled.", { "result", NULL }, NULL, 0 },
    [SPEC_STEP_SECONDS] = { "penstock_worker_step_seconds", METRICS_HISTOGRAM, "Duration of a step.", { NULL }, BOUNDS(step_bounds) },
    [SPEC_STEP_PREDICTED_SECONDS] = { "penstock_worker_step_predicted_seconds", METRICS_HISTOGRAM, "Duration of a step as it was predicted from its composition, once that is possible.", { NULL }, BOUNDS(step_bounds) },
    [SPEC_STEP_RATIO] = { "penstock_worker_step_predicted_ratio", METRICS_HISTOGRAM, "Duration of a step over the predicted one.", { NULL }, BOUNDS(ratio_bounds) },
    [SPEC_STEP_ROWS] = { "penstock_worker_step_rows", METRICS_HISTOGRAM, "Tokens computed in a step.", { NULL }, BOUNDS(row_bounds) },
    [SPEC_BATCH] = { "penstock_worker_batch_sequences", METRICS_HISTOGRAM, "Answers that a step made a token of; steps without any are left out.", { NULL }, BOUNDS(row_bounds) },
    [SPEC_HANDOFF_SECONDS] = { "penstock_worker_handoff_seconds", METRICS_HISTOGRAM, "From the first page of a transfer to its last.", { NULL }, BOUNDS(handoff_bounds) },
    [SPEC_HANDOFF_BYTES] = { "penstock_worker_handoff_bytes_total", METRICS_COUNTER, "Bytes of pages moved: sent, received.", { "direction", NULL }, NULL, 0 },
    [SPEC_PAIRS_CLOSED] = { "penstock_worker_pairs_closed_total", METRICS_COUNTER, "Connections to other workers that were closed unused, because more than fabric.peers were open.", { NULL }, NULL, 0 },
    [SPEC_PAGES] = { "penstock_worker_pages", METRICS_GAUGE, "Pages of the pool: free (also those of cached prefixes), held, quarantined.", { "state", NULL }, NULL, 0 },
    [SPEC_PAGES_EVICTED] = { "penstock_worker_pages_evicted_total", METRICS_COUNTER, "Cached pages of the pool that were given up for new ones.", { NULL }, NULL, 0 },
    [SPEC_SEQUENCES] = { "penstock_worker_sequences", METRICS_GAUGE, "Sequences in the batch, and tickets that wait: running, waiting.", { "state", NULL }, NULL, 0 },
    [SPEC_GRAMMAR_BYTES] = { "penstock_worker_grammar_bytes", METRICS_GAUGE, "Sources and compiled grammars of tickets, waiting ones and those kept for tickets to come too.", { NULL }, NULL, 0 },
    [SPEC_REFUSALS] = { "penstock_worker_refusals_total", METRICS_COUNTER, "Tickets that were not taken, by the status that says why.", { "reason", NULL }, NULL, 0 },
    [SPEC_FAILURES] = { "penstock_worker_failures_total", METRICS_COUNTER, "Tickets that were taken and given up, by the status that says why.", { "reason", NULL }, NULL, 0 },
    [SPEC_FALLBACKS] = { "penstock_worker_fallbacks_total", METRICS_COUNTER, "Things done in a worse way than planned: recompute (handoff), preemption (pages), transport (slow), guesses (pages: the draft model had none for a sequence; failed: it drew nothing for one; stalled: it took too long for a guess, which was cut short).", { "kind", "reason", NULL }, NULL, 0 },
    [SPEC_GUESSES] = { "penstock_worker_guesses_total", METRICS_COUNTER, "Tokens that were guessed and verified, by drafter, class of the answer and what they were: right, wrong (the first one of a guess that was), behind (a wrong one, so they say nothing).", { "drafter", "class", "result" }, NULL, 0 },
    [SPEC_GUESS_POSITIONS] = { "penstock_worker_guess_positions_total", METRICS_COUNTER, "Guessed tokens by drafter and by position in the guess, 1 to 16, where those before were right: tried, and of these right.", { "drafter", "position", "result" }, NULL, 0 },
    [SPEC_GUESS_STEPS] = { "penstock_worker_guess_steps_total", METRICS_COUNTER, "Steps that generated: on (with guesses), probing (with guesses to see whether they pay again), off (guesses would not pay, or there are none), prompts (the step had rows of prompts, beside which nothing is guessed).", { "state", NULL }, NULL, 0 },
    [SPEC_GUESS_ROWS] = { "penstock_worker_guess_rows_total", METRICS_COUNTER, "Answers, each counted in each of its steps, by class: guessed for (on, probing), or why not: below_break_even, lost (of late guesses cost more than they brought), limit (speculate.step, speculate.step_batch or engine.draft_tokens), prompts (in the step), no_guess, measuring (what a step takes without guesses), pages (none was left).", { "class", "state", NULL }, NULL, 0 },
    [SPEC_GUESS_ALPHA] = { "penstock_worker_guess_alpha_ratio", METRICS_GAUGE, "Chance that a guessed token is right where those before it were, by drafter and class: estimate, low and high of its interval of 95 %, and expected of what is offered now.", { "drafter", "class", "bound" }, NULL, 0 },
    [SPEC_GUESS_BREAK_EVEN] = { "penstock_worker_guess_break_even_ratio", METRICS_GAUGE, "The chance from which guesses of a drafter gain something at the batch of now; 1: none does, 0: not known yet.", { "drafter", NULL }, NULL, 0 },
    [SPEC_GUESS_STEP_TOKENS] = { "penstock_worker_guess_tokens_per_step", METRICS_GAUGE, "Tokens by which an answer grows in a step, by class, in about the last 1,000 steps; 1 without guesses.", { "class", NULL }, NULL, 0 },
    [SPEC_GUESS_GAINED] = { "penstock_worker_guess_gained_tokens_per_second", METRICS_GAUGE, "Tokens of answers a second beyond what there would be without guesses, by class, in about the last 1,000 steps; less than 0: they were lost.", { "class", NULL }, NULL, 0 },
    [SPEC_GUESS_DRAFT] = { "penstock_worker_guess_draft_info", METRICS_GAUGE, "1, with the model that is served, the drafter, and the name of the model that guesses, where one does.", { "model", "drafter", "draft" }, NULL, 0 },
    [SPEC_READY] = { "penstock_worker_ready", METRICS_GAUGE, "1 where tickets can be taken now.", { NULL }, NULL, 0 },
};
// clang-format on

enum { PAGES_FREE, PAGES_HELD, PAGES_QUARANTINED, SEQUENCES_RUNNING, SEQUENCES_WAITING };
enum { READY = SEQUENCES_WAITING + 1, GRAMMAR_BYTES, GAUGES };

struct page {
    metrics *registry;
    metrics_series *counters[PAGE_COUNTERS];
    metrics_series *histograms[PAGE_HISTOGRAMS];
    metrics_series *gauges[GAUGES];
    metrics_series *bytes_sent, *bytes_received, *pairs_closed, *pages_evicted;
    http_thread *http; // NULL: off
    pthread_mutex_t lock;
    worker *worker; // NULL: the model is loading, or the process ends
};

static metrics_series *labelled(page *p, size_t spec, const char *value)
{
    return metrics_series_of(p->registry, spec, (const char *const[]){ value, NULL });
}

static void series_make(page *p)
{
    p->counters[PAGE_TICKETS] = metrics_series_of(p->registry, SPEC_TICKETS, NULL);
    p->counters[PAGE_PREFILL_TOKENS] = labelled(p, SPEC_TOKENS, "prefill");
    p->counters[PAGE_DECODE_TOKENS] = labelled(p, SPEC_TOKENS, "decode");
    p->counters[PAGE_CACHED_TOKENS] = labelled(p, SPEC_TOKENS, "cached");
    p->counters[PAGE_PREEMPTIONS] = labelled(p, SPEC_PREEMPTIONS, "interactive");
    p->counters[PAGE_PREEMPTIONS_BATCH] = labelled(p, SPEC_PREEMPTIONS, "batch");
    p->counters[PAGE_OVERTAKES] = metrics_series_of(p->registry, SPEC_OVERTAKES, NULL);
    p->counters[PAGE_HANDOFFS_DELIVERED] = labelled(p, SPEC_HANDOFFS, "delivered");
    p->counters[PAGE_HANDOFFS_FAILED] = labelled(p, SPEC_HANDOFFS, "failed");
    p->counters[PAGE_HANDOFFS_CANCELLED] = labelled(p, SPEC_HANDOFFS, "cancelled");
    p->histograms[PAGE_STEP_SECONDS] = metrics_series_of(p->registry, SPEC_STEP_SECONDS, NULL);
    p->histograms[PAGE_STEP_PREDICTED_SECONDS] =
        metrics_series_of(p->registry, SPEC_STEP_PREDICTED_SECONDS, NULL);
    p->histograms[PAGE_STEP_RATIO] = metrics_series_of(p->registry, SPEC_STEP_RATIO, NULL);
    p->histograms[PAGE_STEP_ROWS] = metrics_series_of(p->registry, SPEC_STEP_ROWS, NULL);
    p->histograms[PAGE_BATCH] = metrics_series_of(p->registry, SPEC_BATCH, NULL);
    p->histograms[PAGE_HANDOFF_SECONDS] =
        metrics_series_of(p->registry, SPEC_HANDOFF_SECONDS, NULL);
    p->gauges[PAGES_FREE] = labelled(p, SPEC_PAGES, "free");
    p->gauges[PAGES_HELD] = labelled(p, SPEC_PAGES, "held");
    p->gauges[PAGES_QUARANTINED] = labelled(p, SPEC_PAGES, "quarantined");
    p->gauges[SEQUENCES_RUNNING] = labelled(p, SPEC_SEQUENCES, "running");
    p->gauges[SEQUENCES_WAITING] = labelled(p, SPEC_SEQUENCES, "waiting");
    p->pages_evicted = metrics_series_of(p->registry, SPEC_PAGES_EVICTED, NULL);
    p->bytes_sent = labelled(p, SPEC_HANDOFF_BYTES, "sent");
    p->bytes_received = labelled(p, SPEC_HANDOFF_BYTES, "received");
    p->pairs_closed = metrics_series_of(p->registry, SPEC_PAIRS_CLOSED, NULL);
    p->gauges[READY] = metrics_series_of(p->registry, SPEC_READY, NULL);
    p->gauges[GRAMMAR_BYTES] = metrics_series_of(p->registry, SPEC_GRAMMAR_BYTES, NULL);
}

// ---- routes; on the page's thread --------------------------------------------------------------

static void on_health(http_request *r, void *context)
{
    page *p = context;
    pthread_mutex_lock(&p->lock);
    bool good = p->worker == NULL || worker_healthy(p->worker);
    pthread_mutex_unlock(&p->lock);
    if (good)
        http_respond(r, 200, "application/json", SLICE("{\"status\":\"alive\"}\n"));
    else
        http_respond(
            r, 503, "application/json",
            SLICE("{\"status\":\"stuck\",\"reason\":\"there is work and no step was made\"}\n"));
}

static bool ready(page *p, char reason[128])
{
    pthread_mutex_lock(&p->lock);
    bool good = p->worker != NULL && worker_ready(p->worker, reason);
    if (p->worker == NULL)
        snprintf(reason, 128, "the model is not loaded");
    pthread_mutex_unlock(&p->lock);
    return good;
}

static void on_ready(http_request *r, void *context)
{
    char reason[128];
    buffer body = { 0 };
    bool good = ready(context, reason);
    buffer_append_text(&body, good ? "{\"status\":\"ready\"" : "{\"status\":\"not ready\"");
    if (!good) {
        buffer_append_text(&body, ",\"reason\":");
        buffer_append_json(&body, slice_of(reason));
    }
    buffer_append_text(&body, "}\n");
    http_respond(r, good ? 200 : 503, "application/json", buffer_slice(&body));
    buffer_close(&body);
}

static void on_metrics(http_request *r, void *context)
{
    page *p = context;
    char reason[128];
    buffer body = { 0 };
    metrics_set(p->gauges[READY], ready(p, reason));
    metrics_render(p->registry, &body);
    http_respond(r, 200, "text/plain; version=0.0.4; charset=utf-8", buffer_slice(&body));
    buffer_close(&body);
}

static const http_route routes[] = {
    { "GET", "/health", on_health, 0 },
    { "GET", "/ready", on_ready, 0 },
    { "GET", "/metrics", on_metrics, 0 },
};

// ---- opening -----------------------------------------------------------------------------------

status page_open(const http_settings *settings, page **opened, error *failure)
{
    page *p = calloc(1, sizeof(*p));
    if (p == NULL)
        return error_set(failure, STATUS_NO_MEMORY, "", "memory is short");
    pthread_mutex_init(&p->lock, NULL);
    status result = metrics_open(specs, SPECS, &p->registry);
    if (result != STATUS_OK) {
        page_close(p);
        return error_set(failure, result, "", "the metrics cannot be made");
    }
    series_make(p);
    if (settings->listen.count > 0) {
        result = http_thread_open(settings, routes, sizeof(routes) / sizeof(routes[0]), p, &p->http,
                                  failure);
        if (result != STATUS_OK) {
            page_close(p);
            return result;
        }
        for (size_t i = 0;; i++) {
            const char *where = http_server_address(http_thread_server(p->http), i);
            if (where == NULL)
                break;
            log_info("worker", "health and metrics at http://%s", where);
        }
    }
    *opened = p;
    return STATUS_OK;
}

void page_close(page *p)
{
    if (p == NULL)
        return;
    if (p->http != NULL)
        http_thread_close(p->http);
    metrics_close(p->registry);
    pthread_mutex_destroy(&p->lock);
    free(p);
}

void page_worker(page *p, worker *w)
{
    pthread_mutex_lock(&p->lock);
    p->worker = w;
    pthread_mutex_unlock(&p->lock);
}

// ---- numbers -----------------------------------------------------------------------------------

void page_count(page *p, page_counter counter, double amount)
{
    metrics_add(p->counters[counter], amount);
}

void page_observe(page *p, page_histogram histogram, double value)
{
    metrics_observe(p->histograms[histogram], value);
}

void page_show(page *p, const worker_state *state, const handoff_stats *stats, size_t grammar_bytes)
{
    metrics_set(p->gauges[GRAMMAR_BYTES], (double)grammar_bytes);
    metrics_set(p->gauges[PAGES_FREE], (double)state->pages_free);
    metrics_set(p->gauges[PAGES_HELD], (double)state->pages_held);
    metrics_set(p->gauges[PAGES_QUARANTINED], (double)state->pages_quarantined);
    metrics_set(p->gauges[SEQUENCES_RUNNING], state->sequences_running);
    metrics_set(p->gauges[SEQUENCES_WAITING], state->sequences_waiting);
    metrics_add(p->pages_evicted, (double)state->pages_evicted - metrics_value(p->pages_evicted));
    metrics_add(p->bytes_sent, (double)stats->bytes_sent - metrics_value(p->bytes_sent));
    metrics_add(p->bytes_received,
                (double)stats->bytes_received - metrics_value(p->bytes_received));
    metrics_add(p->pairs_closed, (double)stats->unused_pairs - metrics_value(p->pairs_closed));
}

static void reason_add(page *p, size_t spec, status reason)
{
    char name[32];
    snprintf(name, sizeof(name), "%s", status_name(reason));
    for (char *at = name; *at != 0; at++)
        *at = (char)tolower((unsigned char)*at);
    metrics_add(labelled(p, spec, name), 1);
}

void page_refused(page *p, status reason)
{
    reason_add(p, SPEC_REFUSALS, reason);
}

void page_failed(page *p, status reason)
{
    reason_add(p, SPEC_FAILURES, reason);
}

// Up to three labels.
static metrics_series *series(page *p, size_t spec, const char *first, const char *second,
                              const char *third)
{
    return metrics_series_of(p->registry, spec,
                             (const char *const[]){ first, second, third, NULL });
}

static void counter_show(metrics_series *series, uint64_t value)
{
    metrics_add(series, (double)value - metrics_value(series));
}

static void drafter_show(page *p, const char *model, const guesses_drafter *d)
{
    metrics_set(series(p, SPEC_GUESS_BREAK_EVEN, d->name, NULL, NULL), d->break_even);
    metrics_set(series(p, SPEC_GUESS_DRAFT, model, d->name, d->draft), 1);
    for (size_t i = 0; i < d->positions; i++) {
        char position[24];
        snprintf(position, sizeof(position), "%zu", i + 1);
        counter_show(series(p, SPEC_GUESS_POSITIONS, d->name, position, "tried"), d->tried[i]);
        counter_show(series(p, SPEC_GUESS_POSITIONS, d->name, position, "right"), d->held[i]);
    }
}

static void class_show(page *p, const guesses_class *c)
{
    metrics_set(series(p, SPEC_GUESS_STEP_TOKENS, c->name, NULL, NULL), c->tokens_per_step);
    metrics_set(series(p, SPEC_GUESS_GAINED, c->name, NULL, NULL), c->gained_per_s);
    for (size_t i = 0; i < c->state_count; i++)
        counter_show(series(p, SPEC_GUESS_ROWS, c->name, c->states[i].name, NULL),
                     c->states[i].rows);
    for (size_t i = 0; i < c->drafter_count; i++) {
        const guesses_drafter *d = &c->drafters[i];
        counter_show(series(p, SPEC_GUESSES, d->name, c->name, "right"), d->right);
        counter_show(series(p, SPEC_GUESSES, d->name, c->name, "wrong"), d->wrong);
        counter_show(series(p, SPEC_GUESSES, d->name, c->name, "behind"), d->behind);
        metrics_set(series(p, SPEC_GUESS_ALPHA, d->name, c->name, "estimate"), d->alpha);
        metrics_set(series(p, SPEC_GUESS_ALPHA, d->name, c->name, "low"), d->low);
        metrics_set(series(p, SPEC_GUESS_ALPHA, d->name, c->name, "high"), d->high);
        metrics_set(series(p, SPEC_GUESS_ALPHA, d->name, c->name, "expected"), d->expected);
    }
}

void page_guesses_show(page *p, const char *model, const guesses *g)
{
    counter_show(labelled(p, SPEC_GUESS_STEPS, "on"), g->steps_on);
    counter_show(labelled(p, SPEC_GUESS_STEPS, "probing"), g->steps_probing);
    counter_show(labelled(p, SPEC_GUESS_STEPS, "off"), g->steps_off);
    counter_show(labelled(p, SPEC_GUESS_STEPS, "prompts"), g->steps_prompts);
    for (size_t i = 0; i < g->drafter_count; i++)
        drafter_show(p, model, &g->drafters[i]);
    for (size_t i = 0; i < g->class_count; i++)
        class_show(p, &g->classes[i]);
}

void page_fallback(page *p, const char *kind, const char *reason)
{
    const char *const labels[] = { kind, reason, NULL };
    metrics_add(metrics_series_of(p->registry, SPEC_FALLBACKS, labels), 1);
}

void page_describe(buffer *out)
{
    metrics_describe(specs, SPECS, out);
}
