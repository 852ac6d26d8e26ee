#include "router/tools_messages.h"

#include <stdio.h>
#include <stdlib.h>

enum { QUOTED_MAX = 60 };

// A member with null taken for absence.
static json_t *member(json_t *object, const char *name)
{
    json_t *value = json_object_get(object, name);
    return json_is_null(value) ? NULL : value;
}

static bool is_text(json_t *value, const char *text)
{
    return json_is_string(value) && json_string_length(value) == strlen(text) &&
           memcmp(json_string_value(value), text, strlen(text)) == 0;
}

static status refuse(error *failure, const char *param, const char *right)
{
    return error_set(failure, STATUS_INVALID, param, "%s must be %s", param, right);
}

static status refuse_type(error *failure, const char *param, json_t *type, const char *right)
{
    if (!json_is_string(type))
        return refuse(failure, param, right);
    return error_set(failure, STATUS_UNSUPPORTED, param, "%s is '%.*s'; right is %s", param,
                     QUOTED_MAX, json_string_value(type), right);
}

// ---- content blocks -----------------------------------------------------------------------------

typedef struct conversion {
    json_t *messages; // of the chat request
    json_t *text;     // text parts of the message at hand
    json_t *calls;    // its tool_calls
    buffer thought;
    bool no_memory;
    error *failure;
} conversion;

static void append(conversion *c, json_t *array, json_t *item)
{
    if (json_array_append_new(array, item) != 0)
        c->no_memory = true;
}

static status text_add(conversion *c, json_t *text, const char *param)
{
    if (!json_is_string(text))
        return refuse(c->failure, param, "a block with a string as its text");
    append(c, c->text, json_pack("{s:s, s:O}", "type", "text", "text", text));
    return STATUS_OK;
}

static status call_add(conversion *c, json_t *block, const char *param)
{
    json_t *id = member(block, "id"), *name = member(block, "name"),
           *input = member(block, "input");
    if (!json_is_string(id) || !json_is_string(name) || !json_is_object(input))
        return refuse(c->failure, param, "a tool_use block with id, name and an object as input");
    append(c, c->calls,
           json_pack("{s:O, s:s, s:{s:O, s:O}}", "id", id, "type", "function", "function", "name",
                     name, "arguments", input));
    return STATUS_OK;
}

// A result becomes a message of its own, in front of what else its message says.
static status result_add(conversion *c, json_t *block, const char *param)
{
    json_t *id = member(block, "tool_use_id"), *content = member(block, "content"), *item;
    size_t index;
    if (!json_is_string(id))
        return refuse(c->failure, param, "a tool_result block with a tool_use_id");
    if (!content || (json_is_array(content) && json_array_size(content) == 0)) {
        append(c, c->messages,
               json_pack("{s:s, s:O, s:s}", "role", "tool", "tool_call_id", id, "content", ""));
        return STATUS_OK;
    }
    json_array_foreach(content, index, item)
    {
        if (!is_text(member(item, "type"), "text"))
            return refuse_type(c->failure, param, member(item, "type"),
                               "a tool_result with content of type text");
    }
    if (!json_is_string(content) && !json_is_array(content))
        return refuse(c->failure, param, "a tool_result block with text as its content");
    append(c, c->messages,
           json_pack("{s:s, s:O, s:O}", "role", "tool", "tool_call_id", id, "content", content));
    return STATUS_OK;
}

static status block_add(conversion *c, json_t *block, bool assistant, const char *param)
{
    json_t *type = member(block, "type"), *thought = member(block, "thinking");
    if (!json_is_object(block))
        return refuse(c->failure, param, "an object with a type");
    if (is_text(type, "text"))
        return text_add(c, member(block, "text"), param);
    if (is_text(type, "tool_use") && assistant)
        return call_add(c, block, param);
    if (is_text(type, "tool_result") && !assistant)
        return result_add(c, block, param);
    if (is_text(type, "thinking") && assistant && json_is_string(thought)) {
        buffer_append(&c->thought, json_string_value(thought), json_string_length(thought));
        return STATUS_OK;
    }
    if (is_text(type, "redacted_thinking") && assistant)
        return STATUS_OK;
    return refuse_type(c->failure, param, type,
                       assistant ? "text, tool_use or thinking" : "text or tool_result");
}

