// What may happen to a hand-off, and what follows: three machines as tables, one cell for every
// state and event.
//
//   send   one transfer at the prefill worker     seat   one transfer at the decode worker
//   pair   the connection of two workers, both ends
//
// Pure: no UCX, no clock, no threads, no memory of its own. The driver (pair.c, send.c, receive.c)
// turns what it sees into events and carries the returned actions out. A cell names the next state
// and its actions; cells that the peer or the step thread can reach by being late do nothing or
// DROP (nothing, and it is counted); cells that only a programming error reaches are NEVER.
// table_render writes a machine as Markdown; ARCHITECTURE.md holds that text.
//
// The rule that protects pages is kept here too. `held` counts the requests of a transfer that the
// fabric holds, and a failed endpoint counts as one more until it is closed and drained. Only when
// `held` is 0 does IDLE happen, and only IDLE (or a cell in which nothing was ever posted) ends a
// transfer whose pages a peer might touch.
#pragma once

#include "base/buffer.h"

typedef enum table_action {
    TABLE_NEVER = 1 << 0,  // a programming error
    TABLE_DROP = 1 << 1,   // count it as late or unknown
    TABLE_READY = 1 << 2,  // event to the step thread: SEAT_READY
    TABLE_DONE = 1 << 3,   // event: DELIVERED or SEAT_FILLED; the transfer is over
    TABLE_OVER = 1 << 4,   // event: SEND_OVER or SEAT_OVER; the transfer is over
    TABLE_FAILED = 1 << 5, // event: SEAT_FAILED
    TABLE_TAKE =
        1 << 6, // take what came: pages or record to send, a run to place, a record to keep
    TABLE_TELL = 1 << 7,   // message: send: SendEnded; seat: SeatClosed; pair: HelloReply (refused)
    TABLE_OPEN = 1 << 8,   // message: seat: SeatOpen; pair: Hello or HelloReply (accepted)
    TABLE_ANSWER = 1 << 9, // message: seat: Received; pair: Probe with its answer or the next round
    TABLE_RAISE = 1 << 10, // pair: tell its transfers (PAIR_READY or PAIR_FAILED)
    TABLE_FAIL = 1 << 11,  // fail the endpoint of the pair
    TABLE_SHIPPED = 1 << 12, // event to the step thread: SHIPPED
} table_action;

// ---- send
// ----------------------------------------------------------------------------------------

typedef enum send_state {
    SEND_FREE,       // there is no transfer
    SEND_EARLY,      // the seat is open, but the step thread has not begun
    SEND_CONNECTING, // begun; the pair is not ready
    SEND_WAITING,    // begun; the pair is ready, the seat is not open
    SEND_FLOWING,    // the seat is open; pages go
    SEND_ENDED,      // the record is given; the peer has to acknowledge
    SEND_DELIVERED,  // acknowledged; own requests still come back
    SEND_STOPPING,   // cancelled or failed; own requests still come back
    SEND_STATES
} send_state;

typedef enum send_event {
    SEND_BEGIN,       // step thread
    SEND_PAGES,       // step thread
    SEND_END,         // step thread
    SEND_CANCEL,      // step thread
    SEND_PAIR_READY,  // the pair passed its probe
    SEND_PAIR_FAILED, // the endpoint failed
    SEND_PAIR_CLOSED, // it is closed and drained
    SEND_SEAT_OPEN,   // message
    SEND_SEAT_CLOSED, // message
    SEND_RECEIVED,    // message
    SEND_POSTED,      // a run was given to the fabric
    SEND_RETURNED,    // a run came back
    SEND_BROKEN,      // a run came back with an error
    SEND_STALLED,     // a run is held without progress for too long
    SEND_UNANSWERED,  // everything was said and nothing comes back
    SEND_SHIPPED,     // every page that was given has gone
    SEND_IDLE,        // nothing is held by the fabric
    SEND_EVENTS
} send_event;

// ---- seat
// ----------------------------------------------------------------------------------------

