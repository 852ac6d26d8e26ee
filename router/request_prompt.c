// What the model goes on from: messages or prompt, to ids.
#include "router/request_private.h"

#include <stdio.h>
#include <stdlib.h>

// More ids than this cannot fit and are not counted to the end.
static size_t prompt_limit(const request_rules *rules)
{
    return (size_t)rules->context * 2 + 1024;
}

// The encoder stopped at its limit: say it as an overflow of the context.
static status prompt_too_long(const request_rules *rules, const char *field, error *failure)
{
    return error_set(
        failure, STATUS_CONTEXT_LENGTH, field,
        "This model's maximum context length is %u tokens. However, your %s resulted in "
        "more than %zu tokens.",
        rules->context, field, prompt_limit(rules));
}

status request_ids_parse(const request_rules *rules, json_t *list, const char *field,
                         token_list *ids, error *failure)
{
    for (size_t i = 0; i < json_array_size(list); i++) {
        int32_t id = 0;
        status result =
            request_token_id_parse(rules, json_array_get(list, i), field, i, &id, failure);
        if (result != STATUS_OK)
            return result;
        if (!token_list_append(ids, id))
            return error_set(failure, STATUS_NO_MEMORY, "", "no memory for the prompt");
    }
    return STATUS_OK;
}

// One prompt: a string or a list of ids.
static status one_prompt_parse(const request_rules *rules, json_t *value, const char *field,
                               encoder *e, token_list *ids, error *failure)
{
    if (json_array_size(value) > prompt_limit(rules))
        return error_set(
            failure, STATUS_CONTEXT_LENGTH, field,
            "This model's maximum context length is %u tokens. However, your %s has %zu tokens.",
            rules->context, field, json_array_size(value));
    if (json_is_array(value))
        return request_ids_parse(rules, value, field, ids, failure);
    if (!json_is_string(value))
        return request_must_be(field, value, "a string or an array of token ids", failure);
    return prompt_encode_text(rules->model, e, request_text(value), prompt_limit(rules), ids,
                              failure);
}

status request_prompts_take(size_t count, request *r, error *failure)
{
    r->prompts = calloc(count, sizeof *r->prompts);
    if (!r->prompts)
        return error_set(failure, STATUS_NO_MEMORY, "", "no memory for the prompt");
    r->prompt_count = count;
    return STATUS_OK;
}

// prompt: a string, a list of ids, or a list of strings or of lists of ids.
static status completion_prompts_parse(const request_rules *rules, json_t *value, encoder *e,
                                       request *r, error *failure)
{
    json_t *first = json_array_get(value, 0);
    bool several = json_is_string(first) || json_is_array(first);
    size_t count = several ? json_array_size(value) : 1;
    if (json_is_array(value) && json_array_size(value) == 0)
        return error_set(failure, STATUS_INVALID, "prompt", "prompt is an empty array");
    if (count > (size_t)rules->settings->choices_max)
        return error_set(failure, STATUS_INVALID, "prompt",
                         "prompt holds %zu prompts; right is at most %lld", count,
                         (long long)rules->settings->choices_max);
    status result = request_prompts_take(count, r, failure);
    for (size_t i = 0; result == STATUS_OK && i < count; i++) {
        char field[32] = "prompt";
        json_t *item = several ? json_array_get(value, i) : value;
        if (count > 1)
            snprintf(field, sizeof field, "prompt[%zu]", i);
        if (several && json_typeof(item) != json_typeof(first))
            return error_set(failure, STATUS_INVALID, field, "%s is %s; right is %s, as the first",
                             field, request_type_name(item), request_type_name(first));
        result = one_prompt_parse(rules, item, field, e, &r->prompts[i].tokens, failure);
        if (result == STATUS_TOO_LARGE)
            return prompt_too_long(rules, field, failure);
    }
    return result;
}

static status chat_prompt_parse(const request_rules *rules, json_t *body, encoder *e, request *r,
                                error *failure)
{
    status result = request_prompts_take(1, r, failure);
    if (result == STATUS_OK)
        result = request_chat_parse(rules, body, e, prompt_limit(rules), r, &r->prompts[0].tokens,
                                    failure);
    return result == STATUS_TOO_LARGE ? prompt_too_long(rules, "messages", failure) : result;
}

status request_prompt_parse(const request_rules *rules, json_t *body, encoder *e, request *r,
                            error *failure)
{
    const char *field = request_is_chat(r) ? "messages" : "prompt";
    json_t *value = request_member(body, field);
    if (!value)
        return error_set(failure, STATUS_INVALID, field, "%s is missing", field);
    if (request_is_chat(r))
        return chat_prompt_parse(rules, body, e, r, failure);
    return completion_prompts_parse(rules, value, e, r, failure);
}
