// What the files of each level share: tile sizes and the tile kernels (linear_<level>.c) that the
// level's table (kernels_<level>.c) lists.
//
// A level is a set of instructions: scalar runs everywhere, avx2 needs AVX2, FMA and F16C, avx512
// needs AVX-512 F, BW, DQ, VL and VNNI (level.c asks the CPU). Tile sizes belong to a level because
// a weight is packed for one level only. To add one: its sizes here, a vector_<level>.h, a
// linear_<level>.c with a kernel for each type, a kernels_<level>.c that makes the table, and a row
// in level.c.
#pragma once

#include "compute/cpu/cpu.h"

#include <string.h>

// Output rows of a tile: what one or two registers of the level hold.
#define CPU_SCALAR_TILE_ROWS 8
#define CPU_AVX2_TILE_ROWS 16
#define CPU_AVX512_TILE_ROWS 16
// Input rows that share one read of the weights; more would not fit the registers.
#define CPU_SCALAR_ROW_BLOCK 4
#define CPU_AVX2_ROW_BLOCK 4
#define CPU_AVX512_ROW_BLOCK 8

// One kernel a tensor type; what they compute is told at cpu_tile_call in cpu.h.
#define CPU_TILE_KERNELS(level)                                                                    \
    void cpu_f32_##level(const cpu_tile_call *call);                                               \
    void cpu_f16_##level(const cpu_tile_call *call);                                               \
    void cpu_bf16_##level(const cpu_tile_call *call);                                              \
    void cpu_q4_0_##level(const cpu_tile_call *call);                                              \
    void cpu_q4_1_##level(const cpu_tile_call *call);                                              \
    void cpu_q5_0_##level(const cpu_tile_call *call);                                              \
    void cpu_q5_1_##level(const cpu_tile_call *call);                                              \
    void cpu_q8_0_##level(const cpu_tile_call *call);                                              \
    void cpu_q4_k_##level(const cpu_tile_call *call);                                              \
    void cpu_q5_k_##level(const cpu_tile_call *call);                                              \
    void cpu_q6_k_##level(const cpu_tile_call *call);

CPU_TILE_KERNELS(scalar)
CPU_TILE_KERNELS(avx2)
CPU_TILE_KERNELS(avx512)

// What a level with a wide form adds; told at cpu_wide_call in cpu.h.
void cpu_widen_avx512(tensor_type type, const uint8_t *column, int blocks, uint8_t *wide);
void cpu_wide_avx512(const cpu_wide_call *call);

// The level's row of cpu_level, for kernels_<level>.c, which defines the static ones named here.
#define CPU_LEVEL_TABLE(level, LEVEL_NAME, ...)                                                    \
    {                                                                                              \
        .name = #level, .tile_rows = CPU_##LEVEL_NAME##_TILE_ROWS,                                 \
        .row_block = CPU_##LEVEL_NAME##_ROW_BLOCK, .norm = norm_##level, .rotate = rotate_##level, \
        .quantise = quantise_##level, .halve = halve_##level, .finish = finish_##level,            \
        .attention = attention_##level, .merge = merge_##level, .divide = divide_##level,          \
        .largest = largest_##level, .weigh = weigh_##level, .f32 = cpu_f32_##level,                \
        .f16 = cpu_f16_##level, .bf16 = cpu_bf16_##level, .q4_0 = cpu_q4_0_##level,                \
        .q4_1 = cpu_q4_1_##level, .q5_0 = cpu_q5_0_##level, .q5_1 = cpu_q5_1_##level,              \
        .q8_0 = cpu_q8_0_##level, .q4_k = cpu_q4_k_##level, .q5_k = cpu_q5_k_##level,              \
        .q6_k = cpu_q6_k_##level, __VA_ARGS__                                                      \
    }
