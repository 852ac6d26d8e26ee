// Products of tiles of 8 rows with 1 to 4 activation rows, AVX2.
//
// 4-bit weights are the unsigned operand of vpmaddubsw: a 16-bit lane sums the 8 groups of a block
// (8 * 2 * 15 * 127 = 30,480 fits) before one vpmaddwd. 8-bit weights: |w| is the unsigned operand
// and the activation takes w's sign, one vpmaddwd a group. The lanes are output rows, so nothing is
// summed across them, and each row's chain of multiply-adds is the same in the kernels of 1, 2, 3
// and 4 rows.
#include "compute/cpu/levels.h"

#include <immintrin.h>

#define T CPU_AVX2_TILE_ROWS
#define UNROLL _Pragma("GCC unroll 8")
#define Q4_BYTES (T * 16)
#define Q8_BYTES (T * 32)
#define SCALES_BYTES (T * 2)

static inline __m256i bytes_at(const void *p)
{
    return _mm256_loadu_si256((const __m256i *)p);
}

static inline __m256 halves_at(const void *p)
{
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p));
}

// Four inputs of one row, in every lane.
static inline __m256i inputs_at(const int8_t *q)
{
    int32_t four;
    memcpy(&four, q, 4);
    return _mm256_set1_epi32(four);
}

// ---- 4 bits
// ---------------------------------------------------------------------------------------

static inline __attribute__((always_inline)) void block_of_4_bits(const uint8_t *tile,
                                                                  const cpu_panel_block *panel,
                                                                  int rows, bool minima,
                                                                  __m256 *sums)
{
    const __m256i low = _mm256_set1_epi8(15), ones = _mm256_set1_epi16(1);
    __m256i parts[CPU_PANEL_ROWS];
    UNROLL for (int k = 0; k < 4; k++)
    {
        __m256i both = bytes_at(tile + 32 * k);
        __m256i first = _mm256_and_si256(both, low);
        __m256i second = _mm256_and_si256(_mm256_srli_epi16(both, 4), low);
        UNROLL for (int r = 0; r < rows; r++)
        {
            __m256i a = _mm256_maddubs_epi16(first, inputs_at(panel->q[r] + 4 * k));
            __m256i b = _mm256_maddubs_epi16(second, inputs_at(panel->q[r] + 16 + 4 * k));
            parts[r] = k == 0 ? _mm256_add_epi16(a, b)
                              : _mm256_add_epi16(parts[r], _mm256_add_epi16(a, b));
        }
    }
    __m256 d = halves_at(tile + Q4_BYTES);
    UNROLL for (int r = 0; r < rows; r++)
    {
        __m256i whole = _mm256_madd_epi16(parts[r], ones);
        if (!minima)
            whole = _mm256_sub_epi32(whole, _mm256_set1_epi32(8 * panel->sum[r]));
        __m256 scale = _mm256_mul_ps(d, _mm256_set1_ps(panel->d[r]));
        sums[r] = _mm256_fmadd_ps(scale, _mm256_cvtepi32_ps(whole), sums[r]);
    }
    if (minima) {
        __m256 m = halves_at(tile + Q4_BYTES + SCALES_BYTES);
        UNROLL for (int r = 0; r < rows; r++) sums[r] =
            _mm256_fmadd_ps(m, _mm256_set1_ps(panel->s[r]), sums[r]);
    }
}

// ---- 8 bits
// ---------------------------------------------------------------------------------------

static inline __attribute__((always_inline)) void
block_of_8_bits(const uint8_t *tile, const cpu_panel_block *panel, int rows, __m256 *sums)
{
    const __m256i ones = _mm256_set1_epi16(1);
    __m256i parts[CPU_PANEL_ROWS];
    UNROLL for (int k = 0; k < 8; k++)
    {
        __m256i w = bytes_at(tile + 32 * k), magnitude = _mm256_abs_epi8(w);
        UNROLL for (int r = 0; r < rows; r++)
        {
            __m256i x = _mm256_sign_epi8(inputs_at(panel->q[r] + 4 * k), w);
            __m256i sum = _mm256_madd_epi16(_mm256_maddubs_epi16(magnitude, x), ones);
            parts[r] = k == 0 ? sum : _mm256_add_epi32(parts[r], sum);
        }
    }
    __m256 d = halves_at(tile + Q8_BYTES);
    UNROLL for (int r = 0; r < rows; r++)
    {
        __m256 scale = _mm256_mul_ps(d, _mm256_set1_ps(panel->d[r]));
        sums[r] = _mm256_fmadd_ps(scale, _mm256_cvtepi32_ps(parts[r]), sums[r]);
    }
}

