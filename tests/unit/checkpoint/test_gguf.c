// What a good file gives: metadata, tensors, sizes, digest.
#include "checkpoint/gguf.h"

#include "harness/gguf_builder.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <setjmp.h>
#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <unistd.h>

static gguf *open_bytes(const buffer *bytes)
{
    gguf *file = NULL;
    error failure = { 0 };
    status result = gguf_open_memory(bytes->data, bytes->size, "m.gguf", &file, &failure);
    if (result != STATUS_OK)
        fail_msg("%s", failure.text);
    return file;
}

static void b046_every_integer_kind_widens_if_the_value_fits(void **state)
{
    (void)state;
    gguf_builder b = { 0 };
    error failure;
    uint64_t value = 0;
    gguf_builder_key(&b, "u8", GGUF_U8);
    buffer_append(&b.keys, "\xff", 1);
    gguf_builder_key(&b, "i8", GGUF_I8);
    buffer_append(&b.keys, "\xff", 1);
    gguf_builder_key(&b, "i16", GGUF_I16);
    buffer_append(&b.keys, "\x01\x7f", 2);
    gguf_builder_key(&b, "u64", GGUF_U64);
    gguf_put_u64(&b.keys, UINT64_MAX);
    gguf_builder_key(&b, "i64", GGUF_I64);
    gguf_put_u64(&b.keys, 1ull << 63);
    gguf_builder_u32(&b, "u32", 4294967295u);
    gguf_builder_bool(&b, "bool", true);
    buffer bytes = gguf_builder_finish(&b);
    gguf *file = open_bytes(&bytes);
    assert_int_equal(gguf_get_u64(file, "u8", &value, &failure), STATUS_OK);
    assert_int_equal(value, 255);
    assert_int_equal(gguf_get_u64(file, "i16", &value, &failure), STATUS_OK);
    assert_int_equal(value, 0x7f01);
    assert_int_equal(gguf_get_u64(file, "u64", &value, &failure), STATUS_OK);
    assert_true(value == UINT64_MAX);
    assert_int_equal(gguf_get_u64(file, "u32", &value, &failure), STATUS_OK);
    assert_int_equal(value, 4294967295u);
    value = 7;
    assert_int_equal(gguf_get_u64(file, "i8", &value, &failure), STATUS_BAD_FILE);
    assert_string_equal(failure.text, "m.gguf: key i8 is -1; it must not be negative");
    assert_string_equal(failure.param, "i8");
    assert_int_equal(gguf_get_u64(file, "i64", &value, &failure), STATUS_BAD_FILE);
    assert_int_equal(gguf_get_u64(file, "bool", &value, &failure), STATUS_BAD_FILE);
    assert_string_equal(failure.text, "m.gguf: key bool is of kind bool; an integer is expected");
    assert_int_equal(value, 7);
    gguf_close(file);
    buffer_close(&bytes);
}

static void a_value_is_found_absent_or_of_the_wrong_kind(void **state)
{
    (void)state;
    gguf_builder b = { 0 };
    error failure;
    double number = 0;
    bool truth = false;
    slice text;
    uint64_t count = 0;
    gguf_kind kind;
    gguf_builder_f32(&b, "f32", 0.5f);
    gguf_builder_f32(&b, "nan", NAN);
    gguf_builder_bool(&b, "bool", true);
    gguf_builder_key(&b, "odd", GGUF_BOOL);
    buffer_append_byte(&b.keys, 2);
    gguf_builder_string(&b, "text", "llama");
    gguf_builder_u32(&b, "u32", 10);
    buffer bytes = gguf_builder_finish(&b);
    gguf *file = open_bytes(&bytes);
    assert_int_equal(gguf_get_f64(file, "f32", &number, &failure), STATUS_OK);
    assert_true(number == 0.5);
    assert_int_equal(gguf_get_f64(file, "u32", &number, &failure), STATUS_OK);
    assert_true(number == 10);
    assert_int_equal(gguf_get_f64(file, "nan", &number, &failure), STATUS_BAD_FILE);
    assert_int_equal(gguf_get_bool(file, "bool", &truth, &failure), STATUS_OK);
    assert_true(truth);
    assert_int_equal(gguf_get_bool(file, "odd", &truth, &failure), STATUS_BAD_FILE);
    assert_int_equal(gguf_get_bool(file, "u32", &truth, &failure), STATUS_BAD_FILE);
    assert_int_equal(gguf_get_string(file, "text", &text, &failure), STATUS_OK);
    assert_true(slice_equal(text, SLICE("llama")));
    assert_int_equal(gguf_get_string(file, "u32", &text, &failure), STATUS_BAD_FILE);
    assert_int_equal(gguf_get_u64(file, "no.such", &count, &failure), STATUS_BAD_FILE);
    assert_string_equal(failure.text, "m.gguf: key no.such (an integer) is missing");
    assert_int_equal(gguf_get_u64_or(file, "no.such", 5, &count, &failure), STATUS_OK);
    assert_int_equal(count, 5);
    assert_int_equal(gguf_get_u64_or(file, "text", 5, &count, &failure), STATUS_BAD_FILE);
    assert_int_equal(gguf_get_f64_or(file, "no.such", 1.5, &number, &failure), STATUS_OK);
    assert_true(number == 1.5);
    assert_int_equal(gguf_get_bool_or(file, "no.such", false, &truth, &failure), STATUS_OK);
    assert_false(truth);
    assert_true(gguf_has(file, "text", &kind));
    assert_int_equal(kind, GGUF_STRING);
    assert_int_equal(gguf_key_count(file), 6);
    assert_true(slice_equal(gguf_key_at(file, 4), SLICE("text")));
    gguf_close(file);
    buffer_close(&bytes);
}

