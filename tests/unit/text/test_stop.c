// Stop strings: B012 (no part of one leaks, earliest match
// wins), B013 (the tail comes out), B014 (degenerate values).
#include "text/stop.h"

#include "base/random.h"
#include "harness/seed.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <setjmp.h>
#include <cmocka.h>
#include <stdlib.h>

static stop *open_strings(const char *const *strings, size_t count)
{
    slice slices[STOP_STRINGS_MAX];
    stop *s = NULL;
    error failure = { 0 };
    for (size_t i = 0; i < count; i++)
        slices[i] = slice_of(strings[i]);
    assert_int_equal(stop_open(slices, count, &s, &failure), STATUS_OK);
    return s;
}

#define OPEN(...)                                                                                  \
    open_strings((const char *const[]){ __VA_ARGS__ },                                             \
                 sizeof((const char *const[]){ __VA_ARGS__ }) / sizeof(char *))

static void b012_only_what_could_still_become_a_stop_is_held(void **state)
{
    (void)state;
    stop *s = OPEN("world");
    buffer text = { 0 };
    assert_false(stop_push(s, SLICE("hello wo"), &text));
    assert_string_equal(text.data, "hello ");
    assert_int_equal(stop_held(s), 2);
    assert_false(stop_push(s, SLICE("wor"), &text));
    assert_string_equal(text.data, "hello wo");
    assert_int_equal(stop_held(s), 3);
    assert_true(stop_push(s, SLICE("ld and more"), &text));
    assert_string_equal(text.data, "hello wo");
    assert_int_equal(stop_matched(s), 0);
    assert_int_equal(stop_held(s), 0);
    assert_true(stop_push(s, SLICE("again"), &text));
    stop_end(s, &text);
    assert_string_equal(text.data, "hello wo");
    stop_close(s);
    buffer_close(&text);
}

static void b012_of_several_the_first_to_end_wins_then_the_longest(void **state)
{
    (void)state;
    buffer text = { 0 };
    stop *s = OPEN("abcd", "ab");
    assert_true(stop_push(s, SLICE("xabcd"), &text));
    assert_int_equal(stop_matched(s), 1);
    assert_string_equal(text.data, "x");
    stop_close(s);
    buffer_clear(&text);
    s = OPEN("cd", "bcd", "d");
    assert_true(stop_push(s, SLICE("abcd"), &text));
    assert_int_equal(stop_matched(s), 1);
    assert_string_equal(text.data, "a");
    stop_close(s);
    buffer_close(&text);
}

static void b013_the_tail_comes_out_at_the_end(void **state)
{
    (void)state;
    buffer text = { 0 };
    stop *s = OPEN("no\xe2\x96\x88\xe2\x96\x88", "oh");
    assert_false(stop_push(s, SLICE("yes n"), &text));
    assert_false(stop_push(s, SLICE("o"), &text));
    assert_string_equal(text.data, "yes ");
    stop_end(s, &text);
    assert_string_equal(text.data, "yes no");
    stop_close(s);
    buffer_close(&text);
}

static void b014_degenerate_values_are_refused_or_harmless(void **state)
{
    (void)state;
    stop *s = NULL;
    error failure = { 0 };
    buffer text = { 0 };
    const slice empty[] = { SLICE("a"), SLICE("") };
    assert_int_equal(stop_open(empty, 2, &s, &failure), STATUS_INVALID);
    assert_string_equal(failure.param, "stop");
    slice many[STOP_STRINGS_MAX + 1];
    for (size_t i = 0; i <= STOP_STRINGS_MAX; i++)
        many[i] = SLICE("a");
    assert_int_equal(stop_open(many, STOP_STRINGS_MAX + 1, &s, &failure), STATUS_INVALID);
    char *large = malloc(STOP_BYTES_MAX + 1);
    memset(large, 'a', STOP_BYTES_MAX + 1);
    assert_int_equal(stop_open(&(slice){ large, STOP_BYTES_MAX + 1 }, 1, &s, &failure),
                     STATUS_INVALID);
    // A string of 1 MiB that almost matches all along:
    // each byte is looked at a few times, not 1 Mi times.
    large[STOP_BYTES_MAX - 1] = 'b';
    assert_int_equal(stop_open(&(slice){ large, STOP_BYTES_MAX }, 1, &s, &failure), STATUS_OK);
    for (int i = 0; i < 1200; i++)
        assert_false(stop_push(s, (slice){ large, 1000 }, &text));
    assert_int_equal(text.size + stop_held(s), 1200000);
    assert_true(stop_push(s, SLICE("b"), &text));
    assert_int_equal(text.size, 1200001 - STOP_BYTES_MAX);
    stop_close(s);
    free(large);
    buffer_clear(&text);
    assert_int_equal(stop_open(NULL, 0, &s, &failure), STATUS_OK);
    assert_false(stop_push(s, SLICE("anything"), &text));
    stop_end(s, &text);
    assert_string_equal(text.data, "anything");
    stop_close(s);
    buffer_clear(&text);
    const slice with_nul = SLICE("a\0b");
    assert_int_equal(stop_open(&with_nul, 1, &s, &failure), STATUS_OK);
    assert_true(stop_push(s, SLICE("xa\0by"), &text));
    assert_string_equal(text.data, "x");
    stop_close(s);
    buffer_close(&text);
}

