// rope_store, attention_plan and attention over pages, against double precision, and the same bits
// however a sequence is cut into chunks, batched and paged.
#include "attention_world.h"
#include "oracle.h"

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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(attention_matches_double_precision),
        cmocka_unit_test(a_row_does_not_depend_on_chunks_or_company),
        cmocka_unit_test(long_sequences_do_not_depend_on_their_splits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
