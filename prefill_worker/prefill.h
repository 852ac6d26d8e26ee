// The prefill worker's part of a station: prompts in, pages out.
//
// At the ticket the transfer begins: the decode worker is connected to and its seat awaited, while
// the prompt is computed. The pages of a finished chunk leave when the seat is known; the last,
// partly filled page and the record follow the first token, which went to the router before.
#pragma once

#include "worker/station.h"

typedef struct prefill_config {
    station_config station; // first: station_main reads it
} prefill_config;

extern const config_program prefill_program;
extern const station_role prefill_role;
