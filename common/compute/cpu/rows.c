// Operations that treat each row alone: embedding, gather, norm, and reading and writing
// activations. Rows go to whichever thread is free.
#include "compute/cpu/cpu.h"

#include <string.h>

static void run_embed(cpu_operation *o, backend *b, int phase, int thread, int first, int last)
{
    const backend_weight *w = o->weight;
    (void)phase, (void)thread;
    for (int row = first; row < last; row++) {
        int32_t token = o->index[row];
        CHECK(token >= 0 && token < w->rows);
        float *y = o->y->data + row * o->y->stride;
        cpu_weight_row(w, b->level->tile_rows, token, y);
        for (int i = 0; i < w->columns && o->scale != 1; i++)
            y[i] *= o->scale;
    }
}

void cpu_embed(backend_queue *q, backend_activation *y, const backend_weight *embedding,
               const int32_t *tokens, int rows, float scale)
{
    CHECK(embedding->part_count == 1 && y->columns == embedding->columns);
    CHECK(rows >= 0 && rows <= y->rows);
    cpu_operation *o = cpu_queue_add(q, run_embed, rows);
    o->y = y;
    o->weight = embedding;
    o->index = tokens;
    o->scale = scale;
}

static void run_gather(cpu_operation *o, backend *b, int phase, int thread, int first, int last)
{
    (void)b, (void)phase, (void)thread;
    for (int row = first; row < last; row++) {
        int32_t from = o->index[row];
        CHECK(from >= 0 && from < o->x->rows);
        memcpy(o->y->data + row * o->y->stride, o->x->data + from * o->x->stride,
               (size_t)o->x->columns * sizeof(float));
    }
}

void cpu_gather(backend_queue *q, backend_activation *y, const backend_activation *x,
                const int32_t *index, int rows)
{
    CHECK(x != y && x->columns == y->columns && rows >= 0 && rows <= y->rows);
    cpu_operation *o = cpu_queue_add(q, run_gather, rows);
    o->y = y;
    o->x = x;
    o->index = index;
}

static void run_norm(cpu_operation *o, backend *b, int phase, int thread, int first, int last)
{
    (void)phase, (void)thread;
    for (int row = first; row < last; row++)
        b->level->norm(o->x->data + row * o->x->stride, o->norm, o->epsilon, o->x->columns,
                       o->epilogue == BACKEND_ADD, o->y->data + row * o->y->stride);
}

void cpu_norm(backend_queue *q, backend_activation *y, const backend_activation *x,
              const float *norm, float epsilon, int rows, backend_epilogue epilogue)
{
    CHECK(x != y && x->columns == y->columns && norm != NULL);
    CHECK(epilogue == BACKEND_STORE || epilogue == BACKEND_ADD);
    CHECK(rows >= 0 && rows <= x->rows && rows <= y->rows);
    cpu_operation *o = cpu_queue_add(q, run_norm, rows);
    o->y = y;
    o->x = x;
    o->norm = norm;
    o->epsilon = epsilon;
    o->epilogue = epilogue;
}

void cpu_activation_read(backend_queue *q, const backend_activation *a, int first, int rows,
                         float *values)
{
    CHECK(first >= 0 && rows >= 0 && rows <= a->rows - first);
    cpu_queue_wait(q, cpu_queue_submit(q));
    for (int row = 0; row < rows; row++)
        memcpy(values + (int64_t)row * a->columns, a->data + (first + row) * a->stride,
               (size_t)a->columns * sizeof(float));
}

void cpu_activation_write(backend_queue *q, backend_activation *a, int first, int rows,
                          const float *values)
{
    CHECK(first >= 0 && rows >= 0 && rows <= a->rows - first);
    cpu_queue_wait(q, cpu_queue_submit(q));
    for (int row = 0; row < rows; row++)
        memcpy(a->data + (first + row) * a->stride, values + (int64_t)row * a->columns,
               (size_t)a->columns * sizeof(float));
}
