// Tiles of quantised weights: how T rows x 32 inputs of each block type lie in memory, packing them
// from a file's rows and reading them back. One row of the table per type; the kernels of each
// level (linear_<level>.c, linear_k_<level>.c) know the same layout by heart.
//
// A tile column is its groups of blocks in ascending inputs. A group: the header (K types only: T
// f16 d, and for those with a minimum T f16 -dmin), then each block's quants and scales.
// - Quants of 8 bits: 8 groups of T x 4 bytes, byte j of row r in group k is input 4k+j.
// - Quants of 4, 5 and 6 bits: 4 groups of T x 4 bytes of nibbles (byte j of row r in group k holds
//   input 4k+j low and 16+4k+j high), then the higher bits in planes of T x 4 bytes. 5 bits: one
//   plane, bit k of byte j of row r is the fifth bit of input 4k+j. 6 bits: two planes, for inputs
//   0..15 and 16..31; the two bits at 2k of byte j of row r are input 4k+j's of that half.
// - Scales: T f16 d (and T f16 m); K types T bytes of scale and T of minimum (Q4_K, Q5_K) or two
//   times T signed bytes, for inputs 0..15 and 16..31 (Q6_K).
//
// Plain functions, any thread; packing writes only the bytes of its own row.
#pragma once

#include "compute/tensor.h"

#include <stdint.h>

#define CPU_K_BLOCKS 8 // blocks of 32 in a K block of 256

typedef struct cpu_format {
    tensor_type type;
    int bits;    // of a quant
    int surplus; // the weight is scale * (q - surplus), + the minimum where there is one
    bool minimum;
    int group;  // blocks of 32 that share a header; 1: no header
    int header; // bytes of one row's header
    int quants; // bytes of one row's quants in a block
    int scales; // bytes of one row's scales behind them
} cpu_format;

// NULL for a type that is not quantised in blocks.
const cpu_format *cpu_format_of(tensor_type type);
// Bytes of `blocks` blocks (whole groups) of a tile column.
int64_t cpu_format_bytes(const cpu_format *format, int tile_rows, int blocks);
// One row of a file into row `row` of a tile column.
void cpu_tiles_pack_row(const cpu_format *format, int tile_rows, int row, const uint8_t *source,
                        int blocks, uint8_t *column);

// A block of one row taken out of its tile: weight i is scale[i / 16] * q[i] + minimum.
typedef struct cpu_tile_block {
    int8_t q[32]; // surplus subtracted
    float d;      // scale[h] = d * k[h] exactly
    int16_t k[2]; // 1, where the type has no integer scales
    float minimum;
} cpu_tile_block;
void cpu_tiles_take_block(const cpu_format *format, int tile_rows, int row, const uint8_t *column,
                          int block, cpu_tile_block *taken);
// Row `row` of a tile column as float, the very numbers of tensor_decode.
void cpu_tiles_row(const cpu_format *format, int tile_rows, int row, const uint8_t *column,
                   int blocks, float *values);