// ---- all tiles of a call
// ----------------------------------------------------------------------------

#define QUANTISED_KERNEL(name, rows, bytes, block)                                                 \
    static void name##_##rows(const cpu_tile_call *call)                                           \
    {                                                                                              \
        float *out = call->out;                                                                    \
        for (int tile = 0; tile < call->tiles; tile++, out += rows * T) {                          \
            const uint8_t *w = call->weights + tile * call->tile_bytes;                            \
            const cpu_panel_block *panel = call->panel;                                            \
            __m256 sums[rows];                                                                     \
            UNROLL for (int r = 0; r < rows; r++) sums[r] = _mm256_setzero_ps();                   \
            for (int i = 0; i < call->blocks; i++, w += bytes, panel++)                            \
                block;                                                                             \
            UNROLL for (int r = 0; r < rows; r++) _mm256_storeu_ps(out + r * T, sums[r]);          \
        }                                                                                          \
    }

#define KERNELS_OF_ROWS(rows)                                                                      \
    QUANTISED_KERNEL(q4_0, rows, Q4_BYTES + SCALES_BYTES,                                          \
                     block_of_4_bits(w, panel, rows, false, sums))                                 \
    QUANTISED_KERNEL(q4_1, rows, Q4_BYTES + 2 * SCALES_BYTES,                                      \
                     block_of_4_bits(w, panel, rows, true, sums))                                  \
    QUANTISED_KERNEL(q8_0, rows, Q8_BYTES + SCALES_BYTES, block_of_8_bits(w, panel, rows, sums))

KERNELS_OF_ROWS(1)
KERNELS_OF_ROWS(2)
KERNELS_OF_ROWS(3)
KERNELS_OF_ROWS(4)

#define ENTRY(name)                                                                                \
    void cpu_##name##_avx2(const cpu_tile_call *call)                                              \
    {                                                                                              \
        static const cpu_tile_kernel by_rows[] = { name##_1, name##_2, name##_3, name##_4 };       \
        by_rows[call->rows - 1](call);                                                             \
    }

ENTRY(q4_0)
ENTRY(q4_1)
ENTRY(q8_0)

// ---- floats
// ---------------------------------------------------------------------------------------

static inline __m256 weights_at(const uint8_t *p, tensor_type type)
{
    if (type == TENSOR_F32)
        return _mm256_loadu_ps((const float *)p);
    if (type == TENSOR_F16)
        return halves_at(p);
    __m256i wide = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)p));
    return _mm256_castsi256_ps(_mm256_slli_epi32(wide, 16));
}

// `tiles` tile columns at once, because one chain of multiply-adds would wait for itself.
static inline __attribute__((always_inline)) void float_tiles(const cpu_tile_call *call, int tile,
                                                              int tiles, int rows, tensor_type type)
{
    const int step = T * (type == TENSOR_F32 ? 4 : 2);
    const uint8_t *w = call->weights + tile * call->tile_bytes;
    __m256 sums[8];
    UNROLL for (int i = 0; i < tiles * rows; i++) sums[i] = _mm256_setzero_ps();
    for (int i = 0; i < call->columns; i++, w += step) {
        UNROLL for (int t = 0; t < tiles; t++)
        {
            __m256 value = weights_at(w + t * call->tile_bytes, type);
            UNROLL for (int r = 0; r < rows; r++) sums[t * rows + r] = _mm256_fmadd_ps(
                value, _mm256_set1_ps(call->x[r * call->x_stride + i]), sums[t * rows + r]);
        }
    }
    UNROLL for (int i = 0; i < tiles * rows; i++)
        _mm256_storeu_ps(call->out + ((int64_t)tile * rows + i) * T, sums[i]);
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
    FLOAT_KERNEL(name, type, 1, 4)                                                                 \
    FLOAT_KERNEL(name, type, 2, 4)                                                                 \
    FLOAT_KERNEL(name, type, 3, 2)                                                                 \
    FLOAT_KERNEL(name, type, 4, 2)                                                                 \
    ENTRY(name)

FLOAT_KERNELS(f32, TENSOR_F32)
FLOAT_KERNELS(f16, TENSOR_F16)
FLOAT_KERNELS(bf16, TENSOR_BF16)
