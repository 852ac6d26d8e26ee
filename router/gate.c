#include "router/gate.h"

#include "base/clock.h"
#include "base/log.h"
#include "router/answer.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

// What the gate keeps with a request that showed a key.
typedef struct pass {
    api_key *key;
    bool entered; // it counts among those at a time
} pass;

struct gate {
    router *router;
    keys *keys;                   // NULL: keys are off
    http_route *routes;           // of http.listen; NULL: all of router_routes
    http_settings admin_settings; // of http.admin_listen
    http_server *server, *admin_server;
};

const api_key *gate_key(const http_request *http)
{
    const pass *p = http_request_owned(http);
    return p ? p->key : NULL;
}

bool gate_keys_on(const gate *g)
{
    return g->keys != NULL;
}

// ---- refusals ---------------------------------------------------------------------------------

// What goes wrong before a call begins is told by its path, also where no method of it is served.
static bool on_error(const http_request *http, int status_code, const char *message, buffer *out)
{
    static const slice messages = { "/v1/messages", 12 };
    slice path = http_request_path(http);
    if (path.size < messages.size || memcmp(path.data, messages.data, messages.size) != 0 ||
        (path.size > messages.size && path.data[messages.size] != '/'))
        return false;
    answer_shape_of(REQUEST_MESSAGES)->error(status_code, NULL, NULL, message, false, out);
    return true;
}

static bool refuse(http_request *http, int status_code, const char *code, const char *message)
{
    http_respond_error(http, status_code, NULL, NULL, code, message);
    return false;
}

static void refusal_count(gate *g, const char *reason)
{
    router_metrics_add(g->router->metrics, ROUTER_METRIC_KEY_REFUSALS, reason, NULL, 1);
}

static void field_add(http_request *http, const char *name, const char *format, double value)
{
    char text[32];
    snprintf(text, sizeof text, format, value);
    http_answer_field(http, name, text);
}

// How a limit stands, as OpenAI's fields say it.
static void bucket_tell(http_request *http, const keys_bucket *b, const char *what, uint64_t now)
{
    char name[48];
    if (b->limit == 0)
        return;
    double level = keys_bucket_level(b, now);
    snprintf(name, sizeof name, "x-ratelimit-limit-%s", what);
    field_add(http, name, "%.0f", (double)b->limit);
    snprintf(name, sizeof name, "x-ratelimit-remaining-%s", what);
    field_add(http, name, "%.0f", level > 0 ? floor(level) : 0);
    snprintf(name, sizeof name, "x-ratelimit-reset-%s", what);
    field_add(http, name, "%.3fs", keys_bucket_wait_s(b, (double)b->limit, now));
}

static void limits_tell(http_request *http, const api_key *key, uint64_t now)
{
    bucket_tell(http, &key->requests, "requests", now);
    bucket_tell(http, &key->tokens, "tokens", now);
}

// `wanted`: tokens, or one request.
static void limit_refuse(gate *g, http_request *http, const api_key *key, keys_verdict verdict,
                         double wanted, gate_refusal *refusal)
{
    uint64_t now = clock_now_us();
    double wait_s = 1;
    *refusal = (gate_refusal){ 429, NULL, "rate_limit_exceeded", 1, "" };
    limits_tell(http, key, now);
    switch (verdict) {
    case KEYS_TOO_LARGE:
        refusal_count(g, "too_large");
        refusal->retry_after_s = 0; // to come again would not help
        snprintf(
            refusal->message, sizeof refusal->message,
            "the prompt has %.0f tokens, and key %s may use %.0f in a minute: it will never fit",
            wanted, key->name, (double)key->tokens.limit);
        return;
    case KEYS_CONCURRENT:
        refusal_count(g, "concurrent");
        snprintf(refusal->message, sizeof refusal->message,
                 "key %s has %.0f requests under way, as many as it may have at a time", key->name,
                 (double)key->running);
        break;
    case KEYS_TOKENS:
        refusal_count(g, "tokens");
        wait_s = keys_bucket_wait_s(&key->tokens, wanted, now);
        snprintf(refusal->message, sizeof refusal->message,
                 "key %s has used its %.0f tokens a minute; try again in %.1f s", key->name,
                 (double)key->tokens.limit, wait_s);
        break;
    default:
        refusal_count(g, "requests");
        wait_s = keys_bucket_wait_s(&key->requests, 1, now);
        snprintf(refusal->message, sizeof refusal->message,
                 "key %s has used its %.0f requests a minute; try again in %.1f s", key->name,
                 (double)key->requests.limit, wait_s);
    }
    refusal->retry_after_s = wait_s > 1 ? (int)ceil(wait_s) : 1;
}

