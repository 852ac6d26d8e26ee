// Many rows through pairs of tile columns in the level's wide form (see cpu_wide_call). A unit of
// work is a part of the rows and a pair: the pair is widened into the thread's scratch and the rows
// pass through it. Units
// that follow each other are pairs with the same rows, whose inputs stay in the thread's second
// cache: with rows inside pairs they would come from memory for every pair.
#include "compute/cpu/cpu.h"
#include "compute/cpu/tiles.h"

// Rows from which widening pays for itself.
#define WIDE_ROWS 64
// Rows of one call of the kernel: what it leaves is still in the nearest cache when it is finished.
#define CALL_ROWS 32
// Inputs of a part, quantised: less than half of a second cache of 1 MiB, beside the weights.
#define PART_BYTES (512 << 10)

bool cpu_linear_is_wide(const cpu_operation *o, const backend *b)
{
    const backend_weight *w = o->weight;
    bool wide = b->level->wide != NULL && o->rows >= WIDE_ROWS && !w->floating;
    for (int i = 0; wide && i < w->part_count; i++)
        wide = !cpu_format_of(w->segments[i].type)->minimum;
    return wide;
}

// Rows of each part but the last, whole calls of the kernel.
static int part_rows(const cpu_operation *o)
{
    size_t call = CALL_ROWS / CPU_PANEL_ROWS * sizeof(cpu_panel_block) * (size_t)o->weight->blocks;
    int calls_most = (int)(PART_BYTES / call), calls = (o->rows + CALL_ROWS - 1) / CALL_ROWS;
    calls_most = calls_most < 1 ? 1 : calls_most;
    int parts = (calls + calls_most - 1) / calls_most;
    return (calls + parts - 1) / parts * CALL_ROWS;
}

static int part_count(const cpu_operation *o)
{
    return (o->rows + part_rows(o) - 1) / part_rows(o);
}

static int pair_count(const cpu_operation *o)
{
    const backend_weight *w = o->weight;
    if (cpu_epilogue_pairs(o->epilogue))
        return w->segments[0].tiles;
    int pairs = 0;
    for (int i = 0; i < w->part_count; i++)
        pairs += (w->segments[i].tiles + 1) / 2;
    return pairs;
}

int cpu_linear_wide_units(const cpu_operation *o)
{
    return pair_count(o) * part_count(o);
}

// Two tiles that stand beside each other in a segment (the second one missing at an odd end), or
// the gate's tile and the other's.
typedef struct tile_pair {
    const cpu_segment *segment;
    int tile, tiles;
    const uint8_t *second;
} tile_pair;

static tile_pair pair_at(const cpu_operation *o, int index)
{
    const cpu_segment *s = o->weight->segments;
    if (cpu_epilogue_pairs(o->epilogue))
        return (tile_pair){ s, index, 1, s[1].data + index * s[1].tile_bytes };
    for (; index >= (s->tiles + 1) / 2; s++)
        index -= (s->tiles + 1) / 2;
    int tile = 2 * index;
    return (tile_pair){ s, tile, tile + 1 < s->tiles ? 2 : 1,
                        tile + 1 < s->tiles ? s->data + (tile + 1) * s->tile_bytes : NULL };
}

// Both tiles of a pair, widened into the scratch; a missing second one is the first again.
static cpu_wide_call widen(const backend_weight *w, const backend *b, const tile_pair *pair,
                           cpu_scratch *scratch)
{
    const cpu_segment *s = pair->segment;
    uint8_t *second = scratch->wide + (int64_t)w->blocks * CPU_WIDE_BLOCK_BYTES;
    b->level->widen(s->type, s->data + pair->tile * s->tile_bytes, w->blocks, scratch->wide);
    if (pair->second != NULL)
        b->level->widen(s->type, pair->second, w->blocks, second);
    return (cpu_wide_call){ .type = s->type,
                            .wide = { scratch->wide, pair->second ? second : scratch->wide },
                            .blocks = w->blocks };
}

// Rows first .. last of one pair.
static void run_pair(const cpu_operation *o, const backend *b, const cpu_panel_block *panels,
                     cpu_scratch *scratch, const tile_pair *pair, int first, int last)
{
    int tile_rows = b->level->tile_rows;
    cpu_wide_call call = widen(o->weight, b, pair, scratch);
    cpu_finish_call finish =
        cpu_linear_finish(o, pair->segment, pair->tile, pair->tile + pair->tiles, tile_rows);
    float *y = finish.y;
    finish.out = call.out = scratch->out;
    for (int row = first; row < last; row += CALL_ROWS) {
        call.rows = finish.rows = last - row < CALL_ROWS ? last - row : CALL_ROWS;
        call.panel = panels + (int64_t)(row / CPU_PANEL_ROWS) * call.blocks;
        finish.y = y + row * o->y->stride;
        cpu_linear_fetch(&finish);
        b->level->wide(&call);
        if (cpu_epilogue_pairs(o->epilogue))
            finish.up = call.out + call.rows * tile_rows;
        b->level->finish(&finish);
    }
}

void cpu_linear_wide(const cpu_operation *o, const backend *b, const cpu_panel_block *panels,
                     cpu_scratch *scratch, int first, int last)
{
    int pairs = pair_count(o), rows = part_rows(o);
    for (int unit = first; unit < last; unit++) {
        tile_pair pair = pair_at(o, unit % pairs);
        int row = unit / pairs * rows;
        run_pair(o, b, panels, scratch, &pair, row, o->rows - row < rows ? o->rows : row + rows);
    }
}
