// The row kernels, written once in the vector operations of vector_<level>.h, which the including
// file (kernels_<level>.c) includes first; attention_kernels.h follows. Private to those files.
//
// Each function below named by LEVEL(...) is a slot of cpu_level (cpu.h), whose comment there says
// what it computes; the others are its parts. All of them run on a compute thread and touch only
// what they are given.
//
// Order of sums, the same for a row whatever stands beside it: a norm adds lane i of every vector,
// then the lanes.
#include "compute/cpu/cpu.h"
#include "compute/cpu/numbers.h"

#include <math.h>

// exp(x) for x <= 88: n = round(x / ln 2), r = x - n ln 2 in two parts, a polynomial of degree 6
// for e^r (the coefficients of Cephes' expf), times 2^n. 0 below -87.3, where the result would be
// subnormal. NaN gives NaN.
static inline vf vf_exp(vf x)
{
    const vf low = vf_set(-87.3f), magic = vf_set(0x1.8p23f);
    vf y = vf_max(low, x);
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

// 1 / sqrt(mean(x^2) + epsilon). Four sums, so that no multiply-add waits for the one before.
static float norm_factor(const float *x, float epsilon, int columns)
{
    vf sums[4] = { vf_set(0), vf_set(0), vf_set(0), vf_set(0) };
    int i = 0;
    for (; i + 4 * VF_LANES <= columns; i += 4 * VF_LANES)
        UNROLL for (int j = 0; j < 4; j++)
        {
            vf value = vf_load(x + i + j * VF_LANES);
            sums[j] = vf_fma(value, value, sums[j]);
        }
    float sum = vf_sum(vf_add(vf_add(sums[0], sums[1]), vf_add(sums[2], sums[3])));
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

// Products are rounded before they are added, at every level.
static void LEVEL(rotate)(const float *angles, int dims, bool adjacent, float *x)
{
    int half = dims / 2, i = 0;
    for (; i + VF_LANES <= half; i += VF_LANES) {
        vf cosine, sine, first, second;
        vf_load_pairs(angles + 2 * i, &cosine, &sine);
        if (adjacent) {
            vf_load_pairs(x + 2 * i, &first, &second);
        } else {
            first = vf_load(x + i);
            second = vf_load(x + half + i);
        }
        vf a = vf_sub(vf_mul(first, cosine), vf_mul(second, sine));
        vf b = vf_add(vf_mul(first, sine), vf_mul(second, cosine));
        if (adjacent) {
            vf_store_pairs(x + 2 * i, a, b);
        } else {
            vf_store(x + i, a);
            vf_store(x + half + i, b);
        }
    }
    for (; i < half; i++) {
        int a = adjacent ? 2 * i : i, b = adjacent ? 2 * i + 1 : i + half;
        float first = x[a], second = x[b], cosine = angles[2 * i], sine = angles[2 * i + 1];
        x[a] = first * cosine - second * sine;
        x[b] = first * sine + second * cosine;
    }
}

// ---- the quantiser ----------------------------------------------------------------------------

// Blocks that pass through the quantiser's three stages together. A block alone is one long chain
// (largest, division, rounding, sums) that the processor would wait for.
#define STAGE_BLOCKS 64

// x, normalised where norm != NULL; numbers from `count` on to a multiple of four blocks are 0.
static void normalise(const float *x, const float *norm, float factor, int count, float *values)
{
    for (int i = 0; i < count; i += VF_LANES) {
        vf value = vf_load(x + i);
        if (norm != NULL)
            value = vf_mul(vf_mul(value, vf_set(factor)), vf_load(norm + i));
        vf_store(values + i, value);
    }
    for (int i = count; i % (4 * CPU_BLOCK) != 0; i += VF_LANES)
        vf_store(values + i, vf_set(0));
}

// A row's blocks between the stages.
typedef struct stage {
    float most[STAGE_BLOCKS], d[STAGE_BLOCKS], inverse[STAGE_BLOCKS], s[STAGE_BLOCKS];
    int32_t sums[STAGE_BLOCKS], halves[STAGE_BLOCKS];
} stage;

static void round_to_panel(const float *x, int count, stage *at, int b, cpu_panel_block *panel,
                           int slot)
{
    int8_t beyond[CPU_BLOCK], *q[4];
    for (int i = 0; i < 4; i++)
        q[i] = b + i < count ? panel[b + i].q[slot] : beyond;
    round_blocks(x, at->inverse + b, q, at->sums + b, at->halves + b);
}

// The last stage: what belongs to a block as a whole.
static void close_blocks(stage *at, int count, cpu_panel_block *panel, int slot)
{
    for (int b = 0; b < count; b++)
        if (!(at->d[b] < INFINITY)) {
            memset(panel[b].q[slot], 0, CPU_BLOCK);
            at->sums[b] = at->halves[b] = 0;
        }
    for (int b = 0; b < count; b++)
        at->s[b] = at->d[b] * (float)at->sums[b];
    for (int b = 0; b < count; b++, panel++) {
        panel->d[slot] = at->d[b];
        panel->s[slot] = at->s[b];
        panel->sum[slot] = at->sums[b];
        memcpy(panel->halves[slot], &at->halves[b], sizeof at->halves[b]);
    }
}

static void quantise_stage(const float *x, const float *norm, float factor, int count,
                           cpu_panel_block *panel, int slot)
{
    float values[STAGE_BLOCKS * CPU_BLOCK];
    stage at;
    // Whole groups of four need no copy where there is nothing to normalise.
    int plain = norm == NULL ? count / 4 * 4 : 0, first = plain * CPU_BLOCK;
    normalise(x + first, norm, factor, (count - plain) * CPU_BLOCK, values + first);
    for (int b = 0; b < count; b += 4)
        largest_magnitudes((b < plain ? x : values) + b * CPU_BLOCK, at.most + b);
    for (int b = 0; b < count; b += 4)
        scales_of(at.most + b, at.d + b, at.inverse + b);
    for (int b = 0; b < count; b += 4)
        round_to_panel((b < plain ? x : values) + b * CPU_BLOCK, count, &at, b, panel, slot);
    close_blocks(&at, count, panel, slot);
}

static void LEVEL(quantise)(const float *x, const float *norm, float epsilon, int columns,
                            cpu_panel_block *panel, int slot)
{
    float factor = norm == NULL ? 1 : norm_factor(x, epsilon, columns);
    for (int at = 0; at < columns; at += STAGE_BLOCKS * CPU_BLOCK) {
        int left = (columns - at) / CPU_BLOCK;
        quantise_stage(x + at, norm == NULL ? NULL : norm + at, factor,
                       left < STAGE_BLOCKS ? left : STAGE_BLOCKS, panel + at / CPU_BLOCK, slot);
    }
}

// What is too large for f16 becomes the largest, so that a probability of 0 times it is 0.
static void LEVEL(halve)(const float *x, int count, uint16_t *halves)
{
    for (int i = 0; i < count; i += VF_LANES) {
        vf value = vf_min(vf_set(65504), vf_max(vf_set(-65504), vf_load(x + i)));
        vf_store_f16(halves + i, value);
    }
}

// ---- what follows a product -------------------------------------------------------------------

// x / (1 + exp(-x)); the largest -x that is told from others is 88, where the result is 0 to float.
static inline vf silu(vf x)
{
    vf minus = vf_sub(vf_set(0), vf_max(vf_set(-88), x));
    return vf_div(x, vf_add(vf_set(1), vf_exp(minus)));
}

// x / 2 * (1 + tanh(u)) = x / (1 + exp(-2u)) with 2u = 2 sqrt(2 / pi) (x + 0.044715 x^3).
static inline vf gelu(vf x)
{
    vf cubic = vf_fma(vf_mul(vf_mul(x, x), x), vf_set(0.044715f), x);
    vf twice = vf_max(vf_set(-88), vf_mul(cubic, vf_set(1.5957691216057308f)));
    return vf_div(x, vf_add(vf_set(1), vf_exp(vf_sub(vf_set(0), twice))));
}

// `rows` rows of one tile that lies within the columns: T columns each, a multiple of VF_LANES.
// Both switches are constants where it is called, so that the loop has no branches.
static inline __attribute__((always_inline)) void finish_rows(const cpu_finish_call *call,
                                                              const float *out, const float *up,
                                                              int column, float *y,
                                                              backend_epilogue epilogue, bool bias)
{
    for (int row = 0; row < call->rows; row++, out += TILE_ROWS, y += call->y_stride)
        UNROLL for (int i = 0; i < TILE_ROWS; i += VF_LANES)
        {
            vf value = vf_load(out + i);
            if (bias)
                value = vf_add(value, vf_load(call->bias + column + i));
            if (epilogue == BACKEND_ADD) {
                value = vf_add(vf_load(y + i), value);
            } else if (cpu_epilogue_pairs(epilogue)) {
                vf other = vf_load(up + row * TILE_ROWS + i);
                if (bias)
                    other = vf_add(other, vf_load(call->up_bias + column + i));
                value = vf_mul(epilogue == BACKEND_GEGLU ? gelu(value) : silu(value), other);
            }
            vf_store(y + i, value);
        }
}

#define FINISH_CASE(epilogue)                                                                      \
    case epilogue:                                                                                 \
        if (call->bias != NULL)                                                                    \
            finish_rows(call, out, up, column, y, epilogue, true);                                 \
        else                                                                                       \
            finish_rows(call, out, up, column, y, epilogue, false);                                \
        return;

static void finish_full(const cpu_finish_call *call, const float *out, const float *up, int column,
                        float *y)
{
    switch (call->epilogue) {
        FINISH_CASE(BACKEND_STORE)
        FINISH_CASE(BACKEND_ADD)
        FINISH_CASE(BACKEND_SWIGLU)
        FINISH_CASE(BACKEND_GEGLU)
    }
}

// The last tile where it reaches beyond the columns: row by row through copies, so that the
// arithmetic is the same.
static void finish_part(const cpu_finish_call *call, const float *out, const float *up, int column,
                        float *y)
{
    float bias[TILE_ROWS] = { 0 }, up_bias[TILE_ROWS] = { 0 }, copy[TILE_ROWS] = { 0 };
    size_t size = (size_t)(call->count - column) * sizeof(float);
    cpu_finish_call part = *call;
    part.rows = 1;
    if (call->bias != NULL)
        part.bias = memcpy(bias, call->bias + column, size);
    if (call->up_bias != NULL)
        part.up_bias = memcpy(up_bias, call->up_bias + column, size);
    for (int row = 0; row < call->rows; row++, y += call->y_stride) {
        memcpy(copy, y, size);
        finish_full(&part, out + row * TILE_ROWS, up == NULL ? NULL : up + row * TILE_ROWS, 0,
                    copy);
        memcpy(y, copy, size);
    }
}

static void LEVEL(finish)(const cpu_finish_call *call)
{
    for (int tile = 0; tile < call->tiles; tile++) {
        int column = tile * TILE_ROWS;
        int64_t at = (int64_t)column * call->rows;
        const float *up = call->up == NULL ? NULL : call->up + at;
        if (column + TILE_ROWS <= call->count)
            finish_full(call, call->out + at, up, column, call->y + column);
        else
            finish_part(call, call->out + at, up, column, call->y + column);
    }
}

// ---- sampling ---------------------------------------------------------------------------------

// Weights of four vectors at a time, so that their chains overlap; lanes are added in float for 64
// vectors at most, then in double.
static double LEVEL(weigh)(const float *l, int count, float maximum, float factor, float *weights)
{
    double total = 0;
    int i = 0;
    while (i + 4 * VF_LANES <= count) {
        vf part = vf_set(0);
        for (int n = 0; n < 16 && i + 4 * VF_LANES <= count; n++, i += 4 * VF_LANES) {
            vf x[4];
            UNROLL for (int j = 0; j < 4; j++) x[j] = vf_exp(
                vf_mul(vf_sub(vf_load(l + i + j * VF_LANES), vf_set(maximum)), vf_set(factor)));
            UNROLL for (int j = 0; j < 4 && weights != NULL; j++)
                vf_store(weights + i + j * VF_LANES, x[j]);
            part = vf_add(part, vf_add(vf_add(x[0], x[1]), vf_add(x[2], x[3])));
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

static float LEVEL(largest)(const float *l, int count)
{
    vf most[4];
    int i = 0;
    for (int n = 0; n < 4; n++)
        most[n] = vf_set(-INFINITY);
    for (; i + 4 * VF_LANES <= count; i += 4 * VF_LANES)
        for (int n = 0; n < 4; n++)
            most[n] = vf_max(most[n], vf_load(l + i + n * VF_LANES));
    float top = vf_largest(vf_max(vf_max(most[0], most[1]), vf_max(most[2], most[3])));
    for (; i < count; i++)
        top = l[i] > top ? l[i] : top;
    return top;
}
