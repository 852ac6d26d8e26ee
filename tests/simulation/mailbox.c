// Stand-in for net/mailbox.h: pairs and servers of the world.
//
// As nng does it: order is kept per socket, urgent messages may pass ordinary ones, what was under
// way when a socket closes may be lost from some point on, and the peer hears MAILBOX_DOWN after
// what was not lost.
#include "network.h"
#include "trace.h"

#include "base/clock.h"
#include "net/mailbox.h"

#include <stdio.h>
#include <stdlib.h>

network_faults network;

const mailbox_limits mailbox_limits_default = {
    .message_max = (size_t)4 << 20,
    .outgoing_max = 4096,
};

typedef enum pair_state { PAIR_WAITING, PAIR_CONNECTED, PAIR_LOST } pair_state;

typedef struct parcel {
    struct parcel *next;
    mailbox_pair *to;
    uint64_t number; // in its direction
    char *data;
    size_t size;
    bool urgent;
} parcel;

struct mailbox_pair {
    mailbox_pair *next; // of all
    process *process;
    queue *events;
    void *owner;
    mailbox_limits limits;
    char url[192];
    bool listens, closed;
    pair_state state;
    mailbox_pair *peer;
    uint64_t sent, arrived; // of this side's messages
    uint64_t arrived_limit; // of the peer's: later ones are lost
    uint64_t last_us, last_urgent_us;
    parcel *pending, **pending_end; // before the connection
    uint64_t dial_pause_us;
    uint64_t full_until_us;
};

struct mailbox_server {
    mailbox_server *next;
    process *process;
    queue *events;
    void *owner;
    char url[192];
    bool closed;
};

static mailbox_pair *pairs;
static mailbox_server *servers;
static int port_next = 20000;

uint64_t network_latency_us(void)
{
    if (network.slow > 0 && world_chance(network.slow))
        return world_between(1000, 200000);
    return world_between(20, 300);
}

uint64_t network_arrival_us(int from, int to, uint64_t *last_us)
{
    uint64_t due_us = world_passes_us(from, to) + network_latency_us();
    if (due_us < *last_us)
        due_us = *last_us;
    return *last_us = due_us;
}

// ---- events -----------------------------------------------------------------------------------

static void event_queue(queue *events, mailbox_event_kind kind, void *owner, const void *data,
                        size_t size, void *context)
{
    mailbox_event *e = calloc(1, sizeof *e);
    CHECK(e);
    e->kind = kind;
    e->owner = owner;
    e->arrived_us = clock_now_us();
    e->context = context;
    if (size > 0) {
        e->message = malloc(size);
        CHECK(e->message);
        memcpy(e->message, data, size);
        e->data = (slice){ e->message, size };
    }
    CHECK(queue_push(events, e) == STATUS_OK);
}

static void request_forget(void *context);

void mailbox_event_free(mailbox_event *e)
{
    if (!e)
        return;
    if (e->context)
        request_forget(e->context);
    free(e->message);
    free(e);
}

// ---- pairs ------------------------------------------------------------------------------------

static void pair_lost(mailbox_pair *p)
{
    p->state = PAIR_LOST;
    p->peer = NULL;
    event_queue(p->events, MAILBOX_DOWN, p->owner, NULL, 0, NULL);
}

static void parcel_arrive(void *argument)
{
    parcel *m = argument;
    mailbox_pair *p = m->to;
    bool wanted = !p->closed && p->state == PAIR_CONNECTED && m->number < p->arrived_limit;
    if (wanted) {
        uint64_t passes_us = world_passes_us(
            p->process->machine, p->peer ? p->peer->process->machine : p->process->machine);
        if (passes_us > world_now_us()) { // the link was cut meanwhile
            if (p->peer && p->peer->last_us < passes_us)
                p->peer->last_us = passes_us;
            world_after(p->process, passes_us - world_now_us(), parcel_arrive, m);
            return;
        }
        if (p->peer) {
            p->peer->arrived++;
            trace_pair(p->peer->process, p->listens, (slice){ m->data, m->size });
        }
        event_queue(p->events, MAILBOX_MESSAGE, p->owner, m->data, m->size, NULL);
    } else if (!p->closed) {
        world_counts[WORLD_LOST]++;
    }
    free(m->data);
    free(m);
}

static void parcel_send(mailbox_pair *p, parcel *m)
{
    int from = p->process->machine, to = p->peer->process->machine;
    uint64_t due_us;
    world_counts[WORLD_MESSAGES]++;
    if (m->urgent && network.overtake > 0 && p->sent > p->arrived &&
        world_chance(network.overtake)) {
        due_us = network_arrival_us(from, to, &p->last_urgent_us);
        world_counts[WORLD_OVERTAKEN] += due_us < p->last_us;
    } else {
        if (p->last_us < p->last_urgent_us)
            p->last_us = p->last_urgent_us;
        due_us = network_arrival_us(from, to, &p->last_us);
        if (m->urgent)
            p->last_urgent_us = due_us;
    }
    m->to = p->peer;
    m->number = p->sent++;
    world_after(p->peer->process, due_us - world_now_us(), parcel_arrive, m);
}

