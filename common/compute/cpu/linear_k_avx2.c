// Tile kernels of the types with 5 and 6 bits and of those with blocks of 256 (K), AVX2: as in
// linear_avx2.c, the weights are the unsigned operand of vpmaddubsw and a lane is an output row.
//
// 5 bits: a 16-bit lane holds 4 groups (4 * 2 * 31 * 127 = 31,496). 6 bits: 2 groups (32,004), and
// vpmaddwd multiplies by the block's two integer scales, which costs no more than by ones; the
// surplus of 32 is taken off with one vpmaddwd of both scales and the input's two half sums.
#include "compute/cpu/linear_avx2.h"
#include "compute/cpu/tiles.h"

#define PLANE_BYTES (T * 4)
#define Q5_BYTES (Q4_BYTES + PLANE_BYTES)
#define Q6_BYTES (Q4_BYTES + 2 * PLANE_BYTES)

// The nibbles of group k (inputs 4k..) of one half of a tile.
static inline __m256i nibbles_at(const uint8_t *w, int k)
{
    __m256i both = bytes_at(w + 64 * (k % 4));
    return _mm256_and_si256(k < 4 ? both : _mm256_srli_epi16(both, 4), _mm256_set1_epi8(15));
}

// x shifted left by `by`, right where that is negative.
static inline __m256i shifted(__m256i x, int by)
{
    return by == 0 ? x : by > 0 ? _mm256_slli_epi16(x, by) : _mm256_srli_epi16(x, -by);
}

static inline __attribute__((always_inline)) void whole_of_5_bits(const uint8_t *w,
                                                                  const cpu_panel_block *panel,
                                                                  int halves, int rows,
                                                                  __m256i *whole)
{
    const __m256i ones = _mm256_set1_epi16(1), fifth = _mm256_set1_epi8(16);
    UNROLL for (int h = 0; h < halves; h++)
    {
        __m256i plane = bytes_at(w + Q4_BYTES + 32 * h);
        UNROLL for (int first = 0; first < 8; first += 4)
        {
            __m256i parts[4];
            UNROLL for (int k = first; k < first + 4; k++)
            {
                __m256i bit = _mm256_and_si256(shifted(plane, 4 - k), fifth);
                __m256i q = _mm256_or_si256(nibbles_at(w + 32 * h, k), bit);
                UNROLL for (int r = 0; r < rows; r++)
                {
                    __m256i part = _mm256_maddubs_epi16(q, inputs_at(panel->q[r] + 4 * k));
                    parts[r] = k == first ? part : _mm256_add_epi16(parts[r], part);
                    HOLD(parts[r]);
                }
            }
            UNROLL for (int r = 0; r < rows; r++)
            {
                __m256i *sum = &whole[h * rows + r], part = _mm256_madd_epi16(parts[r], ones);
                *sum = first == 0 ? part : _mm256_add_epi32(*sum, part);
            }
        }
    }
}

// Signed bytes a[i] and b[i], i < 8, as pairs of 16 bits.
static inline __m256i pairs_of(const uint8_t *a, const uint8_t *b)
{
    __m128i x = _mm_loadl_epi64((const __m128i *)a), y = _mm_loadl_epi64((const __m128i *)b);
    return _mm256_cvtepi8_epi16(_mm_unpacklo_epi8(x, y));
}

// The sum over both scales of scale * (q - 32) * input.
static inline __attribute__((always_inline)) void
whole_of_6_bits(const uint8_t *w, const uint8_t *scales, const cpu_panel_block *panel, int halves,
                int rows, __m256i *whole)
{
    const __m256i high = _mm256_set1_epi8(0x30);
    UNROLL for (int h = 0; h < halves; h++)
    {
        const uint8_t *first = scales + 8 * h, *second = scales + T + 8 * h;
        __m256i both = pairs_of(first, second);
        UNROLL for (int r = 0; r < rows; r++)
        {
            int32_t sums;
            memcpy(&sums, panel->halves[r], 4);
            __m256i surplus = _mm256_madd_epi16(both, _mm256_set1_epi32(sums));
            whole[h * rows + r] =
                _mm256_sub_epi32(_mm256_setzero_si256(), _mm256_slli_epi32(surplus, 5));
        }
        UNROLL for (int k = 0; k < 8; k += 2)
        {
            __m256i plane = bytes_at(w + Q4_BYTES + PLANE_BYTES * (k / 4) + 32 * h);
            __m256i scale = k < 4 ? pairs_of(first, first) : pairs_of(second, second);
            __m256i bits = _mm256_and_si256(shifted(plane, 4 - k % 4 * 2), high);
            __m256i even = _mm256_or_si256(nibbles_at(w + 32 * h, k), bits);
            bits = _mm256_and_si256(shifted(plane, 2 - k % 4 * 2), high);
            __m256i odd = _mm256_or_si256(nibbles_at(w + 32 * h, k + 1), bits);
            UNROLL for (int r = 0; r < rows; r++)
            {
                __m256i part = _mm256_maddubs_epi16(even, inputs_at(panel->q[r] + 4 * k));
                part = _mm256_add_epi16(
                    part, _mm256_maddubs_epi16(odd, inputs_at(panel->q[r] + 4 * k + 4)));
                __m256i *sum = &whole[h * rows + r];
                *sum = _mm256_add_epi32(*sum, _mm256_madd_epi16(part, scale));
                HOLD(*sum);
            }
        }
    }
}

