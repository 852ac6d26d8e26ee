// What the files of the fabric share; nobody else includes it.
//
// fabric.c: context, loop. fabric_environment.c: settings and addresses. fabric_peer.c: endpoints
// from connect to drained. fabric_transfer.c: messages and data. All on the fabric thread.
#pragma once

#include "net/fabric.h"

#include <ucp/api/ucp.h>

#include <sys/socket.h>

#define FABRIC_TAG "fabric"
#define FABRIC_MESSAGES_MAX 2048u // messages that UCX still holds, all peers together
#define FABRIC_ACCEPTS_MAX 64u    // connection requests between two turns

// Active message ids.
enum { FABRIC_AM_MESSAGE = 1, FABRIC_AM_DATA, FABRIC_AM_PULSE };
enum { FABRIC_PULSE_ASK = 1, FABRIC_PULSE_ANSWER };

typedef enum fabric_peer_state {
    FABRIC_PEER_FREE,
    FABRIC_PEER_OPEN,
    FABRIC_PEER_FAILING,  // to be closed by the loop
    FABRIC_PEER_DRAINING, // close was asked for; requests are coming back
} fabric_peer_state;

typedef struct fabric_endpoint {
    fabric_peer id;
    fabric_peer_state state;
    ucp_ep_h ep;
    void *close_request;                // of a close under way
    status code;                        // why it failed
    uint32_t sends, receives, messages; // that UCX holds, or whose return was not delivered yet
    uint32_t posted;                    // receives that UCX holds
    bool busy, pulse_asked, suspect, drain_logged;
    uint64_t heard_us;      // last sign of life
    uint64_t owed_since_us; // since when it owes something without a break; 0: it owes nothing
    uint64_t drain_us;      // when the close began
} fabric_endpoint;

// A request that UCX holds. `next` links the free list or the list of those that returned.
typedef enum fabric_slot_kind {
    FABRIC_SLOT_SEND,
    FABRIC_SLOT_RECEIVE,
    FABRIC_SLOT_MESSAGE
} fabric_slot_kind;

typedef struct fabric_slot fabric_slot;
struct fabric_slot {
    fabric_slot *next;
    fabric *owner;
    fabric_slot_kind kind;
    uint32_t peer_index;
    fabric_peer peer;
    uint64_t token;
    status code;
    uint32_t count;
    fabric_piece pieces[FABRIC_PIECES_MAX];
    uint8_t header[FABRIC_HEADER_MAX];
};

struct fabric {
    fabric_settings settings;
    fabric_handlers handlers;
    ucp_context_h context;
    ucp_worker_h worker;
    ucp_listener_h listener;
    ucp_mem_h memory;
    int epoll_fd, worker_fd;
    char host[64];
    uint16_t port;
    uint64_t now_us, turn_end_us;
    uint64_t peers_made;
    fabric_endpoint *peers; // [peers_max]
    fabric_slot *slots;     // [slot_count], of which `slots_used` were ever used
    size_t slot_count, slots_used, messages;
    fabric_slot *free_slots;
    fabric_slot *returned, **returned_end;
    ucp_conn_request_h accepts[FABRIC_ACCEPTS_MAX];
    uint32_t accept_count;
    bool posted;  // something was given to UCX since it last made progress
    bool handled; // a handler was called in this turn
    bool closing;
};

status fabric_status(ucs_status_t code);

// fabric_environment.c
status fabric_resolve(const char *host, uint16_t port, bool names, struct sockaddr_storage *address,
                      socklen_t *size, error *failure);
void fabric_format_address(const struct sockaddr_storage *address, char host[64], uint16_t *port);

// fabric_peer.c
fabric_endpoint *fabric_endpoint_of(const fabric *f, fabric_peer peer);
fabric_endpoint *fabric_endpoint_by_ep(fabric *f, ucp_ep_h ep);
void fabric_heard(fabric *f, fabric_endpoint *e);
void fabric_owes(fabric *f, fabric_endpoint *e);
void fabric_on_connection(ucp_conn_request_h request, void *owner);
void fabric_accept_all(fabric *f);
void fabric_advance_peers(fabric *f);
void fabric_judge_silence(fabric *f);
void fabric_close_peers(fabric *f);

// fabric_transfer.c
status fabric_set_handlers(fabric *f);
status fabric_slots_open(fabric *f);
void fabric_deliver_returned(fabric *f);
void fabric_send_pulse(fabric *f, fabric_endpoint *e, uint8_t kind);
