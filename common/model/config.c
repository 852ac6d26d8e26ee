#include "model/config.h"

#include "base/utf8.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

static const model_family families[] = {
    { .architecture = "llama", .rope_adjacent = true, .has_window = true },
    { .architecture = "qwen2" },
    { .architecture = "gemma3",
      .has_window = true,
      .head_norms = true,
      .post_norms = true,
      .gelu = true,
      .scaled_embedding = true,
      .window_period = 6,
      .local_rope_base = 10000,
      .wide_scale_layers = 62 },
};

bool model_layer_is_local(const model_config *config, int32_t layer)
{
    return config->window_period > 0 && (layer + 1) % config->window_period != 0;
}

// Keys that change the numbers in a way that no family above has. `neutral` is the value that means
// "does nothing"; any other is refused by name.
static const struct {
    const char *key;
    double neutral;
} refused_keys[] = {
    { "expert_count", 0 },
    { "attn_logit_softcapping", 0 },
    { "final_logit_softcapping", 0 },
    { "attention.max_alibi_bias", 0 },
    { "attention.clamp_kqv", 0 },
    { "attention.causal", 1 },
    { "attention.scale", 0 },
    { "attention.kv_lora_rank", 0 },
    { "attention.q_lora_rank", 0 },
    { "logit_scale", 1 },
    { "residual_scale", 1 },
    { "embedding_scale", 1 },
    { "use_parallel_residual", 0 },
    { "rope.scaling.yarn_log_multiplier", 0 },
    { "rope.scaling.yarn_ext_factor", 1 },
    { "rope.scaling.yarn_attn_factor", 1 },
};

// Texts of control tokens that end a turn in some family, for files that name only one end id.
static const char *const end_texts[] = { "<|im_end|>",    "<|eot_id|>", "<|end|>",
                                         "<|endoftext|>", "<|eom_id|>", "<|end_of_text|>",
                                         "<end_of_turn>", "<|eot|>",    "</s>" };

static const char *const end_keys[] = { "tokenizer.ggml.eos_token_id",
                                        "tokenizer.ggml.eot_token_id",
                                        "tokenizer.ggml.eom_token_id" };

#define TOKEN_TYPE_CONTROL 3

typedef struct reader {
    const gguf *file;
    const char *architecture;
    char key[128];
    error *failure;
} reader;

static const char *key_of(reader *r, const char *name)
{
    snprintf(r->key, sizeof r->key, "%s.%s", r->architecture, name);
    return r->key;
}

// An integer in [low, high]. An array (one value a layer) passes where all values are equal.
static status size_read(reader *r, const char *name, int64_t low, int64_t high, int32_t *value)
{
    const char *key = key_of(r, name);
    gguf_kind kind;
    uint64_t found = 0;
    status result;
    if (gguf_has(r->file, key, &kind) && kind == GGUF_ARRAY) {
        gguf_array array;
        TRY(gguf_get_array(r->file, key, GGUF_U64, &array, r->failure));
        for (uint64_t i = 0; i < array.count; i++) {
            uint64_t one;
            if (!gguf_array_u64(&array, i, &one) || (i > 0 && one != found))
                return error_set(r->failure, STATUS_UNSUPPORTED, key,
                                 "%s differs from layer to layer; this build computes models whose "
                                 "layers are alike",
                                 key);
            found = one;
        }
    } else {
        TRY(gguf_get_u64(r->file, key, &found, r->failure));
    }
    if (found < (uint64_t)low || found > (uint64_t)high)
        return error_set(r->failure, STATUS_BAD_FILE, key, "%s is %llu; it must be %lld to %lld",
                         key, (unsigned long long)found, (long long)low, (long long)high);
    *value = (int32_t)found;
    return STATUS_OK;
fail:
    return result;
}

static status size_read_or(reader *r, const char *name, int64_t low, int64_t high,
                           int32_t otherwise, int32_t *value)
{
    if (!gguf_has(r->file, key_of(r, name), NULL)) {
        *value = otherwise;
        return STATUS_OK;
    }
    return size_read(r, name, low, high, value);
}

