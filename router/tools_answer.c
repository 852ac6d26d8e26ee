#include "router/tools_answer.h"

#include "base/random.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

// ---- reading ----------------------------------------------------------------------------------

static void id_make(const tool_answer *a, size_t index, char id[32])
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyz0123456789";
    uint64_t bits = random_mix(a->key + index);
    if (a->request->format != TOOL_FORMAT_MISTRAL) {
        snprintf(id, 32, "call_%016" PRIx64 "%08x", bits, (uint32_t)random_mix(bits));
        return;
    }
    for (int i = 0; i < 9; i++, bits /= 36)
        id[i] = letters[bits % 36];
    id[9] = '\0';
}

static void call_begin(tool_answer *a, slice name)
{
    if (a->call_count == a->call_capacity) {
        size_t capacity = a->call_capacity ? 2 * a->call_capacity : 4;
        tool_call *grown = realloc(a->calls, capacity * sizeof *grown);
        if (!grown) {
            a->no_memory = true;
            return;
        }
        a->calls = grown;
        a->call_capacity = capacity;
    }
    tool_call *call = &a->calls[a->call_count++];
    *call = (tool_call){ .content_before = a->content.size };
    id_make(a, a->call_count, call->id);
    buffer_append_slice(&call->name, name);
}

static void on_event(void *context, const tool_event *event)
{
    tool_answer *a = context;
    tool_call *call = a->call_count ? &a->calls[a->call_count - 1] : NULL;
    if (a->enough || a->no_memory)
        return;
    switch (event->kind) {
    case TOOL_EVENT_TEXT:
        buffer_append_slice(&a->content, event->text);
        break;
    case TOOL_EVENT_CALL:
        call_begin(a, event->text);
        break;
    case TOOL_EVENT_ARGUMENTS:
        buffer_append_slice(&call->arguments, event->text);
        break;
    case TOOL_EVENT_END:
        call->whole = true;
        a->whole_count++;
        a->enough = !a->request->parallel;
        break;
    case TOOL_EVENT_BROKEN:
        call->broken = true;
    }
}

bool tool_answer_begin(tool_answer *a, const tool_request *request, bool reasons, bool opened)
{
    *a = (tool_answer){ .request = request, .reasons = reasons, .key = random_system() };
    reasoning_begin(&a->thinking, opened);
    a->parser = tool_parser_open(request->format, request->names, request->name_count, on_event, a);
    return a->parser != NULL;
}

void tool_answer_close(tool_answer *a)
{
    for (size_t i = 0; i < a->call_count; i++) {
        buffer_close(&a->calls[i].name);
        buffer_close(&a->calls[i].arguments);
    }
    free(a->calls);
    tool_parser_close(a->parser);
    reasoning_close(&a->thinking);
    buffer_close(&a->thought);
    buffer_close(&a->content);
    buffer_close(&a->fresh);
    *a = (tool_answer){ 0 };
}

static void parse(tool_answer *a)
{
    if (!tool_parser_push(a->parser, buffer_slice(&a->fresh)))
        a->no_memory = true;
    buffer_clear(&a->fresh);
}

bool tool_answer_push(tool_answer *a, slice text)
{
    if (a->enough)
        return true;
    if (!a->reasons)
        buffer_append_slice(&a->fresh, text);
    else if (!reasoning_push(&a->thinking, text, &a->thought, &a->fresh))
        a->no_memory = true;
    parse(a);
    return a->enough;
}

void tool_answer_end(tool_answer *a)
{
    if (a->reasons && !reasoning_end(&a->thinking, &a->thought, &a->fresh))
        a->no_memory = true;
    parse(a);
    if (!tool_parser_end(a->parser))
        a->no_memory = true;
}

bool tool_answer_has_news(const tool_answer *a)
{
    bool news = a->thought.size > 0 || a->content.size > 0;
    for (size_t i = 0; i < a->call_count && !news; i++)
        news = !a->calls[i].begun || a->calls[i].arguments.size > a->calls[i].told;
    return news;
}

void tool_answer_taken(tool_answer *a)
{
    buffer_clear(&a->thought);
    buffer_clear(&a->content);
    for (size_t i = 0; i < a->call_count; i++) {
        a->calls[i].begun = true;
        a->calls[i].told = a->calls[i].arguments.size;
        a->calls[i].content_before = 0;
    }
}

// ---- writing ----------------------------------------------------------------------------------

static void append_function(const tool_call *call, bool head, size_t from, buffer *out)
{
    slice arguments = buffer_slice(&call->arguments);
    if (head) {
        buffer_append_text(out, "\"id\":");
        buffer_append_json(out, slice_of(call->id));
        buffer_append_text(out, ",\"type\":\"function\",\"function\":{\"name\":");
        buffer_append_json(out, buffer_slice(&call->name));
        buffer_append_byte(out, ',');
    } else {
        buffer_append_text(out, "\"function\":{");
    }
    buffer_append_text(out, "\"arguments\":");
    buffer_append_json(out, (slice){ arguments.data + from, arguments.size - from });
    buffer_append_byte(out, '}');
}

void tool_answer_append_delta(const tool_answer *a, bool first, buffer *out)
{
    const char *comma = "";
    if (first) {
        buffer_append_text(out, "\"role\":\"assistant\"");
        comma = ",";
    }
    if (a->thought.size > 0) {
        buffer_printf(out, "%s\"reasoning_content\":", comma);
        buffer_append_json(out, buffer_slice(&a->thought));
        comma = ",";
    }
    if (a->content.size > 0 || first) {
        buffer_printf(out, "%s\"content\":", comma);
        if (a->content.size > 0)
            buffer_append_json(out, buffer_slice(&a->content));
        else
            buffer_append_text(out, "null");
        comma = ",";
    }
    const char *opening = "\"tool_calls\":[";
    for (size_t i = 0; i < a->call_count; i++) {
        const tool_call *call = &a->calls[i];
        if (call->begun && call->told == call->arguments.size)
            continue;
        buffer_printf(out, "%s%s{\"index\":%zu,", comma, opening, i);
        append_function(call, !call->begun, call->told, out);
        buffer_append_byte(out, '}');
        opening = "";
        comma = ",";
    }
    if (!opening[0])
        buffer_append_byte(out, ']');
}

void tool_answer_append_message(const tool_answer *a, buffer *out)
{
    buffer_append_text(out, "\"content\":");
    if (a->content.size == 0 && a->whole_count > 0)
        buffer_append_text(out, "null");
    else
        buffer_append_json(out, buffer_slice(&a->content));
    if (a->thought.size > 0) {
        buffer_append_text(out, ",\"reasoning_content\":");
        buffer_append_json(out, buffer_slice(&a->thought));
    }
    const char *separator = ",\"tool_calls\":[";
    for (size_t i = 0; i < a->call_count; i++) {
        if (!a->calls[i].whole)
            continue;
        buffer_printf(out, "%s{", separator);
        append_function(&a->calls[i], true, 0, out);
        buffer_append_byte(out, '}');
        separator = ",";
    }
    if (a->whole_count > 0)
        buffer_append_byte(out, ']');
}
