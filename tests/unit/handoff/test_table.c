// Facts about the three machines, and random walks of two of them against each other.
#include "handoff/table.h"

#include "base/random.h"
#include "base/status.h"
#include "harness/seed.h"

#include <stdio.h>
#include <stdlib.h>

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

static bool has(uint32_t actions, uint32_t wanted)
{
    return (actions & wanted) == wanted;
}

static void every_cell_is_filled(void **state)
{
    (void)state;
    for (int m = 0; m < TABLE_MACHINES; m++)
        for (int s = 0; s < table_states(m); s++)
            for (int e = 0; e < table_events(m); e++) {
                int next = -1;
                uint32_t actions = table_cell(m, s, e, &next);
                // A forgotten cell is all zero: it would lead to FREE and say nothing. Whatever
                // leads to FREE must say why, except where FREE is the state already.
                if (next == 0 && s != 0 && !(actions & TABLE_NEVER)) {
                    bool said = actions & (TABLE_OVER | TABLE_DONE);
                    bool early = m == TABLE_SEND && s == SEND_EARLY;
                    bool closed = m == TABLE_PAIR && s == PAIR_CLOSING && e == PAIR_CLOSED;
                    if (!said && !early && !closed)
                        fail_msg("machine %d state %s event %s is empty", m, table_state_name(m, s),
                                 table_event_name(m, e));
                }
                assert_true(next >= 0 && next < table_states(m));
            }
}

static void what_peer_and_step_thread_can_do_is_never_a_programming_error(void **state)
{
    (void)state;
    static const int send[] = { SEND_BEGIN,     SEND_PAGES,       SEND_END,     SEND_CANCEL,
                                SEND_SEAT_OPEN, SEND_SEAT_CLOSED, SEND_RECEIVED };
    static const int seat[] = { SEAT_OPEN,      SEAT_CLOSE,  SEAT_ANNOUNCED,
                                SEAT_MALFORMED, SEAT_RECORD, SEAT_SEND_ENDED };
    int next;
    for (int s = 0; s < SEND_STATES; s++)
        for (size_t i = 0; i < sizeof(send) / sizeof(send[0]); i++)
            assert_false(table_cell(TABLE_SEND, s, send[i], &next) & TABLE_NEVER);
    for (int s = 0; s < SEAT_STATES; s++)
        for (size_t i = 0; i < sizeof(seat) / sizeof(seat[0]); i++)
            assert_false(table_cell(TABLE_SEAT, s, seat[i], &next) & TABLE_NEVER);
    for (int s = PAIR_GREETING; s < PAIR_STATES; s++)
        for (int e = PAIR_HELLO; e <= PAIR_BAD; e++)
            assert_false(table_cell(TABLE_PAIR, s, e, &next) & TABLE_NEVER);
}

static void pages_are_placed_only_into_an_open_seat(void **state)
{
    (void)state;
    for (int s = 0; s < SEAT_STATES; s++) {
        int next;
        uint32_t actions = table_cell(TABLE_SEAT, s, SEAT_ANNOUNCED, &next);
        bool open = s == SEAT_OPENED || s == SEAT_RECORDED;
        assert_true(open == !!(actions & TABLE_TAKE));
        assert_true(open != !!(actions & TABLE_DROP));
    }
}

static void a_transfer_is_over_only_when_nothing_is_held(void **state)
{
    (void)state;
    table_transfer t = { 0 };
    table_send_step(&t, SEND_BEGIN);
    table_send_step(&t, SEND_PAIR_READY);
    assert_true(has(table_send_step(&t, SEND_SEAT_OPEN), TABLE_READY));
    table_send_step(&t, SEND_PAGES);
    table_send_step(&t, SEND_POSTED);
    table_send_step(&t, SEND_POSTED);
    assert_int_equal(table_send_step(&t, SEND_CANCEL), TABLE_TELL);
    assert_int_equal(table_send_step(&t, SEND_RETURNED), 0);
    assert_int_equal(table_send_step(&t, SEND_PAIR_FAILED), 0); // one more is held now
    assert_int_equal(table_send_step(&t, SEND_BROKEN), 0);
    assert_int_equal(table_send_step(&t, SEND_PAIR_CLOSED), TABLE_OVER);
    assert_int_equal(t.state, SEND_FREE);
}

static void a_closed_seat_waits_for_its_posted_receives(void **state)
{
    (void)state;
    table_transfer t = { 0 };
    table_seat_step(&t, SEAT_OPEN);
    assert_int_equal(table_seat_step(&t, SEAT_PAIR_READY), TABLE_OPEN);
    assert_int_equal(table_seat_step(&t, SEAT_ANNOUNCED), TABLE_TAKE);
    table_seat_step(&t, SEAT_POSTED);
    assert_int_equal(table_seat_step(&t, SEAT_CLOSE), TABLE_TELL);
    assert_int_equal(table_seat_step(&t, SEAT_ANNOUNCED), TABLE_DROP);
    assert_int_equal(table_seat_step(&t, SEAT_STORED), TABLE_OVER);
}

