// How a model answers multiple-choice questions.
//
// A choice's score is the log-likelihood of its tokens behind the prompt. Prompt and choice are
// encoded together, since a token may reach across the seam: what all choices of a question share
// from the beginning is the context, the rest is scored. The model's answer is the choice with the
// highest score; normalised, that with the highest score per byte of the choice (long choices are
// less likely whatever they say). The first wins among equals. The interval is Wilson's (1927) at
// 95 %. One thread.
#pragma once

#include "eval/questions.h"
#include "eval/subject.h"

typedef struct choices_score {
    int count, correct, correct_by_bytes;
    double chance; // expected share of right answers when guessing
} choices_score;

typedef struct choices_answer {
    const question *question;
    int chosen, chosen_by_bytes;
} choices_answer;
typedef void choices_take(void *context, const choices_answer *answer);

// Tokens of the longest question with a choice, BOS included: the context that `s` must be loaded
// with. The failure reads "FILE:LINE: " and a sentence where one does not fit the model.
status choices_context(const subject *s, const char *name, const question_list *list,
                       int32_t *context, error *failure);
// Answer all of them; `take` (or NULL) hears of each. Shows progress. STATUS_NUMERIC names a model
// whose logits are no numbers.
status choices_run(const subject *s, const question_list *list, choices_take *take,
                   void *take_context, choices_score *score, error *failure);

typedef struct choices_interval {
    double low, high;
} choices_interval;
choices_interval choices_wilson(int correct, int count);
