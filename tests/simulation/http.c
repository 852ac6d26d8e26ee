// Stand-in for net/http.h: the server of a router, and the way from and to its clients.
#include "client.h"
#include "network.h"

#include "base/clock.h"
#include "net/http.h"

#include <stdio.h>
#include <stdlib.h>

// ---- the server -------------------------------------------------------------------------------

static const config_key no_keys[1];
const config_section http_config_section = { no_keys, 0 };
const config_section http_config_section_worker = { no_keys, 0 };

struct http_server {
    process *process;
    const http_route *routes;
    size_t route_count;
    http_hooks hooks;
    void *context;
    http_request *requests;
};

struct http_request {
    http_request *previous, *next;
    http_server *server; // NULL: it has not arrived, or it is over
    client *client;      // NULL: it has gone
    uint64_t number;     // the client's
    process *process;
    const http_route *route;
    char path[64], id[32];
    buffer body;
    uint64_t arrived_us;
    void *owner;
    http_loop_call on_close;
    void *close_context;
    int status_code;
    bool ended;
};

status http_server_open(http_loop *loop, const http_settings *settings, const http_route *routes,
                        size_t route_count, const http_hooks *hooks, void *context,
                        http_server **opened, error *failure)
{
    (void)loop;
    (void)settings;
    (void)failure;
    http_server *s = calloc(1, sizeof *s);
    CHECK(s);
    *s = (http_server){ world_current(), routes, route_count, { 0 }, context, NULL };
    if (hooks)
        s->hooks = *hooks;
    s->process->server = s;
    *opened = s;
    return STATUS_OK;
}

static void request_remove(http_request *r)
{
    if (r->previous)
        r->previous->next = r->next;
    else
        r->server->requests = r->next;
    if (r->next)
        r->next->previous = r->previous;
    if (r->server->hooks.answered)
        r->server->hooks.answered(r, r->route ? r->route->path : "other", r->status_code,
                                  r->server->context);
    if (r->client)
        r->client->http = NULL;
    buffer_close(&r->body);
    free(r);
}

static void cut_arrive(void *argument)
{
    client_on_cut(argument);
}

static void request_cut(http_request *r)
{
    client *c = r->client;
    r->client = NULL;
    if (!c)
        return;
    c->http = NULL;
    world_after(NULL, world_between(10, 5000), cut_arrive, c);
}

void http_server_close(http_server *s)
{
    if (!s)
        return;
    while (s->requests) {
        http_request *r = s->requests;
        request_cut(r);
        if (r->on_close)
            r->on_close(r->close_context);
        request_remove(r);
    }
    s->process->server = NULL;
    free(s);
}

void http_process_died(process *p)
{
    http_server *s = p->server;
    for (http_request *r = s ? s->requests : NULL; r; r = r->next)
        request_cut(r);
    p->server = NULL;
    for (client *c = client_list(); c; c = c->next)
        if (c->router == p && c->http && c->end == CLIENT_WAITS) { // still on its way there
            c->http->client = NULL;
            c->http = NULL;
            world_after(NULL, 1000, cut_arrive, c);
        }
}

size_t http_server_connections(const http_server *s)
{
    size_t count = 0;
    for (const http_request *r = s->requests; r; r = r->next)
        count++;
    return count;
}

const char *http_server_address(const http_server *s, size_t index)
{
    return index == 0 ? s->process->host : NULL;
}

bool http_server_secure(const http_server *s)
{
    (void)s;
    return false;
}

status http_server_reload(http_server *s, error *failure)
{
    (void)s;
    (void)failure;
    return STATUS_OK;
}

void http_server_refuse_keep_alive(http_server *s)
{
    (void)s;
}

struct http_thread {
    int unused;
};

status http_thread_open(const http_settings *settings, const http_route *routes, size_t route_count,
                        void *context, http_thread **opened, error *failure)
{
    (void)settings;
    (void)routes;
    (void)route_count;
    (void)context;
    (void)failure;
    *opened = calloc(1, sizeof **opened);
    return STATUS_OK;
}

static http_server no_server;

http_server *http_thread_server(http_thread *t)
{
    (void)t;
    no_server.process = world_current();
    return &no_server;
}

void http_thread_close(http_thread *t)
{
    free(t);
}

// ---- requests ---------------------------------------------------------------------------------

static void request_arrive(void *argument)
{
    http_request *r = argument;
    http_server *s = world_current()->server;
    if (!r->client) {
        buffer_close(&r->body);
        free(r);
        return;
    }
    if (!s) { // it does not listen (any more)
        request_cut(r);
        buffer_close(&r->body);
        free(r);
        return;
    }
    r->server = s;
    r->arrived_us = clock_now_us();
    r->next = s->requests;
    if (r->next)
        r->next->previous = r;
    s->requests = r;
    for (size_t i = 0; i < s->route_count && !r->route; i++)
        if (strcmp(s->routes[i].path, r->path) == 0)
            r->route = &s->routes[i];
    CHECK(r->route);
    r->route->handler(r, s->context);
}

