// A conversation (the `messages` of a chat request) to the prompt text of one model.
//
// A `chat` is a model's template plus what was found out about it at load, by rendering small
// conversations (chat_traits). It is read only after chat_open; any thread may render.
//
// Messages are checked and put into the form that the template expects before they are rendered:
// - a role is system, user, assistant, tool or developer;
// - content is a string, or a list of text parts, which are joined without a separator; a part of
//   another type is refused by its name;
// - content may be null or absent only for an assistant with tool_calls;
// - `developer` counts as system where the template does not name it: then all system and developer
//   messages are merged, in order, a blank line between them, into one leading system message;
// - arguments of tool_calls, which clients send as JSON text, become the object that they spell.
// Only the template's own text, bos, eos and the names of roles come out as markup (template.h).
#pragma once

#include "text/template.h"
#include "text/tool_calls.h"

typedef struct chat chat;

// `bos` and `eos` are the texts of those tokens; an empty one means that the model has none, and
// the variable bos_token or eos_token stays undefined. Fails as template_open does.
status chat_open(slice template_source, slice bos, slice eos, chat **opened, error *failure);
void chat_close(chat *c); // NULL is allowed

// What the template reads, for a caller who must refuse or warn, and what it was found to need.
typedef struct chat_traits {
    bool reads_tools;            // it mentions `tools`
    bool reads_tool_calls;       // it mentions `tool_calls`
    bool reads_bos;              // it mentions `bos_token`
    bool knows_developer;        // it mentions the role "developer"
    bool null_content_as_text;   // null content fails in it, an empty string does not
    bool arguments_as_text;      // it wants the arguments of tool_calls as JSON text
    bool content_as_parts;       // it drops content that is not a list of text parts
    bool thinks;                 // it knows blocks of <think> (reasoning.h)
    const char *thinking_switch; // the variable that turns them on and off; NULL: it has none
    tool_format tools;           // how its model writes calls, by the marks that it spells
} chat_traits;
const chat_traits *chat_traits_of(const chat *c);

// One request. All JSON is borrowed and left unchanged.
typedef struct chat_request {
    json_t *messages;  // must be a non-empty array
    json_t *tools;     // NULL or JSON null: none; else an array of objects
    json_t *documents; // the same
    // NULL, JSON null, or an object of further variables (chat_template_kwargs), which cannot
    // replace messages, tools, documents, add_generation_prompt, bos_token and eos_token.
    json_t *extra;
    json_t *integers; // NULL, or as in template_context
    bool add_generation_prompt;
    // The prompt ends behind the text of the last message, which the answer goes on with. Not
    // together with add_generation_prompt.
    bool continue_final_message;
    int64_t now_s; // seconds since 1970-01-01 UTC, the date that the template sees
} chat_request;

// Check and render. A conversation that is not valid, or that the template refuses, gives
// STATUS_INVALID (STATUS_TOO_LARGE past a limit) with `param` naming the field
// ("messages[0].role"). The message of the template's own raise_exception is the error's text as it
// is, with param "messages" and output->fault TEMPLATE_FAULT_RAISED. `limits` may be NULL
// (defaults).
status chat_render(const chat *c, const chat_request *request, const template_limits *limits,
                   template_output *output, error *failure);

// Whether the answer to a rendered request begins inside a block of thought: because the template
// opened one, or because the message that is continued did.
bool chat_opens_reasoning(const chat *c, const chat_request *request,
                          const template_output *output);
