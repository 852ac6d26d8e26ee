// The HTTP/1.1 server of every process: the API in the router, health and metrics in the workers.
//
// It runs on an http_loop and belongs to that loop's thread. Everything that can be wrong with the
// bytes of a request is found before a handler sees it: framing (http_head.h), sizes, absolute
// deadlines for head and body, connections in all and per address, media type and UTF-8 of JSON
// bodies, unknown paths (404) and methods (405 with Allow), whatever the owner's `admit` refuses.
// Every refusal has a JSON body of the form {"error":{"message","type","param","code"}}, or that of
// the owner's `error`.
//
// A handler gets an http_request and owes it one answer: http_respond, or http_stream_begin ..
// http_stream_end, at once or later. The request is gone when the answer is complete, or when its
// close call returns. A client that closes its side, even half of it, has gone. A client that reads
// slower than it is written to is cut at `output_bytes`; nobody else notices. One that asks for
// more while it leaves so much unread waits for its next answer.
//
// With `certificate` every connection speaks TLS (http_tls.c); browsers' pages of other origins may
// call where `cors_origins` names them (http_cors.c).
//
// Behind a proxy of `trusted_proxies` a client is who the proxy says (http_proxies.h): its address
// is told, and its requests under way count as its connections; the proxy's own are not limited.
//
// Built on libevent's buffered sockets and not on its evhttp: that answers its own errors in HTML
// and accepts bare LF, "Host :" and repeated lengths, so a strict reader had to stand in front of
// it anyway.
#pragma once

#include "base/buffer.h"
#include "base/config.h"
#include "base/status.h"
#include "net/http_loop.h"

typedef struct http_server http_server;
typedef struct http_request http_request;

// The `http` section of a program's configuration.
typedef struct http_settings {
    config_strings listen;           // addresses as in net/address.h; port 0: the system chooses
    int64_t connections_max;         // open at a time
    int64_t connections_per_address; // of one client address (IPv6: of one /64), and requests that
                                     // trusted proxies have under way for it
    uint64_t head_bytes;             // of request line and fields
    uint64_t body_bytes;             // of a request body
    uint64_t bodies_bytes;           // of all bodies held at a time; more are answered 503
    uint64_t output_bytes;           // written to a stream and not yet read by the client
    int64_t head_deadline_us;  // from the first byte of a request (or the accept) to its empty line
    int64_t body_deadline_us;  // from there to the last byte of the body
    int64_t idle_us;           // between two requests of one connection
    int64_t write_deadline_us; // without a byte taken by the client
    // Not for workers, whose health and metrics are plain; NULL there.
    char *certificate, *certificate_key; // PEM files; empty: no TLS, and the key in the same file
    char *tls_minimum;                   // "1.2" or "1.3"
    int64_t handshake_deadline_us;
    config_strings cors_origins;
    config_strings trusted_proxies; // see net/http_proxies.h
} http_settings;
extern const config_section http_config_section;        // "http.*", listens on 127.0.0.1:8080
extern const config_section http_config_section_worker; // without TLS and CORS, on 127.0.0.1:0

typedef void (*http_handler)(http_request *r, void *context);

#define HTTP_JSON_BODY 1u      // POST with a JSON body: media type and UTF-8 are checked
#define HTTP_OWNER_FLAG 0x100u // this and higher bits mean what the server's owner says

// A path is literal ("/v1/models") or ends in "/*", which matches one further segment or several
// ("/requests/*"). GET routes answer HEAD too.
typedef struct http_route {
    const char *method;
    const char *path;
    http_handler handler;
    uint32_t flags;
} http_route;

// What the server tells its owner; all optional.
typedef struct http_hooks {
    // A request whose head is read and whose route is known, before its body: may it go on? False:
    // it was answered.
    bool (*admit)(http_request *r, void *context);
    // After each answer (or cut), before the request is gone: the route's path ("other" where none
    // matched), the status that was sent (0: none).
    void (*answered)(const http_request *r, const char *route, int status_code, void *context);
    // An error, in the shape of the API that was asked, where it is another one than
    // http_error_body's. False: it is not, and nothing was written.
    bool (*error)(const http_request *r, int status_code, const char *message, buffer *out);
} http_hooks;

