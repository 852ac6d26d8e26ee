// One connection: bytes in, requests out, one at a time; deadlines; the end.
//
// A connection is freed only by its buffered socket's event, by its deadline timer, by the end of
// lingering or by the server's close, never inside connection_process or an answer, so that
// handlers may answer at once.
#include "net/http_private.h"

#include "base/clock.h"

#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

static void connection_process(http_connection *c);

static void connection_free(http_connection *c)
{
    http_server *s = c->server;
    if (c->request)
        http_request_free(c->request);
    if (c->previous)
        c->previous->next = c->next;
    else
        s->connections = c->next;
    if (c->next)
        c->next->previous = c->previous;
    s->connection_count--;
    http_peer_release(s, c->peer);
    http_timer_close(c->deadline);
    bufferevent_free(c->stream);
    buffer_close(&c->in);
    free(c);
}

static void request_tell(const http_request *r)
{
    const http_server *s = r->connection->server;
    if (s->hooks.answered)
        s->hooks.answered(r, r->route ? r->route->path : "other", r->status_code, s->context);
}

void http_connection_abort(http_connection *c)
{
    http_request *r = c->request;
    if (r && c->state == HTTP_STATE_BUSY && r->on_close) {
        http_loop_call call = r->on_close;
        r->on_close = NULL;
        call(r->on_close_context);
    }
    if (r)
        request_tell(r);
    connection_free(c);
}

void http_connection_doom(http_connection *c)
{
    c->doomed = true;
    bufferevent_disable(c->stream, EV_READ | EV_WRITE);
    http_timer_start(c->deadline, 0);
}

// The last answer is with the kernel: say so to the client, and wait until it closes.
static void connection_linger(http_connection *c)
{
    c->state = HTTP_STATE_LINGER;
    buffer_close(&c->in);
    if (c->server->tls)
        http_tls_finish(c->stream);
    shutdown(bufferevent_getfd(c->stream), SHUT_WR);
    http_timer_start(c->deadline, c->half_closed ? 0 : HTTP_LINGER_US);
}

static void connection_await_head(http_connection *c)
{
    c->state = HTTP_STATE_HEAD;
    c->seen = 0;
    if (c->in.size == 0)
        buffer_close(&c->in);
    http_timer_start(c->deadline, (uint64_t)(c->in.size > 0 ? c->server->settings->head_deadline_us
                                                            : c->server->settings->idle_us));
}

void http_connection_answered(http_connection *c)
{
    http_request *r = c->request;
    request_tell(r);
    c->request = NULL;
    http_request_free(r);
    if (c->doomed)
        return;
    if (c->keep_alive) {
        connection_await_head(c);
        connection_process(c);
        return;
    }
    c->state = HTTP_STATE_FLUSH;
    http_timer_start(c->deadline, (uint64_t)c->server->settings->idle_us);
    if (evbuffer_get_length(bufferevent_get_output(c->stream)) == 0)
        connection_linger(c);
}

// To the kernel at once where nothing waits before it: an event of a stream is one system call
// then, and none to watch the socket. What the kernel does not take, and every fault, is left to
// the buffered socket.
void http_connection_write(http_connection *c, const struct iovec *parts, int count)
{
    size_t taken = 0;
    if (c->plain && evbuffer_get_length(bufferevent_get_output(c->stream)) == 0) {
        struct msghdr message = { .msg_iov = (struct iovec *)parts, .msg_iovlen = (size_t)count };
        ssize_t sent = sendmsg(bufferevent_getfd(c->stream), &message, MSG_DONTWAIT | MSG_NOSIGNAL);
        taken = sent > 0 ? (size_t)sent : 0;
    }
    for (int i = 0; i < count; i++) {
        size_t skipped = taken < parts[i].iov_len ? taken : parts[i].iov_len;
        if (skipped < parts[i].iov_len)
            bufferevent_write(c->stream, (const char *)parts[i].iov_base + skipped,
                              parts[i].iov_len - skipped);
        taken -= skipped;
    }
}

