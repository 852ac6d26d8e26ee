// Requests under way: from the HTTP request to the last byte of its answer.
//
// An exchange is one client request and its answer. It waits in the queue of its class until the
// policy finds room, spends credits, sends the ticket to both workers of the plan, and feeds what
// they report to its stream. What a worker cannot finish is tried again with attempt + 1 and the
// tokens received so far, until the retry budget is spent. When the client goes, so do the tickets.
// Everything runs on the router's loop.
#pragma once

#include "router/router.h"

status dispatcher_open(router *r, dispatcher **opened, error *failure);
// Place nothing any more (the process ends).
void dispatcher_stop(dispatcher *d);
// Every exchange must have ended (the HTTP server is closed first).
void dispatcher_close(dispatcher *d); // NULL is allowed

// A handler's request becomes an exchange; it is answered later, whatever happens.
void dispatcher_begin(dispatcher *d, http_request *http, request_kind kind);

typedef struct dispatcher_counts {
    size_t parsing, waiting, running;
    uint64_t oldest_us; // how long the request at the front of the line has waited
} dispatcher_counts;
dispatcher_counts dispatcher_count(const dispatcher *d);
// Those of one model; what is still parsed belongs to none.
dispatcher_counts dispatcher_count_model(const dispatcher *d, const served_model *model);

// The registry's hooks.
void dispatcher_on_changed(void *context);
void dispatcher_on_lost(registry_worker *w, status cause, void *context);
void dispatcher_on_message(registry_worker *w, const message_to_router *m, void *context);

// End every exchange with an error (the drain's deadline).
void dispatcher_cut_all(dispatcher *d);
