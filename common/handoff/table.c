#include "handoff/table.h"

#include "base/status.h"

// What an event does to the count of held requests, the same for both transfers.
typedef enum held_change {
    HELD_SAME,
    HELD_MORE,
    HELD_LESS,
    HELD_PAIR_FAILED,
    HELD_PAIR_CLOSED
} held_change;

static void count_held(table_transfer *t, held_change change)
{
    if (change == HELD_MORE)
        t->held++;
    if (change == HELD_PAIR_FAILED && t->held > 0 && !t->pair_held) {
        t->pair_held = true;
        t->held++;
    }
    if (change == HELD_LESS || (change == HELD_PAIR_CLOSED && t->pair_held)) {
        CHECK(t->held > 0);
        t->held--;
    }
    if (change == HELD_PAIR_CLOSED)
        t->pair_held = false;
}

// One cell, then IDLE where nothing is held.
static uint32_t step(table_transfer *t, table_machine machine, int event, int idle,
                     held_change change)
{
    int next;
    uint32_t actions = table_cell(machine, t->state, event, &next);
    if (actions & TABLE_NEVER)
        return TABLE_NEVER;
    t->state = (uint8_t)next;
    count_held(t, change);
    if (t->held == 0) {
        actions |= table_cell(machine, t->state, idle, &next);
        t->state = (uint8_t)next;
    }
    if (t->state == 0)
        CHECK(t->held == 0);
    return actions;
}

uint32_t table_send_step(table_transfer *t, send_event event)
{
    static const uint8_t changes[SEND_EVENTS] = {
        [SEND_POSTED] = HELD_MORE,
        [SEND_RETURNED] = HELD_LESS,
        [SEND_BROKEN] = HELD_LESS,
        [SEND_PAIR_FAILED] = HELD_PAIR_FAILED,
        [SEND_PAIR_CLOSED] = HELD_PAIR_CLOSED,
    };
    return step(t, TABLE_SEND, event, SEND_IDLE, changes[event]);
}

uint32_t table_seat_step(table_transfer *t, seat_event event)
{
    static const uint8_t changes[SEAT_EVENTS] = {
        [SEAT_POSTED] = HELD_MORE,
        [SEAT_STORED] = HELD_LESS,
        [SEAT_BROKEN] = HELD_LESS,
        [SEAT_PAIR_FAILED] = HELD_PAIR_FAILED,
        [SEAT_PAIR_CLOSED] = HELD_PAIR_CLOSED,
    };
    return step(t, TABLE_SEAT, event, SEAT_IDLE, changes[event]);
}

uint32_t table_pair_step(uint8_t *state, pair_event event)
{
    int next;
    uint32_t actions = table_cell(TABLE_PAIR, *state, event, &next);
    if (!(actions & TABLE_NEVER))
        *state = (uint8_t)next;
    return actions;
}
