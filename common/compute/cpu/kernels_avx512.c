// The row and attention kernels of the AVX-512 level (F, BW, DQ, VL).
#include "compute/cpu/levels.h"
#include "compute/cpu/vector_avx512.h"

#define TILE_ROWS CPU_AVX512_TILE_ROWS
#define SCORE_VECTORS 2
#define VALUE_VECTORS 4
#define GROUP_ROWS 6 // query rows that share the loads of K or V
#define SWITCH_ROWS SWITCH_6_ROWS
#define UNROLL _Pragma("GCC unroll 16")
#include "compute/cpu/kernels.h"
#include "compute/cpu/attention_kernels.h"

const cpu_level cpu_level_avx512 =
    CPU_LEVEL_TABLE(avx512, AVX512, .widen = cpu_widen_avx512, .wide = cpu_wide_avx512);
