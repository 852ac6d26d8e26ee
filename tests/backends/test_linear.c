// y = epilogue(W norm(x) + bias) for every weight type, epilogue and level, against double
// precision.
#include "support.h"
#include "oracle.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const tensor_type types[] = { TENSOR_F32,  TENSOR_F16,  TENSOR_BF16, TENSOR_Q4_0,
                                     TENSOR_Q4_1, TENSOR_Q5_0, TENSOR_Q5_1, TENSOR_Q8_0,
                                     TENSOR_Q4_K, TENSOR_Q5_K, TENSOR_Q6_K };
#define TYPES (sizeof types / sizeof types[0])

typedef struct problem {
    backend_weight_source source;
    tensor_view parts[3];
    int rows, out_rows, columns;
    bool quantised;
    float *x, *norm, *bias, *before; // `before`: what y holds, for BACKEND_ADD
    backend_epilogue epilogue;
} problem;

static void problem_free(problem *p)
{
    for (int i = 0; i < p->source.part_count; i++)
        free((void *)p->parts[i].data);
    free(p->x), free(p->norm), free(p->bias), free(p->before);
}

// `grid`: x lies on a grid of 8 bits in every block, so that rounding it changes nothing.
static void fill_input(problem *p, bool grid)
{
    p->x = random_floats((size_t)p->rows * (size_t)p->columns, 1);
    for (int i = 0; i < p->rows * p->columns && grid; i++) {
        if (i % 32 == 0)
            p->x[i] = 127 * 0.03125f;
        else
            p->x[i] = (float)random_between(-127, 127) * 0.03125f;
    }
}

static problem problem_make(tensor_type type, backend_epilogue epilogue, bool grid)
{
    problem p = { .epilogue = epilogue, .rows = random_between(1, 12) };
    int elements = tensor_block_elements(type);
    p.quantised = elements > 1;
    p.columns = elements == 32  ? 32 * random_between(1, 9)
                : elements > 32 ? elements * random_between(1, 3)
                                : random_between(1, 150);
    bool paired = epilogue == BACKEND_SWIGLU || epilogue == BACKEND_GEGLU;
    p.source = (backend_weight_source){ .parts = p.parts, .pair_rows = paired };
    p.source.part_count = paired ? 2 : random_between(1, 3);
    int part_rows = random_between(1, 90), all = 0;
    for (int i = 0; i < p.source.part_count; i++) {
        int rows = paired ? part_rows : random_between(1, 60);
        p.parts[i] =
            (tensor_view){ "w", type, rows, p.columns, random_tensor(type, rows, p.columns, 0.3f) };
        all += rows;
    }
    p.out_rows = paired ? part_rows : all;
    if (random_between(0, 1) == 1)
        p.source.bias = p.bias = random_floats((size_t)all, 1);
    if (!grid && random_between(0, 1) == 1)
        p.norm = random_floats((size_t)p.columns, 1);
    p.before = random_floats((size_t)(p.rows * p.out_rows), 1);
    fill_input(&p, grid);
    return p;
}

static float *solve(device *d, const problem *p, int first, int rows)
{
    error failure = { 0 };
    backend_weight *w = NULL;
    backend_weight_source source = p->source;
    source.parts = p->parts; // the problem may have moved
    if (d->table->weight_load(d->b, &source, &w, &failure) != STATUS_OK)
        fail_msg("%s", failure.text);
    backend_activation *x = device_activation(d, rows, p->columns, p->x + first * p->columns);
    backend_activation *y =
        device_activation(d, rows, p->out_rows, p->before + first * p->out_rows);
    d->table->linear(d->q, y, x, w, p->norm, 1e-5f, rows, p->epilogue);
    float *values = floats_of((size_t)(rows * p->out_rows));
    d->table->activation_read(d->q, y, 0, rows, values);
    d->table->activation_close(x);
    d->table->activation_close(y);
    d->table->weight_close(w);
    return values;
}

// Its weights are differences, so the terms that are added are larger than the weights.
static bool has_minimum(tensor_type type)
{
    return type == TENSOR_Q4_1 || type == TENSOR_Q5_1 || type == TENSOR_Q4_K || type == TENSOR_Q5_K;
}

