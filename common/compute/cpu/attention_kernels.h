// The attention kernels, written once in the vector operations of vector_<level>.h; see kernels.h.
//
// One call is one split: all scores first, then one softmax over them, then the sum of values, so
// that nothing is rescaled on the way. Order of sums, the same for a row whatever stands beside it:
// a score adds d = 0, 1, ...; the sum of probabilities adds vectors in ascending order, then the
// lanes; an output adds tokens in ascending order. Each sum is one chain of multiply-adds per lane,
// so how many rows share a load changes nothing.

#define ALWAYS_INLINE inline __attribute__((always_inline))
#define TOKEN_VECTORS (CPU_TILE_TOKENS / VF_LANES)
#define NARROW_VECTORS (16 / VF_LANES) // head sizes are multiples of 16
// More query rows than this read a tile often enough that widening it to floats first pays.
#define DIRECT_ROWS (2 * GROUP_ROWS)
#define LINE_BYTES 64

// Numbers i .. i + VF_LANES of a tile. `type` is a constant wherever this is inlined.
static ALWAYS_INLINE vf numbers_at(tensor_type type, const uint8_t *tile, int64_t i)
{
    if (type == TENSOR_F32)
        return vf_load((const float *)tile + i);
    if (type == TENSOR_F16)
        return vf_load_f16((const uint16_t *)tile + i);
    return vf_load_bf16((const uint16_t *)tile + i);
}

static ALWAYS_INLINE int number_bytes(tensor_type type)
{
    return type == TENSOR_F32 ? 4 : 2;
}

static ALWAYS_INLINE void prefetch(const uint8_t *ahead, int bytes)
{
    UNROLL for (int i = 0; i < bytes; i += LINE_BYTES) __builtin_prefetch(ahead + i, 0, 3);
}

// The tile as floats in `wide`.
static ALWAYS_INLINE void widen(tensor_type type, const uint8_t *tile, const uint8_t *ahead,
                                int count, float *wide)
{
    const int step = LINE_BYTES / number_bytes(type);
    for (int i = 0; i < count; i += step) {
        prefetch(ahead + i * number_bytes(type), LINE_BYTES);
        UNROLL for (int j = 0; j < step; j += VF_LANES)
            vf_store(wide + i + j, numbers_at(type, tile, i + j));
    }
}

// scores[row][t] = scale * sum over d of q[row][d] k[d][t] for `count` rows and one tile.
static ALWAYS_INLINE void score_rows(tensor_type type, int count, const float *const *q,
                                     const uint8_t *k, const uint8_t *ahead, int size, float scale,
                                     float *scores)
{
    const int row_bytes = CPU_TILE_TOKENS * number_bytes(type);
    for (int t = 0; t < TOKEN_VECTORS; t += SCORE_VECTORS) {
        vf sums[GROUP_ROWS][SCORE_VECTORS];
        UNROLL for (int r = 0; r < count; r++) UNROLL for (int v = 0; v < SCORE_VECTORS; v++)
            sums[r][v] = vf_set(0);
        for (int d = 0; d < size; d++) {
            vf value[SCORE_VECTORS];
            if (type != TENSOR_F32 && t == 0)
                prefetch(ahead + d * row_bytes, row_bytes);
            UNROLL for (int v = 0; v < SCORE_VECTORS; v++) value[v] =
                numbers_at(type, k, d * CPU_TILE_TOKENS + (t + v) * VF_LANES);
            UNROLL for (int r = 0; r < count; r++)
            {
                vf x = vf_set(q[r][d]);
                UNROLL for (int v = 0; v < SCORE_VECTORS; v++) sums[r][v] =
                    vf_fma(x, value[v], sums[r][v]);
            }
        }
        UNROLL for (int r = 0; r < count; r++) UNROLL for (int v = 0; v < SCORE_VECTORS; v++)
            vf_store(scores + r * CPU_SPLIT_TOKENS + (t + v) * VF_LANES,
                     vf_mul(sums[r][v], vf_set(scale)));
    }
}

