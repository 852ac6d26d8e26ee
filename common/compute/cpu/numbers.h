// exp and log in double for sampling: the same bits on every CPU, which a C library's own (it picks
// variants by CPU) does not promise. Relative error below 1e-15.
#pragma once

#include <stdint.h>
#include <string.h>

static inline double cpu_power_of_two(int n) // -1022 <= n <= 1023
{
    uint64_t bits = (uint64_t)(n + 1023) << 52;
    double value;
    memcpy(&value, &bits, 8);
    return value;
}

// Taylor's series on |r| <= ln 2 / 2. 0 below -708.
static inline double cpu_exp(double x)
{
    if (x < -708)
        return 0;
    if (!(x <= 709))
        return x != x ? x : 1e308 * 10;
    double n = (x * 1.4426950408889634 + 0x1.8p52) - 0x1.8p52;
    double r = (x - n * 0x1.62e42fee00000p-1) - n * 0x1.a39ef35793c76p-33;
    static const double inverse_factorials[] = {
        1.0,
        1.0,
        1.0 / 2,
        1.0 / 6,
        1.0 / 24,
        1.0 / 120,
        1.0 / 720,
        1.0 / 5040,
        1.0 / 40320,
        1.0 / 362880,
        1.0 / 3628800,
        1.0 / 39916800,
        1.0 / 479001600,
        1.0 / 6227020800,
    };
    double sum = inverse_factorials[13];
    for (int k = 12; k >= 0; k--)
        sum = sum * r + inverse_factorials[k];
    return sum * cpu_power_of_two((int)n);
}

// log(x) for a positive normal x: x = m 2^n with m in (0.70, 1.42), s = (m-1)/(m+1),
// log m = 2 (s + s^3/3 + s^5/5 + ...).
static inline double cpu_log(double x)
{
    uint64_t bits;
    memcpy(&bits, &x, 8);
    int n = (int)(bits >> 52) - 1023;
    bits = (bits & 0xfffffffffffffu) | (uint64_t)1023 << 52;
    double m;
    memcpy(&m, &bits, 8);
    if (m > 1.4142135623730951) {
        m *= 0.5;
        n++;
    }
    double s = (m - 1) / (m + 1), square = s * s, sum = 0;
    for (int k = 23; k >= 1; k -= 2)
        sum = sum * square + 1.0 / k;
    return (double)n * 0x1.62e42fefa39efp-1 + 2 * s * sum;
}
