// Strings with their origin: building, cutting, searching, replacing.
#include "text/template_private.h"

#include <stdlib.h>

void jinja_build_begin(jinja_builder *b, jinja_render *r)
{
    *b = (jinja_builder){ .render = r, .origin = JINJA_CONTENT };
}

static void reserve(jinja_builder *b, size_t extra)
{
    jinja_render *r = b->render;
    if (extra > r->limits.output_bytes || b->size + extra > r->limits.output_bytes)
        jinja_fail(&r->task, TEMPLATE_FAULT_LIMIT, "a text is longer than %zu bytes",
                   r->limits.output_bytes);
    if (b->size + extra <= b->capacity)
        return;
    size_t capacity = b->capacity ? b->capacity * 2 : 32;
    while (capacity < b->size + extra)
        capacity *= 2;
    b->bytes = jinja_resize(&r->task, b->bytes, b->capacity, capacity);
    if (b->marks)
        b->marks = jinja_resize(&r->task, b->marks, b->capacity, capacity);
    b->capacity = capacity;
}

// The builder stops to be of one origin.
static void begin_marks(jinja_builder *b)
{
    b->marks = jinja_allocate(&b->render->task, b->capacity);
    memset(b->marks, b->origin, b->size);
    b->origin = JINJA_MIXED;
}

void jinja_append(jinja_builder *b, slice bytes, jinja_origin origin)
{
    if (bytes.size == 0)
        return;
    jinja_work(b->render, bytes.size);
    reserve(b, bytes.size);
    if (b->size == 0 && !b->marks)
        b->origin = (uint8_t)origin;
    if (!b->marks && b->origin != origin)
        begin_marks(b);
    memcpy(b->bytes + b->size, bytes.data, bytes.size);
    if (b->marks)
        memset(b->marks + b->size, (int)origin, bytes.size);
    b->size += bytes.size;
}

void jinja_append_text(jinja_builder *b, const char *text)
{
    jinja_append(b, slice_of(text), JINJA_CONTENT);
}

void jinja_append_part(jinja_builder *b, const jinja_string *s, size_t from, size_t to)
{
    if (s->origin != JINJA_MIXED) {
        jinja_append(b, (slice){ s->bytes + from, to - from }, s->origin);
        return;
    }
    while (from < to) {
        size_t end = from + 1;
        while (end < to && s->marks[end] == s->marks[from])
            end++;
        jinja_append(b, (slice){ s->bytes + from, end - from }, s->marks[from]);
        from = end;
    }
}

void jinja_append_string(jinja_builder *b, const jinja_string *s)
{
    jinja_append_part(b, s, 0, s->size);
}

static jinja_value string_value(jinja_render *r, jinja_string s)
{
    jinja_string *kept = jinja_allocate(&r->task, sizeof *kept);
    *kept = s;
    return (jinja_value){ .type = JINJA_STRING, .string = kept };
}

jinja_value jinja_build_end(jinja_builder *b)
{
    slice bytes = { b->bytes ? b->bytes : "", b->size };
    return string_value(b->render, (jinja_string){ .bytes = bytes.data,
                                                   .marks = b->marks,
                                                   .size = (uint32_t)bytes.size,
                                                   .length = (uint32_t)jinja_count_points(bytes),
                                                   .origin = b->origin,
                                                   .safe = b->safe });
}

jinja_value jinja_text(jinja_render *r, slice bytes, jinja_origin origin)
{
    if (bytes.size > r->limits.output_bytes)
        jinja_fail(&r->task, TEMPLATE_FAULT_LIMIT, "a text is longer than %zu bytes",
                   r->limits.output_bytes);
    return string_value(r, (jinja_string){ .bytes = bytes.data,
                                           .size = (uint32_t)bytes.size,
                                           .length = (uint32_t)jinja_count_points(bytes),
                                           .origin = (uint8_t)origin });
}

jinja_value jinja_part(jinja_render *r, const jinja_string *s, size_t from, size_t to)
{
    slice bytes = { s->bytes + from, to - from };
    jinja_work(r, bytes.size);
    bool ascii = s->length == s->size;
    return string_value(
        r, (jinja_string){ .bytes = bytes.data,
                           .marks = s->marks ? s->marks + from : NULL,
                           .size = (uint32_t)bytes.size,
                           .length = (uint32_t)(ascii ? bytes.size : jinja_count_points(bytes)),
                           .origin = s->origin,
                           .safe = s->safe });
}

