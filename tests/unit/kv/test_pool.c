#include "kv/pool.h"

#include "base/fault.h"
#include "base/random.h"
#include "harness/seed.h"

#include <stdio.h>
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

#define PAGES 24

static void counts_expect(const kv_pool *p, int free_pages, int cached, int held)
{
    assert_int_equal(kv_pool_free(p), free_pages);
    assert_int_equal(kv_pool_cached(p), cached);
    assert_int_equal(kv_pool_held(p), held);
    assert_int_equal(free_pages + cached + held, kv_pool_total(p));
}

static void a_fresh_pool_hands_out_one_run(void **state)
{
    (void)state;
    kv_pool *p;
    int32_t pages[PAGES];
    assert_int_equal(kv_pool_open(PAGES, &p), STATUS_OK);
    assert_int_equal(kv_pool_take(p, PAGES, pages), STATUS_OK);
    for (int i = 0; i < PAGES; i++)
        assert_int_equal(pages[i], i);
    counts_expect(p, 0, 0, PAGES);
    kv_pool_close(p);
}

static void pages_released_in_any_order_join_into_runs(void **state)
{
    (void)state;
    kv_pool *p;
    int32_t pages[PAGES];
    assert_int_equal(kv_pool_open(PAGES, &p), STATUS_OK);
    assert_int_equal(kv_pool_take(p, PAGES, pages), STATUS_OK);
    for (int i = 0; i < PAGES; i++)
        kv_pool_release(p, (i * 7) % PAGES);
    assert_int_equal(kv_pool_take(p, PAGES, pages), STATUS_OK);
    for (int i = 0; i < PAGES; i++)
        assert_int_equal(pages[i], i);
    kv_pool_close(p);
}

static void a_take_that_cannot_be_whole_takes_nothing(void **state)
{
    (void)state;
    kv_pool *p;
    int32_t pages[PAGES], before[PAGES];
    assert_int_equal(kv_pool_open(12, &p), STATUS_OK);
    assert_int_equal(kv_pool_take(p, 5, before), STATUS_OK);
    kv_pool_keep(p, before[0]);
    kv_pool_release(p, before[0]);
    assert_int_equal(kv_pool_take(p, 9, pages), STATUS_OVERLOADED);
    counts_expect(p, 7, 1, 4);
    assert_true(kv_pool_kept(p, before[0]));
    assert_int_equal(kv_pool_evicted(p), 0);
    assert_int_equal(kv_pool_take(p, 8, pages), STATUS_OK);
    counts_expect(p, 0, 0, 12);
    assert_int_equal(kv_pool_evicted(p), 1);
    kv_pool_close(p);
}

static void evict_note(void *context, int32_t page)
{
    int32_t *order = context;
    order[++order[0]] = page;
}

static void the_least_recently_used_cached_page_is_evicted_first(void **state)
{
    (void)state;
    kv_pool *p;
    int32_t pages[4], order[8] = { 0 }, fresh[4];
    assert_int_equal(kv_pool_open(4, &p), STATUS_OK);
    kv_pool_on_evict(p, evict_note, order);
    assert_int_equal(kv_pool_take(p, 4, pages), STATUS_OK);
    for (int i = 3; i >= 0; i--) { // a sequence's pages, its tail first
        kv_pool_keep(p, pages[i]);
        kv_pool_release(p, pages[i]);
    }
    kv_pool_touch(p, 3); // used again: now the last to go
    kv_pool_hold(p, 1);  // somebody holds it: cannot go
    assert_int_equal(kv_pool_take(p, 3, fresh), STATUS_OK);
    assert_int_equal(order[0], 3);
    assert_int_equal(order[1], 2);
    assert_int_equal(order[2], 0);
    assert_int_equal(order[3], 3);
    assert_int_equal(kv_pool_take(p, 1, fresh), STATUS_OVERLOADED);
    counts_expect(p, 0, 0, 4);
    kv_pool_close(p);
}

static void a_page_returns_with_its_last_holder_only(void **state)
{
    (void)state;
    kv_pool *p;
    int32_t page;
    assert_int_equal(kv_pool_open(2, &p), STATUS_OK);
    assert_int_equal(kv_pool_take(p, 1, &page), STATUS_OK);
    kv_pool_hold(p, page);
    kv_pool_release(p, page);
    counts_expect(p, 1, 0, 1);
    assert_int_equal(kv_pool_holders(p, page), 1);
    kv_pool_release(p, page);
    counts_expect(p, 2, 0, 0);
    kv_pool_close(p);
}

