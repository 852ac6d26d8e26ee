// The tokens of a model as tries.
#include "base/utf8.h"
#include "text/grammar_machine.h"

#include <stdlib.h>

#define TOKEN_BYTES_MAX 255

// Characters of a plain token; 0: it is none, or longer than PLAIN_MAX.
static int plain_length(slice text)
{
    int count = 0;
    for (size_t i = 0; i < text.size; count++) {
        uint8_t byte = (uint8_t)text.data[i];
        size_t size = utf8_sequence_size(text.data + i, text.size - i);
        if (size == 0 || byte < 0x20 || byte == '"' || byte == '\\' || count == PLAIN_MAX)
            return 0;
        i += size;
    }
    return count;
}

typedef struct entry {
    slice text;
    int32_t token;
} entry;

static int compare_entries(const void *a, const void *b)
{
    const entry *x = a, *y = b;
    size_t size = x->text.size < y->text.size ? x->text.size : y->text.size;
    int order = memcmp(x->text.data, y->text.data, size);
    if (order != 0 || x->text.size != y->text.size)
        return order != 0 ? order : x->text.size < y->text.size ? -1 : 1;
    return x->token < y->token ? -1 : 1;
}

// From entries in order: each adds what its text does not share with the one before.
static void trie_build(trie *t, const entry *entries, size_t count, int32_t *same)
{
    int32_t path[TOKEN_BYTES_MAX + 1];
    size_t depth = 0;
    for (size_t i = 0; i < count; i++) {
        slice text = entries[i].text, before = i ? entries[i - 1].text : (slice){ "", 0 };
        size_t shared = 0;
        while (shared < text.size && shared < before.size &&
               text.data[shared] == before.data[shared])
            shared++;
        if (i > 0 && shared == text.size && shared == before.size) {
            same[entries[i].token] = t->nodes[path[depth]].token;
            t->nodes[path[depth]].token = entries[i].token;
            continue;
        }
        for (; depth > shared; depth--)
            t->nodes[path[depth]].skip = t->count;
        while (depth < text.size) {
            uint8_t byte = (uint8_t)text.data[depth++];
            t->nodes[t->count] = (trie_node){ byte, (uint8_t)depth, 0, -1 };
            path[depth] = t->count++;
        }
        t->nodes[path[depth]].token = entries[i].token;
    }
    for (; depth > 0; depth--)
        t->nodes[path[depth]].skip = t->count;
}

// Sort the tokens into the two tries; `entries` has room for all of them.
static bool tries_build(grammar_vocabulary *v, entry *entries)
{
    for (int plain = 0; plain < 2; plain++) {
        trie *t = plain ? &v->plain : &v->others;
        size_t count = 0, bytes = 1;
        for (size_t i = 0; i < v->token_count; i++) {
            slice text = v->tokens[i];
            if (text.size == 0 || (plain_length(text) > 0) != plain)
                continue;
            entries[count++] = (entry){ text, (int32_t)i };
            bytes += text.size;
        }
        if (count > 0)
            qsort(entries, count, sizeof entries[0], compare_entries);
        t->nodes = calloc(bytes, sizeof t->nodes[0]);
        if (!t->nodes)
            return false;
        trie_build(t, entries, count, v->same);
        trie_node *fitting = realloc(t->nodes, (size_t)(t->count + 1) * sizeof t->nodes[0]);
        t->nodes = fitting ? fitting : t->nodes;
    }
    return true;
}

static void lengths_fill(grammar_vocabulary *v)
{
    for (size_t i = 0; i < v->token_count; i++) {
        int length = plain_length(v->tokens[i]);
        for (int n = length; length > 0 && n <= PLAIN_MAX; n++)
            v->by_length[(size_t)n * v->words + i / 64] |= 1ull << (i % 64);
        if (v->tokens[i].size == 1)
            v->one_byte[(uint8_t)v->tokens[i].data[0]] = true;
    }
}

status grammar_vocabulary_open(const slice *tokens, size_t count, grammar_vocabulary **opened)
{
    grammar_vocabulary *v = calloc(1, sizeof *v);
    entry *entries = calloc(count + 1, sizeof *entries);
    size_t bytes = 1, used = 0;
    if (!v || !entries)
        goto fail;
    v->token_count = count;
    v->words = GRAMMAR_MASK_WORDS(count);
    for (size_t i = 0; i < count; i++)
        bytes += tokens[i].size;
    v->tokens = calloc(count + 1, sizeof v->tokens[0]);
    v->bytes = malloc(bytes);
    v->same = malloc((count + 1) * sizeof v->same[0]);
    v->by_length = calloc((PLAIN_MAX + 1) * v->words + 1, sizeof v->by_length[0]);
    if (!v->tokens || !v->bytes || !v->same || !v->by_length)
        goto fail;
    for (size_t i = 0; i < count; i++) {
        size_t size = tokens[i].size <= TOKEN_BYTES_MAX ? tokens[i].size : 0;
        if (size > 0)
            memcpy(v->bytes + used, tokens[i].data, size);
        v->tokens[i] = (slice){ v->bytes + used, size };
        v->same[i] = -1;
        used += size;
    }
    if (!tries_build(v, entries))
        goto fail;
    lengths_fill(v);
    free(entries);
    *opened = v;
    return STATUS_OK;
fail:
    free(entries);
    grammar_vocabulary_close(v);
    return STATUS_NO_MEMORY;
}

status grammar_vocabulary_of(const tokenizer *t, grammar_vocabulary **opened)
{
    size_t count = (size_t)tokenizer_token_count(t);
    slice *tokens = calloc(count + 1, sizeof *tokens);
    if (!tokens)
        return STATUS_NO_MEMORY;
    for (size_t i = 0; i < count; i++) {
        tokenizer_kind kind = tokenizer_token_kind(t, (int32_t)i);
        bool text =
            kind == TOKENIZER_NORMAL || kind == TOKENIZER_BYTE || kind == TOKENIZER_USER_DEFINED;
        if (text && !tokenizer_is_end(t, (int32_t)i))
            tokens[i] = tokenizer_token_bytes(t, (int32_t)i);
    }
    status result = grammar_vocabulary_open(tokens, count, opened);
    free(tokens);
    return result;
}

void grammar_vocabulary_close(grammar_vocabulary *v)
{
    if (!v)
        return;
    free(v->tokens);
    free(v->bytes);
    free(v->same);
    free(v->by_length);
    free(v->plain.nodes);
    free(v->others.nodes);
    free(v);
}
