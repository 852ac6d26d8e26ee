// Calls of functions in the text of an answer: how each family of models writes them, and a parser
// that finds them while the text comes in.
//
// A format is one row of a table (tool_calls_format.c). A call is a JSON object with the name and
// the arguments of a function, behind an opening mark, or bare at the beginning of the answer:
//
// - hermes: <tool_call>{"name": ..., "arguments": {...}}</tool_call>, one mark for each call
// (Qwen 2.5
//   and 3, Hermes);
// - llama3: {"name": ..., "parameters": {...}}, bare or behind <|python_tag|>, several with ;
// between;
// - mistral: [TOOL_CALLS][{"name": ..., "arguments": {...}}, ...];
// - gemma: the object of llama3, or a list of them, in a fenced block ```tool_code, or bare. Gemma
// 3
//   was published with several forms; this is the one that is JSON. Python in such a block is text.
//
// In all of them "arguments" and "parameters" mean the same, may stand before the name, and may be
// a string that spells the object; a call without them has the arguments {}. Other members of the
// object are skipped (ids, types), except in a bare call, where they make it text.
//
// Nothing is lost: what is no call, or only the beginning of one, comes out as text, byte for byte.
// White space that touches a call belongs to its layout and is dropped. A call is told as soon as
// its name and the beginning of its arguments are there; if what follows is no JSON, or the answer
// ends inside, it is taken back: TOOL_EVENT_BROKEN, and its whole source is told as text.
// What comes out does not depend on how the text is cut into pieces.
#pragma once

#include "base/buffer.h"
#include "base/status.h"

typedef enum tool_format {
    TOOL_FORMAT_NONE, // no calls: everything is text
    TOOL_FORMAT_HERMES,
    TOOL_FORMAT_LLAMA3,
    TOOL_FORMAT_MISTRAL,
    TOOL_FORMAT_GEMMA,
    TOOL_FORMAT_COUNT,
} tool_format;

// How calls of a format are written: what the model is made to write where a call is forced. Calls
// are `between` apart; a name stands in quotes between `before_name` and `before_arguments`.
typedef struct tool_layout {
    const char *name; // in settings: "none", "hermes", ...
    const char *before_all, *before_name, *before_arguments, *after_arguments, *between, *after_all;
} tool_layout;
const tool_layout *tool_layout_of(tool_format format);
// False where no format has this name.
bool tool_format_find(slice name, tool_format *format);
// The format that a chat template asks for, by the marks that its text spells.
tool_format tool_format_detect(slice template_source);
// The text of an opening mark that may be a control token of the vocabulary, or NULL.
const char *tool_format_mark(tool_format format);

typedef enum tool_event_kind {
    TOOL_EVENT_TEXT,      // text
    TOOL_EVENT_CALL,      // a call begins; text is the function's name
    TOOL_EVENT_ARGUMENTS, // a piece of the JSON text of its arguments
    TOOL_EVENT_END,       // the call is whole
    TOOL_EVENT_BROKEN,    // the call that began is none; its source follows as text
} tool_event_kind;

// `call` counts the calls that begin in an answer from 0, broken ones included (text: no meaning).
// `text` is valid while the handler runs.
typedef struct tool_event {
    tool_event_kind kind;
    size_t call;
    slice text;
} tool_event;
typedef void tool_handler(void *context, const tool_event *event);

// Longer names are no names of functions.
enum { TOOL_NAME_MAX = 64 };

// The parser of one answer; one thread. Pushing and ending may call the handler any number of
// times.
typedef struct tool_parser tool_parser;
// `names`: the functions that exist (copied); a call of another one is text. NULL without memory.
tool_parser *tool_parser_open(tool_format format, const slice *names, size_t name_count,
                              tool_handler *handler, void *context);
void tool_parser_close(tool_parser *p); // NULL is allowed
// False without memory: the answer cannot go on.
bool tool_parser_push(tool_parser *p, slice arrived);
bool tool_parser_end(tool_parser *p);
