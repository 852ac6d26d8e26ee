// Facts about TLS between mailboxes. Authorities and certificates are made by openssl's command,
// without which the tests are skipped.
#include "bare_socket.h"

#include "net/mailbox.h"
#include "net/mailbox_meeting.h"

#include "base/clock.h"

#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

extern char **environ;

static char folder[] = "/tmp/penstock-tls-XXXXXX";
static bool works;

// Two authorities, one that signs routers and one that signs workers, and a certificate of each
// role.
static const char script[] =
    "cd %s && new='openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes' && "
    "for ca in routers workers; do"
    " $new -x509 -keyout $ca.key -out $ca.pem -subj /CN=$ca -days 30 || exit 1; done && "
    "for pair in router:routers prefill:workers decode:workers; do role=${pair%%:*} ca=${pair#*:};"
    " $new -keyout key -out request -subj /CN=$role &&"
    " echo subjectAltName=DNS:penstock-$role >names &&"
    " openssl x509 -req -in request -CA $ca.pem -CAkey $ca.key -CAcreateserial -days 30"
    " -extfile names -out certificate && cat certificate key >$role.pem || exit 1; done";

static int setup(void **state)
{
    (void)state;
    char command[2048];
    if (mkdtemp(folder) == NULL)
        return 1;
    snprintf(command, sizeof(command), "(");
    snprintf(command + 1, sizeof(command) - 1, script, folder);
    strcat(command, ") >/dev/null 2>&1");
    works = system(command) == 0;
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    char command[128];
    snprintf(command, sizeof(command), "rm -r %s", folder);
    return system(command);
}

// From now on this process is `role`, whose peers are those that `ca` signed.
static void become(const char *role, const char *ca)
{
    char certificate[128], authority[128];
    mailbox_security own = { certificate, authority };
    error failure = { 0 };
    snprintf(certificate, sizeof(certificate), "%s/%s.pem", folder, role);
    snprintf(authority, sizeof(authority), "%s/%s.pem", folder, ca);
    if (mailbox_security_start(&own, &failure) != STATUS_OK)
        fail_msg("%s", failure.text);
}

static int plain(void **state)
{
    (void)state;
    mailbox_security none = { NULL, NULL };
    return mailbox_security_start(&none, NULL) != STATUS_OK;
}

typedef struct ends {
    mailbox_pair *left, *right;
    queue *left_events, *right_events;
} ends;

// A decode worker waits for its router; `dialler` comes and asks for `name`.
static ends meet(const char *dialler, const char *ca, const char *name)
{
    ends e = { 0 };
    error failure = { 0 };
    mailbox_limits limits = mailbox_limits_default;
    limits.peer_name = name;
    assert_int_equal(queue_open(64, &e.left_events), STATUS_OK);
    assert_int_equal(queue_open(64, &e.right_events), STATUS_OK);
    become("decode", "routers");
    assert_int_equal(mailbox_pair_listen("tls+tcp://127.0.0.1:0", &limits, e.left_events, NULL,
                                         &e.left, &failure),
                     STATUS_OK);
    const char *url = mailbox_pair_url(e.left);
    assert_null(strstr(url, ":0")); // the port that the system picked
    become(dialler, ca);
    assert_int_equal(mailbox_pair_dial(url, &limits, e.right_events, NULL, &e.right, &failure),
                     STATUS_OK);
    return e;
}

static void part(ends *e)
{
    mailbox_pair_close(e->left);
    mailbox_pair_close(e->right);
    for (mailbox_event *event; (event = queue_pop(e->left_events)) != NULL;)
        mailbox_event_free(event);
    for (mailbox_event *event; (event = queue_pop(e->right_events)) != NULL;)
        mailbox_event_free(event);
    queue_close(e->left_events);
    queue_close(e->right_events);
}

static void a_router_and_a_worker_meet(void **state)
{
    (void)state;
    if (!works)
        skip();
    ends e = meet("router", "workers", MAILBOX_DECODE);
    mailbox_event *event = queue_pop_wait(e.right_events, 20000000);
    assert_non_null(event);
    assert_int_equal(event->kind, MAILBOX_UP);
    mailbox_event_free(event);
    assert_int_equal(mailbox_pair_send(e.right, SLICE("ticket"), false), STATUS_OK);
    for (bool message = false; !message; mailbox_event_free(event)) {
        event = queue_pop_wait(e.left_events, 20000000);
        assert_non_null(event);
        message = event->kind == MAILBOX_MESSAGE;
        assert_true(!message || slice_equal(event->data, SLICE("ticket")));
    }
    part(&e);
}

