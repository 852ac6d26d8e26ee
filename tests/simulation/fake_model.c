#include "fake_model.h"

#include "check.h"

#include "base/random.h"
#include "compute/backend.h"
#include "harness/tiny_model.h"
#include "model/model.h"

#include <stdio.h>
#include <stdlib.h>

#define LETTER_FIRST 'A'
#define LETTERS 58 // A to z

// What a page holds for one token.
typedef struct fake_model_slot {
    uint64_t chain;
    int32_t token, position;
    char rest[48]; // so that a small pool has few pages
} fake_model_slot;

uint64_t fake_model_chain(uint64_t before, int32_t token)
{
    return random_mix(before ^ random_mix((uint64_t)token + 77)) | 1;
}

int32_t fake_model_draw(uint64_t chain, uint64_t seed, int may_end)
{
    uint64_t bits = random_mix(chain + random_mix(seed));
    if (may_end && bits % 97 == 0)
        return FAKE_MODEL_END_TOKEN;
    return TINY_MODEL_BYTE_FIRST + LETTER_FIRST + (int32_t)(bits / 97 % LETTERS);
}

// ---- model/model.h ----------------------------------------------------------------------------

struct model {
    model_config config;
    model_weights weights;
};

status model_open(const gguf *file, const model_config *config, const model_limits *limits,
                  const backend_table *table, backend *device, model **opened, error *failure)
{
    (void)file;
    (void)limits;
    (void)table;
    (void)device;
    (void)failure;
    *opened = calloc(1, sizeof **opened);
    CHECK(*opened);
    (*opened)->config = *config;
    return STATUS_OK;
}

status model_open_part(const model *other, int32_t layers, const model_limits *limits,
                       model **opened, error *failure)
{
    (void)other;
    (void)layers;
    (void)limits;
    (void)opened;
    return error_set(failure, STATUS_UNSUPPORTED, "", "there are no layers in this world");
}

void model_close(model *m)
{
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
    (void)m;
    return 0;
}

void model_forward(model *m, backend_queue *queue, const kv_memory *kv, const backend_batch *batch)
{
    (void)m;
    (void)queue;
    (void)kv;
    (void)batch;
    CHECK(false); // step_begin has done it
}

backend_activation *model_logits(const model *m)
{
    return (backend_activation *)(uintptr_t)m;
}

// ---- the backend ------------------------------------------------------------------------------

#define LOGIT_ROWS_MAX 256

struct backend {
    char *pages; // the page pool
    int page_tokens;
    int rows; // of the step under way
    uint64_t chains[LOGIT_ROWS_MAX];
};

struct backend_queue {
    backend *backend;
};

static status device_open(const backend_settings *settings, backend **opened, error *failure)
{
    (void)settings;
    (void)failure;
    *opened = calloc(1, sizeof **opened);
    CHECK(*opened);
    return STATUS_OK;
}

static void device_close(backend *b)
{
    free(b);
}

static void device_caps(const backend *b, backend_caps *caps)
{
    (void)b;
    *caps =
        (backend_caps){ .name = "world", .level = "world", .numeric_name = "world", .threads = 1 };
    caps->host_memory = caps->replays_steps = true;
}

static status memory_take(backend *b, size_t size, backend_memory_kind kind, backend_memory *memory)
{
    *memory = (backend_memory){ aligned_alloc(64, (size + 63) / 64 * 64), size, kind };
    CHECK(memory->data);
    memset(memory->data, 0, size);
    if (kind == BACKEND_MEMORY_DEVICE)
        b->pages = memory->data;
    return STATUS_OK;
}

static void memory_give(backend *b, backend_memory *memory)
{
    (void)b;
    free(memory->data);
}

static status queue_take(backend *b, backend_queue **opened)
{
    *opened = calloc(1, sizeof **opened);
    CHECK(*opened);
    (*opened)->backend = b;
    return STATUS_OK;
}

static void queue_give(backend_queue *q)
{
    free(q);
}

static uint64_t queue_begin(backend_queue *q)
{
    (void)q;
    return 1;
}

static bool queue_is_done(backend_queue *q, uint64_t submitted)
{
    (void)q;
    (void)submitted;
    return true;
}

