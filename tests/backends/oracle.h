// The oracle: every operation as the plainest loop in double precision, on plain arrays. It knows
// no tiles, no pages and no threads.
#pragma once

#include "compute/backend.h"

// y[columns] = x / sqrt(mean(x^2) + epsilon) * norm; norm NULL: y = x.
void oracle_norm(const float *x, const float *norm, float epsilon, int columns, double *y);
// Sum over i of w[row][i] * x[i], and of the absolute values of its terms.
double oracle_dot(const tensor_view *w, int64_t row, const double *x, double *magnitude);
// The most that rounding x to 8 bits per block of 32 can change that sum: half a step of the
// block's scale times the weights' magnitudes.
double oracle_rounding(const tensor_view *w, int64_t row, const double *x);
// x[0..dims) of one head, rotated.
void oracle_rotate(double *x, const backend_rope *rope, int position);
// out[size] = softmax(scale * q.k) v over first <= t <= position; k and v are [tokens][size].
void oracle_attend(const double *q, const double *k, const double *v, int first, int position,
                   int size, double scale, double *out);
double oracle_silu(double x);
double oracle_gelu(double x); // its tanh form
// The distribution of backend_sample's steps: probabilities[vocabulary], 0 for what is not kept.
void oracle_distribution(const float *logits, const backend_sample *s, double *probabilities);
