// Workers that are gone, or make no progress: their requests go on elsewhere.
#include "router/dispatcher_private.h"

// Every request that still needs this worker is tried again; thousands may, so they are placed
// together.
static void requests_leave(dispatcher *d, const registry_worker *w, const error *why, bool died)
{
    bool pumping = d->pumping;
    d->pumping = true;
    CHECK(!d->walk);
    for (exchange *x = d->all; x; x = d->walk) {
        bool decode = x->decode.serial == w->serial, prefill = x->prefill.serial == w->serial;
        d->walk = x->all_next;
        if (x->state != EXCHANGE_RUNNING || !(decode || prefill))
            continue;
        // Its part was done; or it left with a goodbye, which it says when what it hands over is
        // there: the one that goes on with it will speak, or say what failed.
        if (prefill && ((x->decode_spoke && x->early.size == 0) || (x->moving && w->left))) {
            dispatcher_release(d, &x->prefill);
            continue;
        }
        x->last_failure = *why;
        const char *reason = w->left  ? "worker_left"
                             : !died  ? "worker_stuck"
                             : decode ? "decode_worker_lost"
                                      : "prefill_worker_lost";
        dispatcher_retry(d, x, reason, w->serial, died);
    }
    d->pumping = pumping;
    dispatcher_pump(d);
}

void dispatcher_on_lost(registry_worker *w, status cause, void *context)
{
    router *r = context;
    error why;
    error_set(&why, cause, "", "worker %s: %s", w->name, status_text(cause));
    requests_leave(r->dispatcher, w, &why, !w->left);
}

// Whether another worker could do what this one has.
static bool other_exists(registry *workers, const registry_worker *w)
{
    for (size_t i = 0; i < registry_count(workers); i++) {
        const registry_worker *o = registry_at(workers, i);
        if (o->role == w->role && registry_usable(o) && hash128_equal(o->numeric_id, w->numeric_id))
            return true;
    }
    return false;
}

// Requests do not wait for a worker that makes no progress while another one could go on with them.
void dispatcher_leave_stuck(dispatcher *d)
{
    registry *workers = d->router->registry;
    for (size_t i = 0; i < registry_count(workers); i++) {
        const registry_worker *w = registry_at(workers, i);
        error why;
        if (w->state != REGISTRY_ALIVE || w->healthy || w->sequences_spent == 0 ||
            !other_exists(workers, w))
            continue;
        error_set(&why, STATUS_PEER_SILENT, "", "worker %s: it makes no progress", w->name);
        requests_leave(d, w, &why, false);
    }
}
