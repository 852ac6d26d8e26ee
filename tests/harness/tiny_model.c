#include "harness/tiny_model.h"

#include "base/random.h"
#include "harness/gguf_builder.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BLOCK 32

// Merged pairs, in the alphabet of byte-level BPE, in which a space is U+0120.
static const char *const merges[] = {
    "\u0120 t", "h e", "i n",      "e r",       "a n",      "\u0120 a",  "\u0120t he", "o n",
    "r e",      "a t", "\u0120 s", "\u0120 w",  "\u0120 o", "e n",       "i s",        "o u",
    "i t",      "o r", "\u0120 b", "\u0120 c",  "e d",      "an d",      "\u0120 m",   "in g",
    "\u0120 f", "l l", "\u0120 d", "e s",       "a r",      "\u0120 an", "\u0120 p",   "a s",
    "l e",      "o m", "v e",      "\u0120 in", "\u0120 h", "a l",       "\u0120o f",  "i c",
};
#define MERGES (sizeof merges / sizeof merges[0])
#define CONTROLS 3
#define VOCABULARY (CONTROLS + 256 + MERGES)

static const char chat_template[] =
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] "
    "+ '<|im_end|>\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' "
    "}}{% endif %}";

int tiny_model_vocabulary(void)
{
    return VOCABULARY;
}

tiny_model tiny_model_default(uint64_t seed)
{
    return (tiny_model){
        .seed = seed,
        .architecture = "llama",
        .name = "tiny",
        .layers = 4,
        .width = 64,
        .heads = 4,
        .kv_heads = 2,
        .head_size = 16,
        .feed_forward = 128,
        .context = 2048,
        .type = TENSOR_F32,
        .head_type = TENSOR_F32,
    };
}

