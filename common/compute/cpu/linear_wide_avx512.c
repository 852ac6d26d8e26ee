// Many rows through two tiles of 16 output rows, AVX-512 with VNNI.
//
// Where many rows share the weights, two tile columns are widened once to bytes and floats that
// stay in the nearest caches, and each pair of loads serves two tiles. FMA and vpdpbusd share two
// of the four ports and are what limits this loop; the processor looks only about 40 instructions
// ahead, so the scaling of a block's sums is written between the products of the next one.
//
// A row's chain of roundings is that of the kernels for 1 to 8 rows: integer sums are exact however
// the weights are lifted, the scales are the same products, and blocks follow in ascending order.
#include "compute/cpu/linear_avx512.h"
#include "compute/cpu/tiles.h"

#define ROWS CPU_PANEL_ROWS
#define SUMS (2 * ROWS)
// The value stays in its register, and in its place among the instructions.
#ifdef PENSTOCK_EMULATE_AVX512
#define HOLD(x) ((void)0)
#else
#define HOLD(x) __asm__("" : "+v"(x))
#endif

// ---- widening ---------------------------------------------------------------------------------

// A wide block: 8 registers of quants, 128 too high whatever the type lifts them by, then 16
// scales, and 16 more of the second half where it has its own.
#define QUANTS_BYTES (8 * 64)
#define BLOCK_BYTES CPU_WIDE_BLOCK_BYTES
#define LIFT 128

// `surplus`: by how much `unpack` leaves the weights too high.
#define WIDEN_BLOCK(tile, bytes, unpack, surplus, wide)                                            \
    do {                                                                                           \
        __m512i w[8], more = _mm512_set1_epi8((char)(LIFT - (surplus)));                           \
        UNROLL for (int z = 0; z < (bytes); z += 64)                                               \
            _mm_prefetch((const char *)(tile) + PREFETCH_AHEAD + z, _MM_HINT_T0);                  \
        unpack(tile, w);                                                                           \
        UNROLL for (int k = 0; k < 8; k++)                                                         \
            _mm512_storeu_si512((wide) + 64 * k, _mm512_add_epi8(w[k], more));                     \
    } while (false)

#define WIDEN(name, quant_bytes, unpack, surplus)                                                  \
    static void widen_##name(const uint8_t *at, int blocks, uint8_t *wide)                         \
    {                                                                                              \
        for (int i = 0; i < blocks; i++, wide += BLOCK_BYTES, at += quant_bytes + SCALES_BYTES) {  \
            WIDEN_BLOCK(at, quant_bytes + SCALES_BYTES, unpack, surplus, wide);                    \
            _mm512_storeu_ps((float *)(wide + QUANTS_BYTES), halves_at(at + quant_bytes));         \
        }                                                                                          \
    }
WIDEN(q4_0, Q4_BYTES, weights_of_4_bits, 8)
WIDEN(q5_0, Q5_BYTES, weights_of_5_bits, 16)
WIDEN(q8_0, Q8_BYTES, weights_of_8_bits, 128)

static void widen_q6_k(const uint8_t *at, int blocks, uint8_t *wide)
{
    __m512 d = _mm512_setzero_ps();
    for (int i = 0; i < blocks; i++, wide += BLOCK_BYTES, at += Q6_BYTES + 2 * T) {
        if (i % CPU_K_BLOCKS == 0) {
            d = halves_at(at);
            at += SCALES_BYTES;
        }
        WIDEN_BLOCK(at, Q6_BYTES + 2 * T, weights_of_6_bits, 32, wide);
        float *scales = (float *)(wide + QUANTS_BYTES);
        _mm512_storeu_ps(scales, _mm512_mul_ps(d, signed_at(at + Q6_BYTES)));
        _mm512_storeu_ps(scales + T, _mm512_mul_ps(d, signed_at(at + Q6_BYTES + T)));
    }
}

void cpu_widen_avx512(tensor_type type, const uint8_t *column, int blocks, uint8_t *wide)
{
    if (type == TENSOR_Q4_0)
        widen_q4_0(column, blocks, wide);
    else if (type == TENSOR_Q5_0)
        widen_q5_0(column, blocks, wide);
    else if (type == TENSOR_Q8_0)
        widen_q8_0(column, blocks, wide);
    else if (type == TENSOR_Q6_K)
        widen_q6_k(column, blocks, wide);
    else
        CHECK(false);
}

// ---- products ---------------------------------------------------------------------------------

