// Inside the dispatcher: call.c (towards the client), exchange.c (begin and end of a sequence),
// dispatcher_queue.c (the line, placing), dispatcher.c (credits, tickets), dispatcher_events.c
// (towards the workers: reports, further attempts), dispatcher_lost.c (workers that are gone).
#pragma once

#include "router/call.h"

#define EXCHANGE_BUCKETS 8192u
#define DISPATCHER_TICK_US 100000 // deadlines, budgets, silence

// After so many failed hand-offs a request is computed where it decodes, if that is allowed: its
// workers may be alive and yet cut off from each other.
#define HANDOFF_FAILURES_MAX 2

// What is counted for each model by itself: its line, all that wait of each class by their order
// (router/admission.h), and the credits of its workers.
typedef struct dispatcher_line {
    exchange *first[ADMISSION_CLASSES], *last[ADMISSION_CLASSES];
    size_t waiting[ADMISSION_CLASSES];
    size_t running;
    exchange_held held[ADMISSION_CLASSES]; // on decode workers
    exchange_held granted;                 // by usable decode workers, as the last round saw it
    admission_rate rate;
} dispatcher_line;

struct dispatcher {
    router *router;
    http_timer *tick;
    call *calls;
    exchange *all;
    exchange *walk;  // the next one of a walk over all of them, which follows where that one
                     // leaves; NULL: no walk, for one within another would cut that short
    exchange *fresh; // with tokens that their clients have not got yet
    exchange *buckets[EXCHANGE_BUCKETS];
    dispatcher_line lines[MODELS_MAX]; // by served_model.index
    dispatcher_counts counts;
    uint64_t next_number;
    bool pumping,
        pump_again;      // one placing round at a time; what makes room meanwhile asks for another
    policy_worker *view; // see dispatcher_view; [view_capacity]
    size_t view_capacity;
    uint64_t view_layout; // of the registry, when it was drawn; 0: not yet
    token_list scratch;   // a ticket's tokens
    buffer out;           // an answer being written
};

// dispatcher_queue.c
// Into the line at its place, and out of it; both keep the counts.
void dispatcher_enqueue(dispatcher *d, exchange *x);
void dispatcher_dequeue(dispatcher *d, exchange *x);
// Whether all sequences of a request find place in the line of its class.
bool dispatcher_queue_takes(const dispatcher *d, const request *r);
// That of its model; the request was parsed.
dispatcher_line *dispatcher_line_of(const exchange *x);
size_t dispatcher_waiting(const dispatcher_line *line); // of both classes
// The class whose request stands before the others, of one request (or NULL) of each;
// ADMISSION_CLASSES where there is none.
size_t dispatcher_front(exchange *const fronts[ADMISSION_CLASSES]);
// Place what can be placed, in the order of the line.
void dispatcher_pump(dispatcher *d);
// Where a running exchange could go on with the pages that it has.
policy_plan dispatcher_plan_move(dispatcher *d, const exchange *x);
// Seconds after which a refused client may come again, 1 to 60.
int dispatcher_retry_after(const dispatcher *d, const request *r);

// dispatcher_view.c
// All workers as they are now. False: no memory.
bool dispatcher_view(dispatcher *d, policy_view *view);
// The same view once more, after credits were spent or returned and no worker has joined or left.
void dispatcher_view_follow(dispatcher *d);
// For tests: whether every worker that differs from the picture was touched.
bool dispatcher_view_is_true(const dispatcher *d);

// dispatcher.c
// Out of the line: credits are spent and tickets sent, or it is tried again.
void dispatcher_place(dispatcher *d, exchange *x, const policy_plan *plan);
// The share holds more pages than before.
void dispatcher_grow(dispatcher *d, registry_worker *w, exchange_share *share, uint64_t pages);
// Spend credits on a worker. `outstanding`: it computes the prompt.
void dispatcher_spend(exchange_share *share, registry_worker *w, const exchange *x, uint64_t tokens,
                      bool outstanding);
// Both workers of a plan get the same ticket, each with the other one's name; of an exchange that
// moves, `prefill` gets the order to send.
status dispatcher_tickets(dispatcher *d, exchange *x, registry_worker *decode,
                          registry_worker *prefill);
// Take the tickets back (Cancel to both workers) and return the credits.
void dispatcher_recall(dispatcher *d, exchange *x);
// Return the credits of one share.
void dispatcher_release(dispatcher *d, exchange_share *share);

// dispatcher_migrate.c
#define MIGRATION_SPARE 64u // tokens that a sequence may make while its seat is opened elsewhere
// Answers that run on a decode worker that drains go to others, as far as there is room.
void dispatcher_migrate(dispatcher *d);
// The move of an exchange is over: "moved", "failed" or "ended" (the answer was complete before).
void dispatcher_migrated(dispatcher *d, exchange *x, const char *result);

// dispatcher_events.c
// The attempt is over; plan another one, or give up. `culprit` is a serial to avoid (0: nobody's
// fault), `died`: by its death. One that is given up has ended, perhaps others with it.
void dispatcher_retry(dispatcher *d, exchange *x, const char *reason, uint64_t culprit, bool died);
// Ten times a second.
void dispatcher_on_tick(void *context);

// dispatcher_lost.c
// Requests leave workers that make no progress, where others could go on with them.
void dispatcher_leave_stuck(dispatcher *d);
