#include "handoff/table.h"

#include "base/status.h"

typedef struct cell {
    uint8_t next;
    uint16_t actions;
} cell;

// Short names for the tables only; columns are in the order of the states.
#define NEVER                                                                                      \
    {                                                                                              \
        0, TABLE_NEVER                                                                             \
    }
#define TO(state, actions)                                                                         \
    {                                                                                              \
        state, actions                                                                             \
    }

// clang-format off

// ---- send ----------------------------------------------------------------------------------------

#define FREE       SEND_FREE
#define EARLY      SEND_EARLY
#define CONNECTING SEND_CONNECTING
#define WAITING    SEND_WAITING
#define FLOWING    SEND_FLOWING
#define ENDED      SEND_ENDED
#define DELIVERED  SEND_DELIVERED
#define STOPPING   SEND_STOPPING
#define READY      TABLE_READY
#define DONE       TABLE_DONE
#define OVER       TABLE_OVER
#define TAKE       TABLE_TAKE
#define TELL       TABLE_TELL
#define FAIL       TABLE_FAIL
#define DROP       TABLE_DROP
#define SHIPPED    TABLE_SHIPPED

static const cell send_cells[SEND_STATES][SEND_EVENTS] = {
    [FREE] = {
        [SEND_BEGIN]       = TO(CONNECTING, 0),
        [SEND_PAGES]       = TO(FREE, 0),           // crossed the event that ended it
        [SEND_END]         = TO(FREE, 0),
        [SEND_CANCEL]      = TO(FREE, 0),
        [SEND_PAIR_READY]  = NEVER,
        [SEND_PAIR_FAILED] = NEVER,
        [SEND_PAIR_CLOSED] = NEVER,
        [SEND_SEAT_OPEN]   = TO(EARLY, 0),
        [SEND_SEAT_CLOSED] = TO(FREE, DROP),
        [SEND_RECEIVED]    = TO(FREE, DROP),
        [SEND_POSTED]      = NEVER,
        [SEND_RETURNED]    = NEVER,
        [SEND_BROKEN]      = NEVER,
        [SEND_STALLED]     = NEVER,
        [SEND_UNANSWERED]  = NEVER,
        [SEND_SHIPPED]     = NEVER,
        [SEND_IDLE]        = TO(FREE, 0),
    },
    [EARLY] = {
        [SEND_BEGIN]       = TO(FLOWING, READY),
        [SEND_PAGES]       = TO(EARLY, 0),
        [SEND_END]         = TO(EARLY, 0),
        [SEND_CANCEL]      = TO(EARLY, 0),
        [SEND_PAIR_READY]  = NEVER,
        [SEND_PAIR_FAILED] = TO(FREE, 0),
        [SEND_PAIR_CLOSED] = NEVER,
        [SEND_SEAT_OPEN]   = TO(EARLY, DROP),
        [SEND_SEAT_CLOSED] = TO(FREE, 0),
        [SEND_RECEIVED]    = TO(EARLY, DROP),
        [SEND_POSTED]      = NEVER,
        [SEND_RETURNED]    = NEVER,
        [SEND_BROKEN]      = NEVER,
        [SEND_STALLED]     = NEVER,
        [SEND_UNANSWERED]  = NEVER,
        [SEND_SHIPPED]     = NEVER,
        [SEND_IDLE]        = TO(EARLY, 0),
    },
    [CONNECTING] = {
        [SEND_BEGIN]       = TO(CONNECTING, DROP),
        [SEND_PAGES]       = TO(CONNECTING, 0),
        [SEND_END]         = TO(CONNECTING, 0),
        [SEND_CANCEL]      = TO(FREE, OVER),
        [SEND_PAIR_READY]  = TO(WAITING, 0),
        [SEND_PAIR_FAILED] = TO(FREE, OVER),
        [SEND_PAIR_CLOSED] = NEVER,
        [SEND_SEAT_OPEN]   = TO(CONNECTING, DROP),
        [SEND_SEAT_CLOSED] = TO(CONNECTING, DROP),
        [SEND_RECEIVED]    = TO(CONNECTING, DROP),
        [SEND_POSTED]      = NEVER,
        [SEND_RETURNED]    = NEVER,
        [SEND_BROKEN]      = NEVER,
        [SEND_STALLED]     = NEVER,
        [SEND_UNANSWERED]  = NEVER,
        [SEND_SHIPPED]     = NEVER,
        [SEND_IDLE]        = TO(CONNECTING, 0),
    },
    [WAITING] = {
        [SEND_BEGIN]       = TO(WAITING, DROP),
        [SEND_PAGES]       = TO(WAITING, 0),
        [SEND_END]         = TO(WAITING, 0),
        [SEND_CANCEL]      = TO(FREE, TELL | OVER),
        [SEND_PAIR_READY]  = NEVER,
        [SEND_PAIR_FAILED] = TO(FREE, OVER),
        [SEND_PAIR_CLOSED] = NEVER,
        [SEND_SEAT_OPEN]   = TO(FLOWING, READY),
        [SEND_SEAT_CLOSED] = TO(FREE, OVER),
        [SEND_RECEIVED]    = TO(WAITING, DROP),
        [SEND_POSTED]      = NEVER,
        [SEND_RETURNED]    = NEVER,
        [SEND_BROKEN]      = NEVER,
        [SEND_STALLED]     = NEVER,
        [SEND_UNANSWERED]  = NEVER,
        [SEND_SHIPPED]     = NEVER,
        [SEND_IDLE]        = TO(WAITING, 0),
    },
    [FLOWING] = {
        [SEND_BEGIN]       = TO(FLOWING, DROP),
        [SEND_PAGES]       = TO(FLOWING, TAKE),
        [SEND_END]         = TO(ENDED, TAKE),
        [SEND_CANCEL]      = TO(STOPPING, TELL),
        [SEND_PAIR_READY]  = NEVER,
        [SEND_PAIR_FAILED] = TO(STOPPING, 0),
        [SEND_PAIR_CLOSED] = NEVER,
        [SEND_SEAT_OPEN]   = TO(FLOWING, DROP),
        [SEND_SEAT_CLOSED] = TO(STOPPING, 0),
        [SEND_RECEIVED]    = TO(STOPPING, FAIL),    // the peer acknowledges what was not sent
        [SEND_POSTED]      = TO(FLOWING, 0),
        [SEND_RETURNED]    = TO(FLOWING, 0),
        [SEND_BROKEN]      = TO(STOPPING, TELL),
        [SEND_STALLED]     = TO(STOPPING, FAIL),
        [SEND_UNANSWERED]  = NEVER,
        [SEND_SHIPPED]     = TO(FLOWING, SHIPPED),
        [SEND_IDLE]        = TO(FLOWING, 0),
    },
    [ENDED] = {
        [SEND_BEGIN]       = TO(ENDED, DROP),
        [SEND_PAGES]       = TO(ENDED, DROP),
        [SEND_END]         = TO(ENDED, DROP),
        [SEND_CANCEL]      = TO(STOPPING, TELL),
        [SEND_PAIR_READY]  = NEVER,
        [SEND_PAIR_FAILED] = TO(STOPPING, 0),
        [SEND_PAIR_CLOSED] = NEVER,
        [SEND_SEAT_OPEN]   = TO(ENDED, DROP),
        [SEND_SEAT_CLOSED] = TO(STOPPING, 0),
        [SEND_RECEIVED]    = TO(DELIVERED, 0),
        [SEND_POSTED]      = TO(ENDED, 0),
        [SEND_RETURNED]    = TO(ENDED, 0),
        [SEND_BROKEN]      = TO(STOPPING, TELL),
        [SEND_STALLED]     = TO(STOPPING, FAIL),
        [SEND_UNANSWERED]  = TO(STOPPING, TELL),
        [SEND_SHIPPED]     = NEVER,
        [SEND_IDLE]        = TO(ENDED, 0),
    },
    [DELIVERED] = {
        [SEND_BEGIN]       = TO(DELIVERED, DROP),
        [SEND_PAGES]       = TO(DELIVERED, DROP),
        [SEND_END]         = TO(DELIVERED, DROP),
        [SEND_CANCEL]      = TO(DELIVERED, 0),
        [SEND_PAIR_READY]  = NEVER,
        [SEND_PAIR_FAILED] = TO(DELIVERED, 0),
        [SEND_PAIR_CLOSED] = TO(DELIVERED, 0),
        [SEND_SEAT_OPEN]   = TO(DELIVERED, DROP),
        [SEND_SEAT_CLOSED] = TO(DELIVERED, DROP),
        [SEND_RECEIVED]    = TO(DELIVERED, DROP),
        [SEND_POSTED]      = NEVER,
        [SEND_RETURNED]    = TO(DELIVERED, 0),
        [SEND_BROKEN]      = TO(DELIVERED, 0),
        [SEND_STALLED]     = TO(DELIVERED, FAIL),
        [SEND_UNANSWERED]  = NEVER,
        [SEND_SHIPPED]     = NEVER,
        [SEND_IDLE]        = TO(FREE, DONE),
    },
    [STOPPING] = {
        [SEND_BEGIN]       = TO(STOPPING, DROP),
        [SEND_PAGES]       = TO(STOPPING, 0),
        [SEND_END]         = TO(STOPPING, 0),
        [SEND_CANCEL]      = TO(STOPPING, 0),
        [SEND_PAIR_READY]  = NEVER,
        [SEND_PAIR_FAILED] = TO(STOPPING, 0),
        [SEND_PAIR_CLOSED] = TO(STOPPING, 0),
        [SEND_SEAT_OPEN]   = TO(STOPPING, DROP),
        [SEND_SEAT_CLOSED] = TO(STOPPING, 0),
        [SEND_RECEIVED]    = TO(STOPPING, DROP),
        [SEND_POSTED]      = NEVER,
        [SEND_RETURNED]    = TO(STOPPING, 0),
        [SEND_BROKEN]      = TO(STOPPING, 0),
        [SEND_STALLED]     = TO(STOPPING, FAIL),
        [SEND_UNANSWERED]  = NEVER,
        [SEND_SHIPPED]     = NEVER,
        [SEND_IDLE]        = TO(FREE, OVER),
    },
};

