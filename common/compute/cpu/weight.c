// Weights: from a file's rows to tiles, once, at load.
#include "compute/cpu/cpu.h"

#include <stdlib.h>
#include <string.h>

#define COLUMNS_MAX (1 << 20)
#define ROWS_MAX (1 << 24)

static bool is_quantised(tensor_type type)
{
    return tensor_block_elements(type) == CPU_BLOCK;
}

// Bytes of one tile column (all inputs of T rows).
static int64_t tile_column_bytes(tensor_type type, int tile_rows, int columns)
{
    if (!is_quantised(type))
        return (int64_t)columns * tile_rows * tensor_block_bytes(type);
    int bits = type == TENSOR_Q8_0 ? 8 : 4;
    int scales = type == TENSOR_Q4_1 ? 2 : 1;
    return (int64_t)(columns / CPU_BLOCK) * tile_rows * (CPU_BLOCK * bits / 8 + 2 * scales);
}

// Offset, within a block of `tile_rows` rows, of the byte that holds input i of row r.
static int quant_offset(tensor_type type, int tile_rows, int row, int input)
{
    int within = type == TENSOR_Q8_0 ? input : input % 16;
    return within / 4 * tile_rows * 4 + row * 4 + within % 4;
}

static int quant_bytes(tensor_type type, int tile_rows)
{
    return tile_rows * CPU_BLOCK / (type == TENSOR_Q8_0 ? 1 : 2);
}

// One block of 32 inputs of one row into its tile.
static void pack_block(tensor_type type, int tile_rows, int row, const uint8_t *block,
                       uint8_t *tile)
{
    uint8_t *scales = tile + quant_bytes(type, tile_rows);
    const uint8_t *quants = block + (type == TENSOR_Q4_1 ? 4 : 2);
    memcpy(scales + 2 * row, block, 2);
    if (type == TENSOR_Q4_1)
        memcpy(scales + 2 * (tile_rows + row), block + 2, 2);
    int count = type == TENSOR_Q8_0 ? CPU_BLOCK : CPU_BLOCK / 2;
    for (int i = 0; i < count; i += 4)
        memcpy(tile + quant_offset(type, tile_rows, row, i), quants + i, 4);
}

static void pack_row(tensor_type type, int tile_rows, int row, const uint8_t *source, int columns,
                     uint8_t *tile)
{
    if (is_quantised(type)) {
        int64_t step = tile_column_bytes(type, tile_rows, CPU_BLOCK);
        for (int i = 0; i < columns; i += CPU_BLOCK) {
            pack_block(type, tile_rows, row, source, tile);
            source += tensor_block_bytes(type);
            tile += step;
        }
        return;
    }
    size_t size = (size_t)tensor_block_bytes(type);
    for (int i = 0; i < columns; i++)
        memcpy(tile + ((size_t)i * (size_t)tile_rows + (size_t)row) * size,
               source + (size_t)i * size, size);
}

typedef struct pack_task {
    cpu_segment *segment;
    const tensor_view *part;
    int tile_rows, columns;
    _Atomic int32_t taken;
} pack_task;

// Rows beyond the last stay zero, as the memory is: they compute zeros that nobody stores.
static void pack_tiles(void *context, int thread, int count)
{
    pack_task *task = context;
    cpu_segment *s = task->segment;
    int64_t row_bytes = tensor_row_bytes(s->type, task->columns);
    int first, last;
    (void)thread;
    while (cpu_take(&task->taken, s->tiles, count, 0, &first, &last))
        for (int row = first * task->tile_rows; row < last * task->tile_rows && row < s->rows;
             row++)
            pack_row(s->type, task->tile_rows, row % task->tile_rows,
                     (const uint8_t *)task->part->data + row * row_bytes, task->columns,
                     s->data + row / task->tile_rows * s->tile_bytes);
}

static status check_part(const backend *b, const tensor_view *part, int64_t columns, error *failure)
{
    int elements = tensor_block_elements(part->type);
    if (elements == 0 || cpu_level_kernel(b->level, part->type) == NULL)
        return error_set(failure, STATUS_UNSUPPORTED, part->name,
                         "tensor %s has type %d, which the CPU backend cannot compute with; it can "
                         "with f32, f16, bf16, q4_0, q4_1 and q8_0",
                         part->name, (int)part->type);
    if (part->rows < 1 || part->columns < 1 || part->rows > ROWS_MAX || part->columns > COLUMNS_MAX)
        return error_set(failure, STATUS_UNSUPPORTED, part->name,
                         "tensor %s is %lld x %lld; at most %d x %d is possible", part->name,
                         (long long)part->rows, (long long)part->columns, ROWS_MAX, COLUMNS_MAX);
    if (part->columns != columns)
        return error_set(failure, STATUS_BAD_FILE, part->name,
                         "tensor %s has %lld columns; those beside it have %lld", part->name,
                         (long long)part->columns, (long long)columns);
    if (part->columns % elements != 0)
        return error_set(failure, STATUS_BAD_FILE, part->name,
                         "tensor %s has %lld columns, no multiple of its type's block of %d",
                         part->name, (long long)part->columns, elements);
    return STATUS_OK;
}

