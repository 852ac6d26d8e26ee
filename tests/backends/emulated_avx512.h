// The AVX-512 intrinsics that the CPU backend uses, each as two AVX2 halves (vpdpbusd as the sum of
// four products that its definition gives). Force-included (-include) when the AVX-512 kernels are
// compiled for compute-emulated-*, so that their very source is executed on machines that lack the
// instructions. Definitions: Intel 64 and IA-32 Architectures Software Developer's Manual,
// volume 2.
#pragma once

#include <immintrin.h>
#include <stdint.h>
#include <string.h>

typedef struct emulated_floats {
    __m256 low, high;
} emulated_floats;
typedef struct emulated_integers {
    __m256i low, high;
} emulated_integers;

#define EMULATED_FLOATS_1(name, op)                                                                \
    static inline emulated_floats emulated_##name(emulated_floats a, emulated_floats b)            \
    {                                                                                              \
        return (emulated_floats){ op(a.low, b.low), op(a.high, b.high) };                          \
    }
EMULATED_FLOATS_1(add_ps, _mm256_add_ps)
EMULATED_FLOATS_1(sub_ps, _mm256_sub_ps)
EMULATED_FLOATS_1(mul_ps, _mm256_mul_ps)
EMULATED_FLOATS_1(div_ps, _mm256_div_ps)
EMULATED_FLOATS_1(max_ps, _mm256_max_ps)
EMULATED_FLOATS_1(min_ps, _mm256_min_ps)

#define EMULATED_INTEGERS_1(name, op)                                                              \
    static inline emulated_integers emulated_##name(emulated_integers a, emulated_integers b)      \
    {                                                                                              \
        return (emulated_integers){ op(a.low, b.low), op(a.high, b.high) };                        \
    }
EMULATED_INTEGERS_1(add_epi32, _mm256_add_epi32)
EMULATED_INTEGERS_1(add_epi8, _mm256_add_epi8)
EMULATED_INTEGERS_1(sub_epi32, _mm256_sub_epi32)
EMULATED_INTEGERS_1(and_si512, _mm256_and_si256)
EMULATED_INTEGERS_1(or_si512, _mm256_or_si256)
EMULATED_INTEGERS_1(xor_si512, _mm256_xor_si256)

