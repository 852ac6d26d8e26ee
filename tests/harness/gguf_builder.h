// Writes GGUF bytes for tests, right or wrong: nothing is checked, and counts can be lied about.
//
// Layout as in checkpoint/gguf.h. A zeroed builder is an empty version 3 file; put keys and tensors
// in, then take the bytes with gguf_builder_finish, which frees the builder. One thread.
#pragma once

#include "base/buffer.h"

typedef struct gguf_builder {
    buffer keys, infos, data;
    uint64_t key_count, tensor_count; // what the header will say; change them to lie
    uint32_t version;                 // 0: 3
    uint32_t alignment;               // of the padding before the data; 0: 32
} gguf_builder;

// Raw parts, for odd cases.
void gguf_put_u32(buffer *b, uint32_t value);
void gguf_put_u64(buffer *b, uint64_t value);
void gguf_put_string(buffer *b, slice text);
// A key's name and kind; the caller appends the value's bytes to b->keys.
void gguf_builder_key(gguf_builder *b, const char *key, uint32_t kind);

void gguf_builder_u32(gguf_builder *b, const char *key, uint32_t value);
void gguf_builder_f32(gguf_builder *b, const char *key, float value);
void gguf_builder_bool(gguf_builder *b, const char *key, bool value);
void gguf_builder_string(gguf_builder *b, const char *key, const char *value);
void gguf_builder_strings(gguf_builder *b, const char *key, const char *const *items, size_t count);
void gguf_builder_u32s(gguf_builder *b, const char *key, const uint32_t *items, size_t count);
// `offset` is relative to the data section; the data are the caller's to append to b->data.
void gguf_builder_tensor(gguf_builder *b, const char *name, uint32_t dimension_count,
                         const uint64_t *dimensions, uint32_t type, uint64_t offset);

// The file's bytes; the caller closes the buffer.
buffer gguf_builder_finish(gguf_builder *b);
