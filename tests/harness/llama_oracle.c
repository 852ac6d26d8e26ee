#include "harness/llama_oracle.h"

#include "compute/tensor.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct llama_oracle {
    const gguf *file;
    char architecture[16];
    bool gemma; // q and k norms, norms behind both halves, GELU, two kinds of layers
    int layers, width, heads, kv_heads, head_size, hidden, vocabulary, window, period;
    double epsilon, base, factor, original, context, attention;
    char scaling[16]; // rope.scaling.type, or ""
};

static double number(const llama_oracle *o, const char *name, double otherwise)
{
    char key[96];
    double value;
    snprintf(key, sizeof key, "%s.%s", o->architecture, name);
    CHECK(gguf_get_f64_or(o->file, key, otherwise, &value, NULL) == STATUS_OK);
    return value;
}

llama_oracle *llama_oracle_open(const gguf *file)
{
    llama_oracle *o = calloc(1, sizeof *o);
    gguf_array tokens;
    slice architecture, scaling = SLICE("");
    CHECK(o);
    o->file = file;
    CHECK(gguf_get_string(file, "general.architecture", &architecture, NULL) == STATUS_OK);
    snprintf(o->architecture, sizeof o->architecture, "%.*s", (int)architecture.size,
             architecture.data);
    o->gemma = strcmp(o->architecture, "gemma3") == 0;
    o->layers = (int)number(o, "block_count", 0);
    o->width = (int)number(o, "embedding_length", 0);
    o->heads = (int)number(o, "attention.head_count", 0);
    o->kv_heads = (int)number(o, "attention.head_count_kv", o->heads);
    o->head_size = (int)number(o, "attention.key_length", (double)o->width / o->heads);
    o->hidden = (int)number(o, "feed_forward_length", 0);
    o->window = (int)number(o, "attention.sliding_window", 0);
    o->period = (int)number(o, "attention.sliding_window_pattern", o->gemma ? 6 : 0);
    o->epsilon = number(o, "attention.layer_norm_rms_epsilon", 0);
    o->base = number(o, "rope.freq_base", 10000);
    o->factor = number(o, "rope.scaling.factor", 1);
    o->original = number(o, "rope.scaling.original_context_length", 0);
    o->context = number(o, "context_length", 0);
    o->attention = number(o, "rope.scaling.attn_factor", 0);
    char key[64];
    snprintf(key, sizeof key, "%s.rope.scaling.type", o->architecture);
    if (gguf_has(file, key, NULL))
        CHECK(gguf_get_string(file, key, &scaling, NULL) == STATUS_OK);
    snprintf(o->scaling, sizeof o->scaling, "%.*s", (int)scaling.size, scaling.data);
    CHECK(gguf_get_array(file, "tokenizer.ggml.tokens", GGUF_STRING, &tokens, NULL) == STATUS_OK);
    o->vocabulary = (int)tokens.count;
    return o;
}

void llama_oracle_close(llama_oracle *o)
{
    free(o);
}

int llama_oracle_vocabulary(const llama_oracle *o)
{
    return o->vocabulary;
}

// A tensor decoded, or NULL.
static float *tensor_values(const llama_oracle *o, int layer, const char *part)
{
    char name[96];
    if (layer < 0)
        snprintf(name, sizeof name, "%s", part);
    else
        snprintf(name, sizeof name, "blk.%d.%s", layer, part);
    const gguf_tensor *t = gguf_tensor_find(o->file, name);
    if (!t)
        return NULL;
    size_t count = t->dimensions[0] * t->dimensions[1];
    float *values = malloc(count * sizeof *values);
    CHECK(values);
    tensor_decode((tensor_type)t->type, t->data, (int64_t)count, values);
    return values;
}

// y[r] = W x[r] + b for `count` rows.
static void multiply(const llama_oracle *o, int layer, const char *part, const double *x, int count,
                     int columns, int rows, double *y)
{
    char name[64];
    snprintf(name, sizeof name, "%s.weight", part);
    float *w = tensor_values(o, layer, name);
    snprintf(name, sizeof name, "%s.bias", part);
    float *b = tensor_values(o, layer, name);
    CHECK(w);
    for (int r = 0; r < count; r++)
        for (int i = 0; i < rows; i++) {
            double sum = b ? (double)b[i] : 0;
            for (int k = 0; k < columns; k++)
                sum += (double)w[(size_t)i * (size_t)columns + (size_t)k] * x[r * columns + k];
            y[r * rows + i] = sum;
        }
    free(w);
    free(b);
}

