// The one way that threads hand things over: a bounded queue of pointers with an eventfd.
//
// Many threads may push; one thread (the owner of what is queued) pops. The eventfd is readable
// while the queue is not empty, so that the owner can sleep in epoll or libevent. A push never
// blocks: a full queue returns STATUS_FULL and the pusher still owns the item.
#pragma once

#include "base/status.h"

#include <stdint.h>

typedef struct queue queue;

// `capacity` items at most. STATUS_NO_MEMORY or STATUS_IO on failure.
status queue_open(size_t capacity, queue **opened);
// The items left inside are the owner's to free: pop them first.
void queue_close(queue *q);
status queue_push(queue *q, void *item);
// NULL when empty. Clears the eventfd when it takes the last item.
void *queue_pop(queue *q);
size_t queue_size(const queue *q);
int queue_event_fd(const queue *q);
// Wait until something is there or `timeout_us` passed (for threads that have no event loop).
void *queue_pop_wait(queue *q, int64_t timeout_us);
