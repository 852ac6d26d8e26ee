// What the attention kernels of all cache types share; see attention_kernels.h.
//
// Split: CPU_SPLIT_TOKENS tokens at an absolute position, in tiles of CPU_TILE_TOKENS. Everything
// here is in the vectors of the level whose file includes it, and runs on whichever compute thread
// took the piece: it touches the call's own memory only.

#define ALWAYS_INLINE inline __attribute__((always_inline))
#define TOKEN_VECTORS (CPU_TILE_TOKENS / VF_LANES)
#define NARROW_VECTORS (16 / VF_LANES) // head sizes are multiples of 16
// More query rows than this read a tile often enough that widening its numbers first pays.
#define DIRECT_ROWS (2 * GROUP_ROWS)
#define LINE_BYTES 64
#define LOG2_E 1.44269504088896341f // softmax is computed in powers of 2

// Ask for the cache lines of `bytes` bytes; an address of nothing does no harm.
static ALWAYS_INLINE void prefetch(const uint8_t *ahead, int bytes)
{
    UNROLL for (int i = 0; i < bytes; i += LINE_BYTES) __builtin_prefetch(ahead + i, 0, 3);
}

// A kernel has a copy of its own for each number of rows that share the loads.
#define ROWS_CASE(count, function, type, ...)                                                      \
    case count:                                                                                    \
        function(type, count, __VA_ARGS__);                                                        \
        break;
#define SWITCH_3_ROWS(rows, ...)                                                                   \
    switch (rows) {                                                                                \
        ROWS_CASE(1, __VA_ARGS__)                                                                  \
        ROWS_CASE(2, __VA_ARGS__)                                                                  \
        ROWS_CASE(3, __VA_ARGS__)                                                                  \
    }
#define SWITCH_6_ROWS(rows, ...)                                                                   \
    switch (rows) {                                                                                \
        ROWS_CASE(1, __VA_ARGS__)                                                                  \
        ROWS_CASE(2, __VA_ARGS__)                                                                  \
        ROWS_CASE(3, __VA_ARGS__)                                                                  \
        ROWS_CASE(4, __VA_ARGS__)                                                                  \
        ROWS_CASE(5, __VA_ARGS__)                                                                  \
        ROWS_CASE(6, __VA_ARGS__)                                                                  \
    }

// How many of `left` rows to take at once: as even as groups of at most GROUP_ROWS allow.
static int group_of(int left)
{
    int groups = (left + GROUP_ROWS - 1) / GROUP_ROWS;
    return (left + groups - 1) / groups;
}

// 2^x for x <= 127: n = round(x), a polynomial of degree 6 for 2^(x - n) (the coefficients of
// Cephes' exp2f), times 2^n. At least 2^-126, which beside the 1 of the largest is nothing. NaN
// gives NaN.
static inline vf vf_exp2(vf x)
{
    const vf magic = vf_set(0x1.8p23f);
    vf y = vf_max(vf_set(-126), x);
    vf shifted = vf_add(y, magic);
    vf r = vf_sub(y, vf_sub(shifted, magic));
    vf p = vf_set(1.535336188319500e-4f);
    p = vf_fma(p, r, vf_set(1.339887440266574e-3f));
    p = vf_fma(p, r, vf_set(9.618437357674640e-3f));
    p = vf_fma(p, r, vf_set(5.550332471162809e-2f));
    p = vf_fma(p, r, vf_set(2.402264791363012e-1f));
    p = vf_fma(p, r, vf_set(6.931472028550421e-1f));
    p = vf_fma(p, r, vf_set(1));
    return vf_mul(p, vf_power_of_two(shifted));
}

// ---- one split --------------------------------------------------------------------------------

// What one query row may look at: nothing behind itself, nothing before its window. There is one
// for each pair of row and head, which are called rows below.
typedef struct visible {
    int first, last; // tokens of the split: first <= t < last
} visible;

static visible tokens_seen(const cpu_attention_call *call, int row)
{
    int position = call->positions[row], first = call->first, last = call->last;
    if (last > position + 1)
        last = position + 1;
    if (call->window > 0 && first < position + 1 - call->window)
        first = position + 1 - call->window;
    int start = call->first / CPU_SPLIT_TOKENS * CPU_SPLIT_TOKENS;
    return (visible){ first - start, last - start };
}

