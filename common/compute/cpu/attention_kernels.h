// The attention kernels, written once in the vector operations of vector_<level>.h; see kernels.h.
//
// One call is one split: all scores first, then one softmax over them, then the sum of values, so
// that nothing is rescaled on the way. Order of sums, the same for a row whatever stands beside it:
// a score adds d = 0, 1, ...; the sum of probabilities adds vectors in ascending order, then the
// lanes; an output adds tokens in ascending order. Each sum is one chain of multiply-adds per lane,
// so how many rows share a load changes nothing.
#include "compute/cpu/attention_split.h"

#include "compute/cpu/attention_float.h"
#include "compute/cpu/attention_int8.h"

static void LEVEL(attention)(const cpu_attention_call *call)
{
    visible seen[CPU_ATTENTION_ROWS];
    int size = call->layout->head_size, count = call->rows * call->heads;
    attention_room room = room_of(call->scratch);
    for (int row = 0, i = 0; row < call->rows; row++) {
        visible tokens = tokens_seen(call, row);
        for (int head = 0; head < call->heads; head++)
            seen[i++] = tokens;
    }
    row_range all = rows_seeing(seen, count, 0, CPU_SPLIT_TOKENS);
    for (int i = 0; i < count; i++) {
        call->maximum[i] = -INFINITY;
        call->sum[i] = 0;
    }
    memset(call->values, 0, (size_t)count * (size_t)size * sizeof(float));
    for (int i = 0; i < CPU_SPLIT_TILES; i++) // those that no tile of this split fetches on its way
        for (int at = 0; call->v[i] == NULL && call->ahead[i] != NULL && at < call->tile_bytes;
             at += LINE_BYTES)
            prefetch(call->ahead[i] + at, LINE_BYTES);
    if (call->layout->type == TENSOR_I8)
        attend_int8(call, seen, all, &room);
    else
        attend_float(call, seen, all, &room);
}

// Adding 0 makes -0 a 0.
static void LEVEL(divide)(const float *x, float sum, int size, float *y)
{
    vf factor = vf_set(1.0f / sum);
    for (int d = 0; d < size; d += VF_LANES)
        vf_store(y + d, vf_add(vf_mul(vf_load(x + d), factor), vf_set(0)));
}

static void LEVEL(merge)(int count, int size, float *maximum, float *sum, float *values,
                         const float *later_maximum, const float *later_sum,
                         const float *later_values)
{
    float before[CPU_ATTENTION_ROWS], after[CPU_ATTENTION_ROWS];
    for (int i = 0; i < count; i += VF_LANES) {
        vf earlier = vf_load(maximum + i), later = vf_load(later_maximum + i);
        vf most = vf_max(earlier, later);
        vf_store(before + i, vf_exp2(vf_sub(earlier, most)));
        vf_store(after + i, vf_exp2(vf_sub(later, most)));
    }
    for (int i = 0; i < count; i++, values += size, later_values += size) {
        if (later_maximum[i] == -INFINITY) // that split holds nothing which this row sees
            continue;
        sum[i] = sum[i] * before[i] + later_sum[i] * after[i];
        for (int d = 0; d < size; d += VF_LANES)
            vf_store(values + d, vf_fma(vf_load(later_values + d), vf_set(after[i]),
                                        vf_mul(vf_load(values + d), vf_set(before[i]))));
        maximum[i] = maximum[i] > later_maximum[i] ? maximum[i] : later_maximum[i];
    }
}
