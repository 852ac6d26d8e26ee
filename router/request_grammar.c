// Structured output: response_format, the extension structured_outputs, and forced tool calls, as
// the source of a grammar (text/grammar.h), which is compiled here once to see that it can be.
#include "router/request_private.h"

#include "base/utf8.h"
#include "text/grammar.h"

#include <stdlib.h>

// Append "tag\n" and the JSON.
static status source_json(request *r, const char *tag, const json_t *value, error *failure)
{
    char *text = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT);
    if (!text)
        return error_set(failure, STATUS_NO_MEMORY, "", "no memory for the grammar");
    buffer_append_text(&r->grammar, tag);
    buffer_append_byte(&r->grammar, '\n');
    buffer_append_text(&r->grammar, text);
    free(text);
    return STATUS_OK;
}

static status schema_format(json_t *format, request *r, error *failure)
{
    json_t *inner = request_member(format, "json_schema");
    json_t *schema = inner ? request_member(inner, "schema") : NULL;
    json_t *strict = inner ? request_member(inner, "strict") : NULL;
    if (!json_is_object(inner))
        return error_set(failure, STATUS_INVALID, "response_format.json_schema",
                         "response_format.json_schema must be an object with name and schema");
    if (!json_is_object(schema))
        return error_set(failure, STATUS_INVALID, "response_format.json_schema.schema",
                         "response_format.json_schema.schema must be an object");
    if (strict && !json_is_boolean(strict))
        return request_must_be("response_format.json_schema.strict", strict, "true or false",
                               failure);
    return source_json(r, "json_schema", schema, failure);
}

static status response_format_parse(json_t *format, request *r, error *failure)
{
    json_t *type = json_is_object(format) ? request_member(format, "type") : NULL;
    if (!json_is_object(format))
        return request_must_be("response_format", format, "an object", failure);
    if (json_is_string(type) && slice_equal(request_text(type), SLICE("text")))
        return STATUS_OK;
    if (json_is_string(type) && slice_equal(request_text(type), SLICE("json_schema")))
        return schema_format(format, r, failure);
    if (!json_is_string(type) || !slice_equal(request_text(type), SLICE("json_object")))
        return error_set(failure, STATUS_INVALID, "response_format.type",
                         "response_format.type must be \"text\", \"json_object\" or "
                         "\"json_schema\"");
    buffer_append_text(&r->grammar, "json_object\n");
    return STATUS_OK;
}

// The schema may come as JSON or as a string of JSON, as some clients send it.
static status outputs_json(json_t *value, request *r, error *failure)
{
    if (!json_is_string(value))
        return source_json(r, "json_schema", value, failure);
    buffer_append_text(&r->grammar, "json_schema\n");
    buffer_append_slice(&r->grammar, request_text(value));
    return STATUS_OK;
}

static status outputs_member(const char *name, json_t *value, request *r, error *failure)
{
    if (strcmp(name, "json") == 0)
        return outputs_json(value, r, failure);
    if (strcmp(name, "json_object") == 0) {
        if (!json_is_true(value))
            return request_must_be("structured_outputs.json_object", value, "true", failure);
        buffer_append_text(&r->grammar, "json_object\n");
        return STATUS_OK;
    }
    if (strcmp(name, "choice") == 0)
        return source_json(r, "choice", value, failure);
    if (strcmp(name, "regex") != 0)
        return error_set(failure, STATUS_UNSUPPORTED, "structured_outputs",
                         "structured_outputs has the member \"%.*s\"; served are json, "
                         "json_object, regex and choice",
                         utf8_fit(name, 60), name);
    if (!json_is_string(value))
        return request_must_be("structured_outputs.regex", value, "a string", failure);
    buffer_append_text(&r->grammar, "regex\n");
    buffer_append_slice(&r->grammar, request_text(value));
    return STATUS_OK;
}

static status structured_outputs_parse(json_t *outputs, request *r, error *failure)
{
    const char *name;
    json_t *value;
    size_t given = 0;
    if (!json_is_object(outputs))
        return request_must_be("structured_outputs", outputs, "an object", failure);
    json_object_foreach(outputs, name, value)
    {
        if (json_is_null(value))
            continue;
        given++;
        status result = given == 1 ? outputs_member(name, value, r, failure) : STATUS_OK;
        if (result != STATUS_OK)
            return result;
    }
    if (given == 1)
        return STATUS_OK;
    return error_set(failure, STATUS_INVALID, "structured_outputs",
                     "structured_outputs has %zu members; right is one of json, json_object, regex "
                     "and choice",
                     given);
}

