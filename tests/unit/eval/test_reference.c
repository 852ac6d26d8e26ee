// Stored reference runs: what was written is read again, and no other bytes are.
#include "eval/reference.h"

#include "harness/places.h"

#include <math.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <setjmp.h>
#include <unistd.h>
#include <cmocka.h>

#define VOCABULARY 6
static const int32_t text[] = { 1, 2, 3, 4, 5, 0, 1, 2 };
#define TOKENS (sizeof text / sizeof text[0])

typedef struct fixture {
    char path[64];
    buffer bytes; // of a good file
} fixture;

static float logit_of(uint64_t row, int token)
{
    return (float)(token * 3 % 7) - (float)row / 4;
}

static int setup(void **state)
{
    fixture *f = calloc(1, sizeof *f);
    walk_plan plan = { .text = text, .count = TOKENS, .bos = 3, .context = 4, .chunk = 4 };
    reference_head head = { .vocabulary = VOCABULARY, .digest = { 11, 12 }, .model = "a model" };
    reference r;
    error failure;
    strcpy(f->path, "/tmp/penstock-reference-XXXXXX");
    close(mkstemp(f->path));
    assert_int_equal(reference_create(f->path, &head, &plan, &r, &failure), STATUS_OK);
    assert_int_equal(r.head.rows, TOKENS);
    for (uint64_t row = 0; row < r.head.rows; row++) {
        float logits[VOCABULARY];
        for (int i = 0; i < VOCABULARY; i++)
            logits[i] = logit_of(row, i);
        assert_int_equal(reference_write(&r, logits, &failure), STATUS_OK);
    }
    uint64_t bytes = reference_bytes(&r.head);
    assert_int_equal(reference_close(&r, &failure), STATUS_OK);
    assert_true(places_read(f->path, &f->bytes));
    assert_int_equal(f->bytes.size, bytes);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    fixture *f = *state;
    unlink(f->path);
    buffer_close(&f->bytes);
    free(f);
    return 0;
}

// Open such a file and read all rows.
static status read_all(const fixture *f, const char *bytes, size_t size, error *failure)
{
    FILE *file = fopen(f->path, "wb");
    float logits[VOCABULARY];
    reference r;
    fwrite(bytes, 1, size, file);
    fclose(file);
    status result = reference_open(f->path, &r, failure);
    while (result == STATUS_OK && r.rows_done < r.head.rows)
        result = reference_read(&r, logits, failure);
    if (result == STATUS_OK)
        for (int i = 0; i < VOCABULARY; i++)
            assert_true(logits[i] == logit_of(r.head.rows - 1, i));
    reference_close(&r, NULL);
    return result;
}

static void what_was_written_is_read_again(void **state)
{
    const fixture *f = *state;
    error failure;
    assert_int_equal(read_all(f, f->bytes.data, f->bytes.size, &failure), STATUS_OK);
}

static void every_changed_byte_and_every_cut_is_noticed(void **state)
{
    const fixture *f = *state;
    for (size_t i = 0; i < f->bytes.size; i++) {
        error failure = { 0 };
        f->bytes.data[i] ^= 0x41;
        assert_int_equal(read_all(f, f->bytes.data, f->bytes.size, &failure), STATUS_BAD_FILE);
        assert_true(strstr(failure.text, f->path) != NULL);
        f->bytes.data[i] ^= 0x41;
        assert_int_equal(read_all(f, f->bytes.data, i, &failure), STATUS_BAD_FILE);
    }
}

typedef struct lie {
    size_t offset;
    uint32_t value;
    const char *word; // of the sentence
} lie;

// A hostile file has right checksums.
static void lies_with_right_checksums_are_refused_by_name(void **state)
{
    const fixture *f = *state;
    size_t text_at = sizeof(reference_head), check_at = text_at + sizeof text;
    const lie lies[] = {
        { offsetof(reference_head, version), 2, "version" },
        { offsetof(reference_head, vocabulary), 0, "vocabulary" },
        { offsetof(reference_head, vocabulary), 0xffffffff, "vocabulary" },
        { offsetof(reference_head, vocabulary), VOCABULARY + 1, "size" },
        { offsetof(reference_head, tokens), 0, "tokens" },
        { offsetof(reference_head, tokens), 1u << 31, "tokens" },
        { offsetof(reference_head, bos), VOCABULARY, "bos" },
        { offsetof(reference_head, bos), 0x80000000, "bos" },
        { offsetof(reference_head, bos), (uint32_t)-1, "rows" },
        { offsetof(reference_head, context), 1, "context" },
        { offsetof(reference_head, context), 0xffffffff, "context" },
        { offsetof(reference_head, stride), 4, "context" },
        { offsetof(reference_head, rows), 0xffffffff, "size" },
        { offsetof(reference_head, rows) + 4, 0xffffffff, "size" },
        { text_at + 8, VOCABULARY, "text" },
        { text_at + 8, 0xffffffff, "text" },
    };
    for (size_t i = 0; i < sizeof lies / sizeof lies[0]; i++) {
        error failure = { 0 };
        char *copy = malloc(f->bytes.size);
        memcpy(copy, f->bytes.data, f->bytes.size);
        memcpy(copy + lies[i].offset, &lies[i].value, sizeof lies[i].value);
        uint64_t checksum = hash64_of(copy, check_at, 0);
        memcpy(copy + check_at, &checksum, sizeof checksum);
        assert_int_equal(read_all(f, copy, f->bytes.size, &failure), STATUS_BAD_FILE);
        assert_string_equal(failure.param, lies[i].word);
        free(copy);
    }
}

static void a_row_without_numbers_is_refused(void **state)
{
    const fixture *f = *state;
    size_t row_at = sizeof(reference_head) + sizeof text + sizeof(uint64_t);
    float none = NAN;
    error failure = { 0 };
    memcpy(f->bytes.data + row_at, &none, sizeof none);
    uint64_t checksum = hash64_of(f->bytes.data + row_at, VOCABULARY * sizeof(float), 0);
    memcpy(f->bytes.data + row_at + VOCABULARY * sizeof(float), &checksum, sizeof checksum);
    assert_int_equal(read_all(f, f->bytes.data, f->bytes.size, &failure), STATUS_BAD_FILE);
    assert_true(strstr(failure.text, "row 0 holds a value that is no finite number") != NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(what_was_written_is_read_again, setup, teardown),
        cmocka_unit_test_setup_teardown(every_changed_byte_and_every_cut_is_noticed, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(lies_with_right_checksums_are_refused_by_name, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(a_row_without_numbers_is_refused, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
