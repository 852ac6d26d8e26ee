// A load for one router: workers without an engine on its control socket, and clients on its HTTP
// socket, each on a thread of its own. Both speak the real protocols.
//
// Every token of every answer is one letter, so that clients can count tokens in the text. Numbers
// that the main thread reads while the load runs are atomic.
#pragma once

#include "base/hash.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// ---- workers ------------------------------------------------------------------------------------

typedef struct workers_settings {
    const char *router; // its control socket
    hash128 weights;
    uint32_t vocabulary, context, sequences;
    int32_t token; // that all answers are made of
    int prefill, decode;
} workers_settings;

// Tokens a second of all sequences together; 0: as fast as the router takes them in.
extern atomic_ullong workers_rate;
extern atomic_ullong workers_tokens;  // sent
extern atomic_ullong workers_tickets; // taken by decode workers
extern atomic_ullong workers_unsent;  // messages that the router did not take
// Ends the process where the router does not take them.
void workers_start(const workers_settings *settings);
void workers_stop(void);

// ---- clients ------------------------------------------------------------------------------------

typedef struct clients_settings {
    const char *host, *port;
    int connections;
    const char *body;         // of every request
    bool again;               // each connection asks again when its answer is complete
    double opened_per_second; // how fast connections are opened
} clients_settings;

extern atomic_ullong clients_requests; // answered whole
extern atomic_ullong clients_events;   // with text, of streams
extern atomic_ullong clients_tokens;   // in them
extern atomic_ullong clients_open;     // connections on which an answer has begun
extern atomic_ullong clients_failures; // other answers than 200, and broken connections
void clients_start(const clients_settings *settings);
// Cuts what is under way.
void clients_stop(void);
