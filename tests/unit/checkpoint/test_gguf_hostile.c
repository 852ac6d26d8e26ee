// Broken, truncated and hostile files: each gives one sentence that names the file and the key or
// tensor. Names B0nn are those of the project's list of field cases.
#include "checkpoint/gguf.h"

#include "base/random.h"
#include "harness/gguf_builder.h"
#include "harness/seed.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <setjmp.h>
#include <cmocka.h>
#include <stdlib.h>
#include <unistd.h>

// Finish the builder, demand that the file is refused and that the sentence contains `expected`.
static void refused(gguf_builder *b, const char *expected)
{
    buffer bytes = gguf_builder_finish(b);
    gguf *file = NULL;
    error failure = { 0 };
    status result = gguf_open_memory(bytes.data, bytes.size, "m.gguf", &file, &failure);
    assert_null(file);
    assert_int_equal(result, STATUS_BAD_FILE);
    assert_int_equal(strncmp(failure.text, "m.gguf: ", 8), 0);
    if (strstr(failure.text, expected) == NULL)
        fail_msg("\"%s\" does not contain \"%s\"", failure.text, expected);
    buffer_close(&bytes);
}

static void one_tensor(const char *name, uint32_t count, const uint64_t *dimensions, uint32_t type,
                       uint64_t offset, size_t data_bytes, const char *expected)
{
    gguf_builder b = { 0 };
    gguf_builder_string(&b, "general.architecture", "llama");
    gguf_builder_tensor(&b, name, count, dimensions, type, offset);
    for (size_t i = 0; i < data_bytes; i++)
        buffer_append_byte(&b.data, 0);
    refused(&b, expected);
}

#define DIMENSIONS(...)                                                                            \
    sizeof((const uint64_t[]){ __VA_ARGS__ }) / 8, (const uint64_t[])                              \
    {                                                                                              \
        __VA_ARGS__                                                                                \
    }

static void b043_dimension_products_do_not_wrap(void **state)
{
    (void)state;
    one_tensor("token_embd.weight", DIMENSIONS(1ull << 32, 1ull << 32), 0, 0, 64,
               "tensor token_embd.weight: the product of its dimensions");
    one_tensor("t", DIMENSIONS(1ull << 63, 2), 0, 0, 64, "tensor t: the product");
    one_tensor("t", DIMENSIONS((1ull << 62) + 1, 4), 0, 0, 64, "tensor t: the product");
    one_tensor("t", DIMENSIONS((1ull << 42) + 1, 1152), 0, 0, 64, "tensor t needs the file up to");
    one_tensor("t", DIMENSIONS(1ull << 62), 0, 0, 64, "tensor t: the product");
    one_tensor("t", DIMENSIONS(16), 0, UINT64_MAX - 31, 64, "tensor t needs the file up to");
}

static void b044_too_many_dimensions_are_refused(void **state)
{
    (void)state;
    static const uint64_t ones[1000] = { [0 ... 999] = 1 };
    const uint32_t counts[] = { 0, 5, 9, 1000 };
    for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++)
        one_tensor("t", counts[i], ones, 0, 0, 64, "dimensions; 1 to 4 are allowed");
    gguf_builder b = { 0 };
    gguf_builder_tensor(&b, "t", 4, ones, 0, 0);
    memcpy(b.infos.data + 9, "\xff\xff\xff\xff", 4);
    refused(&b, "tensor t has 4294967295 dimensions");
}

static void b045_zero_dimensions_and_bad_names_are_refused(void **state)
{
    (void)state;
    char *name = calloc(1, 70001);
    memset(name, 'n', 70000);
    one_tensor("t", DIMENSIONS(32, 0), 0, 0, 0, "tensor t: dimension 1 is 0");
    one_tensor("", DIMENSIONS(32), 0, 0, 128, "a name of 0 bytes");
    one_tensor(name, DIMENSIONS(32), 0, 0, 128, "a name of 70000 bytes");
    gguf_builder b = { 0 };
    gguf_builder_u32(&b, "", 1);
    refused(&b, "key 0 has a name of 0 bytes");
    gguf_builder_u32(&b, name, 1);
    refused(&b, "key 0 has a name of 70000 bytes");
    free(name);
    gguf_put_string(&b.keys, SLICE("a\0b"));
    gguf_put_u32(&b.keys, GGUF_U32);
    gguf_put_u32(&b.keys, 1);
    b.key_count = 1;
    refused(&b, "no control characters");
}

