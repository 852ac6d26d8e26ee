// An event loop: timers, readable descriptors, signals. The HTTP server runs on one, and so does
// the router.
//
// A loop belongs to the thread that runs it; everything here is called on that thread, or before
// http_loop_run, except http_loop_stop, which any thread may call. Callbacks run one at a time and
// must not block. Handles are closed before the loop. One door to libevent: nothing outside
// common/net/http*.c includes it.
#pragma once

#include "base/status.h"

#include <stdint.h>

typedef struct http_loop http_loop;
typedef struct http_timer http_timer;
typedef struct http_watch http_watch;

typedef void (*http_loop_call)(void *context);

// Opening also ignores SIGPIPE for the process: a client that goes away is an event, not a signal.
status http_loop_open(http_loop **opened, error *failure);
void http_loop_close(http_loop *l); // NULL is allowed
// Serve events until http_loop_stop.
void http_loop_run(http_loop *l);
void http_loop_stop(http_loop *l);

// A timer is idle until it is started. It fires once, `delay_us` later; starting it again replaces
// the time.
status http_timer_open(http_loop *l, http_loop_call call, void *context, http_timer **opened);
void http_timer_start(http_timer *t, uint64_t delay_us);
void http_timer_stop(http_timer *t);
void http_timer_close(http_timer *t); // NULL is allowed; also from inside its own call

// `call` runs as long as `descriptor` (of a queue's eventfd, say) is readable: it must drain it, or
// it is called again at once.
status http_watch_open(http_loop *l, int descriptor, http_loop_call call, void *context,
                       http_watch **opened);
// `call` runs on the loop after each delivery of `signal`.
status http_watch_signal(http_loop *l, int signal, http_loop_call call, void *context,
                         http_watch **opened);
void http_watch_close(http_watch *w); // NULL is allowed
