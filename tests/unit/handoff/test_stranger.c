// A decode worker's hand-off against a peer that speaks the protocol by hand: what it may not do,
// has no effect but its own end. The stranger is a bare fabric, turned by the test.
#include "peer.h"

#include "base/log.h"
#include "net/fabric.h"
#include "net/message.h"

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

#define SECOND 1000000
#define STRANGER 31u
#define PAGE_BYTES 8192u
#define PROBE_BYTES (1u << 20)

typedef struct stranger {
    fabric *f;
    fabric_peer peer;
    bool failed, closed, refused;
    char reason[512];
    int answers, sent, seats_closed, received;
    bool welcome, seat_open;
    uint64_t generation;
    uint8_t *data; // what it sends, and where answers to probes go
} stranger;

static peer worker;
static stranger other;
static uint64_t requests;

// ---- the stranger's fabric
// -------------------------------------------------------------------------

static void on_accepted(void *owner, fabric_peer from, const char *address)
{
    (void)owner;
    fail_msg("peer %d came from %s", (int)from, address);
}

static void on_message(void *owner, fabric_peer from, slice header)
{
    stranger *s = owner;
    message_fabric *m;
    error failure;
    (void)from;
    assert_int_equal(message_unpack_fabric(header, &m, &failure), STATUS_OK);
    if (m->body_case == PENSTOCK__FABRIC_HEADER__BODY_HELLO_REPLY) {
        s->welcome = m->hello_reply->accepted;
        s->refused = !s->welcome;
        snprintf(s->reason, sizeof(s->reason), "%s", m->hello_reply->reason);
    } else if (m->body_case == PENSTOCK__FABRIC_HEADER__BODY_SEAT_OPEN) {
        s->seat_open = true;
        s->generation = m->seat_open->transfer->generation;
    } else if (m->body_case == PENSTOCK__FABRIC_HEADER__BODY_SEAT_CLOSED)
        s->seats_closed++;
    else if (m->body_case == PENSTOCK__FABRIC_HEADER__BODY_RECEIVED)
        s->received++;
    message_free(m);
}

static bool on_place(void *owner, fabric_peer from, slice header, size_t size,
                     fabric_placement *placement)
{
    stranger *s = owner;
    (void)from;
    (void)header;
    placement->count = 1;
    placement->pieces[0] = (fabric_piece){ s->data + PROBE_BYTES, size };
    return true;
}

static void on_received(void *owner, fabric_peer from, uint64_t token, status code)
{
    stranger *s = owner;
    (void)from;
    (void)token;
    s->answers += code == STATUS_OK;
}

static void on_sent(void *owner, fabric_peer from, uint64_t token, status code)
{
    stranger *s = owner;
    (void)from;
    (void)token;
    (void)code;
    s->sent++;
}

static void on_failed(void *owner, fabric_peer from, status code)
{
    stranger *s = owner;
    (void)from;
    (void)code;
    s->failed = true;
}

static void on_closed(void *owner, fabric_peer from)
{
    stranger *s = owner;
    (void)from;
    s->closed = true;
}

