// Stand-in for net/http_loop.h: timers, watches and signals of a process with an event loop.
#include "client.h"

#include "net/http_loop.h"

#include <stdlib.h>

struct http_loop {
    process *process;
    fiber *runner;
    bool stopped;
};

struct http_timer {
    process *process;
    http_loop_call call;
    void *context;
    uint64_t due_us; // WORLD_NEVER: idle
    uint32_t pending;
    bool closed;
};

struct http_watch {
    http_watch *next;
    int fd, signal;
    http_loop_call call;
    void *context;
};

status http_loop_open(http_loop **opened, error *failure)
{
    (void)failure;
    *opened = calloc(1, sizeof **opened);
    CHECK(*opened);
    (*opened)->process = world_current();
    return STATUS_OK;
}

void http_loop_close(http_loop *l)
{
    free(l);
}

void http_loop_run(http_loop *l)
{
    l->runner = world_running();
    while (!l->stopped)
        world_park(WORLD_NEVER);
    world_take(l);
}

void http_loop_stop(http_loop *l)
{
    l->stopped = true;
    world_give(l);
    if (l->runner)
        world_wake(l->runner);
}

status http_timer_open(http_loop *l, http_loop_call call, void *context, http_timer **opened)
{
    http_timer *t = calloc(1, sizeof *t);
    CHECK(t);
    *t = (http_timer){ .process = l->process, .call = call, .context = context };
    t->due_us = WORLD_NEVER;
    *opened = t;
    return STATUS_OK;
}

static void timer_fire(void *argument)
{
    http_timer *t = argument;
    t->pending--;
    if (t->closed) {
        if (t->pending == 0)
            free(t);
        return;
    }
    if (t->due_us > world_now_us())
        return; // it was started again or stopped: another call is due, or none
    t->due_us = WORLD_NEVER;
    t->call(t->context);
}

void http_timer_start(http_timer *t, uint64_t delay_us)
{
    t->due_us = world_now_us() + delay_us;
    t->pending++;
    world_after(t->process, delay_us, timer_fire, t);
}

void http_timer_stop(http_timer *t)
{
    t->due_us = WORLD_NEVER;
}

void http_timer_close(http_timer *t)
{
    if (!t)
        return;
    t->closed = true;
    if (t->pending == 0)
        free(t);
}

status http_watch_open(http_loop *l, int descriptor, http_loop_call call, void *context,
                       http_watch **opened)
{
    (void)l;
    http_watch *w = calloc(1, sizeof *w);
    CHECK(w);
    *w = (http_watch){ .fd = descriptor, .call = call, .context = context };
    world_descriptor_watch(descriptor, call, context);
    *opened = w;
    return STATUS_OK;
}

status http_watch_signal(http_loop *l, int signal, http_loop_call call, void *context,
                         http_watch **opened)
{
    http_watch *w = calloc(1, sizeof *w);
    CHECK(w);
    *w = (http_watch){ l->process->watches, -1, signal, call, context };
    l->process->watches = w;
    *opened = w;
    return STATUS_OK;
}

void http_watch_close(http_watch *w)
{
    if (!w)
        return;
    if (w->fd >= 0) {
        world_descriptor_watch(w->fd, NULL, NULL);
        free(w);
        return;
    }
    for (http_watch **at = (http_watch **)&world_current()->watches; *at; at = &(*at)->next)
        if (*at == w) {
            *at = w->next;
            break;
        }
    free(w);
}

static void signal_deliver(void *argument)
{
    http_watch *w = argument;
    for (http_watch *known = world_current()->watches; known; known = known->next)
        if (known == w) {
            w->call(w->context);
            return;
        }
}

bool http_signal(process *p, int signal)
{
    for (http_watch *w = p->watches; w; w = w->next)
        if (w->signal == signal) {
            world_after(p, 10, signal_deliver, w);
            return true;
        }
    return false;
}
