// Speculative decoding of one decode worker: before each step guesses for the sequences that
// generate, behind it what they were worth.
//
// Each sequence has a slot. The drafters that are on guess for it; of guesses from texts the one
// with the better expected alpha is offered, or the draft model's where that gains more, and the
// controller chooses how many tokens of each offer are verified, so that the step's tokens per
// second are highest. Acceptance is learned for each drafter, band, class, temperature (0, up to
// 0.7, above) and batch (1, 2 to 7, above), and for each sequence; the time of a step by its rows
// is learned from the steps without prompts. Beside prompts nothing is guessed: their rows use what
// guesses would. Where guessing does not pay it stops, and now and then a step probes whether it
// does again; how many do (probes), and what that costs (allowance), is bounded. A sequence is
// offered few tokens until some were right.
//
// No answer depends on any of this (engine_sequence_draft). Step thread; memory is taken at open,
// and by slots when they are first used.
#pragma once

#include "decode_worker/speculate/draft_model.h"

typedef struct speculation speculation;

// The `speculate` section of a decode worker's configuration.
typedef struct speculation_settings {
    char *drafter;         // auto | off | ngram | suffix | model
    char *model;           // path of the draft model; "": none
    int64_t layers;        // the first so many of the served model are the draft model; 0: none
    uint64_t kv_bytes;     // of its pages
    int64_t prompt_tokens; // of a prompt that it computes between two steps
    int64_t tokens;        // guessed for one sequence in a step, at most
    int64_t probe_percent; // of the steps, those that try whether that pays, and of the time
    int64_t fixed;         // guess so many whether it pays or not (measurements); 0: as it pays
    int64_t step_us;       // no step of several sequences is predicted to take longer, or 1.4 times
                           // as long as without; 0: no limit
    int64_t step_batch_us; // the same where all are of the batch class
    int64_t memory_tokens; // past answers that the suffix drafter keeps
} speculation_settings;
extern const config_section speculation_config_section; // keys "speculate.*"

#define SPECULATION_DRAFTERS 3 // ngram, suffix, model
#define SPECULATION_SENTENCE_MAX 200

// What became of one answer in one step.
typedef enum guess_state {
    GUESS_ON,
    GUESS_PROBING, // guessed to see whether that pays again
    GUESS_BELOW,   // off: the guess at hand is below break-even
    GUESS_LOST,    // off: guesses seemed to pay, but of late they cost more than they brought
    GUESS_LIMIT, // off: the step would become longer than its limit, or has its engine.draft_tokens
    GUESS_PROMPTS,  // off: the step had rows of prompts
    GUESS_NONE,     // off: there was no guess
    GUESS_MEASURES, // off: what a step takes without guesses is not known, or measured again
    GUESS_PAGES,    // off: the draft model, or the guess, found no page
    GUESS_STATES
} guess_state;
// "on", "probing", "below_break_even", "lost", "limit", "prompts", "no_guess", "measuring", "pages"
const char *guess_state_name(guess_state state);

// What one drafter has done since open, for the answers of one class or of all.
typedef struct speculation_drafter {
    const char *name;
    const char *draft; // the draft model's name, or "its first 4 layers"; "": it guesses from texts
    uint64_t drafted, accepted, rejected; // tokens, tokens, guesses that ended with a wrong one
    uint64_t tried[DRAFT_MAX], right[DRAFT_MAX]; // by position in the guess
    double alpha, low, high;                     // now, and its interval of 95 %
    double outcomes;                             // that stand behind alpha, about 1,000 at most
    double expected;   // alpha of the guesses that it offers now; 0: it offered none yet
    double break_even; // alpha that it needs at the batch of now; 1: none is enough, 0: unknown
    double below_s;    // of a class: seconds of steps that what it offers has been below it
} speculation_drafter;

// Answers of one class. What is "of late" is so of about the last 1,000 steps.
typedef struct speculation_class {
    speculation_drafter drafters[SPECULATION_DRAFTERS];
    uint64_t rows[GUESS_STATES]; // answers, each counted in each of its steps
    double shares[GUESS_STATES]; // of these, of late; all 0: there were none
    double tokens_per_step;      // of an answer, of late
    double tokens_per_s;         // of all answers together, of late
    double gained_per_s;         // tokens_per_s beyond what steps without guesses would have drawn
    guess_state now;             // what most answers are in
    int drafter;                 // whose guesses decide that, or are at hand; -1: none's
    double alpha, break_even;    // of these guesses, and what they need; 0: unknown
} speculation_class;

typedef struct speculation_stats {
    speculation_drafter drafters[SPECULATION_DRAFTERS]; // for all classes
    speculation_class classes[SEQUENCE_CLASSES]; // of answers for which something may be guessed
    int drafter_count;                           // that are on
    uint64_t steps_on, steps_off;                // of steps that generated and had no prompts
    uint64_t steps_probing;                      // of steps_on
    uint64_t steps_prompts;                      // beside prompts
    double break_even;             // the alpha that guesses from texts need at the batch of now
    int32_t batch;                 // rows without guesses, mean of about 32 steps
    double gain;                   // predicted for the last step: 1 is none
    double on;                     // share of the last steps that had guesses, about 32
    draft_model_troubles troubles; // of the draft model
    uint64_t drafting_us;          // that the draft model took for guesses
} speculation_stats;

// `served` outlives it and was opened with `settings_served`. Errors: STATUS_NO_MEMORY, and
// draft_model_open's.
status speculation_open(const speculation_settings *settings,
                        const engine_settings *settings_served, const engine *served,
                        speculation **opened, error *failure);
void speculation_close(speculation *p); // NULL is allowed

// Whether the draft model may guess for sequences with this `drafter` (as of speculation_begin):
// only that needs a guide.
bool speculation_guided(const speculation *p, const char *drafter);
// A sequence with this request comes: its slot; -1 where nothing is guessed for it. A guide of the
// request is not the sequence's own but another one of its grammar, kept until speculation_end.
// `drafter` is the only one that may guess, "off" for none and "" for all.
int32_t speculation_begin(speculation *p, const sequence_request *request, const char *drafter);
// It goes, with these tokens. -1 is allowed.
void speculation_end(speculation *p, int32_t slot, const int32_t *tokens, int32_t prompt_count,
                     int32_t count);

// A sequence that generates.
typedef struct speculation_item {
    sequence *sequence;
    int32_t slot; // -1: it counts as a row of the step, and nothing is guessed for it
    sequence_class class;
} speculation_item;

// Compute a piece of a prompt that the draft model has not seen; false: there is none. For when the
// engine has nothing to do; speculation_guess does as much before each step.
bool speculation_work(speculation *p);

// Guess for the next step, in which `prompts` says that rows of prompts are computed too.
void speculation_guess(speculation *p, engine *e, const speculation_item *items, int32_t count,
                       bool prompts);
// That step is done. Its sequences are still open.
void speculation_learn(speculation *p, const engine_report *report);

void speculation_stats_of(const speculation *p, speculation_stats *stats);
// One sentence for people who need not know what alpha is: whether guesses are on, and why; of the
// class with the most answers, and of one class ("" where it had no answers).
void speculation_sentence(const speculation *p, char text[SPECULATION_SENTENCE_MAX]);
void speculation_class_sentence(const speculation_stats *stats, sequence_class class,
                                char text[SPECULATION_SENTENCE_MAX]);
