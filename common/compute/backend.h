// THE interface between models and machines: one table of operations that `cpu` and `cuda` fill.
//
// Rules that hold for every slot
// - Operations only enqueue on a queue. They read their array arguments when they run, not when
//   they are called, so whatever changes from step to step (tokens, positions, page tables,
//   lengths) lies in memory of the backend and stays untouched until an event behind the operation
//   is done. A backend may run an operation at once; no caller may rely on it.
// - No operation allocates after its objects were opened, and none blocks, except `queue_wait`,
//   `activation_read`, `activation_write` and the open/close slots.
// - Shapes are checked by CHECK: a wrong shape is a programmer's error. Nothing may alias unless a
//   slot says so.
// - NUMBERS: each output row depends on its own input rows alone. Sums run in a fixed order that
//   depends on the row's absolute position and the weight's shape, never on the batch, the chunk,
//   the split of work or the thread count. So on the CPU every result is equal bit for bit however
//   it was batched; on CUDA in deterministic mode.
// - One thread (the step thread of a worker) calls a backend; the backend has compute threads of
//   its own.
//
// The numeric recipe (a softmax over each split of 128 tokens at absolute positions, splits merged
// in ascending order, own exp, int8 activations with one scale per 32 inputs, integer sums inside a
// block, blocks in ascending order) is part of `numeric_name`, which seeds the prefix hash and is
// compared before workers pair.
#pragma once

#include "base/status.h"
#include "compute/tensor.h"

typedef struct backend backend;                       // an open device
typedef struct backend_queue backend_queue;           // operations run in order
typedef struct backend_weight backend_weight;         // packed; opaque after load
typedef struct backend_activation backend_activation; // rows x columns in the backend's number type

// ---- settings and capabilities ----------------------------------------------------------------

// A core of somebody else, whose owner says while it computes: `busy` are BACKEND_BUSY_WORDS words
// of shared memory, read atomically; any that is not 0 means so.
#define BACKEND_BUSY_WORDS 8
typedef struct backend_borrowed {
    int core;
    const uint64_t *busy;
} backend_borrowed;

typedef struct backend_settings {
    const char *level; // CPU: auto | scalar | avx2 | avx512
    int threads;       // CPU: 0 = what affinity and the cgroup quota allow
    const char *cores; // CPU: "" = all that affinity allows, else a list such as "0,2-3" to pin to
    const backend_borrowed *borrowed; // CPU: a thread more on each, which rests while it is busy
    int borrowed_count;
} backend_settings;

typedef struct backend_caps {
    char name[16];         // "cpu"
    char level[16];        // "avx2"
    char numeric_name[64]; // the numeric recipe and its version: equal names give equal bits
    int threads;
    bool host_memory;   // the host may read and write memory of the backend directly
    bool replays_steps; // `step_begin` may replay a recorded step
} backend_caps;

// ---- memory -----------------------------------------------------------------------------------

typedef enum backend_memory_kind {
    BACKEND_MEMORY_DEVICE,
    BACKEND_MEMORY_PINNED,
} backend_memory_kind;

typedef struct backend_memory {
    void *data; // device address; host address too where caps.host_memory
    size_t size;
    backend_memory_kind kind;
} backend_memory;

// ---- weights ----------------------------------------------------------------------------------

// Rows of several tensors stacked into one matrix (q|k|v, gate|up): one input, one pass.
typedef struct backend_weight_source {
    const tensor_view *parts; // [part_count] of equal columns
    int part_count;           // 1..4
    const float *bias;        // [sum of rows] or NULL
    bool pair_rows; // gate|up: two parts of equal rows, packed so that rows i of both meet
    // Told now and then, on the caller's thread, that bytes of a part were read for the last time,
    // so that a file's pages need not stay beside the packed form; NULL: nobody wants to know.
    void (*let_go)(const void *owner, const void *data, uint64_t bytes);
    const void *owner;
} backend_weight_source;

// ---- the cache --------------------------------------------------------------------------------

// How a page lies in memory: [page][layer][kv_head][K|V][inner]; `inner` is the backend's own order
// of (token, dim). Two workers with equal `name` and sizes may exchange pages as bytes.
typedef struct kv_layout {
    char name[48]; // type, inner order and version: "f16/cpu-tile32/1"
    tensor_type type;
    int page_tokens, layers, kv_heads, head_size;
    // Bytes: a page; from layer to layer; from head to head; from a head's K to its V.
    int64_t page_bytes, layer_stride, head_stride, value_offset;
} kv_layout;

typedef struct kv_memory {
    kv_layout layout;
    backend_memory memory; // pages * layout.page_bytes
    int32_t pages;
} kv_memory;

// ---- a step -----------------------------------------------------------------------------------

