// The attention kernels, written once in the vector operations of vector_<level>.h; see kernels.h.
//
// Order of sums, the same for a row whatever stands beside it: a score adds d = 0, 1, ...; an
// output adds tokens in ascending order; softmax rescales once per tile of 32 tokens at absolute
// positions. Each sum is one chain of multiply-adds per lane, so how many rows share a load changes
// nothing.

#define ALWAYS_INLINE inline __attribute__((always_inline))
#define TOKEN_VECTORS (CPU_TILE_TOKENS / VF_LANES)
#define NARROW_VECTORS (16 / VF_LANES) // head sizes are multiples of 16
#define SHARED_ROWS 3                  // rows that share the loads of K or V

// Numbers i .. i + VF_LANES of a tile. `type` is a constant wherever this is inlined.
static ALWAYS_INLINE vf numbers_at(tensor_type type, const uint8_t *tile, int64_t i)
{
    if (type == TENSOR_F32)
        return vf_load((const float *)tile + i);
    if (type == TENSOR_F16)
        return vf_load_f16((const uint16_t *)tile + i);
    return vf_load_bf16((const uint16_t *)tile + i);
}

// The tile as floats in `scratch`: pays where more rows than share a load will read it.
static ALWAYS_INLINE void widen(tensor_type type, const uint8_t *tile, int count, float *scratch)
{
    for (int i = 0; i < count; i += VF_LANES)
        vf_store(scratch + i, numbers_at(type, tile, i));
}

// scores[row][t] = scale * sum over d of q[row][d] k[d][t] for `count` rows.
static ALWAYS_INLINE void score_rows(tensor_type type, int count, const float *const *q,
                                     const uint8_t *k, int size, float scale, float *scores)
{
    for (int t = 0; t < TOKEN_VECTORS; t += SCORE_VECTORS) {
        vf sums[SHARED_ROWS][SCORE_VECTORS];
        UNROLL for (int r = 0; r < count; r++) UNROLL for (int v = 0; v < SCORE_VECTORS; v++)
            sums[r][v] = vf_set(0);
        for (int d = 0; d < size; d++) {
            vf x[SHARED_ROWS];
            UNROLL for (int r = 0; r < count; r++) x[r] = vf_set(q[r][d]);
            UNROLL for (int v = 0; v < SCORE_VECTORS; v++)
            {
                vf value = numbers_at(type, k, d * CPU_TILE_TOKENS + (t + v) * VF_LANES);
                UNROLL for (int r = 0; r < count; r++) sums[r][v] = vf_fma(x[r], value, sums[r][v]);
            }
        }
        UNROLL for (int r = 0; r < count; r++) UNROLL for (int v = 0; v < SCORE_VECTORS; v++)
            vf_store(scores + r * CPU_TILE_TOKENS + (t + v) * VF_LANES,
                     vf_mul(sums[r][v], vf_set(scale)));
    }
}

// values[row][d ..] += sum over first <= t < last of p[row][t] v[t][d ..], `width` vectors of dims.
static ALWAYS_INLINE void add_dims(tensor_type type, int count, int width, const float *p,
                                   const uint8_t *v, int first, int last, int size, int d,
                                   float *values)
{
    vf sums[SHARED_ROWS][VALUE_VECTORS];
    UNROLL for (int r = 0; r < count; r++) UNROLL for (int i = 0; i < width; i++) sums[r][i] =
        vf_load(values + (int64_t)r * size + d + i * VF_LANES);
    for (int t = first; t < last; t++) {
        vf x[SHARED_ROWS];
        UNROLL for (int r = 0; r < count; r++) x[r] = vf_set(p[r * CPU_TILE_TOKENS + t]);
        UNROLL for (int i = 0; i < width; i++)
        {
            vf value = numbers_at(type, v, (int64_t)t * size + d + i * VF_LANES);
            UNROLL for (int r = 0; r < count; r++) sums[r][i] = vf_fma(x[r], value, sums[r][i]);
        }
    }
    UNROLL for (int r = 0; r < count; r++) UNROLL for (int i = 0; i < width; i++)
        vf_store(values + (int64_t)r * size + d + i * VF_LANES, sums[r][i]);
}

static ALWAYS_INLINE void add_rows(tensor_type type, int count, const float *p, const uint8_t *v,
                                   int first, int last, int size, float *values)
{
    int d = 0;
    for (; d + VALUE_VECTORS * VF_LANES <= size; d += VALUE_VECTORS * VF_LANES)
        add_dims(type, count, VALUE_VECTORS, p, v, first, last, size, d, values);
    for (; d < size; d += NARROW_VECTORS * VF_LANES)
        add_dims(type, count, NARROW_VECTORS, p, v, first, last, size, d, values);
}

