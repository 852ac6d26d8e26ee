// limit: 120
// Cancels, faults, refusals and deaths within one process: what must not arrive, does not.
#include "two_sides.h"

// Whichever of the two comes. True: `first` did.
static bool await_either(peer *p, handoff_event_kind first, handoff_event_kind second,
                         handoff_key key, handoff_event *found)
{
    for (uint64_t end_us = clock_now_us() + 30 * SECOND; clock_now_us() < end_us;) {
        if (peer_wait(p, first, key, 1000, found))
            return true;
        if (peer_wait(p, second, key, 1000, found))
            return false;
    }
    fail_msg("neither event %d nor %d came", (int)first, (int)second);
    return false;
}

static void a_sender_may_cancel_at_every_stage(void **state)
{
    (void)state;
    handoff_event event;
    for (int stage = 0; stage < 5; stage++) {
        transfer t = make(30, 0, 2, 1);
        begin(&t);
        if (stage >= 1)
            open_seat(&t);
        if (stage >= 2)
            await(&sender, HANDOFF_SEAT_READY, t.key, NULL);
        if (stage == 3)
            handoff_send_pages(sender.h, t.key, 0, t.from, 30);
        if (stage == 4)
            send_all(&t);
        handoff_send_cancel(sender.h, t.key);
        // At the last stage the cancel may come too late, for one side or for both.
        if (await_either(&sender, HANDOFF_SEND_OVER, HANDOFF_DELIVERED, t.key, &event))
            assert_int_equal(event.code, STATUS_CANCELLED);
        else
            assert_int_equal(stage, 4);
        if (stage == 0)
            open_seat(&t); // the word to end came before the seat
        if (!await_either(&receiver, HANDOFF_SEAT_FAILED, HANDOFF_SEAT_FILLED, t.key, &event)) {
            assert_int_equal(stage, 4);
            continue;
        }
        assert_int_equal(event.code, STATUS_PEER_REFUSED);
        handoff_seat_close(receiver.h, t.key);
        await(&receiver, HANDOFF_SEAT_OVER, t.key, NULL);
    }
    expect_rest();
    transfer_whole(make(3, 0, 1, 1)); // the pair still works
}

static void a_receiver_may_close_at_every_stage(void **state)
{
    (void)state;
    handoff_event event;
    for (int stage = 0; stage < 5; stage++) {
        transfer t = make(30, 0, 1, 2);
        if (stage > 0)
            begin(&t);
        open_seat(&t);
        if (stage >= 2)
            await(&sender, HANDOFF_SEAT_READY, t.key, NULL);
        if (stage >= 3)
            handoff_send_pages(sender.h, t.key, 0, t.from, 30);
        if (stage == 4)
            clock_sleep_us(500);
        handoff_seat_close(receiver.h, t.key);
        await(&receiver, HANDOFF_SEAT_OVER, t.key, &event);
        if (stage >= 2)
            await(&sender, HANDOFF_SEND_OVER, t.key, &event);
        else if (stage == 1 && !peer_wait(&sender, HANDOFF_SEND_OVER, t.key, SECOND / 10, &event))
            handoff_send_cancel(sender.h, t.key);
    }
    expect_rest();
    transfer_whole(make(3, 0, 1, 1));
}

// A run that is under way when its seat closes must not reach pages that were given back.
static void b080_pages_change_hands_only_after_the_last_byte(void **state)
{
    (void)state;
    for (int round = 0; round < 40; round++) {
        transfer t = make(60, 0, 1, 1);
        begin(&t);
        open_seat(&t);
        await(&sender, HANDOFF_SEAT_READY, t.key, NULL);
        handoff_send_pages(sender.h, t.key, 0, t.from, 60);
        clock_sleep_us((uint64_t)(round * 37 % 900));
        handoff_seat_close(receiver.h, t.key);
        await(&receiver, HANDOFF_SEAT_OVER, t.key, NULL);
        memset(receiver.pool, 0, PEER_PAGES * receiver.page_bytes); // they are ours again
        await(&sender, HANDOFF_SEND_OVER, t.key, NULL);
        clock_sleep_us(1000);
        for (int32_t i = 0; i < PEER_PAGES; i++)
            if (!peer_untouched(&receiver, i))
                fail_msg("page %d was written after it changed hands", i);
    }
    expect_rest();
}