static inline emulated_floats emulated_fmadd_ps(emulated_floats a, emulated_floats b,
                                                emulated_floats c)
{
    return (emulated_floats){ _mm256_fmadd_ps(a.low, b.low, c.low),
                              _mm256_fmadd_ps(a.high, b.high, c.high) };
}
static inline emulated_floats emulated_set1_ps(float x)
{
    return (emulated_floats){ _mm256_set1_ps(x), _mm256_set1_ps(x) };
}
static inline emulated_floats emulated_setzero_ps(void)
{
    return emulated_set1_ps(0);
}
static inline emulated_floats emulated_loadu_ps(const float *p)
{
    return (emulated_floats){ _mm256_loadu_ps(p), _mm256_loadu_ps(p + 8) };
}
static inline void emulated_storeu_ps(float *p, emulated_floats x)
{
    _mm256_storeu_ps(p, x.low);
    _mm256_storeu_ps(p + 8, x.high);
}
static inline uint16_t emulated_not_less_mask(emulated_floats a, emulated_floats b)
{
    return (uint16_t)(_mm256_movemask_ps(_mm256_cmp_ps(a.low, b.low, _CMP_NLT_UQ)) |
                      _mm256_movemask_ps(_mm256_cmp_ps(a.high, b.high, _CMP_NLT_UQ)) << 8);
}
static inline emulated_floats emulated_maskz_mov_ps(uint16_t mask, emulated_floats x)
{
    float lanes[16];
    emulated_storeu_ps(lanes, x);
    for (int i = 0; i < 16; i++)
        if ((mask >> i & 1) == 0)
            lanes[i] = 0;
    return emulated_loadu_ps(lanes);
}
static inline emulated_integers emulated_set1_epi32(int x)
{
    return (emulated_integers){ _mm256_set1_epi32(x), _mm256_set1_epi32(x) };
}
static inline emulated_integers emulated_set1_epi8(char x)
{
    return (emulated_integers){ _mm256_set1_epi8(x), _mm256_set1_epi8(x) };
}
static inline emulated_integers emulated_setzero_si512(void)
{
    return emulated_set1_epi32(0);
}
static inline emulated_integers emulated_loadu_si512(const void *p)
{
    return (emulated_integers){ _mm256_loadu_si256((const __m256i *)p),
                                _mm256_loadu_si256((const __m256i *)p + 1) };
}
static inline emulated_integers emulated_slli_epi32(emulated_integers a, unsigned count)
{
    return (emulated_integers){ _mm256_slli_epi32(a.low, (int)count),
                                _mm256_slli_epi32(a.high, (int)count) };
}
static inline emulated_integers emulated_srli_epi16(emulated_integers a, unsigned count)
{
    return (emulated_integers){ _mm256_srli_epi16(a.low, (int)count),
                                _mm256_srli_epi16(a.high, (int)count) };
}
static inline emulated_integers emulated_slli_epi16(emulated_integers a, unsigned count)
{
    return (emulated_integers){ _mm256_slli_epi16(a.low, (int)count),
                                _mm256_slli_epi16(a.high, (int)count) };
}
static inline emulated_integers emulated_cvtepu8_epi32(__m128i a)
{
    return (emulated_integers){ _mm256_cvtepu8_epi32(a),
                                _mm256_cvtepu8_epi32(_mm_srli_si128(a, 8)) };
}
static inline emulated_integers emulated_cvtepi8_epi32(__m128i a)
{
    return (emulated_integers){ _mm256_cvtepi8_epi32(a),
                                _mm256_cvtepi8_epi32(_mm_srli_si128(a, 8)) };
}
static inline emulated_floats emulated_castsi512_ps(emulated_integers a)
{
    return (emulated_floats){ _mm256_castsi256_ps(a.low), _mm256_castsi256_ps(a.high) };
}
static inline emulated_integers emulated_castps_si512(emulated_floats a)
{
    return (emulated_integers){ _mm256_castps_si256(a.low), _mm256_castps_si256(a.high) };
}
static inline emulated_floats emulated_cvtepi32_ps(emulated_integers a)
{
    return (emulated_floats){ _mm256_cvtepi32_ps(a.low), _mm256_cvtepi32_ps(a.high) };
}
static inline emulated_floats emulated_cvtph_ps(__m256i a)
{
    return (emulated_floats){ _mm256_cvtph_ps(_mm256_castsi256_si128(a)),
                              _mm256_cvtph_ps(_mm256_extracti128_si256(a, 1)) };
}
static inline __m256i emulated_to_halves(emulated_floats a)
{
    __m128i low = _mm256_cvtps_ph(a.low, _MM_FROUND_TO_NEAREST_INT);
    __m128i high = _mm256_cvtps_ph(a.high, _MM_FROUND_TO_NEAREST_INT);
    return _mm256_set_m128i(high, low);
}
static inline emulated_integers emulated_cvtepu16_epi32(__m256i a)
{
    return (emulated_integers){ _mm256_cvtepu16_epi32(_mm256_castsi256_si128(a)),
                                _mm256_cvtepu16_epi32(_mm256_extracti128_si256(a, 1)) };
}
// Four unsigned times signed bytes, summed without saturation into the 32-bit lane.
static inline emulated_integers emulated_dpbusd_epi32(emulated_integers sum, emulated_integers a,
                                                      emulated_integers b)
{
    int32_t sums[16];
    uint8_t x[64];
    int8_t y[64];
    memcpy(sums, &sum, 64);
    memcpy(x, &a, 64);
    memcpy(y, &b, 64);
    for (int i = 0; i < 64; i++)
        sums[i / 4] += x[i] * y[i];
    memcpy(&sum, sums, 64);
    return sum;
}

// Two signed products of 16-bit numbers, summed into the 32-bit lane.
static inline emulated_integers emulated_dpwssd_epi32(emulated_integers sum, emulated_integers a,
                                                      emulated_integers b)
{
    return (emulated_integers){ _mm256_add_epi32(sum.low, _mm256_madd_epi16(a.low, b.low)),
                                _mm256_add_epi32(sum.high, _mm256_madd_epi16(a.high, b.high)) };
}
static inline emulated_integers emulated_cvtepi8_epi16(__m256i a)
{
    return (emulated_integers){ _mm256_cvtepi8_epi16(_mm256_castsi256_si128(a)),
                                _mm256_cvtepi8_epi16(_mm256_extracti128_si256(a, 1)) };
}
static inline emulated_integers emulated_cvtps_epi32(emulated_floats a)
{
    return (emulated_integers){ _mm256_cvtps_epi32(a.low), _mm256_cvtps_epi32(a.high) };
}
static inline __m256i emulated_cvtsepi32_epi16(emulated_integers a)
{
    return _mm256_permute4x64_epi64(_mm256_packs_epi32(a.low, a.high), 0xd8);
}
static inline void emulated_storeu_si512(void *p, emulated_integers a)
{
    _mm256_storeu_si256((__m256i *)p, a.low);
    _mm256_storeu_si256((__m256i *)p + 1, a.high);
}

