#include "compute/tensor.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

// The definition: sign, 5 bits of exponent with bias 15, 10 bits of mantissa.
static double half_value(uint16_t bits)
{
    int exponent = bits >> 10 & 31, mantissa = bits & 1023;
    double value = exponent == 0 ? ldexp(mantissa, -24) : ldexp(1024 + mantissa, exponent - 25);
    return bits & 0x8000 ? -value : value;
}

static void every_half_becomes_its_float_and_back(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 65536; i++) {
        uint16_t bits = (uint16_t)i;
        float value = tensor_f16_to_f32(bits);
        if ((bits >> 10 & 31) == 31) {
            assert_int_equal(isnan(value) != 0, (bits & 1023) != 0);
            assert_int_equal(isnan(tensor_f16_to_f32(tensor_f32_to_f16(value))) != 0,
                             isnan(value) != 0);
            continue;
        }
        assert_true((double)value == half_value(bits));
        assert_int_equal(tensor_f32_to_f16(value), bits);
    }
}

// Between two halves the nearer one is taken, and the even one in the middle.
static void floats_round_to_the_nearest_half(void **state)
{
    (void)state;
    for (uint16_t i = 0; i < 0x7bff; i++) {
        double low = half_value(i), high = half_value((uint16_t)(i + 1)), middle = (low + high) / 2;
        uint16_t even = i % 2 == 0 ? i : (uint16_t)(i + 1);
        assert_int_equal(tensor_f32_to_f16((float)middle), even);
        assert_int_equal(tensor_f32_to_f16(nextafterf((float)middle, 0)), i);
        assert_int_equal(tensor_f32_to_f16(nextafterf((float)middle, 1e9f)), i + 1);
        assert_int_equal(tensor_f32_to_f16(-(float)middle), even | 0x8000);
    }
    assert_int_equal(tensor_f32_to_f16(65519.996f), 0x7bff);
    assert_int_equal(tensor_f32_to_f16(65520), 0x7c00);
    assert_int_equal(tensor_f32_to_f16(1e30f), 0x7c00);
    assert_int_equal(tensor_f32_to_f16(-INFINITY), 0xfc00);
    assert_int_equal(tensor_f32_to_f16(1e-30f), 0);
}

static void b097_blocks_decode_as_the_format_says(void **state)
{
    (void)state;
    uint8_t block[34];
    float values[32];
    uint16_t half = tensor_f32_to_f16(0.5f), minimum = tensor_f32_to_f16(-3);
    for (int i = 0; i < 34; i++)
        block[i] = (uint8_t)(i * 7);
    memcpy(block, &half, 2);
    tensor_decode(TENSOR_Q8_0, block, 32, values);
    assert_true(values[0] == 0.5f * 14 && values[31] == 0.5f * (float)(int8_t)(33 * 7));
    tensor_decode(TENSOR_Q4_0, block, 32, values);
    assert_true(values[0] == 0.5f * ((14 & 15) - 8) && values[16] == 0.5f * ((14 >> 4) - 8));
    memcpy(block + 2, &minimum, 2);
    tensor_decode(TENSOR_Q4_1, block, 32, values);
    assert_true(values[1] == 0.5f * (35 & 15) - 3 && values[17] == 0.5f * (35 >> 4) - 3);
}

// Element i of a block by the formulas of the format's description, one at a time.
static float element_of(tensor_type type, const uint8_t *b, int i)
{
    uint16_t h[2];
    memcpy(h, b, 4);
    float d = tensor_f16_to_f32(h[0]), m = tensor_f16_to_f32(h[1]);
    int head = type == TENSOR_Q5_1 ? 4 : 2, g = i / 32;
    if (type == TENSOR_Q5_0 || type == TENSOR_Q5_1) {
        uint32_t fifth;
        memcpy(&fifth, b + head, 4);
        int byte = b[head + 4 + i % 16], q = i < 16 ? byte & 15 : byte >> 4;
        q |= (int)(fifth >> i & 1) << 4;
        return type == TENSOR_Q5_0 ? d * (float)(q - 16) : d * (float)q + m;
    }
    if (type == TENSOR_Q6_K) {
        int low = b[64 * (i / 128) + i % 64] >> (i % 128 / 64 == 1 ? 4 : 0) & 15;
        int high = b[128 + 32 * (i / 128) + i % 32] >> 2 * (i % 128 / 32) & 3;
        memcpy(h, b + 208, 2);
        return tensor_f16_to_f32(h[0]) * (float)(int8_t)b[192 + i / 16] *
               (float)((low | high << 4) - 32);
    }
    const uint8_t *s = b + 4, *qs = b + (type == TENSOR_Q4_K ? 16 : 48);
    int scale = g < 4 ? s[g] & 63 : (s[g + 4] & 15) | s[g - 4] >> 6 << 4;
    int least = g < 4 ? s[g + 4] & 63 : s[g + 4] >> 4 | s[g] >> 6 << 4;
    int q = qs[32 * (i / 64) + i % 32] >> (g % 2 == 1 ? 4 : 0) & 15;
    if (type == TENSOR_Q5_K)
        q += 16 * (b[16 + i % 32] >> g & 1);
    return d * (float)scale * (float)q - m * (float)least;
}

static void random_blocks_decode_element_by_element(void **state)
{
    (void)state;
    const tensor_type types[] = { TENSOR_Q5_0, TENSOR_Q5_1, TENSOR_Q4_K, TENSOR_Q5_K, TENSOR_Q6_K };
    uint32_t random = 1;
    for (int round = 0; round < 500; round++) {
        tensor_type type = types[round % 5];
        uint8_t block[210];
        float values[256];
        for (int i = 0; i < 210; i++) {
            random = random * 1664525 + 1013904223;
            block[i] = (uint8_t)(random >> 24);
        }
        for (int at = 0; at < 4; at += 2) // no infinities
            block[at + 1] &= 0xbf;
        block[209] &= 0xbf;
        tensor_decode(type, block, tensor_block_elements(type), values);
        for (int i = 0; i < tensor_block_elements(type); i++)
            assert_true(values[i] == element_of(type, block, i));
    }
}

static void rows_have_whole_blocks(void **state)
{
    (void)state;
    assert_int_equal(tensor_row_bytes(TENSOR_Q4_1, 576), 360);
    assert_int_equal(tensor_row_bytes(TENSOR_Q8_0, 64), 68);
    assert_int_equal(tensor_row_bytes(TENSOR_BF16, 3), 6);
    assert_int_equal(tensor_row_bytes(TENSOR_Q4_0, 33), -1);
    assert_int_equal(tensor_row_bytes((tensor_type)10, 256), -1);
    assert_int_equal(tensor_row_bytes(TENSOR_Q6_K, 512), 420);
    assert_int_equal(tensor_row_bytes(TENSOR_Q4_K, 128), -1);
    assert_int_equal(tensor_row_bytes(TENSOR_F32, INT64_MAX), -1);
    assert_int_equal(tensor_block_bytes((tensor_type)99), 0);
    assert_string_equal(tensor_type_name(TENSOR_Q4_1), "q4_1");
    assert_string_equal(tensor_type_name((tensor_type)99), "unknown");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_half_becomes_its_float_and_back),
        cmocka_unit_test(floats_round_to_the_nearest_half),
        cmocka_unit_test(b097_blocks_decode_as_the_format_says),
        cmocka_unit_test(random_blocks_decode_element_by_element),
        cmocka_unit_test(rows_have_whole_blocks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
