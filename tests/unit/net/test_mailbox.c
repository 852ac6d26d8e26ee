// Facts about mailbox pairs and the server. Peers that die, stop or never read are this same
// program, started again with a role (nng must not be used across a fork).
#include "net/mailbox.h"

#include "base/clock.h"
#include "base/fault.h"

#include <setjmp.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

extern char **environ;

static const int64_t patience_us = 10000000;

// ---- the other process -------------------------------------------------------------------------

// penstock test peer: dial the URL and echo every message; "deaf" never pops its events.
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
    for (;;) {
        mailbox_event *event = queue_pop_wait(events, 30000000);
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
    clock_sleep_us(50000); // the queue of two is full long before
    assert_int_equal(queue_size(e.left_events), 2);
    mailbox_event_free(expect(e.left_events, MAILBOX_UP));
    for (int i = 0; i < 300; i++) {
        snprintf(text, sizeof(text), "message %d", i);
        expect_text(e.left_events, text);
    }
    assert_int_equal(mailbox_pair_waiting(e.right), 0);
    assert_int_equal(mailbox_pair_send(e.right, SLICE("last"), false), STATUS_OK);
    while (mailbox_pair_waiting(e.right) > 0)
        clock_sleep_us(1000);
    clock_sleep_us(20000);
    mailbox_pair_close(e.right);
    e.right = NULL;
    expect_text(e.left_events, "last");
    mailbox_event_free(expect(e.left_events, MAILBOX_DOWN));
    assert_int_equal(mailbox_pair_send(e.left, SLICE("x"), false), STATUS_PEER_CLOSED);
    part(&e);
}