// ---- the head ---------------------------------------------------------------------------------

// The secret that a request shows; empty: none. `scratch` may hold it.
static slice secret_of(const http_request *http, buffer *scratch)
{
    slice field = http_request_field(http, "Authorization");
    slice secret = http_secret_bearer(field);
    if (secret.data)
        return secret;
    if (http_secret_basic(field, scratch))
        return buffer_slice(scratch);
    return http_request_field(http, "x-api-key");
}

// Its key is known: hold it as long as the request. False: no memory.
static bool pass_make(http_request *http, api_key *key)
{
    pass *p = calloc(1, sizeof *p);
    if (!p)
        return false;
    p->key = key;
    keys_take(key);
    http_request_own(http, p);
    return true;
}

// NULL: it showed none that is known; `shown` says whether it showed any.
static api_key *key_look(gate *g, const http_request *http, bool *shown)
{
    buffer scratch = { .limit = 1024 };
    slice secret = secret_of(http, &scratch);
    *shown = secret.size > 0;
    api_key *key = *shown ? keys_find(g->keys, secret) : NULL;
    buffer_close(&scratch);
    return key;
}

static bool refuse_unknown(gate *g, http_request *http, bool shown)
{
    refusal_count(g, shown ? "unknown" : "missing");
    http_answer_field(http, "WWW-Authenticate", "Bearer");
    return refuse(http, 401, "invalid_api_key",
                  shown ? "the API key is not known"
                        : "an API key is missing; send it as Authorization: Bearer KEY");
}

// On http.listen.
static bool on_head(http_request *http, void *context)
{
    gate *g = ((router *)context)->gate;
    uint32_t flags = http_request_flags(http);
    bool shown;
    if (!g->keys || (flags & (ROUTE_OPEN | ROUTE_PAGE)))
        return true;
    api_key *key = key_look(g, http, &shown);
    if (!key)
        return refuse_unknown(g, http, shown);
    if (!pass_make(http, key))
        return refuse(http, 503, "no_memory", "there is no memory for the request");
    if ((flags & ROUTE_ADMIN) && !key->admin) {
        refusal_count(g, "not_admin");
        return refuse(http, 403, "insufficient_permissions",
                      "this path is for operators, and the API key is not one of theirs");
    }
    if (!(flags & ROUTE_COUNTED))
        return true;
    keys_verdict verdict = keys_enter(key, clock_now_us());
    if (verdict == KEYS_ALLOWED) {
        ((pass *)http_request_owned(http))->entered = true;
        return true;
    }
    gate_refusal refusal;
    limit_refuse(g, http, key, verdict, 1, &refusal);
    field_add(http, "Retry-After", "%.0f", refusal.retry_after_s);
    return refuse(http, refusal.status_code, refusal.code, refusal.message);
}

// On http.admin_listen: a key is not needed, but one that is shown tells who asks.
static bool on_operators_head(http_request *http, void *context)
{
    gate *g = ((router *)context)->gate;
    bool shown;
    api_key *key = g->keys ? key_look(g, http, &shown) : NULL;
    if (key)
        pass_make(http, key); // without memory it is nobody's
    return true;
}

// ---- the body, and the end --------------------------------------------------------------------

model_set gate_hidden_models(const gate *g, const http_request *http)
{
    const api_key *key = gate_key(http);
    model_set allowed = !key || key->model_count == 0 ? UINT32_MAX : 0;
    for (size_t i = 0; key && i < key->model_count; i++) {
        const served_model *model = models_find(&g->router->models, slice_of(key->models[i]));
        if (model)
            allowed |= (model_set)1 << model->index;
    }
    return ~allowed;
}

bool gate_model_allowed(const gate *g, const http_request *http, const served_model *model)
{
    return !model_set_has(gate_hidden_models(g, http), model);
}

void gate_model_missed(gate *g, const http_request *http)
{
    if (gate_hidden_models(g, http))
        refusal_count(g, "model");
}

bool gate_salt(const gate *g, const http_request *http, uint8_t salt[16])
{
    const api_key *key = gate_key(http);
    if (!key || !g->router->settings->tenant_isolation)
        return false;
    memcpy(salt, key->salt, 16);
    return true;
}

