// Attention's work items: cut once a step by `attention_plan`, then run for every layer.
//
// An item is (query block of one sequence, KV head, range of splits). A split is 128 tokens at an
// absolute position with a softmax of its own; splits are merged in ascending order. Whether one
// item walks all splits of its rows or several items share them is a matter of balance alone: the
// arithmetic, and so every bit, is the same.
#include "compute/cpu/cpu.h"

#include <string.h>

// ---- the plan ---------------------------------------------------------------------------------

static int query_rows(const cpu_plan *p)
{
    return CPU_ATTENTION_ROWS / p->group_heads;
}

static void cut_heads(cpu_plan *p, const backend_heads *h)
{
    int heads = h->q_heads / h->kv_heads;
    p->head_groups = (heads + CPU_ATTENTION_ROWS - 1) / CPU_ATTENTION_ROWS;
    p->group_heads = (heads + p->head_groups - 1) / p->head_groups;
}

static void check_sequence(const cpu_operation *o, int sequence)
{
    const backend_batch *batch = &o->batch;
    int first = batch->first_row[sequence], end = batch->first_row[sequence + 1];
    int page_tokens = o->kv.layout.page_tokens, length = batch->lengths[sequence];
    CHECK(first >= 0 && first <= end && end <= batch->rows);
    for (int row = first; row < end; row++)
        CHECK(batch->positions[row] >= 0 && batch->positions[row] < length &&
              (row == first || batch->positions[row] > batch->positions[row - 1]));
    int pages = (length + page_tokens - 1) / page_tokens;
    CHECK(pages <= batch->table_stride);
    for (int i = 0; i < pages; i++) {
        int32_t page = batch->tables[(int64_t)sequence * batch->table_stride + i];
        CHECK(page >= 0 && page < o->kv.pages);
    }
}

// One unit per query block, all splits in it.
static int64_t cut_rows(const cpu_operation *o, cpu_plan *p)
{
    const backend_batch *batch = &o->batch;
    int64_t total = 0;
    p->unit_count = p->merge_count = 0;
    for (int s = 0; s < batch->sequences; s++) {
        check_sequence(o, s);
        for (int row = batch->first_row[s]; row < batch->first_row[s + 1];) {
            int left = batch->first_row[s + 1] - row;
            int rows = left < query_rows(p) ? left : query_rows(p);
            int tokens = batch->positions[row + rows - 1] + 1;
            CHECK(p->unit_count < CPU_UNITS_MAX);
            p->units[p->unit_count++] = (cpu_unit){
                .sequence = s,
                .first_row = row,
                .rows = rows,
                .last_split = (tokens + CPU_SPLIT_TOKENS - 1) / CPU_SPLIT_TOKENS,
                .partial = -1,
                // Reading a tile costs about as much as four rows on it.
                .cost = (int64_t)(rows * p->group_heads + 4) * tokens,
            };
            total += p->units[p->unit_count - 1].cost;
            row += rows;
        }
    }
    return total;
}

// Cut `u` into units of `step` splits whose results are merged later.
static void cut_unit(cpu_plan *p, cpu_unit *u, int step, int64_t floats, int64_t partial)
{
    int splits = u->last_split;
    int64_t cost = u->cost / splits;
    for (int first = 0; first < splits; first += step) {
        cpu_unit *part = first == 0 ? u : &p->units[p->unit_count++];
        *part = *u;
        part->first_split = first;
        part->last_split = first + step < splits ? first + step : splits;
        part->partial = (int32_t)(partial + first * floats);
        part->cost = cost * (part->last_split - first);
    }
}

// Cut the units that are long against the whole, while there is room for the results of their
// splits: an item is no more than an eighth of a thread's share.
static void cut_splits(cpu_plan *p, const backend_heads *h, int64_t total, int threads)
{
    int items = h->kv_heads * p->head_groups, whole = p->unit_count;
    int64_t partial = 0, most = total * items / ((int64_t)threads * 8);
    for (int i = 0; i < whole; i++) {
        cpu_unit *u = &p->units[i];
        int splits = u->last_split, step = (int)(most * splits / (u->cost + 1));
        int64_t floats = (int64_t)u->rows * h->q_heads * (h->head_size + 2);
        step = step < 1 ? 1 : step;
        if (step >= splits || partial + splits * floats > CPU_PARTIAL_FLOATS ||
            p->unit_count + splits > CPU_UNITS_MAX)
            continue;
        p->merges[p->merge_count++] =
            (cpu_merge){ u->sequence, u->first_row, u->rows, splits, (int32_t)partial };
        cut_unit(p, u, step, floats, partial);
        partial += splits * floats;
    }
}