// A number in [low, high]; required where `otherwise` is NaN.
static status float_read_or(reader *r, const char *name, double low, double high, double otherwise,
                            double *value)
{
    const char *key = key_of(r, name);
    status result = isnan(otherwise) ? gguf_get_f64(r->file, key, value, r->failure)
                                     : gguf_get_f64_or(r->file, key, otherwise, value, r->failure);
    if (result == STATUS_OK && !(*value >= low && *value <= high))
        return error_set(r->failure, STATUS_BAD_FILE, key, "%s is %g; it must be %g to %g", key,
                         *value, low, high);
    return result;
}

static status family_find(const gguf *file, const model_family **family, error *failure)
{
    slice architecture;
    status result = gguf_get_string(file, "general.architecture", &architecture, failure);
    if (result != STATUS_OK)
        return result;
    for (size_t i = 0; i < sizeof families / sizeof families[0]; i++)
        if (slice_equal(architecture, slice_of(families[i].architecture))) {
            *family = &families[i];
            return STATUS_OK;
        }
    return error_set(failure, STATUS_UNSUPPORTED, "general.architecture",
                     "general.architecture is \"%.*s\"; this build computes llama, "
                     "qwen2 and gemma3",
                     (int)(architecture.size < 64 ? architecture.size : 64), architecture.data);
}

static status refused_check(reader *r)
{
    for (size_t i = 0; i < sizeof refused_keys / sizeof refused_keys[0]; i++) {
        const char *key = key_of(r, refused_keys[i].key);
        gguf_kind kind;
        if (!gguf_has(r->file, key, &kind))
            continue;
        double value;
        status result;
        if (kind == GGUF_BOOL) {
            bool flag;
            result = gguf_get_bool(r->file, key, &flag, r->failure);
            value = flag;
        } else {
            result = gguf_get_f64(r->file, key, &value, r->failure);
        }
        if (result != STATUS_OK)
            return result;
        if (value != refused_keys[i].neutral)
            return error_set(r->failure, STATUS_UNSUPPORTED, key,
                             "%s is %g; this build computes only models without it", key, value);
    }
    return STATUS_OK;
}

static status heads_read(reader *r, model_config *c)
{
    status result;
    TRY(size_read(r, "attention.head_count", 1, 4096, &c->heads));
    TRY(size_read_or(r, "attention.head_count_kv", 1, 4096, c->heads, &c->kv_heads));
    if (c->heads % c->kv_heads != 0)
        return error_set(r->failure, STATUS_BAD_FILE, "attention.head_count_kv",
                         "%s is %d, which does not divide attention.head_count %d",
                         key_of(r, "attention.head_count_kv"), c->kv_heads, c->heads);
    int32_t value_size;
    TRY(size_read_or(r, "attention.key_length", 2, 1024, 0, &c->head_size));
    if (c->head_size == 0) {
        if (c->width % c->heads != 0)
            return error_set(r->failure, STATUS_BAD_FILE, "embedding_length",
                             "%s is %d, no multiple of attention.head_count %d, and there is no "
                             "attention.key_length",
                             key_of(r, "embedding_length"), c->width, c->heads);
        c->head_size = c->width / c->heads;
    }
    TRY(size_read_or(r, "attention.value_length", 2, 1024, c->head_size, &value_size));
    if (value_size != c->head_size)
        return error_set(r->failure, STATUS_UNSUPPORTED, "attention.value_length",
                         "%s is %d and key_length is %d; this build computes heads whose keys and "
                         "values are of one size",
                         key_of(r, "attention.value_length"), value_size, c->head_size);
    bool wide = c->family->wide_scale_layers == c->layers;
    c->attention_scale =
        (float)(1.0 / sqrt(wide ? (double)c->width / c->heads : (double)c->head_size));
    return STATUS_OK;
fail:
    return result;
}

// A key that only families with two kinds of layers have.
static status period_key_check(reader *r, const model_family *f, const char *name)
{
    const char *key = key_of(r, name);
    if (f->window_period > 0 || !gguf_has(r->file, key, NULL))
        return STATUS_OK;
    return error_set(r->failure, STATUS_UNSUPPORTED, key,
                     "%s has no meaning in architecture %s as this build computes it", key,
                     f->architecture);
}

