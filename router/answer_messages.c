// Answers in the shape of Anthropic's /v1/messages: content in blocks, each of which a stream
// opens, fills and closes. Tokens that were found in the cache are no input tokens there.
#include "router/answer_private.h"

#include "net/http.h"

#include <inttypes.h>

static const char *error_type(int status_code)
{
    switch (status_code) {
    case 413:
        return "request_too_large";
    case 429:
    case 401:
    case 403:
    case 404:
        return http_error_type(status_code);
    case 503:
        return "overloaded_error";
    case 504:
        return "timeout_error";
    default:
        return status_code >= 500 ? "api_error" : "invalid_request_error";
    }
}

static void write_error(int status_code, const char *param, const char *code, const char *message,
                        bool event, buffer *out)
{
    (void)param; // the sentence names it
    (void)code;
    buffer_printf(out, "%s{\"type\":\"error\",\"error\":{\"type\":\"%s\",\"message\":",
                  event ? "event: error\ndata: " : "", error_type(status_code));
    buffer_append_json(out, slice_of(message));
    buffer_append_text(out, event ? "}}\n\n" : "}}");
}

// ---- common parts -----------------------------------------------------------------------------

static void append_usage(const answer *a, buffer *out)
{
    answer_usage usage = answer_usage_of(a);
    buffer_printf(out,
                  "\"usage\":{\"input_tokens\":%" PRIu64 ",\"cache_creation_input_tokens\":0"
                  ",\"cache_read_input_tokens\":%" PRIu64 ",\"output_tokens\":%" PRIu64 "}",
                  usage.prompt - usage.cached, usage.cached, usage.generated);
}

static void append_head(const answer *a, buffer *out)
{
    buffer_printf(out,
                  "{\"id\":\"%s\",\"type\":\"message\",\"role\":\"assistant\",\"model\":", a->id);
    buffer_append_json(out, slice_of(a->model));
    buffer_append_text(out, ",\"content\":[");
}

static void append_stop(const stream *s, buffer *out)
{
    int matched = s->stopped_by_text ? stop_matched(s->stops) : -1;
    const char *reason = s->finish == PENSTOCK__FINISH__FINISH_LENGTH ? "max_tokens"
                         : s->parts && s->parts->whole_count > 0      ? "tool_use"
                         : matched >= 0                               ? "stop_sequence"
                                                                      : "end_turn";
    buffer_printf(out, "\"stop_reason\":\"%s\",\"stop_sequence\":", reason);
    if (matched >= 0)
        buffer_append_json(out, stop_string(s->stops, matched));
    else
        buffer_append_text(out, "null");
}

// Arguments are the text of an object; where a model wrote none, an empty one.
static void append_call_head(const tool_call *call, buffer *out)
{
    buffer_append_text(out, "{\"type\":\"tool_use\",\"id\":");
    buffer_append_json(out, slice_of(call->id));
    buffer_append_text(out, ",\"name\":");
    buffer_append_json(out, buffer_slice(&call->name));
    buffer_append_text(out, ",\"input\":");
}

// ---- streams ----------------------------------------------------------------------------------

static void event(const char *name, buffer *out)
{
    buffer_printf(out, "event: %s\ndata: {\"type\":\"%s\"", name, name);
}

static void append_delta(const answer_choice *c, const char *type, const char *member, slice text,
                         buffer *out)
{
    event("content_block_delta", out);
    buffer_printf(out, ",\"index\":%zu,\"delta\":{\"type\":\"%s\",\"%s\":", c->block_index, type,
                  member);
    buffer_append_json(out, text);
    buffer_append_text(out, "}}\n\n");
}

// Clients show thought again with what signs it: the answer that it is of.
static void block_close(const answer *a, answer_choice *c, buffer *out)
{
    if (!c->block)
        return;
    if (c->block == ANSWER_BLOCK_THOUGHT)
        append_delta(c, "signature_delta", "signature", slice_of(a->id), out);
    event("content_block_stop", out);
    buffer_printf(out, ",\"index\":%zu}\n\n", c->block_index++);
    c->block = ANSWER_BLOCK_NONE;
}

// A block of this kind is open; a call has one of its own.
static void block_open(const answer *a, answer_choice *c, answer_block kind, const tool_call *call,
                       buffer *out)
{
    if (c->block == kind && !call)
        return;
    block_close(a, c, out);
    c->block = kind;
    event("content_block_start", out);
    buffer_printf(out, ",\"index\":%zu,\"content_block\":", c->block_index);
    if (call) {
        append_call_head(call, out);
        buffer_append_text(out, "{}}");
    } else if (kind == ANSWER_BLOCK_THOUGHT) {
        buffer_append_text(out, "{\"type\":\"thinking\",\"thinking\":\"\",\"signature\":\"\"}");
    } else {
        buffer_append_text(out, "{\"type\":\"text\",\"text\":\"\"}");
    }
    buffer_append_text(out, "}\n\n");
}

static void write_text(const answer *a, answer_choice *c, answer_block kind, slice text,
                       buffer *out)
{
    if (text.size == 0)
        return;
    block_open(a, c, kind, NULL, out);
    if (kind == ANSWER_BLOCK_THOUGHT)
        append_delta(c, "thinking_delta", "thinking", text, out);
    else
        append_delta(c, "text_delta", "text", text, out);
}

