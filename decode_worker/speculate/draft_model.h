// Guesses by a small model with the vocabulary of the large one.
//
// It has an engine of its own, with its own pages, on the threads of the large one. It is another
// file, or the first layers of the large model itself (layer skip), whose weights it shares. Each
// sequence of the decode worker has a shadow there: the same request, so that both draw with the
// same noise and a guess is right wherever the small model's choice is the large one's. The
// shadow's prompt is computed piece by piece, while a seat waits for its pages or between steps;
// until then, and where no page is left for it, the sequence has no guesses from here. Before each
// guess the shadow is rewound to what the sequence really drew; one that is more than a piece
// behind takes that in like a prompt. Nobody's answer waits for a shadow: one that draws nothing
// is dropped, and guesses that take far longer than usual, what a shadow has to catch up with
// included, end with the step in which that shows. Step thread.
#pragma once

#include "decode_worker/speculate/controller.h"
#include "model/engine.h"

typedef struct draft_model draft_model;

// `settings` is the small model's engine; `served` is the large one's, which outlives it, and whose
// file is `path`. With settings->layers the small model is the beginning of the large one. Errors:
// engine_open's; STATUS_BAD_CONFIG where the vocabularies differ, with the first token that does.
status draft_model_open(const engine_settings *settings, const char *path, const engine *served,
                        draft_model **opened, error *failure);
void draft_model_close(draft_model *m); // NULL is allowed
const engine_facts *draft_model_facts(const draft_model *m);

// A sequence takes a slot (below the target's max_sequences) with this request, whose guide, if it
// has one, is the shadow's own until draft_model_end: it draws nothing that the grammar forbids.
// Where there is no room it has no shadow.
void draft_model_begin(draft_model *m, int32_t slot, const sequence_request *request);
void draft_model_end(draft_model *m, int32_t slot);

// What went wrong since open; no answer felt it.
typedef struct draft_model_troubles {
    uint64_t pages;   // sequences without a shadow, or whose shadow ended: no page, no room
    uint64_t failed;  // shadows that ended because their logits held no number
    uint64_t stalled; // times that guesses took too long; what was missing of them was left out
} draft_model_troubles;
const draft_model_troubles *draft_model_troubles_of(const draft_model *m);

// Compute one piece of a shadow's prompt; false: there is none to compute.
bool draft_model_work(draft_model *m);
// Whether the slot's sequence has a shadow, whose prompt may still be computed.
bool draft_model_has(const draft_model *m, int32_t slot);
// Whether guesses for the slot can be had now.
bool draft_model_ready(const draft_model *m, int32_t slot);

typedef struct draft_request {
    int32_t slot;          // that is ready
    const int32_t *tokens; // of the sequence so far
    int32_t count;
    int32_t limit; // tokens wanted, at most DRAFT_MAX
    draft *guess;  // filled; fewer tokens where the shadow ends or is far behind, or time is out
} draft_request;

// Guess for several sequences together: as many steps of the small model as the largest limit.
void draft_model_guess(draft_model *m, draft_request *requests, int32_t count);

// What a round took, in which each of so many sequences guesses one token.
const cost_curve *draft_model_cost(const draft_model *m);
// Tokens of a sequence of `count` that a ready shadow has not computed: it does so before its next
// guess.
int32_t draft_model_behind(const draft_model *m, int32_t slot, int32_t count);
