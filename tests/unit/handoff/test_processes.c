// limit: 120
// Two processes over loopback TCP, one of which is killed or stopped at any moment. The other
// process is this program again, started by exec with the name of its role.
#include "peer.h"

#include "base/log.h"

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

#include <signal.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define SECOND 1000000
#define PATIENCE (60 * SECOND) // for whatever comes, on a machine that may stand still meanwhile
#define LANES 8                // transfers at a time
#define PAGES 12
#define PAGE_BYTES 60000u
#define ROUTER 9u
#define TEST_INCARNATION 77u

extern char **environ;

// Transfer `number` lives in the pages of its lane, at both sides, and holds content `number`.
static int32_t lane_page(uint64_t number, int32_t index)
{
    return (int32_t)(number % LANES) * (PAGES + 2) + index;
}

// The first number with a child of this incarnation: no key is ever used twice, as no request is. A
// process remembers which of its sends are over, and a seat of such a key is answered with that.
static uint64_t first_number(uint64_t incarnation)
{
    return incarnation * 1024 * LANES;
}

static handoff_key key_of(uint64_t number)
{
    return (handoff_key){ ROUTER, number, 1 };
}

static char *host_or(const char *variable)
{
    return getenv(variable) ? getenv(variable) : "127.0.0.1";
}

// Takes nobody for dead who is only slow. Deadlines are looked at 20 times in that time, and a stop
// is one from a fifth of it on.
static void be_patient(peer *p)
{
    p->settings.suspect_us = p->settings.fail_us = PATIENCE / 6;
}

// ---- the two roles, for parent and child alike
// -----------------------------------------------------

static void sender_begin(peer *p, uint64_t number, const handoff_peer *address)
{
    for (int32_t i = 0; i < PAGES; i++)
        peer_fill(p, lane_page(number, i), (uint32_t)number, (uint32_t)i);
    handoff_send_begin(p->h, key_of(number), address);
}

static void sender_send(peer *p, uint64_t number)
{
    int32_t pages[PAGES];
    handoff_record record = { .computed = PAGES * (int32_t)PEER_PAGE_TOKENS,
                              .next_token = (int32_t)(number % 1000) };
    peer_pages(pages, PAGES, lane_page(number, 0), 1);
    handoff_send_pages(p->h, key_of(number), 0, pages, PAGES);
    handoff_send_end(p->h, key_of(number), &record);
}

static void receiver_open(peer *p, uint64_t number, uint64_t incarnation)
{
    static uint64_t generation;
    int32_t pages[PAGES + 1];
    peer_pages(pages, PAGES + 1, lane_page(number, 0), 1);
    handoff_admit(p->h, incarnation, (handoff_token){ { 0 } });
    handoff_seat_open(p->h, key_of(number), incarnation, ++generation, pages, PAGES + 1, 0);
}

static bool receiver_holds(const peer *p, uint64_t number)
{
    for (int32_t i = 0; i < PAGES; i++)
        if (!peer_holds(p, lane_page(number, i), (uint32_t)number, (uint32_t)i))
            return false;
    return true;
}

typedef struct progress {
    int done, ended;      // whole transfers; transfers that failed
    status code;          // of the last failure
    bool stop;            // begin no more
    uint64_t live[LANES]; // receiver: what was opened last in each lane
} progress;

// Take the events that are there and keep every lane busy.
static void sender_work(peer *p, progress *w, const handoff_peer *address)
{
    handoff_event *event;
    while ((event = handoff_event_next(p->h))) {
        uint64_t number = event->key.number;
        if (event->kind == HANDOFF_SEAT_READY)
            sender_send(p, number);
        w->done += event->kind == HANDOFF_DELIVERED;
        if (event->kind == HANDOFF_SEND_OVER) {
            w->ended++;
            w->code = event->code;
        }
        if (event->kind == HANDOFF_DELIVERED && !w->stop)
            sender_begin(p, number + LANES, address);
        handoff_event_free(event);
    }
}

