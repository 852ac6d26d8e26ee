#include "model/engine_parts.h"

#include "base/log.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// Part of the numeric id: raise it when the forward pass computes other bits.
#define MODEL_NUMERIC_VERSION 1

static const char *const levels[] = { "auto", "scalar", "avx2", "avx512", NULL };
static const char *const kv_types[] = { "f16", "bf16", "int8", "fp8", "f32", NULL };
static const tensor_type kv_type_values[] = { TENSOR_F16, TENSOR_BF16, TENSOR_I8, TENSOR_F8_E4M3,
                                              TENSOR_F32 };

static const char *const batchings[] = { "continuous", "static", NULL };

#define AT(field) offsetof(engine_settings, field)
// clang-format off
static const config_key keys[] = {
    { "engine.model", CONFIG_STRING, AT(model), "", 0, 0, "", "Path of the GGUF file to serve.", NULL },
    { "engine.level", CONFIG_STRING, AT(level), "auto", 0, 0, "", "Instruction set of the kernels; auto takes the best that this CPU has.", levels },
    { "engine.threads", CONFIG_INT, AT(threads), "0", 0, 256, "threads", "Compute threads; 0 takes what affinity and the cgroup quota allow.", NULL },
    { "engine.cores", CONFIG_STRING, AT(cores), "", 0, 0, "", "Cores to pin the compute threads to, such as 0,2-3; empty pins to none in particular.", NULL },
    { "engine.kv_type", CONFIG_STRING, AT(kv_type), "f16", 0, 0, "", "Number type of the KV cache.", kv_types },
    { "engine.page_tokens", CONFIG_INT, AT(page_tokens), "64", 32, 128, "tokens", "Tokens of a KV page: 32, 64 or 128.", NULL },
    { "engine.kv_bytes", CONFIG_BYTES, AT(kv_bytes), "512MiB", 1 << 16, 1e15, "bytes", "Memory of the KV page pool.", NULL },
    { "engine.max_sequences", CONFIG_INT, AT(max_sequences), "64", 1, 4096, "sequences", "Sequences open at a time.", NULL },
    { "engine.step_tokens", CONFIG_INT, AT(step_tokens), "512", 1, 65536, "tokens", "Tokens computed in one step at most; at least engine.max_sequences.", NULL },
    { "engine.chunk_tokens", CONFIG_INT, AT(chunk_tokens), "256", 1, 65536, "tokens", "Tokens of one prompt computed in one step at most.", NULL },
    { "engine.mixed_tokens", CONFIG_INT, AT(mixed_tokens), "128", 0, 65536, "tokens", "Tokens of prompts in a step that also has tokens of answers, at most; 0: as many as fit.", NULL },
    { "engine.mixed_step", CONFIG_DURATION, AT(mixed_step_us), "50ms", 0, 6e7, "", "Such a step takes only as many tokens of prompts (8 at least) as are predicted to be computed within this time; 0s: no limit.", NULL },
    { "engine.draft_tokens", CONFIG_INT, AT(draft_tokens), "32", 0, 4096, "tokens", "Guessed tokens of answers verified in one step at most; each takes room for a row of logits.", NULL },
    { "engine.score_tokens", CONFIG_INT, AT(score_tokens), "32", 0, 4096, "tokens", "Prompt tokens whose own log-probabilities are reported, in one step at most; each takes room for a row of logits. 0: they are refused.", NULL },
    { "engine.batch_share", CONFIG_INT, AT(batch_share), "10", 1, 90, "percent", "Of a step's tokens of prompts, the part kept for the batch class while interactive prompts wait.", NULL },
    { "engine.growth_tokens", CONFIG_INT, AT(growth_tokens), "512", 0, 1e9, "tokens", "Room that every open answer must find to grow by when another sequence is let in; what grows beyond may be preempted.", NULL },
    { "engine.batching", CONFIG_STRING, AT(batching), "continuous", 0, 0, "", "static: sequences join only when all of the batch have ended; for comparisons.", batchings },
    { "engine.context", CONFIG_INT, AT(context), "0", 0, 1e9, "tokens", "Tokens of a sequence at most, prompt and answer; 0 takes what the model was trained for.", NULL },
    { "security.zero_pages", CONFIG_BOOL, AT(zero_pages), "false", 0, 0, "", "Overwrite a KV page with zeros before a request of another tenant gets it.", NULL },
    { "engine.prefix_reuse", CONFIG_BOOL, AT(prefix_reuse), "true", 0, 0, "", "Share the pages of equal prompt prefixes instead of computing them again.", NULL },
};
// clang-format on
#undef AT
const config_section engine_config_section = { keys, sizeof keys / sizeof keys[0] };

