// Inside speculation: its state, shared by speculation.c (open, slots, what it tells) and
// speculation_step.c (guessing and learning). Nobody else includes this.
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
    draft draft;
} guess_offer;

struct speculation {
    const speculation_settings *settings;
    int32_t slot_count, draft_tokens;
    void *texts[TEXTS];      // drafters; NULL: off
    draft_model *model;      // NULL: none
    guess_slot *slots;       // [slot_count]
    guess_offer *step;       // [slot_count] of the step under way
    offer *offers;           // [slot_count]
    draft_request *requests; // [slot_count]
    int32_t step_count;
    int batch; // bucket of the step
    bool guessed, probing;
    size_t weight_bytes; // of the model that is served
    cost_curve cost;
    double context_us;  // of the last step
    double drafting_us; // that the small model took for the step under way
    ledger ledgers[2]
                  [LEDGERS]; // of texts and of the model, by rows without guesses: 1, 2 and 3, ...
    bool modelled;           // the small model guessed for the step under way
    uint64_t since_probe, since_plain; // steps
    int32_t probe_length;              // of the next probe: 1, 2, 4, 8 in turn
    acceptance all[SPECULATION_DRAFTERS][DRAFT_BANDS], total[SPECULATION_DRAFTERS];
    acceptance buckets[SPECULATION_DRAFTERS][DRAFT_BANDS][SEQUENCE_CLASSES][TEMPERATURES][BATCHES];
    speculation_stats stats;
};

// What the controller must know of a step of `rows` rows.
step_facts speculation_facts(const speculation *p, int32_t rows);
