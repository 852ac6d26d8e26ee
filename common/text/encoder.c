#include "text/encoder.h"

#include "text/tokenizer_private.h"
#include "text/unicode.h"

#include "base/hash.h"

#include <stdlib.h>

// Positions inside a text are 32 bits, also where repair and normal form C make it 3 times longer.
#define TEXT_BYTES_MAX ((size_t)1 << 27)
// Text memory that an encoder keeps between calls.
#define KEPT_BYTES ((size_t)1 << 20)
// The cache: pieces of up to 15 bytes that give up to 6 tokens; 48 bytes each, so that it stays in
// the second-level cache of a core.
#define CACHE_BITS 13
#define CACHED_BYTES 15
#define CACHED_IDS 6
#define SPACE_MARK "\xe2\x96\x81"

typedef struct cached_piece {
    char text[CACHED_BYTES];
    uint8_t size; // of text; 0: free
    int32_t count;
    int32_t ids[CACHED_IDS];
} cached_piece;

// Where control tokens may be matched: [begin, end) of the whole text.
typedef struct markup_run {
    size_t begin, end;
} markup_run;

struct encoder {
    const tokenizer *tokens;
    pretokenizer_work *match; // NULL where the text is one piece
    merge_work merges;
    cached_piece *cache;
    buffer text;     // all segments, well-formed
    buffer prepared; // one stretch between special tokens, normalised
    markup_run *runs;
    size_t run_count, run_capacity;
};

// One call: where the ids go.
typedef struct output {
    token_list *list;
    size_t first, limit; // ids before this call; allowed in this call
} output;

void token_list_close(token_list *list)
{
    free(list->ids);
    *list = (token_list){ 0 };
}

bool token_list_append(token_list *list, int32_t id)
{
    if (list->count == list->capacity) {
        size_t capacity = list->capacity ? list->capacity * 2 : 64;
        int32_t *ids = realloc(list->ids, capacity * sizeof(ids[0]));
        if (ids == NULL)
            return false;
        list->ids = ids;
        list->capacity = capacity;
    }
    list->ids[list->count++] = id;
    return true;
}

void token_list_fit(token_list *list)
{
    int32_t *ids = list->count ? realloc(list->ids, list->count * sizeof(ids[0])) : NULL;
    if (ids == NULL)
        return;
    list->ids = ids;
    list->capacity = list->count;
}

status encoder_open(const tokenizer *t, encoder **opened)
{
    encoder *e = calloc(1, sizeof(*e));
    if (e == NULL)
        return STATUS_NO_MEMORY;
    e->tokens = t;
    e->cache = calloc((size_t)1 << CACHE_BITS, sizeof(e->cache[0]));
    if (e->cache == NULL ||
        (t->pieces != NULL && pretokenizer_work_open(t->pieces, &e->match) != STATUS_OK)) {
        encoder_close(e);
        return STATUS_NO_MEMORY;
    }
    *opened = e;
    return STATUS_OK;
}

void encoder_close(encoder *e)
{
    if (e == NULL)
        return;
    pretokenizer_work_close(e->match);
    merge_work_close(&e->merges);
    free(e->cache);
    buffer_close(&e->text);
    buffer_close(&e->prepared);
    free(e->runs);
    free(e);
}

static status emit(const output *out, int32_t id)
{
    if (out->list->count - out->first >= out->limit)
        return STATUS_TOO_LARGE;
    return token_list_append(out->list, id) ? STATUS_OK : STATUS_NO_MEMORY;
}

// What a symbol of the merged list stands for: itself, or its bytes' tokens, or the unknown token.
static status emit_symbol(const tokenizer *t, slice piece, const merge_symbol *symbol,
                          const output *out)
{
    status result = STATUS_OK;
    bool has_bytes = true;
    if (symbol->id >= 0)
        return emit(out, symbol->id);
    const uint8_t *bytes = (const uint8_t *)piece.data + symbol->start;
    for (uint32_t i = 0; i < symbol->length; i++)
        has_bytes &= t->byte_ids[bytes[i]] >= 0;
    if (!has_bytes)
        return t->unknown >= 0 ? emit(out, t->unknown) : STATUS_OK;
    for (uint32_t i = 0; i < symbol->length; i++)
        TRY(emit(out, t->byte_ids[bytes[i]]));
fail:
    return result;
}

static status merge_piece(encoder *e, slice piece, const output *out)
{
    status result = STATUS_OK;
    const tokenizer *t = e->tokens;
    tokenizer_piece context = { t, piece.data };
    merge_clear(&e->merges);
    if (!t->algorithm->split(t, piece, &e->merges) ||
        !merge_run(&e->merges, t->algorithm->pair, &context))
        return STATUS_NO_MEMORY;
    if (e->merges.count == 0)
        return STATUS_OK;
    for (int32_t i = 0; i >= 0; i = e->merges.symbols[i].next)
        TRY(emit_symbol(t, piece, &e->merges.symbols[i], out));
fail:
    return result;
}

