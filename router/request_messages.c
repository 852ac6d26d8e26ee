// Anthropic's /v1/messages, read as a chat request: the conversation, the system prompt in front of
// it, tools and their results. What the API refuses is refused here, by the client's own names.
#include "router/request_private.h"

#include "base/utf8.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// Members that mean the same in both APIs, and extensions of ours.
static const char *const kept[] = {
    "model",
    "max_tokens",
    "temperature",
    "top_p",
    "top_k",
    "stream",
    "seed",
    "min_p",
    "typical_p",
    "repetition_penalty",
    "frequency_penalty",
    "presence_penalty",
    "min_tokens",
    "ignore_eos",
    "stop_token_ids",
    "logit_bias",
    "skip_special_tokens",
    "chat_template_kwargs",
    "priority",
    "timeout",
    "metadata",
    "service_tier",
};

// Members that are read here, and those that change nothing.
static const char *const read_here[] = {
    "messages", "system",          "stop_sequences", "tools",         "tool_choice",
    "thinking", "output_format",   "output_config",  "cache_control", "inference_geo",
    "speed",    "user_profile_id", "diagnostics",    "workspace_id",
};

// What would change the answer and is not offered.
static const char *const refused[] = { "container", "mcp_servers", "context_management" };

static bool is_among(const char *name, const char *const *list, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(name, list[i]) == 0)
            return true;
    return false;
}
#define AMONG(name, list) is_among(name, list, sizeof(list) / sizeof *(list))

// ---- blocks -----------------------------------------------------------------------------------

static const char *block_type(json_t *block)
{
    json_t *type = request_member(block, "type");
    return json_is_string(type) ? json_string_value(type) : "";
}

static status block_refuse(const char *field, json_t *block, error *failure)
{
    const char *type = block_type(block);
    if (!json_is_object(block) || !type[0])
        return request_must_be(field, block, "a block with a type", failure);
    return error_set(failure, STATUS_UNSUPPORTED, field,
                     "%s is a block of type \"%.*s\"; this server takes text and tool_result of "
                     "the user, text, tool_use and thinking of the assistant",
                     field, utf8_fit(type, 40), type);
}

// A string, or text blocks one behind the other. `others` may stand among them and is passed over.
static status text_read(json_t *value, const char *field, const char *const others[3], buffer *text,
                        error *failure)
{
    if (json_is_string(value)) {
        buffer_append(text, json_string_value(value), json_string_length(value));
        return STATUS_OK;
    }
    if (!json_is_array(value))
        return request_must_be(field, value, "a string or an array of blocks", failure);
    for (size_t i = 0; i < json_array_size(value); i++) {
        char name[96];
        json_t *block = json_array_get(value, i), *own = request_member(block, "text");
        snprintf(name, sizeof name, "%s[%zu]", field, i);
        if (others && is_among(block_type(block), others, 3))
            continue;
        if (strcmp(block_type(block), "text") != 0)
            return block_refuse(name, block, failure);
        if (request_must_hold_string(block, name, "text", failure) != STATUS_OK)
            return STATUS_INVALID;
        if (request_part_check(REQUEST_PART_TEXT, name, block, failure) != STATUS_OK)
            return STATUS_INVALID;
        buffer_append(text, json_string_value(own), json_string_length(own));
    }
    return STATUS_OK;
}

static json_t *text_json(const buffer *text)
{
    return json_stringn(text->data ? text->data : "", text->size);
}

// `value` is given away. A wish that finds no memory must not be lost in silence.
static status member_set(json_t *read, const char *name, json_t *value, error *failure)
{
    return json_object_set_new(read, name, value) == 0
               ? STATUS_OK
               : error_set(failure, STATUS_NO_MEMORY, name, "memory is short for %s", name);
}

// Behind `messages`: {"role": role, "content": text}, whose reference is borrowed.
static json_t *message_add(json_t *messages, const char *role, const buffer *text)
{
    json_t *message = json_object();
    json_object_set_new(message, "role", json_string(role));
    json_object_set_new(message, "content", text_json(text));
    json_array_append_new(messages, message);
    return message;
}

