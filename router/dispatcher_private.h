// Inside the dispatcher: exchange.c (towards the client), dispatcher_queue.c (the line, placing),
// dispatcher.c (credits, tickets), dispatcher_events.c (towards the workers: reports, losses,
// further attempts).
#pragma once

#include "router/answer.h"
#include "router/dispatcher.h"

#define EXCHANGE_BUCKETS 8192u
#define DISPATCHER_TICK_US 100000 // deadlines, budgets, silence

// PARSING -> IDLE -> WAITING <-> RUNNING -> IDLE, then it is freed.
typedef enum exchange_state {
    EXCHANGE_PARSING, // on the helper thread
    EXCHANGE_WAITING, // for credits
    EXCHANGE_RUNNING, // tickets are out
    EXCHANGE_IDLE,    // none of these: just parsed, or about to end
} exchange_state;

// Credits that somebody holds, or that were granted.
typedef struct exchange_held {
    uint64_t pages, sequences;
} exchange_held;

// A worker's part in an attempt. serial 0: none.
typedef struct exchange_share {
    uint64_t serial;
    uint64_t pages;      // credits spent there
    uint64_t tokens;     // counted as outstanding there
    exchange_held *held; // where its class counts them; NULL: nowhere
} exchange_share;

// One client request and its answer. In the list `all` and in its bucket from begin to end; in a
// queue while WAITING. A nested call may end it wherever its client is answered, so nothing is
// touched after that.
typedef struct exchange {
    dispatcher *dispatcher;
    http_request *http; // NULL: answered, or the client has gone
    uint64_t number;
    exchange_state state;
    request request;
    stream stream;
    answer answer;
    char id[48];
    bool streaming; // the answer's head is out
    struct exchange *all_previous, *all_next;
    struct exchange *bucket_next;
    struct exchange *queue_previous, *queue_next;

    // The helper thread's part, while PARSING.
    request_kind kind;
    buffer body;
    status parse_result;
    error parse_failure;

    // Attempts.
    uint32_t attempt; // of the tickets that are out, from 1
    exchange_share decode, prefill;
    double version_draw; // see versions_draw
    hash128 weights;     // the version that it is of; 0: not chosen yet
    char fingerprint[24];
    hash128 numeric_id; // of the workers that made the tokens received so far
    uint64_t avoid;     // serial of the worker that failed last
    uint32_t deaths;
    uint32_t handoff_failures; // of its attempts; see HANDOFF_FAILURES_MAX
    size_t attempt_tokens;     // new tokens of this attempt
    bool by_prefill;           // a prefill worker makes the first token of this attempt
    buffer early;              // updates that came before that token: sizes and packed messages
    uint64_t early_since_us;
    bool decode_spoke; // the decode worker of this attempt has reported: the hand-off is complete
    bool alone;
    bool moving; // `prefill` is the decode worker that it leaves, which may still report tokens of
                 // the attempt before
    uint32_t migrations;       // that have begun
    uint32_t failures;         // since the last progress; each one doubles the pause
    uint64_t failing_since_us; // first failure since the last progress; 0: none
    uint64_t not_before_us;    // a refusal is not asked again at once
    uint64_t deadline_us;      // 0: none
    uint64_t queued_us, order; // when it was parsed; its place in the line
    uint64_t written_us;       // last bytes to the client of a stream
    uint64_t first_token_us, last_token_us;
    error last_failure; // of a worker
} exchange;

// After so many failed hand-offs a request is computed where it decodes, if that is allowed: its
// workers may be alive and yet cut off from each other.
#define HANDOFF_FAILURES_MAX 2

// What is counted for each model by itself: its line, all that wait by their order
// (router/admission.h), and the credits of its workers.
typedef struct dispatcher_line {
    exchange *first, *last;
    size_t waiting[ADMISSION_CLASSES];
    size_t running;
    exchange_held held[ADMISSION_CLASSES]; // on decode workers
    exchange_held granted;                 // by usable decode workers, as the last round saw it
    admission_rate rate;
} dispatcher_line;

struct dispatcher {
    router *router;
    http_timer *tick;
    exchange *all;
    exchange *buckets[EXCHANGE_BUCKETS];
    dispatcher_line lines[MODELS_MAX]; // by served_model.index
    dispatcher_counts counts;
    uint64_t next_number;
    bool pumping,
        pump_again;      // one placing round at a time; what makes room meanwhile asks for another
    policy_worker *view; // scratch, [view_capacity]
    size_t view_capacity;
    token_list scratch; // a ticket's tokens
    buffer out;         // an answer being written
};

// exchange.c
// NULL: ended, or of another router.
exchange *exchange_find(dispatcher *d, const message_request_id *id);
timeline *exchange_timeline(exchange *x); // NULL: forgotten
// What is new in the stream goes to the client; ends the exchange where the stream is done.
void exchange_deliver(exchange *x);
// End with an error: an HTTP status before the first byte, an SSE event after it.
void exchange_fail(exchange *x, int status_code, const char *code, const char *message);
// A comment line, so that nobody on the way takes a silent stream for dead.
void exchange_comment(exchange *x);
// Parsed: into the queue, or an error answer.
void exchange_parsed(exchange *x);

// dispatcher_queue.c
// Into the line at its place, and out of it; both keep the counts.
void dispatcher_enqueue(dispatcher *d, exchange *x);
void dispatcher_dequeue(dispatcher *d, exchange *x);
bool dispatcher_queue_full(const exchange *x);
// That of its model; the request was parsed.
dispatcher_line *dispatcher_line_of(const exchange *x);
size_t dispatcher_waiting(const dispatcher_line *line); // of both classes
// Place what can be placed, in the order of the line.
void dispatcher_pump(dispatcher *d);
// Where a running exchange could go on with the pages that it has.
policy_plan dispatcher_plan_move(dispatcher *d, const exchange *x);
// Seconds after which a refused client may come again, 1 to 60.
int dispatcher_retry_after(const exchange *x);

// dispatcher.c
// Out of the line: credits are spent and tickets sent, or it is tried again.
void dispatcher_place(dispatcher *d, exchange *x, const policy_plan *plan);
// The share holds more pages than before.
void dispatcher_grow(registry_worker *w, exchange_share *share, uint64_t pages);
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
// fault), `died`: by its death.
void dispatcher_retry(dispatcher *d, exchange *x, const char *reason, uint64_t culprit, bool died);
// Ten times a second.
void dispatcher_on_tick(void *context);
