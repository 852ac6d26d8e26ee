// The beat thread: heartbeats on time, whatever the step thread does.
#include "worker/worker_private.h"

#include "base/activity.h"
#include "base/clock.h"
#include "base/log.h"

#include <stdio.h>

#define TICK_US 100000
#define DIVIDE_US 500000    // how often credits follow use
#define CHANGE_GAP_US 20000 // heartbeats for changed credits are at least so far apart

static bool healthy(const worker *w, uint64_t now_us)
{
    return !w->state.has_work || now_us - w->progress_us < (uint64_t)w->settings->step_deadline_us;
}

static void beat_fill(const worker *w, const worker_router *r, uint64_t now_us,
                      Penstock__WorkerBeat *beat, guesses_room *room)
{
    const worker_state *s = &w->state;
    penstock__worker_beat__init(beat);
    beat->router_clock_us = r->router_clock_us;
    beat->since_beat_us = r->clock_arrived_us != 0 ? now_us - r->clock_arrived_us : 0;
    beat->clock_us = now_us;
    beat->pages_free = s->pages_free;
    beat->pages_held = s->pages_held;
    beat->pages_quarantined = s->pages_quarantined;
    beat->sequences_running = s->sequences_running;
    beat->sequences_waiting = s->sequences_waiting;
    beat->tokens_waiting = s->tokens_waiting;
    beat->steps = s->steps;
    beat->step_us = s->step_us;
    beat->prefill_tokens = s->prefill_tokens;
    beat->decode_tokens = s->decode_tokens;
    beat->cached_tokens = s->cached_tokens;
    beat->preemptions = s->preemptions;
    beat->handoff_bytes = s->handoff_bytes;
    beat->handoff_failures = s->handoff_failures;
    beat->draining = w->draining;
    beat->cordoned = w->cordoned;
    beat->healthy = healthy(w, now_us);
    beat->transport = (char *)s->transport;
    beat->handoff_gbps = s->handoff_gbps;
    beat->guesses = guesses_tell(&s->guesses, room);
    if (r->protocol == 1)
        return;
    beat->page_credits = credits_of(w->identity->pages, r->part.told);
    beat->sequence_credits = (uint32_t)credits_of(w->identity->sequences, r->part.told);
    beat->token_credits = credits_of(w->identity->tokens, r->part.told);
}

// Under the lock. Routers that read credits from heartbeats share what the others were registered
// with leaves.
static void credits_share(worker *w, uint64_t now_us)
{
    credits_part parts[WORKER_ROUTERS_MAX];
    worker_router *owners[WORKER_ROUTERS_MAX];
    uint32_t whole = CREDITS_WHOLE;
    int count = 0;
    if (now_us - w->divided_us < DIVIDE_US)
        return;
    w->divided_us = now_us;
    for (worker_router *r = w->routers; r != NULL; r = r->next) {
        if (r->state != ROUTER_JOINED)
            continue;
        if (r->protocol == 1) {
            whole -= r->part.told < whole ? r->part.told : whole;
        } else if (count < WORKER_ROUTERS_MAX) {
            owners[count] = r;
            parts[count++] = r->part;
        }
    }
    if (count > 0)
        credits_divide(whole, parts, count);
    for (int i = 0; i < count; i++) {
        if (parts[i].told != owners[i]->part.told)
            owners[i]->beat_sent_us = 0; // it is due at once
        owners[i]->part = parts[i];
    }
}

// Under the lock. A heartbeat that does not fit is no loss: the next replaces it, and a router that
// takes nothing is noticed by its silence.
static void beat_send(worker *w, worker_router *r, uint64_t now_us, buffer *bytes)
{
    Penstock__WorkerBeat beat;
    guesses_room room;
    message_to_router message = PENSTOCK__TO_ROUTER__INIT;
    beat_fill(w, r, now_us, &beat, &room);
    message.body_case = PENSTOCK__TO_ROUTER__BODY_BEAT;
    message.beat = &beat;
    buffer_clear(bytes);
    message_pack(&message.base, bytes);
    if (!bytes->overflow)
        mailbox_pair_send(r->pair, buffer_slice(bytes), true);
    r->beat_sent_us = now_us;
}

