#include "router/router.h"

#include "base/clock.h"
#include "base/random.h"
#include "router/admin.h"
#include "router/dispatcher.h"
#include "router/gate.h"
#include "router/pulse.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

#define OFFLOAD_JOBS_MAX 64
#define DRAIN_LOOK_US 20000
#define FLUSH_US 300000 // for the last bytes of answers, where clients keep their connections

typedef struct router_signals {
    router *router;
    http_watch *term, *interrupt, *hangup;
    http_timer *drain;
    uint64_t drain_until_us;
    uint64_t idle_since_us; // 0: requests are under way
} router_signals;

// ---- what the registry tells --------------------------------------------------------------------

static void on_lost(registry_worker *w, status cause, void *context)
{
    router *r = context;
    admin_on_lost(r->admin, w);
    pulse_on_lost(r->pulse, w);
    router_metrics_add(r->metrics, ROUTER_METRIC_WORKERS_LOST, w->model->prompt.identity.name, NULL,
                       1);
    dispatcher_on_lost(w, cause, r);
}

static void on_message(registry_worker *w, const message_to_router *m, void *context)
{
    router *r = context;
    if (m->body_case == PENSTOCK__TO_ROUTER__BODY_ORDER_ANSWER)
        admin_on_answer(r->admin, w, m->order_answer);
    else
        dispatcher_on_message(w, m, r);
}

// ---- opening and closing ------------------------------------------------------------------------

static status settings_check(const router_settings *s, error *failure)
{
    if (s->suspect_after_us <= s->heartbeat_us || s->dead_after_us <= s->suspect_after_us)
        return error_set(failure, STATUS_BAD_CONFIG, "control.dead_after",
                         "control.heartbeat, suspect_after and dead_after must grow in this order");
    return fault_arm(&s->faults, failure);
}

static status parts_open(router *r, error *failure)
{
    status result = STATUS_OK;
    router_settings *s = r->settings;
    registry_hooks hooks = { dispatcher_on_changed, on_lost, on_message, dispatcher_on_settled, r };
    if (router_metrics_open(&r->models, &r->metrics) != STATUS_OK ||
        history_open((size_t)s->history, &r->history) != STATUS_OK ||
        model_encoders_open(&r->models, &r->encoders) != STATUS_OK)
        return error_set(failure, STATUS_NO_MEMORY, "", "no memory for the router");
    TRY(http_loop_open(&r->loop, failure));
    TRY(offload_open(r->loop, &r->models, OFFLOAD_JOBS_MAX, &r->offload, failure));
    TRY(dispatcher_open(r, &r->dispatcher, failure));
    TRY(admin_open(r, &r->admin, failure));
    if (pulse_open(r, &r->pulse) != STATUS_OK)
        return error_set(failure, STATUS_NO_MEMORY, "", "no memory for the router");
    TRY(registry_open(r->loop, s, &r->models, r->incarnation, &hooks, &r->registry, failure));
    TRY(gate_open(r, &r->gate, failure));
fail:
    return result;
}

status router_open(router_settings *settings, router **opened, error *failure)
{
    status result = STATUS_OK;
    router *r = calloc(1, sizeof *r);
    if (!r)
        return error_set(failure, STATUS_NO_MEMORY, "", "no memory for the router");
    r->settings = settings;
    r->incarnation = random_system();
    r->started_us = clock_now_us();
    r->started_s = clock_wall_s();
    log_apply(&settings->log);
    TRY(settings_check(settings, failure));
    TRY(models_open(settings, &r->models, failure));
    TRY(parts_open(r, failure));
    for (size_t i = 0; i < r->models.count; i++)
        log_info("router", "serves model %s", r->models.items[i].prompt.identity.name);
    log_info("router", "ready for workers control %s incarnation %016" PRIx64,
             registry_url(r->registry), r->incarnation);
    *opened = r;
    return STATUS_OK;
fail:
    router_close(r);
    return result;
}

void router_close(router *r)
{
    if (!r)
        return;
    if (r->dispatcher)
        dispatcher_stop(r->dispatcher);
    gate_close(r->gate);
    offload_close(r->offload);
    dispatcher_close(r->dispatcher);
    admin_close(r->admin);
    registry_close(r->registry);
    pulse_close(r->pulse);
    http_loop_close(r->loop);
    model_encoders_close(&r->encoders);
    history_close(r->history);
    router_metrics_close(r->metrics);
    models_close(&r->models);
    free(r);
}

// ---- what the parts ask -----------------------------------------------------------------------

