// rope_store, attention_plan, attention and kv_copy over pages, against double precision, and the
// same bits however a sequence is cut into chunks, batched and paged.
#include "support.h"
#include "oracle.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define POSITIONS 2400
#define SEQUENCES 3
#define LAYERS 2

typedef struct shape {
    backend_heads heads;
    tensor_type type;
    int page_tokens, dims, window;
    bool adjacent, head_norms;
} shape;

typedef struct sequence {
    int length;
    float *qkv; // [length][columns] before rotation
    int32_t pages[POSITIONS / 32 + 1];
} sequence;

typedef struct world {
    device d;
    shape s;
    kv_memory kv;
    backend_rope rope;
    float *table, *q_norm, *k_norm;
    backend_activation *qkv, *out;
    int columns, out_columns;
} world;

#define ROWS_MAX 640
#define TYPES 5
static const tensor_type types[TYPES] = { TENSOR_F16, TENSOR_F32, TENSOR_BF16, TENSOR_I8,
                                          TENSOR_F8_E4M3 };
#define EPSILON 1e-6f

static void open_rope(world *w)
{
    int half = w->s.dims / 2;
    w->table = floats_of((size_t)POSITIONS * (size_t)half * 2);
    for (int p = 0; p < POSITIONS; p++)
        for (int i = 0; i < half; i++) {
            double angle = p * pow(10000, -2.0 * i / w->s.dims);
            w->table[(p * half + i) * 2] = (float)cos(angle);
            w->table[(p * half + i) * 2 + 1] = (float)sin(angle);
        }
    w->rope = (backend_rope){ w->table, w->s.dims, w->s.adjacent, POSITIONS };
}

// Memory that held something else before: every byte is a NaN's.
static bool world_open(world *w, const char *level, int threads, shape s, int pages)
{
    error failure = { 0 };
    *w = (world){ .s = s };
    if (!device_open(&w->d, level, threads))
        return false;
    const backend_heads *h = &w->s.heads;
    w->columns = (h->q_heads + 2 * h->kv_heads) * h->head_size;
    w->out_columns = h->q_heads * h->head_size;
    assert_int_equal(w->d.table->kv_layout(w->d.b, s.type, s.page_tokens, LAYERS, h->kv_heads,
                                           h->head_size, &w->kv.layout, &failure),
                     STATUS_OK);
    w->kv.pages = pages;
    assert_int_equal(w->d.table->memory_open(w->d.b, (size_t)(pages * w->kv.layout.page_bytes),
                                             BACKEND_MEMORY_DEVICE, &w->kv.memory),
                     STATUS_OK);
    memset(w->kv.memory.data, 0xff, w->kv.memory.size);
    w->qkv = device_activation(&w->d, ROWS_MAX, w->columns, NULL);
    w->out = device_activation(&w->d, ROWS_MAX, w->out_columns, NULL);
    open_rope(w);
    if (s.head_norms) {
        w->q_norm = random_floats((size_t)h->head_size, 1);
        w->k_norm = random_floats((size_t)h->head_size, 1);
    }
    return true;
}

static void world_close(world *w)
{
    w->d.table->activation_close(w->qkv);
    w->d.table->activation_close(w->out);
    w->d.table->memory_close(w->d.b, &w->kv.memory);
    device_close(&w->d);
    free(w->table), free(w->q_norm), free(w->k_norm);
}

// Distinct pages in random order.
static void deal_pages(const world *w, sequence *all, int count)
{
    int32_t order[512];
    int next = 0;
    assert_true(w->kv.pages <= 512);
    for (int i = 0; i < w->kv.pages; i++) {
        int j = random_between(0, i);
        order[i] = order[j];
        order[j] = i;
    }
    for (int s = 0; s < count; s++)
        for (int i = 0; i * w->s.page_tokens < all[s].length; i++)
            all[s].pages[i] = order[next++];
    assert_true(next <= w->kv.pages);
}

typedef struct range {
    int from, to;
} range;

typedef struct step_arrays {
    int32_t positions[ROWS_MAX], row_sequence[ROWS_MAX], first_row[SEQUENCES + 1];
    int32_t lengths[SEQUENCES], tables[SEQUENCES][POSITIONS / 32 + 1];
} step_arrays;