static size_t prompt_tokens(const request *parsed)
{
    size_t tokens = 0;
    for (size_t i = 0; i < parsed->prompt_count; i++)
        tokens += parsed->prompts[i].tokens.count;
    return tokens;
}

// A model that a key may not use is none: the parser told so, unless the keys changed since.
bool gate_grant_model(gate *g, const http_request *http, const served_model *model,
                      gate_refusal *refusal)
{
    if (gate_model_allowed(g, http, model))
        return true;
    *refusal = (gate_refusal){ 404, "model", "model_not_found", 0, "" };
    snprintf(refusal->message, sizeof refusal->message,
             "there is no model of this name for key %s; see /v1/models", gate_key(http)->name);
    refusal_count(g, "model");
    return false;
}

bool gate_grant(gate *g, http_request *http, const request *parsed, gate_hold *hold,
                gate_refusal *refusal)
{
    const pass *p = http_request_owned(http);
    *hold = (gate_hold){ 0 };
    if (!p)
        return true;
    api_key *key = p->key;
    size_t tokens = prompt_tokens(parsed);
    if (!gate_grant_model(g, http, parsed->model, refusal))
        return false;
    admission_class class = (admission_class)parsed->priority;
    if (!key->classes[class]) {
        *refusal = (gate_refusal){ 403, "priority", "insufficient_permissions", 0, "" };
        snprintf(refusal->message, sizeof refusal->message, "key %s may not send %s requests",
                 key->name, admission_class_name(class));
        refusal_count(g, "class");
        return false;
    }
    uint64_t now = clock_now_us();
    uint64_t reserved;
    keys_verdict verdict = keys_reserve(key, tokens, now, &reserved);
    if (verdict != KEYS_ALLOWED) {
        limit_refuse(g, http, key, verdict, (double)tokens, refusal);
        return false;
    }
    *hold = (gate_hold){ key, reserved };
    keys_take(key);
    limits_tell(http, key, now);
    return true;
}

void gate_settle(gate *g, gate_hold *hold, uint64_t prompt_tokens, uint64_t completion_tokens)
{
    if (!hold->key)
        return;
    router_metrics *m = g->router->metrics;
    keys_settle(hold->key, hold->reserved, prompt_tokens + completion_tokens, clock_now_us());
    router_metrics_add(m, ROUTER_METRIC_KEY_TOKENS, hold->key->name, "prompt",
                       (double)prompt_tokens);
    router_metrics_add(m, ROUTER_METRIC_KEY_TOKENS, hold->key->name, "completion",
                       (double)completion_tokens);
    keys_release(hold->key);
    *hold = (gate_hold){ 0 };
}

// One line a request, of nothing that a client wrote but its id, its trace and its method.
static void access_log(const http_request *http, const char *route, int status_code)
{
    char client[HTTP_ADDRESS_TEXT];
    const api_key *key = gate_key(http);
    double ms = (double)(clock_now_us() - http_request_arrived_us(http)) / 1000;
    http_request_client(http, client);
    const log_field fields[] = {
        { .name = "method", .text = http_request_method(http) },
        { .name = "route", .text = slice_of(route) },
        { .name = "status", .number = status_code },
        { .name = "ms", .number = ms, .decimals = 1 },
        { .name = "bytes", .number = (double)http_request_answer_bytes(http) },
        { .name = "client", .text = slice_of(client) },
        { .name = "key", .text = slice_of(key ? key->name : "") },
        { .name = "id", .text = http_request_id(http) },
        { .name = "trace", .text = http_request_trace(http) },
    };
    // What programs ask every second would drown the rest.
    bool watching = (http_request_flags(http) & (ROUTE_OPEN | ROUTE_ADMIN)) &&
                    !slice_equal(http_request_method(http), SLICE("POST"));
    log_fields(watching && status_code < 400 ? LOG_DEBUG : LOG_INFO, "access", fields,
               sizeof fields / sizeof *fields);
}

static void on_answered(const http_request *http, const char *route, int status_code, void *context)
{
    router *r = context;
    pass *p = http_request_owned(http);
    char code[16];
    snprintf(code, sizeof code, "%d", status_code);
    router_metrics_add(r->metrics, ROUTER_METRIC_HTTP, route, code, 1);
    if (r->settings->access_log)
        access_log(http, route, status_code);
    if (!p)
        return;
    router_metrics_add(r->metrics, ROUTER_METRIC_KEY_REQUESTS, p->key->name, code, 1);
    if (p->entered)
        keys_leave(p->key);
    keys_release(p->key);
    free(p);
}

