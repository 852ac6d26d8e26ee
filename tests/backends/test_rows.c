// Embedding, gather, norm, copies, signals and the queue's bookkeeping.
#include "support.h"
#include "oracle.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static void for_each_level(void (*check)(device *d))
{
    assert_non_null(support_any_level());
    for (int i = 0; i < SUPPORT_LEVELS; i++) {
        device d;
        random_begin();
        if (!device_open(&d, support_levels[i], 2))
            continue;
        check(&d);
        device_close(&d);
    }
}

static void check_embed(device *d)
{
    const tensor_type types[] = { TENSOR_F32,  TENSOR_F16,  TENSOR_BF16, TENSOR_Q4_0,
                                  TENSOR_Q4_1, TENSOR_Q5_0, TENSOR_Q5_1, TENSOR_Q8_0,
                                  TENSOR_Q4_K, TENSOR_Q5_K, TENSOR_Q6_K };
    for (size_t t = 0; t < sizeof types / sizeof types[0]; t++) {
        error failure;
        backend_weight *w;
        int32_t tokens[40];
        static float expected[256], got[40 * 256];
        int columns = tensor_block_elements(types[t]) == 256 ? 256 : 96;
        int64_t row_bytes = tensor_row_bytes(types[t], columns);
        tensor_view view = { "embedding", types[t], 37, columns,
                             random_tensor(types[t], 37, columns, 1) };
        backend_weight_source source = { .parts = &view, .part_count = 1 };
        assert_int_equal(d->table->weight_load(d->b, &source, &w, &failure), STATUS_OK);
        assert_true(d->table->weight_bytes(w) >= (size_t)(37 * row_bytes));
        backend_activation *y = device_activation(d, 40, columns, NULL);
        for (int i = 0; i < 40; i++)
            tokens[i] = random_between(0, 36);
        d->table->embed(d->q, y, w, tokens, 40, 2.5f);
        d->table->activation_read(d->q, y, 0, 40, got);
        for (int i = 0; i < 40; i++) {
            tensor_decode(types[t], (const uint8_t *)view.data + tokens[i] * row_bytes, columns,
                          expected);
            for (int c = 0; c < columns; c++)
                expected[c] *= 2.5f;
            assert_same_bits(expected, got + i * columns, (size_t)columns,
                             tensor_type_name(types[t]));
        }
        d->table->activation_close(y);
        d->table->weight_close(w);
        free((void *)view.data);
    }
}

static void embedding_rows_are_the_decoded_ones(void **state)
{
    (void)state;
    for_each_level(check_embed);
}

// A norm's sum of n squares in float errs by less than n * 2^-24 relative; root, division and two
// products add a few units.
static void check_norm(device *d)
{
    for (int round = 0; round < 30; round++) {
        int rows = random_between(1, 9), columns = random_between(1, 300);
        float *x = random_floats((size_t)(rows * columns), 3),
              *norm = random_floats((size_t)columns, 1);
        float *before = random_floats((size_t)(rows * columns), 1),
              *got = floats_of((size_t)(rows * columns));
        double *expected = malloc((size_t)columns * sizeof *expected);
        backend_epilogue epilogue = round % 2 == 0 ? BACKEND_STORE : BACKEND_ADD;
        backend_activation *ax = device_activation(d, rows, columns, x);
        backend_activation *ay = device_activation(d, rows, columns, before);
        d->table->norm(d->q, ay, ax, norm, 1e-5f, rows, epilogue);
        d->table->activation_read(d->q, ay, 0, rows, got);
        for (int r = 0; r < rows; r++) {
            oracle_norm(x + r * columns, norm, 1e-5f, columns, expected);
            for (int c = 0; c < columns; c++) {
                double want =
                    expected[c] + (epilogue == BACKEND_ADD ? (double)before[r * columns + c] : 0);
                double tolerance =
                    (columns + 8) * 0x1p-24 * fabs(expected[c]) + 0x1p-23 * fabs(want) + 1e-30;
                assert_true(fabs((double)got[r * columns + c] - want) <= tolerance);
            }
        }
        d->table->activation_close(ax);
        d->table->activation_close(ay);
        free(x), free(norm), free(before), free(got), free(expected);
    }
}

static void norms_match_double_precision(void **state)
{
    (void)state;
    for_each_level(check_norm);
}