static void strangers_that_say_nothing_lose_their_places(void **state)
{
    (void)state;
    if (!works)
        skip();
    mailbox_pair *pairs[2];
    queue *events[2];
    error failure;
    mailbox_limits limits = mailbox_limits_default;
    limits.peer_name = MAILBOX_DECODE;
    int strangers[MEETING_GUESTS], usual_ms = mailbox_greeting_ms;
    for (int i = 0; i < 2; i++)
        assert_int_equal(queue_open(64, &events[i]), STATUS_OK);
    become("decode", "routers");
    mailbox_greeting_ms = 1000;
    assert_int_equal(
        mailbox_pair_listen("tls+tcp://127.0.0.1:0", &limits, events[0], NULL, &pairs[0], &failure),
        STATUS_OK);
    mailbox_greeting_ms = usual_ms;
    const char *url = mailbox_pair_url(pairs[0]);
    for (int i = 0; i < MEETING_GUESTS; i++)
        strangers[i] = bare_reach(url);
    for (int i = 0; i < MEETING_GUESTS; i++)
        bare_hear_end(strangers[i]);
    become("router", "workers");
    assert_int_equal(mailbox_pair_dial(url, &limits, events[1], NULL, &pairs[1], &failure),
                     STATUS_OK);
    mailbox_event *event = queue_pop_wait(events[1], 20000000);
    assert_non_null(event);
    assert_int_equal(event->kind, MAILBOX_UP);
    mailbox_event_free(event);
    part(&(ends){ pairs[0], pairs[1], events[0], events[1] });
}

// Who dials gives a machine up that takes connections and says nothing, and tries again.
static void a_silent_peer_is_dialled_again(void **state)
{
    (void)state;
    if (!works)
        skip();
    struct sockaddr_in at = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t size = sizeof at;
    int fd = socket(AF_INET, SOCK_STREAM, 0), usual_ms = mailbox_greeting_ms;
    bare_wait_long(fd);
    assert_int_equal(bind(fd, (struct sockaddr *)&at, sizeof at), 0);
    assert_int_equal(listen(fd, 8), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&at, &size), 0);
    char url[64];
    mailbox_pair *pair;
    queue *events;
    error failure;
    mailbox_limits limits = mailbox_limits_default;
    limits.peer_name = MAILBOX_DECODE;
    snprintf(url, sizeof url, "tls+tcp://127.0.0.1:%d", ntohs(at.sin_port));
    assert_int_equal(queue_open(64, &events), STATUS_OK);
    become("router", "workers");
    mailbox_greeting_ms = 200;
    assert_int_equal(mailbox_pair_dial(url, &limits, events, NULL, &pair, &failure), STATUS_OK);
    mailbox_greeting_ms = usual_ms;
    for (int i = 0; i < 3; i++) {
        int taken;
        do
            taken = accept(fd, NULL, NULL);
        while (taken < 0 && errno == EINTR);
        assert_true(taken >= 0);
        bare_wait_long(taken);
        bare_hear_end(taken);
    }
    mailbox_pair_close(pair);
    assert_null(queue_pop(events));
    queue_close(events);
    close(fd);
}

// Whoever is turned away tries again and again; no connection stands in the time.
static void expect_no_meeting(ends e)
{
    clock_sleep_us(500000);
    assert_null(queue_pop(e.left_events));
    part(&e);
}

static void a_worker_of_another_role_is_not_taken(void **state)
{
    (void)state;
    if (!works)
        skip();
    expect_no_meeting(meet("router", "workers", MAILBOX_PREFILL));
}

static void a_worker_does_not_pass_for_a_router(void **state)
{
    (void)state;
    if (!works)
        skip();
    expect_no_meeting(meet("prefill", "workers", MAILBOX_DECODE));
}

// This program, started again: a router that sends all the time.
static int peer_main(const char *files, const char *url)
{
    queue *events;
    mailbox_pair *pair;
    mailbox_limits limits = mailbox_limits_default;
    limits.peer_name = MAILBOX_DECODE;
    snprintf(folder, sizeof(folder), "%s", files);
    become("router", "workers");
    if (queue_open(1024, &events) != STATUS_OK ||
        mailbox_pair_dial(url, &limits, events, NULL, &pair, NULL) != STATUS_OK)
        return 1;
    for (;;) {
        if (mailbox_pair_send(pair, SLICE("ticket"), false) != STATUS_OK)
            clock_sleep_us(200);
        mailbox_event_free(queue_pop(events));
    }
}

// With traffic both ways, some of it on its way when the peer is killed.
static void a_killed_peer_is_noticed_amid_traffic(void **state)
{
    (void)state;
    if (!works)
        skip();
    become("decode", "routers");
    for (int round = 0; round < 5; round++) {
        queue *events;
        mailbox_pair *pair;
        mailbox_event *event = NULL;
        pid_t peer;
        assert_int_equal(queue_open(64, &events), STATUS_OK);
        assert_int_equal(mailbox_pair_listen("tls+tcp://127.0.0.1:0", &mailbox_limits_default,
                                             events, NULL, &pair, NULL),
                         STATUS_OK);
        char *arguments[] = { "peer", folder, (char *)mailbox_pair_url(pair), NULL };
        assert_int_equal(posix_spawn(&peer, "/proc/self/exe", NULL, NULL, arguments, environ), 0);
        bool down = false;
        for (int i = 0; !down; i++) {
            event = queue_pop_wait(events, i < 2 ? 30000000 : 10000);
            down = event != NULL && event->kind == MAILBOX_DOWN;
            mailbox_event_free(event);
            status sent = mailbox_pair_send(pair, SLICE("tokens"), false);
            assert_true(sent != STATUS_NO_MEMORY && i < 100000);
            if (i == 300) {
                kill(peer, SIGKILL);
                waitpid(peer, NULL, 0);
            }
        }
        mailbox_pair_close(pair);
        for (; (event = queue_pop(events)) != NULL;)
            mailbox_event_free(event);
        queue_close(events);
    }
}

