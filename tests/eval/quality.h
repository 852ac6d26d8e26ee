// Sums over scored tokens: likelihood of the text, and distance of a model's distributions from a
// reference's.
//
// All in double precision over the whole vocabulary, without temperature; natural logarithms.
// NLL is -log p(token); KL(reference || model) = sum p_ref (log p_ref - log p), so that equal
// logits give exactly 0. Sources: Kullback and Leibler 1951; the standard error of a mean takes
// tokens for independent, which they are not quite: read it as a lower bound. One thread.
#pragma once

#include "base/status.h"

#include <stdint.h>

typedef struct quality {
    int32_t vocabulary;
    int64_t count; // scored tokens
    double bytes;  // that they stand for
    double nll, nll_squares;
    // Against a reference; only with room for its values.
    double *kl_values; // [kl_room] of each token
    int64_t kl_room;
    double kl, kl_squares;
    double gap, gap_squares; // gap: NLL minus the reference's, of each token
    int64_t top_same;        // tokens whose likeliest next token is the same
} quality;

typedef struct quality_mean {
    double mean, error; // standard error of the mean; 0 where there is only one value
} quality_mean;

// Room for `compared` tokens against a reference; 0: there is none.
status quality_open(quality *q, int32_t vocabulary, int64_t compared);
void quality_close(quality *q);

// The row of logits that predicts `token`, which stands for `bytes` bytes, and the reference's row
// at the same position (NULL: none).
void quality_add(quality *q, const float *logits, const float *reference, int32_t token,
                 size_t bytes);

quality_mean quality_nll(const quality *q);
quality_mean quality_gap(const quality *q); // paired: much narrower than that of the two NLLs
quality_mean quality_kl(const quality *q);
double quality_perplexity(const quality *q);
// Of the tokens' bytes: comparable between models with unlike tokenizers.
double quality_bits_per_byte(const quality *q);
double quality_bits_gap_error(const quality *q); // of its difference to the reference's, paired
double quality_top_share(const quality *q);      // 0..1
// The p-th percentile of KL, 0..100; sorts kl_values.
double quality_kl_percentile(quality *q, double p);
