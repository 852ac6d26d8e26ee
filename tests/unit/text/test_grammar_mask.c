// limit: 240
// Masks against the plain way: a token is allowed where its bytes are, one by one. With a
// vocabulary of our own always, and with those of models where their files are; there the times are
// printed too.
#include "text/grammar_mask.h"

#include "base/clock.h"
#include "base/random.h"
#include "harness/grammar_places.h"
#include "harness/places.h"
#include "harness/seed.h"

#include <jansson.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <setjmp.h>
#include <cmocka.h>
#include <time.h>

static const char *const sources[] = {
    "json_object\n",
    "json_schema\n{\"type\":\"object\",\"properties\":{\"name\":{\"type\":\"string\",\"minLength\":"
    "1,"
    "\"maxLength\":12},\"age\":{\"type\":\"integer\",\"minimum\":0,\"maximum\":120},\"mail\":{"
    "\"type\":"
    "\"string\",\"pattern\":\"^[a-z]{2,8}@[a-z]+[.](org|de)$\"},\"tags\":{\"type\":\"array\","
    "\"items\":"
    "{\"enum\":[\"red\",\"green\",\"gr\xc3\xbcn\"]},\"maxItems\":3},\"next\":{\"anyOf\":[{\"$ref\":"
    "\"#\"},"
    "{\"type\":\"null\"}]}},\"required\":[\"name\",\"age\",\"mail\",\"next\"],"
    "\"additionalProperties\":false}",
    "json_schema\n{\"type\":\"object\",\"properties\":{\"a\":{\"const\":\"x\\u0001\\\"\"}},"
    "\"minProperties\":1}",
    "regex\n[A-Z][a-z]+( [a-z]+){0,5}[.!?]",
    "choice\n[\"yes\",\"no\",\"perhaps\",\"\xe6\x97\xa5\xe6\x9c\xac\"]",
    "template\n{\"repeat\":{\"sequence\":[\"<tool_call>\\n\",\"{\\\"name\\\": \\\"f\\\", "
    "\\\"arguments\\\": \","
    "{\"json_schema\":{\"type\":\"object\",\"properties\":{\"q\":{\"type\":\"string\"}},"
    "\"required\":[\"q\"],"
    "\"additionalProperties\":false}},\"}\\n</tool_call>\"]},\"max\":3,\"separator\":\"\\n\"}",
};
#define SOURCES (sizeof sources / sizeof sources[0])

static bool allowed(const uint64_t *mask, size_t token)
{
    return mask[token / 64] >> (token % 64) & 1;
}

// The plain way for a token that does not end inside of a character; such may be left out of a mask
// where the vocabulary cannot spell the rest.
static void compare(grammar_machine *m, grammar_place *p, const slice *tokens, size_t count,
                    const uint64_t *mask)
{
    grammar_place *way = NULL;
    for (size_t i = 0; i < count; i++) {
        bool fine = false;
        if (tokens[i].size > 0) {
            way = grammar_place_open(m);
            grammar_places_align(p, way);
            const int32_t looked = (int32_t)i;
            assert_int_equal(grammar_place_follows(p, &looked, 1), allowed(mask, i));
            fine = grammar_place_advance(way, looked);
            grammar_place_close(way);
        }
        if (fine != allowed(mask, i))
            fail_msg("token %zu '%.*s' is %s", i, (int)tokens[i].size, tokens[i].data,
                     fine ? "left out" : "allowed");
    }
}

// A vocabulary of single bytes, and of pieces in which everything that matters meets.
static size_t pieces_make(slice *tokens, char *bytes)
{
    static const char *const pieces[] = {
        "",      "\"",       "{\"",     "\"}",
        "\":",   "\": ",     "\",\"",   "a",
        "ab",    "abc",      "age",     "name",
        "1",     "12",       "120",     "121",
        "-",     "0.5",      "e1",      "[",
        "[]",    "{}",       "}}",      "null",
        ":null", ",",        ", ",      "red",
        "\\u",   "\\n",      "\\\"",    "  ",
        "x",     "xyz",      "@",       "@a",
        ".org",  "\xc3\xbc", "\xc3",    "\xbcn",
        "日本",  "🎉",        "日",      "aaaaaaaaaaaaaaaa",
        "no",    "yes",      "perhaps", "<",
        "Ab ",   "abc",      "Yes.",    " to!",
        "\x01",  "\x7f",     "\n",      "<tool_call>\n",
    };
    size_t count = 0;
    for (int byte = 0; byte < 256; byte++) {
        bytes[byte] = (char)byte;
        tokens[count++] = (slice){ bytes + byte, 1 };
    }
    for (size_t i = 0; i < sizeof pieces / sizeof pieces[0]; i++)
        tokens[count++] = slice_of(pieces[i]);
    return count;
}

