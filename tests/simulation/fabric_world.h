// What the two files of the fabric's stand-in share: fabric.c has the endpoints from connect to
// drained, fabric_transfer.c what is under way between them.
#pragma once

#include "world.h"

#include "net/fabric.h"

typedef struct endpoint endpoint;

typedef enum arrival_kind {
    ARRIVAL_ACCEPTED,
    ARRIVAL_MESSAGE,
    ARRIVAL_DATA,
    ARRIVAL_SENT,
    ARRIVAL_RECEIVED,
    ARRIVAL_BROKEN,
} arrival_kind;

// One data transfer. Freed by nobody: the world ends with its child process.
typedef struct transfer {
    struct transfer *next; // of all that are open
    endpoint *from, *to;   // to NULL: not announced yet
    fabric_piece pieces[FABRIC_PIECES_MAX];
    uint32_t count;
    size_t size, moved;
    fabric_placement placement;
    uint64_t token;
    bool send_open, receive_open, bad;
} transfer;

typedef struct arrival {
    struct arrival *next;
    arrival_kind kind;
    endpoint *at;
    transfer *transfer;
    status code;
    char *data;
    size_t size;
} arrival;

typedef enum endpoint_state { OPEN, FAILING, DRAINING, GONE } endpoint_state;

struct endpoint {
    endpoint *next; // of the fabric
    fabric *fabric;
    endpoint *peer;
    process *peer_process;
    fabric_peer id;
    endpoint_state state;
    status code;
    bool busy, told_peer;
    uint32_t sends, receives, messages;
    uint64_t last_us, heard_us, drained_us;
};

struct fabric {
    fabric *next; // of all
    process *process;
    fabric_settings settings;
    fabric_handlers handlers;
    char host[64];
    uint16_t port;
    bool closed;
    endpoint *endpoints;
    arrival *arrivals, **arrivals_end;
    fiber *sleeper;
    int watched;
    uint64_t now_us, turn_end_us, peers_made;
};

extern transfer *fabric_transfers; // all that are open
extern fabric *fabric_list;

// Something for an endpoint: over the network behind what was sent before, or here.
arrival *fabric_arrival(arrival_kind kind, endpoint *at, transfer *t, status code);
void fabric_travel(endpoint *from, arrival *a);
void fabric_arrive(endpoint *at, arrival *a, uint64_t delay_us);
// Call the handlers for it.
void fabric_handle(fabric *f, arrival *a);
// One side of a transfer is over; tells the handlers.
void fabric_sent(fabric *f, transfer *t, status code);
void fabric_received(fabric *f, transfer *t, status code);
// Out of the list where both sides are over.
void fabric_transfer_forget(transfer *t);
