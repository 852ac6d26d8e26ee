// What a pair says and hears on its connection, byte by byte: the other side is a bare socket.
#include "bare_socket.h"

#include "net/mailbox.h"
#include "net/mailbox_meeting.h"
#include "net/mailbox_wire.h"

#include "base/clock.h"

#include <errno.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

static const int64_t patience_us = 30000000;
static const int usual_greeting_ms = 10000;
static const uint8_t greeting[] = { 0, 'S', 'P', 0, 0, 16, 0, 0 };

// ---- helpers -----------------------------------------------------------------------------------

typedef struct fixture {
    queue *events;
    mailbox_pair *pair;
} fixture;

static fixture fixture_open(void)
{
    fixture f;
    error failure;
    mailbox_limits limits = mailbox_limits_default;
    limits.message_max = 1 << 20;
    assert_int_equal(queue_open(1024, &f.events), STATUS_OK);
    assert_int_equal(
        mailbox_pair_listen("tcp://127.0.0.1:0", &limits, f.events, NULL, &f.pair, &failure),
        STATUS_OK);
    return f;
}

static void fixture_close(fixture *f)
{
    mailbox_pair_close(f->pair);
    for (mailbox_event *event; (event = queue_pop(f->events)) != NULL;)
        mailbox_event_free(event);
    queue_close(f->events);
}

static mailbox_event *expect(queue *events, mailbox_event_kind kind)
{
    mailbox_event *event = queue_pop_wait(events, patience_us);
    assert_non_null(event);
    assert_int_equal(event->kind, kind);
    return event;
}

static void expect_message(queue *events, slice wanted)
{
    mailbox_event *event = expect(events, MAILBOX_MESSAGE);
    assert_int_equal(event->data.size, wanted.size);
    assert_memory_equal(event->data.data, wanted.data, wanted.size);
    mailbox_event_free(event);
}

static void say(int fd, const void *bytes, size_t size)
{
    assert_int_equal(send(fd, bytes, size, MSG_NOSIGNAL), size);
}

// So many bytes, or as many as come. A process that was stopped and goes on is interrupted.
static size_t receive(int fd, uint8_t *to, size_t size)
{
    size_t have = 0;
    while (have < size) {
        ssize_t got = recv(fd, to + have, size - have, 0);
        if (got <= 0 && !(got < 0 && errno == EINTR))
            break;
        have += got > 0 ? (size_t)got : 0;
    }
    return have;
}

static void hear(int fd, const void *wanted, size_t size)
{
    uint8_t got[256];
    assert_true(size <= sizeof got);
    assert_int_equal(receive(fd, got, size), size);
    assert_memory_equal(got, wanted, size);
}

static int meet(fixture *f)
{
    int fd = bare_reach(mailbox_pair_url(f->pair));
    say(fd, greeting, sizeof greeting);
    hear(fd, greeting, sizeof greeting);
    mailbox_event_free(expect(f->events, MAILBOX_UP));
    return fd;
}

// ---- facts -------------------------------------------------------------------------------------

static void heads_tell_the_size(void **state)
{
    (void)state;
    static const uint8_t tcp[] = { 0, 0, 0, 0, 0, 1, 2, 3 }, ipc[] = { 1, 0, 0, 0, 0, 0, 1, 2, 3 };
    uint8_t head[WIRE_HEAD_MAX];
    uint64_t size;
    assert_int_equal(wire_kind_of("tcp://a:1"), WIRE_TCP);
    assert_int_equal(wire_kind_of("tls+tcp://a:1"), WIRE_TCP);
    assert_int_equal(wire_kind_of("ipc:///a"), WIRE_IPC);
    wire_head_write(WIRE_TCP, 0x010203, head);
    assert_int_equal(wire_head_size(WIRE_TCP), sizeof tcp);
    assert_memory_equal(head, tcp, sizeof tcp);
    wire_head_write(WIRE_IPC, 0x010203, head);
    assert_int_equal(wire_head_size(WIRE_IPC), sizeof ipc);
    assert_memory_equal(head, ipc, sizeof ipc);
    assert_true(wire_head_read(WIRE_TCP, tcp, &size) && size == 0x010203);
    assert_true(wire_head_read(WIRE_IPC, ipc, &size) && size == 0x010203);
    head[0] = 2;
    assert_false(wire_head_read(WIRE_IPC, head, &size));
}

static void messages_are_framed_both_ways(void **state)
{
    (void)state;
    static const uint8_t three[] = "\0\0\0\0\0\0\0\3one\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\3two";
    static const uint8_t reply[] = "\0\0\0\0\0\0\0\5hello\0\0\0\0\0\0\0\0";
    fixture f = fixture_open();
    int fd = meet(&f);
    // Together, one of them empty; then byte by byte.
    say(fd, three, sizeof three - 1);
    expect_message(f.events, SLICE("one"));
    expect_message(f.events, SLICE(""));
    expect_message(f.events, SLICE("two"));
    for (size_t i = 0; i < sizeof three - 1; i++) {
        say(fd, three + i, 1);
        clock_sleep_us(500);
    }
    expect_message(f.events, SLICE("one"));
    expect_message(f.events, SLICE(""));
    expect_message(f.events, SLICE("two"));
    assert_int_equal(mailbox_pair_send(f.pair, SLICE("hello"), false), STATUS_OK);
    assert_int_equal(mailbox_pair_send(f.pair, SLICE(""), false), STATUS_OK);
    hear(fd, reply, sizeof reply - 1);
    close(fd);
    mailbox_event_free(expect(f.events, MAILBOX_DOWN));
    fixture_close(&f);
}

