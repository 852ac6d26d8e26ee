// How the cache keeps K and V: the layouts, the write of one token's head, and copies of pages.
//
// A tile holds 32 tokens of one head's K or V. f32, f16, bf16, fp8: K is [head_size][32], V
// [32][head_size]. int8: K is [head_size / 2][32][2], V [16][head_size][2], pairs side by side for
// instructions that multiply pairs. The 8-bit types keep an f16 scale per token behind that, [32]:
// value = scale * number, where the scale is the smallest f16 for which the token's largest
// magnitude is no more than 127 (int8) or 448 (fp8, e4m3). A number is rounded to nearest even,
// once, when its token is written. Where a head is not all finite its scale is a NaN. fp8 has
// scales too because they bring it closer: on 4,092 tokens with SmolLM2-135M the KL divergence from
// an f32 cache is 0.0114 with and 0.0152 without them (f16 0.0043, which is what 8-bit activations
// make of any change; bf16 0.0044, int8 0.0056).
#include "compute/cpu/cpu.h"

#include <stdio.h>
#include <string.h>

#define INT8_MOST 127.0f
#define FP8_MOST 448.0f

typedef struct kind {
    tensor_type type;
    const char *layout_name;
    int bytes;   // of a number
    bool scaled; // an f16 per token
    bool paired;
} kind;

static const kind kinds[] = {
    { TENSOR_F32, "f32/cpu-tile32/1", 4, false, false },
    { TENSOR_F16, "f16/cpu-tile32/1", 2, false, false },
    { TENSOR_BF16, "bf16/cpu-tile32/1", 2, false, false },
    { TENSOR_I8, "int8/cpu-pair32/1", 1, true, true },
    { TENSOR_F8_E4M3, "fp8/cpu-tile32/1", 1, true, false },
};

static const kind *kind_of(tensor_type type)
{
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        if (kinds[i].type == type)
            return &kinds[i];
    return NULL;
}

// ---- numbers ----------------------------------------------------------------------------------

static uint32_t bits_of(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, 4);
    return bits;
}

static uint16_t bf16_of(float x)
{
    uint32_t bits = bits_of(x);
    if ((bits & 0x7fffffff) > 0x7f800000)
        return (uint16_t)(bits >> 16 | 0x40);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

// The scale for numbers up to `most`, and in *inverse what to multiply x with; 0 there where every
// number is to be 0.
static uint16_t scale_of(const float *x, int count, float most, float *inverse)
{
    int32_t bits = 0; // magnitudes compare as integers, and what is not finite is the largest
    for (int d = 0; d < count; d++) {
        int32_t magnitude = (int32_t)(bits_of(x[d]) & 0x7fffffff);
        bits = magnitude > bits ? magnitude : bits;
    }
    float largest;
    memcpy(&largest, &bits, 4);
    *inverse = 0;
    if (bits >= 0x7f800000)
        return 0x7e00;
    if (largest == 0)
        return 0;
    uint16_t scale = tensor_f32_to_f16(largest / most);
    if (tensor_f16_to_f32(scale) * most < largest)
        scale++;
    if (scale >= 0x7c00)
        scale = 0x7bff; // larger numbers are cut off
    *inverse = 1 / tensor_f16_to_f32(scale);
    return scale;
}

// |x| of those bits, at most `most`; all integers, so that it runs as vectors.
static uint32_t magnitude_of(float x, float most)
{
    uint32_t bits = bits_of(x) & 0x7fffffff, limit = bits_of(most);
    return bits < limit ? bits : limit;
}

static float float_of(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, 4);
    return x;
}

static void round_int8(const float *x, int count, float inverse, uint8_t *numbers)
{
    for (int d = 0; d < count; d++) {
        float y = x[d] * inverse;
        uint32_t sign = bits_of(y) & 0x80000000;
        float limited = float_of(magnitude_of(y, INT8_MOST) | sign);
        numbers[d] = (uint8_t)(bits_of(limited + 0x1.8p23f) & 0xff);
    }
}

