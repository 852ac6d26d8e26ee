// The line of waiting requests, and the rounds that place them.
#include "router/dispatcher_private.h"

#include "base/clock.h"

#include <stdio.h>
#include <stdlib.h>

#define PASS_MAX 64 // requests of a class that are looked at without finding room

// ---- the line ---------------------------------------------------------------------------------

static uint64_t order_of(const exchange *x)
{
    return admission_order((admission_class)x->request->priority, x->call->queued_us,
                           (uint64_t)x->dispatcher->router->settings->batch_delay_us);
}

dispatcher_line *dispatcher_line_of(const exchange *x)
{
    return &x->dispatcher->lines[x->request->model->index];
}

size_t dispatcher_waiting(const dispatcher_line *line)
{
    return line->waiting[ADMISSION_INTERACTIVE] + line->waiting[ADMISSION_BATCH];
}

size_t dispatcher_front(exchange *const fronts[ADMISSION_CLASSES])
{
    size_t found = ADMISSION_CLASSES;
    for (size_t i = 0; i < ADMISSION_CLASSES; i++)
        if (fronts[i] && (found == ADMISSION_CLASSES || fronts[i]->order < fronts[found]->order))
            found = i;
    return found;
}

// From the end of its class: that is where new requests belong. A further attempt keeps the place
// of its arrival.
void dispatcher_enqueue(dispatcher *d, exchange *x)
{
    dispatcher_line *q = dispatcher_line_of(x);
    exchange **first = &q->first[x->request->priority], **last = &q->last[x->request->priority];
    exchange *before = *last;
    x->state = EXCHANGE_WAITING;
    x->order = order_of(x);
    while (before && before->order > x->order)
        before = before->queue_previous;
    x->queue_previous = before;
    x->queue_next = before ? before->queue_next : *first;
    if (before)
        before->queue_next = x;
    else
        *first = x;
    if (x->queue_next)
        x->queue_next->queue_previous = x;
    else
        *last = x;
    q->waiting[x->request->priority]++;
    d->counts.waiting++;
}

void dispatcher_dequeue(dispatcher *d, exchange *x)
{
    dispatcher_line *q = dispatcher_line_of(x);
    if (x->queue_previous)
        x->queue_previous->queue_next = x->queue_next;
    else
        q->first[x->request->priority] = x->queue_next;
    if (x->queue_next)
        x->queue_next->queue_previous = x->queue_previous;
    else
        q->last[x->request->priority] = x->queue_previous;
    x->queue_previous = x->queue_next = NULL;
    q->waiting[x->request->priority]--;
    d->counts.waiting--;
    admission_rate_left(&q->rate, dispatcher_waiting(q));
}

bool dispatcher_queue_takes(const dispatcher *d, const request *r)
{
    size_t wanted = r->prompt_count * r->choices;
    return d->lines[r->model->index].waiting[r->priority] + wanted <=
           (size_t)d->router->settings->queue_max[r->priority];
}

// Its model may not be known yet.
int dispatcher_retry_after(const dispatcher *d, const request *r)
{
    static const admission_rate unknown;
    const dispatcher_line *line = r->model ? &d->lines[r->model->index] : NULL;
    return line ? admission_retry_after(&line->rate, dispatcher_waiting(line))
                : admission_retry_after(&unknown, 0);
}

// ---- placing ------------------------------------------------------------------------------------

static policy_ask ask_of(dispatcher *d, const exchange *x)
{
    policy_ask ask = { .tokens = x->prompt->tokens.count + x->stream.received.count,
                       .length = x->prompt->tokens.count + (uint64_t)x->prompt->max_tokens,
                       .weights = x->weights,
                       .bound = x->stream.received.count > 0,
                       .numeric_id = x->numeric_id,
                       .alone = x->alone,
                       .handoff_failed = x->handoff_failures >= HANDOFF_FAILURES_MAX,
                       .avoid = SIZE_MAX };
    size_t count = registry_count(d->router->registry);
    for (size_t i = 0; x->avoid && i < count; i++)
        if (registry_at(d->router->registry, i)->serial == x->avoid)
            ask.avoid = i;
    return ask;
}

policy_plan dispatcher_plan_move(dispatcher *d, const exchange *x)
{
    policy_view view;
    policy_ask ask = ask_of(d, x);
    ask.moving = true;
    ask.tokens += MIGRATION_SPARE; // it goes on while its seat is opened
    return dispatcher_view(d, &view) ? policy_place(&view, &ask)
                                     : (policy_plan){ .verdict = POLICY_WAIT };
}