static status message_add(conversion *c, json_t *message, size_t index)
{
    char param[96];
    json_t *role = member(message, "role"), *content = member(message, "content"), *block;
    bool assistant = is_text(role, "assistant");
    size_t at;
    snprintf(param, sizeof param, "messages[%zu].role", index);
    if (!assistant && !is_text(role, "user"))
        return refuse(c->failure, param, "'user' or 'assistant'");
    snprintf(param, sizeof param, "messages[%zu].content", index);
    if (json_is_string(content)) {
        append(c, c->messages, json_pack("{s:O, s:O}", "role", role, "content", content));
        return STATUS_OK;
    }
    if (!json_is_array(content) || json_array_size(content) == 0)
        return refuse(c->failure, param, "a string or a list of content blocks");
    json_array_clear(c->text);
    json_array_clear(c->calls);
    buffer_clear(&c->thought);
    json_array_foreach(content, at, block)
    {
        snprintf(param, sizeof param, "messages[%zu].content[%zu]", index, at);
        status result = block_add(c, block, assistant, param);
        if (result != STATUS_OK)
            return result;
    }
    bool calls = json_array_size(c->calls) > 0, text = json_array_size(c->text) > 0;
    if (!calls && !text)
        return STATUS_OK; // results only
    json_t *made = json_pack("{s:O}", "role", role);
    if (text)
        json_object_set_new(made, "content", json_copy(c->text));
    if (calls)
        json_object_set_new(made, "tool_calls", json_copy(c->calls));
    if (c->thought.size > 0)
        json_object_set_new(made, "reasoning_content",
                            json_stringn(c->thought.data, c->thought.size));
    append(c, c->messages, made);
    return STATUS_OK;
}

static status system_add(conversion *c, json_t *system)
{
    size_t index;
    json_t *block;
    if (!system)
        return STATUS_OK;
    if (!json_is_string(system) && !json_is_array(system))
        return refuse(c->failure, "system", "a string or a list of text blocks");
    if (json_array_size(system) == 0 && !json_string_length(system))
        return STATUS_OK;
    json_array_foreach(system, index, block)
    {
        if (!is_text(member(block, "type"), "text") || !json_is_string(member(block, "text")))
            return refuse(c->failure, "system", "a string or a list of text blocks");
    }
    append(c, c->messages, json_pack("{s:s, s:O}", "role", "system", "content", system));
    return STATUS_OK;
}

// ---- tools
// ----------------------------------------------------------------------------------------

static status tool_add(conversion *c, json_t *tools, json_t *tool, size_t index)
{
    error *failure = c->failure;
    char param[64];
    json_t *type = member(tool, "type"), *schema = member(tool, "input_schema");
    json_t *description = member(tool, "description");
    snprintf(param, sizeof param, "tools[%zu].type", index);
    if (type && !is_text(type, "custom"))
        return refuse_type(failure, param, type, "\"custom\", or absent");
    snprintf(param, sizeof param, "tools[%zu].name", index);
    if (!json_is_string(member(tool, "name")))
        return refuse(failure, param, "a string");
    snprintf(param, sizeof param, "tools[%zu].input_schema", index);
    if (!json_is_object(schema))
        return refuse(failure, param, "a JSON Schema object");
    json_t *function = json_pack("{s:O, s:O}", "name", member(tool, "name"), "parameters", schema);
    if (description)
        json_object_set(function, "description", description);
    append(c, tools, json_pack("{s:s, s:o}", "type", "function", "function", function));
    return STATUS_OK;
}

static status choice_convert(json_t *given, json_t *converted, error *failure)
{
    json_t *type = member(given, "type"), *alone = member(given, "disable_parallel_tool_use");
    if (!given)
        return STATUS_OK;
    if (alone && !json_is_boolean(alone))
        return refuse(failure, "tool_choice.disable_parallel_tool_use", "true or false");
    if (alone)
        json_object_set_new(converted, "parallel_tool_calls", json_boolean(json_is_false(alone)));
    if (is_text(type, "auto") || is_text(type, "none"))
        json_object_set(converted, "tool_choice", type);
    else if (is_text(type, "any"))
        json_object_set_new(converted, "tool_choice", json_string("required"));
    else if (is_text(type, "tool") && json_is_string(member(given, "name")))
        json_object_set_new(converted, "tool_choice",
                            json_pack("{s:s, s:{s:O}}", "type", "function", "function", "name",
                                      member(given, "name")));
    else
        return refuse(failure, "tool_choice",
                      "an object of type auto, any, none, or tool with a name");
    return STATUS_OK;
}

static status tools_convert(conversion *c, json_t *body, json_t *converted)
{
    error *failure = c->failure;
    json_t *given = member(body, "tools"), *tool;
    size_t index;
    if (given && !json_is_array(given))
        return refuse(failure, "tools", "an array");
    if (json_array_size(given) > 0) {
        json_t *tools = json_array();
        json_object_set_new(converted, "tools", tools);
        json_array_foreach(given, index, tool)
        {
            status result = tool_add(c, tools, tool, index);
            if (result != STATUS_OK)
                return result;
        }
    }
    return choice_convert(member(body, "tool_choice"), converted, failure);
}

status tools_messages_convert(json_t *body, json_t *converted, error *failure)
{
    status result = STATUS_OK;
    size_t index;
    json_t *messages = member(body, "messages"), *message;
    conversion c = {
        .messages = json_array(), .text = json_array(), .calls = json_array(), .failure = failure
    };
    json_object_set_new(converted, "messages", c.messages);
    if (!json_is_array(messages) || json_array_size(messages) == 0)
        TRY(refuse(failure, "messages", "a list of at least one message"));
    TRY(system_add(&c, member(body, "system")));
    json_array_foreach(messages, index, message) TRY(message_add(&c, message, index));
    TRY(tools_convert(&c, body, converted));
    if (c.no_memory || c.thought.overflow)
        result = error_set(failure, STATUS_NO_MEMORY, "", "no memory for the messages");
fail:
    json_decref(c.text);
    json_decref(c.calls);
    buffer_close(&c.thought);
    return result;
}

