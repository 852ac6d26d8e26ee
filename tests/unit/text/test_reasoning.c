// Blocks of thought in front of an answer, and that cuts of the text change nothing.
#include "text/reasoning.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <setjmp.h>
#include <cmocka.h>

static void gives(bool opened, const char *source, const char *thought, const char *content)
{
    slice text = slice_of(source);
    for (size_t piece = 1; piece <= text.size + 1; piece++) {
        reasoning r;
        buffer thoughts = { 0 }, contents = { 0 };
        reasoning_begin(&r, opened);
        for (size_t at = 0; at < text.size; at += piece) {
            slice part = { text.data + at, text.size - at < piece ? text.size - at : piece };
            assert_true(reasoning_push(&r, part, &thoughts, &contents));
        }
        assert_true(reasoning_end(&r, &thoughts, &contents));
        assert_string_equal(buffer_slice(&thoughts).data, thought);
        assert_string_equal(buffer_slice(&contents).data, content);
        reasoning_close(&r);
        buffer_close(&thoughts);
        buffer_close(&contents);
    }
}

static void a_block_in_front_is_told_apart(void **state)
{
    (void)state;
    gives(false, "<think>\nLet me see.\n</think>\n\nYes.", "Let me see.", "Yes.");
    gives(false, "\n <think>a\n\nb</think>c", "a\n\nb", "c");
    gives(false, "<think>\n\n</think>\n\nYes.", "", "Yes.");
    gives(false, "<think>a < b </ c </thin </think>d", "a < b </ c </thin", "d");
    gives(false, "<think>a</think>b <think>c</think>", "a", "b <think>c</think>");
    gives(false, "<think>never closed </thi", "never closed </thi", "");
}

static void an_answer_without_a_block_stays_as_it_is(void **state)
{
    (void)state;
    gives(false, "", "", "");
    gives(false, "  Yes. ", "", "  Yes. ");
}

static void a_block_that_the_prompt_opened_goes_on(void **state)
{
    (void)state;
    gives(true, "\nfirst</think>\nthen", "first", "then");
    gives(true, "", "", "");
    gives(true, "only thought", "only thought", "");
}

static void a_prompt_tells_whether_it_is_open(void **state)
{
    (void)state;
    assert_true(reasoning_is_open(SLICE("<think>")));
    assert_true(reasoning_is_open(SLICE("<think>a</think> <think>\n")));
    assert_false(reasoning_is_open(SLICE("<think>\n\n</think>\n\n")));
    assert_false(reasoning_is_open(SLICE("")));
    assert_true(reasoning_in_template(SLICE("{{ m.split('</think>')[-1] }}")));
    assert_false(reasoning_in_template(SLICE("{{ m }}")));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_block_in_front_is_told_apart),
        cmocka_unit_test(an_answer_without_a_block_stays_as_it_is),
        cmocka_unit_test(a_block_that_the_prompt_opened_goes_on),
        cmocka_unit_test(a_prompt_tells_whether_it_is_open),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
