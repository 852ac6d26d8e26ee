// The join thread: finds routers, registers with each over a pair of its own, and again whenever
// one was lost.
#include "worker/worker_private.h"

#include "base/activity.h"
#include "base/clock.h"
#include "base/log.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TICK_US 100000
#define ASK_TIMEOUT_US 2000000
#define DELAY_FIRST_US 100000
#define DELAY_LAST_US 5000000
#define LOG_GAP_US 30000000

// ---- who is there ------------------------------------------------------------------------------

static bool target_known(const worker *w, const char *url)
{
    for (int i = 0; i < w->target_count; i++)
        if (strcmp(w->targets[i].url, url) == 0)
            return true;
    return false;
}

// Names are looked up again now and then. One that cannot be looked up keeps the addresses it had.
static void targets_update(worker *w)
{
    const config_strings *urls = &w->settings->routers;
    char found[WORKER_ROUTERS_MAX][WORKER_URL_MAX];
    int count = 0;
    bool failed = false;
    for (size_t i = 0; i < urls->count && count < WORKER_ROUTERS_MAX; i++) {
        error failure;
        int more =
            worker_resolve(urls->items[i], found + count, WORKER_ROUTERS_MAX - count, &failure);
        if (more < 0) {
            log_warn("worker", "routers not found reason %s", failure.text);
            failed = true;
        } else
            count += more;
    }
    join_target kept[WORKER_ROUTERS_MAX];
    int kept_count = 0;
    for (int i = 0; i < w->target_count; i++) {
        bool still = failed;
        for (int j = 0; j < count; j++)
            still = still || strcmp(found[j], w->targets[i].url) == 0;
        if (still)
            kept[kept_count++] = w->targets[i];
    }
    memcpy(w->targets, kept, (size_t)kept_count * sizeof(kept[0]));
    w->target_count = kept_count;
    for (int j = 0; j < count && w->target_count < WORKER_ROUTERS_MAX; j++) {
        if (target_known(w, found[j]))
            continue;
        join_target *t = &w->targets[w->target_count++];
        *t = (join_target){ .delay_us = DELAY_FIRST_US };
        memcpy(t->url, found[j], sizeof(t->url));
    }
}

// ---- asking ------------------------------------------------------------------------------------

static ProtobufCBinaryData hash_bytes(const hash128 *h)
{
    return (ProtobufCBinaryData){ sizeof(*h), (uint8_t *)h };
}

static void register_fill(const worker *w, const char *pair_url, uint32_t part,
                          Penstock__Register *r, Penstock__ModelIdentity *model)
{
    const worker_identity *id = w->identity;
    penstock__model_identity__init(model);
    model->name = (char *)id->model_name;
    model->architecture = (char *)id->architecture;
    model->weights = hash_bytes(&id->weights);
    model->numeric_id = hash_bytes(&id->numeric_id);
    model->kv_layout = (char *)id->kv_layout;
    model->page_tokens = id->page_tokens;
    model->page_bytes = id->page_bytes;
    model->context = id->context;
    model->vocabulary = id->vocabulary;
    penstock__register__init(r);
    r->worker = (char *)w->name;
    r->incarnation = id->incarnation;
    r->role = id->role;
    r->model = model;
    r->pair_url = (char *)pair_url;
    r->fabric_host = (char *)id->fabric_host;
    r->fabric_port = id->fabric_port;
    r->pages = id->pages;
    r->page_credits = credits_of(id->pages, part);
    r->sequences = (uint32_t)credits_of(id->sequences, part);
    r->token_credits = credits_of(id->tokens, part);
    r->fabric_tokens = true;
    r->threads = id->threads;
    r->version = PENSTOCK_VERSION;
}

static status ask_in(uint32_t protocol, const char *url, message_control_request *request,
                     message_control_reply **reply, error *failure)
{
    buffer question = { 0 }, answer = { 0 };
    request->protocol = protocol;
    message_pack(&request->base, &question);
    status result = mailbox_request(url, buffer_slice(&question), ASK_TIMEOUT_US, &answer, failure);
    if (result == STATUS_OK)
        result = message_unpack_control_reply(buffer_slice(&answer), reply, failure);
    buffer_close(&question);
    buffer_close(&answer);
    return result;
}

