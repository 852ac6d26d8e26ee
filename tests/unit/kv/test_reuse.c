#include "kv/reuse.h"

#include "base/random.h"
#include "harness/seed.h"

#include <stdlib.h>
#include <stdio.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <setjmp.h>
#include <cmocka.h>

#define PAGE_TOKENS 4
#define PAGES 16

typedef struct fixture {
    kv_pool *pool;
    kv_reuse *reuse;
    hash128 seed;
} fixture;

static int setup(void **state)
{
    fixture *f = calloc(1, sizeof *f);
    assert_int_equal(kv_pool_open(PAGES, &f->pool), STATUS_OK);
    assert_int_equal(kv_reuse_open(f->pool, PAGE_TOKENS, &f->reuse), STATUS_OK);
    f->seed = kv_reuse_seed((hash128){ 1, 2 }, "f16/test/1", PAGE_TOKENS, (hash128){ 0, 0 });
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    fixture *f = *state;
    kv_reuse_close(f->reuse);
    kv_pool_close(f->pool);
    free(f);
    return 0;
}

// What an engine does with a prompt: share, take the rest, make it known. Returns the hits.
static int32_t prompt_run(fixture *f, hash128 seed, const int32_t *tokens, int32_t count,
                          int32_t *pages)
{
    hash128 chain;
    int32_t full = count / PAGE_TOKENS;
    int32_t hits = kv_reuse_take(f->reuse, seed, tokens, (count - 1) / PAGE_TOKENS, pages, &chain);
    assert_int_equal(kv_pool_take(f->pool, full - hits, pages + hits), STATUS_OK);
    for (int32_t i = hits; i < full; i++)
        kv_reuse_add(f->reuse, &chain, tokens + i * PAGE_TOKENS, pages[i]);
    return hits;
}

static void pages_release(fixture *f, const int32_t *pages, int32_t count)
{
    for (int32_t i = count - 1; i >= 0; i--)
        kv_pool_release(f->pool, pages[i]);
}

static void a_repeated_prompt_shares_all_but_the_last_page(void **state)
{
    fixture *f = *state;
    int32_t tokens[12] = { 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12 }, first[3], second[3];
    assert_int_equal(prompt_run(f, f->seed, tokens, 12, first), 0);
    assert_int_equal(prompt_run(f, f->seed, tokens, 12, second), 2);
    assert_int_equal(second[0], first[0]);
    assert_int_equal(second[1], first[1]);
    assert_int_not_equal(second[2], first[2]);
    assert_int_equal(kv_pool_holders(f->pool, first[0]), 2);
    assert_int_equal(kv_reuse_count(f->reuse), 3);
    pages_release(f, first, 3);
    pages_release(f, second, 3);
    assert_int_equal(kv_pool_held(f->pool), 0);
    assert_int_equal(kv_pool_cached(f->pool), 3);
}

static void a_different_page_ends_the_run_even_where_later_ones_are_alike(void **state)
{
    fixture *f = *state;
    int32_t tokens[13] = { 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13 }, pages[3], other[3];
    prompt_run(f, f->seed, tokens, 13, pages);
    tokens[5] = 60;
    assert_int_equal(prompt_run(f, f->seed, tokens, 13, other), 1);
    pages_release(f, pages, 3);
    pages_release(f, other, 3);
}

static void another_salt_layout_or_model_shares_nothing(void **state)
{
    fixture *f = *state;
    int32_t tokens[5] = { 1, 2, 3, 4, 5 }, pages[4];
    hash128 zero = { 0, 0 }, id = { 1, 2 };
    prompt_run(f, f->seed, tokens, 5, pages);
    assert_int_equal(prompt_run(f, kv_reuse_seed(id, "f16/test/1", PAGE_TOKENS, (hash128){ 9, 0 }),
                                tokens, 5, pages + 1),
                     0);
    assert_int_equal(
        prompt_run(f, kv_reuse_seed(id, "f32/test/1", PAGE_TOKENS, zero), tokens, 5, pages + 2), 0);
    assert_int_equal(prompt_run(f,
                                kv_reuse_seed((hash128){ 3, 2 }, "f16/test/1", PAGE_TOKENS, zero),
                                tokens, 5, pages + 3),
                     0);
    pages_release(f, pages, 4);
}