static grammar_vocabulary *pieces_open(slice tokens[512], char bytes[256], size_t *count)
{
    grammar_vocabulary *v;
    *count = pieces_make(tokens, bytes);
    assert_int_equal(grammar_vocabulary_open(tokens, *count, &v), STATUS_OK);
    return v;
}

// A token out of a mask by chance; -1: none.
static int32_t choose(const uint64_t *mask, size_t count, uint64_t bits)
{
    for (size_t i = 0, at = bits % count; i < count; i++, at = (at + 1) % count)
        if (allowed(mask, at))
            return (int32_t)at;
    return -1;
}

static void masks_are_what_bytes_one_by_one_allow(void **state)
{
    (void)state;
    slice tokens[512];
    char bytes[256];
    size_t count;
    grammar_vocabulary *v = pieces_open(tokens, bytes, &count);
    for (size_t k = 0; k < SOURCES; k++) {
        grammar *g;
        error failure;
        bool some;
        size_t words;
        if (grammar_compile(slice_of(sources[k]), &g, &failure) != STATUS_OK)
            fail_msg("%s", failure.text);
        grammar_machine *m = grammar_machine_open(g, v);
        grammar_place *p = grammar_place_open(m);
        for (uint64_t i = 0; i < 300; i++) {
            const uint64_t *mask = grammar_place_mask(p, &words, &some);
            assert_non_null(mask);
            uint64_t copy[16];
            memcpy(copy, mask, GRAMMAR_MASK_WORDS(count) * sizeof copy[0]);
            compare(m, p, tokens, count, copy);
            // Whatever is drawn, the text can go on or is complete.
            int32_t token = choose(copy, count, random_mix(i * SOURCES + k));
            assert_int_equal(some, token >= 0);
            assert_true(token >= 0 || grammar_place_complete(p));
            if (token < 0 || random_mix(i) % 40 == 0)
                grammar_place_begin(p);
            else
                assert_true(grammar_place_advance(p, token));
        }
        grammar_place_close(p);
        grammar_machine_close(m);
        grammar_release(g);
    }
    grammar_vocabulary_close(v);
}

// What follows is what advancing takes, and looking leaves the place where it is.
static void a_look_at_tokens_changes_nothing(void **state)
{
    (void)state;
    slice tokens[512];
    char bytes[256];
    size_t count, words;
    grammar_vocabulary *v = pieces_open(tokens, bytes, &count);
    for (size_t k = 0; k < SOURCES; k++) {
        grammar *g;
        bool some;
        assert_int_equal(grammar_compile(slice_of(sources[k]), &g, NULL), STATUS_OK);
        grammar_machine *m = grammar_machine_open(g, v);
        grammar_place *p = grammar_place_open(m), *way = grammar_place_open(m);
        for (uint64_t i = 0; i < 60; i++) {
            int32_t guess[8], fine = 0;
            grammar_places_align(p, way);
            for (int32_t n = 0; n < 8; n++) {
                const uint64_t *mask = grammar_place_mask(way, &words, &some);
                uint64_t bits = random_mix((i * 8 + (uint64_t)n) * SOURCES + k);
                guess[n] = some && bits % 5 ? choose(mask, count, bits) : (int32_t)(bits % count);
                if (fine == n && grammar_place_advance(way, guess[n]))
                    fine++;
            }
            assert_int_equal(grammar_place_follows(p, guess, 8), fine);
            assert_int_equal(grammar_place_follows(p, guess, fine / 2), fine / 2);
            const int32_t unknown[] = { -1, (int32_t)count };
            assert_int_equal(grammar_place_follows(p, &unknown[i % 2], 1), 0);
            if (fine == 0)
                grammar_place_begin(p);
            else
                assert_true(grammar_place_advance(p, guess[0]));
        }
        grammar_place_close(way);
        grammar_place_close(p);
        grammar_machine_close(m);
        grammar_release(g);
    }
    grammar_vocabulary_close(v);
}

