// What speculation knows of itself, as it is told to routers, on the worker's page, and in the log.
// Step thread.
#pragma once

#include "decode_worker/speculate/speculation.h"
#include "net/guesses.h"

// Fill `told`. Returns speculation_stats.troubles.
draft_model_troubles guesses_report(const speculation *p, guesses *told);

// Of which drafter and class the log was told that they stay below break-even.
typedef struct guesses_warned {
    bool warned[SEQUENCE_CLASSES][SPECULATION_DRAFTERS];
} guesses_warned;

// Write a line where what a drafter offers has been below break-even for a minute of steps, and one
// when answers go on with its guesses.
void guesses_warn(const speculation *p, guesses_warned *before);
