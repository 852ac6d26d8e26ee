#include "text/tokenizer_private.h"

#include "base/random.h"

#include <stdio.h>
#include <stdlib.h>

static const tokenizer_algorithm *const algorithms[] = {
    &tokenizer_byte_level,
    &tokenizer_sentencepiece,
};

// The spellings with which families end a turn or a text, whatever the file calls them.
static const slice end_spellings[] = {
    SLICE("<|eot_id|>"),    SLICE("<|im_end|>"),      SLICE("<|end|>"),    SLICE("<end_of_turn>"),
    SLICE("<|endoftext|>"), SLICE("<|end_of_text|>"), SLICE("<|eom_id|>"),
};

static status unsupported(const gguf *file, const char *key, slice value, const char *known,
                          error *failure)
{
    return tokenizer_fail(file, failure, STATUS_UNSUPPORTED, key,
                          "%s is \"%.*s\", which is not supported; known are %s", key,
                          value.size < 64 ? (int)value.size : 64, value.data, known);
}

static status read_algorithm(tokenizer *t, const gguf *file, error *failure)
{
    status result = STATUS_OK;
    slice model, pre;
    TRY(gguf_get_string(file, "tokenizer.ggml.model", &model, failure));
    for (size_t i = 0; i < sizeof(algorithms) / sizeof(algorithms[0]); i++)
        if (slice_equal(model, slice_of(algorithms[i]->name)))
            t->algorithm = algorithms[i];
    if (t->algorithm == NULL)
        return unsupported(file, "tokenizer.ggml.model", model, "gpt2 and llama", failure);
    if (t->algorithm != &tokenizer_byte_level)
        return STATUS_OK;
    // Without the key a file means a split that fits no model well, so it has to name one.
    TRY(gguf_get_string(file, "tokenizer.ggml.pre", &pre, failure));
    result = pretokenizer_open(pre, &t->pieces, failure);
    if (result != STATUS_OK)
        error_prefix(failure, "%s", gguf_path(file));
fail:
    return result;
}

// An id of the file; absent is TOKENIZER_NO_ID.
static status read_id(const tokenizer *t, const gguf *file, const char *key, int32_t *id,
                      error *failure)
{
    status result = STATUS_OK;
    uint64_t value;
    *id = TOKENIZER_NO_ID;
    if (!gguf_has(file, key, NULL))
        return STATUS_OK;
    TRY(gguf_get_u64(file, key, &value, failure));
    if (value >= (uint64_t)t->count)
        return tokenizer_fail(file, failure, STATUS_BAD_FILE, key,
                              "%s is %llu; the vocabulary has ids 0 to %d", key,
                              (unsigned long long)value, t->count - 1);
    *id = (int32_t)value;
fail:
    return result;
}

static void add_end(tokenizer *t, int32_t id)
{
    if (id < 0 || tokenizer_is_end(t, id))
        return;
    size_t at = t->end_count++;
    for (; at > 0 && t->end_ids[at - 1] > id; at--)
        t->end_ids[at] = t->end_ids[at - 1];
    t->end_ids[at] = id;
}

static status read_ids(tokenizer *t, const gguf *file, error *failure)
{
    status result = STATUS_OK;
    const size_t spelling_count = sizeof(end_spellings) / sizeof(end_spellings[0]);
    int32_t eot, eom;
    TRY(read_id(t, file, "tokenizer.ggml.bos_token_id", &t->bos, failure));
    TRY(read_id(t, file, "tokenizer.ggml.eos_token_id", &t->eos, failure));
    TRY(read_id(t, file, "tokenizer.ggml.unknown_token_id", &t->unknown, failure));
    TRY(read_id(t, file, "tokenizer.ggml.padding_token_id", &t->padding, failure));
    TRY(read_id(t, file, "tokenizer.ggml.eot_token_id", &eot, failure));
    TRY(read_id(t, file, "tokenizer.ggml.eom_token_id", &eom, failure));
    t->end_ids = calloc(spelling_count + 3, sizeof(t->end_ids[0]));
    if (t->end_ids == NULL)
        return tokenizer_fail(file, failure, STATUS_NO_MEMORY, "tokenizer", "memory is short");
    add_end(t, t->eos);
    add_end(t, eot);
    add_end(t, eom);
    for (size_t i = 0; i < spelling_count; i++)
        add_end(t, tokenizer_special_find(t, end_spellings[i]));
fail:
    return result;
}

