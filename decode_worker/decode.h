// The decode worker's part of a station: seats, and the tokens of its batch.
//
// A ticket with a prefill worker becomes a seat: the sequence takes its pages, all but the known
// prefix are promised to the hand-off, and when the last page and the record are in, it joins the
// batch. A ticket without one is computed here, in chunks between the steps of the others.
#pragma once

#include "decode_worker/speculate/speculation.h"
#include "worker/station.h"

// The `decode` section.
typedef struct decode_settings {
    bool recompute_failed_handoff; // else the router plans again
} decode_settings;

typedef struct decode_config {
    station_config station; // first: station_main reads it
    decode_settings decode;
    speculation_settings speculate;
} decode_config;

extern const config_program decode_program;
extern const station_role decode_role;
