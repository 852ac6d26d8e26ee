// Inside the parser of tool calls: what the machine needs to know of a format.
#pragma once

#include "text/tool_calls.h"

enum { TOOL_MARKS_MAX = 2 };

typedef struct tool_syntax {
    tool_layout layout;
    const char *open[TOOL_MARKS_MAX]; // opening marks; NULL: none
    const char *close;                // closing mark, which may be missing; NULL: none
    const char *separator;            // what may stand between a call and a bare one; NULL: nothing
    bool list;                        // a list of calls may stand behind the mark
    bool bare;            // calls may stand without a mark at the beginning of the answer
    bool mark_is_control; // open[0] is a control token of the family's vocabularies
} tool_syntax;

const tool_syntax *tool_syntax_of(tool_format format);