static void arrays_are_read_by_element(void **state)
{
    (void)state;
    gguf_builder b = { 0 };
    error failure;
    gguf_array array;
    uint64_t value;
    const char *words[] = { "a", "", "three" };
    const uint32_t numbers[] = { 1, 4294967295u };
    gguf_builder_strings(&b, "words", words, 3);
    gguf_builder_u32s(&b, "numbers", numbers, 2);
    gguf_builder_key(&b, "signed", GGUF_ARRAY);
    gguf_put_u32(&b.keys, GGUF_I8);
    gguf_put_u64(&b.keys, 2);
    buffer_append(&b.keys, "\x05\xfe", 2);
    buffer bytes = gguf_builder_finish(&b);
    gguf *file = open_bytes(&bytes);
    assert_int_equal(gguf_get_array(file, "words", GGUF_STRING, &array, &failure), STATUS_OK);
    assert_int_equal(array.count, 3);
    assert_true(slice_equal(gguf_array_take_string(&array), SLICE("a")));
    assert_true(slice_equal(gguf_array_take_string(&array), SLICE("")));
    assert_true(slice_equal(gguf_array_take_string(&array), SLICE("three")));
    assert_int_equal(array.count, 0);
    assert_int_equal(gguf_get_array(file, "numbers", GGUF_U64, &array, &failure), STATUS_OK);
    assert_true(gguf_array_u64(&array, 1, &value));
    assert_int_equal(value, 4294967295u);
    assert_int_equal(gguf_get_array(file, "signed", GGUF_U64, &array, &failure), STATUS_OK);
    assert_true(gguf_array_u64(&array, 0, &value));
    assert_int_equal(value, 5);
    assert_false(gguf_array_u64(&array, 1, &value));
    assert_true(gguf_array_f64(&array, 1) == -2.0);
    assert_int_equal(gguf_get_array(file, "numbers", GGUF_STRING, &array, &failure),
                     STATUS_BAD_FILE);
    assert_string_equal(failure.text, "m.gguf: key numbers is an array of u32; an array of string "
                                      "is expected");
    assert_int_equal(gguf_get_array(file, "words", GGUF_F64, &array, &failure), STATUS_BAD_FILE);
    gguf_close(file);
    buffer_close(&bytes);
}

