// Credits follow use, and are never promised twice.
#include "worker/credits.h"

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

static uint64_t sum(const credits_part *parts, int count)
{
    uint64_t all = 0;
    for (int i = 0; i < count; i++)
        all += parts[i].told;
    return all;
}

// Every router fills `demand` of the whole, if it may.
static void rounds(credits_part *parts, const uint32_t *demand, int count, int number)
{
    for (int n = 0; n < number; n++) {
        for (int i = 0; i < count; i++)
            parts[i].used = demand[i] < parts[i].told ? demand[i] : parts[i].told;
        credits_divide(CREDITS_WHOLE, parts, count);
        assert_true(sum(parts, count) <= CREDITS_WHOLE);
    }
}

static void idle_routers_have_equal_parts(void **state)
{
    (void)state;
    credits_part parts[2] = { { 0, CREDITS_WHOLE / 2 }, { 0, CREDITS_WHOLE / 2 } };
    rounds(parts, (uint32_t[]){ 0, 0 }, 2, 5);
    assert_int_equal(parts[0].told, CREDITS_WHOLE / 2);
    assert_int_equal(parts[1].told, CREDITS_WHOLE / 2);
}

static void the_one_that_works_gets_more_and_gives_it_back(void **state)
{
    (void)state;
    credits_part parts[2] = { { 0, CREDITS_WHOLE / 2 }, { 0, CREDITS_WHOLE / 2 } };
    rounds(parts, (uint32_t[]){ CREDITS_WHOLE, 0 }, 2, 10);
    assert_true(parts[0].told > CREDITS_WHOLE * 3 / 4);
    assert_true(parts[1].told >= CREDITS_WHOLE / 8);
    // Both want everything, but what the first one fills it gives back only as it becomes free.
    rounds(parts, (uint32_t[]){ CREDITS_WHOLE / 4, CREDITS_WHOLE }, 2, 10);
    assert_true(parts[1].told > CREDITS_WHOLE / 2);
    rounds(parts, (uint32_t[]){ 0, 0 }, 2, 10);
    assert_true(labs((long)parts[0].told - (long)CREDITS_WHOLE / 2) <=
                (long)CREDITS_WHOLE / 32 + 1);
}

static void what_is_taken_is_given_a_round_later(void **state)
{
    (void)state;
    credits_part parts[2] = { { CREDITS_WHOLE / 2, CREDITS_WHOLE / 2 }, { 0, CREDITS_WHOLE / 2 } };
    credits_divide(CREDITS_WHOLE, parts, 2);
    assert_int_equal(parts[0].told, CREDITS_WHOLE / 2);
    assert_true(parts[1].told < CREDITS_WHOLE / 2);
    credits_divide(CREDITS_WHOLE, parts, 2);
    assert_true(parts[0].told > CREDITS_WHOLE / 2);
}

static void one_that_joins_gets_its_part(void **state)
{
    (void)state;
    // The first one held everything; the second was promised half when it joined.
    credits_part parts[2] = { { 100, CREDITS_WHOLE }, { 0, CREDITS_WHOLE / 2 } };
    for (int i = 0; i < 4; i++)
        credits_divide(CREDITS_WHOLE, parts, 2);
    assert_true(sum(parts, 2) <= CREDITS_WHOLE + CREDITS_WHOLE / 16);
    assert_true(parts[0].told < CREDITS_WHOLE * 6 / 10);
}

static void any_use_keeps_the_promise(void **state)
{
    (void)state;
    unsigned seed = 1;
    for (int run = 0; run < 2000; run++) {
        credits_part parts[5] = { 0 };
        uint32_t demand[5];
        int count = 1 + run % 5;
        for (int i = 0; i < count; i++)
            parts[i].told = CREDITS_WHOLE / (uint32_t)count;
        for (int n = 0; n < 20; n++) {
            for (int i = 0; i < count; i++)
                demand[i] = (uint32_t)rand_r(&seed) % CREDITS_WHOLE;
            rounds(parts, demand, count, 1);
        }
    }
}

static void a_part_of_something_is_something(void **state)
{
    (void)state;
    assert_int_equal(credits_of(1000, CREDITS_WHOLE), 1000);
    assert_int_equal(credits_of(1000, CREDITS_WHOLE / 4), 250);
    assert_int_equal(credits_of(3, CREDITS_WHOLE / 8), 1);
    assert_int_equal(credits_of(0, CREDITS_WHOLE), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(idle_routers_have_equal_parts),
        cmocka_unit_test(the_one_that_works_gets_more_and_gives_it_back),
        cmocka_unit_test(what_is_taken_is_given_a_round_later),
        cmocka_unit_test(one_that_joins_gets_its_part),
        cmocka_unit_test(any_use_keeps_the_promise),
        cmocka_unit_test(a_part_of_something_is_something),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
