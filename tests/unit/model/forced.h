// For tests: logits of a token sequence straight from model_forward, computed in chunks.
#pragma once

#include "model/model.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define FORCED_PAGE_TOKENS 64

typedef struct forced {
    gguf *file;
    const backend_table *table;
    backend *device;
    backend_queue *queue;
    model *model;
    kv_memory kv;
    backend_memory arrays;
    int32_t *tokens, *positions, *row_sequence, *logit_index, *table_row, *ends; // in `arrays`
    int32_t limit;
    float *row;
} forced;

static inline void forced_model_open(forced *f, const char *path, tensor_type kv_type,
                                     const char *level, model_config *config)
{
    backend_settings settings = { level, 1, "" };
    error failure = { 0 };
    model_limits limits = { f->limit, f->limit, f->limit };
    status result;
    TRY(gguf_open(path, &f->file, &failure));
    TRY(model_config_read(f->file, config, &failure));
    TRY(f->table->open(&settings, &f->device, &failure));
    TRY(f->table->queue_open(f->device, &f->queue));
    TRY(model_open(f->file, config, &limits, f->table, f->device, &f->model, &failure));
    TRY(f->table->kv_layout(f->device, kv_type, FORCED_PAGE_TOKENS, config->layers,
                            config->kv_heads, config->head_size, &f->kv.layout, &failure));
    return;
fail:
    fail_msg("%s", failure.text);
}

// Room for `limit` tokens.
static inline void forced_open(forced *f, const char *path, tensor_type kv_type, const char *level,
                               int32_t limit)
{
    model_config config;
    *f = (forced){ .table = &backend_cpu, .limit = limit };
    forced_model_open(f, path, kv_type, level, &config);
    f->kv.pages = (limit + FORCED_PAGE_TOKENS - 1) / FORCED_PAGE_TOKENS;
    size_t bytes = (size_t)f->kv.pages * (size_t)f->kv.layout.page_bytes;
    assert_int_equal(f->table->memory_open(f->device, bytes, BACKEND_MEMORY_DEVICE, &f->kv.memory),
                     STATUS_OK);
    assert_int_equal(f->table->memory_open(f->device, (size_t)(5 * limit + 16) * sizeof(int32_t),
                                           BACKEND_MEMORY_PINNED, &f->arrays),
                     STATUS_OK);
    f->tokens = f->arrays.data;
    f->positions = f->tokens + limit;
    f->row_sequence = f->positions + limit;
    f->logit_index = f->row_sequence + limit;
    f->table_row = f->logit_index + limit;
    f->ends = f->table_row + limit;
    for (int32_t i = 0; i < f->kv.pages; i++)
        f->table_row[i] = i;
    f->row = malloc((size_t)config.rows * sizeof f->row[0]);
}

static inline void forced_close(forced *f)
{
    model_close(f->model);
    f->table->memory_close(f->device, &f->kv.memory);
    f->table->memory_close(f->device, &f->arrays);
    f->table->queue_close(f->queue);
    f->table->close(f->device);
    gguf_close(f->file);
    free(f->row);
}

typedef void forced_take(void *context, int32_t position, const float *logits);

static inline void forced_chunk(forced *f, const int32_t *tokens, int32_t done, int32_t rows,
                                int32_t first, forced_take *take, void *context)
{
    int32_t wanted = 0;
    for (int32_t i = 0; i < rows; i++) {
        f->tokens[i] = tokens[done + i];
        f->positions[i] = done + i;
        f->row_sequence[i] = 0;
        if (done + i >= first)
            f->logit_index[wanted++] = i;
    }
    f->ends[0] = 0;
    f->ends[1] = rows;
    f->ends[2] = done + rows;
    backend_batch batch = { .rows = rows,
                            .sequences = 1,
                            .logit_rows = wanted,
                            .tokens = f->tokens,
                            .positions = f->positions,
                            .row_sequence = f->row_sequence,
                            .first_row = f->ends,
                            .lengths = f->ends + 2,
                            .tables = f->table_row,
                            .table_stride = f->kv.pages,
                            .logit_index = f->logit_index };
    model_forward(f->model, f->queue, &f->kv, &batch);
    f->table->queue_wait(f->queue, f->table->queue_submit(f->queue));
    for (int32_t i = 0; i < wanted; i++) {
        f->table->activation_read(f->queue, model_logits(f->model), i, 1, f->row);
        take(context, done + f->logit_index[i], f->row);
    }
}

// Compute `count` tokens in chunks of `chunk`; `take` gets the logits of positions from `first` on.
static inline void forced_run(forced *f, const int32_t *tokens, int32_t count, int32_t chunk,
                              int32_t first, forced_take *take, void *context)
{
    assert_true(count <= f->limit);
    for (int32_t done = 0; done < count; done += chunk) {
        int32_t rows = count - done < chunk ? count - done : chunk;
        forced_chunk(f, tokens, done, rows, first, take, context);
    }
}

// log(sum of exp) of a row in double.
static inline double forced_log_sum(const float *logits, int32_t count)
{
    double largest = -INFINITY, total = 0;
    for (int32_t i = 0; i < count; i++)
        largest = fmax(largest, (double)logits[i]);
    for (int32_t i = 0; i < count; i++)
        total += exp((double)logits[i] - largest);
    return largest + log(total);
}
