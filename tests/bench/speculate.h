// What the parts of penstock-bench speculate share: a case served twice at once, with guesses and
// without, and what came of it.
#pragma once

#include "decode_worker/speculate/speculation.h"
#include "text/encoder.h"

#define SPECULATE_BATCH_MAX 64

typedef struct speculate_prompt {
    char *name;
    token_list tokens;
    int max_tokens;
} speculate_prompt;

// What is served: `batch` sequences of prompts[0..prompt_count) in turn, the i-th with seed i + 1.
typedef struct speculate_work {
    const speculate_prompt *prompts;
    int prompt_count, batch;
    double temperature;
} speculate_work;

// What one side did behind the first token of its last sequence.
typedef struct speculate_side {
    double seconds;  // of its turns
    double tokens;   // drawn
    double steps;    // in all
    double on_steps; // of these with guesses
    double on_us;    // that those took
    double drafted;  // tokens that they guessed
    double plain_us; // that the other steps took
    uint64_t text;   // hash of all tokens from the first on
} speculate_side;

// Sums over pairs of turns, for the error of the ratio of their sums.
typedef struct speculate_turns {
    double count, with, without, with_squares, without_squares, products;
} speculate_turns;

typedef struct speculate_pair {
    speculate_side with, without;
    speculate_turns turns; // seconds
    double accepted, rejected;
    double drafting_us; // that the small model took; with.on_us is without it
} speculate_pair;

// Serve the work once with guesses alone, so that they learn from it.
void speculate_serve(engine *e, speculation *s, const speculate_work *w);

// Serve it with guesses and without, in short turns about the same tokens, ABBA, so that whatever
// else the machine does befalls both, and add what came of it to `pair`. The engine has room for
// twice the batch, and `rewinds`, so that a side rests for the turns of the other.
void speculate_serve_pair(engine *e, speculation *s, const speculate_work *w, speculate_pair *pair);

// How many times as fast it was with guesses, and the standard error of that.
double speculate_ratio(const speculate_pair *pair, double *deviation);

// ---- what is printed ----------------------------------------------------------------------------

// One line of the table. Costs are in plain steps: the mean one of the side without guesses.
typedef struct speculate_row {
    const char *name, *drafter;
    int batch;
    double temperature;
    int fixed; // 0: the controller's choice
    double rate, plain_rate, ratio, error;
    double alpha, share; // right ones of those that were verified to be right or wrong, and of all
    double step_tokens, g; // drawn and guessed, by sequence and step
    double on;             // share of steps with guesses
    double draft_cost;     // c: a guessed token of each sequence
    double verify_cost;    // v: a step with guesses, without making them
    double predicted;      // what alpha, c and v say the gain of such a step is
} speculate_row;

// From what was measured; name, drafter, batch, temperature and fixed are the caller's.
void speculate_row_fill(speculate_row *row, const speculate_pair *pair);
void speculate_heads_print(void);
void speculate_row_print(const speculate_row *row, bool json);
// rows[0] is the controller's, the others are of fixed numbers: which of these gained most, and
// whether the controller's mean is within one of it, or of one whose gain is within the standard
// error of the best. Nothing where there are no others.
void speculate_best_print(const speculate_row *rows, int count, bool json);

// The rows as a picture: gain by the number of guesses, an SVG file (chart.h). Rows of one case lie
// together.
void speculate_plot(const speculate_row *rows, int count, buffer *out);