static status check_source(const backend *b, const backend_weight_source *source, error *failure)
{
    CHECK(source->part_count >= 1 && source->part_count <= CPU_WEIGHT_PARTS);
    for (int i = 0; i < source->part_count; i++) {
        status result = check_part(b, &source->parts[i], source->parts[0].columns, failure);
        if (result != STATUS_OK)
            return result;
    }
    if (!source->pair_rows)
        return STATUS_OK;
    CHECK(source->part_count == 2);
    if (source->parts[0].rows != source->parts[1].rows)
        return error_set(failure, STATUS_BAD_FILE, source->parts[1].name,
                         "tensor %s has %lld rows; %s, which it is paired with, has %lld",
                         source->parts[1].name, (long long)source->parts[1].rows,
                         source->parts[0].name, (long long)source->parts[0].rows);
    return STATUS_OK;
}

// Sizes and places of all segments; returns the bytes of the whole.
static size_t plan_segments(backend_weight *w, const backend_weight_source *source, int tile_rows)
{
    size_t at = 0;
    w->columns = (int)source->parts[0].columns;
    w->blocks = (w->columns + CPU_BLOCK - 1) / CPU_BLOCK;
    for (int i = 0; i < w->part_count; i++) {
        const tensor_view *part = &source->parts[i];
        cpu_segment *s = &w->segments[i];
        s->type = part->type;
        s->rows = (int)part->rows;
        s->first_row = w->rows;
        s->tiles = (s->rows + tile_rows - 1) / tile_rows;
        s->tile_bytes = tile_column_bytes(s->type, tile_rows, w->columns);
        s->offset = at;
        at += ((size_t)s->tiles * (size_t)s->tile_bytes + 63) / 64 * 64;
        w->rows += s->rows;
        w->quantised |= is_quantised(s->type);
        w->floating |= !is_quantised(s->type);
    }
    return at;
}

static status allocate(backend *b, const backend_weight_source *source, backend_weight *w)
{
    w->bytes = plan_segments(w, source, b->level->tile_rows);
    // A kernel may read up to 64 bytes past the last tile.
    uint8_t *data = cpu_arena_take(b, w->bytes + 64, &w->arena);
    if (data == NULL)
        return STATUS_NO_MEMORY;
    for (int i = 0; i < w->part_count; i++)
        w->segments[i].data = data + w->segments[i].offset;
    if (source->bias != NULL) {
        w->bias = malloc((size_t)w->rows * sizeof(float));
        if (w->bias == NULL)
            return STATUS_NO_MEMORY;
        memcpy(w->bias, source->bias, (size_t)w->rows * sizeof(float));
    }
    return cpu_backend_grow(b, 0, w->columns, 0);
}

status cpu_weight_load(backend *b, const backend_weight_source *source, backend_weight **loaded,
                       error *failure)
{
    backend_weight *w = NULL;
    status result;
    TRY(check_source(b, source, failure));
    w = calloc(1, sizeof *w);
    if (w != NULL) {
        w->backend = b;
        w->part_count = source->part_count;
        w->pair_rows = source->pair_rows;
    }
    if (w == NULL || allocate(b, source, w) != STATUS_OK) {
        TRY(error_set(failure, STATUS_NO_MEMORY, source->parts[0].name,
                      "no memory to load tensor %s of %lld x %lld", source->parts[0].name,
                      (long long)source->parts[0].rows, (long long)source->parts[0].columns));
    }
    for (int i = 0; i < w->part_count; i++) {
        pack_task task = { &w->segments[i], &source->parts[i], b->level->tile_rows, w->columns, 0 };
        cpu_threads_run(b->threads, pack_tiles, &task);
    }
    *loaded = w;
    return STATUS_OK;
fail:
    cpu_weight_close(w);
    return result;
}

void cpu_weight_close(backend_weight *w)
{
    if (w == NULL)
        return;
    if (w->arena != NULL)
        cpu_arena_release(w->backend, w->arena);
    free(w->bias);
    free(w);
}

size_t cpu_weight_bytes(const backend_weight *w)
{
    return w->bytes;
}

// A block of one row back in its file form, for the decoder.
static void unpack_block(tensor_type type, int tile_rows, int row, const uint8_t *tile,
                         uint8_t *block)
{
    const uint8_t *scales = tile + quant_bytes(type, tile_rows);
    uint8_t *quants = block + (type == TENSOR_Q4_1 ? 4 : 2);
    memcpy(block, scales + 2 * row, 2);
    if (type == TENSOR_Q4_1)
        memcpy(block + 2, scales + 2 * (tile_rows + row), 2);
    int count = type == TENSOR_Q8_0 ? CPU_BLOCK : CPU_BLOCK / 2;
    for (int i = 0; i < count; i += 4)
        memcpy(quants + i, tile + quant_offset(type, tile_rows, row, i), 4);
}

void cpu_weight_row(const backend_weight *w, int tile_rows, int row, float *values)
{
    const cpu_segment *s = &w->segments[0];
    const uint8_t *tile = s->data + row / tile_rows * s->tile_bytes;
    row %= tile_rows;
    if (is_quantised(s->type)) {
        int64_t step = tile_column_bytes(s->type, tile_rows, CPU_BLOCK);
        uint8_t block[64];
        for (int i = 0; i < w->columns; i += CPU_BLOCK, tile += step) {
            unpack_block(s->type, tile_rows, row, tile, block);
            tensor_decode(s->type, block, CPU_BLOCK, values + i);
        }
        return;
    }
    size_t size = (size_t)tensor_block_bytes(s->type);
    for (int i = 0; i < w->columns; i++)
        tensor_decode(s->type, tile + ((size_t)i * (size_t)tile_rows + (size_t)row) * size, 1,
                      values + i);
}