static void a_corrupt_run_fails_the_seat(void **state)
{
    (void)state;
    handoff_event event;
    transfer t = make(12, 0, 2, 1);
    begin(&t);
    open_seat(&t);
    await(&sender, HANDOFF_SEAT_READY, t.key, NULL);
    arm("handoff.corrupt:1:0:1");
    send_all(&t);
    await(&receiver, HANDOFF_SEAT_FAILED, t.key, &event);
    assert_int_equal(event.code, STATUS_PEER_PROTOCOL);
    handoff_seat_close(receiver.h, t.key);
    await(&receiver, HANDOFF_SEAT_OVER, t.key, NULL);
    await(&sender, HANDOFF_SEND_OVER, t.key, &event);
    assert_int_equal(event.code, STATUS_PEER_REFUSED);
    for (int32_t i = 0; i < 12; i++) // the page itself was not changed
        assert_true(peer_holds(&sender, t.from[i], t.content, (uint32_t)i));
    assert_int_equal(fault_fired(FAULT_HANDOFF_CORRUPT), 1);
    transfer_whole(make(3, 0, 1, 1));
}

static void b082_a_dropped_run_ends_by_the_deadline(void **state)
{
    (void)state;
    handoff_event event = { 0 };
    transfer t = make(40, 0, 1, 1);
    uint64_t begin_us = clock_now_us(); // the receiver waits from the moment the seat is open
    begin(&t);
    open_seat(&t);
    await(&sender, HANDOFF_SEAT_READY, t.key, NULL);
    arm("handoff.drop:1:0:1");
    send_all(&t);
    await(&receiver, HANDOFF_SEAT_FAILED, t.key, &event);
    // Both sides wait for the other from the same moment on; the sender may give up first and say
    // so.
    assert_true(event.code == STATUS_PEER_SILENT || event.code == STATUS_PEER_REFUSED);
    assert_true(clock_now_us() - begin_us > SECOND);
    handoff_seat_close(receiver.h, t.key);
    await(&receiver, HANDOFF_SEAT_OVER, t.key, NULL);
    await(&sender, HANDOFF_SEND_OVER, t.key, NULL);
    transfer_whole(make(3, 0, 1, 1));
}

static void a_delayed_run_is_no_failure(void **state)
{
    (void)state;
    transfer t = make(10, 0, 1, 1);
    begin(&t);
    open_seat(&t);
    await(&sender, HANDOFF_SEAT_READY, t.key, NULL);
    arm("handoff.delay:1:2500:1"); // longer than the deadline for silence
    uint64_t begin_us = clock_now_us();
    handoff_send_pages(sender.h, t.key, 0, t.from, 10);
    clock_sleep_us(100000);
    handoff_record record = { .computed = t.computed, .next_token = 42 };
    handoff_send_end(sender.h, t.key, &record);
    await(&receiver, HANDOFF_SEAT_FILLED, t.key, NULL);
    assert_true(clock_now_us() - begin_us > 2400000);
    check_content(&t);
}

static void a_record_must_fit_its_seat(void **state)
{
    (void)state;
    handoff_event event;
    transfer t = make(10, 0, 1, 1);
    t.computed = 400; // three pages more than the seat has
    begin(&t);
    open_seat(&t);
    await(&sender, HANDOFF_SEAT_READY, t.key, NULL);
    send_all(&t);
    await(&receiver, HANDOFF_SEAT_FAILED, t.key, &event);
    assert_int_equal(event.code, STATUS_PEER_PROTOCOL);
    handoff_seat_close(receiver.h, t.key);
    await(&receiver, HANDOFF_SEAT_OVER, t.key, NULL);
    await(&sender, HANDOFF_SEND_OVER, t.key, NULL);
}