static status ask(const char *role, const char *ca, const char *url)
{
    buffer reply = { 0 };
    if (role)
        become(role, ca);
    status result = mailbox_request(url, SLICE("question"), 700000, &reply, NULL);
    buffer_close(&reply);
    return result;
}

// On a thread: with time for it, and for an answer.
static void *ask_long(void *url)
{
    buffer reply = { 0 };
    status result = mailbox_request(url, SLICE("question"), 20000000, &reply, NULL);
    bool good = result == STATUS_OK && slice_equal(buffer_slice(&reply), SLICE("answer"));
    buffer_close(&reply);
    return good ? url : NULL;
}

static void only_workers_are_heard_by_a_router(void **state)
{
    (void)state;
    if (!works)
        skip();
    mailbox_server *server;
    queue *events;
    char plain_url[64];
    error failure;
    assert_int_equal(queue_open(64, &events), STATUS_OK);
    become("router", "workers");
    assert_int_equal(mailbox_server_open("tls+tcp://127.0.0.1:0", 2, &mailbox_limits_default,
                                         events, NULL, &server, &failure),
                     STATUS_OK);
    const char *url = mailbox_server_url(server);
    snprintf(plain_url, sizeof(plain_url), "%s", url + 4);               // tcp://
    assert_int_equal(ask("router", "routers", url), STATUS_PEER_SILENT); // no worker
    assert_int_equal(ask("decode", "workers", url), STATUS_PEER_SILENT); // takes no router for one
    assert_int_equal(ask(NULL, NULL, plain_url), STATUS_PEER_SILENT);
    assert_null(queue_pop(events)); // none of them was heard
    become("decode", "routers");
    pthread_t asker;
    void *answered;
    assert_int_equal(pthread_create(&asker, NULL, ask_long, (char *)url), 0);
    mailbox_event *event = queue_pop_wait(events, 20000000);
    assert_non_null(event);
    assert_int_equal(event->kind, MAILBOX_REQUEST);
    assert_true(slice_equal(event->data, SLICE("question")));
    mailbox_reply(event, SLICE("answer"));
    assert_int_equal(pthread_join(asker, &answered), 0);
    assert_non_null(answered);
    mailbox_server_close(server);
    for (; (event = queue_pop(events)) != NULL;)
        mailbox_event_free(event);
    clock_sleep_us(300000); // closed on a thread of its own
    queue_close(events);
}

static void wrong_files_and_addresses_are_named(void **state)
{
    (void)state;
    error failure = { 0 };
    mailbox_security one = { (char *)"/nowhere/certificate.pem", (char *)"" };
    assert_int_equal(mailbox_security_start(&one, &failure), STATUS_BAD_CONFIG);
    assert_string_equal(failure.param, "security.peers_ca");
    one.peers_ca = (char *)"/nowhere/ca.pem";
    assert_int_equal(mailbox_security_start(&one, &failure), STATUS_BAD_CONFIG);
    assert_string_equal(failure.param, "security.certificate");
    assert_non_null(strstr(failure.text, "/nowhere/certificate.pem"));
    assert_int_equal(mailbox_url_check("control.listen", "tcp://10.0.0.1:1", &failure), STATUS_OK);
    assert_int_equal(mailbox_url_check("control.listen", "ipc:///tmp/x", &failure), STATUS_OK);
    assert_int_equal(mailbox_url_check("control.listen", "tls+tcp://10.0.0.1:1", &failure),
                     STATUS_BAD_CONFIG);
    assert_non_null(strstr(failure.text, "control.listen has \"tls+tcp://10.0.0.1:1\""));
    if (!works)
        return;
    become("router", "workers");
    assert_int_equal(mailbox_url_check("control.listen", "tls+tcp://10.0.0.1:1", &failure),
                     STATUS_OK);
    assert_int_equal(mailbox_url_check("control.listen", "tcp://10.0.0.1:1", &failure),
                     STATUS_BAD_CONFIG);
}

#define TEST(name) cmocka_unit_test_teardown(name, plain)

int main(int argc, char **argv)
{
    if (argc == 3)
        return peer_main(argv[1], argv[2]);
    const struct CMUnitTest tests[] = {
        TEST(a_router_and_a_worker_meet),
        TEST(a_worker_of_another_role_is_not_taken),
        TEST(a_worker_does_not_pass_for_a_router),
        TEST(only_workers_are_heard_by_a_router),
        TEST(wrong_files_and_addresses_are_named),
        TEST(a_killed_peer_is_noticed_amid_traffic),
        TEST(strangers_that_say_nothing_lose_their_places),
        TEST(a_silent_peer_is_dialled_again),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
