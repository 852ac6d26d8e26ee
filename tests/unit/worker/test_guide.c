// Grammars of tickets: what is shared, kept, refused and dropped, and what they may take.
#include "worker/guide.h"

#include "base/clock.h"
#include "harness/tiny_model.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <stdarg.h>
#include <setjmp.h>
#include <cmocka.h>

static char path[64];

static int model_make(void **state)
{
    (void)state;
    tiny_model options = tiny_model_default(1);
    tiny_model_temporary(&options, path);
    return 0;
}

static int model_remove(void **state)
{
    (void)state;
    return unlink(path);
}

static guides *open_with(int64_t kept, uint64_t bytes_max)
{
    guides *g = NULL;
    error failure = { 0 };
    if (guides_open(path, kept, bytes_max, &g, &failure) != STATUS_OK)
        fail_msg("%s", failure.text);
    return g;
}

static guide_state settled(const guide *use)
{
    for (int i = 0; i < 60000 && guide_state_of(use) == GUIDE_COMPILING; i++)
        clock_sleep_us(1000);
    return guide_state_of(use);
}

// A grammar of its own for each number; `words` make it larger.
static guide *take(guides *g, int number, int words)
{
    buffer source = { 0 };
    buffer_printf(&source, "choice\n[\"number %d\"", number);
    for (int i = 0; i < words; i++)
        buffer_printf(&source, ",\"%04x%04x\"", (unsigned)(i * 40503 + number) & 0xffff,
                      (unsigned)i);
    buffer_append_text(&source, "]");
    guide *use = guides_take(g, buffer_slice(&source));
    buffer_close(&source);
    return use;
}

static void equal_sources_share_one_grammar(void **state)
{
    (void)state;
    guides *g = open_with(4, 1 << 20);
    guide *one = take(g, 1, 0), *same = take(g, 1, 0);
    assert_int_equal(settled(one), GUIDE_READY);
    assert_int_equal(guide_state_of(same), GUIDE_READY);
    size_t bytes = guides_bytes(g);
    guide *other = take(g, 2, 0);
    assert_int_equal(settled(other), GUIDE_READY);
    assert_true(guides_bytes(g) > bytes);
    // Two places of one machine do not disturb each other.
    const sequence_guide *a = guide_begin(one), *b = guide_begin(same);
    uint64_t mask[8];
    bool complete;
    const int32_t n = TINY_MODEL_BYTE_FIRST + 'n', u = TINY_MODEL_BYTE_FIRST + 'u';
    assert_true(a->advance(a->state, n));
    assert_true(b->mask(b->state, mask, 8, &complete));
    assert_true(mask[n / 64] >> (n % 64) & 1);
    assert_false(mask[u / 64] >> (u % 64) & 1);
    assert_true(a->mask(a->state, mask, 8, &complete));
    assert_true(mask[u / 64] >> (u % 64) & 1);
    assert_false(complete);
    guide_release(one);
    guide_release(same);
    guide_release(other);
    guides_close(g);
}

static void a_bad_source_is_refused_with_its_sentence(void **state)
{
    (void)state;
    guides *g = open_with(4, 1 << 20);
    guide *bad = guides_take(g, SLICE("regex\n(a")), *again = guides_take(g, SLICE("regex\n(a"));
    error failure = { 0 };
    assert_int_equal(settled(bad), GUIDE_REFUSED);
    assert_int_equal(guide_refusal(bad, &failure), STATUS_INVALID);
    assert_memory_equal(failure.text, "grammar: ", 9);
    assert_int_equal(guide_state_of(again), GUIDE_REFUSED); // it is not compiled twice
    guide_release(bad);
    guide_release(again);
    guides_close(g);
}

static void unused_ones_are_kept_up_to_a_number(void **state)
{
    (void)state;
    guides *g = open_with(2, 1 << 20);
    size_t bytes[5] = { 0 };
    for (int i = 1; i < 5; i++) {
        guide *use = take(g, i, 0);
        assert_int_equal(settled(use), GUIDE_READY);
        guide_release(use);
        bytes[i] = guides_bytes(g);
    }
    assert_true(bytes[2] > bytes[1]);
    assert_int_equal(bytes[3], bytes[2]);
    assert_int_equal(bytes[4], bytes[2]);
    guide *last = take(g, 4, 0), *first = take(g, 1, 0);
    assert_int_equal(guide_state_of(last), GUIDE_READY); // without a compilation
    assert_int_equal(settled(first), GUIDE_READY);
    guide_release(last);
    guide_release(first);
    guides_close(g);
    g = open_with(0, 1 << 20);
    guide *use = take(g, 1, 0);
    assert_int_equal(settled(use), GUIDE_READY);
    guide_release(use);
    assert_int_equal(guides_bytes(g), 0);
    guides_close(g);
}