// Each number type has its own copies of the loops above.
#define TYPE_KERNELS(name, type)                                                                   \
    static void scores_##name(const float *const *q, int rows, const uint8_t *k, int size,         \
                              float scale, float *scores)                                          \
    {                                                                                              \
        for (; rows >= 3; rows -= 3, q += 3, scores += 3 * CPU_TILE_TOKENS)                        \
            score_rows(type, 3, q, k, size, scale, scores);                                        \
        if (rows == 2)                                                                             \
            score_rows(type, 2, q, k, size, scale, scores);                                        \
        else if (rows == 1)                                                                        \
            score_rows(type, 1, q, k, size, scale, scores);                                        \
    }                                                                                              \
    static void values_##name(const float *p, int rows, const uint8_t *v, int first, int last,     \
                              int size, float *values)                                             \
    {                                                                                              \
        for (; rows >= 3; rows -= 3, p += 3 * CPU_TILE_TOKENS, values += 3 * size)                 \
            add_rows(type, 3, p, v, first, last, size, values);                                    \
        if (rows == 2)                                                                             \
            add_rows(type, 2, p, v, first, last, size, values);                                    \
        else if (rows == 1)                                                                        \
            add_rows(type, 1, p, v, first, last, size, values);                                    \
    }

TYPE_KERNELS(f32, TENSOR_F32)
TYPE_KERNELS(f16, TENSOR_F16)
TYPE_KERNELS(bf16, TENSOR_BF16)

// A tile of K and V as the kernels read it.
typedef struct tile {
    tensor_type type;
    const uint8_t *k, *v;
} tile;

static void scores_of(const tile *t, const float *const *q, int rows, int size, float scale,
                      float *scores)
{
    if (t->type == TENSOR_F32)
        scores_f32(q, rows, t->k, size, scale, scores);
    else if (t->type == TENSOR_F16)
        scores_f16(q, rows, t->k, size, scale, scores);
    else
        scores_bf16(q, rows, t->k, size, scale, scores);
}

static void add_values(const tile *t, const float *p, int rows, int first, int last, int size,
                       float *values)
{
    if (t->type == TENSOR_F32)
        values_f32(p, rows, t->v, first, last, size, values);
    else if (t->type == TENSOR_F16)
        values_f16(p, rows, t->v, first, last, size, values);
    else
        values_bf16(p, rows, t->v, first, last, size, values);
}

static void scale_values(float *values, float factor, int size)
{
    for (int d = 0; d < size; d += VF_LANES)
        vf_store(values + d, vf_mul(vf_load(values + d), vf_set(factor)));
}

// Scores of one row to probabilities relative to the row's new maximum, tokens outside first ..
// last to 0; what was summed before is rescaled.
static void soften(float *scores, int first, int last, int size, float *maximum, float *sum,
                   float *values)
{
    for (int t = 0; t < first; t++)
        scores[t] = -INFINITY;
    for (int t = last; t < CPU_TILE_TOKENS; t++)
        scores[t] = -INFINITY;
    vf most = vf_load(scores);
    for (int i = 1; i < TOKEN_VECTORS; i++)
        most = vf_max(most, vf_load(scores + i * VF_LANES));
    float next = vf_largest(most);
    next = *maximum > next ? *maximum : next;
    vf total = vf_set(0);
    for (int i = 0; i < TOKEN_VECTORS; i++) {
        vf p = vf_exp(vf_sub(vf_load(scores + i * VF_LANES), vf_set(next)));
        vf_store(scores + i * VF_LANES, p);
        total = vf_add(total, p);
    }
    if (next != *maximum) { // a factor of exactly 1 otherwise
        float factor = exp_of(*maximum - next);
        *sum *= factor;
        scale_values(values, factor, size);
        *maximum = next;
    }
    *sum += vf_sum(total);
}

typedef struct visible {
    int first, last; // of the tile's 32 tokens
} visible;

// Which tokens of the tile that begins at `start` a query at `position` sees.
static visible tokens_seen(const cpu_attention_call *call, int position, int start)
{
    int first = call->first, last = call->last;
    if (last > position + 1)
        last = position + 1;
    if (call->window > 0 && first < position + 1 - call->window)
        first = position + 1 - call->window;
    visible seen = { first - start, last - start };
    if (seen.first < 0)
        seen.first = 0;
    if (seen.last > CPU_TILE_TOKENS)
        seen.last = CPU_TILE_TOKENS;
    return seen;
}

