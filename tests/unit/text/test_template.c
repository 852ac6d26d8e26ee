// What a template may do and what it may not: errors by line and name, limits, origin, threads.
#include "text/template.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <setjmp.h>
#include <cmocka.h>
#include <pthread.h>
#include <stdlib.h>

static error failure;

static template *open_text(const char *source)
{
    template *opened = NULL;
    if (template_open(slice_of(source), &opened, &failure) != STATUS_OK)
        fail_msg("%s: %s", source, failure.text);
    return opened;
}

static void refuses(const char *source, const char *part)
{
    template *opened = NULL;
    failure = (error){ 0 };
    assert_int_not_equal(template_open(slice_of(source), &opened, &failure), STATUS_OK);
    assert_null(opened);
    if (!strstr(failure.text, part))
        fail_msg("'%s' is not in '%s'", part, failure.text);
}

// Render with the variables of a JSON text; the caller closes `output`.
static status render(const char *source, const char *variables, const template_limits *limits,
                     template_output *output)
{
    template *opened = open_text(source);
    template_context context = { .variables = json_loads(variables, JSON_ALLOW_NUL, NULL),
                                 .now_s = 1700000000 };
    assert_non_null(context.variables);
    failure = (error){ 0 };
    status code = template_render(opened, &context, limits, output, &failure);
    json_decref(context.variables);
    template_close(opened);
    return code;
}

static void gives(const char *source, const char *variables, const char *text)
{
    template_output output = { 0 };
    if (render(source, variables, NULL, &output) != STATUS_OK)
        fail_msg("%s: %s", source, failure.text);
    assert_string_equal(buffer_slice(&output.text).data, text);
    template_output_close(&output);
}

static void fails(const char *source, const char *variables, template_fault fault, const char *part)
{
    template_output output = { 0 };
    assert_int_not_equal(render(source, variables, NULL, &output), STATUS_OK);
    assert_int_equal(output.fault, fault);
    assert_int_equal(output.text.size, 0);
    assert_int_equal(output.segment_count, 0);
    if (!strstr(failure.text, part))
        fail_msg("'%s' is not in '%s'", part, failure.text);
    template_output_close(&output);
}

static void b042_errors_of_syntax_name_the_line(void **state)
{
    (void)state;
    refuses("a\n{% if x %}\nb\n", "line 3: ");
    refuses("a\n\n{{ 1 + }}", "line 3: ");
    refuses("a\n{% include 'x' %}", "line 2: the tag 'include' is not supported");
    refuses("{% import 'x' as y %}", "'import'");
    refuses("{% extends 'x' %}", "'extends'");
    refuses("\n{% nosuch %}", "line 2: there is no tag 'nosuch'");
    refuses("{{ x\n|nosuch }}", "line 2: there is no filter named 'nosuch'");
    refuses("{{ x is nosuch }}", "there is no test named 'nosuch'");
    refuses("{% for x in y %}{{ x|nosuch if x }}{{ x|other }}{% endfor %}", "'other'");
    refuses("{{ (1, [2) }}", "closing bracket");
    refuses("{{ 99999999999999999999 }}", "64 bits");
    refuses("{{ '\\ud800' }}", "no character");
    refuses("\xff", "not UTF-8");
}

static void errors_of_a_render_name_the_line(void **state)
{
    (void)state;
    fails("\n\n{{ missing.x }}", "{}", TEMPLATE_FAULT_UNDEFINED, "line 3: 'missing' is undefined");
    fails("\n{{ 'a' + 1 }}", "{}", TEMPLATE_FAULT_TYPE, "line 2: '+' is not supported");
    fails("{% if x %}\n{{ x|nosuch }}{% endif %}", "{\"x\": 1}", TEMPLATE_FAULT_RUNTIME,
          "line 2: there is no filter named 'nosuch'");
    fails("{{ 9223372036854775807 + 1 }}", "{}", TEMPLATE_FAULT_TYPE, "64 bits");
    fails("{{ x|tojson(nosuch=1) }}", "{\"x\": 1}", TEMPLATE_FAULT_TYPE, "'nosuch' is unknown");
}

static void raise_exception_gives_its_message_as_it_is(void **state)
{
    (void)state;
    fails("text{{ raise_exception('roles: ' ~ r) }}", "{\"r\": \"x\"}", TEMPLATE_FAULT_RAISED,
          "roles: x");
    assert_string_equal(failure.text, "roles: x");
}

