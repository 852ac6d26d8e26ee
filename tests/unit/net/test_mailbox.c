// Facts about mailbox pairs. Peers that die, stop or never read are this same
// program, started again with a role (nng must not be used across a fork).
#include "net/mailbox.h"

#include "base/clock.h"
#include "base/fault.h"

#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

extern char **environ;

static const int64_t patience_us = 30000000;

// ---- the other process -------------------------------------------------------------------------

// As fast as they go.
static void flood(mailbox_pair *pair)
{
    for (int i = 0; i < 100; i++)
        if (mailbox_pair_send(pair, SLICE("0123456789"), false) != STATUS_OK) {
            clock_sleep_us(200);
            return;
        }
}

// penstock test peer: dial the URL and echo every message; "deaf" never pops its events, "flood"
// sends all the time.
static int peer_main(const char *role, const char *url)
{
    queue *events;
    mailbox_pair *pair;
    mailbox_limits limits = mailbox_limits_default;
    limits.message_max = 1024;
    if (queue_open(strcmp(role, "deaf") == 0 ? 2 : 1024, &events) != STATUS_OK)
        return 1;
    if (mailbox_pair_dial(url, &limits, events, NULL, &pair, NULL) != STATUS_OK)
        return 2;
    while (strcmp(role, "deaf") == 0)
        pause();
    while (strcmp(role, "flood") == 0) {
        flood(pair);
        mailbox_event_free(queue_pop(events));
    }
    for (;;) {
        mailbox_event *event = queue_pop_wait(events, 60000000);
        if (event == NULL || event->kind == MAILBOX_DOWN)
            return 0;
        if (event->kind == MAILBOX_MESSAGE)
            mailbox_pair_send(pair, event->data, false);
        mailbox_event_free(event);
    }
}

static pid_t peer_start(const char *role, const char *url)
{
    char *arguments[] = { "peer", (char *)role, (char *)url, NULL };
    pid_t pid;
    assert_int_equal(posix_spawn(&pid, "/proc/self/exe", NULL, NULL, arguments, environ), 0);
    return pid;
}

static void peer_end(pid_t pid)
{
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
}

// ---- helpers -----------------------------------------------------------------------------------

#define WAIT_UNTIL(condition)                                                                      \
    do {                                                                                           \
        uint64_t end_us = clock_now_us() + (uint64_t)patience_us;                                  \
        while (!(condition)) {                                                                     \
            assert_true(clock_now_us() < end_us);                                                  \
            clock_sleep_us(1000);                                                                  \
        }                                                                                          \
    } while (0)

static mailbox_event *expect(queue *events, mailbox_event_kind kind)
{
    mailbox_event *event = queue_pop_wait(events, patience_us);
    assert_non_null(event);
    assert_int_equal(event->kind, kind);
    return event;
}

static void expect_text(queue *events, const char *text)
{
    mailbox_event *event = expect(events, MAILBOX_MESSAGE);
    assert_true(slice_equal(event->data, slice_of(text)));
    mailbox_event_free(event);
}

static queue *new_queue(size_t capacity)
{
    queue *q;
    assert_int_equal(queue_open(capacity, &q), STATUS_OK);
    return q;
}

static void drop_queue(queue *q)
{
    for (mailbox_event *event; (event = queue_pop(q)) != NULL;)
        mailbox_event_free(event);
    queue_close(q);
}

static mailbox_pair *listen_pair(queue *events, const mailbox_limits *limits)
{
    mailbox_pair *pair;
    error failure;
    assert_int_equal(
        mailbox_pair_listen("tcp://127.0.0.1:0", limits, events, &pair, &pair, &failure),
        STATUS_OK);
    return pair;
}

typedef struct ends {
    queue *left_events, *right_events;
    mailbox_pair *left, *right;
} ends;

// Two connected ends in this process.
static void join(ends *e, size_t capacity)
{
    e->left_events = new_queue(capacity);
    e->right_events = new_queue(1024);
    e->left = listen_pair(e->left_events, &mailbox_limits_default);
    assert_int_equal(mailbox_pair_dial(mailbox_pair_url(e->left), &mailbox_limits_default,
                                       e->right_events, e, &e->right, NULL),
                     STATUS_OK);
    mailbox_event *up = expect(e->right_events, MAILBOX_UP);
    assert_ptr_equal(up->owner, e);
    mailbox_event_free(up);
}

static void part(ends *e)
{
    mailbox_pair_close(e->right);
    mailbox_pair_close(e->left);
    drop_queue(e->right_events);
    drop_queue(e->left_events);
}

