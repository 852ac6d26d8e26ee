#include "harness/forced/forced.h"

#include <math.h>
#include <stdlib.h>

#define PAGE_TOKENS 64

struct forced {
    const backend_table *table;
    backend *device;
    backend_queue *queue;
    model *model;
    kv_memory kv;
    backend_memory arrays;
    int32_t *tokens, *positions, *row_sequence, *logit_index, *table_row, *ends; // in `arrays`
    int32_t context, chunk;
    float *row; // [rows of the head]
};

static status memory_take(forced *f, const forced_settings *s, const model_config *c,
                          error *failure)
{
    size_t chunk = (size_t)s->chunk;
    status result;
    TRY(f->table->kv_layout(f->device, s->kv_type, PAGE_TOKENS, c->layers, c->kv_heads,
                            c->head_size, &f->kv.layout, failure));
    f->kv.pages = (s->context + PAGE_TOKENS - 1) / PAGE_TOKENS;
    size_t bytes = (size_t)f->kv.pages * (size_t)f->kv.layout.page_bytes;
    TRY(f->table->memory_open(f->device, bytes, BACKEND_MEMORY_DEVICE, &f->kv.memory));
    TRY(f->table->memory_open(f->device, (4 * chunk + (size_t)f->kv.pages + 3) * sizeof(int32_t),
                              BACKEND_MEMORY_PINNED, &f->arrays));
    f->tokens = f->arrays.data;
    f->positions = f->tokens + chunk;
    f->row_sequence = f->positions + chunk;
    f->logit_index = f->row_sequence + chunk;
    f->table_row = f->logit_index + chunk;
    f->ends = f->table_row + f->kv.pages;
    for (int32_t i = 0; i < f->kv.pages; i++)
        f->table_row[i] = i;
    f->row = malloc((size_t)c->rows * sizeof f->row[0]);
    return f->row ? STATUS_OK : STATUS_NO_MEMORY;
fail:
    return result;
}

static status forced_fill(forced *f, const forced_settings *s, const gguf *file, error *failure)
{
    backend_settings settings = { .level = s->level, .threads = s->threads, .cores = "" };
    model_limits limits = { s->chunk, s->chunk, s->context };
    model_config config;
    status result;
    TRY(model_config_read(file, &config, failure));
    if (s->context > config.context) {
        result = error_set(failure, STATUS_CONTEXT_LENGTH, "context",
                           "context is %d; the model was trained for %d tokens", s->context,
                           config.context);
        goto fail;
    }
    TRY(f->table->open(&settings, &f->device, failure));
    TRY(f->table->queue_open(f->device, &f->queue));
    TRY(model_open(file, &config, &limits, f->table, f->device, &f->model, failure));
    TRY(memory_take(f, s, &config, failure));
    return STATUS_OK;
fail:
    if (result == STATUS_NO_MEMORY)
        error_set(failure, result, "context", "memory is short for %d tokens", s->context);
    error_prefix(failure, "%s", s->model);
    return result;
}

status forced_open(const forced_settings *settings, forced **opened, error *failure)
{
    forced *f = calloc(1, sizeof *f);
    gguf *file = NULL;
    status result;
    CHECK(settings->context >= 1 && settings->chunk >= 1);
    if (!f)
        return error_set(failure, STATUS_NO_MEMORY, "", "memory is short for the model");
    f->table = &backend_cpu;
    f->context = settings->context;
    f->chunk = settings->chunk;
    TRY(gguf_open(settings->model, &file, failure));
    TRY(forced_fill(f, settings, file, failure));
    *opened = f;
fail:
    if (file)
        gguf_close(file);
    if (result != STATUS_OK)
        forced_close(f);
    return result;
}

void forced_close(forced *f)
{
    if (!f)
        return;
    model_close(f->model);
    if (f->kv.memory.data)
        f->table->memory_close(f->device, &f->kv.memory);
    if (f->arrays.data)
        f->table->memory_close(f->device, &f->arrays);
    if (f->queue)
        f->table->queue_close(f->queue);
    if (f->device)
        f->table->close(f->device);
    free(f->row);
    free(f);
}

const model_config *forced_config(const forced *f)
{
    return model_config_of(f->model);
}

const model_weights *forced_weights(const forced *f)
{
    return model_weights_of(f->model);
}

const kv_layout *forced_layout(const forced *f)
{
    return &f->kv.layout;
}

static void chunk_run(forced *f, const int32_t *tokens, int32_t done, int32_t rows, int32_t first,
                      forced_take *take, void *context)
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

void forced_run(forced *f, const int32_t *tokens, int32_t begin, int32_t end, int32_t first,
                forced_take *take, void *context)
{
    CHECK(0 <= begin && begin <= end && end <= f->context);
    for (int32_t done = begin; done < end; done += f->chunk)
        chunk_run(f, tokens, done, end - done < f->chunk ? end - done : f->chunk, first, take,
                  context);
}

double forced_log_sum(const float *logits, int32_t count)
{
    double largest = -INFINITY, total = 0;
    for (int32_t i = 0; i < count; i++)
        largest = fmax(largest, (double)logits[i]);
    for (int32_t i = 0; i < count; i++)
        total += exp((double)logits[i] - largest);
    return largest + log(total);
}

int32_t forced_best(const float *logits, int32_t count)
{
    int32_t best = 0;
    for (int32_t i = 1; i < count; i++)
        if (logits[i] > logits[best])
            best = i;
    return best;
}
