// A byte for the format, one for the cuts, then an answer: its parser and the splitter of reasoning
// give the same however the text is cut, and the arguments of whole calls are JSON.
#include "text/reasoning.h"
#include "text/tool_calls.h"

#include <jansson.h>

typedef struct reading {
    buffer text, arguments;
    size_t begun;
    bool open;
} reading;

static void note(void *context, const tool_event *event)
{
    reading *r = context;
    CHECK(event->kind == TOOL_EVENT_TEXT || r->open == (event->kind != TOOL_EVENT_CALL));
    switch (event->kind) {
    case TOOL_EVENT_TEXT:
        CHECK(!r->open && event->text.size > 0);
        buffer_append_slice(&r->text, event->text);
        break;
    case TOOL_EVENT_CALL:
        CHECK(event->call == r->begun);
        r->begun++;
        r->open = true;
        buffer_clear(&r->arguments);
        break;
    case TOOL_EVENT_ARGUMENTS:
        buffer_append_slice(&r->arguments, event->text);
        break;
    case TOOL_EVENT_END: {
        json_t *json = json_loadb(r->arguments.data, r->arguments.size, JSON_ALLOW_NUL, NULL);
        // What our scanner takes, and jansson does not: half surrogate pairs, huge numbers, bytes
        // that are no UTF-8.
        CHECK(!json || json_is_object(json));
        json_decref(json);
        buffer_append_text(&r->text, "(call)");
        r->open = false;
        break;
    }
    case TOOL_EVENT_BROKEN:
        buffer_append_text(&r->text, "(broken)");
        r->open = false;
    }
}

static void parse(tool_format format, slice source, size_t piece, reading *r)
{
    static const slice names[] = { { "f", 1 }, { "g", 1 } };
    tool_parser *p = tool_parser_open(format, names, 2, note, r);
    CHECK(p);
    for (size_t at = 0; at < source.size; at += piece)
        CHECK(tool_parser_push(
            p, (slice){ source.data + at, source.size - at < piece ? source.size - at : piece }));
    CHECK(tool_parser_end(p));
    CHECK(!r->open);
    tool_parser_close(p);
}

static void split(bool opened, slice source, size_t piece, buffer *thought, buffer *content)
{
    reasoning r;
    reasoning_begin(&r, opened);
    for (size_t at = 0; at < source.size; at += piece) {
        slice part = { source.data + at, source.size - at < piece ? source.size - at : piece };
        CHECK(reasoning_push(&r, part, thought, content));
    }
    CHECK(reasoning_end(&r, thought, content));
    CHECK(thought->size + content->size <= source.size);
    reasoning_close(&r);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 3)
        return 0;
    slice source = { (const char *)data + 2, size - 2 };
    tool_format format = (tool_format)(data[0] % TOOL_FORMAT_COUNT);
    size_t piece = 1 + data[1] % 16;
    reading first = { 0 }, second = { 0 };
    parse(format, source, source.size, &first);
    parse(format, source, piece, &second);
    CHECK(slice_equal(buffer_slice(&first.text), buffer_slice(&second.text)));
    CHECK(slice_equal(buffer_slice(&first.arguments), buffer_slice(&second.arguments)));
    buffer thought[2] = { 0 }, content[2] = { 0 };
    split(data[0] & 128, source, source.size, &thought[0], &content[0]);
    split(data[0] & 128, source, piece, &thought[1], &content[1]);
    CHECK(slice_equal(buffer_slice(&thought[0]), buffer_slice(&thought[1])));
    CHECK(slice_equal(buffer_slice(&content[0]), buffer_slice(&content[1])));
    for (int i = 0; i < 2; i++) {
        buffer_close(&thought[i]);
        buffer_close(&content[i]);
    }
    buffer_close(&first.text);
    buffer_close(&first.arguments);
    buffer_close(&second.text);
    buffer_close(&second.arguments);
    return 0;
}
