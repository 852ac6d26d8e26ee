// HTTP/1.x requests as bytes: the head (request line and fields) and the chunked coding. Pure
// functions.
//
// Source: RFC 9112 (syntax, framing) and RFC 9110 (fields), read strictly: whatever two programs
// could understand differently is refused. So: lines end with CRLF and never with a bare LF; no
// space before a colon; no folded lines; exactly one Host in HTTP/1.1; Content-Length is 1*DIGIT,
// once; Transfer-Encoding is absent or exactly "chunked", and never beside Content-Length; values
// are UTF-8 without control characters. Nothing here allocates; any thread.
#pragma once

#include "base/buffer.h"

#include <stdint.h>

#define HTTP_FIELDS_MAX 100

typedef struct http_field {
    slice name;
    slice value; // without surrounding blanks
} http_field;

// Slices point into the bytes that were parsed (a path of "/" may be a literal).
typedef struct http_head {
    slice method;
    slice path;  // begins with '/', not decoded
    slice query; // after '?', may be empty
    int minor;   // HTTP/1.minor: 0 or 1
    size_t field_count;
    // What the fields say about framing.
    bool chunked;
    bool has_length;
    uint64_t length; // of the body, where has_length
    bool keep_alive;
    bool expects_continue;
    http_field fields[HTTP_FIELDS_MAX]; // last: what is behind field_count may be cut off
} http_head;

// Why a request is refused: the status of the answer and a sentence; the connection closes after
// it.
typedef struct http_refusal {
    int status;
    const char *text;
} http_refusal;

// Look for the end of the head in `size` bytes of which the first `seen` were looked at before (0
// at first). Returns the size of the head with its empty line, or 0: more bytes are needed. Bytes
// that cannot begin or continue a head, or more than `size_max` of them, fill `refusal` (its status
// is 0 otherwise) and return 0.
size_t http_head_find(const char *data, size_t size, size_t seen, size_t size_max,
                      http_refusal *refusal);
// Parse the bytes that http_head_find measured. False: `refusal` says why.
bool http_head_parse(const char *data, size_t size, http_head *head, http_refusal *refusal);
// The first field of this name (case does not matter); an empty slice with NULL data where there is
// none.
slice http_head_field(const http_head *head, const char *name);
size_t http_head_field_count(const http_head *head, const char *name);
bool http_text_equal(slice text, const char *other); // ASCII case does not matter

// A chunked body as it comes. A zeroed one is at the beginning.
typedef struct http_chunks {
    int state;
    uint64_t left; // bytes of this chunk
    size_t digits; // of the size line
    size_t extra;  // bytes of extensions and trailers so far
    bool line_empty;
    bool done;
} http_chunks;

// Move the content of `size` bytes to `body`, whose size stays at most `body_max`. Returns how many
// bytes were used: all of them unless the body is done or refused (413 past `body_max`, 400 for bad
// syntax).
size_t http_chunks_feed(http_chunks *c, const char *data, size_t size, size_t body_max,
                        buffer *body, http_refusal *refusal);

// Check a Content-Type: application/json with no parameter but charset=utf-8.
bool http_content_is_json(slice content_type);
// Whether all of `text` is well-formed UTF-8.
bool http_text_is_utf8(slice text);
