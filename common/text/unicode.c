#include "text/unicode.h"

#include "base/utf8.h"

#include <utf8proc.h>

#include <stdlib.h>

size_t unicode_ill_formed_size(slice text, bool *unfinished)
{
    const unsigned char *byte = (const unsigned char *)text.data;
    unsigned low = 0x80, high = 0xbf; // of the second byte
    size_t wanted = 0;                // bytes of the sequence that the first byte announces
    if (byte[0] >= 0xc2 && byte[0] <= 0xdf)
        wanted = 2;
    else if (byte[0] >= 0xe0 && byte[0] <= 0xef)
        wanted = 3;
    else if (byte[0] >= 0xf0 && byte[0] <= 0xf4)
        wanted = 4;
    if (byte[0] == 0xe0)
        low = 0xa0;
    else if (byte[0] == 0xed)
        high = 0x9f;
    else if (byte[0] == 0xf0)
        low = 0x90;
    else if (byte[0] == 0xf4)
        high = 0x8f;
    size_t count = 1;
    while (count < wanted && count < text.size && byte[count] >= low && byte[count] <= high) {
        low = 0x80;
        high = 0xbf;
        count++;
    }
    *unfinished = count < wanted && count == text.size;
    return count;
}

size_t unicode_valid_size(slice text)
{
    size_t done = 0;
    while (done < text.size) {
        uint64_t word;
        // Eight ASCII bytes at a time: prompts are mostly that.
        if (text.size - done >= sizeof(word)) {
            memcpy(&word, text.data + done, sizeof(word));
            if ((word & 0x8080808080808080u) == 0) {
                done += sizeof(word);
                continue;
            }
        }
        size_t size = utf8_sequence_size(text.data + done, text.size - done);
        if (size == 0)
            return done;
        done += size;
    }
    return done;
}

void unicode_append_valid(buffer *out, slice text)
{
    while (text.size > 0) {
        size_t valid = unicode_valid_size(text);
        bool unfinished;
        buffer_append(out, text.data, valid);
        text = (slice){ text.data + valid, text.size - valid };
        if (text.size == 0)
            return;
        size_t ill = unicode_ill_formed_size(text, &unfinished);
        buffer_append_text(out, UNICODE_REPLACEMENT);
        text = (slice){ text.data + ill, text.size - ill };
    }
}

int32_t unicode_decode(const char *data, size_t *size)
{
    const unsigned char *byte = (const unsigned char *)data;
    if (byte[0] < 0x80) {
        *size = 1;
        return byte[0];
    }
    if (byte[0] < 0xe0) {
        *size = 2;
        return (byte[0] & 0x1f) << 6 | (byte[1] & 0x3f);
    }
    if (byte[0] < 0xf0) {
        *size = 3;
        return (byte[0] & 0x0f) << 12 | (byte[1] & 0x3f) << 6 | (byte[2] & 0x3f);
    }
    *size = 4;
    return (byte[0] & 0x07) << 18 | (byte[1] & 0x3f) << 12 | (byte[2] & 0x3f) << 6 |
           (byte[3] & 0x3f);
}

void unicode_append(buffer *out, int32_t code_point)
{
    utf8proc_uint8_t bytes[4];
    utf8proc_ssize_t size = utf8proc_encode_char(code_point, bytes);
    CHECK(size > 0);
    buffer_append(out, bytes, (size_t)size);
}

bool unicode_is_composed(slice text)
{
    // U+0300 is CC 80: every byte below 0xcc means that no character from there on is in it.
    for (size_t i = 0; i < text.size; i++)
        if ((unsigned char)text.data[i] >= 0xcc)
            return false;
    return true;
}

typedef struct code_points {
    utf8proc_int32_t *items;
    size_t count, capacity;
} code_points;

static bool points_reserve(code_points *points, size_t extra)
{
    if (points->count + extra <= points->capacity)
        return true;
    size_t capacity = (points->count + extra) * 3 / 2;
    void *items = realloc(points->items, capacity * sizeof(points->items[0]));
    if (items == NULL)
        return false;
    points->items = items;
    points->capacity = capacity;
    return true;
}

static int combining_class(utf8proc_int32_t code_point)
{
    return utf8proc_get_property(code_point)->combining_class;
}

// Canonical order: each run of marks sorted by class, equal ones as they were. Counting, because a
// hostile text may be one long run.
static bool order_marks(code_points *points)
{
    utf8proc_int32_t *items = points->items, *sorted = NULL;
    for (size_t begin = 0, end; begin < points->count; begin = end) {
        size_t starts[257] = { 0 };
        bool ordered = true;
        end = begin + 1;
        if (combining_class(items[begin]) == 0)
            continue;
        for (; end < points->count && combining_class(items[end]) != 0; end++)
            ordered &= combining_class(items[end - 1]) <= combining_class(items[end]);
        if (ordered)
            continue;
        if (sorted == NULL && (sorted = malloc(points->count * sizeof(*sorted))) == NULL)
            return false;
        for (size_t i = begin; i < end; i++)
            starts[combining_class(items[i]) + 1]++;
        for (size_t i = 1; i < 257; i++)
            starts[i] += starts[i - 1];
        for (size_t i = begin; i < end; i++)
            sorted[starts[combining_class(items[i])]++] = items[i];
        memcpy(items + begin, sorted, (end - begin) * sizeof(*sorted));
    }
    free(sorted);
    return true;
}

static bool decompose(code_points *points, slice text)
{
    // A character decomposes into at most 4 canonically; 18 is the bound of any decomposition.
    enum { ROOM = 18 };
    for (size_t at = 0, size; at < text.size; at += size) {
        int boundary = 0;
        utf8proc_int32_t code_point = unicode_decode(text.data + at, &size);
        if (!points_reserve(points, ROOM))
            return false;
        points->count +=
            (size_t)utf8proc_decompose_char(code_point, points->items + points->count, ROOM,
                                            UTF8PROC_DECOMPOSE | UTF8PROC_STABLE, &boundary);
    }
    return true;
}

status unicode_append_composed(buffer *out, slice text)
{
    code_points points = { 0 };
    if (!decompose(&points, text) || !order_marks(&points)) {
        free(points.items);
        return STATUS_NO_MEMORY;
    }
    if (points.count > 0) {
        utf8proc_ssize_t count = utf8proc_normalize_utf32(
            points.items, (utf8proc_ssize_t)points.count, UTF8PROC_COMPOSE | UTF8PROC_STABLE);
        CHECK(count > 0);
        for (utf8proc_ssize_t i = 0; i < count; i++)
            unicode_append(out, points.items[i]);
    }
    free(points.items);
    return out->overflow ? STATUS_NO_MEMORY : STATUS_OK;
}