// In our protocol, or in that of a router of the version before.
static status ask(const char *url, message_control_request *request, message_control_reply **reply,
                  error *failure)
{
    status result = ask_in(MESSAGE_PROTOCOL, url, request, reply, failure);
    if (result != STATUS_OK || (*reply)->accepted)
        return result;
    uint32_t theirs = (*reply)->protocol ? (*reply)->protocol : 1;
    if (theirs < MESSAGE_PROTOCOL_OLDEST || theirs >= MESSAGE_PROTOCOL)
        return result;
    message_free(*reply);
    *reply = NULL;
    return ask_in(theirs, url, request, reply, failure);
}

static status ask_register(worker *w, const char *url, const char *pair_url, uint32_t part,
                           message_control_reply **reply, error *failure)
{
    Penstock__Register r;
    Penstock__ModelIdentity model;
    register_fill(w, pair_url, part, &r, &model);
    message_control_request request = PENSTOCK__CONTROL_REQUEST__INIT;
    request.body_case = PENSTOCK__CONTROL_REQUEST__BODY_REGISTER;
    request.register_ = &r;
    status result = ask(url, &request, reply, failure);
    if (result == STATUS_OK && !(*reply)->accepted) {
        result = error_set(failure, STATUS_PEER_REFUSED, "", "%s", (*reply)->reason);
        message_free(*reply);
        *reply = NULL;
    }
    return result;
}

void worker_leave_router(worker *w, const char *url)
{
    Penstock__Deregister deregister = PENSTOCK__DEREGISTER__INIT;
    deregister.incarnation = w->identity->incarnation;
    message_control_request request = PENSTOCK__CONTROL_REQUEST__INIT;
    request.body_case = PENSTOCK__CONTROL_REQUEST__BODY_DEREGISTER;
    request.deregister = &deregister;
    message_control_reply *reply = NULL;
    error failure;
    if (ask(url, &request, &reply, &failure) != STATUS_OK)
        log_info("worker", "left without an answer router %s reason %s", url, failure.text);
    message_free(reply);
}

// ---- joining -----------------------------------------------------------------------------------

static status pair_open(worker *w, worker_router *r, error *failure)
{
    char host[64], url[WORKER_URL_MAX];
    if (w->settings->host[0] != 0)
        snprintf(host, sizeof(host), "%s", w->settings->host);
    else {
        status result = worker_route(r->url, host, failure);
        if (result != STATUS_OK)
            return result;
    }
    snprintf(url, sizeof(url), strchr(host, ':') ? "%s[%s]:0" : "%s%s:0", mailbox_scheme(), host);
    return mailbox_pair_listen(url, &mailbox_limits_default, w->inbox, r, &r->pair, failure);
}

// A router in the list, in state JOINING and pinned.
static status router_make(worker *w, const char *url, uint32_t part, worker_router **made,
                          error *failure)
{
    worker_router *r = calloc(1, sizeof(*r));
    if (r == NULL)
        return error_set(failure, STATUS_NO_MEMORY, "", "memory is short");
    r->worker = w;
    r->pins = 1;
    r->registered = r->part.told = part;
    r->heartbeat_ms = 500;
    r->dead_after_ms = 3000;
    snprintf(r->url, sizeof(r->url), "%s", url);
    // Its events can come at once, so it must be whole and in the list before the pair is known to
    // anybody; the pair listens at a port that nobody was told yet.
    status result = pair_open(w, r, failure);
    if (result != STATUS_OK) {
        free(r);
        return result;
    }
    pthread_mutex_lock(&w->lock);
    r->next = w->routers;
    w->routers = r;
    pthread_mutex_unlock(&w->lock);
    *made = r;
    return STATUS_OK;
}

static double percent(uint32_t part)
{
    return 100.0 * part / CREDITS_WHOLE;
}

static status router_join(worker *w, const char *url, uint32_t part, uint64_t *id, error *failure)
{
    worker_router *r = NULL;
    message_control_reply *reply = NULL;
    status result = router_make(w, url, part, &r, failure);
    if (result != STATUS_OK)
        return result;
    result = ask_register(w, url, mailbox_pair_url(r->pair), part, &reply, failure);
    pthread_mutex_lock(&w->lock);
    if (result != STATUS_OK) {
        r->state = ROUTER_GONE;
        r->gone_reason = "it did not accept us";
    } else if (r->state == ROUTER_JOINING) {
        r->state = ROUTER_JOINED;
        r->id = reply->router;
        r->protocol = reply->protocol ? reply->protocol : 1;
        r->heartbeat_ms = reply->heartbeat_ms;
        r->dead_after_ms = reply->dead_after_ms;
        r->heard_us = clock_now_us();
    }
    r->pins--;
    pthread_mutex_unlock(&w->lock);
    if (result == STATUS_OK) {
        *id = reply->router;
        log_info("worker", "joined router %s credits %.0f %%", url, percent(part));
    }
    message_free(reply);
    return result;
}

