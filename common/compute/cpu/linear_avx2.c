// Products of tiles of 16 rows with 1 to 4 activation rows, AVX2.
//
// 4-bit weights are the unsigned operand of vpmaddubsw: a 16-bit lane sums the 8 groups of a block
// (8 * 2 * 15 * 127 = 30,480 fits) before one vpmaddwd. 8-bit weights: |w| is the unsigned operand
// and the activation takes w's sign, one vpmaddwd a group. The lanes are output rows, so nothing is
// summed across them, and each row's chain of multiply-adds is the same in the kernels of 1, 2, 3
// and 4 rows.
#include "compute/cpu/linear_avx2.h"

// ---- 4 bits -----------------------------------------------------------------------------------

static inline __attribute__((always_inline)) void
block_of_4_bits(const uint8_t *w, const uint8_t *scales, const cpu_panel_block *panel, int halves,
                int rows, bool minima, __m256 *sums)
{
    __m256i whole[4];
    __m256 d[2], m[2];
    whole_of_4_bits(w, panel, halves, rows, whole);
    UNROLL for (int h = 0; h < halves; h++)
    {
        d[h] = halves_at(scales + 16 * h);
        m[h] = minima ? halves_at(scales + SCALES_BYTES + 16 * h) : d[h];
    }
    add_block(whole, d, m, panel, halves, rows, minima ? 0 : 8, minima, sums);
}

// ---- 8 bits -----------------------------------------------------------------------------------

static inline __attribute__((always_inline)) void
block_of_8_bits(const uint8_t *w, const uint8_t *scales, const cpu_panel_block *panel, int halves,
                int rows, __m256 *sums)
{
    const __m256i ones = _mm256_set1_epi16(1);
    __m256i parts[4];
    UNROLL for (int k = 0; k < 8; k++)
    {
        UNROLL for (int h = 0; h < halves; h++)
        {
            __m256i q = bytes_at(w + 64 * k + 32 * h), magnitude = _mm256_abs_epi8(q);
            UNROLL for (int r = 0; r < rows; r++)
            {
                __m256i x = _mm256_sign_epi8(inputs_at(panel->q[r] + 4 * k), q);
                __m256i part = _mm256_madd_epi16(_mm256_maddubs_epi16(magnitude, x), ones);
                __m256i *sum = &parts[h * rows + r];
                *sum = k == 0 ? part : _mm256_add_epi32(*sum, part);
                HOLD(*sum);
            }
        }
    }
    __m256 d[2];
    UNROLL for (int h = 0; h < halves; h++) d[h] = halves_at(scales + 16 * h);
    add_block(parts, d, d, panel, halves, rows, 0, false, sums);
}

// ---- all tiles of a call ----------------------------------------------------------------------

#define KERNELS_OF_ROWS(rows, halves)                                                              \
    QUANTISED_KERNEL(q4_0, rows, halves, Q4_BYTES + SCALES_BYTES, Q4_BYTES,                        \
                     block_of_4_bits(w, scales, panel, halves, rows, false, sums))                 \
    QUANTISED_KERNEL(q4_1, rows, halves, Q4_BYTES + 2 * SCALES_BYTES, Q4_BYTES,                    \
                     block_of_4_bits(w, scales, panel, halves, rows, true, sums))                  \
    QUANTISED_KERNEL(q8_0, rows, halves, Q8_BYTES + SCALES_BYTES, Q8_BYTES,                        \
                     block_of_8_bits(w, scales, panel, halves, rows, sums))

KERNELS_OF_ROWS(1, 2)
KERNELS_OF_ROWS(2, 2)
KERNELS_OF_ROWS(3, 1)
KERNELS_OF_ROWS(4, 1)

ENTRY(q4_0)
ENTRY(q4_1)
ENTRY(q8_0)

// ---- floats -----------------------------------------------------------------------------------

static inline __m256 weights_at(const uint8_t *p, tensor_type type)
{
    if (type == TENSOR_F32)
        return _mm256_loadu_ps((const float *)p);
    if (type == TENSOR_F16)
        return halves_at(p);
    __m256i wide = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)p));
    return _mm256_castsi256_ps(_mm256_slli_epi32(wide, 16));
}

// `tiles` tile columns at once where a row alone has too few chains of multiply-adds, which would
// wait for themselves.
static inline __attribute__((always_inline)) void float_tiles(const cpu_tile_call *call, int tile,
                                                              int tiles, int rows, tensor_type type)
{
    const int half = 8 * (type == TENSOR_F32 ? 4 : 2);
    const uint8_t *w = call->weights + tile * call->tile_bytes;
    __m256 sums[8];
    UNROLL for (int i = 0; i < 2 * tiles * rows; i++) sums[i] = _mm256_setzero_ps();
    for (int i = 0; i < call->columns; i++, w += 2 * half) {
        UNROLL for (int h = 0; h < 2 * tiles; h++)
        {
            __m256 value = weights_at(w + h / 2 * call->tile_bytes + h % 2 * half, type);
            UNROLL for (int r = 0; r < rows; r++) sums[h * rows + r] = _mm256_fmadd_ps(
                value, _mm256_set1_ps(call->x[r * call->x_stride + i]), sums[h * rows + r]);
        }
    }
    UNROLL for (int h = 0; h < 2 * tiles; h++) UNROLL for (int r = 0; r < rows; r++)
        _mm256_storeu_ps(call->out + ((int64_t)(tile + h / 2) * rows + r) * T + h % 2 * 8,
                         sums[h * rows + r]);
}

#define FLOAT_KERNEL(name, type, rows, together)                                                   \
    static void name##_##rows(const cpu_tile_call *call)                                           \
    {                                                                                              \
        int tile = 0;                                                                              \
        for (; tile + together <= call->tiles; tile += together)                                   \
            float_tiles(call, tile, together, rows, type);                                         \
        for (; tile < call->tiles; tile++)                                                         \
            float_tiles(call, tile, 1, rows, type);                                                \
    }

#define FLOAT_KERNELS(name, type)                                                                  \
    FLOAT_KERNEL(name, type, 1, 2)                                                                 \
    FLOAT_KERNEL(name, type, 2, 1)                                                                 \
    FLOAT_KERNEL(name, type, 3, 1)                                                                 \
    FLOAT_KERNEL(name, type, 4, 1)                                                                 \
    ENTRY(name)

FLOAT_KERNELS(f32, TENSOR_F32)
FLOAT_KERNELS(f16, TENSOR_F16)
FLOAT_KERNELS(bf16, TENSOR_BF16)
