#include "compute/tensor.h"

#include <string.h>

typedef struct type_row {
    tensor_type type;
    const char *name;
    int elements, bytes;
    void (*decode)(const uint8_t *block, float *values);
} type_row;

static void decode_f32(const uint8_t *block, float *values);
static void decode_f16(const uint8_t *block, float *values);
static void decode_bf16(const uint8_t *block, float *values);
static void decode_q4_0(const uint8_t *block, float *values);
static void decode_q4_1(const uint8_t *block, float *values);
static void decode_q5_0(const uint8_t *block, float *values);
static void decode_q5_1(const uint8_t *block, float *values);
static void decode_q8_0(const uint8_t *block, float *values);
static void decode_q4_k(const uint8_t *block, float *values);
static void decode_q5_k(const uint8_t *block, float *values);
static void decode_q6_k(const uint8_t *block, float *values);

// clang-format off
static const type_row types[] = {
    { TENSOR_F32,  "f32",  1,   4,   decode_f32 },
    { TENSOR_F16,  "f16",  1,   2,   decode_f16 },
    { TENSOR_BF16, "bf16", 1,   2,   decode_bf16 },
    { TENSOR_Q4_0, "q4_0", 32,  18,  decode_q4_0 },
    { TENSOR_Q4_1, "q4_1", 32,  20,  decode_q4_1 },
    { TENSOR_Q5_0, "q5_0", 32,  22,  decode_q5_0 },
    { TENSOR_Q5_1, "q5_1", 32,  24,  decode_q5_1 },
    { TENSOR_Q8_0, "q8_0", 32,  34,  decode_q8_0 },
    { TENSOR_Q4_K, "q4_k", 256, 144, decode_q4_k },
    { TENSOR_Q5_K, "q5_k", 256, 176, decode_q5_k },
    { TENSOR_Q6_K, "q6_k", 256, 210, decode_q6_k },
};
// clang-format on

const char *tensor_type_names(void)
{
    return "f32, f16, bf16, q4_0, q4_1, q5_0, q5_1, q8_0, q4_k, q5_k and q6_k";
}

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
    if (type == TENSOR_I8 || type == TENSOR_F8_E4M3)
        return type == TENSOR_I8 ? "int8" : "fp8";
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

// ---- blocks -----------------------------------------------------------------------------------

static float half_at(const uint8_t *p)
{
    return tensor_f16_to_f32(read_u16(p));
}

// Nibbles of 32 elements in 16 bytes: 0..15 low, 16..31 high.
static void take_nibbles(const uint8_t *bytes, uint8_t q[32])
{
    for (int i = 0; i < 16; i++) {
        q[i] = bytes[i] & 15;
        q[16 + i] = bytes[i] >> 4;
    }
}

// The fifth bits: bit i of a little-endian word of 32 belongs to element i.
static void add_fifth_bits(const uint8_t *bits, uint8_t q[32])
{
    for (int i = 0; i < 32; i++)
        q[i] |= (uint8_t)((bits[i / 8] >> i % 8 & 1) << 4);
}

// 32 nibbles of a K block: two parts share 32 bytes, the even one has the low nibbles.
static void take_k_nibbles(const uint8_t *bytes, int part, uint8_t q[32])
{
    for (int i = 0; i < 32; i++)
        q[i] = part % 2 == 0 ? bytes[32 * (part / 2) + i] & 15 : bytes[32 * (part / 2) + i] >> 4;
}

// 128 elements share 64 bytes of low nibbles and 32 bytes of pairs of high bits.
static void take_q6_k(const uint8_t *block, int part, uint8_t q[32])
{
    const uint8_t *low = block + 64 * (part / 4) + 32 * (part % 2);
    const uint8_t *high = block + 128 + 32 * (part / 4);
    for (int i = 0; i < 32; i++) {
        int nibble = part % 4 < 2 ? low[i] & 15 : low[i] >> 4;
        q[i] = (uint8_t)(nibble | (high[i] >> 2 * (part % 4) & 3) << 4);
    }
}