// values[row][d ..] += sum over first <= t < last of p[row][t] v[t][d ..], `width` vectors of dims.
// Token t is row t % 32 of tile t / 32; while a tile is read the one ahead is fetched.
static ALWAYS_INLINE void add_dims(tensor_type type, int count, int width, const float *p,
                                   const uint8_t *const *tiles, const uint8_t *const *ahead,
                                   int first, int last, int size, int d, float *values)
{
    const int bytes = number_bytes(type);
    vf sums[GROUP_ROWS][VALUE_VECTORS];
    UNROLL for (int r = 0; r < count; r++) UNROLL for (int i = 0; i < width; i++) sums[r][i] =
        vf_load(values + (int64_t)r * size + d + i * VF_LANES);
    for (int t = first; t < last;) {
        int tile = t / CPU_TILE_TOKENS, end = (tile + 1) * CPU_TILE_TOKENS;
        int64_t offset = ((int64_t)(t % CPU_TILE_TOKENS) * size + d) * bytes;
        for (end = end < last ? end : last; t < end; t++, offset += (int64_t)size * bytes) {
            vf value[VALUE_VECTORS];
            if (type != TENSOR_F32)
                prefetch(ahead[tile] + offset, width * VF_LANES * bytes);
            UNROLL for (int i = 0; i < width; i++) value[i] =
                numbers_at(type, tiles[tile] + offset, i * VF_LANES);
            UNROLL for (int r = 0; r < count; r++)
            {
                vf x = vf_set(p[r * CPU_SPLIT_TOKENS + t]);
                UNROLL for (int i = 0; i < width; i++) sums[r][i] = vf_fma(x, value[i], sums[r][i]);
            }
        }
    }
    UNROLL for (int r = 0; r < count; r++) UNROLL for (int i = 0; i < width; i++)
        vf_store(values + (int64_t)r * size + d + i * VF_LANES, sums[r][i]);
}

static ALWAYS_INLINE void add_rows(tensor_type type, int count, const float *p,
                                   const uint8_t *const *tiles, const uint8_t *const *ahead,
                                   int first, int last, int size, float *values)
{
    int d = 0;
    for (; d + VALUE_VECTORS * VF_LANES <= size; d += VALUE_VECTORS * VF_LANES)
        add_dims(type, count, VALUE_VECTORS, p, tiles, ahead, first, last, size, d, values);
    for (; d < size; d += NARROW_VECTORS * VF_LANES)
        add_dims(type, count, NARROW_VECTORS, p, tiles, ahead, first, last, size, d, values);
}

// Each number type has its own copies of the loops above, one for each number of rows.
#define TYPE_KERNELS(name, type)                                                                   \
    static void scores_##name(int rows, const float *const *q, const uint8_t *k,                   \
                              const uint8_t *ahead, int size, float scale, float *scores)          \
    {                                                                                              \
        SWITCH_ROWS(rows, score_rows, type, q, k, ahead, size, scale, scores)                      \
    }                                                                                              \
    static void values_##name(int rows, const float *p, const uint8_t *const *tiles,               \
                              const uint8_t *const *ahead, int first, int last, int size,          \
                              float *values)                                                       \
    {                                                                                              \
        SWITCH_ROWS(rows, add_rows, type, p, tiles, ahead, first, last, size, values)              \
    }
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

TYPE_KERNELS(f32, TENSOR_F32)
TYPE_KERNELS(f16, TENSOR_F16)
TYPE_KERNELS(bf16, TENSOR_BF16)

// What the kernels of one type share; rows <= GROUP_ROWS.
typedef struct type_kernels {
    void (*scores)(int rows, const float *const *q, const uint8_t *k, const uint8_t *ahead,
                   int size, float scale, float *scores);
    void (*values)(int rows, const float *p, const uint8_t *const *tiles,
                   const uint8_t *const *ahead, int first, int last, int size, float *values);
} type_kernels;

static type_kernels kernels_of(tensor_type type)
{
    if (type == TENSOR_F32)
        return (type_kernels){ scores_f32, values_f32 };
    if (type == TENSOR_F16)
        return (type_kernels){ scores_f16, values_f16 };
    return (type_kernels){ scores_bf16, values_bf16 };
}

