// The backend's own exp and log against the C library's, in units in the last place.
#include "support.h"

#include "compute/cpu/cpu.h"
#include "compute/cpu/numbers.h"

#include <math.h>
#include <stdio.h>

static void vectors_exponentiate_within_two_units(void **state)
{
    (void)state;
    assert_non_null(support_any_level());
    for (int l = 0; l < SUPPORT_LEVELS; l++) {
        const cpu_level *level;
        float x[4000], y[4000];
        double worst = 0;
        if (!support_level_wanted(support_levels[l]) ||
            cpu_level_choose(support_levels[l], &level, NULL) != STATUS_OK)
            continue;
        random_begin();
        for (int i = 0; i < 4000; i++)
            x[i] = i < 2000 ? -(float)i * 0.0436f : random_float(-2, 0);
        level->weigh(x, 4000, 0, 1, y);
        for (int i = 0; i < 4000; i++) {
            double want = exp((double)x[i]);
            int exponent;
            frexp(want, &exponent);
            worst = fmax(worst, fabs((double)y[i] - want) / ldexp(1, exponent - 24));
        }
        printf("%s: exp errs by at most %.2f units in the last place\n", level->name, worst);
        assert_true(worst < 2);
        const float odd[] = { 0, -87.4f, -INFINITY, -1e30f, NAN };
        level->weigh(odd, 5, 0, 1, y);
        assert_true(y[0] == 1 && y[1] == 0 && y[2] == 0 && y[3] == 0 && isnan(y[4]));
    }
}

static void doubles_agree_with_the_library(void **state)
{
    (void)state;
    random_begin();
    for (int i = 0; i < 20000; i++) {
        double x = (double)random_float(-700, 700),
               y = ldexp(1 + (double)random_float(0, 1), random_between(-1000, 1000));
        assert_true(fabs(cpu_exp(x) - exp(x)) <= 4e-16 * exp(x));
        assert_true(fabs(cpu_log(y) - log(y)) <= 1e-15 * fabs(log(y)) + 1e-16);
    }
    assert_true(cpu_exp(0) == 1 && cpu_exp(-1000) == 0 && isnan(cpu_exp(NAN)) &&
                isinf(cpu_exp(1000)));
    assert_true(cpu_log(1) == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(vectors_exponentiate_within_two_units),
        cmocka_unit_test(doubles_agree_with_the_library),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
