// Attention over the int8 cache. K is [head_size / 2][32 tokens][2], V [16 pairs of
// tokens][head_size] [2], each followed by a scale per token.
//
// Queries are rounded to 16 bits per row and head, probabilities times V's scale to 16 bits per row
// and split; their products with the cache's bytes add up in 32 bits, exactly, in whatever order:
// |sum| <= 32767 * 127 * 256. So rounding to 8 bits is the cache's alone.
//
// A part of attention_kernels.h, which includes it behind attention_split.h. The way in is
// attend_int8. `wide` says that a tile was widened to 16 bits before, once for many rows: the
// numbers are the same.

// x as whole multiples of the returned scale; a NaN, and any q, where not all of x is finite.
static float round_to_16(const float *x, int count, int16_t *q)
{
    vf most = vf_set(0), check = vf_set(0);
    for (int i = 0; i < count; i += VF_LANES) {
        vf value = vf_load(x + i);
        most = vf_max(most, vf_max(value, vf_sub(vf_set(0), value)));
        check = vf_fma(value, vf_set(0), check);
    }
    float largest = vf_largest(most);
    float inverse = largest > 0x1p-100f ? 32767 / largest : 0;
    for (int i = 0; i < count; i += VF_LANES)
        vf_store_i16(q + i, vf_mul(vf_load(x + i), vf_set(inverse)));
    return (largest > 0x1p-100f ? largest / 32767 : 0) + vf_sum(check);
}

// `count` pairs of numbers of a tile, from bytes or from what widen_pairs made of them.
static ALWAYS_INLINE vi pairs_at(bool wide, const void *tile, int64_t i)
{
    if (wide)
        return vi_load_i16((const int16_t *)tile + i);
    return vi_load_i8((const int8_t *)tile + i);
}

static void widen_pairs(const uint8_t *tile, const uint8_t *ahead, int count, int16_t *wide)
{
    for (int i = 0; i < count; i += 2 * VF_LANES) {
        prefetch(ahead + i, 1);
        vi_store_i16(wide + i, vi_load_i8((const int8_t *)tile + i));
    }
}

// scores[row][t] = factors[row] * scales[t] * sum over d of q[row][d] k[d][t], of one tile.
static ALWAYS_INLINE void score_pairs(bool wide, int count, const int16_t *q, const float *factors,
                                      const void *k, const uint16_t *scales, const uint8_t *ahead,
                                      int size, float *scores)
{
    for (int t = 0; t < TOKEN_VECTORS; t += SCORE_VECTORS) {
        vi sums[GROUP_ROWS][SCORE_VECTORS];
        UNROLL for (int r = 0; r < count; r++) UNROLL for (int v = 0; v < SCORE_VECTORS; v++)
            sums[r][v] = vi_zero();
        for (int d = 0; d < size; d += 2) {
            vi value[SCORE_VECTORS];
            if (!wide && t == 0)
                prefetch(ahead + d * CPU_TILE_TOKENS, 2 * CPU_TILE_TOKENS);
            UNROLL for (int v = 0; v < SCORE_VECTORS; v++) value[v] =
                pairs_at(wide, k, d * CPU_TILE_TOKENS + 2 * (t + v) * VF_LANES);
            UNROLL for (int r = 0; r < count; r++)
            {
                vi x = vi_set_pair(q + r * size + d);
                UNROLL for (int v = 0; v < SCORE_VECTORS; v++) sums[r][v] =
                    vi_dot(sums[r][v], x, value[v]);
            }
        }
        UNROLL for (int v = 0; v < SCORE_VECTORS; v++)
        {
            vf scale = vf_load_f16(scales + (t + v) * VF_LANES);
            UNROLL for (int r = 0; r < count; r++)
                vf_store(scores + r * CPU_SPLIT_TOKENS + (t + v) * VF_LANES,
                         vf_mul(vf_mul(vi_to_float(sums[r][v]), vf_set(factors[r])), scale));
        }
    }
}