static void widen_tile(tensor_type type, const uint8_t *tile, const uint8_t *ahead, int count,
                       float *wide)
{
    if (type == TENSOR_F16)
        widen(TENSOR_F16, tile, ahead, count, wide);
    else
        widen(TENSOR_BF16, tile, ahead, count, wide);
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

// Scores of one row to 2 to the power of their distance from the largest; those of its tiles'
// tokens that it does not see become 0.
static void soften(float *scores, visible seen, float *maximum, float *sum)
{
    int from = seen.first / CPU_TILE_TOKENS * CPU_TILE_TOKENS;
    int to = (seen.last + CPU_TILE_TOKENS - 1) / CPU_TILE_TOKENS * CPU_TILE_TOKENS;
    for (int t = from; t < seen.first; t++)
        scores[t] = -INFINITY;
    for (int t = seen.last; t < to; t++)
        scores[t] = -INFINITY;
    vf most = vf_load(scores + from);
    for (int t = from + VF_LANES; t < to; t += VF_LANES)
        most = vf_max(most, vf_load(scores + t));
    *maximum = vf_largest(most);
    vf total = vf_set(0), largest = vf_set(*maximum);
    for (int t = from; t < to; t += VF_LANES) {
        vf p = vf_exp2(vf_sub(vf_load(scores + t), largest));
        vf_store(scores + t, p);
        total = vf_add(total, p);
    }
    *sum = vf_sum(total);
}

// Rows ascend in position, so those that see nothing of a run of tokens are at either end.
typedef struct row_range {
    int from, to;
} row_range;

static row_range rows_seeing(const visible *seen, int rows, int first, int last)
{
    row_range r = { 0, rows };
    while (r.from < r.to && seen[r.from].last <= first)
        r.from++;
    while (r.to > r.from && seen[r.to - 1].first >= last)
        r.to--;
    return r;
}

static void score_tiles(const cpu_attention_call *call, const visible *seen, row_range all,
                        float *k_wide, float *scores)
{
    const float *q[CPU_ATTENTION_ROWS];
    int size = call->layout->head_size, heads = call->heads;
    float scale = call->scale * 1.44269504088896341f; // softmax is computed in powers of 2
    for (int i = 0; i < call->rows * heads; i++)
        q[i] = call->q + i / heads * call->q_stride + (int64_t)(i % heads) * size;
    for (int tile = 0; tile < CPU_SPLIT_TILES; tile++) {
        int start = tile * CPU_TILE_TOKENS;
        row_range r = rows_seeing(seen, all.to, start, start + CPU_TILE_TOKENS);
        int last = r.to * heads;
        if (r.from >= r.to)
            continue;
        tensor_type type = call->layout->type;
        const uint8_t *k = call->k[tile];
        if (type != TENSOR_F32 && last - r.from * heads > DIRECT_ROWS) {
            widen_tile(type, k, call->v[tile], size * CPU_TILE_TOKENS, k_wide);
            type = TENSOR_F32;
            k = (const uint8_t *)k_wide;
        }
        for (int i = r.from * heads, count; i < last; i += count) {
            count = group_of(last - i);
            kernels_of(type).scores(count, q + i, k, call->v[tile], size, scale,
                                    scores + i * CPU_SPLIT_TOKENS + start);
        }
    }
}

// Each row adds exactly the tokens that it sees, in ascending order: those that all rows of a
// group see together, those before and after row by row.
static void add_values(const cpu_attention_call *call, const visible *seen, tensor_type type,
                       const uint8_t *const *tiles, row_range all, const float *scores)
{
    int size = call->layout->head_size, heads = call->heads;
    type_kernels kernels = kernels_of(type);
    for (int i = all.from * heads, last = all.to * heads, count; i < last; i += count) {
        count = group_of(last - i);
        int first = seen[(i + count - 1) / heads].first, end = seen[i / heads].last;
        for (int r = i; r < i + count; r++) {
            visible s = seen[r / heads];
            int to = first < end ? first : s.last;
            if (s.first < to)
                kernels.values(1, scores + r * CPU_SPLIT_TOKENS, tiles, call->ahead, s.first, to,
                               size, call->values + (int64_t)r * size);
        }
        if (first >= end)
            continue;
        kernels.values(count, scores + i * CPU_SPLIT_TOKENS, tiles, call->ahead, first, end, size,
                       call->values + (int64_t)i * size);
        for (int r = i; r < i + count; r++)
            if (end < seen[r / heads].last)
                kernels.values(1, scores + r * CPU_SPLIT_TOKENS, tiles, call->ahead, end,
                               seen[r / heads].last, size, call->values + (int64_t)r * size);
    }
}

static void LEVEL(attention)(const cpu_attention_call *call)
{
    visible seen[CPU_ATTENTION_ROWS];
    int size = call->layout->head_size, heads = call->heads, count = call->rows * heads;
    float *k_wide = call->scratch, *v_wide = k_wide + CPU_HEAD_SIZE_MAX * CPU_TILE_TOKENS;
    float *scores = v_wide + CPU_HEAD_SIZE_MAX * CPU_SPLIT_TOKENS;
    for (int row = 0; row < call->rows; row++)
        seen[row] = tokens_seen(call, row);
    row_range all = rows_seeing(seen, call->rows, 0, CPU_SPLIT_TOKENS);
    for (int i = 0; i < count; i++) {
        call->maximum[i] = -INFINITY;
        call->sum[i] = 0;
    }
    memset(call->values, 0, (size_t)count * (size_t)size * sizeof(float));
    for (int i = 0; i < CPU_SPLIT_TILES; i++) // those that no tile of this split fetches on its way
        for (int at = 0; call->v[i] == NULL && call->ahead[i] != NULL && at < call->tile_bytes;
             at += LINE_BYTES)
            prefetch(call->ahead[i] + at, LINE_BYTES);
    score_tiles(call, seen, all, k_wide, scores);
    for (int i = all.from * heads; i < all.to * heads; i++)
        soften(scores + i * CPU_SPLIT_TOKENS, seen[i / heads], &call->maximum[i], &call->sum[i]);
    tensor_type type = call->layout->type;
    const uint8_t *wide[CPU_SPLIT_TILES];
    bool widens = type != TENSOR_F32 && (all.to - all.from) * heads > DIRECT_ROWS;
    for (int tile = 0; widens && tile < CPU_SPLIT_TILES; tile++) {
        float *to = v_wide + tile * CPU_TILE_TOKENS * size;
        wide[tile] = (const uint8_t *)to;
        if (call->v[tile] != NULL)
            widen_tile(type, call->v[tile], call->ahead[tile], size * CPU_TILE_TOKENS, to);
    }
    add_values(call, seen, widens ? TENSOR_F32 : type, widens ? wide : call->v, all, scores);
}

static void LEVEL(merge)(int count, int size, float *maximum, float *sum, float *values,
                         const float *later_maximum, const float *later_sum,
                         const float *later_values)
{
    float before[CPU_ATTENTION_ROWS], after[CPU_ATTENTION_ROWS];
    for (int i = 0; i < count; i += VF_LANES) {
        vf earlier = vf_load(maximum + i), later = vf_load(later_maximum + i);
        vf most = vf_max(earlier, later);
        vf_store(before + i, vf_exp2(vf_sub(earlier, most)));
        vf_store(after + i, vf_exp2(vf_sub(later, most)));
    }
    for (int i = 0; i < count; i++, values += size, later_values += size) {
        if (later_maximum[i] == -INFINITY) // that split holds nothing which this row sees
            continue;
        sum[i] = sum[i] * before[i] + later_sum[i] * after[i];
        for (int d = 0; d < size; d += VF_LANES)
            vf_store(values + d, vf_fma(vf_load(later_values + d), vf_set(after[i]),
                                        vf_mul(vf_load(values + d), vf_set(before[i]))));
        maximum[i] = maximum[i] > later_maximum[i] ? maximum[i] : later_maximum[i];
    }
}
