// Percentiles of measured values, for penstock-bench and penstock-eval.
#pragma once

#include <stddef.h>

// The p-th percentile (0..100) of `count` values, which are sorted in place; NaN where there are
// none.
double bench_percentile(double *values, size_t count, double p);
