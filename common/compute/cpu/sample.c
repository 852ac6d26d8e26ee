// One token per row of logits. A row is one thread's work; the steps and their order are those of
// backend_sample. Filters sort only the tokens that they might keep.
#include "compute/cpu/cpu.h"
#include "compute/cpu/numbers.h"

#include "base/random.h"

#include <float.h>
#include <math.h>
#include <string.h>

#define LN2 0.6931471805599453
// The largest value that the noise can take is -ln(-ln(1 - 2^-54)) = 37.43.
#define NOISE_MAX 37.5
// The largest number is looked for in this many at a time.
#define SEARCH_STEP 512

// ---- what a row becomes before a token is drawn -----------------------------------------------

static bool changes_logits(const backend_sample *s)
{
    bool penalties = s->count_count > 0 && (s->repetition_penalty != 1 ||
                                            s->frequency_penalty != 0 || s->presence_penalty != 0);
    return penalties || s->bias_count > 0 || s->mask != NULL;
}

static void penalise(const backend_sample *s, float *l)
{
    for (int i = 0; i < s->count_count; i++) {
        backend_token_count c = s->counts[i];
        if (c.token < 0 || c.token >= s->vocabulary)
            continue;
        float *x = &l[c.token];
        if (s->repetition_penalty != 1 && c.total > 0)
            *x = *x > 0 ? *x / s->repetition_penalty : *x * s->repetition_penalty;
        if (c.generated > 0)
            *x -= s->frequency_penalty * (float)c.generated + s->presence_penalty;
    }
}

static void apply_mask(const backend_sample *s, float *l)
{
    for (int base = 0; base < s->vocabulary; base += 64) {
        uint64_t word = s->mask[base / 64];
        if (word == UINT64_MAX)
            continue;
        for (int i = base; i < base + 64 && i < s->vocabulary; i++)
            if ((word >> (i - base) & 1) == 0)
                l[i] = -INFINITY;
    }
}

static const float *adjusted(const backend_sample *s, const float *raw, float *copy)
{
    if (!changes_logits(s))
        return raw;
    memcpy(copy, raw, (size_t)s->vocabulary * sizeof(float));
    penalise(s, copy);
    for (int i = 0; i < s->bias_count; i++)
        if (s->biases[i].token >= 0 && s->biases[i].token < s->vocabulary)
            copy[s->biases[i].token] += s->biases[i].bias;
    if (s->mask != NULL)
        apply_mask(s, copy);
    return copy;
}

// The lowest id of the largest number; -1 where there is none above -infinity.
static int32_t largest(const cpu_level *level, const float *l, int count)
{
    float most = level->largest(l, count);
    for (int32_t at = 0; at < count && most > -INFINITY; at += SEARCH_STEP) {
        int end = at + SEARCH_STEP < count ? at + SEARCH_STEP : count;
        if (level->largest(l + at, end - at) == most)
            for (int32_t i = at; i < end; i++)
                if (l[i] == most)
                    return i;
    }
    return -1;
}

// ---- the draw ---------------------------------------------------------------------------------

typedef struct draw {
    uint64_t key;
    double factor; // 1 / temperature
    double best;
    int32_t token;
} draw;

static draw draw_begin(const backend_sample *s)
{
    return (draw){ random_row_key(s->seed, s->choice, s->output_index),
                   1.0 / (double)s->temperature, -INFINITY, -1 };
}

// Offer a token of the kept ones: log p + noise, where log p may lack a constant. Most tokens lose
// by the leading zeros of their random word alone: with c = 2^53 (1 - u), noise <= -ln(1 - u) < ln
// 2 * (leading zeros of c - 9).
static inline void draw_offer(draw *d, int32_t token, float logit)
{
    double value = (double)logit * d->factor, missing = d->best - value;
    if (missing > NOISE_MAX)
        return;
    uint64_t bits = random_token_bits(d->key, (uint32_t)token);
    uint64_t rest = ((uint64_t)1 << 53) - (bits >> 11);
    if (missing > LN2 * (double)(__builtin_clzll(rest) - 9))
        return;
    value -= cpu_log(-cpu_log(random_unit(bits)));
    if (value > d->best || (value == d->best && token < d->token) || d->token < 0) {
        d->best = value;
        d->token = token;
    }
}

// ---- filters ----------------------------------------------------------------------------------

