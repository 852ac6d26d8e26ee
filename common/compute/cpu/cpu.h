// What the CPU backend's own files share: the open backend, its objects, and the table of kernels
// that one instruction-set level fills. Not for other modules.
//
// Formats
// - Tile: T output rows (level->tile_rows) x 32 inputs, so that one vector lane is one output row
//   and nothing is summed across lanes; tiles.h has the layout of every quantised type. A tile
//   column of a matrix is its tiles one after another, in ascending inputs. Floats: [input][T].
// - Panel: 4 rows of quantised input, block by block (cpu_panel_block).
// - KV: tiles of 32 tokens of one head's K or V; kv.c has the layout of every type.
//
// The step thread calls the table's slots; the kernels run on all compute threads during a submit.
#pragma once

#include "compute/backend.h"
#include "compute/cpu/threads.h"

#include <stdatomic.h>

#define CPU_TILE_TOKENS 32
#define CPU_SPLIT_TOKENS 128
#define CPU_SPLIT_TILES (CPU_SPLIT_TOKENS / CPU_TILE_TOKENS)
#define CPU_PANEL_ROWS 4
#define CPU_BLOCK 32         // inputs per scale
#define CPU_TILE_ROWS_MAX 16 // of any level
#define CPU_ROW_BLOCK_MAX 8  // rows of one kernel call, of any level
#define CPU_CHUNK_TILES 32   // tiles of one kernel call
#define CPU_HEAD_SIZE_MAX 256
#define CPU_ATTENTION_ROWS 96 // (query row, head) pairs of one work item
#define CPU_WEIGHT_PARTS 4

// Part of numeric_name: change it whenever a result's bits may change.
#define CPU_RECIPE_VERSION 3

// 32 inputs of up to 4 rows: q = round(x / d), d = max|x| / 127, sum over q, s = d * sum; `halves`
// are the sums of inputs 0..15 and 16..31.
typedef struct cpu_panel_block {
    int8_t q[CPU_PANEL_ROWS][CPU_BLOCK];
    float d[CPU_PANEL_ROWS];
    float s[CPU_PANEL_ROWS];
    int32_t sum[CPU_PANEL_ROWS];
    int16_t halves[CPU_PANEL_ROWS][2];
} cpu_panel_block;

// A block whose magnitudes are all below this is nothing beside the others, and 0: the reciprocal
// of less could overflow.
#define CPU_QUANTISED_LEAST 0x1p-100f

// Tiles times rows: out[tile][row][T] = W x. The kernel for 1..row_block rows reads the weights
// once. Quantised types read `panel` (the next 4 rows lie `blocks` later), float types read `x`.
typedef struct cpu_tile_call {
    const uint8_t *weights; // the first tile column
    int64_t tile_bytes;     // from one tile column to the next
    int tiles, rows;
    int blocks;  // of 32 inputs
    int columns; // inputs; blocks * 32 for quantised types
    const cpu_panel_block *panel;
    const float *x; // [rows][x_stride]
    int64_t x_stride;
    float *out;
    // Pieces of the cache that the next attention reads, `fetch_bytes` behind each of these
    // addresses plus `fetch_offset`: memory has nothing to do while many rows are multiplied, so
    // the kernel asks for some of their lines at each block. How far it comes changes no result.
    const uint8_t *const *fetch;
    int64_t fetch_offset, fetch_bytes;
    int fetch_count;
} cpu_tile_call;
typedef void (*cpu_tile_kernel)(const cpu_tile_call *call);
#define CPU_FETCH_ROWS 4  // fewer rows leave memory no time
#define CPU_FETCH_LINES 6 // at a block

// Two tile columns in wide form times rows: out[tile][row][T]. A level may have such a form of its
// quantised types without a minimum, CPU_WIDE_BLOCK_BYTES a block of a tile, which many rows pass
// through faster; each row's result has the bits of the type's tile kernel. (With minima there is a
// multiply-add more per sum, and the tile kernels are as near to the machine's limit.)
typedef struct cpu_wide_call {
    tensor_type type;       // of the weights before they were widened
    const uint8_t *wide[2]; // may be the same
    int blocks, rows;
    const cpu_panel_block *panel; // the next 4 rows lie `blocks` later
    float *out;
} cpu_wide_call;
#define CPU_WIDE_BLOCK_BYTES 640

