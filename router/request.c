#include "router/request_private.h"

#include "base/utf8.h"
#include "text/json_wide.h"

#include <stdio.h>
#include <stdlib.h>

json_t *request_member(json_t *body, const char *name)
{
    json_t *value = json_object_get(body, name);
    return json_is_null(value) ? NULL : value;
}

const char *request_type_name(const json_t *value)
{
    switch (json_typeof(value)) {
    case JSON_OBJECT:
        return "an object";
    case JSON_ARRAY:
        return "an array";
    case JSON_STRING:
        return "a string";
    case JSON_INTEGER:
        return "an integer";
    case JSON_REAL:
        return "a number with a fraction or exponent";
    case JSON_TRUE:
    case JSON_FALSE:
        return "a boolean";
    default:
        return "null";
    }
}

slice request_text(const json_t *string)
{
    return json_is_string(string) ? (slice){ json_string_value(string), json_string_length(string) }
                                  : SLICE("");
}

status request_must_be(const char *field, const json_t *value, const char *right, error *failure)
{
    return error_set(failure, STATUS_INVALID, field, "%s is %s; right is %s", field,
                     value ? request_type_name(value) : "missing", right);
}

status request_must_hold_string(json_t *object, const char *field, const char *name, error *failure)
{
    char inner[160];
    json_t *value = request_member(object, name);
    if (json_is_string(value))
        return STATUS_OK;
    snprintf(inner, sizeof inner, "%s.%s", field, name);
    return request_must_be(inner, value, "a string", failure);
}

// How deep brackets nest, seen before any recursive parser touches them.
static bool depth_is_fine(slice text)
{
    size_t depth = 0;
    bool in_string = false;
    for (size_t i = 0; i < text.size; i++) {
        char c = text.data[i];
        if (in_string) {
            if (c == '\\')
                i++;
            else if (c == '"')
                in_string = false;
        } else if (c == '"') {
            in_string = true;
        } else if (c == '[' || c == '{') {
            if (++depth > REQUEST_DEPTH_MAX)
                return false;
        } else if ((c == ']' || c == '}') && depth > 0) {
            depth--;
        }
    }
    return true;
}

// Integers beyond 64 bits: only where nothing but a template reads them.
static bool integers_are_fine(json_t *body, json_t *integers)
{
    size_t index, count = json_wide_count(json_object_get(body, "documents"), integers) +
                          json_wide_count(json_object_get(body, "chat_template_kwargs"), integers);
    json_t *tool, *tools = integers ? json_object_get(body, "tools") : NULL;
    json_array_foreach(tools, index, tool)
    {
        json_t *function = json_object_get(tool, "function");
        count += json_wide_count(json_object_get(function, "parameters"), integers);
        count += json_wide_count(json_object_get(tool, "input_schema"), integers);
    }
    return count == json_array_size(integers);
}

static status body_parse(slice text, json_t **body, json_t **integers, error *failure)
{
    json_error_t at;
    if (!depth_is_fine(text))
        return error_set(failure, STATUS_INVALID, "",
                         "the JSON body is nested deeper than %d levels", REQUEST_DEPTH_MAX);
    *body = json_wide_load(text, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL | JSON_DECODE_ANY,
                           integers, &at);
    if (!*body)
        return error_set(failure, STATUS_INVALID, "",
                         "the body is not valid JSON: %s (line %d, column %d)", at.text, at.line,
                         at.column);
    if (!json_is_object(*body))
        return error_set(failure, STATUS_INVALID, "", "the body is %s; right is an object",
                         request_type_name(*body));
    if (!integers_are_fine(*body, *integers))
        return error_set(failure, STATUS_INVALID, "",
                         "the body is not valid JSON: too big integer; integers beyond 64 bits may "
                         "stand in schemas of tools, documents and chat_template_kwargs only");
    return STATUS_OK;
}