static void check_gather(device *d)
{
    float *x = random_floats(50 * 33, 1), got[20 * 33];
    int32_t index[20];
    backend_activation *ax = device_activation(d, 50, 33, x),
                       *ay = device_activation(d, 20, 33, NULL);
    d->table->gather(d->q, ay, ax, index, 20);
    for (int i = 0; i < 20; i++) // read when it runs, not when it was asked for
        index[i] = random_between(0, 49);
    d->table->activation_read(d->q, ay, 0, 20, got);
    for (int i = 0; i < 20; i++)
        assert_same_bits(x + index[i] * 33, got + i * 33, 33, "gather");
    d->table->activation_close(ax);
    d->table->activation_close(ay);
    free(x);
}

static void gathered_rows_are_those_named(void **state)
{
    (void)state;
    for_each_level(check_gather);
}

static void check_copies(device *d)
{
    backend_memory a, b;
    size_t size = ((size_t)1 << 20) + 12345;
    volatile uint32_t flag = 0;
    assert_int_equal(d->table->memory_open(d->b, size, BACKEND_MEMORY_DEVICE, &a), STATUS_OK);
    assert_int_equal(d->table->memory_open(d->b, size, BACKEND_MEMORY_PINNED, &b), STATUS_OK);
    assert_int_equal((uintptr_t)a.data % 64, 0);
    for (size_t i = 0; i < size; i++) {
        assert_int_equal(((uint8_t *)a.data)[i], 0);
        ((uint8_t *)b.data)[i] = (uint8_t)(i * 31 >> 3);
    }
    d->table->copy(d->q, a.data, b.data, size);
    d->table->signal(d->q, &flag, 7);
    uint64_t submitted = d->table->queue_submit(d->q);
    d->table->queue_wait(d->q, submitted);
    assert_true(d->table->queue_done(d->q, submitted));
    assert_false(d->table->queue_done(d->q, submitted + 1));
    assert_int_equal(flag, 7);
    assert_memory_equal(a.data, b.data, size);
    d->table->memory_close(d->b, &a);
    d->table->memory_close(d->b, &b);
    assert_int_equal(d->table->memory_open(d->b, SIZE_MAX / 4, BACKEND_MEMORY_DEVICE, &a),
                     STATUS_NO_MEMORY);
}

static void copies_and_signals_run_in_order(void **state)
{
    (void)state;
    for_each_level(check_copies);
}

// More operations than the queue's list holds: what is recorded runs first, in order.
static void check_long_list(device *d)
{
    float one[16], got[16];
    for (int i = 0; i < 16; i++)
        one[i] = 1;
    backend_activation *x = device_activation(d, 1, 16, one),
                       *y = device_activation(d, 1, 16, NULL);
    for (int i = 0; i < 5000; i++)
        d->table->norm(d->q, y, x, one, 0, 1, BACKEND_ADD);
    d->table->activation_read(d->q, y, 0, 1, got);
    for (int i = 0; i < 16; i++)
        assert_true(got[i] == 5000);
    d->table->activation_close(x);
    d->table->activation_close(y);
}

static void a_full_list_runs_in_order(void **state)
{
    (void)state;
    for_each_level(check_long_list);
}

static void caps_name_the_numbers(void **state)
{
    (void)state;
    device d;
    backend_caps caps;
    assert_true(device_open(&d, support_any_level(), 2));
    d.table->caps(d.b, &caps);
    assert_string_equal(caps.name, "cpu");
    assert_string_equal(caps.level, support_any_level());
    assert_non_null(strstr(caps.numeric_name, caps.level));
    assert_int_equal(caps.threads, 2);
    assert_true(caps.host_memory);
    device_close(&d);
}

static void bad_settings_are_refused_by_name(void **state)
{
    (void)state;
    backend *b = NULL;
    error failure = { 0 };
    backend_settings settings = { .level = "sse9", .threads = 1, .cores = "" };
    assert_int_equal(backend_cpu.open(&settings, &b, &failure), STATUS_BAD_CONFIG);
    assert_string_equal(failure.param, "level");
    settings = (backend_settings){ .level = "auto", .threads = 1, .cores = "0-" };
    assert_int_equal(backend_cpu.open(&settings, &b, &failure), STATUS_BAD_CONFIG);
    assert_string_equal(failure.param, "cores");
    settings = (backend_settings){ .level = "auto", .threads = 100000, .cores = "" };
    assert_int_equal(backend_cpu.open(&settings, &b, &failure), STATUS_BAD_CONFIG);
    assert_string_equal(failure.param, "threads");
    assert_null(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(embedding_rows_are_the_decoded_ones),
        cmocka_unit_test(norms_match_double_precision),
        cmocka_unit_test(gathered_rows_are_those_named),
        cmocka_unit_test(copies_and_signals_run_in_order),
        cmocka_unit_test(a_full_list_runs_in_order),
        cmocka_unit_test(caps_name_the_numbers),
        cmocka_unit_test(bad_settings_are_refused_by_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