static void b045_counts_are_checked_before_any_allocation(void **state)
{
    (void)state;
    gguf_builder b = { 0 };
    b.tensor_count = 1ull << 63;
    refused(&b, "tensor_count is 9223372036854775808");
    b.key_count = 1ull << 40;
    gguf_builder_u32(&b, "a", 1);
    refused(&b, "kv_count is 1099511627777");
    b.key_count = 3;
    gguf_builder_string(&b, "a",
                        "a text that is long enough for four short keys to fit in, so that the "
                        "count passes");
    refused(&b, "key");
    gguf_builder_key(&b, "words", GGUF_ARRAY);
    gguf_put_u32(&b.keys, GGUF_STRING);
    gguf_put_u64(&b.keys, 1ull << 60);
    refused(&b, "the array of key words does not end inside the file");
    gguf_builder_key(&b, "numbers", GGUF_ARRAY);
    gguf_put_u32(&b.keys, GGUF_U64);
    gguf_put_u64(&b.keys, (1ull << 61) + 1);
    refused(&b, "the array of key numbers does not end inside the file");
    gguf_builder_key(&b, "text", GGUF_STRING);
    gguf_put_u64(&b.keys, UINT64_MAX - 3);
    refused(&b, "the string of key text does not end inside the file");
}

static void b046_deep_arrays_and_unknown_kinds_are_refused(void **state)
{
    (void)state;
    gguf_builder b = { 0 };
    gguf_builder_key(&b, "deep", GGUF_ARRAY);
    for (int i = 0; i < 1000; i++) {
        gguf_put_u32(&b.keys, GGUF_ARRAY);
        gguf_put_u64(&b.keys, 1);
    }
    refused(&b, "key deep does not end inside the file, or nests arrays more than 4 deep");
    gguf_builder_key(&b, "odd", 13);
    gguf_put_u64(&b.keys, 0);
    refused(&b, "key odd has kind 13; kinds are 0 to 12");
    gguf_builder_key(&b, "odd", GGUF_ARRAY);
    gguf_put_u32(&b.keys, 77);
    gguf_put_u64(&b.keys, 0);
    refused(&b, "key odd");
}

static void b047_a_truncated_file_names_the_tensor(void **state)
{
    (void)state;
    one_tensor("t", DIMENSIONS(1024, 2), 0, 0, 8191,
               "tensor t needs the file up to byte 8320, but "
               "it has only 8319 bytes");
    one_tensor("t", DIMENSIONS(1024, 2), 0, 0, 4096, "tensor t needs the file up to byte");
    one_tensor("t", DIMENSIONS(8), 0, 8, 64, "offset 8 is no multiple of the alignment 32");
}

// A whole file cut at every length: refused each time, and never read past the cut (ASan watches).
static void b047_every_cut_of_a_file_is_refused(void **state)
{
    (void)state;
    gguf_builder b = { 0 };
    const char *words[] = { "one", "two" };
    gguf_builder_strings(&b, "words", words, 2);
    gguf_builder_bool(&b, "truth", true);
    gguf_builder_tensor(&b, "t", DIMENSIONS(32), GGUF_TYPE_Q4_0, 0);
    buffer_append(&b.data, "0123456789abcdef01", 18);
    buffer bytes = gguf_builder_finish(&b);
    for (size_t size = 0; size <= bytes.size; size++) {
        char *copy = malloc(size + 1);
        gguf *file = NULL;
        error failure = { 0 };
        memcpy(copy, bytes.data, size);
        status result = gguf_open_memory(copy, size, "m.gguf", &file, &failure);
        assert_int_equal(result, size == bytes.size ? STATUS_OK : STATUS_BAD_FILE);
        assert_true(result == STATUS_OK || failure.text[0] != 0);
        gguf_close(file);
        free(copy);
    }
    buffer_close(&bytes);
}

