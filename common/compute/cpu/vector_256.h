// The quantiser's four blocks of 32 numbers in 256-bit registers, for the AVX2 and AVX-512 levels
// alike; see vector_scalar.h for what each name promises. Four at once, because what ends a block
// (its largest, two divisions, its sums) fills a quarter of a register.
#pragma once

#include "compute/cpu/cpu.h"

#include <immintrin.h>
#include <math.h>

// The largest of 8 lanes to 4.
static inline __m128i fold_256(__m256i x)
{
    return _mm_max_epi32(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));
}

// Lane b is the largest of four lanes of x[b].
static inline __m128 largest_of_each(const __m128i x[4])
{
    __m128i ab = _mm_max_epi32(_mm_unpacklo_epi32(x[0], x[1]), _mm_unpackhi_epi32(x[0], x[1]));
    __m128i cd = _mm_max_epi32(_mm_unpacklo_epi32(x[2], x[3]), _mm_unpackhi_epi32(x[2], x[3]));
    return _mm_castsi128_ps(_mm_max_epi32(_mm_unpacklo_epi64(ab, cd), _mm_unpackhi_epi64(ab, cd)));
}

static inline void largest_magnitudes(const float *x, float *most)
{
    const __m256i magnitude = _mm256_set1_epi32(0x7fffffff);
    __m128i each[4];
    for (int b = 0; b < 4; b++) {
        __m256i y = _mm256_setzero_si256();
        for (int i = 0; i < 32; i += 8)
            y = _mm256_max_epi32(
                y,
                _mm256_and_si256(_mm256_loadu_si256((const __m256i *)(x + 32 * b + i)), magnitude));
        each[b] = fold_256(y);
    }
    _mm_storeu_ps(most, largest_of_each(each));
}

static inline void scales_of(const float *most, float *d, float *inverse)
{
    const __m128 unit = _mm_set1_ps(127);
    __m128 x = _mm_loadu_ps(most), tiny = _mm_cmplt_ps(x, _mm_set1_ps(CPU_QUANTISED_LEAST));
    __m128 infinite = _mm_cmpnlt_ps(x, _mm_set1_ps(INFINITY));
    _mm_storeu_ps(d, _mm_andnot_ps(tiny, _mm_div_ps(x, unit)));
    _mm_storeu_ps(inverse, _mm_andnot_ps(_mm_or_ps(tiny, infinite), _mm_div_ps(unit, x)));
}

static inline void round_blocks(const float *x, const float *inverse, int8_t *const *q,
                                int32_t *sums, int32_t *halves)
{
    __m256i fours[4];
    for (int b = 0; b < 4; b++) {
        __m256 f = _mm256_set1_ps(inverse[b]);
        __m256i n[4];
        for (int i = 0; i < 4; i++)
            n[i] = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x + 32 * b + 8 * i), f));
        __m256i bytes =
            _mm256_packs_epi16(_mm256_packs_epi32(n[0], n[1]), _mm256_packs_epi32(n[2], n[3]));
        // Packing works within 128-bit halves: put the groups of four back in order.
        bytes = _mm256_permutevar8x32_epi32(bytes, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
        _mm256_storeu_si256((__m256i *)q[b], bytes);
        // Sums of four: a pair's is at most 256, far from overflow.
        fours[b] = _mm256_madd_epi16(_mm256_maddubs_epi16(_mm256_set1_epi8(1), bytes),
                                     _mm256_set1_epi16(1));
    }
    __m256i both = _mm256_hadd_epi32(_mm256_hadd_epi32(fours[0], fours[1]),
                                     _mm256_hadd_epi32(fours[2], fours[3]));
    __m128i first = _mm256_castsi256_si128(both), second = _mm256_extracti128_si256(both, 1);
    _mm_storeu_si128((__m128i *)sums, _mm_add_epi32(first, second));
    _mm_storeu_si128((__m128i *)halves, _mm_blend_epi16(first, _mm_slli_epi32(second, 16), 0xaa));
}