// e4m3: sign, 4 bits of exponent with bias 7, 3 of mantissa; below 2^-6 multiples of 2^-9.
static void round_fp8(const float *x, int count, float inverse, uint8_t *numbers)
{
    for (int d = 0; d < count; d++) {
        float y = x[d] * inverse;
        uint32_t magnitude = magnitude_of(y, FP8_MOST), sign = bits_of(y) >> 24 & 0x80;
        uint32_t normal = ((magnitude + 0x7ffff + (magnitude >> 20 & 1)) >> 20) - (120 << 3);
        uint32_t small = bits_of(float_of(magnitude) * 512 + 0x1.8p23f) & 0xff;
        numbers[d] = (uint8_t)(sign | (magnitude < 0x3c800000 ? small : normal));
    }
}

// ---- tiles ------------------------------------------------------------------------------------

// The bytes of one token in a tile: `count` runs of `run` adjacent ones, the first at `first`.
typedef struct strip {
    int first, run, stride, count;
} strip;

static strip strip_of(const kind *k, int size, bool value, int token)
{
    if (value && k->paired)
        return (strip){ token / 2 * 2 * size + token % 2, 1, 2, size };
    if (value)
        return (strip){ token * size * k->bytes, size * k->bytes, 0, 1 };
    int run = k->paired ? 2 : k->bytes;
    return (strip){ token * run, run, CPU_TILE_TOKENS * run, size * k->bytes / run };
}

static void write_numbers(const strip *s, const uint8_t *numbers, uint8_t *tile)
{
    uint8_t *at = tile + s->first;
    if (s->run == 1)
        for (int i = 0; i < s->count; i++)
            at[(int64_t)i * s->stride] = numbers[i];
    else if (s->run == 2)
        for (int i = 0; i < s->count; i++)
            memcpy(at + (int64_t)i * s->stride, numbers + 2 * i, 2);
    else
        for (int i = 0; i < s->count; i++)
            memcpy(at + (int64_t)i * s->stride, numbers + i * s->run, (size_t)s->run);
}

// Tokens first .. 32 of a tile.
static void zero_tail(const kv_layout *l, const kind *k, int first, bool value, uint8_t *tile)
{
    static const uint8_t zeros[CPU_HEAD_SIZE_MAX];
    int size = l->head_size;
    if (k->scaled)
        memset(cpu_tile_scales(l, tile) + first, 0, (size_t)(CPU_TILE_TOKENS - first) * 2);
    if (value && k->paired && first % 2 != 0) { // the other of a pair is written by somebody else
        strip odd = strip_of(k, size, value, first++);
        write_numbers(&odd, zeros, tile);
    }
    strip s = strip_of(k, size, value, first);
    if (value)
        memset(tile + s.first, 0, (size_t)((CPU_TILE_TOKENS - first) * size * k->bytes));
    for (int i = 0; !value && i < s.count; i++)
        memset(tile + s.first + i * s.stride, 0, (size_t)((CPU_TILE_TOKENS - first) * s.run));
}

