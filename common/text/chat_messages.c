#include "text/chat_messages.h"

#include "base/utf8.h"

#include <stdio.h>
#include <stdlib.h>

enum { MESSAGES_MAX = 100000, QUOTED_MAX = 60 };

static const char *const role_names[] = { "system", "user", "assistant", "tool", "developer" };
enum { SYSTEM, USER, ASSISTANT, TOOL, DEVELOPER, ROLE_COUNT };

typedef struct preparation {
    const chat_traits *traits;
    json_t *prepared, *roles;
    buffer instructions; // the text of system and developer messages, where they are merged
    bool merges;
    error *failure;
} preparation;

static status no_memory(error *failure)
{
    return error_set(failure, STATUS_NO_MEMORY, "messages", "no memory for the messages");
}

// "messages[3].content" and so on.
static status refuse(error *failure, size_t index, const char *field, const char *text)
{
    char param[96];
    snprintf(param, sizeof param, "messages[%zu]%s", index, field);
    return error_set(failure, STATUS_INVALID, param, "%s: %s", param, text);
}

static status refuse_value(error *failure, size_t index, const char *field, json_t *value,
                           const char *right)
{
    char text[300];
    if (json_is_string(value))
        snprintf(text, sizeof text, "'%.*s' is not %s",
                 utf8_fit(json_string_value(value), QUOTED_MAX), json_string_value(value), right);
    else
        snprintf(text, sizeof text, "must be %s", right);
    return refuse(failure, index, field, text);
}

static int role_of(json_t *message)
{
    json_t *role = json_object_get(message, "role");
    for (int i = 0; i < ROLE_COUNT; i++)
        if (json_is_string(role) && json_string_length(role) == strlen(role_names[i]) &&
            strcmp(json_string_value(role), role_names[i]) == 0)
            return i;
    return ROLE_COUNT;
}

// --- content ---

static status append_part(preparation *p, size_t index, size_t at, json_t *part, buffer *text)
{
    char field[64];
    json_t *type = json_object_get(part, "type"), *words = json_object_get(part, "text");
    snprintf(field, sizeof field, ".content[%zu]%s", at, json_is_object(part) ? ".type" : "");
    if (!json_is_object(part))
        return refuse(p->failure, index, field, "must be an object with type and text");
    if (!json_is_string(type) || strcmp(json_string_value(type), "text") != 0)
        return refuse_value(p->failure, index, field, type,
                            "a type of content that this model takes; only 'text' is");
    snprintf(field, sizeof field, ".content[%zu].text", at);
    if (!json_is_string(words))
        return refuse(p->failure, index, field, "must be a string");
    buffer_append(text, json_string_value(words), json_string_length(words));
    return STATUS_OK;
}

static status append_content(preparation *p, size_t index, json_t *content, buffer *text)
{
    size_t at;
    json_t *part;
    status result = STATUS_OK;
    if (json_is_string(content)) {
        buffer_append(text, json_string_value(content), json_string_length(content));
    } else if (!json_is_array(content)) {
        return refuse(p->failure, index, ".content", "must be a string or a list of text parts");
    } else if (json_array_size(content) == 0) {
        return refuse(p->failure, index, ".content", "the list of text parts is empty");
    } else {
        json_array_foreach(content, at, part)
        {
            result = append_part(p, index, at, part, text);
            if (result != STATUS_OK)
                return result;
        }
    }
    return text->overflow ? no_memory(p->failure) : STATUS_OK;
}

// The content as the template wants it: a string, or one text part.
static json_t *content_value(const preparation *p, slice text)
{
    json_t *words = json_stringn(text.data, text.size);
    if (!p->traits->content_as_parts || !words)
        return words;
    return json_pack("[{s:s, s:o}]", "type", "text", "text", words);
}

