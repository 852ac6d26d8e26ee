#include "harness/llama_oracle.h"

#include "compute/tensor.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct llama_oracle {
    const gguf *file;
    int layers, width, heads, kv_heads, head_size, hidden, vocabulary, window;
    double epsilon, base, linear;
};

static double number(const gguf *file, const char *name, double otherwise)
{
    char key[96];
    double value;
    snprintf(key, sizeof key, "llama.%s", name);
    CHECK(gguf_get_f64_or(file, key, otherwise, &value, NULL) == STATUS_OK);
    return value;
}

llama_oracle *llama_oracle_open(const gguf *file)
{
    llama_oracle *o = calloc(1, sizeof *o);
    gguf_array tokens;
    CHECK(o);
    o->file = file;
    o->layers = (int)number(file, "block_count", 0);
    o->width = (int)number(file, "embedding_length", 0);
    o->heads = (int)number(file, "attention.head_count", 0);
    o->kv_heads = (int)number(file, "attention.head_count_kv", o->heads);
    o->head_size = (int)number(file, "attention.key_length", (double)o->width / o->heads);
    o->hidden = (int)number(file, "feed_forward_length", 0);
    o->window = (int)number(file, "attention.sliding_window", 0);
    o->epsilon = number(file, "attention.layer_norm_rms_epsilon", 0);
    o->base = number(file, "rope.freq_base", 10000);
    o->linear = number(file, "rope.scaling.factor", 1);
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

static void normalise(const llama_oracle *o, int layer, const char *part, const double *x,
                      int count, double *y)
{
    float *w = tensor_values(o, layer, part);
    CHECK(w);
    for (int r = 0; r < count; r++) {
        double sum = 0;
        for (int k = 0; k < o->width; k++)
            sum += x[r * o->width + k] * x[r * o->width + k];
        double scale = 1 / sqrt(sum / o->width + o->epsilon);
        for (int k = 0; k < o->width; k++)
            y[r * o->width + k] = x[r * o->width + k] * scale * (double)w[k];
    }
    free(w);
}

// Rotate adjacent pairs of every head in `x` [count][heads][head_size].
static void rotate(const llama_oracle *o, double *x, int count, int heads)
{
    float *divisors = tensor_values(o, -1, "rope_freqs.weight");
    for (int r = 0; r < count; r++)
        for (int h = 0; h < heads; h++)
            for (int i = 0; i < o->head_size / 2; i++) {
                double *pair = x + ((r * heads + h) * o->head_size + 2 * i);
                double angle = r / o->linear / (divisors ? (double)divisors[i] : 1) *
                               pow(o->base, -2.0 * i / o->head_size);
                double first = pair[0], second = pair[1];
                pair[0] = first * cos(angle) - second * sin(angle);
                pair[1] = first * sin(angle) + second * cos(angle);
            }
    free(divisors);
}

static void attend(const llama_oracle *o, const double *q, const double *k, const double *v,
                   int count, double *out)
{
    int size = o->head_size, group = o->heads / o->kv_heads;
    double *p = malloc((size_t)count * sizeof *p);
    CHECK(p);
    for (int r = 0; r < count; r++)
        for (int h = 0; h < o->heads; h++) {
            const double *query = q + (r * o->heads + h) * size;
            double *y = out + (r * o->heads + h) * size, total = 0, largest = -INFINITY;
            int first = o->window > 0 && r - o->window + 1 > 0 ? r - o->window + 1 : 0;
            for (int j = first; j <= r; j++) {
                const double *key = k + (j * o->kv_heads + h / group) * size;
                p[j] = 0;
                for (int i = 0; i < size; i++)
                    p[j] += query[i] * key[i] / sqrt((double)size);
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

static void layer_run(const llama_oracle *o, int layer, double *x, int count)
{
    int q_size = o->heads * o->head_size, kv_size = o->kv_heads * o->head_size;
    double *n = numbers(count, o->width), *q = numbers(count, q_size), *k = numbers(count, kv_size);
    double *v = numbers(count, kv_size), *mixed = numbers(count, q_size);
    double *gate = numbers(count, o->hidden), *up = numbers(count, o->hidden);
    normalise(o, layer, "attn_norm.weight", x, count, n);
    multiply(o, layer, "attn_q", n, count, o->width, q_size, q);
    multiply(o, layer, "attn_k", n, count, o->width, kv_size, k);
    multiply(o, layer, "attn_v", n, count, o->width, kv_size, v);
    rotate(o, q, count, o->heads);
    rotate(o, k, count, o->kv_heads);
    attend(o, q, k, v, count, mixed);
    multiply(o, layer, "attn_output", mixed, count, q_size, o->width, n);
    for (int i = 0; i < count * o->width; i++)
        x[i] += n[i];
    normalise(o, layer, "ffn_norm.weight", x, count, n);
    multiply(o, layer, "ffn_gate", n, count, o->width, o->hidden, gate);
    multiply(o, layer, "ffn_up", n, count, o->width, o->hidden, up);
    for (int i = 0; i < count * o->hidden; i++)
        gate[i] = gate[i] / (1 + exp(-gate[i])) * up[i];
    multiply(o, layer, "ffn_down", gate, count, o->hidden, o->width, n);
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
            x[r * o->width + i] = (double)embedding[tokens[r] * o->width + i];
    free(embedding);
    for (int layer = 0; layer < o->layers; layer++)
        layer_run(o, layer, x, count);
    normalise(o, -1, "output_norm.weight", x, count, x);
    bool tied = !gguf_tensor_find(o->file, "output.weight");
    multiply(o, -1, tied ? "token_embd" : "output", x, count, o->width, o->vocabulary, logprobs);
    for (int r = 0; r < count; r++)
        log_softmax(logprobs + (size_t)r * (size_t)o->vocabulary, o->vocabulary);
    free(x);
}