// ---- blocks of 32 -----------------------------------------------------------------------------

static inline __attribute__((always_inline)) void
block_of_5_bits(const uint8_t *w, const uint8_t *scales, const cpu_panel_block *panel, int halves,
                int rows, bool minima, __m256 *sums)
{
    __m256i whole[4];
    __m256 d[2], m[2];
    whole_of_5_bits(w, panel, halves, rows, whole);
    UNROLL for (int h = 0; h < halves; h++)
    {
        d[h] = halves_at(scales + 16 * h);
        m[h] = minima ? halves_at(scales + SCALES_BYTES + 16 * h) : d[h];
    }
    add_block(whole, d, m, panel, halves, rows, minima ? 0 : 16, minima, sums);
}

#define KERNELS_OF_5_BITS(rows, halves)                                                            \
    QUANTISED_KERNEL(q5_0, rows, halves, Q5_BYTES + SCALES_BYTES, Q5_BYTES,                        \
                     block_of_5_bits(w, scales, panel, halves, rows, false, sums))                 \
    QUANTISED_KERNEL(q5_1, rows, halves, Q5_BYTES + 2 * SCALES_BYTES, Q5_BYTES,                    \
                     block_of_5_bits(w, scales, panel, halves, rows, true, sums))

KERNELS_OF_5_BITS(1, 2)
KERNELS_OF_5_BITS(2, 2)
KERNELS_OF_5_BITS(3, 1)
KERNELS_OF_5_BITS(4, 1)
ENTRY(q5_0)
ENTRY(q5_1)

// ---- blocks of 256 ----------------------------------------------------------------------------

// Eight unsigned bytes as float.
static inline __m256 small_at(const uint8_t *p)
{
    return _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)p)));
}

// Eight blocks behind their header: halves `half` .. of a tile column's group.
static inline __attribute__((always_inline)) void group_of_k(const uint8_t *group, int half,
                                                             const cpu_panel_block *panel, int bits,
                                                             int halves, int rows, __m256 *sums)
{
    const bool minima = bits != 6;
    const int quants = bits == 4 ? Q4_BYTES : bits == 5 ? Q5_BYTES : Q6_BYTES;
    const int block = quants + 2 * T;
    __m256 d[2], m[2];
    UNROLL for (int h = 0; h < halves; h++)
    {
        d[h] = halves_at(group + 16 * (half + h));
        m[h] = minima ? halves_at(group + SCALES_BYTES + 16 * (half + h)) : d[h];
    }
    const uint8_t *w = group + (minima ? 2 : 1) * SCALES_BYTES + 32 * half;
    for (int i = 0; i < CPU_K_BLOCKS; i++, w += block, panel++) {
        const uint8_t *scales = w - 32 * half + quants + 8 * half;
        __m256i whole[4];
        __m256 block_d[2], block_m[2];
        if (halves == 2) {
            PREFETCH(w, block);
        }
        if (bits == 4)
            whole_of_4_bits(w, panel, halves, rows, whole);
        else if (bits == 5)
            whole_of_5_bits(w, panel, halves, rows, whole);
        else
            whole_of_6_bits(w, scales, panel, halves, rows, whole);
        UNROLL for (int h = 0; h < halves; h++)
        {
            block_d[h] = minima ? _mm256_mul_ps(d[h], small_at(scales + 8 * h)) : d[h];
            block_m[h] = minima ? _mm256_mul_ps(m[h], small_at(scales + T + 8 * h)) : m[h];
        }
        add_block(whole, block_d, block_m, panel, halves, rows, 0, minima, sums);
    }
}

#define K_KERNEL(name, bits, rows, halves, group_bytes)                                            \
    static void name##_##rows(const cpu_tile_call *call)                                           \
    {                                                                                              \
        for (int pass = 0; pass < call->tiles * (2 / halves); pass++) {                            \
            int tile = pass * halves / 2, half = pass * halves % 2;                                \
            const uint8_t *group = call->weights + tile * call->tile_bytes;                        \
            __m256 sums[halves * rows];                                                            \
            UNROLL for (int i = 0; i < halves * rows; i++) sums[i] = _mm256_setzero_ps();          \
            for (int i = 0; i < call->blocks; i += CPU_K_BLOCKS, group += group_bytes)             \
                group_of_k(group, half, call->panel + i, bits, halves, rows, sums);                \
            float *out = call->out + tile * rows * T + 8 * half;                                   \
            UNROLL for (int h = 0; h < halves; h++) UNROLL for (int r = 0; r < rows; r++)          \
                _mm256_storeu_ps(out + r * T + 8 * h, sums[h * rows + r]);                         \
        }                                                                                          \
    }

#define K_KERNELS(rows, halves)                                                                    \
    K_KERNEL(q4_k, 4, rows, halves, 2 * SCALES_BYTES + CPU_K_BLOCKS * (Q4_BYTES + 2 * T))          \
    K_KERNEL(q5_k, 5, rows, halves, 2 * SCALES_BYTES + CPU_K_BLOCKS * (Q5_BYTES + 2 * T))          \
    K_KERNEL(q6_k, 6, rows, halves, SCALES_BYTES + CPU_K_BLOCKS * (Q6_BYTES + 2 * T))

K_KERNELS(1, 2)
K_KERNELS(2, 2)
K_KERNELS(3, 1)
K_KERNELS(4, 1)
ENTRY(q4_k)
ENTRY(q5_k)
ENTRY(q6_k)
