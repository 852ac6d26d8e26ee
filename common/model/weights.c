#include "model/weights.h"

#include "base/log.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PARTS_MAX 4

typedef struct loader {
    const gguf *file;
    const model_config *config;
    model_weights *weights;
    const gguf_tensor **used; // [gguf_tensor_count]
    uint64_t used_count;
    double bytes_done, bytes_total;
    float *bias; // [bias_capacity], for one weight at a time
    int64_t bias_capacity;
    error *failure;
} loader;

typedef struct part {
    const char *name; // "attn_q"
    int64_t rows;
} part;

static status tensor_use(loader *l, int layer, const char *name, const char *kind, int64_t rows,
                         int64_t columns, bool optional, const gguf_tensor **found)
{
    status result =
        model_tensor_find(l->file, layer, name, kind, rows, columns, optional, found, l->failure);
    if (result != STATUS_OK || !*found)
        return result;
    const gguf_tensor *t = *found;
    if (tensor_block_elements((tensor_type)t->type) == 0)
        return error_set(l->failure, STATUS_UNSUPPORTED, "type",
                         "tensor %.*s has type %s; this build computes %s", (int)t->name.size,
                         t->name.data, gguf_type_name(t->type), tensor_type_names());
    CHECK(l->used_count < gguf_tensor_count(l->file));
    l->used[l->used_count++] = t;
    return STATUS_OK;
}

// A vector of floats (a norm, a bias, divisors) decoded to `values`.
static status vector_read(loader *l, int layer, const char *name, const char *kind, int64_t count,
                          bool optional, bool *present, float *values)
{
    const gguf_tensor *t;
    status result = tensor_use(l, layer, name, kind, 1, count, optional, &t);
    if (result != STATUS_OK)
        return result;
    if (present)
        *present = t != NULL;
    if (t && t->type != TENSOR_F32 && t->type != TENSOR_F16 && t->type != TENSOR_BF16)
        return error_set(l->failure, STATUS_UNSUPPORTED, "type",
                         "tensor %.*s has type %s; a vector must be F32 or F16", (int)t->name.size,
                         t->name.data, gguf_type_name(t->type));
    if (t)
        tensor_decode((tensor_type)t->type, t->data, count, values);
    return STATUS_OK;
}

static void let_go(const void *owner, const void *data, uint64_t bytes)
{
    gguf_let_go(owner, data, bytes);
}

// Load the matrices `parts` of blk.layer as one weight, with their biases where the file has any.
static status matrix_load(loader *l, int layer, const part *parts, int count, int64_t columns,
                          bool paired, backend_weight **loaded)
{
    tensor_view views[PARTS_MAX];
    char names[PARTS_MAX][GGUF_DIMENSIONS_MAX * 24];
    bool biased = false;
    int64_t rows = 0;
    double bytes = 0;
    status result;
    for (int i = 0; i < count; i++) {
        bool present;
        const gguf_tensor *t;
        TRY(tensor_use(l, layer, parts[i].name, "weight", parts[i].rows, columns, false, &t));
        snprintf(names[i], sizeof names[i], "%.*s", (int)t->name.size, t->name.data);
        views[i] = (tensor_view){ names[i], (tensor_type)t->type, parts[i].rows, columns, t->data };
        CHECK(rows + parts[i].rows <= l->bias_capacity);
        memset(l->bias + rows, 0, (size_t)parts[i].rows * sizeof l->bias[0]);
        TRY(vector_read(l, layer, parts[i].name, "bias", parts[i].rows, true, &present,
                        l->bias + rows));
        biased = biased || present;
        rows += parts[i].rows;
        bytes += (double)t->bytes;
    }
    // What the backend has packed must not stay in memory a second time.
    backend_weight_source source = {
        views, count, biased ? l->bias : NULL, paired, let_go, l->file,
    };
    model_weights *w = l->weights;
    TRY(w->table->weight_load(w->device, &source, loaded, l->failure));
    l->bytes_done += bytes;
    log_progress("loading weights", l->bytes_done, l->bytes_total);
    return STATUS_OK;
fail:
    return result;
}

// The norms of a layer, in the order in which they lie in memory.
static const char *const norm_names[] = { "attn_norm",     "ffn_norm",    "post_attention_norm",
                                          "post_ffw_norm", "attn_q_norm", "attn_k_norm" };
