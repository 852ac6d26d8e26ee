// Functions that a client offers to the model: the fields tools, tool_choice and
// parallel_tool_calls of a chat request, checked, and what follows from them for the prompt, the
// grammar and the reading of the answer.
//
// tool_choice: absent or "auto", the model decides; "none", the functions are not even shown;
// "required" or {"type": "function", "function": {"name": ...}}, the answer is one or more calls
// (exactly one of the function named), which a grammar makes so: names exist and arguments keep to
// their schema. Where the model decides, arguments are what it writes: `strict` is taken and has no
// effect; but beside a response_format the answer is either calls, held as forced ones are, or what
// the format says. parallel_tool_calls false ends the answer behind its first call. The template of
// the model must read `tools`, and the format of its calls must be known (text/tool_calls.h), else
// tools are refused. `functions` and `function_call`, which tools replaced, are refused by name.
#pragma once

#include "router/prompt.h"
#include "router/settings.h"

typedef struct tool_request {
    bool flat;          // see tool_request_parse
    tool_format format; // TOOL_FORMAT_NONE: answers are not read for calls
    bool forced;        // the answer must be calls
    bool parallel;      // it may be several
    slice *names;       // [name_count], in name_bytes: functions that exist
    size_t name_count;
    buffer name_bytes;
    // The node of a grammar's template (text/grammar.h) that is all its calls, where they are
    // forced or a response_format stands beside them; else empty.
    buffer calls;
} tool_request;

// A forced answer has at most this many calls.
enum { TOOL_CALLS_FORCED_MAX = 8 };

// `shown` becomes what the template gets as `tools`: borrowed from `body`, or NULL. Errors name the
// field. `flat`: as Anthropic's clients call it, a tool has its function's members itself, and the
// parameters as input_schema. On failure `parsed` must be closed all the same.
status tool_request_parse(const prompt_model *model, const router_settings *settings, json_t *body,
                          bool flat, tool_request *parsed, json_t **shown, error *failure);
void tool_request_close(tool_request *r); // zeroed is fine
