// The data plane: one door to UCX.
//
// A fabric is one UCX worker with its listener and endpoints. It belongs to one thread, the fabric
// thread, which opens it, turns it and closes it; only fabric_environment runs elsewhere (at start,
// before any thread). An endpoint is named by a peer id that is never used twice, so a late
// completion or a late message can never be taken for a newer peer's.
//
// Two kinds of traffic share an endpoint. A message is a header of some bytes, sent eagerly. Data
// is a header and up to FABRIC_PIECES_MAX pieces of memory, sent by rendezvous: the receiving side
// is asked where to put it (`place`) or drops it, so no peer ever names an address of ours. The
// rendezvous moves fragments that are looked up by the receive's id (UCX_RNDV_SCHEME=am,
// UCX_TCP_PUT_ENABLE=n): once a receive has returned, nothing that still sits in a socket can touch
// its memory.
//
// Failure. Every endpoint has peer error handling. UCX reports a killed peer at once and a stopped
// or cut off one never, so the fabric keeps its own account: a peer that owes something (data under
// way, a receive, the answer to a pulse) and from which nothing came for `suspect_us` is logged,
// for `fail_us` it is failed. Time in which this process itself did not run does not count. A
// failed peer is closed by force outside of every callback; `closed` comes when the endpoint is
// gone and each of its requests has returned. Until then the memory of those requests must not be
// reused, however long it takes; past FABRIC_DRAIN_US it is logged.
//
// Handlers run on the fabric thread inside fabric_turn. They may send and may fail a peer; they
// must not turn or close the fabric.
#pragma once

#include "base/buffer.h"
#include "base/status.h"

#define FABRIC_PIECES_MAX 64u   // pieces of one data transfer
#define FABRIC_HEADER_MAX 1024u // bytes of a header or message
#define FABRIC_DRAIN_US 2000000 // how long a closing endpoint may drain without a word in the log

typedef struct fabric fabric;
typedef uint64_t fabric_peer; // 0: none

typedef struct fabric_settings {
    const char *host;   // numeric address or name to bind; needed to listen
    uint16_t port;      // 0: any
    bool listen;        // accept peers
    uint32_t peers_max; // endpoints at a time
    uint32_t window;    // data transfers under way per endpoint and direction, 1..64
    uint64_t data_max;  // bytes of one data transfer; a peer that announces more is failed
    int64_t suspect_us; // silence that is logged
    int64_t fail_us;    // silence that fails a peer
    void *pool;         // registered once, may be NULL
    size_t pool_size;   // bytes
} fabric_settings;

// Layout of UCX's own element, so that a list of pieces is passed on as it is.
typedef struct fabric_piece {
    void *data;
    size_t size;
} fabric_piece;

// Where incoming data goes: the sizes of the pieces add up to the announced size.
typedef struct fabric_placement {
    fabric_piece pieces[FABRIC_PIECES_MAX];
    uint32_t count;
    uint64_t token; // returned by `received`
} fabric_placement;

typedef struct fabric_handlers {
    void *owner; // first argument of every handler
    // A peer connected to the listener from `address` ("10.0.0.7:4711").
    void (*accepted)(void *owner, fabric_peer peer, const char *address);
    // A message came. The bytes hold during the call only and are not aligned.
    void (*message)(void *owner, fabric_peer peer, slice header);
    // `size` bytes are announced: fill `placement`, or return false to drop them (their sender sees
    // them as sent, so a sender never learns of success from that).
    bool (*place)(void *owner, fabric_peer peer, slice header, size_t size,
                  fabric_placement *placement);
    // Placed data is in (STATUS_OK), or will never be and its memory is no longer touched.
    void (*received)(void *owner, fabric_peer peer, uint64_t token, status code);
    // Sent data's memory is no longer read. STATUS_OK says nothing about delivery.
    void (*sent)(void *owner, fabric_peer peer, uint64_t token, status code);
    // The peer is failed (once): no message or data of it will come any more.
    void (*failed)(void *owner, fabric_peer peer, status code);
    // Its endpoint is gone and every request of it has returned. The id is dead.
    void (*closed)(void *owner, fabric_peer peer);
} fabric_handlers;

// Put the UCX settings into the process environment, before the first fabric_open and before any
// other thread runs. What the operator set is never overwritten. `transports` is a UCX_TLS list
// such as "tcp,self"; `devices` a UCX_NET_DEVICES list, or "" for the interface that holds `host`,
// or, when that is empty too, UCX's own choice. STATUS_BAD_CONFIG: no interface holds the address.
// UCX_HANDLE_ERRORS and UCX_LOG_LEVEL are read when the library is loaded: they belong into the
// unit file of the process. fabric_open takes UCX's crash handlers off again.
status fabric_environment(const char *transports, const char *devices, const char *host,
                          error *failure);

// STATUS_BAD_CONFIG for a host that peers cannot reach or transports that do not work; STATUS_IO,
// STATUS_NO_MEMORY. The strings of `settings` are not needed after the call.
status fabric_open(const fabric_settings *settings, const fabric_handlers *handlers,
                   fabric **opened, error *failure);
// Messages get half a second to leave, then all endpoints are closed by force. `sent` and
// `received` are still called for what returns; nothing is called after it. The pool may be freed
// then.
void fabric_close(fabric *f);
// Where peers connect; port 0 when not listening.
void fabric_address(const fabric *f, char host[64], uint16_t *port);

// Let the owner wake the fabric thread: fabric_turn returns early while `fd` is readable.
status fabric_watch(fabric *f, int fd);
// Make progress, call handlers, and sleep until something happens or `timeout_us` passed.
void fabric_turn(fabric *f, int64_t timeout_us);
// Microseconds of the monotonic clock, taken once a turn.
uint64_t fabric_now_us(const fabric *f);

// Begin to connect to a numeric address ("10.0.0.7", "fd00::7"). Sends may follow at once; they
// travel when the connection stands. STATUS_INVALID: not an address; STATUS_FULL: peers_max.
status fabric_connect(fabric *f, const char *host, uint16_t port, fabric_peer *peer,
                      error *failure);
// Ends the peer with `code`; `failed` and `closed` follow from fabric_turn. Unknown ids are
// ignored.
void fabric_fail(fabric *f, fabric_peer peer, status code);
// While busy, a silent peer is asked for a sign of life, so that its death is noticed although no
// data is under way.
void fabric_set_busy(fabric *f, fabric_peer peer, bool busy);
// "tcp" or the like: what carries the peer's messages. Empty while not connected.
void fabric_transport(fabric *f, fabric_peer peer, char name[32]);

// Copy and send. STATUS_PEER_CLOSED: the peer is gone; STATUS_FULL: it does not take its messages.
status fabric_send_message(fabric *f, fabric_peer peer, slice header);
// How many more data transfers the peer's window takes now.
uint32_t fabric_window(const fabric *f, fabric_peer peer);
// Send header and data; the header and the list are copied, the memory is read until `sent`.
// STATUS_AGAIN: the window is full; STATUS_PEER_CLOSED. Then `sent` does not follow.
status fabric_send_data(fabric *f, fabric_peer peer, slice header, const fabric_piece *pieces,
                        uint32_t count, uint64_t token);
