// The step thread's side: events of all routers in one inbox, and the end of routers that are gone.
#include "worker/worker_private.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/utf8.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define WAIT_LONGEST_US 250000 // silence is looked for so often
#define LEAVE_WAIT_US 1000000  // for a goodbye to be taken
#define HOST_SHOWN 40          // bytes of its name in a worker's
#define NAME_QUOTED 60
#define DOUBT_PART 8 // of its patience, for what came while this process stood still

static const char *const core_modes[] = { "auto", "all", NULL };

#define AT(field) offsetof(worker_settings, field)
// clang-format off
static const config_key keys[] = {
    { "worker.name", CONFIG_STRING, AT(name), "", 0, 0, "", "Name of this worker, for people; empty: host, role and process.", NULL },
    { "worker.host", CONFIG_STRING, AT(host), "", 0, 0, "", "Address that routers reach this worker at; empty: the local address towards the router.", NULL },
    { "worker.routers", CONFIG_STRINGS, AT(routers), "tcp://127.0.0.1:7000", 0, 0, "", "Control addresses of the routers to join; a name stands for all addresses that it has.", NULL },
    { "worker.resolve_every", CONFIG_DURATION, AT(resolve_us), "5s", 100000, 3.6e9, "", "How often the names in worker.routers are looked up again.", NULL },
    { "worker.drain_seconds", CONFIG_INT, AT(drain_seconds), "30", 0, 86400, "seconds", "After SIGTERM, what runs may finish so long; then it is given back to its router.", NULL },
    { "worker.step_deadline", CONFIG_DURATION, AT(step_deadline_us), "30s", 1e5, 3.6e9, "", "A worker that has work and made no step for so long says that it is not healthy.", NULL },
    { "worker.cores", CONFIG_STRING, AT(cores), "auto", 0, 0, "", "auto: half of the cores, those that fewest other workers of this machine hold; all: every core. engine.cores, where set, wins.", core_modes },
    { "worker.prefill_config", CONFIG_STRING, AT(prefill_config), "", 0, 0, "", "Configuration file to begin again with when an operator flips this worker to prefill; empty: the one that it was started with.", NULL },
    { "worker.decode_config", CONFIG_STRING, AT(decode_config), "", 0, 0, "", "The same when an operator flips it to decode.", NULL },
    { "worker.borrow", CONFIG_BOOL, AT(borrow), "false", 0, 0, "", "With worker.cores = auto: compute on the other workers' cores too while these have nothing to do.", NULL },
    { "worker.run_folder", CONFIG_STRING, AT(run_folder), "", 0, 0, "", "Folder in which workers of one machine divide its cores; empty: $XDG_RUNTIME_DIR/penstock or /tmp/penstock-UID.", NULL },
};
// clang-format on
#undef AT
const config_section worker_config_section = { keys, sizeof(keys) / sizeof(keys[0]) };

// ---- opening -----------------------------------------------------------------------------------

// A router takes no other name than one that fits and is text.
static status name_choose(worker *w, error *failure)
{
    const char *given = w->settings->name;
    char host[HOST_SHOWN + 1] = "host";
    if (given[0] == 0) {
        gethostname(host, sizeof(host) - 1); // cut where it is longer
        snprintf(w->name, sizeof(w->name), "%s-%s-%d", host,
                 w->identity->role == PENSTOCK__ROLE__ROLE_PREFILL ? "prefill" : "decode",
                 (int)getpid());
        utf8_make_printable(w->name);
        return STATUS_OK;
    }
    snprintf(w->name, sizeof(w->name), "%s", given);
    utf8_make_printable(w->name);
    if (strcmp(w->name, given) == 0)
        return STATUS_OK;
    return error_set(failure, STATUS_BAD_CONFIG, "worker.name",
                     "worker.name is \"%.*s\" (%zu bytes); it must be UTF-8 of %zu bytes at most, "
                     "without control characters",
                     utf8_fit(w->name, NAME_QUOTED), w->name, strlen(given), sizeof(w->name) - 1);
}

