// The last minutes in samples of two seconds: what the page at / draws, and what alerts call "the
// last minute".
//
// A sample holds how much each counter grew, what each level was at its end, and the median and the
// 95th percentile of each latency that was noted meanwhile. A ring of TREND_SAMPLES of them, 80
// KiB; it belongs to the loop and reads no clock.
#pragma once

#include "base/buffer.h"
#include "base/status.h"

#include <stdint.h>

#define TREND_SAMPLE_US 2000000u
#define TREND_SAMPLES 300u // ten minutes
#define TREND_MINUTE 30u   // samples
#define TREND_VALUES                                                                               \
    256u // of one latency in one sample; of more, a random choice of so many counts

// What only grows; trend_sample gets the totals.
typedef enum trend_counter {
    TREND_FINISHED,         // requests that were answered
    TREND_ERRORS,           // requests that failed
    TREND_REFUSED,          // answered 429
    TREND_RETRIES,          // further attempts
    TREND_NO_PREFILL,       // prompts computed by decode workers, for want of others
    TREND_HANDOFF_FAILED,   // the same, because hand-offs failed
    TREND_GENERATED_TOKENS, // as they come from the workers
    TREND_PROMPT_TOKENS,    // computed
    TREND_HANDOFF_BYTES,
    TREND_COUNTERS,
} trend_counter;

typedef enum trend_level {
    TREND_WAITING, // requests
    TREND_RUNNING,
    TREND_PAGES_SPENT, // of the credits on decode workers
    TREND_PAGES_GRANTED,
    TREND_LEVELS,
} trend_level;

typedef enum trend_latency {
    TREND_FIRST_TOKEN,
    TREND_TOKEN, // per output token
    TREND_LATENCIES,
} trend_latency;

typedef struct trend trend;

status trend_open(trend **opened); // STATUS_NO_MEMORY
void trend_close(trend *t);        // NULL is allowed
// A latency of the sample that is being filled.
void trend_note(trend *t, trend_latency latency, double seconds);
// The end of a sample, every TREND_SAMPLE_US.
void trend_sample(trend *t, const double totals[TREND_COUNTERS], const double levels[TREND_LEVELS]);
// How much a counter grew in the last `samples` samples.
double trend_sum(const trend *t, trend_counter counter, size_t samples);
// The samples from number `from` on (0: all that are kept) as a JSON object: interval_s, next (the
// number of the next sample), columns (names with units), samples (arrays, oldest first; the last
// one is of number next - 1; null: nothing was measured).
void trend_render(const trend *t, uint64_t from, buffer *out);
