#include "eval/quality.h"

#include "bench/percentile.h"
#include "harness/forced/forced.h"

#include <math.h>
#include <stdlib.h>

status quality_open(quality *q, int32_t vocabulary, int64_t compared)
{
    *q = (quality){ .vocabulary = vocabulary, .kl_room = compared };
    if (compared == 0)
        return STATUS_OK;
    q->kl_values = calloc((size_t)compared, sizeof q->kl_values[0]);
    return q->kl_values ? STATUS_OK : STATUS_NO_MEMORY;
}

void quality_close(quality *q)
{
    free(q->kl_values);
    *q = (quality){ 0 };
}

// KL(reference || logits): sum of p (x - y) less the difference of the two sums of exponentials.
static double divergence(const float *reference, double reference_sum, const float *logits,
                         double sum, int32_t count)
{
    double total = 0;
    for (int32_t i = 0; i < count; i++) {
        double difference = (double)reference[i] - (double)logits[i];
        total += exp((double)reference[i] - reference_sum) * difference;
    }
    return total - (reference_sum - sum);
}

void quality_add(quality *q, const float *logits, const float *reference, int32_t token,
                 size_t bytes)
{
    double sum = forced_log_sum(logits, q->vocabulary), nll = sum - (double)logits[token];
    q->nll += nll;
    q->nll_squares += nll * nll;
    q->bytes += (double)bytes;
    if (reference) {
        CHECK(q->count < q->kl_room);
        double reference_sum = forced_log_sum(reference, q->vocabulary);
        double kl = divergence(reference, reference_sum, logits, sum, q->vocabulary);
        double gap = nll - (reference_sum - (double)reference[token]);
        q->kl += kl;
        q->kl_squares += kl * kl;
        q->kl_values[q->count] = kl;
        q->gap += gap;
        q->gap_squares += gap * gap;
        q->top_same += forced_best(logits, q->vocabulary) == forced_best(reference, q->vocabulary);
    }
    q->count++;
}

static quality_mean mean_of(double sum, double squares, int64_t count)
{
    double n = (double)count, mean = sum / n;
    double variance = count > 1 ? (squares - n * mean * mean) / (n - 1) : 0;
    return (quality_mean){ mean, variance > 0 ? sqrt(variance / n) : 0 };
}

quality_mean quality_nll(const quality *q)
{
    return mean_of(q->nll, q->nll_squares, q->count);
}

quality_mean quality_gap(const quality *q)
{
    return mean_of(q->gap, q->gap_squares, q->count);
}

quality_mean quality_kl(const quality *q)
{
    return mean_of(q->kl, q->kl_squares, q->count);
}

double quality_perplexity(const quality *q)
{
    return exp(q->nll / (double)q->count);
}

double quality_bits_per_byte(const quality *q)
{
    return q->nll / log(2) / q->bytes;
}

double quality_bits_gap_error(const quality *q)
{
    return quality_gap(q).error * (double)q->count / log(2) / q->bytes;
}

double quality_top_share(const quality *q)
{
    return (double)q->top_same / (double)q->count;
}

double quality_kl_percentile(quality *q, double p)
{
    return bench_percentile(q->kl_values, (size_t)q->count, p);
}