// The character that stands for a byte: itself where it is printable, else one from U+0100 on.
static void byte_character(int byte, char text[8])
{
    int code = 0, next = 256;
    for (int b = 0; b <= byte; b++) {
        bool printable = (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
        code = printable ? b : next++;
    }
    if (code < 0x80)
        snprintf(text, 8, "%c", code);
    else
        snprintf(text, 8, "%c%c", 0xc0 | code >> 6, 0x80 | (code & 0x3f));
}

// The right value, or the one that the options put in its place.
static void key_put(gguf_builder *b, const tiny_model *o, const char *key, int value)
{
    for (size_t i = 0; i < sizeof o->keys / sizeof o->keys[0]; i++)
        if (o->keys[i].key && strcmp(o->keys[i].key, key) == 0)
            return;
    gguf_builder_u32(b, key, (uint32_t)value);
}

static void tokenizer_put(gguf_builder *b, const tiny_model *o)
{
    static const char *const controls[CONTROLS] = { "<|endoftext|>", "<|im_start|>", "<|im_end|>" };
    static char texts[VOCABULARY][24];
    const char *items[VOCABULARY];
    uint32_t types[VOCABULARY];
    for (size_t i = 0; i < VOCABULARY; i++) {
        types[i] = i < CONTROLS ? 3 : 1;
        items[i] = texts[i];
        if (i < CONTROLS) {
            snprintf(texts[i], sizeof texts[i], "%s", controls[i]);
        } else if (i < CONTROLS + 256) {
            byte_character((int)i - CONTROLS, texts[i]);
        } else {
            const char *pair = merges[i - CONTROLS - 256], *space = strchr(pair, ' ');
            snprintf(texts[i], sizeof texts[i], "%.*s%s", (int)(space - pair), pair, space + 1);
        }
    }
    gguf_builder_string(b, "tokenizer.ggml.model", "gpt2");
    gguf_builder_string(b, "tokenizer.ggml.pre", "smollm");
    gguf_builder_strings(b, "tokenizer.ggml.tokens", items, VOCABULARY);
    gguf_builder_u32s(b, "tokenizer.ggml.token_type", types, VOCABULARY);
    gguf_builder_strings(b, "tokenizer.ggml.merges", merges, MERGES);
    key_put(b, o, "tokenizer.ggml.bos_token_id", 1);
    key_put(b, o, "tokenizer.ggml.eos_token_id", 2);
    gguf_builder_bool(b, "tokenizer.ggml.add_bos_token", false);
    gguf_builder_string(b, "tokenizer.chat_template", chat_template);
}

static const char *key_named(const tiny_model *o, const char *name, char key[96])
{
    snprintf(key, 96, "%s.%s", o->architecture, name);
    return key;
}

static void metadata_put(gguf_builder *b, const tiny_model *o)
{
    char key[96];
    gguf_builder_string(b, "general.architecture", o->architecture);
    gguf_builder_string(b, "general.name", o->name);
    key_put(b, o, key_named(o, "block_count", key), o->layers);
    key_put(b, o, key_named(o, "context_length", key), o->context);
    key_put(b, o, key_named(o, "embedding_length", key), o->width);
    key_put(b, o, key_named(o, "feed_forward_length", key), o->feed_forward);
    key_put(b, o, key_named(o, "attention.head_count", key), o->heads);
    key_put(b, o, key_named(o, "attention.head_count_kv", key), o->kv_heads);
    gguf_builder_f32(b, key_named(o, "attention.layer_norm_rms_epsilon", key), 1e-5f);
    gguf_builder_f32(b, key_named(o, "rope.freq_base", key), 10000);
    key_put(b, o, key_named(o, "rope.dimension_count", key), o->head_size);
    if (o->head_size * o->heads != o->width) {
        key_put(b, o, key_named(o, "attention.key_length", key), o->head_size);
        key_put(b, o, key_named(o, "attention.value_length", key), o->head_size);
    }
    if (o->window > 0)
        key_put(b, o, key_named(o, "attention.sliding_window", key), o->window);
    if (o->window_period > 0)
        key_put(b, o, key_named(o, "attention.sliding_window_pattern", key), o->window_period);
    if (o->rope_scaling)
        gguf_builder_string(b, key_named(o, "rope.scaling.type", key), o->rope_scaling);
    if (o->rope_factor > 0)
        gguf_builder_f32(b, key_named(o, "rope.scaling.factor", key), (float)o->rope_factor);
    if (o->rope_original > 0)
        key_put(b, o, key_named(o, "rope.scaling.original_context_length", key), o->rope_original);
    if (o->rope_attention > 0)
        gguf_builder_f32(b, key_named(o, "rope.scaling.attn_factor", key),
                         (float)o->rope_attention);
    for (size_t i = 0; i < sizeof o->keys / sizeof o->keys[0]; i++)
        if (o->keys[i].key)
            gguf_builder_u32(b, o->keys[i].key, o->keys[i].value);
}

static void half_put(buffer *data, float value)
{
    uint16_t bits = tensor_f32_to_f16(value);
    buffer_append(data, &bits, sizeof bits);
}

static void nibbles_put(buffer *data, const float *values, float base, float step)
{
    for (int i = 0; i < BLOCK / 2; i++) {
        int q[2];
        for (int k = 0; k < 2; k++) {
            float scaled = step > 0 ? (values[i + k * BLOCK / 2] - base) / step : 0;
            q[k] = (int)fminf(15, fmaxf(0, roundf(scaled)));
        }
        buffer_append_byte(data, (char)(q[0] | q[1] << 4));
    }
}

// One block in the layout of compute/tensor.h, rounded to nearest.
static void block_put(buffer *data, tensor_type type, const float *values)
{
    float low = values[0], high = values[0], largest = 0;
    for (int i = 0; i < BLOCK; i++) {
        low = fminf(low, values[i]);
        high = fmaxf(high, values[i]);
        largest = fmaxf(largest, fabsf(values[i]));
    }
    if (type == TENSOR_Q8_0) {
        float step = largest / 127;
        half_put(data, step);
        for (int i = 0; i < BLOCK; i++)
            buffer_append_byte(data, (char)(int8_t)(step > 0 ? roundf(values[i] / step) : 0));
    } else if (type == TENSOR_Q4_0) {
        half_put(data, largest / 7);
        nibbles_put(data, values, -8 * largest / 7, largest / 7);
    } else {
        half_put(data, (high - low) / 15);
        half_put(data, low);
        nibbles_put(data, values, low, (high - low) / 15);
    }
}

static void values_put(buffer *data, tensor_type type, const float *values, size_t count)
{
    for (size_t i = 0; i < count;) {
        if (type == TENSOR_F32) {
            buffer_append(data, &values[i++], sizeof(float));
        } else if (type == TENSOR_F16) {
            half_put(data, values[i++]);
        } else {
            block_put(data, type, &values[i]);
            i += BLOCK;
        }
    }
    while (data->size % 32 != 0)
        buffer_append_byte(data, 0);
}

typedef struct writer {
    gguf_builder builder;
    const char *left_out;
    uint64_t random;
} writer;

// A tensor of mean `mean` and deviation `deviation`; the draws depend on its place in the file.
static float *tensor_draw(writer *w, size_t count, float mean, float deviation)
{
    float *values = malloc(count * sizeof *values);
    CHECK(values);
    for (size_t i = 0; i < count; i++) {
        double sum = 0; // four uniform draws: near enough to a bell
        for (int k = 0; k < 4; k++)
            sum += random_unit(w->random = random_mix(w->random)) - 0.5;
        values[i] = mean + deviation * (float)(sum * 1.7320508);
    }
    return values;
}

static void tensor_put(writer *w, const char *name, tensor_type type, int rows, int columns,
                       const float *values)
{
    uint64_t dimensions[2] = { (uint64_t)columns, (uint64_t)rows };
    if (w->left_out && strcmp(w->left_out, name) == 0)
        return;
    gguf_builder_tensor(&w->builder, name, rows > 1 ? 2 : 1, dimensions, type,
                        w->builder.data.size);
    values_put(&w->builder.data, type, values, (size_t)rows * (size_t)columns);
}

static void random_put(writer *w, const char *name, tensor_type type, int rows, int columns,
                       float mean, float deviation)
{
    float *values = tensor_draw(w, (size_t)rows * (size_t)columns, mean, deviation);
    tensor_put(w, name, type, rows, columns, values);
    free(values);
}

// Row 2j + t of a head is row t * size / 2 + j of the same head before.
static void permuted_put(writer *w, const char *name, tensor_type type, int rows, int columns,
                         int head_size, float deviation)
{
    float *values = tensor_draw(w, (size_t)rows * (size_t)columns, 0, deviation);
    float *permuted = malloc((size_t)rows * (size_t)columns * sizeof *permuted);
    CHECK(permuted);
    for (int row = 0; row < rows; row++) {
        int in_head = row % head_size, from = in_head % 2 * head_size / 2 + in_head / 2;
        memcpy(permuted + (size_t)row * (size_t)columns,
               values + (size_t)(row - in_head + from) * (size_t)columns,
               (size_t)columns * sizeof *values);
    }
    tensor_put(w, name, type, rows, columns, permuted);
    free(permuted);
    free(values);
}

static void layer_put(writer *w, const tiny_model *o, int layer)
{
    int q = o->heads * o->head_size, kv = o->kv_heads * o->head_size;
    const struct {
        const char *name;
        int rows, columns;
        bool biased;
    } matrices[] = {
        { "attn_q", q, o->width, o->biased },
        { "attn_k", kv, o->width, o->biased },
        { "attn_v", kv, o->width, o->biased },
        { "attn_output", o->width, q, false },
        { "ffn_gate", o->feed_forward, o->width, false },
        { "ffn_up", o->feed_forward, o->width, false },
        { "ffn_down", o->width, o->feed_forward, false },
    };
    char name[64];
    for (size_t i = 0; i < sizeof matrices / sizeof matrices[0]; i++) {
        snprintf(name, sizeof name, "blk.%d.%s.weight", layer, matrices[i].name);
        float deviation = 1.2f / sqrtf((float)matrices[i].columns);
        if (o->rope_permuted && i < 2)
            permuted_put(w, name, o->type, matrices[i].rows, matrices[i].columns, o->head_size,
                         deviation);
        else
            random_put(w, name, o->type, matrices[i].rows, matrices[i].columns, 0, deviation);
        snprintf(name, sizeof name, "blk.%d.%s.bias", layer, matrices[i].name);
        if (matrices[i].biased)
            random_put(w, name, TENSOR_F32, 1, matrices[i].rows, 0, 0.5f);
    }
    bool gemma = strcmp(o->architecture, "gemma3") == 0;
    const struct {
        const char *name;
        int size;
        bool wanted;
    } norms[] = {
        { "attn_norm", o->width, true },
        { "ffn_norm", o->width, true },
        { "post_attention_norm", o->width, gemma },
        { "post_ffw_norm", o->width, gemma },
        { "attn_q_norm", o->head_size, gemma },
        { "attn_k_norm", o->head_size, gemma },
    };
    for (size_t i = 0; i < sizeof norms / sizeof norms[0]; i++) {
        snprintf(name, sizeof name, "blk.%d.%s.weight", layer, norms[i].name);
        if (norms[i].wanted)
            random_put(w, name, TENSOR_F32, 1, norms[i].size, 1, 0.2f);
    }
}

static void divisors_put(writer *w, const tiny_model *o)
{
    const struct {
        const char *name;
        bool wanted;
        float odd, even; // of the slower half of the pairs
    } lists[] = {
        { "rope_freqs.weight", o->rope_divisors, 8, 3.25f },
        { "rope_factors_long.weight", o->rope_lists, 7, 2.5f },
        { "rope_factors_short.weight", o->rope_lists, 1.5f, 1.25f },
    };
    for (size_t list = 0; list < sizeof lists / sizeof lists[0]; list++) {
        float divisors[512];
        for (int i = 0; i < o->head_size / 2; i++)
            divisors[i] = i < o->head_size / 4 ? 1 : i % 2 ? lists[list].odd : lists[list].even;
        if (lists[list].wanted)
            tensor_put(w, lists[list].name, TENSOR_F32, 1, o->head_size / 2, divisors);
    }
}

buffer tiny_model_build(const tiny_model *o)
{
    writer w = { .random = random_mix(o->seed), .left_out = o->left_out };
    int rows = VOCABULARY + o->extra_rows;
    metadata_put(&w.builder, o);
    tokenizer_put(&w.builder, o);
    float *embedding =
        tensor_draw(&w, (size_t)rows * (size_t)o->width, 0, 0.3f * (o->loud > 0 ? o->loud : 1));
    for (int i = 0; o->nan_token > 0 && i < o->width; i++)
        embedding[o->nan_token * o->width + i] = NAN;
    tensor_put(&w, "token_embd.weight", o->head_type, rows, o->width, embedding);
    free(embedding);
    for (int layer = 0; layer < o->layers; layer++)
        layer_put(&w, o, layer);
    random_put(&w, "output_norm.weight", TENSOR_F32, 1, o->width, 1, 0.2f);
    if (o->untied || o->nan_token > 0)
        random_put(&w, "output.weight", o->head_type, rows, o->width, 0, 0.3f);
    divisors_put(&w, o);
    if (o->extra_tensor)
        random_put(&w, o->extra_tensor, TENSOR_F32, 1, 64, 1, 0.2f);
    return gguf_builder_finish(&w.builder);
}

status tiny_model_write(const tiny_model *options, const char *path)
{
    buffer file = tiny_model_build(options);
    FILE *out = fopen(path, "wb");
    bool good = out && fwrite(file.data, 1, file.size, out) == file.size;
    if (out && fclose(out) != 0)
        good = false;
    buffer_close(&file);
    return good ? STATUS_OK : STATUS_IO;
}

void tiny_model_temporary(const tiny_model *options, char path[64])
{
    snprintf(path, 64, "/tmp/penstock-tiny-XXXXXX");
    int file = mkstemp(path);
    CHECK(file >= 0);
    close(file);
    CHECK(tiny_model_write(options, path) == STATUS_OK);
}
