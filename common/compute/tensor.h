// Types of numbers in checkpoints and caches, and the block layouts of the quantised ones.
//
// Layouts: the GGUF v3 specification. Blocks of 32: Q4_0 d*(q-8), Q4_1 d*q+m, Q5_0 d*(q-16), Q5_1
// d*q+m, Q8_0 d*q; low nibbles hold elements 0..15, high nibbles 16..31, fifth bits a word of 32.
// Blocks of 256 ("K"): a scale of 6 or 8 bits for every 32 (Q4_K, Q5_K, with a minimum) or 16
// (Q6_K) elements, times one f16 for all. Plain data, any thread.
#pragma once

#include "base/status.h"

#include <stdint.h>

// Values are GGUF's type numbers.
typedef enum tensor_type {
    TENSOR_F32 = 0,
    TENSOR_F16 = 1,
    TENSOR_Q4_0 = 2,
    TENSOR_Q4_1 = 3,
    TENSOR_Q5_0 = 6,
    TENSOR_Q5_1 = 7,
    TENSOR_Q8_0 = 8,
    TENSOR_Q4_K = 12,
    TENSOR_Q5_K = 13,
    TENSOR_Q6_K = 14,
    TENSOR_I8 = 24,
    TENSOR_BF16 = 30,
    TENSOR_F8_E4M3 = 256, // not in GGUF: of caches only, as is I8
} tensor_type;

// A matrix in a file: `rows` x `columns`, row-major, each row a whole number of blocks.
typedef struct tensor_view {
    const char *name;
    tensor_type type;
    int64_t rows, columns;
    const void *data;
} tensor_view;

// Elements and bytes of one block; 0 for a type that this build cannot compute with.
int tensor_block_elements(tensor_type type);
int tensor_block_bytes(tensor_type type);
const char *tensor_type_name(tensor_type type);
// Bytes of one row of `columns` elements; -1 where columns is no multiple of the block or the type
// is unknown.
int64_t tensor_row_bytes(tensor_type type, int64_t columns);
// Decode `count` elements (a multiple of the block) of a row to float: the reference that every
// kernel is compared with.
void tensor_decode(tensor_type type, const void *row, int64_t count, float *values);
// The 32 quants of elements 32 * `part` .. of one block, as the formulas above have them: unsigned
// (for Q8_0 the bytes of signed numbers).
void tensor_quants(tensor_type type, const void *block, int part, uint8_t q[32]);
// Scale (6 bits) and minimum of elements 32 * `part` .. of a block of Q4_K or Q5_K.
void tensor_k_scales(const void *block, int part, uint8_t *scale, uint8_t *minimum);
// Names of all types, for messages: "f32, f16, ...".
const char *tensor_type_names(void);

float tensor_f16_to_f32(uint16_t bits);
uint16_t tensor_f32_to_f16(float value); // round to nearest even
