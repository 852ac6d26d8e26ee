// The line of waiting requests: its order, shares of classes, and what Retry-After says.
#include "router/admission.h"

#include <stdarg.h>
#include <setjmp.h>
#include <cmocka.h>

static void batch_stands_behind_what_comes_within_its_delay(void **state)
{
    (void)state;
    uint64_t batch = admission_order(ADMISSION_BATCH, 1000, 500);
    assert_true(admission_order(ADMISSION_INTERACTIVE, 1499, 500) < batch);
    assert_true(admission_order(ADMISSION_INTERACTIVE, 1501, 500) > batch); // it is not starved
    assert_true(admission_order(ADMISSION_BATCH, 999, 500) < batch);
    assert_string_equal(admission_class_name(ADMISSION_BATCH), "batch");
}

static void a_class_holds_its_share_at_most(void **state)
{
    (void)state;
    assert_true(admission_share_allows(0.5, 100, 40, 10));
    assert_false(admission_share_allows(0.5, 100, 40, 11));
    assert_true(admission_share_allows(1, 100, 90, 50)); // what fits is the policy's business
    assert_true(admission_share_allows(0.1, 100, 0, 80));
    assert_true(admission_share_allows(0.5, 0, 0, 1));
    assert_false(admission_share_allows(0.5, 0, 1, 1));
}

static void the_rate_is_measured_while_somebody_waits(void **state)
{
    (void)state;
    admission_rate r = { 0 };
    uint64_t now = 5000000;
    assert_int_equal(admission_retry_after(&r, 100), 2); // nothing is known
    assert_true(admission_wait_s(&r, 1) < 0);
    admission_rate_tick(&r, now, 8);
    for (int i = 0; i < 40; i++)
        admission_rate_left(&r, 8);
    admission_rate_tick(&r, now + 500000, 8); // within the window
    assert_int_equal(admission_retry_after(&r, 100), 2);
    admission_rate_tick(&r, now + 2000000, 8);
    assert_true(admission_wait_s(&r, 100) > 4.99 && admission_wait_s(&r, 100) < 5.01);
    assert_int_equal(admission_retry_after(&r, 101), 6);
    assert_int_equal(admission_retry_after(&r, 0), 1);
    assert_int_equal(admission_retry_after(&r, 100000), 60);
}

static void an_empty_line_tells_no_rate(void **state)
{
    (void)state;
    admission_rate r = { 0 };
    admission_rate_tick(&r, 1000000, 3);
    for (int i = 0; i < 3; i++)
        admission_rate_left(&r, (size_t)(2 - i)); // the last one leaves it empty
    admission_rate_tick(&r, 3000000, 5);
    assert_true(r.per_s == 0);
    admission_rate_left(&r, 4);
    admission_rate_tick(&r, 4000000, 4);
    assert_true(r.per_s > 0.99 && r.per_s < 1.01);
    admission_rate_left(&r, 3);
    admission_rate_left(&r, 3);
    admission_rate_left(&r, 3);
    admission_rate_tick(&r, 5000000, 3);
    assert_true(r.per_s > 1.99 && r.per_s < 2.01); // half of it is the newest window's
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(batch_stands_behind_what_comes_within_its_delay),
        cmocka_unit_test(a_class_holds_its_share_at_most),
        cmocka_unit_test(the_rate_is_measured_while_somebody_waits),
        cmocka_unit_test(an_empty_line_tells_no_rate),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
