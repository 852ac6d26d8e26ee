// Where guesses come from, against the plain search that each stands for.
#include "decode_worker/speculate/drafter.h"

#include "base/random.h"
#include "harness/seed.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <setjmp.h>
#include <cmocka.h>

#define TEXT 3000
#define ONE ((hash128){ 1, 1 })
#define TWO ((hash128){ 2, 2 })

static uint64_t random_state;

static int32_t below(int32_t limit)
{
    return (int32_t)(random_mix(random_state++) % (uint64_t)limit);
}

static void *drafter_new(const drafter_kind *kind)
{
    const drafter_limits limits = { .slots = 3, .context = 8192, .memory = 1 };
    void *drafter = NULL;
    assert_int_equal(kind->open(&limits, &drafter, NULL), STATUS_OK);
    return drafter;
}

// Words of a small language, so that texts repeat themselves.
static void text_draw(int32_t *tokens, int32_t count, int32_t letters)
{
    for (int32_t i = 0; i < count;) {
        int32_t word = below(letters);
        for (int32_t k = 0; k < 1 + word % 6 && i < count; k++)
            tokens[i++] = (word * 7 + k * k) % letters;
    }
}

static int32_t length_back(const int32_t *a, int32_t at, const int32_t *b, int32_t last,
                           int32_t most)
{
    int32_t length = 0;
    while (length < most && at - length >= 0 && last - length >= 0 &&
           a[at - length] == b[last - length])
        length++;
    return length;
}

static void ngram_copies_what_followed_its_last_tokens(void **state)
{
    (void)state;
    void *n = drafter_new(&drafter_ngram);
    const int32_t text[] = { 5, 6, 7, 8, 9, 1, 2, 5, 6, 7 };
    draft guess;
    drafter_ngram.begin(n, 0, ONE);
    drafter_ngram.guess(n, 0, text, 9, 32, &guess); // runs into itself: 7 8 9 1 2 5 6 7 8 ...
    assert_int_equal(guess.count, 32);
    for (int32_t i = 0; i < 32; i++)
        assert_int_equal(guess.tokens[i], text[2 + i % 7]);
    drafter_ngram.guess(n, 0, text, 10, 4, &guess);
    assert_int_equal(guess.count, 4);
    assert_memory_equal(guess.tokens, text + 3, 4 * sizeof text[0]);
    assert_int_equal(guess.band, drafter_band(3));
    drafter_ngram.close(n);
}

static void ngram_finds_the_longest_match_where_few_compete(void **state)
{
    (void)state;
    static int32_t text[TEXT];
    random_state = seed_choose() << 32;
    void *n = drafter_new(&drafter_ngram);
    text_draw(text, TEXT, 400);
    drafter_ngram.begin(n, 1, ONE);
    for (int32_t count = 1; count < TEXT; count++) {
        draft guess;
        int32_t longest = 1;
        drafter_ngram.guess(n, 1, text, count, 5, &guess);
        for (int32_t at = count - 2; at >= 0; at--) {
            int32_t length = length_back(text, at, text, count - 1, 32);
            longest = length > longest ? length : longest;
        }
        assert_int_equal(guess.count, longest >= 2 ? 5 : 0);
        if (guess.count == 0)
            continue;
        assert_int_equal(guess.band, drafter_band(longest));
    }
    drafter_ngram.close(n);
}

static void slots_do_not_see_each_other(void **state)
{
    (void)state;
    void *n = drafter_new(&drafter_ngram);
    const int32_t first[] = { 1, 2, 3, 1, 2 }, second[] = { 9, 1, 2 };
    draft guess;
    drafter_ngram.begin(n, 0, ONE);
    drafter_ngram.begin(n, 1, ONE);
    drafter_ngram.guess(n, 0, first, 5, 1, &guess);
    assert_int_equal(guess.count, 1);
    drafter_ngram.guess(n, 1, second, 3, 1, &guess);
    assert_int_equal(guess.count, 0);
    drafter_ngram.end(n, 0, first, 3, 5);
    drafter_ngram.begin(n, 0, ONE); // the next one in the same slot
    drafter_ngram.guess(n, 0, second, 3, 1, &guess);
    assert_int_equal(guess.count, 0);
    drafter_ngram.close(n);
}