// What becomes of out[tile][row][T]: y[row][first .. first + count) = epilogue(out + bias).
typedef struct cpu_finish_call {
    const float *out, *up; // `up`: paired rows only
    float *y;              // the first row's first column
    int64_t y_stride;
    const float *bias, *up_bias; // of the first column, or NULL
    int tiles, rows;
    int count; // columns; the last tile may reach beyond them
    backend_epilogue epilogue;
} cpu_finish_call;

// One (sequence, KV head, query block, split): softmax over the tokens of one split.
typedef struct cpu_attention_call {
    const kv_layout *layout;
    // Tiles of this head's K and V, NULL where no token of first .. last is in them; and tiles to
    // fetch because they will be read soon, not NULL where `v` is not.
    const uint8_t *k[CPU_SPLIT_TILES], *v[CPU_SPLIT_TILES], *ahead[CPU_SPLIT_TILES];
    int64_t tile_bytes;
    const int32_t *positions; // [rows] of the query rows
    const float *q;           // the first row's first head of the group
    int64_t q_stride;         // from row to row
    int rows, heads;          // rows * heads <= CPU_ATTENTION_ROWS
    int first, last;          // token positions first <= t < last, all in one split
    float scale;
    int window;
    // [rows*heads], of scores times log2(e); [rows*heads]; [rows*heads][head_size]
    float *maximum, *sum, *values;
    float *scratch; // CPU_ATTENTION_SCRATCH floats
} cpu_attention_call;
// Scores; a split's K or V; queries and probabilities of 16 bits.
#define CPU_ATTENTION_SCRATCH                                                                      \
    (CPU_ATTENTION_ROWS * CPU_SPLIT_TOKENS + CPU_HEAD_SIZE_MAX * CPU_SPLIT_TOKENS +                \
     CPU_ATTENTION_ROWS * (CPU_HEAD_SIZE_MAX + CPU_SPLIT_TOKENS) / 2)
// Maximum, sum and values of each (row, head).
#define CPU_ATTENTION_STATE (CPU_ATTENTION_ROWS * (CPU_HEAD_SIZE_MAX + 2))

// Bytes of 32 tokens of one head's K or V.
static inline int64_t cpu_tile_bytes(const kv_layout *l)
{
    return l->value_offset / (l->page_tokens / CPU_TILE_TOKENS);
}
// Where a tile of an 8-bit type keeps the scales of its tokens, f16.
static inline uint16_t *cpu_tile_scales(const kv_layout *l, const uint8_t *tile)
{
    return (uint16_t *)(uintptr_t)(tile + (int64_t)l->head_size * CPU_TILE_TOKENS);
}

typedef struct cpu_level {
    const char *name;
    int tile_rows; // T
    int row_block; // most rows of a tile kernel
    // y = RMSNorm(x) * norm, or y += that. y may be x.
    void (*norm)(const float *x, const float *norm, float epsilon, int columns, bool add, float *y);
    // x[0 .. dims) rotated by `angles`, [dims / 2][2] cosine and sine; pairs as in backend_rope.
    void (*rotate)(const float *angles, int dims, bool adjacent, float *x);
    // x, normalised where norm != NULL, into row `slot` of a panel.
    void (*quantise)(const float *x, const float *norm, float epsilon, int columns,
                     cpu_panel_block *panel, int slot);
    // f16 of x, clamped to its range; count is a multiple of 16.
    void (*halve)(const float *x, int count, uint16_t *halves);
    void (*finish)(const cpu_finish_call *call);
    void (*attention)(const cpu_attention_call *call);
    // (maximum, sum, values[size]) of later tokens into those of earlier ones, for `count` rows, as
    // `attention` leaves them: 16 floats are readable from any maximum on.
    void (*merge)(int count, int size, float *maximum, float *sum, float *values,
                  const float *later_maximum, const float *later_sum, const float *later_values);
    // y = x / sum + 0, for `size` values of one row, a multiple of 16.
    void (*divide)(const float *x, float sum, int size, float *y);
    // The largest of l[0..count); unspecified where one of them is a NaN.
    float (*largest)(const float *l, int count);
    // weights[i] = exp((l[i] - maximum) * factor); returns their sum, a NaN
    // where one of them is. `weights` may be l, or NULL for the sum alone.
    double (*weigh)(const float *l, int count, float maximum, float factor, float *weights);
    cpu_tile_kernel f32, f16, bf16, q4_0, q4_1, q5_0, q5_1, q8_0, q4_k, q5_k, q6_k;
    // NULL where the level has no wide form.
    void (*widen)(tensor_type type, const uint8_t *column, int blocks, uint8_t *wide);
    void (*wide)(const cpu_wide_call *call);
} cpu_level;

