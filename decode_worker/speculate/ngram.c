#include "decode_worker/speculate/drafter.h"

#include "base/random.h"

#include <stdlib.h>

#define WINDOW_MAX 16384 // latest tokens of a sequence that are looked into
#define CHAIN_MAX 48     // earlier occurrences of the last pair that are compared
#define LENGTH_MAX 64    // tokens that a match is compared back
#define LENGTH_GOOD 32   // a match that long is taken at once

typedef struct index {
    int32_t *heads;    // [window] by hash of a pair of tokens: where its latest one ends; -1: none
    int32_t *previous; // [window] by position: where the one before it ends; -1: none
    int32_t indexed;   // tokens taken in
} index;

typedef struct ngram {
    int32_t slots;
    int32_t window; // a power of two
    index *indexes; // [slots] arrays are taken when a slot is first used
} ngram;

static void ngram_close(void *drafter)
{
    ngram *n = drafter;
    if (!n)
        return;
    for (int32_t i = 0; n->indexes && i < n->slots; i++) {
        free(n->indexes[i].heads);
        free(n->indexes[i].previous);
    }
    free(n->indexes);
    free(n);
}

static status ngram_open(const drafter_limits *limits, void **opened, error *failure)
{
    ngram *n = calloc(1, sizeof *n);
    if (n) {
        n->slots = limits->slots;
        n->window = 256;
        while (n->window < limits->context && n->window < WINDOW_MAX)
            n->window *= 2;
        n->indexes = calloc((size_t)n->slots, sizeof n->indexes[0]);
    }
    if (!n || !n->indexes) {
        ngram_close(n);
        return error_set(failure, STATUS_NO_MEMORY, "", "memory is short for n-gram drafts");
    }
    *opened = n;
    return STATUS_OK;
}

static void ngram_begin(void *drafter, int32_t slot, hash128 tenant)
{
    ngram *n = drafter;
    index *x = &n->indexes[slot];
    size_t size = (size_t)n->window * sizeof x->heads[0];
    (void)tenant; // a sequence learns from itself alone
    if (!x->heads)
        x->heads = malloc(size);
    if (!x->previous)
        x->previous = malloc(size);
    x->indexed = 1; // a pair ends at the second token
    for (int32_t i = 0; x->heads && i < n->window; i++)
        x->heads[i] = -1;
}

static int32_t *head_of(const ngram *n, const index *x, const int32_t *end)
{
    uint64_t pair = (uint64_t)(uint32_t)end[-1] << 32 | (uint32_t)end[0];
    return &x->heads[random_mix(pair) & (uint64_t)(n->window - 1)];
}

// Tokens that are equal behind positions a < b, the positions included.
static int32_t match_length(const int32_t *tokens, int32_t a, int32_t b)
{
    int32_t length = 0;
    while (length < LENGTH_MAX && a - length >= 0 && tokens[a - length] == tokens[b - length])
        length++;
    return length;
}

// Where the longest earlier occurrence of the last tokens ends; the latest among equals. -1: none.
static int32_t match_find(const ngram *n, const index *x, const int32_t *tokens, int32_t last,
                          int32_t *length)
{
    int32_t best = -1, at = *head_of(n, x, tokens + last);
    *length = 1;
    for (int32_t i = 0; i < CHAIN_MAX && at >= 0 && at > last - n->window; i++) {
        int32_t found = match_length(tokens, at, last);
        if (found > *length) {
            best = at;
            *length = found;
        }
        if (found >= LENGTH_GOOD)
            break;
        int32_t next = x->previous[at & (n->window - 1)];
        if (next >= at)
            break; // its place was used again
        at = next;
    }
    return best;
}

static void ngram_guess(void *drafter, int32_t slot, const int32_t *tokens, int32_t count,
                        int32_t limit, draft *guess)
{
    ngram *n = drafter;
    index *x = &n->indexes[slot];
    int32_t length, last = count - 1;
    guess->count = 0;
    if (!x->heads || !x->previous || count < 2)
        return;
    if (x->indexed < last - n->window)
        x->indexed = last - n->window;
    for (; x->indexed < last; x->indexed++) {
        int32_t *head = head_of(n, x, tokens + x->indexed);
        x->previous[x->indexed & (n->window - 1)] = *head;
        *head = x->indexed;
    }
    int32_t at = match_find(n, x, tokens, last, &length);
    if (at < 0)
        return;
    // Where the text runs into the guess itself, it repeats with that period.
    for (; guess->count < limit; guess->count++) {
        int32_t from = at + 1 + guess->count;
        guess->tokens[guess->count] = from < count ? tokens[from] : guess->tokens[from - count];
    }
    guess->band = drafter_band(length);
}

static void ngram_end(void *drafter, int32_t slot, const int32_t *tokens, int32_t prompt_count,
                      int32_t count)
{
    (void)drafter;
    (void)slot;
    (void)tokens;
    (void)prompt_count;
    (void)count;
}

const drafter_kind drafter_ngram = {
    .name = "ngram",
    .open = ngram_open,
    .close = ngram_close,
    .begin = ngram_begin,
    .guess = ngram_guess,
    .end = ngram_end,
};