// ---- facts -------------------------------------------------------------------------------------

static void messages_arrive_in_order_after_up(void **state)
{
    (void)state;
    ends e;
    join(&e, 1024);
    char text[32];
    for (int i = 0; i < 200; i++) {
        snprintf(text, sizeof(text), "message %d", i);
        assert_int_equal(mailbox_pair_send(e.right, slice_of(text), false), STATUS_OK);
    }
    mailbox_event_free(expect(e.left_events, MAILBOX_UP));
    for (int i = 0; i < 200; i++) {
        snprintf(text, sizeof(text), "message %d", i);
        expect_text(e.left_events, text);
    }
    part(&e);
}

static void a_full_event_queue_loses_nothing_and_down_comes_last(void **state)
{
    (void)state;
    ends e;
    join(&e, 2);
    char text[32];
    for (int i = 0; i < 300; i++) {
        snprintf(text, sizeof(text), "message %d", i);
        assert_int_equal(mailbox_pair_send(e.right, slice_of(text), false), STATUS_OK);
    }
    WAIT_UNTIL(queue_size(e.left_events) == 2);
    clock_sleep_us(50000); // what more comes has to wait
    assert_int_equal(queue_size(e.left_events), 2);
    mailbox_event_free(expect(e.left_events, MAILBOX_UP));
    for (int i = 0; i < 300; i++) {
        snprintf(text, sizeof(text), "message %d", i);
        expect_text(e.left_events, text);
    }
    WAIT_UNTIL(mailbox_pair_waiting(e.right) == 0);
    assert_int_equal(mailbox_pair_send(e.right, SLICE("last"), false), STATUS_OK);
    WAIT_UNTIL(queue_size(e.left_events) == 1); // an end may take along what is on its way
    mailbox_pair_close(e.right);
    e.right = NULL;
    expect_text(e.left_events, "last");
    mailbox_event_free(expect(e.left_events, MAILBOX_DOWN));
    assert_int_equal(mailbox_pair_send(e.left, SLICE("x"), false), STATUS_PEER_CLOSED);
    part(&e);
}

static void a_killed_peer_is_down(void **state)
{
    (void)state;
    queue *events = new_queue(64);
    mailbox_pair *pair = listen_pair(events, &mailbox_limits_default);
    pid_t peer = peer_start("echo", mailbox_pair_url(pair));
    mailbox_event_free(expect(events, MAILBOX_UP));
    assert_int_equal(mailbox_pair_send(pair, SLICE("hello"), false), STATUS_OK);
    expect_text(events, "hello");
    peer_end(peer);
    mailbox_event_free(expect(events, MAILBOX_DOWN));
    mailbox_pair_close(pair);
    drop_queue(events);
}

static void a_new_incarnation_gets_no_stale_message(void **state)
{
    (void)state;
    queue *events = new_queue(64);
    mailbox_pair *pair = listen_pair(events, &mailbox_limits_default);
    char url[128];
    snprintf(url, sizeof(url), "%s", mailbox_pair_url(pair));
    pid_t peer = peer_start("echo", url);
    mailbox_event_free(expect(events, MAILBOX_UP));
    kill(peer, SIGSTOP);
    for (int i = 0; i < 40; i++)
        assert_int_equal(mailbox_pair_send(pair, SLICE("stale"), false), STATUS_OK);
    peer_end(peer);
    mailbox_event_free(expect(events, MAILBOX_DOWN));
    assert_int_equal(mailbox_pair_send(pair, SLICE("stale"), false), STATUS_PEER_CLOSED);
    // The next life finds the same address, and this pair is not for it.
    peer = peer_start("echo", url);
    assert_null(queue_pop_wait(events, 300000));
    peer_end(peer);
    mailbox_pair_close(pair);
    uint64_t end_us = clock_now_us() + (uint64_t)patience_us; // the address is free a little later
    while (mailbox_pair_listen(url, &mailbox_limits_default, events, NULL, &pair, NULL) !=
           STATUS_OK) {
        assert_true(clock_now_us() < end_us);
        clock_sleep_us(10000);
    }
    peer = peer_start("echo", url);
    mailbox_event_free(expect(events, MAILBOX_UP));
    assert_int_equal(mailbox_pair_send(pair, SLICE("fresh"), false), STATUS_OK);
    expect_text(events, "fresh");
    peer_end(peer);
    mailbox_pair_close(pair);
    drop_queue(events);
}