// "Some tokens of some sequences": a chunk of a prompt, a decode step and a verification all look
// like this. Rows of one sequence are adjacent and ascend in position. Arrays are in backend
// memory.
typedef struct backend_batch {
    int rows; // tokens computed in this step
    int sequences;
    int logit_rows;              // rows whose logits are wanted
    const int32_t *tokens;       // [rows]
    const int32_t *positions;    // [rows] absolute position in the sequence
    const int32_t *row_sequence; // [rows] index into the sequences of this batch
    const int32_t *first_row;    // [sequences + 1]
    const int32_t *lengths;      // [sequences] tokens in the cache, this step's included
    const int32_t *tables;       // [sequences][table_stride] page i holds positions i*page_tokens..
    int table_stride;
    const int32_t *logit_index; // [logit_rows] row numbers, ascending
} backend_batch;

typedef enum backend_epilogue {
    BACKEND_STORE,  // y = W x (+ bias)
    BACKEND_ADD,    // y += W x (+ bias): the residual stream
    BACKEND_SWIGLU, // y = silu(gate) * up, for a weight with pair_rows; y has half the weight's
                    // rows
    BACKEND_GEGLU,  // y = gelu(gate) * up in the same way, GELU in its tanh form
} backend_epilogue;

typedef struct backend_rope {
    const float *table; // [positions][dims / 2][2] cosine and sine, in backend memory
    int dims;           // rotated dims of each head (even)
    bool adjacent;      // pairs (2i, 2i+1); else (i, i + dims/2)
    int position_limit; // rows of the table
} backend_rope;

// Where q, k and v lie in a row of the fused qkv activation: q heads, then k heads, then v heads.
typedef struct backend_heads {
    int q_heads, kv_heads, head_size;
} backend_heads;

// ---- sampling ---------------------------------------------------------------------------------

#define BACKEND_TOP_MAX 20

typedef struct backend_token_count {
    int32_t token;
    int32_t generated; // occurrences in the generated text
    int32_t total;     // occurrences in prompt and generated text
} backend_token_count;

typedef struct backend_token_bias {
    int32_t token;
    float bias;
} backend_token_bias;

// How the token of one row of logits is chosen. Steps in this order, each only where it is set:
// repetition penalty (l/r if l > 0 else l*r, once per id of prompt and text); frequency and
// presence penalty (generated text only); bias; mask; temperature (0: the largest, lowest id among
// equals); top_k; typical_p; top_p (shortest prefix reaching it); min_p (p >= min_p * largest p).
// The rest is renormalised after each. Equal values rank by ascending id. Then the argmax over the
// kept tokens of log p + Gumbel noise keyed by (seed, choice, output_index, token), base/random.h.
typedef struct backend_sample {
    int32_t row; // of the logits
    float temperature;
    float top_p, min_p, typical_p;             // 1, 0, 1: off
    int32_t top_k;                             // 0: off
    float repetition_penalty;                  // 1: off
    float frequency_penalty, presence_penalty; // 0: off
    uint64_t seed;
    uint32_t choice;
    uint64_t output_index;
    const backend_token_count *counts; // distinct ids; read where a penalty is on
    int32_t count_count;
    const backend_token_bias *biases;
    int32_t bias_count;
    const uint64_t *mask; // bit i set: token i may be drawn; NULL: all
    int32_t vocabulary;   // ids at or above it are never drawn and not part of the softmax
    int32_t top_count;    // alternatives to report, 0..BACKEND_TOP_MAX
} backend_sample;

// Log-probabilities are the model's: softmax over the vocabulary at temperature 1, before any
// penalty, bias or filter.
typedef struct backend_sampled {
    int32_t token; // -1: nothing was drawn; the row holds a NaN, +infinity or no finite number, or
                   // the mask leaves none
    float logprob;
    int32_t top_tokens[BACKEND_TOP_MAX];
    float top_logprobs[BACKEND_TOP_MAX];
} backend_sampled;

// ---- the table --------------------------------------------------------------------------------