static void the_rendering_shows_every_cell(void **state)
{
    (void)state;
    buffer out = { 0 };
    table_render(TABLE_SEAT, &out);
    assert_non_null(strstr(out.data, "| event | free | waiting | opened |"));
    assert_non_null(strstr(out.data, "| complete | never | never | never | **free**, say Received, "
                                     "SEAT_FILLED | never | never |"));
    size_t lines = 0, bars = 0;
    for (size_t i = 0; i < out.size; i++) {
        lines += out.data[i] == '\n';
        bars += out.data[i] == '|';
    }
    assert_int_equal(lines, SEAT_EVENTS + 2);
    assert_int_equal(bars, (SEAT_EVENTS + 2) * (SEAT_STATES + 2));
    buffer_close(&out);
}

static const char *const marks[TABLE_MACHINES] = { "<!-- handoff table: send -->\n",
                                                   "<!-- handoff table: seat -->\n",
                                                   "<!-- handoff table: pair -->\n" };

// ARCHITECTURE.md holds the rendered tables behind marks; where it does, they must be these.
// `handoff-table --print` writes them.
static void the_architecture_shows_these_tables(void **state)
{
    (void)state;
    FILE *file = fopen(PENSTOCK_SOURCE_DIR "/ARCHITECTURE.md", "r");
    if (file == NULL)
        skip();
    char *text = calloc(1, 1 << 20);
    size_t size = fread(text, 1, (1 << 20) - 1, file);
    fclose(file);
    assert_true(size > 0);
    int found = 0;
    for (int m = 0; m < TABLE_MACHINES; m++) {
        char *at = strstr(text, marks[m]);
        buffer out = { 0 };
        table_render(m, &out);
        if (at && strncmp(at + strlen(marks[m]), out.data, out.size) != 0)
            fail_msg("ARCHITECTURE.md shows another table behind %s", marks[m]);
        found += at != NULL;
        buffer_close(&out);
    }
    free(text);
    if (found == 0)
        skip();
    assert_int_equal(found, TABLE_MACHINES);
}

// ---- two machines and a network
// --------------------------------------------------------------------

enum { PAGES = 6, QUEUE = 64 };
enum message { M_OPEN, M_CLOSED, M_RECEIVED, M_RUN, M_RECORD, M_ENDED };
enum owner { BY_SENDER, BY_RECEIVER, BY_NOBODY };

typedef struct channel {
    int items[QUEUE], generation[QUEUE], head, count;
} channel;

// One attempt of one request between two machines, as the driver runs them.
typedef struct world {
    uint64_t random;
    table_transfer send, seat;
    channel to_seat, to_send;
    bool pair_up, begun, seat_asked, close_asked, record_sent, record_in;
    int generation, sender_knows; // of the seat; what the sender was told
    int given, posted, stored, flying, receiving;
    int ready, sender_over, seat_over, filled, delivered, failed;
    bool sender_owns, receiver_may_write;
} world;

static void put(channel *c, int item, int generation)
{
    CHECK(c->count < QUEUE);
    int at = (c->head + c->count++) % QUEUE;
    c->items[at] = item;
    c->generation[at] = generation;
}

static void send_step(world *w, send_event event)
{
    uint32_t a = table_send_step(&w->send, event);
    assert_false(a & TABLE_NEVER);
    if ((a & TABLE_TELL) && w->pair_up)
        put(&w->to_seat, M_ENDED, w->sender_knows);
    w->ready += has(a, TABLE_READY);
    w->delivered += has(a, TABLE_DONE);
    w->sender_over += has(a, TABLE_OVER);
    if (a & (TABLE_DONE | TABLE_OVER)) {
        assert_int_equal(w->flying, 0); // nobody reads the sender's pages any more
        w->sender_owns = true;
    }
    assert_true(w->ready <= 1 && w->delivered + w->sender_over <= 1);
}

