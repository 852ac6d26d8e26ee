// The workers: who has joined, who speaks, who is gone.
//
// A worker registers on the control socket; the registry checks that it serves one of the router's
// models and dials a pair of its own for that incarnation. From the first heartbeat on it may get
// work. Silence makes it suspect, then dead; time in which this router itself stood still does not
// count. A closed pair, a goodbye, a broken message or a new incarnation under the same name ends
// it at once. Whoever waits for its requests learns it from the `lost` hook; the worker's memory
// ends when that returns. Everything runs on the router's loop.
#pragma once

#include "base/hash.h"
#include "net/guesses.h"
#include "net/http_loop.h"
#include "net/mailbox.h"
#include "net/message.h"
#include "router/policy.h"
#include "router/models.h"
#include "router/settings.h"

typedef struct registry registry;
typedef struct registry_cancels registry_cancels; // registry_cancel.c

// The life of a worker here: JOINING -> ALIVE <-> SUSPECT; it leaves from any of them.
typedef enum registry_state {
    REGISTRY_JOINING, // dialled, no heartbeat yet
    REGISTRY_ALIVE,   // spoke within suspect_after
    REGISTRY_SUSPECT, // gets no new work until it speaks again
} registry_state;

// What a heartbeat said last; see WorkerBeat in proto/cluster.proto.
typedef struct registry_beat {
    uint64_t pages_free, pages_held, pages_quarantined;
    uint32_t sequences_running, sequences_waiting;
    uint64_t tokens_waiting, steps, step_us;
    uint64_t prefill_tokens, decode_tokens, cached_tokens;
    uint64_t preemptions, handoff_bytes, handoff_failures;
    double handoff_gbps;
    char transport[32];
    guesses guesses;
} registry_beat;

// One incarnation of a worker, open for reading. Only the registry writes what the worker said;
// only the dispatcher writes the credits that are in use. What placing a request looks at stands
// together: with a thousand workers it is read from memory each time.
typedef struct registry_worker {
    uint64_t serial; // never used again; names the pair's events
    policy_role role;
    registry_state state;
    bool connected;                   // the pair is up
    bool healthy, draining, cordoned; // as its last beat said
    bool left;                        // it said goodbye: its end is no death
    bool alone;                       // runs a request that must run alone
    uint32_t page_tokens, context;
    uint32_t sequences;       // that this router may have open
    uint32_t sequences_spent; // by the dispatcher
    served_model *model;
    hash128 weights; // the version of the model
    hash128 numeric_id;
    uint64_t page_credits;       // what this router may fill
    uint64_t pages_spent;        // by the dispatcher
    uint64_t token_credits;      // prompt tokens that may wait there to be computed; 0: any number
    uint64_t tokens_outstanding; // by the dispatcher
    double prefill_tokens_per_s;
    uint64_t heard_us;

    struct registry_worker *next; // in its bucket
    size_t index;                 // see registry_at
    bool touched;                 // in that list
    struct registry_worker *next_touched;
    mailbox_pair *pair;
    registry_cancels *cancels; // that it has not got yet; NULL: none
    uint32_t cancels_again;    // sent to answer it, in this turn
    uint64_t incarnation;
    char name[64]; // stable over incarnations, for people
    char version[32];
    char pair_url[256];
    char kv_layout[64];
    char fabric_host[256];
    uint32_t fabric_port, threads;
    uint32_t protocol;  // that it speaks
    bool fabric_tokens; // it shows and demands them
    uint64_t pages;     // of its pool
    uint64_t joined_us;
    registry_beat beat;
    uint64_t beat_us;           // when it came; 0: none yet
    int64_t clock_offset_us;    // worker's clock minus the router's
    uint64_t clock_error_us;    // of the offset, at most; UINT64_MAX: not known
    uint64_t clock_measured_us; // when
} registry_worker;

// What the registry tells its owner, on the loop. A hook may send, but must not close the registry.
typedef struct registry_hooks {
    void (*changed)(void *context); // there may be new room
    void (*lost)(registry_worker *w, status cause, void *context);
    void (*message)(registry_worker *w, const message_to_router *m, void *context);
    void (*settled)(void *context); // the messages that were waiting have been passed on
    void *context;
} registry_hooks;

// Listen at settings->control_listen; workers of these models may join, and their `context` follows
// them. Settings, models and loop must outlive it. STATUS_IO or
// BAD_CONFIG with a sentence that names the address.
status registry_open(http_loop *loop, const router_settings *settings, models *served,
                     uint64_t incarnation, const registry_hooks *hooks, registry **opened,
                     error *failure);
void registry_close(registry *r); // NULL is allowed; makes no calls
// The control socket's address with its real port.
const char *registry_url(const registry *r);

// Workers in no particular order; indices and pointers are good until the loop goes on.
size_t registry_count(const registry *r);
registry_worker *registry_at(registry *r, size_t index);
registry_worker *registry_find(registry *r, uint64_t serial); // NULL: gone
// Another number after each time that workers joined or left, so that indices have changed.
uint64_t registry_layout(const registry *r);
// Something that placing looks at is new: for who keeps a picture of all workers. What workers say
// and when they are silent is noted here, the credits that are in use by the dispatcher.
void registry_touch(registry *r, registry_worker *w);
// One of those that were touched and not taken since the layout changed; NULL: no more.
registry_worker *registry_take_touched(registry *r);
// May get new work now.
bool registry_usable(const registry_worker *w);
// "joining", "alive", "suspect", "unhealthy", "draining" or "cordoned".
const char *registry_state_name(const registry_worker *w);
// How often a registration was refused since the start.
uint64_t registry_refused(const registry *r);

// Pack and send, behind the cancels that are kept for it (router/registry_cancel.h). A pair that
// takes no more (STATUS_FULL) makes its worker suspect; the caller plans again.
status registry_send(registry *r, registry_worker *w, const message_to_worker *m, bool urgent);

// A stamp of the worker's clock on the router's; 0 stays 0.
uint64_t registry_align(const registry_worker *w, uint64_t worker_us);
