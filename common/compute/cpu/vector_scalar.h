// One float at a time: the readable form of the vector operations that the row and attention
// kernels are written in (kernels.h). vector_avx2.h and vector_avx512.h define the same names for 8
// and 16.
//
// A multiply-add rounds twice here and once there, so levels differ in the last bits; within a
// level every operation is the same instruction on every CPU.
#pragma once

#include "compute/tensor.h"

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

// The largest |x| of 32 by its bits, so that infinity and NaN win.
static inline float largest_magnitude(const float *x)
{
    uint32_t most = 0;
    for (int i = 0; i < 32; i++) {
        uint32_t bits;
        memcpy(&bits, x + i, 4);
        bits &= 0x7fffffff;
        most = bits > most ? bits : most;
    }
    float value;
    memcpy(&value, &most, 4);
    return value;
}

// q[i] = x[i] * factor rounded to nearest even, |x * factor| <= 127.5; returns their sum. The bits
// of what is not a number are unspecified: its block's scale is not a number either.
static inline int32_t quantise_block(const float *x, float factor, int8_t *q, int32_t *half)
{
    int32_t sums[2] = { 0, 0 };
    for (int i = 0; i < 32; i++) {
        float shifted = x[i] * factor + 0x1.8p23f;
        int32_t bits;
        memcpy(&bits, &shifted, 4);
        q[i] = (int8_t)(uint8_t)(bits & 0xff);
        sums[i / 16] += q[i];
    }
    *half = sums[0];
    return sums[0] + sums[1];
}
