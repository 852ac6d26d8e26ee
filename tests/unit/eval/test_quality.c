// Likelihood and divergence against their definitions.
#include "eval/quality.h"

#include <math.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <setjmp.h>
#include <cmocka.h>

#define VOCABULARY 5
#define ROWS 3

static const float reference[ROWS][VOCABULARY] = { { 1, 2, 3, 4, 0.5f },
                                                   { -30, 40, 39, 0, 2 },
                                                   { 0, 0, 0, 0, 0 } };
static const float measured[ROWS][VOCABULARY] = { { 1, 2, 4, 3, 0.5f },
                                                  { -20, 38, 39.5f, 1, 2 },
                                                  { 0.1f, 0, 0, 0, 0 } };
static const int32_t tokens[ROWS] = { 3, 1, 0 };

static void near(double value, double expected)
{
    if (!(fabs(value - expected) <= 1e-12 * fmax(1, fabs(expected))))
        fail_msg("%.17g is not %.17g", value, expected);
}

// log p of every token by the definition, in long double.
static void log_softmax(const float *logits, long double *values)
{
    long double total = 0;
    for (int i = 0; i < VOCABULARY; i++)
        total += expl((long double)logits[i]);
    for (int i = 0; i < VOCABULARY; i++)
        values[i] = (long double)logits[i] - logl(total);
}

static void sums_follow_their_definitions(void **state)
{
    (void)state;
    quality q;
    long double nll = 0, gap = 0, kl = 0, worst = 0;
    assert_int_equal(quality_open(&q, VOCABULARY, ROWS), STATUS_OK);
    for (int r = 0; r < ROWS; r++) {
        long double p[VOCABULARY], own[VOCABULARY], divergence = 0;
        log_softmax(reference[r], p);
        log_softmax(measured[r], own);
        for (int i = 0; i < VOCABULARY; i++)
            divergence += expl(p[i]) * (p[i] - own[i]);
        nll -= own[tokens[r]];
        gap += p[tokens[r]] - own[tokens[r]];
        kl += divergence;
        worst = fmaxl(worst, divergence);
        quality_add(&q, measured[r], reference[r], tokens[r], 4);
    }
    near(quality_nll(&q).mean, (double)(nll / ROWS));
    near(quality_perplexity(&q), (double)expl(nll / ROWS));
    near(quality_bits_per_byte(&q), (double)(nll / logl(2) / (4 * ROWS)));
    near(quality_gap(&q).mean, (double)(gap / ROWS));
    near(quality_kl(&q).mean, (double)(kl / ROWS));
    near(quality_kl_percentile(&q, 100), (double)worst);
    // The first row has another best; in the last all are equal but one, and the lowest id is
    // first.
    near(quality_top_share(&q), 1.0 / 3);
    quality_close(&q);
}

static void equal_rows_have_no_divergence_at_all(void **state)
{
    (void)state;
    quality q;
    assert_int_equal(quality_open(&q, VOCABULARY, ROWS), STATUS_OK);
    for (int r = 0; r < ROWS; r++)
        quality_add(&q, measured[r], measured[r], tokens[r], 1);
    assert_true(quality_kl(&q).mean == 0 && quality_kl_percentile(&q, 100) == 0);
    assert_true(quality_gap(&q).mean == 0 && quality_gap(&q).error == 0);
    assert_true(quality_top_share(&q) == 1);
    quality_close(&q);
}

static void the_error_is_the_standard_error_of_a_mean(void **state)
{
    (void)state;
    quality q;
    double values[ROWS], mean = 0, squares = 0;
    assert_int_equal(quality_open(&q, VOCABULARY, 0), STATUS_OK);
    for (int r = 0; r < ROWS; r++) {
        long double own[VOCABULARY];
        log_softmax(measured[r], own);
        values[r] = -(double)own[tokens[r]];
        mean += values[r] / ROWS;
        quality_add(&q, measured[r], NULL, tokens[r], 1);
    }
    for (int r = 0; r < ROWS; r++)
        squares += (values[r] - mean) * (values[r] - mean);
    near(quality_nll(&q).error, sqrt(squares / (ROWS - 1) / ROWS));
    quality_close(&q);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_follow_their_definitions),
        cmocka_unit_test(equal_rows_have_no_divergence_at_all),
        cmocka_unit_test(the_error_is_the_standard_error_of_a_mean),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
