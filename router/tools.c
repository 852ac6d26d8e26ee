#include "router/request_private.h"

#include "base/utf8.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool is_text(json_t *value, const char *text)
{
    return json_is_string(value) && slice_equal(request_text(value), slice_of(text));
}

// ---- the functions ----------------------------------------------------------------------------

static bool name_is_fine(slice name)
{
    for (size_t i = 0; i < name.size; i++) {
        char c = name.data[i];
        bool fine = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                    c == '_' || c == '-';
        if (!fine)
            return false;
    }
    return name.size > 0 && name.size <= TOOL_NAME_MAX;
}

// A field of a tool as the client calls it.
static const char *client_name(const tool_request *r, const char *field)
{
    static const char *const flat[][2] = { { ".function", "" },
                                           { ".function.name", ".name" },
                                           { ".function.description", ".description" },
                                           { ".function.parameters", ".input_schema" },
                                           { ".function.parameters.type", ".input_schema.type" } };
    for (size_t i = 0; r->flat && i < sizeof flat / sizeof *flat; i++)
        if (strcmp(flat[i][0], field) == 0)
            return flat[i][1];
    return field;
}

static status refuse(error *failure, const tool_request *r, size_t index, const char *field,
                     const char *right)
{
    char param[96];
    snprintf(param, sizeof param, "tools[%zu]%s", index, client_name(r, field));
    return error_set(failure, STATUS_INVALID, param, "%s %s", param, right);
}

static status function_check(const tool_request *r, json_t *tool, size_t index, error *failure)
{
    json_t *type = request_member(tool, "type"), *function = request_member(tool, "function");
    json_t *name = request_member(function, "name"),
           *parameters = request_member(function, "parameters");
    json_t *description = request_member(function, "description"),
           *strict = request_member(function, "strict");
    if (!json_is_object(tool))
        return refuse(failure, r, index, "", "must be an object with type and function");
    if (!is_text(type, "function"))
        return refuse(failure, r, index, ".type",
                      "must be \"function\"; no other tools are served");
    if (!json_is_object(function))
        return refuse(failure, r, index, ".function", "must be an object with name and parameters");
    if (!json_is_string(name) || !name_is_fine(request_text(name)))
        return refuse(failure, r, index, ".function.name",
                      "must be 1 to 64 characters of a-z, A-Z, 0-9, _ and -");
    if (description && !json_is_string(description))
        return refuse(failure, r, index, ".function.description", "must be a string");
    if (strict && !json_is_boolean(strict))
        return refuse(failure, r, index, ".function.strict", "must be true or false");
    if (parameters && !json_is_object(parameters))
        return refuse(failure, r, index, ".function.parameters", "must be a JSON Schema object");
    json_t *kind = request_member(parameters, "type");
    if (kind && !is_text(kind, "object"))
        return refuse(failure, r, index, ".function.parameters.type", "must be \"object\"");
    return STATUS_OK;
}

static json_t *function_of(json_t *tools, size_t index)
{
    return json_object_get(json_array_get(tools, index), "function");
}

static slice name_of(json_t *tools, size_t index)
{
    return request_text(json_object_get(function_of(tools, index), "name"));
}

static status names_take(json_t *tools, tool_request *r, error *failure)
{
    size_t count = json_array_size(tools), at = 0;
    r->names = calloc(count, sizeof *r->names);
    for (size_t i = 0; i < count; i++)
        buffer_append_slice(&r->name_bytes, name_of(tools, i));
    if (!r->names || r->name_bytes.overflow)
        return error_set(failure, STATUS_NO_MEMORY, "", "no memory for tools");
    for (size_t i = 0; i < count; at += r->names[i++].size) {
        r->names[i] = (slice){ r->name_bytes.data + at, name_of(tools, i).size };
        for (size_t k = 0; k < i; k++)
            if (slice_equal(r->names[i], r->names[k]))
                return refuse(failure, r, i, ".function.name",
                              "is the name of an earlier function");
    }
    r->name_count = count;
    return STATUS_OK;
}

static status functions_check(const router_settings *settings, const tool_request *r, json_t *tools,
                              error *failure)
{
    if (!json_is_array(tools))
        return error_set(failure, STATUS_INVALID, "tools", "tools must be an array");
    if ((int64_t)json_array_size(tools) > settings->tools_max)
        return error_set(failure, STATUS_INVALID, "tools",
                         "tools has %zu functions; right is at most %lld", json_array_size(tools),
                         (long long)settings->tools_max);
    size_t size = json_dumpb(tools, NULL, 0, JSON_COMPACT);
    if (size > settings->tools_bytes)
        return error_set(failure, STATUS_INVALID, "tools",
                         "tools has %zu bytes of JSON; right is at most %llu", size,
                         (unsigned long long)settings->tools_bytes);
    for (size_t i = 0; i < json_array_size(tools); i++) {
        status result = function_check(r, json_array_get(tools, i), i, failure);
        if (result != STATUS_OK)
            return result;
    }
    return STATUS_OK;
}

// ---- the choice -------------------------------------------------------------------------------

typedef struct choice {
    bool none, forced;
    slice name; // of the one function; empty: any
} choice;

