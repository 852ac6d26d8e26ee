// Calls in answers: every format, whole and malformed, and every cut of the text gives the same.
//
// What comes out is written down as text, with (name: at the beginning of a call, ) at its end and
// (!) where a call is taken back.
#include "text/tool_calls.h"

#include "base/random.h"
#include "harness/seed.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <setjmp.h>
#include <cmocka.h>

typedef struct transcript {
    buffer text;
    size_t begun;
} transcript;

static void note(void *context, const tool_event *event)
{
    transcript *t = context;
    switch (event->kind) {
    case TOOL_EVENT_CALL:
        assert_int_equal(event->call, t->begun++);
        buffer_append_byte(&t->text, '(');
        buffer_append_slice(&t->text, event->text);
        buffer_append_byte(&t->text, ':');
        break;
    case TOOL_EVENT_END:
        buffer_append_byte(&t->text, ')');
        break;
    case TOOL_EVENT_BROKEN:
        buffer_append_text(&t->text, "(!)");
        break;
    default:
        assert_true(event->text.size > 0);
        buffer_append_slice(&t->text, event->text);
    }
    if (event->kind != TOOL_EVENT_TEXT)
        assert_int_equal(event->call, t->begun - 1);
}

static const slice names[] = { { "f", 1 }, { "get_weather", 11 } };

// `cuts`: a bit for each place behind a byte where a push ends; the last one repeats.
static void read_cut(tool_format format, slice source, uint64_t cuts, transcript *t)
{
    tool_parser *p = tool_parser_open(format, names, 2, note, t);
    size_t from = 0;
    assert_non_null(p);
    for (size_t i = 0; i < source.size; i++) {
        if (!(cuts >> (i % 64) & 1) && i + 1 < source.size)
            continue;
        assert_true(tool_parser_push(p, (slice){ source.data + from, i + 1 - from }));
        from = i + 1;
    }
    assert_true(tool_parser_end(p));
    tool_parser_close(p);
}

static void same_however_cut(tool_format format, slice source, const char *expected)
{
    uint64_t seed = 0x7001ca11;
    for (int round = 0; round < 40; round++) {
        transcript t = { 0 };
        uint64_t cuts = round == 0 ? 0 : round == 1 ? ~(uint64_t)0 : random_mix(seed + round);
        if (round > 20)
            cuts &= random_mix(cuts);
        read_cut(format, source, cuts, &t);
        slice got = buffer_slice(&t.text);
        if (!slice_equal(got, slice_of(expected)))
            fail_msg("%.*s\ncut by %llx gives\n%.*s, not\n%s", (int)source.size, source.data,
                     (unsigned long long)cuts, (int)got.size, got.data, expected);
        buffer_close(&t.text);
    }
}

// The same in two pieces, at every place.
static void same_at_every_split(tool_format format, slice source, const char *expected)
{
    for (size_t at = 1; at < source.size; at++) {
        transcript t = { 0 };
        tool_parser *p = tool_parser_open(format, names, 2, note, &t);
        assert_true(tool_parser_push(p, (slice){ source.data, at }));
        assert_true(tool_parser_push(p, (slice){ source.data + at, source.size - at }));
        assert_true(tool_parser_end(p));
        tool_parser_close(p);
        assert_string_equal(t.text.data ? t.text.data : "", expected);
        buffer_close(&t.text);
    }
}

typedef struct sample {
    const char *source, *expected;
} sample;

static void check(tool_format format, const sample *samples, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        same_however_cut(format, slice_of(samples[i].source), samples[i].expected);
        same_at_every_split(format, slice_of(samples[i].source), samples[i].expected);
    }
}
#define CHECK_ALL(format, samples) check(format, samples, sizeof(samples) / sizeof *(samples))

