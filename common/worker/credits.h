// How a worker's credits are divided among its routers: by their use, a quarter of an equal part
// kept for each.
//
// Parts are counted in CREDITS_WHOLE-ths of what the worker has. A router whose requests fill its
// part gets more of it from those that leave theirs empty. What one loses is given to others only
// a round later, when it has heard of it. Pure functions.
#pragma once

#include <stdint.h>

#define CREDITS_WHOLE 65536u

typedef struct credits_part {
    uint32_t used; // by requests of this router
    uint32_t told; // its part, as it was told last
} credits_part;

// One round. `whole` is what there is to divide, at most CREDITS_WHOLE. Parts that change by less
// than a thirty-second of the whole stay as they are. The sum of `told` does not pass `whole` where
// it did not before.
void credits_divide(uint32_t whole, credits_part *parts, int count);
// A part of a number; at least 1 where the number is.
uint64_t credits_of(uint64_t number, uint32_t part);