// The same through a mapping: nothing past the end is touched, wherever the cut is.
static void b047_a_truncated_file_on_disk_is_refused(void **state)
{
    (void)state;
    char path[] = "/tmp/penstock-gguf-XXXXXX";
    int descriptor = mkstemp(path);
    gguf_builder b = { 0 };
    assert_true(descriptor >= 0);
    gguf_builder_tensor(&b, "t", DIMENSIONS(4096), 0, 0);
    for (int i = 0; i < 4096; i++)
        gguf_put_u32(&b.data, 1);
    buffer bytes = gguf_builder_finish(&b);
    const size_t sizes[] = { bytes.size - 1,
                             bytes.size * 99 / 100,
                             bytes.size / 2,
                             8192,
                             4096,
                             bytes.size - 4 * 4096,
                             50,
                             24,
                             23,
                             1,
                             0 };
    assert_int_equal(write(descriptor, bytes.data, bytes.size), bytes.size);
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        gguf *file = NULL;
        error failure = { 0 };
        assert_int_equal(ftruncate(descriptor, (off_t)sizes[i]), 0);
        assert_int_equal(gguf_open(path, &file, &failure), STATUS_BAD_FILE);
        assert_non_null(strstr(failure.text, path));
        assert_null(file);
    }
    close(descriptor);
    unlink(path);
    buffer_close(&bytes);
}

static void b048_two_tensors_or_keys_of_one_name_are_refused(void **state)
{
    (void)state;
    gguf_builder b = { 0 };
    gguf_builder_tensor(&b, "output.weight", DIMENSIONS(8), 0, 0);
    gguf_builder_tensor(&b, "other", DIMENSIONS(8), 0, 0);
    gguf_builder_tensor(&b, "output.weight", DIMENSIONS(8), 0, 32);
    for (int i = 0; i < 16; i++)
        gguf_put_u32(&b.data, 0);
    refused(&b, "tensor output.weight is there twice");
    gguf_builder_u32(&b, "llama.block_count", 1);
    gguf_builder_u32(&b, "llama.context_length", 1);
    gguf_builder_u32(&b, "llama.block_count", 2);
    refused(&b, "key llama.block_count is there twice");
}

static void b096_rows_must_be_whole_blocks_of_a_known_type(void **state)
{
    (void)state;
    one_tensor("t", DIMENSIONS(896, 4), 12, 0, 2016,
               "tensor t: its rows of 896 elements are no multiple of the 256 elements of a Q4_K "
               "block");
    one_tensor("t", DIMENSIONS(8, 64), 14, 0, 420, "rows of 8 elements");
    one_tensor("t", DIMENSIONS(33), 2, 0, 64, "32 elements of a Q4_0 block");
    one_tensor("t", DIMENSIONS(32), 4, 0, 64, "tensor t has type 4 (Q4_2), which is not supported");
    one_tensor("t", DIMENSIONS(32), 5, 0, 64, "type 5 (Q4_3)");
    one_tensor("t", DIMENSIONS(32), 99, 0, 64, "type 99 (unknown)");
    one_tensor("t", DIMENSIONS(32), 31, 0, 64, "type 31 (");
    one_tensor("t", DIMENSIONS(32), 4294967295u, 0, 64, "type 4294967295 (unknown)");
}

static void b051_a_part_of_a_split_model_is_refused(void **state)
{
    (void)state;
    gguf_builder b = { 0 };
    gguf_builder_u32(&b, "split.no", 1);
    gguf_builder_u32(&b, "split.count", 3);
    refused(&b, "one of 3 parts of a split model");
}

// B050, B090 to B095: GPTQ, AWQ and FP8 weights come as safetensors.
static void b050_b090_to_b095_safetensors_is_refused_by_name(void **state)
{
    (void)state;
    static const char header[] =
        "{\"l.qzeros\":{\"dtype\":\"I32\",\"shape\":[2,2],\"data_offsets\":[0,16]}}";
    const uint64_t sizes[] = { sizeof(header) - 1, 0, 7, 1ull << 31, UINT64_MAX };
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        buffer bytes = { 0 };
        gguf *file = NULL;
        error failure = { 0 };
        gguf_put_u64(&bytes, sizes[i]);
        buffer_append_text(&bytes, header);
        buffer_append(&bytes, "0123456789abcdef", 16);
        assert_int_equal(gguf_open_memory(bytes.data, bytes.size, "m.safetensors", &file, &failure),
                         STATUS_BAD_FILE);
        assert_non_null(strstr(failure.text, "m.safetensors: not a GGUF file"));
        assert_non_null(strstr(failure.text, "safetensors, which is not supported"));
        assert_null(file);
        buffer_close(&bytes);
    }
}