status worker_open(const worker_settings *settings, const worker_identity *identity,
                   worker **opened, error *failure)
{
    worker *w = calloc(1, sizeof(*w));
    if (w == NULL)
        return error_set(failure, STATUS_NO_MEMORY, "", "memory is short");
    w->settings = settings;
    w->identity = identity;
    w->signal_fd = worker_signal_fd();
    status result = name_choose(w, failure);
    if (result != STATUS_OK) {
        free(w);
        return result;
    }
    result = queue_open(INBOX_EVENTS, &w->inbox);
    if (result != STATUS_OK) {
        free(w);
        return error_set(failure, result, "", "the inbox cannot be made");
    }
    pthread_mutex_init(&w->lock, NULL);
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&w->wake, &attributes);
    pthread_condattr_destroy(&attributes);
    *opened = w;
    return STATUS_OK;
}

void worker_sleep(worker *w, uint64_t duration_us)
{
    uint64_t end_us = clock_now_us() + duration_us;
    struct timespec end = { .tv_sec = (time_t)(end_us / 1000000),
                            .tv_nsec = (long)(end_us % 1000000) * 1000 };
    pthread_cond_timedwait(&w->wake, &w->lock, &end);
}

status worker_begin(worker *w, error *failure)
{
    w->progress_us = clock_now_us();
    worker_signals_serve();
    if (pthread_create(&w->beat_thread, NULL, worker_beat_main, w) != 0)
        return error_set(failure, STATUS_IO, "", "a thread cannot be made");
    if (pthread_create(&w->join_thread, NULL, worker_join_main, w) != 0) {
        pthread_mutex_lock(&w->lock);
        w->ending = true;
        pthread_cond_broadcast(&w->wake);
        pthread_mutex_unlock(&w->lock);
        pthread_join(w->beat_thread, NULL);
        w->ending = false;
        return error_set(failure, STATUS_IO, "", "a thread cannot be made");
    }
    w->begun = true;
    return STATUS_OK;
}

static void threads_end(worker *w)
{
    if (!w->begun)
        return;
    pthread_mutex_lock(&w->lock);
    w->ending = true;
    pthread_cond_broadcast(&w->wake);
    pthread_mutex_unlock(&w->lock);
    pthread_join(w->join_thread, NULL);
    pthread_join(w->beat_thread, NULL);
    w->begun = false;
}

void worker_close(worker *w)
{
    if (w == NULL)
        return;
    threads_end(w);
    for (worker_router *r = w->routers, *next; r != NULL; r = next) {
        next = r->next;
        mailbox_pair_close(r->pair);
        r->next = w->graves;
        w->graves = r;
    }
    for (mailbox_event *event; (event = queue_pop(w->inbox)) != NULL;)
        mailbox_event_free(event);
    for (worker_router *r = w->graves, *next; r != NULL; r = next) {
        next = r->next;
        free(r);
    }
    queue_close(w->inbox);
    pthread_cond_destroy(&w->wake);
    pthread_mutex_destroy(&w->lock);
    free(w);
}

// ---- events ------------------------------------------------------------------------------------

static void router_gone(worker_router *r, const char *reason)
{
    pthread_mutex_lock(&r->worker->lock);
    if (r->state != ROUTER_GONE) {
        r->state = ROUTER_GONE;
        r->gone_reason = reason;
    }
    pthread_mutex_unlock(&r->worker->lock);
}

void worker_drain(worker *w)
{
    pthread_mutex_lock(&w->lock);
    if (!w->draining) {
        w->draining = true;
        w->drain_deadline_us = clock_now_us() + (uint64_t)w->settings->drain_seconds * 1000000;
        w->speak_now = true;
        pthread_cond_broadcast(&w->wake);
    }
    pthread_mutex_unlock(&w->lock);
}

void worker_cordon(worker *w, bool cordoned)
{
    pthread_mutex_lock(&w->lock);
    w->cordoned = cordoned;
    w->speak_now = true;
    pthread_cond_broadcast(&w->wake);
    pthread_mutex_unlock(&w->lock);
}

