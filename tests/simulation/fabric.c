// Stand-in for net/fabric.h: endpoints of the world.
//
// Data is read from the sender's memory and written into the receiver's while it is under way, not
// at once, and goes on until the endpoint that holds the request is drained: memory that is reused
// too early is really overwritten, and check.c sees it at once.
#include "check.h"
#include "fabric_world.h"
#include "network.h"

#include "base/clock.h"

#include <stdio.h>
#include <stdlib.h>

#define DRAIN_LONGEST_US 1000000
#define MESSAGES_MAX 2048

fabric *fabric_list;
static uint16_t port_next = 30000;

// ---- failure ----------------------------------------------------------------------------------

static void peer_tell(endpoint *e, uint64_t longest_us)
{
    if (e->told_peer || !e->peer)
        return;
    e->told_peer = true;
    fabric_arrive(e->peer, fabric_arrival(ARRIVAL_BROKEN, e->peer, NULL, STATUS_PEER_CLOSED),
                  world_between(50, longest_us));
}

// Requests of a closed endpoint come back one by one, and memory may be touched until then.
static void drain_begin(endpoint *e)
{
    e->drained_us = world_now_us();
    for (transfer *t = fabric_transfers; t; t = t->next) {
        uint64_t delay_us = world_between(0, world_chance(0.7) ? 2000 : DRAIN_LONGEST_US);
        bool sends = t->from == e && t->send_open, receives = t->to == e && t->receive_open;
        if (sends)
            fabric_arrive(e, fabric_arrival(ARRIVAL_SENT, e, t, STATUS_CANCELLED), delay_us);
        if (receives)
            fabric_arrive(e, fabric_arrival(ARRIVAL_RECEIVED, e, t, STATUS_CANCELLED), delay_us);
    }
}

static bool endpoints_advance(fabric *f)
{
    bool handled = false;
    for (endpoint *e = f->endpoints; e; e = e->next) {
        if (e->state == FAILING) {
            e->state = DRAINING;
            peer_tell(e, 5000);
            drain_begin(e);
            f->handlers.failed(f->handlers.owner, e->id, e->code);
            handled = true;
        } else if (e->state == DRAINING && e->sends + e->receives == 0) {
            e->state = GONE;
            f->handlers.closed(f->handlers.owner, e->id);
            handled = true;
        }
    }
    return handled;
}

// A stopped or cut off peer that owes something is failed after a while; time in which this process
// did not run is not counted.
static void silence_judge(fabric *f, uint64_t absent_us)
{
    for (endpoint *e = f->endpoints; e; e = e->next) {
        const process *peer = e->peer_process;
        bool heard = peer->alive && peer->stalled_until_us <= world_now_us() &&
                     world_passes_us(f->process->machine, peer->machine) <= world_now_us();
        bool owes = e->busy || e->sends > 0 || e->receives > 0;
        e->heard_us += absent_us;
        if (heard || !owes || e->heard_us > f->now_us)
            e->heard_us = f->now_us;
        else if (e->state == OPEN && f->now_us - e->heard_us > (uint64_t)f->settings.fail_us)
            fabric_fail(f, e->id, STATUS_PEER_SILENT);
    }
}

void fabric_fail(fabric *f, fabric_peer peer, status code)
{
    for (endpoint *e = f->endpoints; e; e = e->next)
        if (e->id == peer && e->state == OPEN) {
            e->state = FAILING;
            e->code = code;
        }
}

void fabric_process_died(process *p)
{
    for (fabric *f = fabric_list; f; f = f->next) {
        if (f->process != p || f->closed)
            continue;
        f->closed = true;
        for (endpoint *e = f->endpoints; e; e = e->next) {
            peer_tell(e, 90000);
            for (transfer *t = fabric_transfers, *next; t; t = next) {
                next = t->next;
                t->send_open = t->send_open && t->from != e;
                t->receive_open = t->receive_open && t->to != e;
                fabric_transfer_forget(t);
            }
        }
    }
}

// ---- opening ----------------------------------------------------------------------------------

status fabric_environment(const char *transports, const char *devices, const char *host,
                          error *failure)
{
    (void)transports;
    (void)devices;
    (void)host;
    (void)failure;
    return STATUS_OK;
}

status fabric_open(const fabric_settings *settings, const fabric_handlers *handlers,
                   fabric **opened, error *failure)
{
    (void)failure;
    fabric *f = calloc(1, sizeof *f);
    CHECK(f);
    f->process = world_current();
    f->settings = *settings;
    f->handlers = *handlers;
    snprintf(f->host, sizeof f->host, "%s", settings->host);
    f->port = settings->listen ? port_next++ : 0;
    f->arrivals_end = &f->arrivals;
    f->watched = -1;
    f->now_us = f->turn_end_us = clock_now_us();
    f->next = fabric_list;
    fabric_list = f;
    world_give(&fabric_list);
    *opened = f;
    return STATUS_OK;
}

void fabric_close(fabric *f)
{
    if (!f)
        return;
    world_sleep(2000);
    world_take(f);
    for (endpoint *e = f->endpoints; e; e = e->next) {
        peer_tell(e, 5000);
        for (transfer *t = fabric_transfers, *next; t; t = next) {
            next = t->next;
            if (t->from == e)
                fabric_sent(f, t, STATUS_CANCELLED);
            else if (t->to == e)
                fabric_received(f, t, STATUS_CANCELLED);
        }
        e->state = GONE;
    }
    f->closed = true;
}