// Answer with an error and close.
static void connection_refuse(http_connection *c, int status_code, const char *text)
{
    c->keep_alive = false;
    c->state = HTTP_STATE_BUSY;
    http_respond_error(c->request, status_code, NULL, NULL, NULL, text);
}

// Everything that can be judged without the body. False: an answer was sent.
static bool request_judge_head(http_connection *c, http_request *r)
{
    const http_settings *limits = c->server->settings;
    bool has_body = r->head.chunked || r->head.length > 0;
    // Until the body is read, an answer ends the connection: the client may be sending still.
    c->keep_alive = false;
    c->state = HTTP_STATE_BUSY;
    if (!has_body)
        c->keep_alive = r->head.keep_alive && !c->server->refuse_keep_alive;
    r->trace = http_trace_of(&r->head);
    if (!http_request_find_client(r)) {
        http_answer_field(r, "Retry-After", "1");
        http_respond_error(r, 503, NULL, NULL, NULL, "there are too many requests of this address");
        return false;
    }
    if (http_cors_preflight(r) || !http_route_find(r))
        return false;
    if (c->server->hooks.admit && !c->server->hooks.admit(r, c->server->context))
        return false;
    if (r->head.has_length && r->head.length > limits->body_bytes) {
        connection_refuse(c, 413, "the request body is too large");
        return false;
    }
    if (r->route->flags & HTTP_JSON_BODY) {
        slice type = http_head_field(&r->head, "Content-Type");
        if (http_head_field_count(&r->head, "Content-Type") != 1 || !http_content_is_json(type)) {
            connection_refuse(c, 415, "Content-Type must be application/json in UTF-8");
            return false;
        }
        if (!r->head.chunked && !r->head.has_length) {
            connection_refuse(c, 411, "Content-Length is missing");
            return false;
        }
    }
    return true;
}

static void request_dispatch(http_connection *c, http_request *r)
{
    if (c->in.size == 0) // an answer may take long, and thousands be open
        buffer_close(&c->in);
    c->keep_alive = r->head.keep_alive && !c->server->refuse_keep_alive;
    c->state = HTTP_STATE_BUSY;
    http_timer_stop(c->deadline);
    if ((r->route->flags & HTTP_JSON_BODY) && !http_text_is_utf8(buffer_slice(&r->body))) {
        http_respond_error(r, 400, NULL, NULL, NULL, "the request body is not UTF-8");
        return;
    }
    r->route->handler(r, c->server->context);
}

// False: more bytes are needed.
static bool connection_take_head(http_connection *c)
{
    http_refusal refusal;
    size_t size = http_head_find(c->in.data, c->in.size, c->seen,
                                 (size_t)c->server->settings->head_bytes, &refusal);
    c->seen = c->in.size;
    if (size == 0 && refusal.status == 0)
        return false;
    http_request *r = c->request = http_request_new(c);
    if (!r) {
        http_connection_doom(c);
        return false;
    }
    if (refusal.status != 0) {
        connection_refuse(c, refusal.status, refusal.text);
        return false;
    }
    buffer_append(&r->head_bytes, c->in.data, size);
    buffer_drop_front(&c->in, size);
    if (!http_head_parse(r->head_bytes.data, r->head_bytes.size, &r->head, &refusal)) {
        connection_refuse(c, refusal.status, refusal.text);
        return true;
    }
    r = c->request = http_request_fit(r);
    if (!request_judge_head(c, r))
        return true;
    if (!r->head.chunked && r->head.length == 0) {
        request_dispatch(c, r);
        return true;
    }
    c->state = HTTP_STATE_BODY;
    http_timer_start(c->deadline, (uint64_t)c->server->settings->body_deadline_us);
    if (r->head.expects_continue && c->in.size == 0)
        bufferevent_write(c->stream, "HTTP/1.1 100 Continue\r\n\r\n", 25);
    return true;
}

