// The row and attention kernels, written once in the vector operations of vector_<level>.h, which
// the including file (kernels_<level>.c) includes first. Private to those files.
//
// Order of sums, the same for a row whatever stands beside it: a norm adds lane i of every vector,
// then the lanes; a score adds d = 0, 1, ...; an output adds tokens in ascending order; softmax
// rescales once per tile of 32 tokens at absolute positions.
#include "compute/cpu/cpu.h"
#include "compute/cpu/numbers.h"

#include <math.h>

// exp(x): n = round(x / ln 2), r = x - n ln 2 in two parts, a polynomial of degree 6 for e^r (the
// coefficients of Cephes' expf), times 2^n. 0 below -87.3, where the result would be subnormal;
// above 88.3 it stays at the value there. NaN gives NaN.
static inline vf vf_exp(vf x)
{
    const vf low = vf_set(-87.3f), magic = vf_set(0x1.8p23f);
    vf y = vf_sub(vf_set(0), vf_max(vf_set(-88.3f), vf_sub(vf_set(0), x)));
    y = vf_max(low, y);
    vf shifted = vf_fma(y, vf_set(1.44269504088896341f), magic);
    vf n = vf_sub(shifted, magic);
    vf r = vf_fma(n, vf_set(-0.693359375f), y);
    r = vf_fma(n, vf_set(2.12194440e-4f), r);
    vf p = vf_set(1.9875691500e-4f);
    p = vf_fma(p, r, vf_set(1.3981999507e-3f));
    p = vf_fma(p, r, vf_set(8.3334519073e-3f));
    p = vf_fma(p, r, vf_set(4.1665795894e-2f));
    p = vf_fma(p, r, vf_set(1.6666665459e-1f));
    p = vf_fma(p, r, vf_set(5.0000001201e-1f));
    p = vf_add(vf_fma(vf_mul(r, r), p, r), vf_set(1));
    return vf_zero_where_less(x, low, vf_mul(p, vf_power_of_two(shifted)));
}

static inline float exp_of(float x)
{
    float lanes[VF_LANES];
    vf_store(lanes, vf_exp(vf_set(x)));
    return lanes[0];
}

// 1 / sqrt(mean(x^2) + epsilon)
static float norm_factor(const float *x, float epsilon, int columns)
{
    vf sums = vf_set(0);
    int i = 0;
    for (; i + VF_LANES <= columns; i += VF_LANES)
        sums = vf_fma(vf_load(x + i), vf_load(x + i), sums);
    float sum = vf_sum(sums);
    for (; i < columns; i++)
        sum += x[i] * x[i];
    return 1.0f / __builtin_sqrtf(sum / (float)columns + epsilon);
}

static void LEVEL(norm)(const float *x, const float *norm, float epsilon, int columns, bool add,
                        float *y)
{
    float factor = norm_factor(x, epsilon, columns);
    int i = 0;
    for (; i + VF_LANES <= columns; i += VF_LANES) {
        vf value = vf_mul(vf_mul(vf_load(x + i), vf_set(factor)), vf_load(norm + i));
        vf_store(y + i, add ? vf_add(vf_load(y + i), value) : value);
    }
    for (; i < columns; i++) {
        float value = x[i] * factor * norm[i];
        y[i] = add ? y[i] + value : value;
    }
}

static void LEVEL(quantise)(const float *x, const float *norm, float epsilon, int columns,
                            cpu_panel_block *panel, int slot)
{
    float factor = norm == NULL ? 1 : norm_factor(x, epsilon, columns);
    for (int at = 0; at < columns; at += CPU_BLOCK, panel++) {
        float values[CPU_BLOCK];
        for (int i = 0; i < CPU_BLOCK; i += VF_LANES) {
            vf value = vf_load(x + at + i);
            if (norm != NULL)
                value = vf_mul(vf_mul(value, vf_set(factor)), vf_load(norm + at + i));
            vf_store(values + i, value);
        }
        float most = largest_magnitude(values);
        // Below 2^-100 the reciprocal could overflow: such a block is nothing beside the others.
        float inverse = most < 0x1p-100f ? 0 : 127.0f / most;
        panel->d[slot] = most < 0x1p-100f ? 0 : most / 127.0f;
        panel->sum[slot] = quantise_block(values, inverse, panel->q[slot]);
        panel->s[slot] = panel->d[slot] * (float)panel->sum[slot];
    }
}