// What the step thread is told of a message; -1: nothing.
static int event_kind(const message_to_worker *m)
{
    switch (m->body_case) {
    case PENSTOCK__TO_WORKER__BODY_TICKET:
        return WORKER_TICKET;
    case PENSTOCK__TO_WORKER__BODY_CANCEL:
        return WORKER_CANCEL;
    case PENSTOCK__TO_WORKER__BODY_MIGRATE:
        return WORKER_MIGRATE;
    case PENSTOCK__TO_WORKER__BODY_ORDER:
        return WORKER_ORDER;
    default:
        return -1;
    }
}

// A message of a router; true where the step thread must see it.
static bool message_take(worker_router *r, const mailbox_event *from, worker_event *event)
{
    worker *w = r->worker;
    message_to_worker *m;
    error failure;
    if (message_unpack_to_worker(from->data, &m, &failure) != STATUS_OK) {
        log_warn("worker", "message refused router %s reason %s", r->url, failure.text);
        router_gone(r, "it broke the protocol");
        return false;
    }
    pthread_mutex_lock(&w->lock);
    r->heard_us = from->arrived_us;
    if (m->body_case == PENSTOCK__TO_WORKER__BODY_BEAT) {
        r->router_clock_us = m->beat->clock_us;
        r->clock_arrived_us = from->arrived_us;
    }
    pthread_mutex_unlock(&w->lock);
    int kind = event_kind(m);
    if (kind >= 0) {
        *event = (worker_event){ .kind = (worker_event_kind)kind,
                                 .router = r,
                                 .message = m,
                                 .arrived_us = from->arrived_us };
        return true;
    }
    if (m->body_case == PENSTOCK__TO_WORKER__BODY_DRAIN)
        worker_drain(w);
    message_free(m);
    return false;
}

static bool event_take(worker *w, mailbox_event *from, worker_event *event)
{
    worker_router *r = from->owner;
    bool seen = false;
    w->popped++;
    pthread_mutex_lock(&w->lock);
    bool gone = r->state == ROUTER_GONE;
    if (!gone && from->kind == MAILBOX_UP) {
        r->up = true;
        r->heard_us = from->arrived_us;
        w->speak_now = true; // the router may send work once it knows our credits
        pthread_cond_broadcast(&w->wake);
    }
    pthread_mutex_unlock(&w->lock);
    if (!gone && from->kind == MAILBOX_MESSAGE)
        seen = message_take(r, from, event);
    else if (!gone && from->kind == MAILBOX_DOWN)
        router_gone(r, "it closed the connection");
    mailbox_event_free(from);
    return seen;
}

// Whether it said nothing for as long as it may, and nothing more for a moment after that was seen:
// a process that stood still finds an empty inbox before it finds what came meanwhile. Under the
// lock.
static bool router_silent(worker_router *r, uint64_t now_us)
{
    uint64_t patience_us = (uint64_t)r->dead_after_ms * 1000;
    if (now_us - r->heard_us <= patience_us) {
        r->doubted_us = 0;
        return false;
    }
    if (r->doubted_us == 0)
        r->doubted_us = now_us;
    return now_us - r->doubted_us >= patience_us / DOUBT_PART;
}

// A router that fell silent or is gone otherwise, and that the step thread was not told of. Called
// with an empty inbox.
static worker_router *gone_find(worker *w)
{
    worker_router *found = NULL;
    pthread_mutex_lock(&w->lock);
    uint64_t now_us = clock_now_us(); // not before a time that the join thread wrote
    for (worker_router *r = w->routers; r != NULL && found == NULL; r = r->next) {
        if (r->state == ROUTER_JOINED && router_silent(r, now_us)) {
            r->state = ROUTER_GONE;
            r->gone_reason = "it fell silent";
        }
        if (r->state == ROUTER_GONE && !r->told && r->pins == 0) {
            r->told = true;
            found = r;
        }
    }
    pthread_mutex_unlock(&w->lock);
    return found;
}

static void graves_free(worker *w)
{
    for (worker_router **at = &w->graves; *at != NULL;) {
        worker_router *r = *at;
        if (w->popped < r->free_after) {
            at = &r->next;
            continue;
        }
        *at = r->next;
        free(r);
    }
}

