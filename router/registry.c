#include "router/registry_private.h"

#include "base/clock.h"
#include "base/utf8.h"

#include <stdio.h>
#include <stdlib.h>

#define EVENTS_MAX 65536        // messages between nng's threads and the loop
#define EVENTS_AT_ONCE 256      // before timers and clients get their turn
#define CHECK_US 50000          // how often silence and kept cancels are looked for
#define CLOCK_FRESH_US 60000000 // an older estimate of a clock's offset is replaced by a worse one

static void on_message(registry *r, registry_worker *w, slice data);

// ---- the table --------------------------------------------------------------------------------

size_t registry_count(const registry *r)
{
    return r->count;
}

registry_worker *registry_at(registry *r, size_t index)
{
    return r->workers[index];
}

registry_worker *registry_find(registry *r, uint64_t serial)
{
    registry_worker *w = r->buckets[serial % REGISTRY_BUCKETS];
    while (w && w->serial != serial)
        w = w->next;
    return w;
}

uint64_t registry_layout(const registry *r)
{
    return r->layout;
}

void registry_touch(registry *r, registry_worker *w)
{
    if (w->touched)
        return;
    w->touched = true;
    w->next_touched = r->touched;
    r->touched = w;
}

registry_worker *registry_take_touched(registry *r)
{
    registry_worker *w = r->touched;
    if (!w)
        return NULL;
    r->touched = w->next_touched;
    w->touched = false;
    return w;
}

// Whoever keeps a picture of the workers makes a new one.
static void layout_change(registry *r)
{
    r->layout++;
    while (registry_take_touched(r))
        ;
}

void registry_index(registry *r, registry_worker *w)
{
    w->index = r->count;
    r->workers[r->count++] = w;
    layout_change(r);
    registry_worker **bucket = &r->buckets[w->serial % REGISTRY_BUCKETS];
    w->next = *bucket;
    *bucket = w;
}

static void index_leave(registry *r, const registry_worker *w)
{
    registry_worker **link = &r->buckets[w->serial % REGISTRY_BUCKETS];
    while (*link != w)
        link = &(*link)->next;
    *link = w->next;
}

const char *registry_url(const registry *r)
{
    return mailbox_server_url(r->server);
}

uint64_t registry_refused(const registry *r)
{
    return r->refused;
}

bool registry_usable(const registry_worker *w)
{
    return w->state == REGISTRY_ALIVE && w->healthy && !w->draining && !w->cordoned;
}

const char *registry_state_name(const registry_worker *w)
{
    if (w->state == REGISTRY_JOINING)
        return "joining";
    if (w->state == REGISTRY_SUSPECT)
        return "suspect";
    return !w->healthy   ? "unhealthy"
           : w->draining ? "draining"
           : w->cordoned ? "cordoned"
                         : "alive";
}

uint64_t registry_align(const registry_worker *w, uint64_t worker_us)
{
    return worker_us ? worker_us - (uint64_t)w->clock_offset_us : 0;
}

void registry_context_follow(registry *r, served_model *model)
{
    uint32_t context = 0;
    for (size_t i = 0; i < r->count; i++) {
        const registry_worker *w = r->workers[i];
        if (w->model == model && w->role == POLICY_DECODE && w->context > context)
            context = w->context;
    }
    if (context == 0 || context > model->prompt.context)
        context = model->prompt.context;
    atomic_store_explicit(&model->context, context, memory_order_relaxed);
}

// ---- living and dying -------------------------------------------------------------------------

void registry_lose(registry *r, registry_worker *w, status cause)
{
    layout_change(r);
    r->workers[w->index] = r->workers[--r->count];
    r->workers[w->index]->index = w->index;
    index_leave(r, w);
    registry_context_follow(r, w->model);
    log_warn("registry", "worker lost name %s role %s serial %llu cause \"%s\"", w->name,
             policy_role_name(w->role), (unsigned long long)w->serial, status_text(cause));
    mailbox_pair_close(w->pair);
    w->pair = NULL;
    r->hooks.lost(w, cause, r->hooks.context);
    registry_cancels_drop(w);
    free(w);
}

status registry_post(registry *r, registry_worker *w, const message_to_worker *m, bool urgent)
{
    buffer bytes = { 0 };
    message_pack(&m->base, &bytes);
    status result = bytes.overflow ? STATUS_NO_MEMORY
                    : bytes.size > MESSAGE_SIZE_MAX
                        ? STATUS_TOO_LARGE
                        : mailbox_pair_send(w->pair, buffer_slice(&bytes), urgent);
    buffer_close(&bytes);
    if (result == STATUS_FULL && w->state == REGISTRY_ALIVE) {
        log_warn("registry", "worker takes no messages name %s", w->name);
        w->state = REGISTRY_SUSPECT;
        registry_touch(r, w);
    }
    return result;
}

status registry_send(registry *r, registry_worker *w, const message_to_worker *m, bool urgent)
{
    return registry_cancels_send(r, w) ? registry_post(r, w, m, urgent) : STATUS_FULL;
}

