#include "small_tokenizer.h"

void small_tokenizer_put_byte(buffer *text, unsigned byte)
{
    unsigned character = byte;
    bool itself = (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
    if (!itself) {
        character = 0x100;
        for (unsigned i = 0; i < byte; i++)
            character += !((i >= 0x21 && i <= 0x7e) || (i >= 0xa1 && i <= 0xac) || i >= 0xae);
    }
    if (character < 0x80) {
        buffer_append_byte(text, (char)character);
    } else {
        buffer_append_byte(text, (char)(0xc0 | character >> 6));
        buffer_append_byte(text, (char)(0x80 | (character & 0x3f)));
    }
}

static size_t count_of(const char *const *items)
{
    size_t count = 0;
    while (items != NULL && items[count] != NULL)
        count++;
    return count;
}

static void put_mapped(buffer *text, slice raw)
{
    buffer mapped = { 0 };
    for (size_t i = 0; i < raw.size; i++)
        small_tokenizer_put_byte(&mapped, (unsigned char)raw.data[i]);
    gguf_put_string(text, buffer_slice(&mapped));
    buffer_close(&mapped);
}

void small_tokenizer_put(gguf_builder *b, const small_tokenizer *what)
{
    size_t merges = count_of(what->merges), controls = count_of(what->controls);
    size_t user_defined = count_of(what->user_defined);
    size_t count = 256 + merges + controls + user_defined;
    gguf_builder_string(b, "tokenizer.ggml.model", "gpt2");
    gguf_builder_string(b, "tokenizer.ggml.pre", what->pre ? what->pre : "gpt-2");
    gguf_builder_key(b, "tokenizer.ggml.tokens", 9);
    gguf_put_u32(&b->keys, 8);
    gguf_put_u64(&b->keys, count);
    for (int byte = 0; byte < 256; byte++)
        put_mapped(&b->keys, (slice){ (const char[]){ (char)byte }, 1 });
    for (size_t i = 0; i < merges; i++) {
        buffer joined = { 0 };
        const char *space = strchr(what->merges[i] + 1, ' ');
        buffer_append(&joined, what->merges[i], (size_t)(space - what->merges[i]));
        buffer_append_text(&joined, space + 1);
        gguf_put_string(&b->keys, buffer_slice(&joined));
        buffer_close(&joined);
    }
    for (size_t i = 0; i < controls; i++)
        gguf_put_string(&b->keys, slice_of(what->controls[i]));
    for (size_t i = 0; i < user_defined; i++)
        gguf_put_string(&b->keys, slice_of(what->user_defined[i]));
    gguf_builder_key(b, "tokenizer.ggml.token_type", 9);
    gguf_put_u32(&b->keys, 5);
    gguf_put_u64(&b->keys, count);
    for (size_t i = 0; i < count; i++)
        gguf_put_u32(&b->keys, i < 256 + merges ? 1 : i < 256 + merges + controls ? 3 : 4);
    gguf_builder_strings(b, "tokenizer.ggml.merges", what->merges, merges);
}

static void put_texts(buffer *keys, const char *const *texts)
{
    for (size_t i = 0; texts != NULL && texts[i] != NULL; i++)
        gguf_put_string(keys, slice_of(texts[i]));
}

void small_tokenizer_put_pieces(gguf_builder *b, const small_pieces *what)
{
    const size_t counts[] = { 1, what->bytes ? 256 : 0, count_of(what->pieces),
                              count_of(what->controls), count_of(what->user_defined) };
    const uint32_t kinds[] = { 2, 6, 1, 3, 4 }; // unknown, byte, normal, control, user-defined
    size_t count = 0;
    for (int part = 0; part < 5; part++)
        count += counts[part];
    gguf_builder_string(b, "tokenizer.ggml.model", "llama");
    gguf_builder_key(b, "tokenizer.ggml.tokens", 9);
    gguf_put_u32(&b->keys, 8);
    gguf_put_u64(&b->keys, count);
    gguf_put_string(&b->keys, SLICE("<unk>"));
    for (unsigned byte = 0; byte < counts[1]; byte++) {
        buffer text = { 0 };
        buffer_printf(&text, "<0x%02X>", byte);
        gguf_put_string(&b->keys, buffer_slice(&text));
        buffer_close(&text);
    }
    put_texts(&b->keys, what->pieces);
    put_texts(&b->keys, what->controls);
    put_texts(&b->keys, what->user_defined);
    gguf_builder_key(b, "tokenizer.ggml.scores", 9);
    gguf_put_u32(&b->keys, 6);
    gguf_put_u64(&b->keys, count);
    for (size_t i = 0; i < count; i++) {
        float score = -(float)i;
        buffer_append(&b->keys, &score, sizeof(score));
    }
    gguf_builder_key(b, "tokenizer.ggml.token_type", 9);
    gguf_put_u32(&b->keys, 5);
    gguf_put_u64(&b->keys, count);
    for (int part = 0; part < 5; part++)
        for (size_t i = 0; i < counts[part]; i++)
            gguf_put_u32(&b->keys, kinds[part]);
    gguf_builder_u32(b, "tokenizer.ggml.unknown_token_id", 0);
}
