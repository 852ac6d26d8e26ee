#include "net/http_private.h"

// True if `path` is the route's, and then what its "/*" stands for.
static bool route_matches(const http_route *route, slice path, slice *rest)
{
    size_t size = strlen(route->path);
    *rest = (slice){ "", 0 };
    if (size >= 2 && memcmp(route->path + size - 2, "/*", 2) == 0) {
        size--; // with the slash
        if (path.size <= size || memcmp(path.data, route->path, size) != 0)
            return false;
        *rest = (slice){ path.data + size, path.size - size };
        return true;
    }
    return slice_equal(path, (slice){ route->path, size });
}

static bool method_matches(const http_route *route, slice method)
{
    return slice_equal(method, slice_of(route->method)) ||
           (slice_equal(method, SLICE("HEAD")) && strcmp(route->method, "GET") == 0);
}

bool http_route_find(http_request *r)
{
    const http_server *s = r->connection->server;
    buffer allow = { .limit = 256 };
    for (size_t i = 0; i < s->route_count; i++) {
        slice rest;
        const http_route *route = &s->routes[i];
        if (!route_matches(route, r->head.path, &rest))
            continue;
        if (method_matches(route, r->head.method)) {
            buffer_close(&allow);
            r->rest = rest;
            r->route = route;
            return true;
        }
        buffer_printf(&allow, "%s%s", allow.size ? ", " : "", route->method);
        if (strcmp(route->method, "GET") == 0)
            buffer_append_text(&allow, ", HEAD");
    }
    if (allow.size > 0) {
        http_answer_field(r, "Allow", allow.data);
        http_respond_error(r, 405, NULL, NULL, "method_not_allowed",
                           "this path does not answer that method; see the Allow field");
    } else {
        http_respond_error(r, 404, NULL, NULL, "not_found", "there is nothing at this path");
    }
    buffer_close(&allow);
    return false;
}
