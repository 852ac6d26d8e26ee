// Integers beyond 64 bits in JSON, and what templates do with them.
#include "text/json_wide.h"
#include "text/template.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <setjmp.h>
#include <cmocka.h>

static void wide_integers_become_their_digits(void **state)
{
    (void)state;
    json_t *wide;
    json_error_t why;
    json_t *json = json_wide_load(
        SLICE("{\"a\": [9223372036854775808, -9223372036854775808,-9223372036854775809],"
              "\"b\":100000000000000000000, \"c\": \"99999999999999999999 \\\" 1\", \"d\": "
              "99999999999999999999.5, \"e\":1e30}"),
        0, &wide, &why);
    assert_non_null(json);
    assert_int_equal(json_array_size(wide), 3);
    json_t *a = json_object_get(json, "a");
    assert_string_equal(json_string_value(json_array_get(a, 0)), "9223372036854775808");
    assert_true(json_integer_value(json_array_get(a, 1)) == INT64_MIN);
    assert_string_equal(json_string_value(json_array_get(a, 2)), "-9223372036854775809");
    assert_string_equal(json_string_value(json_object_get(json, "b")), "100000000000000000000");
    assert_int_equal(json_wide_count(json, wide), 3);
    assert_int_equal(json_wide_count(a, wide), 2);
    assert_int_equal(json_wide_count(json_object_get(json, "c"), wide), 0);
    json_decref(json);
    json_decref(wide);
}

static void what_is_not_json_is_refused_as_before(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "[099999999999999999999]",
        "[-]",
        "99999999999999999999",
        "[x99999999999999999999]",
        "{99999999999999999999: 1}",
        "{ 99999999999999999999 : 1}",
        "[1e400]",
        "[99999999999999999999",
        "[99999999999999999999 1]",
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        json_t *wide;
        json_error_t why;
        assert_null(json_wide_load(slice_of(texts[i]), 0, &wide, &why));
        assert_null(wide);
        assert_true(why.text[0]);
    }
    buffer many = { 0 };
    json_t *wide;
    json_error_t why;
    buffer_append_byte(&many, '[');
    for (int i = 0; i < JSON_WIDE_MAX + 1; i++)
        buffer_printf(&many, "%s99999999999999999999", i ? "," : "");
    buffer_append_byte(&many, ']');
    assert_null(json_wide_load(buffer_slice(&many), 0, &wide, &why));
    assert_int_equal(json_error_code(&why), json_error_numeric_overflow);
    buffer_close(&many);
}

static void gives(const char *source, const char *expected)
{
    template *opened = NULL;
    template_output output = { 0 };
    error failure = { 0 };
    json_t *wide;
    json_error_t why;
    template_context context = { .variables = json_wide_load(
                                     SLICE("{\"x\": 100000000000000000000, \"y\": "
                                           "-99999999999999999999, \"z\": 99999999999999999999, "
                                           "\"s\": \"100000000000000000000\"}"),
                                     0, &wide, &why) };
    assert_non_null(context.variables);
    context.integers = wide;
    if (template_open(slice_of(source), &opened, &failure) != STATUS_OK)
        fail_msg("%s", failure.text);
    status code = template_render(opened, &context, NULL, &output, &failure);
    if (!expected)
        assert_int_not_equal(code, STATUS_OK);
    else if (code != STATUS_OK || strcmp(buffer_slice(&output.text).data, expected) != 0)
        fail_msg("%s: %s %s", source, failure.text, buffer_slice(&output.text).data);
    template_close(opened);
    template_output_close(&output);
    json_decref(context.variables);
    json_decref(wide);
}

static void templates_print_and_compare_them(void **state)
{
    (void)state;
    gives("{{ x }} {{ [y] }} {{ z|tojson }} {{ x|string }}{{ '~' ~ x }}",
          "100000000000000000000 [-99999999999999999999] 99999999999999999999 "
          "100000000000000000000~100000000000000000000");
    gives("{{ x > z }} {{ y < z }} {{ x > 1 }} {{ y < -1.5 }} {{ x == 1e20 }} {{ x == s }} "
          "{{ x != x }} {{ y < y }} {{ [x, y, z, 3]|sort }}",
          "True True True True True False False False [-99999999999999999999, 3, "
          "99999999999999999999, 100000000000000000000]");
    gives("{{ x is integer }} {{ x is number }} {{ x is string }} {{ x is float }} {{ 'a' if x }}",
          "True True False False a");
    gives("{{ x|float }} {{ x|int }} {{ x|urlencode }}",
          "1e+20 100000000000000000000 100000000000000000000");
    gives("{{ x + 1 }}", NULL); // never a wrapped number
    gives("{{ -x }}", NULL);
    gives("{{ x / 2 }}", NULL);
    gives("{{ {x: 1} }}", NULL);
    gives("{{ x|length }}", NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wide_integers_become_their_digits),
        cmocka_unit_test(what_is_not_json_is_refused_as_before),
        cmocka_unit_test(templates_print_and_compare_them),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