// The definition, on the whole text: the smallest end, then the smallest begin.
static size_t text_before_stop(slice all, const slice *strings, size_t count)
{
    for (size_t end = 1; end <= all.size; end++) {
        size_t begin = SIZE_MAX;
        for (size_t i = 0; i < count; i++)
            if (strings[i].size <= end && end - strings[i].size < begin &&
                memcmp(all.data + end - strings[i].size, strings[i].data, strings[i].size) == 0)
                begin = end - strings[i].size;
        if (begin != SIZE_MAX)
            return begin;
    }
    return all.size;
}

static void the_text_does_not_depend_on_how_the_stream_is_cut(void **state)
{
    (void)state;
    uint64_t seed = seed_choose(), turn = 0;
    for (int round = 0; round < 20000; round++) {
        char all[40], bytes[4][6];
        slice strings[4];
        error failure;
        stop *s;
        buffer text = { 0 };
        size_t size = random_mix(seed + turn++) % sizeof(all);
        size_t count = 1 + random_mix(seed + turn++) % 4;
        for (size_t i = 0; i < size; i++)
            all[i] = (char)('a' + random_mix(seed + turn++) % 2);
        for (size_t i = 0; i < count; i++) {
            strings[i] = (slice){ bytes[i], 1 + random_mix(seed + turn++) % 6 };
            for (size_t j = 0; j < strings[i].size; j++)
                bytes[i][j] = (char)('a' + random_mix(seed + turn++) % 2);
        }
        assert_int_equal(stop_open(strings, count, &s, &failure), STATUS_OK);
        for (size_t at = 0, step; at < size; at += step) {
            step = random_mix(seed + turn++) % (size - at + 1);
            stop_push(s, (slice){ all + at, step }, &text);
        }
        stop_end(s, &text);
        size_t expected = text_before_stop((slice){ all, size }, strings, count);
        assert_int_equal(text.size, expected);
        assert_true(slice_equal(buffer_slice(&text), (slice){ all, expected }));
        stop_close(s);
        buffer_close(&text);
    }
}

// Each choice of a request has a matcher, and strings may be a mebibyte.
static void further_matchers_share_the_strings_and_match_by_themselves(void **state)
{
    (void)state;
    const slice strings[] = { SLICE("abc"), SLICE("xyz") };
    stop *first, *second;
    buffer text = { 0 };
    error failure;
    assert_int_equal(stop_open(strings, 2, &first, &failure), STATUS_OK);
    assert_false(stop_push(first, SLICE("ab"), &text));
    assert_int_equal(stop_open_again(first, &second), STATUS_OK);
    for (int i = 0; i < 2; i++)
        assert_ptr_equal(stop_string(second, i).data, stop_string(first, i).data);
    assert_int_equal(stop_held(second), 0);
    assert_false(stop_push(second, SLICE("c1xy"), &text));
    assert_int_equal(stop_held(first), 2);
    assert_true(stop_push(second, SLICE("z"), &text));
    assert_int_equal(stop_matched(second), 1);
    assert_int_equal(stop_matched(first), -1);
    stop_close(second);
    assert_true(stop_push(first, SLICE("c"), &text));
    assert_true(slice_equal(buffer_slice(&text), SLICE("c1")));
    stop_close(first);
    buffer_close(&text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(b012_only_what_could_still_become_a_stop_is_held),
        cmocka_unit_test(b012_of_several_the_first_to_end_wins_then_the_longest),
        cmocka_unit_test(b013_the_tail_comes_out_at_the_end),
        cmocka_unit_test(b014_degenerate_values_are_refused_or_harmless),
        cmocka_unit_test(further_matchers_share_the_strings_and_match_by_themselves),
        cmocka_unit_test(the_text_does_not_depend_on_how_the_stream_is_cut),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
