// What a handler sees of a request, and the answers that it can give.
#include "net/http_private.h"

#include "base/clock.h"
#include "base/random.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

http_request *http_request_new(http_connection *c)
{
    http_server *s = c->server;
    http_request *r = calloc(1, sizeof *r);
    if (!r)
        return NULL;
    r->connection = c;
    r->arrived_us = clock_now_us();
    r->answer_fields.limit = 4096;
    r->rest = r->head.method = r->head.path = r->head.query = (slice){ "", 0 };
    snprintf(r->id, sizeof r->id, "%016" PRIx64, random_mix(s->id_seed + s->id_count++));
    return r;
}

http_request *http_request_fit(http_request *r)
{
    size_t size = offsetof(http_request, head) + offsetof(http_head, fields) +
                  r->head.field_count * sizeof r->head.fields[0];
    http_request *moved = realloc(r, size);
    return moved ? moved : r;
}

void http_request_forget_body(http_request *r)
{
    r->connection->server->bodies_bytes -= r->body.size;
    buffer_close(&r->body);
}

void http_request_free(http_request *r)
{
    http_request_forget_body(r);
    if (r->client)
        http_peer_release(r->connection->server, r->client);
    buffer_close(&r->head_bytes);
    buffer_close(&r->answer_fields);
    free(r);
}

bool http_request_find_client(http_request *r)
{
    const http_connection *c = r->connection;
    uint8_t address[16];
    memcpy(address, c->address, 16);
    http_proxies_follow(&c->server->proxies, &r->head, address);
    if (memcmp(address, c->address, 16) == 0)
        return true;
    r->client = http_peer_take(c->server, address);
    return r->client != NULL;
}

slice http_request_path(const http_request *r)
{
    return r->head.path;
}

slice http_request_rest(const http_request *r)
{
    return r->rest;
}

slice http_request_body(const http_request *r)
{
    return buffer_slice(&r->body);
}

slice http_request_id(const http_request *r)
{
    slice own = http_head_field(&r->head, "X-Request-Id");
    bool usable = own.size > 0 && own.size <= 64;
    for (size_t i = 0; usable && i < own.size; i++) {
        char c = own.data[i];
        usable = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                 c == '.' || c == '_' || c == '-';
    }
    return usable ? own : slice_of(r->id);
}

slice http_request_field(const http_request *r, const char *name)
{
    return http_head_field(&r->head, name);
}

bool http_request_is_local(const http_request *r)
{
    return http_peer_is_local(r->connection->peer);
}

void http_request_client(const http_request *r, char text[HTTP_ADDRESS_TEXT])
{
    http_peer_format(r->client ? r->client : r->connection->peer, text);
}

slice http_request_method(const http_request *r)
{
    return r->head.method;
}

uint32_t http_request_flags(const http_request *r)
{
    return r->route ? r->route->flags : 0;
}

uint64_t http_request_answer_bytes(const http_request *r)
{
    return r->sent_bytes;
}

slice http_request_trace(const http_request *r)
{
    return slice_of(r->trace.id);
}

void http_request_own(http_request *r, void *what)
{
    r->owner = what;
}

void *http_request_owned(const http_request *r)
{
    return r->owner;
}

uint64_t http_request_arrived_us(const http_request *r)
{
    return r->arrived_us;
}

void http_request_on_close(http_request *r, http_loop_call call, void *context)
{
    r->on_close = call;
    r->on_close_context = context;
}

// ---- answers ----------------------------------------------------------------------------------

static const char *status_phrase(int status_code)
{
    static const struct {
        int code;
        const char *text;
    } phrases[] = { { 200, "OK" },
                    { 204, "No Content" },
                    { 400, "Bad Request" },
                    { 401, "Unauthorized" },
                    { 403, "Forbidden" },
                    { 404, "Not Found" },
                    { 405, "Method Not Allowed" },
                    { 408, "Request Timeout" },
                    { 409, "Conflict" },
                    { 411, "Length Required" },
                    { 413, "Content Too Large" },
                    { 415, "Unsupported Media Type" },
                    { 417, "Expectation Failed" },
                    { 429, "Too Many Requests" },
                    { 431, "Request Header Fields Too Large" },
                    { 500, "Internal Server Error" },
                    { 501, "Not Implemented" },
                    { 502, "Bad Gateway" },
                    { 503, "Service Unavailable" },
                    { 504, "Gateway Timeout" },
                    { 505, "HTTP Version Not Supported" } };
    for (size_t i = 0; i < sizeof phrases / sizeof *phrases; i++)
        if (phrases[i].code == status_code)
            return phrases[i].text;
    return "Unknown";
}

const char *http_error_type(int status_code)
{
    if (status_code == 401)
        return "authentication_error";
    if (status_code == 403)
        return "permission_error";
    if (status_code == 404)
        return "not_found_error";
    if (status_code == 429)
        return "rate_limit_error";
    if (status_code == 503)
        return "overloaded_error";
    return status_code >= 500 ? "server_error" : "invalid_request_error";
}

static void append_text_or_null(buffer *out, const char *text)
{
    if (text)
        buffer_append_json(out, slice_of(text));
    else
        buffer_append_text(out, "null");
}

