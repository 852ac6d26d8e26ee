// Descriptors of the world: what poll and event loops wait for.
#include "world.h"

#include <stdlib.h>

#define DESCRIPTOR_FIRST 1000000 // no real one is so large

typedef struct descriptor {
    bool open, readable, scheduled;
    fiber *waiter;
    process *process;
    void (*on)(void *);
    void *argument;
} descriptor;

static descriptor *table;
static int count, capacity;

static descriptor *descriptor_of(int fd)
{
    CHECK(fd >= DESCRIPTOR_FIRST && fd < DESCRIPTOR_FIRST + count);
    return &table[fd - DESCRIPTOR_FIRST];
}

int world_descriptor(void)
{
    if (count == capacity) {
        capacity = capacity ? 2 * capacity : 64;
        table = realloc(table, (size_t)capacity * sizeof *table);
        CHECK(table);
    }
    table[count] = (descriptor){ .open = true };
    return DESCRIPTOR_FIRST + count++;
}

void world_descriptor_close(int fd)
{
    *descriptor_of(fd) = (descriptor){ 0 };
}

static void watch_run(void *argument)
{
    int fd = (int)(intptr_t)argument;
    descriptor *d = descriptor_of(fd);
    d->scheduled = false;
    if (!d->on || !d->readable)
        return;
    d->on(d->argument);
    d = descriptor_of(fd); // the table may have moved
    if (d->on && d->readable && !d->scheduled) {
        d->scheduled = true;
        world_after(d->process, 1, watch_run, argument);
    }
}

static void watch_schedule(int fd, descriptor *d)
{
    if (!d->on || !d->readable || d->scheduled)
        return;
    d->scheduled = true;
    world_after(d->process, world_between(1, 30), watch_run, (void *)(intptr_t)fd);
}

void world_descriptor_set(int fd, bool readable)
{
    descriptor *d = descriptor_of(fd);
    d->readable = readable;
    if (!readable)
        return;
    if (d->waiter)
        world_wake(d->waiter);
    watch_schedule(fd, d);
}

bool world_descriptor_readable(int fd)
{
    return descriptor_of(fd)->readable;
}

void world_descriptor_wait(int fd, fiber *f)
{
    descriptor_of(fd)->waiter = f;
}

void world_descriptor_watch(int fd, void (*on)(void *), void *argument)
{
    descriptor *d = descriptor_of(fd);
    d->on = on;
    d->argument = argument;
    d->process = world_current();
    watch_schedule(fd, d);
}
