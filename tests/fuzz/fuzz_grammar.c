// A source of a grammar, and a text behind a NUL: compiling ends in a grammar or in an error with a
// sentence. Under a grammar, a text that it completes has only beginnings that it knows; masks
// allow just what its bytes, one by one, do; and whatever masks allow leads to more or to an end.
#include "text/grammar_mask.h"

#include "harness/grammar_places.h"

#include <stdint.h>

#define WALK_TOKENS 24

static const char *const pieces[] = { "\"",    "{\"",  "\":",      "\":\"", "\",\"", "abc",
                                      "ab",    "12",   "0.5",      "[]",    "null",  "true",
                                      "\\u00", "\\\"", "\xc3\xa4", "  ",    "\",",   "},{",
                                      "]}",    "日本", "\n",       "x",     "-1e",   "" };
#define PIECES (sizeof pieces / sizeof pieces[0])
#define TOKENS (256 + PIECES)

static grammar_vocabulary *vocabulary_make(void)
{
    static char bytes[256];
    slice tokens[TOKENS];
    grammar_vocabulary *v;
    for (int i = 0; i < 256; i++) {
        bytes[i] = (char)i;
        tokens[i] = (slice){ bytes + i, 1 };
    }
    for (size_t i = 0; i < PIECES; i++)
        tokens[256 + i] = slice_of(pieces[i]);
    CHECK(grammar_vocabulary_open(tokens, TOKENS, &v) == STATUS_OK);
    return v;
}

static void text_check(const grammar *g, slice text)
{
    grammar_match match = grammar_match_of(g, text);
    for (size_t size = 0; size < text.size && match != GRAMMAR_NO; size += 1 + size / 4)
        CHECK(grammar_match_of(g, (slice){ text.data, size }) != GRAMMAR_NO);
}

// Go on by tokens that the mask allows; `bits` chooses.
static void masks_check(grammar_machine *m, uint64_t bits)
{
    grammar_place *p = grammar_place_open(m), *way = grammar_place_open(m);
    for (int step = 0; step < WALK_TOKENS; step++) {
        size_t words;
        bool some;
        const uint64_t *mask = grammar_place_mask(p, &words, &some);
        if (!mask)
            break; // too many states at once
        uint64_t copy[GRAMMAR_MASK_WORDS(TOKENS)];
        int32_t chosen = -1;
        memcpy(copy, mask, sizeof copy);
        CHECK(some || grammar_place_complete(p));
        bits = bits * 6364136223846793005u + 1442695040888963407u;
        for (size_t i = 0, at = (bits >> 33) % TOKENS; i < TOKENS; i++, at = (at + 1) % TOKENS) {
            bool allowed = copy[at / 64] >> (at % 64) & 1;
            grammar_places_align(p, way);
            CHECK(grammar_place_advance(way, (int32_t)at) == allowed);
            if (allowed && chosen < 0)
                chosen = (int32_t)at;
        }
        CHECK(some == (chosen >= 0));
        if (chosen < 0)
            break;
        grammar_place_advance(p, chosen);
    }
    grammar_place_close(way);
    grammar_place_close(p);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static grammar_vocabulary *v;
    const uint8_t *nul = memchr(data, 0, size);
    slice source = { (const char *)data, nul ? (size_t)(nul - data) : size };
    grammar *g = NULL;
    error failure = { 0 };
    if (!v)
        v = vocabulary_make();
    if (grammar_compile(source, &g, &failure) != STATUS_OK) {
        CHECK(!g && failure.text[0]);
        return 0;
    }
    if (nul)
        text_check(g, (slice){ (const char *)nul + 1, size - source.size - 1 });
    grammar_machine *m = grammar_machine_open(g, v);
    masks_check(m, size);
    masks_check(m, size * 7 + 1);
    grammar_machine_close(m);
    grammar_release(g);
    return 0;
}
