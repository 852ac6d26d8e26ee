// How positions turn the heads: the frequencies of a checkpoint's rotation and its scalings for
// texts longer than the model was first trained on.
//
// Everything follows from the file alone, never from a setting or from how long a text is: keys
// that are in a cache, or come from another worker, stay right.
#pragma once

#include <stdbool.h>
#include <stdint.h>

// Sources: Su et al. 2021 (RoPE); Peng et al. 2023 (YaRN, "NTK by parts" and the attention
// factor); Ding et al. 2024 (LongRoPE); llama.cpp's converters for how a GGUF file says it. Dynamic
// scaling, whose base depends on the length of the text, is not computed.
typedef struct model_rope {
    double base;
    double factor;                 // positions are divided by it; 1: no scaling
    int32_t dims;                  // rotated dims of each head, even
    bool by_parts;                 // YaRN: only the slow pairs are divided
    double whole_below, all_above; // YaRN: pairs up to the first are as trained, from the second on
                                   // divided, those between are mixed
    double magnitude;              // multiplies cosine and sine
    const char *divisors;          // "rope_freqs" (Llama 3 scaling, optional), or the LongRoPE list
    const char *other_divisors;    // LongRoPE: the list that is not in force; else NULL
} model_rope;

// Set the bounds of YaRN's parts: `fast` and `slow` are turns in `original` positions.
void model_rope_set_parts(model_rope *rope, double fast, double slow, double original);
// Radians by which pair `pair` turns from one position to the next. `divisor`: the file's for this
// pair, or 1.
long double model_rope_frequency(const model_rope *rope, double divisor, int32_t pair);
// The table's entry: `magnitude` times cosine and sine.
void model_rope_rotation(const model_rope *rope, long double frequency, int32_t position,
                         float *cosine, float *sine);