void tensor_quants(tensor_type type, const void *block, int part, uint8_t q[32])
{
    const uint8_t *b = block;
    switch (type) {
    case TENSOR_Q4_0:
        take_nibbles(b + 2, q);
        return;
    case TENSOR_Q4_1:
        take_nibbles(b + 4, q);
        return;
    case TENSOR_Q5_0:
        take_nibbles(b + 6, q);
        add_fifth_bits(b + 2, q);
        return;
    case TENSOR_Q5_1:
        take_nibbles(b + 8, q);
        add_fifth_bits(b + 4, q);
        return;
    case TENSOR_Q8_0:
        memcpy(q, b + 2, 32);
        return;
    case TENSOR_Q4_K:
        take_k_nibbles(b + 16, part, q);
        return;
    case TENSOR_Q5_K:
        take_k_nibbles(b + 48, part, q);
        for (int i = 0; i < 32; i++)
            q[i] |= (uint8_t)((b[16 + i] >> part & 1) << 4);
        return;
    case TENSOR_Q6_K:
        take_q6_k(b, part, q);
        return;
    case TENSOR_F32:
    case TENSOR_F16:
    case TENSOR_BF16:
    case TENSOR_I8:
    case TENSOR_F8_E4M3:
        break;
    }
    CHECK(!"a type of blocks");
}

// Eight pairs of 6 bits in 12 bytes: the first four in the low bits of bytes 0..7, the others in
// bytes 8..11 and the high bits of 0..7.
void tensor_k_scales(const void *block, int part, uint8_t *scale, uint8_t *minimum)
{
    const uint8_t *s = (const uint8_t *)block + 4;
    if (part < 4) {
        *scale = s[part] & 63;
        *minimum = s[part + 4] & 63;
    } else {
        *scale = (uint8_t)((s[part + 4] & 15) | s[part - 4] >> 6 << 4);
        *minimum = (uint8_t)(s[part + 4] >> 4 | s[part] >> 6 << 4);
    }
}

static void decode_f32(const uint8_t *block, float *values)
{
    memcpy(values, block, 4);
}

static void decode_f16(const uint8_t *block, float *values)
{
    *values = half_at(block);
}

static void decode_bf16(const uint8_t *block, float *values)
{
    uint32_t bits = (uint32_t)read_u16(block) << 16;
    memcpy(values, &bits, 4);
}

// values = d * (q - surplus), or d * q + m with the f16 behind d.
static void decode_32(tensor_type type, const uint8_t *block, int surplus, bool minimum,
                      float *values)
{
    uint8_t q[32];
    float d = half_at(block), m = minimum ? half_at(block + 2) : 0;
    tensor_quants(type, block, 0, q);
    for (int i = 0; i < 32; i++)
        values[i] = minimum ? d * (float)q[i] + m : d * (float)(q[i] - surplus);
}

static void decode_q4_0(const uint8_t *block, float *values)
{
    decode_32(TENSOR_Q4_0, block, 8, false, values);
}

static void decode_q4_1(const uint8_t *block, float *values)
{
    decode_32(TENSOR_Q4_1, block, 0, true, values);
}

static void decode_q5_0(const uint8_t *block, float *values)
{
    decode_32(TENSOR_Q5_0, block, 16, false, values);
}

static void decode_q5_1(const uint8_t *block, float *values)
{
    decode_32(TENSOR_Q5_1, block, 0, true, values);
}

static void decode_q8_0(const uint8_t *block, float *values)
{
    float d = half_at(block);
    for (int i = 0; i < 32; i++)
        values[i] = d * (float)(int8_t)block[2 + i];
}

static void decode_k(tensor_type type, const uint8_t *block, float *values)
{
    float d = half_at(block), least = half_at(block + 2);
    for (int part = 0; part < 8; part++) {
        uint8_t q[32], scale, minimum;
        tensor_quants(type, block, part, q);
        tensor_k_scales(block, part, &scale, &minimum);
        for (int i = 0; i < 32; i++)
            *values++ = d * (float)scale * (float)q[i] - least * (float)minimum;
    }
}

static void decode_q4_k(const uint8_t *block, float *values)
{
    decode_k(TENSOR_Q4_K, block, values);
}

static void decode_q5_k(const uint8_t *block, float *values)
{
    decode_k(TENSOR_Q5_K, block, values);
}

static void decode_q6_k(const uint8_t *block, float *values)
{
    float d = half_at(block + 208);
    for (int part = 0; part < 8; part++) {
        uint8_t q[32];
        tensor_quants(TENSOR_Q6_K, block, part, q);
        for (int i = 0; i < 32; i++)
            *values++ = d * (float)(int8_t)block[192 + 2 * part + i / 16] * (float)(q[i] - 32);
    }
}

void tensor_decode(tensor_type type, const void *row, int64_t count, float *values)
{
    const type_row *t = row_of(type);
    const uint8_t *block = row;
    CHECK(t != NULL && count % t->elements == 0);
    for (int64_t i = 0; i < count; i += t->elements, block += t->bytes)
        t->decode(block, values + i);
}
