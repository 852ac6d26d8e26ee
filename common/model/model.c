#include "model/model.h"

#include <stdlib.h>

struct model {
    model_config config;
    model_limits limits;
    const backend_table *table;
    backend *device;
    model_weights weights;
    bool part; // the weights are another model's
    size_t activation_bytes;
    backend_activation *stream;     // [rows][width] the residual stream
    backend_activation *qkv;        // [rows][(heads + 2 kv_heads) * head_size]
    backend_activation *mixed;      // [rows][heads * head_size] attention's result
    backend_activation *hidden;     // [rows][feed_forward]
    backend_activation *branch;     // [rows][width] what a norm follows before it is added, or NULL
    backend_activation *last;       // [logit_rows][width]
    backend_activation *last_mixed; // [logit_rows][heads * head_size]
    backend_activation *logits;     // [logit_rows][rows of the head]
};

static status activation_add(model *m, int32_t rows, int64_t columns, backend_activation **opened)
{
    m->activation_bytes += (size_t)rows * (size_t)columns * sizeof(float);
    return m->table->activation_open(m->device, rows, (int)columns, opened);
}

static status activations_open(model *m)
{
    const model_config *c = &m->config;
    int64_t q = (int64_t)c->heads * c->head_size;
    int64_t qkv = q + 2 * (int64_t)c->kv_heads * c->head_size;
    int32_t rows = m->limits.rows, logit_rows = m->limits.logit_rows;
    status result;
    TRY(activation_add(m, rows, c->width, &m->stream));
    TRY(activation_add(m, rows, qkv, &m->qkv));
    TRY(activation_add(m, rows, q, &m->mixed));
    TRY(activation_add(m, rows, c->feed_forward, &m->hidden));
    if (c->family->post_norms)
        TRY(activation_add(m, rows, c->width, &m->branch));
    TRY(activation_add(m, logit_rows, c->width, &m->last));
    TRY(activation_add(m, logit_rows, q, &m->last_mixed));
    TRY(activation_add(m, logit_rows, c->rows, &m->logits));
    return STATUS_OK;
fail:
    return result;
}

static model *model_new(const model_config *config, const model_limits *limits,
                        const backend_table *table, backend *device)
{
    CHECK(limits->rows >= limits->logit_rows && limits->logit_rows >= 1);
    model *m = calloc(1, sizeof *m);
    if (!m)
        return NULL;
    m->config = *config;
    m->limits = *limits;
    m->table = table;
    m->device = device;
    return m;
}

static status memory_short(const model_limits *limits, status result, error *failure)
{
    if (result == STATUS_NO_MEMORY)
        error_set(failure, result, "engine.step_tokens",
                  "memory is short for the model and steps of %d tokens", limits->rows);
    return result;
}

status model_open(const gguf *file, const model_config *config, const model_limits *limits,
                  const backend_table *table, backend *device, model **opened, error *failure)
{
    status result = STATUS_NO_MEMORY;
    model *m = model_new(config, limits, table, device);
    if (!m)
        goto fail;
    TRY(model_weights_open(file, config, limits->positions, table, device, &m->weights, failure));
    TRY(activations_open(m));
    *opened = m;
    return STATUS_OK;
fail:
    model_close(m);
    return memory_short(limits, result, failure);
}

status model_open_part(const model *other, int32_t layers, const model_limits *limits,
                       model **opened, error *failure)
{
    CHECK(layers >= 1 && layers <= other->config.layers);
    CHECK(limits->positions <= other->limits.positions);
    status result = STATUS_NO_MEMORY;
    model *m = model_new(&other->config, limits, other->table, other->device);
    if (!m)
        goto fail;
    m->part = true;
    m->config.layers = layers;
    m->weights = other->weights;
    model_weights_cut(&m->weights, layers);
    TRY(activations_open(m));
    *opened = m;
    return STATUS_OK;
fail:
    model_close(m);
    return memory_short(limits, result, failure);
}