typedef struct filter {
    const backend_sample *sample;
    const float *l;         // [vocabulary]
    const float *weights;   // [vocabulary] exp((l - largest) / temperature)
    double total;           // of the kept tokens' weights
    cpu_sort_entry *ranked; // kept tokens, most likely first; id = token
    int count;
} filter;

static bool uses_top_k(const backend_sample *s)
{
    return s->top_k > 0 && s->top_k < s->vocabulary;
}

// Ascending keys for descending numbers; -0 and 0 are equal.
static uint64_t rank_key(float x)
{
    uint32_t bits;
    x += 0.0f;
    memcpy(&bits, &x, 4);
    bits = bits >> 31 ? ~bits : bits | 0x80000000;
    return UINT32_MAX - bits;
}

// A number that the top_k largest reach: counted in bins of 1/16 below the largest.
static float top_k_bound(const filter *f, float most)
{
    int counts[1024] = { 0 };
    for (int i = 0; i < f->sample->vocabulary; i++) {
        float depth = (most - f->l[i]) * 16;
        counts[depth < 1023 ? (int)depth : 1023]++;
    }
    int seen = 0, bin = 0;
    while (bin < 1023 && (seen += counts[bin]) < f->sample->top_k)
        bin++;
    // Depths are rounded: a bin more makes sure.
    return bin >= 1022 ? -INFINITY : most - (float)(bin + 2) / 16;
}

// Rank the tokens that any filter could keep. top_p alone never keeps a token of a weight below
// (1 - top_p) / vocabulary of the whole: all such together are less than what it drops.
static void rank(filter *f, float most)
{
    const backend_sample *s = f->sample;
    float bound = uses_top_k(s) ? top_k_bound(f, most) : -INFINITY;
    float least = 0;
    if (!uses_top_k(s) && s->typical_p >= 1)
        least = (float)((1 - (double)s->top_p) * f->total / s->vocabulary * 0.999);
    for (int i = 0; i < s->vocabulary; i++)
        if (f->l[i] >= bound && f->l[i] > -INFINITY && f->weights[i] >= least)
            f->ranked[f->count++] = (cpu_sort_entry){ rank_key(f->l[i]), (uint32_t)i };
    cpu_sort(f->ranked, f->count);
}

static double weight_of_kept(const filter *f)
{
    double sum = 0;
    for (int i = 0; i < f->count; i++)
        sum += (double)f->weights[f->ranked[i].id];
    return sum;
}

// Keep the first tokens whose weights reach `part` of the total; at least one.
static void keep_prefix(filter *f, double part)
{
    double sum = 0;
    for (int i = 0; i < f->count; i++) {
        sum += (double)f->weights[f->ranked[i].id];
        if (sum >= part * f->total) {
            f->count = i + 1;
            break;
        }
    }
    f->total = sum;
}

// Order by the distance of -ln p from the entropy, keep a prefix, order by rank again.
static void keep_typical(filter *f, float most)
{
    const backend_sample *s = f->sample;
    double log_total = cpu_log(f->total), factor = 1.0 / (double)s->temperature, entropy = 0;
    for (int i = 0; i < f->count; i++) {
        uint32_t id = f->ranked[i].id;
        double log_p = ((double)f->l[id] - (double)most) * factor - log_total;
        entropy -= (double)f->weights[id] / f->total * log_p;
    }
    for (int i = 0; i < f->count; i++) {
        uint32_t id = f->ranked[i].id;
        double log_p = ((double)f->l[id] - (double)most) * factor - log_total;
        double distance = log_p + entropy < 0 ? -(log_p + entropy) : log_p + entropy;
        memcpy(&f->ranked[i].key, &distance, 8);
    }
    cpu_sort(f->ranked, f->count);
    keep_prefix(f, (double)s->typical_p);
    for (int i = 0; i < f->count; i++)
        f->ranked[i].key = rank_key(f->l[f->ranked[i].id]);
    cpu_sort(f->ranked, f->count);
}

