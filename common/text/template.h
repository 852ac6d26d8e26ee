// A chat template: the Jinja language, in a sandbox, as Hugging Face's transformers sets it up
// (immutable sandbox, trim_blocks, lstrip_blocks, no trailing newline, no autoescape, `break` and
// `continue`, `generation` blocks, tojson = json.dumps(ensure_ascii=False), raise_exception,
// strftime_now). Reference: the Jinja 3.1 documentation and Python's rules for str, int and float.
//
// A `template` is parsed once, at load, and is then read only: any number of threads may render it
// at the same time. One render owns an arena with a cap; steps, nesting, output and list sizes have
// limits too, so that nothing can hang, overflow the stack or allocate without bound.
//
// Origin. Text that is literal in the template is *markup*; text that came out of the context is
// *content*, through every filter, slice, method and concatenation. The output says for each byte
// which of the two it is, so that the tokenizer parses special tokens in markup only: a user's
// "<|im_end|>" stays those characters and never becomes the token. What is unclear is content.
//
// Not in the language here, by name and at parse time: include, import, from, extends, block (chat
// templates are one file), and the filters pprint, random, urlize, xmlattr and filesizeformat.
// Integers are 64 bit: a result outside is an error, never a wrapped number; wider ones of the
// context are printed and compared. One difference is
// known: a macro or nested block that reads a variable which the template sets only further down
// sees the caller's variable of that name, where Jinja sees none.
#pragma once

#include "base/buffer.h"
#include "base/status.h"

#include <jansson.h>

typedef struct template template;

// Parse `source` (UTF-8, at most 1 MiB; it is copied). A template that does not compile gives
// STATUS_INVALID and an error whose text begins with "line N: ".
status template_open(slice source, template **opened, error *failure);
void template_close(template *t); // NULL is allowed

// What one render may use. A zero field stands for the default beside it.
typedef struct template_limits {
    size_t steps;        // 4,000,000: nodes evaluated, plus one per 64 bytes worked on
    size_t depth;        // 600: nesting of evaluation, values and macro calls together
    size_t output_bytes; // 8 MiB
    size_t items;        // 200,000: elements of one list, tuple or dict
    size_t memory_bytes; // 128 MiB: the arena of one render
} template_limits;

// Why a render failed, finer than its status. Text of a failed render is never delivered.
typedef enum template_fault {
    TEMPLATE_FAULT_NONE,
    TEMPLATE_FAULT_RAISED,    // the template called raise_exception; error.text is its message
    TEMPLATE_FAULT_UNDEFINED, // an undefined value was used where Jinja forbids it
    TEMPLATE_FAULT_SECURITY,  // the sandbox refused (changing a list or dict, private attributes)
    TEMPLATE_FAULT_TYPE,    // what Python would raise: TypeError, ValueError, ZeroDivisionError...
    TEMPLATE_FAULT_RUNTIME, // another error of the language itself
    TEMPLATE_FAULT_LIMIT,   // one of the limits above
} template_fault;

// `size` bytes of the output from `offset` on, all of one origin. Segments are in order, without
// gaps, and neighbours differ in origin.
typedef struct template_segment {
    size_t offset;
    size_t size;
    bool from_template;
} template_segment;

// The result of a render. Zero it before use; a second render reuses its memory. One owning thread.
typedef struct template_output {
    buffer text;
    template_segment *segments;
    size_t segment_count;
    size_t segment_capacity;
    template_fault fault;
} template_output;

void template_output_close(template_output *output);

// What a render sees. Nothing here is changed or kept.
typedef struct template_context {
    // A JSON object: the variables. May be NULL.
    json_t *variables;
    // A JSON array, or NULL: strings that count as markup wherever the variables hold the very same
    // json_t (not an equal one). For bos_token, eos_token and the names of roles that were checked.
    json_t *markup;
    // The same for strings that stand for integers beyond 64 bits, as their digits (json_wide.h).
    json_t *integers;
    int64_t now_s; // seconds since 1970-01-01 UTC, for strftime_now (in UTC)
} template_context;

// Render into `output` (which is emptied first). Errors: STATUS_INVALID (see output->fault),
// STATUS_TOO_LARGE (a limit), STATUS_NO_MEMORY. The error's text names the line of the template,
// except for TEMPLATE_FAULT_RAISED, where it is the template's own message.
status template_render(const template *t, const template_context *context,
                       const template_limits *limits, template_output *output, error *failure);

// True if the template reads a variable, attribute or string constant spelt `name`.
bool template_mentions(const template *t, const char *name);
