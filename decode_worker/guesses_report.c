#include "decode_worker/guesses_report.h"

#include "base/log.h"

#include <stdio.h>
#include <string.h>

#define BELOW_S 60

_Static_assert(SPECULATION_DRAFTERS <= MESSAGE_DRAFTERS_MAX, "each has room in the message");
_Static_assert(GUESS_STATES <= MESSAGE_GUESS_STATES_MAX, "each has room in the message");
_Static_assert(SEQUENCE_CLASSES <= MESSAGE_GUESS_CLASSES_MAX, "each has room in the message");

static const char *const class_names[SEQUENCE_CLASSES] = { "interactive", "batch" };

static void drafter_report(const speculation_drafter *d, guesses_drafter *to)
{
    *to = (guesses_drafter){ .right = d->accepted,
                             .wrong = d->rejected,
                             .behind = d->drafted - d->accepted - d->rejected,
                             .alpha = d->alpha,
                             .low = d->low,
                             .high = d->high,
                             .outcomes = d->outcomes,
                             .expected = d->expected,
                             .break_even = d->break_even,
                             .below_s = d->below_s };
    snprintf(to->name, sizeof(to->name), "%s", d->name);
    snprintf(to->draft, sizeof(to->draft), "%s", d->draft);
    while (to->positions < GUESSES_POSITIONS && d->tried[to->positions] > 0) {
        to->tried[to->positions] = d->tried[to->positions];
        to->held[to->positions] = d->right[to->positions];
        to->positions++;
    }
}

// Those that have guessed, or offered to.
static size_t drafters_report(const speculation_drafter *drafters, guesses_drafter *to)
{
    size_t count = 0;
    for (int i = 0; i < SPECULATION_DRAFTERS; i++)
        if (drafters[i].drafted > 0 || drafters[i].expected > 0)
            drafter_report(&drafters[i], &to[count++]);
    return count;
}

static void class_report(const speculation_stats *stats, sequence_class class, guesses_class *to)
{
    const speculation_class *c = &stats->classes[class];
    *to = (guesses_class){ .alpha = c->alpha,
                           .break_even = c->break_even,
                           .tokens_per_step = c->tokens_per_step,
                           .tokens_per_s = c->tokens_per_s,
                           .gained_per_s = c->gained_per_s };
    snprintf(to->name, sizeof(to->name), "%s", class_names[class]);
    snprintf(to->state, sizeof(to->state), "%s", guess_state_name(c->now));
    snprintf(to->drafter, sizeof(to->drafter), "%s",
             c->drafter >= 0 ? c->drafters[c->drafter].name : "");
    speculation_class_sentence(stats, class, to->sentence);
    for (int i = 0; i < GUESS_STATES; i++) {
        if (c->rows[i] == 0)
            continue;
        guesses_state *state = &to->states[to->state_count++];
        snprintf(state->name, sizeof(state->name), "%s", guess_state_name((guess_state)i));
        state->rows = c->rows[i];
        state->share = c->shares[i];
    }
    to->drafter_count = drafters_report(c->drafters, to->drafters);
}

draft_model_troubles guesses_report(const speculation *p, guesses *told)
{
    speculation_stats stats;
    speculation_stats_of(p, &stats);
    memset(told, 0, sizeof *told);
    speculation_sentence(p, told->sentence);
    told->break_even = stats.break_even;
    told->batch = (uint32_t)stats.batch;
    told->steps_on = stats.steps_on - stats.steps_probing;
    told->steps_probing = stats.steps_probing;
    told->steps_off = stats.steps_off;
    told->steps_prompts = stats.steps_prompts;
    told->drafter_count = drafters_report(stats.drafters, told->drafters);
    for (int c = 0; c < SEQUENCE_CLASSES; c++)
        if (stats.classes[c].tokens_per_step > 0)
            class_report(&stats, (sequence_class)c, &told->classes[told->class_count++]);
    return stats.troubles;
}

void guesses_warn(const speculation *p, guesses_warned *before)
{
    speculation_stats stats;
    speculation_stats_of(p, &stats);
    for (int c = 0; c < SEQUENCE_CLASSES; c++)
        for (int i = 0; i < SPECULATION_DRAFTERS; i++) {
            const speculation_drafter *d = &stats.classes[c].drafters[i];
            bool *warned = &before->warned[c][i];
            bool below = d->below_s >= BELOW_S;
            if (below && !*warned)
                log_warn("speculate",
                         "guesses stay off drafter %s class %s alpha %.2f needed %.2f batch %d "
                         "for_s %.0f: of 100 guesses %.0f are right, and %s%.0f pay for checking "
                         "them in steps of %d answers; no answer depends on it",
                         d->name, class_names[c], d->expected, d->break_even, stats.batch,
                         d->below_s, 100 * d->expected, d->break_even < 1 ? "" : "not even ",
                         100 * d->break_even, stats.batch);
            else if (!below && *warned)
                log_info("speculate", "guesses go on drafter %s class %s alpha %.2f needed %.2f",
                         d->name, class_names[c], d->alpha, d->break_even);
            *warned = below;
        }
}
