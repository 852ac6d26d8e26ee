// Inside of common/worker/{worker,join,beat,resolve}.c. Not for others.
#pragma once

#include "worker/credits.h"
#include "worker/worker.h"

#include <pthread.h>
#include <stdatomic.h>

#define WORKER_ROUTERS_MAX 16
#define WORKER_URL_MAX 128
#define INBOX_EVENTS 8192

typedef enum router_state {
    ROUTER_JOINING, // the join thread asks
    ROUTER_JOINED,
    ROUTER_GONE, // the step thread will hear of it and end it
} router_state;

// Made by the join thread, ended by the step thread; everybody else meets it in the list, under the
// worker's lock. Its memory goes when nobody pins it and every event that its pair queued was
// popped.
struct worker_router {
    worker *worker;
    worker_router *next;
    char url[WORKER_URL_MAX]; // of its control socket
    mailbox_pair *pair;
    router_state state;
    bool told; // WORKER_ROUTER_GONE was given out
    bool up;   // the pair is connected
    int pins;  // uses by the join thread
    uint32_t heartbeat_ms, dead_after_ms;
    uint64_t id;            // the router's incarnation, once it accepted us
    uint32_t protocol;      // that it speaks
    credits_part part;      // of the credits
    uint32_t registered;    // the part that it was told with Register
    uint64_t pages_filling; // step thread: worker_use since worker_publish
    uint32_t sequences_filling;
    uint64_t heard_us;   // when its last message came
    uint64_t doubted_us; // when it was first found silent since; 0: it is not
    uint64_t router_clock_us, clock_arrived_us; // its last heartbeat
    uint64_t beat_sent_us;
    uint64_t free_after; // popped events
    const char *gone_reason;
};

// A router that was found, joined or not. Owned by the join thread.
typedef struct join_target {
    char url[WORKER_URL_MAX];
    uint64_t next_try_us, delay_us, logged_us;
    uint64_t router_id; // who last accepted us there
} join_target;

struct worker {
    const worker_settings *settings;
    const worker_identity *identity;
    char name[64]; // as much as a router takes
    queue *inbox;  // of mailbox_event; the step thread pops

    pthread_mutex_t lock; // everything below up to the threads' own parts
    pthread_cond_t wake;  // both threads, to end or to speak at once
    bool ending, begun;
    worker_router *routers;
    worker_state state;
    uint64_t divided_us;  // when credits were divided last
    uint64_t progress_us; // when there was no work or a step ended
    bool speak_now;
    bool stuck; // work and no step, as the log says already
    bool draining, cordoned;
    uint64_t drain_deadline_us;

    pthread_t join_thread, beat_thread;
    join_target targets[WORKER_ROUTERS_MAX]; // join thread
    int target_count;
    uint64_t resolved_us;

    uint64_t popped;       // step thread
    worker_router *graves; // step thread: ended, memory not yet free
    bool drain_told;
    int signal_fd;
};

// ---- join.c
// The thread: looks up names, asks routers, until w->ending.
void *worker_join_main(void *argument);
// Tell the router at this control address that the worker goes; waits for its answer a moment.
void worker_leave_router(worker *w, const char *url);

// ---- beat.c
// The thread: speaks to every joined router on time, until w->ending.
void *worker_beat_main(void *argument);

// ---- resolve.c: names to addresses. Join thread.
// The control addresses behind `url` ("tcp://name:port"), as URLs of numbers; the count, or -1 and
// a sentence.
int worker_resolve(const char *url, char found[][WORKER_URL_MAX], int room, error *failure);
// ---- shared helpers
// Sleep on the condition at most so long; called and returns with the lock held.
void worker_sleep(worker *w, uint64_t duration_us);
// The number of `worker_signals_open`'s signals so far, and the descriptor that becomes readable
// with each.
int worker_signal_count(void);
int worker_signal_fd(void);
// Whether SIGHUP came since the last call.
bool worker_signal_reload(void);
// From now on a signal drains instead of ending the process.
void worker_signals_serve(void);
