// Sixteen floats at a time; see vector_scalar.h for what each name promises.
#pragma once

#include "compute/cpu/vector_256.h"
#include "compute/tensor.h"

#include <immintrin.h>
#include <stdint.h>
#include <string.h>

#define LEVEL(name) name##_avx512
#define VF_LANES 16

typedef __m512 vf;

static inline vf vf_set(float x)
{
    return _mm512_set1_ps(x);
}
static inline vf vf_load(const float *p)
{
    return _mm512_loadu_ps(p);
}
static inline void vf_store(float *p, vf x)
{
    _mm512_storeu_ps(p, x);
}
static inline vf vf_add(vf a, vf b)
{
    return _mm512_add_ps(a, b);
}
static inline vf vf_sub(vf a, vf b)
{
    return _mm512_sub_ps(a, b);
}
static inline vf vf_mul(vf a, vf b)
{
    return _mm512_mul_ps(a, b);
}
static inline vf vf_div(vf a, vf b)
{
    return _mm512_div_ps(a, b);
}
static inline vf vf_fma(vf a, vf b, vf c)
{
    return _mm512_fmadd_ps(a, b, c);
}
static inline vf vf_max(vf a, vf b)
{
    return _mm512_max_ps(a, b);
}
static inline vf vf_min(vf a, vf b)
{
    return _mm512_min_ps(a, b);
}
static inline vf vf_power_of_two(vf magic_n)
{
    __m512i n = _mm512_add_epi32(_mm512_castps_si512(magic_n), _mm512_set1_epi32(127));
    return _mm512_castsi512_ps(_mm512_slli_epi32(n, 23));
}
static inline vf vf_zero_where_less(vf a, vf b, vf x)
{
    return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(a, b, _CMP_NLT_UQ), x);
}
static inline float vf_sum(vf x)
{
    __m256 half = _mm256_add_ps(_mm512_castps512_ps256(x), _mm512_extractf32x8_ps(x, 1));
    __m128 y = _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
    y = _mm_add_ps(y, _mm_movehl_ps(y, y));
    return _mm_cvtss_f32(_mm_add_ss(y, _mm_movehdup_ps(y)));
}
static inline float vf_largest(vf x)
{
    __m256 half = _mm256_max_ps(_mm512_castps512_ps256(x), _mm512_extractf32x8_ps(x, 1));
    __m128 y = _mm_max_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
    y = _mm_max_ps(y, _mm_movehl_ps(y, y));
    return _mm_cvtss_f32(_mm_max_ss(y, _mm_movehdup_ps(y)));
}
static inline vf vf_load_f16(const uint16_t *p)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p));
}
static inline void vf_store_f16(uint16_t *p, vf x)
{
    _mm256_storeu_si256((__m256i *)p, _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT));
}
static inline vf vf_load_bf16(const uint16_t *p)
{
    __m512i wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)p));
    return _mm512_castsi512_ps(_mm512_slli_epi32(wide, 16));
}
static inline vf vf_load_f8(const uint8_t *p)
{
    __m256i wide = _mm256_slli_epi16(_mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)p)), 7);
    return _mm512_cvtph_ps(_mm256_and_si256(wide, _mm256_set1_epi16((short)0xbfff)));
}
static inline void vf_load_pairs(const float *p, vf *first, vf *second)
{
    __m512 low = _mm512_loadu_ps(p), high = _mm512_loadu_ps(p + 16);
    const __m512i even =
        _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    *first = _mm512_permutex2var_ps(low, even, high);
    *second = _mm512_permutex2var_ps(low, _mm512_add_epi32(even, _mm512_set1_epi32(1)), high);
}
static inline void vf_store_pairs(float *p, vf first, vf second)
{
    const __m512i low = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
    const __m512i high = _mm512_add_epi32(low, _mm512_set1_epi32(8));
    _mm512_storeu_ps(p, _mm512_permutex2var_ps(first, low, second));
    _mm512_storeu_ps(p + 16, _mm512_permutex2var_ps(first, high, second));
}

// Lanes of int, as vpdpwssd has them: gcc leaves arrays of __m512i, whose lanes are long long, in
// memory.
#ifdef __m512i // emulated
typedef __m512i vi;
#define VI(x) (x)
#define M512I(x) (x)
#else
typedef int vi __attribute__((vector_size(64)));
#define VI(x) ((vi)(x))
#define M512I(x) ((__m512i)(x))
#endif

static inline vi vi_zero(void)
{
    return VI(_mm512_setzero_si512());
}
static inline vi vi_load_i8(const int8_t *p)
{
    return VI(_mm512_cvtepi8_epi16(_mm256_loadu_si256((const __m256i *)p)));
}
static inline vi vi_load_i16(const int16_t *p)
{
    return VI(_mm512_loadu_si512(p));
}
static inline void vi_store_i16(int16_t *p, vi pairs)
{
    _mm512_storeu_si512(p, M512I(pairs));
}
static inline vi vi_set_pair(const int16_t *p)
{
    int32_t pair;
    memcpy(&pair, p, sizeof pair);
    return VI(_mm512_set1_epi32(pair));
}
static inline vi vi_dot(vi sum, vi a, vi b)
{
    return VI(_mm512_dpwssd_epi32(M512I(sum), M512I(a), M512I(b)));
}
static inline vf vi_to_float(vi a)
{
    return _mm512_cvtepi32_ps(M512I(a));
}
static inline void vf_store_i16(int16_t *p, vf x)
{
    _mm256_storeu_si256((__m256i *)p, _mm512_cvtsepi32_epi16(_mm512_cvtps_epi32(x)));
}
