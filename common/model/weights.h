// The tensors of a checkpoint, packed for the backend: q|k|v stacked, gate|up paired, norms and the
// rotation table in backend memory.
//
// Every tensor that the family needs must be there with the shape that the metadata call for, and
// every tensor that is there must be one that is used: a file with a tensor we do not know is of a
// model that we do not compute. Opened at start by one thread; immutable afterwards.
#pragma once

#include "compute/backend.h"
#include "model/config.h"

typedef struct model_layer {
    const float *attention_norm, *feed_forward_norm; // [width]
    // Of what attention and feed-forward add to the stream, [width]; of each head, [head_size].
    // NULL where the family has none.
    const float *post_attention_norm, *post_feed_forward_norm, *q_norm, *k_norm;
    const backend_rope *rope; // one of the two in model_weights
    int32_t window;           // 0: the layer sees everything before it
    backend_weight *qkv;      // [(heads + 2 kv_heads) * head_size][width]
    backend_weight *output;   // [width][heads * head_size]
    backend_weight *gate_up;  // [2 * feed_forward][width], rows paired
    backend_weight *down;     // [width][feed_forward]
} model_layer;

typedef struct model_weights {
    const backend_table *table;
    backend *device;
    backend_weight *embedding; // [rows][width]
    backend_weight *head;      // the same object as `embedding` where the head is tied
    const float *final_norm;   // [width]
    model_layer *layers;
    int32_t layer_count;
    backend_rope rope, local_rope; // the second for layers with a window of their own only
    backend_memory norms, rotations, local_rotations;
    size_t pass_bytes; // that one decode step reads
    size_t bytes;      // in all
} model_weights;

// `positions`: rows of the rotation table. Needs the file only during the call. STATUS_BAD_FILE,
// STATUS_UNSUPPORTED (tensor and type by name), STATUS_NO_MEMORY. Shows progress.
status model_weights_open(const gguf *file, const model_config *config, int32_t positions,
                          const backend_table *table, backend *device, model_weights *weights,
                          error *failure);
// Of a copy: only the first `layers` are read, and `bytes` (which it owns) is 0.
void model_weights_cut(model_weights *copy, int32_t layers);
// Accepts a zeroed or a half-opened one.
void model_weights_close(model_weights *weights);
