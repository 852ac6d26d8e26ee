#include "eval/choices.h"

#include "base/log.h"

#include <math.h>
#include <stdlib.h>

// One question as tokens: each choice behind the prompt and the BOS.
typedef struct sheet {
    const subject *subject;
    token_list tokens[QUESTION_CHOICES_MAX];
    int32_t shared; // tokens that all choices begin with
    buffer text;
    // While a choice is computed:
    const int32_t *scored;
    double likelihood;
} sheet;

static void sheet_close(sheet *s)
{
    for (int i = 0; i < QUESTION_CHOICES_MAX; i++)
        token_list_close(&s->tokens[i]);
    buffer_close(&s->text);
}

static int32_t shared_count(const token_list *a, const token_list *b)
{
    size_t i = 0;
    while (i < a->count && i < b->count && a->ids[i] == b->ids[i])
        i++;
    return (int32_t)i;
}

static status text_encode(sheet *s, slice prompt, slice choice, token_list *tokens, error *failure)
{
    tokens->count = 0;
    if (s->subject->bos >= 0 && !token_list_append(tokens, s->subject->bos))
        return STATUS_NO_MEMORY;
    buffer_clear(&s->text);
    buffer_append_slice(&s->text, prompt);
    buffer_append_slice(&s->text, choice);
    return subject_encode(s->subject, buffer_slice(&s->text), tokens, failure);
}

static status sheet_fill(sheet *s, const question *q, error *failure)
{
    token_list prompt = { 0 };
    status result;
    TRY(text_encode(s, q->prompt, (slice){ "", 0 }, &prompt, failure));
    s->shared = (int32_t)prompt.count;
    for (int i = 0; i < q->choice_count; i++) {
        TRY(text_encode(s, q->prompt, q->choices[i], &s->tokens[i], failure));
        int32_t same = shared_count(&prompt, &s->tokens[i]);
        s->shared = same < s->shared ? same : s->shared;
    }
fail:
    token_list_close(&prompt);
    return result;
}

// A model whose texts begin with nothing cannot score a first token; and where a choice adds no
// token there is nothing to score.
static status sheet_check(const sheet *s, const question *q, error *failure)
{
    if (s->shared < 1)
        return error_set(failure, STATUS_INVALID, "prompt",
                         "nothing of the prompt is left as the beginning of all choices");
    for (int i = 0; i < q->choice_count; i++) {
        size_t count = s->tokens[i].count;
        if (count <= (size_t)s->shared)
            return error_set(failure, STATUS_INVALID, "choices",
                             "'choices' item %d adds no token to the prompt", i);
        if (count > (size_t)s->subject->config.context)
            return error_set(failure, STATUS_CONTEXT_LENGTH, "question",
                             "the question makes %zu tokens; the model was trained for %d", count,
                             s->subject->config.context);
    }
    return STATUS_OK;
}

status choices_context(const subject *s, const char *name, const question_list *list,
                       int32_t *context, error *failure)
{
    sheet filled = { .subject = s };
    status result = STATUS_OK;
    *context = 1;
    for (size_t n = 0; n < list->count && result == STATUS_OK; n++) {
        const question *q = &list->items[n];
        result = sheet_fill(&filled, q, failure);
        if (result == STATUS_OK)
            result = sheet_check(&filled, q, failure);
        if (result != STATUS_OK)
            error_prefix(failure, "%s:%d", name, q->line);
        for (int i = 0; i < q->choice_count; i++)
            if (filled.tokens[i].count > (size_t)*context)
                *context = (int32_t)filled.tokens[i].count;
    }
    sheet_close(&filled);
    return result;
}

static void likelihood_add(void *context, int32_t position, const float *logits)
{
    sheet *s = context;
    int32_t vocabulary = s->subject->config.vocabulary;
    s->likelihood += (double)logits[s->scored[position + 1]] - forced_log_sum(logits, vocabulary);
}

// The shared tokens are computed once: what follows begins with the last of them, whose logits
// predict the first that is scored.
static status sheet_answer(sheet *s, const question *q, choices_answer *answer, error *failure)
{
    double best = -INFINITY, best_by_bytes = -INFINITY;
    int32_t last = s->shared - 1;
    *answer = (choices_answer){ .question = q };
    forced_run(s->subject->model, s->tokens[0].ids, 0, last, last, likelihood_add, s);
    for (int i = 0; i < q->choice_count; i++) {
        int32_t count = (int32_t)s->tokens[i].count;
        s->scored = s->tokens[i].ids;
        s->likelihood = 0;
        forced_run(s->subject->model, s->scored, last, count - 1, last, likelihood_add, s);
        if (!isfinite(s->likelihood))
            return error_set(failure, STATUS_NUMERIC, "model",
                             "the logits of %s hold values that are no numbers", s->subject->file);
        double by_bytes = s->likelihood / (double)q->choices[i].size;
        if (s->likelihood > best) {
            best = s->likelihood;
            answer->chosen = i;
        }
        if (by_bytes > best_by_bytes) {
            best_by_bytes = by_bytes;
            answer->chosen_by_bytes = i;
        }
    }
    return STATUS_OK;
}

status choices_run(const subject *s, const question_list *list, choices_take *take,
                   void *take_context, choices_score *score, error *failure)
{
    sheet filled = { .subject = s };
    status result = STATUS_OK;
    *score = (choices_score){ .count = (int)list->count };
    for (size_t n = 0; n < list->count; n++) {
        const question *q = &list->items[n];
        choices_answer answer;
        TRY(sheet_fill(&filled, q, failure));
        TRY(sheet_answer(&filled, q, &answer, failure));
        score->correct += answer.chosen == q->answer;
        score->correct_by_bytes += answer.chosen_by_bytes == q->answer;
        score->chance += 1.0 / q->choice_count / (double)list->count;
        if (take)
            take(take_context, &answer);
        log_progress("answering", (double)(n + 1), (double)list->count);
    }
fail:
    sheet_close(&filled);
    return result;
}

choices_interval choices_wilson(int correct, int count)
{
    double z = 1.959964, n = count, share = correct / n, scale = 1 + z * z / n;
    double middle = (share + z * z / (2 * n)) / scale;
    double half = z * sqrt(share * (1 - share) / n + z * z / (4 * n * n)) / scale;
    return (choices_interval){ fmax(0, middle - half), fmin(1, middle + half) };
}