static status read_flags(tokenizer *t, const gguf *file, error *failure)
{
    status result = STATUS_OK;
    bool bos = t->pieces == NULL || pretokenizer_family_of(t->pieces)->adds_bos;
    TRY(gguf_get_bool_or(file, "tokenizer.ggml.add_bos_token", bos, &t->adds_bos, failure));
    TRY(gguf_get_bool_or(file, "tokenizer.ggml.add_eos_token", false, &t->adds_eos, failure));
    TRY(gguf_get_bool_or(file, "tokenizer.ggml.add_space_prefix", t->pieces == NULL, &t->adds_space,
                         failure));
    // Only SentencePiece has the prefix; byte-level files carry the key without a meaning.
    t->adds_space = t->adds_space && t->pieces == NULL;
    if ((t->adds_bos && t->bos < 0) || (t->adds_eos && t->eos < 0)) {
        const char *key = t->adds_bos && t->bos < 0 ? "tokenizer.ggml.bos_token_id"
                                                    : "tokenizer.ggml.eos_token_id";
        return tokenizer_fail(file, failure, STATUS_BAD_FILE, key,
                              "%s is missing, but is to be added to prompts", key);
    }
fail:
    return result;
}

status tokenizer_open(const gguf *file, tokenizer **opened, error *failure)
{
    status result = STATUS_OK;
    tokenizer *t = calloc(1, sizeof(*t));
    if (t == NULL)
        return tokenizer_fail(file, failure, STATUS_NO_MEMORY, "tokenizer", "memory is short");
    t->hash_seed = random_system();
    memset(t->byte_ids, 0xff, sizeof(t->byte_ids));
    TRY(gguf_check_size(file, failure));
    TRY(read_algorithm(t, file, failure));
    TRY(tokenizer_read_vocabulary(t, file, failure));
    TRY(t->algorithm->read(t, file, failure));
    TRY(read_ids(t, file, failure));
    TRY(read_flags(t, file, failure));
    *opened = t;
    return STATUS_OK;
fail:
    tokenizer_close(t);
    return result;
}

void tokenizer_close(tokenizer *t)
{
    if (t == NULL)
        return;
    pretokenizer_close(t->pieces);
    free(t->bytes);
    free(t->offsets);
    free(t->kinds);
    free(t->end_ids);
    free(t->specials);
    free(t->by_bytes);
    free(t->merges);
    free(t->score_ranks);
    free(t);
}

int32_t tokenizer_token_count(const tokenizer *t)
{
    return t->count;
}

slice tokenizer_token_bytes(const tokenizer *t, int32_t id)
{
    if (id < 0 || id >= t->count)
        return SLICE("");
    return (slice){ t->bytes + t->offsets[id], t->offsets[id + 1] - t->offsets[id] };
}

tokenizer_kind tokenizer_token_kind(const tokenizer *t, int32_t id)
{
    return id < 0 || id >= t->count ? TOKENIZER_UNUSED : (tokenizer_kind)t->kinds[id];
}

bool tokenizer_is_control(const tokenizer *t, int32_t id)
{
    return tokenizer_token_kind(t, id) == TOKENIZER_CONTROL;
}

int32_t tokenizer_bos(const tokenizer *t)
{
    return t->bos;
}

int32_t tokenizer_eos(const tokenizer *t)
{
    return t->eos;
}

int32_t tokenizer_unknown(const tokenizer *t)
{
    return t->unknown;
}

int32_t tokenizer_padding(const tokenizer *t)
{
    return t->padding;
}

const int32_t *tokenizer_end_ids(const tokenizer *t, size_t *count)
{
    *count = t->end_count;
    return t->end_ids;
}

bool tokenizer_is_end(const tokenizer *t, int32_t id)
{
    for (size_t i = 0; i < t->end_count; i++)
        if (t->end_ids[i] == id)
            return true;
    return false;
}

bool tokenizer_adds_bos(const tokenizer *t)
{
    return t->adds_bos;
}

bool tokenizer_adds_eos(const tokenizer *t)
{
    return t->adds_eos;
}

bool tokenizer_adds_space(const tokenizer *t)
{
    return t->adds_space;
}
