// The walk through a text: which tokens the model sees, and which are scored.
#include "eval/walk.h"

#include "base/random.h"
#include "harness/seed.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <setjmp.h>
#include <cmocka.h>

#define TEXT_MAX 200
#define BOS 7

static int32_t text[TEXT_MAX];

static walk_plan plan_of(int32_t count, int32_t bos, int32_t context, int32_t stride)
{
    for (int32_t i = 0; i < TEXT_MAX; i++)
        text[i] = 1000 + i;
    return (walk_plan){
        .text = text, .count = count, .bos = bos, .context = context, .stride = stride, .chunk = 5
    };
}

// Walk to the end. scored[i]: how often text token i was; before[i]: tokens in front of it.
static int32_t walk_all(const walk_plan *plan, int32_t *scored, int32_t *before)
{
    walk w;
    error failure;
    int32_t windows = 0, computed = 0;
    memset(scored, 0, TEXT_MAX * sizeof scored[0]);
    assert_int_equal(walk_open(plan, &w, &failure), STATUS_OK);
    while (walk_next(&w)) {
        windows += w.begin == 0;
        computed = w.begin == 0 ? 0 : computed;
        assert_int_equal(w.begin, computed); // nothing between two chunks is left out
        assert_true(w.end > w.begin && w.end - w.begin <= plan->chunk && w.end < w.length);
        computed = w.end;
        for (int32_t p = w.begin > w.first ? w.begin : w.first; p < w.end; p++) {
            int32_t token = w.input[p + 1] - 1000;
            assert_true(token >= 0 && token < plan->count);
            assert_true(p == 0 || w.input[p] == text[token - 1]); // p 0: perhaps the BOS
            scored[token]++;
            before[token] = p + 1;
        }
    }
    walk_close(&w);
    return windows;
}

static void one_window_scores_all_but_its_first_token(void **state)
{
    (void)state;
    int32_t scored[TEXT_MAX], before[TEXT_MAX], windows;
    walk_plan plan = plan_of(32, -1, 32, 0);
    assert_int_equal(walk_all(&plan, scored, before), 1);
    assert_int_equal(walk_count(&plan, &windows), 31);
    assert_int_equal(scored[0], 0);
    for (int32_t i = 1; i < 32; i++) {
        assert_int_equal(scored[i], 1);
        assert_int_equal(before[i], i);
    }
}

static void behind_a_bos_the_first_token_is_scored_too(void **state)
{
    (void)state;
    int32_t scored[TEXT_MAX], before[TEXT_MAX], windows;
    walk_plan plan = plan_of(62, BOS, 32, 0);
    assert_int_equal(walk_all(&plan, scored, before), 2);
    assert_int_equal(walk_count(&plan, &windows), 62);
    for (int32_t i = 0; i < 62; i++)
        assert_int_equal(before[i], i % 31 + 1);
}

static void windows_without_overlap_lose_their_first_tokens_only(void **state)
{
    (void)state;
    int32_t scored[TEXT_MAX], before[TEXT_MAX], windows;
    walk_plan plan = plan_of(75, -1, 32, 0);
    assert_int_equal(walk_all(&plan, scored, before), 3);
    assert_int_equal(walk_count(&plan, &windows), 72);
    assert_int_equal(windows, 3);
    for (int32_t i = 0; i < 75; i++)
        assert_int_equal(scored[i], i % 32 != 0);
}

static void a_limit_on_windows_is_a_shorter_text(void **state)
{
    (void)state;
    int32_t scored[TEXT_MAX], before[TEXT_MAX], windows;
    walk_plan plan = plan_of(150, BOS, 32, 16);
    plan.windows = 3;
    int64_t count = walk_count(&plan, &windows);
    walk_trim(&plan);
    assert_int_equal(plan.windows, 0);
    assert_int_equal(plan.count, 2 * 16 + 31);
    assert_int_equal(walk_count(&plan, &windows), count);
    assert_int_equal(walk_all(&plan, scored, before), 3);
}

static void every_token_is_scored_once_behind_as_many_as_promised(void **state)
{
    (void)state;
    uint64_t seed = seed_choose();
    for (uint32_t round = 0; round < 500; round++) {
        int32_t scored[TEXT_MAX], before[TEXT_MAX], windows, sum = 0;
        uint64_t bits = random_token_bits(seed, round);
        int32_t bos = bits % 2 ? BOS : -1, context = 2 + (int32_t)((bits >> 8) % 40);
        int32_t room = context - (bos >= 0), count = 1 + (int32_t)((bits >> 20) % TEXT_MAX);
        int32_t stride = 1 + (int32_t)((bits >> 40) % (uint64_t)room);
        walk_plan plan = plan_of(count, bos, context, stride);
        plan.chunk = 1 + (int32_t)(bits >> 56) % 20;
        walk_all(&plan, scored, before);
        for (int32_t i = 0; i < count; i++) {
            bool first = i == 0 || (stride == room && i % room == 0);
            assert_int_equal(scored[i], bos >= 0 || !first);
            if (scored[i] && i >= room)
                assert_true(before[i] >= context - stride);
            sum += scored[i];
        }
        assert_int_equal(walk_count(&plan, &windows), sum);
    }
}

static void what_makes_no_walk_is_refused_by_name(void **state)
{
    (void)state;
    walk w;
    error failure;
    walk_plan plan = plan_of(10, -1, 1, 0);
    assert_int_equal(walk_open(&plan, &w, &failure), STATUS_INVALID);
    assert_string_equal(failure.param, "context");
    plan = plan_of(10, BOS, 8, 8);
    assert_int_equal(walk_open(&plan, &w, &failure), STATUS_INVALID);
    assert_string_equal(failure.text,
                        "stride is 8; it must be 1 to 7, the tokens of text in a window");
    int32_t windows;
    plan = plan_of(0, BOS, 8, 0);
    assert_int_equal(walk_count(&plan, &windows), 0);
    plan = plan_of(1, -1, 8, 0);
    assert_int_equal(walk_count(&plan, &windows), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_window_scores_all_but_its_first_token),
        cmocka_unit_test(behind_a_bos_the_first_token_is_scored_too),
        cmocka_unit_test(windows_without_overlap_lose_their_first_tokens_only),
        cmocka_unit_test(a_limit_on_windows_is_a_shorter_text),
        cmocka_unit_test(every_token_is_scored_once_behind_as_many_as_promised),
        cmocka_unit_test(what_makes_no_walk_is_refused_by_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
