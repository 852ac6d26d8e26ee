// The quantiser's block of 32 numbers in 256-bit registers, for the AVX2 and AVX-512 levels alike.
#pragma once

#include <immintrin.h>
#include <stdint.h>

// max |x[i]| over x[0..32). Magnitudes compare as integers, so a NaN (larger than every number)
// wins and is returned.
static inline float largest_magnitude(const float *x)
{
    const __m256i magnitude = _mm256_set1_epi32(0x7fffffff);
    __m256i most = _mm256_setzero_si256();
    for (int i = 0; i < 32; i += 8)
        most = _mm256_max_epi32(
            most, _mm256_and_si256(_mm256_loadu_si256((const __m256i *)(x + i)), magnitude));
    __m128i y = _mm_max_epi32(_mm256_castsi256_si128(most), _mm256_extracti128_si256(most, 1));
    y = _mm_max_epi32(y, _mm_shuffle_epi32(y, 0x4e));
    y = _mm_max_epi32(y, _mm_shuffle_epi32(y, 0xb1));
    return _mm_cvtss_f32(_mm_castsi128_ps(y));
}

// q[i] = round(x[i] * factor), to nearest even, for i in 0..32; returns the sum of q, and the sum
// of its first 16 in *half.
static inline int32_t quantise_block(const float *x, float factor, int8_t *q, int32_t *half)
{
    __m256 f = _mm256_set1_ps(factor);
    __m256i n[4];
    for (int i = 0; i < 4; i++)
        n[i] = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x + 8 * i), f));
    // Packing works within 128-bit halves: put the groups of four back in order.
    __m256i bytes =
        _mm256_packs_epi16(_mm256_packs_epi32(n[0], n[1]), _mm256_packs_epi32(n[2], n[3]));
    bytes = _mm256_permutevar8x32_epi32(bytes, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
    _mm256_storeu_si256((__m256i *)q, bytes);
    // Sums of inputs 0..15 and 16..31 side by side, then over the lanes.
    __m256i sums = _mm256_hadd_epi32(_mm256_add_epi32(n[0], n[1]), _mm256_add_epi32(n[2], n[3]));
    sums = _mm256_hadd_epi32(sums, sums);
    __m128i y = _mm_add_epi32(_mm256_castsi256_si128(sums), _mm256_extracti128_si256(sums, 1));
    *half = _mm_cvtsi128_si32(y);
    return (int32_t)((uint32_t)*half + (uint32_t)_mm_extract_epi32(y, 1));
}