static void hermes_calls_are_found(void **state)
{
    (void)state;
    static const sample samples[] = {
        { "", "" },
        { "plain text, < and <tool and </tool_call>", "plain text, < and <tool and </tool_call>" },
        { "  kept  ", "  kept  " },
        { "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1}}\n</tool_call>",
          "(f:{\"a\": 1})" },
        { "<tool_call>{\"name\":\"f\",\"arguments\":{}}</tool_call>", "(f:{})" },
        { "Let me look.\n\n<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>\n",
          "Let me look.(f:{})" },
        // several, with and without white space between
        { "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": [1, {\"b\": null}]}}</tool_call>\n"
          "<tool_call>{\"name\": \"get_weather\", \"arguments\": {\"x\": -1.5e+3}}</tool_call>"
          "<tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>",
          "(f:{\"a\": [1, {\"b\": null}]})(get_weather:{\"x\": -1.5e+3})(f:{})" },
        // braces, quotes, marks and other scripts inside strings
        { "<tool_call>{\"name\": \"f\", \"arguments\": {\"s\": \"}{ \\\" \\\\ </tool_call> \\u00e9 "
          "\xe5\xa4\xa9\"}}</tool_call>",
          "(f:{\"s\": \"}{ \\\" \\\\ </tool_call> \\u00e9 \xe5\xa4\xa9\"})" },
        // arguments in front of the name, in a string, missing; a name in escapes; other members
        { "<tool_call>{\"arguments\": {\"a\": {}}, \"name\": \"f\"}</tool_call>",
          "(f:{\"a\": {}})" },
        { "<tool_call>{\"name\": \"f\", \"arguments\": \"{\\\"a\\\": \\\"\\\\n\\\"}\"}</tool_call>",
          "(f:{\"a\": \"\\n\"})" },
        { "<tool_call>{\"name\": \"f\"}</tool_call>", "(f:{})" },
        { "<tool_call>{\"name\": \"\\u0066\", \"arguments\": {}}</tool_call>", "(f:{})" },
        { "<tool_call>{\"id\": [1, {\"name\": 2}], \"name\": \"f\", \"arguments\": {}, \"type\": "
          "true}"
          "</tool_call>",
          "(f:{})" },
        // the closing mark may be missing, and text may follow
        { "<tool_call>{\"name\": \"f\", \"arguments\": {}}", "(f:{})" },
        { "<tool_call>{\"name\": \"f\", \"arguments\": {}} and now", "(f:{})and now" },
        { "<tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call> and now", "(f:{})and now" },
        { "<tool_call>{\"name\": \"f\", \"arguments\": {}}</tool", "(f:{})</tool" },
        { "<<tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>", "<(f:{})" },
    };
    CHECK_ALL(TOOL_FORMAT_HERMES, samples);
}

static void malformed_calls_are_text_and_nothing_is_lost(void **state)
{
    (void)state;
    static const sample samples[] = {
        { "a <tool_call", "a <tool_call" },
        { "a <tool_call>", "a <tool_call>" },
        { "a <tool_call> b", "a <tool_call> b" },
        { "a <tool_call>[]</tool_call>", "a <tool_call>[]</tool_call>" },
        { "<tool_call>{}</tool_call>", "<tool_call>{}</tool_call>" },
        { "<tool_call>{\"name\": \"unknown\", \"arguments\": {}}</tool_call>",
          "<tool_call>{\"name\": \"unknown\", \"arguments\": {}}</tool_call>" },
        { "<tool_call>{\"name\": 7, \"arguments\": {}}</tool_call>",
          "<tool_call>{\"name\": 7, \"arguments\": {}}</tool_call>" },
        { "<tool_call>{\"arguments\": {\"a\": 1}}</tool_call>",
          "<tool_call>{\"arguments\": {\"a\": 1}}</tool_call>" },
        { "<tool_call>{\"name\": \"f\", \"arguments\": [1]}</tool_call>",
          "<tool_call>{\"name\": \"f\", \"arguments\": [1]}</tool_call>" },
        { "<tool_call>{\"name\": \"f\", \"arguments\": \"no\"}</tool_call>",
          "<tool_call>{\"name\": \"f\", \"arguments\": \"no\"}</tool_call>" },
        { "<tool_call>{\"name\": \"f\", \"name\": \"f\"}",
          "<tool_call>{\"name\": \"f\", \"name\": \"f\"}" },
        // what was told already is taken back
        { "x <tool_call>{\"name\": \"f\", \"arguments\": {\"a\": }}</tool_call> y",
          "x(f:{\"a\": (!) <tool_call>{\"name\": \"f\", \"arguments\": {\"a\": }}</tool_call> y" },
        { "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": 01}}",
          "(f:{\"a\": 0(!)<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": 01}}" },
        { "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": \"\n\"}}",
          "(f:{\"a\": \"(!)<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": \"\n\"}}" },
        { "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": 1}",
          "(f:{\"a\": 1}(!)<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": 1}" },
        { "<tool_call>{\"name\": \"f\", \"arguments\": {\"a",
          "(f:{\"a(!)<tool_call>{\"name\": \"f\", \"arguments\": {\"a" },
        // a good call behind a bad one, and inside it
        { "<tool_call>no</tool_call>\n<tool_call>{\"name\": \"f\"}</tool_call>",
          "<tool_call>no</tool_call>(f:{})" },
        { "<tool_call>{\"name\": <tool_call>{\"name\": \"f\"}</tool_call>",
          "<tool_call>{\"name\": (f:{})" },
        { "<tool_call><tool_call>{\"name\": \"f\"}</tool_call>", "<tool_call>(f:{})" },
    };
    CHECK_ALL(TOOL_FORMAT_HERMES, samples);
}

