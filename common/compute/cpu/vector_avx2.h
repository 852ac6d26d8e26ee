// Eight floats at a time; see vector_scalar.h for what each name promises.
#pragma once

#include "compute/cpu/vector_256.h"
#include "compute/tensor.h"

#include <immintrin.h>
#include <stdint.h>
#include <string.h>

#define LEVEL(name) name##_avx2
#define VF_LANES 8

typedef __m256 vf;

static inline vf vf_set(float x)
{
    return _mm256_set1_ps(x);
}
static inline vf vf_load(const float *p)
{
    return _mm256_loadu_ps(p);
}
static inline void vf_store(float *p, vf x)
{
    _mm256_storeu_ps(p, x);
}
static inline vf vf_add(vf a, vf b)
{
    return _mm256_add_ps(a, b);
}
static inline vf vf_sub(vf a, vf b)
{
    return _mm256_sub_ps(a, b);
}
static inline vf vf_mul(vf a, vf b)
{
    return _mm256_mul_ps(a, b);
}
static inline vf vf_div(vf a, vf b)
{
    return _mm256_div_ps(a, b);
}
static inline vf vf_fma(vf a, vf b, vf c)
{
    return _mm256_fmadd_ps(a, b, c);
}
static inline vf vf_max(vf a, vf b)
{
    return _mm256_max_ps(a, b);
}
static inline vf vf_min(vf a, vf b)
{
    return _mm256_min_ps(a, b);
}
static inline vf vf_power_of_two(vf magic_n)
{
    __m256i n = _mm256_add_epi32(_mm256_castps_si256(magic_n), _mm256_set1_epi32(127));
    return _mm256_castsi256_ps(_mm256_slli_epi32(n, 23));
}
static inline vf vf_zero_where_less(vf a, vf b, vf x)
{
    return _mm256_andnot_ps(_mm256_cmp_ps(a, b, _CMP_LT_OQ), x);
}
static inline float vf_sum(vf x)
{
    __m128 y = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    y = _mm_add_ps(y, _mm_movehl_ps(y, y));
    return _mm_cvtss_f32(_mm_add_ss(y, _mm_movehdup_ps(y)));
}
static inline float vf_largest(vf x)
{
    __m128 y = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    y = _mm_max_ps(y, _mm_movehl_ps(y, y));
    return _mm_cvtss_f32(_mm_max_ss(y, _mm_movehdup_ps(y)));
}
static inline vf vf_load_f16(const uint16_t *p)
{
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p));
}
static inline void vf_store_f16(uint16_t *p, vf x)
{
    _mm_storeu_si128((__m128i *)p, _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT));
}
static inline vf vf_load_bf16(const uint16_t *p)
{
    __m256i wide = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)p));
    return _mm256_castsi256_ps(_mm256_slli_epi32(wide, 16));
}
static inline vf vf_load_f8(const uint8_t *p)
{
    __m128i wide = _mm_slli_epi16(_mm_cvtepi8_epi16(_mm_loadl_epi64((const __m128i *)p)), 7);
    return _mm256_cvtph_ps(_mm_and_si128(wide, _mm_set1_epi16((short)0xbfff)));
}
static inline void vf_load_pairs(const float *p, vf *first, vf *second)
{
    __m256 low = _mm256_loadu_ps(p), high = _mm256_loadu_ps(p + 8);
    __m256 even = _mm256_shuffle_ps(low, high, 0x88), odd = _mm256_shuffle_ps(low, high, 0xdd);
    *first = _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(even), 0xd8));
    *second = _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(odd), 0xd8));
}
static inline void vf_store_pairs(float *p, vf first, vf second)
{
    __m256 low = _mm256_unpacklo_ps(first, second), high = _mm256_unpackhi_ps(first, second);
    _mm256_storeu_ps(p, _mm256_permute2f128_ps(low, high, 0x20));
    _mm256_storeu_ps(p + 8, _mm256_permute2f128_ps(low, high, 0x31));
}

typedef int vi __attribute__((vector_size(32))); // why not __m256i: see vector_avx512.h

static inline vi vi_zero(void)
{
    return (vi)_mm256_setzero_si256();
}
static inline vi vi_load_i8(const int8_t *p)
{
    return (vi)_mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)p));
}
static inline vi vi_load_i16(const int16_t *p)
{
    return (vi)_mm256_loadu_si256((const __m256i *)p);
}
static inline void vi_store_i16(int16_t *p, vi pairs)
{
    _mm256_storeu_si256((__m256i *)p, (__m256i)pairs);
}
static inline vi vi_set_pair(const int16_t *p)
{
    int32_t pair;
    memcpy(&pair, p, sizeof pair);
    return (vi)_mm256_set1_epi32(pair);
}
static inline vi vi_dot(vi sum, vi a, vi b)
{
    return sum + (vi)_mm256_madd_epi16((__m256i)a, (__m256i)b);
}
static inline vf vi_to_float(vi a)
{
    return _mm256_cvtepi32_ps((__m256i)a);
}
static inline void vf_store_i16(int16_t *p, vf x)
{
    __m256i n = _mm256_cvtps_epi32(x);
    _mm_storeu_si128((__m128i *)p,
                     _mm_packs_epi32(_mm256_castsi256_si128(n), _mm256_extracti128_si256(n, 1)));
}