typedef struct row_range {
    int from, to;
} row_range;

// The tiles that hold what is seen.
static row_range tiles_of(visible seen)
{
    return (row_range){ seen.first / CPU_TILE_TOKENS,
                        (seen.last + CPU_TILE_TOKENS - 1) / CPU_TILE_TOKENS };
}

// x, tokens t .. of the split, with minus infinity in place of those that are not seen, whatever
// they are.
static inline vf hide(vf x, int t, visible seen)
{
    static const float lanes[] = { 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15 };
    vf token = vf_add(vf_load(lanes), vf_set((float)t));
    vf inside = vf_min(vf_sub(token, vf_set((float)seen.first)),
                       vf_sub(vf_set((float)(seen.last - 1)), token)); // negative where it is not
    vf limit = vf_mul(vf_add(inside, vf_set(0.5f)), vf_set(INFINITY));
    return vf_min(limit, vf_zero_where_less(inside, vf_set(0), x));
}

// The largest score of one row; those of its tiles' tokens that it does not see are hidden.
static float largest_score(float *scores, visible seen)
{
    int from = tiles_of(seen).from * CPU_TILE_TOKENS, to = tiles_of(seen).to * CPU_TILE_TOKENS;
    for (int t = from; t < seen.first; t += VF_LANES)
        vf_store(scores + t, hide(vf_load(scores + t), t, seen));
    for (int t = seen.last / VF_LANES * VF_LANES; t < to; t += VF_LANES)
        vf_store(scores + t, hide(vf_load(scores + t), t, seen));
    vf most = vf_load(scores + from);
    for (int t = from + VF_LANES; t < to; t += VF_LANES)
        most = vf_max(most, vf_load(scores + t));
    return vf_largest(most);
}

// Scores of one row to 2 to the power of their distance from the largest; returns their sum.
static float soften_row(float *scores, visible seen, float maximum)
{
    int from = tiles_of(seen).from * CPU_TILE_TOKENS, to = tiles_of(seen).to * CPU_TILE_TOKENS;
    vf total = vf_set(0), largest = vf_set(maximum);
    for (int t = from; t < to; t += VF_LANES) {
        vf p = vf_exp2(vf_sub(vf_load(scores + t), largest));
        vf_store(scores + t, p);
        total = vf_add(total, p);
    }
    return vf_sum(total);
}

// Scores of all rows to probabilities that are not divided by their sum yet. Maxima first: a row
// alone is one long chain, which the processor would wait for.
static void soften(const cpu_attention_call *call, const visible *seen, row_range all,
                   float *scores)
{
    for (int i = all.from; i < all.to; i++)
        call->maximum[i] = largest_score(scores + i * CPU_SPLIT_TOKENS, seen[i]);
    for (int i = all.from; i < all.to; i++)
        call->sum[i] = soften_row(scores + i * CPU_SPLIT_TOKENS, seen[i], call->maximum[i]);
}

// Rows ascend in position, so those that see nothing of a run of tokens are at either end.
static row_range rows_seeing(const visible *seen, int rows, int first, int last)
{
    row_range r = { 0, rows };
    while (r.from < r.to && seen[r.from].last <= first)
        r.from++;
    while (r.to > r.from && seen[r.to - 1].first >= last)
        r.to--;
    return r;
}

// Where a call keeps what it computes on the way, in call->scratch.
typedef struct attention_room {
    float *scores;  // [CPU_ATTENTION_ROWS][CPU_SPLIT_TOKENS]
    float *floats;  // a split's K or V
    int16_t *words; // the same, for the int8 cache
    int16_t *q, *p; // its queries [CPU_ATTENTION_ROWS][head_size] and probabilities, as the scores
} attention_room;

static attention_room room_of(float *scratch)
{
    attention_room room = { .scores = scratch };
    room.floats = scratch + CPU_ATTENTION_ROWS * CPU_SPLIT_TOKENS;
    room.words = (int16_t *)room.floats;
    room.q = (int16_t *)(room.floats + CPU_HEAD_SIZE_MAX * CPU_SPLIT_TOKENS);
    room.p = room.q + CPU_ATTENTION_ROWS * CPU_HEAD_SIZE_MAX;
    return room;
}