void registry_speak(registry *r, registry_worker *w)
{
    Penstock__RouterBeat beat = PENSTOCK__ROUTER_BEAT__INIT;
    Penstock__ToWorker m = PENSTOCK__TO_WORKER__INIT;
    beat.clock_us = clock_now_us();
    m.body_case = PENSTOCK__TO_WORKER__BODY_BEAT;
    m.beat = &beat;
    registry_send(r, w, &m, true);
}

static void on_beat_time(void *context)
{
    registry *r = context;
    for (size_t i = 0; i < r->count; i++)
        if (r->workers[i]->connected)
            registry_speak(r, r->workers[i]);
    http_timer_start(r->beat_timer, (uint64_t)r->settings->heartbeat_us);
}

// A router that stood still must not take its own silence for that of its workers: what they said
// meanwhile waits behind this very call. What it was late by is no silence.
static void own_absence_forgive(registry *r, uint64_t now)
{
    uint64_t due = r->checked_us + CHECK_US;
    if (now < due + CHECK_US)
        return;
    for (size_t i = 0; i < r->count; i++)
        r->workers[i]->heard_us = clock_forgive(r->workers[i]->heard_us, now - due, now);
}

static void on_check_time(void *context)
{
    registry *r = context;
    uint64_t now = clock_now_us();
    own_absence_forgive(r, now);
    r->checked_us = now;
    for (size_t i = r->count; i-- > 0;) {
        registry_worker *w = r->workers[i];
        uint64_t silent = now - w->heard_us;
        registry_cancels_turn(r, w);
        if (silent > (uint64_t)r->settings->dead_after_us) {
            registry_lose(r, w, STATUS_PEER_SILENT);
        } else if (silent > (uint64_t)r->settings->suspect_after_us && w->state == REGISTRY_ALIVE) {
            log_warn("registry", "worker is silent name %s for_ms %llu", w->name,
                     (unsigned long long)(silent / 1000));
            w->state = REGISTRY_SUSPECT;
            registry_touch(r, w);
        }
    }
    http_timer_start(r->check_timer, CHECK_US);
}

// The router's clock went out with a beat and came back with the worker's: half of the way there
// and back is the error.
static void clock_measure(registry_worker *w, const Penstock__WorkerBeat *b, uint64_t now)
{
    if (b->router_clock_us == 0 || b->router_clock_us + b->since_beat_us > now)
        return;
    uint64_t both_ways = now - b->router_clock_us - b->since_beat_us;
    if (both_ways / 2 > w->clock_error_us && now - w->clock_measured_us < CLOCK_FRESH_US)
        return;
    w->clock_error_us = both_ways / 2;
    w->clock_offset_us = (int64_t)(b->clock_us - (now - both_ways / 2)); // any number may come
    w->clock_measured_us = now;
}

static void rate_measure(registry_worker *w, const Penstock__WorkerBeat *b, uint64_t now)
{
    if (w->beat_us == 0 || b->prefill_tokens <= w->beat.prefill_tokens || now <= w->beat_us)
        return;
    // Only an interval that began and ended with work tells a rate.
    if (w->beat.tokens_waiting == 0 || b->tokens_waiting == 0)
        return;
    double rate =
        (double)(b->prefill_tokens - w->beat.prefill_tokens) * 1e6 / (double)(now - w->beat_us);
    w->prefill_tokens_per_s =
        w->prefill_tokens_per_s > 0 ? 0.8 * w->prefill_tokens_per_s + 0.2 * rate : rate;
}

// 0: as it was.
static void credits_follow(registry_worker *w, const Penstock__WorkerBeat *b)
{
    if (b->page_credits && b->page_credits <= w->pages)
        w->page_credits = b->page_credits;
    if (b->sequence_credits)
        w->sequences = b->sequence_credits;
    if (b->token_credits)
        w->token_credits = b->token_credits;
}

static void on_beat(registry *r, registry_worker *w, const Penstock__WorkerBeat *b)
{
    uint64_t now = clock_now_us();
    bool was_usable = registry_usable(w), was_healthy = w->healthy;
    uint64_t had_pages = w->page_credits;
    clock_measure(w, b, now);
    rate_measure(w, b, now);
    w->beat = (registry_beat){
        .pages_free = b->pages_free,
        .pages_held = b->pages_held,
        .pages_quarantined = b->pages_quarantined,
        .sequences_running = b->sequences_running,
        .sequences_waiting = b->sequences_waiting,
        .tokens_waiting = b->tokens_waiting,
        .steps = b->steps,
        .step_us = b->step_us,
        .prefill_tokens = b->prefill_tokens,
        .decode_tokens = b->decode_tokens,
        .cached_tokens = b->cached_tokens,
        .preemptions = b->preemptions,
        .handoff_bytes = b->handoff_bytes,
        .handoff_failures = b->handoff_failures,
        .handoff_gbps = b->handoff_gbps,
    };
    snprintf(w->beat.transport, sizeof w->beat.transport, "%.*s",
             utf8_fit(b->transport, sizeof w->beat.transport - 1), b->transport);
    guesses_take(b->guesses, &w->beat.guesses);
    w->beat_us = now;
    w->healthy = b->healthy;
    w->draining = b->draining;
    w->cordoned = b->cordoned;
    credits_follow(w, b);
    if (w->state != REGISTRY_ALIVE)
        log_info("registry", "worker is alive name %s role %s", w->name, policy_role_name(w->role));
    w->state = REGISTRY_ALIVE;
    registry_touch(r, w);
    if (was_healthy && !w->healthy)
        log_warn("registry", "worker makes no progress name %s", w->name);
    if (registry_usable(w) && (!was_usable || w->page_credits > had_pages))
        r->hooks.changed(r->hooks.context);
}

