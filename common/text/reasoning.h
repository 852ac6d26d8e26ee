// What a model thinks before it answers: <think>...</think> at the beginning of an answer, told
// apart from the answer itself while the text comes in.
//
// A block is looked for only where nothing but white space came before, or where the prompt ended
// inside one (the template wrote the opening mark). White space that touches a mark is layout and
// is dropped. A block that is never closed is all thought. What comes out does not depend on how
// the text is cut into pieces. Plain data but for what it holds back; one thread.
#pragma once

#include "base/buffer.h"

typedef struct reasoning {
    int state;
    buffer held; // white space, and the beginning of a mark
} reasoning;

// Whether a chat template knows of such blocks.
bool reasoning_in_template(slice template_source);
// Whether a prompt ends inside a block: its last mark opens one.
bool reasoning_is_open(slice prompt);

// `opened`: the answer begins inside a block.
void reasoning_begin(reasoning *r, bool opened);
void reasoning_close(reasoning *r);
// Append what is certain to `thought` and `content`. False without memory.
bool reasoning_push(reasoning *r, slice arrived, buffer *thought, buffer *content);
bool reasoning_end(reasoning *r, buffer *thought, buffer *content);