// The attention window and which layers have it.
static status window_read(reader *r, model_config *c)
{
    const model_family *f = c->family;
    const char *key = key_of(r, "attention.sliding_window");
    status result;
    if (f->window_period > 0 && !gguf_has(r->file, key, NULL))
        return error_set(r->failure, STATUS_BAD_FILE, key,
                         "%s is missing; architecture %s has layers with a window", key,
                         f->architecture);
    TRY(size_read_or(r, "attention.sliding_window", f->window_period > 0, 1 << 30, 0, &c->window));
    if (c->window > 0 && !f->has_window)
        return error_set(r->failure, STATUS_UNSUPPORTED, key,
                         "%s is %d; this build computes models of architecture %s without a window",
                         key, c->window, f->architecture);
    TRY(period_key_check(r, f, "attention.sliding_window_pattern"));
    TRY(period_key_check(r, f, "rope.freq_base_swa"));
    if (f->window_period == 0)
        return STATUS_OK;
    TRY(size_read_or(r, "attention.sliding_window_pattern", 1, MODEL_LAYERS_MAX, f->window_period,
                     &c->window_period));
    return float_read_or(r, "rope.freq_base_swa", 1, 1e12, f->local_rope_base, &c->local_rope.base);
fail:
    return result;
}

// Not rounded to bf16, as some implementations do: the reference logits of tests/golden are not.
static float embedding_scale_of(const model_config *c)
{
    return c->family->scaled_embedding ? sqrtf((float)c->width) : 1;
}

// YaRN and LongRoPE: what the scaling is relative to, and the factor of cosine and sine.
static status long_rope_read(reader *r, model_config *c, bool yarn)
{
    double original, fast, slow, ratio;
    model_rope *rope = &c->rope;
    status result;
    TRY(float_read_or(r, "rope.scaling.original_context_length", 1, 1 << 24, NAN, &original));
    ratio = c->context > original ? c->context / original : 1;
    if (yarn) {
        TRY(float_read_or(r, "rope.scaling.yarn_beta_fast", 1e-3, 1e6, 32, &fast));
        TRY(float_read_or(r, "rope.scaling.yarn_beta_slow", 1e-3, 1e6, 1, &slow));
        if (rope->base <= 1)
            return error_set(r->failure, STATUS_BAD_FILE, "rope.freq_base",
                             "%s is %g; YaRN scaling needs one above 1",
                             key_of(r, "rope.freq_base"), rope->base);
        model_rope_set_parts(rope, fast, slow, original);
        TRY(float_read_or(r, "rope.scaling.attn_factor", 1e-3, 1e3, 1, &rope->magnitude));
        rope->magnitude *= (double)(1 + 0.1L * logl(rope->factor));
        return STATUS_OK;
    }
    rope->factor = 1; // the file's lists of divisors are all there is
    rope->divisors = ratio > 1 ? "rope_factors_long" : "rope_factors_short";
    rope->other_divisors = ratio > 1 ? "rope_factors_short" : "rope_factors_long";
    // Long double logarithms for the reason that rope.c gives.
    double magnitude = original > 1 ? (double)sqrtl(1 + logl(ratio) / logl(original)) : 1;
    return float_read_or(r, "rope.scaling.attn_factor", 1e-3, 1e3, magnitude, &rope->magnitude);
fail:
    return result;
}

// A file with a factor and no type means linear scaling, as older converters wrote it.
static status rope_scaling_read(reader *r, model_config *c)
{
    const char *key = key_of(r, "rope.scaling.type");
    slice type = SLICE("linear");
    double attention;
    status result;
    if (gguf_has(r->file, key, NULL))
        TRY(gguf_get_string(r->file, key, &type, r->failure));
    bool none = slice_equal(type, SLICE("none")), linear = slice_equal(type, SLICE("linear"));
    bool yarn = slice_equal(type, SLICE("yarn"));
    if (!none && !linear && !yarn && !slice_equal(type, SLICE("longrope")))
        return error_set(r->failure, STATUS_UNSUPPORTED, key,
                         "%s is \"%.*s\"; this build computes none, linear, yarn and longrope", key,
                         (int)(type.size < 64 ? type.size : 64), type.data);
    if (!none)
        TRY(float_read_or(r, "rope.scaling.factor", yarn ? 1 : 1e-3, 1e6, c->rope.factor,
                          &c->rope.factor));
    if (!none && !linear)
        return long_rope_read(r, c, yarn);
    TRY(float_read_or(r, "rope.scaling.attn_factor", 1e-3, 1e3, 1, &attention));
    if (attention != 1)
        return error_set(r->failure, STATUS_UNSUPPORTED, "rope.scaling.attn_factor",
                         "%s is %g; this build knows it beside yarn and longrope only",
                         key_of(r, "rope.scaling.attn_factor"), attention);
    return STATUS_OK;
fail:
    return result;
}