static void receiver_work(peer *p, progress *w, uint64_t incarnation)
{
    handoff_event *event;
    while ((event = handoff_event_next(p->h))) {
        uint64_t number = event->key.number;
        if (event->kind == HANDOFF_SEAT_FILLED) {
            if (!receiver_holds(p, number) || event->record.next_token != (int32_t)(number % 1000))
                abort();
            w->done++;
            if (!w->stop) {
                w->live[number % LANES] = number + LANES;
                receiver_open(p, number + LANES, incarnation);
            }
        }
        if (event->kind == HANDOFF_SEAT_FAILED) {
            w->code = event->code;
            handoff_seat_close(p->h, event->key);
        }
        w->ended += event->kind == HANDOFF_SEAT_OVER;
        handoff_event_free(event);
    }
}

// ---- the child
// -------------------------------------------------------------------------------------

static int child_sender(char **argv)
{
    peer p;
    progress w = { 0 };
    handoff_peer address = { .incarnation = TEST_INCARNATION };
    snprintf(address.host, sizeof(address.host), "%s", host_or("PENSTOCK_TEST_HOST"));
    address.port = (uint16_t)strtoul(argv[2], NULL, 10);
    peer_prepare(&p, strtoull(argv[3], NULL, 10), PAGE_BYTES);
    p.settings.host = host_or("PENSTOCK_TEST_FAR");
    be_patient(&p);
    peer_open(&p, false);
    uint64_t first = first_number(strtoull(argv[3], NULL, 10));
    for (uint64_t i = 0; i < LANES; i++)
        sender_begin(&p, first + i, &address);
    while (!w.stop) { // until it is killed
        sender_work(&p, &w, &address);
        clock_sleep_us(200);
    }
    return 0;
}

// Until this process was stopped and goes on, and has looked at its deadlines.
static void wait_for_a_stop(void)
{
    uint64_t before_us = clock_now_us(), now_us;
    while (now_us = clock_now_us(), now_us - before_us < 2 * SECOND) {
        before_us = now_us;
        clock_sleep_us(10000);
    }
    clock_sleep_us(300000);
}

// "late": nobody is admitted before it was stopped.
static int child_receiver(char **argv)
{
    peer p;
    progress w = { 0 };
    char host[64];
    uint16_t port;
    peer_prepare(&p, strtoull(argv[3], NULL, 10), PAGE_BYTES);
    p.settings.host = host_or("PENSTOCK_TEST_FAR");
    if (strcmp(argv[1], "late") != 0)
        be_patient(&p);
    peer_open(&p, true);
    handoff_address(p.h, host, &port);
    if (write(STDOUT_FILENO, &port, sizeof(port)) != sizeof(port))
        return 1;
    dup2(STDERR_FILENO, STDOUT_FILENO); // the pipe was for the port only, and UCX writes there
    if (strcmp(argv[1], "late") == 0)
        wait_for_a_stop();
    uint64_t first = first_number(strtoull(argv[3], NULL, 10));
    for (uint64_t i = 0; i < LANES; i++)
        receiver_open(&p, first + i, TEST_INCARNATION);
    while (!w.stop) {
        receiver_work(&p, &w, TEST_INCARNATION);
        clock_sleep_us(200);
    }
    return 0;
}

// ---- the parent
// ------------------------------------------------------------------------------------

typedef struct child {
    pid_t pid;
    uint64_t incarnation;
    uint16_t port;
} child;

