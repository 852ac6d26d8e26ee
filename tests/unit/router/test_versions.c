// How new requests are split between versions of the model.
#include "router/versions.h"

#include <stdarg.h>
#include <setjmp.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#define A "0000000000000001000000000000000a"
#define B "0000000000000002000000000000000b"

static const hash128 own = { 10, 1 };
static const bool all[VERSIONS_MAX] = { true, true, true };

static status parse(const char *const *texts, size_t count, versions *v, error *failure)
{
    config_strings strings = { count, (char **)texts };
    return versions_parse("policy.versions", &strings, own, v, failure);
}

static void without_a_list_there_is_the_own_version(void **state)
{
    (void)state;
    versions v;
    error failure;
    assert_int_equal(parse(NULL, 0, &v, &failure), STATUS_OK);
    assert_int_equal(v.count, 1);
    assert_true(hash128_equal(v.items[0].weights, own));
    assert_int_equal(versions_choose(&v, all, 0.99), 0);
    assert_true(versions_allow(&v, own));
    assert_false(versions_allow(&v, (hash128){ 11, 2 }));
}

static void a_list_says_who_may_join(void **state)
{
    (void)state;
    versions v;
    error failure;
    assert_int_equal(parse((const char *[]){ B ":1" }, 1, &v, &failure), STATUS_OK);
    assert_true(versions_allow(&v, own)); // it gets nothing new
    assert_true(versions_allow(&v, (hash128){ 11, 2 }));
    assert_false(versions_allow(&v, (hash128){ 12, 2 }));
    char text[24];
    versions_fingerprint(v.items[0].weights, text);
    assert_string_equal(text, "fp_0000000000000002");
}

static void a_bad_entry_is_named(void **state)
{
    (void)state;
    const char *const wrong[] = { "",      "abc:1", A,
                                  A ":",   A ":-1", A ":x",
                                  A ":1x", A " :1", "000000000000000100000000000000AA:1",
                                  A ":nan" };
    versions v;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        error failure = { 0 };
        assert_int_equal(parse(&wrong[i], 1, &v, &failure), STATUS_BAD_CONFIG);
        assert_string_equal(failure.param, "policy.versions");
        assert_non_null(strstr(failure.text, wrong[i]));
    }
    error failure;
    assert_int_equal(parse((const char *[]){ A ":1", A ":2" }, 2, &v, &failure), STATUS_BAD_CONFIG);
    assert_non_null(strstr(failure.text, "twice"));
    assert_int_equal(parse((const char *[]){ A ":0", B ":0" }, 2, &v, &failure), STATUS_BAD_CONFIG);
    const char *nine[9] = {
        A ":1", A ":1", A ":1", A ":1", A ":1", A ":1", A ":1", A ":1", A ":1"
    };
    assert_int_equal(parse(nine, 9, &v, &failure), STATUS_BAD_CONFIG);
    assert_non_null(strstr(failure.text, "at most 8"));
}

static void shares_are_kept_to(void **state)
{
    (void)state;
    versions v;
    error failure;
    assert_int_equal(parse((const char *[]){ A ":90", B ":10" }, 2, &v, &failure), STATUS_OK);
    int counts[2] = { 0 };
    for (uint64_t n = 1; n <= 1000; n++) {
        counts[versions_choose(&v, all, versions_draw((slice){ NULL, 0 }, n))]++;
        double share = (double)counts[1] / (double)n;
        if (n >= 100) // at any time
            assert_true(share > 0.08 && share < 0.12);
    }
    counts[1] = 0;
    for (int n = 0; n < 1000; n++) {
        char key[16];
        snprintf(key, sizeof key, "key-%d", n);
        double draw = versions_draw(slice_of(key), 5);
        assert_true(draw == versions_draw(slice_of(key), 77)); // any router, any number
        counts[1] += versions_choose(&v, all, draw) == 1;
    }
    assert_true(counts[1] > 60 && counts[1] < 140);
}

static void who_is_not_there_gets_nothing(void **state)
{
    (void)state;
    versions v;
    error failure;
    const bool first[VERSIONS_MAX] = { true }, second[VERSIONS_MAX] = { false, true };
    const bool none[VERSIONS_MAX] = { false };
    assert_int_equal(parse((const char *[]){ A ":90", B ":0" }, 2, &v, &failure), STATUS_OK);
    assert_int_equal(versions_choose(&v, first, 0.95), 0);
    assert_int_equal(versions_choose(&v, second, 0.1), SIZE_MAX);
    assert_int_equal(versions_choose(&v, none, 0.1), SIZE_MAX);
    assert_int_equal(versions_choose(&v, all, 0.9999999), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_a_list_there_is_the_own_version),
        cmocka_unit_test(a_list_says_who_may_join),
        cmocka_unit_test(a_bad_entry_is_named),
        cmocka_unit_test(shares_are_kept_to),
        cmocka_unit_test(who_is_not_there_gets_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
