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

// ---- on line ----------------------------------------------------------------------------------

// A worker of `rows` sequences whose drafter is right with a set chance.
typedef struct world {
    double alpha;
    int32_t rows;
    double row_us, block_us; // of a further row, and of each further block of 8 beyond it
    double draft_us;         // of a round
} world;

#define GUESSES_MOST 8
#define ROWS_MOST 8

static double world_step_us(const world *w, int32_t rows)
{
    double us = 1000 + w->row_us * rows + w->block_us * ((rows - 1) / 8);
    return us * (0.95 + 0.1 * unit());
}

// A step with g[i] guesses for each sequence. Returns its tokens.
static double world_step(const world *w, const int32_t *g, double *us, int32_t *all,
                         acceptance *learned)
{
    int32_t tokens = 0, rounds = 0;
    *all = 0;
    for (int32_t i = 0; i < w->rows; i++) {
        int32_t accepted = 0;
        while (accepted < g[i] && unit() < w->alpha)
            accepted++;
        acceptance_add(learned, g[i], accepted);
        tokens += 1 + accepted;
        *all += g[i];
        rounds = g[i] > rounds ? g[i] : rounds;
    }
    *us = world_step_us(w, w->rows + *all) + rounds * w->draft_us;
    return tokens;
}

// Tokens per microsecond of a fixed number of guesses.
static double world_measure(const world *w, int32_t g)
{
    acceptance nobody = acceptance_begin(10);
    double tokens = 0, us = 0, step_us;
    int32_t each[ROWS_MOST], all;
    for (int32_t i = 0; i < w->rows; i++)
        each[i] = g;
    for (int i = 0; i < 4000; i++) {
        tokens += world_step(w, each, &step_us, &all, &nobody);
        us += step_us;
    }
    return tokens / us;
}

// What the controller chooses in step i, of which some are plain and, while it is off, some are
// probes.
static void world_choose(const world *w, const cost_curve *cost, const step_facts *step,
                         const acceptance *learned, int i, int32_t *g)
{
    offer offers[ROWS_MOST];
    for (int32_t k = 0; k < w->rows; k++)
        offers[k] = (offer){ .alpha = acceptance_alpha(learned, 0.5, 4),
                             .count = GUESSES_MOST,
                             .drafted = true };
    double gain = i % 64 == 0 ? 1 : controller_choose(cost, step, offers, w->rows);
    if (gain > 1 && i % 50 == 7)
        controller_widen(cost, step, offers, w->rows);
    for (int32_t k = 0; k < w->rows; k++)
        g[k] = i % 64 == 0 ? 0 : offers[k].chosen;
    if (gain <= 1 && i % 50 == 7)
        g[i / 200 % w->rows] = 1 << i / 50 % 4;
}

// The controller learns alpha and costs from the steps alone. Returns its mean number of guesses
// and its rate when it has learned.
static double world_control(const world *w, double *rate)
{
    cost_curve cost = { 0 }, rounds = { 0 };
    acceptance learned = acceptance_begin(4000);
    double tokens = 0, us = 0, guesses = 0, steps = 0;
    step_facts step = { .rows = w->rows, .room = 64, .draft = &rounds };
    cost_curve_add(&rounds, 1, w->draft_us);
    cost_curve_add(&rounds, ROWS_MOST, w->draft_us);
    for (int i = 0; i < 6000; i++) {
        int32_t g[ROWS_MOST], all;
        double step_us;
        world_choose(w, &cost, &step, &learned, i, g);
        double drawn = world_step(w, g, &step_us, &all, &learned);
        int32_t most = 0;
        for (int32_t k = 0; k < w->rows; k++)
            most = g[k] > most ? g[k] : most;
        cost_curve_add(&cost, w->rows + all, step_us - most * w->draft_us);
        if (i < 3000 || i % 64 == 0)
            continue;
        tokens += drawn;
        us += step_us;
        guesses += (double)all / w->rows;
        steps++;
    }
    *rate = tokens / us;
    return guesses / steps;
}