// The worker's page size is not known before the choice; a class's share is not that exact.
static bool class_has_room(const dispatcher *d, const exchange *x)
{
    uint32_t page_tokens = 0;
    for (size_t i = 0; i < registry_count(d->router->registry) && page_tokens == 0; i++) {
        const registry_worker *w = registry_at(d->router->registry, i);
        if (w->role == POLICY_DECODE && w->model == x->request->model)
            page_tokens = w->page_tokens;
    }
    double share = d->router->settings->share[x->request->priority];
    const dispatcher_line *line = dispatcher_line_of(x);
    const exchange_held *held = &line->held[x->request->priority];
    uint64_t tokens = x->prompt->tokens.count + x->stream.received.count;
    return admission_share_allows(share, line->granted.pages, held->pages,
                                  policy_pages(page_tokens, tokens)) &&
           admission_share_allows(share, line->granted.sequences, held->sequences, 1);
}

// ---- rounds -----------------------------------------------------------------------------------

// A round over the line of a model: the view, kept true while requests are placed, and what it has
// met.
typedef struct round {
    dispatcher *d;
    policy_view view;
    uint64_t now;
    size_t passed[ADMISSION_CLASSES]; // requests without room so far
    bool kept;                        // workers are kept free for one of them
    size_t kept_decode, kept_prefill; // SIZE_MAX: none
    // Prompts for prefill workers, and short ones, that found no room: others that want as much or
    // more find none either, so that a long line costs little.
    policy_ask full[2];
} round;

// Whether what is known of asks like this one tells its fate, and where that is kept.
static policy_ask *full_like(round *r, const policy_ask *ask)
{
    bool plain = !ask->bound && !ask->alone && !ask->handoff_failed && ask->avoid == SIZE_MAX;
    return plain ? &r->full[ask->tokens <= r->view.local_prefill_tokens] : NULL;
}

static bool known_full(round *r, const policy_ask *ask)
{
    const policy_ask *full = full_like(r, ask);
    return full && full->tokens > 0 && ask->tokens >= full->tokens && ask->length >= full->length &&
           hash128_equal(ask->weights, full->weights);
}

// It has waited long enough, or will never find a worker to itself otherwise.
static void room_keep(round *r, const exchange *x, const policy_ask *ask)
{
    size_t decode, prefill;
    // One that has come within the round is later than its `now`.
    uint64_t patience_us = (uint64_t)r->d->router->settings->patience_us;
    bool impatient = r->now >= x->call->queued_us + patience_us;
    if (r->kept || !(impatient || x->alone))
        return;
    policy_reserve(&r->view, ask, &decode, &prefill);
    if (decode == SIZE_MAX)
        return;
    r->kept = true;
    r->kept_decode = decode;
    r->kept_prefill = prefill;
    r->d->view[decode].kept = true;
    if (prefill != SIZE_MAX)
        r->d->view[prefill].kept = true;
}

// The round is over.
static void room_give_back(round *r)
{
    if (!r->kept)
        return;
    r->d->view[r->kept_decode].kept = false;
    if (r->kept_prefill != SIZE_MAX)
        r->d->view[r->kept_prefill].kept = false;
}

// Which versions have a decode worker that is usable, or at least alive.
static bool versions_mark(const round *r, const versions *v, bool usable, bool marked[VERSIONS_MAX])
{
    bool any = false;
    memset(marked, 0, VERSIONS_MAX * sizeof *marked);
    for (size_t i = 0; i < r->view.count; i++) {
        const policy_worker *w = &r->view.workers[i];
        for (size_t k = 0; w->role == POLICY_DECODE && k < v->count; k++)
            marked[k] = marked[k] || ((usable ? w->usable : w->alive) &&
                                      hash128_equal(w->weights, v->items[k].weights));
    }
    for (size_t k = 0; k < v->count; k++)
        any = any || marked[k];
    return any;
}

static bool version_lives(const round *r, hash128 weights)
{
    for (size_t i = 0; i < r->view.count; i++) {
        const policy_worker *w = &r->view.workers[i];
        if (w->role == POLICY_DECODE && w->alive && hash128_equal(w->weights, weights))
            return true;
    }
    return false;
}