// The peer of a seat may never connect: then no pair is there that could fail.
static void b082_a_seat_whose_peer_never_comes_ends_by_its_deadline(void **state)
{
    (void)state;
    handoff_event event;
    peer_close(&receiver);
    peer_prepare(&receiver, RECEIVER, 20000);
    receiver.settings.connect_us = SECOND / 10;
    peer_open(&receiver, true);
    transfer t = make(3, 0, 1, 1);
    open_seat(&t);
    await(&receiver, HANDOFF_SEAT_FAILED, t.key, &event);
    assert_int_equal(event.code, STATUS_PEER_SILENT);
    handoff_seat_close(receiver.h, t.key);
    await(&receiver, HANDOFF_SEAT_OVER, t.key, NULL);
    expect_rest();
}

// Events of a kind until `wanted` came.
static void count_events(peer *p, handoff_event_kind kind, int wanted)
{
    uint64_t end_us = clock_now_us() + 30 * SECOND;
    for (int count = 0; count < wanted && clock_now_us() < end_us;) {
        handoff_event *event = handoff_event_next(p->h);
        if (event == NULL) {
            clock_sleep_us(500);
            continue;
        }
        count += event->kind == kind;
        handoff_event_free(event);
        if (count == wanted)
            return;
    }
    fail_msg("%d events of kind %d did not come", wanted, (int)kind);
}

static void b082_half_open_transfers_are_bounded(void **state)
{
    (void)state;
    enum { MOST = 1024 };
    handoff_event event;
    transfer t = make(2, 0, 1, 1);
    uint64_t first = t.key.number + 1;
    for (int i = 0; i < MOST; i++) {
        t.key.number = ++requests;
        open_seat(&t); // SENDER never begins
    }
    t.key.number = ++requests;
    open_seat(&t);
    await(&receiver, HANDOFF_SEAT_FAILED, t.key, &event);
    assert_int_equal(event.code, STATUS_OVERLOADED);
    await(&receiver, HANDOFF_SEAT_OVER, t.key, NULL);
    for (int i = 0; i < MOST; i++) {
        t.key.number = first + (uint64_t)i;
        handoff_seat_close(receiver.h, t.key);
    }
    count_events(&receiver, HANDOFF_SEAT_OVER, MOST);
    expect_rest();
    transfer_whole(make(3, 0, 1, 1));
}

// Seats whose tickets the sender has not read are bounded. The send of one that it had no place for
// ends when it begins, however late that is.
static void a_seat_too_many_ends_its_send(void **state)
{
    (void)state;
    enum { MOST = 512 };
    handoff_event event;
    transfer_whole(make(3, 0, 1, 1)); // the pair is there
    transfer t = make(2, 0, 1, 1);
    uint64_t first = t.key.number;
    for (int i = 0; i < MOST; i++) {
        open_seat(&t);
        t.key.number = ++requests;
    }
    open_seat(&t);
    await(&receiver, HANDOFF_SEAT_FAILED, t.key, &event);
    assert_int_equal(event.code, STATUS_PEER_REFUSED);
    begin(&t);
    await(&sender, HANDOFF_SEND_OVER, t.key, &event);
    assert_int_equal(event.code, STATUS_OVERLOADED);
    for (int i = 0; i <= MOST; i++) {
        t.key.number = first + (uint64_t)i;
        handoff_seat_close(receiver.h, t.key);
    }
    count_events(&receiver, HANDOFF_SEAT_OVER, MOST + 1);
    expect_rest();
    transfer_whole(make(3, 0, 1, 1));
}

