// The conversation of a chat request, and what goes with it into the template.
#include "router/request_private.h"

// How the prompt ends; the fields table has read both.
static status endings_agree(json_t *body, request *r, error *failure)
{
    if (!r->continue_final_message)
        return STATUS_OK;
    if (!request_member(body, "add_generation_prompt"))
        r->add_generation_prompt = false;
    if (r->add_generation_prompt)
        return error_set(failure, STATUS_INVALID, "continue_final_message",
                         "continue_final_message and add_generation_prompt are both true; right is "
                         "at most one of them");
    return STATUS_OK;
}

status request_chat_parse(const request_rules *rules, json_t *body, encoder *e, size_t limit,
                          request *r, token_list *ids, error *failure)
{
    status result = STATUS_OK;
    json_t *extra = request_member(body, "chat_template_kwargs"), *tools = NULL, *switched = NULL;
    if (extra && !json_is_object(extra))
        return request_must_be("chat_template_kwargs", extra, "an object", failure);
    TRY(endings_agree(body, r, failure));
    TRY(tool_request_parse(rules->model, rules->settings, body, request_is_messages(r), &r->tools,
                           &tools, failure));
    TRY(request_thinking_apply(rules->model, r, body, extra, &switched, failure));
    chat_request conversation = { .messages = request_member(body, "messages"),
                                  .tools = tools,
                                  .documents = request_member(body, "documents"),
                                  .extra = switched ? switched : extra,
                                  .integers = rules->integers,
                                  .add_generation_prompt = r->add_generation_prompt,
                                  .continue_final_message = r->continue_final_message };
    TRY(prompt_encode_chat(rules->model, e, &conversation, limit, ids, &r->in_thought, failure));
    // Forced calls are no thought, even where the template opened a block of it.
    r->reasons = rules->model->reasons && !r->tools.forced;
    r->in_thought = r->in_thought && r->reasons;
    TRY(request_thinking_agree(rules->model, r, failure));
fail:
    json_decref(switched);
    return result;
}
