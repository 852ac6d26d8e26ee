// Inside request parsing: the fields table (request_fields.c) and the parts of a request with a
// rule of their own.
#pragma once

#include "router/request.h"

// A member of `body`, with null taken for absence: NULL then.
json_t *request_member(json_t *body, const char *name);
// "a string", "an array", ...
const char *request_type_name(const json_t *value);
// The text of a string, which lives as long as it; empty, but never NULL, of any other value and of
// one that is missing (NULL).
slice request_text(const json_t *string);
// The sentence of a value of the wrong type, or of one that is missing (NULL): STATUS_INVALID.
status request_must_be(const char *field, const json_t *value, const char *right, error *failure);
// The same of a member of the object `field` that is no string.
status request_must_hold_string(json_t *object, const char *field, const char *name,
                                error *failure);

// Whether a conversation is asked, else a text is continued.
bool request_is_chat(const request *r);
bool request_is_messages(const request *r); // in Anthropic's words

// Anthropic's body as a chat request's, a new reference; what neither API knows is counted.
status request_messages_read(json_t *body, request *r, json_t **read, error *failure);
// Of Anthropic's body: `thinking`, and a block of thought of an earlier turn, appended.
status request_thinking_read(json_t *body, request *r, error *failure);
status request_thought_read(json_t *block, const char *field, buffer *thought, error *failure);
// The template's variables as the wish for thought has them: a new reference, or NULL where they
// stay what was given. The tools of `r` have been read.
status request_thinking_apply(const prompt_model *model, const request *r, json_t *body,
                              json_t *given, json_t **variables, error *failure);
// Of the prompt, whether it begins thought that is not wished for.
status request_thinking_agree(const prompt_model *model, const request *r, error *failure);
// Of /tokenize and /detokenize: the ids, in the request's one prompt.
status request_tokenize_parse(const request_rules *rules, json_t *body, encoder *e, request *r,
                              error *failure);
// Every element of the array `field` is the id of a token.
status request_ids_parse(const request_rules *rules, json_t *list, const char *field,
                         token_list *ids, error *failure);
status request_prompts_take(size_t count, request *r, error *failure);

// Every scalar field of the table, then the refusals; counts unknown fields.
status request_fields_parse(const request_rules *rules, json_t *body, request *r, error *failure);
// What holds members that are only checked.
typedef enum request_part {
    REQUEST_PART_BODY, // of a chat or a completion
    REQUEST_PART_MESSAGES_BODY,
    REQUEST_PART_CACHE_CONTROL,
    REQUEST_PART_DIAGNOSTICS,
    REQUEST_PART_TEXT, // blocks of a message
    REQUEST_PART_RESULT,
    REQUEST_PART_CALL,
    REQUEST_PART_THOUGHT,
    REQUEST_PART_REDACTED, // thought of another server
    REQUEST_PART_TOOL,
    REQUEST_PART_CHOICE, // tool_choice
} request_part;
// The types and words of such members of an object that is called `field`; of the body: "".
status request_part_check(request_part part, const char *field, json_t *object, error *failure);
// service_tier, and what is checked and has no effect: user, metadata, ...
status request_hints_parse(json_t *body, request *r, error *failure);
// stop, stop_token_ids, logit_bias.
status request_stop_parse(const request_rules *rules, json_t *body, request *r, error *failure);
status request_stop_ids_parse(const request_rules *rules, json_t *body, request *r, error *failure);
status request_bias_parse(const request_rules *rules, json_t *body, request *r, error *failure);
// An element `field[index]` that must be the id of a token.
status request_token_id_parse(const request_rules *rules, json_t *item, const char *field,
                              size_t index, int32_t *id, error *failure);
// response_format, structured_outputs, and the calls that tool_choice demands (behind the prompt,
// which reads the tools): the source of a grammar, which was seen to compile.
status request_grammar_parse(json_t *body, request *r, error *failure);
// messages or prompt, to ids.
status request_prompt_parse(const request_rules *rules, json_t *body, encoder *e, request *r,
                            error *failure);
// Of a chat request: messages, tools and what else the template gets. STATUS_TOO_LARGE: more than
// `limit` ids.
status request_chat_parse(const request_rules *rules, json_t *body, encoder *e, size_t limit,
                          request *r, token_list *ids, error *failure);
