// What a peer may not do, has no effect but its own end.
#include "stranger.h"

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

static void a_record_that_does_not_need_what_came_is_wrong(void **state)
{
    (void)state;
    become_ready();
    handoff_key key = open_seat(4);
    say_run(key, other.generation, 0, 3, 0);
    say_record(key, other.generation, 2 * PEER_PAGE_TOKENS);
    expect_failed_seat(key, STATUS_PEER_PROTOCOL);
    // As many as the record needs, but one of them lies behind its end.
    key = open_seat(4);
    say_run(key, other.generation, 3, 1, 0);
    say_record(key, other.generation, 2 * PEER_PAGE_TOKENS);
    say_run(key, other.generation, 0, 1, 0);
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
        admit(STRANGER, 0);
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
    uint64_t begin_us = clock_now_us(); // a moment after it connected
    TURN_UNTIL(other.closed);
    assert_true(clock_now_us() - begin_us > (uint64_t)worker.settings.connect_us);
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
        TEST(a_record_that_does_not_need_what_came_is_wrong),
        TEST(pages_before_the_greeting_end_the_peer),
        TEST(another_protocol_is_refused_with_a_sentence),
        TEST(bytes_that_are_no_message_end_the_peer),
        TEST(a_probe_must_be_right_in_size_sum_and_order),
        TEST(a_peer_that_says_nothing_is_closed),
        TEST(a_second_connection_replaces_the_first),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
