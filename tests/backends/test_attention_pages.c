// What stands in the pages: layouts, zeroed tiles, numbers of any size and none, and kv_copy.
#include "attention_world.h"

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
        cmocka_unit_test(a_new_tile_is_zero_behind_its_last_token),
        cmocka_unit_test(tiles_of_each_type_are_zero_where_no_token_is),
        cmocka_unit_test(what_is_no_number_stays_with_those_who_see_it),
        cmocka_unit_test(eight_bits_keep_numbers_of_any_size),
        cmocka_unit_test(pages_are_copied_whole),
        cmocka_unit_test(caches_that_cannot_be_kept_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
