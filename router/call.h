// A call: one client request, from the HTTP request to the last byte of its answer.
//
// It reads the body (large ones on the helper thread), refuses what cannot be served, and lets one
// exchange run for each sequence that the answer needs; these share the parsed request and its
// prompts. What they make is written in the shape of the API that was asked: whole once all have
// ended, or in chunks as it comes. One exchange that fails fails the call, and all of it ends; so
// it is when the client goes. At the end there is one line in the log, and one entry in the
// metrics. Everything runs on the router's loop, but for the parsing of large bodies.
#pragma once

#include "router/exchange.h"
#include "router/gate.h"

// In the dispatcher's list of calls from begin to end.
typedef struct call {
    dispatcher *dispatcher;
    http_request *http; // NULL: answered, or the client has gone
    uint64_t number;    // its first exchange's
    char id[40];
    request_kind kind;
    const answer_shape *shape;
    request request;
    bool parsing;   // request, body and what follows it belong to the helper thread
    bool streaming; // the answer's head is out
    struct call *previous, *next;

    gate_hold hold;   // of the client's key
    model_set hidden; // models that its key may not use
    bool salted;      // prefixes are shared within `salt` only
    uint8_t salt[16];
    int retry_after_s; // of a refusal: 0: as the line says, negative: none

    buffer body;
    status parse_result;
    error parse_failure;

    uint64_t arrived_us, queued_us; // the head was complete; the body was understood
    uint64_t deadline_us;           // 0: none
    uint64_t first_token_us;        // of any choice
    uint64_t written_us;            // last bytes to the client of a stream
    answer answer;
    answer_choice *choices; // [choice_count], where the answer finds its parts
    exchange *exchanges;    // [choice_count]
    size_t choice_count;    // 0 until it was parsed
    size_t open;            // exchanges that have not ended
} call;

// A handler's request becomes a call; it is answered later, whatever happens.
void call_begin(dispatcher *d, http_request *http, request_kind kind);
// One of its exchanges has something new in its stream, or has ended. The call may end with that.
void call_progress(call *c, exchange *x);
// End with an error: an HTTP status before the first byte, an SSE event after it.
void call_fail(call *c, int status_code, const char *code, const char *message);
// Deadline and silence, ten times a second. True: the call has ended.
bool call_tick(call *c, uint64_t now);