void model_close(model *m)
{
    if (!m)
        return;
    backend_activation *all[] = { m->stream, m->qkv,  m->mixed,      m->hidden,
                                  m->branch, m->last, m->last_mixed, m->logits };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        if (all[i])
            m->table->activation_close(all[i]);
    if (m->weights.table && !m->part)
        model_weights_close(&m->weights);
    free(m);
}

const model_config *model_config_of(const model *m)
{
    return &m->config;
}

const model_weights *model_weights_of(const model *m)
{
    return &m->weights;
}

size_t model_activation_bytes(const model *m)
{
    return m->activation_bytes;
}

backend_activation *model_logits(const model *m)
{
    return m->logits;
}

// stream += W x, normalised in between where `norm` is not NULL.
static void stream_add(model *m, backend_queue *queue, backend_activation *stream,
                       const backend_activation *x, const backend_weight *w, const float *norm,
                       int rows)
{
    float epsilon = m->config.epsilon;
    if (!norm) {
        m->table->linear(queue, stream, x, w, NULL, epsilon, rows, BACKEND_ADD);
        return;
    }
    m->table->linear(queue, m->branch, x, w, NULL, epsilon, rows, BACKEND_STORE);
    m->table->norm(queue, stream, m->branch, norm, epsilon, rows, BACKEND_ADD);
}

// The second half of a layer: attention's result into the stream, then the feed-forward part.
static void layer_finish(model *m, backend_queue *queue, const model_layer *layer,
                         backend_activation *stream, backend_activation *mixed, int rows)
{
    backend_epilogue gate = m->config.family->gelu ? BACKEND_GEGLU : BACKEND_SWIGLU;
    stream_add(m, queue, stream, mixed, layer->output, layer->post_attention_norm, rows);
    m->table->linear(queue, m->hidden, stream, layer->gate_up, layer->feed_forward_norm,
                     m->config.epsilon, rows, gate);
    stream_add(m, queue, stream, m->hidden, layer->down, layer->post_feed_forward_norm, rows);
}

void model_forward(model *m, backend_queue *queue, const kv_memory *kv, const backend_batch *batch)
{
    const model_config *c = &m->config;
    const model_weights *w = &m->weights;
    const backend_table *t = m->table;
    const backend_heads heads = { c->heads, c->kv_heads, c->head_size };
    int rows = batch->rows, wanted = batch->logit_rows;
    CHECK(rows >= 1 && rows <= m->limits.rows && wanted <= m->limits.logit_rows);
    t->embed(queue, m->stream, w->embedding, batch->tokens, rows, c->embedding_scale);
    t->attention_plan(queue, &heads, kv, batch);
    for (int i = 0; i < w->layer_count; i++) {
        const model_layer *layer = &w->layers[i];
        bool last = i == w->layer_count - 1;
        t->linear(queue, m->qkv, m->stream, layer->qkv, layer->attention_norm, c->epsilon, rows,
                  BACKEND_STORE);
        t->rope_store(queue, m->qkv, &heads, layer->rope, layer->q_norm, layer->k_norm, c->epsilon,
                      kv, i, batch);
        if (last && wanted == 0)
            return; // a chunk in the middle of a prompt: its keys and values are in the pages
        t->attention(queue, m->mixed, m->qkv, &heads, kv, i, batch, c->attention_scale,
                     layer->window);
        if (last)
            break;
        layer_finish(m, queue, layer, m->stream, m->mixed, rows);
    }
    t->gather(queue, m->last, m->stream, batch->logit_index, wanted);
    t->gather(queue, m->last_mixed, m->mixed, batch->logit_index, wanted);
    layer_finish(m, queue, &w->layers[w->layer_count - 1], m->last, m->last_mixed, wanted);
    t->linear(queue, m->logits, m->last, w->head, w->final_norm, c->epsilon, wanted, BACKEND_STORE);
}
