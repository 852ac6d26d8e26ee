// Control plane sockets: one door to nng.
//
// A pair is one connection between a router and one worker incarnation (an nng stream that speaks
// like nng's PAIR0 socket); a server is the router's REP socket; a request is a worker's REQ. They
// deliver into a `queue` of mailbox_event, which the owner (the router's loop, the worker's step
// thread) pops; nng's own threads only move messages. Sends never block: each pair has a bounded
// outgoing list, and a full one is a suspect peer. Urgent messages (heartbeats) pass waiting
// ordinary ones. Order is kept per pair, what waits when a pair closes is lost, and a closed pair's
// messages never reach another incarnation.
//
// A pair lives for one connection: after MAILBOX_DOWN it takes and delivers nothing more, also from
// a peer that connects again; close it and open another. Its events come in the order UP, messages,
// DOWN. While the event queue is full the pair stops receiving (it looks again every 2 ms), so that
// the peer's sends wait and nothing is lost; what a peer sent before it ended is delivered, except
// for what was still on its way where it is this side's send that found the connection broken.
//
// The end of a peer is known within 10 ms as a rule, over TLS at times with the next send only. A
// machine that vanishes says nothing, so owners watch heartbeats as well.
//
// TLS: addresses that begin with tls+tcp:// are encrypted, and both sides show certificates. Who
// dials asks for the name of the other's role (MAILBOX_ROUTER ...); who accepts takes every
// certificate that its `peers_ca` signed, so that only an authority of their own keeps workers from
// passing for routers among workers.
//
// nng must not be used before fork(); spawn by exec.
#pragma once

#include "base/buffer.h"
#include "base/config.h"
#include "base/queue.h"
#include "base/status.h"

typedef enum mailbox_event_kind {
    MAILBOX_MESSAGE, // `data` holds one message
    MAILBOX_UP,      // the pair is connected
    MAILBOX_DOWN,    // the pair lost its peer for good (a killed process: within 10 ms)
    MAILBOX_REQUEST, // server: `data` holds a request; answer it with mailbox_reply
} mailbox_event_kind;

typedef struct mailbox_pair mailbox_pair;
typedef struct mailbox_server mailbox_server;

typedef struct mailbox_event {
    mailbox_event_kind kind;
    void *owner;         // as given at open
    uint64_t arrived_us; // clock_now_us when it came in
    slice data;          // valid until mailbox_event_free
    void *message;       // internal: what data points into
    void *context;       // internal: where the reply goes
} mailbox_event;

// Names that certificates carry.
#define MAILBOX_ROUTER "penstock-router"
#define MAILBOX_PREFILL "penstock-prefill"
#define MAILBOX_DECODE "penstock-decode"

typedef struct mailbox_security {
    char *certificate; // file with own certificate and private key; "" or NULL: no TLS
    char *peers_ca;    // file with the authority of the other side's certificates
} mailbox_security;
extern const config_section mailbox_config_section; // keys security.certificate, security.peers_ca

// Before the first socket, once. STATUS_BAD_CONFIG: a file that is missing or wrong, by name.
status mailbox_security_start(const mailbox_security *settings, error *failure);
// nng's threads of this process are to wait until its others rest, instead of interrupting them
// (SCHED_BATCH): more messages a second where the process has cores of its own; where it has not,
// they may come some milliseconds later. Before the first socket. STATUS_IO where the system
// refuses.
status mailbox_threads_batch(error *failure);
// "tls+tcp://" where this process has a certificate, or "tcp://".
const char *mailbox_scheme(void);
// Whether the address fits that; "ipc://", which stays on the machine, always does.
// STATUS_BAD_CONFIG with a sentence that begins with `key`.
status mailbox_url_check(const char *key, const char *url, error *failure);

typedef struct mailbox_limits {
    size_t message_max;    // larger incoming messages close the connection
    size_t outgoing_max;   // messages waiting to be sent
    const char *peer_name; // that a dialled peer's certificate must carry (tls+tcp only)
} mailbox_limits;
extern const mailbox_limits mailbox_limits_default; // 4 MiB, 4096

// Wait for a peer at `url` ("tcp://127.0.0.1:0" picks a port) or connect to it (in the background,
// again and again until the first success). STATUS_IO and a sentence where the address cannot be
// used. Events of this pair carry `owner`.
status mailbox_pair_listen(const char *url, const mailbox_limits *limits, queue *events,
                           void *owner, mailbox_pair **opened, error *failure);
status mailbox_pair_dial(const char *url, const mailbox_limits *limits, queue *events, void *owner,
                         mailbox_pair **opened, error *failure);
// The address that a peer can dial, with the real port.
const char *mailbox_pair_url(const mailbox_pair *p);
// Copy and send; STATUS_FULL: the list is full; STATUS_PEER_CLOSED: the peer is gone. Any thread.
// Fault points: message.drop (taken, not sent), message.repeat (sent twice). Nothing can reorder
// the messages of a pair behind this call; the simulation lets urgent ones overtake.
status mailbox_pair_send(mailbox_pair *p, slice data, bool urgent);
// Messages that the peer's machine has not taken yet.
size_t mailbox_pair_waiting(mailbox_pair *p);
// After it returns no further event of this pair is queued; those already queued are still the
// owner's to free.
void mailbox_pair_close(mailbox_pair *p);

// The router's control socket, `contexts` requests at a time. A request that finds the event queue
// full is answered by nothing: the worker asks again.
status mailbox_server_open(const char *url, int contexts, const mailbox_limits *limits,
                           queue *events, void *owner, mailbox_server **opened, error *failure);
const char *mailbox_server_url(const mailbox_server *s);
void mailbox_server_close(mailbox_server *s);
// Answer a MAILBOX_REQUEST once; frees the event.
void mailbox_reply(mailbox_event *event, slice data);

// Ask and wait at most `timeout_us` (STATUS_PEER_SILENT); for the join thread of a worker, never
// for a loop. The request is sent once, to a MAILBOX_ROUTER.
status mailbox_request(const char *url, slice data, int64_t timeout_us, buffer *reply,
                       error *failure);

// Free an event and its message (a request that is freed unanswered is answered by nothing). Any
// thread.
void mailbox_event_free(mailbox_event *event);