// Whether the epilogue takes two rows of the weight, the gate's and the other's, for one column of
// y.
static inline bool cpu_epilogue_pairs(backend_epilogue epilogue)
{
    return epilogue == BACKEND_SWIGLU || epilogue == BACKEND_GEGLU;
}

extern const cpu_level cpu_level_scalar, cpu_level_avx2, cpu_level_avx512;
// The level of that name, or the best one for "auto". STATUS_UNSUPPORTED where the CPU or the
// system lacks it.
status cpu_level_choose(const char *name, const cpu_level **level, error *failure);
cpu_tile_kernel cpu_level_kernel(const cpu_level *level, tensor_type type);

// ---- objects ----------------------------------------------------------------------------------

// The rows of one part, in tiles of their own.
typedef struct cpu_segment {
    tensor_type type;
    int rows, first_row; // in the stacked matrix
    int tiles;
    int64_t tile_bytes;
    size_t offset; // in the weight's piece of memory
    uint8_t *data;
} cpu_segment;

typedef struct cpu_arena cpu_arena;

struct backend_weight {
    backend *backend;
    cpu_arena *arena;
    int part_count, rows, columns, blocks;
    bool pair_rows;
    bool quantised, floating; // which inputs its segments read
    float *bias;              // [rows] or NULL
    size_t bytes;
    cpu_segment segments[CPU_WEIGHT_PARTS];
};

struct backend_activation {
    backend *backend;
    int rows, columns;
    int64_t stride; // floats from row to row, a multiple of 16
    float *data;
};

// One work item of an attention: query rows first_row .. first_row + rows of a sequence, splits
// first_split .. last_split. `partial` is the index of its first split's results in `partials`, or
// -1 where the item covers all splits and writes the output itself.
typedef struct cpu_unit {
    int32_t sequence, first_row, rows, first_split, last_split, partial;
    int64_t cost;
} cpu_unit;

// Query rows whose splits are merged after all items have run.
typedef struct cpu_merge {
    int32_t sequence, first_row, rows, splits, partial;
} cpu_merge;

#define CPU_UNITS_MAX 16384
#define CPU_PARTIAL_FLOATS (4 << 20) // no memory until it is touched
#define CPU_PLAN_PAGES 16384
typedef struct cpu_plan {
    cpu_unit units[CPU_UNITS_MAX];
    cpu_merge merges[CPU_UNITS_MAX];
    int unit_count, merge_count;
    int head_groups, group_heads; // a KV head's query heads in groups of this many
    float *partials;              // [CPU_PARTIAL_FLOATS]
    // The pages that sequences with a row or two look at, in the order of their units: where layer
    // 0 of each begins.
    const uint8_t *pages[CPU_PLAN_PAGES];
    int page_count;
} cpu_plan;

// Something to sort: by key, then by id, ascending.
typedef struct cpu_sort_entry {
    uint64_t key;
    uint32_t id;
} cpu_sort_entry;
void cpu_sort(cpu_sort_entry *entries, int count);

