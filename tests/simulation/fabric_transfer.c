// Messages and data under way between two endpoints of the world.
#include "check.h"
#include "fabric_world.h"
#include "network.h"
#include "trace.h"

#include <stdio.h>
#include <stdlib.h>

#define BYTES_PER_US 400

transfer *fabric_transfers;

// ---- what is under way ------------------------------------------------------------------------

static void arrival_queue(arrival *a)
{
    fabric *f = a->at->fabric;
    world_give(f);
    a->next = NULL;
    *f->arrivals_end = a;
    f->arrivals_end = &a->next;
    if (f->sleeper)
        world_wake(f->sleeper);
}

static void on_arrival(void *argument)
{
    arrival *a = argument;
    endpoint *e = a->at;
    if (e->fabric->closed)
        return;
    uint64_t passes_us = world_passes_us(e->fabric->process->machine, e->peer_process->machine);
    bool crosses = a->kind <= ARRIVAL_DATA || a->kind == ARRIVAL_BROKEN;
    if (crosses && passes_us > world_now_us()) {
        if (e->peer && e->peer->last_us < passes_us)
            e->peer->last_us = passes_us;
        world_after(e->fabric->process, passes_us - world_now_us(), on_arrival, a);
        return;
    }
    arrival_queue(a);
}

arrival *fabric_arrival(arrival_kind kind, endpoint *at, transfer *t, status code)
{
    arrival *a = calloc(1, sizeof *a);
    CHECK(a);
    a->kind = kind;
    a->at = at;
    a->transfer = t;
    a->code = code;
    return a;
}

// To the other side of `e`, behind what was sent before.
void fabric_travel(endpoint *e, arrival *a)
{
    uint64_t due_us =
        network_arrival_us(e->fabric->process->machine, e->peer_process->machine, &e->last_us);
    world_after(e->peer_process, due_us - world_now_us(), on_arrival, a);
}

void fabric_arrive(endpoint *e, arrival *a, uint64_t delay_us)
{
    world_after(e->fabric->process, delay_us, on_arrival, a);
}

void fabric_transfer_forget(transfer *t)
{
    if (t->send_open || t->receive_open)
        return;
    for (transfer **at = &fabric_transfers; *at; at = &(*at)->next)
        if (*at == t) {
            *at = t->next;
            return;
        }
}

// ---- bytes ------------------------------------------------------------------------------------

static char *piece_at(const fabric_piece *pieces, uint32_t count, size_t offset, size_t *left)
{
    for (uint32_t i = 0; i < count; i++) {
        if (offset < pieces[i].size) {
            *left = pieces[i].size - offset;
            return (char *)pieces[i].data + offset;
        }
        offset -= pieces[i].size;
    }
    CHECK(false);
    return NULL;
}

static void bytes_move(transfer *t, size_t size)
{
    while (size > 0) {
        size_t from_left, to_left;
        const char *from = piece_at(t->pieces, t->count, t->moved, &from_left);
        char *to = piece_at(t->placement.pieces, t->placement.count, t->moved, &to_left);
        size_t part = from_left < to_left ? from_left : to_left;
        part = part < size ? part : size;
        check_read(t->from->fabric->process, from, part);
        check_write(t->to->fabric->process, to, part);
        memcpy(to, from, part);
        t->moved += part;
        size -= part;
    }
}

static void transfer_move(void *argument)
{
    transfer *t = argument;
    if (!t->send_open || !t->receive_open || !t->from->fabric->process->alive)
        return;
    process *from = t->from->fabric->process, *to = t->to->fabric->process;
    uint64_t passes_us = world_passes_us(from->machine, to->machine);
    if (from->stalled_until_us > passes_us)
        passes_us = from->stalled_until_us;
    if (passes_us > world_now_us()) {
        world_after(to, passes_us - world_now_us(), transfer_move, t);
        return;
    }
    size_t left = t->size - t->moved;
    size_t part = left > 1 && t->moved == 0 ? left / 2 : left;
    if (t->bad && t->moved == 0) {
        size_t room;
        bytes_move(t, part);
        *piece_at(t->placement.pieces, t->placement.count, 0, &room) ^= 0x40;
    } else {
        bytes_move(t, part);
    }
    world_give(t->to->fabric);
    if (t->moved < t->size) {
        world_after(to, world_between(1, 1 + t->size / BYTES_PER_US), transfer_move, t);
        return;
    }
    // The sender may be told before or after the receiver.
    fabric_arrive(t->to, fabric_arrival(ARRIVAL_RECEIVED, t->to, t, STATUS_OK),
                  world_between(0, 100));
    world_after(from, world_between(0, 400), on_arrival,
                fabric_arrival(ARRIVAL_SENT, t->from, t, STATUS_OK));
}