static child start(const char *role, uint16_t port)
{
    static uint64_t incarnations = 5000;
    child c = { .incarnation = ++incarnations };
    char port_text[8], incarnation_text[24];
    int pipe_fds[2];
    snprintf(port_text, sizeof(port_text), "%u", port);
    snprintf(incarnation_text, sizeof(incarnation_text), "%llu", (unsigned long long)c.incarnation);
    char self[512] = { 0 }, *name = getenv("PENSTOCK_TEST_NAMESPACE");
    assert_true(readlink("/proc/self/exe", self, sizeof(self) - 1) > 0);
    // UCX reads the list of devices from /sys, which `ip netns exec` mounts anew.
    char *argv[] = { "ip",         "netns",   "exec",           name, self,
                     (char *)role, port_text, incarnation_text, NULL };
    char **command = name ? argv : argv + 4;
    unsetenv("UCX_NET_DEVICES"); // the child has its own
    posix_spawn_file_actions_t actions;
    assert_int_equal(pipe2(pipe_fds, O_CLOEXEC), 0);
    posix_spawn_file_actions_init(&actions);
    bool tells = strcmp(role, "sender") != 0;
    posix_spawn_file_actions_adddup2(&actions, tells ? pipe_fds[1] : STDERR_FILENO, STDOUT_FILENO);
    assert_int_equal(posix_spawnp(&c.pid, command[0], &actions, NULL, command, environ), 0);
    posix_spawn_file_actions_destroy(&actions);
    close(pipe_fds[1]);
    if (tells)
        assert_int_equal(read(pipe_fds[0], &c.port, sizeof(c.port)), sizeof(c.port));
    close(pipe_fds[0]);
    return c;
}

static void silence(const child *c)
{
    if (getenv("PENSTOCK_TEST_CUT"))
        assert_int_equal(system(getenv("PENSTOCK_TEST_CUT")), 0);
    else
        kill(c->pid, SIGSTOP);
}

static void reap(const child *c)
{
    int state;
    kill(c->pid, SIGKILL);
    assert_int_equal(waitpid(c->pid, &state, 0), c->pid);
    assert_true(WIFSIGNALED(state) && WTERMSIG(state) == SIGKILL); // it did not die by itself
}

#define WORK_UNTIL(condition, work)                                                                \
    do {                                                                                           \
        uint64_t end_us = clock_now_us() + PATIENCE;                                               \
        while (work, !(condition)) {                                                               \
            if (clock_now_us() > end_us)                                                           \
                fail_msg("not in time: %s (done %d, ended %d, code %d)", #condition, w.done,       \
                         w.ended, (int)w.code);                                                    \
            clock_sleep_us(200);                                                                   \
        }                                                                                          \
    } while (0)

static void expect_nothing_left(peer *p)
{
    handoff_stats stats;
    uint64_t end_us = clock_now_us() + PATIENCE;
    do {
        handoff_stats_of(p->h, &stats);
        clock_sleep_us(1000);
    } while ((stats.sends_open || stats.seats_open || stats.peers_open) && clock_now_us() < end_us);
    assert_int_equal(stats.sends_open + stats.seats_open + stats.peers_open, 0);
    assert_int_equal(stats.pages_quarantined, 0);
}

// How long something took, for whoever reads: it fails nothing.
static uint64_t tell_time(const char *what, uint64_t since_us)
{
    uint64_t took_us = clock_now_us() - since_us;
    print_message("%s after %llu ms\n", what, (unsigned long long)took_us / 1000);
    return took_us;
}

static int cycles(void)
{
    return getenv("PENSTOCK_CYCLES") ? atoi(getenv("PENSTOCK_CYCLES")) : 20;
}

