#include "text/stop.h"

#include "text/pattern.h"

#include <stdlib.h>

struct stop {
    size_t count;
    int found;        // -1: none yet
    char *bytes;      // of all patterns; NULL: another's
    uint32_t *tables; // as `bytes`
    pattern patterns[];
};

static status refuse(error *failure, const char *why)
{
    return error_set(failure, STATUS_INVALID, "stop", "stop %s", why);
}

status stop_open(const slice *strings, size_t count, stop **opened, error *failure)
{
    size_t bytes = 0;
    if (count > STOP_STRINGS_MAX)
        return refuse(failure, "has too many strings; at most 64 are allowed");
    for (size_t i = 0; i < count; i++) {
        if (strings[i].size == 0)
            return refuse(failure,
                          "has an empty string; every string needs at least one character");
        if (strings[i].size > STOP_BYTES_MAX - bytes)
            return refuse(failure, "is longer than 1 MiB in all");
        bytes += strings[i].size;
    }
    stop *s = calloc(1, sizeof(*s) + count * sizeof(s->patterns[0]));
    if (s != NULL) {
        s->bytes = malloc(bytes + 1);
        s->tables = malloc((bytes + 1) * sizeof(s->tables[0]));
    }
    if (s == NULL || s->bytes == NULL || s->tables == NULL) {
        stop_close(s);
        return error_set(failure, STATUS_NO_MEMORY, "stop", "memory is short");
    }
    s->count = count;
    s->found = -1;
    bytes = 0;
    for (size_t i = 0; i < count; i++) {
        memcpy(s->bytes + bytes, strings[i].data, strings[i].size);
        s->patterns[i] = (pattern){ { s->bytes + bytes, strings[i].size }, s->tables + bytes, 0 };
        pattern_prepare(&s->patterns[i]);
        bytes += strings[i].size;
    }
    *opened = s;
    return STATUS_OK;
}

status stop_open_again(const stop *other, stop **opened)
{
    size_t count = other->count;
    stop *s = calloc(1, sizeof(*s) + count * sizeof(s->patterns[0]));
    if (s == NULL)
        return STATUS_NO_MEMORY;
    s->count = count;
    s->found = -1;
    for (size_t i = 0; i < count; i++)
        s->patterns[i] = (pattern){ other->patterns[i].text, other->patterns[i].fallback, 0 };
    *opened = s;
    return STATUS_OK;
}

void stop_close(stop *s)
{
    if (s == NULL)
        return;
    free(s->bytes);
    free(s->tables);
    free(s);
}

// The pattern with the longest beginning at the end
// of the stream: what it has matched is held back.
static const pattern *holder(const stop *s)
{
    const pattern *longest = NULL;
    for (size_t i = 0; i < s->count; i++)
        if (longest == NULL || s->patterns[i].matched > longest->matched)
            longest = &s->patterns[i];
    return longest;
}

// The first `size` bytes of what was held before followed by what arrived.
static void release(slice held, slice arrived, size_t size, buffer *text)
{
    size_t old = size < held.size ? size : held.size;
    buffer_append(text, held.data, old);
    buffer_append(text, arrived.data, size - old);
}

bool stop_push(stop *s, slice arrived, buffer *text)
{
    if (s->found >= 0)
        return true;
    if (s->count == 0) {
        buffer_append_slice(text, arrived);
        return false;
    }
    const pattern *holding = holder(s);
    // What is held is the beginning of a pattern, so it needs no copy: the pattern has the bytes.
    slice held = { holding->text.data, holding->matched };
    for (size_t i = 0; i < arrived.size; i++) {
        for (size_t j = 0; j < s->count; j++)
            if (pattern_push(&s->patterns[j], arrived.data[i]) &&
                (s->found < 0 || s->patterns[j].text.size > s->patterns[s->found].text.size))
                s->found = (int)j;
        if (s->found >= 0) {
            release(held, arrived, held.size + i + 1 - s->patterns[s->found].text.size, text);
            for (size_t j = 0; j < s->count; j++)
                s->patterns[j].matched = 0;
            return true;
        }
    }
    release(held, arrived, held.size + arrived.size - stop_held(s), text);
    return false;
}

void stop_end(stop *s, buffer *text)
{
    if (s->found >= 0 || s->count == 0)
        return;
    const pattern *holding = holder(s);
    buffer_append(text, holding->text.data, holding->matched);
    for (size_t i = 0; i < s->count; i++)
        s->patterns[i].matched = 0;
}

size_t stop_held(const stop *s)
{
    return s->count > 0 ? holder(s)->matched : 0;
}

int stop_matched(const stop *s)
{
    return s->found;
}

slice stop_string(const stop *s, int index)
{
    CHECK(index >= 0 && (size_t)index < s->count);
    return s->patterns[index].text;
}