// values[row][d ..] = factors[row] * sum over tiles first .. last of p[row][t] v[t][d ..], `width`
// vectors of dims.
static ALWAYS_INLINE void sum_dims(bool wide, int count, int width, const int16_t *p,
                                   const float *factors, const void *const *tiles,
                                   const uint8_t *const *ahead, int first, int last, int size,
                                   int d, float *values)
{
    vi sums[GROUP_ROWS][VALUE_VECTORS];
    UNROLL for (int r = 0; r < count; r++) UNROLL for (int i = 0; i < width; i++) sums[r][i] =
        vi_zero();
    for (int tile = first; tile < last; tile++)
        for (int t = 0; t < CPU_TILE_TOKENS; t += 2) {
            vi value[VALUE_VECTORS];
            if (!wide)
                prefetch(ahead[tile] + t * size + 2 * d, 2 * width * VF_LANES);
            UNROLL for (int i = 0; i < width; i++) value[i] =
                pairs_at(wide, tiles[tile], t * size + 2 * (d + i * VF_LANES));
            UNROLL for (int r = 0; r < count; r++)
            {
                vi x = vi_set_pair(p + r * CPU_SPLIT_TOKENS + tile * CPU_TILE_TOKENS + t);
                UNROLL for (int i = 0; i < width; i++) sums[r][i] = vi_dot(sums[r][i], x, value[i]);
            }
        }
    UNROLL for (int r = 0; r < count; r++) UNROLL for (int i = 0; i < width; i++)
        vf_store(values + (int64_t)r * size + d + i * VF_LANES,
                 vf_mul(vi_to_float(sums[r][i]), vf_set(factors[r])));
}

static ALWAYS_INLINE void sum_rows(bool wide, int count, const int16_t *p, const float *factors,
                                   const void *const *tiles, const uint8_t *const *ahead, int first,
                                   int last, int size, float *values)
{
    int d = 0;
    for (; d + VALUE_VECTORS * VF_LANES <= size; d += VALUE_VECTORS * VF_LANES)
        sum_dims(wide, count, VALUE_VECTORS, p, factors, tiles, ahead, first, last, size, d,
                 values);
    for (; d < size; d += NARROW_VECTORS * VF_LANES)
        sum_dims(wide, count, NARROW_VECTORS, p, factors, tiles, ahead, first, last, size, d,
                 values);
}

#define PAIR_KERNELS(name, wide)                                                                   \
    static void score_##name(int rows, const int16_t *q, const float *factors, const void *k,      \
                             const uint16_t *scales, const uint8_t *ahead, int size,               \
                             float *scores)                                                        \
    {                                                                                              \
        SWITCH_ROWS(rows, score_pairs, wide, q, factors, k, scales, ahead, size, scores)           \
    }                                                                                              \
    static void sum_##name(int rows, const int16_t *p, const float *factors,                       \
                           const void *const *tiles, const uint8_t *const *ahead, int first,       \
                           int last, int size, float *values)                                      \
    {                                                                                              \
        SWITCH_ROWS(rows, sum_rows, wide, p, factors, tiles, ahead, first, last, size, values)     \
    }
PAIR_KERNELS(bytes, false)
PAIR_KERNELS(words, true)

// Scores of rows r.from .. r.to in one tile.
static void score_tile_int8(const cpu_attention_call *call, int tile, row_range r, const int16_t *q,
                            const float *factors, int16_t *wide, float *scores)
{
    int size = call->layout->head_size;
    const uint8_t *k = call->k[tile], *ahead = call->v[tile];
    const uint16_t *scales = cpu_tile_scales(call->layout, k);
    bool widens = r.to - r.from > DIRECT_ROWS;
    prefetch((const uint8_t *)cpu_tile_scales(call->layout, ahead), LINE_BYTES);
    if (widens)
        widen_pairs(k, ahead, size * CPU_TILE_TOKENS, wide);
    for (int i = r.from, count; i < r.to; i += count) {
        count = group_of(r.to - i);
        float *to = scores + i * CPU_SPLIT_TOKENS + tile * CPU_TILE_TOKENS;
        if (widens)
            score_words(count, q + i * size, factors + i, wide, scales, ahead, size, to);
        else
            score_bytes(count, q + i * size, factors + i, k, scales, ahead, size, to);
    }
}