// The sentence is the same for a model that is hidden and for one that does not exist.
static status model_unknown(const request_rules *rules, slice name, error *failure)
{
    buffer names = { .limit = 400 };
    models_list_names(rules->models, rules->hidden, &names);
    int shown = utf8_fit(name.data, name.size < 100 ? name.size : 100);
    if (rules->hidden)
        error_set(failure, STATUS_NOT_FOUND, "model",
                  "The model \"%.*s\" does not exist for this API key. It may use %s.", shown,
                  name.data, names.size ? names.data : "none");
    else
        error_set(failure, STATUS_NOT_FOUND, "model",
                  "The model \"%.*s\" does not exist. This router serves %s.", shown, name.data,
                  names.data ? names.data : "");
    buffer_close(&names);
    return STATUS_NOT_FOUND;
}

// Questions about tokens need not name one.
static status model_choose(request_rules *rules, json_t *body, request *r, error *failure)
{
    json_t *value = request_member(body, "model");
    bool may_lack = r->kind == REQUEST_TOKENIZE || r->kind == REQUEST_DETOKENIZE;
    if (!value && !may_lack)
        return error_set(failure, STATUS_INVALID, "model", "model is missing");
    if (value && !json_is_string(value))
        return request_must_be("model", value, "a string", failure);
    slice name = request_text(value);
    r->model =
        value ? models_find(rules->models, name) : models_first(rules->models, rules->hidden);
    if (!r->model || model_set_has(rules->hidden, r->model))
        return model_unknown(rules, name, failure);
    rules->model = &r->model->prompt;
    rules->context = model_context(r->model);
    return STATUS_OK;
}

// The two sentences of an overflow; clients look for the phrase "maximum context length is N
// tokens".
static status length_resolve(const request_rules *rules, const request *r, request_prompt *p,
                             error *failure)
{
    uint64_t context = rules->context, prompt = p->tokens.count;
    const char *field = request_is_chat(r) ? "messages" : "prompt";
    if (prompt == 0)
        return error_set(failure, STATUS_INVALID, field, "%s gives no token; it must not be empty",
                         field);
    if (prompt >= context)
        return error_set(failure, STATUS_CONTEXT_LENGTH, field,
                         "This model's maximum context length is %llu tokens. However, your %s "
                         "%s %llu tokens, which leaves no room for an answer.",
                         (unsigned long long)context, field,
                         request_is_chat(r) ? "resulted in" : "has", (unsigned long long)prompt);
    uint64_t room = context - prompt;
    p->max_tokens = r->max_tokens < 0 ? (int64_t)room : r->max_tokens;
    if ((uint64_t)p->max_tokens > room)
        return error_set(
            failure, STATUS_CONTEXT_LENGTH, "max_tokens",
            "This model's maximum context length is %llu tokens. However, you requested "
            "%llu tokens (%llu in the %s, %llu in the completion).",
            (unsigned long long)context,
            (unsigned long long)prompt + (unsigned long long)p->max_tokens,
            (unsigned long long)prompt, field, (unsigned long long)p->max_tokens);
    if (r->min_tokens > p->max_tokens)
        return error_set(failure, STATUS_INVALID, "min_tokens",
                         "min_tokens is %lld; right is at most max_tokens (%lld)",
                         (long long)r->min_tokens, (long long)p->max_tokens);
    return STATUS_OK;
}

static status choices_check(const request_rules *rules, const request *r, error *failure)
{
    size_t limit = (size_t)rules->settings->choices_max;
    if (r->choices <= limit / r->prompt_count) // no product that wraps
        return STATUS_OK;
    const char *field = r->prompt_count > limit     ? "prompt"
                        : r->choices > (size_t)r->n ? "best_of"
                                                    : "n";
    return error_set(
        failure, STATUS_INVALID, field,
        "%zu answers to each of %zu prompts are asked for; right is at most %zu in all", r->choices,
        r->prompt_count, limit);
}

