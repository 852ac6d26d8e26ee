// What must arrive, arrives: byte by byte, in every order and portion.
#include "two_sides.h"

static void pages_arrive_byte_for_byte(void **state)
{
    (void)state;
    transfer_whole(make(1, 0, 1, 1));
    transfer_whole(make(40, 0, 1, 1));
    transfer_whole(make(40, 0, 3, 2)); // apart in both pools
    transfer_whole(make(40, 0, 1, 2));
    transfer_whole(make(40, 0, 3, 1));
    transfer_whole(make(PEER_PAGES - 4, 0, 1, 1)); // more than one command
}

static void a_held_prefix_is_not_sent(void **state)
{
    (void)state;
    transfer_whole(make(20, 1, 1, 1));
    transfer_whole(make(20, 19, 2, 1));
    transfer_whole(make(20, 20, 1, 1)); // everything is held: only the record travels
}

static void large_pages_go_one_by_one(void **state)
{
    (void)state;
    peer_close(&sender);
    peer_close(&receiver);
    open_both(1500000);
    transfer_whole(make(8, 0, 1, 2));
}

static void pages_may_come_in_any_portions(void **state)
{
    (void)state;
    transfer t = make(30, 2, 2, 1);
    handoff_record record = { .computed = t.computed, .next_token = 42 };
    begin(&t);
    open_seat(&t);
    await(&sender, HANDOFF_SEAT_READY, t.key, NULL);
    handoff_send_pages(sender.h, t.key, 0, t.from, 5); // two of them are held by the seat
    handoff_send_pages(sender.h, t.key, 5, t.from + 5, 1);
    clock_sleep_us(20000);
    handoff_send_pages(sender.h, t.key, 6, t.from + 6, 24);
    handoff_send_end(sender.h, t.key, &record);
    await(&receiver, HANDOFF_SEAT_FILLED, t.key, NULL);
    await(&sender, HANDOFF_DELIVERED, t.key, NULL);
    check_content(&t);
}

static void seat_and_ticket_may_come_in_either_order(void **state)
{
    (void)state;
    transfer_whole(make(1, 0, 1, 1)); // the pair exists
    memset(receiver.pool, 0, PEER_PAGES * receiver.page_bytes);
    transfer early = make(4, 0, 1, 1);
    open_seat(&early);
    clock_sleep_us(50000); // the sender knows the seat, not yet the ticket
    begin(&early);
    await(&sender, HANDOFF_SEAT_READY, early.key, NULL);
    send_all(&early);
    await(&receiver, HANDOFF_SEAT_FILLED, early.key, NULL);
    await(&sender, HANDOFF_DELIVERED, early.key, NULL);
    check_content(&early);
}

static void many_transfers_share_a_pair(void **state)
{
    (void)state;
    transfer t[20];
    for (int i = 0; i < 20; i++) {
        t[i] = make(4, 0, 1, 1);
        peer_pages(t[i].from, 4, i * 4, 1);
        peer_pages(t[i].to, 5, i * 5, 1);
        open_seat(&t[i]);
        begin(&t[i]);
    }
    for (int i = 0; i < 20; i++)
        for (int k = 0; k < 4; k++)
            peer_fill(&sender, t[i].from[k], t[i].content, (uint32_t)k);
    for (int i = 0; i < 20; i++) {
        await(&sender, HANDOFF_SEAT_READY, t[i].key, NULL);
        send_all(&t[i]);
    }
    for (int i = 0; i < 20; i++) {
        await(&receiver, HANDOFF_SEAT_FILLED, t[i].key, NULL);
        await(&sender, HANDOFF_DELIVERED, t[i].key, NULL);
        check_content(&t[i]);
    }
    handoff_stats stats;
    handoff_stats_of(receiver.h, &stats);
    assert_int_equal(stats.transfers_done, 20);
    assert_int_equal(stats.seats_open, 0);
    assert_int_equal(stats.bytes_received, 80 * receiver.page_bytes);
    assert_int_equal(stats.peers_open, 1);
    assert_string_equal(stats.transport, "tcp");
    assert_true(stats.probe_gbps > 0);
    handoff_stats_of(sender.h, &stats);
    assert_int_equal(stats.bytes_sent, 80 * receiver.page_bytes);
    assert_int_equal(stats.runs_dropped, 0);
}

static void a_second_begin_or_open_changes_nothing(void **state)
{
    (void)state;
    transfer t = make(10, 0, 1, 1);
    begin(&t);
    begin(&t);
    open_seat(&t);
    transfer other = t;
    peer_pages(other.to, other.seat_pages, 100, 1);
    open_seat(&other); // same key, other pages, other generation
    await(&sender, HANDOFF_SEAT_READY, t.key, NULL);
    begin(&t);
    send_all(&t);
    await(&receiver, HANDOFF_SEAT_FILLED, t.key, NULL);
    await(&sender, HANDOFF_DELIVERED, t.key, NULL);
    check_content(&t);
    for (int32_t i = 0; i < other.seat_pages; i++)
        assert_true(peer_untouched(&receiver, other.to[i]));
    assert_false(peer_wait(&sender, HANDOFF_SEAT_READY, t.key, 50000, NULL));
    expect_rest();
}

static void attempts_are_transfers_of_their_own(void **state)
{
    (void)state;
    transfer first = make(10, 0, 1, 1), second = first;
    second.key.attempt = 2;
    peer_pages(second.to, second.seat_pages, 60, 1);
    begin(&first);
    open_seat(&first);
    await(&sender, HANDOFF_SEAT_READY, first.key, NULL);
    begin(&second);
    open_seat(&second);
    await(&sender, HANDOFF_SEAT_READY, second.key, NULL);
    handoff_seat_close(receiver.h, first.key);
    await(&receiver, HANDOFF_SEAT_OVER, first.key, NULL);
    await(&sender, HANDOFF_SEND_OVER, first.key, NULL);
    handoff_send_pages(sender.h, first.key, 0, first.from, 10); // late: no such transfer
    send_all(&second);
    await(&receiver, HANDOFF_SEAT_FILLED, second.key, NULL);
    check_content(&second);
    for (int32_t i = 0; i < first.seat_pages; i++)
        assert_true(peer_untouched(&receiver, first.to[i]));
}

