// Bytes: `slice` (borrowed, with its length, may hold NUL) and `buffer` (owned, growing up to a
// limit).
//
// A buffer belongs to one thread. Its bytes are always followed by a NUL that is not counted, so
// that a buffer of text can be passed as a C string. Growth past `limit` sets `overflow` and drops
// the append, so a chain of appends needs one check at its end.
#pragma once

#include <stdbool.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

// Borrowed bytes: valid as long as what they point into. Not NUL-terminated.
typedef struct slice {
    const char *data;
    size_t size;
} slice;

// The slice of a string literal, without its NUL.
#define SLICE(literal) ((slice){ "" literal, sizeof(literal) - 1 })
static inline slice slice_of(const char *text)
{
    return (slice){ text, strlen(text) };
}
static inline bool slice_equal(slice a, slice b)
{
    return a.size == b.size && (a.size == 0 || memcmp(a.data, b.data, a.size) == 0);
}

// The next line (without its \n) off the front of `text`; false at the end. Only \n ends a line.
bool slice_take_line(slice *text, slice *line);

typedef struct buffer {
    char *data;      // NULL while nothing was ever appended
    size_t size;     // bytes in use, without the NUL behind them
    size_t capacity; // bytes taken
    size_t limit;    // 0: BUFFER_LIMIT_DEFAULT
    bool overflow;   // an append was dropped: the content is not complete
} buffer;

#define BUFFER_LIMIT_DEFAULT ((size_t)1 << 30)

// A zeroed buffer is valid and empty. `buffer_close` frees and zeroes it.
void buffer_close(buffer *b);
void buffer_clear(buffer *b); // keeps the memory
// Make room for `extra` more bytes; false (and overflow) past the limit.
bool buffer_reserve(buffer *b, size_t extra);
// Appends copy; one that does not fit under the limit is dropped whole and sets `overflow`.
void buffer_append(buffer *b, const void *data, size_t size);
void buffer_append_text(buffer *b, const char *text);
void buffer_append_slice(buffer *b, slice s);
void buffer_append_byte(buffer *b, char byte);
void buffer_printf(buffer *b, const char *format, ...) __attribute__((format(printf, 2, 3)));
// Remove `count` bytes from the front.
void buffer_drop_front(buffer *b, size_t count);
// Append `s` as a JSON string with its quotes; bytes that are not UTF-8 become U+FFFD.
void buffer_append_json(buffer *b, slice s);
// What is in it now; any append may move it.
static inline slice buffer_slice(const buffer *b)
{
    return (slice){ b->data ? b->data : "", b->size };
}
