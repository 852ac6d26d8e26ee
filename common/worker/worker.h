// What both workers are to their routers: joining, heartbeats, drain, the inbox of the step thread.
//
// Threads: the *step thread* (the program's main thread) calls everything here unless said
// otherwise; the join thread finds routers and registers with them; the beat thread speaks to every
// router on time, also while a step takes long. Both only read what the step thread published.
//
// A worker_router is one connection to one router, from joining until WORKER_ROUTER_GONE. A router
// that closed, fell silent (dead_after_ms), broke the protocol or does not take what is sent is
// gone: every request of it is over, and the join thread joins it again over a new pair. Routers
// know nothing of each other; the worker divides its credits among those that it finds
// (credits.h) and tells each its part with heartbeats.
//
// Exit status of the programs: 0 left after a drain, 1 could not start (the log says why), 3 ended
// at once by a second signal.
#pragma once

#include "base/config.h"
#include "base/hash.h"
#include "net/mailbox.h"
#include "net/guesses.h"
#include "net/message.h"

typedef struct worker worker;
typedef struct worker_router worker_router;

// The `worker` section of a worker's configuration.
typedef struct worker_settings {
    char *name; // "" = host name, role, process
    char *host; // address that routers and prefill workers reach us at; "" = the local address
                // towards the router
    config_strings
        routers; // control addresses: "tcp://host:port"; a name stands for all of its addresses
    int64_t resolve_us;       // names are looked up again so often
    int64_t drain_seconds;    // what runs may finish so long
    int64_t step_deadline_us; // work without a step for so long is not healthy
    char *cores;              // auto | all
    bool borrow;              // compute on cores of other workers too, while those have no work
    char *run_folder;         // where workers of one machine divide its cores; "" = of this user
    char *prefill_config, *decode_config; // files for the role that an operator flips it to; "" =
                                          // as it was started
} worker_settings;
extern const config_section worker_config_section; // keys "worker.*"

// What a worker says of itself when it joins.
typedef struct worker_identity {
    Penstock__Role role;
    uint64_t incarnation;
    const char *model_name, *architecture, *kv_layout;
    hash128 weights, numeric_id;
    uint32_t page_tokens, context, vocabulary;
    uint64_t page_bytes;
    uint64_t pages;     // in the pool
    uint32_t sequences; // open at a time
    uint64_t tokens; // prompt tokens that all routers together may have waiting here; 0: any number
    uint32_t threads;
    char fabric_host[64]; // decode workers: where prefill workers connect
    uint16_t fabric_port;
} worker_identity;

// What the step thread last knew of itself, for heartbeats and pages. Plain numbers, copied.
typedef struct worker_state {
    uint64_t pages_free, pages_held, pages_quarantined;
    uint64_t pages_evicted; // since start
    uint32_t sequences_running, sequences_waiting;
    uint64_t tokens_waiting;
    uint64_t steps, step_us;
    uint64_t prefill_tokens, decode_tokens, cached_tokens;
    uint64_t preemptions, handoff_bytes, handoff_failures;
    bool has_work;
    guesses guesses; // of a decode worker
    char transport[32];
    double handoff_gbps;
} worker_state;

typedef enum worker_event_kind {
    WORKER_TICKET,      // message->ticket
    WORKER_CANCEL,      // message->cancel
    WORKER_MIGRATE,     // message->migrate
    WORKER_ORDER,       // message->order: to be answered with OrderAnswer
    WORKER_ROUTER_GONE, // the last event of `router`, which ends with worker_event_end
    WORKER_RELOAD,      // SIGHUP: read the settings again
    WORKER_DRAIN,       // take nothing new and finish: a first signal, or a router's order
} worker_event_kind;

typedef struct worker_event {
    worker_event_kind kind;
    worker_router *router;
    message_to_worker *message;
    uint64_t arrived_us; // clock_now_us when it came in
} worker_event;

// Settings and identity must outlive the worker. `stop_fd` is worker_signals_open's.
// STATUS_BAD_CONFIG: worker.name is none that a router takes.
status worker_open(const worker_settings *settings, const worker_identity *identity,
                   worker **opened, error *failure);
// Joining begins: until then no event can come.
status worker_begin(worker *w, error *failure);
// Says goodbye where that was not done, ends the threads, closes all pairs.
void worker_close(worker *w);

// The next event, false where there is none. Each is ended with worker_event_end.
bool worker_next(worker *w, worker_event *event);
void worker_event_end(worker_event *event);
// Sleep until there is an event, `other_fd` is readable (-1: none) or `timeout_us` passed.
void worker_wait(worker *w, int other_fd, int64_t timeout_us);

// Send to a router that is not gone. One that does not take it becomes gone with the next
// worker_next.
void worker_send(worker_router *router, const message_to_router *message);

// Requests of this router fill so many more pages and sequences; to be said for all of them before
// each worker_publish, which is when it counts.
void worker_use(worker_router *router, uint64_t pages, uint32_t sequences);
// Tell the beat thread what is; heartbeats follow at once where credits changed.
void worker_publish(worker *w, const worker_state *state);
// Begin a drain, as a first signal does; WORKER_DRAIN follows.
void worker_drain(worker *w);
// Tell every router to send nothing new, or that it may again.
void worker_cordon(worker *w, bool cordoned);
// True after WORKER_DRAIN.
bool worker_draining(const worker *w);
// The moment when a drain must be over, of clock_now_us; 0: no drain.
uint64_t worker_drain_deadline_us(const worker *w);
// Tell every router that we go, and wait a moment until they heard it.
void worker_leave(worker *w);

// Any thread. Health: false where there is work and no step for step_deadline_us. Ready: joined
// with a router, healthy, not draining and not cordoned; else `reason` says why not.
bool worker_healthy(worker *w);
bool worker_ready(worker *w, char reason[128]);

// The address of this machine that leads to the router at `url` ("tcp://name:port");
// STATUS_UNAVAILABLE where the name cannot be looked up or there is no route. Any thread; may wait
// for a name server.
status worker_route(const char *url, char host[64], error *failure);

// SIGTERM and SIGINT: before worker_begin they end the process with 0, then the first is a
// WORKER_DRAIN and the second ends it with 3. SIGHUP is a WORKER_RELOAD. To be called first, before
// any thread exists.
void worker_signals_open(void);
