// penstock-eval: the quality of a model's answers, measured on the operator's own text and
// questions. Results on standard output (with --json one JSON object a line), progress and errors
// on standard error. Each sub-command is one file, command_*.c; options.c holds their options,
// main.c their table.
#pragma once

#include "eval/options.h"

// Run a sub-command. On failure `failure` holds one sentence.
status eval_perplexity(const eval_options *o, error *failure);
status eval_compare(const eval_options *o, error *failure);
status eval_choices(const eval_options *o, error *failure);
status eval_table(const eval_options *o, error *failure);