// What cannot stand beside a grammar, and whether it compiles.
static status grammar_check(request *r, const char *field, error *failure)
{
    grammar *compiled = NULL;
    error inner = { 0 };
    if (r->grammar.overflow)
        return error_set(failure, STATUS_NO_MEMORY, "", "no memory for the grammar");
    if (memchr(r->grammar.data, 0, r->grammar.size)) // a ticket holds it as text
        return error_set(failure, STATUS_INVALID, field,
                         "%s holds a NUL; in a regular expression it is written as \\0", field);
    if (r->ignore_eos)
        return error_set(failure, STATUS_INVALID, "ignore_eos",
                         "ignore_eos is true; with %s the answer ends where that says", field);
    if (r->in_thought && !r->tools.forced)
        return error_set(failure, STATUS_UNSUPPORTED, field,
                         "%s is not served where the prompt ends inside a block of thought", field);
    status result = grammar_compile(buffer_slice(&r->grammar), &compiled, &inner);
    grammar_release(compiled);
    if (result == STATUS_OK)
        return STATUS_OK;
    // Too large is the grammar, not the body.
    return error_set(failure, result == STATUS_TOO_LARGE ? STATUS_INVALID : result, field, "%s: %s",
                     field, inner.text);
}

// The model may call a tool, or answer in the format.
static void format_or_calls(request *r)
{
    buffer format = r->grammar;
    const char *schema = memchr(format.data, '\n', format.size);
    bool is_schema = memcmp(format.data, "json_schema", sizeof "json_schema" - 1) == 0;
    r->grammar = (buffer){ 0 };
    buffer_append_text(&r->grammar, is_schema ? "template\n{\"any\":[{\"json_schema\":"
                                              : "template\n{\"any\":[{\"json_object\":true");
    buffer_append_text(&r->grammar, schema + 1); // nothing behind json_object
    buffer_append_text(&r->grammar, "},");
    buffer_append_slice(&r->grammar, buffer_slice(&r->tools.calls));
    buffer_append_text(&r->grammar, "]}");
    buffer_close(&format);
}

// Whether a small letter or '_' is written as \u00xx: no writer of JSON does that, but the name of
// a field may be hidden so.
static bool letter_is_escaped(slice body)
{
    static const char mark[] = "\\u00";
    const size_t size = sizeof mark - 1;
    const char *end = body.data + body.size, *at = body.data;
    while ((at = memmem(at, (size_t)(end - at), mark, size)) && end - at >= (ptrdiff_t)size + 2) {
        char digits[] = { at[size], at[size + 1], '\0' };
        long code = strtol(digits, NULL, 16);
        if (code == '_' || (code >= 'a' && code <= 'z'))
            return true;
        at += size;
    }
    return false;
}

bool request_may_have_grammar(slice body)
{
    static const char *const fields[] = { "\"response_format\"", "\"structured_outputs\"",
                                          "\"tool_choice\"", "\"output_format\"",
                                          "\"output_config\"" };
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
        if (memmem(body.data, body.size, fields[i], strlen(fields[i])))
            return true;
    return letter_is_escaped(body);
}

status request_grammar_parse(json_t *body, request *r, error *failure)
{
    json_t *format = request_member(body, "response_format");
    json_t *outputs = request_member(body, "structured_outputs");
    const char *field = r->format_field ? r->format_field : "response_format";
    status result = STATUS_OK;
    if (format)
        TRY(response_format_parse(format, r, failure));
    if (outputs && r->grammar.size > 0)
        return error_set(failure, STATUS_INVALID, "structured_outputs",
                         "structured_outputs and response_format are both given; right is one");
    if (outputs) {
        field = "structured_outputs";
        TRY(structured_outputs_parse(outputs, r, failure));
    }
    if (r->tools.forced && r->grammar.size > 0)
        return error_set(failure, STATUS_INVALID, field,
                         "%s is given and tool_choice demands a call; right is one", field);
    if (r->tools.forced) {
        field = "tools";
        buffer_append_text(&r->grammar, "template\n");
        buffer_append_slice(&r->grammar, buffer_slice(&r->tools.calls));
    } else if (format && r->grammar.size > 0 && r->tools.calls.size > 0) {
        format_or_calls(r);
    }
    if (r->grammar.size > 0)
        TRY(grammar_check(r, field, failure));
fail:
    return result;
}