static bool connection_take_body(http_connection *c)
{
    http_request *r = c->request;
    http_server *s = c->server;
    size_t limit = (size_t)s->settings->body_bytes, used, before = r->body.size;
    http_refusal refusal = { 0 };
    bool done;
    if (r->head.chunked) {
        used = http_chunks_feed(&r->chunks, c->in.data, c->in.size, limit, &r->body, &refusal);
        done = r->chunks.done;
    } else {
        size_t missing = (size_t)r->head.length - r->body.size;
        used = c->in.size < missing ? c->in.size : missing;
        buffer_append(&r->body, c->in.data, used);
        done = r->body.size == r->head.length;
    }
    buffer_drop_front(&c->in, used);
    s->bodies_bytes += r->body.size - before;
    if (refusal.status == 0 && (r->body.overflow || s->bodies_bytes > s->settings->bodies_bytes))
        refusal = (http_refusal){ 503, "there is no memory for the request body" };
    if (refusal.status != 0) {
        connection_refuse(c, refusal.status, refusal.text);
        return false;
    }
    if (done)
        request_dispatch(c, r);
    return done;
}

// A client that asks again and again and reads no answer: its next request waits until it has read.
static bool connection_is_behind(const http_connection *c)
{
    return evbuffer_get_length(bufferevent_get_output(c->stream)) >
           c->server->settings->output_bytes;
}

static void connection_process(http_connection *c)
{
    if (c->processing)
        return;
    c->processing = true;
    bool more = true;
    while (more && c->in.size > 0 && !c->doomed) {
        if (c->state == HTTP_STATE_HEAD)
            more = !connection_is_behind(c) && connection_take_head(c);
        else if (c->state == HTTP_STATE_BODY)
            more = connection_take_body(c);
        else
            break;
    }
    // A client may send its next requests early, within reason.
    bool waits =
        c->state == HTTP_STATE_BUSY || (c->state == HTTP_STATE_HEAD && connection_is_behind(c));
    if (waits && c->in.size >= HTTP_READ_AHEAD)
        http_connection_doom(c);
    c->processing = false;
}

static void on_read(struct bufferevent *stream, void *context)
{
    http_connection *c = context;
    struct evbuffer *input = bufferevent_get_input(stream);
    size_t size = evbuffer_get_length(input);
    if (c->state == HTTP_STATE_LINGER || c->state == HTTP_STATE_FLUSH) {
        evbuffer_drain(input, size);
        return;
    }
    if (c->state == HTTP_STATE_HEAD && c->in.size == 0)
        http_timer_start(c->deadline, (uint64_t)c->server->settings->head_deadline_us);
    if (!buffer_reserve(&c->in, size)) {
        http_connection_doom(c);
        return;
    }
    evbuffer_remove(input, c->in.data + c->in.size, size);
    c->in.size += size;
    c->in.data[c->in.size] = 0;
    connection_process(c);
}

static void on_written(struct bufferevent *stream, void *context)
{
    http_connection *c = context;
    (void)stream;
    if (c->state == HTTP_STATE_FLUSH)
        connection_linger(c);
    else if (c->state == HTTP_STATE_HEAD)
        connection_process(c); // it may have waited for this
}

// Before there is a request: a short answer that needs no memory of ours, and no TLS.
static void connection_turn_away(int descriptor, const char *status_line, const char *sentence)
{
    char text[512], body[256];
    int body_size = snprintf(body, sizeof body,
                             "{\"error\":{\"message\":\"%s\",\"type\":\"%s\",\"param\":null,"
                             "\"code\":null}}",
                             sentence, http_error_type(atoi(status_line)));
    int size = snprintf(text, sizeof text,
                        "HTTP/1.1 %s\r\nContent-Type: application/json\r\n"
                        "Content-Length: %d\r\nRetry-After: 1\r\nConnection: close\r\n\r\n%s",
                        status_line, body_size, body);
    ssize_t moved = send(descriptor, text, (size_t)size, MSG_DONTWAIT | MSG_NOSIGNAL);
    shutdown(descriptor, SHUT_WR);
    // What is unread when a socket closes makes it a reset, which can overtake the answer.
    for (int i = 0; i < 16 && moved > 0; i++)
        moved = recv(descriptor, text, sizeof text, MSG_DONTWAIT);
    close(descriptor);
}

