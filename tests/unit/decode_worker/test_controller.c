// How many tokens to guess: estimates, costs, and the choice, against exhaustive search.
#include "decode_worker/speculate/controller.h"

#include "base/random.h"
#include "harness/seed.h"

#include <math.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <setjmp.h>
#include <cmocka.h>

static uint64_t random_state;

static double unit(void)
{
    return random_unit(random_mix(random_state++));
}

// A drafter whose tokens are right with a known chance, over guesses of all lengths. The streams
// are the same each time: 0.02 is less than four standard errors.
static void alpha_is_estimated_within_two_hundredths(void **state)
{
    (void)state;
    random_state = 0;
    const double known[] = { 0.3, 0.6, 0.9 };
    for (int i = 0; i < 3 * 10; i++) { // ten streams of each
        acceptance a = acceptance_begin(4000);
        for (int step = 0; step < 6000; step++) {
            int32_t drafted = 1 + step % 8, accepted = 0;
            while (accepted < drafted && unit() < known[i % 3])
                accepted++;
            acceptance_add(&a, drafted, accepted);
        }
        double alpha = acceptance_alpha(&a, 0.5, 1), low, high;
        acceptance_interval(&a, &low, &high);
        assert_true(fabs(alpha - known[i % 3]) < 0.02);
        assert_true(low < alpha && alpha < high && high - low < 0.04);
    }
}

// What stands behind the first wrong token is not counted.
static void only_the_first_wrong_token_of_a_guess_counts(void **state)
{
    (void)state;
    acceptance a = acceptance_begin(1e9);
    acceptance_add(&a, 8, 3);
    acceptance_add(&a, 4, 4);
    assert_true(fabs(acceptance_alpha(&a, 0, 0) - 7.0 / 8) < 1e-6);
    acceptance_add(&a, 0, 0);
    assert_true(fabs(acceptance_alpha(&a, 0, 0) - 7.0 / 8) < 1e-6);
}

static void old_outcomes_are_forgotten(void **state)
{
    (void)state;
    acceptance a = acceptance_begin(16);
    for (int i = 0; i < 100; i++)
        acceptance_add(&a, 8, 8);
    assert_true(acceptance_alpha(&a, 0, 0) > 0.99);
    for (int i = 0; i < 32; i++)
        acceptance_add(&a, 8, 0);
    assert_true(acceptance_alpha(&a, 0, 0) < 0.15);
}

static void nothing_known_is_the_prior_and_the_whole_interval(void **state)
{
    (void)state;
    acceptance a = acceptance_begin(100);
    double low, high;
    acceptance_interval(&a, &low, &high);
    assert_true(low == 0 && high == 1);
    assert_true(acceptance_alpha(&a, 0.7, 0) == 0.7);
}

static void a_curve_goes_through_its_points_and_never_falls(void **state)
{
    (void)state;
    cost_curve c = { 0 };
    assert_true(cost_curve_us(&c, 4) == 0);
    for (int i = 0; i < 10; i++)
        cost_curve_add(&c, 1, 1000);
    assert_true(cost_curve_us(&c, 1) == 1000);
    assert_true(cost_curve_us(&c, 3) == 3000); // nothing else is known
    for (int i = 0; i < 10; i++)
        cost_curve_add(&c, 5, 1400);
    assert_true(fabs(cost_curve_us(&c, 3) - 1200) < 1e-6);
    assert_true(fabs(cost_curve_us(&c, 9) - 1800) < 1e-6);
    cost_curve_add(&c, 7, 1300); // by chance
    for (int32_t rows = 2; rows < 200; rows++)
        assert_true(cost_curve_us(&c, rows) >= cost_curve_us(&c, rows - 1));
    assert_true(fabs(cost_curve_us(&c, 5) - (1400 * 10 + 1300) / 11.0) < 1e-6);
    cost_curve_add(&c, 1, 1e9);
    assert_true(cost_curve_us(&c, 1) < 1200);
    cost_curve_add(&c, 0, 5);
    cost_curve_add(&c, COST_ROWS_MAX + 1, 5);
    cost_curve_add(&c, 3, NAN);
    assert_true(c.count[3] == 0);
}

// Where little is known, what is tried widens step by step.
static void what_is_tried_is_near_what_is_known(void **state)
{
    (void)state;
    cost_curve c = { 0 };
    offer o = { .alpha = 0.99, .count = 30 };
    step_facts step = { .rows = 1, .room = 30 };
    cost_curve_add(&c, 1, 1000);
    controller_choose(&c, &step, &o, 1);
    assert_int_equal(o.chosen, 0); // a row may cost as much as a step
    for (int32_t g = 1; g < 30; g *= 2) {
        cost_curve_add(&c, 1 + g, 1000 + g);
        controller_choose(&c, &step, &o, 1);
        assert_int_equal(o.chosen, g < 15 ? 2 * g : 30);
    }
    c = (cost_curve){ 0 };
    cost_curve_add(&c, 1, 1000);
    cost_curve_add(&c, 32, 1200);
    assert_int_equal(cost_curve_reach(&c, 32), 36);
    cost_curve_add(&c, 36, 1300);
    assert_int_equal(cost_curve_reach(&c, 32), 40);
    cost_curve_add(&c, 40, 1300);
    assert_int_equal(cost_curve_reach(&c, 32), 48);
}

