// Stand-ins for what a process finds on its machine: clock, random numbers, queues between threads,
// threads, signals, names of hosts.
#include "world.h"

#include "base/activity.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/queue.h"
#include "base/random.h"
#include "worker/worker_private.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>

// ---- base/clock.h, base/random.h --------------------------------------------------------------

uint64_t clock_now_us(void)
{
    process *p = world_current();
    uint64_t now_us = world_now_us() + (p ? p->clock_offset_us : 0);
    if (p) // the world stands still within an event, a machine does not
        p->clock_us = now_us = now_us > p->clock_us ? now_us : p->clock_us + 1;
    return now_us;
}

uint64_t clock_wall_us(void)
{
    return 1700000000000000 + world_now_us();
}

uint64_t clock_wall_s(void)
{
    return clock_wall_us() / 1000000;
}

void clock_sleep_us(uint64_t duration_us)
{
    world_sleep(duration_us);
}

uint64_t random_system(void)
{
    return world_random();
}

// ---- base/queue.h -----------------------------------------------------------------------------

struct queue {
    size_t capacity, room, head, size;
    int fd;
    void **items; // [room], grows up to capacity
};

status queue_open(size_t capacity, queue **opened)
{
    queue *q = calloc(1, sizeof *q);
    CHECK(q);
    q->capacity = capacity;
    q->fd = world_descriptor();
    *opened = q;
    return STATUS_OK;
}

void queue_close(queue *q)
{
    if (!q)
        return;
    world_descriptor_close(q->fd);
    free(q->items);
    free(q);
}

static void queue_grow(queue *q)
{
    size_t room = q->room ? 2 * q->room : 16;
    void **items = calloc(room, sizeof *items);
    CHECK(items);
    for (size_t i = 0; i < q->size; i++)
        items[i] = q->items[(q->head + i) % q->room];
    free(q->items);
    q->items = items;
    q->room = room;
    q->head = 0;
}

status queue_push(queue *q, void *item)
{
    CHECK(item);
    world_give(q);
    if (q->size == q->capacity)
        return STATUS_FULL;
    if (q->size == q->room)
        queue_grow(q);
    q->items[(q->head + q->size++) % q->room] = item;
    if (q->size == 1)
        world_descriptor_set(q->fd, true);
    return STATUS_OK;
}

void *queue_pop(queue *q)
{
    if (q->size == 0)
        return NULL;
    world_take(q);
    void *item = q->items[q->head];
    q->head = (q->head + 1) % q->room;
    if (--q->size == 0)
        world_descriptor_set(q->fd, false);
    return item;
}

size_t queue_size(const queue *q)
{
    return q->size;
}

int queue_event_fd(const queue *q)
{
    return q->fd;
}

void *queue_pop_wait(queue *q, int64_t timeout_us)
{
    uint64_t end_us = world_now_us() + (timeout_us > 0 ? (uint64_t)timeout_us : 0);
    for (;;) {
        void *item = queue_pop(q);
        if (item || world_now_us() >= end_us)
            return item;
        world_descriptor_wait(q->fd, world_running());
        world_park(end_us - world_now_us());
        world_descriptor_wait(q->fd, NULL);
    }
}

// ---- threads: the linker leads these calls here (--wrap) --------------------------------------

int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *),
                          void *argument);
int __wrap_pthread_join(pthread_t thread, void **result);
int __wrap_pthread_detach(pthread_t thread);
int __wrap_pthread_setname_np(pthread_t thread, const char *name);
int __wrap_pthread_sigmask(int how, const sigset_t *set, sigset_t *before);
int __wrap_pthread_mutex_lock(pthread_mutex_t *lock);
int __wrap_pthread_cond_wait(pthread_cond_t *condition, pthread_mutex_t *lock);
int __wrap_pthread_cond_timedwait(pthread_cond_t *condition, pthread_mutex_t *lock,
                                  const struct timespec *end);
int __wrap_pthread_cond_signal(pthread_cond_t *condition);
int __wrap_pthread_cond_broadcast(pthread_cond_t *condition);
int __wrap_ppoll(struct pollfd *fds, nfds_t count, const struct timespec *limit,
                 const sigset_t *mask);

int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *),
                          void *argument)
{
    (void)attributes;
    *thread = (pthread_t)(uintptr_t)world_fiber(world_current(), run, argument);
    return 0;
}

int __wrap_pthread_join(pthread_t thread, void **result)
{
    fiber *f = (fiber *)(uintptr_t)thread;
    (void)result;
    world_on_end(f, world_running());
    while (!world_ended(f))
        world_park(WORLD_NEVER);
    world_take(f);
    return 0;
}

