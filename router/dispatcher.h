// The dispatcher: which request runs where. It keeps the calls (router/call.h) and their exchanges
// (router/exchange.h), for each model the line of those that wait for room, and the credits that
// the others hold; it turns placements into tickets, and what workers report, or fail to, into
// tokens or a further attempt. Everything runs on the router's loop.
#pragma once

#include "router/router.h"

status dispatcher_open(router *r, dispatcher **opened, error *failure);
// Place nothing any more (the process ends).
void dispatcher_stop(dispatcher *d);
// Every call must have ended (the HTTP server is closed first).
void dispatcher_close(dispatcher *d); // NULL is allowed

typedef struct dispatcher_counts {
    size_t parsing;          // calls
    size_t waiting, running; // exchanges
    uint64_t tokens;         // of answers that came from workers, since the start
    uint64_t prompt_tokens;  // of prompts that workers computed, since the start
    uint64_t oldest_us;      // how long the request at the front of the line has waited
} dispatcher_counts;
dispatcher_counts dispatcher_count(const dispatcher *d);
// Waiting, running and the oldest one of one model.
dispatcher_counts dispatcher_count_model(const dispatcher *d, const served_model *model);

// The registry's hooks.
void dispatcher_on_changed(void *context);
void dispatcher_on_lost(registry_worker *w, status cause, void *context);
void dispatcher_on_message(registry_worker *w, const message_to_router *m, void *context);
void dispatcher_on_settled(void *context);

// End every call with an error (the drain's deadline).
void dispatcher_cut_all(dispatcher *d);
