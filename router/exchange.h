// An exchange: one sequence of a call, from the line of waiting requests to its last token.
//
// It waits in the line until the policy finds room, spends credits, has its ticket sent to both
// workers of the plan, and feeds what they report to its stream. What a worker cannot finish is
// tried again with attempt + 1 and the tokens received so far, until the retry budget is spent. It
// knows nothing of HTTP: its call is told of progress and failure. Everything runs on the router's
// loop.
#pragma once

#include "router/answer.h"
#include "router/dispatcher.h"

typedef struct call call;

// IDLE -> WAITING <-> RUNNING -> IDLE.
typedef enum exchange_state {
    EXCHANGE_IDLE,    // just begun, or ended
    EXCHANGE_WAITING, // for credits
    EXCHANGE_RUNNING, // tickets are out
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

// In the list `all` and in its bucket from begin to end, in the line while WAITING. The memory is
// the call's and stays until that ends. A nested call may end it wherever its client is answered,
// so nothing is touched after that.
typedef struct exchange {
    dispatcher *dispatcher;
    call *call;
    const request *request;       // the call's
    const request_prompt *prompt; // one of the request's
    answer_choice *choice;        // how the answer shows it
    uint64_t number;              // of the request, for workers
    char id[56];                  // for logs and time lines: the call's, and which choice it is
    uint32_t draw;                // Sampling.choice: which of the sequences of its prompt
    exchange_state state;
    bool ended;
    stream stream;
    struct exchange *all_previous, *all_next;
    struct exchange *bucket_next;
    struct exchange *queue_previous, *queue_next;
    bool fresh; // in that list of the dispatcher
    struct exchange *fresh_previous, *fresh_next;

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
    uint64_t servable_us;      // when a worker that could serve it was last seen; 0: not yet
    uint64_t order;            // its place in the line
    uint64_t first_token_us, last_token_us;
    error last_failure; // of a worker
} exchange;

// Zeroed memory becomes choice `index` of a parsed call, and goes into the line. `number` 0: a new
// one. STATUS_NO_MEMORY: nothing is left to close.
status exchange_begin(exchange *x, call *c, size_t index, uint64_t number);
void exchange_close(exchange *x); // its memory; it has ended, or did not begin

// NULL: ended, or of another router.
exchange *exchange_find(dispatcher *d, const message_request_id *id);
timeline *exchange_timeline(exchange *x); // NULL: forgotten
const char *exchange_model_name(const exchange *x);

// The stream has news. Where it is done the exchange ends: credits return, the call goes on.
void exchange_deliver(exchange *x);
// Once the messages at hand have been read: tokens that wait together leave as one event.
void exchange_deliver_soon(exchange *x);
// It cannot be done: the call ends with this error, and every exchange of it.
void exchange_fail(exchange *x, int status_code, const char *code, const char *message);
// The call does not need it any more: tickets are taken back. Nothing happens where it has ended.
void exchange_abandon(exchange *x, const char *outcome);
