// Inside the HTTP server: connections and requests. Included by common/net/http*.c only; everything
// belongs to the loop's thread.
#pragma once

#include "net/http.h"
#include "net/http_head.h"
#include "net/http_proxies.h"
#include "net/http_trace.h"

#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/event.h>
#include <event2/listener.h>
#include <netinet/in.h>
#include <sys/uio.h>

typedef struct http_tls http_tls; // an SSL_CTX

// The libevent loop inside.
struct event_base *http_loop_base(http_loop *l);

#define HTTP_READ_AHEAD 65536u  // bytes of a client that are read but not used, at most
#define HTTP_SEND_BUFFER 131072 // SO_SNDBUF
#define HTTP_LINGER_US                                                                             \
    2000000u // reading on after a final answer, so that it is not lost in a reset
#define HTTP_HALF_FULL_US 10000000u // a stream may stay above half of its output limit this long
#define HTTP_ADDRESS_BUCKETS 1024u

// Open connections of one client address, and requests that trusted proxies pass on for it.
typedef struct http_peer {
    struct http_peer *next; // in its bucket
    uint8_t key[16];        // IPv6 address (IPv4 mapped), cut to /64 where it is not mapped
    int64_t count;
} http_peer;

typedef enum http_state {
    HTTP_STATE_HANDSHAKE, // of TLS
    HTTP_STATE_HEAD,      // between requests, or inside a head
    HTTP_STATE_BODY,      // inside a body
    HTTP_STATE_BUSY,      // the handler owes an answer
    HTTP_STATE_FLUSH,     // the last answer is being written
    HTTP_STATE_LINGER,    // the last answer is written; what still comes is thrown away
} http_state;

// One socket. Freed from the loop only: by its event, its deadline timer, or the server's close.
typedef struct http_connection {
    http_server *server;
    struct http_connection *previous, *next;
    struct bufferevent *stream;
    http_timer *deadline;
    http_peer *peer;
    uint8_t address[16];   // of the other side, as http_proxies.h has them
    http_request *request; // in states BODY and BUSY
    buffer in;             // read, not used
    size_t seen;           // of `in`, already searched for the end of a head
    http_state state;
    bool processing; // connection_process is on the stack
    bool keep_alive;
    bool half_closed; // the client sends no more
    bool plain;       // no TLS
    bool doomed;      // to be aborted by the deadline timer, which runs at once
} http_connection;

// From the end of its head to the end of its answer.
struct http_request {
    http_connection *connection;
    buffer head_bytes; // what `head` points into
    buffer body;
    http_chunks chunks;
    http_peer *client;       // whom a trusted proxy passes it on for; NULL: the connection's peer
    const http_route *route; // NULL: none matched
    slice rest;
    char id[65];
    http_trace trace;
    void *owner; // whatever the server's owner keeps with it
    uint64_t arrived_us, sent_bytes;
    http_loop_call on_close;
    void *on_close_context;
    buffer answer_fields;
    int status_code;
    bool streaming, chunked_answer;
    uint64_t over_half_since_us; // 0: the output is below half of its limit
    http_head head;              // last: see http_request_fit
};

// Listeners and connections of one server. Everything a connection needs from its owner is behind
// `server`.
struct http_server {
    http_loop *loop;
    const http_settings *settings;
    const http_route *routes;
    size_t route_count;
    http_hooks hooks;
    void *context;
    http_proxies proxies;
    http_tls *tls; // of new connections; NULL: none
    struct evconnlistener **listeners;
    char (*addresses)[272];
    size_t listener_count;
    http_timer *accept_again; // after the process ran out of descriptors
    http_connection *connections;
    size_t connection_count;
    http_peer *peers[HTTP_ADDRESS_BUCKETS];
    uint64_t id_seed, id_count;
    bool refuse_keep_alive;
    uint64_t bodies_bytes; // of all requests now
};

// http_peers.c
void http_peer_address(const struct sockaddr *from, uint8_t address[16]);
// One more connection of this address; NULL where memory is short, or it has enough already and is
// no trusted proxy.
http_peer *http_peer_take(http_server *s, const uint8_t address[16]);
void http_peer_release(http_server *s, http_peer *p);
bool http_peer_is_local(const http_peer *p);
void http_peer_format(const http_peer *p, char text[HTTP_ADDRESS_TEXT]);

// http_tls.c: what the settings name, or NULL where they name nothing. STATUS_BAD_CONFIG names the
// file.
status http_tls_open(const http_settings *s, http_tls **opened, error *failure);
void http_tls_close(http_tls *tls); // NULL is allowed; connections go on with it
// The server's side of a handshake; owns the descriptor. NULL: no memory, and the descriptor is
// still the caller's.
struct bufferevent *http_tls_accept(http_tls *tls, struct event_base *base, int descriptor);
// Say goodbye: everything was written.
void http_tls_finish(struct bufferevent *stream);
// After a handshake that failed: the client spoke HTTP without TLS.
bool http_tls_spoke_plain(struct bufferevent *stream);

// http_cors.c: the fields of every answer; and the answer to a preflight (true: `r` is gone).
void http_cors_append(const http_request *r, buffer *out);
bool http_cors_preflight(http_request *r);

// http_listen.c: bind every address of the settings.
status http_listeners_open(http_server *s, error *failure);
void http_listeners_close(http_server *s);

// http_connection.c
// Takes the descriptor; turned away with 503 where there are too many.
void http_connection_open(http_server *s, int descriptor, const struct sockaddr *from);
// Tell the request's owner, then free everything.
void http_connection_abort(http_connection *c);
// Bytes of an answer, in their order.
void http_connection_write(http_connection *c, const struct iovec *parts, int count);
// After an answer: on to the next request, or close once it is written.
void http_connection_answered(http_connection *c);
// Have the loop abort it soon.
void http_connection_doom(http_connection *c);

// http_route.c: set `route` and `rest`. False: an error answer was sent (404 or 405), and `r` is
// gone.
bool http_route_find(http_request *r);

// http_request.c
// NULL: no memory. Free also gives back the body's share of the budget.
http_request *http_request_new(http_connection *c);
// The head is parsed: give back the room for fields that it does not have, most of a request that
// waits for its answer. The request may have moved.
http_request *http_request_fit(http_request *r);
void http_request_free(http_request *r);
// Whom it comes from, once the head is parsed. False: too many requests of that client are under
// way.
bool http_request_find_client(http_request *r);
