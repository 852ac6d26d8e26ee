// A conversation (the `messages` of a chat request) to the prompt text of one model.
//
// A `chat` is a model's template plus what was found out about it at load, by rendering small
// conversations: whether it knows the role "developer", whether it accepts an assistant turn with
// null content, whether it reads `tools`. It is read only after chat_open; any thread may render.
//
// Messages are checked and put into the form that templates expect before they are rendered:
// - roles are system, user, assistant, tool and developer;
// - content is a string, or a list of text parts, which are joined without a separator; a part of
// any
//   other type is refused by its name;
// - content may be null or absent for an assistant with tool_calls; templates that cannot bear null
// get
//   an empty string;
// - `developer` counts as system where the template does not name it: then all system and developer
//   messages are merged, in order and separated by a blank line, into one leading system message;
// - arguments of tool_calls, which clients send as a JSON text, become the object that they spell.
// Only the template's own text, bos and eos, and the names of the roles come out as markup
// (template.h).
#pragma once

#include "text/template.h"

typedef struct chat chat;

// `bos` and `eos` are the texts of those tokens (empty: the model has none, and the variables
// bos_token and eos_token stay undefined). Fails as template_open does.
status chat_open(slice template_source, slice bos, slice eos, chat **opened, error *failure);
void chat_close(chat *c); // NULL is allowed

// What the template was found to handle, for a caller who must refuse or warn.
typedef struct chat_traits {
    bool reads_tools;          // it mentions `tools`
    bool reads_tool_calls;     // it mentions `tool_calls`
    bool knows_developer;      // it mentions the role "developer"
    bool accepts_null_content; // an assistant with tool_calls may have null content
    bool writes_bos;           // it mentions `bos_token`
} chat_traits;
const chat_traits *chat_traits_of(const chat *c);

// One request. All JSON is borrowed and left unchanged.
typedef struct chat_request {
    json_t *messages; // checked here: must be a non-empty array
    json_t *tools;    // NULL or JSON null: none; else an array of objects
    json_t *extra;    // NULL, or an object of further variables (chat_template_kwargs); it cannot
                      // replace messages, tools, add_generation_prompt, bos_token or eos_token
    bool add_generation_prompt;
    int64_t now_s; // seconds since 1970-01-01 UTC, what the template sees as the date
} chat_request;

// Check and render. A conversation that is not valid, or that the template refuses, gives
// STATUS_INVALID with `param` naming the field ("messages[0].role"); a message of the template's
// own raise_exception arrives as the error's text with param "messages" and output->fault
// TEMPLATE_FAULT_RAISED. `limits` may be NULL (defaults).
status chat_render(const chat *c, const chat_request *request, const template_limits *limits,
                   template_output *output, error *failure);