bool worker_next(worker *w, worker_event *event)
{
    *event = (worker_event){ 0 };
    if (worker_signal_count() > 0)
        worker_drain(w);
    if (worker_signal_reload()) {
        event->kind = WORKER_RELOAD;
        return true;
    }
    if (w->draining && !w->drain_told) {
        w->drain_told = true;
        event->kind = WORKER_DRAIN;
        log_info("worker", "draining seconds %lld", (long long)w->settings->drain_seconds);
        return true;
    }
    for (mailbox_event *from; (from = queue_pop(w->inbox)) != NULL;)
        if (event_take(w, from, event))
            return true;
    graves_free(w);
    worker_router *gone = gone_find(w);
    if (gone == NULL)
        return false;
    *event = (worker_event){ .kind = WORKER_ROUTER_GONE, .router = gone };
    return true;
}

// The step thread has dropped everything of it.
static void router_end(worker *w, worker_router *r)
{
    pthread_mutex_lock(&w->lock);
    for (worker_router **at = &w->routers; *at != NULL; at = &(*at)->next)
        if (*at == r) {
            *at = r->next;
            break;
        }
    pthread_mutex_unlock(&w->lock);
    if (r->up)
        log_info("worker", "left router %s reason %s", r->url, r->gone_reason);
    mailbox_pair_close(r->pair);
    r->free_after = w->popped + queue_size(w->inbox);
    r->next = w->graves;
    w->graves = r;
}

void worker_event_end(worker_event *event)
{
    message_free(event->message);
    if (event->kind == WORKER_ROUTER_GONE)
        router_end(event->router->worker, event->router);
    *event = (worker_event){ 0 };
}

void worker_wait(worker *w, int other_fd, int64_t timeout_us)
{
    struct pollfd fds[] = {
        { .fd = queue_event_fd(w->inbox), .events = POLLIN },
        { .fd = w->drain_told ? -1 : w->signal_fd, .events = POLLIN },
        { .fd = other_fd, .events = POLLIN },
    };
    if (timeout_us > WAIT_LONGEST_US)
        timeout_us = WAIT_LONGEST_US;
    struct timespec limit = { .tv_nsec = (long)(timeout_us > 0 ? timeout_us : 0) * 1000 };
    CHECK(ppoll(fds, 3, &limit, NULL) >= 0 || errno == EINTR);
}

// ---- sending and leaving -----------------------------------------------------------------------

void worker_send(worker_router *router, const message_to_router *message)
{
    buffer bytes = { .limit = MESSAGE_SIZE_MAX };
    message_pack(&message->base, &bytes);
    status result = bytes.overflow ? STATUS_TOO_LARGE
                                   : mailbox_pair_send(router->pair, buffer_slice(&bytes), false);
    buffer_close(&bytes);
    // What is lost here would be a gap in an answer: the router must plan again.
    if (result != STATUS_OK)
        router_gone(router, status_text(result));
}

bool worker_draining(const worker *w)
{
    return w->draining;
}

uint64_t worker_drain_deadline_us(const worker *w)
{
    return w->drain_deadline_us;
}

void worker_leave(worker *w)
{
    threads_end(w);
    message_to_router message = PENSTOCK__TO_ROUTER__INIT;
    Penstock__Goodbye goodbye = PENSTOCK__GOODBYE__INIT;
    message.body_case = PENSTOCK__TO_ROUTER__BODY_GOODBYE;
    message.goodbye = &goodbye;
    for (worker_router *r = w->routers; r != NULL; r = r->next)
        if (r->state == ROUTER_JOINED)
            worker_send(r, &message);
    uint64_t end_us = clock_now_us() + LEAVE_WAIT_US;
    for (worker_router *r = w->routers; r != NULL; r = r->next) {
        while (r->state == ROUTER_JOINED && mailbox_pair_waiting(r->pair) > 0 &&
               clock_now_us() < end_us)
            clock_sleep_us(1000);
        if (r->state == ROUTER_JOINED)
            worker_leave_router(w, r->url);
    }
}
