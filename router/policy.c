#include "router/policy.h"

#define AVOID_PENALTY 1e9

uint64_t policy_pages(uint32_t page_tokens, uint64_t tokens)
{
    return page_tokens ? (tokens + page_tokens - 1) / page_tokens + 1 : 1;
}

const char *policy_role_name(policy_role role)
{
    return role == POLICY_DECODE ? "decode" : "prefill";
}

const char *policy_local_name(policy_local local)
{
    static const char *const names[POLICY_LOCAL_COUNT] = { "none", "short_prompt",
                                                           "no_prefill_worker", "handoff_failed" };
    return names[local];
}

// Whether the worker could serve it if it were idle, pages aside.
static bool can_serve(const policy_view *view, const policy_ask *ask, const policy_worker *w)
{
    bool any_id = !ask->bound || (view->mixed_numeric_ids && !ask->moving);
    return hash128_equal(ask->weights, w->weights) && ask->length <= w->context &&
           (any_id || hash128_equal(ask->numeric_id, w->numeric_id));
}

static bool has_room(const policy_worker *w, const policy_ask *ask)
{
    if (!w->usable || w->alone || w->kept || w->sequences_spent >= w->sequences_max)
        return false;
    if (ask->alone && w->sequences_spent > 0)
        return false;
    uint64_t pages = policy_pages(w->page_tokens, ask->tokens);
    return w->pages_spent == 0
               ? pages <= w->pages_pool
               : w->pages_spent <= w->pages_max && pages <= w->pages_max - w->pages_spent;
}

// Whether its prompt may be sent there to be computed now.
static bool may_compute(const policy_worker *w, const policy_ask *ask)
{
    return w->tokens_max == 0 || w->tokens_outstanding == 0 ||
           w->tokens_outstanding + ask->tokens <= w->tokens_max;
}

static double share(uint64_t part, uint64_t whole)
{
    return whole ? (double)part / (double)whole : 1.0;
}

// Share of the decode worker in use, pages or sequences, whichever is scarcer; ties go to fewer
// sequences.
static double decode_load(const policy_worker *w)
{
    double pages = share(w->pages_spent, w->pages_max);
    double sequences = share(w->sequences_spent, w->sequences_max);
    return (pages > sequences ? pages : sequences) + 1e-6 * w->sequences_spent;
}

// Seconds until the prefill worker would be through, or tokens where no rate is known anywhere.
static double prefill_load(const policy_worker *w, double rate_known)
{
    double rate = w->tokens_per_s > 0 ? w->tokens_per_s : rate_known;
    return ((double)w->tokens_outstanding + 1) / rate + 1e-9 * (double)w->pages_spent;
}

static bool prefill_matches(const policy_view *view, const policy_ask *ask,
                            const policy_worker *decode, const policy_worker *w)
{
    return w->role == POLICY_PREFILL && w->alive && w->context >= ask->tokens &&
           w->page_tokens == decode->page_tokens && hash128_equal(w->weights, decode->weights) &&
           (view->mixed_numeric_ids || hash128_equal(w->numeric_id, decode->numeric_id)) &&
           // A pool that can never hold the prompt is as good as no worker.
           policy_pages(w->page_tokens, ask->tokens) <= w->pages_pool;
}

// The matching prefill worker that is through first; SIZE_MAX: none has room. `lives`: one is alive
// at all.
static size_t prefill_choose(const policy_view *view, const policy_ask *ask,
                             const policy_worker *decode, bool *lives)
{
    size_t best = SIZE_MAX;
    double best_load = 0, rate_known = 0;
    *lives = false;
    for (size_t i = 0; i < view->count; i++)
        if (view->workers[i].role == POLICY_PREFILL && view->workers[i].tokens_per_s > rate_known)
            rate_known = view->workers[i].tokens_per_s;
    if (rate_known <= 0)
        rate_known = 1;
    for (size_t i = 0; i < view->count; i++) {
        const policy_worker *w = &view->workers[i];
        if (!prefill_matches(view, ask, decode, w))
            continue;
        *lives = true;
        if (!has_room(w, ask) || !may_compute(w, ask))
            continue;
        double load = prefill_load(w, rate_known) + (i == ask->avoid ? AVOID_PENALTY : 0);
        if (best == SIZE_MAX || load < best_load) {
            best = i;
            best_load = load;
        }
    }
    return best;
}

// The last choice of a prefill worker: decode workers of equal numbers have the same, so that a
// placement takes as long as there are workers, not pairs.
typedef struct prefill_memo {
    const policy_worker *decode; // NULL: nothing yet
    size_t prefill;
    bool lives;
} prefill_memo;

