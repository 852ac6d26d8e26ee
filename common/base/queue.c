#include "base/queue.h"

#include "base/clock.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

// A ring under a mutex that is held for a few instructions. The eventfd holds 1 while the ring is
// not empty and 0 otherwise; it changes only under the mutex, so the two never disagree.
struct queue {
    pthread_mutex_t lock;
    size_t capacity;
    size_t head; // of the oldest item
    size_t size;
    int event_fd;
    void *items[];
};

status queue_open(size_t capacity, queue **opened)
{
    CHECK(capacity > 0 && capacity < SIZE_MAX / sizeof(void *) / 2);
    queue *q = calloc(1, sizeof(*q) + capacity * sizeof(q->items[0]));
    if (q == NULL)
        return STATUS_NO_MEMORY;
    q->capacity = capacity;
    q->event_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (q->event_fd < 0) {
        free(q);
        return STATUS_IO;
    }
    pthread_mutex_init(&q->lock, NULL);
    *opened = q;
    return STATUS_OK;
}

void queue_close(queue *q)
{
    if (q == NULL)
        return;
    close(q->event_fd);
    pthread_mutex_destroy(&q->lock);
    free(q);
}

status queue_push(queue *q, void *item)
{
    CHECK(item != NULL); // queue_pop could not tell it from "empty"
    status result = STATUS_OK;
    pthread_mutex_lock(&q->lock);
    if (q->size == q->capacity)
        result = STATUS_FULL;
    else {
        q->items[(q->head + q->size) % q->capacity] = item;
        q->size++;
        if (q->size == 1)
            CHECK(eventfd_write(q->event_fd, 1) == 0);
    }
    pthread_mutex_unlock(&q->lock);
    return result;
}

void *queue_pop(queue *q)
{
    void *item = NULL;
    pthread_mutex_lock(&q->lock);
    if (q->size > 0) {
        item = q->items[q->head];
        q->head = (q->head + 1) % q->capacity;
        q->size--;
        eventfd_t count;
        if (q->size == 0)
            CHECK(eventfd_read(q->event_fd, &count) == 0);
    }
    pthread_mutex_unlock(&q->lock);
    return item;
}

size_t queue_size(const queue *q)
{
    pthread_mutex_t *lock = (pthread_mutex_t *)&q->lock;
    pthread_mutex_lock(lock);
    size_t size = q->size;
    pthread_mutex_unlock(lock);
    return size;
}

int queue_event_fd(const queue *q)
{
    return q->event_fd;
}

void *queue_pop_wait(queue *q, int64_t timeout_us)
{
    uint64_t deadline_us = clock_now_us() + (timeout_us > 0 ? (uint64_t)timeout_us : 0);
    for (;;) {
        void *item = queue_pop(q);
        uint64_t now_us = clock_now_us();
        if (item != NULL || now_us >= deadline_us)
            return item;
        uint64_t left_us = deadline_us - now_us;
        struct timespec left = {
            .tv_sec = (time_t)(left_us / 1000000u),
            .tv_nsec = (long)(left_us % 1000000u) * 1000,
        };
        struct pollfd wait = { .fd = q->event_fd, .events = POLLIN };
        int ready = ppoll(&wait, 1, &left, NULL);
        CHECK(ready >= 0 || errno == EINTR);
    }
}