// Compute positions ranges[s] of each sequence in one batch; out [rows][out_columns].
static void step(world *w, const sequence *all, const range *ranges, int count, bool attend,
                 float *out)
{
    static step_arrays a;
    backend_batch batch = { .sequences = 0,
                            .positions = a.positions,
                            .row_sequence = a.row_sequence,
                            .first_row = a.first_row,
                            .lengths = a.lengths,
                            .tables = a.tables[0],
                            .table_stride = POSITIONS / 32 + 1 };
    for (int s = 0; s < count; s++) {
        range r = ranges[s];
        int n = batch.sequences;
        if (r.from == r.to)
            continue;
        a.first_row[n] = batch.rows;
        a.lengths[n] = r.to;
        memcpy(a.tables[n], all[s].pages, sizeof a.tables[n]);
        w->d.table->activation_write(w->d.q, w->qkv, batch.rows, r.to - r.from,
                                     all[s].qkv + (int64_t)r.from * w->columns);
        for (int p = r.from; p < r.to; p++, batch.rows++) {
            a.positions[batch.rows] = p;
            a.row_sequence[batch.rows] = n;
        }
        a.first_row[++batch.sequences] = batch.rows;
    }
    w->d.table->rope_store(w->d.q, w->qkv, &w->s.heads, &w->rope, w->q_norm, w->k_norm, EPSILON,
                           &w->kv, 1, &batch);
    if (attend) {
        w->d.table->attention_plan(w->d.q, &w->s.heads, &w->kv, &batch);
        w->d.table->attention(w->d.q, w->out, w->qkv, &w->s.heads, &w->kv, 1, &batch,
                              1.0f / sqrtf((float)w->s.heads.head_size), w->s.window);
    }
    device_run(&w->d);
    if (attend)
        w->d.table->activation_read(w->d.q, w->out, 0, batch.rows, out);
}

static shape random_shape(tensor_type type)
{
    static const int sizes[] = { 16, 32, 48, 64, 80, 128 }, pages[] = { 32, 64, 128 };
    shape s = { .type = type };
    s.heads.kv_heads = random_between(1, 3);
    s.heads.q_heads = s.heads.kv_heads * random_between(1, 5);
    s.heads.head_size = sizes[random_between(0, 5)];
    s.page_tokens = pages[random_between(0, 2)];
    s.dims = random_between(0, 1) ? s.heads.head_size : s.heads.head_size / 2;
    s.adjacent = random_between(0, 1);
    s.head_norms = random_between(0, 2) == 0;
    s.window = random_between(0, 1) ? 0 : random_between(1, 70);
    return s;
}

// ---- against double precision -----------------------------------------------------------------

// One head of one token as the cache keeps it, but in double; `norm` and rotation as asked.
static void head_values(const world *w, const float *x, int position, const float *norm,
                        bool rotated, double *out)
{
    oracle_norm(x, norm, EPSILON, w->s.heads.head_size, out);
    if (rotated)
        oracle_rotate(out, &w->rope, position);
}

// The largest relative change of a number that the cache makes; for int8 of the head's largest.
static double rounding_of(tensor_type type)
{
    switch (type) {
    case TENSOR_F32:
        return 0x1p-21;
    case TENSOR_F16:
        return 0x1p-11;
    case TENSOR_BF16:
        return 0x1p-8;
    case TENSOR_F8_E4M3:
        return 0x1p-4 + 0x1p-10; // and the scale's
    default:
        return 0.5 / 127 + 0x1p-10;
    }
}

// The cache rounds k and v to `unit` relative; a score then moves by at most unit * scale *
// sum|q||k|, a probability by twice that, and the output by that times the largest |v|, plus v's
// own rounding. Float arithmetic adds terms of the same form with 2^-24 times the number of
// additions. int8 moves numbers by unit times the largest |k| of the token, and rounds q and p to
// 2^-16 of their largest. Where a score may move by much, a probability moves by the exponential of
// that, and the output by no more than the distance of two values.
static double tolerance_of(const world *w, const double *q, const double *k, const double *v,
                           int tokens)
{
    int size = w->s.heads.head_size;
    bool whole = w->s.type == TENSOR_I8;
    double unit = rounding_of(w->s.type), score = 0, value = 0, exact = whole ? 0x1p-15 : 0;
    for (int t = 0; t < tokens; t++) {
        double sum = 0, most = 0, magnitude = 0;
        for (int d = 0; d < size; d++) {
            double x = fabs(k[(int64_t)t * size + d]);
            most = fmax(most, x);
            magnitude += fabs(q[d]);
            sum += fabs(q[d]) * x;
            value = fmax(value, fabs(v[(int64_t)t * size + d]));
        }
        score = fmax(score, (whole ? magnitude * most : sum) / sqrt(size));
    }
    double moved = (unit + exact * size + size * 0x1p-24) * score;
    return value * (fmin(2 * expm1(moved), 2) + unit + exact * 2 + (tokens + 40) * 0x1p-24) + 1e-6;
}