static void tensors_are_found_with_shape_bytes_and_data(void **state)
{
    (void)state;
    gguf_builder b = { .version = 2 };
    error failure;
    const gguf_tensor *tensor;
    gguf_builder_tensor(&b, "blk.0.w", 2, (const uint64_t[]){ 32, 2 }, GGUF_TYPE_Q4_1, 32);
    gguf_builder_tensor(&b, "a", 1, (const uint64_t[]){ 3 }, GGUF_TYPE_F32, 0);
    buffer_append(&b.data, (const float[8]){ 1, 2, 3 }, 32);
    buffer_append(&b.data, "0123456789012345678901234567890123456789", 40);
    buffer bytes = gguf_builder_finish(&b);
    gguf *file = open_bytes(&bytes);
    assert_int_equal(gguf_version(file), 2);
    assert_int_equal(gguf_tensor_count(file), 2);
    assert_true(slice_equal(gguf_tensor_at(file, 0)->name, SLICE("blk.0.w")));
    assert_int_equal(gguf_tensor_need(file, "blk.0.w", &tensor, &failure), STATUS_OK);
    assert_int_equal(tensor->bytes, 40);
    assert_int_equal(tensor->dimensions[0], 32);
    assert_int_equal(tensor->dimensions[1], 2);
    assert_int_equal(tensor->dimensions[3], 1);
    assert_memory_equal(tensor->data, "0123", 4);
    assert_memory_equal(bytes.data + tensor->offset, "0123", 4);
    assert_true(((const float *)gguf_tensor_find(file, "a")->data)[2] == 3);
    assert_null(gguf_tensor_find(file, "b"));
    assert_int_equal(gguf_tensor_need(file, "b", &tensor, &failure), STATUS_BAD_FILE);
    assert_string_equal(failure.text, "m.gguf: tensor b is missing");
    assert_string_equal(gguf_type_name(GGUF_TYPE_Q4_1), "Q4_1");
    gguf_close(file);
    buffer_close(&bytes);
}

// Every row of the type table stands at its own number.
static void type_numbers_match_their_rows(void **state)
{
    (void)state;
    uint32_t known = 0;
    for (uint32_t id = 0; gguf_type_of(id) != NULL; id++) {
        assert_int_equal(gguf_type_of(id)->id, id);
        known += gguf_type_of(id)->block_bytes != 0;
    }
    assert_int_equal(known, 32);
    assert_null(gguf_type_of(4294967295u));
    assert_string_equal(gguf_type_name(144), "unknown");
    assert_string_equal(gguf_type_name(GGUF_TYPE_MXFP4), "MXFP4");
    assert_string_equal(gguf_type_name(GGUF_TYPE_BF16), "BF16");
    assert_string_equal(gguf_type_name(GGUF_TYPE_IQ4_XS), "IQ4_XS");
}

static void b047_the_digest_is_the_hash_of_the_bytes_and_shrinking_is_noticed(void **state)
{
    (void)state;
    char path[] = "/tmp/penstock-gguf-XXXXXX";
    int descriptor = mkstemp(path);
    assert_true(descriptor >= 0);
    gguf_builder b = { 0 };
    gguf_builder_tensor(&b, "a", 1, (const uint64_t[]){ 1 << 20 }, GGUF_TYPE_F32, 0);
    for (int i = 0; i < 1 << 20; i++)
        gguf_put_u32(&b.data, (uint32_t)i * 2654435761u);
    buffer bytes = gguf_builder_finish(&b);
    assert_int_equal(write(descriptor, bytes.data, bytes.size), bytes.size);
    gguf *file;
    error failure = { 0 };
    hash128 digest;
    assert_int_equal(gguf_open(path, &file, &failure), STATUS_OK);
    assert_string_equal(gguf_path(file), path);
    assert_int_equal(gguf_file_bytes(file), bytes.size);
    assert_int_equal(gguf_digest(file, &digest, &failure), STATUS_OK);
    assert_true(hash128_equal(digest, hash128_of(bytes.data, bytes.size)));
    assert_int_equal(ftruncate(descriptor, 4096), 0);
    assert_int_equal(gguf_check_size(file, &failure), STATUS_BAD_FILE);
    assert_non_null(strstr(failure.text, "shrank"));
    assert_int_equal(gguf_digest(file, &digest, &failure), STATUS_BAD_FILE);
    gguf_close(file);
    close(descriptor);
    unlink(path);
    buffer_close(&bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(b046_every_integer_kind_widens_if_the_value_fits),
        cmocka_unit_test(a_value_is_found_absent_or_of_the_wrong_kind),
        cmocka_unit_test(arrays_are_read_by_element),
        cmocka_unit_test(tensors_are_found_with_shape_bytes_and_data),
        cmocka_unit_test(type_numbers_match_their_rows),
        cmocka_unit_test(b047_the_digest_is_the_hash_of_the_bytes_and_shrinking_is_noticed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
