// Live migration: answers that run on a decode worker that drains go on at another one.
//
// The move is attempt + 1, whose "prefill worker" is the worker that is left: it sends the pages
// and reports tokens until it rests; the other one goes on behind them. Whatever fails is an
// attempt that failed (dispatcher_events.c), and is computed again.
#include "router/dispatcher_private.h"

#include "base/clock.h"
#include "base/log.h"

#define MIGRATIONS_AT_ONCE 2 // of one worker: each rests while its pages travel
#define PROTOCOL_MIGRATE 2   // workers of this version know the order

static bool movable(const exchange *x, const registry_worker *from)
{
    return x->state == EXCHANGE_RUNNING && x->decode.serial == from->serial && x->decode_spoke &&
           !x->moving && x->early.size == 0 && x->stream.received.count > 0;
}

static void move(dispatcher *d, exchange *x, registry_worker *to)
{
    timeline *t = exchange_timeline(x);
    uint64_t tokens = x->prompt->tokens.count + x->stream.received.count + MIGRATION_SPARE;
    registry_worker *from = registry_find(d->router->registry, x->decode.serial);
    dispatcher_release(d, &x->prefill); // its part is done
    x->prefill = x->decode;
    x->decode = (exchange_share){ 0 };
    dispatcher_spend(&x->decode, to, x, tokens, false);
    x->moving = true;
    x->migrations++;
    x->attempt++;
    x->attempt_tokens = 0;
    x->by_prefill = false;
    x->decode_spoke = false;
    if (t) {
        t->attempts = x->attempt;
        memcpy(t->decode_worker, to->name, sizeof t->decode_worker);
    }
    log_info("request", "%s moves attempt %u received %zu from %s to %s", x->id, x->attempt,
             x->stream.received.count, from->name, to->name);
    status result = dispatcher_tickets(d, x, to, from);
    if (result == STATUS_OK)
        return;
    error_set(&x->last_failure, result, "", "a worker took no ticket: %s", status_text(result));
    dispatcher_retry(d, x, "send_failed", to->serial, false);
}

// Begin one move away from `from`; false where nothing can move.
static bool move_one(dispatcher *d, const registry_worker *from)
{
    size_t moving = 0;
    for (const exchange *x = d->all; x; x = x->all_next)
        moving += x->moving && x->prefill.serial == from->serial;
    for (exchange *x = d->all; x && moving < MIGRATIONS_AT_ONCE; x = x->all_next) {
        if (!movable(x, from))
            continue;
        policy_plan plan = dispatcher_plan_move(d, x);
        if (plan.verdict != POLICY_PLACED)
            continue;
        registry_worker *to = registry_at(d->router->registry, plan.decode);
        if (to->protocol < PROTOCOL_MIGRATE)
            continue;
        move(d, x, to);
        return true;
    }
    return false;
}

void dispatcher_migrate(dispatcher *d)
{
    registry *workers = d->router->registry;
    // A move that fails at once may end workers and exchanges: begin again behind each.
    for (size_t i = 0; !d->pumping && i < registry_count(workers); i++) {
        const registry_worker *w = registry_at(workers, i);
        bool leaves = w->role == POLICY_DECODE && w->state == REGISTRY_ALIVE && w->draining &&
                      w->protocol >= PROTOCOL_MIGRATE;
        if (leaves && move_one(d, w))
            i = SIZE_MAX; // from the first
    }
}

void dispatcher_migrated(dispatcher *d, exchange *x, const char *result)
{
    double pause = (double)(clock_now_us() - x->last_token_us) / 1e6;
    x->moving = false;
    if (strcmp(result, "moved") == 0)
        router_metrics_observe(d->router->metrics, ROUTER_METRIC_MIGRATION_PAUSE,
                               exchange_model_name(x), pause);
    log_info("request", "%s %s attempt %u pause_ms %.1f", x->id, result, x->attempt, pause * 1000);
    router_metrics_add(d->router->metrics, ROUTER_METRIC_MIGRATIONS, result, exchange_model_name(x),
                       1);
}