typedef struct answer {
    double value, tolerance;
} answer;

// A sum of n products in float, in any order, errs by at most n * 2^-24 * (sum of magnitudes), and
// far less as a rule; the scales' own products add a few roundings more. For quantised weights the
// input's rounding comes on top where it is not on the grid, with a margin for the norm's own float
// error, which may move a number across a rounding boundary.
static answer product(const problem *p, int stacked, const double *x, bool grid)
{
    int part = 0, row = stacked;
    while (row >= p->parts[part].rows)
        row -= (int)p->parts[part++].rows;
    double magnitude;
    answer a = { oracle_dot(&p->parts[part], row, x, &magnitude), 0 };
    if (p->bias != NULL)
        a.value += (double)p->bias[stacked];
    double terms = p->quantised ? p->columns / 32.0 * 3 : p->columns;
    a.tolerance =
        (terms + 8) * 0x1p-24 * (magnitude * (has_minimum(p->parts[part].type) ? 4 : 1) + 1);
    if (p->quantised && !grid)
        a.tolerance += 1.01 * oracle_rounding(&p->parts[part], row, x);
    return a;
}

static answer expected(const problem *p, int row, int column, const double *x, bool grid)
{
    answer a = product(p, column, x, grid);
    if (p->epilogue == BACKEND_ADD) {
        a.value += (double)p->before[row * p->out_rows + column];
        a.tolerance += 0x1p-23 * fabs(a.value);
    } else if (p->source.pair_rows) {
        answer up = product(p, p->out_rows + column, x, grid);
        bool gelu = p->epilogue == BACKEND_GEGLU;
        double gate = gelu ? oracle_gelu(a.value) : oracle_silu(a.value);
        // |silu'| is at most 1.1 and |gelu'| 1.13; exp and the division err by a few units in the
        // last place, and exp by more where its argument is large, as a cubic soon is.
        double tolerance = (1.13 * a.tolerance + (gelu ? 0x1p-18 : 0x1p-20) * fabs(gate) + 1e-30) *
                               (fabs(up.value) + up.tolerance) +
                           fabs(gate) * up.tolerance;
        a = (answer){ gate * up.value, tolerance + 0x1p-23 * fabs(gate * up.value) };
    }
    return a;
}

static void check_problem(device *d, const problem *p, bool grid)
{
    float *y = solve(d, p, 0, p->rows);
    double *x = malloc((size_t)p->columns * sizeof *x);
    for (int row = 0; row < p->rows; row++) {
        oracle_norm(p->x + row * p->columns, p->norm, 1e-5f, p->columns, x);
        for (int column = 0; column < p->out_rows; column++) {
            answer a = expected(p, row, column, x, grid);
            double got = (double)y[row * p->out_rows + column];
            if (!(fabs(got - a.value) <= a.tolerance))
                fail_msg("type %s epilogue %d norm %d, row %d column %d of %d x %d x %d: %g, not "
                         "%g +- %g",
                         tensor_type_name(p->parts[0].type), (int)p->epilogue, p->norm != NULL, row,
                         column, p->rows, p->out_rows, p->columns, got, a.value, a.tolerance);
        }
    }
    free(x);
    free(y);
}

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

static void check_products(device *d)
{
    for (size_t t = 0; t < TYPES; t++)
        for (int round = 0; round < 24; round++) {
            bool grid = round % 2 == 0;
            problem p = problem_make(types[t], (backend_epilogue)(round / 2 % 4), grid);
            check_problem(d, &p, grid);
            problem_free(&p);
        }
}

static void products_match_double_precision(void **state)
{
    (void)state;
    for_each_level(check_products);
}

