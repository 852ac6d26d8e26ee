// A GGUF file: opened, then everything in it is read;
// or refused with a sentence. Also as a tokenizer.
#include "checkpoint/gguf.h"
#include "text/encoder.h"

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

static volatile uint64_t sink;

static void read_array(const gguf *file, const char *key)
{
    gguf_array array;
    uint64_t sum = 0;
    if (gguf_get_array(file, key, GGUF_STRING, &array, NULL) == STATUS_OK)
        while (array.count > 0) {
            slice text = gguf_array_take_string(&array);
            for (size_t i = 0; i < text.size; i++)
                sum += (uint8_t)text.data[i];
        }
    if (gguf_get_array(file, key, GGUF_U64, &array, NULL) == STATUS_OK)
        for (uint64_t i = 0; i < array.count; i++) {
            uint64_t value = 0;
            sum += gguf_array_u64(&array, i, &value) ? value : 1;
        }
    if (gguf_get_array(file, key, GGUF_F64, &array, NULL) == STATUS_OK)
        for (uint64_t i = 0; i < array.count; i++)
            sum += gguf_array_f64(&array, i) > 0;
    sink += sum;
}

static void read_key(const gguf *file, slice name)
{
    char key[1025];
    uint64_t integer;
    double number;
    bool truth;
    slice text;
    error failure = { 0 };
    memcpy(key, name.data, name.size);
    key[name.size] = 0;
    CHECK(gguf_has(file, key, NULL));
    if (gguf_get_u64(file, key, &integer, &failure) == STATUS_OK)
        sink += integer;
    if (gguf_get_f64(file, key, &number, &failure) == STATUS_OK)
        sink += number > 0;
    if (gguf_get_bool(file, key, &truth, &failure) == STATUS_OK)
        sink += truth;
    if (gguf_get_string(file, key, &text, &failure) == STATUS_OK)
        for (size_t i = 0; i < text.size; i++)
            sink += (uint8_t)text.data[i];
    read_array(file, key);
}

static void read_tokenizer(const gguf *file)
{
    tokenizer *t;
    encoder *e;
    token_list list = { 0 };
    error failure = { 0 };
    if (tokenizer_open(file, &t, &failure) != STATUS_OK) {
        CHECK(failure.text[0] != 0);
        return;
    }
    CHECK(encoder_open(t, &e) == STATUS_OK);
    const slice text = SLICE("<|im_start|>user\nhello  world 12 \xc3\xa9\xe2\x82\xac a\xcc\x81");
    CHECK(encoder_encode_text(e, text, true, SIZE_MAX, &list, &failure) == STATUS_OK);
    for (size_t i = 0; i < list.count; i++)
        CHECK(list.ids[i] >= 0 && list.ids[i] < tokenizer_token_count(t));
    token_list_close(&list);
    encoder_close(e);
    tokenizer_close(t);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    gguf *file = NULL;
    error failure = { 0 };
    if (gguf_open_memory(data, size, "fuzz.gguf", &file, &failure) != STATUS_OK) {
        CHECK(file == NULL && failure.text[0] != 0);
        return 0;
    }
    for (uint64_t i = 0; i < gguf_tensor_count(file); i++) {
        const gguf_tensor *tensor = gguf_tensor_at(file, i);
        CHECK(tensor->offset <= size && tensor->bytes <= size - tensor->offset);
        const uint8_t *bytes = tensor->data;
        for (uint64_t j = 0; j < tensor->bytes; j++)
            sink += bytes[j];
    }
    for (uint64_t i = 0; i < gguf_key_count(file); i++)
        read_key(file, gguf_key_at(file, i));
    read_tokenizer(file);
    gguf_close(file);
    return 0;
}