// Where a place went back to is where another one stands that was told what is left: they allow the
// same then.
static void rewind_compare(grammar_place *p, grammar_place *other, const int32_t *told,
                           int32_t kept)
{
    size_t words;
    bool some, other_some;
    uint64_t copy[16];
    grammar_place_begin(other);
    for (int32_t i = 0; i < kept; i++)
        assert_true(grammar_place_advance(other, told[i]));
    assert_int_equal(p->state, other->state);
    assert_int_equal(grammar_place_complete(p), grammar_place_complete(other));
    const uint64_t *mask = grammar_place_mask(p, &words, &some);
    memcpy(copy, mask, words * sizeof copy[0]);
    mask = grammar_place_mask(other, &words, &other_some);
    assert_int_equal(some, other_some);
    assert_memory_equal(copy, mask, words * sizeof copy[0]);
}

static void a_place_that_goes_back_is_where_it_was(void **state)
{
    (void)state;
    uint64_t random = seed_choose() << 32;
    slice tokens[512];
    char bytes[256];
    size_t count, words;
    grammar_vocabulary *v = pieces_open(tokens, bytes, &count);
    for (size_t k = 0; k < SOURCES; k++) {
        grammar *g;
        bool some;
        assert_int_equal(grammar_compile(slice_of(sources[k]), &g, NULL), STATUS_OK);
        grammar_machine *m = grammar_machine_open(g, v);
        grammar_place *p = grammar_place_open(m), *other = grammar_place_open(m);
        int32_t told[3 * GRAMMAR_REWIND_MAX], kept = 0, known = 0; // `known` can be taken back
        for (int i = 0; i < 2000; i++) {
            uint64_t bits = random_mix(random++);
            const uint64_t *mask = grammar_place_mask(p, &words, &some);
            assert_non_null(mask);
            if (some && bits % 4 && kept < 3 * GRAMMAR_REWIND_MAX) {
                told[kept] = choose(mask, count, bits >> 8);
                assert_true(grammar_place_advance(p, told[kept++]));
                known += known < GRAMMAR_REWIND_MAX;
                continue;
            }
            if (bits % 64 == 0) {
                machine_collect(m); // as it does where its tables are full
                known = 0;
            }
            int32_t back = (int32_t)((bits >> 8) % (GRAMMAR_REWIND_MAX / 4 + 2));
            back = bits % 5 == 0 ? known : back;
            assert_int_equal(grammar_place_rewind(p, back), back <= known);
            kept -= back <= known ? back : 0;
            known -= back <= known ? back : 0;
            rewind_compare(p, other, told, kept);
            if (known == 0) { // it can be told anew
                grammar_place_begin(p);
                kept = 0;
            }
        }
        grammar_place_close(other);
        grammar_place_close(p);
        grammar_machine_close(m);
        grammar_release(g);
    }
    grammar_vocabulary_close(v);
}

// ---- models ------------------------------------------------------------------------------------

static int compare_times(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

#define STEPS 4000

// Random texts under a grammar, a few hundred tokens each, as a hot sampler would draw them.
static void time_grammar(const char *name, slice source, const grammar_vocabulary *v, size_t count,
                         double *times, size_t *time_count, double *compile_us)
{
    grammar *g;
    error failure;
    uint64_t begun = clock_now_us();
    if (grammar_compile(source, &g, &failure) != STATUS_OK)
        return;
    *compile_us = (double)(clock_now_us() - begun);
    grammar_machine *m = grammar_machine_open(g, v);
    grammar_place *p = grammar_place_open(m);
    (void)name;
    for (int i = 0, length = 0; i < STEPS / 10; i++) {
        bool some;
        size_t words;
        struct timespec from, to;
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &from);
        const uint64_t *mask = grammar_place_mask(p, &words, &some);
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &to);
        assert_non_null(mask);
        times[(*time_count)++] =
            (double)(to.tv_sec - from.tv_sec) * 1e6 + (double)(to.tv_nsec - from.tv_nsec) * 1e-3;
        int32_t token = choose(mask, count, random_mix((uint64_t)i));
        if (token < 0 || ++length > 200) {
            assert_true(token >= 0 || grammar_place_complete(p));
            grammar_place_begin(p);
            length = 0;
        } else {
            assert_true(grammar_place_advance(p, token));
        }
    }
    grammar_place_close(p);
    grammar_machine_close(m);
    grammar_release(g);
}

