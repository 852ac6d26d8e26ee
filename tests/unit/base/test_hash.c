#include "base/hash.h"

#include "base/random.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void the_values_are_those_of_xxh3(void **state)
{
    (void)state;
    char text[33];
    // XXH3's own test values for the empty input and for "abc" (xxhsum -H3 and -H2 print the same).
    assert_true(hash64_of("", 0, 0) == 0x2d06800538d394c2u);
    hash128_format(hash128_of("", 0), text);
    assert_string_equal(text, "99aa06d3014798d86001c324468d497f");
    hash128_format(hash128_of("abc", 3), text);
    assert_string_equal(text, "06b05ab6733a618578af5f94892f3950");
    assert_true(hash64_of("abc", 3, 1) != hash64_of("abc", 3, 0));
}

static void a_stream_equals_the_whole(void **state)
{
    (void)state;
    static char data[10000];
    for (size_t i = 0; i < sizeof(data); i++)
        data[i] = (char)random_mix(i);
    for (size_t piece = 1; piece < sizeof(data); piece = piece * 3 + 1) {
        hash_stream *s = hash_stream_begin();
        assert_non_null(s);
        for (size_t at = 0; at < sizeof(data); at += piece)
            hash_stream_add(s, data + at, sizeof(data) - at < piece ? sizeof(data) - at : piece);
        assert_true(hash128_equal(hash_stream_end(s), hash128_of(data, sizeof(data))));
    }
}

static void a_prefix_link_is_the_parent_then_the_tokens(void **state)
{
    (void)state;
    hash128 parent = { .low = 0x0102030405060708u, .high = 0x1112131415161718u };
    int32_t tokens[] = { 1, -2, 50000 };
    unsigned char bytes[28] = { 8,    7,    6,    5,    4,    3,    2, 1, 0x18, 0x17,
                                0x16, 0x15, 0x14, 0x13, 0x12, 0x11, 1, 0, 0,    0,
                                0xfe, 0xff, 0xff, 0xff, 0x50, 0xc3, 0, 0 };
    assert_true(hash128_equal(hash_prefix_next(parent, tokens, 3), hash128_of(bytes, 28)));
    assert_false(
        hash128_equal(hash_prefix_next(parent, tokens, 3), hash_prefix_next(parent, tokens, 2)));
}

static void units_are_inside_the_open_interval(void **state)
{
    (void)state;
    assert_true(random_unit(0) > 0);
    assert_true(random_unit(UINT64_MAX) < 1);
    assert_true(random_system() != random_system());
}

static void noise_is_uniform_over_tokens_and_differs_by_key(void **state)
{
    (void)state;
    double sum = 0, square = 0;
    uint64_t key = random_row_key(42, 0, 7);
    for (uint32_t token = 0; token < 50000; token++) {
        double unit = random_unit(random_token_bits(key, token));
        sum += unit;
        square += unit * unit;
    }
    // Mean 1/2 and second moment 1/3; six standard errors are below 0.008.
    assert_true(sum / 50000 > 0.492 && sum / 50000 < 0.508);
    assert_true(square / 50000 > 0.3253 && square / 50000 < 0.3413);
    assert_true(random_row_key(42, 1, 7) != key && random_row_key(42, 0, 8) != key &&
                random_row_key(43, 0, 7) != key);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_values_are_those_of_xxh3),
        cmocka_unit_test(a_stream_equals_the_whole),
        cmocka_unit_test(a_prefix_link_is_the_parent_then_the_tokens),
        cmocka_unit_test(units_are_inside_the_open_interval),
        cmocka_unit_test(noise_is_uniform_over_tokens_and_differs_by_key),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
