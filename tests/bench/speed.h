// The speed of an engine alone: what penstock-bench engine and penstock-eval table measure.
//
// A speed owns an engine that is sized for the largest case of its plan. One thread. Each
// measurement stands for itself: it begins without cached prefixes.
#pragma once

#include "model/engine.h"

typedef struct speed speed;

// The largest case. Of `engine` the pool, the context and the step are set by speed_open.
typedef struct speed_plan {
    engine_settings engine; // its strings outlive the speed
    int prompt;             // tokens of a prefill
    int generate;           // tokens of each sequence of a decode
    int batch, depth;       // sequences, and tokens in the cache before, at most
} speed_plan;

// What was done and how long it took.
typedef struct speed_result {
    double seconds;
    double tokens;
    double weight_passes; // steps: each reads every weight once
    double kv_tokens;     // cached tokens that all steps read
    double logit_rows;
} speed_result;

// STATUS_CONTEXT_LENGTH where the model's context is shorter than the case; else as engine_open.
status speed_open(const speed_plan *plan, speed **opened, error *failure);
void speed_close(speed *s);
const engine *speed_engine(const speed *s);
// What engine_open took.
double speed_load_seconds(const speed *s);

// One prompt behind `depth` tokens that are in the cache already (in whole pages).
speed_result speed_prefill(speed *s, int depth);
// `generate` steps in which each of `batch` sequences, with `depth` tokens before, decodes one
// token and nothing else runs.
speed_result speed_decode(speed *s, int batch, int depth);
// The one of `repeats` (1..SPEED_REPEATS_MAX) such measurements that took the median time; batch 0:
// a prefill.
#define SPEED_REPEATS_MAX 32
speed_result speed_median(speed *s, int batch, int depth, int repeats);

// What a result must read (each weight once a step, each cached key and value once), and what it
// must multiply and add (matrices only): neither counts work that an engine adds.
double speed_bytes(const speed *s, const speed_result *result);
double speed_operations(const speed *s, const speed_result *result);