#define TURN_UNTIL(condition)                                                                      \
    do {                                                                                           \
        uint64_t end_us = clock_now_us() + 10 * SECOND;                                            \
        while (!(condition)) {                                                                     \
            if (clock_now_us() > end_us)                                                           \
                fail_msg("not in time: %s", #condition);                                           \
            fabric_turn(other.f, 1000);                                                            \
        }                                                                                          \
    } while (0)

static void connect_stranger(void)
{
    error failure;
    handoff_peer address = peer_address(&worker);
    assert_int_equal(fabric_connect(other.f, address.host, address.port, &other.peer, &failure),
                     STATUS_OK);
    other.failed = other.closed = other.refused = other.welcome = other.seat_open = false;
}

static int setup(void **state)
{
    (void)state;
    error failure;
    peer_prepare(&worker, 2, PAGE_BYTES);
    peer_open(&worker, true);
    other = (stranger){ .data = calloc(2, PROBE_BYTES) };
    fabric_settings settings = { .peers_max = 4,
                                 .window = 4,
                                 .data_max = 2 * PROBE_BYTES,
                                 .suspect_us = 2 * SECOND,
                                 .fail_us = 20 * SECOND };
    fabric_handlers handlers = { &other,      on_accepted, on_message, on_place,
                                 on_received, on_sent,     on_failed,  on_closed };
    assert_int_equal(fabric_open(&settings, &handlers, &other.f, &failure), STATUS_OK);
    connect_stranger();
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    fabric_close(other.f);
    free(other.data);
    peer_close(&worker);
    return 0;
}

// ---- what it says
// ----------------------------------------------------------------------------------

static void say(const message_fabric *m, size_t data_size)
{
    buffer bytes = { 0 };
    message_pack(&m->base, &bytes);
    fabric_piece piece = { other.data, data_size };
    if (data_size)
        fabric_send_data(other.f, other.peer, buffer_slice(&bytes), &piece, 1, 0);
    else
        fabric_send_message(other.f, other.peer, buffer_slice(&bytes));
    buffer_close(&bytes);
}

static void say_hello(uint32_t protocol, uint64_t wanted)
{
    message_fabric m = PENSTOCK__FABRIC_HEADER__INIT;
    Penstock__Hello hello = PENSTOCK__HELLO__INIT;
    Penstock__ModelIdentity model = PENSTOCK__MODEL_IDENTITY__INIT;
    const handoff_identity *id = &worker.identity;
    model.name = (char *)id->model_name;
    model.architecture = (char *)id->architecture;
    model.kv_layout = (char *)id->kv_layout;
    model.weights = (ProtobufCBinaryData){ 16, (uint8_t *)&id->weights };
    model.numeric_id = (ProtobufCBinaryData){ 16, (uint8_t *)&id->numeric_id };
    model.page_tokens = id->page_tokens;
    model.page_bytes = id->page_bytes;
    model.context = id->context;
    model.vocabulary = id->vocabulary;
    hello.protocol = protocol;
    hello.incarnation = STRANGER;
    hello.wanted = wanted;
    hello.model = &model;
    m.hello = &hello;
    m.body_case = PENSTOCK__FABRIC_HEADER__BODY_HELLO;
    say(&m, 0);
}

static void say_probe(uint32_t sequence, size_t size, uint64_t checksum)
{
    message_fabric m = PENSTOCK__FABRIC_HEADER__INIT;
    Penstock__Probe probe = PENSTOCK__PROBE__INIT;
    probe.sequence = sequence;
    probe.bytes = size;
    probe.checksum = checksum;
    m.probe = &probe;
    m.body_case = PENSTOCK__FABRIC_HEADER__BODY_PROBE;
    say(&m, size);
}

static void become_ready(void)
{
    say_hello(MESSAGE_FABRIC_PROTOCOL, worker.identity.incarnation);
    TURN_UNTIL(other.welcome);
    for (uint32_t round = 0; round < 2; round++) {
        int answers = other.answers;
        say_probe(round, PROBE_BYTES, hash64_of(other.data, PROBE_BYTES, 0));
        TURN_UNTIL(other.answers == answers + 1);
    }
    say_probe(2, 0, 0);
}

typedef struct parts {
    Penstock__Transfer transfer;
    Penstock__RequestId request;
} parts;

static Penstock__Transfer *transfer_of(parts *p, handoff_key key, uint64_t generation)
{
    penstock__transfer__init(&p->transfer);
    penstock__request_id__init(&p->request);
    p->request.router = key.router;
    p->request.number = key.number;
    p->transfer.request = &p->request;
    p->transfer.attempt = key.attempt;
    p->transfer.generation = generation;
    return &p->transfer;
}

// A page run; with `size` 0 its right size.
static void say_run(handoff_key key, uint64_t generation, uint32_t first, uint32_t count,
                    size_t size)
{
    message_fabric m = PENSTOCK__FABRIC_HEADER__INIT;
    Penstock__PageRun run = PENSTOCK__PAGE_RUN__INIT;
    parts p;
    run.transfer = transfer_of(&p, key, generation);
    run.first_page = first;
    run.page_count = count;
    m.page_run = &run;
    m.body_case = PENSTOCK__FABRIC_HEADER__BODY_PAGE_RUN;
    memset(other.data, 0x55, PROBE_BYTES);
    int sent = other.sent;
    say(&m, size ? size : count * PAGE_BYTES);
    TURN_UNTIL(other.sent == sent + 1 || other.failed);
}

static void say_record(handoff_key key, uint64_t generation, uint32_t computed)
{
    message_fabric m = PENSTOCK__FABRIC_HEADER__INIT;
    Penstock__HandoverRecord record = PENSTOCK__HANDOVER_RECORD__INIT;
    Penstock__Token token = PENSTOCK__TOKEN__INIT;
    parts p;
    record.transfer = transfer_of(&p, key, generation);
    record.computed = computed;
    record.next_token = &token;
    m.record = &record;
    m.body_case = PENSTOCK__FABRIC_HEADER__BODY_RECORD;
    say(&m, 0);
}

static handoff_key open_seat(int32_t pages)
{
    int32_t list[16];
    handoff_key key = { 1, ++requests, 1 };
    peer_pages(list, pages, 20, 1);
    handoff_seat_open(worker.h, key, STRANGER, 1000 + requests, list, pages, 0);
    other.seat_open = false;
    TURN_UNTIL(other.seat_open);
    assert_int_equal(other.generation, 1000 + requests);
    return key;
}

static bool nothing_was_written(void)
{
    for (int32_t i = 0; i < PEER_PAGES; i++)
        if (!peer_untouched(&worker, i))
            return false;
    return true;
}

static uint64_t dropped(void)
{
    handoff_stats stats;
    handoff_stats_of(worker.h, &stats);
    return stats.runs_dropped;
}

static void expect_failed_seat(handoff_key key, status code)
{
    handoff_event event = { 0 };
    TURN_UNTIL(peer_wait(&worker, HANDOFF_SEAT_FAILED, key, 0, &event));
    assert_int_equal(event.code, code);
    handoff_seat_close(worker.h, key);
    TURN_UNTIL(peer_wait(&worker, HANDOFF_SEAT_OVER, key, 0, NULL));
}

// ---- facts
// -----------------------------------------------------------------------------------------

static void a_well_behaved_stranger_fills_a_seat(void **state)
{
    (void)state;
    become_ready();
    handoff_key key = open_seat(4);
    say_run(key, other.generation, 2, 1, 0); // in any order
    say_record(key, other.generation, 3 * PEER_PAGE_TOKENS);
    say_run(key, other.generation, 0, 2, 0);
    TURN_UNTIL(peer_wait(&worker, HANDOFF_SEAT_FILLED, key, 0, NULL));
    TURN_UNTIL(other.received == 1);
    assert_int_equal(worker.pool[(size_t)22 * PAGE_BYTES], 0x55);
    assert_true(peer_untouched(&worker, 23));
}

static void runs_of_another_generation_or_request_are_dropped(void **state)
{
    (void)state;
    become_ready();
    handoff_key key = open_seat(4), unknown = { 1, 999999, 1 }, later = key;
    later.attempt = 2;
    say_run(key, other.generation - 1, 0, 2, 0);
    say_run(key, other.generation + 1, 0, 2, 0);
    say_run(unknown, other.generation, 0, 2, 0);
    say_run(later, other.generation, 0, 2, 0);
    say_record(key, other.generation - 1, 64);
    TURN_UNTIL(dropped() == 5);
    assert_true(nothing_was_written());
    assert_false(other.failed); // late is not wrong
    handoff_seat_close(worker.h, key);
    TURN_UNTIL(peer_wait(&worker, HANDOFF_SEAT_OVER, key, 0, NULL));
    say_run(key, other.generation, 0, 2, 0); // now it is late for its own seat, too
    TURN_UNTIL(dropped() == 6);
    assert_true(nothing_was_written());
}

static void runs_outside_their_seat_fail_it_and_write_nothing(void **state)
{
    (void)state;
    become_ready();
    static const struct {
        uint32_t first, count;
        size_t size;
    } wrong[] = {
        { 3, 2, 0 },               // past the end
        { 0, 2, PAGE_BYTES },      // fewer bytes than pages
        { 0, 2, 3 * PAGE_BYTES },  // more
        { 0, 65, 65 * PAGE_BYTES } // more pages than a run may have
    };
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        handoff_key key = open_seat(4);
        say_run(key, other.generation, wrong[i].first, wrong[i].count, wrong[i].size);
        expect_failed_seat(key, STATUS_PEER_PROTOCOL);
        assert_true(nothing_was_written());
        assert_false(other.failed);
    }
}