// Probabilities of one row times V's scales as 16-bit numbers, 0 where it sees nothing; returns
// their scale.
static float weigh_int8(const cpu_attention_call *call, visible seen, float *p, int16_t *q)
{
    row_range tiles = tiles_of(seen);
    for (int tile = tiles.from; tile < tiles.to; tile++) {
        const uint16_t *scales = cpu_tile_scales(call->layout, call->v[tile]);
        for (int t = 0; t < CPU_TILE_TOKENS; t += VF_LANES) {
            float *at = p + tile * CPU_TILE_TOKENS + t;
            // The scale of a token that is not seen may be no number.
            vf_store(at, vf_zero_where_less(vf_load(at), vf_set(0x1p-120f),
                                            vf_mul(vf_load(at), vf_load_f16(scales + t))));
        }
    }
    memset(q, 0, CPU_SPLIT_TOKENS * sizeof *q);
    int first = tiles.from * CPU_TILE_TOKENS, last = tiles.to * CPU_TILE_TOKENS;
    return round_to_16(p + first, last - first, q + first);
}

static void sum_tiles_int8(const cpu_attention_call *call, const visible *seen, row_range all,
                           const int16_t *p, const float *factors, int16_t *wide)
{
    int size = call->layout->head_size;
    const void *tiles[CPU_SPLIT_TILES];
    bool widens = all.to - all.from > DIRECT_ROWS;
    for (int tile = 0; tile < CPU_SPLIT_TILES; tile++) {
        tiles[tile] = call->v[tile];
        if (call->v[tile] == NULL)
            continue;
        prefetch((const uint8_t *)cpu_tile_scales(call->layout, call->ahead[tile]), LINE_BYTES);
        if (widens) {
            int16_t *to = wide + tile * CPU_TILE_TOKENS * size;
            widen_pairs(call->v[tile], call->ahead[tile], size * CPU_TILE_TOKENS, to);
            tiles[tile] = to;
        }
    }
    for (int i = all.from, count; i < all.to; i += count) {
        count = group_of(all.to - i);
        int from = tiles_of(seen[i]).from, to = tiles_of(seen[i + count - 1]).to;
        (widens ? sum_words : sum_bytes)(count, p + i * CPU_SPLIT_TOKENS, factors + i, tiles,
                                         call->ahead, from, to, size,
                                         call->values + (int64_t)i * size);
    }
}

static void attend_int8(const cpu_attention_call *call, const visible *seen, row_range all,
                        const attention_room *room)
{
    float factors[CPU_ATTENTION_ROWS];
    int size = call->layout->head_size, heads = call->heads;
    for (int i = all.from; i < all.to; i++) {
        const float *q = call->q + i / heads * call->q_stride + (int64_t)(i % heads) * size;
        factors[i] = round_to_16(q, size, room->q + i * size) * call->scale * LOG2_E;
    }
    for (int tile = 0; tile < CPU_SPLIT_TILES; tile++) {
        int start = tile * CPU_TILE_TOKENS;
        row_range r = rows_seeing(seen, all.to, start, start + CPU_TILE_TOKENS);
        if (r.from < r.to)
            score_tile_int8(call, tile, r, room->q, factors, room->words, room->scores);
    }
    soften(call, seen, all, room->scores);
    for (int i = all.from; i < all.to; i++)
        factors[i] = weigh_int8(call, seen[i], room->scores + i * CPU_SPLIT_TOKENS,
                                room->p + i * CPU_SPLIT_TOKENS);
    sum_tiles_int8(call, seen, all, room->p, factors, room->words);
}