status engine_kv_type_of(const char *name, tensor_type *type, error *failure)
{
    char names[128] = "";
    for (size_t i = 0; kv_types[i]; i++) {
        if (strcmp(kv_types[i], name) == 0) {
            *type = kv_type_values[i];
            return STATUS_OK;
        }
        size_t used = strlen(names);
        snprintf(names + used, sizeof names - used, "%s%s", i > 0 ? ", " : "", kv_types[i]);
    }
    return error_set(failure, STATUS_BAD_CONFIG, "engine.kv_type",
                     "the KV type '%s' is not known; it must be one of %s", name, names);
}

static status settings_check(const engine_settings *s, error *failure)
{
    if (s->page_tokens != 32 && s->page_tokens != 64 && s->page_tokens != 128)
        return error_set(failure, STATUS_BAD_CONFIG, "engine.page_tokens",
                         "engine.page_tokens is %lld; it must be 32, 64 or 128",
                         (long long)s->page_tokens);
    if (s->step_tokens < s->max_sequences)
        return error_set(failure, STATUS_BAD_CONFIG, "engine.step_tokens",
                         "engine.step_tokens is %lld; every one of the %lld sequences needs a "
                         "token in a step",
                         (long long)s->step_tokens, (long long)s->max_sequences);
    if (s->model[0] == '\0')
        return error_set(failure, STATUS_BAD_CONFIG, "engine.model",
                         "engine.model is empty; it must be the path of a GGUF file");
    return STATUS_OK;
}

static status backend_start(engine *e, const engine_settings *s, error *failure)
{
    backend_settings wanted = { .level = s->level,
                                .threads = (int)s->threads,
                                .cores = s->cores,
                                .borrowed = s->borrowed,
                                .borrowed_count = s->borrowed_count };
    status result;
    e->table = &backend_cpu;
    if (s->beside)
        e->device = s->beside->device;
    else
        TRY(e->table->open(&wanted, &e->device, failure));
    TRY(e->table->queue_open(e->device, &e->queue));
    return STATUS_OK;
fail:
    return result;
}

// The pool: as many pages as kv_bytes holds. A sequence can be no longer than the whole pool, so
// that one alone always ends by its length and never by a page that cannot come.
// Nobody's numbers are in any page yet. That is kept as tenant 0, who also stands for requests that
// name none.
static status tenants_open(engine *e, error *failure)
{
    backend_caps caps;
    e->table->caps(e->device, &caps);
    if (!caps.host_memory)
        return error_set(failure, STATUS_BAD_CONFIG, "security.zero_pages",
                         "security.zero_pages is true; it needs a backend whose memory the host "
                         "can write");
    e->page_tenants = calloc((size_t)e->kv.pages, sizeof e->page_tenants[0]);
    return e->page_tenants ? STATUS_OK : STATUS_NO_MEMORY;
}

static status cache_open(engine *e, const engine_settings *s, const model_config *c, error *failure)
{
    tensor_type type;
    kv_layout *layout = &e->kv.layout;
    status result;
    TRY(engine_kv_type_of(s->kv_type, &type, failure));
    TRY(e->table->kv_layout(e->device, type, (int)s->page_tokens, c->layers, c->kv_heads,
                            c->head_size, layout, failure));
    uint64_t pages = s->kv_bytes / (uint64_t)layout->page_bytes;
    if (pages < 1)
        return error_set(failure, STATUS_BAD_CONFIG, "engine.kv_bytes",
                         "engine.kv_bytes is %llu; one page of this model takes %lld bytes",
                         (unsigned long long)s->kv_bytes, (long long)layout->page_bytes);
    if (s->context > c->context)
        return error_set(failure, STATUS_BAD_CONFIG, "engine.context",
                         "engine.context is %lld; the model was trained for %d tokens",
                         (long long)s->context, c->context);
    e->kv.pages = pages > INT32_MAX / 128 ? INT32_MAX / 128 : (int32_t)pages;
    int64_t context = s->context > 0 ? s->context : c->context;
    int64_t held = (int64_t)e->kv.pages * s->page_tokens;
    if (context > held) {
        log_info("model", "context %lld of %lld is what engine.kv_bytes holds", (long long)held,
                 (long long)context);
        context = held;
    }
    e->facts.context = (int32_t)context;
    e->pages_per_sequence = (int32_t)((context + s->page_tokens - 1) / s->page_tokens);
    TRY(kv_pool_open(e->kv.pages, &e->pool));
    if (s->prefix_reuse)
        TRY(kv_reuse_open(e->pool, (int32_t)s->page_tokens, &e->reuse));
    TRY(e->table->memory_open(e->device, (size_t)e->kv.pages * (size_t)layout->page_bytes,
                              BACKEND_MEMORY_DEVICE, &e->kv.memory));
    if (s->zero_pages)
        TRY(tenants_open(e, failure));
    return STATUS_OK;
fail:
    if (result == STATUS_NO_MEMORY)
        error_set(failure, result, "engine.kv_bytes", "memory is short for %llu bytes of pages",
                  (unsigned long long)s->kv_bytes);
    return result;
}