static status result_add(json_t *messages, json_t *block, const char *field, error *failure)
{
    buffer text = { 0 };
    char name[112];
    json_t *id = request_member(block, "tool_use_id"), *content = request_member(block, "content");
    snprintf(name, sizeof name, "%.96s.content", field);
    status result = request_must_hold_string(block, field, "tool_use_id", failure);
    if (result == STATUS_OK)
        result = request_part_check(REQUEST_PART_RESULT, field, block, failure);
    if (result == STATUS_OK && content)
        result = text_read(content, name, NULL, &text, failure);
    if (result == STATUS_OK)
        json_object_set(message_add(messages, "tool", &text), "tool_call_id", id);
    buffer_close(&text);
    return result;
}

// Results of tools come before what else the user says.
static status user_add(json_t *messages, json_t *content, const char *field, error *failure)
{
    static const char *const results[3] = { "tool_result", "tool_result", "tool_result" };
    buffer text = { 0 };
    status result = STATUS_OK;
    size_t said = !json_is_array(content);
    for (size_t i = 0; json_is_array(content) && i < json_array_size(content); i++) {
        char name[96];
        json_t *block = json_array_get(content, i);
        snprintf(name, sizeof name, "%s[%zu]", field, i);
        if (strcmp(block_type(block), "tool_result") != 0)
            said++;
        else
            TRY(result_add(messages, block, name, failure));
    }
    TRY(text_read(content, field, results, &text, failure));
    if (said > 0)
        message_add(messages, "user", &text);
fail:
    buffer_close(&text);
    return result;
}

static status call_add(json_t *calls, json_t *block, const char *field, error *failure)
{
    status result = STATUS_OK;
    char inner[112], *arguments;
    json_t *input = request_member(block, "input");
    snprintf(inner, sizeof inner, "%.96s.input", field);
    if (!json_is_object(input))
        return request_must_be(inner, input, "an object", failure);
    TRY(request_must_hold_string(block, field, "id", failure));
    TRY(request_must_hold_string(block, field, "name", failure));
    TRY(request_part_check(REQUEST_PART_CALL, field, block, failure));
    arguments = json_dumps(input, JSON_COMPACT);
    if (!arguments ||
        json_array_append_new(calls, json_pack("{s:O,s:s,s:{s:O,s:s}}", "id",
                                               request_member(block, "id"), "type", "function",
                                               "function", "name", request_member(block, "name"),
                                               "arguments", arguments)) != 0)
        result = error_set(failure, STATUS_NO_MEMORY, field, "memory is short for %s", field);
    free(arguments);
fail:
    return result;
}

// What is no text among the assistant's blocks.
static status assistant_block_read(json_t *block, const char *field, json_t *calls, buffer *thought,
                                   error *failure)
{
    const char *type = block_type(block);
    if (strcmp(type, "tool_use") == 0)
        return call_add(calls, block, field, failure);
    if (strcmp(type, "thinking") == 0)
        return request_thought_read(block, field, thought, failure);
    if (strcmp(type, "redacted_thinking") == 0)
        return request_part_check(REQUEST_PART_REDACTED, field, block, failure);
    return STATUS_OK;
}

static status assistant_add(json_t *messages, json_t *content, const char *field, error *failure)
{
    static const char *const others[3] = { "tool_use", "thinking", "redacted_thinking" };
    buffer text = { 0 }, thought = { 0 };
    json_t *calls = json_array();
    status result = STATUS_OK;
    for (size_t i = 0; json_is_array(content) && i < json_array_size(content); i++) {
        char name[96];
        snprintf(name, sizeof name, "%s[%zu]", field, i);
        TRY(assistant_block_read(json_array_get(content, i), name, calls, &thought, failure));
    }
    TRY(text_read(content, field, others, &text, failure));
    json_t *message = message_add(messages, "assistant", &text);
    if (json_array_size(calls) > 0)
        json_object_set(message, "tool_calls", calls);
    if (thought.size > 0)
        TRY(member_set(message, "reasoning_content", text_json(&thought), failure));
fail:
    json_decref(calls);
    buffer_close(&text);
    buffer_close(&thought);
    return result;
}

// The answer goes on behind the text of the last message.
static status last_continue(json_t *messages, size_t index, json_t *read, error *failure)
{
    char field[64];
    json_t *last = json_array_get(messages, json_array_size(messages) - 1);
    snprintf(field, sizeof field, "messages[%zu].content", index);
    if (json_string_length(json_object_get(last, "content")) > 0 &&
        !json_object_get(last, "tool_calls"))
        return member_set(read, "continue_final_message", json_true(), failure);
    return error_set(failure, STATUS_INVALID, field,
                     "%s, the last message, is the assistant's and %s; right is text, which the "
                     "answer goes on with, or a message of the user behind it",
                     field, json_object_get(last, "tool_calls") ? "calls a tool" : "has no text");
}

