// Attention over caches of floats: f32, f16, bf16 and fp8. K is [head_size][32 tokens], V [32
// tokens][head_size]; products and sums are floats. A token's scale (fp8) multiplies its score and
// its probability.
//
// A part of attention_kernels.h, which includes it behind attention_split.h; the level's file says
// how many vectors and rows its registers hold (SCORE_VECTORS, VALUE_VECTORS, GROUP_ROWS). The way
// in is attend_float. Everywhere: `size` is the head size; `q`, scores and values have one row for
// each pair of query row and head, rows of scores are CPU_SPLIT_TOKENS apart; `ahead` is what comes
// after the tile that is read, fetched meanwhile so that no load waits for memory. Where more than
// DIRECT_ROWS rows look at a tile it is widened to floats first, once for all of them; a widened
// number is the same number, so that which way a tile goes changes no bit.

// Numbers i .. i + VF_LANES of a tile. `type` is a constant wherever this is inlined.
static ALWAYS_INLINE vf numbers_at(tensor_type type, const uint8_t *tile, int64_t i)
{
    if (type == TENSOR_F32)
        return vf_load((const float *)tile + i);
    if (type == TENSOR_F16)
        return vf_load_f16((const uint16_t *)tile + i);
    if (type == TENSOR_F8_E4M3)
        return vf_load_f8(tile + i);
    return vf_load_bf16((const uint16_t *)tile + i);
}

// Of one number in a tile.
static ALWAYS_INLINE int number_bytes(tensor_type type)
{
    return type == TENSOR_F32 ? 4 : type == TENSOR_F8_E4M3 ? 1 : 2;
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

// add_dims for all dims: wide groups of vectors first, then narrow ones.
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
TYPE_KERNELS(f32, TENSOR_F32)
TYPE_KERNELS(f16, TENSOR_F16)
TYPE_KERNELS(bf16, TENSOR_BF16)
TYPE_KERNELS(fp8, TENSOR_F8_E4M3)

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
    if (type == TENSOR_F8_E4M3)
        return (type_kernels){ scores_fp8, values_fp8 };
    return (type_kernels){ scores_bf16, values_bf16 };
}

// widen, for a type that is known at run time only.
static void widen_tile(tensor_type type, const uint8_t *tile, const uint8_t *ahead, int count,
                       float *wide)
{
    if (type == TENSOR_F16)
        widen(TENSOR_F16, tile, ahead, count, wide);
    else if (type == TENSOR_F8_E4M3)
        widen(TENSOR_F8_E4M3, tile, ahead, count, wide);
    else
        widen(TENSOR_BF16, tile, ahead, count, wide);
}

// x[row][t] *= 2^8 * scales[t] for one tile: vf_load_f8 leaves out the 2^8.
static void scale_tile(const cpu_attention_call *call, const uint8_t *tile, int rows, float *x)
{
    const uint16_t *scales = cpu_tile_scales(call->layout, tile);
    for (int t = 0; t < CPU_TILE_TOKENS; t += VF_LANES) {
        vf scale = vf_mul(vf_load_f16(scales + t), vf_set(256));
        for (int row = 0; row < rows; row++) {
            float *at = x + row * CPU_SPLIT_TOKENS + t;
            vf_store(at, vf_mul(vf_load(at), scale));
        }
    }
}

// Scores of every row and tile of the split where somebody sees something; the others stay
// untouched. They are in powers of two: the scale has log2(e) in it.
static void score_tiles(const cpu_attention_call *call, const visible *seen, row_range all,
                        float *k_wide, float *scores)
{
    const float *q[CPU_ATTENTION_ROWS];
    int size = call->layout->head_size, heads = call->heads;
    float scale = call->scale * LOG2_E;
    for (int row = 0, i = 0; row < call->rows; row++)
        for (int head = 0; head < heads; head++)
            q[i++] = call->q + row * call->q_stride + (int64_t)head * size;
    for (int tile = 0; tile < CPU_SPLIT_TILES; tile++) {
        int start = tile * CPU_TILE_TOKENS;
        row_range r = rows_seeing(seen, all.to, start, start + CPU_TILE_TOKENS);
        if (r.from >= r.to)
            continue;
        tensor_type type = call->layout->type;
        const uint8_t *k = call->k[tile];
        if (type != TENSOR_F32 && r.to - r.from > DIRECT_ROWS) {
            widen_tile(type, k, call->v[tile], size * CPU_TILE_TOKENS, k_wide);
            type = TENSOR_F32;
            k = (const uint8_t *)k_wide;
        }
        for (int i = r.from, count; i < r.to; i += count) {
            count = group_of(r.to - i);
            kernels_of(type).scores(count, q + i, k, call->v[tile], size, scale,
                                    scores + i * CPU_SPLIT_TOKENS + start);
        }
        if (call->layout->type == TENSOR_F8_E4M3)
            scale_tile(call, call->k[tile], r.to - r.from,
                       scores + r.from * CPU_SPLIT_TOKENS + start);
    }
}

// Each row adds exactly the tokens that it sees, in ascending order: those that all rows of a
// group see together, those before and after row by row.
static void add_values(const cpu_attention_call *call, const visible *seen, tensor_type type,
                       const uint8_t *const *tiles, row_range all, const float *scores)
{
    int size = call->layout->head_size;
    type_kernels kernels = kernels_of(type);
    for (int i = all.from, count; i < all.to; i += count) {
        count = group_of(all.to - i);
        int first = seen[i + count - 1].first, end = seen[i].last;
        for (int r = i; r < i + count; r++) {
            visible s = seen[r];
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
            if (end < seen[r].last)
                kernels.values(1, scores + r * CPU_SPLIT_TOKENS, tiles, call->ahead, end,
                               seen[r].last, size, call->values + (int64_t)r * size);
    }
}

// One split of one call: maxima and sums to the call, values added to the call's zeros.
static void attend_float(const cpu_attention_call *call, const visible *seen, row_range all,
                         const attention_room *room)
{
    int size = call->layout->head_size;
    tensor_type type = call->layout->type;
    const uint8_t *tiles[CPU_SPLIT_TILES];
    score_tiles(call, seen, all, room->floats, room->scores);
    soften(call, seen, all, room->scores);
    for (int i = all.from; type == TENSOR_F8_E4M3 && i < all.to; i++) {
        row_range own = tiles_of(seen[i]);
        for (int tile = own.from; tile < own.to; tile++)
            scale_tile(call, call->v[tile], 1,
                       room->scores + i * CPU_SPLIT_TOKENS + tile * CPU_TILE_TOKENS);
    }
    bool widens = type != TENSOR_F32 && all.to - all.from > DIRECT_ROWS;
    for (int tile = 0; tile < CPU_SPLIT_TILES; tile++) {
        float *wide = room->floats + tile * CPU_TILE_TOKENS * size;
        tiles[tile] = widens ? (const uint8_t *)wide : call->v[tile];
        if (widens && call->v[tile] != NULL)
            widen_tile(type, call->v[tile], call->ahead[tile], size * CPU_TILE_TOKENS, wide);
    }
    add_values(call, seen, widens ? TENSOR_F32 : type, tiles, all, room->scores);
}
