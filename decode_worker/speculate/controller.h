// How many tokens to guess: arithmetic alone, no engine and no clock.
//
// A guess pays where the tokens that it is expected to bring are worth more than the time that its
// rows add to the step. Both sides are measured:
//
//   acceptance  alpha = A / (A + R): A guessed tokens that were drawn, R guesses that ended with
//               one that was not. What stands behind the first wrong token says nothing and is not
//               counted, so that alpha is the maximum-likelihood estimate of a geometric law that
//               was cut off, unlike accepted/drafted. Older outcomes count less.
//   cost        microseconds of a step by its rows, as steps took them.
//
// With a chain of g guesses of chance alpha a sequence draws 1 + alpha + ... + alpha^g tokens
// (Leviathan, Kalman, Matias 2023, "Fast inference from transformers via speculative decoding");
// the best g of all sequences together has the largest sum of these over the predicted time of the
// step.
#pragma once

#include "decode_worker/speculate/drafter.h"

// ---- acceptance -------------------------------------------------------------------------------

typedef struct acceptance {
    double accepted, rejected; // sums of outcomes, each times `keep` per later outcome
    double keep;               // 1 - 1/n: about n outcomes count
} acceptance;

acceptance acceptance_begin(double outcomes);
// Of `drafted` guessed tokens the first `accepted` were drawn.
void acceptance_add(acceptance *a, int32_t drafted, int32_t accepted);
// The estimate, drawn towards `prior` as if `weight` outcomes had it.
double acceptance_alpha(const acceptance *a, double prior, double weight);
// Where alpha lies with 95 %: Wilson's interval. Of nothing known: 0 to 1.
void acceptance_interval(const acceptance *a, double *low, double *high);

// ---- cost -------------------------------------------------------------------------------------

#define COST_ROWS_MAX 128

// The time of a step without prompts, by its rows.
typedef struct cost_curve {
    double us[COST_ROWS_MAX + 1];    // smoothed
    double count[COST_ROWS_MAX + 1]; // measurements that stand behind it; 0: unknown
    // The nearest curve that never falls with more rows: few measurements that were slow by chance
    // give way to many of more rows.
    double fitted[COST_ROWS_MAX + 1];
} cost_curve;

// A step of `rows` rows took so long. More than twice what was expected counts as twice: somebody
// else had the processor.
void cost_curve_add(cost_curve *c, int32_t rows, double us);
// How many measurements stand behind a step of exactly so many rows.
double cost_curve_count(const cost_curve *c, int32_t rows);
// Whether steps of about so many rows (a sixteenth more or less) were measured a few times.
bool cost_curve_knows(const cost_curve *c, int32_t rows);
// How many rows a step of `rows` rows may be widened to at most: an eighth beyond it, or twice as
// far as the widest measured step is beyond it. Costs farther out are guesses, and a crowd that
// finds them wrong loses much in one step.
int32_t cost_curve_reach(const cost_curve *c, int32_t rows);
// Microseconds: measured, or between measured neighbours; above the last one the slope of the
// measured ones goes on, and where only one is known every further row costs as much as that step's
// row. 0 where nothing is known. It never falls with more rows.
double cost_curve_us(const cost_curve *c, int32_t rows);

// ---- what came of it --------------------------------------------------------------------------

// What a step gained by its guesses, in steps without: it drew `tokens` in `us`, where one without
// draws `rows` in `plain_us`. No loss is more than 1.
double controller_gained(int32_t rows, double plain_us, double tokens, double us);

// What steps with guesses gained, and how many without would have drawn as much; each counts less
// with every later one. A guard against costs and chances that were thought wrong.
typedef struct ledger {
    double gained, steps;
} ledger;

void ledger_add(ledger *l, double gained, double steps);
// Whether guesses have lost more than they may by chance.
bool ledger_loses(const ledger *l);
// A step passed without them: what was lost is slowly forgiven, so that they are tried again.
void ledger_forgive(ledger *l);

// What may be lost by finding out whether guesses pay, in plain steps: a share of all steps, and
// what guesses gained of late.
typedef struct allowance {
    double steps;
} allowance;

#define ALLOWANCE_FIRST 0.5 // of a worker that has just begun
#define ALLOWANCE_MOST 2.0  // that is saved up
#define ALLOWANCE_DEBT 4.0  // that is remembered

// A step passed, of which `percent` may be lost.
void allowance_earn(allowance *a, double percent);
// Guesses gained so much (< 0: lost).
void allowance_add(allowance *a, double steps);

// Which steps may try something that is not expected to gain: at most `percent` of all (0..100),
// and PROBES_FIRST more, so that costs are known soon.
typedef struct probes {
    int64_t left; // that may be made, each PROBE_PRICE
    int64_t due;  // of the next one, PROBE_PRICE or more when it is
} probes;

typedef enum probe_pace {
    PROBE_USUAL,   // one as soon as it was earned
    PROBE_UNKNOWN, // every 16 steps if the percentage is less than that: its cost is not known
    PROBE_HOPELESS // 8 times as seldom: what is known of its cost says that nothing can come of it
} probe_pace;

#define PROBES_FIRST 16 // and so many are saved up at most
#define PROBE_PRICE 1600

probes probes_begin(void);
// A step passed, whatever it did.
void probes_earn(probes *b, int64_t percent);
// This step could be a probe: whether it may be.
bool probes_due(probes *b, int64_t percent, probe_pace pace);
void probes_spend(probes *b);

// ---- choice -----------------------------------------------------------------------------------

// One sequence's offer: so many guessed tokens, each right with this chance if those before it are.
typedef struct offer {
    double alpha;
    int32_t count; // tokens that could be guessed, at most DRAFT_MAX
    bool drafted; // by the draft model, if they are chosen: all sequences' next tokens in one round
    int32_t chosen; // the result
} offer;

// The step that guesses may be added to.
typedef struct step_facts {
    int32_t rows;            // without guesses
    int32_t room;            // guesses in all, at most
    double fixed_us;         // time that does not change with rows and is not in the curve
    double limit_us;         // no step is predicted to take longer; 0: no limit
    double margin;           // guesses that gain less are not made: 0.02 is 2 %
    const cost_curve *draft; // a round of the draft model by its sequences; NULL: there is none
    double draft_share;      // until that is known: the part of a step of as many rows
    int32_t sharers;         // a round is counted as part of one of so many sequences, at least
} step_facts;

// Microseconds of a round of the draft model for so many sequences, and of all rounds that are
// chosen.
double controller_round_us(const cost_curve *c, const step_facts *step, int32_t sequences);
double controller_rounds_us(const cost_curve *c, const step_facts *step, const offer *offers,
                            int32_t count);

// What the offer would gain if it were the only one: 1 where it gains nothing.
double controller_gain(const cost_curve *c, const step_facts *step, const offer *o);

// Choose `chosen` of each offer so that tokens per second of the step are highest. Returns the
// predicted gain: 1 where nothing was chosen.
double controller_choose(const cost_curve *c, const step_facts *step, offer *offers, int32_t count);

// Multiply what was chosen to the next power of two, as far as offers and limits allow, of which it
// is not known what so many rows cost: the best number may lie beyond a few that do not pay. False:
// it is known, and nothing changes.
bool controller_widen(const cost_curve *c, const step_facts *step, offer *offers, int32_t count);

// The alpha from which g guesses for each sequence of the step gain as much as the margin asks:
// break-even. 1 where none does, 0 where the cost is unknown.
double controller_break_even(const cost_curve *c, const step_facts *step, int32_t g, bool drafted);