#define NORMS (sizeof norm_names / sizeof norm_names[0])

static int64_t norm_size(const model_config *c, size_t norm)
{
    if (norm < 2)
        return c->width;
    if (norm < 4)
        return c->family->post_norms ? c->width : 0;
    return c->family->head_norms ? c->head_size : 0;
}

static size_t layer_norms_size(const model_config *c)
{
    int64_t size = 0;
    for (size_t i = 0; i < NORMS; i++)
        size += norm_size(c, i);
    return (size_t)size;
}

// Where a layer finds its norms and rotation, now that they are in backend memory.
static void layer_point(model_weights *w, const model_config *c, int32_t index)
{
    model_layer *layer = &w->layers[index];
    const float **norms[NORMS] = { &layer->attention_norm,
                                   &layer->feed_forward_norm,
                                   &layer->post_attention_norm,
                                   &layer->post_feed_forward_norm,
                                   &layer->q_norm,
                                   &layer->k_norm };
    const float *at = (const float *)w->norms.data + (size_t)index * layer_norms_size(c);
    for (size_t i = 0; i < NORMS; i++) {
        *norms[i] = norm_size(c, i) > 0 ? at : NULL;
        at += norm_size(c, i);
    }
    bool local = model_layer_is_local(c, index);
    layer->rope = local ? &w->local_rope : &w->rope;
    layer->window = local || c->window_period == 0 ? c->window : 0;
}

static status layer_load(loader *l, int index, float *norms)
{
    const model_config *c = l->config;
    model_layer *layer = &l->weights->layers[index];
    int64_t q_rows = (int64_t)c->heads * c->head_size,
            kv_rows = (int64_t)c->kv_heads * c->head_size;
    const part qkv[] = { { "attn_q", q_rows }, { "attn_k", kv_rows }, { "attn_v", kv_rows } };
    const part output[] = { { "attn_output", c->width } };
    const part gate_up[] = { { "ffn_gate", c->feed_forward }, { "ffn_up", c->feed_forward } };
    const part down[] = { { "ffn_down", c->width } };
    status result;
    for (size_t i = 0; i < NORMS; i++) {
        int64_t size = norm_size(c, i);
        if (size > 0)
            TRY(vector_read(l, index, norm_names[i], "weight", size, false, NULL, norms));
        norms += size;
    }
    TRY(matrix_load(l, index, qkv, 3, c->width, false, &layer->qkv));
    TRY(matrix_load(l, index, output, 1, q_rows, false, &layer->output));
    TRY(matrix_load(l, index, gate_up, 2, c->width, true, &layer->gate_up));
    TRY(matrix_load(l, index, down, 1, c->feed_forward, false, &layer->down));
    return STATUS_OK;
fail:
    return result;
}

static int pointer_compare(const void *a, const void *b)
{
    const gguf_tensor *const *x = a, *const *y = b;
    return (*x > *y) - (*x < *y);
}

// Refuse a file with a tensor that nothing used: it belongs to a model that computes something
// else.
static status unused_check(loader *l)
{
    uint64_t count = gguf_tensor_count(l->file);
    qsort(l->used, l->used_count, sizeof l->used[0], pointer_compare);
    for (uint64_t i = 0; i < count; i++) {
        const gguf_tensor *t = gguf_tensor_at(l->file, i);
        if (!bsearch(&t, l->used, l->used_count, sizeof l->used[0], pointer_compare))
            return error_set(l->failure, STATUS_UNSUPPORTED, "tensor",
                             "tensor %.*s has no place in architecture %s as this build computes "
                             "it",
                             (int)(t->name.size < 64 ? t->name.size : 64), t->name.data,
                             l->config->family->architecture);
    }
    return STATUS_OK;
}

// Copy host floats into fresh backend memory, whether or not the host can write there.
static status floats_upload(model_weights *w, const float *values, size_t count,
                            backend_memory *memory)
{
    const backend_table *t = w->table;
    backend_memory staging = { 0 };
    backend_queue *queue = NULL;
    size_t size = count * sizeof values[0];
    status result;
    TRY(t->memory_open(w->device, size, BACKEND_MEMORY_DEVICE, memory));
    TRY(t->memory_open(w->device, size, BACKEND_MEMORY_PINNED, &staging));
    TRY(t->queue_open(w->device, &queue));
    memcpy(staging.data, values, size);
    t->copy(queue, memory->data, staging.data, size);
    t->queue_wait(queue, t->queue_submit(queue));
    w->bytes += size;
fail:
    if (queue)
        t->queue_close(queue);
    if (staging.data)
        t->memory_close(w->device, &staging);
    return result;
}