static status encode_piece(encoder *e, slice piece, const output *out)
{
    status result = STATUS_OK;
    const tokenizer *t = e->tokens;
    if (t->pieces != NULL && pretokenizer_family_of(t->pieces)->whole_words) {
        int32_t whole = tokenizer_find(t, piece);
        if (whole >= 0)
            return emit(out, whole);
    }
    if (piece.size > CACHED_BYTES)
        return merge_piece(e, piece, out);
    uint64_t hash = hash64_of(piece.data, piece.size, t->hash_seed);
    cached_piece *cached = &e->cache[hash >> (64 - CACHE_BITS)];
    if (cached->size == piece.size && memcmp(cached->text, piece.data, piece.size) == 0) {
        for (int32_t i = 0; i < cached->count; i++)
            TRY(emit(out, cached->ids[i]));
        return STATUS_OK;
    }
    size_t before = out->list->count;
    TRY(merge_piece(e, piece, out));
    size_t count = out->list->count - before;
    if (count <= CACHED_IDS) {
        memcpy(cached->text, piece.data, piece.size);
        cached->size = (uint8_t)piece.size;
        cached->count = (int32_t)count;
        for (size_t i = 0; i < count; i++)
            cached->ids[i] = out->list->ids[before + i];
    }
fail:
    return result;
}

// The stretch as the merges want it: in normal form C, or with SentencePiece's space in front.
static status prepare(encoder *e, slice stretch, bool first, slice *prepared)
{
    status result = STATUS_OK;
    const tokenizer *t = e->tokens;
    bool composes = t->pieces != NULL && pretokenizer_family_of(t->pieces)->composes;
    *prepared = stretch;
    buffer_clear(&e->prepared);
    if (composes && !unicode_is_composed(stretch)) {
        result = unicode_append_composed(&e->prepared, stretch);
        *prepared = buffer_slice(&e->prepared);
    } else if (first && t->adds_space) {
        buffer_append_byte(&e->prepared, ' ');
        buffer_append_slice(&e->prepared, stretch);
        *prepared = buffer_slice(&e->prepared);
    }
    return e->prepared.overflow ? STATUS_NO_MEMORY : result;
}

// The end of the part that begins at `begin` and that no merge can cross: before a character whose
// first byte never follows the byte before it inside a token.
static size_t uncrossed_end(const tokenizer *t, slice text, size_t begin)
{
    const uint8_t *byte = (const uint8_t *)text.data;
    for (size_t at = begin + 1; at < text.size; at++) {
        unsigned two = (unsigned)byte[at - 1] << 8 | byte[at];
        bool continues = (byte[at] & 0xc0) == 0x80;
        if (!continues && (t->neighbours[two / 64] >> two % 64 & 1) == 0)
            return at;
    }
    return text.size;
}

// Text between two special tokens.
static status encode_stretch(encoder *e, slice stretch, bool first, const output *out)
{
    status result = STATUS_OK;
    const tokenizer *t = e->tokens;
    slice text;
    if (stretch.size == 0)
        return STATUS_OK;
    TRY(prepare(e, stretch, first, &text));
    for (size_t begin = 0, end; begin < text.size; begin = end) {
        if (t->pieces == NULL)
            end = uncrossed_end(t, text, begin);
        else
            TRY(pretokenizer_next(t->pieces, e->match, text, begin, &end));
        TRY(encode_piece(e, (slice){ text.data + begin, end - begin }, out));
    }
fail:
    return result;
}

// Cut out the special tokens, leftmost-longest, and encode what is between.
static status encode_text(encoder *e, slice text, const output *out)
{
    status result = STATUS_OK;
    const tokenizer *t = e->tokens;
    const bool *begins = e->run_count > 0 ? t->special_first : t->user_defined_first;
    size_t begin = 0, run = 0;
    for (size_t at = 0; at < text.size;) {
        if (!begins[(uint8_t)text.data[at]]) {
            at++;
            continue;
        }
        while (run < e->run_count && e->runs[run].end <= at)
            run++;
        bool inside = run < e->run_count && e->runs[run].begin <= at;
        int32_t id = tokenizer_match_special(t, (slice){ text.data + at, text.size - at },
                                             inside ? e->runs[run].end - at : 0);
        if (id < 0) {
            at++;
            continue;
        }
        TRY(encode_stretch(e, (slice){ text.data + begin, at - begin }, begin == 0, out));
        TRY(emit(out, id));
        at += tokenizer_token_bytes(t, id).size;
        begin = at;
    }
    TRY(encode_stretch(e, (slice){ text.data + begin, text.size - begin }, begin == 0, out));
fail:
    return result;
}

