// The loop of the step thread.
#include "worker/station_private.h"

#include "base/activity.h"
#include "base/clock.h"
#include "worker/cores.h"

#include <signal.h>
#include <stdio.h>
#include <unistd.h>

static void routers_hear(station *s)
{
    for (worker_event event; worker_next(s->worker, &event); worker_event_end(&event)) {
        switch (event.kind) {
        case WORKER_TICKET:
            station_ticket(s, &event);
            break;
        case WORKER_CANCEL:
            station_cancel(s, &event);
            break;
        case WORKER_MIGRATE:
            station_migrate(s, &event);
            break;
        case WORKER_ORDER:
            station_order(s, &event);
            break;
        case WORKER_ROUTER_GONE:
            station_router_gone(s, event.router);
            break;
        case WORKER_RELOAD:
            station_reload(s);
            break;
        case WORKER_DRAIN:
            station_drain(s);
            break;
        }
    }
}

static void handoff_hear(station *s)
{
    for (handoff_event *event; (event = handoff_event_next(s->handoff)) != NULL;) {
        station_transfer(s, event);
        handoff_event_free(event);
    }
}

#define COMPILING_US 1000 // until a grammar that is being compiled is looked after again

// ---- what is -----------------------------------------------------------------------------------

// As its router counts them: those of its tokens and one more.
static uint64_t pages_of(const station *s, const job *j)
{
    int32_t count = 0, page_tokens = engine_facts_of(s->engine)->layout.page_tokens;
    if (j->sequence != NULL)
        sequence_pages(j->sequence, &count);
    int32_t promised = (j->token_count + page_tokens - 1) / page_tokens + 1;
    return (uint64_t)(count > promised ? count : promised);
}

static void state_gather(station *s, handoff_stats *stats)
{
    worker_state *w = &s->state;
    handoff_stats_of(s->handoff, stats);
    w->pages_free = (uint64_t)engine_pages_free(s->engine);
    w->pages_held = (uint64_t)engine_pages_held(s->engine);
    w->pages_quarantined = stats->pages_quarantined;
    w->pages_evicted = engine_pages_evicted(s->engine);
    w->sequences_running = 0;
    w->sequences_waiting = 0;
    w->tokens_waiting = 0;
    for (int32_t i = 0; i < job_count(s->jobs); i++) {
        const job *j = job_at(s->jobs, i);
        bool running = j->state == JOB_COMPUTING || j->state == JOB_RUNNING;
        if (j->router != NULL)
            worker_use(j->router, pages_of(s, j), 1);
        w->sequences_running += running;
        w->sequences_waiting += !running && j->state != JOB_ENDING;
        if (j->state == JOB_WAITING)
            w->tokens_waiting += (uint64_t)j->token_count;
        else if (j->state == JOB_COMPUTING)
            w->tokens_waiting += (uint64_t)(j->token_count - sequence_computed(j->sequence));
    }
    w->handoff_bytes = s->role->seats ? stats->bytes_received : stats->bytes_sent;
    w->handoff_failures = stats->transfers_failed;
    w->handoff_gbps = stats->probe_gbps;
    snprintf(w->transport, sizeof(w->transport), "%s", stats->transport);
}

static void publish(station *s)
{
    handoff_stats stats;
    state_gather(s, &stats);
    s->state.has_work = engine_has_work(s->engine);
    for (; s->slow_pairs < stats.slow_pairs; s->slow_pairs++)
        page_fallback(s->page, "transport", "slow");
    worker_publish(s->worker, &s->state);
    page_show(s->page, &s->state, &stats, guides_bytes(s->guides));
}

// ---- a step ------------------------------------------------------------------------------------

static void faults(const station *s)
{
    if (fault_fires(FAULT_WORKER_STALL)) {
        activity_now("standing still as the fault point worker.stall asks");
        clock_sleep_us((uint64_t)fault_value(FAULT_WORKER_STALL) * 1000);
    }
    if (s->state.steps >= (uint64_t)fault_value(FAULT_WORKER_DIE) && fault_fires(FAULT_WORKER_DIE))
        kill(getpid(), SIGKILL);
}

