#include "eval/choices.h"
#include "eval/eval.h"
#include "eval/line.h"

#include <stdio.h>

// A line for each question, so that models can be compared question by question.
static void answer_print(void *context, const choices_answer *a)
{
    error failure;
    (void)context;
    line_print(json_pack("{s:s,s:i,s:i,s:i,s:i}", "what", "answer", "line", a->question->line,
                         "answer", a->question->answer, "chosen", a->chosen, "chosen_by_bytes",
                         a->chosen_by_bytes),
               &failure);
}

static status score_print(const eval_options *o, const subject *s, const choices_score *score,
                          error *failure)
{
    double n = score->count;
    choices_interval plain = choices_wilson(score->correct, score->count);
    choices_interval by_bytes = choices_wilson(score->correct_by_bytes, score->count);
    if (o->json)
        return line_print(json_pack("{s:s,s:s,s:s,s:i,s:f,s:f,s:[f,f],s:f,s:[f,f]}", "what",
                                    "choices", "model", s->file, "kv_type", s->name.kv_type,
                                    "questions", score->count, "chance", score->chance, "accuracy",
                                    score->correct / n, "interval", plain.low, plain.high,
                                    "accuracy_by_bytes", score->correct_by_bytes / n,
                                    "interval_by_bytes", by_bytes.low, by_bytes.high),
                          failure);
    printf("%s, kv %s\n", s->file, s->name.kv_type);
    printf("  questions             %d, %.1f %% right by chance\n", score->count,
           100 * score->chance);
    printf("  accuracy              %.1f %% (95 %%: %.1f to %.1f)\n", 100 * score->correct / n,
           100 * plain.low, 100 * plain.high);
    printf("  normalised by bytes   %.1f %% (95 %%: %.1f to %.1f)\n",
           100 * score->correct_by_bytes / n, 100 * by_bytes.low, 100 * by_bytes.high);
    fflush(stdout);
    return STATUS_OK;
}

static status model_measure(const eval_options *o, const subject_name *name,
                            const question_list *list, error *failure)
{
    subject s = { 0 };
    choices_score score;
    int32_t context;
    status result;
    TRY(subject_open(name, &s, failure));
    TRY(choices_context(&s, o->set, list, &context, failure));
    TRY(subject_load(&s, context, o->threads, o->level, failure));
    TRY(choices_run(&s, list, o->json ? answer_print : NULL, NULL, &score, failure));
    TRY(score_print(o, &s, &score, failure));
fail:
    subject_close(&s);
    return result;
}

status eval_choices(const eval_options *o, error *failure)
{
    buffer bytes = { 0 };
    question_list list = { 0 };
    static subject_name names[SUBJECT_NAMES_MAX];
    int count;
    status result;
    TRY(subject_names(o, names, &count, failure));
    TRY(subject_file_read(o->set, &bytes, failure));
    TRY(questions_read(o->set, buffer_slice(&bytes), &list, failure));
    for (int i = 0; i < count; i++)
        TRY(model_measure(o, &names[i], &list, failure));
fail:
    questions_close(&list);
    buffer_close(&bytes);
    return result;
}
