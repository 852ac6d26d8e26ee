// Where each family cuts, and that the one-pattern form
// of SmolLM2's two steps is what the two steps give.
#include "text/pretokenizer.h"

#include "text/unicode.h"

#include "base/random.h"
#include "harness/seed.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <setjmp.h>
#include <cmocka.h>

// The pieces joined by '|'.
static void cut(const pretokenizer *p, slice text, buffer *out)
{
    pretokenizer_work *work;
    assert_int_equal(pretokenizer_work_open(p, &work), STATUS_OK);
    for (size_t begin = 0, end; begin < text.size; begin = end) {
        assert_int_equal(pretokenizer_next(p, work, text, begin, &end), STATUS_OK);
        assert_true(end > begin && end <= text.size);
        if (begin > 0)
            buffer_append_byte(out, '|');
        buffer_append(out, text.data + begin, end - begin);
    }
    pretokenizer_work_close(work);
}

static void cuts(const char *family, const char *text, const char *expected)
{
    pretokenizer *p;
    error failure;
    buffer out = { 0 };
    assert_int_equal(pretokenizer_open(slice_of(family), &p, &failure), STATUS_OK);
    cut(p, slice_of(text), &out);
    assert_string_equal(out.data, expected);
    buffer_close(&out);
    pretokenizer_close(p);
}

static void b036_families_cut_as_published(void **state)
{
    (void)state;
    cuts("gpt-2", "It's 2024,  isn't IT'S", "It|'s| 2024|,| | isn|'t| IT|'|S");
    cuts("gpt-2", "a  \n b", "a|  \n| b");
    cuts("gpt-2", "end   ", "end|   ");
    cuts("smollm", "It's 2024", "It|'s| |2|0|2|4");
    cuts("smollm", "a  5  b", "a|  |5| | b");
    cuts("llama3", "It'S 12345\n\nx =  y", "It|'S| |123|45|\n\n|x| =| | y");
    cuts("llama-bpe", "(word) \r\n", "(word|)| \r\n");
    cuts("qwen2", "It'S 123", "It|'S| |1|2|3");
    // U+0085 is a space and U+180E is none.
    cuts("gpt-2",
         "a\xc2\x85"
         "b",
         "a|\xc2\x85|b");
    cuts("gpt-2",
         "a \xe1\xa0\x8e"
         "b",
         "a| \xe1\xa0\x8e|b");
}

static void b036_names_without_a_row_are_refused(void **state)
{
    (void)state;
    pretokenizer *p = NULL;
    error failure = { 0 };
    assert_int_equal(pretokenizer_open(SLICE("default"), &p, &failure), STATUS_UNSUPPORTED);
    assert_string_equal(failure.text, "tokenizer.ggml.pre is \"default\", which is not supported; "
                                      "known are gpt-2, smollm, llama-bpe, qwen2");
    assert_string_equal(failure.param, "tokenizer.ggml.pre");
    assert_int_equal(pretokenizer_open(SLICE("gpt-2\0"), &p, &failure), STATUS_UNSUPPORTED);
    assert_null(p);
}

// Step one: every digit (ASCII here, and one of another
// script) stands alone; step two: GPT-2 on each rest.
static void two_steps(const pretokenizer *gpt2, slice text, buffer *out)
{
    size_t begin = 0;
    for (size_t at = 0; at <= text.size;) {
        size_t digit = 0;
        if (at < text.size && text.data[at] >= '0' && text.data[at] <= '9')
            digit = 1;
        else if (text.size - at >= 2 && memcmp(text.data + at, "\xd9\xa3", 2) == 0)
            digit = 2;
        if (digit == 0 && at < text.size) {
            at++;
            continue;
        }
        if (at > begin) {
            if (out->size > 0)
                buffer_append_byte(out, '|');
            cut(gpt2, (slice){ text.data + begin, at - begin }, out);
        }
        if (digit == 0)
            return;
        if (out->size > 0)
            buffer_append_byte(out, '|');
        buffer_append(out, text.data + at, digit);
        at += digit;
        begin = at;
    }
}

static void smollm_equals_digits_first_then_gpt2(void **state)
{
    (void)state;
    static const char *const parts[] = { " ",        "  ", "\n", "a",  "'s",
                                         "'",        "7",  "12", ".",  "\xc3\xa9",
                                         "\xd9\xa3", "re", "!",  "\t", "\xc2\xa0" };
    uint64_t seed = seed_choose(), turn = 0;
    pretokenizer *smollm, *gpt2;
    error failure;
    assert_int_equal(pretokenizer_open(SLICE("smollm"), &smollm, &failure), STATUS_OK);
    assert_int_equal(pretokenizer_open(SLICE("gpt-2"), &gpt2, &failure), STATUS_OK);
    for (int round = 0; round < 4000; round++) {
        buffer text = { 0 }, one = { 0 }, two = { 0 };
        size_t count = random_mix(seed + turn++) % 14;
        for (size_t i = 0; i < count; i++)
            buffer_append_text(&text, parts[random_mix(seed + turn++) % 15]);
        cut(smollm, buffer_slice(&text), &one);
        two_steps(gpt2, buffer_slice(&text), &two);
        assert_string_equal(one.data ? one.data : "", two.data ? two.data : "");
        buffer_close(&text);
        buffer_close(&one);
        buffer_close(&two);
    }
    pretokenizer_close(smollm);
    pretokenizer_close(gpt2);
}

// Neither the matcher's stack nor its limits depend on the length of a piece.
static void b030_long_runs_are_cut_by_every_family(void **state)
{
    (void)state;
    static const char *const families[] = { "gpt-2", "smollm", "llama-bpe", "qwen2" };
    static const char *const units[] = { "a",   " ",        "\n",           "!", "7",
                                         " \n", "\xc2\xa0", "\xe3\x81\x82", "'s" };
    for (size_t f = 0; f < 4; f++) {
        pretokenizer *p;
        error failure;
        assert_int_equal(pretokenizer_open(slice_of(families[f]), &p, &failure), STATUS_OK);
        for (size_t u = 0; u < sizeof(units) / sizeof(units[0]); u++) {
            buffer text = { 0 }, out = { 0 };
            for (int i = 0; i < 200000; i++)
                buffer_append_text(&text, units[u]);
            buffer_append_text(&text, "x");
            cut(p, buffer_slice(&text), &out);
            assert_true(out.size >= text.size);
            buffer_close(&text);
            buffer_close(&out);
        }
        pretokenizer_close(p);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(b036_families_cut_as_published),
        cmocka_unit_test(b036_names_without_a_row_are_refused),
        cmocka_unit_test(smollm_equals_digits_first_then_gpt2),
        cmocka_unit_test(b030_long_runs_are_cut_by_every_family),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