// ---- what follows a product
// -----------------------------------------------------------------------

static inline vf silu(vf x)
{
    return vf_div(x, vf_add(vf_set(1), vf_exp(vf_sub(vf_set(0), x))));
}

// T columns of one row at a time; T is a multiple of VF_LANES.
static void finish_full(const cpu_finish_call *call, const float *out, const float *up, int column,
                        float *y)
{
    for (int i = 0; i < TILE_ROWS; i += VF_LANES) {
        vf value = vf_load(out + i);
        if (call->bias != NULL)
            value = vf_add(value, vf_load(call->bias + column + i));
        if (call->epilogue == BACKEND_ADD) {
            value = vf_add(vf_load(y + i), value);
        } else if (call->epilogue == BACKEND_SWIGLU) {
            vf other = vf_load(up + i);
            if (call->up_bias != NULL)
                other = vf_add(other, vf_load(call->up_bias + column + i));
            value = vf_mul(silu(value), other);
        }
        vf_store(y + i, value);
    }
}

// The last tile where it reaches beyond the columns: through a copy, so that the arithmetic is the
// same.
static void finish_part(const cpu_finish_call *call, const float *out, const float *up, int column,
                        float *y)
{
    float bias[TILE_ROWS] = { 0 }, up_bias[TILE_ROWS] = { 0 }, copy[TILE_ROWS] = { 0 };
    size_t size = (size_t)(call->count - column) * sizeof(float);
    cpu_finish_call part = *call;
    if (call->bias != NULL)
        part.bias = memcpy(bias, call->bias + column, size);
    if (call->up_bias != NULL)
        part.up_bias = memcpy(up_bias, call->up_bias + column, size);
    memcpy(copy, y, size);
    finish_full(&part, out, up, 0, copy);
    memcpy(y, copy, size);
}

static void LEVEL(finish)(const cpu_finish_call *call)
{
    for (int tile = 0; tile < call->tiles; tile++) {
        int column = tile * TILE_ROWS;
        for (int row = 0; row < call->rows; row++) {
            int64_t at = ((int64_t)tile * call->rows + row) * TILE_ROWS;
            float *y = call->y + row * call->y_stride + column;
            const float *up = call->up == NULL ? NULL : call->up + at;
            if (column + TILE_ROWS <= call->count)
                finish_full(call, call->out + at, up, column, y);
            else
                finish_part(call, call->out + at, up, column, y);
        }
    }
}

// ---- attention
// -------------------------------------------------------------------------------------

// One tile of `size` x 32 numbers of the cache as float; in place where it is float already.
static const float *tile_floats(tensor_type type, const uint8_t *tile, int count, float *scratch)
{
    if (type == TENSOR_F32)
        return (const float *)tile;
    const uint16_t *halves = (const uint16_t *)tile;
    if (type == TENSOR_F16)
        for (int i = 0; i < count; i += VF_LANES)
            vf_store(scratch + i, vf_load_f16(halves + i));
    else
        for (int i = 0; i < count; i += VF_LANES)
            vf_store(scratch + i, vf_load_bf16(halves + i));
    return scratch;
}

#define TOKEN_VECTORS (CPU_TILE_TOKENS / VF_LANES)