// Hand out parts of the pinned arena; with `base` NULL it only measures.
static void *arena_take(char *base, size_t *used, size_t count, size_t size)
{
    void *part = base ? base + *used : NULL;
    *used += (count * size + 63) / 64 * 64;
    return part;
}

static size_t arena_lay_out(engine *e, char *base)
{
    size_t n = (size_t)e->facts.max_sequences, rows = (size_t)e->settings.step_tokens, used = 0;
    size_t i32 = sizeof(int32_t);
    step_arrays *a = &e->arrays;
    a->tokens = arena_take(base, &used, rows, i32);
    a->positions = arena_take(base, &used, rows, i32);
    a->row_sequence = arena_take(base, &used, rows, i32);
    a->first_row = arena_take(base, &used, n + 1, i32);
    a->lengths = arena_take(base, &used, n, i32);
    a->tables = arena_take(base, &used, n * (size_t)e->pages_per_sequence, i32);
    size_t scores = (size_t)e->settings.score_tokens;
    a->logit_index = arena_take(base, &used, n + (size_t)e->settings.draft_tokens + scores, i32);
    a->copy_pair = arena_take(base, &used, 2, i32);
    a->samples = arena_take(base, &used, n, sizeof *a->samples);
    a->results = arena_take(base, &used, n, sizeof *a->results);
    a->score_samples = arena_take(base, &used, scores, sizeof *a->score_samples);
    a->score_results = arena_take(base, &used, scores, sizeof *a->score_results);
    a->score_biases = arena_take(base, &used, scores, sizeof *a->score_biases);
    for (size_t i = 0; i < n; i++) {
        sequence *s = &e->slots[i];
        s->counts = arena_take(base, &used, (size_t)e->counts_capacity, sizeof s->counts[0]);
        s->biases = arena_take(base, &used, SEQUENCE_BIAS_MAX, sizeof s->biases[0]);
        s->mask = arena_take(base, &used, (size_t)e->mask_words, sizeof s->mask[0]);
    }
    return used;
}

static status arrays_open(engine *e, const model_config *c, error *failure)
{
    size_t n = (size_t)e->facts.max_sequences, context = (size_t)e->facts.context;
    size_t pages = (size_t)e->pages_per_sequence;
    status result = STATUS_NO_MEMORY;
    e->counts_capacity = e->facts.context < c->vocabulary ? e->facts.context : c->vocabulary;
    e->mask_words = (c->vocabulary + 63) / 64;
    e->slots = calloc(n, sizeof e->slots[0]);
    e->running = calloc(n, sizeof e->running[0]);
    e->preempted = calloc(n, sizeof e->preempted[0]);
    e->tokens = calloc(n + (size_t)e->settings.draft_tokens, sizeof e->tokens[0]);
    e->scored = calloc((size_t)e->settings.score_tokens + 1, sizeof e->scored[0]);
    e->scores = calloc((size_t)e->settings.score_tokens + 1, sizeof e->scores[0]);
    e->batch_sequences = calloc(n, sizeof e->batch_sequences[0]);
    e->batch_rows = calloc(n, sizeof e->batch_rows[0]);
    e->batch_logits = calloc(n, sizeof e->batch_logits[0]);
    e->drawing = calloc(n, sizeof e->drawing[0]);
    e->sequence_tokens = calloc(n * context, sizeof e->sequence_tokens[0]);
    e->sequence_page_ids = calloc(n * pages, sizeof e->sequence_page_ids[0]);
    e->sort_scratch = calloc(context, sizeof e->sort_scratch[0]);
    e->row = calloc((size_t)c->rows, sizeof e->row[0]);
    if (!e->scored || !e->scores || !e->slots || !e->running || !e->preempted || !e->tokens ||
        !e->batch_sequences || !e->batch_rows || !e->batch_logits || !e->drawing ||
        !e->sequence_tokens || !e->sequence_page_ids || !e->sort_scratch || !e->row)
        goto fail;
    TRY(e->table->memory_open(e->device, arena_lay_out(e, NULL), BACKEND_MEMORY_PINNED,
                              &e->pinned));
    arena_lay_out(e, e->pinned.data);
    for (size_t i = 0; i < n; i++) {
        e->slots[i].engine = e;
        e->slots[i].tokens = e->sequence_tokens + i * context;
        e->slots[i].pages = e->sequence_page_ids + i * pages;
    }
    return STATUS_OK;
fail:
    error_set(failure, result, "engine.max_sequences",
              "memory is short for %zu sequences of %zu "
              "tokens",
              n, context);
    return result;
}