static void check_row(const world *w, const sequence *all, int position, const float *out)
{
    const backend_heads *h = &w->s.heads;
    int size = h->head_size;
    double *k = malloc((size_t)(position + 1) * (size_t)size * sizeof *k);
    double *v = malloc((size_t)(position + 1) * (size_t)size * sizeof *v);
    double q[256], expected[256];
    int first = w->s.window > 0 && position >= w->s.window ? position + 1 - w->s.window : 0;
    for (int head = 0; head < h->q_heads; head++) {
        int kv_head = head / (h->q_heads / h->kv_heads);
        for (int t = 0; t <= position; t++) {
            const float *x = all->qkv + (int64_t)t * w->columns;
            head_values(w, x + (h->q_heads + kv_head) * size, t, w->k_norm, true,
                        k + (int64_t)t * size);
            head_values(w, x + (h->q_heads + h->kv_heads + kv_head) * size, t, NULL, false,
                        v + (int64_t)t * size);
        }
        head_values(w, all->qkv + (int64_t)position * w->columns + head * size, position, w->q_norm,
                    true, q);
        oracle_attend(q, k, v, first, position, size, 1 / sqrt(size), expected);
        double tolerance = tolerance_of(w, q, k, v, position + 1);
        for (int d = 0; d < size; d++)
            if (!(fabs((double)out[head * size + d] - expected[d]) <= tolerance))
                fail_msg(
                    "%s heads %d/%d size %d pages %d window %d: position %d head %d dim %d is %g, "
                    "not %g +- %g",
                    w->kv.layout.name, h->q_heads, h->kv_heads, size, w->s.page_tokens, w->s.window,
                    position, head, d, (double)out[head * size + d], expected[d], tolerance);
    }
    free(k);
    free(v);
}

static void check_shape(const char *level, shape s)
{
    world w;
    if (!world_open(&w, level, 2, s, 128))
        return;
    sequence all[SEQUENCES];
    range ranges[SEQUENCES];
    float *out = floats_of((size_t)(ROWS_MAX * w.out_columns));
    for (int i = 0; i < SEQUENCES; i++) {
        all[i].length = random_between(1, 150);
        all[i].qkv = random_floats((size_t)(all[i].length * w.columns), 1);
        ranges[i] = (range){ 0, random_between(0, all[i].length - 1) };
    }
    deal_pages(&w, all, SEQUENCES);
    step(&w, all, ranges, SEQUENCES, false, NULL);
    for (int i = 0; i < SEQUENCES; i++)
        ranges[i] = (range){ ranges[i].to, all[i].length };
    step(&w, all, ranges, SEQUENCES, true, out);
    int row = 0;
    for (int i = 0; i < SEQUENCES; i++)
        for (int p = ranges[i].from; p < ranges[i].to; p++, row++)
            if (p % 7 == 0 || p + 1 == ranges[i].to)
                check_row(&w, &all[i], p, out + (int64_t)row * w.out_columns);
    for (int i = 0; i < SEQUENCES; i++)
        free(all[i].qkv);
    free(out);
    world_close(&w);
}

static void attention_matches_double_precision(void **state)
{
    (void)state;
    for (int l = 0; l < SUPPORT_LEVELS; l++) {
        random_begin();
        for (int round = 0; round < 30; round++)
            check_shape(support_levels[l], random_shape(types[round % TYPES]));
    }
}

// ---- the same bits ----------------------------------------------------------------------------