static status set_content(preparation *p, size_t index, int role, json_t *message, json_t *made)
{
    json_t *content = json_object_get(message, "content"), *value;
    json_t *calls = json_object_get(message, "tool_calls");
    buffer text = { 0 };
    if (!content || json_is_null(content)) {
        if (role != ASSISTANT || json_array_size(calls) == 0)
            return refuse(p->failure, index, ".content",
                          content ? "must not be null, except with tool_calls"
                                  : "is missing; it may be absent only with tool_calls");
        value = p->traits->null_content_as_text ? json_string("") : json_null();
    } else {
        status result = append_content(p, index, content, &text);
        value = result == STATUS_OK ? content_value(p, buffer_slice(&text)) : NULL;
        buffer_close(&text);
        if (result != STATUS_OK)
            return result;
    }
    return json_object_set_new(made, "content", value) == 0 ? STATUS_OK : no_memory(p->failure);
}

// --- tool calls ---

// The arguments as an object, or as its text where the template wants that.
static status arguments_value(preparation *p, size_t index, size_t call, json_t *given,
                              json_t **value)
{
    char field[64];
    json_t *object = NULL;
    snprintf(field, sizeof field, ".tool_calls[%zu].function.arguments", call);
    if (json_is_object(given))
        object = json_incref(given);
    else if (!given || json_is_null(given) || (json_is_string(given) && !json_string_length(given)))
        object = json_object();
    else if (json_is_string(given))
        object =
            json_loadb(json_string_value(given), json_string_length(given), JSON_ALLOW_NUL, NULL);
    if (!json_is_object(object)) {
        json_decref(object);
        return refuse(p->failure, index, field, "must be the JSON text of an object");
    }
    if (p->traits->arguments_as_text && json_is_string(given)) {
        json_decref(object);
        object = json_incref(given);
    } else if (p->traits->arguments_as_text) {
        char *text = json_dumps(object, 0); // with ", " and ": ", as Python writes it
        json_decref(object);
        object = text ? json_string(text) : NULL;
        free(text);
    }
    *value = object;
    return object ? STATUS_OK : no_memory(p->failure);
}

static status add_call(preparation *p, size_t index, size_t at, json_t *call, json_t *calls)
{
    char field[64];
    json_t *type = json_object_get(call, "type"), *function = json_object_get(call, "function");
    json_t *name = json_object_get(function, "name"), *arguments = NULL, *made, *inner;
    snprintf(field, sizeof field, ".tool_calls[%zu].type", at);
    if (type && (!json_is_string(type) || strcmp(json_string_value(type), "function") != 0))
        return refuse_value(p->failure, index, field, type, "'function'");
    snprintf(field, sizeof field, ".tool_calls[%zu].function", at);
    if (!json_is_object(function))
        return refuse(p->failure, index, field, "must be an object with name and arguments");
    snprintf(field, sizeof field, ".tool_calls[%zu].function.name", at);
    if (!json_is_string(name))
        return refuse(p->failure, index, field, "must be a string");
    status result =
        arguments_value(p, index, at, json_object_get(function, "arguments"), &arguments);
    if (result != STATUS_OK)
        return result;
    made = json_copy(call);
    inner = json_copy(function);
    bool failed = json_object_set_new(inner, "arguments", arguments) != 0;
    failed = json_object_set_new(made, "function", inner) != 0 || failed;
    failed = json_array_append_new(calls, made) != 0 || failed;
    return failed ? no_memory(p->failure) : STATUS_OK;
}

static status set_calls(preparation *p, size_t index, int role, json_t *message, json_t *made)
{
    json_t *given = json_object_get(message, "tool_calls"), *call;
    size_t at;
    if (!given || json_is_null(given))
        return json_object_del(made, "tool_calls"), STATUS_OK;
    if (role != ASSISTANT)
        return refuse(p->failure, index, ".tool_calls", "only an assistant's message may have it");
    if (!json_is_array(given))
        return refuse(p->failure, index, ".tool_calls", "must be a list");
    if (json_array_size(given) == 0)
        return json_object_del(made, "tool_calls"), STATUS_OK;
    json_t *calls = json_array();
    if (json_object_set_new(made, "tool_calls", calls) != 0)
        return no_memory(p->failure);
    json_array_foreach(given, at, call)
    {
        status result = add_call(p, index, at, call, calls);
        if (result != STATUS_OK)
            return result;
    }
    return STATUS_OK;
}