int __wrap_pthread_detach(pthread_t thread)
{
    (void)thread;
    return 0;
}

int __wrap_pthread_setname_np(pthread_t thread, const char *name)
{
    (void)thread;
    (void)name;
    return 0;
}

int __wrap_pthread_sigmask(int how, const sigset_t *set, sigset_t *before)
{
    (void)how;
    (void)set;
    (void)before;
    return 0;
}

// Held across a wait by another fiber only if the product sleeps with it.
int __wrap_pthread_mutex_lock(pthread_mutex_t *lock)
{
    while (pthread_mutex_trylock(lock) != 0)
        world_sleep(50);
    return 0;
}

static int condition_wait(pthread_cond_t *condition, pthread_mutex_t *lock, uint64_t timeout_us)
{
    fiber *f = world_running();
    pthread_mutex_unlock(lock);
    world_set_waits_for(f, condition);
    bool woken = world_park(timeout_us);
    world_set_waits_for(f, NULL);
    __wrap_pthread_mutex_lock(lock);
    return woken ? 0 : ETIMEDOUT;
}

int __wrap_pthread_cond_wait(pthread_cond_t *condition, pthread_mutex_t *lock)
{
    return condition_wait(condition, lock, WORLD_NEVER);
}

int __wrap_pthread_cond_timedwait(pthread_cond_t *condition, pthread_mutex_t *lock,
                                  const struct timespec *end)
{
    uint64_t end_us = (uint64_t)end->tv_sec * 1000000 + (uint64_t)end->tv_nsec / 1000;
    uint64_t now_us = clock_now_us();
    return condition_wait(condition, lock, end_us > now_us ? end_us - now_us : 0);
}

static void condition_wake(pthread_cond_t *condition, bool all)
{
    for (fiber *f = world_current()->fibers; f; f = world_next_fiber(f)) {
        if (world_waits_for(f) != condition)
            continue;
        world_wake(f);
        if (!all)
            return;
    }
}

int __wrap_pthread_cond_signal(pthread_cond_t *condition)
{
    condition_wake(condition, false);
    return 0;
}

int __wrap_pthread_cond_broadcast(pthread_cond_t *condition)
{
    condition_wake(condition, true);
    return 0;
}

int __wrap_ppoll(struct pollfd *fds, nfds_t count, const struct timespec *limit,
                 const sigset_t *mask)
{
    uint64_t left_us = (uint64_t)limit->tv_sec * 1000000 + (uint64_t)limit->tv_nsec / 1000;
    int ready = 0;
    (void)mask;
    for (nfds_t i = 0; i < count; i++)
        ready += fds[i].fd >= 0 && world_descriptor_readable(fds[i].fd);
    if (ready > 0 || left_us == 0)
        return ready;
    for (nfds_t i = 0; i < count; i++)
        if (fds[i].fd >= 0)
            world_descriptor_wait(fds[i].fd, world_running());
    world_park(left_us);
    for (nfds_t i = 0; i < count; i++) {
        if (fds[i].fd < 0)
            continue;
        world_descriptor_wait(fds[i].fd, NULL);
        ready += world_descriptor_readable(fds[i].fd);
    }
    return ready;
}

// ---- log lines, with the world's time and the process's name ----------------------------------

void __wrap_log_line(log_level level, const char *tag, const char *format, ...);

void __wrap_log_line(log_level level, const char *tag, const char *format, ...)
{
    static const char *const names[] = { "error", "warn", "info", "debug" };
    char text[512];
    if (!world_traces() || level > LOG_INFO)
        return;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    world_trace("log %s %s %s", names[level], tag, text);
}

// ---- base/activity.h: it tells threads of the kernel apart, which fibers are not ---------------

void activity_begin(const char *thread)
{
    (void)thread;
}

void activity_end(void)
{
}

void activity_now(const char *operation)
{
    (void)operation;
}

void activity_dump(const char *tag)
{
    (void)tag;
}

// ---- worker/signals.c and worker/resolve.c ----------------------------------------------------

void worker_signals_open(void)
{
}

void worker_signals_serve(void)
{
}

int worker_signal_count(void)
{
    return world_current()->signals;
}

bool worker_signal_reload(void)
{
    return false;
}

int worker_signal_fd(void)
{
    return world_current()->signal_fd;
}

int worker_resolve(const char *url, char found[][WORKER_URL_MAX], int room, error *failure)
{
    (void)failure;
    if (room < 1)
        return 0;
    snprintf(found[0], WORKER_URL_MAX, "%s", url);
    return 1;
}

status worker_route(const char *url, char host[64], error *failure)
{
    (void)url;
    (void)failure;
    snprintf(host, 64, "%s", world_current()->host);
    return STATUS_OK;
}
