// Facts about the mailbox server and requests. The asker is this same program, started again.
#include "net/mailbox.h"

#include "base/clock.h"

#include <setjmp.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

extern char **environ;

static const int64_t patience_us = 30000000;

// This program, started again: asks once.
static int ask_main(const char *url, const char *timeout_us)
{
    buffer reply = { 0 };
    status result = mailbox_request(url, SLICE("question"), atoll(timeout_us), &reply, NULL);
    if (result == STATUS_OK && !slice_equal(buffer_slice(&reply), SLICE("answer")))
        result = STATUS_INTERNAL;
    buffer_close(&reply);
    return result;
}

static pid_t ask(const mailbox_server *server, const char *timeout_us)
{
    char *arguments[] = { "asker", (char *)mailbox_server_url(server), (char *)timeout_us, NULL };
    pid_t asker;
    assert_int_equal(posix_spawn(&asker, "/proc/self/exe", NULL, NULL, arguments, environ), 0);
    return asker;
}

static mailbox_event *expect(queue *events, mailbox_event_kind kind)
{
    mailbox_event *event = queue_pop_wait(events, patience_us);
    assert_non_null(event);
    assert_int_equal(event->kind, kind);
    return event;
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

static void a_server_answers_and_survives_unanswered_requests(void **state)
{
    (void)state;
    queue *events = new_queue(4);
    mailbox_server *server;
    error failure;
    assert_int_equal(mailbox_server_open("tcp://127.0.0.1:0", 1, &mailbox_limits_default, events,
                                         NULL, &server, &failure),
                     STATUS_OK);
    pid_t asker = ask(server, "6000000");
    mailbox_event_free(expect(events, MAILBOX_REQUEST)); // no answer: it gives up
    int exit_status;
    waitpid(asker, &exit_status, 0);
    assert_int_equal(WEXITSTATUS(exit_status), STATUS_PEER_SILENT);
    asker = ask(server, "20000000");
    mailbox_event *event = expect(events, MAILBOX_REQUEST);
    assert_true(slice_equal(event->data, SLICE("question")));
    mailbox_reply(event, SLICE("answer"));
    waitpid(asker, &exit_status, 0);
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
    pid_t asker = ask(server, "20000000");
    mailbox_event *event = expect(events, MAILBOX_REQUEST);
    mailbox_server_close(server);
    mailbox_reply(event, SLICE("too late"));
    kill(asker, SIGKILL);
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

int main(int argc, char **argv)
{
    if (argc == 3)
        return ask_main(argv[1], argv[2]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_server_answers_and_survives_unanswered_requests),
        cmocka_unit_test(a_server_may_close_before_its_events),
        cmocka_unit_test(a_bad_address_is_a_sentence),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