// Unit vectors: column i of W comes out at every place of a block, for every type, so no two inputs
// can have changed places unseen.
static void check_unit_vectors(device *d)
{
    for (size_t t = 0; t < TYPES; t++) {
        int size = tensor_block_elements(types[t]) > 64 ? 256 : 64;
        problem p = { .rows = size, .columns = size, .out_rows = 19, .epilogue = BACKEND_STORE };
        p.quantised = tensor_block_elements(types[t]) > 1;
        p.parts[0] = (tensor_view){ "w", types[t], 19, size, random_tensor(types[t], 19, size, 1) };
        p.source = (backend_weight_source){ .parts = p.parts, .part_count = 1 };
        p.x = floats_of((size_t)(size * size));
        for (int i = 0; i < size; i++)
            p.x[i * size + i] = 1;
        p.before = floats_of((size_t)(size * 19));
        check_problem(d, &p, true);
        problem_free(&p);
    }
}

static void b097_unit_vectors_pick_columns(void **state)
{
    (void)state;
    for_each_level(check_unit_vectors);
}

// Rows alone, in batches of every size, and on another thread count: the same bits.
static void check_batches(device *d)
{
    device single;
    backend_caps caps;
    d->table->caps(d->b, &caps);
    assert_true(device_open(&single, caps.level, 1));
    for (size_t t = 0; t < TYPES; t++)
        for (int round = 0; round < 4; round++) {
            problem p = problem_make(types[t], (backend_epilogue)round, false);
            int rows = 70;
            free(p.x), free(p.before);
            p.rows = rows;
            fill_input(&p, false);
            p.before = random_floats((size_t)(rows * p.out_rows), 1);
            float *all = solve(d, &p, 0, rows);
            for (int first = 0, size = 1; first < rows; first += size, size = size % 11 + 1) {
                if (size > rows - first)
                    size = rows - first;
                float *some = solve(first % 2 == 0 ? d : &single, &p, first, size);
                assert_same_bits(all + first * p.out_rows, some, (size_t)(size * p.out_rows),
                                 tensor_type_name(types[t]));
                free(some);
            }
            free(all);
            problem_free(&p);
        }
    device_close(&single);
}

static void a_row_does_not_depend_on_its_batch(void **state)
{
    (void)state;
    for_each_level(check_batches);
}

// So many inputs that all rows do not pass through a pair of tiles at once.
static void check_long_rows(device *d)
{
    const tensor_type long_types[] = { TENSOR_Q4_1, TENSOR_Q8_0, TENSOR_Q6_K };
    for (size_t t = 0; t < sizeof long_types / sizeof long_types[0]; t++) {
        problem p = { .rows = 100, .columns = 256 * 44, .out_rows = 35, .epilogue = BACKEND_ADD };
        p.parts[0] = (tensor_view){ "w", long_types[t], 35, p.columns,
                                    random_tensor(long_types[t], 35, p.columns, 1) };
        p.source = (backend_weight_source){ .parts = p.parts, .part_count = 1 };
        fill_input(&p, false);
        p.before = random_floats(100 * 35, 1);
        float *all = solve(d, &p, 0, 100);
        for (int first = 0; first < 100; first += 10) {
            float *some = solve(d, &p, first, 10);
            assert_same_bits(all + first * 35, some, 10 * 35, tensor_type_name(long_types[t]));
            free(some);
        }
        free(all);
        problem_free(&p);
    }
}

static void a_long_row_does_not_depend_on_its_batch(void **state)
{
    (void)state;
    for_each_level(check_long_rows);
}

// A NaN or an infinity in a row makes that row no number, and leaves the others alone.
static void check_poison(device *d)
{
    for (size_t t = 0; t < TYPES; t++) {
        problem p = problem_make(types[t], BACKEND_STORE, false);
        free(p.x), free(p.before), free(p.norm);
        p.rows = 70;
        p.norm = NULL;
        fill_input(&p, false);
        p.before = floats_of((size_t)(70 * p.out_rows));
        float *clean = solve(d, &p, 0, 70);
        p.x[p.columns] = t % 2 == 0 ? NAN : INFINITY;
        float *y = solve(d, &p, 0, 70), *few = solve(d, &p, 0, 3);
        for (int i = 0; i < p.out_rows; i++)
            assert_false(isfinite(y[p.out_rows + i]));
        assert_same_bits(clean, y, (size_t)p.out_rows, "the row before");
        assert_same_bits(clean + 2 * p.out_rows, y + 2 * p.out_rows, (size_t)(68 * p.out_rows),
                         "the rows behind");
        assert_same_bits(few, y, (size_t)(3 * p.out_rows), "three rows");
        free(clean), free(y), free(few);
        problem_free(&p);
    }
}