// `count` vectors of `size` numbers each.
static void normalise(const llama_oracle *o, int layer, const char *part, const double *x,
                      int count, int size, double *y)
{
    float *w = tensor_values(o, layer, part);
    CHECK(w);
    for (int r = 0; r < count; r++) {
        double sum = 0;
        for (int k = 0; k < size; k++)
            sum += x[r * size + k] * x[r * size + k];
        double scale = 1 / sqrt(sum / size + o->epsilon);
        for (int k = 0; k < size; k++)
            y[r * size + k] = x[r * size + k] * scale * (double)w[k];
    }
    free(w);
}

// Layers that see a window only and have a rotation of their own.
static bool is_local(const llama_oracle *o, int layer)
{
    return o->period > 0 && (layer + 1) % o->period != 0;
}

// The angle from one position to the next of pair i of a layer that sees everything, without the
// file's divisor.
static double yarn_frequency(const llama_oracle *o, int i)
{
    const double pi = 3.14159265358979323846;
    double d = o->head_size, trained = pow(o->base, -2 * i / d);
    double low = floor(d * log(o->original / (32 * 2 * pi)) / (2 * log(o->base)));
    double high = ceil(d * log(o->original / (1 * 2 * pi)) / (2 * log(o->base)));
    low = fmax(low, 0);
    high = fmin(high, d - 1);
    double ramp = fmin(1, fmax(0, (i - low) / fmax(0.001, high - low)));
    return trained / o->factor * ramp + trained * (1 - ramp);
}

// Rotate the pairs of every head in `x` [count][heads][head_size]: neighbours in llama, elements of
// both halves elsewhere.
static void rotate(const llama_oracle *o, int layer, double *x, int count, int heads)
{
    bool neighbours = strcmp(o->architecture, "llama") == 0, local = is_local(o, layer);
    bool yarn = !local && strcmp(o->scaling, "yarn") == 0;
    bool lists = !local && strcmp(o->scaling, "longrope") == 0;
    const char *list = o->context > o->original ? "rope_factors_long" : "rope_factors_short";
    char name[64];
    snprintf(name, sizeof name, "%s.weight", lists ? list : "rope_freqs");
    float *divisors = local ? NULL : tensor_values(o, -1, name);
    double base = local ? 10000 : o->base, factor = local || yarn || lists ? 1 : o->factor;
    double magnitude = yarn ? 0.1 * log(o->factor) + 1 : 1;
    if (yarn && o->attention > 0)
        magnitude *= o->attention;
    if (lists)
        magnitude = o->attention > 0
                        ? o->attention
                        : sqrt(1 + log(fmax(1, o->context / o->original)) / log(o->original));
    int half = o->head_size / 2;
    for (int r = 0; r < count; r++)
        for (int h = 0; h < heads; h++)
            for (int i = 0; i < half; i++) {
                double *head = x + (r * heads + h) * o->head_size;
                double *a = head + (neighbours ? 2 * i : i), *b = a + (neighbours ? 1 : half);
                double turn = yarn ? yarn_frequency(o, i) : pow(base, -2.0 * i / o->head_size);
                double angle = r * turn / factor / (divisors ? (double)divisors[i] : 1);
                double first = *a * magnitude, second = *b * magnitude;
                *a = first * cos(angle) - second * sin(angle);
                *b = first * sin(angle) + second * cos(angle);
            }
    free(divisors);
}

static void attend(const llama_oracle *o, int layer, const double *q, const double *k,
                   const double *v, int count, double *out)
{
    int size = o->head_size, group = o->heads / o->kv_heads;
    int window = o->period == 0 || is_local(o, layer) ? o->window : 0;
    // Gemma 3 of 27B divides by the width's share of a head, not by the head's size.
    double scaled = o->gemma && o->layers == 62 ? (double)o->width / o->heads : (double)size;
    double *p = malloc((size_t)count * sizeof *p);
    CHECK(p);
    for (int r = 0; r < count; r++)
        for (int h = 0; h < o->heads; h++) {
            const double *query = q + (r * o->heads + h) * size;
            double *y = out + (r * o->heads + h) * size, total = 0, largest = -INFINITY;
            int first = window > 0 && r - window + 1 > 0 ? r - window + 1 : 0;
            for (int j = first; j <= r; j++) {
                const double *key = k + (j * o->kv_heads + h / group) * size;
                p[j] = 0;
                for (int i = 0; i < size; i++)
                    p[j] += query[i] * key[i] / sqrt(scaled);
                largest = fmax(largest, p[j]);
            }
            for (int j = first; j <= r; j++)
                total += p[j] = exp(p[j] - largest);
            memset(y, 0, (size_t)size * sizeof *y);
            for (int j = first; j <= r; j++)
                for (int i = 0; i < size; i++)
                    y[i] += p[j] / total * v[(j * o->kv_heads + h / group) * size + i];
        }
    free(p);
}

