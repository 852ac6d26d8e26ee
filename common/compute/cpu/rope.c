// Rotation of q and k, and the write of k and v into the pages. One work item is one head of one
// row, so no two items write the same bytes.
#include "compute/cpu/cpu.h"

#include <stdio.h>
#include <string.h>

// x[0 .. dims) rotated by the angles of `position`; in place.
static void rotate(const backend_rope *rope, int32_t position, float *x)
{
    const float *angle = rope->table + (int64_t)position * rope->dims;
    int half = rope->dims / 2;
    for (int i = 0; i < half; i++, angle += 2) {
        int a = rope->adjacent ? 2 * i : i, b = rope->adjacent ? 2 * i + 1 : i + half;
        float first = x[a], second = x[b];
        x[a] = first * angle[0] - second * angle[1];
        x[b] = first * angle[1] + second * angle[0];
    }
}

static uint16_t bf16_of(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, 4);
    if ((bits & 0x7fffffff) > 0x7f800000)
        return (uint16_t)(bits >> 16 | 0x40);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

// Token `token` of a tile: a row of V, or a column of K.
static void store_numbers(const uint8_t *numbers, int bytes, int size, int token, bool value,
                          uint8_t *tile)
{
    if (value) {
        memcpy(tile + token * size * bytes, numbers, (size_t)(size * bytes));
    } else if (bytes == 2) {
        for (int d = 0; d < size; d++)
            memcpy(tile + (d * CPU_TILE_TOKENS + token) * 2, numbers + d * 2, 2);
    } else {
        for (int d = 0; d < size; d++)
            memcpy(tile + (d * CPU_TILE_TOKENS + token) * 4, numbers + d * 4, 4);
    }
}

// Zero tokens first .. 32 of a tile: [size][32] for K, [32][size] for V.
static void zero_tail(uint8_t *tile, int first, int size, int bytes, bool value)
{
    if (value) {
        memset(tile + first * size * bytes, 0,
               (size_t)(CPU_TILE_TOKENS - first) * (size_t)(size * bytes));
        return;
    }
    for (int d = 0; d < size; d++)
        memset(tile + (d * CPU_TILE_TOKENS + first) * bytes, 0,
               (size_t)(CPU_TILE_TOKENS - first) * (size_t)bytes);
}

// Write one head's K or V of one token. The item that writes a tile's first token also zeroes what
// this step leaves unwritten behind its last one.
static void store_head(const cpu_operation *o, const backend *b, int sequence, int32_t position,
                       int head, bool value, const float *x)
{
    const kv_layout *l = &o->kv.layout;
    const backend_batch *batch = &o->batch;
    int size = l->head_size, bytes = l->type == TENSOR_F32 ? 4 : 2;
    int32_t page =
        batch->tables[(int64_t)sequence * batch->table_stride + position / l->page_tokens];
    CHECK(page >= 0 && page < o->kv.pages);
    uint8_t *tile = (uint8_t *)o->kv.memory.data + page * l->page_bytes +
                    o->layer * l->layer_stride + head * l->head_stride +
                    (value ? l->value_offset : 0) +
                    position % l->page_tokens / CPU_TILE_TOKENS * cpu_tile_bytes(l);
    int token = position % CPU_TILE_TOKENS;
    if (token == 0 && batch->lengths[sequence] - position < CPU_TILE_TOKENS)
        zero_tail(tile, batch->lengths[sequence] - position, size, bytes, value);
    uint16_t halves[CPU_HEAD_SIZE_MAX];
    if (l->type == TENSOR_F16)
        b->level->halve(x, size, halves);
    for (int d = 0; l->type == TENSOR_BF16 && d < size; d++)
        halves[d] = bf16_of(x[d]);
    store_numbers(bytes == 4 ? (const uint8_t *)x : (const uint8_t *)halves, bytes, size, token,
                  value, tile);
}

// One head of one row: rotated, and stored where it is a k or v.
static void run_head(const cpu_operation *o, const backend *b, int row, int head)
{
    const backend_heads *h = &o->heads;
    int size = h->head_size, sequence = o->batch.row_sequence[row];
    int32_t position = o->batch.positions[row];
    CHECK(position >= 0 && position < o->rope.position_limit);
    float *x = o->y->data + row * o->y->stride + (int64_t)head * size;
    if (head >= h->q_heads + h->kv_heads) {
        store_head(o, b, sequence, position, head - h->q_heads - h->kv_heads, true, x);
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
    rotate(&o->rope, position, at);
    if (!is_query)
        store_head(o, b, sequence, position, head - h->q_heads, false, k);
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

status cpu_kv_layout(const backend *b, tensor_type type, int page_tokens, int layers, int kv_heads,
                     int head_size, kv_layout *layout, error *failure)
{
    (void)b;
    if (type != TENSOR_F16 && type != TENSOR_BF16 && type != TENSOR_F32)
        return error_set(failure, STATUS_UNSUPPORTED, "kv_type",
                         "the cache type is %s; the CPU backend keeps f16, bf16 or f32",
                         tensor_type_name(type));
    if (page_tokens != 32 && page_tokens != 64 && page_tokens != 128)
        return error_set(failure, STATUS_UNSUPPORTED, "page_tokens",
                         "page_tokens is %d; the CPU backend has pages of 32, 64 or 128",
                         page_tokens);
    if (head_size < 16 || head_size % 16 != 0 || head_size > CPU_HEAD_SIZE_MAX)
        return error_set(failure, STATUS_UNSUPPORTED, "head_size",
                         "head_size is %d; the CPU backend needs a multiple of 16, at most %d",
                         head_size, CPU_HEAD_SIZE_MAX);
    if (layers < 1 || layers > 4096 || kv_heads < 1 || kv_heads > 4096)
        return error_set(failure, STATUS_UNSUPPORTED, "kv_heads",
                         "a cache of %d layers and %d heads is not possible", layers, kv_heads);
    kv_layout l = { .type = type,
                    .page_tokens = page_tokens,
                    .layers = layers,
                    .kv_heads = kv_heads,
                    .head_size = head_size };
    snprintf(l.name, sizeof l.name, "%s/cpu-tile32/1", tensor_type_name(type));
    l.value_offset = (int64_t)page_tokens * head_size * tensor_block_bytes(type);
    l.head_stride = 2 * l.value_offset;
    l.layer_stride = kv_heads * l.head_stride;
    l.page_bytes = layers * l.layer_stride;
    *layout = l;
    return STATUS_OK;
}

static void run_kv_copy(cpu_operation *o, backend *b, int phase, int thread, int first, int last)
{
    int64_t size = o->kv.layout.page_bytes;
    uint8_t *pool = o->kv.memory.data;
    (void)b, (void)phase, (void)thread;
    for (int i = first; i < last; i++) {
        int32_t from = o->index[2 * i], to = o->index[2 * i + 1];
        CHECK(from >= 0 && from < o->kv.pages && to >= 0 && to < o->kv.pages && from != to);
        memcpy(pool + to * size, pool + from * size, (size_t)size);
    }
}

void cpu_kv_copy(backend_queue *q, const kv_memory *kv, const int32_t *pairs, int count)
{
    cpu_operation *o = cpu_queue_add(q, run_kv_copy, count);
    o->kv = *kv;
    o->index = pairs;
}