// ---- opening ----------------------------------------------------------------------------------

// Those of http.listen, where the operators' ones are elsewhere.
static bool routes_split(gate *g, size_t *count)
{
    g->routes = calloc(router_route_count, sizeof *g->routes);
    *count = 0;
    for (size_t i = 0; g->routes && i < router_route_count; i++)
        if (!(router_routes[i].flags & ROUTE_ADMIN))
            g->routes[(*count)++] = router_routes[i];
    return g->routes != NULL;
}

static status listeners_open(gate *g, error *failure)
{
    router *r = g->router;
    const router_settings *s = r->settings;
    http_hooks hooks = { on_head, on_answered, on_error };
    http_hooks operators = { on_operators_head, on_answered, on_error };
    size_t count = router_route_count;
    status result = STATUS_OK;
    if (s->admin_listen.count > 0 && !routes_split(g, &count))
        return error_set(failure, STATUS_NO_MEMORY, "", "no memory for the routes");
    TRY(http_server_open(r->loop, &s->http, g->routes ? g->routes : router_routes, count, &hooks, r,
                         &g->server, failure));
    if (s->admin_listen.count > 0) {
        g->admin_settings = s->http;
        g->admin_settings.listen = s->admin_listen;
        result = http_server_open(r->loop, &g->admin_settings, router_routes, router_route_count,
                                  &operators, r, &g->admin_server, failure);
        if (result != STATUS_OK)
            error_prefix(failure, "http.admin_listen");
        TRY(result);
    }
    for (size_t i = 0; http_server_address(g->server, i); i++)
        log_info("router", "listening %s %s", http_server_secure(g->server) ? "https" : "http",
                 http_server_address(g->server, i));
    for (size_t i = 0; g->admin_server && http_server_address(g->admin_server, i); i++)
        log_info("router", "listening for operators %s", http_server_address(g->admin_server, i));
fail:
    return result;
}

// A route that says nothing of who may use it would be a hole.
static void routes_check(void)
{
    for (size_t i = 0; i < router_route_count; i++) {
        uint32_t who = router_routes[i].flags & (ROUTE_OPEN | ROUTE_API | ROUTE_ADMIN);
        CHECK(who == ROUTE_OPEN || who == ROUTE_API || who == ROUTE_ADMIN);
    }
}

status gate_open(router *r, gate **opened, error *failure)
{
    status result = STATUS_OK;
    routes_check();
    gate *g = calloc(1, sizeof *g);
    if (!g)
        return error_set(failure, STATUS_NO_MEMORY, "", "no memory for the HTTP listeners");
    g->router = r;
    if (r->settings->keys_file[0]) {
        TRY(keys_open(r->settings->keys_file, &g->keys, failure));
        log_info("router", "asks for API keys, knows %zu", keys_count(g->keys));
    }
    *opened = g; // requests may come from here on
    TRY(listeners_open(g, failure));
    return STATUS_OK;
fail:
    *opened = NULL;
    gate_close(g);
    return result;
}

void gate_close(gate *g)
{
    if (!g)
        return;
    http_server_close(g->server);
    http_server_close(g->admin_server);
    keys_close(g->keys);
    free(g->routes);
    free(g);
}

void gate_reload(gate *g)
{
    error failure;
    if (g->keys && keys_read_again(g->keys, clock_now_us(), &failure) == STATUS_OK)
        log_info("router", "reload knows %zu API keys", keys_count(g->keys));
    else if (g->keys)
        log_error("router", "reload keeps the API keys that it has: %s", failure.text);
    if (http_server_reload(g->server, &failure) != STATUS_OK ||
        (g->admin_server && http_server_reload(g->admin_server, &failure) != STATUS_OK))
        log_error("router", "reload keeps the certificate that it has: %s", failure.text);
}

void gate_refuse_keep_alive(gate *g)
{
    http_server_refuse_keep_alive(g->server);
    if (g->admin_server)
        http_server_refuse_keep_alive(g->admin_server);
}

size_t gate_connections(const gate *g)
{
    return http_server_connections(g->server) +
           (g->admin_server ? http_server_connections(g->admin_server) : 0);
}