static void prefill_look(const policy_view *view, const policy_ask *ask,
                         const policy_worker *decode, prefill_memo *memo)
{
    if (memo->decode && memo->decode->page_tokens == decode->page_tokens &&
        hash128_equal(memo->decode->numeric_id, decode->numeric_id))
        return;
    memo->prefill = prefill_choose(view, ask, decode, &memo->lives);
    memo->decode = decode;
}

// Complete the plan for one decode worker; false where whoever computes the prompt has no room.
static bool prefill_plan(const policy_view *view, const policy_ask *ask, policy_plan *plan,
                         prefill_memo *memo)
{
    const policy_worker *decode = &view->workers[plan->decode];
    plan->prefill = SIZE_MAX;
    plan->local = POLICY_LOCAL_NOT;
    if (ask->moving)
        return true;
    plan->local = POLICY_LOCAL_SHORT;
    if (ask->tokens <= view->local_prefill_tokens)
        return may_compute(decode, ask);
    plan->local = POLICY_LOCAL_HANDOFF;
    if (ask->handoff_failed && view->local_prefill)
        return may_compute(decode, ask);
    prefill_look(view, ask, decode, memo);
    plan->prefill = memo->prefill;
    plan->local = plan->prefill == SIZE_MAX ? POLICY_LOCAL_NO_PREFILL : POLICY_LOCAL_NOT;
    return plan->prefill != SIZE_MAX ||
           (!memo->lives && view->local_prefill && may_compute(decode, ask));
}

// Why nothing could be placed: what the living workers could do if they were idle.
static policy_verdict verdict_without_room(const policy_view *view, const policy_ask *ask)
{
    policy_verdict verdict = POLICY_NO_WORKER;
    prefill_memo memo = { 0 };
    for (size_t i = 0; i < view->count; i++) {
        const policy_worker *w = &view->workers[i];
        if (w->role != POLICY_DECODE || !w->alive || !can_serve(view, ask, w))
            continue;
        if (!view->local_prefill && ask->tokens > view->local_prefill_tokens) {
            prefill_look(view, ask, w, &memo);
            if (!memo.lives)
                continue;
        }
        if (policy_pages(w->page_tokens, ask->tokens) <= w->pages_pool)
            return POLICY_WAIT;
        verdict = POLICY_TOO_LARGE;
    }
    return verdict;
}

policy_plan policy_place(const policy_view *view, const policy_ask *ask)
{
    policy_plan best = { .prefill = SIZE_MAX };
    prefill_memo memo = { 0 };
    double best_load = 0;
    bool found = false;
    for (size_t i = 0; i < view->count; i++) {
        const policy_worker *w = &view->workers[i];
        if (w->role != POLICY_DECODE || !can_serve(view, ask, w) || !has_room(w, ask))
            continue;
        policy_plan plan = { .verdict = POLICY_PLACED, .decode = i };
        if (!prefill_plan(view, ask, &plan, &memo))
            continue;
        double load = decode_load(w) + (i == ask->avoid ? AVOID_PENALTY : 0);
        if (found && load >= best_load)
            continue;
        plan.mixed = (ask->bound && !hash128_equal(ask->numeric_id, w->numeric_id)) ||
                     (plan.prefill != SIZE_MAX &&
                      !hash128_equal(view->workers[plan.prefill].numeric_id, w->numeric_id));
        best = plan;
        best_load = load;
        found = true;
    }
    if (!found)
        best.verdict = verdict_without_room(view, ask);
    return best;
}

// What is free for it: the smaller share of pages and sequences.
static double room_of(const policy_worker *w)
{
    double pages = 1 - share(w->pages_spent, w->pages_max);
    double sequences = 1 - share(w->sequences_spent, w->sequences_max);
    return pages < sequences ? pages : sequences;
}

void policy_reserve(const policy_view *view, const policy_ask *ask, size_t *decode, size_t *prefill)
{
    *decode = *prefill = SIZE_MAX;
    for (size_t i = 0; i < view->count; i++) {
        const policy_worker *w = &view->workers[i];
        if (w->role != POLICY_DECODE || !w->usable || w->kept || !can_serve(view, ask, w) ||
            policy_pages(w->page_tokens, ask->tokens) > w->pages_pool)
            continue;
        if (*decode == SIZE_MAX || room_of(w) > room_of(&view->workers[*decode]))
            *decode = i;
    }
    if (*decode == SIZE_MAX || ask->tokens <= view->local_prefill_tokens)
        return;
    const policy_worker *receiver = &view->workers[*decode];
    bool lives;
    if (prefill_choose(view, ask, receiver, &lives) != SIZE_MAX)
        return;
    for (size_t i = 0; i < view->count; i++) {
        const policy_worker *w = &view->workers[i];
        if (!prefill_matches(view, ask, receiver, w) || !w->usable || w->kept)
            continue;
        if (*prefill == SIZE_MAX || room_of(w) > room_of(&view->workers[*prefill]))
            *prefill = i;
    }
}
