// Inside speculation: its state, shared by speculation.c (open, slots), speculation_step.c
// (guessing and learning) and speculation_tell.c (what it tells). Nobody else includes this.
#pragma once

#include "decode_worker/speculate/speculation.h"

#define TEXTS 2 // drafters that only look at texts; their guesses cost nothing
#define MODEL TEXTS
#define TEMPERATURES 3
#define BATCHES 3
#define LEDGERS 7

extern const drafter_kind *const speculation_texts[TEXTS];

typedef struct guess_slot {
    bool used;
    sequence_class class;
    int temperature;                   // bucket
    int only;                          // drafter; -1: any
    acceptance bands[DRAFT_BANDS + 1]; // of texts' guesses by band, and of the model's
    int32_t guesses[DRAFT_BANDS + 1];  // that ended, of each
} guess_slot;

// What was offered for an item of the step.
typedef struct guess_offer {
    speculation_item item;
    int drafter;   // -1: none
    int32_t could; // tokens that it may guess, whether that pays or not
    int32_t given; // tokens that the engine took
    bool lost;     // its ledger says that guesses lose
    bool dear;     // the draft model would have to catch up with more than may be lost
    guess_state state;
    draft draft;
} guess_offer;

// What is told of the answers of one class. Sums: with each step what was before counts less.
typedef struct guess_tale {
    int32_t step[GUESS_STATES];                    // answers of the step under way
    double late[GUESS_STATES], soon[GUESS_STATES]; // about 1,000 and 32 steps
    double us, answers, tokens, gained;            // about 1,000
    acceptance outcomes[SPECULATION_DRAFTERS];
    double expected[SPECULATION_DRAFTERS]; // alpha of what is offered; 0: nothing was
    double used[SPECULATION_DRAFTERS], below[SPECULATION_DRAFTERS]; // offers, about 32 steps
    double below_alpha[SPECULATION_DRAFTERS]; // of those below break-even; 0: there were none
    double below_us[SPECULATION_DRAFTERS];
} guess_tale;

struct speculation {
    const speculation_settings *settings;
    int32_t slot_count, draft_tokens;
    void *texts[TEXTS];      // drafters; NULL: off
    draft_model *model;      // NULL: none
    char model_name[64];     // for people
    guess_slot *slots;       // [slot_count]
    guess_offer *step;       // [slot_count] of the step under way
    offer *offers;           // [slot_count]
    draft_request *requests; // [slot_count]
    int32_t step_count;
    int batch; // bucket of the step
    bool guessed, probing;
    size_t weight_bytes; // of the model that is served
    cost_curve cost;
    double context_us;          // of the last step
    double drafting_us;         // that the small model took for guesses of the step under way
    ledger ledgers[2][LEDGERS]; // of texts and the model, by rows without guesses: 1, 2 to 3, ...
    bool modelled;              // the small model guessed for the step under way
    allowance allowance;        // for credit, probes, and prompts of the small model
    double limit_us;            // of the step under way; 0: none
    probes probes;              // steps that may be such, and those that try wider guesses
    int32_t probe_length;       // of the next probe: 1, 2, 4, 8 in turn
    uint64_t since_plain;       // steps
    acceptance all[SPECULATION_DRAFTERS][DRAFT_BANDS];
    acceptance buckets[SPECULATION_DRAFTERS][DRAFT_BANDS][SEQUENCE_CLASSES][TEMPERATURES][BATCHES];
    guess_tale tales[SEQUENCE_CLASSES];
    double batch_mean; // of about 32 steps
    speculation_stats stats;
};

// What the controller must know of a step of `rows` rows.
step_facts speculation_facts(const speculation *p, int32_t rows);

// ---- speculation_tell.c -----------------------------------------------------------------------

void speculation_tell_begin(speculation *p);
// What the answers of the coming step are in: all beside prompts, or as was chosen and given.
void speculation_tell_prompts(speculation *p, const speculation_item *items, int32_t count);
void speculation_tell_step(speculation *p, const step_facts *facts, bool plain);
// Of `drafted` tokens that a drafter guessed for an answer the first `accepted` were drawn.
void speculation_tell_outcome(speculation *p, sequence_class class, int drafter, int32_t drafted,
                              int32_t accepted);
// The step is done.
void speculation_tell_report(speculation *p, const engine_report *report);