// The log-probabilities of prompts are written at once when the answer is complete, and the text of
// an echoed prompt once for each answer when the request comes.
static status scores_check(const request_rules *rules, const request *r, error *failure)
{
    uint64_t limit = (uint64_t)rules->settings->prompt_scores_max, count = 0;
    int64_t most =
        r->prompt_top_logprobs > r->top_logprobs ? r->prompt_top_logprobs : r->top_logprobs;
    if (!request_scores_prompt(r) && !r->echo)
        return STATUS_OK;
    for (size_t i = 0; i < r->prompt_count; i++)
        count += r->prompts[i].tokens.count;
    count *= r->choices * (uint64_t)(1 + most); // none wraps: choices and context are bounded
    if (count <= limit)
        return STATUS_OK;
    if (!request_scores_prompt(r))
        return error_set(failure, STATUS_INVALID, "echo",
                         "%llu tokens of prompts are to be echoed (times the answers); right is at "
                         "most %llu in one request",
                         (unsigned long long)count, (unsigned long long)limit);
    return error_set(
        failure, STATUS_INVALID, r->prompt_logprobs ? "prompt_logprobs" : "logprobs",
        "%llu log-probabilities of prompts are asked for (tokens, times answers, times "
        "one and the alternatives); right is at most %llu in one request",
        (unsigned long long)count, (unsigned long long)limit);
}

bool request_is_computed(request_kind kind)
{
    return kind <= REQUEST_MESSAGES;
}

bool request_scores_prompt(const request *r)
{
    return (r->echo && r->logprobs) || r->prompt_logprobs;
}

bool request_is_chat(const request *r)
{
    return r->kind == REQUEST_CHAT || request_is_messages(r);
}

bool request_is_messages(const request *r)
{
    return r->kind == REQUEST_MESSAGES || r->kind == REQUEST_MESSAGES_COUNT;
}

// The body of another API becomes a chat request's.
static status body_translate(json_t **body, request *r, error *failure)
{
    json_t *read = NULL;
    if (!request_is_messages(r))
        return STATUS_OK;
    status result = request_messages_read(*body, r, &read, failure);
    if (result != STATUS_OK)
        return result;
    json_decref(*body);
    *body = read;
    return STATUS_OK;
}

// Sampling, stops, and the prompts with the answers that they ask for.
static status computed_parse(const request_rules *rules, json_t *body, encoder *e, request *r,
                             error *failure)
{
    status result = STATUS_OK;
    TRY(request_fields_parse(rules, body, r, failure));
    TRY(request_hints_parse(body, r, failure));
    TRY(request_stop_parse(rules, body, r, failure));
    TRY(request_stop_ids_parse(rules, body, r, failure));
    TRY(request_bias_parse(rules, body, r, failure));
    TRY(request_prompt_parse(rules, body, e, r, failure));
    TRY(request_grammar_parse(body, r, failure));
    TRY(choices_check(rules, r, failure));
    for (size_t i = 0; request_is_computed(r->kind) && i < r->prompt_count; i++) {
        token_list_fit(&r->prompts[i].tokens);
        TRY(length_resolve(rules, r, &r->prompts[i], failure));
    }
    TRY(scores_check(rules, r, failure));
fail:
    return result;
}

status request_parse(const request_rules *given, request_kind kind, slice text,
                     const model_encoders *e, request *parsed, error *failure)
{
    request_rules own = *given;
    const request_rules *rules = &own;
    status result = STATUS_OK;
    json_t *body = NULL;
    request r = { .kind = kind };
    TRY(body_parse(text, &body, &own.integers, failure));
    TRY(body_translate(&body, &r, failure));
    TRY(model_choose(&own, body, &r, failure));
    encoder *own_encoder = e->of[r.model->index];
    if (kind == REQUEST_TOKENIZE || kind == REQUEST_DETOKENIZE)
        TRY(request_tokenize_parse(rules, body, own_encoder, &r, failure));
    else
        TRY(computed_parse(rules, body, own_encoder, &r, failure));
    json_decref(body);
    json_decref(own.integers);
    *parsed = r;
    return STATUS_OK;
fail:
    json_decref(body);
    json_decref(own.integers);
    request_close(&r);
    return result;
}

void request_close(request *r)
{
    for (size_t i = 0; i < r->prompt_count; i++)
        token_list_close(&r->prompts[i].tokens);
    free(r->prompts);
    if (r->stops)
        stop_close(r->stops);
    free(r->bias_tokens);
    free(r->biases);
    tool_request_close(&r->tools);
    buffer_close(&r->grammar);
    *r = (request){ 0 };
}
