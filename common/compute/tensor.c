#include "compute/tensor.h"

#include <string.h>

typedef struct type_row {
    tensor_type type;
    const char *name;
    int elements, bytes;
} type_row;

static const type_row types[] = {
    { TENSOR_F32, "f32", 1, 4 },     { TENSOR_F16, "f16", 1, 2 },
    { TENSOR_BF16, "bf16", 1, 2 },   { TENSOR_Q4_0, "q4_0", 32, 18 },
    { TENSOR_Q4_1, "q4_1", 32, 20 }, { TENSOR_Q8_0, "q8_0", 32, 34 },
};

static const type_row *row_of(tensor_type type)
{
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++)
        if (types[i].type == type)
            return &types[i];
    return NULL;
}

int tensor_block_elements(tensor_type type)
{
    const type_row *row = row_of(type);
    return row == NULL ? 0 : row->elements;
}

int tensor_block_bytes(tensor_type type)
{
    const type_row *row = row_of(type);
    return row == NULL ? 0 : row->bytes;
}

const char *tensor_type_name(tensor_type type)
{
    const type_row *row = row_of(type);
    return row == NULL ? "unknown" : row->name;
}

int64_t tensor_row_bytes(tensor_type type, int64_t columns)
{
    const type_row *row = row_of(type);
    if (row == NULL || columns < 0 || columns % row->elements != 0 ||
        columns / row->elements > INT64_MAX / row->bytes)
        return -1;
    return columns / row->elements * row->bytes;
}

float tensor_f16_to_f32(uint16_t bits)
{
    uint32_t sign = (uint32_t)(bits & 0x8000) << 16;
    uint32_t exponent = bits >> 10 & 31, mantissa = bits & 0x3ff, out;
    if (exponent == 31) { // infinity, or a NaN made quiet as the instruction does
        out = sign | 0x7f800000 | mantissa << 13 | (mantissa != 0 ? 0x400000 : 0);
    } else if (exponent != 0) {
        out = sign | (exponent + 112) << 23 | mantissa << 13;
    } else { // zero or subnormal: mantissa * 2^-24 is exact in float
        float value = (float)mantissa * 0x1p-24f;
        memcpy(&out, &value, 4);
        out |= sign;
    }
    float value;
    memcpy(&value, &out, 4);
    return value;
}

uint16_t tensor_f32_to_f16(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, 4);
    uint16_t sign = (uint16_t)(bits >> 16 & 0x8000);
    bits &= 0x7fffffff;
    if (bits > 0x7f800000)
        return (uint16_t)(sign | 0x7e00 | (bits >> 13 & 0x3ff));
    if (bits >= 0x477ff000) // 65520 and above round to infinity
        return sign | 0x7c00;
    if (bits <
        0x38800000) { // below 2^-14: adding 0.5 leaves the subnormal in the low bits, rounded
        float shifted;
        memcpy(&shifted, &bits, 4);
        shifted += 0.5f;
        memcpy(&bits, &shifted, 4);
        return (uint16_t)(sign | (bits - 0x3f000000));
    }
    bits += 0xfff + (bits >> 13 & 1); // to nearest, ties to even
    return (uint16_t)(sign | (bits - 0x38000000) >> 13);
}

static uint16_t read_u16(const uint8_t *p)
{
    uint16_t v;
    memcpy(&v, p, 2);
    return v;
}

static void decode_block(tensor_type type, const uint8_t *block, float *values)
{
    float d = tensor_f16_to_f32(read_u16(block));
    if (type == TENSOR_Q8_0) {
        for (int i = 0; i < 32; i++)
            values[i] = d * (float)(int8_t)block[2 + i];
        return;
    }
    float m = type == TENSOR_Q4_1 ? tensor_f16_to_f32(read_u16(block + 2)) : 0;
    const uint8_t *nibbles = block + (type == TENSOR_Q4_1 ? 4 : 2);
    for (int i = 0; i < 32; i++) {
        int nibble = i < 16 ? nibbles[i] & 15 : nibbles[i - 16] >> 4;
        values[i] = type == TENSOR_Q4_1 ? d * (float)nibble + m : d * (float)(nibble - 8);
    }
}

void tensor_decode(tensor_type type, const void *row, int64_t count, float *values)
{
    const uint8_t *bytes = row;
    if (type == TENSOR_F32) {
        memcpy(values, row, (size_t)count * sizeof *values);
    } else if (type == TENSOR_F16) {
        for (int64_t i = 0; i < count; i++)
            values[i] = tensor_f16_to_f32(read_u16(bytes + 2 * i));
    } else if (type == TENSOR_BF16) {
        for (int64_t i = 0; i < count; i++) {
            uint32_t bits = (uint32_t)read_u16(bytes + 2 * i) << 16;
            memcpy(values + i, &bits, 4);
        }
    } else {
        CHECK(tensor_block_bytes(type) != 0 && count % 32 == 0);
        for (int64_t i = 0; i < count; i += 32, bytes += tensor_block_bytes(type))
            decode_block(type, bytes, values + i);
    }
}
