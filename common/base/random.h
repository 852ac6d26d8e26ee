// Counter-based noise: a pure function from a key to bits, so that a sampled token depends on the
// request alone and not on the batch, the worker or the step that drew it.
//
// The key is (seed, choice, output index, token). Source of the mixing function: the finaliser of
// SplitMix64 (Steele, Lea, Flood 2014, "Fast splittable pseudorandom number generators"), applied
// twice. Any thread.
#pragma once

#include <stdint.h>

// One SplitMix64 finaliser: a bijection of 64-bit words.
static inline uint64_t random_mix(uint64_t x)
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

// The part of the key that is common to a whole vocabulary: computed once a row.
static inline uint64_t random_row_key(uint64_t seed, uint32_t choice, uint64_t output_index)
{
    return random_mix(random_mix(seed + 0x632be59bd9b4e019u * choice) ^ output_index);
}

// 64 random bits for one token of the row.
static inline uint64_t random_token_bits(uint64_t row_key, uint32_t token)
{
    return random_mix(row_key + (uint64_t)token * 0xd1342543de82ef95u);
}

// (0, 1), never 0 and never 1: 52 bits and a half step, which a double holds exactly.
static inline double random_unit(uint64_t bits)
{
    return ((double)(bits >> 12) + 0.5) * 0x1.0p-52;
}

// 64 bits from the system, for seeds that nobody chose and for incarnations.
uint64_t random_system(void);