// The step's item that writes a tile's first token also zeroes what the step leaves unwritten
// behind its last one.
void cpu_kv_store(const cpu_operation *o, const backend *b, int sequence, int32_t position,
                  int head, bool value, const float *x)
{
    const kv_layout *l = &o->kv.layout;
    const backend_batch *batch = &o->batch;
    const kind *k = kind_of(l->type);
    int size = l->head_size, token = position % CPU_TILE_TOKENS;
    int32_t page =
        batch->tables[(int64_t)sequence * batch->table_stride + position / l->page_tokens];
    CHECK(page >= 0 && page < o->kv.pages);
    uint8_t *tile = (uint8_t *)o->kv.memory.data + page * l->page_bytes +
                    o->layer * l->layer_stride + head * l->head_stride +
                    (value ? l->value_offset : 0) +
                    position % l->page_tokens / CPU_TILE_TOKENS * cpu_tile_bytes(l);
    if (token == 0 && batch->lengths[sequence] - position < CPU_TILE_TOKENS)
        zero_tail(l, k, batch->lengths[sequence] - position, value, tile);
    uint16_t halves[CPU_HEAD_SIZE_MAX];
    uint8_t bytes[CPU_HEAD_SIZE_MAX];
    float inverse;
    if (l->type == TENSOR_F16)
        b->level->halve(x, size, halves);
    for (int d = 0; l->type == TENSOR_BF16 && d < size; d++)
        halves[d] = bf16_of(x[d]);
    if (k->scaled) {
        bool whole = l->type == TENSOR_I8;
        cpu_tile_scales(l, tile)[token] = scale_of(x, size, whole ? INT8_MOST : FP8_MOST, &inverse);
        (whole ? round_int8 : round_fp8)(x, size, inverse, bytes);
    }
    const uint8_t *numbers = k->scaled       ? bytes
                             : k->bytes == 4 ? (const uint8_t *)x
                                             : (const uint8_t *)halves;
    strip s = strip_of(k, size, value, token);
    write_numbers(&s, numbers, tile);
}

// ---- the slots --------------------------------------------------------------------------------

status cpu_kv_layout(const backend *b, tensor_type type, int page_tokens, int layers, int kv_heads,
                     int head_size, kv_layout *layout, error *failure)
{
    (void)b;
    const kind *k = kind_of(type);
    if (k == NULL)
        return error_set(failure, STATUS_UNSUPPORTED, "kv_type",
                         "the cache type is %s; the CPU backend keeps f16, bf16, int8, fp8 or f32",
                         tensor_type_name(type));
    if (page_tokens != 32 && page_tokens != 64 && page_tokens != 128)
        return error_set(failure, STATUS_UNSUPPORTED, "page_tokens",
                         "page_tokens is %d; the CPU backend has pages of 32, 64 or 128",
                         page_tokens);
    if (head_size < 16 || head_size % 16 != 0 || head_size > CPU_HEAD_SIZE_MAX)
        return error_set(failure, STATUS_UNSUPPORTED, "head_size",
                         "head_size is %d; the CPU backend needs a multiple of 16, at most %d",
                         head_size, CPU_HEAD_SIZE_MAX);
    if (layers < 1 || layers > 4096 || kv_heads < 1 || kv_heads > 4096)
        return error_set(failure, STATUS_UNSUPPORTED, "kv_heads",
                         "a cache of %d layers and %d heads is not possible", layers, kv_heads);
    kv_layout l = { .type = type,
                    .page_tokens = page_tokens,
                    .layers = layers,
                    .kv_heads = kv_heads,
                    .head_size = head_size };
    snprintf(l.name, sizeof l.name, "%s", k->layout_name);
    l.value_offset = (int64_t)page_tokens * (head_size * k->bytes + (k->scaled ? 2 : 0));
    l.head_stride = 2 * l.value_offset;
    l.layer_stride = kv_heads * l.head_stride;
    l.page_bytes = layers * l.layer_stride;
    *layout = l;
    return STATUS_OK;
}

static void run_kv_copy(cpu_operation *o, backend *b, int phase, int thread, int first, int last)
{
    int64_t size = o->kv.layout.page_bytes;
    uint8_t *pool = o->kv.memory.data;
    (void)b, (void)phase, (void)thread;
    for (int i = first; i < last; i++) {
        int32_t from = o->index[2 * i], to = o->index[2 * i + 1];
        CHECK(from >= 0 && from < o->kv.pages && to >= 0 && to < o->kv.pages && from != to);
        memcpy(pool + to * size, pool + from * size, (size_t)size);
    }
}

void cpu_kv_copy(backend_queue *q, const kv_memory *kv, const int32_t *pairs, int count)
{
    cpu_operation *o = cpu_queue_add(q, run_kv_copy, count);
    o->kv = *kv;
    o->index = pairs;
}
