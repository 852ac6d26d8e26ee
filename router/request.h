// What a client asks: the JSON body of POST /v1/chat/completions, /v1/completions, /v1/messages
// (and count_tokens), /tokenize or /detokenize, checked field by field.
//
// A body of /v1/messages is read as the chat request that means the same (request_messages.c).
//
// `null` means absent. A number out of range, a wrong type, and a documented field whose effect is
// not offered are refused with the field's name; fields that nobody documents are ignored and
// counted. Duplicate keys, nesting deeper than REQUEST_DEPTH_MAX and broken surrogate pairs are
// refused. Parsing needs no router state: any thread may do it with its own encoder.
//
// Both `max_tokens` and `max_completion_tokens`: the latter counts. temperature 0 is greedy; top_k
// 0 and -1 are off. Extensions: top_k, min_p, typical_p, repetition_penalty, ignore_eos,
// min_tokens, stop_token_ids, skip_special_tokens, prompt_logprobs, chat_template_kwargs,
// documents, add_generation_prompt, continue_final_message (true: the former is false unless it is
// given, and both true is refused), priority (0 interactive, 1 batch), timeout (seconds until the
// whole answer must be there), logits_hash (with api.debug), structured_outputs.
//
// response_format is text, json_object or json_schema (always kept to, `strict` or not);
// structured_outputs is an object with one of `json` (a schema, or one as a string), `json_object`
// (true), `regex` (a pattern that the whole answer matches) and `choice` (an array of strings).
// Both make the answer what text/grammar.h says: end tokens come where it is complete, a stop
// string or max_tokens may still cut it short, and finish_reason says so. Not both, nor with
// ignore_eos. /v1/messages has output_config.format, or output_format as it was called before, in
// place of response_format.
//
// `thinking` of /v1/messages sets the variable of the chat template that turns thought on or off,
// where it has one (text/chat.h). "enabled" is refused where the model does not think or the answer
// is held to a form, "disabled" where the template opens a block of thought all the same; a model
// that opens one by itself is not hindered. budget_tokens is checked (at least 1024, less than
// max_tokens) and not enforced. Thought comes back whole, as display "summarized"; "omitted" and
// the type "between_tools" are refused. Thought of earlier turns becomes the reasoning_content of
// its message, which the template shows or not; signatures are not verified, and
// redacted_thinking, which this server never writes, is passed over.
#pragma once

#include "router/models.h"
#include "router/tools.h"
#include "text/stop.h"

#define REQUEST_DEPTH_MAX 64
#define REQUEST_STOP_IDS_MAX MESSAGE_STOP_IDS_MAX

typedef enum request_kind {
    REQUEST_CHAT,
    REQUEST_COMPLETION,
    REQUEST_MESSAGES, // Anthropic's /v1/messages, read as a chat request
    // Questions about a prompt: nothing is computed.
    REQUEST_MESSAGES_COUNT, // /v1/messages/count_tokens
    REQUEST_TOKENIZE,
    REQUEST_DETOKENIZE,
    REQUEST_KINDS
} request_kind;

bool request_is_computed(request_kind kind); // by workers

// Whether the model is to think first.
typedef enum request_thinking {
    REQUEST_THINKING_AS_IT_IS, // as it does by itself
    REQUEST_THINKING_ON,
    REQUEST_THINKING_OFF,
    REQUEST_THINKING_ADAPTIVE, // it may; it does not where the answer's form is held
} request_thinking;

typedef struct request_sampling {
    double temperature, top_p, min_p, typical_p;
    int64_t top_k;
    double repetition_penalty, frequency_penalty, presence_penalty;
    int64_t seed;
    bool has_seed;
} request_sampling;

// A prompt as the model sees it: made once, shared by all sequences that begin with it.
typedef struct request_prompt {
    token_list tokens;
    int64_t max_tokens; // of each answer: fits the context behind the prompt; 0 only with echo
} request_prompt;

// One request. Owns its memory; request_close frees it.
typedef struct request {
    request_kind kind;
    const served_model *model;
    request_prompt *prompts;
    size_t prompt_count; // at least 1
    int64_t best_of;     // as asked for; 0: not
    int64_t n;           // choices that are shown of each prompt
    size_t choices;      // sequences of each prompt: n, or best_of where more compete to be shown
    request_sampling sampling;
    int64_t max_tokens; // as asked for; -1: whatever fits
    int64_t min_tokens;
    int64_t priority;
    double timeout_s; // 0: the router's own
    uint8_t drafter;  // whose guesses may be used; see request_drafter_name
    bool ignore_eos;
    bool skip_special_tokens;
    int32_t stop_ids[REQUEST_STOP_IDS_MAX];
    size_t stop_id_count;
    stop *stops;          // the strings; each stream has a matcher of its own
    int32_t *bias_tokens; // [bias_count], ascending
    float *biases;        // [bias_count]
    size_t bias_count;
    bool echo; // the answer begins with the prompt, whose log-probabilities are asked for as well
    bool logprobs;
    int64_t top_logprobs;
    bool prompt_logprobs; // of the prompt's tokens, beside the answer
    int64_t prompt_top_logprobs;
    bool logits_hash;
    bool stream, include_usage;
    bool continuous_usage; // each chunk tells the usage so far
    bool include_stop;     // a stop string that ends the answer is its last text
    // Of chat requests: how the prompt ends, and how the answer is read.
    bool add_generation_prompt, continue_final_message;
    tool_request tools;
    request_thinking thinking; // as asked for
    bool reasons, in_thought;  // blocks of thought are told apart; the answer begins inside one
    buffer grammar;           // source of what the answer must be (text/grammar.h); empty: anything
    const char *format_field; // the client's name of response_format; NULL: that
    bool token_texts;         // of /tokenize: the text of each token too
    size_t unknown_fields;
} request;

// What parsing depends on.
typedef struct request_rules {
    const models *models;
    model_set hidden; // models that do not exist for this client
    const router_settings *settings;
    // request_parse fills in what follows: of the model that the request names, and integers
    // beyond 64 bits in its body (text/json_wide.h).
    const prompt_model *model;
    uint32_t context; // tokens of a sequence that its workers take now
    json_t *integers;
} request_rules;

// Errors (param names the field): STATUS_INVALID, STATUS_UNSUPPORTED (400), STATUS_NOT_FOUND (the
// model), STATUS_CONTEXT_LENGTH, STATUS_NO_MEMORY. On failure nothing is left to close.
status request_parse(const request_rules *rules, request_kind kind, slice body,
                     const model_encoders *e, request *parsed, error *failure);
void request_close(request *r); // zeroed is fine
// Whether a body may hold a grammar, which takes a tenth of a second to read where it is hostile.
// Looks at the bytes alone: true too often, and never false where there is one.
bool request_may_have_grammar(slice body);

// Whether the prompt's own tokens get log-probabilities: beside the answer, or in its echo.
bool request_scores_prompt(const request *r);
// As tickets say it: "" for 0, the worker's choice.
const char *request_drafter_name(uint8_t drafter);