// scores[row][t] = scale * sum over d of q[row][d] k[d][t], for `count` rows: each score is one
// chain of multiply-adds, so the number of rows that share the loads of k changes nothing.
#define SCORE_KERNEL(count)                                                                        \
    static void scores_##count(const float *const *q, const float *k, int size, float scale,       \
                               float *scores)                                                      \
    {                                                                                              \
        for (int t = 0; t < TOKEN_VECTORS; t += SCORE_VECTORS) {                                   \
            vf sums[count][SCORE_VECTORS];                                                         \
            UNROLL for (int r = 0; r < count; r++) UNROLL for (int v = 0; v < SCORE_VECTORS; v++)  \
                sums[r][v] = vf_set(0);                                                            \
            for (int d = 0; d < size; d++) {                                                       \
                const float *row = k + d * CPU_TILE_TOKENS + t * VF_LANES;                         \
                vf values[SCORE_VECTORS];                                                          \
                UNROLL for (int v = 0; v < SCORE_VECTORS; v++) values[v] =                         \
                    vf_load(row + v * VF_LANES);                                                   \
                UNROLL for (int r = 0; r < count; r++)                                             \
                {                                                                                  \
                    vf x = vf_set(q[r][d]);                                                        \
                    UNROLL for (int v = 0; v < SCORE_VECTORS; v++) sums[r][v] =                    \
                        vf_fma(x, values[v], sums[r][v]);                                          \
                }                                                                                  \
            }                                                                                      \
            UNROLL for (int r = 0; r < count; r++) UNROLL for (int v = 0; v < SCORE_VECTORS; v++)  \
                vf_store(scores + r * CPU_TILE_TOKENS + (t + v) * VF_LANES,                        \
                         vf_mul(sums[r][v], vf_set(scale)));                                       \
        }                                                                                          \
    }

// values[row][d] += sum over first <= t < last of p[row][t] v[t][d]
#define VALUE_KERNEL(count)                                                                        \
    static void values_##count(const float *p, const float *v, int first, int last, int size,      \
                               float *values)                                                      \
    {                                                                                              \
        for (int d = 0; d < size; d += VALUE_VECTORS * VF_LANES) {                                 \
            vf sums[count][VALUE_VECTORS];                                                         \
            UNROLL for (int r = 0; r < count; r++) UNROLL for (int i = 0; i < VALUE_VECTORS; i++)  \
                sums[r][i] = vf_load(values + (int64_t)r * size + d + i * VF_LANES);               \
            for (int t = first; t < last; t++) {                                                   \
                const float *row = v + (int64_t)t * size + d;                                      \
                vf part[VALUE_VECTORS];                                                            \
                UNROLL for (int i = 0; i < VALUE_VECTORS; i++) part[i] =                           \
                    vf_load(row + i * VF_LANES);                                                   \
                UNROLL for (int r = 0; r < count; r++)                                             \
                {                                                                                  \
                    vf x = vf_set(p[r * CPU_TILE_TOKENS + t]);                                     \
                    UNROLL for (int i = 0; i < VALUE_VECTORS; i++) sums[r][i] =                    \
                        vf_fma(x, part[i], sums[r][i]);                                            \
                }                                                                                  \
            }                                                                                      \
            UNROLL for (int r = 0; r < count; r++) UNROLL for (int i = 0; i < VALUE_VECTORS; i++)  \
                vf_store(values + (int64_t)r * size + d + i * VF_LANES, sums[r][i]);               \
        }                                                                                          \
    }

SCORE_KERNEL(1)
SCORE_KERNEL(2)
SCORE_KERNEL(3)
VALUE_KERNEL(1)
VALUE_KERNEL(2)
VALUE_KERNEL(3)

static void scores_of(const float *const *q, int rows, const float *k, int size, float scale,
                      float *scores)
{
    int r = 0;
    for (; r + 3 <= rows; r += 3)
        scores_3(q + r, k, size, scale, scores + r * CPU_TILE_TOKENS);
    if (rows - r == 2)
        scores_2(q + r, k, size, scale, scores + r * CPU_TILE_TOKENS);
    else if (rows - r == 1)
        scores_1(q + r, k, size, scale, scores + r * CPU_TILE_TOKENS);
}