// The client closed (even half of its side), the connection broke, or a write made no progress.
static void on_event(struct bufferevent *stream, short what, void *context)
{
    http_connection *c = context;
    if (what & BEV_EVENT_CONNECTED) { // the handshake is done
        c->state = HTTP_STATE_HEAD;
        http_timer_start(c->deadline, (uint64_t)c->server->settings->head_deadline_us);
        return;
    }
    if (c->state == HTTP_STATE_HANDSHAKE && (what & BEV_EVENT_ERROR) &&
        http_tls_spoke_plain(stream)) {
        connection_turn_away(dup(bufferevent_getfd(stream)), "400 Bad Request",
                             "this port speaks TLS: use https");
    }
    // What was written before is the kernel's to deliver if the client only closed its sending
    // side.
    if (c->state == HTTP_STATE_FLUSH && (what & BEV_EVENT_EOF)) {
        c->half_closed = true;
        return;
    }
    http_connection_abort(c);
}

static void on_deadline(void *context)
{
    http_connection *c = context;
    if (c->doomed || c->state == HTTP_STATE_LINGER || c->state == HTTP_STATE_FLUSH ||
        c->state == HTTP_STATE_HANDSHAKE || (c->state == HTTP_STATE_HEAD && c->in.size == 0)) {
        http_connection_abort(c);
        return;
    }
    if (c->state == HTTP_STATE_HEAD)
        c->request = http_request_new(c);
    if (!c->request) {
        http_connection_abort(c);
        return;
    }
    connection_refuse(c, 408, "the request did not arrive in time");
}

void http_connection_open(http_server *s, int descriptor, const struct sockaddr *from)
{
    int one = 1, size = HTTP_SEND_BUFFER;
    uint8_t address[16];
    http_peer_address(from, address);
    http_peer *peer = (int64_t)s->connection_count < s->settings->connections_max
                          ? http_peer_take(s, address)
                          : NULL;
    http_connection *c = peer ? calloc(1, sizeof *c) : NULL;
    struct event_base *base = http_loop_base(s->loop);
    struct bufferevent *stream =
        !c       ? NULL
        : s->tls ? http_tls_accept(s->tls, base, descriptor)
                 : bufferevent_socket_new(base, descriptor, BEV_OPT_CLOSE_ON_FREE);
    if (!stream || http_timer_open(s->loop, on_deadline, c, &c->deadline) != STATUS_OK) {
        if (peer)
            http_peer_release(s, peer);
        free(c);
        connection_turn_away(stream ? dup(descriptor) : descriptor, "503 Service Unavailable",
                             "there are too many connections");
        if (stream)
            bufferevent_free(stream);
        return;
    }
    setsockopt(descriptor, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    setsockopt(descriptor, SOL_SOCKET, SO_SNDBUF, &size, sizeof size);
    c->server = s;
    c->stream = stream;
    c->peer = peer;
    memcpy(c->address, address, 16);
    c->next = s->connections;
    if (c->next)
        c->next->previous = c;
    s->connections = c;
    s->connection_count++;
    struct timeval write_deadline = { (time_t)(s->settings->write_deadline_us / 1000000),
                                      (suseconds_t)(s->settings->write_deadline_us % 1000000) };
    bufferevent_setcb(stream, on_read, on_written, on_event, c);
    bufferevent_setwatermark(stream, EV_READ, 0, HTTP_READ_AHEAD);
    bufferevent_set_timeouts(stream, NULL, &write_deadline);
    c->plain = s->tls == NULL;
    c->state = s->tls ? HTTP_STATE_HANDSHAKE : HTTP_STATE_HEAD;
    http_timer_start(c->deadline, (uint64_t)(s->tls ? s->settings->handshake_deadline_us
                                                    : s->settings->head_deadline_us));
    bufferevent_enable(stream, EV_READ | EV_WRITE);
}
