// Two hand-offs in one process over loopback TCP, for the tests: `sender` is the prefill side,
// `receiver` the decode side, and a `transfer` says which pages at each side one request has and
// how far it goes.
#pragma once

#include "peer.h"

#include "base/fault.h"
#include "base/log.h"

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

#define SECOND 1000000
#define SENDER 11u
#define RECEIVER 22u

static peer sender, receiver;
static uint64_t generation;
static uint64_t requests;

static inline void open_both(size_t page_bytes)
{
    peer_prepare(&sender, SENDER, page_bytes);
    peer_prepare(&receiver, RECEIVER, page_bytes);
    peer_open(&receiver, true);
    peer_open(&sender, false);
}

static inline int setup(void **state)
{
    (void)state;
    open_both(20000);
    return 0;
}

static inline int teardown(void **state)
{
    (void)state;
    fault_disarm_all();
    peer_close(&sender);
    peer_close(&receiver);
    return 0;
}

static inline void arm(const char *point)
{
    char *items[] = { (char *)point };
    fault_settings settings = { { 1, items } };
    error failure;
    assert_int_equal(fault_arm(&settings, &failure), STATUS_OK);
}

// What one transfer is: which pages at each side, and how far it goes.
typedef struct transfer {
    handoff_key key;
    uint32_t content;
    int32_t pages, seat_pages, first_page, computed;
    int32_t from[PEER_PAGES], to[PEER_PAGES];
} transfer;

static inline transfer make(int32_t pages, int32_t first_page, int32_t from_step, int32_t to_step)
{
    transfer t = { .key = { 7, ++requests, 1 }, .content = (uint32_t)requests };
    t.pages = pages;
    t.first_page = first_page;
    t.seat_pages = pages + 1;                           // one page more, for the next token
    t.computed = pages * (int32_t)PEER_PAGE_TOKENS - 5; // the last page is not full
    peer_pages(t.from, pages, 3, from_step);
    peer_pages(t.to, t.seat_pages, 1, to_step);
    for (int32_t i = 0; i < pages; i++)
        peer_fill(&sender, t.from[i], t.content, (uint32_t)i);
    return t;
}

static inline void begin(const transfer *t)
{
    handoff_peer address = peer_address(&receiver);
    handoff_send_begin(sender.h, t->key, &address);
}

static inline void open_seat(const transfer *t)
{
    uint64_t from = sender.identity.incarnation;
    handoff_admit(receiver.h, from, (handoff_token){ { 0 } });
    handoff_seat_open(receiver.h, t->key, from, ++generation, t->to, t->seat_pages, t->first_page);
}

static inline void await(peer *p, handoff_event_kind kind, handoff_key key, handoff_event *found)
{
    if (!peer_wait(p, kind, key, 30 * SECOND, found))
        fail_msg("event %d of request %d did not come", (int)kind, (int)key.number);
}

static inline void send_all(const transfer *t)
{
    handoff_record record = { .computed = t->computed, .next_token = 42 };
    handoff_send_pages(sender.h, t->key, t->first_page, t->from + t->first_page,
                       t->pages - t->first_page);
    handoff_send_end(sender.h, t->key, &record);
}

static inline void check_content(const transfer *t)
{
    for (int32_t i = 0; i < t->seat_pages; i++) {
        bool wanted = i >= t->first_page && i < t->pages;
        if (wanted ? !peer_holds(&receiver, t->to[i], t->content, (uint32_t)i)
                   : !peer_untouched(&receiver, t->to[i]))
            fail_msg("page %d of %d is wrong", i, t->pages);
    }
}

static inline void transfer_whole(transfer t)
{
    handoff_event event = { 0 };
    memset(receiver.pool, 0, PEER_PAGES * receiver.page_bytes);
    begin(&t);
    open_seat(&t);
    await(&sender, HANDOFF_SEAT_READY, t.key, &event);
    assert_int_equal(event.first_page, t.first_page);
    send_all(&t);
    await(&receiver, HANDOFF_SEAT_FILLED, t.key, &event);
    uint64_t bytes = (uint64_t)(t.pages - t.first_page) * receiver.page_bytes;
    assert_int_equal(event.bytes, bytes);
    assert_int_equal(event.record.computed, t.computed);
    assert_int_equal(event.record.next_token, 42);
    if (bytes)
        assert_true(event.first_page_us > 0 && event.last_page_us >= event.first_page_us);
    await(&sender, HANDOFF_DELIVERED, t.key, &event);
    assert_int_equal(event.bytes, bytes);
    check_content(&t);
}

static inline void expect_rest(void)
{
    handoff_stats stats;
    uint64_t end_us = clock_now_us() + 30 * SECOND;
    do {
        handoff_stats_of(sender.h, &stats);
        bool idle = stats.sends_open == 0 && stats.pages_quarantined == 0;
        handoff_stats_of(receiver.h, &stats);
        if (idle && stats.seats_open == 0 && stats.pages_quarantined == 0)
            return;
        clock_sleep_us(1000);
    } while (clock_now_us() < end_us);
    fail_msg("transfers are left over");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