static void checksums_can_be_off(void **state)
{
    (void)state;
    handoff_close(sender.h);
    sender.settings.checksums = false;
    peer_open(&sender, false);
    transfer_whole(make(10, 0, 2, 1));
}

static void exchange(peer *a, peer *b)
{
    peer between = *a;
    *a = *b;
    *b = between;
}

// Waits until the hand-off has `open` pairs, and closed `unused` ones for others in its life.
static void expect_pairs(peer *p, uint32_t open, uint64_t unused)
{
    handoff_stats stats = { 0 };
    for (uint64_t end_us = clock_now_us() + 30 * SECOND; clock_now_us() < end_us;) {
        handoff_stats_of(p->h, &stats);
        if (stats.peers_open == open && stats.unused_pairs == unused)
            return;
        clock_sleep_us(1000);
    }
    fail_msg("%u pairs are open and %d were closed as unused", stats.peers_open,
             (int)stats.unused_pairs);
}

// `side` is opened anew and keeps one pair; `others` are peers for the opposite part.
static void open_side_with_one_pair(peer *side, peer *opposite, peer others[2], bool others_listen)
{
    handoff_close(sender.h);
    handoff_close(receiver.h);
    side->settings.peers = 1;
    for (uint64_t i = 0; i < 2; i++) {
        peer_prepare(&others[i], opposite->identity.incarnation + 1 + i, opposite->page_bytes);
        peer_open(&others[i], others_listen);
    }
    peer_open(&receiver, true);
    peer_open(&sender, false);
}

static void a_sender_closes_the_pair_that_it_used_longest_ago(void **state)
{
    (void)state;
    peer others[2];
    handoff_stats stats;
    open_side_with_one_pair(&sender, &receiver, others, true);
    transfer held = make(10, 0, 1, 1);
    begin(&held);
    open_seat(&held);
    await(&sender, HANDOFF_SEAT_READY, held.key, NULL);
    exchange(&receiver, &others[0]);
    transfer_whole(make(10, 0, 1, 1)); // nothing is closed under a transfer
    expect_pairs(&sender, 1, 1);       // but this one, which nothing needs any more
    exchange(&receiver, &others[1]);
    transfer_whole(make(10, 0, 1, 1));
    expect_pairs(&sender, 1, 2);
    exchange(&receiver, &others[1]);
    exchange(&receiver, &others[0]); // the first one again, whose transfer went on all the time
    memset(receiver.pool, 0, PEER_PAGES * receiver.page_bytes);
    for (int32_t i = 0; i < held.pages; i++) // where the others' pages were
        peer_fill(&sender, held.from[i], held.content, (uint32_t)i);
    send_all(&held);
    await(&receiver, HANDOFF_SEAT_FILLED, held.key, NULL);
    check_content(&held);
    exchange(&receiver, &others[0]);
    transfer_whole(make(10, 0, 1, 1)); // a closed pair is made again when it is wanted
    expect_pairs(&sender, 1, 3);
    handoff_stats_of(sender.h, &stats);
    assert_int_equal(stats.transfers_failed, 0);
    peer_close(&others[0]);
    peer_close(&others[1]);
}

static void a_receiver_closes_the_pair_that_it_used_longest_ago(void **state)
{
    (void)state;
    peer others[2];
    handoff_stats stats;
    open_side_with_one_pair(&receiver, &sender, others, false);
    for (int round = 0; round < 4; round++) {
        transfer_whole(make(10, 0, 1, 1));
        expect_pairs(&receiver, 1, (uint64_t)round);
        expect_pairs(&others[0], 0, 0); // its own end hears of it, and may connect at once
        exchange(&sender, &others[0]);
    }
    handoff_stats_of(receiver.h, &stats);
    assert_int_equal(stats.transfers_failed, 0);
    peer_close(&others[0]);
    peer_close(&others[1]);
}

static void the_host_must_be_reachable(void **state)
{
    (void)state;
    peer p;
    error failure;
    peer_prepare(&p, 5, 4096);
    p.settings.host = "0.0.0.0";
    assert_int_equal(handoff_open(&p.settings, &p.identity, true, p.pool, 4096, &p.h, &failure),
                     STATUS_BAD_CONFIG);
    assert_string_equal(failure.param, "fabric.host");
    free(p.pool);
}

int main(int argc, char **argv)
{
    (void)argc;
    fabric_exec(argv);
    log_level_set(getenv("PENSTOCK_VERBOSE") ? LOG_DEBUG : LOG_ERROR);
    const struct CMUnitTest tests[] = {
        TEST(pages_arrive_byte_for_byte),
        TEST(a_held_prefix_is_not_sent),
        TEST(large_pages_go_one_by_one),
        TEST(pages_may_come_in_any_portions),
        TEST(seat_and_ticket_may_come_in_either_order),
        TEST(many_transfers_share_a_pair),
        TEST(a_second_begin_or_open_changes_nothing),
        TEST(attempts_are_transfers_of_their_own),
        TEST(checksums_can_be_off),
        TEST(a_sender_closes_the_pair_that_it_used_longest_ago),
        TEST(a_receiver_closes_the_pair_that_it_used_longest_ago),
        cmocka_unit_test(the_host_must_be_reachable),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
