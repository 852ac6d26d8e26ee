// One float at a time: the readable form of the vector operations that the row and attention
// kernels are written in (kernels.h). vector_avx2.h and vector_avx512.h define the same names for 8
// and 16.
//
// A multiply-add rounds twice here and once there, so levels differ in the last bits; within a
// level every operation is the same instruction on every CPU.
#pragma once

#include "compute/cpu/cpu.h"
#include "compute/tensor.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

#define LEVEL(name) name##_scalar
#define VF_LANES 1

typedef float vf;

static inline vf vf_set(float x)
{
    return x;
}
static inline vf vf_load(const float *p)
{
    return *p;
}
static inline void vf_store(float *p, vf x)
{
    *p = x;
}
static inline vf vf_add(vf a, vf b)
{
    return a + b;
}
static inline vf vf_sub(vf a, vf b)
{
    return a - b;
}
static inline vf vf_mul(vf a, vf b)
{
    return a * b;
}
static inline vf vf_div(vf a, vf b)
{
    return a / b;
}
// a * b + c
static inline vf vf_fma(vf a, vf b, vf c)
{
    return a * b + c;
}
// The larger; b where either is a NaN.
static inline vf vf_max(vf a, vf b)
{
    return a > b ? a : b;
}
// The smaller; b where either is a NaN.
static inline vf vf_min(vf a, vf b)
{
    return a < b ? a : b;
}
// 2^n for the whole number n that magic + n holds in its low bits (see vf_exp).
static inline vf vf_power_of_two(vf magic_n)
{
    uint32_t bits;
    memcpy(&bits, &magic_n, 4);
    bits = (bits + 127) << 23;
    memcpy(&magic_n, &bits, 4);
    return magic_n;
}
// x, or 0 where a < b.
static inline vf vf_zero_where_less(vf a, vf b, vf x)
{
    return a < b ? 0 : x;
}
static inline float vf_sum(vf x)
{
    return x;
}
static inline float vf_largest(vf x)
{
    return x;
}
static inline vf vf_load_f16(const uint16_t *p)
{
    return tensor_f16_to_f32(*p);
}
// Rounded to nearest even.
static inline void vf_store_f16(uint16_t *p, vf x)
{
    *p = tensor_f32_to_f16(x);
}
static inline vf vf_load_bf16(const uint16_t *p)
{
    uint32_t bits = (uint32_t)*p << 16;
    float x;
    memcpy(&x, &bits, 4);
    return x;
}

// The e4m3 number of that byte times 2^-8.
static inline vf vf_load_f8(const uint8_t *p)
{
    return tensor_f16_to_f32((uint16_t)((*p & 0x80) << 8 | (*p & 0x7f) << 7));
}

// Numbers of pairs that lie side by side: the first ones of as many pairs as there are lanes, and
// the second ones.
static inline void vf_load_pairs(const float *p, vf *first, vf *second)
{
    *first = p[0];
    *second = p[1];
}
static inline void vf_store_pairs(float *p, vf first, vf second)
{
    p[0] = first;
    p[1] = second;
}

// Integers: each lane is an int32_t, or a pair of int16_t.
typedef int32_t vi;

static inline vi vi_zero(void)
{
    return 0;
}
static inline vi vi_pair(int16_t low, int16_t high)
{
    return (int32_t)((uint32_t)(uint16_t)low | (uint32_t)(uint16_t)high << 16);
}
// Pairs from twice as many bytes.
static inline vi vi_load_i8(const int8_t *p)
{
    return vi_pair(p[0], p[1]);
}
static inline vi vi_load_i16(const int16_t *p)
{
    return vi_pair(p[0], p[1]);
}
static inline void vi_store_i16(int16_t *p, vi pairs)
{
    memcpy(p, &pairs, sizeof pairs);
}
// The same pair in every lane.
static inline vi vi_set_pair(const int16_t *p)
{
    return vi_pair(p[0], p[1]);
}
// sum + a.low * b.low + a.high * b.high
static inline vi vi_dot(vi sum, vi a, vi b)
{
    return sum + (int16_t)(a & 0xffff) * (int16_t)(b & 0xffff) + (a >> 16) * (b >> 16);
}
static inline vf vi_to_float(vi a)
{
    return (float)a;
}
// Rounded to nearest even, |x| <= 32767; unspecified for what is not a number.
static inline void vf_store_i16(int16_t *p, vf x)
{
    float shifted = x + 0x1.8p23f;
    int32_t bits;
    memcpy(&bits, &shifted, 4);
    *p = (int16_t)(uint16_t)(bits & 0xffff);
}

// What follows works on four blocks of 32 numbers. most[b]: the largest |x| of block b by its bits,
// so that infinity and NaN win.
static inline void largest_magnitudes(const float *x, float *most)
{
    for (int b = 0; b < 4; b++) {
        uint32_t largest = 0;
        for (int i = 0; i < 32; i++) {
            uint32_t bits;
            memcpy(&bits, x + 32 * b + i, 4);
            bits &= 0x7fffffff;
            largest = bits > largest ? bits : largest;
        }
        memcpy(most + b, &largest, 4);
    }
}

// d = most / 127 and inverse = 127 / most; both 0 below CPU_QUANTISED_LEAST. Of what is not finite
// the inverse is 0 too: the scale says that these are no numbers, and it alone.
static inline void scales_of(const float *most, float *d, float *inverse)
{
    for (int b = 0; b < 4; b++) {
        d[b] = most[b] < CPU_QUANTISED_LEAST ? 0 : most[b] / 127.0f;
        inverse[b] = most[b] < CPU_QUANTISED_LEAST || !(most[b] < INFINITY) ? 0 : 127.0f / most[b];
    }
}

// q[b][i] = x * inverse[b] rounded to nearest even, |x * inverse| <= 127.5; sums[b] of them, and of
// inputs 0..15 low and 16..31 high in halves[b]. Unspecified where x is not finite.
static inline void round_blocks(const float *x, const float *inverse, int8_t *const *q,
                                int32_t *sums, int32_t *halves)
{
    for (int b = 0; b < 4; b++) {
        int32_t half[2] = { 0, 0 };
        for (int i = 0; i < 32; i++) {
            float shifted = x[32 * b + i] * inverse[b] + 0x1.8p23f;
            int32_t bits;
            memcpy(&bits, &shifted, 4);
            q[b][i] = (int8_t)(uint8_t)(bits & 0xff);
            half[i / 16] += q[b][i];
        }
        sums[b] = half[0] + half[1];
        halves[b] = vi_pair((int16_t)half[0], (int16_t)half[1]);
    }
}
