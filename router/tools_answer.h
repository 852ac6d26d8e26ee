// What a chat model writes, told apart while it comes in: thought, text, and calls of functions.
//
// One for each sequence whose request asks for it; the stream pushes the text that has passed the
// stop strings. Writers of answers read what is new (thought, content, and of each call what is
// behind `told`), write it in their API's shape, and say tool_answer_taken. Plain data on the
// router's loop.
#pragma once

#include "router/tools.h"
#include "text/reasoning.h"

typedef struct tool_call {
    char id[32]; // "call_..." (nine letters and digits where templates of the format want that)
    buffer name, arguments;
    bool whole, broken;    // broken: its source is in the content; neither: it goes on
    bool begun;            // its head was taken
    size_t told;           // bytes of arguments that were taken
    size_t content_before; // bytes of the answer's content that were said before it
} tool_call;

typedef struct tool_answer {
    const tool_request *request;
    bool reasons;
    reasoning thinking;
    tool_parser *parser;
    buffer thought, content; // since the last take; thought was said before it
    buffer fresh;            // scratch
    tool_call *calls;
    size_t call_count, call_capacity, whole_count;
    bool enough; // the one call that was wanted is whole: what follows is dropped
    bool no_memory;
    uint64_t key; // random, for ids
} tool_answer;

// `reasons`: blocks of thought are told apart; `opened`: it begins inside one. `request` must
// outlive it. False without memory: there is nothing to close.
bool tool_answer_begin(tool_answer *a, const tool_request *request, bool reasons, bool opened);
void tool_answer_close(tool_answer *a); // zeroed is fine
// More text; true where the answer is over with it.
bool tool_answer_push(tool_answer *a, slice text);
// No more text comes. Once.
void tool_answer_end(tool_answer *a);
// Whether there is something that a chunk can tell.
bool tool_answer_has_news(const tool_answer *a);
void tool_answer_taken(tool_answer *a);

// OpenAI's shape. The members of a chunk's delta, the role where it is the `first`; and those of a
// whole message behind its role. reasoning_content is there where there is thought. Broken calls
// stay in a stream as they were begun, and their source follows as content; whole messages lack
// them.
void tool_answer_append_delta(const tool_answer *a, bool first, buffer *out);
void tool_answer_append_message(const tool_answer *a, buffer *out);
