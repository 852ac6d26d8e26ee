// penstock-bench: measures the engine, the hand-off, a running server and the tokenizer. One JSON
// object a line on standard output with
// --json, else a short table; progress and errors on standard error. Each sub-command is one file;
// main.c holds the table.
#pragma once

#include "percentile.h"

#include <stdbool.h>

// Run a sub-command; argv[0] is its name. Returns the exit status.
int bench_batching(int argc, char **argv);
int bench_chunks(int argc, char **argv);
int bench_engine(int argc, char **argv);
int bench_handoff(int argc, char **argv);
int bench_serve(int argc, char **argv);
int bench_interfere(int argc, char **argv);
int bench_speculate(int argc, char **argv);
int bench_tokenizer(int argc, char **argv);

// Seconds of the monotonic clock.
double bench_now(void);
// A list such as "1,8,32" of at most `capacity` numbers, each from `low` to 2^20; 0: it is none.
int bench_list(const char *text, int low, int *values, int capacity);
// One such number; false (and a sentence on standard error): it is none.
bool bench_number(const char *text, int low, int *value);