static void llama3_calls_are_found(void **state)
{
    (void)state;
    static const sample samples[] = {
        { "{\"name\": \"f\", \"parameters\": {\"a\": \"b\"}}", "(f:{\"a\": \"b\"})" },
        { "\n {\"name\": \"f\", \"parameters\": {}}\n", "(f:{})" },
        { "<|python_tag|>{\"name\": \"f\", \"parameters\": {}}", "(f:{})" },
        { "{\"type\": \"function\", \"name\": \"f\", \"parameters\": {}}", "(f:{})" },
        { "{\"name\": \"f\", \"parameters\": {}}; {\"name\": \"get_weather\", \"parameters\": {}}",
          "(f:{})(get_weather:{})" },
        { "<|python_tag|>{\"name\": \"f\", \"parameters\": {}}; {\"name\": \"f\", \"parameters\": "
          "{}}",
          "(f:{})(f:{})" },
        { "{\"name\": \"f\", \"parameters\": {}}\n{\"name\": \"f\", \"parameters\": {}}",
          "(f:{})(f:{})" },
        { "Sure. <|python_tag|>{\"name\": \"f\", \"parameters\": {}}", "Sure.(f:{})" },
        // no calls: other objects, and objects behind text
        { "{\"name\": \"f\"}", "{\"name\": \"f\"}" },
        { "{\"name\": \"Bob\", \"parameters\": {}}", "{\"name\": \"Bob\", \"parameters\": {}}" },
        { "{\"name\": \"f\", \"age\": 3}", "{\"name\": \"f\", \"age\": 3}" },
        { " {\"a\": [1]} {", " {\"a\": [1]} {" },
        { "{\"name\": \"f\", \"parameters\": {}", "(f:{}(!){\"name\": \"f\", \"parameters\": {}" },
        { "see {\"name\": \"f\", \"parameters\": {}}",
          "see {\"name\": \"f\", \"parameters\": {}}" },
        { "{\"name\": \"f\", \"parameters\": {}}; and more", "(f:{}); and more" },
        { "{\"name\": \"f\", \"parameters\": {}};", "(f:{});" },
        { "[{\"name\": \"f\"}]", "[{\"name\": \"f\"}]" },
        { "<|python_tag|>print(1)", "<|python_tag|>print(1)" },
    };
    CHECK_ALL(TOOL_FORMAT_LLAMA3, samples);
}