static void headers_that_are_not_ours_are_named(void **state)
{
    (void)state;
    gguf_builder b = { .version = 1 };
    refused(&b, "GGUF version 1 is not supported; versions 2 and 3 are");
    b.version = 4;
    refused(&b, "GGUF version 4");
    b.version = 3u << 24;
    refused(&b, "a big-endian GGUF file (version 3 byte-swapped)");
    const uint32_t alignments[] = { 0, 1, 4, 33, 1u << 21, 4294967295u };
    for (size_t i = 0; i < sizeof(alignments) / sizeof(alignments[0]); i++) {
        gguf_builder_u32(&b, "general.alignment", alignments[i]);
        refused(&b, "it must be a power of two from 8 to 1048576");
    }
    gguf_builder_string(&b, "general.alignment", "32");
    refused(&b, "key general.alignment is of kind string; an integer is expected");
    gguf *file = NULL;
    error failure = { 0 };
    assert_int_equal(gguf_open_memory("GGML5678901234567890123456", 26, "m", &file, &failure),
                     STATUS_BAD_FILE);
    assert_non_null(strstr(failure.text, "not a GGUF file"));
    assert_int_equal(gguf_open("/no/such/file.gguf", &file, &failure), STATUS_IO);
    assert_non_null(strstr(failure.text, "/no/such/file.gguf"));
    assert_int_equal(gguf_open("/tmp", &file, &failure), STATUS_BAD_FILE);
    assert_int_equal(gguf_open("/dev/null", &file, &failure), STATUS_BAD_FILE);
    assert_null(file);
}

// Random single-byte changes of a good file: opened or
// refused, never a crash. What opens is read through.
static void a_damaged_byte_never_leads_outside_the_file(void **state)
{
    (void)state;
    uint64_t seed = seed_choose();
    gguf_builder b = { 0 };
    const char *words[] = { "one", "two", "three" };
    gguf_builder_strings(&b, "words", words, 3);
    gguf_builder_string(&b, "general.architecture", "llama");
    gguf_builder_tensor(&b, "t", DIMENSIONS(32, 3), GGUF_TYPE_Q4_0, 0);
    gguf_builder_tensor(&b, "u", DIMENSIONS(2, 2, 2), GGUF_TYPE_F32, 64);
    for (int i = 0; i < 24; i++)
        gguf_put_u32(&b.data, 0);
    buffer bytes = gguf_builder_finish(&b);
    for (int round = 0; round < 20000; round++) {
        uint64_t bits = random_mix(seed + (uint64_t)round);
        size_t place = (bits >> 8) % bytes.size;
        char before = bytes.data[place];
        gguf *file = NULL;
        error failure = { 0 };
        gguf_array array;
        bytes.data[place] = (char)bits;
        if (gguf_open_memory(bytes.data, bytes.size, "m.gguf", &file, &failure) == STATUS_OK) {
            volatile uint8_t sum = 0;
            for (uint64_t i = 0; i < gguf_tensor_count(file); i++)
                for (uint64_t j = 0; j < gguf_tensor_at(file, i)->bytes; j++)
                    sum += ((const uint8_t *)gguf_tensor_at(file, i)->data)[j];
            if (gguf_get_array(file, "words", GGUF_STRING, &array, &failure) == STATUS_OK)
                while (array.count > 0)
                    sum += (uint8_t)gguf_array_take_string(&array).size;
        } else {
            assert_true(failure.text[0] != 0);
        }
        gguf_close(file);
        bytes.data[place] = before;
    }
    buffer_close(&bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(b043_dimension_products_do_not_wrap),
        cmocka_unit_test(b044_too_many_dimensions_are_refused),
        cmocka_unit_test(b045_zero_dimensions_and_bad_names_are_refused),
        cmocka_unit_test(b045_counts_are_checked_before_any_allocation),
        cmocka_unit_test(b046_deep_arrays_and_unknown_kinds_are_refused),
        cmocka_unit_test(b047_a_truncated_file_names_the_tensor),
        cmocka_unit_test(b047_every_cut_of_a_file_is_refused),
        cmocka_unit_test(b047_a_truncated_file_on_disk_is_refused),
        cmocka_unit_test(b048_two_tensors_or_keys_of_one_name_are_refused),
        cmocka_unit_test(b096_rows_must_be_whole_blocks_of_a_known_type),
        cmocka_unit_test(headers_that_are_not_ours_are_named),
        cmocka_unit_test(a_damaged_byte_never_leads_outside_the_file),
        cmocka_unit_test(b051_a_part_of_a_split_model_is_refused),
        cmocka_unit_test(b050_b090_to_b095_safetensors_is_refused_by_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