// The file's divisors, or all 1. The list of LongRoPE that is not in force must be there as well.
static status divisors_read(loader *l, const model_rope *rope, float *divisors)
{
    int64_t pairs = rope->dims / 2;
    bool present = false;
    status result;
    for (int64_t i = 0; i < pairs; i++)
        divisors[i] = 1;
    if (rope->other_divisors)
        TRY(vector_read(l, -1, rope->other_divisors, "weight", pairs, false, NULL, divisors));
    if (rope->divisors)
        TRY(vector_read(l, -1, rope->divisors, "weight", pairs, !rope->other_divisors, &present,
                        divisors));
    for (int64_t i = 0; i < pairs; i++)
        if (!(divisors[i] > 0) || !isfinite(divisors[i]))
            return error_set(l->failure, STATUS_BAD_FILE, rope->divisors,
                             "%s.weight[%lld] is %g; a divisor must be above 0", rope->divisors,
                             (long long)i, (double)divisors[i]);
    return STATUS_OK;
fail:
    return result;
}

static status rope_table_load(loader *l, const model_rope *rope, int32_t positions,
                              backend_memory *memory, backend_rope *loaded)
{
    size_t pairs = (size_t)rope->dims / 2;
    float *divisors = malloc(pairs * sizeof *divisors);
    float *table = malloc((size_t)positions * pairs * 2 * sizeof *table);
    status result = STATUS_NO_MEMORY;
    if (!divisors || !table)
        goto fail;
    TRY(divisors_read(l, rope, divisors));
    for (size_t i = 0; i < pairs; i++) {
        long double frequency = model_rope_frequency(rope, (double)divisors[i], (int32_t)i);
        for (int32_t p = 0; p < positions; p++) {
            float *entry = table + ((size_t)p * pairs + i) * 2;
            model_rope_rotation(rope, frequency, p, &entry[0], &entry[1]);
        }
    }
    TRY(floats_upload(l->weights, table, (size_t)positions * pairs * 2, memory));
    *loaded =
        (backend_rope){ memory->data, rope->dims, l->config->family->rope_adjacent, positions };
fail:
    free(divisors);
    free(table);
    return result;
}

static status rope_load(loader *l, int32_t positions)
{
    const model_config *c = l->config;
    model_weights *w = l->weights;
    status result = rope_table_load(l, &c->rope, positions, &w->rotations, &w->rope);
    if (result != STATUS_OK || c->window_period == 0)
        return result;
    return rope_table_load(l, &c->local_rope, positions, &w->local_rotations, &w->local_rope);
}

static status ends_load(loader *l, float *final_norm)
{
    const model_config *c = l->config;
    model_weights *w = l->weights;
    const part embedding[] = { { "token_embd", c->rows } }, head[] = { { "output", c->rows } };
    status result;
    TRY(vector_read(l, -1, "output_norm", "weight", c->width, false, NULL, final_norm));
    TRY(matrix_load(l, -1, embedding, 1, c->width, false, &w->embedding));
    if (c->tied)
        w->head = w->embedding;
    else
        TRY(matrix_load(l, -1, head, 1, c->width, false, &w->head));
    return STATUS_OK;
fail:
    return result;
}

static void bytes_count(model_weights *w)
{
    const backend_table *t = w->table;
    for (int32_t i = 0; i < w->layer_count; i++) {
        const model_layer *m = &w->layers[i];
        w->pass_bytes += t->weight_bytes(m->qkv) + t->weight_bytes(m->output) +
                         t->weight_bytes(m->gate_up) + t->weight_bytes(m->down);
    }
    w->pass_bytes += t->weight_bytes(w->head);
    w->bytes += w->pass_bytes + (w->head == w->embedding ? 0 : t->weight_bytes(w->embedding));
}

static int64_t rows_largest(const model_config *c)
{
    int64_t largest = c->rows, qkv = (int64_t)(c->heads + 2 * c->kv_heads) * c->head_size;
    if (largest < qkv)
        largest = qkv;
    if (largest < 2 * (int64_t)c->feed_forward)
        largest = 2 * (int64_t)c->feed_forward;
    return largest < c->width ? c->width : largest;
}

