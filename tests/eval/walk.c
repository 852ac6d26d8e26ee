#include "eval/walk.h"

#include <stdlib.h>
#include <string.h>

typedef struct window {
    int32_t begin, end; // text tokens
    int32_t scored;     // the first text token that it scores; those are scored .. end - 1
} window;

// Text tokens that a window holds.
static int32_t plan_room(const walk_plan *p)
{
    return p->context - (p->bos >= 0);
}

static int32_t plan_stride(const walk_plan *p)
{
    return p->stride > 0 ? p->stride : plan_room(p);
}

// Window `index`, which scores what lies behind `reached`. False: there is none.
static bool window_at(const walk_plan *p, int32_t index, int32_t reached, window *w)
{
    int64_t begin = (int64_t)index * plan_stride(p);
    if (begin >= p->count || reached >= p->count || (p->windows > 0 && index >= p->windows))
        return false;
    int32_t room = plan_room(p), first = p->bos >= 0 ? 0 : 1;
    w->begin = (int32_t)begin;
    w->end = p->count - w->begin < room ? p->count : w->begin + room;
    w->scored = w->begin + first > reached ? w->begin + first : reached;
    return true;
}

int64_t walk_count(const walk_plan *plan, int32_t *windows)
{
    int64_t scored = 0;
    int32_t index = 0, reached = 0;
    for (window w; window_at(plan, index, reached, &w); index++) {
        if (w.end > w.scored)
            scored += w.end - w.scored;
        reached = w.end;
    }
    *windows = index;
    return scored;
}

void walk_trim(walk_plan *plan)
{
    int32_t reached = 0;
    window w;
    for (int32_t index = 0; window_at(plan, index, reached, &w); index++)
        reached = w.end;
    plan->count = reached;
    plan->windows = 0;
}

status walk_open(const walk_plan *plan, walk *w, error *failure)
{
    if (plan->context < 2)
        return error_set(failure, STATUS_INVALID, "context",
                         "context is %d; a window needs at least 2 tokens", plan->context);
    if (plan->stride < 0 || plan->stride > plan_room(plan))
        return error_set(failure, STATUS_INVALID, "stride",
                         "stride is %d; it must be 1 to %d, the tokens of text in a window",
                         plan->stride, plan_room(plan));
    *w = (walk){ .plan = *plan, .window = -1 };
    w->input = calloc((size_t)plan->context, sizeof w->input[0]);
    if (!w->input)
        return error_set(failure, STATUS_NO_MEMORY, "context", "memory is short for %d tokens",
                         plan->context);
    return STATUS_OK;
}

void walk_close(walk *w)
{
    free(w->input);
    *w = (walk){ 0 };
}

// Fill the input of the next window that scores something.
static bool window_next(walk *w)
{
    window next;
    int32_t bos = w->plan.bos >= 0;
    do {
        w->window++;
        if (!window_at(&w->plan, w->window, w->reached, &next))
            return false;
        w->reached = next.end;
    } while (next.scored >= next.end);
    if (bos)
        w->input[0] = w->plan.bos;
    memcpy(w->input + bos, w->plan.text + next.begin,
           (size_t)(next.end - next.begin) * sizeof w->input[0]);
    w->length = bos + next.end - next.begin;
    w->first = bos + next.scored - next.begin - 1;
    w->begin = w->end = 0;
    return true;
}

bool walk_next(walk *w)
{
    // The last token of a window predicts nothing in it.
    if (w->end >= w->length - 1 && !window_next(w))
        return false;
    w->begin = w->end;
    int32_t left = w->length - 1 - w->begin;
    w->end = w->begin + (left < w->plan.chunk ? left : w->plan.chunk);
    return true;
}
