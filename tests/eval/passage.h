// A text as one tokenizer sees it, and the walk of models through it.
#pragma once

#include "eval/options.h"
#include "eval/quality.h"
#include "eval/reference.h"
#include "eval/subject.h"
#include "eval/walk.h"

typedef struct passage {
    buffer bytes;
    token_list tokens;
    walk_plan plan; // over `tokens`, as the options say
    int32_t windows;
    int64_t scored; // tokens
} passage;

// Read o->text, which must be UTF-8, and encode it for `s`. The sentence names the option that does
// not fit.
status passage_open(const eval_options *o, const subject *s, passage *p, error *failure);
void passage_close(passage *p);

// One way through the text: where the reference's rows come from (at most one of `reference` and
// `stored`), where they go (`save` may be NULL), and the models that are measured against them.
typedef struct passage_run {
    walk_plan plan; // of the tokens of every model
    int64_t scored; // by it, for progress
    subject *reference;
    reference *stored, *save;
    quality *own;       // the reference's own likelihood goes here; NULL: not wanted
    subject **models;   // [count], loaded
    quality *qualities; // [count], opened
    int count;
} passage_run;

// Add every scored token to the qualities. Shows `what` and how far it is on a terminal.
// STATUS_NUMERIC names a model whose logits are no numbers.
status passage_walk(const passage_run *run, const char *what, error *failure);
// The positions that a walk needs room for in each model.
int32_t passage_context(const walk_plan *plan);
