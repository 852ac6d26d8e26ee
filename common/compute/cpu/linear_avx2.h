// What the AVX2 files of tile kernels share. Private to linear_avx2.c and linear_k_avx2.c.
//
// A tile is T output rows and 32 inputs (tiles.c draws it): the quants, then T scales, then T
// minima where the type has any, all 16-bit floats. A lane is an output row, so nothing is summed
// across lanes. vpmaddubsw adds pairs of products in 16 bits. For 4-bit weights that holds a whole
// block: eight pairs a lane of at most 2 * 15 * 127 each are 30,480.
#pragma once

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

#define PREFETCH_AHEAD 2048
#define PREFETCH(w, bytes)                                                                         \
    UNROLL for (int z = 0; z < bytes; z += 64)                                                     \
        _mm_prefetch((const char *)(w) + PREFETCH_AHEAD + z, _MM_HINT_T0)

// The integer sums of one block of `halves` halves of a tile (8 rows each, `w` is the first one's)
// and `rows` inputs.
static inline __attribute__((always_inline)) void whole_of_4_bits(const uint8_t *w,
                                                                  const cpu_panel_block *panel,
                                                                  int halves, int rows,
                                                                  __m256i *whole)
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
    UNROLL for (int i = 0; i < halves * rows; i++) whole[i] = _mm256_madd_epi16(parts[i], ones);
}

// sums += scale * integer sum (+ minimum * the input's sum). `surplus`: by how much the weights are
// too high.
static inline __attribute__((always_inline)) void
add_block(const __m256i *whole, const __m256 *d, const __m256 *m, const cpu_panel_block *panel,
          int halves, int rows, int surplus, bool minima, __m256 *sums)
{
    UNROLL for (int h = 0; h < halves; h++)
    {
        UNROLL for (int r = 0; r < rows; r++)
        {
            __m256i sum = whole[h * rows + r];
            if (surplus != 0)
                sum = _mm256_sub_epi32(sum, _mm256_set1_epi32(surplus * panel->sum[r]));
            __m256 scale = _mm256_mul_ps(d[h], _mm256_set1_ps(panel->d[r]));
            __m256 *at = &sums[h * rows + r];
            *at = _mm256_fmadd_ps(scale, _mm256_cvtepi32_ps(sum), *at);
            if (minima)
                *at = _mm256_fmadd_ps(m[h], _mm256_set1_ps(panel->s[r]), *at);
        }
    }
}

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

// A kernel of the table out of those for 1 to 4 rows.
#define ENTRY(name)                                                                                \
    void cpu_##name##_avx2(const cpu_tile_call *call)                                              \
    {                                                                                              \
        static const cpu_tile_kernel by_rows[] = { name##_1, name##_2, name##_3, name##_4 };       \
        by_rows[call->rows - 1](call);                                                             \
    }
