// A tiny language model as a GGUF file, made from a seed: random weights of one architecture (llama
// by default) and a byte-level vocabulary, so that one file serves tests of the engine, the
// tokenizer and the whole cluster.
//
// Equal options give equal bytes. The vocabulary: ids 0..2 are <|endoftext|>, <|im_start|> and
// <|im_end|> (end of turn), 3..258 the 256 bytes in ascending order, then merged pairs. The chat
// template is ChatML without a default system message. `build/tools/tiny-model FILE [SEED]` writes
// the default one for tests in other languages.
#pragma once

#include "base/buffer.h"
#include "base/status.h"
#include "compute/tensor.h"

// A u32 key in place of the right one, or one more; for tests of what the loader refuses.
typedef struct tiny_model_key {
    const char *key; // NULL: none
    uint32_t value;
} tiny_model_key;

typedef struct tiny_model {
    uint64_t seed;
    const char *architecture; // "llama", "qwen2" or "gemma3"; the last needs a window
    const char *name;         // general.name
    int layers, width, heads, kv_heads, head_size, feed_forward;
    int context;
    tensor_type type;         // of the matrices
    tensor_type head_type;    // of the embedding and the head
    bool untied;              // an output.weight of its own
    bool biased;              // biases of q, k and v
    bool rope_divisors;       // rope_freqs.weight as Llama 3 has it
    const char *rope_scaling; // rope.scaling.type; NULL: no such key
    double rope_factor;       // rope.scaling.factor; 0: no such key
    int rope_original;        // rope.scaling.original_context_length; 0: no such key
    double rope_attention;    // rope.scaling.attn_factor; 0: no such key
    bool rope_lists;          // rope_factors_long.weight and rope_factors_short.weight
    int window;               // attention.sliding_window; 0: none
    int window_period;        // attention.sliding_window_pattern; 0: no such key
    bool rope_permuted; // rows of q and k as converters write them for llama files, so that the
                        // model is the one that another architecture has without this
    float loud;         // factor of the embedding; 0: 1
    int extra_rows;     // embedding rows that the tokenizer does not know
    int nan_token;      // this token's embedding is NaN (F32 and F16 heads); 0: none
    tiny_model_key keys[2];
    const char *extra_tensor; // a vector of 64 floats of this name, where not NULL
    const char *left_out;     // the tensor of this name is not written
} tiny_model;

#define TINY_MODEL_BYTE_FIRST 3 // token id of byte 0

// 4 layers, width 64, 4 heads on 2, 128 hidden, context 2048, all F32.
tiny_model tiny_model_default(uint64_t seed);
int tiny_model_vocabulary(void);
// The file's bytes; the caller closes the buffer.
buffer tiny_model_build(const tiny_model *options);
// Written to `path`. STATUS_IO.
status tiny_model_write(const tiny_model *options, const char *path);
// A fresh file in the temporary folder; `path` must be removed by the caller.
void tiny_model_temporary(const tiny_model *options, char path[64]);
