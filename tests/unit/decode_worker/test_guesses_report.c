// limit: 120
// What a worker tells of its guesses: the counts of years, and a warning where they stay off.
#include "decode_worker/guesses_report.h"
#include "decode_worker/speculate/speculation_private.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <setjmp.h>
#include <cmocka.h>

#include "speculation_fixture.h"

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

// The lines that are written now, without those of others.
static void lines_of_warn(const speculation *p, guesses_warned *before, char *text, size_t size)
{
    char file[] = "/tmp/penstock-lines-XXXXXX";
    int captured = mkstemp(file), kept = dup(STDERR_FILENO);
    assert_true(captured >= 0 && unlink(file) == 0);
    fflush(stderr);
    dup2(captured, STDERR_FILENO);
    guesses_warn(p, before);
    dup2(kept, STDERR_FILENO);
    ssize_t count = pread(captured, text, size - 1, 0);
    text[count < 0 ? 0 : count] = '\0';
    close(kept);
    close(captured);
}

// The answer is known by heart, but each row takes 0.4 s, so that no guess pays: 119 steps of it
// are 48 s, and twice that is more than a minute.
static void a_minute_below_break_even_is_warned_of_once(void **state)
{
    fixture *f = *state;
    worker w = worker_begin("suffix", 24);
    sequence_request request = f->requests[1];
    guesses_warned before = { 0 };
    char lines[4096];
    run r;
    w.row_us = 400000;
    request.class = SEQUENCE_BATCH;
    worker_open(&w);
    serve(&w, &request, 1, &r); // nothing was offered: it was not known
    for (int round = 0; round < 2; round++) {
        serve(&w, &request, 1, &r);
        lines_of_warn(w.speculation, &before, lines, sizeof lines);
        if (round == 0)
            assert_string_equal(lines, "");
    }
    assert_non_null(strstr(lines, " warn speculate guesses stay off drafter suffix class batch "));
    assert_non_null(strstr(lines, " needed 1.00 batch 1 "));
    assert_ptr_equal(strchr(lines, '\n'), strrchr(lines, '\n'));
    serve(&w, &request, 1, &r);
    lines_of_warn(w.speculation, &before, lines, sizeof lines);
    assert_string_equal(lines, "");
    worker_end(&w);
}

static void guesses_that_go_on_are_told_once(void **state)
{
    fixture *f = *state;
    worker w = worker_begin("suffix", 24);
    guesses_warned before = { 0 };
    char lines[4096];
    run r;
    w.row_us = 1000000;
    worker_open(&w);
    for (int round = 0; round < 4; round++) {
        for (int i = 0; i < 2; i++)
            serve(&w, f->requests + 1, 1, &r);
        lines_of_warn(w.speculation, &before, lines, sizeof lines);
        const char *expected[] = { "guesses stay off", "guesses go on", "", "guesses stay off" };
        if (expected[round][0] == '\0')
            assert_string_equal(lines, "");
        assert_non_null(strstr(lines, expected[round]));
        w.settings.fixed = round < 2 ? 4 : 0; // whether it pays or not
    }
    worker_end(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(counts_beyond_32_bits_are_told_whole),
        cmocka_unit_test(a_minute_below_break_even_is_warned_of_once),
        cmocka_unit_test(guesses_that_go_on_are_told_once),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
