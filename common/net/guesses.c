#include "net/guesses.h"

#include <stdio.h>
#include <string.h>

// ---- telling ----------------------------------------------------------------------------------

static void drafter_tell(const guesses_drafter *from, Penstock__Drafter *to)
{
    penstock__drafter__init(to);
    to->name = (char *)from->name;
    to->draft = (char *)from->draft;
    to->right = from->right;
    to->wrong = from->wrong;
    to->behind = from->behind;
    to->alpha = from->alpha;
    to->low = from->low;
    to->high = from->high;
    to->outcomes = from->outcomes;
    to->expected = from->expected;
    to->break_even = from->break_even;
    to->below_s = from->below_s;
    to->n_tried = to->n_held = from->positions;
    to->tried = (uint64_t *)from->tried;
    to->held = (uint64_t *)from->held;
}

static size_t drafters_tell(const guesses_drafter *from, size_t count, Penstock__Drafter *room,
                            Penstock__Drafter **list)
{
    for (size_t i = 0; i < count; i++) {
        list[i] = &room[i];
        drafter_tell(&from[i], list[i]);
    }
    return count;
}

static void class_tell(const guesses_class *from, guesses_room *room, size_t at)
{
    Penstock__GuessClass *to = room->class_list[at] = &room->classes[at];
    penstock__guess_class__init(to);
    to->name = (char *)from->name;
    to->sentence = (char *)from->sentence;
    to->state = (char *)from->state;
    to->drafter = (char *)from->drafter;
    to->alpha = from->alpha;
    to->break_even = from->break_even;
    to->tokens_per_step = from->tokens_per_step;
    to->tokens_per_s = from->tokens_per_s;
    to->gained_per_s = from->gained_per_s;
    to->states = room->state_lists[at];
    for (size_t i = 0; i < from->state_count; i++) {
        Penstock__GuessState *state = to->states[to->n_states++] = &room->states[at][i];
        penstock__guess_state__init(state);
        state->name = (char *)from->states[i].name;
        state->rows = from->states[i].rows;
        state->share = from->states[i].share;
    }
    to->drafters = room->drafter_lists[at + 1];
    to->n_drafters =
        drafters_tell(from->drafters, from->drafter_count, room->drafters[at + 1], to->drafters);
}

Penstock__Guesses *guesses_tell(const guesses *g, guesses_room *room)
{
    Penstock__Guesses *m = &room->message;
    if (g->sentence[0] == '\0')
        return NULL;
    penstock__guesses__init(m);
    m->sentence = (char *)g->sentence;
    m->break_even = g->break_even;
    m->batch = g->batch;
    m->steps_on = g->steps_on;
    m->steps_probing = g->steps_probing;
    m->steps_off = g->steps_off;
    m->steps_prompts = g->steps_prompts;
    m->drafters = room->drafter_lists[0];
    m->n_drafters = drafters_tell(g->drafters, g->drafter_count, room->drafters[0], m->drafters);
    m->classes = room->class_list;
    for (size_t i = 0; i < g->class_count; i++)
        class_tell(&g->classes[i], room, m->n_classes++);
    return m;
}

// ---- taking -----------------------------------------------------------------------------------

#define COPY(field, text) snprintf(field, sizeof(field), "%s", text)

static size_t drafters_take(Penstock__Drafter *const *from, size_t count, guesses_drafter *to)
{
    for (size_t i = 0; i < count; i++) {
        const Penstock__Drafter *d = from[i];
        to[i] = (guesses_drafter){ .right = d->right,
                                   .wrong = d->wrong,
                                   .behind = d->behind,
                                   .alpha = d->alpha,
                                   .low = d->low,
                                   .high = d->high,
                                   .outcomes = d->outcomes,
                                   .expected = d->expected,
                                   .break_even = d->break_even,
                                   .below_s = d->below_s,
                                   .positions = d->n_tried };
        COPY(to[i].name, d->name);
        COPY(to[i].draft, d->draft);
        for (size_t k = 0; k < d->n_tried; k++) {
            to[i].tried[k] = d->tried[k];
            to[i].held[k] = d->held[k];
        }
    }
    return count;
}

static void class_take(const Penstock__GuessClass *from, guesses_class *to)
{
    COPY(to->name, from->name);
    COPY(to->sentence, from->sentence);
    COPY(to->state, from->state);
    COPY(to->drafter, from->drafter);
    to->alpha = from->alpha;
    to->break_even = from->break_even;
    to->tokens_per_step = from->tokens_per_step;
    to->tokens_per_s = from->tokens_per_s;
    to->gained_per_s = from->gained_per_s;
    for (size_t i = 0; i < from->n_states; i++) {
        guesses_state *state = &to->states[to->state_count++];
        COPY(state->name, from->states[i]->name);
        state->rows = from->states[i]->rows;
        state->share = from->states[i]->share;
    }
    to->drafter_count = drafters_take(from->drafters, from->n_drafters, to->drafters);
}

void guesses_take(const Penstock__Guesses *message, guesses *g)
{
    memset(g, 0, sizeof *g);
    if (!message)
        return;
    COPY(g->sentence, message->sentence);
    g->break_even = message->break_even;
    g->batch = message->batch;
    g->steps_on = message->steps_on;
    g->steps_probing = message->steps_probing;
    g->steps_off = message->steps_off;
    g->steps_prompts = message->steps_prompts;
    g->drafter_count = drafters_take(message->drafters, message->n_drafters, g->drafters);
    for (size_t i = 0; i < message->n_classes; i++)
        class_take(message->classes[i], &g->classes[g->class_count++]);
}
