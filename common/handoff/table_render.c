#include "handoff/table.h"

#include "base/status.h"

#include <stdio.h>

static const char *const send_states[] = {
    "free", "early", "connecting", "waiting", "flowing", "ended", "delivered", "stopping",
};
static const char *const send_events[] = {
    "begin",       "pages",     "end",         "cancel",   "pair ready", "pair failed",
    "pair closed", "seat open", "seat closed", "received", "posted",     "returned",
    "broken",      "stalled",   "unanswered",  "shipped",  "idle",
};
static const char *const seat_states[] = {
    "free", "waiting", "opened", "recorded", "failed", "closing",
};
static const char *const seat_events[] = {
    "open",      "close",   "pair ready", "pair failed", "pair closed", "announced",
    "malformed", "record",  "send ended", "posted",      "stored",      "broken",
    "complete",  "stalled", "unanswered", "idle",
};
static const char *const pair_states[] = {
    "free", "greeting", "accepted", "probing", "ready", "refused", "closing",
};
static const char *const pair_events[] = {
    "connect", "accept", "hello", "stranger", "welcome", "unwelcome", "probe",
    "confirm", "bad",    "late",  "unused",   "failed",  "closed",
};

typedef struct machine_names {
    const char *const *states, *const *events;
    int state_count, event_count;
} machine_names;

static const machine_names machines[TABLE_MACHINES] = {
    [TABLE_SEND] = { send_states, send_events, SEND_STATES, SEND_EVENTS },
    [TABLE_SEAT] = { seat_states, seat_events, SEAT_STATES, SEAT_EVENTS },
    [TABLE_PAIR] = { pair_states, pair_events, PAIR_STATES, PAIR_EVENTS },
};

#define COUNT(array) (sizeof(array) / sizeof(array[0]))
_Static_assert(COUNT(send_states) == SEND_STATES && COUNT(send_events) == SEND_EVENTS, "names");
_Static_assert(COUNT(seat_states) == SEAT_STATES && COUNT(seat_events) == SEAT_EVENTS, "names");
_Static_assert(COUNT(pair_states) == PAIR_STATES && COUNT(pair_events) == PAIR_EVENTS, "names");

int table_states(table_machine machine)
{
    return machines[machine].state_count;
}

int table_events(table_machine machine)
{
    return machines[machine].event_count;
}

const char *table_state_name(table_machine machine, int state)
{
    return machines[machine].states[state];
}

const char *table_event_name(table_machine machine, int event)
{
    return machines[machine].events[event];
}

// What an action means to each machine; "" where the machine has no such action.
static const struct {
    uint32_t action;
    const char *names[TABLE_MACHINES];
} action_names[] = {
    { TABLE_DROP, { "drop", "drop", "drop" } },
    { TABLE_TAKE, { "take", "take", "" } },
    { TABLE_OPEN, { "", "say SeatOpen", "greet" } },
    { TABLE_ANSWER, { "", "say Received", "probe" } },
    { TABLE_TELL, { "say SendEnded", "say SeatClosed", "refuse" } },
    { TABLE_READY, { "SEAT_READY", "", "" } },
    { TABLE_SHIPPED, { "SHIPPED", "", "" } },
    { TABLE_DONE, { "DELIVERED", "SEAT_FILLED", "" } },
    { TABLE_FAILED, { "", "SEAT_FAILED", "" } },
    { TABLE_OVER, { "SEND_OVER", "SEAT_OVER", "" } },
    { TABLE_RAISE, { "", "", "tell transfers" } },
    { TABLE_FAIL, { "close pair", "close pair", "close" } },
};

static void render_cell(table_machine machine, int state, int event, buffer *out)
{
    int next;
    uint32_t actions = table_cell(machine, state, event, &next);
    const char *separator = "";
    if (actions & TABLE_NEVER) {
        buffer_append_text(out, "never");
        return;
    }
    if (next != state) {
        buffer_printf(out, "**%s**", table_state_name(machine, next));
        separator = ", ";
    }
    for (size_t i = 0; i < COUNT(action_names); i++) {
        if (!(actions & action_names[i].action))
            continue;
        buffer_printf(out, "%s%s", separator, action_names[i].names[machine]);
        separator = ", ";
    }
    if (*separator == 0)
        buffer_append_text(out, "-");
}

void table_render(table_machine machine, buffer *out)
{
    buffer_append_text(out, "| event |");
    for (int state = 0; state < table_states(machine); state++)
        buffer_printf(out, " %s |", table_state_name(machine, state));
    buffer_append_text(out, "\n| --- |");
    for (int state = 0; state < table_states(machine); state++)
        buffer_append_text(out, " --- |");
    buffer_append_text(out, "\n");
    for (int event = 0; event < table_events(machine); event++) {
        buffer_printf(out, "| %s |", table_event_name(machine, event));
        for (int state = 0; state < table_states(machine); state++) {
            buffer_append_text(out, " ");
            render_cell(machine, state, event, out);
            buffer_append_text(out, " |");
        }
        buffer_append_text(out, "\n");
    }
}