// ---- handlers ---------------------------------------------------------------------------------

static void on_data(fabric *f, endpoint *e, arrival *a)
{
    transfer *t = a->transfer;
    bool taken = e->state == OPEN && t->send_open &&
                 f->handlers.place(f->handlers.owner, e->id, (slice){ a->data, a->size }, t->size,
                                   &t->placement);
    if (!taken) {
        if (t->send_open)
            world_after(t->from->fabric->process, network_latency_us(), on_arrival,
                        fabric_arrival(ARRIVAL_SENT, t->from, t, STATUS_OK));
        return;
    }
    size_t size = 0;
    for (uint32_t i = 0; i < t->placement.count; i++)
        size += t->placement.pieces[i].size;
    CHECK(size == t->size);
    world_counts[WORLD_PAGE_RUNS]++;
    t->to = e;
    t->receive_open = true;
    e->receives++;
    if (network.bad_run > 0 && check_is_pool(f->process, t->placement.pieces[0].data) &&
        world_chance(network.bad_run)) {
        t->bad = true;
        world_counts[WORLD_BAD_RUNS]++;
    }
    world_after(f->process, world_between(1, 50 + t->size / BYTES_PER_US), transfer_move, t);
}

void fabric_sent(fabric *f, transfer *t, status code)
{
    if (!t->send_open)
        return;
    t->send_open = false;
    t->from->sends--;
    fabric_transfer_forget(t);
    f->handlers.sent(f->handlers.owner, t->from->id, t->token, code);
}

void fabric_received(fabric *f, transfer *t, status code)
{
    if (!t->receive_open)
        return;
    t->receive_open = false;
    t->to->receives--;
    fabric_transfer_forget(t);
    f->handlers.received(f->handlers.owner, t->to->id, t->placement.token, code);
}

void fabric_handle(fabric *f, arrival *a)
{
    endpoint *e = a->at;
    e->heard_us = f->now_us;
    char address[80];
    if (a->size > 0)
        trace_fabric(e->peer_process, (slice){ a->data, a->size },
                     a->transfer ? a->transfer->size : 0);
    switch (a->kind) {
    case ARRIVAL_ACCEPTED:
        snprintf(address, sizeof address, "%s:1", e->peer_process->host);
        f->handlers.accepted(f->handlers.owner, e->id, address);
        break;
    case ARRIVAL_MESSAGE:
        if (e->peer)
            e->peer->messages--;
        if (e->state == OPEN)
            f->handlers.message(f->handlers.owner, e->id, (slice){ a->data, a->size });
        break;
    case ARRIVAL_DATA:
        on_data(f, e, a);
        break;
    case ARRIVAL_SENT:
        fabric_sent(f, a->transfer, a->code);
        break;
    case ARRIVAL_RECEIVED:
        fabric_received(f, a->transfer, a->code);
        break;
    case ARRIVAL_BROKEN:
        fabric_fail(f, e->id, a->code);
        break;
    }
}

// ---- for check.c ------------------------------------------------------------------------------

void fabric_each_receive(const process *p, void (*see)(const fabric_piece *piece))
{
    for (const transfer *t = fabric_transfers; t; t = t->next)
        if (t->receive_open && t->to->fabric->process == p)
            for (uint32_t i = 0; i < t->placement.count; i++)
                see(&t->placement.pieces[i]);
}

size_t fabric_open_requests(void)
{
    size_t count = 0;
    for (const transfer *t = fabric_transfers; t; t = t->next)
        count += t->send_open + t->receive_open;
    return count;
}