// The tile that begins at token `start`; widened once where many rows will read it.
static tile tile_at(const cpu_attention_call *call, int start, int rows)
{
    const kv_layout *l = call->layout;
    int count = l->head_size * CPU_TILE_TOKENS;
    int64_t tile_bytes = l->value_offset / (l->page_tokens / CPU_TILE_TOKENS);
    const uint8_t *k = call->pool + call->table[start / l->page_tokens] * l->page_bytes +
                       start % l->page_tokens / CPU_TILE_TOKENS * tile_bytes;
    tile t = { l->type, k, k + l->value_offset };
    if (l->type == TENSOR_F32 || rows <= SHARED_ROWS)
        return t;
    float *wide = call->scratch;
    if (l->type == TENSOR_F16) {
        widen(TENSOR_F16, t.k, count, wide);
        widen(TENSOR_F16, t.v, count, wide + count);
    } else {
        widen(TENSOR_BF16, t.k, count, wide);
        widen(TENSOR_BF16, t.v, count, wide + count);
    }
    return (tile){ TENSOR_F32, (const uint8_t *)wide, (const uint8_t *)(wide + count) };
}

typedef struct row_range {
    int from, to;
} row_range;

// Rows ascend in position, so those that see nothing of the tile at `start` are at either end.
static row_range rows_seeing(const cpu_attention_call *call, int start)
{
    row_range r = { 0, call->rows };
    while (r.from < r.to && tokens_seen(call, call->positions[r.from], start).last <= 0)
        r.from++;
    while (r.to > r.from) {
        visible seen = tokens_seen(call, call->positions[r.to - 1], start);
        if (seen.first < seen.last)
            break;
        r.to--;
    }
    return r;
}

static void attend_tile(const cpu_attention_call *call, int start, const float *const *q)
{
    int size = call->layout->head_size, heads = call->heads;
    float *scores = call->scratch + 2 * CPU_HEAD_SIZE_MAX * CPU_TILE_TOKENS;
    row_range r = rows_seeing(call, start);
    if (r.from == r.to)
        return;
    tile t = tile_at(call, start, (r.to - r.from) * heads);
    scores_of(&t, q + r.from * heads, (r.to - r.from) * heads, size, call->scale, scores);
    int group = r.from; // query rows group .. row see the same tokens
    for (int row = r.from; row < r.to; row++) {
        visible seen = tokens_seen(call, call->positions[row], start), next = { -1, -1 };
        for (int i = row * heads; i < (row + 1) * heads && seen.first < seen.last; i++)
            soften(scores + (i - r.from * heads) * CPU_TILE_TOKENS, seen.first, seen.last, size,
                   &call->maximum[i], &call->sum[i], call->values + (int64_t)i * size);
        if (row + 1 < r.to)
            next = tokens_seen(call, call->positions[row + 1], start);
        if (next.first == seen.first && next.last == seen.last)
            continue;
        if (seen.first < seen.last)
            add_values(&t, scores + (group - r.from) * heads * CPU_TILE_TOKENS,
                       (row + 1 - group) * heads, seen.first, seen.last, size,
                       call->values + (int64_t)group * heads * size);
        group = row + 1;
    }
}

static void LEVEL(attention)(const cpu_attention_call *call)
{
    const float *q[CPU_ATTENTION_ROWS];
    int size = call->layout->head_size, count = call->rows * call->heads;
    for (int i = 0; i < count; i++) {
        q[i] = call->q + i / call->heads * call->q_stride + (int64_t)(i % call->heads) * size;
        call->maximum[i] = -INFINITY;
        call->sum[i] = 0;
    }
    memset(call->values, 0, (size_t)count * (size_t)size * sizeof(float));
    for (int start = call->first / CPU_TILE_TOKENS * CPU_TILE_TOKENS; start < call->last;
         start += CPU_TILE_TOKENS)
        attend_tile(call, start, q);
}

static void LEVEL(merge)(float *maximum, float *sum, float *values, float later_maximum,
                         float later_sum, const float *later_values, int size)
{
    if (later_maximum == -INFINITY) // that split holds nothing which this row sees
        return;
    float most = *maximum > later_maximum ? *maximum : later_maximum;
    float before = exp_of(*maximum - most), after = exp_of(later_maximum - most);
    *sum = *sum * before + later_sum * after;
    for (int d = 0; d < size; d += VF_LANES)
        vf_store(values + d, vf_fma(vf_load(later_values + d), vf_set(after),
                                    vf_mul(vf_load(values + d), vf_set(before))));
    *maximum = most;
}