static double *numbers(int count, int columns)
{
    double *values = calloc((size_t)count * (size_t)columns, sizeof *values);
    CHECK(values);
    return values;
}

static double gelu(double x)
{
    const double pi = 3.14159265358979323846;
    return 0.5 * x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * pow(x, 3))));
}

static void layer_run(const llama_oracle *o, int layer, double *x, int count)
{
    int q_size = o->heads * o->head_size, kv_size = o->kv_heads * o->head_size;
    double *n = numbers(count, o->width), *q = numbers(count, q_size), *k = numbers(count, kv_size);
    double *v = numbers(count, kv_size), *mixed = numbers(count, q_size);
    double *gate = numbers(count, o->hidden), *up = numbers(count, o->hidden);
    normalise(o, layer, "attn_norm.weight", x, count, o->width, n);
    multiply(o, layer, "attn_q", n, count, o->width, q_size, q);
    multiply(o, layer, "attn_k", n, count, o->width, kv_size, k);
    multiply(o, layer, "attn_v", n, count, o->width, kv_size, v);
    if (o->gemma) {
        normalise(o, layer, "attn_q_norm.weight", q, count * o->heads, o->head_size, q);
        normalise(o, layer, "attn_k_norm.weight", k, count * o->kv_heads, o->head_size, k);
    }
    rotate(o, layer, q, count, o->heads);
    rotate(o, layer, k, count, o->kv_heads);
    attend(o, layer, q, k, v, count, mixed);
    multiply(o, layer, "attn_output", mixed, count, q_size, o->width, n);
    if (o->gemma)
        normalise(o, layer, "post_attention_norm.weight", n, count, o->width, n);
    for (int i = 0; i < count * o->width; i++)
        x[i] += n[i];
    normalise(o, layer, "ffn_norm.weight", x, count, o->width, n);
    multiply(o, layer, "ffn_gate", n, count, o->width, o->hidden, gate);
    multiply(o, layer, "ffn_up", n, count, o->width, o->hidden, up);
    for (int i = 0; i < count * o->hidden; i++)
        gate[i] = up[i] * (o->gemma ? gelu(gate[i]) : gate[i] / (1 + exp(-gate[i])));
    multiply(o, layer, "ffn_down", gate, count, o->hidden, o->width, n);
    if (o->gemma)
        normalise(o, layer, "post_ffw_norm.weight", n, count, o->width, n);
    for (int i = 0; i < count * o->width; i++)
        x[i] += n[i];
    double *all[] = { n, q, k, v, mixed, gate, up };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        free(all[i]);
}

static void log_softmax(double *row, int count)
{
    double largest = -INFINITY, total = 0;
    for (int i = 0; i < count; i++)
        largest = fmax(largest, row[i]);
    for (int i = 0; i < count; i++)
        total += exp(row[i] - largest);
    for (int i = 0; i < count; i++)
        row[i] -= largest + log(total);
}

void llama_oracle_run(const llama_oracle *o, const int32_t *tokens, int count, double *logprobs)
{
    double *x = numbers(count, o->width);
    float *embedding = tensor_values(o, -1, "token_embd.weight");
    for (int r = 0; r < count; r++)
        for (int i = 0; i < o->width; i++)
            x[r * o->width + i] = (double)embedding[tokens[r] * o->width + i] *
                                  (o->gemma ? sqrt((double)o->width) : 1);
    free(embedding);
    for (int layer = 0; layer < o->layers; layer++)
        layer_run(o, layer, x, count);
    normalise(o, -1, "output_norm.weight", x, count, o->width, x);
    bool tied = !gguf_tensor_find(o->file, "output.weight");
    multiply(o, -1, tied ? "token_embd" : "output", x, count, o->width, o->vocabulary, logprobs);
    for (int r = 0; r < count; r++)
        log_softmax(logprobs + (size_t)r * (size_t)o->vocabulary, o->vocabulary);
    free(x);
}