typedef enum seat_state {
    SEAT_FREE,     // there is no transfer
    SEAT_WAITING,  // pages are reserved; the pair is not ready
    SEAT_OPENED,   // the peer knows; pages come
    SEAT_RECORDED, // the record is in, pages are missing
    SEAT_FAILED,   // no more will come; the step thread has to close
    SEAT_CLOSING,  // the step thread closed; posted receives still come back
    SEAT_STATES
} seat_state;

typedef enum seat_event {
    SEAT_OPEN,        // step thread
    SEAT_CLOSE,       // step thread
    SEAT_PAIR_READY,  // the pair passed its probe
    SEAT_PAIR_FAILED, // the endpoint failed
    SEAT_PAIR_CLOSED, // it is closed and drained
    SEAT_ANNOUNCED,   // a run of this generation, inside the seat, wants to come
    SEAT_MALFORMED,   // a run or record that contradicts the seat
    SEAT_RECORD,      // message
    SEAT_SEND_ENDED,  // message
    SEAT_POSTED,      // a receive was given to the fabric
    SEAT_STORED,      // it came back whole
    SEAT_BROKEN,      // it came back broken, or its checksum is wrong
    SEAT_COMPLETE,    // record and pages are all in
    SEAT_STALLED,     // a receive is held without progress for too long
    SEAT_UNANSWERED,  // the peer does not connect, or said all and pages are missing
    SEAT_IDLE,        // nothing is held by the fabric
    SEAT_EVENTS
} seat_event;

// ---- pair
// ----------------------------------------------------------------------------------------

typedef enum pair_state {
    PAIR_FREE,     // there is no pair
    PAIR_GREETING, // prefill: Hello is on its way
    PAIR_ACCEPTED, // decode: connected, Hello has not come
    PAIR_PROBING,  // both agree; data is moved both ways and checked
    PAIR_READY,    // in use
    PAIR_REFUSED,  // decode: the refusal is on its way; the peer will close
    PAIR_CLOSING,  // the endpoint is being closed
    PAIR_STATES
} pair_state;

typedef enum pair_event {
    PAIR_CONNECT,   // prefill: the endpoint was made
    PAIR_ACCEPT,    // decode: a peer connected
    PAIR_HELLO,     // decode: Hello, everything equal
    PAIR_STRANGER,  // decode: Hello, something differs
    PAIR_WELCOME,   // prefill: HelloReply, accepted
    PAIR_UNWELCOME, // prefill: HelloReply, refused
    PAIR_PROBE,     // data of a probe came and is right
    PAIR_CONFIRM,   // prefill: the last answer is right; decode: the peer says so
    PAIR_BAD,       // a probe is wrong, the transport too slow, or a message makes no sense
    PAIR_LATE,      // set-up takes too long
    PAIR_UNUSED,    // no transfer needs it, and others want its place
    PAIR_FAILED,    // the endpoint failed
    PAIR_CLOSED,    // it is closed and drained
    PAIR_EVENTS
} pair_event;

// ---- use
// -----------------------------------------------------------------------------------------

typedef struct table_transfer {
    uint8_t state;  // send_state or seat_state
    bool pair_held; // a failed endpoint is counted in `held`
    uint32_t held;
} table_transfer;

// Apply an event (and IDLE where it follows) and return the actions, or-ed table_action.
uint32_t table_send_step(table_transfer *t, send_event event);
uint32_t table_seat_step(table_transfer *t, seat_event event);
uint32_t table_pair_step(uint8_t *state, pair_event event);

typedef enum table_machine { TABLE_SEND, TABLE_SEAT, TABLE_PAIR, TABLE_MACHINES } table_machine;

// The single cell: next state in *next; the actions as the return value.
uint32_t table_cell(table_machine machine, int state, int event, int *next);
int table_states(table_machine machine);
int table_events(table_machine machine);
const char *table_state_name(table_machine machine, int state);
const char *table_event_name(table_machine machine, int event);
// Append the machine as a Markdown table: a row an event, a column a state.
void table_render(table_machine machine, buffer *out);