static const char *not_ready(const router *r, const served_model *model)
{
    bool decode = false, prefill = false;
    for (size_t i = 0; i < registry_count(r->registry); i++) {
        const registry_worker *w = registry_at(r->registry, i);
        if (!registry_usable(w) || w->model != model)
            continue;
        decode = decode || w->role == POLICY_DECODE;
        prefill = prefill || w->role == POLICY_PREFILL;
    }
    return r->draining ? "the router is being shut down"
           : !decode   ? "no decode worker is alive"
           : !prefill && !r->settings->local_prefill
               ? "no prefill worker is alive, and policy.local_prefill is off"
               : NULL;
}

bool router_ready(const router *r, const served_model *model, char reason[160])
{
    const char *why = model ? not_ready(r, model) : NULL;
    for (size_t i = 0; !model && i < r->models.count; i++) {
        why = not_ready(r, &r->models.items[i]);
        if (!why)
            break;
    }
    snprintf(reason, 160, "%s", why ? why : "");
    return !why;
}

// ---- running and draining ---------------------------------------------------------------------

static void on_drain_look(void *context)
{
    router_signals *s = context;
    router *r = s->router;
    uint64_t now = clock_now_us();
    if (now >= s->drain_until_us)
        dispatcher_cut_all(r->dispatcher);
    dispatcher_counts counts = dispatcher_count(r->dispatcher);
    if (counts.parsing + counts.waiting + counts.running > 0)
        s->idle_since_us = 0;
    else if (s->idle_since_us == 0)
        s->idle_since_us = now;
    // The last bytes may still be in the sockets' buffers.
    bool written = gate_connections(r->gate) == 0 || now - s->idle_since_us > FLUSH_US;
    if (s->idle_since_us && written) {
        http_loop_stop(r->loop);
        return;
    }
    http_timer_start(s->drain, DRAIN_LOOK_US);
}

// The first signal drains: not ready, no keep-alive, new requests are answered 503. The second ends
// at once.
static void on_signal(void *context)
{
    router_signals *s = context;
    router *r = s->router;
    if (r->draining) {
        log_warn("router", "second signal: ending now");
        r->drain_cut = true;
        http_loop_stop(r->loop);
        return;
    }
    r->draining = true;
    log_info("router", "draining deadline_s %.1f", (double)r->settings->drain_deadline_us / 1e6);
    gate_refuse_keep_alive(r->gate);
    s->drain_until_us = clock_now_us() + (uint64_t)r->settings->drain_deadline_us;
    http_timer_start(s->drain, DRAIN_LOOK_US);
}

// ---- reading the settings again -----------------------------------------------------------------

static status reload_check(const void *fresh, void *context, error *failure)
{
    const router *r = context;
    const router_settings *s = fresh;
    status result = fault_check(&s->faults, failure);
    return result == STATUS_OK ? models_versions_check(&r->models, r->settings, s, failure)
                               : result;
}

// A live key holds its new value: what does not read it at the moment of use is told.
static void reload_apply(router *r, const char *key)
{
    error failure;
    if (strncmp(key, "log.", 4) == 0) {
        log_apply(&r->settings->log);
    } else if (strcmp(key, "faults") == 0) {
        fault_disarm_all();
        CHECK(fault_arm(&r->settings->faults, &failure) == STATUS_OK);
    }
}

static void on_changed_key(const char *key, bool taken, void *context)
{
    if (taken)
        reload_apply(context, key);
    if (taken)
        log_info("router", "reload %s is taken", key);
    else
        log_warn("router", "reload %s needs a restart", key);
}

static void on_hangup(void *context)
{
    router *r = ((router_signals *)context)->router;
    config_reload reload = { reload_check, on_changed_key, r };
    error failure;
    if (r->argc == 0)
        return;
    if (config_read_again(&router_program, r->argc, r->argv, r->settings, &reload, &failure) !=
        STATUS_OK) {
        log_error("router", "reload refused, nothing changed: %s", failure.text);
        return;
    }
    models_versions_take(&r->models);
    gate_reload(r->gate);
    log_info("router", "reload done");
    dispatcher_on_changed(r); // limits may have grown
}

int router_run(router *r)
{
    router_signals s = { .router = r };
    if (http_timer_open(r->loop, on_drain_look, &s, &s.drain) != STATUS_OK ||
        http_watch_signal(r->loop, SIGTERM, on_signal, &s, &s.term) != STATUS_OK ||
        http_watch_signal(r->loop, SIGINT, on_signal, &s, &s.interrupt) != STATUS_OK ||
        http_watch_signal(r->loop, SIGHUP, on_hangup, &s, &s.hangup) != STATUS_OK) {
        log_error("router", "no memory for signals");
        return 1;
    }
    http_loop_run(r->loop);
    http_timer_close(s.drain);
    http_watch_close(s.term);
    http_watch_close(s.interrupt);
    http_watch_close(s.hangup);
    log_info("router", "ends cut %d", r->drain_cut);
    return r->drain_cut ? 3 : 0;
}