static status conversation_read(json_t *body, json_t *read, error *failure)
{
    json_t *given = request_member(body, "messages"), *system = request_member(body, "system");
    json_t *messages = json_array();
    const char *role = "";
    status result = STATUS_OK;
    buffer text = { 0 };
    TRY(member_set(read, "messages", messages, failure));
    if (!json_is_array(given))
        return request_must_be("messages", given, "an array of at least one message", failure);
    if (json_array_size(given) == 0)
        return error_set(failure, STATUS_INVALID, "messages",
                         "messages is an empty array; right is at least one message");
    if (system) {
        TRY(text_read(system, "system", NULL, &text, failure));
        message_add(messages, "system", &text);
    }
    for (size_t i = 0; i < json_array_size(given); i++) {
        char field[64];
        json_t *message = json_array_get(given, i), *content = request_member(message, "content");
        json_t *named = request_member(message, "role");
        role = json_is_string(named) ? json_string_value(named) : "";
        snprintf(field, sizeof field, "messages[%zu].content", i);
        if (strcmp(role, "user") == 0) {
            TRY(user_add(messages, content, field, failure));
        } else if (strcmp(role, "assistant") == 0) {
            TRY(assistant_add(messages, content, field, failure));
        } else {
            snprintf(field, sizeof field, "messages[%zu].role", i);
            result = error_set(failure, STATUS_INVALID, field,
                               "%s must be \"user\" or \"assistant\"", field);
            goto fail;
        }
    }
    if (strcmp(role, "assistant") == 0)
        TRY(last_continue(messages, json_array_size(given) - 1, read, failure));
fail:
    buffer_close(&text);
    return result;
}

// ---- the other members ------------------------------------------------------------------------

// A tool that may be called from code only is none that the model may call.
static bool is_called_directly(json_t *tool)
{
    json_t *callers = request_member(tool, "allowed_callers");
    for (size_t i = 0; i < json_array_size(callers); i++)
        if (strcmp(json_string_value(json_array_get(callers, i)), "direct") == 0)
            return true;
    return !callers;
}

static status tools_read(json_t *body, json_t *read, error *failure)
{
    json_t *given = request_member(body, "tools");
    if (!given)
        return STATUS_OK;
    if (!json_is_array(given))
        return request_must_be("tools", given, "an array", failure);
    json_t *tools = json_array();
    if (member_set(read, "tools", tools, failure) != STATUS_OK)
        return STATUS_NO_MEMORY;
    for (size_t i = 0; i < json_array_size(given); i++) {
        char field[32];
        json_t *tool = json_array_get(given, i), *type = request_member(tool, "type");
        json_t *function = json_object();
        snprintf(field, sizeof field, "tools[%zu]", i);
        json_array_append_new(tools,
                              json_pack("{s:s,s:o}", "type", "function", "function", function));
        if (!json_is_object(tool))
            return request_must_be(field, tool, "an object", failure);
        if (request_part_check(REQUEST_PART_TOOL, field, tool, failure) != STATUS_OK)
            return STATUS_INVALID;
        if (type && strcmp(json_string_value(type), "custom") != 0)
            return error_set(failure, STATUS_UNSUPPORTED, field,
                             "%s is a tool that the server would have to run; this one runs none",
                             field);
        if (!is_called_directly(tool))
            return error_set(failure, STATUS_UNSUPPORTED, field,
                             "%s.allowed_callers lacks \"direct\"; this server runs no code that "
                             "could call a tool",
                             field);
        static const char *const names[][2] = { { "name", "name" },
                                                { "description", "description" },
                                                { "input_schema", "parameters" } };
        for (size_t k = 0; k < 3; k++)
            if (request_member(tool, names[k][0]))
                json_object_set(function, names[k][1], request_member(tool, names[k][0]));
    }
    return STATUS_OK;
}