typedef struct backend_table {
    // Open a device; STATUS_UNSUPPORTED (level, device), STATUS_BAD_CONFIG (cores),
    // STATUS_NO_MEMORY.
    status (*open)(const backend_settings *settings, backend **opened, error *failure);
    void (*close)(backend *b); // after everything that was opened on it
    void (*caps)(const backend *b, backend_caps *caps);

    // Memory, 64-byte aligned, zeroed. For arenas at start, not for steps.
    status (*memory_open)(backend *b, size_t size, backend_memory_kind kind,
                          backend_memory *memory);
    void (*memory_close)(backend *b, backend_memory *memory);

    // Queues and completion. `queue_submit` starts what was enqueued and returns the number behind
    // it; `queue_done` tells without waiting whether all up to that number has run; `queue_wait`
    // waits.
    status (*queue_open)(backend *b, backend_queue **opened);
    void (*queue_close)(backend_queue *q);
    uint64_t (*queue_submit)(backend_queue *q);
    bool (*queue_done)(backend_queue *q, uint64_t submitted);
    void (*queue_wait)(backend_queue *q, uint64_t submitted);
    // Copy between host (pinned) and device memory in queue order; the ranges must not overlap.
    void (*copy)(backend_queue *q, void *destination, const void *source, size_t size);
    // Write `value` to a host flag when everything before it has run ("layer l is in the pages").
    void (*signal)(backend_queue *q, volatile uint32_t *host_flag, uint32_t value);

    // Bracket the operations of one forward pass. `step_begin` returns true where the backend
    // replays a recorded step of the same shape: the caller then enqueues nothing before
    // `step_end`.
    bool (*step_begin)(backend_queue *q, const backend_batch *batch);
    void (*step_end)(backend_queue *q);

    // Weights. `weight_load` repacks from the file's bytes in one pass (the file may be unmapped
    // afterwards); STATUS_UNSUPPORTED names the tensor and its type.
    status (*weight_load)(backend *b, const backend_weight_source *source, backend_weight **loaded,
                          error *failure);
    void (*weight_close)(backend_weight *w);
    size_t (*weight_bytes)(const backend_weight *w); // what one pass over it reads

    // Activations: up to `rows` rows of `columns` numbers, zeroed.
    status (*activation_open)(backend *b, int rows, int columns, backend_activation **opened);
    void (*activation_close)(backend_activation *a);
    // Rows first..first+rows of `a` as float, for tests and for logits; both submit and wait.
    void (*activation_read)(backend_queue *q, const backend_activation *a, int first, int rows,
                            float *values);
    void (*activation_write)(backend_queue *q, backend_activation *a, int first, int rows,
                             const float *values);

    // Layers. `rows` counts the leading rows that are computed.
    // y[r] = row tokens[r] of the embedding matrix, times `scale`.
    void (*embed)(backend_queue *q, backend_activation *y, const backend_weight *embedding,
                  const int32_t *tokens, int rows, float scale);
    // y[r] = x[index[r]].
    void (*gather)(backend_queue *q, backend_activation *y, const backend_activation *x,
                   const int32_t *index, int rows);
    // y = epilogue(W norm(x)). `norm` (float [columns], RMSNorm with `epsilon`) may be NULL. The
    // input is normalised and quantised once. x and y differ.
    void (*linear)(backend_queue *q, backend_activation *y, const backend_activation *x,
                   const backend_weight *w, const float *norm, float epsilon, int rows,
                   backend_epilogue epilogue);
    // y[r] = RMSNorm(x[r]) * norm (STORE) or y[r] += that (ADD).
    void (*norm)(backend_queue *q, backend_activation *y, const backend_activation *x,
                 const float *norm, float epsilon, int rows, backend_epilogue epilogue);

    // Attention over pages.
    // The layout that this backend wants for such a cache; STATUS_UNSUPPORTED names what it cannot
    // do.
    status (*kv_layout)(const backend *b, tensor_type type, int page_tokens, int layers,
                        int kv_heads, int head_size, kv_layout *layout, error *failure);
    // Rotate q in place and k, then write k and v of every row into its page; the rest of a
    // 32-token tile is zeroed when its first token is written. `q_norm`, `k_norm` (RMSNorm per
    // head, [head_size]) may be NULL.
    void (*rope_store)(backend_queue *q, backend_activation *qkv, const backend_heads *heads,
                       const backend_rope *rope, const float *q_norm, const float *k_norm,
                       float epsilon, const kv_memory *kv, int layer, const backend_batch *batch);
    // Cut the step's attention into work items; once a step, before the first `attention`.
    void (*attention_plan)(backend_queue *q, const backend_heads *heads, const kv_memory *kv,
                           const backend_batch *batch);
    // out[r] = softmax(scale * q.K) V over positions <= the row's own (and > position - window
    // where window > 0).
    void (*attention)(backend_queue *q, backend_activation *out, const backend_activation *qkv,
                      const backend_heads *heads, const kv_memory *kv, int layer,
                      const backend_batch *batch, float scale, int window);
    // Copy whole pages: pairs[2i] -> pairs[2i+1]. For copy-on-write.
    void (*kv_copy)(backend_queue *q, const kv_memory *kv, const int32_t *pairs, int count);

    // Sampling: results[i] from row rows[i].row of `logits`, as often as it is named.
    void (*sample)(backend_queue *q, const backend_activation *logits, const backend_sample *rows,
                   int count, backend_sampled *results);

    // Ranks of one model (tensor parallelism): sum `a` over all ranks in rank order. A single rank
    // does nothing.
    void (*all_reduce)(backend_queue *q, backend_activation *a, int rows);
} backend_table;

extern const backend_table backend_cpu;
