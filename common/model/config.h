// What a checkpoint's metadata says of its model, checked against the tensors that are really
// there.
//
// One forward pass serves every family (model.h); a family is a row of the table in config.c
// that says what of it applies: how heads are rotated, which optional tensors exist. A
// feature, architecture, scaling or tensor that this build does not compute is refused by
// name, never ignored. Sources: the GGUF specification's key list; llama.cpp's converters for
// what the file means (rows of q and k of the `llama` architecture are permuted so that
// rotation pairs are adjacent).
#pragma once

#include "checkpoint/gguf.h"

#define MODEL_END_IDS_MAX 16
#define MODEL_LAYERS_MAX 1024

// One row per architecture.
typedef struct model_family {
    const char *architecture; // general.architecture, and the prefix of its keys
    bool rope_adjacent;       // rotate pairs (2i, 2i+1); else (i, i + dims/2)
} model_family;

typedef struct model_config {
    const model_family *family;
    char name[96]; // general.name, or the file's base name
    int32_t layers;
    int32_t width; // of the residual stream
    int32_t heads, kv_heads, head_size;
    int32_t feed_forward;
    int32_t context;    // trained positions
    int32_t rows;       // of the embedding and the head
    int32_t vocabulary; // ids that the tokenizer knows; at most rows
    int32_t window;     // attention window, 0: none
    float epsilon;
    float attention_scale;
    double rope_base, rope_scale;       // scale divides positions (linear scaling); 1: none
    int32_t rope_dims;                  // rotated dims of each head, even
    bool tied;                          // the head is the embedding matrix
    int32_t end_ids[MODEL_END_IDS_MAX]; // end of text and of turn; drawn, they end a generation
    int32_t end_id_count;
} model_config;

// STATUS_BAD_FILE or STATUS_UNSUPPORTED with a sentence naming the key or tensor.
status model_config_read(const gguf *file, model_config *config, error *failure);

// The tensor blk.`layer`.`part`.weight (`layer` < 0: `part`.weight) of `rows` x `columns`. Optional
// and absent: NULL.
status model_tensor_find(const gguf *file, int layer, const char *part, const char *kind,
                         int64_t rows, int64_t columns, bool optional, const gguf_tensor **found,
                         error *failure);