// What a sequence that moves made since the ticket comes with the record; the sender is told when
// the pages that it gave so far have gone.
static void a_record_brings_tokens(void **state)
{
    (void)state;
    handoff_event event;
    transfer t = make(10, 0, 1, 1);
    handoff_record record = { .computed = t.computed, .next_token = 42, .made_count = 3 };
    memcpy(record.made, (int32_t[]){ 7, 0, 999 }, 3 * sizeof(int32_t));
    begin(&t);
    open_seat(&t);
    await(&sender, HANDOFF_SEAT_READY, t.key, NULL);
    handoff_send_pages(sender.h, t.key, 0, t.from, 6);
    for (uint64_t end_us = clock_now_us() + 30 * SECOND; sender.shipped == 0;) {
        assert_true(clock_now_us() < end_us);
        peer_take_events(&sender);
    }
    handoff_send_pages(sender.h, t.key, 6, t.from + 6, 4);
    handoff_send_end(sender.h, t.key, &record);
    await(&receiver, HANDOFF_SEAT_FILLED, t.key, &event);
    assert_int_equal(event.record.made_count, 3);
    assert_memory_equal(event.record.made, record.made, 3 * sizeof(int32_t));
    check_content(&t);
    t = make(1, 0, 1, 1);
    begin(&t);
    open_seat(&t);
    await(&sender, HANDOFF_SEAT_READY, t.key, NULL);
    record = (handoff_record){ .computed = t.computed, .next_token = 42, .made_count = 1 };
    record.made[0] = 1000; // no token of the vocabulary
    handoff_send_pages(sender.h, t.key, 0, t.from, 1);
    handoff_send_end(sender.h, t.key, &record);
    await(&receiver, HANDOFF_SEAT_FAILED, t.key, &event);
    assert_int_equal(event.code, STATUS_PEER_PROTOCOL);
    handoff_seat_close(receiver.h, t.key);
    await(&receiver, HANDOFF_SEAT_OVER, t.key, NULL);
    await(&sender, HANDOFF_SEND_OVER, t.key, NULL);
}

static void a_peer_that_is_not_there_is_reported(void **state)
{
    (void)state;
    handoff_event event;
    transfer t = make(2, 0, 1, 1);
    handoff_peer nobody = { .incarnation = 99, .host = "127.0.0.1", .port = 9 };
    handoff_send_begin(sender.h, t.key, &nobody);
    await(&sender, HANDOFF_SEND_OVER, t.key, &event);
    assert_int_equal(event.code, STATUS_PEER_CLOSED);
    snprintf(nobody.host, sizeof(nobody.host), "not an address");
    nobody.incarnation++;
    t.key.attempt++;
    handoff_send_begin(sender.h, t.key, &nobody);
    await(&sender, HANDOFF_SEND_OVER, t.key, &event);
    assert_int_equal(event.code, STATUS_INVALID);
}

static void b083_another_incarnation_at_the_address_is_refused(void **state)
{
    (void)state;
    handoff_event event;
    transfer t = make(2, 0, 1, 1);
    handoff_peer old = peer_address(&receiver);
    old.incarnation = 555;
    handoff_send_begin(sender.h, t.key, &old);
    await(&sender, HANDOFF_SEND_OVER, t.key, &event);
    assert_int_equal(event.code, STATUS_PEER_MISMATCH);
}

static void b084_each_field_of_the_identity_must_be_equal(void **state)
{
    (void)state;
    const handoff_identity right = sender.identity;
    for (int field = 0; field < 9; field++) {
        handoff_event event;
        peer_close(&sender);
        peer_prepare(&sender, 1000u + (uint32_t)field, right.page_bytes);
        handoff_identity *id = &sender.identity;
        id->model_name = field == 0 ? "other" : id->model_name;
        id->architecture = field == 1 ? "other" : id->architecture;
        id->weights.high += field == 2;
        id->numeric_id.low += field == 3;
        id->kv_layout = field == 4 ? "cpu-f16-2" : id->kv_layout;
        id->page_tokens *= field == 5 ? 2 : 1;
        id->page_bytes -= field == 6 ? 4 : 0;
        id->context += field == 7;
        id->vocabulary += field == 8;
        peer_open(&sender, false);
        transfer t = make(1, 0, 1, 1);
        handoff_admit(receiver.h, id->incarnation, (handoff_token){ { 0 } });
        handoff_seat_open(receiver.h, t.key, id->incarnation, ++generation, t.to, t.seat_pages, 0);
        begin(&t);
        await(&sender, HANDOFF_SEND_OVER, t.key, &event);
        assert_int_equal(event.code, STATUS_PEER_MISMATCH);
        await(&receiver, HANDOFF_SEAT_FAILED, t.key, &event);
        assert_int_equal(event.code, STATUS_PEER_MISMATCH);
        handoff_seat_close(receiver.h, t.key);
        await(&receiver, HANDOFF_SEAT_OVER, t.key, NULL);
    }
}

