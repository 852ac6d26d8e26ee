// What /cluster says of guessed tokens.
#include "router/status_guesses.h"

#include <stdio.h>
#include <string.h>

#include <stdarg.h>
#include <setjmp.h>
#include <cmocka.h>

static void counts_beyond_32_bits_are_shown_whole(void **state)
{
    (void)state;
    guesses g = { .sentence = "on: it was just begun", .drafter_count = 1 };
    guesses_drafter *d = &g.drafters[0];
    buffer out = { 0 };
    *d = (guesses_drafter){ .name = "ngram", .positions = 2 };
    d->tried[0] = (1ull << 33) + 7;
    d->held[0] = d->tried[1] = (1ull << 32) + 5;
    status_guesses_append(&g, &out);
    buffer_append_byte(&out, 0);
    assert_non_null(strstr(out.data, "\"tried\":[8589934599,4294967301],\"held\":[4294967301,0]}"));
    buffer_close(&out);
}

static void nothing_told_is_nothing_said(void **state)
{
    (void)state;
    guesses g = { 0 };
    buffer out = { 0 };
    status_guesses_append(&g, &out);
    assert_int_equal(out.size, 0);
    buffer_close(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(counts_beyond_32_bits_are_shown_whole),
        cmocka_unit_test(nothing_told_is_nothing_said),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