static void a_stopped_peer_loses_nothing_and_sends_do_not_block(void **state)
{
    (void)state;
    queue *events = new_queue(1024);
    mailbox_limits limits = mailbox_limits_default;
    mailbox_pair *pair = listen_pair(events, &limits);
    pid_t peer = peer_start("echo", mailbox_pair_url(pair));
    mailbox_event_free(expect(events, MAILBOX_UP));
    kill(peer, SIGSTOP);
    for (int i = 0; i < 200; i++) // returns, though nobody takes them
        assert_int_equal(mailbox_pair_send(pair, SLICE("0123456789"), false), STATUS_OK);
    assert_null(queue_pop_wait(events, 200000));
    kill(peer, SIGCONT);
    for (int i = 0; i < 200; i++)
        expect_text(events, "0123456789");
    peer_end(peer);
    mailbox_pair_close(pair);
    drop_queue(events);
}

static void a_peer_that_never_reads_fills_the_list(void **state)
{
    (void)state;
    queue *events = new_queue(16);
    mailbox_limits limits = mailbox_limits_default;
    limits.outgoing_max = 8;
    mailbox_pair *pair = listen_pair(events, &limits);
    pid_t peer = peer_start("deaf", mailbox_pair_url(pair));
    mailbox_event_free(expect(events, MAILBOX_UP));
    static char data[1000];
    slice message = { data, sizeof(data) };
    int accepted = 0;
    uint64_t end_us = clock_now_us() + (uint64_t)patience_us;
    // Nothing more fits when the list has stayed full for a while.
    for (int full = 0; full < 500 && clock_now_us() < end_us;) {
        status result = mailbox_pair_send(pair, message, false);
        assert_true(result == STATUS_OK || result == STATUS_FULL);
        full = result == STATUS_FULL ? full + 1 : 0;
        accepted += result == STATUS_OK;
        if (result == STATUS_FULL)
            clock_sleep_us(2000);
    }
    assert_int_equal(mailbox_pair_send(pair, message, false), STATUS_FULL);
    assert_int_equal(mailbox_pair_waiting(pair), 8);
    assert_true(accepted > 8);
    peer_end(peer);
    mailbox_event_free(expect(events, MAILBOX_DOWN));
    mailbox_pair_close(pair);
    drop_queue(events);
}

static void urgent_messages_pass_waiting_ones(void **state)
{
    (void)state;
    queue *events = new_queue(1024);
    mailbox_limits limits = mailbox_limits_default;
    mailbox_pair *pair = listen_pair(events, &limits);
    for (int i = 0; i < 20; i++) // nobody is there yet
        assert_int_equal(mailbox_pair_send(pair, SLICE("ordinary"), false), STATUS_OK);
    assert_int_equal(mailbox_pair_send(pair, SLICE("urgent"), true), STATUS_OK);
    clock_sleep_us(100000);
    pid_t peer = peer_start("echo", mailbox_pair_url(pair));
    mailbox_event_free(expect(events, MAILBOX_UP));
    int place = -1;
    for (int i = 0; i < 21; i++) {
        mailbox_event *event = expect(events, MAILBOX_MESSAGE);
        if (slice_equal(event->data, SLICE("urgent")))
            place = i;
        mailbox_event_free(event);
    }
    assert_int_equal(place, 0);
    peer_end(peer);
    mailbox_pair_close(pair);
    drop_queue(events);
}

static void an_oversized_message_closes_the_connection(void **state)
{
    (void)state;
    queue *events = new_queue(64);
    mailbox_pair *pair = listen_pair(events, &mailbox_limits_default);
    pid_t peer = peer_start("echo", mailbox_pair_url(pair));
    mailbox_event_free(expect(events, MAILBOX_UP));
    static char data[2048]; // the peer takes 1024
    assert_int_equal(mailbox_pair_send(pair, (slice){ data, 1024 }, false), STATUS_OK);
    mailbox_event_free(expect(events, MAILBOX_MESSAGE));
    assert_int_equal(mailbox_pair_send(pair, (slice){ data, sizeof(data) }, false), STATUS_OK);
    mailbox_event_free(expect(events, MAILBOX_DOWN));
    peer_end(peer);
    mailbox_pair_close(pair);
    drop_queue(events);
}

static void fault_points_drop_and_repeat(void **state)
{
    (void)state;
    ends e;
    join(&e, 64);
    mailbox_event_free(expect(e.left_events, MAILBOX_UP));
    char *once[] = { "message.drop:1:0:1" };
    fault_settings settings = { { 1, once } };
    assert_int_equal(fault_arm(&settings, NULL), STATUS_OK);
    mailbox_pair_send(e.right, SLICE("dropped"), false);
    fault_disarm_all();
    once[0] = "message.repeat:1:0:1";
    assert_int_equal(fault_arm(&settings, NULL), STATUS_OK);
    mailbox_pair_send(e.right, SLICE("twice"), false);
    fault_disarm_all();
    mailbox_pair_send(e.right, SLICE("end"), false);
    expect_text(e.left_events, "twice");
    expect_text(e.left_events, "twice");
    expect_text(e.left_events, "end");
    part(&e);
}