// The part of a router that does not read it from heartbeats changed.
static void router_register_again(worker *w, worker_router *r, uint32_t part)
{
    message_control_reply *reply = NULL;
    error failure;
    status result = ask_register(w, r->url, mailbox_pair_url(r->pair), part, &reply, &failure);
    if (result == STATUS_OK)
        log_info("worker", "credits changed router %s credits %.0f %%", r->url, percent(part));
    message_free(reply);
}

// The live router of this address, or of another address that leads to the same one (joining it
// there, too, would take the pair away here); NULL where there is none. Under the lock.
static worker_router *router_find(worker *w, const join_target *t)
{
    for (worker_router *r = w->routers; r != NULL; r = r->next) {
        bool same = strcmp(r->url, t->url) == 0 || (t->router_id != 0 && r->id == t->router_id);
        if (r->state != ROUTER_GONE && same)
            return r;
    }
    return NULL;
}

// Routers that have joined: what the credits are divided by. Addresses that nobody answers at do
// not count. Under the lock.
static uint32_t routers_joined(const worker *w)
{
    uint32_t count = 0;
    for (const worker_router *r = w->routers; r != NULL; r = r->next)
        count += r->state == ROUTER_JOINED;
    return count;
}

static void target_try(worker *w, join_target *t, uint32_t part)
{
    error failure;
    uint64_t now_us = clock_now_us();
    if (router_join(w, t->url, part, &t->router_id, &failure) == STATUS_OK) {
        t->delay_us = DELAY_FIRST_US;
        t->logged_us = 0;
        return;
    }
    if (t->logged_us == 0 || now_us - t->logged_us > LOG_GAP_US) {
        log_warn("worker", "not joined router %s reason %s", t->url, failure.text);
        t->logged_us = now_us;
    }
    t->next_try_us = clock_now_us() + t->delay_us;
    t->delay_us = t->delay_us * 2 < DELAY_LAST_US ? t->delay_us * 2 : DELAY_LAST_US;
}

// One round over all targets; asks at most one question at a time, without the lock.
static void targets_visit(worker *w)
{
    for (int i = 0; i < w->target_count; i++) {
        join_target *t = &w->targets[i];
        pthread_mutex_lock(&w->lock);
        worker_router *r = router_find(w, t);
        uint32_t part = CREDITS_WHOLE / (routers_joined(w) + (r == NULL));
        bool stop = w->ending || w->draining;
        bool again = r != NULL && r->state == ROUTER_JOINED && r->protocol == 1 &&
                     r->registered != part && !stop;
        if (again) {
            r->pins++;
            r->registered = r->part.told = part;
        }
        pthread_mutex_unlock(&w->lock);
        if (stop)
            return;
        if (r == NULL && clock_now_us() >= t->next_try_us)
            target_try(w, t, part);
        if (!again)
            continue;
        router_register_again(w, r, part);
        pthread_mutex_lock(&w->lock);
        r->pins--;
        pthread_mutex_unlock(&w->lock);
    }
}

void *worker_join_main(void *argument)
{
    worker *w = argument;
    activity_begin("join");
    pthread_mutex_lock(&w->lock);
    while (!w->ending) {
        pthread_mutex_unlock(&w->lock);
        uint64_t now_us = clock_now_us();
        if (w->resolved_us == 0 || now_us - w->resolved_us > (uint64_t)w->settings->resolve_us) {
            activity_now("looking up routers");
            targets_update(w);
            w->resolved_us = now_us;
        }
        activity_now("visiting routers");
        targets_visit(w);
        activity_now("resting");
        pthread_mutex_lock(&w->lock);
        if (!w->ending)
            worker_sleep(w, TICK_US);
    }
    pthread_mutex_unlock(&w->lock);
    activity_end();
    return NULL;
}