static status tool_choice_read(json_t *body, json_t *read, error *failure)
{
    json_t *given = request_member(body, "tool_choice"), *name = request_member(given, "name");
    if (!given)
        return STATUS_OK;
    const char *type = block_type(given);
    json_t *choice;
    if (strcmp(type, "auto") == 0 || strcmp(type, "none") == 0)
        choice = json_string(type);
    else if (strcmp(type, "any") == 0)
        choice = json_string("required");
    else if (strcmp(type, "tool") == 0 && json_is_string(name))
        choice = json_pack("{s:s,s:{s:O}}", "type", "function", "function", "name", name);
    else
        return error_set(failure, STATUS_INVALID, "tool_choice",
                         "tool_choice must have a type, which is auto, any, none, or tool with the "
                         "name of one");
    status result = member_set(read, "tool_choice", choice, failure);
    if (result == STATUS_OK)
        result = request_part_check(REQUEST_PART_CHOICE, "tool_choice", given, failure);
    if (result == STATUS_OK && json_is_true(request_member(given, "disable_parallel_tool_use")))
        result = member_set(read, "parallel_tool_calls", json_false(), failure);
    return result;
}

// {"type":"json_schema","schema":{...}}, as `field`: a chat's response_format.
static status format_read(json_t *format, const char *field, request *r, json_t *read,
                          error *failure)
{
    json_t *schema = request_member(format, "schema");
    if (strcmp(block_type(format), "json_schema") != 0 || !json_is_object(schema))
        return error_set(failure, STATUS_INVALID, field,
                         "%s must be {\"type\":\"json_schema\",\"schema\":{...}}", field);
    r->format_field = field;
    return member_set(read, "response_format",
                      json_pack("{s:s,s:{s:s,s:O}}", "type", "json_schema", "json_schema", "name",
                                "output", "schema", schema),
                      failure);
}

// output_config: a format, and an effort, which these models have not.
static status output_read(json_t *body, request *r, json_t *read, error *failure)
{
    json_t *config = request_member(body, "output_config");
    json_t *older = request_member(body, "output_format"), *value;
    json_t *format = request_member(config, "format");
    const char *name;
    if (config && !json_is_object(config))
        return request_must_be("output_config", config, "an object", failure);
    json_object_foreach(config, name, value)
    {
        bool neutral = json_is_string(value) && strcmp(json_string_value(value), "high") == 0;
        if (strcmp(name, "format") == 0 || json_is_null(value))
            continue;
        if (strcmp(name, "effort") != 0)
            return error_set(failure, STATUS_UNSUPPORTED, "output_config",
                             "output_config.%.*s is not supported by this server",
                             utf8_fit(name, 40), name);
        if (!neutral)
            return error_set(failure, STATUS_UNSUPPORTED, "output_config.effort",
                             "output_config.effort is not supported by this server; the only value "
                             "that it takes is \"high\"");
    }
    if (format && older)
        return error_set(failure, STATUS_INVALID, "output_format",
                         "output_format and output_config.format are both given; right is one");
    if (format)
        return format_read(format, "output_config.format", r, read, failure);
    return older ? format_read(older, "output_format", r, read, failure) : STATUS_OK;
}

static status rest_read(json_t *body, request *r, json_t *read, error *failure)
{
    json_t *stops = request_member(body, "stop_sequences"), *value;
    const char *name;
    if (stops && !json_is_array(stops))
        return request_must_be("stop_sequences", stops, "an array of strings", failure);
    if (stops)
        json_object_set(read, "stop", stops);
    if (r->kind == REQUEST_MESSAGES && !json_is_integer(request_member(body, "max_tokens")))
        return request_must_be("max_tokens", request_member(body, "max_tokens"),
                               "an integer of at least 1", failure);
    json_object_foreach(body, name, value)
    {
        if (AMONG(name, refused) && !json_is_null(value))
            return error_set(failure, STATUS_UNSUPPORTED, name,
                             "%s is not supported by this server", name);
        if (AMONG(name, kept))
            json_object_set(read, name, value);
        else
            r->unknown_fields += !AMONG(name, read_here) && !AMONG(name, refused);
    }
    return STATUS_OK;
}

status request_messages_read(json_t *body, request *r, json_t **read, error *failure)
{
    status result = STATUS_OK;
    json_t *made = json_object();
    if (!made)
        return error_set(failure, STATUS_NO_MEMORY, "", "no memory for the request");
    TRY(request_part_check(REQUEST_PART_MESSAGES_BODY, "", body, failure));
    TRY(rest_read(body, r, made, failure));
    TRY(request_thinking_read(body, r, failure));
    TRY(conversation_read(body, made, failure));
    TRY(tools_read(body, made, failure));
    TRY(tool_choice_read(body, made, failure));
    TRY(output_read(body, r, made, failure));
    *read = made;
    return STATUS_OK;
fail:
    json_decref(made);
    return result;
}