static void an_armed_fault_point_fails_a_take_and_changes_nothing(void **state)
{
    (void)state;
    kv_pool *p;
    int32_t pages[2];
    char *point = "pool.exhaust:1:0:1";
    fault_settings faults = { { 1, &point } };
    assert_int_equal(kv_pool_open(2, &p), STATUS_OK);
    assert_int_equal(fault_fired(FAULT_POOL_EXHAUST), 0);
    assert_int_equal(fault_arm(&faults, NULL), STATUS_OK);
    assert_int_equal(kv_pool_take(p, 2, pages), STATUS_OVERLOADED);
    counts_expect(p, 2, 0, 0);
    assert_int_equal(kv_pool_take(p, 2, pages), STATUS_OK);
    fault_disarm_all();
    kv_pool_close(p);
}

// The model of the random test: how many hold each page, and whether it is kept. Nothing else.
typedef struct simple {
    int holders[PAGES];
    bool kept[PAGES];
} simple;

static void simple_evict(void *context, int32_t page)
{
    simple *m = context;
    assert_true(m->kept[page]);
    assert_int_equal(m->holders[page], 0);
    m->kept[page] = false;
}

static void simple_compare(const kv_pool *p, const simple *m)
{
    int free_pages = 0, cached = 0, held = 0;
    for (int i = 0; i < PAGES; i++) {
        assert_int_equal(kv_pool_holders(p, i), m->holders[i]);
        assert_int_equal(kv_pool_kept(p, i), m->kept[i]);
        held += m->holders[i] > 0;
        cached += m->holders[i] == 0 && m->kept[i];
        free_pages += m->holders[i] == 0 && !m->kept[i];
    }
    counts_expect(p, free_pages, cached, held);
}

static void simple_take(kv_pool *p, simple *m, int count)
{
    int32_t pages[PAGES];
    int room = kv_pool_free(p) + kv_pool_cached(p);
    status result = kv_pool_take(p, count, pages);
    assert_int_equal(result, count <= room ? STATUS_OK : STATUS_OVERLOADED);
    for (int i = 0; result == STATUS_OK && i < count; i++) {
        assert_int_equal(m->holders[pages[i]], 0);
        assert_false(m->kept[pages[i]]);
        m->holders[pages[i]] = 1;
    }
}

static void random_calls_agree_with_a_simple_model(void **state)
{
    (void)state;
    uint64_t seed = seed_choose(), draw = seed;
    kv_pool *p;
    simple m = { 0 };
    assert_int_equal(kv_pool_open(PAGES, &p), STATUS_OK);
    kv_pool_on_evict(p, simple_evict, &m);
    for (int step = 0; step < 20000; step++) {
        draw = random_mix(draw);
        int32_t page = (int32_t)((draw >> 8) % PAGES);
        switch (draw % 6) {
        case 0:
            simple_take(p, &m, (int)((draw >> 16) % 7));
            break;
        case 1:
        case 2:
            if (m.holders[page] > 0) {
                kv_pool_release(p, page);
                m.holders[page]--;
            }
            break;
        case 3:
            if (m.holders[page] > 0 || m.kept[page]) {
                kv_pool_hold(p, page);
                m.holders[page]++;
            }
            break;
        case 4:
            if (m.holders[page] > 0) {
                kv_pool_keep(p, page);
                m.kept[page] = true;
            }
            break;
        default:
            if ((draw >> 16) % 4 == 0) {
                kv_pool_forget(p, page);
                m.kept[page] = false;
            } else {
                kv_pool_touch(p, page);
            }
        }
        simple_compare(p, &m);
    }
    kv_pool_close(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_fresh_pool_hands_out_one_run),
        cmocka_unit_test(pages_released_in_any_order_join_into_runs),
        cmocka_unit_test(a_take_that_cannot_be_whole_takes_nothing),
        cmocka_unit_test(the_least_recently_used_cached_page_is_evicted_first),
        cmocka_unit_test(a_page_returns_with_its_last_holder_only),
        cmocka_unit_test(an_armed_fault_point_fails_a_take_and_changes_nothing),
        cmocka_unit_test(random_calls_agree_with_a_simple_model),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
