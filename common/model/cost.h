// How long a step will take: a line through what steps took so far.
//
// A step costs a constant (every weight is read once), so much per row, so much per cached token
// that its answers read and so much per pair of prompt row and cached token. The four prices
// follow the measured steps by recursive least squares with forgetting in its information form
// (Simon, Optimal State Estimation, ch. 6), so they fit the machine and the model without a table
// of constants. A step makes only the prices older that it pays: what prompts cost is not forgotten
// while none come. Step thread; no memory is taken.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#define COST_TERMS 4

// The work of one step.
typedef struct cost_work {
    double rows;           // tokens computed
    double decode_context; // cached tokens, summed over the answers
    double prompt_pairs;   // rows of prompts times the cached tokens of each
} cost_work;

typedef struct cost_model {
    double price[COST_TERMS];             // milliseconds for one unit of each term
    double known[COST_TERMS][COST_TERMS]; // information: how sure the prices are
    int64_t steps;                        // measured
} cost_model;

void cost_begin(cost_model *m);
// A step with this work took so long. A single step counts for at most twice what was predicted:
// somebody else may have had the processor.
void cost_learn(cost_model *m, const cost_work *work, double duration_us);
// Microseconds; 0 before enough steps were measured.
double cost_predict(const cost_model *m, const cost_work *work);
// How many rows of a prompt with `context` cached tokens fit into a step beside `work` so that it
// is predicted to end within `limit_us`, at most `rows_max`; rows_max where nothing is known yet.
int32_t cost_rows(const cost_model *m, const cost_work *work, double context, double limit_us,
                  int32_t rows_max);
