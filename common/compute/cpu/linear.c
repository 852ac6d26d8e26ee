// y = epilogue(W norm(x) + bias): phase 0 prepares the input (normalised and quantised once), phase
// 1 multiplies. A small input is prepared by every thread for itself, which is cheaper than a
// barrier and gives the same bits. Chunks of tiles go to whichever thread is free; a chunk's
// weights pass through all rows while they are in the cache, in blocks of rows whose size never
// changes a result.
#include "compute/cpu/cpu.h"

// Inputs (rows x columns) up to which each thread prepares its own copy: about a microsecond.
#define OWN_COPY_INPUTS 2048
// Weights of one chunk when they meet many rows: half of a small L2 cache.
#define CHUNK_BYTES (128 << 10)

typedef struct prepared {
    const cpu_panel_block *panels;
    const float *x;
    int64_t x_stride;
} prepared;

static bool keeps_own_copy(const cpu_operation *o)
{
    return (int64_t)o->rows * o->weight->columns <= OWN_COPY_INPUTS && o->rows <= CPU_PANEL_ROWS;
}

static int64_t padded(int columns)
{
    return ((int64_t)columns + 15) / 16 * 16;
}

static void prepare_rows(const cpu_operation *o, const backend *b, int first, int last,
                         cpu_panel_block *panels, float *inputs)
{
    const backend_weight *w = o->weight;
    for (int row = first; row < last; row++) {
        const float *x = o->x->data + row * o->x->stride;
        cpu_panel_block *panel = panels + (int64_t)(row / CPU_PANEL_ROWS) * w->blocks;
        if (w->quantised)
            b->level->quantise(x, o->norm, o->epsilon, w->columns, panel, row % CPU_PANEL_ROWS);
        if (w->floating && o->norm != NULL)
            b->level->norm(x, o->norm, o->epsilon, w->columns, false,
                           inputs + row * padded(w->columns));
    }
}

static prepared input_of(const cpu_operation *o, const backend *b, int thread)
{
    bool own = keeps_own_copy(o);
    prepared p = { own ? b->scratch[thread].panel : b->panels, o->x->data, o->x->stride };
    if (o->norm != NULL) {
        p.x = own ? b->scratch[thread].x : b->inputs;
        p.x_stride = padded(o->weight->columns);
    }
    return p;
}

// The next pages of the cache that the call can ask for on its way.
static void fetch_pages(const cpu_operation *o, const backend *b, cpu_tile_call *call)
{
    cpu_operation *attention = o->next_attention;
    if (attention == NULL || call->rows < CPU_FETCH_ROWS)
        return;
    const cpu_plan *p = b->plan;
    const kv_layout *l = &attention->kv.layout;
    int64_t most = (int64_t)call->tiles * call->blocks * CPU_FETCH_LINES * 64 / l->layer_stride;
    int count = most < 1 ? 1 : (int)most;
    int first = atomic_load_explicit(&attention->fetched, memory_order_relaxed);
    if (first >= p->page_count)
        return;
    first = atomic_fetch_add_explicit(&attention->fetched, count, memory_order_relaxed);
    if (first >= p->page_count)
        return;
    call->fetch = p->pages + first;
    call->fetch_count = count < p->page_count - first ? count : p->page_count - first;
    call->fetch_offset = attention->layer * l->layer_stride;
    call->fetch_bytes = l->layer_stride;
}

// Tiles first .. last of one segment, rows row .. row + rows, into `out`.
static void multiply(const cpu_operation *o, const backend *b, const prepared *input,
                     const cpu_segment *s, int first, int last, int row, int rows, float *out)
{
    const backend_weight *w = o->weight;
    cpu_tile_call call = {
        .weights = s->data + first * s->tile_bytes,
        .tile_bytes = s->tile_bytes,
        .tiles = last - first,
        .rows = rows,
        .blocks = w->blocks,
        .columns = w->columns,
        .panel = input->panels + (int64_t)(row / CPU_PANEL_ROWS) * w->blocks,
        .x = input->x + row * input->x_stride,
        .x_stride = input->x_stride,
        .out = out,
    };
    fetch_pages(o, b, &call);
    cpu_level_kernel(b->level, s->type)(&call);
}

cpu_finish_call cpu_linear_finish(const cpu_operation *o, const cpu_segment *s, int first, int last,
                                  int tile_rows)
{
    const backend_weight *w = o->weight;
    int column = first * tile_rows;
    cpu_finish_call finish = {
        .y = o->y->data + s->first_row + column,
        .y_stride = o->y->stride,
        .bias = w->bias == NULL ? NULL : w->bias + s->first_row + column,
        .tiles = last - first,
        .count = (last * tile_rows < s->rows ? last * tile_rows : s->rows) - column,
        .epilogue = o->epilogue,
    };
    if (cpu_epilogue_pairs(o->epilogue) && w->bias != NULL)
        finish.up_bias = w->bias + w->segments[1].first_row + column;
    return finish;
}

