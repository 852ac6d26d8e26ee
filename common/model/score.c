// How likely the tokens of a prompt were. The row of a token has the logits of the next one: the
// sampler draws that very token, because a bias leaves it no choice, and reports its
// log-probability, which knows no bias.
#include "model/engine_parts.h"

#include <math.h>

#define CERTAIN 1e30f // no logit is near it

int32_t score_room(const engine *e)
{
    return (int32_t)e->settings.score_tokens - e->score_count;
}

void score_add(engine *e, sequence *s, int32_t first, int32_t count)
{
    step_arrays *a = &e->arrays;
    for (int32_t i = 0; i < count && s->computed + i + 1 < s->prompt_count; i++) {
        int32_t k = e->score_count++, position = s->computed + i + 1;
        CHECK(k < e->settings.score_tokens);
        a->score_biases[k] = (backend_token_bias){ s->tokens[position], CERTAIN };
        a->score_samples[k] = (backend_sample){ .row = e->batch.logit_rows,
                                                .top_p = 1,
                                                .typical_p = 1,
                                                .repetition_penalty = 1,
                                                .biases = &a->score_biases[k],
                                                .bias_count = 1,
                                                .vocabulary = e->facts.vocabulary,
                                                .top_count = s->sampling.top_count };
        a->logit_index[e->batch.logit_rows++] = first + i;
        e->scored[k] = s;
        e->scores[k] = (engine_score){ .owner = s->owner, .position = position };
    }
}

void score_collect(engine *e, engine_report *report)
{
    step_arrays *a = &e->arrays;
    report->scores = e->scores;
    if (e->score_count == 0)
        return;
    e->table->sample(e->queue, model_logits(e->model), a->score_samples, e->score_count,
                     a->score_results);
    e->table->queue_wait(e->queue, e->table->queue_submit(e->queue));
    // What follows a row without numbers is not told: the sequence will fail at its first token.
    for (int32_t i = 0; i < e->score_count; i++) {
        sequence *s = e->scored[i];
        s->unscored = s->unscored || a->score_results[i].token < 0;
        if (s->unscored)
            continue;
        engine_score *score = &e->scores[report->score_count++];
        *score = e->scores[i];
        score->sampled = a->score_results[i];
        if (score->sampled.token != a->score_biases[i].token) // not even a bias makes it possible
            score->sampled.logprob = -INFINITY;
        score->sampled.token = a->score_biases[i].token;
    }
}