// Listen and serve. `settings`, `routes` and the strings in them must outlive the server. STATUS_IO
// or STATUS_BAD_CONFIG with a sentence naming the address.
status http_server_open(http_loop *loop, const http_settings *settings, const http_route *routes,
                        size_t route_count, const http_hooks *hooks, void *context,
                        http_server **opened, error *failure);
// Cut every connection (close calls are made) and free.
void http_server_close(http_server *s); // NULL is allowed
size_t http_server_connections(const http_server *s);
// The address that listener number `index` really has ("127.0.0.1:41234"), or NULL past the last.
const char *http_server_address(const http_server *s, size_t index);
bool http_server_secure(const http_server *s); // whether it speaks TLS
// Read the files of TLS again, for connections from now on; those that are open go on. A failure
// leaves all as it was.
status http_server_reload(http_server *s, error *failure);
// From now on answers say "Connection: close" (drain).
void http_server_refuse_keep_alive(http_server *s);

// A server with a loop and a thread of its own, for processes that have no loop. Handlers run on
// that thread.
typedef struct http_thread http_thread;
status http_thread_open(const http_settings *settings, const http_route *routes, size_t route_count,
                        void *context, http_thread **opened, error *failure);
http_server *http_thread_server(http_thread *t); // for http_server_address only
void http_thread_close(http_thread *t);

// ---- a request; slices live as long as it does ------------------------------------------------

slice http_request_path(const http_request *r);
slice http_request_rest(
    const http_request *r); // what "/*" of the route stands for, without the slash
slice http_request_body(const http_request *r);
// The body is not needed any more, although the answer is not complete; it becomes empty.
void http_request_forget_body(http_request *r);
// The X-Request-Id of the answer: the client's own if it is 1 to 64 characters of [A-Za-z0-9._-],
// else a random one.
slice http_request_id(const http_request *r);
// The first field of this name (case does not matter); empty, with NULL data, where there is none.
slice http_request_field(const http_request *r, const char *name);
// Whether its connection comes from an address of this machine's loopback, whoever may be behind
// that.
bool http_request_is_local(const http_request *r);
uint64_t http_request_arrived_us(const http_request *r); // when its head was complete
slice http_request_method(const http_request *r);
uint32_t http_request_flags(const http_request *r);        // of its route; 0: none matched
uint64_t http_request_answer_bytes(const http_request *r); // of bodies, written so far
// The client's address ("192.0.2.7"; of IPv6 the first half: "2001:db8::/64"), behind trusted
// proxies too.
#define HTTP_ADDRESS_TEXT 64
void http_request_client(const http_request *r, char text[HTTP_ADDRESS_TEXT]);
// The trace id of its `traceparent` (net/http_trace.h), whose answer carries the same one; or
// empty.
slice http_request_trace(const http_request *r);
// Something that the owner keeps with a request; NULL at first.
void http_request_own(http_request *r, void *what);
void *http_request_owned(const http_request *r);

// Called once, from the loop, if the client goes (or is cut) before the answer is complete; the
// request ends with it.
void http_request_on_close(http_request *r, http_loop_call call, void *context);

// ---- the answer -------------------------------------------------------------------------------

// A further field; before the answer begins. Copied; must not hold line breaks.
void http_answer_field(http_request *r, const char *name, const char *value);
// A whole answer. Ends the request.
void http_respond(http_request *r, int status_code, const char *content_type, slice body);
// An error object, of the owner's shape where it has one (http_hooks.error); `param` and `code` may
// be NULL. Ends the request.
void http_respond_error(http_request *r, int status_code, const char *type, const char *param,
                        const char *code, const char *message);
// The body that http_respond_error sends where the owner has no other: {"error":{...}}.
void http_error_body(buffer *out, const char *type, const char *param, const char *code,
                     const char *message);
// "invalid_request_error" and so on for a status code.
const char *http_error_type(int status_code);

// An answer in pieces. A write that passes `output_bytes` cuts the client: it returns false, the
// close call follows from the loop, and further writes do nothing.
void http_stream_begin(http_request *r, int status_code, const char *content_type);
bool http_stream_write(http_request *r, slice data);
void http_stream_end(http_request *r); // complete: ends the request