// Stamp the prompts whose first chunk was in this step.
static void begun_stamp(station *s)
{
    for (int32_t i = 0; i < job_count(s->jobs); i++) {
        job *j = job_at(s->jobs, i);
        if (j->state == JOB_COMPUTING && j->times.prefill_begun == 0 &&
            sequence_computed(j->sequence) > j->cached_tokens)
            j->times.prefill_begun = s->step_begun_us;
    }
}

static void count_step(station *s, const engine_report *report)
{
    worker_state *w = &s->state;
    int32_t decoded = report->decode_rows - report->draft_rows + report->accepted_count;
    w->steps++;
    w->step_us = w->steps == 1 ? report->duration_us : (w->step_us * 7 + report->duration_us) / 8;
    w->prefill_tokens += (uint64_t)report->prefill_rows;
    w->decode_tokens += (uint64_t)decoded;
    w->preemptions += (uint64_t)report->preempted_count;
    page_count(s->page, PAGE_PREFILL_TOKENS, report->prefill_rows);
    page_count(s->page, PAGE_DECODE_TOKENS, decoded);
    page_observe(s->page, PAGE_STEP_SECONDS, (double)report->duration_us * 1e-6);
    if (report->predicted_us > 0) {
        page_observe(s->page, PAGE_STEP_PREDICTED_SECONDS, (double)report->predicted_us * 1e-6);
        page_observe(s->page, PAGE_STEP_RATIO,
                     (double)report->duration_us / (double)report->predicted_us);
    }
    page_observe(s->page, PAGE_STEP_ROWS, report->rows);
    if (report->decode_rows > 0)
        page_observe(s->page, PAGE_BATCH, report->decode_rows - report->draft_rows);
}

static void step(station *s)
{
    engine_report report;
    faults(s);
    s->step_begun_us = clock_now_us();
    if (s->role->stepping != NULL)
        s->role->stepping(s);
    activity_now("computing a step");
    engine_step(s->engine, &report);
    activity_now("reporting a step");
    if (report.rows == 0 && report.preempted_count == 0)
        return;
    count_step(s, &report);
    begun_stamp(s);
    report_scores(&report);
    s->role->stepped(s, &report);
    report_batch_send(s->batch);
    for (int32_t i = 0; i < report.preempted_count; i++) {
        job *j = sequence_owner(report.preempted[i]);
        page_count(s->page, j->class == SEQUENCE_BATCH ? PAGE_PREEMPTIONS_BATCH : PAGE_PREEMPTIONS,
                   1);
        page_fallback(s->page, "preemption", "pages");
        station_fail(s, j, STATUS_OVERLOADED, "the page pool is full");
    }
}

// How long the loop may sleep: until the next deadline at most.
static int64_t sleep_us(const station *s)
{
    uint64_t now_us = clock_now_us(), next_us = now_us + 250000;
    for (int32_t i = 0; i < job_count(s->jobs); i++) {
        const job *j = job_at(s->jobs, i);
        if (j->state != JOB_ENDING && j->deadline_us != 0 && j->deadline_us < next_us)
            next_us = j->deadline_us;
        // The compiler thread wakes nobody: it is looked after while something else sleeps.
        if (j->guide != NULL && guide_state_of(j->guide) == GUIDE_COMPILING &&
            next_us > now_us + COMPILING_US)
            next_us = now_us + COMPILING_US;
    }
    return next_us > now_us ? (int64_t)(next_us - now_us) : 0;
}

// True when the process may leave.
static bool drained(station *s)
{
    if (!worker_draining(s->worker))
        return false;
    if (job_count(s->jobs) == 0)
        return true;
    if (clock_now_us() < worker_drain_deadline_us(s->worker))
        return false;
    station_give_back(s);
    return true;
}

void station_run(station *s)
{
    activity_begin("step");
    for (;;) {
        activity_now("hearing routers");
        routers_hear(s);
        activity_now("hearing the hand-off");
        handoff_hear(s);
        station_expire(s);
        activity_now("letting tickets in");
        station_admit(s);
        publish(s);
        if (drained(s)) {
            activity_now("leaving");
            cores_busy(false);
            return;
        }
        if (engine_has_work(s->engine)) {
            cores_busy(true);
            step(s);
        } else if (s->role->idle != NULL && s->role->idle(s)) {
            cores_busy(true);
        } else {
            activity_now("waiting for work");
            cores_busy(false);
            worker_wait(s->worker, handoff_event_fd(s->handoff), sleep_us(s));
        }
    }
}