// A request without tokens goes to the version that its draw falls on, and stays there while that
// lives.
static void version_choose(round *r, exchange *x)
{
    static const bool all[VERSIONS_MAX] = { true, true, true, true, true, true, true, true };
    router *owner = r->d->router;
    const versions *v = &x->request->model->versions;
    bool marked[VERSIONS_MAX];
    if (x->stream.received.count > 0 || version_lives(r, x->weights))
        return;
    if (!versions_mark(r, v, true, marked))
        versions_mark(r, v, false, marked);
    size_t wanted = versions_choose(v, all, x->version_draw);
    size_t chosen = versions_choose(v, marked, x->version_draw);
    if (chosen == SIZE_MAX)
        chosen = wanted; // nobody can serve it: the policy says so
    else if (chosen != wanted)
        router_metrics_add(owner->metrics, ROUTER_METRIC_FALLBACKS, "other_version",
                           exchange_model_name(x), 1);
    x->weights = v->items[chosen].weights;
    versions_fingerprint(x->weights, x->fingerprint);
}

// Workers come back: they restart, or a router that has just begun does not know all of them yet.
// So a request waits for one, but not as long as one whose worker failed.
static void no_worker(round *r, exchange *x)
{
    char message[256];
    uint64_t since = x->servable_us ? x->servable_us : x->call->queued_us;
    if (r->now < since + (uint64_t)r->d->router->settings->worker_wait_us) {
        r->passed[x->request->priority]++;
        return;
    }
    snprintf(message, sizeof message,
             "no worker can serve this request at present (model \"%.120s\")",
             x->request->model->prompt.identity.name);
    exchange_fail(x, 503, "no_worker", message);
}

// Place, wait or give up.
static void waiting_serve(round *r, exchange *x)
{
    dispatcher *d = r->d;
    if (x->not_before_us > r->now)
        return;
    if (!class_has_room(d, x)) { // for others of it run
        x->servable_us = r->now;
        r->passed[x->request->priority]++;
        return;
    }
    version_choose(r, x);
    policy_ask ask = ask_of(d, x);
    if (known_full(r, &ask)) {
        x->servable_us = r->now;
        r->passed[x->request->priority]++;
        room_keep(r, x, &ask);
        return;
    }
    policy_plan plan = policy_place(&r->view, &ask);
    if (plan.verdict == POLICY_PLACED) {
        dispatcher_place(d, x, &plan);
        if (!d->pump_again) // else workers may be gone
            dispatcher_view_follow(d);
    } else if (plan.verdict == POLICY_WAIT) {
        x->servable_us = r->now;
        policy_ask *full = full_like(r, &ask);
        if (full)
            *full = ask;
        r->passed[x->request->priority]++;
        room_keep(r, x, &ask);
    } else if (plan.verdict == POLICY_TOO_LARGE) {
        exchange_fail(x, 503, "too_large_for_workers",
                      "no worker has as many KV pages as this request needs");
    } else if (x->failing_since_us == 0) {
        no_worker(r, x);
    }
}

// The next one in the order of the line, of classes that have not been passed too often: one that
// finds no room hides no other. `next` is the front of what is left of each class.
static exchange *line_next(const round *r, exchange *next[ADMISSION_CLASSES])
{
    for (size_t i = 0; i < ADMISSION_CLASSES; i++)
        if (r->passed[i] >= PASS_MAX)
            next[i] = NULL;
    size_t front = dispatcher_front(next);
    if (front == ADMISSION_CLASSES)
        return NULL;
    exchange *x = next[front];
    next[front] = x->queue_next;
    return x;
}

// One line; false where another round is due, because the workers or the line changed.
static bool line_serve(dispatcher *d, const policy_view *view, size_t index)
{
    round r = { .d = d, .view = *view, .now = clock_now_us() };
    exchange *next[ADMISSION_CLASSES], *x;
    memcpy(next, d->lines[index].first, sizeof next);
    while (!d->pump_again && (x = line_next(&r, next)) != NULL)
        waiting_serve(&r, x);
    room_give_back(&r);
    return !d->pump_again;
}

// Not re-entrant: whatever happens inside and makes room asks for another round.
void dispatcher_pump(dispatcher *d)
{
    if (d->pumping) {
        d->pump_again = true;
        return;
    }
    d->pumping = true;
    do {
        policy_view view;
        d->pump_again = false;
        if (d->counts.waiting == 0 || !dispatcher_view(d, &view))
            break;
        for (size_t i = 0; i < d->router->models.count && line_serve(d, &view, i); i++)
            ;
    } while (d->pump_again);
    d->pumping = false;
}
