// What a worker shows over HTTP: /health (alive: it answers, and a step was made where there is
// work), /ready (can take tickets now, and else why not) and /metrics (Prometheus text). All of it
// is off where `http.listen` is empty.
//
// The page is open before the model is loaded, so that a slow load is alive and not ready. Counters
// are updated by the step thread and read by the page's own thread.
#pragma once

#include "base/metrics.h"
#include "handoff/handoff.h"
#include "net/http.h"
#include "worker/worker.h"

typedef struct page page;

typedef enum page_counter {
    PAGE_TICKETS,
    PAGE_PREFILL_TOKENS,
    PAGE_DECODE_TOKENS,
    PAGE_CACHED_TOKENS,
    PAGE_PREEMPTIONS, // of interactive sequences
    PAGE_PREEMPTIONS_BATCH,
    PAGE_OVERTAKES,
    PAGE_HANDOFFS_DELIVERED,
    PAGE_HANDOFFS_FAILED,
    PAGE_HANDOFFS_CANCELLED,
    PAGE_COUNTERS
} page_counter;

typedef enum page_histogram {
    PAGE_STEP_SECONDS,
    PAGE_STEP_PREDICTED_SECONDS,
    PAGE_STEP_RATIO,
    PAGE_STEP_ROWS,
    PAGE_BATCH,
    PAGE_HANDOFF_SECONDS,
    PAGE_HISTOGRAMS
} page_histogram;

// `settings` must outlive the page.
status page_open(const http_settings *settings, page **opened, error *failure);
void page_close(page *p);
// From now on the worker is asked; NULL before it closes.
void page_worker(page *p, worker *w);

// Step thread; cheap.
void page_count(page *p, page_counter counter, double amount);
void page_observe(page *p, page_histogram histogram, double value);
void page_show(page *p, const worker_state *state, const handoff_stats *stats,
               size_t grammar_bytes);
// Step thread, rare: a reason is a status's name or one of a few words of ours.
void page_refused(page *p, status reason);
void page_failed(page *p, status reason);
// Step thread, now and then: what is told of guessed tokens, while this model is served.
void page_guesses_show(page *p, const char *model, const guesses *g);
// Something was done in a worse way than planned ("recompute", "preemption", "slow_transport").
void page_fallback(page *p, const char *kind, const char *reason);
// Append the table that deploy/METRICS.md shows.
void page_describe(buffer *out);
