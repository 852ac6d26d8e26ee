// Rotation of q and k, and the write of k and v into the pages (kv.c). One work item is one head of
// one row, so no two items write the same bytes.
#include "compute/cpu/cpu.h"

#include <string.h>

// One head of one row: rotated, and stored where it is a k or v.
static void run_head(const cpu_operation *o, const backend *b, int row, int head)
{
    const backend_heads *h = &o->heads;
    int size = h->head_size, sequence = o->batch.row_sequence[row];
    int32_t position = o->batch.positions[row];
    CHECK(position >= 0 && position < o->rope.position_limit);
    float *x = o->y->data + row * o->y->stride + (int64_t)head * size;
    if (head >= h->q_heads + h->kv_heads) {
        cpu_kv_store(o, b, sequence, position, head - h->q_heads - h->kv_heads, true, x);
        return;
    }
    float k[CPU_HEAD_SIZE_MAX];
    bool is_query = head < h->q_heads;
    const float *norm = is_query ? o->norm : o->k_norm;
    float *at = is_query ? x : k;
    if (norm != NULL)
        b->level->norm(x, norm, o->epsilon, size, false, at);
    else if (!is_query)
        memcpy(k, x, (size_t)size * sizeof *k);
    b->level->rotate(o->rope.table + (int64_t)position * o->rope.dims, o->rope.dims,
                     o->rope.adjacent, at);
    if (!is_query)
        cpu_kv_store(o, b, sequence, position, head - h->q_heads, false, k);
}

static void run_rope(cpu_operation *o, backend *b, int phase, int thread, int first, int last)
{
    int heads = o->heads.q_heads + 2 * o->heads.kv_heads;
    (void)phase, (void)thread;
    for (int item = first; item < last; item++)
        run_head(o, b, item / heads, item % heads);
}

void cpu_rope_store(backend_queue *q, backend_activation *qkv, const backend_heads *heads,
                    const backend_rope *rope, const float *q_norm, const float *k_norm,
                    float epsilon, const kv_memory *kv, int layer, const backend_batch *batch)
{
    CHECK(qkv->columns == (heads->q_heads + 2 * heads->kv_heads) * heads->head_size);
    CHECK(heads->kv_heads == kv->layout.kv_heads && heads->head_size == kv->layout.head_size);
    CHECK(layer >= 0 && layer < kv->layout.layers && batch->rows <= qkv->rows);
    CHECK(rope->dims % 2 == 0 && rope->dims <= heads->head_size);
    cpu_operation *o =
        cpu_queue_add(q, run_rope, batch->rows * (heads->q_heads + 2 * heads->kv_heads));
    o->y = qkv;
    o->heads = *heads;
    o->rope = *rope;
    o->norm = q_norm;
    o->k_norm = k_norm;
    o->epsilon = epsilon;
    o->kv = *kv;
    o->layer = layer;
    o->batch = *batch;
}
