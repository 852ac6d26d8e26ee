#include "router/trend.h"

#include "base/random.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

typedef struct sample {
    float grown[TREND_COUNTERS], levels[TREND_LEVELS];
    float median[TREND_LATENCIES], high[TREND_LATENCIES]; // seconds; NAN: none was noted
} sample;

// Latencies of the sample that is being filled.
typedef struct values {
    uint64_t noted; // the first TREND_VALUES are kept, later ones take the place of one by chance
    float kept[TREND_VALUES];
} values;

struct trend {
    uint64_t next; // number of the sample that is being filled
    double totals[TREND_COUNTERS];
    values values[TREND_LATENCIES];
    sample samples[TREND_SAMPLES]; // number n in slot n % TREND_SAMPLES
};

status trend_open(trend **opened)
{
    *opened = calloc(1, sizeof **opened);
    return *opened ? STATUS_OK : STATUS_NO_MEMORY;
}

void trend_close(trend *t)
{
    free(t);
}

void trend_note(trend *t, trend_latency latency, double seconds)
{
    values *v = &t->values[latency];
    uint64_t at = v->noted++;
    if (at >= TREND_VALUES)
        at = random_mix(at) % v->noted;
    if (at < TREND_VALUES)
        v->kept[at] = (float)seconds;
}

static int compare(const void *left, const void *right)
{
    float a = *(const float *)left, b = *(const float *)right;
    return (a > b) - (a < b);
}

// The value that a share of them does not pass; sorted.
static float quantile(const float *sorted, size_t count, double share)
{
    return count ? sorted[(size_t)ceil(share * (double)count) - 1] : NAN;
}

void trend_sample(trend *t, const double totals[TREND_COUNTERS], const double levels[TREND_LEVELS])
{
    sample *s = &t->samples[t->next++ % TREND_SAMPLES];
    for (size_t i = 0; i < TREND_COUNTERS; i++) {
        s->grown[i] = (float)(totals[i] - t->totals[i]);
        t->totals[i] = totals[i];
    }
    for (size_t i = 0; i < TREND_LEVELS; i++)
        s->levels[i] = (float)levels[i];
    for (size_t i = 0; i < TREND_LATENCIES; i++) {
        values *v = &t->values[i];
        size_t count = v->noted < TREND_VALUES ? (size_t)v->noted : TREND_VALUES;
        qsort(v->kept, count, sizeof v->kept[0], compare);
        s->median[i] = quantile(v->kept, count, 0.5);
        s->high[i] = quantile(v->kept, count, 0.95);
        v->noted = 0;
    }
}

static uint64_t oldest(const trend *t)
{
    return t->next > TREND_SAMPLES ? t->next - TREND_SAMPLES : 0;
}

double trend_sum(const trend *t, trend_counter counter, size_t samples)
{
    uint64_t from = t->next > samples ? t->next - samples : 0;
    double sum = 0;
    for (uint64_t n = from > oldest(t) ? from : oldest(t); n < t->next; n++)
        sum += (double)t->samples[n % TREND_SAMPLES].grown[counter];
    return sum;
}

static void append_ms(float seconds, buffer *out)
{
    if (isnan(seconds))
        buffer_append_text(out, ",null");
    else
        buffer_printf(out, ",%.2f", (double)seconds * 1000);
}

static void append_sample(const sample *s, buffer *out)
{
    double per_s = 1e6 / TREND_SAMPLE_US;
    buffer_printf(out, "[%.0f,%.0f,%.0f", (double)s->grown[TREND_FINISHED],
                  (double)s->grown[TREND_ERRORS], (double)s->grown[TREND_REFUSED]);
    for (size_t i = 0; i < TREND_LATENCIES; i++) {
        append_ms(s->median[i], out);
        append_ms(s->high[i], out);
    }
    buffer_printf(out, ",%.1f,%.1f,%.0f", (double)s->grown[TREND_GENERATED_TOKENS] * per_s,
                  (double)s->grown[TREND_PROMPT_TOKENS] * per_s,
                  (double)s->grown[TREND_HANDOFF_BYTES] * per_s);
    for (size_t i = 0; i < TREND_LEVELS; i++)
        buffer_printf(out, ",%.0f", (double)s->levels[i]);
    buffer_append_byte(out, ']');
}

void trend_render(const trend *t, uint64_t from, buffer *out)
{
    uint64_t first = from > oldest(t) ? from : oldest(t);
    buffer_printf(out, "{\"interval_s\":%.0f,\"next\":%" PRIu64, TREND_SAMPLE_US / 1e6, t->next);
    buffer_append_text(
        out, ",\"columns\":[\"finished\",\"errors\",\"refused\",\"first_token_p50_ms\","
             "\"first_token_p95_ms\",\"token_p50_ms\",\"token_p95_ms\",\"generated_tokens_per_s\","
             "\"prompt_tokens_per_s\",\"handoff_bytes_per_s\",\"waiting\",\"running\","
             "\"pages_spent\",\"pages_granted\"],\"samples\":[");
    for (uint64_t n = first; n < t->next; n++) {
        if (n > first)
            buffer_append_byte(out, ',');
        append_sample(&t->samples[n % TREND_SAMPLES], out);
    }
    buffer_append_text(out, "]}");
}
