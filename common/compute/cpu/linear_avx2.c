// Products of tiles of 16 rows with 1 to 4 activation rows, AVX2.
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
// Integer sums may be reordered, and gcc does so until they no longer fit the registers: hold them.
#define HOLD(x) __asm__("" : "+x"(x))
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

// ---- 4 bits -----------------------------------------------------------------------------------

// One block of `halves` halves of a tile (8 rows each, `w` is the first one's) and `rows` inputs.
static inline __attribute__((always_inline)) void
block_of_4_bits(const uint8_t *w, const uint8_t *scales, const cpu_panel_block *panel, int halves,
                int rows, bool minima, __m256 *sums)
{
    const __m256i low = _mm256_set1_epi8(15), ones = _mm256_set1_epi16(1);
    __m256i parts[4];
    UNROLL for (int k = 0; k < 4; k++)
    {
        UNROLL for (int h = 0; h < halves; h++)
        {
            __m256i both = bytes_at(w + 64 * k + 32 * h);
            __m256i first = _mm256_and_si256(both, low);
            __m256i second = _mm256_and_si256(_mm256_srli_epi16(both, 4), low);
            UNROLL for (int r = 0; r < rows; r++)
            {
                __m256i *sum = &parts[h * rows + r];
                __m256i part = _mm256_maddubs_epi16(first, inputs_at(panel->q[r] + 4 * k));
                *sum = k == 0 ? part : _mm256_add_epi16(*sum, part);
                part = _mm256_maddubs_epi16(second, inputs_at(panel->q[r] + 16 + 4 * k));
                *sum = _mm256_add_epi16(*sum, part);
                HOLD(*sum);
            }
        }
    }
    UNROLL for (int h = 0; h < halves; h++)
    {
        __m256 d = halves_at(scales + 16 * h);
        UNROLL for (int r = 0; r < rows; r++)
        {
            __m256i whole = _mm256_madd_epi16(parts[h * rows + r], ones);
            if (!minima)
                whole = _mm256_sub_epi32(whole, _mm256_set1_epi32(8 * panel->sum[r]));
            __m256 scale = _mm256_mul_ps(d, _mm256_set1_ps(panel->d[r]));
            __m256 *sum = &sums[h * rows + r];
            *sum = _mm256_fmadd_ps(scale, _mm256_cvtepi32_ps(whole), *sum);
        }
        if (minima) {
            __m256 m = halves_at(scales + SCALES_BYTES + 16 * h);
            UNROLL for (int r = 0; r < rows; r++) sums[h * rows + r] =
                _mm256_fmadd_ps(m, _mm256_set1_ps(panel->s[r]), sums[h * rows + r]);
        }
    }
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
    UNROLL for (int h = 0; h < halves; h++)
    {
        __m256 d = halves_at(scales + 16 * h);
        UNROLL for (int r = 0; r < rows; r++)
        {
            __m256 scale = _mm256_mul_ps(d, _mm256_set1_ps(panel->d[r]));
            sums[h * rows + r] =
                _mm256_fmadd_ps(scale, _mm256_cvtepi32_ps(parts[h * rows + r]), sums[h * rows + r]);
        }
    }
}

// ---- all tiles of a call ----------------------------------------------------------------------

// One or two rows take both halves of a tile in one pass; three or four take one half at a time,
// since more sums do not fit the registers, and find the second half in the nearest cache.
#define QUANTISED_KERNEL(name, rows, halves, bytes, quant_bytes, block)                            \
    static void name##_##rows(const cpu_tile_call *call)                                           \
    {                                                                                              \
        for (int pass = 0; pass < call->tiles * (2 / halves); pass++) {                            \
            int tile = pass * halves / 2, half = pass * halves % 2;                                \
            const uint8_t *w = call->weights + tile * call->tile_bytes + 32 * half;                \
            const uint8_t *scales = w + quant_bytes - 16 * half;                                   \
            const cpu_panel_block *panel = call->panel;                                            \
            __m256 sums[halves * rows];                                                            \
            UNROLL for (int i = 0; i < halves * rows; i++) sums[i] = _mm256_setzero_ps();          \
            for (int i = 0; i < call->blocks; i++, w += bytes, scales += bytes, panel++) {         \
                if (halves == 2) {                                                                 \
                    PREFETCH(w, bytes);                                                            \
                }                                                                                  \
                block;                                                                             \
            }                                                                                      \
            float *out = call->out + tile * rows * T + 8 * half;                                   \
            UNROLL for (int h = 0; h < halves; h++) UNROLL for (int r = 0; r < rows; r++)          \
                _mm256_storeu_ps(out + r * T + 8 * h, sums[h * rows + r]);                         \
        }                                                                                          \
    }

#define PREFETCH_AHEAD 2048
#define PREFETCH(w, bytes)                                                                         \
    UNROLL for (int z = 0; z < bytes; z += 64)                                                     \
        _mm_prefetch((const char *)(w) + PREFETCH_AHEAD + z, _MM_HINT_T0)

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

#define ENTRY(name)                                                                                \
    void cpu_##name##_avx2(const cpu_tile_call *call)                                              \
    {                                                                                              \
        static const cpu_tile_kernel by_rows[] = { name##_1, name##_2, name##_3, name##_4 };       \
        by_rows[call->rows - 1](call);                                                             \
    }

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