// Outputs of rows from .. length of one sequence, computed in chunks of `chunk` rows (0: of random
// sizes), with `company` beside it or alone.
static float *outputs_of(world *w, sequence *all, int from, int chunk, bool company)
{
    int length = all[0].length, count = company ? SEQUENCES : 1, other = 0;
    float *kept = floats_of((size_t)((length - from) * w->out_columns));
    float *out = floats_of((size_t)(ROWS_MAX * w->out_columns));
    memset(w->kv.memory.data, 0xff, w->kv.memory.size);
    deal_pages(w, all, SEQUENCES);
    for (int at = 0, next; at < length; at = next) {
        int size = at < from ? 500 : chunk == 0 ? random_between(1, 90) : chunk;
        next = at + size < length ? at + size : length;
        if (at < from && next > from)
            next = from;
        range ranges[SEQUENCES] = { { at, next } };
        for (int i = 1; i < count; i++)
            ranges[i] = (range){ other % all[i].length, other % all[i].length + 1 };
        other++;
        step(w, all, ranges, count, at >= from, out);
        if (at >= from)
            memcpy(kept + (int64_t)(at - from) * w->out_columns, out,
                   (size_t)((next - at) * w->out_columns) * sizeof *out);
    }
    free(out);
    return kept;
}

static void check_same(const char *level, shape s, int length, int from)
{
    world w, single;
    s.head_norms = false; // two worlds would draw different ones
    if (!world_open(&w, level, 2, s, 256))
        return;
    assert_true(world_open(&single, level, 1, s, 256));
    sequence all[SEQUENCES];
    for (int i = 0; i < SEQUENCES; i++) {
        all[i].length = i == 0 ? length : random_between(1, 40);
        all[i].qkv = random_floats((size_t)(all[i].length * w.columns), 1);
    }
    float *whole = outputs_of(&w, all, from, ROWS_MAX - 2, false);
    size_t count = (size_t)((length - from) * w.out_columns);
    check_row(&w, all, length - 1, whole + (int64_t)(length - from - 1) * w.out_columns);
    struct {
        world *w;
        int chunk;
        bool company;
        const char *what;
    } ways[] = { { &w, 1, true, "one row a step, in company" },
                 { &w, 0, true, "random chunks, in company" },
                 { &single, 0, false, "random chunks, one thread" } };
    for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++) {
        float *other = outputs_of(ways[i].w, all, from, ways[i].chunk, ways[i].company);
        assert_same_bits(whole, other, count, ways[i].what);
        free(other);
    }
    free(whole);
    for (int i = 0; i < SEQUENCES; i++)
        free(all[i].qkv);
    world_close(&w);
    world_close(&single);
}

static void a_row_does_not_depend_on_chunks_or_company(void **state)
{
    (void)state;
    for (int l = 0; l < SUPPORT_LEVELS; l++) {
        random_begin();
        for (int round = 0; round < 2 * TYPES; round++)
            check_same(support_levels[l], random_shape(types[round % TYPES]),
                       random_between(60, 200), 0);
    }
}

// Many splits, which the plan may or may not give to several items.
static void long_sequences_do_not_depend_on_their_splits(void **state)
{
    (void)state;
    for (int l = 0; l < SUPPORT_LEVELS; l++) {
        random_begin();
        for (int type = 0; type < TYPES; type++) {
            shape s = { { 3, 1, 32 }, types[type], 128, 32, 0, false, false };
            check_same(support_levels[l], s, 1031, 1000);
            s.window = 700;
            check_same(support_levels[l], s, 1100, 1080);
        }
        shape s = { { 3, 1, 32 }, TENSOR_F16, 128, 32, 0, false, false };
        check_same(support_levels[l], s, 2100, 2040);
    }
}

// ---- pages ------------------------------------------------------------------------------------