static void on_message(registry *r, registry_worker *w, slice data)
{
    message_to_router *m = NULL;
    error failure = { 0 };
    if (message_unpack_to_router(data, &m, &failure) != STATUS_OK) {
        log_warn("registry", "worker broke the protocol name %s cause \"%s\"", w->name,
                 failure.text);
        registry_lose(r, w, STATUS_PEER_PROTOCOL);
        return;
    }
    w->heard_us = clock_now_us();
    if (m->body_case == PENSTOCK__TO_ROUTER__BODY_BEAT)
        on_beat(r, w, m->beat);
    else if (m->body_case == PENSTOCK__TO_ROUTER__BODY_GOODBYE) {
        w->left = true;
        registry_lose(r, w, STATUS_PEER_CLOSED);
    } else
        r->hooks.message(w, m, r->hooks.context);
    message_free(m);
}

static void on_event(registry *r, mailbox_event *event)
{
    if (event->kind == MAILBOX_REQUEST) {
        registry_answer(r, event);
        return;
    }
    registry_worker *w = registry_find(r, (uint64_t)(uintptr_t)event->owner);
    if (w && event->kind == MAILBOX_UP) {
        w->connected = true;
        w->heard_us = clock_now_us();
        registry_speak(r, w);
    } else if (w && event->kind == MAILBOX_DOWN) {
        registry_lose(r, w, STATUS_PEER_CLOSED);
    } else if (w) {
        on_message(r, w, event->data);
    }
    mailbox_event_free(event);
}

static void on_events(void *context)
{
    registry *r = context;
    mailbox_event *event;
    for (int i = 0; i < EVENTS_AT_ONCE && (event = queue_pop(r->events)) != NULL; i++)
        on_event(r, event);
    r->hooks.settled(r->hooks.context);
}

// ---- opening ----------------------------------------------------------------------------------

status registry_open(http_loop *loop, const router_settings *settings, models *served,
                     uint64_t incarnation, const registry_hooks *hooks, registry **opened,
                     error *failure)
{
    status result = STATUS_OK;
    registry *r = calloc(1, sizeof *r);
    if (!r)
        return error_set(failure, STATUS_NO_MEMORY, "", "no memory for the registry");
    r->loop = loop;
    r->settings = settings;
    r->models = served;
    r->incarnation = incarnation;
    r->hooks = *hooks;
    if (queue_open(EVENTS_MAX, &r->events) != STATUS_OK ||
        http_watch_open(loop, queue_event_fd(r->events), on_events, r, &r->watch) != STATUS_OK ||
        http_timer_open(loop, on_beat_time, r, &r->beat_timer) != STATUS_OK ||
        http_timer_open(loop, on_check_time, r, &r->check_timer) != STATUS_OK) {
        result = error_set(failure, STATUS_NO_MEMORY, "", "no memory for the registry");
        goto fail;
    }
    TRY(mailbox_security_start(&settings->security, failure));
    TRY(mailbox_url_check("control.listen", settings->control_listen, failure));
    TRY(mailbox_server_open(settings->control_listen, 8, &mailbox_limits_default, r->events, NULL,
                            &r->server, failure));
    http_timer_start(r->beat_timer, (uint64_t)settings->heartbeat_us);
    r->checked_us = clock_now_us();
    http_timer_start(r->check_timer, CHECK_US);
    *opened = r;
    return STATUS_OK;
fail:
    registry_close(r);
    return result;
}

void registry_close(registry *r)
{
    if (!r)
        return;
    if (r->server)
        mailbox_server_close(r->server);
    for (size_t i = 0; i < r->count; i++) {
        mailbox_pair_close(r->workers[i]->pair);
        registry_cancels_drop(r->workers[i]);
        free(r->workers[i]);
    }
    free(r->workers);
    http_watch_close(r->watch);
    http_timer_close(r->beat_timer);
    http_timer_close(r->check_timer);
    for (mailbox_event *event; r->events && (event = queue_pop(r->events));)
        mailbox_event_free(event);
    if (r->events)
        queue_close(r->events);
    free(r);
}
