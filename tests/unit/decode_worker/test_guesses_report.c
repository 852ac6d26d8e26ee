// What a worker tells of its guesses: the counts of years.
#include "decode_worker/guesses_report.h"
#include "decode_worker/speculate/speculation_private.h"

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

// A hundred guesses a second pass 2^32 within a year and a half.
static void counts_beyond_32_bits_are_told_whole(void **state)
{
    (void)state;
    const uint64_t tried = (1ull << 33) + 7, right = (1ull << 32) + 5;
    const speculation_settings settings = { .tokens = 16 };
    speculation p = { .settings = &settings };
    speculation_drafter *d = &p.stats.classes[SEQUENCE_BATCH].drafters[1];
    guesses told;
    for (int i = 0; i < SPECULATION_DRAFTERS; i++)
        p.stats.drafters[i] = (speculation_drafter){ .name = "suffix", .draft = "" };
    p.tales[SEQUENCE_BATCH] = (guess_tale){ .answers = 1, .tokens = 1 };
    d->tried[0] = tried;
    d->right[0] = d->tried[1] = right;
    d->drafted = tried + right;
    d->accepted = right;
    d->rejected = tried - right;
    guesses_report(&p, &told);
    assert_int_equal(told.class_count, 1);
    const guesses_drafter *of_class = &told.classes[0].drafters[0], *all = &told.drafters[0];
    assert_true(of_class->positions == 2 && all->positions == 2);
    assert_true(of_class->tried[0] == tried && of_class->held[0] == right);
    assert_true(all->tried[0] == tried && all->held[0] == right);
    assert_true(all->tried[1] == right && all->held[1] == 0);
    assert_true(all->right == right && all->wrong == tried - right && all->behind == right);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(counts_beyond_32_bits_are_told_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
