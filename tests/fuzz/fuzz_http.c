// Bytes of an HTTP connection: a head, and a chunked body behind it. Byte 0 is the size of the
// pieces that they come in.
//
// The reading does not depend on how the bytes are cut, and slices stay inside the head.
#include "base/status.h"
#include "net/http_secret.h"
#include "net/http_trace.h"

#include <stdlib.h>

#define HEAD_MAX 2048
#define BODY_MAX 1024

// Find the head with `piece` more bytes each time.
static size_t find_in_pieces(const char *data, size_t size, size_t piece, http_refusal *refusal)
{
    size_t seen = 0, found = 0;
    *refusal = (http_refusal){ 0 };
    while (seen < size && found == 0 && refusal->status == 0) {
        size_t next = size - seen < piece ? size : seen + piece;
        found = http_head_find(data, next, seen, HEAD_MAX, refusal);
        seen = next;
    }
    return found;
}

static void inside(slice s, const char *data, size_t size)
{
    CHECK(s.size == 0 || (s.data >= data && s.data + s.size <= data + size));
}

static void head_check(const char *data, size_t size)
{
    static http_head head;
    http_refusal refusal;
    if (!http_head_parse(data, size, &head, &refusal)) {
        CHECK(refusal.status >= 400 && refusal.text);
        return;
    }
    inside(head.method, data, size);
    if (!slice_equal(head.path, SLICE("/"))) // an absolute target without a path
        inside(head.path, data, size);
    inside(head.query, data, size);
    CHECK(head.path.size > 0 && !(head.chunked && head.has_length));
    for (size_t i = 0; i < head.field_count; i++) {
        inside(head.fields[i].name, data, size);
        inside(head.fields[i].value, data, size);
        CHECK(http_text_is_utf8(head.fields[i].value));
    }
    http_content_is_json(http_head_field(&head, "Content-Type"));
    http_trace trace = http_trace_of(&head);
    CHECK(strlen(trace.id) == 0 || strlen(trace.id) == 32);
    buffer password = { .limit = 512 };
    slice field = http_head_field(&head, "Authorization");
    http_secret_basic(field, &password);
    inside(http_secret_bearer(field), data, size);
    buffer_close(&password);
}

static size_t chunks_in_pieces(const char *data, size_t size, size_t piece, buffer *body,
                               http_refusal *refusal, bool *done)
{
    http_chunks c = { 0 };
    size_t at = 0;
    *refusal = (http_refusal){ 0 };
    while (at < size && !c.done && refusal->status == 0) {
        size_t take = size - at < piece ? size - at : piece;
        at += http_chunks_feed(&c, data + at, take, BODY_MAX, body, refusal);
        CHECK(body->size <= BODY_MAX);
    }
    *done = c.done;
    return at;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    if (size < 2)
        return 0;
    size_t piece = 1 + bytes[0] % 64;
    const char *data = (const char *)bytes + 1;
    http_refusal once, pieces;
    size--;
    size_t whole = http_head_find(data, size, 0, HEAD_MAX, &once);
    size_t cut = find_in_pieces(data, size, piece, &pieces);
    CHECK(whole == cut);
    if (whole > 0)
        head_check(data, whole);
    buffer body = { 0 }, body_cut = { 0 };
    bool done, done_cut;
    size_t used = chunks_in_pieces(data + whole, size - whole, size, &body, &once, &done);
    size_t used_cut =
        chunks_in_pieces(data + whole, size - whole, piece, &body_cut, &pieces, &done_cut);
    CHECK(used == used_cut && done == done_cut && once.status == pieces.status);
    CHECK(slice_equal(buffer_slice(&body), buffer_slice(&body_cut)));
    buffer_close(&body);
    buffer_close(&body_cut);
    return 0;
}
