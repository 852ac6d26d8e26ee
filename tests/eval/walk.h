// The way through a text: windows of the model's context, each computed in chunks.
//
// Window k begins at text token k * stride. The model sees the BOS (where it has one) and then the
// window's text tokens, `context` tokens in all. A token is scored once, in the first window that
// holds it behind another token (the BOS counts): without overlap (stride = what a window holds)
// all tokens of a window but its first, which without a BOS has nothing before it; with overlap
// every token of the text but the first, each behind at least `context - stride` others from the
// second window on. The last window may be shorter: no token is left out.
// With one window of N tokens this is the mean over positions 1 to N - 1 of one context.
//
// Pure: no model. One thread.
#pragma once

#include "base/status.h"

#include <stdint.h>

typedef struct walk_plan {
    const int32_t *text; // [count] ids without BOS
    int32_t count;
    int32_t bos;     // an id, or negative: none
    int32_t context; // tokens of a window at most, BOS included
    int32_t stride;  // text tokens from a window to the next; 0: as many as a window holds
    int32_t windows; // at most; 0: all
    int32_t chunk;   // positions of a step at most
} walk_plan;

// The step that walk_next found: compute input[begin] to input[end - 1]; logits are wanted from
// position `first` on, and those at position p predict input[p + 1].
typedef struct walk {
    walk_plan plan;
    int32_t *input; // [context]
    int32_t begin, end, first;
    int32_t window;  // the present one, from 0
    int32_t length;  // of its input
    int32_t reached; // text tokens that windows before it held
} walk;

// STATUS_INVALID names a context below 2, or a stride that a window does not hold.
status walk_open(const walk_plan *plan, walk *w, error *failure);
void walk_close(walk *w);
// The next step with something to compute; false at the end.
bool walk_next(walk *w);
// Windows, and tokens that all of them score.
int64_t walk_count(const walk_plan *plan, int32_t *windows);
// The same walk without a limit on windows: the text ends where the last window does.
void walk_trim(walk_plan *plan);