void cpu_linear_fetch(const cpu_finish_call *call)
{
    const float *y = call->y;
    for (int row = 0; row < call->rows; row++, y += call->y_stride)
        for (int column = 0; column < call->count; column += 16)
            __builtin_prefetch(y + column, 1, 3);
}

static void run_chunk(const cpu_operation *o, const backend *b, const prepared *input,
                      cpu_scratch *scratch, const cpu_segment *s, int first, int last)
{
    const backend_weight *w = o->weight;
    int block = b->level->row_block;
    cpu_finish_call finish = cpu_linear_finish(o, s, first, last, b->level->tile_rows);
    float *y = finish.y;
    finish.out = scratch->out;
    if (cpu_epilogue_pairs(o->epilogue))
        finish.up = scratch->up;
    for (int row = 0; row < o->rows; row += block) {
        int rows = o->rows - row < block ? o->rows - row : block;
        finish.rows = rows;
        finish.y = y + row * o->y->stride;
        cpu_linear_fetch(&finish);
        multiply(o, b, input, s, first, last, row, rows, scratch->out);
        if (cpu_epilogue_pairs(o->epilogue))
            multiply(o, b, input, &w->segments[1], first, last, row, rows, scratch->up);
        b->level->finish(&finish);
    }
}

// Tiles of one kernel call: no more weights than the cache holds beside the input where many rows
// follow each other through them.
static int chunk_tiles(const cpu_operation *o, const cpu_segment *s)
{
    int64_t chunk = CPU_CHUNK_TILES;
    if (o->rows > CPU_ROW_BLOCK_MAX && chunk > CHUNK_BYTES / s->tile_bytes)
        chunk = CHUNK_BYTES / s->tile_bytes;
    return chunk < 1 ? 1 : (int)chunk;
}

// Tiles first .. last of the whole matrix, which may lie in several segments.
static void run_tiles(const cpu_operation *o, const backend *b, const prepared *input,
                      cpu_scratch *scratch, int first, int last)
{
    const backend_weight *w = o->weight;
    int segments = cpu_epilogue_pairs(o->epilogue) ? 1 : w->part_count, base = 0;
    for (int i = 0; i < segments; base += w->segments[i++].tiles) {
        const cpu_segment *s = &w->segments[i];
        int at = first > base ? first - base : 0;
        int to = last - base < s->tiles ? last - base : s->tiles;
        for (int chunk = chunk_tiles(o, s); at < to; at += chunk)
            run_chunk(o, b, input, scratch, s, at, to - at < chunk ? to : at + chunk);
    }
}

static int tile_count(const cpu_operation *o)
{
    int segments = cpu_epilogue_pairs(o->epilogue) ? 1 : o->weight->part_count, total = 0;
    for (int i = 0; i < segments; i++)
        total += o->weight->segments[i].tiles;
    return total;
}

static void run_linear(cpu_operation *o, backend *b, int phase, int thread, int first, int last)
{
    cpu_scratch *scratch = &b->scratch[thread];
    if (phase + 1 < o->phases) {
        prepare_rows(o, b, first, last, b->panels, b->inputs);
        return;
    }
    if (keeps_own_copy(o) && scratch->prepared != o->serial) {
        prepare_rows(o, b, 0, o->rows, scratch->panel, scratch->x);
        scratch->prepared = o->serial;
    }
    if (cpu_linear_is_wide(o, b)) {
        cpu_linear_wide(o, b, b->panels, scratch, first, last);
        return;
    }
    prepared input = input_of(o, b, thread);
    run_tiles(o, b, &input, scratch, first, last);
}

void cpu_linear(backend_queue *q, backend_activation *y, const backend_activation *x,
                const backend_weight *w, const float *norm, float epsilon, int rows,
                backend_epilogue epilogue)
{
    bool paired = cpu_epilogue_pairs(epilogue);
    CHECK(x != y && x->columns == w->columns && paired == w->pair_rows);
    CHECK(y->columns == (paired ? w->rows / 2 : w->rows));
    CHECK(rows >= 0 && rows <= x->rows && rows <= y->rows);
    if (rows == 0)
        return;
    cpu_operation *o = cpu_queue_add(q, run_linear, rows);
    o->y = y;
    o->x = x;
    o->weight = w;
    o->norm = norm;
    o->epsilon = epsilon;
    o->rows = rows;
    o->epilogue = epilogue;
    bool prepares = w->quantised || norm != NULL;
    o->phases = prepares && !keeps_own_copy(o) ? 2 : 1;
    o->units[o->phases - 1] =
        cpu_linear_is_wide(o, w->backend) ? cpu_linear_wide_units(o) : tile_count(o);
}