static void seat_step(world *w, seat_event event)
{
    uint32_t a = table_seat_step(&w->seat, event);
    assert_false(a & TABLE_NEVER);
    if ((a & TABLE_OPEN) && w->pair_up)
        put(&w->to_send, M_OPEN, w->generation);
    if ((a & TABLE_TELL) && w->pair_up)
        put(&w->to_send, M_CLOSED, w->generation);
    if ((a & TABLE_ANSWER) && w->pair_up)
        put(&w->to_send, M_RECEIVED, w->generation);
    w->failed += has(a, TABLE_FAILED);
    w->filled += has(a, TABLE_DONE);
    w->seat_over += has(a, TABLE_OVER);
    if (a & (TABLE_DONE | TABLE_OVER)) {
        assert_int_equal(w->receiving, 0); // nobody writes the seat's pages any more
        w->receiver_may_write = false;
    }
    assert_true(w->failed <= 1 && w->filled + w->seat_over <= 1);
}

static void complete(world *w)
{
    if (w->seat.state == SEAT_RECORDED && w->seat.held == 0 && w->stored == PAGES)
        seat_step(w, SEAT_COMPLETE);
}

static void deliver_to_seat(world *w)
{
    channel *c = &w->to_seat;
    int item = c->items[c->head], generation = c->generation[c->head];
    c->head = (c->head + 1) % QUEUE;
    c->count--;
    bool live = w->seat.state != SEAT_FREE && generation == w->generation;
    if (item == M_ENDED) {
        if (w->seat.state != SEAT_FREE && (live || generation == 0))
            seat_step(w, SEAT_SEND_ENDED);
    } else if (!live)
        w->flying -= item == M_RUN; // dropped by its generation: its sender sees it as sent
    else if (item == M_RUN) {
        bool takes = w->seat.state == SEAT_OPENED || w->seat.state == SEAT_RECORDED;
        seat_step(w, SEAT_ANNOUNCED);
        if (takes) {
            assert_true(w->receiver_may_write);
            seat_step(w, SEAT_POSTED);
            w->receiving++;
        } else {
            w->flying--;
            if (w->send.held > (uint32_t)w->send.pair_held)
                send_step(w, SEND_RETURNED);
            return;
        }
    } else {
        seat_step(w, SEAT_RECORD);
        complete(w);
    }
    if (item == M_RUN && !live && w->send.held > (uint32_t)w->send.pair_held)
        send_step(w, SEND_RETURNED);
}

static void deliver_to_send(world *w)
{
    channel *c = &w->to_send;
    int item = c->items[c->head], generation = c->generation[c->head];
    c->head = (c->head + 1) % QUEUE;
    c->count--;
    if (item == M_OPEN) {
        if (w->send.state == SEND_FREE || w->send.state == SEND_WAITING)
            w->sender_knows = generation;
        send_step(w, SEND_SEAT_OPEN);
    } else if (w->send.state != SEND_FREE)
        send_step(w, item == M_CLOSED ? SEND_SEAT_CLOSED : SEND_RECEIVED);
}

static void receive_returns(world *w, bool whole)
{
    w->receiving--;
    w->flying--;
    if (whole)
        w->stored++;
    seat_step(w, whole ? SEAT_STORED : SEAT_BROKEN);
    complete(w);
    if (w->send.held > (uint32_t)w->send.pair_held)
        send_step(w, whole ? SEND_RETURNED : SEND_BROKEN);
}

// The endpoint dies: messages are lost, transfers hear of it, what was held comes back, then it is
// closed.
static void pair_dies(world *w)
{
    w->pair_up = false;
    w->to_seat.count = w->to_send.count = 0;
    if (w->send.state != SEND_FREE)
        send_step(w, SEND_PAIR_FAILED);
    if (w->seat.state != SEAT_FREE)
        seat_step(w, SEAT_PAIR_FAILED);
    while (w->receiving > 0) {
        w->receiving--;
        seat_step(w, SEAT_BROKEN);
    }
    while (w->send.held > (uint32_t)w->send.pair_held) {
        if (w->send.held == 1u + w->send.pair_held)
            w->flying = 0;
        send_step(w, SEND_BROKEN);
    }
    w->flying = 0;
    if (w->send.pair_held)
        send_step(w, SEND_PAIR_CLOSED);
    if (w->seat.pair_held)
        seat_step(w, SEAT_PAIR_CLOSED);
}

static void step_thread_acts(world *w, uint64_t choice)
{
    if (!w->begun) {
        w->begun = true;
        w->sender_owns = false;
        send_step(w, SEND_BEGIN);
        if (w->send.state == SEND_CONNECTING) {
            if (w->pair_up)
                send_step(w, SEND_PAIR_READY);
            else
                send_step(w, SEND_PAIR_FAILED);
        }
    } else if (w->ready && w->given < PAGES && w->send.state == SEND_FLOWING) {
        w->given++;
        send_step(w, SEND_PAGES);
    } else if (w->ready && w->given == PAGES && w->send.state == SEND_FLOWING)
        send_step(w, SEND_END);
    if (choice % 40 == 0)
        send_step(w, SEND_CANCEL);
}

