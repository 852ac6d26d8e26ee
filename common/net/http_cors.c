// Cross-origin requests of browsers (the CORS protocol of https://fetch.spec.whatwg.org/). Without
// `http.cors_origins` there is none of it: browsers then keep other sites' pages away by
// themselves. Credentials (cookies, stored passwords) are never allowed across origins; keys travel
// in fields that a page must add itself.
#include "net/http_private.h"

#define REQUESTED_FIELDS_MAX 1024
#define PREFLIGHT_AGE_S "600" // how long a browser may remember the answer

// The origin of the request where the settings allow it; "*" where they allow every one; empty
// otherwise.
static slice origin_allowed(const http_request *r)
{
    const config_strings *allowed = &r->connection->server->settings->cors_origins;
    slice origin = http_head_field(&r->head, "Origin");
    for (size_t i = 0; origin.size > 0 && i < allowed->count; i++) {
        if (strcmp(allowed->items[i], "*") == 0)
            return SLICE("*");
        if (slice_equal(origin, slice_of(allowed->items[i])))
            return origin;
    }
    return SLICE("");
}

void http_cors_append(const http_request *r, buffer *out)
{
    if (r->connection->server->settings->cors_origins.count == 0)
        return;
    slice origin = origin_allowed(r);
    if (!slice_equal(origin, SLICE("*")))
        buffer_append_text(out, "Vary: Origin\r\n");
    if (origin.size == 0)
        return;
    buffer_printf(out,
                  "Access-Control-Allow-Origin: %.*s\r\nAccess-Control-Expose-Headers: "
                  "X-Request-Id, Retry-After, traceparent, x-ratelimit-limit-requests, "
                  "x-ratelimit-remaining-requests, x-ratelimit-reset-requests, "
                  "x-ratelimit-limit-tokens, x-ratelimit-remaining-tokens, "
                  "x-ratelimit-reset-tokens\r\n",
                  (int)origin.size, origin.data);
}

// Field names as they stand in a preflight: tokens, commas and blanks.
static bool names_are_plain(slice names)
{
    for (size_t i = 0; i < names.size; i++) {
        char c = names.data[i];
        bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                     c == '-' || c == '_' || c == ',' || c == ' ';
        if (!plain)
            return false;
    }
    return names.size <= REQUESTED_FIELDS_MAX;
}

bool http_cors_preflight(http_request *r)
{
    const http_head *head = &r->head;
    slice names = http_head_field(head, "Access-Control-Request-Headers");
    if (r->connection->server->settings->cors_origins.count == 0 ||
        !slice_equal(head->method, SLICE("OPTIONS")) ||
        http_head_field(head, "Access-Control-Request-Method").size == 0 ||
        http_head_field(head, "Origin").size == 0)
        return false;
    if (origin_allowed(r).size == 0 || !names_are_plain(names)) {
        http_respond_error(r, 403, NULL, NULL, "origin_not_allowed",
                           "pages of this origin may not call this server (http.cors_origins)");
        return true;
    }
    char fields[REQUESTED_FIELDS_MAX + 1];
    memcpy(fields, names.size ? names.data : "", names.size);
    fields[names.size] = 0;
    http_answer_field(r, "Access-Control-Allow-Methods", "GET, HEAD, POST");
    if (names.size > 0)
        http_answer_field(r, "Access-Control-Allow-Headers", fields);
    http_answer_field(r, "Access-Control-Max-Age", PREFLIGHT_AGE_S);
    http_respond(r, 204, NULL, SLICE(""));
    return true;
}
