// For the tests of attention: a cache whose memory held something else before, sequences in pages
// of random order, and steps over some positions of each.
#pragma once

#include "support.h"
#include "oracle.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define POSITIONS 2400
#define SEQUENCES 3
#define LAYERS 2

typedef struct shape {
    backend_heads heads;
    tensor_type type;
    int page_tokens, dims, window;
    bool adjacent, head_norms;
} shape;

typedef struct sequence {
    int length;
    float *qkv; // [length][columns] before rotation
    int32_t pages[POSITIONS / 32 + 1];
} sequence;

typedef struct world {
    device d;
    shape s;
    kv_memory kv;
    backend_rope rope;
    float *table, *q_norm, *k_norm;
    backend_activation *qkv, *out;
    int columns, out_columns;
} world;

#define ROWS_MAX 640
#define TYPES 5
static const tensor_type types[TYPES] = { TENSOR_F16, TENSOR_F32, TENSOR_BF16, TENSOR_I8,
                                          TENSOR_F8_E4M3 };
#define EPSILON 1e-6f

static inline void open_rope(world *w)
{
    int half = w->s.dims / 2;
    w->table = floats_of((size_t)POSITIONS * (size_t)half * 2);
    for (int p = 0; p < POSITIONS; p++)
        for (int i = 0; i < half; i++) {
            double angle = p * pow(10000, -2.0 * i / w->s.dims);
            w->table[(p * half + i) * 2] = (float)cos(angle);
            w->table[(p * half + i) * 2 + 1] = (float)sin(angle);
        }
    w->rope = (backend_rope){ w->table, w->s.dims, w->s.adjacent, POSITIONS };
}

// Memory that held something else before: every byte is a NaN's.
static inline bool world_open(world *w, const char *level, int threads, shape s, int pages)
{
    error failure = { 0 };
    *w = (world){ .s = s };
    if (!device_open(&w->d, level, threads))
        return false;
    const backend_heads *h = &w->s.heads;
    w->columns = (h->q_heads + 2 * h->kv_heads) * h->head_size;
    w->out_columns = h->q_heads * h->head_size;
    assert_int_equal(w->d.table->kv_layout(w->d.b, s.type, s.page_tokens, LAYERS, h->kv_heads,
                                           h->head_size, &w->kv.layout, &failure),
                     STATUS_OK);
    w->kv.pages = pages;
    assert_int_equal(w->d.table->memory_open(w->d.b, (size_t)(pages * w->kv.layout.page_bytes),
                                             BACKEND_MEMORY_DEVICE, &w->kv.memory),
                     STATUS_OK);
    memset(w->kv.memory.data, 0xff, w->kv.memory.size);
    w->qkv = device_activation(&w->d, ROWS_MAX, w->columns, NULL);
    w->out = device_activation(&w->d, ROWS_MAX, w->out_columns, NULL);
    open_rope(w);
    if (s.head_norms) {
        w->q_norm = random_floats((size_t)h->head_size, 1);
        w->k_norm = random_floats((size_t)h->head_size, 1);
    }
    return true;
}

static inline void world_close(world *w)
{
    w->d.table->activation_close(w->qkv);
    w->d.table->activation_close(w->out);
    w->d.table->memory_close(w->d.b, &w->kv.memory);
    device_close(&w->d);
    free(w->table), free(w->q_norm), free(w->k_norm);
}

// Distinct pages in random order.
static inline void deal_pages(const world *w, sequence *all, int count)
{
    int32_t order[512];
    int next = 0;
    assert_true(w->kv.pages <= 512);
    for (int i = 0; i < w->kv.pages; i++) {
        int j = random_between(0, i);
        order[i] = order[j];
        order[j] = i;
    }
    for (int s = 0; s < count; s++)
        for (int i = 0; i * w->s.page_tokens < all[s].length; i++)
            all[s].pages[i] = order[next++];
    assert_true(next <= w->kv.pages);
}

typedef struct range {
    int from, to;
} range;

typedef struct step_arrays {
    int32_t positions[ROWS_MAX], row_sequence[ROWS_MAX], first_row[SEQUENCES + 1];
    int32_t lengths[SEQUENCES], tables[SEQUENCES][POSITIONS / 32 + 1];
} step_arrays;

// Compute positions ranges[s] of each sequence in one batch; out [rows][out_columns].
static inline void step(world *w, const sequence *all, const range *ranges, int count, bool attend,
                        float *out)
{
    static step_arrays a;
    backend_batch batch = { .sequences = 0,
                            .positions = a.positions,
                            .row_sequence = a.row_sequence,
                            .first_row = a.first_row,
                            .lengths = a.lengths,
                            .tables = a.tables[0],
                            .table_stride = POSITIONS / 32 + 1 };
    for (int s = 0; s < count; s++) {
        range r = ranges[s];
        int n = batch.sequences;
        if (r.from == r.to)
            continue;
        a.first_row[n] = batch.rows;
        a.lengths[n] = r.to;
        memcpy(a.tables[n], all[s].pages, sizeof a.tables[n]);
        w->d.table->activation_write(w->d.q, w->qkv, batch.rows, r.to - r.from,
                                     all[s].qkv + (int64_t)r.from * w->columns);
        for (int p = r.from; p < r.to; p++, batch.rows++) {
            a.positions[batch.rows] = p;
            a.row_sequence[batch.rows] = n;
        }
        a.first_row[++batch.sequences] = batch.rows;
    }
    w->d.table->rope_store(w->d.q, w->qkv, &w->s.heads, &w->rope, w->q_norm, w->k_norm, EPSILON,
                           &w->kv, 1, &batch);
    if (attend) {
        w->d.table->attention_plan(w->d.q, &w->s.heads, &w->kv, &batch);
        w->d.table->attention(w->d.q, w->out, w->qkv, &w->s.heads, &w->kv, 1, &batch,
                              1.0f / sqrtf((float)w->s.heads.head_size), w->s.window);
    }
    device_run(&w->d);
    if (attend)
        w->d.table->activation_read(w->d.q, w->out, 0, batch.rows, out);
}

static inline shape random_shape(tensor_type type)
{
    static const int sizes[] = { 16, 32, 48, 64, 80, 128 }, pages[] = { 32, 64, 128 };
    shape s = { .type = type };
    s.heads.kv_heads = random_between(1, 3);
    s.heads.q_heads = s.heads.kv_heads * random_between(1, 5);
    s.heads.head_size = sizes[random_between(0, 5)];
    s.page_tokens = pages[random_between(0, 2)];
    s.dims = random_between(0, 1) ? s.heads.head_size : s.heads.head_size / 2;
    s.adjacent = random_between(0, 1);
    s.head_norms = random_between(0, 2) == 0;
    s.window = random_between(0, 1) ? 0 : random_between(1, 70);
    return s;
}