static void mistral_calls_are_found(void **state)
{
    (void)state;
    static const sample samples[] = {
        { "[TOOL_CALLS][{\"name\": \"f\", \"arguments\": {\"a\": [[]]}}]", "(f:{\"a\": [[]]})" },
        { "[TOOL_CALLS] [ {\"name\": \"f\", \"arguments\": {}, \"id\": \"abcdefghi\"} , "
          "{\"name\": \"get_weather\", \"arguments\": {}} ]",
          "(f:{})(get_weather:{})" },
        { "Hm. [TOOL_CALLS][{\"name\": \"f\", \"arguments\": {}}]", "Hm.(f:{})" },
        { "[TOOL_CALLS]{\"name\": \"f\", \"arguments\": {}}", "(f:{})" },
        { "[TOOL_CALLS][{\"name\": \"f\", \"arguments\": {}}", "(f:{})" },
        { "[TOOL_CALLS][{\"name\": \"f\", \"arguments\": {}}, oops", "(f:{}), oops" },
        { "[TOOL_CALLS][{\"name\": \"f\", \"arguments\": {}}] bye", "(f:{})bye" },
        { "[TOOL_CALLS][]", "[TOOL_CALLS][]" },
        { "[TOOL_CALLS][[", "[TOOL_CALLS][[" },
        { "[TOOL] {\"name\": \"f\"}", "[TOOL] {\"name\": \"f\"}" },
    };
    CHECK_ALL(TOOL_FORMAT_MISTRAL, samples);
}

static void gemma_calls_are_found(void **state)
{
    (void)state;
    static const sample samples[] = {
        { "```tool_code\n{\"name\": \"f\", \"parameters\": {\"a\": 1}}\n```", "(f:{\"a\": 1})" },
        { "Yes.\n```tool_code\n[{\"name\": \"f\", \"parameters\": {}}, {\"name\": \"f\"}]\n```\n",
          "Yes.(f:{})(f:{})" },
        { "{\"name\": \"f\", \"parameters\": {}}", "(f:{})" },
        { "```tool_code\nprint(f(a=1))\n```", "```tool_code\nprint(f(a=1))\n```" },
        { "```python\nx\n```", "```python\nx\n```" },
    };
    CHECK_ALL(TOOL_FORMAT_GEMMA, samples);
}

static void without_a_format_everything_is_text(void **state)
{
    (void)state;
    static const sample samples[] = {
        { "<tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>",
          "<tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>" },
        { " a [TOOL_CALLS] {\"name\"", " a [TOOL_CALLS] {\"name\"" },
    };
    CHECK_ALL(TOOL_FORMAT_NONE, samples);
}

static void what_a_layout_spells_is_found_again(void **state)
{
    (void)state;
    for (int format = TOOL_FORMAT_HERMES; format < TOOL_FORMAT_COUNT; format++) {
        const tool_layout *l = tool_layout_of((tool_format)format);
        char text[600];
        for (int calls = 1; calls <= 3; calls++) {
            int size = snprintf(text, sizeof text, "%s", l->before_all);
            for (int i = 0; i < calls; i++)
                size += snprintf(text + size, sizeof text - (size_t)size,
                                 "%s%s\"f\"%s{\"a\": %d}%s", i ? l->between : "", l->before_name,
                                 l->before_arguments, i, l->after_arguments);
            snprintf(text + size, sizeof text - (size_t)size, "%s", l->after_all);
            const char *expected[] = { "(f:{\"a\": 0})", "(f:{\"a\": 0})(f:{\"a\": 1})",
                                       "(f:{\"a\": 0})(f:{\"a\": 1})(f:{\"a\": 2})" };
            same_at_every_split((tool_format)format, slice_of(text), expected[calls - 1]);
        }
    }
}