static double tokens_of(const offer *o, int32_t g)
{
    double tokens = 1, chance = 1;
    for (int32_t i = 0; i < g; i++)
        tokens += chance *= o->alpha;
    return tokens;
}

// Every combination of the three offers.
static double best_of_all(const cost_curve *c, const offer *o, const step_facts *step)
{
    double best = 1;
    for (int32_t a = 0; a <= o[0].count; a++)
        for (int32_t b = 0; b <= o[1].count; b++)
            for (int32_t d = 0; d <= o[2].count; d++) {
                if (a + b + d > step->room)
                    continue;
                double us = step->fixed_us + cost_curve_us(c, 3 + a + b + d);
                offer taken[3] = { { .drafted = o[0].drafted, .chosen = a },
                                   { .drafted = o[1].drafted, .chosen = b },
                                   { .drafted = o[2].drafted, .chosen = d } };
                us += controller_rounds_us(c, step, taken, 3);
                double tokens = tokens_of(&o[0], a) + tokens_of(&o[1], b) + tokens_of(&o[2], d);
                double gain = tokens / 3 * (step->fixed_us + cost_curve_us(c, 3)) / us;
                best = gain > best ? gain : best;
            }
    return best;
}

static void the_choice_is_the_best_of_all(void **state)
{
    (void)state;
    random_state = seed_choose() << 32;
    for (int i = 0; i < 300; i++) {
        cost_curve c = { 0 };
        double us = 500 + 1000 * unit();
        for (int32_t rows = 1; rows <= 40; rows++) {
            cost_curve_add(&c, rows, us);
            us += rows % 8 == 0 ? 400 * unit() : 60 * unit(); // kernels work in blocks
        }
        cost_curve rounds = { 0 }; // by the sequence: that is what the choice is exact for
        cost_curve_add(&rounds, 1, 30 * unit());
        offer o[3];
        for (int k = 0; k < 3; k++)
            o[k] =
                (offer){ .alpha = unit(), .count = (int32_t)(9 * unit()), .drafted = i % 2 == 0 };
        int32_t room = 1 + (int32_t)(24 * unit());
        step_facts step = { .rows = 3, .room = room, .fixed_us = i % 3 ? 0 : 700 * unit() };
        step.draft = &rounds;
        double gain = controller_choose(&c, &step, o, 3);
        assert_true(fabs(gain - best_of_all(&c, o, &step)) < 1e-9);
        assert_true(o[0].chosen + o[1].chosen + o[2].chosen <= room);
    }
}

static void nothing_is_guessed_below_break_even(void **state)
{
    (void)state;
    cost_curve c = { 0 };
    for (int32_t rows = 1; rows <= 16; rows++)
        cost_curve_add(&c, rows, 1000 + 300 * (rows - 1));
    step_facts step = { .rows = 1, .room = 8 };
    double alpha = controller_break_even(&c, &step, 1, false);
    assert_true(fabs(alpha - 0.3) < 1e-6); // two rows cost 1.3 times one
    offer o = { .alpha = alpha - 0.01, .count = 8 };
    assert_true(controller_choose(&c, &step, &o, 1) == 1 && o.chosen == 0);
    o.alpha = alpha + 0.01;
    assert_true(controller_choose(&c, &step, &o, 1) > 1 && o.chosen > 0);
    step.margin = 0.1;
    assert_true(controller_choose(&c, &step, &o, 1) == 1 && o.chosen == 0);
    o.alpha = 0.99;
    step.margin = 0;
    step.limit_us = 2000;
    controller_choose(&c, &step, &o, 1);
    assert_int_equal(o.chosen, 3); // four rows take 1,900 us
    cost_curve dear = { 0 };
    for (int32_t rows = 1; rows <= 16; rows++)
        cost_curve_add(&dear, rows, 1000.0 * rows);
    assert_true(controller_break_even(&dear, &step, 4, false) == 1);
}

static void an_unknown_cost_means_no_guess(void **state)
{
    (void)state;
    cost_curve c = { 0 };
    offer o = { .alpha = 0.99, .count = 8 };
    step_facts step = { .rows = 1, .room = 8 };
    assert_true(controller_choose(&c, &step, &o, 1) == 1 && o.chosen == 0);
    assert_true(controller_break_even(&c, &step, 4, false) == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(alpha_is_estimated_within_two_hundredths),
        cmocka_unit_test(only_the_first_wrong_token_of_a_guess_counts),
        cmocka_unit_test(old_outcomes_are_forgotten),
        cmocka_unit_test(nothing_known_is_the_prior_and_the_whole_interval),
        cmocka_unit_test(a_curve_goes_through_its_points_and_never_falls),
        cmocka_unit_test(what_is_tried_is_near_what_is_known),
        cmocka_unit_test(the_choice_is_the_best_of_all),
        cmocka_unit_test(nothing_is_guessed_below_break_even),
        cmocka_unit_test(an_unknown_cost_means_no_guess),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
