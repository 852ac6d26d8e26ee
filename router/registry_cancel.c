#include "router/registry_cancel.h"

#include "router/registry_private.h"

#include <stdlib.h>

typedef struct attempt_id {
    uint64_t number;
    uint32_t attempt;
} attempt_id;

// A ring; made for the first that has to wait, freed with the last.
struct registry_cancels {
    size_t first, count;
    bool overflowed; // it was said
    attempt_id items[REGISTRY_CANCELS_MAX];
};

static status cancel_post(registry *r, registry_worker *w, attempt_id id)
{
    Penstock__RequestId request = PENSTOCK__REQUEST_ID__INIT;
    Penstock__Cancel cancel = PENSTOCK__CANCEL__INIT;
    Penstock__ToWorker m = PENSTOCK__TO_WORKER__INIT;
    request.router = r->incarnation;
    request.number = id.number;
    cancel.request = &request;
    cancel.attempt = id.attempt;
    m.body_case = PENSTOCK__TO_WORKER__BODY_CANCEL;
    m.cancel = &cancel;
    return registry_post(r, w, &m, false); // not urgent: it must not pass its own ticket
}

// Whether it may succeed later: where the pair is closed the worker ends, and all of it.
static bool worth_keeping(status result)
{
    return result != STATUS_OK && result != STATUS_PEER_CLOSED;
}

static void keep(registry_worker *w, attempt_id id)
{
    if (!w->cancels)
        w->cancels = calloc(1, sizeof *w->cancels);
    registry_cancels *kept = w->cancels;
    if (!kept || kept->count == REGISTRY_CANCELS_MAX) {
        if (!kept || !kept->overflowed)
            log_warn("registry", "no room to keep a cancel name %s request %llu attempt %u",
                     w->name, (unsigned long long)id.number, id.attempt);
        if (kept)
            kept->overflowed = true;
        return;
    }
    kept->items[(kept->first + kept->count++) % REGISTRY_CANCELS_MAX] = id;
}

bool registry_cancels_send(registry *r, registry_worker *w)
{
    registry_cancels *kept = w->cancels;
    while (kept && kept->count > 0) {
        if (worth_keeping(cancel_post(r, w, kept->items[kept->first])))
            return false;
        kept->first = (kept->first + 1) % REGISTRY_CANCELS_MAX;
        kept->count--;
    }
    registry_cancels_drop(w);
    return true;
}

void registry_cancels_drop(registry_worker *w)
{
    free(w->cancels);
    w->cancels = NULL;
}

void registry_cancels_turn(registry *r, registry_worker *w)
{
    w->cancels_again = 0;
    registry_cancels_send(r, w);
}

void registry_cancel(registry *r, registry_worker *w, uint64_t number, uint32_t attempt)
{
    attempt_id id = { number, attempt };
    if (!registry_cancels_send(r, w) || worth_keeping(cancel_post(r, w, id)))
        keep(w, id);
}

bool registry_cancel_again(registry *r, registry_worker *w, uint64_t number, uint32_t attempt)
{
    if (w->cancels_again == REGISTRY_ANSWERS_MAX || !registry_cancels_send(r, w))
        return false;
    w->cancels_again++;
    return cancel_post(r, w, (attempt_id){ number, attempt }) == STATUS_OK;
}

size_t registry_cancels_kept(const registry_worker *w)
{
    return w->cancels ? w->cancels->count : 0;
}
