// The journey of a KV cache from a prefill worker to a decode worker, or from a decode worker that
// drains to another one: then it is the sender, the "prefill worker" of what follows.
//
// One `handoff` per worker process: it owns the fabric thread (UCX), the endpoints to its peers and
// the state of every transfer (table.h: a pure state machine, both sides). The step thread calls
// the functions below, which only queue, and pops events.
//
// Pages: the caller holds (engine_page_hold) every page that it names here, from the call until the
// event that says the page is no longer touched: HANDOFF_DELIVERED or HANDOFF_SEND_OVER for sent
// pages, HANDOFF_SEAT_FILLED or HANDOFF_SEAT_OVER for received ones. When a transfer fails or is
// cancelled, its OVER event comes only when no peer can touch the pages any more: every posted
// receive has returned, or its endpoint is force-closed and drained (quarantine). No timer decides
// that.
//
// What holds when anything dies: a peer's death ends its transfers with a status and OVER events;
// bytes are accepted only for a seat that is open and whose (request, attempt, generation) match; a
// sender learns of success only by Received.
#pragma once

#include "base/config.h"
#include "base/hash.h"
#include "base/queue.h"
#include "base/status.h"

typedef struct handoff handoff;

// The `fabric` section of a worker's configuration.
typedef struct handoff_settings {
    char
        *host; // address that the fabric binds and peers connect to; "" = that of the control plane
    int64_t port;                            // 0: any
    char *transports;                        // UCX_TLS, e.g. "tcp,self"
    char *devices;                           // UCX_NET_DEVICES; "" = the interface of `host`
    bool checksums;                          // verify every page run
    uint64_t run_bytes;                      // gather page runs up to about this size
    int64_t window;                          // page runs in flight per endpoint
    int64_t suspect_us, fail_us, connect_us; // no byte progress: log, then fail; time to connect
    int64_t peers;   // pairs that stay open; of more, those that rest are closed
    bool allow_slow; // accept a transport slower than the configured one (counted)
} handoff_settings;
extern const config_section handoff_config_section; // keys "fabric.*"

// What both ends must agree on.
typedef struct handoff_identity {
    uint64_t incarnation;
    const char *model_name, *architecture, *kv_layout;
    hash128 weights, numeric_id;
    uint32_t page_tokens, context, vocabulary;
    uint64_t page_bytes;
} handoff_identity;

typedef struct handoff_key {
    uint64_t router, number; // request id
    uint32_t attempt;
} handoff_key;

// What a router gave to both workers of a plan, so that one endpoint of the prefill worker is taken
// by the decode worker. 0: the plan has none, because the router or a worker does not know them.
typedef struct handoff_token {
    uint64_t half[2];
} handoff_token;
// From a message's bytes, 16 or none.
handoff_token handoff_token_of(const void *bytes, size_t size);

typedef struct handoff_peer {
    uint64_t incarnation;
    char host[64];
    uint16_t port;
    handoff_token token; // shown if it has to be connected to
} handoff_peer;

// The hand-over record. Of a sequence that moves it brings what was made since the ticket.
#define HANDOFF_MADE_MAX 128
typedef struct handoff_record {
    int32_t computed;   // tokens whose KV is in the pages
    int32_t next_token; // drawn last by the sender
    int32_t made_count; // tokens behind the ticket's and before next_token
    int32_t made[HANDOFF_MADE_MAX];
} handoff_record;

typedef enum handoff_event_kind {
    HANDOFF_SEAT_READY, // sender: the peer opened a seat; it needs pages from `first_page` on
    HANDOFF_SHIPPED,    // sender: every page that was given so far has gone; the transfer goes on
    HANDOFF_DELIVERED, // sender: the peer acknowledged everything; its pages are free; the transfer
                       // is over
    HANDOFF_SEND_OVER, // sender: failed, refused or cancelled (`code`); its pages are no longer
                       // touched; over
    HANDOFF_SEAT_FILLED, // receiver: all pages and the record are in and acknowledged; the transfer
                         // is over, the pages are yours
    HANDOFF_SEAT_FAILED, // receiver: no more will come (`code`); close the seat
    HANDOFF_SEAT_OVER, // receiver: after handoff_seat_close: the pages are no longer touched; over
} handoff_event_kind;

typedef struct handoff_event {
    handoff_event_kind kind;
    handoff_key key;
    status code;
    int32_t first_page;    // SEAT_READY
    handoff_record record; // SEAT_FILLED
    uint64_t bytes;        // moved by this transfer
    uint64_t first_page_us,
        last_page_us; // clock_now_us of the first and last page run's completion
} handoff_event;

// At most HANDOFF transfers of each side are open at a time (1024, half-open ones included): one
// more is answered by SEND_OVER, or by SEAT_FAILED and at once SEAT_OVER, with STATUS_OVERLOADED.
// At the sender, 512 seats at most wait for their begin; the send of one more is answered so when
// it begins. A second begin or open of a live key is ignored and counted: a ticket that came twice
// changes nothing.

// Counters for heartbeats and metrics; read by the step thread.
typedef struct handoff_stats {
    uint64_t bytes_sent, bytes_received, transfers_done, transfers_failed, runs_dropped;
    uint64_t pages_quarantined; // held back now, because a peer may still touch them
    uint64_t slow_pairs;        // found on a slower transport than the configured one
    uint64_t unused_pairs;      // closed because others wanted their place
    uint32_t sends_open, seats_open, peers_open;
    char transport[32];
    double probe_gbps;
} handoff_stats;

// Start the fabric thread and, for a decode worker, the listener. The pool is registered once.
status handoff_open(const handoff_settings *settings, const handoff_identity *identity, bool listen,
                    void *pool, size_t pool_size, handoff **opened, error *failure);
// Ends every transfer (OVER events are dropped), closes endpoints, joins the thread.
void handoff_close(handoff *h);
// Where peers connect (decode workers).
void handoff_address(const handoff *h, char host[64], uint16_t *port);

// Sender, at the ticket: connect to the peer if need be and wait for its seat.
void handoff_send_begin(handoff *h, handoff_key key, const handoff_peer *peer);
// Pages first..first+count of the sequence are complete. Only after SEAT_READY; in ascending order.
void handoff_send_pages(handoff *h, handoff_key key, int32_t first, const int32_t *pages,
                        int32_t count);
// The last word: the record travels behind all pages.
void handoff_send_end(handoff *h, handoff_key key, const handoff_record *record);
// Stop; SEND_OVER follows.
void handoff_send_cancel(handoff *h, handoff_key key);

// Receiver, as soon as a ticket came, whether or not it is taken: one endpoint of `incarnation`
// that shows `token` may connect within twice fabric.connect, and one that waits already is taken.
// An endpoint that no admission is for is closed after fabric.connect; until then, nothing that it
// says is read.
void handoff_admit(handoff *h, uint64_t incarnation, handoff_token token);
// Receiver, at the ticket: `pages` is the sequence's page table; those before `first_page` are
// already held. The peer (`incarnation`) may not have connected yet. `generation` must never repeat
// in this process.
void handoff_seat_open(handoff *h, handoff_key key, uint64_t incarnation, uint64_t generation,
                       const int32_t *pages, int32_t page_count, int32_t first_page);
// Give the seat up; SEAT_OVER follows. Not after SEAT_FILLED.
void handoff_seat_close(handoff *h, handoff_key key);

// Events for the step thread: NULL when there is none. Free with handoff_event_free.
handoff_event *handoff_event_next(handoff *h);
void handoff_event_free(handoff_event *event);
int handoff_event_fd(const handoff *h);
void handoff_stats_of(handoff *h, handoff_stats *stats);