static void a_new_tile_is_zero_behind_its_last_token(void **state)
{
    (void)state;
    for (int l = 0; l < SUPPORT_LEVELS; l++) {
        world w;
        random_begin();
        shape s = { { 2, 1, 16 }, TENSOR_F16, 64, 16, 0, false, false };
        if (!world_open(&w, support_levels[l], 2, s, 4))
            continue;
        sequence one = { .length = 41,
                         .qkv = random_floats(41 * (size_t)w.columns, 1),
                         .pages = { 2 } };
        range r = { 0, 35 };
        step(&w, &one, &r, 1, false, NULL);
        const kv_layout *layout = &w.kv.layout;
        const uint16_t *k = (const uint16_t *)((const uint8_t *)w.kv.memory.data +
                                               2 * layout->page_bytes + layout->layer_stride);
        const uint16_t *v = k + layout->value_offset / 2;
        for (int t = 35; t < 64; t++)
            for (int d = 0; d < 16; d++) {
                assert_int_equal(k[512 + d * 32 + t - 32], 0);
                assert_int_equal(v[t * 16 + d], 0);
            }
        r = (range){ 35, 41 };
        step(&w, &one, &r, 1, false, NULL);
        assert_int_equal(v[40 * 16], tensor_f32_to_f16(one.qkv[40 * w.columns + 48]));
        assert_int_equal(v[34 * 16], tensor_f32_to_f16(one.qkv[34 * w.columns + 48]));
        free(one.qkv);
        world_close(&w);
    }
}

// Whatever the order: each byte of a tile is written by its token alone, and what no token has
// written is zero.
static void tiles_of_each_type_are_zero_where_no_token_is(void **state)
{
    (void)state;
    for (int l = 0; l < SUPPORT_LEVELS; l++)
        for (int type = 0; type < TYPES; type++) {
            world w;
            random_begin();
            shape s = { { 2, 1, 48 }, types[type], 32, 48, 0, false, false };
            if (!world_open(&w, support_levels[l], 2, s, 4))
                continue;
            sequence one = { .length = 21,
                             .qkv = random_floats(21 * (size_t)w.columns, 1),
                             .pages = { 2 } };
            const range at_once[] = { { 0, 21 } };
            const range in_parts[] = { { 0, 1 }, { 1, 8 }, { 8, 9 }, { 9, 20 }, { 20, 21 } };
            size_t size = (size_t)w.kv.layout.layer_stride;
            uint8_t *page = (uint8_t *)w.kv.memory.data + 2 * w.kv.layout.page_bytes + size;
            uint8_t *kept = malloc(size);
            step(&w, &one, at_once, 1, false, NULL);
            memcpy(kept, page, size);
            memset(w.kv.memory.data, 0xff, w.kv.memory.size);
            for (int i = 0; i < 5; i++)
                step(&w, &one, &in_parts[i], 1, false, NULL);
            assert_memory_equal(page, kept, size);
            size_t zeros = 0; // 11 of 32 tokens, and the few numbers that round to 0
            for (size_t i = 0; i < size; i++)
                zeros += kept[i] == 0;
            assert_true(zeros * 32 >= size * 11 && zeros * 32 < size * 15);
            free(kept);
            free(one.qkv);
            world_close(&w);
        }
}

// A token that holds no number shows in every row that sees it and in no other.
static void what_is_no_number_stays_with_those_who_see_it(void **state)
{
    (void)state;
    for (int l = 0; l < SUPPORT_LEVELS; l++)
        for (int type = 0; type < TYPES; type++)
            for (int value = 0; value < 2; value++) {
                world w;
                random_begin();
                shape s = { { 2, 1, 32 }, types[type], 32, 32, 0, false, false };
                if (!world_open(&w, support_levels[l], 2, s, 8))
                    continue;
                sequence one = { .length = 90,
                                 .qkv = random_floats(90 * (size_t)w.columns, 1),
                                 .pages = { 2, 5, 1 } };
                float *out = floats_of((size_t)(90 * w.out_columns));
                one.qkv[37 * w.columns + 64 + 32 * value + 5] = NAN;
                step(&w, &one, &(range){ 0, 90 }, 1, true, out);
                for (int row = 0; row < 90; row++)
                    assert_int_equal(isnan(out[row * w.out_columns + 5]) != 0, row >= 37);
                free(out);
                free(one.qkv);
                world_close(&w);
            }
}