static void b069_a_hash_is_the_same_in_every_process(void **state)
{
    (void)state;
    int32_t tokens[64];
    char text[33];
    for (int32_t i = 0; i < 64; i++)
        tokens[i] = 3 * i + 7;
    hash128 seed = kv_reuse_seed((hash128){ 0x0123456789abcdefu, 0xfedcba9876543210u },
                                 "f16/cpu-tile32/1", 64, (hash128){ 0, 0 });
    hash128_format(hash_prefix_next(seed, tokens, 64), text);
    assert_string_equal(text, "20d0bf80c1e8b03c282644c48b1323db");
}

static void eviction_takes_the_tail_of_the_oldest_prompt_first(void **state)
{
    fixture *f = *state;
    int32_t old[16], young[16], pages[PAGES], hit[4], fresh[8];
    hash128 chain;
    for (int32_t i = 0; i < 16; i++) {
        old[i] = i;
        young[i] = 100 + i;
    }
    prompt_run(f, f->seed, old, 16, pages);
    prompt_run(f, f->seed, young, 16, pages + 4);
    pages_release(f, pages, 4);
    pages_release(f, pages + 4, 4);
    assert_int_equal(kv_pool_take(f->pool, 8, fresh), STATUS_OK); // the free ones
    assert_int_equal(kv_reuse_count(f->reuse), 8);
    assert_int_equal(kv_pool_take(f->pool, 1, pages), STATUS_OK); // one more
    assert_int_equal(kv_reuse_take(f->reuse, f->seed, old, 4, hit, &chain), 3);
    pages_release(f, hit, 3);
    pages_release(f, pages, 1);
    pages_release(f, fresh, 8);
}

static void forgetting_frees_what_nobody_holds(void **state)
{
    fixture *f = *state;
    int32_t tokens[8] = { 1, 2, 3, 4, 5, 6, 7, 8 }, pages[2];
    hash128 chain;
    prompt_run(f, f->seed, tokens, 8, pages);
    kv_pool_release(f->pool, pages[1]);
    kv_reuse_drop(f->reuse);
    assert_int_equal(kv_pool_cached(f->pool), 0);
    assert_int_equal(kv_pool_held(f->pool), 1);
    assert_int_equal(kv_reuse_take(f->reuse, f->seed, tokens, 2, pages + 1, &chain), 0);
    kv_pool_release(f->pool, pages[0]);
    assert_int_equal(kv_pool_free(f->pool), PAGES);
}

// Prompts over a tiny alphabet, so that prefixes meet often; a page is remembered by the text that
// it stands for, and every hit must stand for exactly the prompt's own beginning.
static void every_hit_of_a_random_load_is_the_prompts_own_prefix(void **state)
{
    fixture *f = *state;
    uint64_t seed = seed_choose(), draw = seed;
    int32_t text[PAGES][16], hits_seen = 0;
    for (int round = 0; round < 4000; round++) {
        int32_t tokens[16], pages[4];
        int32_t count = 1 + (int32_t)((draw = random_mix(draw)) % 16), full = count / PAGE_TOKENS;
        for (int32_t i = 0; i < count; i++)
            tokens[i] = (int32_t)((draw = random_mix(draw)) % 4 == 0);
        int32_t hits = prompt_run(f, f->seed, tokens, count, pages);
        assert_true(hits * PAGE_TOKENS < count);
        for (int32_t i = 0; i < full; i++) {
            size_t bytes = (size_t)(i + 1) * PAGE_TOKENS * sizeof tokens[0];
            if (i < hits)
                assert_memory_equal(text[pages[i]], tokens, bytes);
            memcpy(text[pages[i]], tokens, bytes);
        }
        hits_seen += hits;
        pages_release(f, pages, full);
        assert_int_equal(kv_pool_held(f->pool), 0);
        assert_int_equal(kv_pool_cached(f->pool), kv_reuse_count(f->reuse));
    }
    assert_true(hits_seen > 100);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
        TEST(a_repeated_prompt_shares_all_but_the_last_page),
        TEST(a_different_page_ends_the_run_even_where_later_ones_are_alike),
        TEST(another_salt_layout_or_model_shares_nothing),
        TEST(b069_a_hash_is_the_same_in_every_process),
        TEST(eviction_takes_the_tail_of_the_oldest_prompt_first),
        TEST(forgetting_frees_what_nobody_holds),
        TEST(every_hit_of_a_random_load_is_the_prompts_own_prefix),
#undef TEST
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