void fabric_address(const fabric *f, char host[64], uint16_t *port)
{
    snprintf(host, 64, "%s", f->host);
    *port = f->port;
}

status fabric_watch(fabric *f, int fd)
{
    f->watched = fd;
    return STATUS_OK;
}

uint64_t fabric_now_us(const fabric *f)
{
    return f->now_us;
}

// ---- turning ----------------------------------------------------------------------------------

static bool turn_once(fabric *f)
{
    bool handled = false;
    world_take(f);
    f->now_us = clock_now_us();
    uint64_t away_us = f->now_us - f->turn_end_us;
    silence_judge(f, away_us > 300000 ? away_us : 0);
    f->turn_end_us = f->now_us;
    for (arrival *a; (a = f->arrivals) != NULL; handled = true) {
        f->arrivals = a->next;
        if (!f->arrivals)
            f->arrivals_end = &f->arrivals;
        fabric_handle(f, a);
        free(a->data);
        free(a);
    }
    return endpoints_advance(f) || handled;
}

void fabric_turn(fabric *f, int64_t timeout_us)
{
    if (turn_once(f) || timeout_us <= 0)
        return;
    if (f->watched >= 0 && world_descriptor_readable(f->watched))
        return;
    f->sleeper = world_running();
    if (f->watched >= 0)
        world_descriptor_wait(f->watched, f->sleeper);
    world_park((uint64_t)timeout_us);
    if (f->watched >= 0)
        world_descriptor_wait(f->watched, NULL);
    f->sleeper = NULL;
    turn_once(f);
}

// ---- peers ------------------------------------------------------------------------------------

static endpoint *endpoint_new(fabric *f, process *peer)
{
    endpoint *e = calloc(1, sizeof *e);
    CHECK(e);
    e->fabric = f;
    e->peer_process = peer;
    e->id = ++f->peers_made;
    e->heard_us = f->now_us;
    e->next = f->endpoints;
    f->endpoints = e;
    return e;
}

static endpoint *endpoint_find(fabric *f, fabric_peer peer)
{
    endpoint *e = f->endpoints;
    while (e && e->id != peer)
        e = e->next;
    return e;
}

status fabric_connect(fabric *f, const char *host, uint16_t port, fabric_peer *peer, error *failure)
{
    (void)failure;
    fabric *to = fabric_list;
    world_take(&fabric_list);
    while (to && (to->port != port || strcmp(to->host, host) != 0))
        to = to->next;
    CHECK(to);
    endpoint *e = endpoint_new(f, to->process);
    *peer = e->id;
    if (to->closed) { // nobody listens there any more
        fabric_arrive(e, fabric_arrival(ARRIVAL_BROKEN, e, NULL, STATUS_PEER_CLOSED), 5000);
        return STATUS_OK;
    }
    e->peer = endpoint_new(to, f->process);
    e->peer->peer = e;
    fabric_travel(e, fabric_arrival(ARRIVAL_ACCEPTED, e->peer, NULL, STATUS_OK));
    return STATUS_OK;
}

void fabric_set_busy(fabric *f, fabric_peer peer, bool busy)
{
    endpoint *e = endpoint_find(f, peer);
    if (e)
        e->busy = busy;
}

void fabric_transport(fabric *f, fabric_peer peer, char name[32])
{
    (void)f;
    (void)peer;
    snprintf(name, 32, "tcp");
}

status fabric_send_message(fabric *f, fabric_peer peer, slice header)
{
    endpoint *e = endpoint_find(f, peer);
    if (!e || e->state != OPEN)
        return STATUS_PEER_CLOSED;
    if (!e->peer)
        return STATUS_OK;
    if (e->messages >= MESSAGES_MAX)
        return STATUS_FULL;
    arrival *a = fabric_arrival(ARRIVAL_MESSAGE, e->peer, NULL, STATUS_OK);
    a->data = malloc(header.size);
    CHECK(a->data);
    memcpy(a->data, header.data, header.size);
    a->size = header.size;
    e->messages++;
    fabric_travel(e, a);
    return STATUS_OK;
}

uint32_t fabric_window(const fabric *f, fabric_peer peer)
{
    const endpoint *e = endpoint_find((fabric *)f, peer);
    return e && e->state == OPEN && e->sends < f->settings.window ? f->settings.window - e->sends
                                                                  : 0;
}

status fabric_send_data(fabric *f, fabric_peer peer, slice header, const fabric_piece *pieces,
                        uint32_t count, uint64_t token)
{
    endpoint *e = endpoint_find(f, peer);
    if (!e || e->state != OPEN || !e->peer)
        return STATUS_PEER_CLOSED;
    if (e->sends >= f->settings.window)
        return STATUS_AGAIN;
    transfer *t = calloc(1, sizeof *t);
    CHECK(t);
    t->from = e;
    t->count = count;
    memcpy(t->pieces, pieces, count * sizeof *pieces);
    for (uint32_t i = 0; i < count; i++)
        t->size += pieces[i].size;
    t->token = token;
    t->send_open = true;
    t->next = fabric_transfers;
    fabric_transfers = t;
    e->sends++;
    arrival *a = fabric_arrival(ARRIVAL_DATA, e->peer, t, STATUS_OK);
    a->data = malloc(header.size);
    CHECK(a->data);
    memcpy(a->data, header.data, header.size);
    a->size = header.size;
    fabric_travel(e, a);
    return STATUS_OK;
}