// The file of a model may say anything: sizes of numbers from the smallest to the largest.
static void eight_bits_keep_numbers_of_any_size(void **state)
{
    const float sizes[] = { 1e-6f, 1e-3f, 1, 400, 30000 };
    (void)state;
    for (int l = 0; l < SUPPORT_LEVELS; l++)
        for (int type = 3; type < TYPES; type++)
            for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
                world w;
                random_begin();
                shape s = { { 1, 1, 32 }, types[type], 32, 32, 0, false, false };
                if (!world_open(&w, support_levels[l], 1, s, 2))
                    continue;
                sequence one = { .length = 1, .qkv = random_floats((size_t)w.columns, sizes[i]) };
                float out[32], most = 0;
                step(&w, &one, &(range){ 0, 1 }, 1, true, out); // its own value
                for (int d = 0; d < 32; d++)
                    most = fmaxf(most, fabsf(one.qkv[64 + d]));
                for (int d = 0; d < 32; d++)
                    assert_true(fabsf(out[d] - one.qkv[64 + d]) <=
                                (types[type] == TENSOR_I8
                                     ? most * 0.005f
                                     : most * 0.001f + fabsf(one.qkv[64 + d]) * 0.0635f) +
                                    4e-8f); // half of the smallest scale
                free(one.qkv);
                world_close(&w);
            }
}

static void pages_are_copied_whole(void **state)
{
    (void)state;
    world w;
    random_begin();
    shape s = { { 2, 2, 16 }, TENSOR_F16, 32, 16, 0, false, false };
    assert_true(world_open(&w, support_any_level(), 2, s, 6));
    size_t size = (size_t)w.kv.layout.page_bytes;
    uint8_t *pool = w.kv.memory.data;
    for (size_t i = 0; i < w.kv.memory.size; i++)
        pool[i] = (uint8_t)random_next();
    const int32_t pairs[] = { 0, 3, 5, 1 };
    w.d.table->kv_copy(w.d.q, &w.kv, pairs, 2);
    device_run(&w.d);
    assert_memory_equal(pool, pool + 3 * size, size);
    assert_memory_equal(pool + 5 * size, pool + size, size);
    assert_memory_not_equal(pool + 2 * size, pool + 4 * size, size);
    world_close(&w);
}

static void caches_that_cannot_be_kept_are_refused(void **state)
{
    (void)state;
    device d;
    kv_layout l;
    error failure = { 0 };
    assert_true(device_open(&d, support_any_level(), 1));
    assert_int_equal(d.table->kv_layout(d.b, TENSOR_Q8_0, 64, 1, 1, 64, &l, &failure),
                     STATUS_UNSUPPORTED);
    assert_int_equal(d.table->kv_layout(d.b, TENSOR_F16, 48, 1, 1, 64, &l, &failure),
                     STATUS_UNSUPPORTED);
    assert_int_equal(d.table->kv_layout(d.b, TENSOR_F16, 64, 1, 1, 40, &l, &failure),
                     STATUS_UNSUPPORTED);
    assert_string_equal(failure.param, "head_size");
    assert_int_equal(d.table->kv_layout(d.b, TENSOR_F16, 64, 30, 3, 64, &l, &failure), STATUS_OK);
    assert_string_equal(l.name, "f16/cpu-tile32/1");
    assert_int_equal(l.page_bytes, 30 * 3 * 2 * 64 * 64 * 2);
    assert_int_equal(d.table->kv_layout(d.b, TENSOR_I8, 64, 30, 3, 64, &l, &failure), STATUS_OK);
    assert_string_equal(l.name, "int8/cpu-pair32/1");
    assert_int_equal(l.page_bytes, 30 * 3 * 2 * 64 * (64 + 2));
    assert_int_equal(d.table->kv_layout(d.b, TENSOR_F8_E4M3, 64, 30, 3, 64, &l, &failure),
                     STATUS_OK);
    assert_string_equal(l.name, "fp8/cpu-tile32/1");
    assert_int_equal(l.page_bytes, 30 * 3 * 2 * 64 * (64 + 2));
    device_close(&d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(attention_matches_double_precision),
        cmocka_unit_test(a_row_does_not_depend_on_chunks_or_company),
        cmocka_unit_test(long_sequences_do_not_depend_on_their_splits),
        cmocka_unit_test(a_new_tile_is_zero_behind_its_last_token),
        cmocka_unit_test(tiles_of_each_type_are_zero_where_no_token_is),
        cmocka_unit_test(what_is_no_number_stays_with_those_who_see_it),
        cmocka_unit_test(eight_bits_keep_numbers_of_any_size),
        cmocka_unit_test(pages_are_copied_whole),
        cmocka_unit_test(caches_that_cannot_be_kept_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
