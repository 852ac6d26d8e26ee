// Two places of one grammar: what tests try on one, they compare with the other.
#pragma once

#include "text/grammar_machine.h"

static inline void grammar_places_align(const grammar_place *from, grammar_place *to)
{
    CHECK(from->machine == to->machine);
    to->state = from->state;
}