// A step takes its time: 2 ms and 30 us a row, more on a slow machine.
static void queue_await(backend_queue *q, uint64_t submitted)
{
    (void)submitted;
    uint64_t duration_us = 2000 + 30 * (uint64_t)q->backend->rows;
    if (q->backend->rows == 0)
        return; // pages were copied, nothing else
    q->backend->rows = 0;
    world_sleep(duration_us * world_current()->slowness / 100);
}

static status layout_choose(const backend *b, tensor_type type, int page_tokens, int layers,
                            int kv_heads, int head_size, kv_layout *layout, error *failure)
{
    (void)failure;
    ((backend *)(uintptr_t)b)->page_tokens = page_tokens;
    *layout = (kv_layout){ .name = "world/1", .type = type, .page_tokens = page_tokens };
    layout->layers = layers;
    layout->kv_heads = kv_heads;
    layout->head_size = head_size;
    layout->page_bytes = (int64_t)sizeof(fake_model_slot) * page_tokens;
    return STATUS_OK;
}

static fake_model_slot *slot_of(const backend *b, const int32_t *table, int32_t position)
{
    size_t page = (size_t)table[position / b->page_tokens];
    fake_model_slot *slots = (fake_model_slot *)(void *)(b->pages + page * (size_t)b->page_tokens *
                                                                        sizeof(fake_model_slot));
    return &slots[position % b->page_tokens];
}

// What attention would read: every position before `end`.
static uint64_t chain_read(const backend *b, const int32_t *table, int32_t end)
{
    uint64_t chain = 0;
    for (int32_t i = 0; i < end; i++) {
        const fake_model_slot *s = slot_of(b, table, i);
        chain = fake_model_chain(chain, s->token);
        if (s->chain != chain || s->position != i)
            world_violation("page %d of a sequence of %d tokens holds position %d of another "
                            "sequence where position %d is read",
                            table[i / b->page_tokens], end, s->position, i);
    }
    return chain;
}

static bool step_compute(backend_queue *q, const backend_batch *batch)
{
    backend *b = q->backend;
    int next_logit = 0;
    CHECK(batch->logit_rows <= LOGIT_ROWS_MAX);
    b->rows = batch->rows;
    for (int i = 0; i < batch->sequences; i++) {
        const int32_t *table = batch->tables + (size_t)i * (size_t)batch->table_stride;
        int first = batch->first_row[i], end = batch->first_row[i + 1];
        uint64_t chain = chain_read(b, table, batch->positions[first]);
        for (int row = first; row < end; row++) {
            chain = fake_model_chain(chain, batch->tokens[row]);
            *slot_of(b, table, batch->positions[row]) = (fake_model_slot){
                .chain = chain, .token = batch->tokens[row], .position = batch->positions[row]
            };
            if (next_logit < batch->logit_rows && batch->logit_index[next_logit] == row)
                b->chains[next_logit++] = chain;
        }
    }
    return true;
}

static void step_finish(backend_queue *q)
{
    (void)q;
}

static void pages_copy(backend_queue *q, const kv_memory *kv, const int32_t *pairs, int count)
{
    size_t size = (size_t)kv->layout.page_bytes;
    for (int i = 0; i < count; i++)
        memcpy(q->backend->pages + (size_t)pairs[2 * i + 1] * size,
               q->backend->pages + (size_t)pairs[2 * i] * size, size);
}

static void tokens_sample(backend_queue *q, const backend_activation *logits,
                          const backend_sample *rows, int count, backend_sampled *results)
{
    (void)logits;
    for (int i = 0; i < count; i++) {
        bool may_end = !rows[i].mask || (rows[i].mask[0] >> FAKE_MODEL_END_TOKEN & 1);
        results[i] = (backend_sampled){ .logprob = -1 };
        results[i].token = fake_model_draw(q->backend->chains[rows[i].row], rows[i].seed, may_end);
        for (int k = 0; k < BACKEND_TOP_MAX; k++)
            results[i].top_tokens[k] = -1;
    }
}

const backend_table backend_cpu = {
    .open = device_open,
    .close = device_close,
    .caps = device_caps,
    .memory_open = memory_take,
    .memory_close = memory_give,
    .queue_open = queue_take,
    .queue_close = queue_give,
    .queue_submit = queue_begin,
    .queue_done = queue_is_done,
    .queue_wait = queue_await,
    .step_begin = step_compute,
    .step_end = step_finish,
    .kv_layout = layout_choose,
    .kv_copy = pages_copy,
    .sample = tokens_sample,
};
