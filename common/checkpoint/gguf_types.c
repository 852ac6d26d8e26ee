#include "checkpoint/gguf_private.h"

// clang-format off
static const gguf_type_info types[] = {
    { 0, "F32", 1, 4 },         { 1, "F16", 1, 2 },        { 2, "Q4_0", 32, 18 },
    { 3, "Q4_1", 32, 20 },      { 4, "Q4_2", 0, 0 },       { 5, "Q4_3", 0, 0 },
    { 6, "Q5_0", 32, 22 },      { 7, "Q5_1", 32, 24 },     { 8, "Q8_0", 32, 34 },
    { 9, "Q8_1", 0, 0 },        { 10, "Q2_K", 256, 84 },   { 11, "Q3_K", 256, 110 },
    { 12, "Q4_K", 256, 144 },   { 13, "Q5_K", 256, 176 },  { 14, "Q6_K", 256, 210 },
    { 15, "Q8_K", 0, 0 },       { 16, "IQ2_XXS", 256, 66 },{ 17, "IQ2_XS", 256, 74 },
    { 18, "IQ3_XXS", 256, 98 }, { 19, "IQ1_S", 256, 50 },  { 20, "IQ4_NL", 32, 18 },
    { 21, "IQ3_S", 256, 110 },  { 22, "IQ2_S", 256, 82 },  { 23, "IQ4_XS", 256, 136 },
    { 24, "I8", 1, 1 },         { 25, "I16", 1, 2 },       { 26, "I32", 1, 4 },
    { 27, "I64", 1, 8 },        { 28, "F64", 1, 8 },       { 29, "IQ1_M", 256, 56 },
    { 30, "BF16", 1, 2 },       { 31, "Q4_0_4_4", 0, 0 },  { 32, "Q4_0_4_8", 0, 0 },
    { 33, "Q4_0_8_8", 0, 0 },   { 34, "TQ1_0", 256, 54 },  { 35, "TQ2_0", 256, 66 },
    { 36, "IQ4_NL_4_4", 0, 0 }, { 37, "IQ4_NL_4_8", 0, 0 },{ 38, "IQ4_NL_8_8", 0, 0 },
    { 39, "MXFP4", 32, 17 },    { 40, "NVFP4", 64, 36 },   { 41, "Q1_0", 128, 18 },
    { 42, "Q2_0", 0, 0 },
};
static const struct {
    const char *name;
    size_t bytes;
} kinds[GGUF_KIND_COUNT] = {
    [GGUF_U8] = { "u8", 1 },   [GGUF_I8] = { "i8", 1 },     [GGUF_U16] = { "u16", 2 },
    [GGUF_I16] = { "i16", 2 }, [GGUF_U32] = { "u32", 4 },   [GGUF_I32] = { "i32", 4 },
    [GGUF_F32] = { "f32", 4 }, [GGUF_BOOL] = { "bool", 1 }, [GGUF_STRING] = { "string", 0 },
    [GGUF_ARRAY] = { "array", 0 }, [GGUF_U64] = { "u64", 8 }, [GGUF_I64] = { "i64", 8 },
    [GGUF_F64] = { "f64", 8 },
};
// clang-format on

const gguf_type_info *gguf_type_of(uint32_t type)
{
    // The rows stand in the order of their numbers.
    return type < sizeof(types) / sizeof(types[0]) ? &types[type] : NULL;
}

const char *gguf_type_name(uint32_t type)
{
    const gguf_type_info *info = gguf_type_of(type);
    return info != NULL ? info->name : "unknown";
}

const char *gguf_kind_name(uint32_t kind)
{
    return kind < GGUF_KIND_COUNT ? kinds[kind].name : "unknown";
}

size_t gguf_kind_bytes(uint32_t kind)
{
    return kind < GGUF_KIND_COUNT ? kinds[kind].bytes : 0;
}