// When steps cease, the log gets once what every thread does; and a line when they go on. Under the
// lock, which is let go meanwhile.
static void watch(worker *w, uint64_t now_us)
{
    bool stuck = !healthy(w, now_us);
    if (stuck == w->stuck)
        return;
    w->stuck = stuck;
    uint64_t for_ms = (now_us - w->progress_us) / 1000;
    worker_state state = w->state;
    pthread_mutex_unlock(&w->lock);
    if (stuck) {
        log_error("worker",
                  "no step for_ms %llu steps %llu running %u waiting %u pages_free %llu; the "
                  "threads:",
                  (unsigned long long)for_ms, (unsigned long long)state.steps,
                  state.sequences_running, state.sequences_waiting,
                  (unsigned long long)state.pages_free);
        activity_dump("worker");
    } else {
        log_warn("worker", "steps go on");
    }
    pthread_mutex_lock(&w->lock);
}

// Under the lock, which is let go meanwhile. Where this process stood still, no step could end:
// what was lost is no time without progress.
static void rest(worker *w, uint64_t duration_us)
{
    uint64_t due_us = clock_now_us() + duration_us;
    worker_sleep(w, duration_us);
    uint64_t now_us = clock_now_us();
    if (now_us > due_us + TICK_US)
        w->progress_us = clock_forgive(w->progress_us, now_us - due_us, now_us);
}

void *worker_beat_main(void *argument)
{
    worker *w = argument;
    activity_begin("beat");
    activity_now("speaking to routers");
    buffer bytes = { 0 };
    uint64_t changed_us = 0; // when a change was last told
    pthread_mutex_lock(&w->lock);
    while (!w->ending) {
        uint64_t now_us = clock_now_us();
        watch(w, now_us);
        credits_share(w, now_us);
        bool change = w->speak_now && now_us - changed_us >= CHANGE_GAP_US;
        for (worker_router *r = w->routers; r != NULL; r = r->next) {
            uint64_t gap_us = (uint64_t)r->heartbeat_ms * 1000;
            bool due = now_us - r->beat_sent_us + TICK_US / 2 >= gap_us;
            if (r->state == ROUTER_JOINED && r->up && (due || change))
                beat_send(w, r, now_us, &bytes);
        }
        if (change) {
            w->speak_now = false;
            changed_us = now_us;
        }
        rest(w, w->speak_now ? CHANGE_GAP_US : TICK_US);
    }
    pthread_mutex_unlock(&w->lock);
    buffer_close(&bytes);
    activity_end();
    return NULL;
}

// ---- what the step thread says -----------------------------------------------------------------

void worker_use(worker_router *router, uint64_t pages, uint32_t sequences)
{
    router->pages_filling += pages;
    router->sequences_filling += sequences;
}

// Of what the worker has, whichever is scarcer. Under the lock.
static void use_take(worker *w)
{
    for (worker_router *r = w->routers; r != NULL; r = r->next) {
        uint64_t pages = r->pages_filling * CREDITS_WHOLE / w->identity->pages;
        uint64_t sequences =
            (uint64_t)r->sequences_filling * CREDITS_WHOLE / w->identity->sequences;
        uint64_t used = pages > sequences ? pages : sequences;
        r->part.used = (uint32_t)(used < CREDITS_WHOLE ? used : CREDITS_WHOLE);
        r->pages_filling = 0;
        r->sequences_filling = 0;
    }
}

void worker_publish(worker *w, const worker_state *state)
{
    pthread_mutex_lock(&w->lock);
    bool changed = state->pages_free != w->state.pages_free ||
                   state->sequences_running != w->state.sequences_running ||
                   state->sequences_waiting != w->state.sequences_waiting;
    if (!state->has_work || !w->state.has_work || state->steps != w->state.steps)
        w->progress_us = clock_now_us();
    use_take(w);
    w->state = *state;
    if (changed && !w->speak_now) {
        w->speak_now = true;
        pthread_cond_broadcast(&w->wake);
    }
    pthread_mutex_unlock(&w->lock);
}

bool worker_healthy(worker *w)
{
    pthread_mutex_lock(&w->lock);
    bool good = healthy(w, clock_now_us());
    pthread_mutex_unlock(&w->lock);
    return good;
}

bool worker_ready(worker *w, char reason[128])
{
    pthread_mutex_lock(&w->lock);
    int joined = 0;
    for (const worker_router *r = w->routers; r != NULL; r = r->next)
        joined += r->state == ROUTER_JOINED && r->up;
    const char *why = w->draining                   ? "draining"
                      : w->cordoned                 ? "cordoned"
                      : !healthy(w, clock_now_us()) ? "there is work and no step was made"
                      : joined == 0                 ? "no router was joined"
                                                    : "";
    snprintf(reason, 128, "%s", why);
    pthread_mutex_unlock(&w->lock);
    return why[0] == 0;
}
