// Counters, gauges and histograms, and their Prometheus text.
//
// A metric is declared once in a table (name, kind, help, label names, buckets) and its series are
// created by `metrics_series` at start or when a peer joins; a series is then updated with relaxed
// atomics from any thread. The number of series is bounded: past METRICS_SERIES_MAX a metric folds
// into one series whose labels are "other". Label values never come from clients. Names and units
// follow the Prometheus conventions (penstock_ prefix, _total, _seconds, _bytes).
#pragma once

#include "base/buffer.h"
#include "base/status.h"

typedef enum metrics_kind { METRICS_COUNTER, METRICS_GAUGE, METRICS_HISTOGRAM } metrics_kind;

#define METRICS_LABELS_MAX 4
#define METRICS_BUCKETS_MAX 24
#define METRICS_SERIES_MAX 512 // per metric

typedef struct metrics_spec {
    const char *name;
    metrics_kind kind;
    const char *help;
    const char *labels[METRICS_LABELS_MAX]; // NULL-ended
    const double *buckets;                  // histogram: upper bounds, ascending, without +Inf
    size_t bucket_count;
} metrics_spec;

typedef struct metrics metrics;               // a registry
typedef struct metrics_series metrics_series; // one time series, until dropped or its registry ends

// A registry for `count` specs, whose memory must outlive it. A spec that breaks the conventions (a
// counter without _total, buckets out of order) ends the process: the table is part of the program.
// A metric without labels has its one series from the start; others appear when a series is first
// asked for.
status metrics_open(const metrics_spec *specs, size_t count, metrics **opened);
void metrics_close(metrics *m);
// The series of spec number `index` with these label values (as many as the spec has labels; NULL
// for none). Takes a lock: not for the step path. Never NULL: without memory or past the limit it
// is the folded series.
metrics_series *metrics_series_of(metrics *m, size_t index, const char *const *label_values);
// Drop a series whose peer has gone (gauges of a worker); its counter history goes with it. The
// caller promises that nobody updates it any more: its memory is freed.
void metrics_series_drop(metrics *m, size_t index, const char *const *label_values);

void metrics_add(metrics_series *s, double amount);    // counter (0 or more) or gauge
void metrics_set(metrics_series *s, double value);     // gauge
void metrics_observe(metrics_series *s, double value); // histogram
double metrics_value(const metrics_series *s);         // histogram: the sum

// The sum over the series with these label values; NULL in place of one stands for any. Takes the
// lock.
double metrics_total(metrics *m, size_t index, const char *const *label_values);

// Append the whole registry in the text exposition format 0.0.4.
void metrics_render(metrics *m, buffer *out);
// Append the table of `count` specs in Markdown, a row each: name, type, labels, help. A page for
// people holds it, and a test compares the two.
void metrics_describe(const metrics_spec *specs, size_t count, buffer *out);

// Bounds for latencies in seconds: 1 ms to 120 s.
extern const double metrics_latency_buckets[];
extern const size_t metrics_latency_bucket_count;
