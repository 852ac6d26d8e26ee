// Question sets: what a good line becomes, and the sentence that a bad one gets; and the interval
// of a share of right answers.
#include "eval/choices.h"

#include <math.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <setjmp.h>
#include <cmocka.h>

static void slice_expect(slice s, const char *expected)
{
    if (!slice_equal(s, slice_of(expected)))
        fail_msg("'%.*s' is not '%s'", (int)s.size, s.data, expected);
}

static void a_question_is_framed_and_a_prompt_is_not(void **state)
{
    (void)state;
    question_list list;
    error failure;
    slice bytes = SLICE("{\"question\":\"Is it?\",\"choices\":[\"Yes\",\"No\"],\"answer\":1}\n"
                        "\n"
                        "{\"prompt\":\"2 + 2 =\",\"choices\":[\" 4\",\"5\",\"\\u00e9\"],"
                        "\"answer\":0,\"topic\":\"sums\"}\r\n");
    assert_int_equal(questions_read("set", bytes, &list, &failure), STATUS_OK);
    assert_int_equal(list.count, 2);
    slice_expect(list.items[0].prompt, "Question: Is it?\nAnswer:");
    slice_expect(list.items[0].choices[1], " No");
    assert_int_equal(list.items[0].answer, 1);
    assert_int_equal(list.items[1].line, 3);
    slice_expect(list.items[1].prompt, "2 + 2 =");
    slice_expect(list.items[1].choices[0], " 4");
    slice_expect(list.items[1].choices[2], "\xc3\xa9");
    assert_int_equal(list.items[1].choice_count, 3);
    questions_close(&list);
}

// A line behind a good one, and what is said.
static const char *const bad_lines[][2] = {
    { "{\"question\":\"a\"", "set:2: it is not JSON: " },
    { "[1]", "set:2: it must be a JSON object" },
    { "{\"choices\":[\"a\",\"b\"],\"answer\":0}",
      "set:2: it must have one of 'question' and 'prompt'" },
    { "{\"question\":\"a\",\"prompt\":\"a\",\"choices\":[\"a\",\"b\"],\"answer\":0}",
      "set:2: it must have one of 'question' and 'prompt'" },
    { "{\"question\":\"\",\"choices\":[\"a\",\"b\"],\"answer\":0}",
      "set:2: 'question' must be a string that is not empty" },
    { "{\"prompt\":7,\"choices\":[\"a\",\"b\"],\"answer\":0}",
      "set:2: 'prompt' must be a string that is not empty" },
    { "{\"question\":\"a\",\"answer\":0}", "set:2: 'choices' must be a list of 2 to 26 strings" },
    { "{\"question\":\"a\",\"choices\":[\"a\"],\"answer\":0}",
      "set:2: 'choices' must be a list of 2 to 26 strings" },
    { "{\"question\":\"a\",\"choices\":[\"a\",3],\"answer\":0}",
      "set:2: 'choices' item 1 must be a string that is not empty" },
    { "{\"question\":\"a\",\"choices\":[\"a\",\"b\"]}", "set:2: 'answer' must be a whole number" },
    { "{\"question\":\"a\",\"choices\":[\"a\",\"b\"],\"answer\":2}",
      "set:2: 'answer' must be a whole number from 0 to 1, " },
    { "{\"question\":\"a\",\"choices\":[\"a\",\"b\"],\"answer\":-1}",
      "set:2: 'answer' must be a whole number" },
    { "{\"question\":\"a\",\"choices\":[\"a\",\"b\"],\"answer\":true}",
      "set:2: 'answer' must be a whole number" },
    { "{\"question\":\"a\",\"choices\":[\"a\",\"b\"],\"answer\":0,\"answer\":1}",
      "set:2: it is not JSON: " },
    { "{\"question\":\"\xff\",\"choices\":[\"a\",\"b\"],\"answer\":0}", "set:2: it is not JSON: " },
};

static void a_bad_line_gets_its_place_and_the_field(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof bad_lines / sizeof bad_lines[0]; i++) {
        buffer text = { 0 };
        question_list list;
        error failure = { 0 };
        buffer_append_text(&text, "{\"question\":\"a\",\"choices\":[\"a\",\"b\"],\"answer\":0}\n");
        buffer_append_text(&text, bad_lines[i][0]);
        status result = questions_read("set", buffer_slice(&text), &list, &failure);
        if (result == STATUS_OK || strncmp(failure.text, bad_lines[i][1], strlen(bad_lines[i][1])))
            fail_msg("%s: %s", bad_lines[i][0], failure.text);
        buffer_close(&text);
    }
}

static void an_empty_set_is_refused(void **state)
{
    (void)state;
    question_list list;
    error failure;
    assert_int_equal(questions_read("set", SLICE(" \n\n"), &list, &failure), STATUS_INVALID);
    assert_string_equal(failure.text,
                        "set holds 0 questions; it must hold 1 to 100000, one a line");
}

// Values of Wilson's interval as published tables have them.
static void intervals_are_those_of_wilson(void **state)
{
    (void)state;
    choices_interval none = choices_wilson(0, 10), most = choices_wilson(8, 10);
    choices_interval half = choices_wilson(50, 100), all = choices_wilson(10, 10);
    assert_true(fabs(none.low) < 1e-12 && fabs(none.high - 0.27753) < 1e-5);
    assert_true(fabs(most.low - 0.49016) < 1e-5 && fabs(most.high - 0.94332) < 1e-5);
    assert_true(fabs(half.low - 0.40383) < 1e-5 && fabs(half.high - 0.59617) < 1e-5);
    assert_true(fabs(all.high - 1) < 1e-12 && fabs(all.low - 0.72247) < 1e-5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_question_is_framed_and_a_prompt_is_not),
        cmocka_unit_test(a_bad_line_gets_its_place_and_the_field),
        cmocka_unit_test(an_empty_set_is_refused),
        cmocka_unit_test(intervals_are_those_of_wilson),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