// Small and large ones in turn, each different, as fast as they go.
static void messages_of_all_sizes_arrive_whole(void **state)
{
    (void)state;
    queue *events;
    mailbox_pair *dialler;
    fixture f = fixture_open();
    static const size_t sizes[] = { 0, 1, 100, 8183, 8184, 8185, 20000, 7, 1 << 20, 3 };
    static char data[(1 << 20) + 1];
    enum { ROUNDS = 20, SIZES = sizeof sizes / sizeof sizes[0] };
    assert_int_equal(queue_open(16, &events), STATUS_OK);
    assert_int_equal(mailbox_pair_dial(mailbox_pair_url(f.pair), &mailbox_limits_default, events,
                                       NULL, &dialler, NULL),
                     STATUS_OK);
    for (size_t i = 0; i < ROUNDS * SIZES; i++) {
        memset(data, 'a' + (int)(i % 26), sizeof data);
        assert_int_equal(mailbox_pair_send(dialler, (slice){ data, sizes[i % SIZES] }, false),
                         STATUS_OK);
    }
    mailbox_event_free(expect(f.events, MAILBOX_UP));
    for (size_t i = 0; i < ROUNDS * SIZES; i++) {
        memset(data, 'a' + (int)(i % 26), sizeof data);
        expect_message(f.events, (slice){ data, sizes[i % SIZES] });
    }
    mailbox_pair_close(dialler);
    mailbox_event_free(expect(f.events, MAILBOX_DOWN));
    for (mailbox_event *event; (event = queue_pop(events)) != NULL;)
        mailbox_event_free(event);
    queue_close(events);
    fixture_close(&f);
}

static void an_end_within_a_message_is_an_end(void **state)
{
    (void)state;
    fixture f = fixture_open();
    int fd = meet(&f);
    say(fd, "\0\0\0\0\0\0\0\3one\0\0\0\0\0\0\0\5fiv", 22);
    close(fd);
    expect_message(f.events, SLICE("one"));
    mailbox_event_free(expect(f.events, MAILBOX_DOWN));
    assert_int_equal(mailbox_pair_send(f.pair, SLICE("x"), false), STATUS_PEER_CLOSED);
    fixture_close(&f);
}

static void a_message_above_the_limit_ends_the_connection(void **state)
{
    (void)state;
    fixture f = fixture_open();
    int fd = meet(&f);
    say(fd, "\0\0\0\0\0\0\0\3one\xff\xff\xff\xff\xff\xff\xff\xff", 19);
    expect_message(f.events, SLICE("one"));
    mailbox_event_free(expect(f.events, MAILBOX_DOWN));
    bare_hear_end(fd);
    fixture_close(&f);
}

static void strangers_keep_nobody_out(void **state)
{
    (void)state;
    static const uint8_t of_a_server[] = { 0, 'S', 'P', 0, 0, 0x31, 0, 0 };
    fixture f = fixture_open();
    int silent[MEETING_GUESTS - 1], other = bare_reach(mailbox_pair_url(f.pair));
    say(other, of_a_server, sizeof of_a_server);
    bare_hear_end(other);
    other = bare_reach(mailbox_pair_url(f.pair));
    say(other, "GET / HT", 8);
    bare_hear_end(other);
    for (int i = 0; i < MEETING_GUESTS - 1; i++)
        silent[i] = bare_reach(mailbox_pair_url(f.pair));
    int fd = meet(&f);
    bare_hear_end(bare_reach(mailbox_pair_url(f.pair))); // it has its peer
    for (int i = 0; i < MEETING_GUESTS - 1; i++) {
        send(silent[i], greeting, sizeof greeting, MSG_NOSIGNAL); // too late
        bare_hear_end(silent[i]);
    }
    say(fd, "\0\0\0\0\0\0\0\4four", 12);
    expect_message(f.events, SLICE("four"));
    close(fd);
    mailbox_event_free(expect(f.events, MAILBOX_DOWN));
    bare_hear_end(bare_reach(mailbox_pair_url(f.pair))); // and had its only one
    fixture_close(&f);
}

// A stranger whose bytes each come before the limit, but not all of them; it is offered to the pair
// where it could say them all.
static bool a_slow_stranger_is_cut(void)
{
    mailbox_greeting_ms = 300;
    fixture f = fixture_open();
    mailbox_greeting_ms = usual_greeting_ms;
    int fd = bare_reach(mailbox_pair_url(f.pair));
    struct pollfd end = { .fd = fd, .events = POLLIN };
    bool cut = false;
    uint8_t heard[sizeof greeting];
    if (receive(fd, heard, sizeof heard) == sizeof heard) { // it has a place
        for (size_t i = 0; i < sizeof greeting && !cut; i++) {
            send(fd, greeting + i, 1, MSG_NOSIGNAL);
            cut = poll(&end, 1, 250) == 1;
        }
    }
    if (cut)
        bare_hear_end(fd);
    else
        close(fd);
    fixture_close(&f);
    return cut;
}