static void a_closed_hand_off_ends_its_peers_transfers(void **state)
{
    (void)state;
    handoff_event event;
    transfer t = make(30, 0, 1, 1), u = make(30, 0, 1, 1);
    begin(&t);
    open_seat(&t);
    begin(&u);
    open_seat(&u);
    await(&sender, HANDOFF_SEAT_READY, t.key, NULL);
    await(&sender, HANDOFF_SEAT_READY, u.key, NULL);
    handoff_send_pages(sender.h, t.key, 0, t.from, 20);
    handoff_close(sender.h);
    await(&receiver, HANDOFF_SEAT_FAILED, t.key, &event);
    assert_int_equal(event.code, STATUS_PEER_CLOSED);
    await(&receiver, HANDOFF_SEAT_FAILED, u.key, &event);
    handoff_seat_close(receiver.h, t.key);
    handoff_seat_close(receiver.h, u.key);
    await(&receiver, HANDOFF_SEAT_OVER, t.key, NULL);
    await(&receiver, HANDOFF_SEAT_OVER, u.key, NULL);
    peer_open(&sender, false);
    transfer_whole(make(3, 0, 1, 1)); // a new life of the prefill worker
}

static void a_slower_transport_is_refused_or_counted(void **state)
{
    (void)state;
    handoff_event event = { 0 };
    handoff_stats stats;
    char wanted[64];
    snprintf(wanted, sizeof(wanted), "%s", getenv("UCX_TLS"));
    setenv("UCX_TLS", "rc,tcp,self", 1); // what the operator wants; the endpoint is tcp
    transfer t = make(2, 0, 1, 1);
    handoff_admit(receiver.h, SENDER, (handoff_token){ { 0 } });
    begin(&t);
    await(&sender, HANDOFF_SEND_OVER, t.key, &event);
    assert_int_equal(event.code, STATUS_PEER_REFUSED);
    handoff_close(sender.h);
    handoff_close(receiver.h);
    sender.settings.allow_slow = receiver.settings.allow_slow = true;
    setenv("UCX_TLS", wanted, 1);
    peer_open(&receiver, true);
    peer_open(&sender, false);
    setenv("UCX_TLS", "rc,tcp,self", 1);
    transfer_whole(make(2, 0, 1, 1));
    handoff_stats_of(sender.h, &stats);
    assert_int_equal(stats.slow_pairs, 1);
    setenv("UCX_TLS", wanted, 1);
}

int main(int argc, char **argv)
{
    (void)argc;
    fabric_exec(argv);
    log_level_set(getenv("PENSTOCK_VERBOSE") ? LOG_DEBUG : LOG_ERROR);
    const struct CMUnitTest tests[] = {
        TEST(a_sender_may_cancel_at_every_stage),
        TEST(a_receiver_may_close_at_every_stage),
        TEST(b080_pages_change_hands_only_after_the_last_byte),
        TEST(a_corrupt_run_fails_the_seat),
        TEST(b082_a_dropped_run_ends_by_the_deadline),
        TEST(a_delayed_run_is_no_failure),
        TEST(a_record_must_fit_its_seat),
        TEST(a_record_brings_tokens),
        TEST(b082_a_seat_whose_peer_never_comes_ends_by_its_deadline),
        TEST(b082_half_open_transfers_are_bounded),
        TEST(a_seat_too_many_ends_its_send),
        TEST(a_peer_that_is_not_there_is_reported),
        TEST(b083_another_incarnation_at_the_address_is_refused),
        TEST(b084_each_field_of_the_identity_must_be_equal),
        TEST(a_closed_hand_off_ends_its_peers_transfers),
        TEST(a_slower_transport_is_refused_or_counted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
