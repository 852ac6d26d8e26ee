// The last minutes: samples, their percentiles, and what is asked of them.
#include "router/trend.h"

#include <stdio.h>
#include <string.h>

#include <stdarg.h>
#include <setjmp.h>
#include <cmocka.h>

static void sample(trend *t, double tokens, double waiting)
{
    double totals[TREND_COUNTERS] = { [TREND_GENERATED_TOKENS] = tokens };
    double levels[TREND_LEVELS] = { [TREND_WAITING] = waiting };
    trend_sample(t, totals, levels);
}

static char *text_of(const trend *t, uint64_t from, buffer *out)
{
    buffer_clear(out);
    trend_render(t, from, out);
    buffer_append_byte(out, 0);
    return out->data;
}

static void a_sample_says_how_much_grew(void **state)
{
    (void)state;
    trend *t;
    buffer out = { 0 };
    assert_int_equal(trend_open(&t), STATUS_OK);
    sample(t, 10, 3);
    sample(t, 30, 0);
    assert_true(trend_sum(t, TREND_GENERATED_TOKENS, 1) == 20);
    assert_true(trend_sum(t, TREND_GENERATED_TOKENS, TREND_MINUTE) == 30);
    char *text = text_of(t, 0, &out);
    assert_non_null(strstr(text, "\"interval_s\":2,\"next\":2,"));
    assert_non_null(strstr(text, "\"samples\":[[0,0,0,null,null,null,null,5.0,0.0,0,3,0,0,0],"
                                 "[0,0,0,null,null,null,null,10.0,0.0,0,0,0,0,0]]"));
    assert_non_null(strstr(text_of(t, 1, &out), "\"samples\":[[0,0,0,null,null,null,null,10.0"));
    assert_non_null(strstr(text_of(t, 2, &out), "\"samples\":[]"));
    assert_non_null(strstr(text_of(t, 99, &out), "\"samples\":[]"));
    buffer_close(&out);
    trend_close(t);
}

static void percentiles_are_of_their_own_sample(void **state)
{
    (void)state;
    trend *t;
    buffer out = { 0 };
    assert_int_equal(trend_open(&t), STATUS_OK);
    for (int i = 100; i > 0; i--)
        trend_note(t, TREND_FIRST_TOKEN, i / 1000.0);
    trend_note(t, TREND_TOKEN, 0.004);
    sample(t, 0, 0);
    sample(t, 0, 0);
    char *text = text_of(t, 0, &out);
    assert_non_null(strstr(text, "[[0,0,0,50.00,95.00,4.00,4.00,"));
    assert_non_null(strstr(text, ",[0,0,0,null,null,null,null,"));
    buffer_close(&out);
    trend_close(t);
}

static void of_very_many_latencies_a_fair_part_is_kept(void **state)
{
    (void)state;
    trend *t;
    buffer out = { 0 };
    double median = 0;
    assert_int_equal(trend_open(&t), STATUS_OK);
    for (int i = 0; i < 100000; i++)
        trend_note(t, TREND_TOKEN, i / 100000.0);
    sample(t, 0, 0);
    char *at = strstr(text_of(t, 0, &out), "[[0,0,0,null,null,");
    assert_non_null(at);
    assert_int_equal(sscanf(at, "[[0,0,0,null,null,%lf", &median), 1);
    assert_true(median > 380 &&
                median < 620); // of 256 of 100,000 even ones: 500 with a sigma of 31
    buffer_close(&out);
    trend_close(t);
}

static void the_ring_forgets_the_oldest(void **state)
{
    (void)state;
    trend *t;
    buffer out = { 0 };
    assert_int_equal(trend_open(&t), STATUS_OK);
    for (uint32_t i = 1; i <= TREND_SAMPLES + 7; i++)
        sample(t, i, i);
    assert_true(trend_sum(t, TREND_GENERATED_TOKENS, 10000) == TREND_SAMPLES);
    char *text = text_of(t, 0, &out);
    assert_non_null(strstr(text, "\"next\":307,"));
    assert_non_null(strstr(text, "\"samples\":[[0,0,0,null,null,null,null,0.5,0.0,0,8,"));
    assert_true(out.size < 20000);
    buffer_close(&out);
    trend_close(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_sample_says_how_much_grew),
        cmocka_unit_test(percentiles_are_of_their_own_sample),
        cmocka_unit_test(of_very_many_latencies_a_fair_part_is_kept),
        cmocka_unit_test(the_ring_forgets_the_oldest),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