// What a compute thread owns.
typedef struct cpu_scratch {
    uint64_t prepared;       // serial of the operation whose input `panel` and `x` hold
    cpu_panel_block *panel;  // one panel of CPU_LOCAL_INPUTS inputs
    float *x;                // [CPU_LOCAL_INPUTS]
    uint8_t *wide;           // two tile columns of `wide_columns` inputs in wide form
    float *out, *up;         // [CPU_CHUNK_TILES][CPU_ROW_BLOCK_MAX][CPU_TILE_ROWS_MAX]
    float *attention;        // scratch, then states of one split and of the whole
    cpu_sort_entry *entries; // [sample_columns]
    float *logits;           // [sample_columns]
    float *weights;          // [sample_columns]
} cpu_scratch;
#define CPU_LOCAL_INPUTS 8192

struct backend {
    const cpu_level *level;
    cpu_threads *threads;
    backend_caps caps;
    cpu_arena *arenas; // newest first
    // The normalised or quantised input of the linear operation that runs now: room for the most
    // rows of any activation times the most columns of any weight.
    int input_rows, input_columns;
    cpu_panel_block *panels;
    float *inputs;
    int wide_columns;     // the widest weight, where the level has a wide form
    int sample_columns;   // the widest activation
    cpu_scratch *scratch; // [threads]
    uint64_t serial;      // operations recorded so far
    cpu_plan *plan;
};

// ---- queue ------------------------------------------------------------------------------------

typedef struct cpu_operation cpu_operation;

#define CPU_PHASES_MAX 2
// One recorded operation: phases of independent units (rows, tiles, work items), which threads take
// in pieces. A phase begins when all units of the one before are finished.
struct cpu_operation {
    // Units first .. last of a phase; results must not depend on the cut.
    void (*run)(cpu_operation *o, backend *b, int phase, int thread, int first, int last);
    // The units of a phase where only the run can tell; NULL: those below. 0: the phase is skipped.
    int (*count_units)(const cpu_operation *o, const backend *b, int phase);
    int phases;
    int units[CPU_PHASES_MAX];
    int piece_max;                 // units of a piece, at most; 0: no limit
    bool attends;                  // an attention over all positions
    cpu_operation *next_attention; // of the list that is submitted, where it attends; or NULL
    _Atomic int32_t fetched;       // pages of an attention's cache that were asked for
    uint64_t serial;               // of all operations of the backend, from 1
    // A cache line of their own: units handed out, and units finished.
    _Alignas(64) _Atomic int32_t taken[CPU_PHASES_MAX];
    _Atomic int32_t finished[CPU_PHASES_MAX];
    _Alignas(64) backend_activation *y;
    const backend_activation *x;
    const backend_weight *weight;
    const float *norm, *k_norm;
    const int32_t *index;
    float epsilon, scale;
    int rows, layer, window;
    backend_epilogue epilogue;
    backend_heads heads;
    backend_rope rope;
    kv_memory kv;
    backend_batch batch;
    const backend_sample *sample_rows;
    backend_sampled *results;
    void *destination;
    const void *source;
    size_t size;
    volatile uint32_t *flag;
    uint32_t value;
};

// The next free record, cleared but for `run` and one phase of `units`; what was recorded runs
// first where the list is full.
cpu_operation *cpu_queue_add(backend_queue *q,
                             void (*run)(cpu_operation *, backend *, int, int, int, int),
                             int units);

// The next piece of `total` units: an equal share of what is left, so that the last pieces are
// small (guided self-scheduling: Polychronopoulos and Kuck, 1987). Smaller shares would balance
// better but cost more: every piece begins with weights that nothing has fetched ahead, and takes a
// word that another core wrote last. False when all are taken. Any thread of a run.
bool cpu_take(_Atomic int32_t *taken, int total, int threads, int piece_max, int *first, int *last);

// ---- linear ---------------------------------------------------------------------------------

// What follows the products of tiles first .. last of a segment; `out`, `up`, `rows` and the row of
// `y` are the caller's.
cpu_finish_call cpu_linear_finish(const cpu_operation *o, const cpu_segment *s, int first, int last,
                                  int tile_rows);
// Ask for the cache lines of y that the call will write, or add to, before the products are made.
void cpu_linear_fetch(const cpu_finish_call *call);
// Whether the operation runs in the level's wide form; then it has so many units, and
// cpu_linear_wide runs some of them.
bool cpu_linear_is_wide(const cpu_operation *o, const backend *b);
int cpu_linear_wide_units(const cpu_operation *o);
void cpu_linear_wide(const cpu_operation *o, const backend *b, const cpu_panel_block *panels,
                     cpu_scratch *scratch, int first, int last);

