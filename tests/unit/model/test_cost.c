// Facts about the prediction of step times.
#include "model/cost.h"

#include "base/random.h"
#include "harness/seed.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

// A machine with known prices, in microseconds.
static double machine(const cost_work *w, double slowness)
{
    return slowness * (3000 + 400 * w->rows + 0.5 * w->decode_context + 0.02 * w->prompt_pairs);
}

// Steps as a worker makes them: answers alone, prompts alone, and both.
static cost_work work_of(int step)
{
    cost_work w = { 0 };
    if (step % 3 != 1) {
        int answers = 1 + step % 9;
        w.rows += answers;
        w.decode_context += answers * (100 + 37 * (step % 50));
    }
    if (step % 3 != 0) {
        int rows = 16 << step % 5;
        w.rows += rows;
        w.prompt_pairs += rows * (double)(rows + 128 * (step % 17));
    }
    return w;
}

static void learn(cost_model *m, int steps, double slowness)
{
    for (int i = 0; i < steps; i++) {
        cost_work w = work_of(i);
        cost_learn(m, &w, machine(&w, slowness));
    }
}

static void expect_within(const cost_model *m, double slowness, double share)
{
    for (int i = 0; i < 60; i++) {
        cost_work w = work_of(i);
        double truth = machine(&w, slowness);
        assert_true(fabs(cost_predict(m, &w) - truth) < share * truth);
    }
}

static void nothing_is_predicted_before_steps_were_measured(void **state)
{
    (void)state;
    cost_model m;
    cost_work w = work_of(2);
    cost_begin(&m);
    assert_true(cost_predict(&m, &w) == 0);
    assert_int_equal(cost_rows(&m, &w, 1000, 1, 77), 77);
    learn(&m, 8, 1);
    assert_true(cost_predict(&m, &w) > 0);
}

static void the_prices_of_a_machine_are_found(void **state)
{
    (void)state;
    cost_model m;
    cost_begin(&m);
    learn(&m, 300, 1);
    expect_within(&m, 1, 0.02);
}

static void a_machine_that_becomes_slower_is_followed(void **state)
{
    (void)state;
    cost_model m;
    cost_begin(&m);
    learn(&m, 300, 1);
    learn(&m, 1000, 1.7);
    expect_within(&m, 1.7, 0.05);
}

static void one_step_that_was_held_up_changes_little(void **state)
{
    (void)state;
    cost_model m;
    cost_begin(&m);
    learn(&m, 300, 1);
    cost_work w = work_of(0);
    cost_learn(&m, &w, 1e7);
    expect_within(&m, 1, 0.3);
}

static void equal_steps_for_a_long_time_do_not_spoil_it(void **state)
{
    (void)state;
    cost_model m;
    cost_begin(&m);
    learn(&m, 300, 1);
    cost_work same = { .rows = 8, .decode_context = 4000 };
    for (int i = 0; i < 20000; i++)
        cost_learn(&m, &same, machine(&same, 1));
    assert_true(fabs(cost_predict(&m, &same) - machine(&same, 1)) < 0.01 * machine(&same, 1));
    learn(&m, 60, 1);
    expect_within(&m, 1, 0.05);
}

// What a worker sees in a quarter of an hour: answers that grow and end, now and then a prompt in
// pieces beside them, and a machine whose steps take 20 % more or less, and sometimes much longer.
static void a_noisy_day_is_predicted_well(void **state)
{
    (void)state;
    cost_model m;
    cost_begin(&m);
    uint64_t draw = seed_of_chance(); // two steps held up among a prompt's first would spoil a day
    int good = 0, seen = 0, answers = 8;
    double context = 100, prompt = 0;
    for (int i = 0; i < 40000; i++) {
        draw = random_mix(draw);
        context = draw % 1000 == 0 ? 100 : context + 1;
        if (draw % 700 == 0)
            answers = 1 + (int)(draw >> 20 & 7);
        if (draw % 600 == 1)
            prompt = 2000;
        cost_work w = { .rows = answers, .decode_context = answers * context };
        if (prompt > 0) {
            w.rows += 16;
            w.prompt_pairs = 16 * (2000 - prompt + 16);
            prompt -= 16;
        }
        double noise = 0.8 + (double)(draw >> 40 & 1023) / 2560;
        if ((draw >> 32) % 100 == 0)
            noise *= 10;
        double truth = machine(&w, 1), predicted = cost_predict(&m, &w);
        assert_true(predicted >= 0 && (i < 200 || predicted < 3 * truth));
        seen += i >= 200;
        good += i >= 200 && fabs(predicted - truth) < 0.15 * truth;
        cost_learn(&m, &w, truth * noise);
    }
    print_message("%.1f %% within 15 %%\n", 100.0 * good / seen);
    assert_true(good > seen * 0.9);
}

static void rows_that_fit_are_the_most_that_fit(void **state)
{
    (void)state;
    cost_model m;
    cost_begin(&m);
    learn(&m, 300, 1);
    cost_work w = { .rows = 8, .decode_context = 8 * 500 };
    int32_t rows = cost_rows(&m, &w, 1000, 30000, 512);
    assert_in_range(rows, 1, 511);
    for (int32_t more = 0; more <= 1; more++) {
        cost_work with = w;
        with.rows += rows + more;
        with.prompt_pairs += (rows + more) * (1000.0 + rows + more);
        assert_int_equal(cost_predict(&m, &with) <= 30000, !more);
    }
    assert_int_equal(cost_rows(&m, &w, 1000, 1, 512), 0);
    assert_int_equal(cost_rows(&m, &w, 1000, 1e9, 512), 512);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_is_predicted_before_steps_were_measured),
        cmocka_unit_test(the_prices_of_a_machine_are_found),
        cmocka_unit_test(a_machine_that_becomes_slower_is_followed),
        cmocka_unit_test(one_step_that_was_held_up_changes_little),
        cmocka_unit_test(equal_steps_for_a_long_time_do_not_spoil_it),
        cmocka_unit_test(a_noisy_day_is_predicted_well),
        cmocka_unit_test(rows_that_fit_are_the_most_that_fit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