static grammar_vocabulary *model_vocabulary(const char *file_name, size_t *count)
{
    gguf *file;
    tokenizer *t;
    error failure;
    grammar_vocabulary *v;
    const char *path = places_model(file_name);
    if (!path) {
        print_message("skipped: no model file %s\n", file_name);
        skip();
    }
    assert_int_equal(gguf_open(path, &file, &failure), STATUS_OK);
    assert_int_equal(tokenizer_open(file, &t, &failure), STATUS_OK);
    gguf_close(file);
    uint64_t begun = clock_now_us();
    assert_int_equal(grammar_vocabulary_of(t, &v), STATUS_OK);
    *count = (size_t)tokenizer_token_count(t);
    print_message("%zu tokens: tries made in %.0f ms\n", *count,
                  (double)(clock_now_us() - begun) * 1e-3);
    tokenizer_close(t);
    return v;
}

static void time_model(const char *file_name)
{
    size_t count, used = 0, grammars = 0;
    grammar_vocabulary *v = model_vocabulary(file_name, &count);
    buffer bytes = { 0 };
    slice line;
    double *times = calloc(200 * STEPS, sizeof *times), compiles[200];
    for (size_t k = 0; k < SOURCES; k++)
        time_grammar(sources[k], slice_of(sources[k]), v, count, times, &used,
                     &compiles[grammars++]);
    const char *path = places_shared(PENSTOCK_SOURCE_DIR, "golden/json_schema/cases.jsonl");
    slice rest = path && places_read(path, &bytes) ? buffer_slice(&bytes) : (slice){ "", 0 };
    while (slice_take_line(&rest, &line) && grammars < 190) {
        json_t *row = json_loadb(line.data, line.size, JSON_ALLOW_NUL, NULL);
        char *schema = json_dumps(json_object_get(row, "schema"), JSON_ENCODE_ANY);
        buffer source = { 0 };
        size_t before = used;
        buffer_printf(&source, "json_schema\n%s", schema);
        time_grammar(schema, buffer_slice(&source), v, count, times, &used, &compiles[grammars]);
        grammars += used > before;
        free(schema);
        buffer_close(&source);
        json_decref(row);
    }
    qsort(times, used, sizeof times[0], compare_times);
    qsort(compiles, grammars, sizeof compiles[0], compare_times);
    print_message("masks of %zu tokens: p50 %.1f us, p99 %.1f us, most %.1f us (%zu masks)\n",
                  count, times[used / 2], times[used * 99 / 100], times[used - 1], used);
    print_message("compiling: p50 %.0f us, most %.0f us (%zu grammars)\n", compiles[grammars / 2],
                  compiles[grammars - 1], grammars);
    free(times);
    buffer_close(&bytes);
    grammar_vocabulary_close(v);
}

static void masks_of_smollm2_are_fast(void **state)
{
    (void)state;
    time_model("SmolLM2-135M-Instruct.Q4_1.gguf");
}

static void masks_of_qwen_are_fast(void **state)
{
    (void)state;
    time_model("Qwen2.5-Coder-0.5B-Instruct.Q4_K_M.gguf");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(masks_are_what_bytes_one_by_one_allow),
        cmocka_unit_test(a_look_at_tokens_changes_nothing),
        cmocka_unit_test(a_place_that_goes_back_is_where_it_was),
        cmocka_unit_test(masks_of_smollm2_are_fast),
        cmocka_unit_test(masks_of_qwen_are_fast),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
