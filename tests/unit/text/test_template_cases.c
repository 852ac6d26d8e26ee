// Field cases of chat templates: white space, JSON in prompts, what official templates use.
// Expected texts are those of Jinja 3.1 and Python's json with transformers' settings.
#include "text/template.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <setjmp.h>
#include <cmocka.h>

static status render(const char *source, const char *variables, template_output *output,
                     error *failure)
{
    template *opened = NULL;
    json_error_t why;
    *failure = (error){ 0 };
    template_context context = { .variables = json_loads(variables, 0, &why), .now_s = 1700000000 };
    if (!context.variables)
        fail_msg("%s: %s", variables, why.text);
    status result = template_open(slice_of(source), &opened, failure);
    if (result == STATUS_OK)
        result = template_render(opened, &context, NULL, output, failure);
    template_close(opened);
    json_decref(context.variables);
    return result;
}

static void gives(const char *source, const char *variables, const char *expected)
{
    template_output output = { 0 };
    error failure;
    if (render(source, variables, &output, &failure) != STATUS_OK)
        fail_msg("%s: %s", source, failure.text);
    assert_string_equal(buffer_slice(&output.text).data, expected);
    template_output_close(&output);
}

static void refuses(const char *source, const char *variables, const char *part)
{
    template_output output = { 0 };
    error failure;
    assert_int_not_equal(render(source, variables, &output, &failure), STATUS_OK);
    assert_int_equal(output.text.size, 0);
    if (!strstr(failure.text, part))
        fail_msg("'%s' is not in '%s'", part, failure.text);
    template_output_close(&output);
}

static void b039_block_tags_leave_no_white_space(void **state)
{
    (void)state;
    static const char lists[] = "{\"rows\": [[1, 2], [3]]}";
    gives("A\n  {% for row in rows %}\n  {% for x in row %}\n{{ x }}{{ ',' if not loop.last }}\n"
          "  {% endfor %}\n  {% if not loop.last %}\n--\n  {% endif %}\n  {% endfor %}\nB\n",
          lists, "A\n1,\n2\n--\n3\nB");
    gives("a \n {%- if true -%} \n b \n {%- endif -%} \n c", "{}", "abc");
    gives("a\n  {#- dropped -#}\n  b", "{}", "ab");
    gives("a\n  {# a whole line #}\nb", "{}", "a\nb");
    gives("  {%+ if true %}x{% endif %}\n", "{}", "  x");
    gives("{{ 'a' }}\n\n{{ 'b' }}\n\n", "{}", "a\n\nb\n");
}

static void b040_json_in_prompts_is_that_of_python(void **state)
{
    (void)state;
    static const char tool[] =
        "{\"x\": {\"d\": \"Po\u010das\u00ed & <b>'dnes'</b> \u5929\u6c14 \U0001f326\", \"z\": 1.0, "
        "\"a\": 1e-7, \"m\": [true, null, {}], \"e\": []}}";
    gives(
        "{{ x|tojson }}", tool,
        "{\"d\": \"Po\u010das\u00ed & <b>'dnes'</b> \u5929\u6c14 \U0001f326\", \"z\": 1.0, \"a\": "
        "1e-07, \"m\": [true, null, {}], \"e\": []}");
    gives(
        "{{ x|tojson(indent=4) }}", "{\"x\": {\"b\": [1, {\"c\": \"\u00ed\"}], \"a\": {}}}",
        "{\n    \"b\": [\n        1,\n        {\n            \"c\": \"\u00ed\"\n        }\n    ],\n"
        "    \"a\": {}\n}");
    gives("{{ x|tojson(ensure_ascii=true) }}", "{\"x\": \"\u00ed \U0001f326\"}",
          "\"\\u00ed \\ud83c\\udf26\"");
    gives("{{ x|tojson(ensure_ascii=False) }}", "{\"x\": \"\u00ed\"}", "\"\u00ed\"");
    gives("{{ x|tojson(separators=(',',':')) }}", "{\"x\": {\"b\": [1, 2], \"a\": 0.5}}",
          "{\"b\":[1,2],\"a\":0.5}");
    refuses("{{ x|tojson(compact=true) }}", "{\"x\": 1}", "compact");
}

static void b042_official_templates_use_these(void **state)
{
    (void)state;
    gives("{% set ns = namespace(found=false) %}{% for m in messages[1:] %}{% if m is defined and "
          "m.role == 'user' %}{% set ns.found = true %}{% endif %}{% endfor %}{{ ns.found }}",
          "{\"messages\": [{\"role\": \"system\"}, {\"role\": \"user\"}]}", "True");
    gives("{% macro turn(role, text='none') -%}<{{ role }}>{{ text|trim }}{%- endmacro %}"
          "{{ turn('user', ' hi ') }}{{ turn('tool') }}",
          "{}", "<user>hi<tool>none");
    gives("{{ strftime_now('%d %b %Y') }}", "{}", "14 Nov 2023");
    gives("{{ x.split('</think>')[-1].lstrip('\\n').upper() }}|{{ x.startswith('<') }}",
          "{\"x\": \"<think>a</think>\\n\\nb\"}", "B|True");
    gives("[{{ nowhere }}{{ x.missing }}]", "{\"x\": {}}", "[]");
    refuses("{{ nowhere() }}", "{}", "undefined");
    refuses("{{ x|nosuch }}", "{\"x\": 1}", "nosuch");
    refuses("a\n{% for %}", "{}", "line 2");
}

static void b042_a_template_of_a_megabyte_parses(void **state)
{
    (void)state;
    buffer source = { 0 };
    template *opened = NULL;
    template_output output = { 0 };
    error failure = { 0 };
    while (source.size < (1 << 20) - 64)
        buffer_append_text(&source, "{% if x %}{{ x }}{% endif %}");
    assert_int_equal(template_open(buffer_slice(&source), &opened, &failure), STATUS_OK);
    template_context context = { 0 };
    assert_int_equal(template_render(opened, &context, NULL, &output, &failure), STATUS_OK);
    assert_int_equal(output.text.size, 0);
    template_close(opened);
    template_output_close(&output);
    buffer_append(&source, source.data, 1000);
    assert_int_not_equal(template_open(buffer_slice(&source), &opened, &failure), STATUS_OK);
    buffer_close(&source);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(b039_block_tags_leave_no_white_space),
        cmocka_unit_test(b040_json_in_prompts_is_that_of_python),
        cmocka_unit_test(b042_official_templates_use_these),
        cmocka_unit_test(b042_a_template_of_a_megabyte_parses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