typedef struct sender {
    mailbox_pair *pair;
    atomic_bool *stop;
} sender;

static void *send_much(void *argument)
{
    sender *s = argument;
    while (!atomic_load(s->stop))
        if (mailbox_pair_send(s->pair, SLICE("0123456789"), true) != STATUS_OK)
            clock_sleep_us(200);
    return NULL;
}

static void pairs_may_close_at_any_moment(void **state)
{
    (void)state;
    for (int round = 0; round < 40; round++) {
        ends e = { .left_events = new_queue(round % 3 == 0 ? 3 : 4096),
                   .right_events = new_queue(64) };
        mailbox_limits limits = mailbox_limits_default;
        limits.outgoing_max = 64;
        e.left = listen_pair(e.left_events, &limits);
        assert_int_equal(mailbox_pair_dial(mailbox_pair_url(e.left), &limits, e.right_events, NULL,
                                           &e.right, NULL),
                         STATUS_OK);
        atomic_bool stop = false;
        pthread_t threads[2];
        sender senders[2] = { { e.left, &stop }, { e.right, &stop } };
        for (int i = 0; i < 2; i++)
            pthread_create(&threads[i], NULL, send_much, &senders[i]);
        clock_sleep_us((uint64_t)(round * 137 % 7) * 1000);
        mailbox_event_free(queue_pop(e.left_events));
        // One side goes while the other one sends.
        mailbox_pair *gone = round % 2 ? e.left : e.right;
        atomic_store(&stop, true);
        pthread_join(threads[round % 2 ? 0 : 1], NULL);
        mailbox_pair_close(gone);
        pthread_join(threads[round % 2 ? 1 : 0], NULL);
        mailbox_pair_close(round % 2 ? e.right : e.left);
        drop_queue(e.left_events);
        drop_queue(e.right_events);
    }
}

static void *flood_long(void *argument)
{
    sender *s = argument;
    while (!atomic_load(s->stop))
        flood(s->pair);
    return NULL;
}

// Both sides send all the time: sometimes it is a send that finds the peer dead, sometimes a
// receive, and in whatever place of a message.
static void peers_killed_in_full_flow_are_all_noticed(void **state)
{
    (void)state;
    for (int round = 0; round < 40; round++) {
        queue *events = new_queue(64);
        mailbox_pair *pair = listen_pair(events, &mailbox_limits_default);
        pid_t peer = peer_start("flood", mailbox_pair_url(pair));
        mailbox_event_free(expect(events, MAILBOX_UP));
        atomic_bool stop = false;
        sender here = { pair, &stop };
        pthread_t thread;
        assert_int_equal(pthread_create(&thread, NULL, flood_long, &here), 0);
        for (int i = 0; i < 300 + 7 * round; i++)
            mailbox_event_free(queue_pop_wait(events, 1000));
        peer_end(peer);
        mailbox_event *event;
        mailbox_event_kind event_kind;
        do {
            event = queue_pop_wait(events, patience_us);
            assert_non_null(event);
            event_kind = event->kind;
            mailbox_event_free(event);
        } while (event_kind != MAILBOX_DOWN);
        atomic_store(&stop, true);
        pthread_join(thread, NULL);
        mailbox_pair_close(pair);
        drop_queue(events);
    }
}

int main(int argc, char **argv)
{
    if (argc == 3)
        return peer_main(argv[1], argv[2]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(messages_arrive_in_order_after_up),
        cmocka_unit_test(a_full_event_queue_loses_nothing_and_down_comes_last),
        cmocka_unit_test(a_killed_peer_is_down),
        cmocka_unit_test(a_new_incarnation_gets_no_stale_message),
        cmocka_unit_test(a_stopped_peer_loses_nothing_and_sends_do_not_block),
        cmocka_unit_test(a_peer_that_never_reads_fills_the_list),
        cmocka_unit_test(urgent_messages_pass_waiting_ones),
        cmocka_unit_test(an_oversized_message_closes_the_connection),
        cmocka_unit_test(fault_points_drop_and_repeat),
        cmocka_unit_test(pairs_may_close_at_any_moment),
        cmocka_unit_test(peers_killed_in_full_flow_are_all_noticed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
