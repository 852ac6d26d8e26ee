#include "compute/cpu/tiles.h"

#include <string.h>

// clang-format off
static const cpu_format formats[] = {
    // type      bits  surplus  minimum  group         header  quants  scales
    { TENSOR_Q4_0, 4,  8,       false,   1,            0,      16,     2 },
    { TENSOR_Q4_1, 4,  0,       true,    1,            0,      16,     4 },
    { TENSOR_Q5_0, 5,  16,      false,   1,            0,      20,     2 },
    { TENSOR_Q5_1, 5,  0,       true,    1,            0,      20,     4 },
    { TENSOR_Q8_0, 8,  0,       false,   1,            0,      32,     2 },
    { TENSOR_Q4_K, 4,  0,       true,    CPU_K_BLOCKS, 4,      16,     2 },
    { TENSOR_Q5_K, 5,  0,       true,    CPU_K_BLOCKS, 4,      20,     2 },
    { TENSOR_Q6_K, 6,  32,      false,   CPU_K_BLOCKS, 2,      24,     2 },
};
// clang-format on

const cpu_format *cpu_format_of(tensor_type type)
{
    for (size_t i = 0; i < sizeof formats / sizeof formats[0]; i++)
        if (formats[i].type == type)
            return &formats[i];
    return NULL;
}

int64_t cpu_format_bytes(const cpu_format *format, int tile_rows, int blocks)
{
    return (int64_t)tile_rows *
           (blocks * (format->quants + format->scales) + blocks / format->group * format->header);
}

// Where a block's quants begin in a tile column.
static int64_t block_offset(const cpu_format *format, int tile_rows, int block)
{
    return cpu_format_bytes(format, tile_rows, block / format->group * format->group) +
           (int64_t)tile_rows *
               (format->header + block % format->group * (format->quants + format->scales));
}

// ---- packing ----------------------------------------------------------------------------------

static void pack_quants(const cpu_format *format, int tile_rows, int row, const uint8_t q[32],
                        uint8_t *tile)
{
    int step = 4 * tile_rows;
    uint8_t *at = tile + 4 * row, *plane = at + 4 * step;
    if (format->bits == 8) {
        for (int k = 0; k < 8; k++)
            memcpy(at + k * step, q + 4 * k, 4);
        return;
    }
    for (int i = 0; i < 16; i++)
        at[i / 4 * step + i % 4] = (uint8_t)((q[i] & 15) | q[16 + i] << 4);
    for (int j = 0; j < 4 && format->bits == 5; j++) {
        int bits = 0;
        for (int k = 0; k < 8; k++)
            bits |= q[4 * k + j] >> 4 << k;
        plane[j] = (uint8_t)bits;
    }
    for (int i = 0; i < 8 && format->bits == 6; i++) {
        const uint8_t *first = q + 16 * (i / 4) + i % 4;
        int bits = 0;
        for (int k = 0; k < 4; k++)
            bits |= first[4 * k] >> 4 << 2 * k;
        plane[i / 4 * step + i % 4] = (uint8_t)bits;
    }
}

// The minimum is subtracted in the file and added by the kernels: its sign is turned here.
static void pack_header(const cpu_format *format, int tile_rows, int row, const uint8_t *source,
                        uint8_t *header)
{
    if (!format->minimum) { // Q6_K
        memcpy(header + 2 * row, source + 208, 2);
        return;
    }
    memcpy(header + 2 * row, source, 2);
    header[2 * (tile_rows + row)] = source[2];
    header[2 * (tile_rows + row) + 1] = source[3] ^ 0x80;
}

static void pack_scales(const cpu_format *format, int tile_rows, int row, const uint8_t *source,
                        int part, uint8_t *scales)
{
    if (format->group == 1) {
        memcpy(scales + 2 * row, source, 2);
        if (format->minimum)
            memcpy(scales + 2 * (tile_rows + row), source + 2, 2);
    } else if (format->minimum) {
        tensor_k_scales(source, part, scales + row, scales + tile_rows + row);
    } else {
        scales[row] = source[192 + 2 * part];
        scales[tile_rows + row] = source[192 + 2 * part + 1];
    }
}

void cpu_tiles_pack_row(const cpu_format *format, int tile_rows, int row, const uint8_t *source,
                        int blocks, uint8_t *column)
{
    for (int block = 0; block < blocks; block++) {
        int part = block % format->group;
        uint8_t q[32], *tile = column + block_offset(format, tile_rows, block);
        if (part == 0 && format->header > 0)
            pack_header(format, tile_rows, row, source, tile - (int64_t)tile_rows * format->header);
        tensor_quants(format->type, source, part, q);
        pack_quants(format, tile_rows, row, q, tile);
        pack_scales(format, tile_rows, row, source, part, tile + tile_rows * format->quants);
        if (part + 1 == format->group)
            source += tensor_block_bytes(format->type);
    }
}

// ---- reading back -----------------------------------------------------------------------------

static float half_at(const uint8_t *halves, int i)
{
    uint16_t bits;
    memcpy(&bits, halves + 2 * i, 2);
    return tensor_f16_to_f32(bits);
}

static int take_quant(const cpu_format *format, int tile_rows, int row, const uint8_t *tile, int i)
{
    int step = 4 * tile_rows, k = i / 4, j = i % 4;
    const uint8_t *at = tile + 4 * row + j, *plane = at + 4 * step;
    if (format->bits == 8)
        return (int8_t)at[k * step];
    int q = i < 16 ? at[k * step] & 15 : at[(k - 4) * step] >> 4;
    if (format->bits == 5)
        q |= (*plane >> k & 1) << 4;
    if (format->bits == 6)
        q |= (plane[i / 16 * step] >> 2 * (k % 4) & 3) << 4;
    return q - format->surplus;
}

void cpu_tiles_take_block(const cpu_format *format, int tile_rows, int row, const uint8_t *column,
                          int block, cpu_tile_block *taken)
{
    const uint8_t *tile = column + block_offset(format, tile_rows, block);
    const uint8_t *scales = tile + tile_rows * format->quants;
    for (int i = 0; i < 32; i++)
        taken->q[i] = (int8_t)take_quant(format, tile_rows, row, tile, i);
    taken->k[0] = taken->k[1] = 1;
    taken->minimum = 0;
    if (format->group == 1) {
        taken->d = half_at(scales, row);
        if (format->minimum)
            taken->minimum = half_at(scales, tile_rows + row);
        return;
    }
    const uint8_t *header =
        column + cpu_format_bytes(format, tile_rows, block / format->group * format->group);
    taken->d = half_at(header, row);
    if (format->minimum) {
        taken->k[0] = taken->k[1] = scales[row];
        taken->minimum = half_at(header, tile_rows + row) * (float)scales[tile_rows + row];
    } else {
        taken->k[0] = (int8_t)scales[row];
        taken->k[1] = (int8_t)scales[tile_rows + row];
    }
}

void cpu_tiles_row(const cpu_format *format, int tile_rows, int row, const uint8_t *column,
                   int blocks, float *values)
{
    for (int block = 0; block < blocks; block++) {
        cpu_tile_block taken;
        cpu_tiles_take_block(format, tile_rows, row, column, block, &taken);
        for (int i = 0; i < 32; i++) {
            float value = taken.d * (float)taken.k[i / 16] * (float)taken.q[i];
            *values++ = format->minimum ? value + taken.minimum : value;
        }
    }
}
