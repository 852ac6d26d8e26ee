// For tests of a decode worker's hand-off against a peer that speaks the protocol by hand. The
// stranger is a bare fabric, turned by the test.
#pragma once

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
    int answers, sent, seats_closed, received, closes;
    bool welcome, seat_open;
    uint64_t generation;
    uint8_t *data; // what it sends, and where answers to probes go
} stranger;

static peer worker;
static stranger other;
static uint64_t requests;

// ---- the stranger's fabric
// -------------------------------------------------------------------------

static inline void on_accepted(void *owner, fabric_peer from, const char *address)
{
    (void)owner;
    fail_msg("peer %d came from %s", (int)from, address);
}

static inline void on_message(void *owner, fabric_peer from, slice header)
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

static inline bool on_place(void *owner, fabric_peer from, slice header, size_t size,
                            fabric_placement *placement)
{
    stranger *s = owner;
    (void)from;
    (void)header;
    placement->count = 1;
    placement->pieces[0] = (fabric_piece){ s->data + PROBE_BYTES, size };
    return true;
}

static inline void on_received(void *owner, fabric_peer from, uint64_t token, status code)
{
    stranger *s = owner;
    (void)from;
    (void)token;
    s->answers += code == STATUS_OK;
}

static inline void on_sent(void *owner, fabric_peer from, uint64_t token, status code)
{
    stranger *s = owner;
    (void)from;
    (void)token;
    (void)code;
    s->sent++;
}

static inline void on_failed(void *owner, fabric_peer from, status code)
{
    stranger *s = owner;
    (void)from;
    (void)code;
    s->failed = true;
}

static inline void on_closed(void *owner, fabric_peer from)
{
    stranger *s = owner;
    (void)from;
    s->closed = true;
    s->closes++;
}

#define TURN_UNTIL(condition)                                                                      \
    do {                                                                                           \
        uint64_t end_us = clock_now_us() + 30 * SECOND;                                            \
        while (!(condition)) {                                                                     \
            if (clock_now_us() > end_us)                                                           \
                fail_msg("not in time: %s", #condition);                                           \
            fabric_turn(other.f, 1000);                                                            \
        }                                                                                          \
    } while (0)

static inline void connect_stranger(void)
{
    error failure;
    handoff_peer address = peer_address(&worker);
    assert_int_equal(fabric_connect(other.f, address.host, address.port, &other.peer, &failure),
                     STATUS_OK);
    other.failed = other.closed = other.refused = other.welcome = other.seat_open = false;
}

static inline int setup(void **state)
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

static inline int teardown(void **state)
{
    (void)state;
    fabric_close(other.f);
    free(other.data);
    peer_close(&worker);
    return 0;
}

// ---- what it says
// ----------------------------------------------------------------------------------

static inline void say(const message_fabric *m, size_t data_size)
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

static inline void say_hello_with(handoff_token token, uint32_t protocol, uint64_t wanted)
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
    if (token.half[0])
        hello.token = (ProtobufCBinaryData){ sizeof(token), (uint8_t *)&token };
    m.hello = &hello;
    m.body_case = PENSTOCK__FABRIC_HEADER__BODY_HELLO;
    say(&m, 0);
}

static inline void say_hello(uint32_t protocol, uint64_t wanted)
{
    say_hello_with((handoff_token){ { 0 } }, protocol, wanted);
}

static inline void show(uint64_t token)
{
    say_hello_with((handoff_token){ { token, 1 } }, MESSAGE_FABRIC_PROTOCOL,
                   worker.identity.incarnation);
}

static inline void admit(uint64_t incarnation, uint64_t token)
{
    handoff_admit(worker.h, incarnation, (handoff_token){ { token, token ? 1 : 0 } });
}

static inline void say_probe(uint32_t sequence, size_t size, uint64_t checksum)
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

static inline void probe_all(void)
{
    for (uint32_t round = 0; round < 2; round++) {
        int answers = other.answers;
        say_probe(round, PROBE_BYTES, hash64_of(other.data, PROBE_BYTES, 0));
        TURN_UNTIL(other.answers == answers + 1);
    }
    say_probe(2, 0, 0);
}

static inline void become_ready(void)
{
    admit(STRANGER, 0);
    say_hello(MESSAGE_FABRIC_PROTOCOL, worker.identity.incarnation);
    TURN_UNTIL(other.welcome);
    probe_all();
}

typedef struct parts {
    Penstock__Transfer transfer;
    Penstock__RequestId request;
} parts;

static inline Penstock__Transfer *transfer_of(parts *p, handoff_key key, uint64_t generation)
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
static inline void say_run(handoff_key key, uint64_t generation, uint32_t first, uint32_t count,
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

static inline void say_record(handoff_key key, uint64_t generation, uint32_t computed)
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

static inline handoff_key open_seat(int32_t pages)
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

static inline bool nothing_was_written(void)
{
    for (int32_t i = 0; i < PEER_PAGES; i++)
        if (!peer_untouched(&worker, i))
            return false;
    return true;
}

static inline uint64_t dropped(void)
{
    handoff_stats stats;
    handoff_stats_of(worker.h, &stats);
    return stats.runs_dropped;
}

static inline void expect_failed_seat(handoff_key key, status code)
{
    handoff_event event = { 0 };
    TURN_UNTIL(peer_wait(&worker, HANDOFF_SEAT_FAILED, key, 0, &event));
    assert_int_equal(event.code, code);
    handoff_seat_close(worker.h, key);
    TURN_UNTIL(peer_wait(&worker, HANDOFF_SEAT_OVER, key, 0, NULL));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
