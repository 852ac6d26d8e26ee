#include "base/queue.h"

#include "base/clock.h"

#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

static bool readable(queue *q)
{
    struct pollfd wait = { .fd = queue_event_fd(q), .events = POLLIN };
    return poll(&wait, 1, 0) == 1;
}

static void items_come_out_in_order_and_a_full_queue_refuses(void **state)
{
    (void)state;
    queue *q;
    int items[5];
    assert_int_equal(queue_open(3, &q), STATUS_OK);
    for (int round = 0; round < 4; round++) { // the ring wraps
        assert_null(queue_pop(q));
        assert_int_equal(queue_push(q, &items[0]), STATUS_OK);
        assert_int_equal(queue_push(q, &items[1]), STATUS_OK);
        assert_ptr_equal(queue_pop(q), &items[0]);
        assert_int_equal(queue_push(q, &items[2]), STATUS_OK);
        assert_int_equal(queue_push(q, &items[3]), STATUS_OK);
        assert_int_equal(queue_push(q, &items[4]), STATUS_FULL);
        assert_int_equal(queue_size(q), 3);
        for (int i = 1; i < 4; i++)
            assert_ptr_equal(queue_pop(q), &items[i]);
    }
    queue_close(q);
}

static void the_event_is_readable_while_something_is_there(void **state)
{
    (void)state;
    queue *q;
    int item;
    assert_int_equal(queue_open(2, &q), STATUS_OK);
    assert_false(readable(q));
    queue_push(q, &item);
    queue_push(q, &item);
    assert_true(readable(q));
    queue_pop(q);
    assert_true(readable(q));
    queue_pop(q);
    assert_false(readable(q));
    queue_close(q);
}

static void waiting_ends_at_its_time_out(void **state)
{
    (void)state;
    queue *q;
    int item;
    assert_int_equal(queue_open(1, &q), STATUS_OK);
    uint64_t start_us = clock_now_us();
    assert_null(queue_pop_wait(q, 20000));
    assert_true(clock_now_us() - start_us >= 20000);
    assert_null(queue_pop_wait(q, 0));
    queue_push(q, &item);
    assert_ptr_equal(queue_pop_wait(q, 0), &item);
    queue_close(q);
}

enum { PUSHERS = 3, EACH = 5000 };
typedef struct pusher {
    queue *q;
    int numbers[EACH];
} pusher;

static void *push_all(void *argument)
{
    pusher *p = argument;
    for (int i = 0; i < EACH; i++) {
        p->numbers[i] = i;
        while (queue_push(p->q, &p->numbers[i]) == STATUS_FULL)
            clock_sleep_us(50);
    }
    return NULL;
}

static void nothing_is_lost_or_reordered_between_threads(void **state)
{
    (void)state;
    static pusher pushers[PUSHERS];
    pthread_t threads[PUSHERS];
    int next[PUSHERS] = { 0 };
    queue *q;
    assert_int_equal(queue_open(64, &q), STATUS_OK);
    for (int i = 0; i < PUSHERS; i++) {
        pushers[i].q = q;
        assert_int_equal(pthread_create(&threads[i], NULL, push_all, &pushers[i]), 0);
    }
    for (int taken = 0; taken < PUSHERS * EACH; taken++) {
        int *item = queue_pop_wait(q, 60000000);
        assert_non_null(item);
        int from = 0;
        while (item < pushers[from].numbers || item >= pushers[from].numbers + EACH)
            from++;
        assert_int_equal(*item, next[from]++);
    }
    for (int i = 0; i < PUSHERS; i++)
        pthread_join(threads[i], NULL);
    assert_null(queue_pop(q));
    assert_false(readable(q));
    queue_close(q);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(items_come_out_in_order_and_a_full_queue_refuses),
        cmocka_unit_test(the_event_is_readable_while_something_is_there),
        cmocka_unit_test(waiting_ends_at_its_time_out),
        cmocka_unit_test(nothing_is_lost_or_reordered_between_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