// --- messages ---

static status add_instruction(preparation *p, size_t index, json_t *message)
{
    json_t *content = json_object_get(message, "content");
    if (!content || json_is_null(content))
        return refuse(p->failure, index, ".content", "must be a string or a list of text parts");
    if (p->instructions.size > 0)
        buffer_append_text(&p->instructions, "\n\n");
    return append_content(p, index, content, &p->instructions);
}

static status add_message(preparation *p, size_t index, json_t *message)
{
    json_t *role = json_object_get(message, "role");
    int known = role_of(message);
    if (!json_is_object(message))
        return refuse(p->failure, index, "", "must be an object with role and content");
    if (!role)
        return refuse(p->failure, index, ".role",
                      "is missing; it is system, user, assistant, tool or developer");
    if (known == ROLE_COUNT)
        return refuse_value(p->failure, index, ".role", role,
                            "a role; use system, user, assistant, tool or developer");
    if (p->merges && (known == SYSTEM || known == DEVELOPER))
        return add_instruction(p, index, message);
    json_t *made = json_copy(message);
    if (json_array_append_new(p->prepared, made) != 0 ||
        json_object_set(made, "role", json_array_get(p->roles, (size_t)known)) != 0)
        return no_memory(p->failure);
    status result = set_content(p, index, known, message, made);
    return result == STATUS_OK ? set_calls(p, index, known, message, made) : result;
}

static status lead_with_instructions(preparation *p)
{
    json_t *value = content_value(p, buffer_slice(&p->instructions));
    json_t *leading =
        json_pack("{s:O, s:o}", "role", json_array_get(p->roles, SYSTEM), "content", value);
    return json_array_insert_new(p->prepared, 0, leading) == 0 ? STATUS_OK : no_memory(p->failure);
}

static status prepare(preparation *p, json_t *messages)
{
    size_t index;
    json_t *message;
    json_array_foreach(messages, index, message) p->merges =
        p->merges || (!p->traits->knows_developer && role_of(message) == DEVELOPER);
    for (int i = 0; i < ROLE_COUNT; i++)
        if (json_array_append_new(p->roles, json_string(role_names[i])) != 0)
            return no_memory(p->failure);
    json_array_foreach(messages, index, message)
    {
        status result = add_message(p, index, message);
        if (result != STATUS_OK)
            return result;
    }
    return p->merges ? lead_with_instructions(p) : STATUS_OK;
}

status chat_messages_prepare(json_t *messages, const chat_traits *traits, json_t **prepared,
                             json_t **roles, error *failure)
{
    *prepared = *roles = NULL;
    if (!json_is_array(messages))
        return error_set(failure, STATUS_INVALID, "messages",
                         messages ? "messages must be a list" : "messages is missing");
    if (json_array_size(messages) == 0 || json_array_size(messages) > MESSAGES_MAX)
        return error_set(failure, STATUS_INVALID, "messages",
                         "messages has %zu elements; 1 to %d are allowed",
                         json_array_size(messages), MESSAGES_MAX);
    preparation p = {
        .traits = traits, .prepared = json_array(), .roles = json_array(), .failure = failure
    };
    status result = p.prepared && p.roles ? prepare(&p, messages) : no_memory(failure);
    buffer_close(&p.instructions);
    if (result != STATUS_OK) {
        json_decref(p.prepared);
        json_decref(p.roles);
        return result;
    }
    *prepared = p.prepared;
    *roles = p.roles;
    return STATUS_OK;
}