// Longest first, so that no thread begins a long item when the others are about to end.
static void sort_units(cpu_plan *p)
{
    static const int gaps[] = { 1750, 701, 301, 132, 57, 23, 10, 4, 1 };
    for (size_t g = 0; g < sizeof gaps / sizeof gaps[0]; g++)
        for (int i = gaps[g]; i < p->unit_count; i++) {
            cpu_unit u = p->units[i];
            int at = i;
            for (; at >= gaps[g] && p->units[at - gaps[g]].cost < u.cost; at -= gaps[g])
                p->units[at] = p->units[at - gaps[g]];
            p->units[at] = u;
        }
}

// Query rows of a unit up to which memory, not arithmetic, says how long it takes.
#define FETCH_ROWS 2

static void list_pages(const cpu_operation *o, cpu_plan *p)
{
    int page_tokens = o->kv.layout.page_tokens;
    p->page_count = 0;
    for (int i = 0; i < p->unit_count; i++) {
        const cpu_unit *u = &p->units[i];
        const int32_t *table = o->batch.tables + (int64_t)u->sequence * o->batch.table_stride;
        int first = u->first_split * CPU_SPLIT_TOKENS, last = u->last_split * CPU_SPLIT_TOKENS;
        last = last < o->batch.lengths[u->sequence] ? last : o->batch.lengths[u->sequence];
        for (int at = first; u->rows <= FETCH_ROWS && at < last; at += page_tokens)
            if (p->page_count < CPU_PLAN_PAGES)
                p->pages[p->page_count++] = (const uint8_t *)o->kv.memory.data +
                                            table[at / page_tokens] * o->kv.layout.page_bytes;
    }
}

static void run_plan(cpu_operation *o, backend *b, int phase, int thread, int first, int last)
{
    (void)phase, (void)thread, (void)first, (void)last;
    cut_heads(b->plan, &o->heads);
    int64_t total = cut_rows(o, b->plan);
    cut_splits(b->plan, &o->heads, total, b->caps.threads);
    sort_units(b->plan);
    list_pages(o, b->plan);
}

void cpu_attention_plan(backend_queue *q, const backend_heads *heads, const kv_memory *kv,
                        const backend_batch *batch)
{
    CHECK(heads->kv_heads > 0 && heads->q_heads % heads->kv_heads == 0);
    CHECK(heads->kv_heads == kv->layout.kv_heads && heads->head_size == kv->layout.head_size);
    cpu_operation *o = cpu_queue_add(q, run_plan, 1);
    o->heads = *heads;
    o->kv = *kv;
    o->batch = *batch;
}

// Items that a thread takes at once: while it ends one it fetches the next one's first tiles.
#define ITEMS_AT_ONCE 3

// ---- one layer --------------------------------------------------------------------------------

// Results of some rows of one head group: [rows * heads] maxima and sums, then values.
typedef struct state {
    float *maximum, *sum, *values;
} state;

static state state_at(float *at, int count)
{
    return (state){ at, at + count, at + 2 * count };
}

typedef struct head_range {
    int kv_head, first, count; // query heads
} head_range;

static head_range heads_of(const cpu_operation *o, const cpu_plan *p, int item)
{
    int heads = o->heads.q_heads / o->heads.kv_heads;
    int kv_head = item / p->head_groups, group = item % p->head_groups;
    int first = group * p->group_heads;
    int left = heads - first;
    return (head_range){ kv_head, kv_head * heads + first,
                         left < p->group_heads ? left : p->group_heads };
}

// Tokens of a split that some row of the unit sees.
typedef struct token_range {
    int first, last;
} token_range;