static void facts_fill(engine *e, const model_config *c)
{
    backend_caps caps;
    char weights[33], text[256];
    const model_weights *w = model_weights_of(e->model);
    engine_facts *f = &e->facts;
    e->table->caps(e->device, &caps);
    memcpy(e->level, caps.level, sizeof e->level);
    hash128_format(f->weights, weights);
    snprintf(text, sizeof text, "%s %d %s %s", caps.numeric_name, MODEL_NUMERIC_VERSION, weights,
             e->kv.layout.name);
    f->numeric_id = hash128_of(text, strlen(text));
    f->model_name = c->name;
    f->architecture = c->family->architecture;
    f->layout = e->kv.layout;
    f->pages = e->kv.pages;
    f->vocabulary = c->vocabulary;
    f->threads = caps.threads;
    f->level = e->level;
    f->weight_bytes = w->pass_bytes;
    f->memory_bytes = w->bytes + e->kv.memory.size + e->pinned.size +
                      model_activation_bytes(e->model) +
                      (size_t)f->max_sequences * (size_t)f->context * sizeof(int32_t);
}

// Only the first layers are to be computed.
static status layers_cut(const engine_settings *s, model_config *config, error *failure)
{
    CHECK(s->beside != NULL);
    if (s->layers > config->layers)
        return error_set(failure, STATUS_BAD_CONFIG, "layers",
                         "%lld layers are wanted; the model has %d", (long long)s->layers,
                         config->layers);
    config->layers = (int32_t)s->layers;
    return STATUS_OK;
}

status engine_open(const engine_settings *settings, engine **opened, error *failure)
{
    engine *e = calloc(1, sizeof *e);
    gguf *file = NULL;
    model_config config;
    status result = STATUS_NO_MEMORY;
    if (!e)
        return error_set(failure, result, "", "memory is short for the engine");
    e->settings = *settings;
    e->facts.max_sequences = (int32_t)settings->max_sequences;
    e->facts.draft_tokens = (int32_t)settings->draft_tokens;
    e->static_batching = settings->batching != NULL && strcmp(settings->batching, "static") == 0;
    cost_begin(&e->cost);
    TRY(settings_check(settings, failure));
    TRY(gguf_open(settings->model, &file, failure));
    result = model_config_read(file, &config, failure);
    if (result != STATUS_OK) {
        error_prefix(failure, "%s", settings->model);
        goto fail;
    }
    if (settings->layers > 0)
        TRY(layers_cut(settings, &config, failure));
    TRY(backend_start(e, settings, failure));
    TRY(cache_open(e, settings, &config, failure));
    TRY(arrays_open(e, &config, failure));
    int32_t logit_rows =
        e->facts.max_sequences + (int32_t)(settings->draft_tokens + settings->score_tokens);
    model_limits limits = { (int32_t)settings->step_tokens, logit_rows, e->facts.context };
    if (limits.logit_rows > limits.rows)
        limits.logit_rows = limits.rows;
    result =
        settings->layers > 0
            ? model_open_part(settings->beside->model, config.layers, &limits, &e->model, failure)
            : model_open(file, &config, &limits, e->table, e->device, &e->model, failure);
    if (result != STATUS_OK) {
        error_prefix(failure, "%s", settings->model);
        goto fail;
    }
    if (settings->layers > 0)
        e->facts.weights = settings->beside->facts.weights;
    else
        TRY(gguf_digest(file, &e->facts.weights, failure));
    facts_fill(e, model_config_of(e->model));
    gguf_close(file);
    *opened = e;
    return STATUS_OK;
fail:
    if (file)
        gguf_close(file);
    engine_close(e);
    return result;
}

void engine_close(engine *e)
{
    if (!e)
        return;
    model_close(e->model);
    kv_reuse_close(e->reuse);
    kv_pool_close(e->pool);
    free(e->page_tenants);
    if (e->kv.memory.data)
        e->table->memory_close(e->device, &e->kv.memory);
    if (e->pinned.data)
        e->table->memory_close(e->device, &e->pinned);
    if (e->queue)
        e->table->queue_close(e->queue);
    if (e->device && !e->settings.beside)
        e->table->close(e->device);
    free(e->slots);
    free(e->running);
    free(e->preempted);
    free(e->scored);
    free(e->scores);
    free(e->tokens);
    free(e->batch_sequences);
    free(e->batch_rows);
    free(e->batch_logits);
    free(e->drawing);
    free(e->sequence_tokens);
    free(e->sequence_page_ids);
    free(e->sort_scratch);
    free(e->row);
    free(e);
}

void engine_set_mix(engine *e, const engine_settings *settings)
{
    e->settings.mixed_tokens = settings->mixed_tokens;
    e->settings.mixed_step_us = settings->mixed_step_us;
    e->settings.batch_share = settings->batch_share;
}
