// Bytes of a client's connection against the whole server: reading, routes, a door that asks for a
// key, answers of every kind. Byte 0 is the size of the pieces that they come in; byte 1 says what
// the client does at its end.
//
// Whatever comes, every answer is HTTP, every request that a handler got is reported as answered
// exactly once, and nothing is held when the client has gone.
#include "net/http_private.h"
#include "net/http_secret.h"

#include "base/log.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

static http_loop *loop;
static http_server *server;
static http_settings settings;
static char *origins[] = { (char *)"https://good.example" };
static char *listen_items[] = { (char *)"127.0.0.1:0" };
static long admitted, answered, closed, waiting;

static bool on_admit(http_request *r, void *context)
{
    (void)context;
    buffer scratch = { .limit = 256 };
    slice field = http_request_field(r, "Authorization");
    slice secret = http_secret_bearer(field);
    if (!secret.data && http_secret_basic(field, &scratch))
        secret = buffer_slice(&scratch);
    bool allowed =
        !(http_request_flags(r) & HTTP_OWNER_FLAG) || slice_equal(secret, SLICE("open sesame"));
    buffer_close(&scratch);
    if (!allowed) {
        http_respond_error(r, 401, NULL, NULL, "invalid_api_key", "no");
        return false;
    }
    admitted++;
    http_request_own(r, r);
    return true;
}

static void on_answered(const http_request *r, const char *route, int status_code, void *context)
{
    (void)context;
    char client[HTTP_ADDRESS_TEXT];
    CHECK(route && (status_code == 0 || (status_code >= 200 && status_code < 600)));
    http_request_client(r, client);
    slice trace = http_request_trace(r), id = http_request_id(r);
    CHECK((trace.size == 0 || trace.size == 32) && id.size > 0 && id.size <= 64);
    const log_field fields[] = { { .name = "method", .text = http_request_method(r) },
                                 { .name = "client", .text = slice_of(client) } };
    log_fields(LOG_DEBUG, "access", fields, 2);
    answered += http_request_owned(r) != NULL;
}

static void on_close(void *context)
{
    (void)context;
    closed++;
    waiting--;
}

static void handle_echo(http_request *r, void *context)
{
    (void)context;
    CHECK(http_text_is_utf8(http_request_body(r)));
    http_respond(r, 200, "application/json", http_request_body(r));
}

static void handle_stream(http_request *r, void *context)
{
    (void)context;
    http_stream_begin(r, 200, "text/event-stream");
    for (int i = 0; i < 3; i++)
        http_stream_write(r, SLICE("data: x\n\n"));
    http_stream_end(r);
}

static void handle_never(http_request *r, void *context)
{
    (void)context;
    waiting++;
    http_request_on_close(r, on_close, NULL);
}

static const http_route routes[] = {
    { "POST", "/echo", handle_echo, HTTP_JSON_BODY },
    { "POST", "/secret", handle_echo, HTTP_JSON_BODY | HTTP_OWNER_FLAG },
    { "GET", "/stream", handle_stream, 0 },
    { "GET", "/never", handle_never, 0 },
    { "GET", "/any/*", handle_stream, HTTP_OWNER_FLAG },
};

// The client of a socket pair has the address ::.
static char *proxies[] = { (char *)"::", (char *)"10.0.0.0/8" };

static void server_begin(void)
{
    error failure;
    settings = (http_settings){ .listen = { 1, listen_items },
                                .connections_max = 4,
                                .connections_per_address = 4,
                                .head_bytes = 2048,
                                .body_bytes = 1024,
                                .bodies_bytes = 4096,
                                .output_bytes = 8192,
                                .head_deadline_us = 1000000,
                                .body_deadline_us = 1000000,
                                .idle_us = 1000000,
                                .write_deadline_us = 1000000,
                                .cors_origins = { 1, origins },
                                .trusted_proxies = { 2, proxies } };
    const http_hooks hooks = { on_admit, on_answered, NULL };
    CHECK(http_loop_open(&loop, &failure) == STATUS_OK);
    CHECK(http_server_open(loop, &settings, routes, sizeof routes / sizeof *routes, &hooks, NULL,
                           &server, &failure) == STATUS_OK);
}

static void turn(void)
{
    event_base_loop(http_loop_base(loop), EVLOOP_NONBLOCK);
}

// What the server has written.
static void answers_read(int client, buffer *answers)
{
    char block[8192];
    for (ssize_t size; (size = recv(client, block, sizeof block, MSG_DONTWAIT)) > 0;)
        buffer_append(answers, block, (size_t)size);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    static const struct sockaddr from = { .sa_family = AF_UNIX };
    int pair[2];
    buffer answers = { 0 };
    if (!server)
        server_begin();
    if (size < 3 || socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair) != 0)
        return 0;
    size_t piece = 1 + bytes[0] * 4u;
    uint8_t end = bytes[1];
    admitted = answered = closed = waiting = 0;
    http_connection_open(server, pair[0], &from);
    for (size_t at = 2; at < size;) {
        size_t take = size - at < piece ? size - at : piece;
        ssize_t sent = send(pair[1], bytes + at, take, MSG_DONTWAIT | MSG_NOSIGNAL);
        turn();
        answers_read(pair[1], &answers);
        if (sent <= 0)
            break;
        at += (size_t)sent;
    }
    if (end & 1)
        shutdown(pair[1], SHUT_WR);
    for (int i = 0; i < 3; i++) {
        turn();
        answers_read(pair[1], &answers);
    }
    close(pair[1]);
    while (http_server_connections(server) > 0) {
        turn();
        if (server->connections && server->connections->state == HTTP_STATE_LINGER)
            http_connection_abort(server->connections);
    }
    CHECK(answers.size == 0 || strncmp(answers.data, "HTTP/1.1 ", 9) == 0);
    CHECK(admitted == answered && waiting == 0 && server->bodies_bytes == 0);
    buffer_close(&answers);
    return 0;
}
