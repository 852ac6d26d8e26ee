// What a checkpoint's metadata says of its model, checked against the tensors that are really
// there.
//
// One forward pass serves every family (model.h); a family is a row of the table in config.c
// that says what of it applies: how heads are rotated, which norms there are, which layers look
// back how far. A feature, architecture, scaling or tensor that this build does not compute is
// refused by name, never ignored. Sources: the GGUF specification's key list; llama.cpp's
// converters for what the file means (rows of q and k of the `llama` architecture are permuted so
// that rotation pairs are adjacent; those of qwen2 and gemma3 are not; norms of gemma3 contain the
// 1 that is added to the published ones).
#pragma once

#include "checkpoint/gguf.h"
#include "model/rope.h"

#define MODEL_END_IDS_MAX 16
#define MODEL_LAYERS_MAX 1024

// One row per architecture.
typedef struct model_family {
    const char *architecture; // general.architecture, and the prefix of its keys
    bool rope_adjacent;       // rotate pairs (2i, 2i+1); else (i, i + dims/2)
    bool has_window;       // attention.sliding_window is in force; else a file with one is refused
    bool head_norms;       // attn_q_norm and attn_k_norm: each head is normalised before rotation
    bool post_norms;       // post_attention_norm, post_ffw_norm: of what is added to the stream
    bool gelu;             // the gate goes through GELU (tanh form), not SiLU
    bool scaled_embedding; // times the square root of the width
    // 0: all layers are alike. Else every window_period-th layer (attention.sliding_window_pattern
    // may say another number) sees everything, the others the window, rotated with local_rope_base
    // (rope.freq_base_swa may say another) and without scaling.
    int32_t window_period;
    double local_rope_base;
    // Models of this many layers divide scores by the root of width / heads, not of head_size.
    int32_t wide_scale_layers;
} model_family;

typedef struct model_config {
    const model_family *family;
    char name[96]; // general.name, or the file's base name; cut and made printable where it must be
    int32_t layers;
    int32_t width; // of the residual stream
    int32_t heads, kv_heads, head_size;
    int32_t feed_forward;
    int32_t context;       // trained positions
    int32_t rows;          // of the embedding and the head
    int32_t vocabulary;    // ids that the tokenizer knows; at most rows
    int32_t window;        // attention window, 0: none
    int32_t window_period; // of the family, or the file's own; 0: all layers have the window
    float epsilon;
    float attention_scale;
    float embedding_scale;
    model_rope rope;
    model_rope local_rope;              // of layers with the window where there is a period
    bool tied;                          // the head is the embedding matrix
    int32_t end_ids[MODEL_END_IDS_MAX]; // end of text and of turn; drawn, they end a generation
    int32_t end_id_count;
} model_config;

// Whether layer `layer` (from 0) sees the window only, of a model that has both kinds.
bool model_layer_is_local(const model_config *config, int32_t layer);

// STATUS_BAD_FILE or STATUS_UNSUPPORTED with a sentence naming the key or tensor.
status model_config_read(const gguf *file, model_config *config, error *failure);

// The tensor blk.`layer`.`part`.weight (`layer` < 0: `part`.weight) of `rows` x `columns`. Optional
// and absent: NULL.
status model_tensor_find(const gguf *file, int layer, const char *part, const char *kind,
                         int64_t rows, int64_t columns, bool optional, const gguf_tensor **found,
                         error *failure);