static void the_sandbox_changes_nothing_and_shows_no_internals(void **state)
{
    (void)state;
    fails("{{ x.append(1) }}", "{\"x\": []}", TEMPLATE_FAULT_SECURITY, "append");
    fails("{{ x.clear() }}", "{\"x\": {}}", TEMPLATE_FAULT_SECURITY, "clear");
    fails("{{ x.__class__.__mro__ }}", "{\"x\": 1}", TEMPLATE_FAULT_SECURITY, "__class__");
    fails("{{ '{0.__class__.__mro__}'.format(x) }}", "{\"x\": 1}", TEMPLATE_FAULT_SECURITY,
          "__class__");
    fails("{{ range }}", "{}", TEMPLATE_FAULT_TYPE, "cannot be printed");
}

static void exceeds(const char *source, const char *variables, template_limits limits)
{
    template_output output = { 0 };
    status code = render(source, variables, &limits, &output);
    if (code != STATUS_TOO_LARGE)
        fail_msg("%s: %s, %s", source, status_name(code), failure.text);
    assert_int_equal(output.fault, TEMPLATE_FAULT_LIMIT);
    assert_int_equal(output.text.size, 0);
    template_output_close(&output);
}

static void nothing_runs_without_bound(void **state)
{
    (void)state;
    template_limits few_steps = { .steps = 300 * 1000 }; // the others as they are
    static const char *const endless[] = {
        "{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}",
        "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
        "{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}",
        "{% set ns = namespace() %}{% set ns.a = ns %}{{ ns }}",
        "{% set ns = namespace(a=[1]) %}{% for i in range(700) %}{% set ns.a = [ns.a] %}{% endfor "
        "%}"
        "{{ ns.a }}",
        "{% set ns = namespace(a=[1]) %}{% for i in range(700) %}{% set ns.a = [ns.a] %}{% endfor "
        "%}"
        "{{ ns.a == [ns.a] }}",
        "{% set ns = namespace(s='x') %}{% for i in range(64) %}{% set ns.s = ns.s + ns.s %}"
        "{% endfor %}",
        "{{ 'ab' * 1000000000000 }}",
        "{{ [1] * 1000000000000 }}",
        "{{ ''.ljust(1000000000000) }}",
        "{{ x.center(99999999999) }}",
        "{{ '%99999d' % 1 }}{% for i in range(100) %}{{ ('%99999d' % 1) * 10 }}{% endfor %}",
        "{% set ns = namespace(l=[1]) %}{% for i in range(64) %}{% set ns.l = ns.l + ns.l %}"
        "{% endfor %}",
        "{% for i in range(100000) %}{{ (x * 100000).count('y') }}{% endfor %}",
        "{% for i in range(100000) %}{{ (x * 100000).rfind('yx') }}{% endfor %}",
        "{% for i in range(100000) %}{{ x * 100000 == x * 100000 }}{% endfor %}",
        "{% set l = range(100000)|list %}{% for i in l %}{{ -1 in l }}{% endfor %}",
        "{{ (x * 1000000)|list|length }}",
        "{{ [1]|slice(100000000)|list }}",
    };
    for (size_t i = 0; i < sizeof endless / sizeof *endless; i++)
        exceeds(endless[i], "{\"x\": \"abc\"}", few_steps);
}

static void each_limit_can_be_set(void **state)
{
    (void)state;
    exceeds("{% for i in range(100) %}{% endfor %}", "{}", (template_limits){ .steps = 50 });
    exceeds("{{ ((((((1 + 1) + 1) + 1) + 1) + 1) + 1) }}", "{}", (template_limits){ .depth = 5 });
    exceeds("{{ x }}", "{\"x\": [[[[[[1]]]]]]}", (template_limits){ .depth = 5 });
    exceeds("0123456789", "{}", (template_limits){ .output_bytes = 9 });
    exceeds("{{ x|length }}", "{\"x\": [1, 2, 3, 4]}", (template_limits){ .items = 3 });
    exceeds("{{ x * 100000 }}", "{\"x\": \"a\"}", (template_limits){ .memory_bytes = 70000 });
    template_output output = { 0 };
    assert_int_equal(render("0123456789", "{}", &(template_limits){ .output_bytes = 10 }, &output),
                     STATUS_OK);
    template_output_close(&output);
}

static void deep_sources_are_refused(void **state)
{
    (void)state;
    static const char *const pieces[] = { "(",  "[",  "{1:",        "-",           "not ",
                                          "x(", "x[", "{% if x %}", "1 if 1 else " };
    for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++) {
        buffer source = { 0 };
        template *opened = NULL;
        bool tag = pieces[i][0] == '{' && pieces[i][1] == '%';
        if (!tag)
            buffer_append_text(&source, "{{ ");
        for (int k = 0; k < 100000 && source.size < 900000; k++)
            buffer_append_text(&source, pieces[i]);
        assert_int_not_equal(template_open(buffer_slice(&source), &opened, &failure), STATUS_OK);
        assert_null(opened);
        buffer_close(&source);
    }
}