static void add_values(const float *p, int rows, const float *v, int first, int last, int size,
                       float *values)
{
    int r = 0;
    for (; r + 3 <= rows; r += 3)
        values_3(p + r * CPU_TILE_TOKENS, v, first, last, size, values + (int64_t)r * size);
    if (rows - r == 2)
        values_2(p + r * CPU_TILE_TOKENS, v, first, last, size, values + (int64_t)r * size);
    else if (rows - r == 1)
        values_1(p + r * CPU_TILE_TOKENS, v, first, last, size, values + (int64_t)r * size);
}

static void scale_values(float *values, float factor, int size)
{
    for (int d = 0; d < size; d += VF_LANES)
        vf_store(values + d, vf_mul(vf_load(values + d), vf_set(factor)));
}

// Scores of one row to probabilities relative to the row's new maximum, tokens outside first ..
// last to 0; what was summed before is rescaled.
static void soften(float *scores, int first, int last, int size, float *maximum, float *sum,
                   float *values)
{
    for (int t = 0; t < CPU_TILE_TOKENS; t++)
        if (t < first || t >= last)
            scores[t] = -INFINITY;
    vf most = vf_load(scores);
    for (int i = 1; i < TOKEN_VECTORS; i++)
        most = vf_max(most, vf_load(scores + i * VF_LANES));
    float next = vf_largest(most);
    next = *maximum > next ? *maximum : next;
    vf total = vf_set(0);
    for (int i = 0; i < TOKEN_VECTORS; i++) {
        vf p = vf_exp(vf_sub(vf_load(scores + i * VF_LANES), vf_set(next)));
        vf_store(scores + i * VF_LANES, p);
        total = vf_add(total, p);
    }
    if (next != *maximum) { // a factor of exactly 1 otherwise
        float factor = exp_of(*maximum - next);
        *sum *= factor;
        scale_values(values, factor, size);
        *maximum = next;
    }
    *sum += vf_sum(total);
}

typedef struct visible {
    int first, last; // of the tile's 32 tokens
} visible;

// Which tokens of the tile that begins at `start` a query at `position` sees.
static visible tokens_seen(const cpu_attention_call *call, int position, int start)
{
    int first = call->first, last = call->last;
    if (last > position + 1)
        last = position + 1;
    if (call->window > 0 && first < position + 1 - call->window)
        first = position + 1 - call->window;
    visible seen = { first - start, last - start };
    if (seen.first < 0)
        seen.first = 0;
    if (seen.last > CPU_TILE_TOKENS)
        seen.last = CPU_TILE_TOKENS;
    return seen;
}

static void attend_tile(const cpu_attention_call *call, int start, const float *const *q)
{
    const kv_layout *l = call->layout;
    int size = l->head_size, heads = call->heads;
    int64_t tile_bytes = l->value_offset / (l->page_tokens / CPU_TILE_TOKENS);
    const uint8_t *tile = call->pool + call->table[start / l->page_tokens] * l->page_bytes +
                          start % l->page_tokens / CPU_TILE_TOKENS * tile_bytes;
    float *k_scratch = call->scratch, *v_scratch = k_scratch + CPU_HEAD_SIZE_MAX * CPU_TILE_TOKENS;
    float *scores = v_scratch + CPU_HEAD_SIZE_MAX * CPU_TILE_TOKENS;
    // Rows ascend in position: those that see nothing of this tile are at either end.
    int from = 0, to = call->rows;
    while (from < to && tokens_seen(call, call->positions[from], start).last <= 0)
        from++;
    while (to > from) {
        visible seen = tokens_seen(call, call->positions[to - 1], start);
        if (seen.first < seen.last)
            break;
        to--;
    }
    if (from == to)
        return;
    const float *k = tile_floats(l->type, tile, size * CPU_TILE_TOKENS, k_scratch);
    const float *v =
        tile_floats(l->type, tile + l->value_offset, size * CPU_TILE_TOKENS, v_scratch);
    scores_of(q + from * heads, (to - from) * heads, k, size, call->scale, scores);
    int group = from; // query rows group .. row see the same tokens
    for (int row = from; row < to; row++) {
        visible seen = tokens_seen(call, call->positions[row], start);
        for (int i = row * heads; i < (row + 1) * heads && seen.first < seen.last; i++)
            soften(scores + (i - from * heads) * CPU_TILE_TOKENS, seen.first, seen.last, size,
                   &call->maximum[i], &call->sum[i], call->values + (int64_t)i * size);
        visible next =
            row + 1 < to ? tokens_seen(call, call->positions[row + 1], start) : (visible){ -1, -1 };
        if (next.first == seen.first && next.last == seen.last)
            continue;
        if (seen.first < seen.last)
            add_values(scores + (group - from) * heads * CPU_TILE_TOKENS, (row + 1 - group) * heads,
                       v, seen.first, seen.last, size,
                       call->values + (int64_t)group * heads * size);
        group = row + 1;
    }
}