static bool add_run(encoder *e, size_t begin, size_t end)
{
    if (begin == end)
        return true;
    if (e->run_count > 0 && e->runs[e->run_count - 1].end == begin) {
        e->runs[e->run_count - 1].end = end;
        return true;
    }
    if (e->run_count == e->run_capacity) {
        size_t capacity = e->run_capacity ? e->run_capacity * 2 : 16;
        markup_run *runs = realloc(e->runs, capacity * sizeof(runs[0]));
        if (runs == NULL)
            return false;
        e->runs = runs;
        e->run_capacity = capacity;
    }
    e->runs[e->run_count++] = (markup_run){ begin, end };
    return true;
}

// From `from` on, U+2581 becomes a space.
static void read_space_marks(buffer *text, size_t from)
{
    char *out = text->data + from;
    for (size_t at = from; at < text->size;) {
        bool mark = text->size - at >= 3 && memcmp(text->data + at, SPACE_MARK, 3) == 0;
        *out++ = mark ? ' ' : text->data[at];
        at += mark ? 3 : 1;
    }
    text->size = (size_t)(out - text->data);
    *out = 0;
}

// All segments as one well-formed text, with the runs of markup in it.
static status join_segments(encoder *e, const encoder_segment *segments, size_t count, slice *text)
{
    const tokenizer *t = e->tokens;
    e->run_count = 0;
    buffer_clear(&e->text);
    for (size_t i = 0; i < count; i++) {
        slice piece = segments[i].text;
        size_t begin = e->text.size;
        if (piece.size == 0)
            continue;
        bool marks = t->algorithm->reads_space_marks &&
                     memmem(piece.data, piece.size, SPACE_MARK, 3) != NULL;
        // Most calls have one text that can be used where it lies.
        if (count == 1 && !marks && unicode_valid_size(piece) == piece.size) {
            *text = piece;
            bool added = !segments[0].allow_special || add_run(e, 0, piece.size);
            return added ? STATUS_OK : STATUS_NO_MEMORY;
        }
        unicode_append_valid(&e->text, piece);
        if (marks && !e->text.overflow)
            read_space_marks(&e->text, begin);
        if (segments[i].allow_special && !add_run(e, begin, e->text.size))
            return STATUS_NO_MEMORY;
    }
    *text = buffer_slice(&e->text);
    return e->text.overflow ? STATUS_NO_MEMORY : STATUS_OK;
}

// A stop before any work: even the longest tokens could not take up so many bytes. Normal form C
// shrinks a text to a third at most. (Bytes without a token take up none; nobody sends a text of
// only those.)
static bool cannot_fit(const tokenizer *t, const encoder_segment *segments, size_t count,
                       size_t limit, size_t *size)
{
    *size = 0;
    for (size_t i = 0; i < count; i++)
        if (__builtin_add_overflow(*size, segments[i].text.size, size))
            return true;
    return *size > TEXT_BYTES_MAX || *size / 3 / (t->longest + 1) > limit;
}

static status explain(status result, size_t bytes, size_t limit, error *failure)
{
    if (result == STATUS_TOO_LARGE && bytes > TEXT_BYTES_MAX)
        return error_set(failure, result, "prompt",
                         "the text of %zu bytes is longer than the %zu bytes that are allowed",
                         bytes, TEXT_BYTES_MAX);
    if (result == STATUS_TOO_LARGE)
        return error_set(failure, result, "prompt",
                         "the text of %zu bytes is more than %zu tokens long", bytes, limit);
    if (result != STATUS_OK)
        return error_set(failure, result, "prompt", "the text of %zu bytes was not encoded: %s",
                         bytes, status_text(result));
    return result;
}

status encoder_encode(encoder *e, const encoder_segment *segments, size_t count, size_t limit,
                      token_list *list, error *failure)
{
    status result = STATUS_OK;
    output out = { list, list->count, limit };
    slice text;
    size_t bytes;
    if (cannot_fit(e->tokens, segments, count, limit, &bytes))
        return explain(STATUS_TOO_LARGE, bytes, limit, failure);
    TRY(join_segments(e, segments, count, &text));
    TRY(encode_text(e, text, &out));
fail:
    if (result != STATUS_OK)
        list->count = out.first;
    if (e->text.capacity > KEPT_BYTES)
        buffer_close(&e->text);
    if (e->prepared.capacity > KEPT_BYTES)
        buffer_close(&e->prepared);
    return explain(result, bytes, limit, failure);
}

status encoder_encode_text(encoder *e, slice text, bool allow_special, size_t limit,
                           token_list *list, error *failure)
{
    encoder_segment segment = { text, allow_special };
    return encoder_encode(e, &segment, 1, limit, list, failure);
}
