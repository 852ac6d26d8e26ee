#include "router/admin.h"

#include "base/clock.h"
#include "router/gate.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

#define ORDERS_MAX 64
#define ANSWER_US 5000000 // for a worker's answer
#define LOOK_US 100000
#define KEY_MIN 16
#define KEY_MAX 256

// An order that a worker has not answered; http NULL: free.
typedef struct order {
    http_request *http;
    uint64_t id, serial, until_us;
    char worker[64];
    const char *action;
} order;

struct admin {
    router *router;
    http_timer *timer;
    uint64_t next_id;
    order orders[ORDERS_MAX];
    char key[KEY_MAX + 1]; // empty: none
};

static const struct {
    const char *name;
    Penstock__OrderKind kind;
} actions[] = {
    { "drain", PENSTOCK__ORDER_KIND__ORDER_DRAIN },
    { "cordon", PENSTOCK__ORDER_KIND__ORDER_CORDON },
    { "uncordon", PENSTOCK__ORDER_KIND__ORDER_UNCORDON },
    { "flip", PENSTOCK__ORDER_KIND__ORDER_FLIP },
};

// ---- answers ----------------------------------------------------------------------------------

static void answer_accepted(http_request *http, const char *worker, const char *action)
{
    buffer out = { 0 };
    buffer_append_text(&out, "{\"worker\":");
    buffer_append_json(&out, slice_of(worker));
    buffer_printf(&out, ",\"action\":\"%s\",\"accepted\":true}", action);
    http_respond(http, 200, "application/json", buffer_slice(&out));
    buffer_close(&out);
}

static void answer_refused(http_request *http, int code, const char *param, const char *name,
                           const char *worker, const char *why)
{
    char message[512];
    snprintf(message, sizeof message, "worker %s: %s", worker, why);
    http_respond_error(http, code, NULL, param, name, worker[0] ? message : why);
}

static void on_client_gone(void *context)
{
    order *o = context;
    o->http = NULL; // the order stands
}

static http_request *order_take(order *o)
{
    http_request *http = o->http;
    o->http = NULL;
    return http;
}

void admin_on_answer(admin *a, const registry_worker *w, const Penstock__OrderAnswer *m)
{
    for (size_t i = 0; i < ORDERS_MAX; i++) {
        order *o = &a->orders[i];
        if (!o->http || o->id != m->id || o->serial != w->serial)
            continue;
        log_info("admin", "order answered worker %s action %s accepted %d reason \"%s\"", o->worker,
                 o->action, m->accepted, m->reason);
        if (m->accepted)
            answer_accepted(order_take(o), o->worker, o->action);
        else
            answer_refused(order_take(o), 409, NULL, "refused_by_worker", o->worker, m->reason);
        return;
    }
}

void admin_on_lost(admin *a, const registry_worker *w)
{
    for (size_t i = 0; i < ORDERS_MAX; i++) {
        order *o = &a->orders[i];
        if (o->http && o->serial == w->serial)
            answer_refused(order_take(o), 502, NULL, "worker_lost", o->worker,
                           "it was lost before it answered the order");
    }
}

static void on_look(void *context)
{
    admin *a = context;
    uint64_t now = clock_now_us();
    for (size_t i = 0; i < ORDERS_MAX; i++) {
        order *o = &a->orders[i];
        if (o->http && now >= o->until_us)
            answer_refused(order_take(o), 504, NULL, "no_answer", o->worker,
                           "it did not answer the order in time; it may follow it all the same");
    }
    http_timer_start(a->timer, LOOK_US);
}

// ---- orders -----------------------------------------------------------------------------------

// By name or incarnation; NULL and an answer where there is none, or more than one.
static registry_worker *worker_find(router *r, http_request *http, const char *name)
{
    registry_worker *found = NULL;
    for (size_t i = 0; i < registry_count(r->registry); i++) {
        registry_worker *w = registry_at(r->registry, i);
        char incarnation[17];
        snprintf(incarnation, sizeof incarnation, "%016llx", (unsigned long long)w->incarnation);
        if (strcmp(name, w->name) != 0 && strcmp(name, incarnation) != 0)
            continue;
        if (found) {
            answer_refused(http, 409, "worker", "ambiguous_worker", name,
                           "several workers have this name; give the incarnation of one instead");
            return NULL;
        }
        found = w;
    }
    if (!found)
        answer_refused(http, 404, "worker", "worker_not_found", name,
                       "there is no worker of this name or incarnation");
    return found;
}

static status order_send(router *r, registry_worker *w, uint64_t id, Penstock__OrderKind kind,
                         Penstock__Role role)
{
    Penstock__DrainOrder drain = PENSTOCK__DRAIN_ORDER__INIT;
    Penstock__Order sent = PENSTOCK__ORDER__INIT;
    Penstock__ToWorker m = PENSTOCK__TO_WORKER__INIT;
    sent.id = id;
    sent.kind = kind;
    sent.role = role;
    m.body_case = PENSTOCK__TO_WORKER__BODY_ORDER;
    m.order = &sent;
    if (w->protocol == 1) {
        m.body_case = PENSTOCK__TO_WORKER__BODY_DRAIN;
        m.drain = &drain;
    }
    return registry_send(r->registry, w, &m, false);
}