size_t jinja_offset(jinja_render *r, const jinja_string *s, int64_t index)
{
    if (index <= 0)
        return 0;
    if (index >= s->length)
        return s->size;
    if (s->length == s->size)
        return (size_t)index;
    size_t offset = 0;
    jinja_work(r, (size_t)index);
    for (int64_t i = 0; i < index; i++) {
        size_t size;
        jinja_decode(s->bytes + offset, &size);
        offset += size;
    }
    return offset;
}

size_t jinja_find(jinja_render *r, slice text, slice needle, size_t from)
{
    if (from > text.size)
        return SIZE_MAX;
    jinja_work(r, needle.size);
    if (needle.size == 0)
        return from;
    const char *found = memmem(text.data + from, text.size - from, needle.data, needle.size);
    size_t at = found ? (size_t)(found - text.data) : SIZE_MAX;
    jinja_work(r, (found ? at : text.size) - from);
    return at;
}

size_t jinja_find_last(jinja_render *r, slice text, slice needle, size_t to)
{
    if (needle.size > to)
        return SIZE_MAX;
    for (size_t at = to - needle.size;; at--) {
        if (memcmp(text.data + at, needle.data, needle.size) == 0)
            return at;
        jinja_work(r, needle.size < 64 ? 16 : needle.size);
        if (at == 0)
            return SIZE_MAX;
    }
}

// Put `new` before every character and at the end, as Python does for an empty `old`.
static void replace_empty(jinja_builder *b, const jinja_string *s, const jinja_string *new,
                          int64_t count)
{
    size_t at = 0;
    while (at < s->size && count != 0) {
        size_t size;
        jinja_decode(s->bytes + at, &size);
        jinja_append_string(b, new);
        jinja_append_part(b, s, at, at + size);
        at += size;
        count--;
    }
    jinja_append_part(b, s, at, s->size);
    if (count != 0)
        jinja_append_string(b, new);
}

jinja_value jinja_replace(jinja_render *r, const jinja_string *s, const jinja_string *old,
                          const jinja_string *new, int64_t count)
{
    jinja_builder b;
    jinja_build_begin(&b, r);
    size_t at = 0;
    if (old->size == 0) {
        replace_empty(&b, s, new, count);
        return jinja_build_end(&b);
    }
    for (; count != 0; count--) {
        size_t found = jinja_find(r, jinja_slice(s), jinja_slice(old), at);
        if (found == SIZE_MAX)
            break;
        jinja_append_part(&b, s, at, found);
        jinja_append_string(&b, new);
        at = found + old->size;
    }
    jinja_append_part(&b, s, at, s->size);
    return jinja_build_end(&b);
}

static bool strips(jinja_render *r, const jinja_string *set, const char *bytes, size_t size)
{
    size_t ignored;
    if (!set)
        return jinja_is_space(jinja_decode(bytes, &ignored));
    return jinja_find(r, jinja_slice(set), (slice){ bytes, size }, 0) != SIZE_MAX;
}

jinja_value jinja_strip(jinja_render *r, const jinja_string *s, const jinja_string *set, int sides)
{
    size_t from = 0, to = s->size, size;
    while ((sides & JINJA_LEFT) && from < to) {
        jinja_decode(s->bytes + from, &size);
        if (!strips(r, set, s->bytes + from, size))
            break;
        from += size;
    }
    while ((sides & JINJA_RIGHT) && to > from) {
        size = jinja_last_size(s->bytes, to);
        if (!strips(r, set, s->bytes + to - size, size))
            break;
        to -= size;
    }
    return jinja_part(r, s, from, to);
}

jinja_value jinja_escape(jinja_render *r, jinja_value v)
{
    const jinja_string *s = jinja_string_of(r, v).string;
    if (s->safe)
        return (jinja_value){ .type = JINJA_STRING, .string = s };
    static const struct {
        char plain;
        const char *text;
    } table[] = {
        { '&', "&amp;" }, { '<', "&lt;" }, { '>', "&gt;" }, { '\'', "&#39;" }, { '"', "&#34;" }
    };
    jinja_builder b;
    jinja_build_begin(&b, r);
    b.safe = true;
    size_t done = 0;
    for (size_t i = 0; i < s->size; i++) {
        for (size_t k = 0; k < sizeof table / sizeof *table; k++) {
            if (s->bytes[i] != table[k].plain)
                continue;
            jinja_append_part(&b, s, done, i);
            jinja_append_text(&b, table[k].text);
            done = i + 1;
        }
    }
    jinja_append_part(&b, s, done, s->size);
    return jinja_build_end(&b);
}