// --- origin: m for markup, c for content, one letter per byte of output ---

static void originates(const char *source, const char *variables, const char *text,
                       const char *letters)
{
    template_output output = { 0 };
    char got[256] = { 0 };
    size_t end = 0;
    if (render(source, variables, NULL, &output) != STATUS_OK)
        fail_msg("%s: %s", source, failure.text);
    assert_string_equal(output.text.data, text);
    for (size_t i = 0; i < output.segment_count; i++) {
        const template_segment *s = &output.segments[i];
        assert_int_equal(s->offset, end);
        assert_true(s->size > 0 && (i == 0 || s->from_template != s[-1].from_template));
        end += s->size;
        assert_true(end < sizeof got);
        memset(got + s->offset, s->from_template ? 'm' : 'c', s->size);
    }
    assert_int_equal(end, output.text.size);
    if (strcmp(got, letters) != 0)
        fail_msg("%s: %s has origin %s, not %s", source, text, got, letters);
    template_output_close(&output);
}

static void origin_follows_every_character(void **state)
{
    (void)state;
    const char *v = "{\"x\": \"ab\", \"e\": \" q \", \"l\": [\"p\", \"r\"], \"d\": {\"k\": \"v\"}}";
    originates("<{{ x }}>", v, "<ab>", "mccm");
    originates("{{ '<' + x + '>' }}", v, "<ab>", "mccm");
    originates("{{ '<' ~ x ~ '>' }}", v, "<ab>", "mccm");
    originates("{{ ('<' ~ x ~ '>')[1:3] }}", v, "ab", "cc");
    originates("{{ ('<' ~ x ~ '>')[::-1] }}", v, ">ba<", "mccm");
    originates("{{ ('<' ~ x ~ '>')|upper }}", v, "<AB>", "mccm");
    originates("{{ ('<' ~ x ~ '>').replace('a', 'zz') }}", v, "<zzb>", "mmmcm");
    originates("{{ '<a>'.replace('a', x) }}", v, "<ab>", "mccm");
    originates("<{{ e|trim }}>", v, "<q>", "mcm");
    originates("{{ (e ~ '|').strip() }}", v, "q |", "ccm");
    originates("{{ l|join('-') }}", v, "p-r", "cmc");
    originates("{{ '-'.join(l) }}", v, "p-r", "cmc");
    originates("{{ ('<' ~ x).split('a')[1] }}", v, "b", "c");
    originates("{% for c in '<' ~ x %}{{ c }}{% endfor %}", v, "<ab", "mcc");
    originates("{{ d.k }}{{ d['k'] }}{{ d.get('k') }}{{ d.values()|first }}", v, "vvvv", "cccc");
    originates("{{ d.keys()|first }}{% for k, w in d.items() %}{{ k }}{% endfor %}", v, "kk", "cc");
    originates("{% set y %}<{{ x }}>{% endset %}{{ y }}", v, "<ab>", "mccm");
    originates("{% set n = namespace(s='<') %}{% set n.s = n.s + x %}{{ n.s }}", v, "<ab", "mcc");
    originates("{% macro f(a) %}<{{ a }}{{ caller() }}{% endmacro %}{% call f(x) %}>{% endcall %}",
               v, "<ab>", "mccm");
    originates("{% filter upper %}<{{ x }}>{% endfilter %}", v, "<AB>", "mccm");
    originates("{{ x|tojson }}{{ '%s<' % x }}{{ '{}<'.format(x) }}", v, "\"ab\"ab<ab<",
               "ccccccmccm");
    originates("{{ x|default('d') }}{{ y|default('d') }}{{ x|indent }}", v, "abdab", "ccmcc");
    originates("{{ x|e }}{{ x|string }}{{ x|list|last }}{{ x|last }}{{ 7 }}", v,
               "abab"
               "bb7",
               "ccccccc");
    originates("{{ x if x == 'ab' else 'no' }}{{ 'ab' if x }}{{ x or 'ab' }}", v, "ababab",
               "ccmmcc");
}

static void chosen_variables_count_as_markup(void **state)
{
    (void)state;
    template *opened = open_text("{{ a }}{{ b }}{{ l[0] }}");
    template_output output = { 0 };
    json_t *text = json_string("<s>");
    json_t *markup = json_pack("[O]", text);
    json_t *variables = json_pack("{s:O, s:s, s:[O]}", "a", text, "b", "<s>", "l", text);
    template_context context = { .variables = variables, .markup = markup };
    assert_int_equal(template_render(opened, &context, NULL, &output, &failure), STATUS_OK);
    assert_string_equal(output.text.data, "<s><s><s>");
    assert_int_equal(output.segment_count, 3); // b is an equal text, but not the same value
    assert_true(output.segments[0].from_template && !output.segments[1].from_template);
    template_output_close(&output);
    template_close(opened);
    json_decref(text);
    json_decref(markup);
    json_decref(variables);
}