void http_post(client *c, const char *path, slice body)
{
    http_request *r = calloc(1, sizeof *r);
    CHECK(r);
    r->client = c;
    r->number = c->number;
    r->process = c->router;
    snprintf(r->path, sizeof r->path, "%s", path);
    snprintf(r->id, sizeof r->id, "client-%llu", (unsigned long long)c->number);
    buffer_append_slice(&r->body, body);
    c->http = r;
    world_after(c->router, network_latency_us(), request_arrive, r);
}

static void leave_arrive(void *argument)
{
    const client *c = argument;
    http_server *s = world_current()->server;
    for (http_request *r = s ? s->requests : NULL; r; r = r->next) {
        if (r->number != c->number)
            continue;
        if (r->on_close)
            r->on_close(r->close_context);
        request_remove(r);
        return;
    }
}

void http_leave(client *c)
{
    http_request *r = c->http;
    c->http = NULL;
    if (!r)
        return;
    r->client = NULL;
    world_after(r->process, network_latency_us(), leave_arrive, c);
}

slice http_request_path(const http_request *r)
{
    return slice_of(r->path);
}

slice http_request_rest(const http_request *r)
{
    (void)r;
    return SLICE("");
}

slice http_request_body(const http_request *r)
{
    return buffer_slice(&r->body);
}

void http_request_forget_body(http_request *r)
{
    buffer_close(&r->body);
}

slice http_request_id(const http_request *r)
{
    return slice_of(r->id);
}

slice http_request_field(const http_request *r, const char *name)
{
    (void)r;
    (void)name;
    return (slice){ 0 };
}

bool http_request_is_local(const http_request *r)
{
    (void)r;
    return false;
}

uint64_t http_request_arrived_us(const http_request *r)
{
    return r->arrived_us;
}

slice http_request_method(const http_request *r)
{
    (void)r;
    return SLICE("POST");
}

uint32_t http_request_flags(const http_request *r)
{
    return r->route ? r->route->flags : 0;
}

uint64_t http_request_answer_bytes(const http_request *r)
{
    (void)r;
    return 0;
}

void http_request_client(const http_request *r, char text[HTTP_ADDRESS_TEXT])
{
    snprintf(text, HTTP_ADDRESS_TEXT, "%llu", (unsigned long long)r->number);
}

slice http_request_trace(const http_request *r)
{
    (void)r;
    return SLICE("");
}

void http_request_own(http_request *r, void *what)
{
    r->owner = what;
}

void *http_request_owned(const http_request *r)
{
    return r->owner;
}

void http_request_on_close(http_request *r, http_loop_call call, void *context)
{
    r->on_close = call;
    r->close_context = context;
}

// ---- answers ----------------------------------------------------------------------------------

typedef struct delivery {
    client *client;
    int status_code;
    buffer data;
    bool end;
} delivery;

static void delivery_arrive(void *argument)
{
    delivery *d = argument;
    if (d->data.size > 0)
        client_on_data(d->client, d->status_code, buffer_slice(&d->data));
    if (d->end)
        client_on_end(d->client);
    buffer_close(&d->data);
    free(d);
}

static void deliver(http_request *r, slice data, bool end)
{
    client *c = r->client;
    if (!c)
        return;
    delivery *d = calloc(1, sizeof *d);
    CHECK(d);
    d->client = c;
    d->status_code = r->status_code;
    d->end = end;
    buffer_append_slice(&d->data, data);
    uint64_t due_us = network_arrival_us(-1, -1, &c->last_us);
    world_after(NULL, due_us - world_now_us(), delivery_arrive, d);
}

void http_answer_field(http_request *r, const char *name, const char *value)
{
    (void)r;
    (void)name;
    (void)value;
}

void http_respond(http_request *r, int status_code, const char *content_type, slice body)
{
    (void)content_type;
    r->status_code = status_code;
    deliver(r, body, true);
    request_remove(r);
}

const char *http_error_type(int status_code)
{
    return status_code < 500 ? "invalid_request_error" : "server_error";
}

void http_error_body(buffer *out, const char *type, const char *param, const char *code,
                     const char *message)
{
    buffer_append_text(out, "{\"error\":{\"message\":");
    buffer_append_json(out, slice_of(message));
    buffer_printf(out, ",\"type\":\"%s\",\"param\":\"%s\",\"code\":\"%s\"}}", type,
                  param ? param : "", code ? code : "");
}

void http_respond_error(http_request *r, int status_code, const char *type, const char *param,
                        const char *code, const char *message)
{
    buffer body = { 0 };
    http_error_body(&body, type ? type : http_error_type(status_code), param, code, message);
    http_respond(r, status_code, "application/json", buffer_slice(&body));
    buffer_close(&body);
}

void http_stream_begin(http_request *r, int status_code, const char *content_type)
{
    (void)content_type;
    r->status_code = status_code;
}

bool http_stream_write(http_request *r, slice data)
{
    deliver(r, data, false);
    return true;
}

void http_stream_end(http_request *r)
{
    deliver(r, SLICE(""), true);
    request_remove(r);
}
