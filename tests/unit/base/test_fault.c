#include "base/fault.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static status arm(const char *a, const char *b, error *failure)
{
    char *items[] = { (char *)a, (char *)b };
    fault_settings settings = { { b ? 2 : 1, items } };
    return fault_arm(&settings, failure);
}

static void every_point_is_off_by_default(void **state)
{
    (void)state;
    for (int point = 0; point < FAULT_COUNT; point++) {
        for (int i = 0; i < 100; i++)
            assert_false(fault_fires((fault_point)point));
        assert_int_equal(fault_fired((fault_point)point), 0);
    }
}

static void an_armed_point_fires_and_others_do_not(void **state)
{
    (void)state;
    error failure;
    assert_int_equal(arm("handoff.drop", "worker.stall:1:5000:2", &failure), STATUS_OK);
    assert_true(fault_fires(FAULT_HANDOFF_DROP));
    assert_true(fault_fires(FAULT_HANDOFF_DROP));
    assert_false(fault_fires(FAULT_LOGITS_NAN));
    assert_true(fault_fires(FAULT_WORKER_STALL));
    assert_int_equal(fault_value(FAULT_WORKER_STALL), 5000);
    assert_true(fault_fires(FAULT_WORKER_STALL));
    assert_false(fault_fires(FAULT_WORKER_STALL)); // its count is used up
    assert_int_equal(fault_fired(FAULT_WORKER_STALL), 2);
    fault_disarm_all();
    assert_false(fault_fires(FAULT_HANDOFF_DROP));
}

static void a_probability_is_kept(void **state)
{
    (void)state;
    error failure;
    int fired = 0;
    assert_int_equal(arm("message.drop:0.25", "message.repeat:0", &failure), STATUS_OK);
    for (int i = 0; i < 10000; i++) {
        fired += fault_fires(FAULT_MESSAGE_DROP);
        assert_false(fault_fires(FAULT_MESSAGE_REPEAT));
    }
    assert_in_range(fired, 2250, 2750);
    fault_disarm_all();
}

static void a_wrong_entry_arms_nothing(void **state)
{
    (void)state;
    static const char *const wrong[] = { "nope",
                                         "",
                                         "handoff.drop:",
                                         "handoff.drop:2",
                                         "handoff.drop:nan",
                                         "handoff.drop:-1",
                                         "handoff.drop:1:x",
                                         "handoff.drop:1:2:-3",
                                         "handoff.drop:1:2:3:4",
                                         "handoff.drop:1:1e300",
                                         "handoff.drops" };
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        error failure = { 0 };
        assert_int_equal(arm("logits.nan", wrong[i], &failure), STATUS_BAD_CONFIG);
        assert_non_null(strstr(failure.text, wrong[i]));
        assert_string_equal(failure.param, "faults");
        assert_false(fault_fires(FAULT_LOGITS_NAN));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_point_is_off_by_default),
        cmocka_unit_test(an_armed_point_fires_and_others_do_not),
        cmocka_unit_test(a_probability_is_kept),
        cmocka_unit_test(a_wrong_entry_arms_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