// ---- memory -----------------------------------------------------------------------------------

// Zeroed memory, aligned to 64 bytes, 2 MiB pages advised where it is that big. NULL: none is left.
void *cpu_memory_take(size_t size);
void cpu_memory_release(void *data, size_t size);
// A piece of a big region shared by many weights; `arena` counts its pieces.
void *cpu_arena_take(backend *b, size_t size, cpu_arena **arena);
void cpu_arena_release(backend *b, cpu_arena *arena);
// Make room for inputs of `rows` x `columns` and for sampling rows of `sample_columns`.
status cpu_backend_grow(backend *b, int rows, int columns, int sample_columns);

// ---- slots of the table, by file --------------------------------------------------------------

status cpu_queue_open(backend *b, backend_queue **opened);
void cpu_queue_close(backend_queue *q);
uint64_t cpu_queue_submit(backend_queue *q);
bool cpu_queue_done(backend_queue *q, uint64_t submitted);
void cpu_queue_wait(backend_queue *q, uint64_t submitted);
void cpu_copy(backend_queue *q, void *destination, const void *source, size_t size);
void cpu_signal(backend_queue *q, volatile uint32_t *host_flag, uint32_t value);
bool cpu_step_begin(backend_queue *q, const backend_batch *batch);
void cpu_step_end(backend_queue *q);

status cpu_weight_load(backend *b, const backend_weight_source *source, backend_weight **loaded,
                       error *failure);
void cpu_weight_close(backend_weight *w);
size_t cpu_weight_bytes(const backend_weight *w);
// Row `row` of a one-part weight as float.
void cpu_weight_row(const backend_weight *w, int tile_rows, int row, float *values);

status cpu_activation_open(backend *b, int rows, int columns, backend_activation **opened);
void cpu_activation_close(backend_activation *a);
void cpu_activation_read(backend_queue *q, const backend_activation *a, int first, int rows,
                         float *values);
void cpu_activation_write(backend_queue *q, backend_activation *a, int first, int rows,
                          const float *values);
void cpu_embed(backend_queue *q, backend_activation *y, const backend_weight *embedding,
               const int32_t *tokens, int rows, float scale);
void cpu_gather(backend_queue *q, backend_activation *y, const backend_activation *x,
                const int32_t *index, int rows);
void cpu_linear(backend_queue *q, backend_activation *y, const backend_activation *x,
                const backend_weight *w, const float *norm, float epsilon, int rows,
                backend_epilogue epilogue);
void cpu_norm(backend_queue *q, backend_activation *y, const backend_activation *x,
              const float *norm, float epsilon, int rows, backend_epilogue epilogue);

// Write one head's K or V of one token into its page.
void cpu_kv_store(const cpu_operation *o, const backend *b, int sequence, int32_t position,
                  int head, bool value, const float *x);
status cpu_kv_layout(const backend *b, tensor_type type, int page_tokens, int layers, int kv_heads,
                     int head_size, kv_layout *layout, error *failure);
void cpu_rope_store(backend_queue *q, backend_activation *qkv, const backend_heads *heads,
                    const backend_rope *rope, const float *q_norm, const float *k_norm,
                    float epsilon, const kv_memory *kv, int layer, const backend_batch *batch);
void cpu_attention_plan(backend_queue *q, const backend_heads *heads, const kv_memory *kv,
                        const backend_batch *batch);
void cpu_attention(backend_queue *q, backend_activation *out, const backend_activation *qkv,
                   const backend_heads *heads, const kv_memory *kv, int layer,
                   const backend_batch *batch, float scale, int window);
void cpu_kv_copy(backend_queue *q, const kv_memory *kv, const int32_t *pairs, int count);
void cpu_sample(backend_queue *q, const backend_activation *logits, const backend_sample *rows,
                int count, backend_sampled *results);
void cpu_all_reduce(backend_queue *q, backend_activation *a, int rows);