#undef FREE
#undef EARLY
#undef CONNECTING
#undef WAITING
#undef FLOWING
#undef ENDED
#undef DELIVERED
#undef STOPPING

// ---- seat ----------------------------------------------------------------------------------------

#define FREE     SEAT_FREE
#define WAITING  SEAT_WAITING
#define OPENED   SEAT_OPENED
#define RECORDED SEAT_RECORDED
#define FAILED   SEAT_FAILED
#define CLOSING  SEAT_CLOSING
#define LOST     TABLE_FAILED
#define OPEN     TABLE_OPEN
#define ANSWER   TABLE_ANSWER

static const cell seat_cells[SEAT_STATES][SEAT_EVENTS] = {
    [FREE] = {
        [SEAT_OPEN]        = TO(WAITING, 0),
        [SEAT_CLOSE]       = TO(FREE, 0),
        [SEAT_PAIR_READY]  = NEVER,
        [SEAT_PAIR_FAILED] = NEVER,
        [SEAT_PAIR_CLOSED] = NEVER,
        [SEAT_ANNOUNCED]   = TO(FREE, DROP),
        [SEAT_MALFORMED]   = TO(FREE, DROP),
        [SEAT_RECORD]      = TO(FREE, DROP),
        [SEAT_SEND_ENDED]  = TO(FREE, DROP),
        [SEAT_POSTED]      = NEVER,
        [SEAT_STORED]      = NEVER,
        [SEAT_BROKEN]      = NEVER,
        [SEAT_COMPLETE]    = NEVER,
        [SEAT_STALLED]     = NEVER,
        [SEAT_UNANSWERED]  = NEVER,
        [SEAT_IDLE]        = TO(FREE, 0),
    },
    [WAITING] = {
        [SEAT_OPEN]        = TO(WAITING, DROP),
        [SEAT_CLOSE]       = TO(FREE, OVER),
        [SEAT_PAIR_READY]  = TO(OPENED, OPEN),
        [SEAT_PAIR_FAILED] = TO(FAILED, LOST),
        [SEAT_PAIR_CLOSED] = NEVER,
        [SEAT_ANNOUNCED]   = TO(WAITING, DROP),     // the peer does not know its generation yet
        [SEAT_MALFORMED]   = TO(WAITING, DROP),
        [SEAT_RECORD]      = TO(WAITING, DROP),
        [SEAT_SEND_ENDED]  = TO(WAITING, DROP),
        [SEAT_POSTED]      = NEVER,
        [SEAT_STORED]      = NEVER,
        [SEAT_BROKEN]      = NEVER,
        [SEAT_COMPLETE]    = NEVER,
        [SEAT_STALLED]     = NEVER,
        [SEAT_UNANSWERED]  = TO(FAILED, LOST),
        [SEAT_IDLE]        = TO(WAITING, 0),
    },
    [OPENED] = {
        [SEAT_OPEN]        = TO(OPENED, DROP),
        [SEAT_CLOSE]       = TO(CLOSING, TELL),
        [SEAT_PAIR_READY]  = NEVER,
        [SEAT_PAIR_FAILED] = TO(FAILED, LOST),
        [SEAT_PAIR_CLOSED] = NEVER,
        [SEAT_ANNOUNCED]   = TO(OPENED, TAKE),
        [SEAT_MALFORMED]   = TO(FAILED, LOST | TELL),
        [SEAT_RECORD]      = TO(RECORDED, TAKE),
        [SEAT_SEND_ENDED]  = TO(FAILED, LOST),
        [SEAT_POSTED]      = TO(OPENED, 0),
        [SEAT_STORED]      = TO(OPENED, 0),
        [SEAT_BROKEN]      = TO(FAILED, LOST | TELL),
        [SEAT_COMPLETE]    = NEVER,
        [SEAT_STALLED]     = TO(FAILED, LOST | FAIL),
        [SEAT_UNANSWERED]  = NEVER,
        [SEAT_IDLE]        = TO(OPENED, 0),
    },
    [RECORDED] = {
        [SEAT_OPEN]        = TO(RECORDED, DROP),
        [SEAT_CLOSE]       = TO(CLOSING, TELL),
        [SEAT_PAIR_READY]  = NEVER,
        [SEAT_PAIR_FAILED] = TO(FAILED, LOST),
        [SEAT_PAIR_CLOSED] = NEVER,
        [SEAT_ANNOUNCED]   = TO(RECORDED, TAKE),
        [SEAT_MALFORMED]   = TO(FAILED, LOST | TELL),
        [SEAT_RECORD]      = TO(FAILED, LOST | TELL),
        [SEAT_SEND_ENDED]  = TO(FAILED, LOST),
        [SEAT_POSTED]      = TO(RECORDED, 0),
        [SEAT_STORED]      = TO(RECORDED, 0),
        [SEAT_BROKEN]      = TO(FAILED, LOST | TELL),
        [SEAT_COMPLETE]    = TO(FREE, DONE | ANSWER),
        [SEAT_STALLED]     = TO(FAILED, LOST | FAIL),
        [SEAT_UNANSWERED]  = TO(FAILED, LOST | TELL),
        [SEAT_IDLE]        = TO(RECORDED, 0),
    },
    [FAILED] = {
        [SEAT_OPEN]        = TO(FAILED, DROP),
        [SEAT_CLOSE]       = TO(CLOSING, TELL),     // told again: an open seat may have crossed its end
        [SEAT_PAIR_READY]  = NEVER,
        [SEAT_PAIR_FAILED] = TO(FAILED, 0),
        [SEAT_PAIR_CLOSED] = TO(FAILED, 0),
        [SEAT_ANNOUNCED]   = TO(FAILED, DROP),
        [SEAT_MALFORMED]   = TO(FAILED, DROP),
        [SEAT_RECORD]      = TO(FAILED, DROP),
        [SEAT_SEND_ENDED]  = TO(FAILED, 0),
        [SEAT_POSTED]      = NEVER,
        [SEAT_STORED]      = TO(FAILED, 0),
        [SEAT_BROKEN]      = TO(FAILED, 0),
        [SEAT_COMPLETE]    = NEVER,
        [SEAT_STALLED]     = TO(FAILED, FAIL),
        [SEAT_UNANSWERED]  = NEVER,
        [SEAT_IDLE]        = TO(FAILED, 0),
    },
    [CLOSING] = {
        [SEAT_OPEN]        = TO(CLOSING, DROP),
        [SEAT_CLOSE]       = TO(CLOSING, 0),
        [SEAT_PAIR_READY]  = NEVER,
        [SEAT_PAIR_FAILED] = TO(CLOSING, 0),
        [SEAT_PAIR_CLOSED] = TO(CLOSING, 0),
        [SEAT_ANNOUNCED]   = TO(CLOSING, DROP),
        [SEAT_MALFORMED]   = TO(CLOSING, DROP),
        [SEAT_RECORD]      = TO(CLOSING, DROP),
        [SEAT_SEND_ENDED]  = TO(CLOSING, 0),
        [SEAT_POSTED]      = NEVER,
        [SEAT_STORED]      = TO(CLOSING, 0),
        [SEAT_BROKEN]      = TO(CLOSING, 0),
        [SEAT_COMPLETE]    = NEVER,
        [SEAT_STALLED]     = TO(CLOSING, FAIL),
        [SEAT_UNANSWERED]  = NEVER,
        [SEAT_IDLE]        = TO(FREE, OVER),
    },
};