static void a_template_tells_its_format(void **state)
{
    (void)state;
    static const struct {
        const char *source;
        tool_format format;
    } rows[] = {
        { "", TOOL_FORMAT_NONE },
        { "{{ '<|im_start|>' }}", TOOL_FORMAT_NONE },
        { "within <tool_call></tool_call> tags", TOOL_FORMAT_HERMES },
        { "<tool_call>\n<function=f>", TOOL_FORMAT_NONE },
        { "{{ '[TOOL_CALLS] [' }}", TOOL_FORMAT_MISTRAL },
        { "{{ '<|python_tag|>' }}", TOOL_FORMAT_LLAMA3 },
        { "<|start_header_id|> {\"name\": function name, \"parameters\": ...}",
          TOOL_FORMAT_LLAMA3 },
        { "<|start_header_id|>", TOOL_FORMAT_NONE },
        { "<start_of_turn>user", TOOL_FORMAT_GEMMA },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        assert_int_equal(tool_format_detect(slice_of(rows[i].source)), rows[i].format);
    for (int i = 0; i < TOOL_FORMAT_COUNT; i++) {
        tool_format found = TOOL_FORMAT_COUNT;
        assert_true(tool_format_find(slice_of(tool_layout_of((tool_format)i)->name), &found));
        assert_int_equal(found, i);
    }
    tool_format found;
    assert_false(tool_format_find(SLICE("auto"), &found));
    assert_string_equal(tool_format_mark(TOOL_FORMAT_LLAMA3), "<|python_tag|>");
    assert_null(tool_format_mark(TOOL_FORMAT_HERMES));
}

// Texts made of pieces of the formats: whatever they are, cuts change nothing, and what is text or
// arguments is all there.
static void random_texts_do_not_depend_on_cuts(void **state)
{
    (void)state;
    static const char *const pieces[] = {
        "<tool_call>",
        "</tool_call>",
        "[TOOL_CALLS]",
        "<|python_tag|>",
        "```tool_code",
        "```",
        "{",
        "}",
        "[",
        "]",
        ",",
        ":",
        ";",
        " ",
        "\n",
        "\"name\"",
        "\"arguments\"",
        "\"parameters\"",
        "\"f\"",
        "\"",
        "\\",
        "1",
        "null",
        "x",
        "{\"name\": \"f\", \"arguments\": {\"a\": 1}}",
        "{\"name\": \"f\", \"parameters\": {}}",
        "<tool_",
        "\xc3\xa9",
    };
    uint64_t seed = seed_choose();
    for (int round = 0; round < 4000; round++) {
        buffer source = { 0 };
        uint64_t draw = random_mix(seed + (uint64_t)round);
        for (int i = 0; i < 1 + (int)(draw % 24); i++)
            buffer_append_text(
                &source, pieces[random_mix(draw + (uint64_t)i) % (sizeof pieces / sizeof *pieces)]);
        tool_format format = (tool_format)(draw >> 32) % TOOL_FORMAT_COUNT;
        transcript whole = { 0 };
        read_cut(format, buffer_slice(&source), 0, &whole);
        buffer_append_byte(&whole.text, 0);
        same_however_cut(format, buffer_slice(&source), whole.text.data);
        buffer_close(&whole.text);
        buffer_close(&source);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hermes_calls_are_found),
        cmocka_unit_test(malformed_calls_are_text_and_nothing_is_lost),
        cmocka_unit_test(llama3_calls_are_found),
        cmocka_unit_test(mistral_calls_are_found),
        cmocka_unit_test(gemma_calls_are_found),
        cmocka_unit_test(without_a_format_everything_is_text),
        cmocka_unit_test(what_a_layout_spells_is_found_again),
        cmocka_unit_test(a_template_tells_its_format),
        cmocka_unit_test(random_texts_do_not_depend_on_cuts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