static void a_killed_peer_is_down_at_once(void **state)
{
    (void)state;
    queue *events = new_queue(64);
    mailbox_pair *pair = listen_pair(events, &mailbox_limits_default);
    pid_t peer = peer_start("echo", mailbox_pair_url(pair));
    mailbox_event_free(expect(events, MAILBOX_UP));
    assert_int_equal(mailbox_pair_send(pair, SLICE("hello"), false), STATUS_OK);
    expect_text(events, "hello");
    uint64_t begun_us = clock_now_us();
    peer_end(peer);
    mailbox_event_free(expect(events, MAILBOX_DOWN));
    assert_true(clock_now_us() - begun_us < 1000000);
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
    assert_int_equal(mailbox_pair_listen(url, &mailbox_limits_default, events, NULL, &pair, NULL),
                     STATUS_OK);
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
    limits.send_timeout_us = 50000;
    mailbox_pair *pair = listen_pair(events, &limits);
    pid_t peer = peer_start("echo", mailbox_pair_url(pair));
    mailbox_event_free(expect(events, MAILBOX_UP));
    kill(peer, SIGSTOP);
    uint64_t begun_us = clock_now_us();
    for (int i = 0; i < 200; i++)
        assert_int_equal(mailbox_pair_send(pair, SLICE("0123456789"), false), STATUS_OK);
    assert_true(clock_now_us() - begun_us < 1000000);
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
    limits.send_timeout_us = 20000;
    mailbox_pair *pair = listen_pair(events, &limits);
    pid_t peer = peer_start("deaf", mailbox_pair_url(pair));
    mailbox_event_free(expect(events, MAILBOX_UP));
    static char data[1000];
    slice message = { data, sizeof(data) };
    int accepted = 0;
    uint64_t end_us = clock_now_us() + (uint64_t)patience_us;
    // Nothing more fits when the list stayed full for many send timeouts.
    for (int full = 0; full < 100 && clock_now_us() < end_us;) {
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
    limits.send_timeout_us = 20000;
    mailbox_pair *pair = listen_pair(events, &limits);
    for (int i = 0; i < 20;
         i++) // nobody is there yet: a few messages are in nng, the rest in the lane
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
    assert_in_range(place, 0, 4);
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

static void a_server_answers_and_survives_unanswered_requests(void **state)
{
    (void)state;
    queue *events = new_queue(4);
    mailbox_server *server;
    error failure;
    assert_int_equal(mailbox_server_open("tcp://127.0.0.1:0", 1, &mailbox_limits_default, events,
                                         NULL, &server, &failure),
                     STATUS_OK);
    pid_t asker[2];
    char *arguments[] = { "peer", "ask", (char *)mailbox_server_url(server), NULL };
    assert_int_equal(posix_spawn(&asker[0], "/proc/self/exe", NULL, NULL, arguments, environ), 0);
    mailbox_event_free(expect(events, MAILBOX_REQUEST)); // no answer: it gives up
    int exit_status;
    waitpid(asker[0], &exit_status, 0);
    assert_int_equal(WEXITSTATUS(exit_status), STATUS_PEER_SILENT);
    assert_int_equal(posix_spawn(&asker[1], "/proc/self/exe", NULL, NULL, arguments, environ), 0);
    mailbox_event *event = expect(events, MAILBOX_REQUEST);
    assert_true(slice_equal(event->data, SLICE("question")));
    mailbox_reply(event, SLICE("answer"));
    waitpid(asker[1], &exit_status, 0);
    assert_int_equal(WEXITSTATUS(exit_status), STATUS_OK);
    mailbox_server_close(server);
    drop_queue(events);
}

static void a_server_may_close_before_its_events(void **state)
{
    (void)state;
    queue *events = new_queue(4);
    mailbox_server *server;
    assert_int_equal(mailbox_server_open("tcp://127.0.0.1:0", 2, &mailbox_limits_default, events,
                                         NULL, &server, NULL),
                     STATUS_OK);
    char *arguments[] = { "peer", "ask", (char *)mailbox_server_url(server), NULL };
    pid_t asker;
    assert_int_equal(posix_spawn(&asker, "/proc/self/exe", NULL, NULL, arguments, environ), 0);
    mailbox_event *event = expect(events, MAILBOX_REQUEST);
    mailbox_server_close(server);
    mailbox_reply(event, SLICE("too late"));
    waitpid(asker, NULL, 0);
    drop_queue(events);
}

static void a_bad_address_is_a_sentence(void **state)
{
    (void)state;
    queue *events = new_queue(4);
    mailbox_pair *pair;
    error failure = { 0 };
    assert_int_not_equal(mailbox_pair_listen("tcp://256.1.1.1:x", &mailbox_limits_default, events,
                                             NULL, &pair, &failure),
                         STATUS_OK);
    assert_non_null(strstr(failure.text, "256.1.1.1"));
    buffer reply = { 0 };
    assert_int_equal(mailbox_request("tcp://127.0.0.1:1", SLICE("x"), 200000, &reply, &failure),
                     STATUS_PEER_SILENT);
    buffer_close(&reply);
    queue_close(events);
}

static int ask_main(const char *url)
{
    buffer reply = { 0 };
    status result = mailbox_request(url, SLICE("question"), 500000, &reply, NULL);
    if (result == STATUS_OK && !slice_equal(buffer_slice(&reply), SLICE("answer")))
        result = STATUS_INTERNAL;
    buffer_close(&reply);
    return result;
}

int main(int argc, char **argv)
{
    if (argc == 3)
        return strcmp(argv[1], "ask") == 0 ? ask_main(argv[2]) : peer_main(argv[1], argv[2]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(messages_arrive_in_order_after_up),
        cmocka_unit_test(a_full_event_queue_loses_nothing_and_down_comes_last),
        cmocka_unit_test(a_killed_peer_is_down_at_once),
        cmocka_unit_test(a_new_incarnation_gets_no_stale_message),
        cmocka_unit_test(a_stopped_peer_loses_nothing_and_sends_do_not_block),
        cmocka_unit_test(a_peer_that_never_reads_fills_the_list),
        cmocka_unit_test(urgent_messages_pass_waiting_ones),
        cmocka_unit_test(an_oversized_message_closes_the_connection),
        cmocka_unit_test(fault_points_drop_and_repeat),
        cmocka_unit_test(a_server_answers_and_survives_unanswered_requests),
        cmocka_unit_test(a_server_may_close_before_its_events),
        cmocka_unit_test(a_bad_address_is_a_sentence),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
