// UTF-8 repair by the WHATWG rule and normal form C.
#include "text/unicode.h"

#include "base/random.h"
#include "harness/seed.h"

#include <utf8proc.h>

#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <setjmp.h>
#include <cmocka.h>
#include <stdlib.h>

#define R UNICODE_REPLACEMENT

static void repaired(slice bytes, const char *expected)
{
    buffer out = { 0 };
    unicode_append_valid(&out, bytes);
    assert_string_equal(out.data ? out.data : "", expected);
    assert_int_equal(unicode_valid_size(buffer_slice(&out)), out.size);
    buffer_close(&out);
}

static void each_maximal_ill_formed_part_becomes_one_replacement(void **state)
{
    (void)state;
    repaired(SLICE(""), "");
    repaired(SLICE("abc"), "abc");
    repaired(SLICE("a\xff"
                   "b"),
             "a" R "b");
    repaired(SLICE("\x80\x80"), R R);
    repaired(SLICE("\xc0\xaf"), R R);             // overlong
    repaired(SLICE("\xe0\x80\xaf"), R R R);       // overlong: the lead stands alone
    repaired(SLICE("\xed\xa0\x80"), R R R);       // surrogate
    repaired(SLICE("\xf4\x90\x80\x80"), R R R R); // past U+10FFFF
    repaired(SLICE("\xe2\x82"), R);               // cut off: one part
    repaired(SLICE("\xe2\x82"
                   "a"),
             R "a");
    repaired(SLICE("\xf0\x9f\x98"), R);
    repaired(SLICE("\xf0\x9f\x98\x80\xf0\x9f\x98z"), "\xf0\x9f\x98\x80" R "z");
    repaired(SLICE("\xf1\x80\xe2\x82\xac"), R "\xe2\x82\xac");
    repaired(SLICE("12345678\xc3\xa9"
                   "1234567\xc3"),
             "12345678\xc3\xa9"
             "1234567" R);
}

static void unfinished_parts_are_told_from_hopeless_ones(void **state)
{
    (void)state;
    bool unfinished;
    assert_int_equal(unicode_ill_formed_size(SLICE("\xe2\x82"), &unfinished), 2);
    assert_true(unfinished);
    assert_int_equal(unicode_ill_formed_size(SLICE("\xf0"), &unfinished), 1);
    assert_true(unfinished);
    assert_int_equal(unicode_ill_formed_size(SLICE("\xf0\x80"), &unfinished), 1);
    assert_false(unfinished);
    assert_int_equal(unicode_ill_formed_size(SLICE("\xff"), &unfinished), 1);
    assert_false(unfinished);
    assert_int_equal(unicode_ill_formed_size(SLICE("\xe2\x28\xa1"), &unfinished), 1);
    assert_false(unfinished);
}

static void every_code_point_decodes_to_itself(void **state)
{
    (void)state;
    for (int32_t point = 0; point <= 0x10ffff; point++) {
        buffer out = { 0 };
        size_t size;
        if (point >= 0xd800 && point < 0xe000)
            continue;
        unicode_append(&out, point);
        assert_int_equal(unicode_decode(out.data, &size), point);
        assert_int_equal(size, out.size);
        buffer_close(&out);
    }
}

static void normal_form_c_composes_and_orders_marks(void **state)
{
    (void)state;
    const char *cases[][2] = {
        { "e\xcc\x81", "\xc3\xa9" },                                // e + acute
        { "\xe1\x84\x92\xe1\x85\xa1\xe1\x86\xab", "\xed\x95\x9c" }, // Hangul syllable
        { "a\xcc\x81\xcc\xa3", "\xe1\xba\xa1\xcc\x81" },            // dot below goes first
        { "\xe2\x84\xab", "\xc3\x85" },                             // Angstrom sign
        { "\xe0\xa5\x98", "\xe0\xa4\x95\xe0\xa4\xbc" },             // composition exclusion
        { "plain", "plain" },
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        buffer out = { 0 };
        assert_int_equal(unicode_append_composed(&out, slice_of(cases[i][0])), STATUS_OK);
        assert_string_equal(out.data, cases[i][1]);
        buffer_close(&out);
    }
    assert_true(unicode_is_composed(SLICE("na\xc3\xafve")));
    assert_false(unicode_is_composed(SLICE("e\xcc\x81")));
}

// utf8proc's own function is the oracle; ours differs in that it sorts long runs of marks quickly.
static void normal_form_c_equals_the_library_on_random_text(void **state)
{
    (void)state;
    uint64_t seed = seed_choose(), turn = 0;
    static const int32_t from[] = { 0x41,   0xc0,   0x300,  0x0590,  0x0900, 0x1100,
                                    0x1e00, 0xac00, 0xf900, 0x1d150, 0x20 };
    for (int round = 0; round < 5000; round++) {
        buffer text = { 0 }, out = { 0 };
        for (int i = 0; i < 12; i++) {
            uint64_t bits = random_mix(seed + turn++);
            unicode_append(&text, from[bits % 11] + (int32_t)((bits >> 32) % 96));
        }
        utf8proc_uint8_t *expected = utf8proc_NFC((const utf8proc_uint8_t *)text.data);
        assert_int_equal(unicode_append_composed(&out, buffer_slice(&text)), STATUS_OK);
        assert_string_equal(out.data, (const char *)expected);
        free(expected);
        buffer_close(&text);
        buffer_close(&out);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_maximal_ill_formed_part_becomes_one_replacement),
        cmocka_unit_test(unfinished_parts_are_told_from_hopeless_ones),
        cmocka_unit_test(every_code_point_decodes_to_itself),
        cmocka_unit_test(normal_form_c_composes_and_orders_marks),
        cmocka_unit_test(normal_form_c_equals_the_library_on_random_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
