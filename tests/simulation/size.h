// How large a cluster one router steers: the real router, a thousand workers that only speak, and
// clients at a constant rate.
//
// A worker here has no engine and no hand-off (a real one takes megabytes): it registers, sends
// heartbeats, reports the right tokens of each ticket after the time that they would take. What is
// measured is the router: the virtual time until everybody has joined and until requests are
// answered, the processor time of the router's own events, and the real time of all of it.
#pragma once

#include <stdint.h>

typedef struct size_plan {
    uint32_t workers, requests_per_s, seconds;
} size_plan;

// Prints a line for the joining and one for the steering; false where a request was not answered
// rightly or the joining took a minute.
int size_measure(const size_plan *plan, const char *model);
