// penstock-bench: measures the engine, the hand-off and a running server. One JSON object a line on
// standard output with
// --json, else a short table; progress and errors on standard error. Each sub-command is one file;
// main.c holds the table.
#pragma once

#include "percentile.h"

// Run a sub-command; argv[0] is its name. Returns the exit status.
int bench_engine(int argc, char **argv);
int bench_handoff(int argc, char **argv);
int bench_serve(int argc, char **argv);

// Seconds of the monotonic clock.
double bench_now(void);
