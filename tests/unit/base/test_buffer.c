#include "base/buffer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static void an_empty_buffer_is_an_empty_slice(void **state)
{
    (void)state;
    buffer b = { 0 };
    assert_true(slice_equal(buffer_slice(&b), SLICE("")));
    assert_string_equal(buffer_slice(&b).data, "");
    buffer_clear(&b);
    buffer_drop_front(&b, 0);
    buffer_close(&b);
}

static void appends_are_followed_by_an_uncounted_nul(void **state)
{
    (void)state;
    buffer b = { 0 };
    buffer_append_text(&b, "one");
    buffer_append(&b, "\0two", 4);
    buffer_append_slice(&b, SLICE(" three"));
    buffer_append_byte(&b, '!');
    assert_int_equal(b.size, 14);
    assert_memory_equal(b.data, "one\0two three!", 15);
    buffer_drop_front(&b, 4);
    assert_string_equal(b.data, "two three!");
    buffer_clear(&b);
    assert_string_equal(b.data, "");
    for (int i = 0; i < 1000; i++)
        buffer_printf(&b, "%d,", i);
    assert_int_equal(b.size, strlen(b.data));
    assert_string_equal(b.data + b.size - 8, "998,999,");
    buffer_close(&b);
    assert_null(b.data);
}

static void past_the_limit_an_append_is_dropped_whole(void **state)
{
    (void)state;
    buffer b = { .limit = 10 };
    buffer_append_text(&b, "12345678");
    buffer_printf(&b, "%s", "90");
    assert_false(b.overflow);
    buffer_append_byte(&b, 'x');
    assert_true(b.overflow);
    assert_string_equal(b.data, "1234567890");
    buffer_clear(&b);
    assert_false(b.overflow);
    buffer_printf(&b, "%s", "a text of more than ten bytes");
    assert_true(b.overflow);
    assert_string_equal(b.data, "");
    buffer_clear(&b);
    assert_false(buffer_reserve(&b, SIZE_MAX));
    assert_true(b.overflow);
    buffer_append_text(&b, "a");
    assert_int_equal(b.size, 0);
    buffer_close(&b);
}

static void json_strings_are_escaped(void **state)
{
    (void)state;
    const struct {
        slice in;
        const char *out;
    } cases[] = {
        { SLICE(""), "\"\"" },
        { SLICE("plain"), "\"plain\"" },
        { SLICE("a\"b\\c/"), "\"a\\\"b\\\\c/\"" },
        { SLICE("\b\f\n\r\t\x01\x1f\x7f"), "\"\\b\\f\\n\\r\\t\\u0001\\u001f\x7f\"" },
        { SLICE("a\0b"), "\"a\\u0000b\"" },
        { SLICE("\xc3\xa9\xf0\x9f\x98\x80"), "\"\xc3\xa9\xf0\x9f\x98\x80\"" },
        { SLICE("x\xffy\xe2\x82"), "\"x\xef\xbf\xbdy\xef\xbf\xbd\xef\xbf\xbd\"" },
        { SLICE("\xed\xa0\x80"), "\"\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\"" },
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        buffer b = { 0 };
        buffer_append_json(&b, cases[i].in);
        assert_string_equal(b.data, cases[i].out);
        buffer_close(&b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_empty_buffer_is_an_empty_slice),
        cmocka_unit_test(appends_are_followed_by_an_uncounted_nul),
        cmocka_unit_test(past_the_limit_an_append_is_dropped_whole),
        cmocka_unit_test(json_strings_are_escaped),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
