// What the router knows of the model: its tokenizer, chat template, context and identity, read once
// from the GGUF file; and the way from a conversation or a text to token ids.
//
// Control tokens come out of the template's own markup only, never out of what clients wrote: a
// message that spells
// "<|im_end|>" becomes those characters. Raw prompts (/v1/completions) parse no control tokens at
// all; clients who need them send token ids, which are taken as they are. Where the tokenizer wants
// a BOS there is exactly one in front. A prompt_model is read only after it was opened; any thread
// may use it, each with an encoder of its own.
#pragma once

#include "base/hash.h"
#include "net/message.h"
#include "text/chat.h"
#include "text/encoder.h"

#include <jansson.h>

// What a worker must serve.
typedef struct prompt_identity {
    hash128 weights;
    int32_t vocabulary; // ids below this must exist
    char name[128];
} prompt_identity;

typedef struct prompt_model {
    tokenizer *tokens;
    chat *chat;        // NULL: the file has no template, so only raw prompts are served
    tool_format tools; // how the model writes calls, as its template shows or the settings say
    bool reasons;      // its blocks of thought are told apart
    prompt_identity identity;
    uint32_t context; // tokens, as the file says
} prompt_model;

// `name` empty: derived from the file's name ("dir/A.Q4_1.gguf" is "A"). `template_path` empty: the
// template is the GGUF file's own.
status prompt_model_open(const char *path, const char *name, const char *template_path,
                         prompt_model *model, error *failure);
void prompt_model_close(prompt_model *model); // zeroed is fine

// Append the ids of a rendered conversation; its now_s is filled in. `in_thought`: the answer
// begins inside a block of thought. More than `limit` ids: STATUS_TOO_LARGE. A fault of the
// messages has `param` set.
status prompt_encode_chat(const prompt_model *model, encoder *e, const chat_request *conversation,
                          size_t limit, token_list *ids, bool *in_thought, error *failure);
status prompt_encode_text(const prompt_model *model, encoder *e, slice text, size_t limit,
                          token_list *ids, error *failure);