static void order_give(admin *a, http_request *http, registry_worker *w, size_t action,
                       Penstock__Role role)
{
    Penstock__OrderKind kind = actions[action].kind;
    order *o = a->orders;
    while (o < a->orders + ORDERS_MAX && o->http)
        o++;
    if (o == a->orders + ORDERS_MAX) {
        answer_refused(http, 503, NULL, "too_many_orders", w->name,
                       "too many orders wait for an answer");
        return;
    }
    if (w->protocol == 1 && kind != PENSTOCK__ORDER_KIND__ORDER_DRAIN) {
        answer_refused(http, 409, "action", "unsupported_by_worker", w->name,
                       "it speaks protocol 1, which has no order but drain; upgrade it");
        return;
    }
    status result = order_send(a->router, w, ++a->next_id, kind, role);
    log_info("admin", "order worker %s action %s", w->name, actions[action].name);
    if (result != STATUS_OK) {
        answer_refused(http, 502, NULL, "worker_lost", w->name, "it takes no messages");
    } else if (w->protocol == 1) {
        answer_accepted(http, w->name, actions[action].name);
    } else {
        *o = (order){ .http = http,
                      .id = a->next_id,
                      .serial = w->serial,
                      .until_us = clock_now_us() + ANSWER_US,
                      .action = actions[action].name };
        memcpy(o->worker, w->name, sizeof o->worker);
        http_request_on_close(http, on_client_gone, o);
    }
}

// ---- requests ---------------------------------------------------------------------------------

static bool key_shown(const admin *a, const http_request *http)
{
    if (gate_keys_on(a->router->gate))
        return gate_key(http) && gate_key(http)->admin;
    slice shown = http_secret_bearer(http_request_field(http, "Authorization"));
    return shown.data && http_secret_equal(shown, slice_of(a->key));
}

// A browser on this machine may be led here by any page that it shows (its name for us need not be
// ours), so what comes from a page is not "local". Nor is what a proxy passes on: a field may be
// there and be empty, where a client sent it so and the proxy added its own behind that.
static bool is_local(const http_request *http)
{
    return http_request_is_local(http) && !http_request_field(http, "X-Forwarded-For").data &&
           !http_request_field(http, "Forwarded").data && !http_request_field(http, "Origin").data;
}

static bool access_allowed(const admin *a, const http_request *http)
{
    const char *access = a->router->settings->admin_access;
    return strcmp(access, "key") == 0     ? key_shown(a, http)
           : strcmp(access, "local") == 0 ? is_local(http)
                                          : false;
}

static const char *text_of(json_t *body, const char *name)
{
    const char *text = json_string_value(json_object_get(body, name));
    return text ? text : "";
}

static void body_follow(admin *a, http_request *http, json_t *body)
{
    const char *action = text_of(body, "action"), *role = text_of(body, "role");
    size_t index = 0;
    while (index < sizeof actions / sizeof *actions && strcmp(actions[index].name, action) != 0)
        index++;
    if (index == sizeof actions / sizeof *actions) {
        answer_refused(http, 400, "action", NULL, "",
                       "action is not known; right is drain, cordon, uncordon or flip");
        return;
    }
    bool flip = actions[index].kind == PENSTOCK__ORDER_KIND__ORDER_FLIP;
    bool known = strcmp(role, "prefill") == 0 || strcmp(role, "decode") == 0;
    if (flip ? !known : role[0] != 0) {
        answer_refused(http, 400, "role", NULL, "",
                       flip ? "a flip needs a role: prefill or decode" : "only a flip has a role");
        return;
    }
    registry_worker *w = worker_find(a->router, http, text_of(body, "worker"));
    if (w)
        order_give(a, http, w, index,
                   !flip                         ? PENSTOCK__ROLE__ROLE_UNKNOWN
                   : strcmp(role, "decode") == 0 ? PENSTOCK__ROLE__ROLE_DECODE
                                                 : PENSTOCK__ROLE__ROLE_PREFILL);
}

void admin_handle(http_request *http, void *context)
{
    admin *a = ((router *)context)->admin;
    slice text = http_request_body(http);
    if (!access_allowed(a, http)) {
        answer_refused(http, 403, NULL, "admin_access", "",
                       "orders are not taken from this client (admin.access)");
        return;
    }
    json_t *body = json_loadb(text.data, text.size, JSON_REJECT_DUPLICATES, NULL);
    if (json_is_object(body))
        body_follow(a, http, body);
    else
        answer_refused(http, 400, NULL, NULL, "",
                       "the body must be an object with worker, action and, for a flip, role");
    json_decref(body);
}

// ---- opening ----------------------------------------------------------------------------------

// The file's first line.
static status key_read(admin *a, const char *path, error *failure)
{
    FILE *file = path[0] ? fopen(path, "r") : NULL;
    if (!file)
        return error_set(failure, STATUS_BAD_CONFIG, "admin.key_file",
                         "admin.key_file is \"%.200s\", which cannot be read; admin.access key "
                         "needs it",
                         path);
    char *line = fgets(a->key, sizeof a->key, file);
    fclose(file);
    a->key[strcspn(a->key, "\r\n")] = 0;
    if (!line || strlen(a->key) < KEY_MIN)
        return error_set(failure, STATUS_BAD_CONFIG, "admin.key_file",
                         "the key in %.200s has fewer than %d characters", path, KEY_MIN);
    return STATUS_OK;
}

status admin_open(router *r, admin **opened, error *failure)
{
    status result = STATUS_OK;
    admin *a = calloc(1, sizeof *a);
    if (!a || http_timer_open(r->loop, on_look, a, &a->timer) != STATUS_OK) {
        result = error_set(failure, STATUS_NO_MEMORY, "", "no memory for the operators' orders");
        goto fail;
    }
    a->router = r;
    if (strcmp(r->settings->admin_access, "key") == 0 && !r->settings->keys_file[0])
        TRY(key_read(a, r->settings->admin_key_file, failure));
    http_timer_start(a->timer, LOOK_US);
    *opened = a;
    return STATUS_OK;
fail:
    admin_close(a);
    return result;
}

void admin_close(admin *a)
{
    if (!a)
        return;
    http_timer_close(a->timer);
    free(a);
}