static parcel *parcel_new(slice data, bool urgent)
{
    parcel *m = calloc(1, sizeof *m);
    CHECK(m);
    m->data = malloc(data.size + 1);
    CHECK(m->data);
    memcpy(m->data, data.data, data.size);
    m->size = data.size;
    m->urgent = urgent;
    return m;
}

typedef struct loss {
    mailbox_pair *pair;
} loss;

static void loss_arrive(void *argument)
{
    mailbox_pair *p = argument;
    if (!p->closed && p->state == PAIR_CONNECTED)
        pair_lost(p);
}

// One side is gone: the other hears of it, and loses a tail of what was under way.
static void pair_part(mailbox_pair *p, uint64_t longest_us)
{
    mailbox_pair *peer = p->peer;
    p->peer = NULL;
    if (!peer)
        return;
    peer->peer = NULL;
    if (p->sent > p->arrived && world_chance(0.5))
        peer->arrived_limit = world_between(p->arrived, p->sent);
    uint64_t due_us = world_passes_us(p->process->machine, peer->process->machine) +
                      world_between(20, longest_us);
    if (due_us < p->last_us + 1)
        due_us = p->last_us + 1;
    world_after(peer->process, due_us - world_now_us(), loss_arrive, peer);
}

// Only of routers, which dial: a worker leaves a router whose pair takes no more.
static bool pair_is_full(mailbox_pair *p)
{
    if (!p->listens && network.full > 0 && world_chance(network.full)) {
        p->full_until_us = world_now_us() + world_between(1000, 200000);
        world_trace("connection to %s is full", p->peer ? p->peer->process->name : p->url);
    }
    bool full = world_now_us() < p->full_until_us;
    world_counts[WORLD_FULL] += full;
    return full;
}

status mailbox_pair_send(mailbox_pair *p, slice data, bool urgent)
{
    if (p->closed || p->state == PAIR_LOST)
        return STATUS_PEER_CLOSED;
    if (p->sent - p->arrived >= p->limits.outgoing_max || pair_is_full(p))
        return STATUS_FULL;
    if (p->state == PAIR_WAITING) {
        *p->pending_end = parcel_new(data, urgent);
        p->pending_end = &(*p->pending_end)->next;
        return STATUS_OK;
    }
    if (!p->peer)
        return STATUS_OK; // it left already; the news of it is under way
    parcel_send(p, parcel_new(data, urgent));
    if (network.repeat > 0 && world_chance(network.repeat)) {
        world_counts[WORLD_REPEATS]++;
        parcel_send(p, parcel_new(data, urgent));
    }
    if (network.break_pair > 0 && world_chance(network.break_pair)) {
        mailbox_pair *peer = p->peer;
        world_counts[WORLD_BROKEN_PAIRS]++;
        world_trace("connection to %s breaks", peer->process->name);
        pair_part(p, 10000);
        world_after(p->process, world_between(20, 10000), loss_arrive, p);
        p->arrived_limit = world_between(peer->arrived, peer->sent);
    }
    return STATUS_OK;
}

size_t mailbox_pair_waiting(mailbox_pair *p)
{
    return p->state == PAIR_CONNECTED && p->peer ? p->sent - p->arrived : 0;
}

void mailbox_pair_close(mailbox_pair *p)
{
    if (!p || p->closed)
        return;
    p->closed = true;
    pair_part(p, 2000);
}

const char *mailbox_pair_url(const mailbox_pair *p)
{
    return p->url;
}

static mailbox_pair *pair_new(const char *url, const mailbox_limits *limits, queue *events,
                              void *owner)
{
    mailbox_pair *p = calloc(1, sizeof *p);
    CHECK(p);
    p->process = world_current();
    p->events = events;
    p->owner = owner;
    p->limits = *limits;
    p->pending_end = &p->pending;
    p->arrived_limit = UINT64_MAX;
    snprintf(p->url, sizeof p->url, "%s", url);
    p->next = pairs;
    pairs = p;
    return p;
}

static void url_complete(char url[192])
{
    size_t length = strlen(url);
    if (length > 2 && strcmp(url + length - 2, ":0") == 0)
        snprintf(url + length - 1, 192 - length, "%d", port_next++);
}

status mailbox_pair_listen(const char *url, const mailbox_limits *limits, queue *events,
                           void *owner, mailbox_pair **opened, error *failure)
{
    (void)failure;
    mailbox_pair *p = pair_new(url, limits, events, owner);
    url_complete(p->url);
    p->listens = true;
    *opened = p;
    return STATUS_OK;
}

static void up_arrive(void *argument)
{
    mailbox_pair *p = argument;
    if (p->closed || p->state != PAIR_WAITING)
        return;
    p->state = PAIR_CONNECTED;
    event_queue(p->events, MAILBOX_UP, p->owner, NULL, 0, NULL);
    parcel *next;
    for (parcel *m = p->pending; m; m = next) {
        next = m->next;
        if (p->peer)
            parcel_send(p, m);
    }
    p->pending = NULL;
    p->pending_end = &p->pending;
}

static void dial_try(void *argument);

