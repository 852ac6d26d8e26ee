// The seed of a random test: PENSTOCK_SEED, or one that the system draws. How to replay it is
// printed, before anything that can fail.
#pragma once

#include "base/random.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

static inline uint64_t seed_choose(void)
{
    const char *given = getenv("PENSTOCK_SEED");
    uint64_t seed = given ? strtoull(given, NULL, 10) : random_system();
    print_message("replay with PENSTOCK_SEED=%llu\n", (unsigned long long)seed);
    return seed;
}

// For facts that hold with a high probability only, not for every seed: always the same, unless
// PENSTOCK_CHANCE_SEED names another.
static inline uint64_t seed_of_chance(void)
{
    const char *given = getenv("PENSTOCK_CHANCE_SEED");
    return given ? strtoull(given, NULL, 10) : 0;
}
