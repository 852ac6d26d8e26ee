// /tokenize and /detokenize: ids of a text or a conversation, and the other way round.
#include "router/request_private.h"

static status flag_parse(json_t *body, const char *name, bool *flag, error *failure)
{
    json_t *value = request_member(body, name);
    if (value && !json_is_boolean(value))
        return request_must_be(name, value, "true or false", failure);
    if (value)
        *flag = json_is_true(value);
    return STATUS_OK;
}

static status text_parse(const request_rules *rules, json_t *body, encoder *e, size_t limit,
                         token_list *ids, error *failure)
{
    status result = STATUS_OK;
    json_t *value = request_member(body, "prompt");
    bool special = true;
    TRY(flag_parse(body, "add_special_tokens", &special, failure));
    if (!json_is_string(value))
        return request_must_be("prompt", value, "a string (or messages in its place)", failure);
    slice text = request_text(value);
    TRY(special ? prompt_encode_text(rules->model, e, text, limit, ids, failure)
                : encoder_encode_text(e, text, false, limit, ids, failure));
fail:
    return result;
}

static status too_many(const request_rules *rules, const char *field, error *failure)
{
    return error_set(failure, STATUS_INVALID, field,
                     "%s has more than %lld tokens, which is the most that this server looks at "
                     "here (api.tokenize_tokens)",
                     field, (long long)rules->settings->tokenize_tokens);
}

static status ids_parse(const request_rules *rules, json_t *body, request *r, token_list *ids,
                        error *failure)
{
    json_t *tokens = request_member(body, "tokens");
    if (!json_is_array(tokens))
        return request_must_be("tokens", tokens, "an array of token ids", failure);
    if (json_array_size(tokens) > (size_t)rules->settings->tokenize_tokens)
        return too_many(rules, "tokens", failure);
    status result = flag_parse(body, "skip_special_tokens", &r->skip_special_tokens, failure);
    return result == STATUS_OK ? request_ids_parse(rules, tokens, "tokens", ids, failure) : result;
}

status request_tokenize_parse(const request_rules *rules, json_t *body, encoder *e, request *r,
                              error *failure)
{
    status result = STATUS_OK;
    size_t limit = (size_t)rules->settings->tokenize_tokens;
    bool talks = request_member(body, "messages") != NULL;
    TRY(request_prompts_take(1, r, failure));
    token_list *ids = &r->prompts[0].tokens;
    r->skip_special_tokens = false;
    if (r->kind == REQUEST_DETOKENIZE)
        return ids_parse(rules, body, r, ids, failure);
    TRY(flag_parse(body, "return_token_strs", &r->token_texts, failure));
    if (talks) {
        r->add_generation_prompt = true;
        TRY(flag_parse(body, "add_generation_prompt", &r->add_generation_prompt, failure));
        TRY(flag_parse(body, "continue_final_message", &r->continue_final_message, failure));
        TRY(request_chat_parse(rules, body, e, limit, r, ids, failure));
    } else {
        TRY(text_parse(rules, body, e, limit, ids, failure));
    }
fail:
    if (result == STATUS_TOO_LARGE)
        return too_many(rules, talks ? "messages" : "prompt", failure);
    return result;
}