// What is new of the arguments, in the call's open block.
static void write_arguments(const answer_choice *c, const tool_call *call, buffer *out)
{
    slice all = buffer_slice(&call->arguments);
    if (all.size > call->told)
        append_delta(c, "input_json_delta", "partial_json",
                     (slice){ all.data + call->told, all.size - call->told }, out);
}

// Of the content, what was said before the call; `said` is how much of it went out already.
static slice content_until(const tool_answer *parts, const tool_call *call, size_t *said)
{
    slice all = buffer_slice(&parts->content);
    size_t until = call ? call->content_before : all.size, begin = *said;
    *said = until;
    return (slice){ all.data + begin, until - begin };
}

// All in the order in which it was said.
static void write_parts(const answer *a, answer_choice *c, tool_answer *parts, buffer *out)
{
    size_t said = 0;
    // Text behind a call closes its block, so the rest of a call that was begun goes first.
    for (size_t i = 0; i < parts->call_count; i++)
        if (parts->calls[i].begun)
            write_arguments(c, &parts->calls[i], out);
    write_text(a, c, ANSWER_BLOCK_THOUGHT, buffer_slice(&parts->thought), out);
    for (size_t i = 0; i < parts->call_count; i++) {
        const tool_call *call = &parts->calls[i];
        if (call->begun)
            continue;
        write_text(a, c, ANSWER_BLOCK_TEXT, content_until(parts, call, &said), out);
        block_open(a, c, ANSWER_BLOCK_CALL, call, out);
        write_arguments(c, call, out);
    }
    write_text(a, c, ANSWER_BLOCK_TEXT, content_until(parts, NULL, &said), out);
    tool_answer_taken(parts);
}

static void write_start(const answer *a, answer_choice *c, buffer *out)
{
    c->begun = true;
    event("message_start", out);
    buffer_append_text(out, ",\"message\":");
    append_head(a, out);
    buffer_append_text(out, "],\"stop_reason\":null,\"stop_sequence\":null,");
    append_usage(a, out);
    buffer_append_text(out, "}}\n\n");
}

static void write_chunk(const answer *a, answer_choice *c, buffer *out)
{
    stream *s = c->stream;
    stream_part part = stream_take(s);
    if (!c->begun)
        write_start(a, c, out);
    if (s->parts)
        write_parts(a, c, s->parts, out);
    else
        write_text(a, c, ANSWER_BLOCK_TEXT, part.text, out);
    if (!s->done)
        return;
    block_close(a, c, out);
    event("message_delta", out);
    buffer_append_text(out, ",\"delta\":{");
    append_stop(s, out);
    buffer_append_text(out, "},");
    append_usage(a, out);
    buffer_append_text(out, "}\n\n");
}

static void write_end(const answer *a, buffer *out)
{
    (void)a;
    event("message_stop", out);
    buffer_append_text(out, "}\n\n");
}

// ---- whole ------------------------------------------------------------------------------------

static const char *append_text_block(const char *comma, slice text, buffer *out)
{
    if (text.size == 0)
        return comma;
    buffer_printf(out, "%s{\"type\":\"text\",\"text\":", comma);
    buffer_append_json(out, text);
    buffer_append_byte(out, '}');
    return ",";
}

static const char *append_thought_block(const answer *a, slice thought, buffer *out)
{
    if (thought.size == 0)
        return "";
    buffer_append_text(out, "{\"type\":\"thinking\",\"thinking\":");
    buffer_append_json(out, thought);
    buffer_printf(out, ",\"signature\":\"%s\"}", a->id);
    return ",";
}

static void append_parts(const answer *a, const tool_answer *parts, buffer *out)
{
    size_t said = 0;
    const char *comma = append_thought_block(a, buffer_slice(&parts->thought), out);
    for (size_t i = 0; i < parts->call_count; i++) {
        const tool_call *call = &parts->calls[i];
        if (!call->whole)
            continue;
        comma = append_text_block(comma, content_until(parts, call, &said), out);
        buffer_append_text(out, comma);
        append_call_head(call, out);
        if (call->arguments.size > 0)
            buffer_append_slice(out, buffer_slice(&call->arguments)); // checked JSON
        else
            buffer_append_text(out, "{}");
        buffer_append_byte(out, '}');
        comma = ",";
    }
    append_text_block(comma, content_until(parts, NULL, &said), out);
}

static void write_whole(const answer *a, buffer *out)
{
    stream *s = a->choices[0].stream;
    stream_part part = stream_take(s);
    append_head(a, out);
    if (s->parts)
        append_parts(a, s->parts, out);
    else
        append_text_block("", part.text, out);
    buffer_append_text(out, "],");
    append_stop(s, out);
    buffer_append_byte(out, ',');
    append_usage(a, out);
    buffer_append_byte(out, '}');
}

static void write_count(const answer *a, buffer *out)
{
    buffer_printf(out, "{\"input_tokens\":%zu}", a->request->prompts[0].tokens.count);
}

const answer_shape answer_shape_messages = { "msg", write_chunk, write_end, write_whole,
                                             write_error };
const answer_shape answer_shape_messages_count = { "msg", NULL, NULL, write_count, write_error };