static status rope_read(reader *r, model_config *c)
{
    model_rope *rope = &c->rope;
    status result;
    rope->magnitude = 1;
    rope->divisors = "rope_freqs";
    TRY(float_read_or(r, "rope.freq_base", 1, 1e12, 10000, &rope->base));
    TRY(size_read_or(r, "rope.dimension_count", 2, c->head_size, c->head_size, &rope->dims));
    if (rope->dims % 2 != 0)
        return error_set(r->failure, STATUS_BAD_FILE, "rope.dimension_count",
                         "%s is %d; it must be even", key_of(r, "rope.dimension_count"),
                         rope->dims);
    c->local_rope.dims = rope->dims;
    c->local_rope.factor = c->local_rope.magnitude = 1;
    TRY(float_read_or(r, "rope.scale_linear", 1e-3, 1e6, 1, &rope->factor));
    return rope_scaling_read(r, c);
fail:
    return result;
}

static status end_id_add(model_config *c, uint64_t id, const char *key, error *failure)
{
    if (id >= (uint64_t)c->vocabulary)
        return error_set(failure, STATUS_BAD_FILE, key,
                         "%s is %llu, but the vocabulary has %d tokens", key,
                         (unsigned long long)id, c->vocabulary);
    for (int32_t i = 0; i < c->end_id_count; i++)
        if (c->end_ids[i] == (int32_t)id)
            return STATUS_OK;
    if (c->end_id_count == MODEL_END_IDS_MAX)
        return error_set(failure, STATUS_UNSUPPORTED, key, "more than %d tokens end a text",
                         MODEL_END_IDS_MAX);
    c->end_ids[c->end_id_count++] = (int32_t)id;
    return STATUS_OK;
}

// The end ids are the union of what the keys name and of the control tokens that end a turn.
static status end_ids_read(const gguf *file, model_config *c, error *failure)
{
    status result;
    for (size_t i = 0; i < sizeof end_keys / sizeof end_keys[0]; i++) {
        uint64_t id;
        if (!gguf_has(file, end_keys[i], NULL))
            continue;
        TRY(gguf_get_u64(file, end_keys[i], &id, failure));
        TRY(end_id_add(c, id, end_keys[i], failure));
    }
    gguf_array texts, types;
    if (!gguf_has(file, "tokenizer.ggml.tokens", NULL) ||
        !gguf_has(file, "tokenizer.ggml.token_type", NULL))
        return STATUS_OK;
    TRY(gguf_get_array(file, "tokenizer.ggml.tokens", GGUF_STRING, &texts, failure));
    TRY(gguf_get_array(file, "tokenizer.ggml.token_type", GGUF_U64, &types, failure));
    uint64_t type_count = types.count;
    for (uint64_t id = 0; id < type_count && texts.count > 0; id++) {
        slice text = gguf_array_take_string(&texts);
        uint64_t type;
        if (!gguf_array_u64(&types, id, &type) || type != TOKEN_TYPE_CONTROL)
            continue;
        for (size_t i = 0; i < sizeof end_texts / sizeof end_texts[0]; i++)
            if (slice_equal(text, slice_of(end_texts[i])))
                TRY(end_id_add(c, id, "tokenizer.ggml.tokens", failure));
    }
    return STATUS_OK;
fail:
    return result;
}