static void text_may_hold_any_character(void **state)
{
    (void)state;
    template_output output = { 0 };
    assert_int_equal(render("[{{ x }}{{ x|length }}]", "{\"x\": \"a\\u0000b\"}", NULL, &output),
                     STATUS_OK);
    assert_memory_equal(output.text.data, "[a\0b3]", 6);
    template_output_close(&output);
    gives("{{ x[1] }}{{ x[-1] }}{{ x|length }}", "{\"x\": \"a😀é\"}", "😀é3");
    gives("{{ x }}", "{\"x\": \"{{ 7*7 }}{% if %}{# c #}\"}", "{{ 7*7 }}{% if %}{# c #}");
}

static void b042_the_date_comes_from_the_caller(void **state)
{
    (void)state;
    gives("{{ strftime_now('%Y-%m-%d %H:%M:%S|%f|%Z|%%') }}", "{}",
          "2023-11-14 22:13:20|000000||%");
    gives("{{ strftime_now('') }}", "{}", "");
}

static void an_output_can_be_used_again(void **state)
{
    (void)state;
    template_output output = { 0 };
    assert_int_equal(render("{{ x }}{{ 'a' }}", "{\"x\": \"long enough\"}", NULL, &output),
                     STATUS_OK);
    assert_int_not_equal(render("a{{ x.y.z }}", "{}", NULL, &output), STATUS_OK);
    assert_int_equal(output.text.size, 0);
    assert_int_equal(render("b", "{}", NULL, &output), STATUS_OK);
    assert_string_equal(output.text.data, "b");
    assert_int_equal(output.segment_count, 1);
    assert_int_equal(output.fault, TEMPLATE_FAULT_NONE);
    template_output_close(&output);
}

static void a_template_says_what_it_mentions(void **state)
{
    (void)state;
    template *opened = open_text("{{ m['tool_calls'] }}{{ tools }}{{ x.developer }}{# hidden #}");
    assert_true(template_mentions(opened, "tool_calls") && template_mentions(opened, "tools") &&
                template_mentions(opened, "developer"));
    assert_false(template_mentions(opened, "hidden") || template_mentions(opened, "tool"));
    template_close(opened);
}

typedef struct shared_render {
    const template *opened;
    int number;
} shared_render;

static void *render_often(void *argument)
{
    const shared_render *what = argument;
    template_output output = { 0 };
    char wanted[64];
    for (int i = 0; i < 200; i++) {
        json_t *variables = json_pack("{s:i, s:[i, i]}", "n", what->number, "l", i, what->number);
        template_context context = { .variables = variables };
        snprintf(wanted, sizeof wanted, "<%d>%d,%d,%d", what->number, i, what->number, i);
        status code = template_render(what->opened, &context, NULL, &output, NULL);
        json_decref(variables);
        if (code != STATUS_OK || strcmp(output.text.data, wanted) != 0)
            return "wrong";
    }
    template_output_close(&output);
    return NULL;
}

static void threads_may_share_a_template(void **state)
{
    (void)state;
    template *opened = open_text("{% macro f(x) %}<{{ x }}>{% endmacro %}{{ f(n) }}"
                                 "{% for x in l %}{{ x }},{% endfor %}{{ l[0] }}");
    pthread_t threads[4];
    shared_render whats[4];
    for (int i = 0; i < 4; i++) {
        whats[i] = (shared_render){ opened, i };
        assert_int_equal(pthread_create(&threads[i], NULL, render_often, &whats[i]), 0);
    }
    for (int i = 0; i < 4; i++) {
        void *result;
        pthread_join(threads[i], &result);
        assert_null(result);
    }
    template_close(opened);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(b042_errors_of_syntax_name_the_line),
        cmocka_unit_test(errors_of_a_render_name_the_line),
        cmocka_unit_test(raise_exception_gives_its_message_as_it_is),
        cmocka_unit_test(the_sandbox_changes_nothing_and_shows_no_internals),
        cmocka_unit_test(nothing_runs_without_bound),
        cmocka_unit_test(each_limit_can_be_set),
        cmocka_unit_test(deep_sources_are_refused),
        cmocka_unit_test(origin_follows_every_character),
        cmocka_unit_test(chosen_variables_count_as_markup),
        cmocka_unit_test(text_may_hold_any_character),
        cmocka_unit_test(b042_the_date_comes_from_the_caller),
        cmocka_unit_test(an_output_can_be_used_again),
        cmocka_unit_test(a_template_says_what_it_mentions),
        cmocka_unit_test(threads_may_share_a_template),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