// ---- answers ------------------------------------------------------------------------------------

static void append_event(buffer *out, const char *name, size_t index)
{
    buffer_printf(out, "event: %s\ndata: {\"type\":\"%s\",\"index\":%zu", name, name, index);
}

static void block_close(tools_messages_blocks *blocks, buffer *out)
{
    if (blocks->open == BLOCK_NONE)
        return;
    append_event(out, "content_block_stop", blocks->index++);
    buffer_append_text(out, "}\n\n");
    blocks->open = BLOCK_NONE;
}

static void append_block(const char *type, const char *member_name, slice text, buffer *out)
{
    buffer_printf(out, "{\"type\":\"%s\",\"%s\":", type, member_name);
    buffer_append_json(out, text);
    if (strcmp(type, "thinking") == 0)
        buffer_append_text(out, ",\"signature\":\"\""); // clients expect one
    buffer_append_byte(out, '}');
}

static void append_tool(const tool_call *call, slice input, buffer *out)
{
    buffer_append_text(out, "{\"type\":\"tool_use\",\"id\":");
    buffer_append_json(out, slice_of(call->id));
    buffer_append_text(out, ",\"name\":");
    buffer_append_json(out, buffer_slice(&call->name));
    buffer_append_text(out, ",\"input\":");
    buffer_append_slice(out, input);
    buffer_append_byte(out, '}');
}

static void append_delta(tools_messages_blocks *blocks, const char *type, const char *member_name,
                         slice text, buffer *out)
{
    append_event(out, "content_block_delta", blocks->index);
    buffer_append_text(out, ",\"delta\":");
    append_block(type, member_name, text, out);
    buffer_append_text(out, "}\n\n");
}

// New text of a block that is open already or begins now.
static void tell_text(tools_messages_blocks *blocks, int kind, slice text, buffer *out)
{
    bool thinks = kind == BLOCK_THINKING;
    if (text.size == 0)
        return;
    if ((int)blocks->open != kind) {
        block_close(blocks, out);
        append_event(out, "content_block_start", blocks->index);
        buffer_append_text(out, ",\"content_block\":");
        append_block(thinks ? "thinking" : "text", thinks ? "thinking" : "text", SLICE(""), out);
        buffer_append_text(out, "}\n\n");
        blocks->open = kind;
    }
    append_delta(blocks, thinks ? "thinking_delta" : "text_delta", thinks ? "thinking" : "text",
                 text, out);
}

static void tell_call(const tool_answer *a, size_t index, tools_messages_blocks *blocks,
                      buffer *out)
{
    const tool_call *call = &a->calls[index];
    slice arguments = buffer_slice(&call->arguments);
    if (call->begun && call->told == arguments.size)
        return;
    if (!call->begun) {
        block_close(blocks, out);
        append_event(out, "content_block_start", blocks->index);
        buffer_append_text(out, ",\"content_block\":");
        append_tool(call, SLICE("{}"), out);
        buffer_append_text(out, "}\n\n");
        blocks->open = BLOCK_TOOL;
        blocks->call = index;
    }
    if (arguments.size > call->told)
        append_delta(blocks, "input_json_delta", "partial_json",
                     (slice){ arguments.data + call->told, arguments.size - call->told }, out);
}

void tools_messages_append_events(const tool_answer *a, tools_messages_blocks *blocks, bool end,
                                  buffer *out)
{
    // What goes on with the open call comes before anything that closes its block.
    size_t next = 0;
    if (blocks->open == BLOCK_TOOL) {
        tell_call(a, blocks->call, blocks, out);
        next = blocks->call + 1;
    }
    tell_text(blocks, BLOCK_THINKING, buffer_slice(&a->thought), out);
    tell_text(blocks, BLOCK_TEXT, buffer_slice(&a->content), out);
    for (size_t i = next; i < a->call_count; i++)
        tell_call(a, i, blocks, out);
    if (end)
        block_close(blocks, out);
}

void tools_messages_append_content(const tool_answer *a, buffer *out)
{
    const char *comma = "";
    if (a->thought.size > 0) {
        append_block("thinking", "thinking", buffer_slice(&a->thought), out);
        comma = ",";
    }
    if (a->content.size > 0) {
        buffer_append_text(out, comma);
        append_block("text", "text", buffer_slice(&a->content), out);
        comma = ",";
    }
    for (size_t i = 0; i < a->call_count; i++) {
        if (!a->calls[i].whole)
            continue;
        buffer_append_text(out, comma);
        append_tool(&a->calls[i], buffer_slice(&a->calls[i].arguments), out);
        comma = ",";
    }
}