static token_range tokens_of(const cpu_operation *o, const cpu_unit *u, int split)
{
    const int32_t *positions = o->batch.positions + u->first_row;
    int first = split * CPU_SPLIT_TOKENS, last = positions[u->rows - 1] + 1;
    if (last > first + CPU_SPLIT_TOKENS)
        last = first + CPU_SPLIT_TOKENS;
    if (o->window > 0 && first < positions[0] + 1 - o->window)
        first = positions[0] + 1 - o->window;
    return (token_range){ first, last };
}

// Addresses of the K tiles of those tokens; NULL where there are none.
static void find_tiles(const cpu_operation *o, const cpu_unit *u, int kv_head, int split,
                       token_range tokens, const uint8_t **tiles)
{
    const kv_layout *l = &o->kv.layout;
    const int32_t *table = o->batch.tables + (int64_t)u->sequence * o->batch.table_stride;
    const uint8_t *pool =
        (const uint8_t *)o->kv.memory.data + o->layer * l->layer_stride + kv_head * l->head_stride;
    int64_t tile_bytes = cpu_tile_bytes(l);
    for (int i = 0; i < CPU_SPLIT_TILES; i++) {
        int start = split * CPU_SPLIT_TOKENS + i * CPU_TILE_TOKENS;
        tiles[i] = NULL;
        if (start < tokens.last && start + CPU_TILE_TOKENS > tokens.first)
            tiles[i] = pool + table[start / l->page_tokens] * l->page_bytes +
                       start % l->page_tokens / CPU_TILE_TOKENS * tile_bytes;
    }
}

// What a thread will read after the split that it computes now.
typedef struct reading {
    const cpu_unit *unit; // NULL: nothing is known
    int kv_head, split;
} reading;

static void attend(const cpu_operation *o, const backend *b, const cpu_unit *u, head_range h,
                   int split, reading next, float *scratch, state s)
{
    const kv_layout *l = &o->kv.layout;
    token_range tokens = tokens_of(o, u, split);
    cpu_attention_call call = {
        .layout = l,
        .tile_bytes = cpu_tile_bytes(l),
        .positions = o->batch.positions + u->first_row,
        .q = o->x->data + u->first_row * o->x->stride + (int64_t)h.first * l->head_size,
        .q_stride = o->x->stride,
        .rows = u->rows,
        .heads = h.count,
        .first = tokens.first,
        .last = tokens.last,
        .scale = o->scale,
        .window = o->window,
        .maximum = s.maximum,
        .sum = s.sum,
        .values = s.values,
        .scratch = scratch,
    };
    find_tiles(o, u, h.kv_head, split, tokens, call.k);
    if (next.unit != NULL)
        find_tiles(o, next.unit, next.kv_head, next.split, tokens_of(o, next.unit, next.split),
                   call.ahead);
    for (int i = 0; i < CPU_SPLIT_TILES; i++) {
        if (call.k[i] != NULL)
            call.v[i] = call.k[i] + l->value_offset;
        if (call.ahead[i] == NULL)
            call.ahead[i] = call.v[i];
    }
    b->level->attention(&call);
}

static void merge(const backend *b, state into, state later, int count, int size)
{
    b->level->merge(count, size, into.maximum, into.sum, into.values, later.maximum, later.sum,
                    later.values);
}

// values / sum to the output. Adding 0 makes -0 a 0, so that not even the sign of a zero depends on
// tokens of probability 0.
static void write_out(const cpu_operation *o, const backend *b, int first_row, int rows,
                      head_range h, state s)
{
    int size = o->heads.head_size;
    for (int i = 0; i < rows * h.count; i++) {
        float *out = o->y->data + (first_row + i / h.count) * o->y->stride +
                     (int64_t)(h.first + i % h.count) * size;
        b->level->divide(s.values + (int64_t)i * size, s.sum[i], size, out);
    }
}