static void draw_filtered(const backend_sample *s, const float *l, float most, cpu_scratch *scratch,
                          const cpu_level *level, draw *d)
{
    filter f = { s, l, scratch->weights, 0, scratch->entries, 0 };
    // Below 2^-128 the inverse would be infinite, and 0 times it no number.
    float inverse = fminf(1.0f / s->temperature, FLT_MAX);
    f.total = level->weigh(l, s->vocabulary, most, inverse, scratch->weights);
    float least = s->min_p > 0 ? s->min_p : 0; // the largest weight is 1
    if (!uses_top_k(s) && s->typical_p >= 1 && s->top_p >= 1) {
        for (int i = 0; i < s->vocabulary; i++)
            if (f.weights[i] >= least)
                draw_offer(d, i, l[i]);
        return;
    }
    rank(&f, most);
    if (uses_top_k(s)) {
        f.count = f.count < s->top_k ? f.count : s->top_k;
        f.total = weight_of_kept(&f);
    }
    if (s->typical_p < 1)
        keep_typical(&f, most);
    if (s->top_p < 1)
        keep_prefix(&f, (double)s->top_p);
    float first = f.weights[f.ranked[0].id];
    for (int i = 0; i < f.count; i++)
        if (f.weights[f.ranked[i].id] >= least * first)
            draw_offer(d, (int32_t)f.ranked[i].id, l[f.ranked[i].id]);
}

static int32_t choose(const backend_sample *s, const float *l, cpu_scratch *scratch,
                      const cpu_level *level)
{
    int32_t top = largest(level, l, s->vocabulary);
    if (top < 0 || !(s->temperature > 0))
        return top;
    draw d = draw_begin(s);
    if (s->top_p < 1 || s->min_p > 0 || s->typical_p < 1 || uses_top_k(s)) {
        draw_filtered(s, l, l[top], scratch, level, &d);
        return d.token;
    }
    draw_offer(&d, top, l[top]); // first, so that most of the others lose at once
    for (int i = 0; i < s->vocabulary; i++)
        draw_offer(&d, i, l[i]);
    return d.token;
}

// ---- results ----------------------------------------------------------------------------------

// The `count` largest, equal ones by ascending id; insertion into a short list.
static void report_top(const float *l, int vocabulary, int count, double log_sum,
                       backend_sampled *r)
{
    float values[BACKEND_TOP_MAX];
    int kept = 0;
    for (int i = 0; i < vocabulary && count > 0; i++) {
        if (kept == count && !(l[i] > values[kept - 1]))
            continue;
        int at = kept < count ? kept++ : kept - 1;
        for (; at > 0 && l[i] > values[at - 1]; at--) {
            values[at] = values[at - 1];
            r->top_tokens[at] = r->top_tokens[at - 1];
        }
        values[at] = l[i];
        r->top_tokens[at] = i;
    }
    for (int i = 0; i < kept; i++)
        r->top_logprobs[i] = (float)((double)values[i] - log_sum);
    for (int i = kept; i < count; i++) {
        r->top_tokens[i] = -1;
        r->top_logprobs[i] = -INFINITY;
    }
}

static void sample_row(const cpu_level *level, const float *raw, const backend_sample *s,
                       cpu_scratch *scratch, backend_sampled *r)
{
    float most = level->largest(raw, s->vocabulary);
    double sum = level->weigh(raw, s->vocabulary, most, 1, NULL);
    *r = (backend_sampled){ .token = -1, .logprob = NAN };
    // A NaN or an infinity among the numbers, or no finite one at all, makes the sum a NaN.
    if (sum != sum) {
        for (int i = 0; i < s->top_count; i++) {
            r->top_tokens[i] = -1;
            r->top_logprobs[i] = NAN;
        }
        return;
    }
    double log_sum = cpu_log(sum) + (double)most;
    r->token = choose(s, adjusted(s, raw, scratch->logits), scratch, level);
    if (r->token >= 0)
        r->logprob = (float)((double)raw[r->token] - log_sum);
    report_top(raw, s->vocabulary, s->top_count, log_sum, r);
}

static void run_sample(cpu_operation *o, backend *b, int phase, int thread, int first, int last)
{
    (void)phase;
    for (int row = first; row < last; row++) {
        const backend_sample *s = &o->sample_rows[row];
        CHECK(s->row >= 0 && s->row < o->x->rows);
        CHECK(s->vocabulary > 0 && s->vocabulary <= o->x->columns);
        CHECK(s->top_count >= 0 && s->top_count <= BACKEND_TOP_MAX);
        sample_row(b->level, o->x->data + s->row * o->x->stride, s, &b->scratch[thread],
                   &o->results[row]);
    }
}

void cpu_sample(backend_queue *q, const backend_activation *logits, const backend_sample *rows,
                int count, backend_sampled *results)
{
    CHECK(count >= 0);
    cpu_operation *o = cpu_queue_add(q, run_sample, count);
    o->piece_max = 1;
    o->x = logits;
    o->sample_rows = rows;
    o->results = results;
}