static void what_is_no_number_stays_so(void **state)
{
    (void)state;
    for_each_level(check_poison);
}

// A sum of the largest products that the integer paths can meet.
static void check_extremes(device *d)
{
    // Where the quants of a block lie: the rest of it is scales.
    static const struct {
        tensor_type type;
        int first, last;
    } quantised[] = { { TENSOR_Q4_0, 2, 18 },  { TENSOR_Q4_1, 4, 20 }, { TENSOR_Q5_0, 2, 22 },
                      { TENSOR_Q5_1, 4, 24 },  { TENSOR_Q8_0, 2, 34 }, { TENSOR_Q4_K, 4, 144 },
                      { TENSOR_Q5_K, 4, 176 }, { TENSOR_Q6_K, 0, 208 } };
    for (size_t t = 0; t < sizeof quantised / sizeof quantised[0]; t++)
        for (int sign = 0; sign < 4; sign++) {
            tensor_type type = quantised[t].type;
            int columns = tensor_block_elements(type) * 2, bytes = tensor_block_bytes(type);
            problem p = { .rows = 5, .columns = columns, .out_rows = 17, .quantised = true };
            uint8_t *data = random_tensor(type, 17, columns, 1);
            for (int i = 0; i < 17 * 2 * bytes; i++) {
                int at = i % bytes;
                if (at < quantised[t].first || at >= quantised[t].last)
                    continue;
                if (type == TENSOR_Q8_0 || (type == TENSOR_Q6_K && at >= 192))
                    data[i] = sign & 1 ? 0x80 : 0x7f;
                else
                    data[i] = sign & 1 ? 0 : 0xff;
            }
            p.parts[0] = (tensor_view){ "w", type, 17, columns, data };
            p.source = (backend_weight_source){ .parts = p.parts, .part_count = 1 };
            p.x = floats_of((size_t)(5 * columns));
            for (int i = 0; i < 5 * columns; i++)
                p.x[i] = sign & 2 ? -1 : 1;
            p.before = floats_of(5 * 17);
            check_problem(d, &p, true);
            problem_free(&p);
        }
}

static void the_largest_sums_do_not_overflow(void **state)
{
    (void)state;
    for_each_level(check_extremes);
}

static void check_refusals(device *d)
{
    error failure = { 0 };
    backend_weight *w = NULL;
    float data[64] = { 0 };
    tensor_view views[2] = { { "odd", (tensor_type)10, 1, 32, data },
                             { "b", TENSOR_F32, 2, 32, data } };
    backend_weight_source source = { .parts = views, .part_count = 1 };
    assert_int_equal(d->table->weight_load(d->b, &source, &w, &failure), STATUS_UNSUPPORTED);
    assert_string_equal(failure.param, "odd");
    views[0] = (tensor_view){ "short", TENSOR_Q8_0, 1, 33, data };
    assert_int_equal(d->table->weight_load(d->b, &source, &w, &failure), STATUS_BAD_FILE);
    views[0] = (tensor_view){ "a", TENSOR_F32, 1, 32, data };
    source = (backend_weight_source){ .parts = views, .part_count = 2, .pair_rows = true };
    assert_int_equal(d->table->weight_load(d->b, &source, &w, &failure), STATUS_BAD_FILE);
    assert_null(w);
}

static void bad_weights_are_refused_by_name(void **state)
{
    (void)state;
    for_each_level(check_refusals);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products_match_double_precision),
        cmocka_unit_test(b097_unit_vectors_pick_columns),
        cmocka_unit_test(a_row_does_not_depend_on_its_batch),
        cmocka_unit_test(a_long_row_does_not_depend_on_its_batch),
        cmocka_unit_test(what_is_no_number_stays_so),
        cmocka_unit_test(the_largest_sums_do_not_overflow),
        cmocka_unit_test(bad_weights_are_refused_by_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