// Room for norms and biases is taken by what the metadata say, so the metadata must first agree
// with the first tensors of the file.
static status shapes_check(loader *l)
{
    const model_config *c = l->config;
    const gguf_tensor *t;
    status result;
    TRY(model_tensor_find(l->file, -1, "token_embd", "weight", c->rows, c->width, false, &t,
                          l->failure));
    TRY(model_tensor_find(l->file, 0, "ffn_up", "weight", c->feed_forward, c->width, false, &t,
                          l->failure));
    TRY(model_tensor_find(l->file, 0, "attn_q", "weight", (int64_t)c->heads * c->head_size,
                          c->width, false, &t, l->failure));
    TRY(model_tensor_find(l->file, c->layers - 1, "ffn_down", "weight", c->width, c->feed_forward,
                          false, &t, l->failure));
    return STATUS_OK;
fail:
    return result;
}

status model_weights_open(const gguf *file, const model_config *config, int32_t positions,
                          const backend_table *table, backend *device, model_weights *weights,
                          error *failure)
{
    loader l = { .file = file, .config = config, .weights = weights, .failure = failure };
    float *norms = NULL;
    size_t layer_norms = layer_norms_size(config);
    size_t norm_count = (size_t)config->layers * layer_norms + (size_t)config->width;
    status result;
    *weights = (model_weights){ .table = table, .device = device, .layer_count = config->layers };
    TRY(gguf_check_size(file, failure));
    TRY(shapes_check(&l));
    for (uint64_t i = 0; i < gguf_tensor_count(file); i++)
        l.bytes_total += (double)gguf_tensor_at(file, i)->bytes;
    l.bias_capacity = rows_largest(config);
    l.bias = calloc((size_t)l.bias_capacity, sizeof l.bias[0]);
    l.used = calloc(gguf_tensor_count(file), sizeof l.used[0]);
    norms = calloc(norm_count, sizeof *norms);
    weights->layers = calloc((size_t)config->layers, sizeof weights->layers[0]);
    result = STATUS_NO_MEMORY;
    if (!l.bias || !l.used || !norms || !weights->layers)
        goto fail;
    for (int i = 0; i < config->layers; i++)
        TRY(layer_load(&l, i, norms + (size_t)i * layer_norms));
    TRY(ends_load(&l, norms + norm_count - config->width));
    TRY(rope_load(&l, positions));
    TRY(unused_check(&l));
    TRY(floats_upload(weights, norms, norm_count, &weights->norms));
    for (int i = 0; i < config->layers; i++)
        layer_point(weights, config, i);
    weights->final_norm = (const float *)weights->norms.data + norm_count - config->width;
    bytes_count(weights);
    log_progress("loading weights", 1, 1);
fail:
    free(l.bias);
    free(l.used);
    free(norms);
    if (result == STATUS_NO_MEMORY)
        error_set(failure, STATUS_NO_MEMORY, "model", "memory is short for the model's weights");
    if (result != STATUS_OK)
        model_weights_close(weights);
    return result;
}

void model_weights_cut(model_weights *copy, int32_t layers)
{
    copy->layer_count = layers;
    copy->pass_bytes = copy->bytes = 0;
    bytes_count(copy);
    copy->bytes = 0;
}

void model_weights_close(model_weights *w)
{
    const backend_table *t = w->table;
    for (int32_t i = 0; w->layers && i < w->layer_count; i++) {
        model_layer *layer = &w->layers[i];
        backend_weight *all[] = { layer->qkv, layer->output, layer->gate_up, layer->down };
        for (size_t k = 0; k < sizeof all / sizeof all[0]; k++)
            if (all[k])
                t->weight_close(all[k]);
    }
    if (w->head && w->head != w->embedding)
        t->weight_close(w->head);
    if (w->embedding)
        t->weight_close(w->embedding);
    if (w->norms.data)
        t->memory_close(w->device, &w->norms);
    if (w->rotations.data)
        t->memory_close(w->device, &w->rotations);
    if (w->local_rotations.data)
        t->memory_close(w->device, &w->local_rotations);
    free(w->layers);
    *w = (model_weights){ 0 };
}
