// The command line of penstock-eval: one table of options, of which each sub-command takes some.
#pragma once

#include "base/status.h"

#include <stdint.h>

#define EVAL_MODELS_MAX 16
#define EVAL_KV_TYPES_MAX 8

typedef struct eval_options {
    // "FILE" or "FILE,kv=TYPE" (subject_name_parse); NULL where not given.
    const char *models[EVAL_MODELS_MAX], *reference;
    int model_count;
    char kv_types[EVAL_KV_TYPES_MAX][16]; // of models that name none
    int kv_type_count;
    const char *text, *set, *reference_file, *save_reference, *csv, *svg;
    const char *level;
    int threads, context, stride, windows;
    int prompt, generate, depth, repeats;
    int pool_mib, sequence_tokens;
    bool no_speed, json;
} eval_options;

typedef enum eval_action { EVAL_RUN, EVAL_EXIT } eval_action;

// A sub-command takes the options whose letters are in `letters`; those of `needs` must be there.
typedef struct eval_usage {
    const char *name, *letters, *needs, *help;
} eval_usage;

// argv[0] is the sub-command's name. EVAL_EXIT: --help was printed.
status options_parse(const eval_usage *usage, int argc, char **argv, eval_options *o,
                     eval_action *action, error *failure);