// One answer of random text, then another text whose every suffix is looked for in it.
static void suffix_finds_the_longest_suffix_of_all_past_answers(void **state)
{
    (void)state;
    static int32_t past[4][500], text[500];
    random_state = seed_choose() << 32;
    for (int round = 0; round < 6; round++) {
        void *x = drafter_new(&drafter_suffix);
        int32_t letters = 4 + 10 * round;
        for (int i = 0; i < 4; i++) {
            text_draw(past[i], 500, letters);
            drafter_suffix.begin(x, 0, ONE);
            drafter_suffix.end(x, 0, past[i], 0, 500);
        }
        text_draw(text, 500, letters);
        drafter_suffix.begin(x, 0, ONE);
        for (int32_t count = 1; count <= 500; count++) {
            draft guess;
            int32_t longest = 0;
            drafter_suffix.guess(x, 0, text, count, 8, &guess);
            for (int i = 0; i < 4; i++)
                for (int32_t at = 0; at < 500; at++) {
                    int32_t length = length_back(past[i], at, text, count - 1, 500);
                    longest = length > longest ? length : longest;
                }
            if (longest < 3)
                assert_int_equal(guess.count, 0);
            else if (guess.count > 0) // none where the match is the end of an answer
                assert_int_equal(guess.band, drafter_band(longest));
        }
        drafter_suffix.close(x);
    }
}

static void suffix_tells_what_came_next_last_time(void **state)
{
    (void)state;
    void *x = drafter_new(&drafter_suffix);
    const int32_t first[] = { 1, 2, 3, 4, 5, 6 }, second[] = { 9, 2, 3, 4, 7, 8 };
    const int32_t now[] = { 0, 2, 3, 4 };
    draft guess;
    drafter_suffix.begin(x, 0, ONE);
    drafter_suffix.end(x, 0, first, 0, 6);
    drafter_suffix.begin(x, 0, ONE);
    drafter_suffix.guess(x, 0, now, 4, 8, &guess);
    assert_int_equal(guess.count, 2);
    assert_memory_equal(guess.tokens, first + 4, 2 * sizeof first[0]);
    drafter_suffix.begin(x, 1, ONE);
    drafter_suffix.end(x, 1, second, 0, 6);
    drafter_suffix.guess(x, 0, now, 4, 1, &guess);
    assert_int_equal(guess.count, 1);
    assert_int_equal(guess.tokens[0], 7);
    drafter_suffix.close(x);
}

static void suffix_keeps_tenants_apart(void **state)
{
    (void)state;
    void *x = drafter_new(&drafter_suffix);
    const int32_t secret[] = { 1, 2, 3, 4, 5, 6 };
    draft guess;
    drafter_suffix.begin(x, 0, ONE);
    drafter_suffix.end(x, 0, secret, 0, 6);
    drafter_suffix.begin(x, 1, TWO);
    drafter_suffix.guess(x, 1, secret, 4, 8, &guess);
    assert_int_equal(guess.count, 0);
    drafter_suffix.begin(x, 1, ONE);
    drafter_suffix.guess(x, 1, secret, 4, 8, &guess);
    assert_int_equal(guess.count, 2);
    drafter_suffix.close(x);
}

// Many more answers than it may keep, of three tenants by turns: the latest are found.
static void suffix_forgets_the_oldest_answers(void **state)
{
    (void)state;
    static int32_t text[TEXT];
    const hash128 tenants[] = { { 0, 0 }, ONE, TWO };
    random_state = seed_choose() << 32;
    void *x = drafter_new(&drafter_suffix);
    for (int i = 0; i < 120; i++) {
        draft guess;
        int32_t count = 100 + below(TEXT - 100);
        for (int32_t k = 0; k < count; k++)
            text[k] = below(50000);
        drafter_suffix.begin(x, 2, tenants[i % 3]);
        drafter_suffix.guess(x, 2, text, count / 2, 4, &guess);
        drafter_suffix.end(x, 2, text, count / 4, count);
        drafter_suffix.begin(x, 2, tenants[i % 3]);
        drafter_suffix.guess(x, 2, text, count - 10, 4, &guess);
        assert_int_equal(guess.count, 4);
        assert_memory_equal(guess.tokens, text + count - 10, 4 * sizeof text[0]);
    }
    drafter_suffix.close(x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ngram_copies_what_followed_its_last_tokens),
        cmocka_unit_test(ngram_finds_the_longest_match_where_few_compete),
        cmocka_unit_test(slots_do_not_see_each_other),
        cmocka_unit_test(suffix_finds_the_longest_suffix_of_all_past_answers),
        cmocka_unit_test(suffix_tells_what_came_next_last_time),
        cmocka_unit_test(suffix_keeps_tenants_apart),
        cmocka_unit_test(suffix_forgets_the_oldest_answers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
