#include "net/http_private.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

struct http_loop {
    struct event_base *base;
    struct event *wake; // on an eventfd: http_loop_stop from any thread
    int wake_descriptor;
};

struct http_timer {
    struct event *event;
    http_loop_call call;
    void *context;
};

struct http_watch {
    struct event *event;
    http_loop_call call;
    void *context;
};

struct event_base *http_loop_base(http_loop *l)
{
    return l->base;
}

static void on_wake(evutil_socket_t descriptor, short what, void *context)
{
    http_loop *l = context;
    uint64_t count;
    (void)what;
    if (read(descriptor, &count, sizeof count) == (ssize_t)sizeof count)
        event_base_loopbreak(l->base);
}

status http_loop_open(http_loop **opened, error *failure)
{
    signal(SIGPIPE, SIG_IGN);
    http_loop *l = calloc(1, sizeof *l);
    if (!l)
        return error_set(failure, STATUS_NO_MEMORY, "", "no memory for an event loop");
    l->wake_descriptor = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    l->base = event_base_new();
    if (l->base && l->wake_descriptor >= 0)
        l->wake = event_new(l->base, l->wake_descriptor, EV_READ | EV_PERSIST, on_wake, l);
    if (!l->wake || event_add(l->wake, NULL) != 0) {
        http_loop_close(l);
        return error_set(failure, STATUS_IO, "", "the system gave no event loop");
    }
    *opened = l;
    return STATUS_OK;
}

void http_loop_close(http_loop *l)
{
    if (!l)
        return;
    if (l->wake)
        event_free(l->wake);
    if (l->base)
        event_base_free(l->base);
    if (l->wake_descriptor >= 0)
        close(l->wake_descriptor);
    free(l);
}

void http_loop_run(http_loop *l)
{
    event_base_loop(l->base, EVLOOP_NO_EXIT_ON_EMPTY);
}

void http_loop_stop(http_loop *l)
{
    uint64_t one = 1;
    ssize_t written = write(l->wake_descriptor, &one, sizeof one);
    (void)written; // fails only where the counter is full: then the loop is being woken already
}

static void on_timer(evutil_socket_t descriptor, short what, void *context)
{
    http_timer *t = context;
    (void)descriptor, (void)what;
    t->call(t->context);
}

status http_timer_open(http_loop *l, http_loop_call call, void *context, http_timer **opened)
{
    http_timer *t = calloc(1, sizeof *t);
    if (!t)
        return STATUS_NO_MEMORY;
    t->call = call;
    t->context = context;
    t->event = event_new(l->base, -1, 0, on_timer, t);
    if (!t->event) {
        free(t);
        return STATUS_NO_MEMORY;
    }
    *opened = t;
    return STATUS_OK;
}

void http_timer_start(http_timer *t, uint64_t delay_us)
{
    struct timeval delay = { (time_t)(delay_us / 1000000), (suseconds_t)(delay_us % 1000000) };
    event_add(t->event, &delay);
}

void http_timer_stop(http_timer *t)
{
    event_del(t->event);
}

void http_timer_close(http_timer *t)
{
    if (!t)
        return;
    event_free(t->event);
    free(t);
}

static void on_watch(evutil_socket_t descriptor, short what, void *context)
{
    http_watch *w = context;
    (void)descriptor, (void)what;
    w->call(w->context);
}

static status watch_open(http_loop *l, int number, short what, http_loop_call call, void *context,
                         http_watch **opened)
{
    http_watch *w = calloc(1, sizeof *w);
    if (!w)
        return STATUS_NO_MEMORY;
    w->call = call;
    w->context = context;
    w->event = event_new(l->base, number, what | EV_PERSIST, on_watch, w);
    if (!w->event || event_add(w->event, NULL) != 0) {
        http_watch_close(w);
        return STATUS_IO;
    }
    *opened = w;
    return STATUS_OK;
}

status http_watch_open(http_loop *l, int descriptor, http_loop_call call, void *context,
                       http_watch **opened)
{
    return watch_open(l, descriptor, EV_READ, call, context, opened);
}

status http_watch_signal(http_loop *l, int number, http_loop_call call, void *context,
                         http_watch **opened)
{
    return watch_open(l, number, EV_SIGNAL, call, context, opened);
}

void http_watch_close(http_watch *w)
{
    if (!w)
        return;
    if (w->event)
        event_free(w->event);
    free(w);
}