// On a machine that stands still, the last byte may be there before the limit's thread has run.
static void slow_strangers_are_cut(void **state)
{
    (void)state;
    bool cut = false;
    for (int i = 0; i < 5 && !cut; i++)
        cut = a_slow_stranger_is_cut();
    assert_true(cut);
}

// Whether a guest that greeted in time may still speak when its time would have been over.
static bool a_guest_stays(void)
{
    mailbox_greeting_ms = 500;
    fixture f = fixture_open();
    mailbox_greeting_ms = usual_greeting_ms;
    int fd = bare_reach(mailbox_pair_url(f.pair));
    send(fd, greeting, sizeof greeting, MSG_NOSIGNAL);
    mailbox_event *event = queue_pop_wait(f.events, 2000000);
    mailbox_event_free(event);
    if (event != NULL) {
        clock_sleep_us(1000000);
        say(fd, "\0\0\0\0\0\0\0\4four", 12);
        expect_message(f.events, SLICE("four"));
    }
    close(fd);
    fixture_close(&f);
    return event != NULL;
}

static void who_greeted_in_time_stays(void **state)
{
    (void)state;
    bool met = false;
    for (int i = 0; i < 5 && !met; i++)
        met = a_guest_stays();
    assert_true(met);
}

static void a_pair_meets_on_its_own_machine(void **state)
{
    (void)state;
    char url[64];
    queue *events[2];
    mailbox_pair *pairs[2];
    error failure;
    snprintf(url, sizeof url, "ipc:///tmp/penstock-wire-%d", (int)getpid());
    for (int i = 0; i < 2; i++)
        assert_int_equal(queue_open(16, &events[i]), STATUS_OK);
    // Who dials first finds nobody, and tries again.
    assert_int_equal(
        mailbox_pair_dial(url, &mailbox_limits_default, events[1], NULL, &pairs[1], &failure),
        STATUS_OK);
    clock_sleep_us(50000);
    assert_int_equal(
        mailbox_pair_listen(url, &mailbox_limits_default, events[0], NULL, &pairs[0], &failure),
        STATUS_OK);
    for (int i = 0; i < 2; i++)
        mailbox_event_free(expect(events[i], MAILBOX_UP));
    for (int i = 0; i < 2; i++)
        assert_int_equal(mailbox_pair_send(pairs[i], SLICE("here"), false), STATUS_OK);
    for (int i = 0; i < 2; i++)
        expect_message(events[i], SLICE("here"));
    mailbox_pair_close(pairs[0]);
    mailbox_event_free(expect(events[1], MAILBOX_DOWN));
    mailbox_pair_close(pairs[1]);
    for (int i = 0; i < 2; i++) {
        for (mailbox_event *event; (event = queue_pop(events[i])) != NULL;)
            mailbox_event_free(event);
        queue_close(events[i]);
    }
}

// Tokens are small and come one by one: none waits until the peer has acknowledged the one before.
static bool met_at_once(void *owner, nng_stream *stream)
{
    bool at_once = false;
    assert_int_equal(nng_stream_get_bool(stream, NNG_OPT_TCP_NODELAY, &at_once), 0);
    atomic_store((atomic_int *)owner, at_once ? 1 : -1);
    return false;
}

static void no_message_waits_for_an_acknowledgement(void **state)
{
    (void)state;
    atomic_int listening = 0, dialling = 0;
    mailbox_meeting *host, *visitor;
    char url[MAILBOX_URL_MAX];
    error failure;
    assert_int_equal(
        mailbox_meeting_listen("tcp://127.0.0.1:0", met_at_once, &listening, url, &host, &failure),
        STATUS_OK);
    assert_int_equal(mailbox_meeting_dial(url, NULL, met_at_once, &dialling, &visitor, &failure),
                     STATUS_OK);
    mailbox_meeting_begin(host);
    mailbox_meeting_begin(visitor);
    uint64_t end_us = clock_now_us() + (uint64_t)patience_us;
    while ((!listening || !dialling) && clock_now_us() < end_us)
        clock_sleep_us(1000);
    mailbox_meeting_close(visitor);
    mailbox_meeting_close(host);
    assert_int_equal(listening, 1);
    assert_int_equal(dialling, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(heads_tell_the_size),
        cmocka_unit_test(messages_are_framed_both_ways),
        cmocka_unit_test(messages_of_all_sizes_arrive_whole),
        cmocka_unit_test(an_end_within_a_message_is_an_end),
        cmocka_unit_test(a_message_above_the_limit_ends_the_connection),
        cmocka_unit_test(strangers_keep_nobody_out),
        cmocka_unit_test(slow_strangers_are_cut),
        cmocka_unit_test(who_greeted_in_time_stays),
        cmocka_unit_test(a_pair_meets_on_its_own_machine),
        cmocka_unit_test(no_message_waits_for_an_acknowledgement),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