#undef FREE
#undef WAITING
#undef OPENED
#undef RECORDED
#undef FAILED
#undef CLOSING

// ---- pair ----------------------------------------------------------------------------------------

#define RAISE TABLE_RAISE
// The set-up went wrong, or the peer broke the protocol: transfers hear of it, the endpoint goes.
#define BREAK TO(PAIR_CLOSING, RAISE | FAIL)

static const cell pair_cells[PAIR_STATES][PAIR_EVENTS] = {
    [PAIR_FREE] = {
        [PAIR_CONNECT]       = TO(PAIR_GREETING, OPEN),
        [PAIR_ACCEPT]        = TO(PAIR_ACCEPTED, 0),
        [PAIR_HELLO]         = NEVER,
        [PAIR_STRANGER]      = NEVER,
        [PAIR_WELCOME]       = NEVER,
        [PAIR_UNWELCOME]     = NEVER,
        [PAIR_PROBE]         = NEVER,
        [PAIR_CONFIRM]       = NEVER,
        [PAIR_BAD]           = NEVER,
        [PAIR_LATE]          = NEVER,
        [PAIR_UNUSED]        = NEVER,
        [PAIR_FAILED]        = NEVER,
        [PAIR_CLOSED]        = NEVER,
    },
    [PAIR_GREETING] = {
        [PAIR_CONNECT]       = NEVER,
        [PAIR_ACCEPT]        = NEVER,
        [PAIR_HELLO]         = BREAK,
        [PAIR_STRANGER]      = BREAK,
        [PAIR_WELCOME]       = TO(PAIR_PROBING, ANSWER),
        [PAIR_UNWELCOME]     = BREAK,
        [PAIR_PROBE]         = BREAK,
        [PAIR_CONFIRM]       = BREAK,
        [PAIR_BAD]           = BREAK,
        [PAIR_LATE]          = BREAK,
        [PAIR_UNUSED]        = NEVER,
        [PAIR_FAILED]        = TO(PAIR_CLOSING, RAISE),
        [PAIR_CLOSED]        = NEVER,
    },
    [PAIR_ACCEPTED] = {
        [PAIR_CONNECT]       = NEVER,
        [PAIR_ACCEPT]        = NEVER,
        [PAIR_HELLO]         = TO(PAIR_PROBING, OPEN),
        [PAIR_STRANGER]      = TO(PAIR_REFUSED, TELL | RAISE),
        [PAIR_WELCOME]       = BREAK,
        [PAIR_UNWELCOME]     = BREAK,
        [PAIR_PROBE]         = BREAK,
        [PAIR_CONFIRM]       = BREAK,
        [PAIR_BAD]           = BREAK,
        [PAIR_LATE]          = BREAK,
        [PAIR_UNUSED]        = NEVER,
        [PAIR_FAILED]        = TO(PAIR_CLOSING, RAISE),
        [PAIR_CLOSED]        = NEVER,
    },
    [PAIR_PROBING] = {
        [PAIR_CONNECT]       = NEVER,
        [PAIR_ACCEPT]        = NEVER,
        [PAIR_HELLO]         = BREAK,
        [PAIR_STRANGER]      = BREAK,
        [PAIR_WELCOME]       = BREAK,
        [PAIR_UNWELCOME]     = BREAK,
        [PAIR_PROBE]         = TO(PAIR_PROBING, ANSWER),
        [PAIR_CONFIRM]       = TO(PAIR_READY, ANSWER | RAISE),
        [PAIR_BAD]           = BREAK,
        [PAIR_LATE]          = BREAK,
        [PAIR_UNUSED]        = NEVER,
        [PAIR_FAILED]        = TO(PAIR_CLOSING, RAISE),
        [PAIR_CLOSED]        = NEVER,
    },
    [PAIR_READY] = {
        [PAIR_CONNECT]       = NEVER,
        [PAIR_ACCEPT]        = NEVER,
        [PAIR_HELLO]         = BREAK,
        [PAIR_STRANGER]      = BREAK,
        [PAIR_WELCOME]       = BREAK,
        [PAIR_UNWELCOME]     = BREAK,
        [PAIR_PROBE]         = BREAK,
        [PAIR_CONFIRM]       = BREAK,
        [PAIR_BAD]           = BREAK,
        [PAIR_LATE]          = NEVER,
        [PAIR_UNUSED]        = TO(PAIR_CLOSING, FAIL),
        [PAIR_FAILED]        = TO(PAIR_CLOSING, RAISE),
        [PAIR_CLOSED]        = NEVER,
    },
    [PAIR_REFUSED] = {
        [PAIR_CONNECT]       = NEVER,
        [PAIR_ACCEPT]        = NEVER,
        [PAIR_HELLO]         = TO(PAIR_REFUSED, DROP),
        [PAIR_STRANGER]      = TO(PAIR_REFUSED, DROP),
        [PAIR_WELCOME]       = TO(PAIR_REFUSED, DROP),
        [PAIR_UNWELCOME]     = TO(PAIR_REFUSED, DROP),
        [PAIR_PROBE]         = TO(PAIR_REFUSED, DROP),
        [PAIR_CONFIRM]       = TO(PAIR_REFUSED, DROP),
        [PAIR_BAD]           = TO(PAIR_CLOSING, FAIL),
        [PAIR_LATE]          = TO(PAIR_CLOSING, FAIL),
        [PAIR_UNUSED]        = NEVER,
        [PAIR_FAILED]        = TO(PAIR_CLOSING, 0),
        [PAIR_CLOSED]        = NEVER,
    },
    [PAIR_CLOSING] = {
        [PAIR_CONNECT]       = NEVER,
        [PAIR_ACCEPT]        = NEVER,
        [PAIR_HELLO]         = TO(PAIR_CLOSING, DROP),
        [PAIR_STRANGER]      = TO(PAIR_CLOSING, DROP),
        [PAIR_WELCOME]       = TO(PAIR_CLOSING, DROP),
        [PAIR_UNWELCOME]     = TO(PAIR_CLOSING, DROP),
        [PAIR_PROBE]         = TO(PAIR_CLOSING, DROP),
        [PAIR_CONFIRM]       = TO(PAIR_CLOSING, DROP),
        [PAIR_BAD]           = TO(PAIR_CLOSING, DROP),
        [PAIR_LATE]          = TO(PAIR_CLOSING, 0),
        [PAIR_UNUSED]        = NEVER,
        [PAIR_FAILED]        = TO(PAIR_CLOSING, 0),
        [PAIR_CLOSED]        = TO(PAIR_FREE, 0),
    },
};

// clang-format on

uint32_t table_cell(table_machine machine, int state, int event, int *next)
{
    static const struct {
        const cell *cells;
        int states, events;
    } machines[TABLE_MACHINES] = {
        [TABLE_SEND] = { send_cells[0], SEND_STATES, SEND_EVENTS },
        [TABLE_SEAT] = { seat_cells[0], SEAT_STATES, SEAT_EVENTS },
        [TABLE_PAIR] = { pair_cells[0], PAIR_STATES, PAIR_EVENTS },
    };
    CHECK(state >= 0 && state < machines[machine].states);
    CHECK(event >= 0 && event < machines[machine].events);
    const cell *c = &machines[machine].cells[state * machines[machine].events + event];
    *next = c->next;
    return c->actions;
}