static status choice_parse(json_t *body, const tool_request *r, choice *chosen, error *failure)
{
    json_t *value = request_member(body, "tool_choice");
    json_t *function = request_member(value, "function"), *name = request_member(function, "name");
    *chosen = (choice){ .none = is_text(value, "none"), .forced = is_text(value, "required") };
    if (!value || chosen->none || is_text(value, "auto"))
        return STATUS_OK;
    if (!chosen->forced &&
        (!json_is_object(value) || !is_text(request_member(value, "type"), "function") ||
         !json_is_string(name)))
        return error_set(failure, STATUS_INVALID, "tool_choice",
                         "tool_choice must be \"none\", \"auto\", \"required\" or {\"type\": "
                         "\"function\", \"function\": {\"name\": ...}}");
    if (r->name_count == 0)
        return error_set(failure, STATUS_INVALID, "tool_choice",
                         "tool_choice is only allowed with tools");
    if (chosen->forced)
        return STATUS_OK;
    chosen->forced = true;
    chosen->name = request_text(name);
    for (size_t i = 0; i < r->name_count; i++)
        if (slice_equal(r->names[i], chosen->name))
            return STATUS_OK;
    return error_set(failure, STATUS_INVALID, "tool_choice",
                     "tool_choice names the function \"%.*s\", which tools does not have",
                     utf8_fit(chosen->name.data, 64), chosen->name.data);
}

// ---- the grammar of calls ----------------------------------------------------------------

// Arguments are an object, whether the schema says it or not; without a schema they are empty.
static json_t *schema_of(json_t *function)
{
    json_t *parameters = request_member(function, "parameters");
    if (!parameters)
        return json_pack("{s:s, s:{}, s:b}", "type", "object", "properties", "additionalProperties",
                         0);
    json_t *schema = json_copy(parameters);
    json_object_set_new(schema, "type", json_string("object"));
    return schema;
}

static json_t *joined(const char *a, slice b, const char *c)
{
    buffer text = { 0 };
    buffer_append_text(&text, a);
    buffer_append_slice(&text, b);
    buffer_append_text(&text, c);
    json_t *string = json_stringn(buffer_slice(&text).data, text.size);
    buffer_close(&text);
    return string;
}

// One call of one function.
static json_t *call_node(const tool_layout *layout, json_t *function)
{
    buffer name = { 0 };
    buffer_append_json(&name, request_text(json_object_get(function, "name")));
    json_t *node =
        json_pack("{s:[o, {s:o}, s]}", "sequence",
                  joined(layout->before_name, buffer_slice(&name), layout->before_arguments),
                  "json_schema", schema_of(function), layout->after_arguments);
    buffer_close(&name);
    return node;
}

static status calls_write(json_t *tools, const choice *chosen, tool_request *r, error *failure)
{
    const tool_layout *layout = tool_layout_of(r->format);
    json_t *calls = json_array();
    for (size_t i = 0; i < r->name_count; i++)
        if (chosen->name.size == 0 || slice_equal(chosen->name, r->names[i]))
            json_array_append_new(calls, call_node(layout, function_of(tools, i)));
    bool several = r->parallel && chosen->name.size == 0;
    json_t *node =
        json_pack("{s:[s, {s:{s:o}, s:i, s:i, s:s}, s]}", "sequence", layout->before_all, "repeat",
                  "any", calls, "min", 1, "max", several ? TOOL_CALLS_FORCED_MAX : 1, "separator",
                  layout->between, layout->after_all);
    char *text = node ? json_dumps(node, JSON_COMPACT) : NULL;
    if (text)
        buffer_append_text(&r->calls, text);
    bool failed = !text || r->calls.overflow;
    free(text);
    json_decref(node);
    return failed ? error_set(failure, STATUS_NO_MEMORY, "", "no memory for tools") : STATUS_OK;
}

// ---- all of it
// ------------------------------------------------------------------------------------

static status model_check(const prompt_model *model, error *failure)
{
    if (!model->chat || !chat_traits_of(model->chat)->reads_tools)
        return error_set(failure, STATUS_UNSUPPORTED, "tools",
                         "the chat template of model %s has no place for tools",
                         model->identity.name);
    if (model->tools == TOOL_FORMAT_NONE)
        return error_set(failure, STATUS_UNSUPPORTED, "tools",
                         "how model %s writes calls of tools is not known; the router's setting "
                         "tool_format says it",
                         model->identity.name);
    return STATUS_OK;
}

status tool_request_parse(const prompt_model *model, const router_settings *settings, json_t *body,
                          bool flat, tool_request *r, json_t **shown, error *failure)
{
    status result = STATUS_OK;
    choice chosen = { 0 };
    json_t *tools = request_member(body, "tools"),
           *parallel = request_member(body, "parallel_tool_calls");
    *r = (tool_request){ .flat = flat, .parallel = !parallel || json_is_true(parallel) };
    *shown = NULL;
    if (parallel && !json_is_boolean(parallel))
        return error_set(failure, STATUS_INVALID, "parallel_tool_calls",
                         "parallel_tool_calls must be true or false");
    if (tools)
        TRY(functions_check(settings, r, tools, failure));
    if (json_array_size(tools) > 0)
        TRY(names_take(tools, r, failure));
    TRY(choice_parse(body, r, &chosen, failure));
    if (r->name_count == 0 || chosen.none)
        return STATUS_OK;
    TRY(model_check(model, failure));
    r->format = model->tools;
    r->forced = chosen.forced;
    *shown = tools;
    if (r->forced || request_member(body, "response_format"))
        TRY(calls_write(tools, &chosen, r, failure));
fail:
    return result;
}

void tool_request_close(tool_request *r)
{
    free(r->names);
    buffer_close(&r->name_bytes);
    buffer_close(&r->calls);
    *r = (tool_request){ 0 };
}