static inline emulated_integers emulated_setr_epi32(int a, int b, int c, int d, int e, int f, int g,
                                                    int h, int i, int j, int k, int l, int m, int n,
                                                    int o, int p)
{
    return (emulated_integers){ _mm256_setr_epi32(a, b, c, d, e, f, g, h),
                                _mm256_setr_epi32(i, j, k, l, m, n, o, p) };
}
// Lane i is lane index[i] of the 32 of `a` and `b`.
static inline emulated_floats emulated_permutex2var_ps(emulated_floats a, emulated_integers index,
                                                       emulated_floats b)
{
    float from[32], lanes[16];
    int32_t at[16];
    emulated_storeu_ps(from, a);
    emulated_storeu_ps(from + 16, b);
    emulated_storeu_si512(at, index);
    for (int i = 0; i < 16; i++)
        lanes[i] = from[at[i] & 31];
    return emulated_loadu_ps(lanes);
}

#define __m512 emulated_floats
#define __m512i emulated_integers
#define _mm512_add_ps emulated_add_ps
#define _mm512_sub_ps emulated_sub_ps
#define _mm512_mul_ps emulated_mul_ps
#define _mm512_div_ps emulated_div_ps
#define _mm512_max_ps emulated_max_ps
#define _mm512_min_ps emulated_min_ps
#undef _mm512_cvtps_ph
#define _mm512_cvtps_ph(a, how)                                                                    \
    ((void)sizeof(char[(how) == _MM_FROUND_TO_NEAREST_INT ? 1 : -1]), emulated_to_halves(a))
#define _mm512_fmadd_ps emulated_fmadd_ps
#define _mm512_set1_ps emulated_set1_ps
#define _mm512_setzero_ps emulated_setzero_ps
#define _mm512_loadu_ps emulated_loadu_ps
#define _mm512_storeu_ps emulated_storeu_ps
// The one comparison in use.
#undef _mm512_cmp_ps_mask
#define _mm512_cmp_ps_mask(a, b, how)                                                              \
    ((void)sizeof(char[(how) == _CMP_NLT_UQ ? 1 : -1]), emulated_not_less_mask(a, b))
#define _mm512_maskz_mov_ps emulated_maskz_mov_ps
#define _mm512_castps512_ps256(x) ((x).low)
#undef _mm512_extractf32x8_ps
#define _mm512_extractf32x8_ps(x, half) ((half) == 1 ? (x).high : (x).low)
#define _mm512_add_epi32 emulated_add_epi32
#define _mm512_add_epi8 emulated_add_epi8
#define _mm512_sub_epi32 emulated_sub_epi32
#define _mm512_and_si512 emulated_and_si512
#define _mm512_or_si512 emulated_or_si512
#define _mm512_xor_si512 emulated_xor_si512
#define _mm512_set1_epi32 emulated_set1_epi32
#define _mm512_set1_epi8 emulated_set1_epi8
#define _mm512_setzero_si512 emulated_setzero_si512
#define _mm512_loadu_si512 emulated_loadu_si512
#define _mm512_slli_epi32 emulated_slli_epi32
#define _mm512_srli_epi16 emulated_srli_epi16
#define _mm512_slli_epi16 emulated_slli_epi16
#define _mm512_cvtepu8_epi32 emulated_cvtepu8_epi32
#define _mm512_cvtepi8_epi32 emulated_cvtepi8_epi32
#define _mm512_castsi512_ps emulated_castsi512_ps
#define _mm512_castps_si512 emulated_castps_si512
#define _mm512_cvtepi32_ps emulated_cvtepi32_ps
#define _mm512_cvtph_ps emulated_cvtph_ps
#define _mm512_cvtepu16_epi32 emulated_cvtepu16_epi32
#define _mm512_dpbusd_epi32 emulated_dpbusd_epi32
#define _mm512_dpwssd_epi32 emulated_dpwssd_epi32
#define _mm512_cvtepi8_epi16 emulated_cvtepi8_epi16
#define _mm512_cvtps_epi32 emulated_cvtps_epi32
#define _mm512_cvtsepi32_epi16 emulated_cvtsepi32_epi16
#define _mm512_storeu_si512 emulated_storeu_si512
#undef _mm512_setr_epi32
#define _mm512_setr_epi32 emulated_setr_epi32
#define _mm512_permutex2var_ps emulated_permutex2var_ps