static void dial_arrive(void *argument)
{
    mailbox_pair *p = argument, *peer = pairs;
    if (p->closed)
        return;
    while (peer && (!peer->listens || peer->closed || !peer->process->alive || peer->peer ||
                    peer->state != PAIR_WAITING || strcmp(peer->url, p->url) != 0))
        peer = peer->next;
    if (!peer) {
        p->dial_pause_us = p->dial_pause_us ? 2 * p->dial_pause_us : 100000;
        if (p->dial_pause_us > 2000000)
            p->dial_pause_us = 2000000;
        world_after(p->process, p->dial_pause_us, dial_try, p);
        return;
    }
    p->peer = peer;
    peer->peer = p;
    uint64_t latency_us = network_latency_us();
    peer->last_us = peer->last_urgent_us = p->last_us = p->last_urgent_us =
        world_now_us() + latency_us;
    world_after(peer->process, latency_us, up_arrive, peer);
    up_arrive(p);
}

static void dial_try(void *argument)
{
    mailbox_pair *p = argument;
    int machine = -1;
    if (p->closed)
        return;
    for (mailbox_pair *peer = pairs; peer && machine < 0; peer = peer->next)
        if (peer->listens && strcmp(peer->url, p->url) == 0)
            machine = peer->process->machine;
    uint64_t last_us = 0;
    uint64_t due_us = network_arrival_us(p->process->machine,
                                         machine < 0 ? p->process->machine : machine, &last_us);
    world_after(p->process, due_us - world_now_us(), dial_arrive, p);
}

status mailbox_pair_dial(const char *url, const mailbox_limits *limits, queue *events, void *owner,
                         mailbox_pair **opened, error *failure)
{
    (void)failure;
    mailbox_pair *p = pair_new(url, limits, events, owner);
    dial_try(p);
    *opened = p;
    return STATUS_OK;
}

void mailbox_process_died(process *p)
{
    for (mailbox_pair *pair = pairs; pair; pair = pair->next)
        if (pair->process == p && !pair->closed) {
            pair->closed = true;
            pair_part(pair, 10000);
        }
}

// ---- requests ---------------------------------------------------------------------------------

typedef struct request {
    process *asker;
    fiber *fiber;
    char url[192];
    mailbox_server *server;
    buffer question, answer;
    bool answered, given_up;
    uint64_t last_us;
} request;

status mailbox_server_open(const char *url, int contexts, const mailbox_limits *limits,
                           queue *events, void *owner, mailbox_server **opened, error *failure)
{
    (void)contexts;
    (void)limits;
    (void)failure;
    mailbox_server *s = calloc(1, sizeof *s);
    CHECK(s);
    s->process = world_current();
    s->events = events;
    s->owner = owner;
    snprintf(s->url, sizeof s->url, "%s", url);
    url_complete(s->url);
    s->next = servers;
    servers = s;
    world_give(&servers);
    *opened = s;
    return STATUS_OK;
}

const char *mailbox_server_url(const mailbox_server *s)
{
    return s->url;
}

void mailbox_server_close(mailbox_server *s)
{
    if (s)
        s->closed = true;
}

static void request_arrive(void *argument)
{
    request *r = argument;
    if (!r->server->closed)
        event_queue(r->server->events, MAILBOX_REQUEST, r->server->owner, r->question.data,
                    r->question.size, r);
}

static void answer_arrive(void *argument)
{
    request *r = argument;
    r->answered = true;
    world_give(r);
    if (!r->given_up)
        world_wake(r->fiber);
}

static void request_forget(void *context)
{
    (void)context; // answered by nothing: the asker's time runs out
}

void mailbox_reply(mailbox_event *e, slice data)
{
    request *r = e->context;
    e->context = NULL;
    buffer_append_slice(&r->answer, data);
    uint64_t due_us = network_arrival_us(world_current()->machine, r->asker->machine, &r->last_us);
    world_after(r->asker, due_us - world_now_us(), answer_arrive, r);
    mailbox_event_free(e);
}

status mailbox_request(const char *url, slice data, int64_t timeout_us, buffer *reply,
                       error *failure)
{
    request *r = calloc(1, sizeof *r);
    CHECK(r);
    uint64_t end_us = world_now_us() + (uint64_t)timeout_us;
    r->asker = world_current();
    r->fiber = world_running();
    buffer_append_slice(&r->question, data);
    world_take(&servers);
    for (mailbox_server *s = servers; s && !r->server; s = s->next)
        if (!s->closed && s->process->alive && strcmp(s->url, url) == 0)
            r->server = s;
    if (r->server) {
        uint64_t due_us =
            network_arrival_us(r->asker->machine, r->server->process->machine, &r->last_us);
        world_after(r->server->process, due_us - world_now_us(), request_arrive, r);
    }
    while (!r->answered && world_now_us() < end_us)
        world_park(end_us - world_now_us());
    r->given_up = true;
    world_take(r);
    if (!r->answered)
        return error_set(failure, STATUS_PEER_SILENT, "", "%s did not answer", url);
    buffer_append_slice(reply, buffer_slice(&r->answer));
    return STATUS_OK;
}
