#include "base/buffer.h"

#include "base/status.h"
#include "base/utf8.h"

#include <stdio.h>
#include <stdlib.h>

#define CAPACITY_FIRST 64

void buffer_close(buffer *b)
{
    free(b->data);
    *b = (buffer){ 0 };
}

void buffer_clear(buffer *b)
{
    b->size = 0;
    b->overflow = false;
    if (b->data != NULL)
        b->data[0] = 0;
}

bool buffer_reserve(buffer *b, size_t extra)
{
    size_t limit = b->limit ? b->limit : BUFFER_LIMIT_DEFAULT;
    if (b->overflow || b->size > limit || extra > limit - b->size) {
        b->overflow = true;
        return false;
    }
    size_t needed = b->size + extra + 1; // with the NUL
    if (needed <= b->capacity)
        return true;
    size_t capacity = b->capacity ? b->capacity : CAPACITY_FIRST;
    while (capacity < needed)
        capacity += capacity / 2 + 1;
    if (capacity > limit + 1)
        capacity = limit + 1;
    char *data = realloc(b->data, capacity);
    if (data == NULL) {
        b->overflow = true;
        return false;
    }
    if (b->data == NULL)
        data[0] = 0;
    b->data = data;
    b->capacity = capacity;
    return true;
}

void buffer_append(buffer *b, const void *data, size_t size)
{
    if (size == 0 || !buffer_reserve(b, size))
        return;
    memcpy(b->data + b->size, data, size);
    b->size += size;
    b->data[b->size] = 0;
}

void buffer_append_text(buffer *b, const char *text)
{
    buffer_append(b, text, strlen(text));
}

void buffer_append_slice(buffer *b, slice s)
{
    buffer_append(b, s.data, s.size);
}

void buffer_append_byte(buffer *b, char byte)
{
    buffer_append(b, &byte, 1);
}

void buffer_printf(buffer *b, const char *format, ...)
{
    // Most lines are short: they are formatted once, straight into the room that is there.
    if (!buffer_reserve(b, 0))
        return;
    size_t room = b->capacity - b->size;
    va_list arguments, again;
    va_start(arguments, format);
    va_copy(again, arguments);
    int length = vsnprintf(b->data + b->size, room, format, arguments);
    va_end(arguments);
    CHECK(length >= 0);
    if ((size_t)length < room)
        b->size += (size_t)length;
    else if (buffer_reserve(b, (size_t)length)) {
        vsnprintf(b->data + b->size, (size_t)length + 1, format, again);
        b->size += (size_t)length;
    } else
        b->data[b->size] = 0;
    va_end(again);
}

void buffer_drop_front(buffer *b, size_t count)
{
    CHECK(count <= b->size);
    if (count == 0)
        return;
    b->size -= count;
    memmove(b->data, b->data + count, b->size + 1);
}

// The two-character escape of a byte, or 0.
static char short_escape(unsigned char byte)
{
    switch (byte) {
    case '"':
    case '\\':
        return (char)byte;
    case '\b':
        return 'b';
    case '\f':
        return 'f';
    case '\n':
        return 'n';
    case '\r':
        return 'r';
    case '\t':
        return 't';
    default:
        return 0;
    }
}

void buffer_append_json(buffer *b, slice s)
{
    size_t plain = 0; // start of the bytes that need no escape and were not appended yet
    size_t at = 0;
    buffer_append_byte(b, '"');
    while (at < s.size) {
        unsigned char byte = (unsigned char)s.data[at];
        size_t count = utf8_sequence_size(s.data + at, s.size - at);
        char escape = short_escape(byte);
        if (count > 0 && escape == 0 && byte >= 0x20) {
            at += count;
            continue;
        }
        buffer_append(b, s.data + plain, at - plain);
        if (count == 0)
            buffer_append_text(b, "\xef\xbf\xbd");
        else if (escape != 0)
            buffer_append(b, (char[]){ '\\', escape }, 2);
        else
            buffer_printf(b, "\\u%04x", byte);
        at++;
        plain = at;
    }
    buffer_append(b, s.data + plain, at - plain);
    buffer_append_byte(b, '"');
}

bool slice_take_line(slice *text, slice *line)
{
    if (text->size == 0)
        return false;
    const char *end = memchr(text->data, '\n', text->size);
    size_t size = end != NULL ? (size_t)(end - text->data) : text->size;
    *line = (slice){ text->data, size };
    size += end != NULL;
    *text = (slice){ text->data + size, text->size - size };
    return true;
}