static void a_page_comes_once(void **state)
{
    (void)state;
    become_ready();
    handoff_key key = open_seat(4);
    say_run(key, other.generation, 0, 2, 0);
    say_run(key, other.generation, 1, 1, 0);
    expect_failed_seat(key, STATUS_PEER_PROTOCOL);
}

static void a_record_of_fewer_pages_than_came_is_wrong(void **state)
{
    (void)state;
    become_ready();
    handoff_key key = open_seat(4);
    say_run(key, other.generation, 0, 3, 0);
    say_record(key, other.generation, 2 * PEER_PAGE_TOKENS);
    expect_failed_seat(key, STATUS_PEER_PROTOCOL);
    key = open_seat(4);
    say_record(key, other.generation, 64);
    say_record(key, other.generation, 64);
    expect_failed_seat(key, STATUS_PEER_PROTOCOL);
}

static void pages_before_the_greeting_end_the_peer(void **state)
{
    (void)state;
    handoff_key key = { 1, 5, 1 };
    say_run(key, 1, 0, 1, 0);
    TURN_UNTIL(other.closed);
    assert_true(nothing_was_written());
}

static void another_protocol_is_refused_with_a_sentence(void **state)
{
    (void)state;
    say_hello(MESSAGE_FABRIC_PROTOCOL + 1, worker.identity.incarnation);
    TURN_UNTIL(other.refused);
    assert_non_null(strstr(other.reason, "protocol"));
    fabric_fail(other.f, other.peer, STATUS_PEER_MISMATCH);
    TURN_UNTIL(other.closed);
    connect_stranger();
    say_hello(MESSAGE_FABRIC_PROTOCOL, 12345);
    TURN_UNTIL(other.refused);
    assert_non_null(strstr(other.reason, "incarnation"));
}

