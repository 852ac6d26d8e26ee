// Named fault points: places where a test may ask for a failure. They exist in every build and are
// off unless the configuration arms them (`faults = ["handoff.drop:0.1", "worker.stall:1:5000"]`).
//
// Entry: NAME[:PROBABILITY[:VALUE[:COUNT]]]. PROBABILITY is 0..1 (default 1), VALUE a number whose
// meaning the point documents (milliseconds, bytes; default 0), COUNT how often it fires at most
// (default: no limit). Arming an unknown name is an error. Any thread may ask.
//
// There is no message.reorder: a pair's messages go over one connection, which keeps their order,
// and sockets are not in step with each other anyway. What may overtake what (urgent messages,
// other sockets, a lost tail) is tried in tests/simulation only (network.h there).
#pragma once

#include "base/config.h"

// Every fault point of the program; a point that is not listed here cannot be asked for.
#define FAULT_LIST(X)                                                                              \
    X(HANDOFF_DROP, "handoff.drop", "a page run is computed but not sent")                         \
    X(HANDOFF_CORRUPT, "handoff.corrupt", "a byte of a page run is changed before it is sent")     \
    X(HANDOFF_DELAY, "handoff.delay", "a page run waits VALUE ms before it is sent")               \
    X(WORKER_STALL, "worker.stall", "the step thread sleeps VALUE ms before a step")               \
    X(WORKER_DIE, "worker.die", "the process kills itself before a step behind the first VALUE")   \
    X(POOL_EXHAUST, "pool.exhaust", "a take of pages fails as if the pool were empty")             \
    X(MESSAGE_REPEAT, "message.repeat", "a control message is sent twice")                         \
    X(MESSAGE_DROP, "message.drop", "a control message is not sent")                               \
    X(CLOCK_JUMP, "clock.jump", "the wall clock is VALUE seconds off")                             \
    X(LOGITS_NAN, "logits.nan", "one row of logits becomes NaN")                                   \
    X(TICKET_REFUSE, "ticket.refuse", "a worker refuses a ticket")                                 \
    X(DRAFT_FAIL, "draft.fail", "the draft model draws no token for a sequence")                   \
    X(DRAFT_STALL, "draft.stall", "a step of the draft model takes VALUE ms longer")

typedef enum fault_point {
#define FAULT_ENUM(id, name, help) FAULT_##id,
    FAULT_LIST(FAULT_ENUM)
#undef FAULT_ENUM
        FAULT_COUNT
} fault_point;

// The top-level `faults` key of every program.
typedef struct fault_settings {
    config_strings points;
} fault_settings;
extern const config_section fault_config_section;

// Arm what the settings name; STATUS_BAD_CONFIG and a sentence for an unknown name or a bad number.
status fault_arm(const fault_settings *settings, error *failure);
// Whether fault_arm would take them.
status fault_check(const fault_settings *settings, error *failure);
void fault_disarm_all(void);
// True when the point is armed and fires now. Costs one relaxed load when nothing is armed.
bool fault_fires(fault_point point);
// The VALUE of an armed point.
int64_t fault_value(fault_point point);
// How often a point fired since the start (tests prove that it is 0 when nothing was armed).
uint64_t fault_fired(fault_point point);
