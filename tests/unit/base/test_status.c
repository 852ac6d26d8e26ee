#include "base/status.h"
#include "base/utf8.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static void every_code_says_who_must_act(void **state)
{
    (void)state;
    for (int code = 0; code < STATUS_COUNT; code++) {
        assert_true(strlen(status_name((status)code)) > 0);
        assert_true(strlen(status_text((status)code)) > 0);
    }
    assert_int_equal(status_must_act(STATUS_OK), STATUS_OWNER_NONE);
    assert_int_equal(status_must_act(STATUS_CONTEXT_LENGTH), STATUS_OWNER_REQUEST);
    assert_int_equal(status_must_act(STATUS_PEER_SILENT), STATUS_OWNER_PEER);
    assert_int_equal(status_must_act(STATUS_NUMERIC), STATUS_OWNER_SELF);
    assert_string_equal(status_name((status)999), "UNKNOWN");
    assert_int_equal(status_must_act((status)999), STATUS_OWNER_SELF);
}

static void an_error_is_filled_and_prefixed(void **state)
{
    (void)state;
    error failure;
    assert_int_equal(error_set(&failure, STATUS_INVALID, "top_p", "top_p is %g", 1.5),
                     STATUS_INVALID);
    assert_int_equal(failure.code, STATUS_INVALID);
    assert_string_equal(failure.param, "top_p");
    error_prefix(&failure, "request %d", 7);
    assert_string_equal(failure.text, "request 7: top_p is 1.5");
    error_set(&failure, STATUS_IO, NULL, "again: %s", failure.text);
    assert_string_equal(failure.text, "again: request 7: top_p is 1.5");
    assert_string_equal(failure.param, "");
    assert_int_equal(error_set(NULL, STATUS_IO, "", "nobody reads this"), STATUS_IO);
    error_prefix(NULL, "nobody");
}

static void hostile_bytes_do_not_reach_the_text(void **state)
{
    (void)state;
    error failure;
    error_set(&failure, STATUS_INVALID, "a\nb", "%s", "x\x1b[2J\xff\xc3\xa9\xc2\x85\x7f.");
    assert_string_equal(failure.param, "a?b");
    assert_string_equal(failure.text, "x?[2J?\xc3\xa9???.");
}

static void a_cut_text_ends_with_a_whole_character(void **state)
{
    (void)state;
    char text[1000];
    error failure;
    // Shift a run of 3-byte characters so that the end of the text falls on each of their bytes.
    for (size_t shift = 0; shift < 3; shift++) {
        memset(text, 'a', shift);
        for (size_t i = 0; i < 300; i++)
            memcpy(text + shift + 3 * i, "\xe2\x82\xac", 3);
        text[shift + 900] = 0;
        error_set(&failure, STATUS_INVALID, text, "%s", text);
        assert_null(strchr(failure.text, '?'));
        assert_null(strchr(failure.param, '?'));
        assert_true(strlen(failure.text) >= sizeof(failure.text) - 4);
        error_prefix(&failure, "b");
        assert_null(strchr(failure.text, '?'));
    }
}

static void utf8_takes_well_formed_sequences_only(void **state)
{
    (void)state;
    const struct {
        const char *bytes;
        size_t size;
    } cases[] = {
        { "a", 1 },
        { "\xc3\xa9", 2 },
        { "\xe2\x82\xac", 3 },
        { "\xf0\x9f\x98\x80", 4 },
        { "\xf4\x8f\xbf\xbf", 4 },
        { "\xed\x9f\xbf", 3 },
        { "\xc0\x80", 0 },         // overlong
        { "\xe0\x9f\xbf", 0 },     // overlong
        { "\xf0\x8f\xbf\xbf", 0 }, // overlong
        { "\xed\xa0\x80", 0 },     // surrogate
        { "\xf4\x90\x80\x80", 0 }, // past U+10FFFF
        { "\x80", 0 },
        { "\xff", 0 },
        { "\xc3", 0 },
        { "\xe2\x82", 0 },
        { "\xf0\x9f\x98", 0 },
        { "", 0 },
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        assert_int_equal(utf8_sequence_size(cases[i].bytes, strlen(cases[i].bytes)), cases[i].size);
}

#define E "\xc3\xa9"           // two bytes
#define WEATHER "\xe5\xa4\xa9" // three
#define SUN "\xf0\x9f\x8c\x9e" // four

static void no_cut_goes_through_a_character(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        size_t most;
        int shown;
    } cases[] = {
        { "", 5, 0 },          { "abc", 5, 3 },
        { "abc", 3, 3 },       { "abc", 2, 2 },
        { "abc", 0, 0 },       { "a" E "b", 1, 1 },
        { "a" E "b", 2, 1 },   { "a" E "b", 3, 3 },
        { E, 1, 0 },           { "a" WEATHER, 2, 1 },
        { "a" WEATHER, 3, 1 }, { "a" WEATHER, 4, 4 },
        { "ab" SUN, 3, 2 },    { "ab" SUN, 4, 2 },
        { "ab" SUN, 5, 2 },    { "ab" SUN, 6, 6 },
        { E E E, 5, 4 },       { "\x80\x80\x80\x80", 3, 3 }, // no character, nothing to keep whole
        { "a\xe5\xa4", 9, 1 },                               // cut before
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        if (utf8_fit(cases[i].text, cases[i].most) != cases[i].shown)
            fail_msg("case %zu: %d", i, utf8_fit(cases[i].text, cases[i].most));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_code_says_who_must_act),
        cmocka_unit_test(an_error_is_filled_and_prefixed),
        cmocka_unit_test(hostile_bytes_do_not_reach_the_text),
        cmocka_unit_test(a_cut_text_ends_with_a_whole_character),
        cmocka_unit_test(utf8_takes_well_formed_sequences_only),
        cmocka_unit_test(no_cut_goes_through_a_character),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