// Tickets that wait hold what they hold: no more than the limit, and it comes back.
static void all_together_are_bounded(void **state)
{
    (void)state;
    const size_t limit = 4 << 20;
    guides *g = open_with(16, limit);
    guide *held[256];
    int count = 0, refused = 0, ready = 0;
    error failure = { 0 };
    for (int i = 0; i < 256; i++) {
        held[count] = take(g, i, 1000);
        if (!held[count]) {
            refused++;
            continue;
        }
        if (settled(held[count]) == GUIDE_REFUSED) {
            assert_int_equal(guide_refusal(held[count], &failure), STATUS_NO_MEMORY);
            assert_non_null(strstr(failure.text, "other grammars leave no room"));
            refused++;
        } else {
            ready++;
        }
        count++;
        assert_true(guides_bytes(g) <= limit);
    }
    assert_true(refused > 100 && ready > 2 && guides_bytes(g) > limit / 2);
    assert_int_equal(guide_state_of(held[0]), GUIDE_READY);
    for (int i = 0; i < count; i++)
        guide_release(held[i]);
    assert_true(guides_bytes(g) <= limit / 2);
    // What was refused for want of room is tried again.
    guide *again = take(g, 255, 1000);
    assert_int_equal(settled(again), GUIDE_READY);
    guide_release(again);
    guides_close(g);
}

// One that alone is too large is no ground to drop anything else's memory for ever.
static void one_that_never_fits_is_refused(void **state)
{
    (void)state;
    guides *g = open_with(16, 200 << 10);
    guide *small = take(g, 1, 0);
    assert_int_equal(settled(small), GUIDE_READY);
    guide *large = take(g, 2, 1000);
    error failure = { 0 };
    assert_int_equal(settled(large), GUIDE_REFUSED);
    assert_int_equal(guide_refusal(large, &failure), STATUS_NO_MEMORY);
    guide_release(large);
    assert_null(take(g, 3, 20000)); // its source alone
    assert_int_equal(guide_state_of(small), GUIDE_READY);
    guide_release(small);
    guides_close(g);
}

// The tokens are those of the file that was opened, whatever stands at its path later.
static void the_file_may_go_after_the_start(void **state)
{
    (void)state;
    char own[64];
    tiny_model options = tiny_model_default(2);
    guides *g = NULL;
    error failure = { 0 };
    tiny_model_temporary(&options, own);
    assert_int_equal(guides_open(own, 1, 1 << 20, &g, &failure), STATUS_OK);
    unlink(own);
    guide *use = take(g, 1, 0);
    assert_int_equal(settled(use), GUIDE_READY);
    guide_release(use);
    guides_close(g);
    g = NULL;
    assert_int_not_equal(guides_open("/nowhere/x.gguf", 1, 1 << 20, &g, &failure), STATUS_OK);
    assert_non_null(strstr(failure.text, "/nowhere/x.gguf"));
    assert_null(g);
}

// The program ends while grammars wait.
static void closing_does_not_wait_for_what_was_not_begun(void **state)
{
    (void)state;
    guides *g = open_with(1, 64 << 20);
    guide *held[64];
    for (int i = 0; i < 64; i++)
        held[i] = take(g, i, 2000);
    for (int i = 0; i < 64; i++)
        guide_release(held[i]);
    guides_close(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equal_sources_share_one_grammar),
        cmocka_unit_test(a_bad_source_is_refused_with_its_sentence),
        cmocka_unit_test(unused_ones_are_kept_up_to_a_number),
        cmocka_unit_test(all_together_are_bounded),
        cmocka_unit_test(one_that_never_fits_is_refused),
        cmocka_unit_test(the_file_may_go_after_the_start),
        cmocka_unit_test(closing_does_not_wait_for_what_was_not_begun),
    };
    return cmocka_run_group_tests(tests, model_make, model_remove);
}