// All splits of the unit's rows, merged one after another into the output. The first one that a row
// sees anything of begins.
static void run_whole(const cpu_operation *o, const backend *b, const cpu_unit *u, head_range h,
                      reading after, float *scratch)
{
    int count = u->rows * h.count, size = o->heads.head_size, first = 0;
    float *states = scratch + CPU_ATTENTION_SCRATCH;
    state all = state_at(states, count), one = state_at(states + CPU_ATTENTION_STATE, count);
    if (o->window > 0 && o->batch.positions[u->first_row] + 1 > o->window)
        first = (o->batch.positions[u->first_row] + 1 - o->window) / CPU_SPLIT_TOKENS;
    for (int split = first; split < u->last_split; split++) {
        reading next = { u, h.kv_head, split + 1 };
        attend(o, b, u, h, split, split + 1 < u->last_split ? next : after, scratch,
               split == first ? all : one);
        if (split > first)
            merge(b, all, one, count, size);
    }
    write_out(o, b, u->first_row, u->rows, h, all);
}

// Some splits of the unit's rows, to be merged when all are there.
static void run_part(const cpu_operation *o, const backend *b, const cpu_unit *u, head_range h,
                     reading after, float *scratch)
{
    int count = u->rows * h.count, size = o->heads.head_size;
    // The head groups of a split's result lie one after another.
    float *at = b->plan->partials + u->partial + (int64_t)u->rows * h.first * (size + 2);
    for (int split = u->first_split; split < u->last_split; split++) {
        reading next = { u, h.kv_head, split + 1 };
        attend(o, b, u, h, split, split + 1 < u->last_split ? next : after, scratch,
               state_at(at, count));
        at += (int64_t)u->rows * o->heads.q_heads * (size + 2);
    }
}

static void run_merge(const cpu_operation *o, const backend *b, const cpu_merge *m, head_range h,
                      float *scratch)
{
    int count = m->rows * h.count, size = o->heads.head_size;
    size_t floats = (size_t)count * (size_t)(size + 2);
    const int64_t stride = (int64_t)m->rows * o->heads.q_heads * (size + 2);
    float *from = b->plan->partials + m->partial + (int64_t)m->rows * h.first * (size + 2);
    state all = state_at(memcpy(scratch, from, floats * sizeof(float)), count);
    for (int split = 1; split < m->splits; split++)
        merge(b, all, state_at(from + split * stride, count), count, size);
    write_out(o, b, m->first_row, m->rows, h, all);
}

static int item_count(const cpu_operation *o, const backend *b, int phase)
{
    const cpu_plan *p = b->plan;
    return (phase == 0 ? p->unit_count : p->merge_count) * o->heads.kv_heads * p->head_groups;
}

static void run_attention(cpu_operation *o, backend *b, int phase, int thread, int first, int last)
{
    const cpu_plan *p = b->plan;
    int items = o->heads.kv_heads * p->head_groups;
    float *scratch = b->scratch[thread].attention;
    for (int i = first; i < last; i++) {
        head_range h = heads_of(o, p, i % items);
        if (phase == 1) {
            run_merge(o, b, &p->merges[i / items], h, scratch + CPU_ATTENTION_SCRATCH);
            continue;
        }
        reading after = { NULL, 0, 0 };
        if (i + 1 < last) {
            const cpu_unit *u = &p->units[(i + 1) / items];
            after = (reading){ u, heads_of(o, p, (i + 1) % items).kv_head, u->first_split };
        }
        const cpu_unit *u = &p->units[i / items];
        (u->partial < 0 ? run_whole : run_part)(o, b, u, h, after, scratch);
    }
}

void cpu_attention(backend_queue *q, backend_activation *out, const backend_activation *qkv,
                   const backend_heads *heads, const kv_memory *kv, int layer,
                   const backend_batch *batch, float scale, int window)
{
    CHECK(qkv->columns == (heads->q_heads + 2 * heads->kv_heads) * heads->head_size);
    CHECK(out->columns == heads->q_heads * heads->head_size);
    CHECK(out != qkv && batch->rows <= out->rows && batch->rows <= qkv->rows);
    CHECK(layer >= 0 && layer < kv->layout.layers);
    cpu_operation *o = cpu_queue_add(q, run_attention, 0);
    o->phases = 2;
    o->count_units = item_count;
    o->piece_max = ITEMS_AT_ONCE;
    o->attends = window <= 0;
    o->y = out;
    o->x = qkv;
    o->heads = *heads;
    o->kv = *kv;
    o->layer = layer;
    o->batch = *batch;
    o->scale = scale;
    o->window = window;
}
