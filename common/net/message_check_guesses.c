#include "net/message_check_private.h"

#include <math.h>
#include <string.h>

#define DRAFT_MAX 63 // bytes of the name of a model that guesses

static bool is_share(double value)
{
    return value >= 0 && value <= 1;
}

static bool is_amount(double value)
{
    return isfinite(value) && value >= 0;
}

status check_drafter(const void *message, error *failure)
{
    const Penstock__Drafter *m = message;
    RULE(strlen(m->name) <= DRAFTER_MAX, "drafter.name", "15 bytes at most");
    RULE(strlen(m->draft) <= DRAFT_MAX, "drafter.draft", "63 bytes at most");
    RULE(is_share(m->alpha) && is_share(m->low) && is_share(m->high), "drafter.alpha", "0 to 1");
    RULE(is_share(m->break_even), "drafter.break_even", "0 to 1");
    RULE(is_share(m->expected), "drafter.expected", "0 to 1");
    RULE(is_amount(m->outcomes), "drafter.outcomes", "a number of at least 0");
    RULE(is_amount(m->below_s), "drafter.below_s", "a number of at least 0");
    RULE(m->n_tried <= MESSAGE_GUESS_POSITIONS_MAX, "drafter.tried", "16 at most");
    RULE(m->n_held == m->n_tried, "drafter.held", "one for each of tried");
    return STATUS_OK;
}

status check_guess_state(const void *message, error *failure)
{
    const Penstock__GuessState *m = message;
    RULE(strlen(m->name) < MESSAGE_GUESS_NAME_MAX, "guess_state.name", "23 bytes at most");
    RULE(is_share(m->share), "guess_state.share", "0 to 1");
    return STATUS_OK;
}

status check_guess_class(const void *message, error *failure)
{
    const Penstock__GuessClass *m = message;
    RULE(strlen(m->name) < MESSAGE_GUESS_NAME_MAX, "guess_class.name", "23 bytes at most");
    RULE(strlen(m->sentence) < MESSAGE_SENTENCE_MAX, "guess_class.sentence", "199 bytes at most");
    RULE(strlen(m->state) < MESSAGE_GUESS_NAME_MAX, "guess_class.state", "23 bytes at most");
    RULE(strlen(m->drafter) <= DRAFTER_MAX, "guess_class.drafter", "15 bytes at most");
    RULE(is_share(m->alpha), "guess_class.alpha", "0 to 1");
    RULE(is_share(m->break_even), "guess_class.break_even", "0 to 1");
    RULE(m->n_states <= MESSAGE_GUESS_STATES_MAX, "guess_class.states", "12 at most");
    RULE(m->n_drafters <= MESSAGE_DRAFTERS_MAX, "guess_class.drafters", "4 at most");
    RULE(is_amount(m->tokens_per_step), "guess_class.tokens_per_step", "a number of at least 0");
    RULE(is_amount(m->tokens_per_s), "guess_class.tokens_per_s", "a number of at least 0");
    RULE(isfinite(m->gained_per_s), "guess_class.gained_per_s", "a number");
    return STATUS_OK;
}

status check_guesses(const void *message, error *failure)
{
    const Penstock__Guesses *m = message;
    RULE(m->n_drafters <= MESSAGE_DRAFTERS_MAX, "guesses.drafters", "4 at most");
    RULE(m->n_classes <= MESSAGE_GUESS_CLASSES_MAX, "guesses.classes", "2 at most");
    RULE(is_share(m->break_even), "guesses.break_even", "0 to 1");
    RULE(strlen(m->sentence) < MESSAGE_SENTENCE_MAX, "guesses.sentence", "199 bytes at most");
    return STATUS_OK;
}
