#include "oracle.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

void oracle_norm(const float *x, const float *norm, float epsilon, int columns, double *y)
{
    double sum = 0;
    for (int i = 0; i < columns; i++)
        sum += (double)x[i] * (double)x[i];
    double factor = 1 / sqrt(sum / columns + (double)epsilon);
    for (int i = 0; i < columns; i++)
        y[i] = norm == NULL ? (double)x[i] : (double)x[i] * factor * (double)norm[i];
}

static float *row_values(const tensor_view *w, int64_t row)
{
    float *values = malloc((size_t)w->columns * sizeof *values);
    CHECK(values != NULL);
    tensor_decode(w->type, (const uint8_t *)w->data + row * tensor_row_bytes(w->type, w->columns),
                  w->columns, values);
    return values;
}

double oracle_dot(const tensor_view *w, int64_t row, const double *x, double *magnitude)
{
    float *values = row_values(w, row);
    double sum = 0;
    *magnitude = 0;
    for (int64_t i = 0; i < w->columns; i++) {
        sum += (double)values[i] * x[i];
        *magnitude += fabs((double)values[i] * x[i]);
    }
    free(values);
    return sum;
}

double oracle_rounding(const tensor_view *w, int64_t row, const double *x)
{
    float *values = row_values(w, row);
    double bound = 0;
    for (int64_t at = 0; at < w->columns; at += 32) {
        double most = 0, weights = 0;
        for (int64_t i = at; i < at + 32; i++) {
            most = fmax(most, fabs(x[i]));
            weights += fabs((double)values[i]);
        }
        bound += 0.5 * most / 127 * weights;
    }
    free(values);
    return bound;
}

void oracle_rotate(double *x, const backend_rope *rope, int position)
{
    int half = rope->dims / 2;
    for (int i = 0; i < half; i++) {
        const float *angle = rope->table + ((int64_t)position * half + i) * 2;
        int a = rope->adjacent ? 2 * i : i, b = rope->adjacent ? 2 * i + 1 : half + i;
        double first = x[a], second = x[b];
        x[a] = first * (double)angle[0] - second * (double)angle[1];
        x[b] = second * (double)angle[0] + first * (double)angle[1];
    }
}

void oracle_attend(const double *q, const double *k, const double *v, int first, int position,
                   int size, double scale, double *out)
{
    double most = -INFINITY, sum = 0;
    double *p = malloc((size_t)(position + 1) * sizeof *p);
    CHECK(p != NULL);
    for (int t = first; t <= position; t++) {
        p[t] = 0;
        for (int d = 0; d < size; d++)
            p[t] += q[d] * k[(int64_t)t * size + d];
        p[t] *= scale;
        most = fmax(most, p[t]);
    }
    for (int t = first; t <= position; t++)
        sum += p[t] = exp(p[t] - most);
    for (int d = 0; d < size; d++) {
        out[d] = 0;
        for (int t = first; t <= position; t++)
            out[d] += p[t] / sum * v[(int64_t)t * size + d];
    }
    free(p);
}

double oracle_silu(double x)
{
    return x / (1 + exp(-x));
}

double oracle_gelu(double x)
{
    return x / 2 * (1 + tanh(sqrt(2 / 3.14159265358979323846) * (x + 0.044715 * x * x * x)));
}

// ---- sampling ---------------------------------------------------------------------------------

static double *order_by; // of compare_tokens: ascending, then by id

static int compare_tokens(const void *a, const void *b)
{
    int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    if (order_by[x] != order_by[y])
        return order_by[x] < order_by[y] ? -1 : 1;
    return x < y ? -1 : x > y;
}

static void renormalise(double *p, int count)
{
    double sum = 0;
    for (int i = 0; i < count; i++)
        sum += p[i];
    for (int i = 0; i < count; i++)
        p[i] /= sum;
}

// Keep the shortest prefix in ascending order of `key` with `part` of the mass or of `most` tokens.
static void keep(double *p, double *key, int count, double part, int most)
{
    int32_t *order = malloc((size_t)count * sizeof *order);
    CHECK(order != NULL);
    for (int i = 0; i < count; i++)
        order[i] = i;
    order_by = key;
    qsort(order, (size_t)count, sizeof *order, compare_tokens);
    double sum = 0;
    int kept = 0;
    while (kept < count && kept < most && (kept == 0 || sum < part))
        sum += p[order[kept++]];
    for (int i = kept; i < count; i++)
        p[order[i]] = 0;
    free(order);
    renormalise(p, count);
}

static void adjust(const backend_sample *s, double *l)
{
    for (int i = 0; i < s->count_count; i++) {
        backend_token_count c = s->counts[i];
        if (c.total > 0)
            l[c.token] = l[c.token] > 0 ? l[c.token] / (double)s->repetition_penalty
                                        : l[c.token] * (double)s->repetition_penalty;
        if (c.generated > 0)
            l[c.token] -= (double)s->frequency_penalty * c.generated + (double)s->presence_penalty;
    }
    for (int i = 0; i < s->bias_count; i++)
        l[s->biases[i].token] += (double)s->biases[i].bias;
    for (int i = 0; i < s->vocabulary; i++)
        if (s->mask != NULL && (s->mask[i / 64] >> (i % 64) & 1) == 0)
            l[i] = -INFINITY;
}

void oracle_distribution(const float *logits, const backend_sample *s, double *p)
{
    int n = s->vocabulary;
    double *key = malloc((size_t)n * sizeof *key), most = -INFINITY;
    CHECK(key != NULL);
    for (int i = 0; i < n; i++)
        p[i] = (double)logits[i];
    adjust(s, p);
    for (int i = 0; i < n; i++)
        most = fmax(most, p[i]);
    bool greedy = !(s->temperature > 0);
    bool first = true;
    for (int i = 0; i < n; i++) {
        key[i] = -p[i];
        if (greedy)
            p[i] = p[i] == most && first ? 1 : 0;
        else
            p[i] = exp((p[i] - most) / (double)s->temperature);
        first = first && !(greedy && p[i] == 1);
    }
    renormalise(p, n);
    if (!greedy && s->top_k > 0 && s->top_k < n)
        keep(p, key, n, 2, s->top_k);
    if (!greedy && s->typical_p < 1) {
        double entropy = 0;
        for (int i = 0; i < n; i++)
            entropy -= p[i] > 0 ? p[i] * log(p[i]) : 0;
        double *distance = malloc((size_t)n * sizeof *distance);
        CHECK(distance != NULL);
        for (int i = 0; i < n; i++)
            distance[i] = p[i] > 0 ? fabs(-log(p[i]) - entropy) : INFINITY;
        keep(p, distance, n, (double)s->typical_p, n);
        free(distance);
    }
    if (!greedy && s->top_p < 1)
        keep(p, key, n, (double)s->top_p, n);
    double largest = 0;
    for (int i = 0; i < n; i++)
        largest = fmax(largest, p[i]);
    for (int i = 0; i < n && !greedy && s->min_p > 0; i++)
        if (p[i] < (double)s->min_p * largest)
            p[i] = 0;
    renormalise(p, n);
    free(key);
}