// What is summed before it is scaled: a block of 32 inputs, or one half of it.
typedef struct wide_part {
    const uint8_t *tile[2];
    const cpu_panel_block *panel;
    int half;
} wide_part;

// Sum i is row i / 2 of tile i % 2. A part's integer sum, scaled, on top of those before.
static inline __attribute__((always_inline)) void scale_sum(const wide_part *part, int i,
                                                            const __m512i *whole, __m512 *sums)
{
    const uint8_t *tile = part->tile[i % 2];
    const float *scales = (const float *)(tile + QUANTS_BYTES + 64 * part->half);
    __m512 scale = _mm512_mul_ps(_mm512_loadu_ps(scales), _mm512_set1_ps(part->panel->d[i / 2]));
    sums[i] = _mm512_fmadd_ps(scale, _mm512_cvtepi32_ps(whole[i]), sums[i]);
    HOLD(sums[i]);
}

// Minus 128 times the sum of a row's inputs: where its integer sums begin.
static inline __attribute__((always_inline)) __m512i start_of(const wide_part *part, bool halves,
                                                              int row)
{
    int sum = halves ? part->panel->halves[row][part->half] : part->panel->sum[row];
    return _mm512_set1_epi32(-LIFT * sum);
}

// The integer sums of `part` into `whole`, while those of `before` (NULL: there are none) are
// scaled.
static inline __attribute__((always_inline)) void multiply_part(const wide_part *part,
                                                                const wide_part *before,
                                                                bool halves, __m512i *whole,
                                                                __m512 *sums)
{
    const int steps = halves ? 4 : 8;
    __m512i now[SUMS];
    UNROLL for (int k = 0; k < steps; k++)
    {
        int at = k + steps * part->half;
        __m512i w[2] = { bytes_at(part->tile[0] + 64 * at), bytes_at(part->tile[1] + 64 * at) };
        HOLD(w[0]);
        HOLD(w[1]);
        UNROLL for (int r = 0; r < ROWS; r++)
        {
            __m512i x = inputs_at(part->panel->q[r] + 4 * at);
            HOLD(x);
            if (k == 0)
                now[2 * r] = now[2 * r + 1] = start_of(part, halves, r);
            now[2 * r] = _mm512_dpbusd_epi32(now[2 * r], w[0], x);
            now[2 * r + 1] = _mm512_dpbusd_epi32(now[2 * r + 1], w[1], x);
            HOLD(now[2 * r]);
            HOLD(now[2 * r + 1]);
        }
        if (before != NULL) {
            UNROLL for (int i = k * SUMS / steps; i < (k + 1) * SUMS / steps; i++)
                scale_sum(before, i, whole, sums);
        }
    }
    UNROLL for (int i = 0; i < SUMS; i++) whole[i] = now[i];
}

static inline __attribute__((always_inline)) void
multiply_panel(const cpu_wide_call *call, const cpu_panel_block *panel, bool halves, __m512 *sums)
{
    __m512i whole[SUMS];
    wide_part part = { { call->wide[0], call->wide[1] }, panel, 0 };
    UNROLL for (int i = 0; i < SUMS; i++) sums[i] = _mm512_setzero_ps();
    multiply_part(&part, NULL, halves, whole, sums);
    for (int i = 0; i < call->blocks; i++) {
        wide_part before = part;
        if (halves) {
            part.half = 1;
            multiply_part(&part, &before, halves, whole, sums);
            before = part;
            part.half = 0;
        }
        if (i + 1 == call->blocks) {
            part = before;
            break;
        }
        part.tile[0] += BLOCK_BYTES;
        part.tile[1] += BLOCK_BYTES;
        part.panel++;
        multiply_part(&part, &before, halves, whole, sums);
    }
    UNROLL for (int i = 0; i < SUMS; i++) scale_sum(&part, i, whole, sums);
}

static inline __attribute__((always_inline)) void multiply_rows(const cpu_wide_call *call,
                                                                bool halves)
{
    const cpu_panel_block *panel = call->panel;
    for (int row = 0; row < call->rows; row += ROWS, panel += call->blocks) {
        __m512 sums[SUMS];
        float *out = call->out + row * T;
        multiply_panel(call, panel, halves, sums);
        UNROLL for (int i = 0; i < SUMS; i++) if (row + i / 2 < call->rows)
            _mm512_storeu_ps(out + (i % 2 * call->rows + i / 2) * T, sums[i]);
    }
}

void cpu_wide_avx512(const cpu_wide_call *call)
{
    if (call->type == TENSOR_Q6_K)
        multiply_rows(call, true);
    else
        multiply_rows(call, false);
}
