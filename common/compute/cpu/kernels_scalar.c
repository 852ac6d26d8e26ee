// The row and attention kernels of the scalar level: for any x86-64, and the form to read first.
#include "compute/cpu/levels.h"
#include "compute/cpu/vector_scalar.h"

#define TILE_ROWS CPU_SCALAR_TILE_ROWS
#define SCORE_VECTORS 8
#define VALUE_VECTORS 16
#define GROUP_ROWS 3 // query rows that share the loads of K or V
#define SWITCH_ROWS SWITCH_3_ROWS
#define UNROLL
#include "compute/cpu/kernels.h"
#include "compute/cpu/attention_kernels.h"

const cpu_level cpu_level_scalar = CPU_LEVEL_TABLE(scalar, SCALAR, );