static void seat_thread_acts(world *w, uint64_t choice)
{
    if (!w->seat_asked) {
        w->seat_asked = true;
        w->receiver_may_write = true;
        seat_step(w, SEAT_OPEN);
        seat_step(w, w->pair_up ? SEAT_PAIR_READY : SEAT_PAIR_FAILED);
    } else if (!w->close_asked && !w->filled && (w->failed || choice % 50 == 0)) {
        w->close_asked = true;
        seat_step(w, SEAT_CLOSE);
    }
}

static void pump(world *w)
{
    bool flows = w->send.state == SEND_FLOWING || w->send.state == SEND_ENDED;
    if (flows && w->posted < w->given && w->pair_up) {
        assert_false(w->sender_owns);
        w->posted++;
        w->flying++;
        send_step(w, SEND_POSTED);
        put(&w->to_seat, M_RUN, w->sender_knows);
    } else if (w->send.state == SEND_ENDED && !w->record_sent && w->pair_up) {
        w->record_sent = true;
        put(&w->to_seat, M_RECORD, w->sender_knows);
    }
}

// How often the walks ended in each way, so that a walk which never gets anywhere is noticed.
static int total_filled, total_delivered, total_failed, total_cancelled;

static void walk(uint64_t seed)
{
    world w = {
        .random = seed, .pair_up = true, .generation = 1 + (int)(seed % 1000), .sender_owns = true
    };
    bool deadly = seed % 3 == 0, faulty = seed % 4 == 0;
    for (int i = 0; i < 400; i++) {
        uint64_t r = random_mix(w.random++);
        switch (r % 8) {
        case 0:
            step_thread_acts(&w, r >> 8);
            break;
        case 1:
            seat_thread_acts(&w, r >> 8);
            break;
        case 2:
        case 3:
            if (w.to_seat.count)
                deliver_to_seat(&w);
            break;
        case 4:
            if (w.to_send.count)
                deliver_to_send(&w);
            break;
        case 5:
            if (w.receiving)
                receive_returns(&w, !(faulty && (r >> 8) % 8 == 0));
            break;
        case 6:
            pump(&w);
            break;
        default:
            if (deadly && w.pair_up && (r >> 8) % 60 == 0)
                pair_dies(&w);
        }
    }
    // Everything ends: by its own steps, or when the pair does.
    if (!w.begun || !w.seat_asked)
        return;
    if (w.pair_up)
        pair_dies(&w);
    if (w.failed && !w.close_asked)
        seat_step(&w, SEAT_CLOSE);
    assert_int_equal(w.delivered + w.sender_over, w.begun);
    assert_int_equal(w.filled + w.seat_over, 1);
    assert_true(w.delivered <= w.filled); // success is never claimed of what was not stored
    assert_true(!w.filled || w.stored == PAGES);
    assert_true(w.sender_owns && !w.receiver_may_write);
    assert_true(w.send.held == 0 && w.seat.held == 0);
    total_filled += w.filled;
    total_delivered += w.delivered;
    total_failed += w.failed;
    total_cancelled += w.sender_over;
}

#define WALKS 20000 // of seed, seed + 1, ...

static void random_walks_never_share_a_page(void **state)
{
    (void)state;
    uint64_t seed = seed_choose();
    for (int i = 0; i < WALKS; i++) {
        if (getenv("PENSTOCK_VERBOSE"))
            print_message("walk %llu\n", (unsigned long long)seed + i);
        walk(seed + (uint64_t)i);
    }
    print_message("filled %d delivered %d failed %d cancelled %d\n", total_filled, total_delivered,
                  total_failed, total_cancelled);
    assert_true(total_filled > 1000 && total_delivered > 1000 && total_failed > 1000 &&
                total_cancelled > 1000);
}

static void print_tables(void)
{
    for (int m = 0; m < TABLE_MACHINES; m++) {
        buffer out = { 0 };
        table_render(m, &out);
        printf("%s%s\n", marks[m], out.data);
        buffer_close(&out);
    }
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "--print") == 0) {
        print_tables();
        return 0;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_cell_is_filled),
        cmocka_unit_test(what_peer_and_step_thread_can_do_is_never_a_programming_error),
        cmocka_unit_test(pages_are_placed_only_into_an_open_seat),
        cmocka_unit_test(a_transfer_is_over_only_when_nothing_is_held),
        cmocka_unit_test(a_closed_seat_waits_for_its_posted_receives),
        cmocka_unit_test(the_rendering_shows_every_cell),
        cmocka_unit_test(the_architecture_shows_these_tables),
        cmocka_unit_test(random_walks_never_share_a_page),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
