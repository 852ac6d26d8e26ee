#include "gguf_builder.h"

void gguf_put_u32(buffer *b, uint32_t value)
{
    buffer_append(b, &value, sizeof(value));
}

void gguf_put_u64(buffer *b, uint64_t value)
{
    buffer_append(b, &value, sizeof(value));
}

void gguf_put_string(buffer *b, slice text)
{
    gguf_put_u64(b, text.size);
    buffer_append_slice(b, text);
}

void gguf_builder_key(gguf_builder *b, const char *key, uint32_t kind)
{
    gguf_put_string(&b->keys, slice_of(key));
    gguf_put_u32(&b->keys, kind);
    b->key_count++;
}

void gguf_builder_u32(gguf_builder *b, const char *key, uint32_t value)
{
    gguf_builder_key(b, key, 4);
    gguf_put_u32(&b->keys, value);
}

void gguf_builder_f32(gguf_builder *b, const char *key, float value)
{
    gguf_builder_key(b, key, 6);
    buffer_append(&b->keys, &value, sizeof(value));
}

void gguf_builder_bool(gguf_builder *b, const char *key, bool value)
{
    gguf_builder_key(b, key, 7);
    buffer_append_byte(&b->keys, value);
}

void gguf_builder_string(gguf_builder *b, const char *key, const char *value)
{
    gguf_builder_key(b, key, 8);
    gguf_put_string(&b->keys, slice_of(value));
}

static void put_array(gguf_builder *b, const char *key, uint32_t kind, size_t count)
{
    gguf_builder_key(b, key, 9);
    gguf_put_u32(&b->keys, kind);
    gguf_put_u64(&b->keys, count);
}

void gguf_builder_strings(gguf_builder *b, const char *key, const char *const *items, size_t count)
{
    put_array(b, key, 8, count);
    for (size_t i = 0; i < count; i++)
        gguf_put_string(&b->keys, slice_of(items[i]));
}

void gguf_builder_u32s(gguf_builder *b, const char *key, const uint32_t *items, size_t count)
{
    put_array(b, key, 4, count);
    buffer_append(&b->keys, items, count * sizeof(items[0]));
}

void gguf_builder_tensor(gguf_builder *b, const char *name, uint32_t dimension_count,
                         const uint64_t *dimensions, uint32_t type, uint64_t offset)
{
    gguf_put_string(&b->infos, slice_of(name));
    gguf_put_u32(&b->infos, dimension_count);
    for (uint32_t i = 0; i < dimension_count; i++)
        gguf_put_u64(&b->infos, dimensions[i]);
    gguf_put_u32(&b->infos, type);
    gguf_put_u64(&b->infos, offset);
    b->tensor_count++;
}

buffer gguf_builder_finish(gguf_builder *b)
{
    buffer file = { 0 };
    buffer_append_text(&file, "GGUF");
    gguf_put_u32(&file, b->version ? b->version : 3);
    gguf_put_u64(&file, b->tensor_count);
    gguf_put_u64(&file, b->key_count);
    buffer_append_slice(&file, buffer_slice(&b->keys));
    buffer_append_slice(&file, buffer_slice(&b->infos));
    size_t alignment = b->alignment ? b->alignment : 32;
    while (file.size % alignment != 0)
        buffer_append_byte(&file, 0);
    buffer_append_slice(&file, buffer_slice(&b->data));
    buffer_close(&b->keys);
    buffer_close(&b->infos);
    buffer_close(&b->data);
    *b = (gguf_builder){ 0 };
    return file;
}
