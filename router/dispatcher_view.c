// What the policy sees of the workers: one picture, kept true by the few that were touched since
// the last look, because a thousand workers are not read for each request.
#include "router/dispatcher_private.h"

#include <stdlib.h>

static policy_worker worker_view(const registry_worker *w)
{
    return (policy_worker){
        .role = w->role,
        .alive = w->state != REGISTRY_JOINING,
        .usable = registry_usable(w),
        .alone = w->alone,
        .weights = w->weights,
        .numeric_id = w->numeric_id,
        .page_tokens = w->page_tokens,
        .context = w->context,
        .pages_pool = w->pages,
        .pages_max = w->page_credits,
        .pages_spent = w->pages_spent,
        .sequences_max = w->sequences,
        .sequences_spent = w->sequences_spent,
        .tokens_outstanding = w->tokens_outstanding,
        .tokens_max = w->token_credits,
        .tokens_per_s = w->prefill_tokens_per_s,
    };
}

// The entry follows its worker, and with it what its model's decode workers grant.
static void entry_write(dispatcher *d, const registry_worker *w, const policy_worker *before)
{
    policy_worker *entry = &d->view[w->index];
    exchange_held *granted = &d->lines[w->model->index].granted;
    if (before && before->role == POLICY_DECODE && before->usable) {
        granted->pages -= before->pages_max;
        granted->sequences -= before->sequences_max;
    }
    bool kept = before && before->kept;
    *entry = worker_view(w);
    entry->kept = kept;
    if (entry->role == POLICY_DECODE && entry->usable) {
        granted->pages += entry->pages_max;
        granted->sequences += entry->sequences_max;
    }
}

void dispatcher_view_follow(dispatcher *d)
{
    const registry_worker *w;
    while ((w = registry_take_touched(d->router->registry)) != NULL) {
        policy_worker before = d->view[w->index];
        entry_write(d, w, &before);
    }
}

// A new picture.
static bool view_draw(dispatcher *d)
{
    registry *workers = d->router->registry;
    size_t count = registry_count(workers);
    if (count > d->view_capacity) {
        policy_worker *grown = realloc(d->view, count * sizeof *grown);
        if (!grown)
            return false;
        d->view = grown;
        d->view_capacity = count;
    }
    for (size_t i = 0; i < d->router->models.count; i++)
        d->lines[i].granted = (exchange_held){ 0 };
    for (size_t i = 0; i < count; i++)
        entry_write(d, registry_at(workers, i), NULL);
    while (registry_take_touched(workers))
        ;
    d->view_layout = registry_layout(workers);
    return true;
}

bool dispatcher_view(dispatcher *d, policy_view *view)
{
    registry *workers = d->router->registry;
    const router_settings *settings = d->router->settings;
    if (registry_layout(workers) == d->view_layout)
        dispatcher_view_follow(d);
    else if (!view_draw(d))
        return false;
    *view = (policy_view){ .workers = d->view,
                           .count = registry_count(workers),
                           .local_prefill_tokens = (uint64_t)settings->local_prefill_tokens,
                           .local_prefill = settings->local_prefill,
                           .mixed_numeric_ids = settings->mixed_numeric_ids };
    return true;
}

static bool entries_equal(const policy_worker *a, const policy_worker *b)
{
    return a->alive == b->alive && a->usable == b->usable && a->alone == b->alone &&
           a->pages_max == b->pages_max && a->pages_spent == b->pages_spent &&
           a->sequences_max == b->sequences_max && a->sequences_spent == b->sequences_spent &&
           a->tokens_outstanding == b->tokens_outstanding && a->tokens_max == b->tokens_max &&
           hash128_equal(a->weights, b->weights);
}

bool dispatcher_view_is_true(const dispatcher *d)
{
    registry *workers = d->router->registry;
    if (registry_layout(workers) != d->view_layout)
        return true;
    for (size_t i = 0; i < registry_count(workers); i++) {
        const registry_worker *w = registry_at(workers, i);
        policy_worker now = worker_view(w);
        if (!w->touched && !entries_equal(&now, &d->view[i]))
            return false;
    }
    return true;
}