static void b089_a_killed_prefill_worker_costs_only_its_transfers(void **state)
{
    (void)state;
    peer p;
    char host[64];
    uint16_t port;
    int files = 0;
    peer_prepare(&p, TEST_INCARNATION, PAGE_BYTES);
    p.settings.host = host_or("PENSTOCK_TEST_HOST");
    be_patient(&p); // that the other one is dead shows in its connection
    peer_open(&p, true);
    handoff_address(p.h, host, &port);
    for (int cycle = 0; cycle < cycles(); cycle++) {
        progress w = { 0 };
        child c = start("sender", port);
        for (uint64_t i = 0; i < LANES; i++) {
            w.live[i] = first_number(c.incarnation) + i;
            receiver_open(&p, w.live[i], c.incarnation);
        }
        WORK_UNTIL(w.done > cycle % 7, receiver_work(&p, &w, c.incarnation));
        w.stop = true;
        uint64_t killed_us = clock_now_us();
        int before = w.done;
        reap(&c);
        bool half_a_second = false;
        WORK_UNTIL(half_a_second || w.done - before + w.ended == LANES,
                   (receiver_work(&p, &w, c.incarnation),
                    half_a_second = clock_now_us() - killed_us > SECOND / 2));
        // A seat that was opened after the pair had died waits for the worker to come again. The
        // router, which knows better, cancels it.
        for (int i = 0; i < LANES; i++)
            handoff_seat_close(p.h, key_of(w.live[i]));
        WORK_UNTIL(w.done - before + w.ended == LANES, receiver_work(&p, &w, c.incarnation));
        expect_nothing_left(&p);
        assert_true(w.code == STATUS_OK || w.code == STATUS_PEER_CLOSED);
        tell_time("over", killed_us);
        if (cycle == 2)
            files = peer_open_files();
    }
    if (files)
        assert_int_equal(peer_open_files(), files);
    peer_close(&p);
}

static void b089_a_killed_decode_worker_costs_only_its_transfers(void **state)
{
    (void)state;
    peer p;
    int files = 0;
    peer_prepare(&p, TEST_INCARNATION, PAGE_BYTES);
    p.settings.host = host_or("PENSTOCK_TEST_HOST");
    be_patient(&p); // that the other one is dead shows in its connection
    peer_open(&p, false);
    for (int cycle = 0; cycle < cycles(); cycle++) {
        progress w = { 0 };
        child c = start("receiver", 0);
        handoff_peer address = { .incarnation = c.incarnation, .port = c.port };
        snprintf(address.host, sizeof(address.host), "%s", host_or("PENSTOCK_TEST_FAR"));
        for (uint64_t i = 0; i < LANES; i++)
            sender_begin(&p, first_number(c.incarnation) + i, &address);
        WORK_UNTIL(w.done > cycle % 7, sender_work(&p, &w, &address));
        w.stop = true;
        int before = w.done;
        reap(&c);
        WORK_UNTIL(w.done - before + w.ended == LANES, sender_work(&p, &w, &address));
        expect_nothing_left(&p);
        sender_work(&p, &w, &address);
        assert_true(w.ended == 0 || w.code == STATUS_PEER_CLOSED);
        if (cycle == 2)
            files = peer_open_files();
    }
    if (files)
        assert_int_equal(peer_open_files(), files);
    peer_close(&p);
}

static void b082_a_stopped_prefill_worker_is_given_up_and_writes_nothing_later(void **state)
{
    (void)state;
    peer p;
    char host[64];
    uint16_t port;
    progress w = { 0 };
    peer_prepare(&p, TEST_INCARNATION, PAGE_BYTES);
    p.settings.host = host_or("PENSTOCK_TEST_HOST");
    peer_open(&p, true);
    handoff_address(p.h, host, &port);
    child c = start("sender", port);
    for (uint64_t i = 0; i < LANES; i++)
        receiver_open(&p, first_number(c.incarnation) + i, c.incarnation);
    WORK_UNTIL(w.done > 20, receiver_work(&p, &w, c.incarnation));
    uint64_t stopped_us = clock_now_us();
    silence(&c);
    WORK_UNTIL(w.ended == LANES, receiver_work(&p, &w, c.incarnation));
    assert_true(tell_time("given up", stopped_us) > SECOND);
    assert_int_equal(w.code, STATUS_PEER_SILENT);
    expect_nothing_left(&p);
    memset(p.pool, 0, PEER_PAGES * p.page_bytes); // the pages are ours again
    kill(c.pid, SIGCONT);
    clock_sleep_us(300000);
    for (int32_t i = 0; i < PEER_PAGES; i++)
        assert_true(peer_untouched(&p, i));
    reap(&c);
    peer_close(&p);
}