// The best number is found by measuring each, with noise. Where the top is flat, being within 5 %
// of it counts.
static void the_number_is_within_one_of_the_best_measured(void **state)
{
    (void)state;
    random_state = seed_of_chance() << 32;
    for (int i = 0; i < 24; i++) {
        world w = { .alpha = 0.25 + 0.7 * unit(),
                    .rows = i % 3 == 0 ? 1 : 1 + (int32_t)(6 * unit()),
                    .row_us = 150 * unit(),
                    .block_us = i % 2 ? 300 * unit() : 0,
                    .draft_us = i % 4 == 0 ? 1 : 300 * unit() };
        double best = 0, rate;
        int32_t best_g = 0;
        for (int32_t g = 0; g <= GUESSES_MOST; g++) {
            double measured = world_measure(&w, g);
            if (measured > best) {
                best = measured;
                best_g = g;
            }
        }
        double mean = world_control(&w, &rate);
        if (fabs(mean - best_g) > 1 && rate < 0.95 * best)
            fail_msg("alpha %.2f, %d rows of %.0f us, blocks %.0f us, rounds %.0f us: %.2f guesses "
                     "gain %.5f, the best are %d with %.5f",
                     w.alpha, w.rows, w.row_us, w.block_us, w.draft_us, mean, rate, best_g, best);
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

// In any order of what is known of costs, and where some that were due could not be made.
static void probes_keep_their_share(void **state)
{
    (void)state;
    random_state = seed_choose() << 32;
    for (int64_t percent = 0; percent <= 100; percent++) {
        probes b = probes_begin();
        int64_t made = 0;
        for (int64_t steps = 1; steps <= 5000; steps++) {
            probes_earn(&b, percent);
            if (unit() < 0.1 || !probes_due(&b, percent, (probe_pace)(3 * unit())) || unit() < 0.1)
                continue;
            probes_spend(&b);
            made++;
            if (100 * made > 100 * PROBES_FIRST + percent * steps)
                fail_msg("%d percent: %d probes in %d steps", (int)percent, (int)made, (int)steps);
        }
        assert_true(percent > 0 || made == 0);
    }
}

// So many of 10,000 steps, and evenly.
static void the_share_of_probes_is_what_was_asked_for(void **state)
{
    (void)state;
    const struct {
        probe_pace pace;
        int64_t percent, made, apart;
    } cases[] = {
        { PROBE_USUAL, 1, 100, 100 },    { PROBE_USUAL, 3, 300, 33 },
        { PROBE_USUAL, 33, 3300, 3 },    { PROBE_USUAL, 50, 5000, 2 },
        { PROBE_USUAL, 66, 6600, 1 },    { PROBE_USUAL, 100, 10000, 1 },
        { PROBE_HOPELESS, 8, 100, 100 }, { PROBE_UNKNOWN, 1, 99 + PROBES_FIRST, 16 },
        { PROBE_UNKNOWN, 50, 5000, 2 },  { PROBE_USUAL, 0, 0, 10001 },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        probes b = probes_begin();
        int64_t made = 0, last = 0, apart = 10001;
        for (int64_t step = 1; step <= 10000; step++) {
            probes_earn(&b, cases[i].percent);
            if (!probes_due(&b, cases[i].percent, cases[i].pace))
                continue;
            probes_spend(&b);
            apart = step - last < apart ? step - last : apart;
            last = step;
            made++;
        }
        if (made != cases[i].made || apart != cases[i].apart)
            fail_msg("case %zu: %d probes, %d steps apart at least", i, (int)made, (int)apart);
    }
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
        cmocka_unit_test(the_number_is_within_one_of_the_best_measured),
        cmocka_unit_test(nothing_is_guessed_below_break_even),
        cmocka_unit_test(probes_keep_their_share),
        cmocka_unit_test(the_share_of_probes_is_what_was_asked_for),
        cmocka_unit_test(an_unknown_cost_means_no_guess),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
