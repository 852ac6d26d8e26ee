// The chunked transfer coding (RFC 9112 section 7.1), one byte of syntax at a time.
#include "net/http_head.h"

enum {
    CHUNK_SIZE,
    CHUNK_EXTENSION,
    CHUNK_SIZE_END,
    CHUNK_DATA,
    CHUNK_DATA_CR,
    CHUNK_DATA_LF,
    CHUNK_TRAILER,
    CHUNK_TRAILER_LF
};

#define CHUNK_DIGITS_MAX 15 // of a size line: the value stays far from overflow
#define CHUNK_EXTRA_MAX 4096

static int hex_value(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    if (c >= 'A' && c <= 'F')
        return c - 'A' + 10;
    return -1;
}

static bool chunk_bad(http_refusal *refusal, const char *text)
{
    *refusal = (http_refusal){ 400, text };
    return false;
}

static bool chunk_size_byte(http_chunks *c, char byte, http_refusal *refusal)
{
    int digit = hex_value(byte);
    if (digit >= 0) {
        if (++c->digits > CHUNK_DIGITS_MAX)
            return chunk_bad(refusal, "the size of a chunk has too many digits");
        c->left = c->left * 16 + (uint64_t)digit;
        return true;
    }
    if (c->digits == 0)
        return chunk_bad(refusal, "the size of a chunk is not a hexadecimal number");
    if (byte == '\r')
        c->state = CHUNK_SIZE_END;
    else if (byte == ';' || byte == ' ' || byte == '\t')
        c->state = CHUNK_EXTENSION;
    else
        return chunk_bad(refusal, "the size of a chunk is not a hexadecimal number");
    return true;
}

// One byte that is not content. False: refused.
static bool chunk_syntax_byte(http_chunks *c, char byte, http_refusal *refusal)
{
    switch (c->state) {
    case CHUNK_SIZE:
        return chunk_size_byte(c, byte, refusal);
    case CHUNK_EXTENSION:
        if (byte == '\r')
            c->state = CHUNK_SIZE_END;
        else if (byte == '\n' || ++c->extra > CHUNK_EXTRA_MAX)
            return chunk_bad(refusal, "a chunk extension is too long or ends without CRLF");
        return true;
    case CHUNK_SIZE_END:
        if (byte != '\n')
            return chunk_bad(refusal, "the size of a chunk does not end with CRLF");
        c->state = c->left > 0 ? CHUNK_DATA : CHUNK_TRAILER;
        c->digits = 0;
        c->line_empty = true;
        return true;
    case CHUNK_DATA_CR:
    case CHUNK_DATA_LF:
        if (byte != (c->state == CHUNK_DATA_CR ? '\r' : '\n'))
            return chunk_bad(refusal, "a chunk does not end with CRLF");
        c->state = c->state == CHUNK_DATA_CR ? CHUNK_DATA_LF : CHUNK_SIZE;
        return true;
    case CHUNK_TRAILER:
        if (byte == '\r') {
            c->state = CHUNK_TRAILER_LF;
            return true;
        }
        c->line_empty = false;
        if (byte == '\n' || ++c->extra > CHUNK_EXTRA_MAX)
            return chunk_bad(refusal, "the trailer is too long or a line ends without CRLF");
        return true;
    default: // CHUNK_TRAILER_LF
        if (byte != '\n')
            return chunk_bad(refusal, "a line of the trailer does not end with CRLF");
        c->done = c->line_empty;
        c->line_empty = true;
        c->state = CHUNK_TRAILER;
        return true;
    }
}

size_t http_chunks_feed(http_chunks *c, const char *data, size_t size, size_t body_max,
                        buffer *body, http_refusal *refusal)
{
    *refusal = (http_refusal){ 0 };
    size_t at = 0;
    while (at < size && !c->done) {
        if (c->state != CHUNK_DATA) {
            if (!chunk_syntax_byte(c, data[at], refusal))
                return at;
            at++;
            if (c->state == CHUNK_DATA && c->left > body_max - body->size) {
                *refusal = (http_refusal){ 413, "the request body is too large" };
                return at;
            }
            continue;
        }
        size_t take = size - at < c->left ? size - at : (size_t)c->left;
        buffer_append(body, data + at, take);
        at += take;
        c->left -= take;
        if (c->left == 0)
            c->state = CHUNK_DATA_CR;
    }
    return at;
}