void http_error_body(buffer *out, const char *type, const char *param, const char *code,
                     const char *message)
{
    buffer_append_text(out, "{\"error\":{\"message\":");
    buffer_append_json(out, slice_of(message));
    buffer_append_text(out, ",\"type\":");
    append_text_or_null(out, type);
    buffer_append_text(out, ",\"param\":");
    append_text_or_null(out, param);
    buffer_append_text(out, ",\"code\":");
    append_text_or_null(out, code);
    buffer_append_text(out, "}}");
}

void http_answer_field(http_request *r, const char *name, const char *value)
{
    buffer_printf(&r->answer_fields, "%s: %s\r\n", name, value);
}

// Everything up to the empty line except the framing fields.
static void answer_head(http_request *r, int status_code, const char *content_type, buffer *out)
{
    http_connection *c = r->connection;
    char date[64];
    time_t now = (time_t)clock_wall_s();
    struct tm utc;
    gmtime_r(&now, &utc);
    strftime(date, sizeof date, "%a, %d %b %Y %H:%M:%S GMT", &utc);
    slice id = http_request_id(r);
    r->status_code = status_code;
    if (c->server->refuse_keep_alive)
        c->keep_alive = false;
    buffer_printf(out, "HTTP/1.1 %d %s\r\nDate: %s\r\nX-Request-Id: %.*s\r\n", status_code,
                  status_phrase(status_code), date, (int)id.size, id.data);
    if (content_type)
        buffer_printf(out, "Content-Type: %s\r\n", content_type);
    if (r->trace.id[0]) // our own part of the trace is named after the request
        buffer_printf(out, "traceparent: 00-%s-%s-%s\r\n", r->trace.id, r->id, r->trace.flags);
    http_cors_append(r, out);
    buffer_append_slice(out, buffer_slice(&r->answer_fields));
    if (!c->keep_alive)
        buffer_append_text(out, "Connection: close\r\n");
    else if (r->head.minor == 0)
        buffer_append_text(out, "Connection: keep-alive\r\n");
}

void http_respond(http_request *r, int status_code, const char *content_type, slice body)
{
    CHECK(!r->streaming);
    http_connection *c = r->connection;
    buffer head = { 0 };
    r->on_close = NULL;
    answer_head(r, status_code, content_type, &head);
    if (status_code == 204)
        buffer_append_text(&head, "\r\n");
    else
        buffer_printf(&head, "Content-Length: %zu\r\n\r\n", body.size);
    r->sent_bytes += body.size;
    struct iovec parts[] = { { head.data, head.size }, { (char *)body.data, body.size } };
    if (!c->doomed)
        http_connection_write(c, parts, slice_equal(r->head.method, SLICE("HEAD")) ? 1 : 2);
    buffer_close(&head);
    http_connection_answered(c);
}

void http_respond_error(http_request *r, int status_code, const char *type, const char *param,
                        const char *code, const char *message)
{
    const http_hooks *hooks = &r->connection->server->hooks;
    buffer body = { 0 };
    if (!hooks->error || !hooks->error(r, status_code, message, &body))
        http_error_body(&body, type ? type : http_error_type(status_code), param, code, message);
    http_respond(r, status_code, "application/json", buffer_slice(&body));
    buffer_close(&body);
}

void http_stream_begin(http_request *r, int status_code, const char *content_type)
{
    CHECK(!r->streaming);
    http_connection *c = r->connection;
    buffer head = { 0 };
    r->streaming = true;
    r->chunked_answer = r->head.minor == 1;
    if (!r->chunked_answer)
        c->keep_alive = false;
    answer_head(r, status_code, content_type, &head);
    buffer_append_text(&head, r->chunked_answer ? "Transfer-Encoding: chunked\r\n\r\n" : "\r\n");
    if (!c->doomed)
        bufferevent_write(c->stream, head.data, head.size);
    buffer_close(&head);
}

// A reader that is too slow: past the limit, or above half of it for long.
static bool stream_too_slow(http_request *r)
{
    size_t waiting = evbuffer_get_length(bufferevent_get_output(r->connection->stream));
    size_t limit = (size_t)r->connection->server->settings->output_bytes;
    if (waiting <= limit / 2) {
        r->over_half_since_us = 0;
        return false;
    }
    uint64_t now = clock_now_us();
    if (r->over_half_since_us == 0)
        r->over_half_since_us = now;
    return waiting > limit || now - r->over_half_since_us > HTTP_HALF_FULL_US;
}

bool http_stream_write(http_request *r, slice data)
{
    CHECK(r->streaming);
    http_connection *c = r->connection;
    if (c->doomed)
        return false;
    if (data.size == 0)
        return true;
    r->sent_bytes += data.size;
    char size[24];
    int length = snprintf(size, sizeof size, "%zx\r\n", data.size);
    struct iovec chunk[] = { { size, (size_t)length },
                             { (char *)data.data, data.size },
                             { (char *)"\r\n", 2 } };
    if (r->chunked_answer)
        http_connection_write(c, chunk, 3);
    else
        http_connection_write(c, &chunk[1], 1);
    if (!stream_too_slow(r))
        return true;
    http_connection_doom(c);
    return false;
}

void http_stream_end(http_request *r)
{
    CHECK(r->streaming);
    http_connection *c = r->connection;
    r->on_close = NULL;
    struct iovec end = { (char *)"0\r\n\r\n", 5 };
    if (r->chunked_answer && !c->doomed)
        http_connection_write(c, &end, 1);
    http_connection_answered(c);
}
