// Weights: from a file's rows to tiles, once, at load.
#include "compute/cpu/cpu.h"
#include "compute/cpu/tiles.h"

#include <stdlib.h>
#include <string.h>

#define COLUMNS_MAX (1 << 20)
#define ROWS_MAX (1 << 24)
// Source bytes that are packed between two words to who owns them.
#define SLICE_BYTES ((int64_t)8 << 20)

// Bytes of one tile column (all inputs of T rows).
static int64_t tile_column_bytes(tensor_type type, int tile_rows, int columns)
{
    const cpu_format *format = cpu_format_of(type);
    if (format == NULL)
        return (int64_t)columns * tile_rows * tensor_block_bytes(type);
    return cpu_format_bytes(format, tile_rows, columns / CPU_BLOCK);
}

static void pack_row(tensor_type type, int tile_rows, int row, const uint8_t *source, int columns,
                     uint8_t *column)
{
    const cpu_format *format = cpu_format_of(type);
    if (format != NULL) {
        cpu_tiles_pack_row(format, tile_rows, row, source, columns / CPU_BLOCK, column);
        return;
    }
    size_t size = (size_t)tensor_block_bytes(type);
    for (int i = 0; i < columns; i++)
        memcpy(column + ((size_t)i * (size_t)tile_rows + (size_t)row) * size,
               source + (size_t)i * size, size);
}

// Tiles first_tile .. first_tile + tiles of one segment.
typedef struct pack_task {
    const cpu_segment *segment;
    const tensor_view *part;
    int tile_rows, columns;
    int first_tile, tiles;
    _Atomic int32_t taken;
} pack_task;

// Rows beyond the last stay zero, as the memory is: they compute zeros that nobody stores.
static void pack_tiles(void *context, int thread, int count)
{
    pack_task *task = context;
    const cpu_segment *s = task->segment;
    int64_t row_bytes = tensor_row_bytes(s->type, task->columns);
    int first, last;
    (void)thread;
    while (cpu_take(&task->taken, task->tiles, count, 0, &first, &last)) {
        int row = (task->first_tile + first) * task->tile_rows;
        int end = (task->first_tile + last) * task->tile_rows;
        for (; row < end && row < s->rows; row++)
            pack_row(s->type, task->tile_rows, row % task->tile_rows,
                     (const uint8_t *)task->part->data + row * row_bytes, task->columns,
                     s->data + row / task->tile_rows * s->tile_bytes);
    }
}

// Pack one part, and say of each slice when it was read.
static void pack_part(backend *b, const backend_weight_source *source, const tensor_view *part,
                      const cpu_segment *s)
{
    int tile_rows = b->level->tile_rows;
    int64_t tile_bytes = tensor_row_bytes(part->type, part->columns) * tile_rows;
    int slice = tile_bytes < SLICE_BYTES ? (int)(SLICE_BYTES / tile_bytes) : 1;
    for (int first = 0; first < s->tiles; first += slice) {
        int tiles = s->tiles - first < slice ? s->tiles - first : slice;
        pack_task task = { s, part, tile_rows, (int)part->columns, first, tiles, 0 };
        cpu_threads_run(b->threads, pack_tiles, &task);
        int64_t read = first * tile_bytes, end = part->rows * (tile_bytes / tile_rows);
        int64_t bytes = end - read < tiles * tile_bytes ? end - read : tiles * tile_bytes;
        if (source->let_go)
            source->let_go(source->owner, (const uint8_t *)part->data + read, (uint64_t)bytes);
    }
}

static status check_part(const backend *b, const tensor_view *part, int64_t columns, error *failure)
{
    int elements = tensor_block_elements(part->type);
    if (elements == 0 || cpu_level_kernel(b->level, part->type) == NULL)
        return error_set(failure, STATUS_UNSUPPORTED, part->name,
                         "tensor %s has type %d, which the CPU backend cannot compute with; it can "
                         "with %s",
                         part->name, (int)part->type, tensor_type_names());
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
        w->quantised |= cpu_format_of(s->type) != NULL;
        w->floating |= cpu_format_of(s->type) == NULL;
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
    for (int i = 0; i < w->part_count; i++)
        pack_part(b, source, &source->parts[i], &w->segments[i]);
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

void cpu_weight_row(const backend_weight *w, int tile_rows, int row, float *values)
{
    const cpu_segment *s = &w->segments[0];
    const uint8_t *tile = s->data + row / tile_rows * s->tile_bytes;
    row %= tile_rows;
    const cpu_format *format = cpu_format_of(s->type);
    if (format != NULL) {
        cpu_tiles_row(format, tile_rows, row, tile, w->blocks, values);
        return;
    }
    size_t size = (size_t)tensor_block_bytes(s->type);
    for (int i = 0; i < w->columns; i++)
        tensor_decode(s->type, tile + ((size_t)i * (size_t)tile_rows + (size_t)row) * size, 1,
                      values + i);
}