static void LEVEL(attention)(const cpu_attention_call *call)
{
    const float *q[CPU_ATTENTION_ROWS];
    int size = call->layout->head_size, count = call->rows * call->heads;
    for (int i = 0; i < count; i++) {
        q[i] = call->q + i / call->heads * call->q_stride + (int64_t)(i % call->heads) * size;
        call->maximum[i] = -INFINITY;
        call->sum[i] = 0;
    }
    memset(call->values, 0, (size_t)count * (size_t)size * sizeof(float));
    for (int start = call->first / CPU_TILE_TOKENS * CPU_TILE_TOKENS; start < call->last;
         start += CPU_TILE_TOKENS)
        attend_tile(call, start, q);
}

static void LEVEL(merge)(float *maximum, float *sum, float *values, float later_maximum,
                         float later_sum, const float *later_values, int size)
{
    if (later_maximum == -INFINITY) // that split holds nothing which this row sees
        return;
    float most = *maximum > later_maximum ? *maximum : later_maximum;
    float before = exp_of(*maximum - most), after = exp_of(later_maximum - most);
    *sum = *sum * before + later_sum * after;
    for (int d = 0; d < size; d += VF_LANES)
        vf_store(values + d, vf_fma(vf_load(later_values + d), vf_set(after),
                                    vf_mul(vf_load(values + d), vf_set(before))));
    *maximum = most;
}

// ---- sampling
// --------------------------------------------------------------------------------------

// Lanes are added in float for 64 vectors at most, then in double.
static double LEVEL(weigh)(const float *l, int count, float maximum, float factor, float *weights)
{
    double total = 0;
    int i = 0;
    while (i + VF_LANES <= count) {
        vf part = vf_set(0);
        for (int n = 0; n < 64 && i + VF_LANES <= count; n++, i += VF_LANES) {
            vf x = vf_mul(vf_sub(vf_load(l + i), vf_set(maximum)), vf_set(factor));
            x = vf_exp(x);
            if (weights != NULL)
                vf_store(weights + i, x);
            part = vf_add(part, x);
        }
        total += (double)vf_sum(part);
    }
    for (; i < count; i++) {
        float x = exp_of((l[i] - maximum) * factor);
        if (weights != NULL)
            weights[i] = x;
        total += (double)x;
    }
    return total;
}

static void LEVEL(softmax)(const float *l, int count, float *maximum, double *log_sum)
{
    vf most = vf_set(-INFINITY), poison = vf_set(0);
    int i = 0;
    for (; i + VF_LANES <= count; i += VF_LANES) {
        vf x = vf_load(l + i);
        most = vf_max(most, x);
        // 0 for every number and for -infinity; NaN and +infinity leave a NaN.
        poison = vf_fma(vf_max(vf_set(-3e38f), x), vf_set(0), poison);
    }
    float top = vf_largest(most), bad = vf_sum(poison);
    for (; i < count; i++) {
        top = l[i] > top ? l[i] : top;
        bad += (l[i] != l[i] || l[i] == INFINITY) ? NAN : 0;
    }
    *maximum = bad == bad ? top : NAN;
    *log_sum = NAN;
    if (!(bad == bad) || top == -INFINITY)
        return;
    *log_sum = (double)top + cpu_log(LEVEL(weigh)(l, count, top, 1, NULL));
}
