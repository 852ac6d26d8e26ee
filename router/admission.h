// Who waits for room, in which order, and when a refused client may come again: pure functions over
// numbers that the dispatcher keeps. No clock, no network, no state.
//
// There are two classes, interactive and batch, each with a limit of waiting requests and a share
// of the workers' credits that it may hold. All requests stand in one line, by the moment of their
// arrival; a batch request stands where an interactive one stands that came `batch_delay` later, so
// interactive ones pass it and it is never starved. A request that finds no room lets others pass
// for `patience`; then the worker where it will fit first is kept free for it (policy_reserve).
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum admission_class {
    ADMISSION_INTERACTIVE,
    ADMISSION_BATCH,
    ADMISSION_CLASSES
} admission_class;

const char *admission_class_name(admission_class class); // "interactive", "batch"

// Place in the line: smaller is served first.
uint64_t admission_order(admission_class class, uint64_t arrived_us, uint64_t batch_delay_us);

// Whether a class that holds `held` of `granted` may take `wanted` more with this share of them
// (0 to 1). A class that holds nothing may take whatever there is, so that a small share does not
// shut it out.
bool admission_share_allows(double share, uint64_t granted, uint64_t held, uint64_t wanted);

// How fast requests leave the line, measured only over windows in which somebody waited all the
// time: otherwise it would tell how fast they come. A zeroed one is at the beginning.
typedef struct admission_rate {
    uint64_t window_us; // when the window began; 0: not yet
    uint64_t left;      // requests that left the line in it
    bool idle;          // the line was empty at some moment of it
    double per_s;       // smoothed; 0: not known
} admission_rate;

void admission_rate_left(admission_rate *r, size_t waiting_after);
// A few times a second.
void admission_rate_tick(admission_rate *r, uint64_t now_us, size_t waiting);

// Seconds until `ahead` requests have left the line; negative: not known.
double admission_wait_s(const admission_rate *r, size_t ahead);
// The value of Retry-After: those seconds, rounded up, from 1 to 60; 2 where nothing is known.
int admission_retry_after(const admission_rate *r, size_t ahead);