static void b082_a_stopped_decode_worker_is_given_up(void **state)
{
    (void)state;
    peer p;
    progress w = { 0 };
    peer_prepare(&p, TEST_INCARNATION, PAGE_BYTES);
    p.settings.host = host_or("PENSTOCK_TEST_HOST");
    peer_open(&p, false);
    child c = start("receiver", 0);
    handoff_peer address = { .incarnation = c.incarnation, .port = c.port };
    snprintf(address.host, sizeof(address.host), "%s", host_or("PENSTOCK_TEST_FAR"));
    for (uint64_t i = 0; i < LANES; i++)
        sender_begin(&p, first_number(c.incarnation) + i, &address);
    WORK_UNTIL(w.done > 20, sender_work(&p, &w, &address));
    uint64_t stopped_us = clock_now_us();
    silence(&c);
    WORK_UNTIL(w.ended > 0, sender_work(&p, &w, &address));
    tell_time("given up", stopped_us);
    assert_int_equal(w.code, STATUS_PEER_SILENT);
    expect_nothing_left(&p);
    reap(&c);
    peer_close(&p);
}

// A decode worker stands still for longer than a set-up may last; the prefill worker is patient.
// It connects `before` that, or afterwards.
static void send_to_one_that_stops(const char *role, bool before, int64_t stop_us)
{
    peer p;
    progress w = { 0 };
    peer_prepare(&p, TEST_INCARNATION, PAGE_BYTES);
    p.settings.host = host_or("PENSTOCK_TEST_HOST");
    p.settings.suspect_us = p.settings.fail_us = p.settings.connect_us = PATIENCE;
    peer_open(&p, false);
    child c = start(role, 0);
    handoff_peer address = { .incarnation = c.incarnation, .port = c.port };
    snprintf(address.host, sizeof(address.host), "%s", host_or("PENSTOCK_TEST_FAR"));
    for (uint64_t i = 0; i < LANES && before; i++)
        sender_begin(&p, first_number(c.incarnation) + i, &address);
    clock_sleep_us(500000);
    kill(c.pid, SIGSTOP);
    clock_sleep_us((uint64_t)stop_us);
    kill(c.pid, SIGCONT);
    clock_sleep_us(100000);
    for (uint64_t i = 0; i < LANES && !before; i++)
        sender_begin(&p, first_number(c.incarnation) + i, &address);
    WORK_UNTIL(w.done > 0, sender_work(&p, &w, &address));
    assert_int_equal(w.ended, 0);
    reap(&c);
    peer_close(&p);
}

static void a_stop_takes_no_time_from_a_greeting(void **state)
{
    (void)state;
    send_to_one_that_stops("late", true, 4 * SECOND);
}

static void a_stop_takes_no_time_from_an_admission(void **state)
{
    (void)state;
    send_to_one_that_stops("receiver", false, 7 * SECOND);
}

int main(int argc, char **argv)
{
    fabric_exec(argv);
    log_level_set(getenv("PENSTOCK_VERBOSE") ? LOG_INFO : LOG_ERROR);
    if (argc == 4) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        return strcmp(argv[1], "sender") == 0 ? child_sender(argv) : child_receiver(argv);
    }
    if (getenv("PENSTOCK_TEST_ONLY"))
        cmocka_set_test_filter(getenv("PENSTOCK_TEST_ONLY"));
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(b089_a_killed_prefill_worker_costs_only_its_transfers),
        cmocka_unit_test(b089_a_killed_decode_worker_costs_only_its_transfers),
        cmocka_unit_test(b082_a_stopped_prefill_worker_is_given_up_and_writes_nothing_later),
        cmocka_unit_test(b082_a_stopped_decode_worker_is_given_up),
        cmocka_unit_test(a_stop_takes_no_time_from_a_greeting),
        cmocka_unit_test(a_stop_takes_no_time_from_an_admission),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