static void bytes_that_are_no_message_end_the_peer(void **state)
{
    (void)state;
    become_ready();
    fabric_send_message(other.f, other.peer, SLICE("\xff\xff\xff\xff\xff\xff"));
    TURN_UNTIL(other.closed);
}

static void a_probe_must_be_right_in_size_sum_and_order(void **state)
{
    (void)state;
    uint64_t right = hash64_of(other.data, PROBE_BYTES, 0);
    for (int i = 0; i < 4; i++) {
        if (i > 0)
            connect_stranger();
        say_hello(MESSAGE_FABRIC_PROTOCOL, worker.identity.incarnation);
        TURN_UNTIL(other.welcome);
        if (i < 3)
            say_probe(i == 0, i == 1 ? PROBE_BYTES / 2 : PROBE_BYTES, right + (i == 2));
        else
            say_probe(2, 0, 0); // confirms what was never probed
        TURN_UNTIL(other.closed);
    }
}

static void a_peer_that_says_nothing_is_closed(void **state)
{
    (void)state;
    uint64_t begin_us = clock_now_us();
    TURN_UNTIL(other.closed);
    assert_true(clock_now_us() - begin_us > 3 * SECOND);
}

static void a_second_connection_replaces_the_first(void **state)
{
    (void)state;
    handoff_event event = { 0 };
    become_ready();
    handoff_key key = open_seat(4);
    connect_stranger();
    become_ready();
    TURN_UNTIL(peer_wait(&worker, HANDOFF_SEAT_FAILED, key, 0, &event));
    handoff_seat_close(worker.h, key);
    TURN_UNTIL(peer_wait(&worker, HANDOFF_SEAT_OVER, key, 0, NULL));
    key = open_seat(4);
    say_run(key, other.generation, 0, 1, 0);
    say_record(key, other.generation, 1);
    TURN_UNTIL(peer_wait(&worker, HANDOFF_SEAT_FILLED, key, 0, NULL));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(int argc, char **argv)
{
    (void)argc;
    fabric_exec(argv);
    log_level_set(getenv("PENSTOCK_VERBOSE") ? LOG_DEBUG : LOG_ERROR);
    const struct CMUnitTest tests[] = {
        TEST(a_well_behaved_stranger_fills_a_seat),
        TEST(runs_of_another_generation_or_request_are_dropped),
        TEST(runs_outside_their_seat_fail_it_and_write_nothing),
        TEST(a_page_comes_once),
        TEST(a_record_of_fewer_pages_than_came_is_wrong),
        TEST(pages_before_the_greeting_end_the_peer),
        TEST(another_protocol_is_refused_with_a_sentence),
        TEST(bytes_that_are_no_message_end_the_peer),
        TEST(a_probe_must_be_right_in_size_sum_and_order),
        TEST(a_peer_that_says_nothing_is_closed),
        TEST(a_second_connection_replaces_the_first),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
