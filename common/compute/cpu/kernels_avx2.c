// The row and attention kernels of the AVX2 level (with FMA and F16C).
#include "compute/cpu/levels.h"
#include "compute/cpu/vector_avx2.h"

#define TILE_ROWS CPU_AVX2_TILE_ROWS
#define SCORE_VECTORS 4
#define VALUE_VECTORS 4
#define GROUP_ROWS 3 // query rows that share the loads of K or V
#define SWITCH_ROWS SWITCH_3_ROWS
#define UNROLL _Pragma("GCC unroll 16")
#include "compute/cpu/kernels.h"
#include "compute/cpu/attention_kernels.h"

const cpu_level cpu_level_avx2 = CPU_LEVEL_TABLE(avx2, AVX2, );