static void name_read(const gguf *file, model_config *c)
{
    slice name;
    const char *path = gguf_path(file), *base = strrchr(path, '/');
    if (gguf_get_string(file, "general.name", &name, NULL) != STATUS_OK || name.size == 0 ||
        name.data[0] == 0)
        name = slice_of(base ? base + 1 : path);
    // Messages carry it, and text in messages is UTF-8, whatever the file holds.
    size_t size = name.size < sizeof c->name ? name.size : sizeof c->name - 1;
    snprintf(c->name, sizeof c->name, "%.*s", (int)size, name.data);
    if (size < name.size)
        c->name[utf8_fit(c->name, size)] = 0;
    utf8_make_printable(c->name);
}

static status vocabulary_read(const gguf *file, model_config *c, error *failure)
{
    status result;
    const gguf_tensor *embedding;
    TRY(gguf_tensor_need(file, "token_embd.weight", &embedding, failure));
    if (embedding->dimension_count != 2 || embedding->dimensions[1] > INT32_MAX / 2)
        return error_set(failure, STATUS_BAD_FILE, "token_embd.weight",
                         "token_embd.weight is no matrix of a row for each token");
    c->rows = c->vocabulary = (int32_t)embedding->dimensions[1];
    if (gguf_has(file, "tokenizer.ggml.tokens", NULL)) {
        gguf_array tokens;
        TRY(gguf_get_array(file, "tokenizer.ggml.tokens", GGUF_STRING, &tokens, failure));
        if (tokens.count == 0 || tokens.count > (uint64_t)c->rows)
            return error_set(failure, STATUS_BAD_FILE, "tokenizer.ggml.tokens",
                             "tokenizer.ggml.tokens has %llu tokens, but token_embd.weight has %d "
                             "rows",
                             (unsigned long long)tokens.count, c->rows);
        c->vocabulary = (int32_t)tokens.count;
    }
    c->tied = !gguf_tensor_find(file, "output.weight");
    return end_ids_read(file, c, failure);
fail:
    return result;
}

status model_config_read(const gguf *file, model_config *config, error *failure)
{
    model_config c = { 0 };
    reader r = { .file = file, .failure = failure };
    double epsilon;
    status result;
    TRY(family_find(file, &c.family, failure));
    r.architecture = c.family->architecture;
    name_read(file, &c);
    TRY(refused_check(&r));
    TRY(size_read(&r, "block_count", 1, MODEL_LAYERS_MAX, &c.layers));
    TRY(size_read(&r, "embedding_length", 1, 1 << 20, &c.width));
    TRY(size_read(&r, "feed_forward_length", 1, 1 << 22, &c.feed_forward));
    TRY(size_read(&r, "context_length", 1, 1 << 24, &c.context));
    TRY(window_read(&r, &c));
    TRY(heads_read(&r, &c));
    TRY(rope_read(&r, &c));
    TRY(float_read_or(&r, "attention.layer_norm_rms_epsilon", 0, 1, NAN, &epsilon));
    c.epsilon = (float)epsilon;
    c.embedding_scale = embedding_scale_of(&c);
    TRY(vocabulary_read(file, &c, failure));
    *config = c;
    return STATUS_OK;
fail:
    return result;
}

status model_tensor_find(const gguf *file, int layer, const char *part, const char *kind,
                         int64_t rows, int64_t columns, bool optional, const gguf_tensor **found,
                         error *failure)
{
    char name[96];
    if (layer < 0)
        snprintf(name, sizeof name, "%s.%s", part, kind);
    else
        snprintf(name, sizeof name, "blk.%d.%s.%s", layer, part, kind);
    *found = gguf_tensor_find(file, name);
    if (!*found)
        return optional ? STATUS_OK : gguf_tensor_need(file, name, found, failure);
    const uint64_t *d = (*found)->dimensions;
    if (d[0] != (uint64_t)columns || d[1] != (uint64_t)rows || d[2] != 1 || d[3] != 1)
        return error_set(failure, STATUS_BAD_FILE, name,
                         "tensor %s has %llu x %llu x %llu x %llu elements; the metadata call for "
                         "%lld columns and %lld rows",
                         name, (unsigned long long)d[0], (unsigned long long)d[1],
                         (unsigned long long)d[2], (unsigned long long)d[3], (long long)columns,
                         (long long)rows);
    return STATUS_OK;
}
