// A cluster in one process, on a virtual clock: the world keeps the time, the processes and their
// threads.
//
// The product's own code runs in it unchanged: router, workers, hand-off, engine and page pool.
// What touches a machine (clock, threads, queues, sockets, UCX, libevent, kernels) is replaced at
// link time by the stand-ins beside this file, which define the functions of the same headers. A
// thread of the product is a fiber; only one runs at a time, and it yields only where the real one
// would wait. Whatever is random comes from the seed, so that a seed is a whole history.
//
// Under the thread sanitizer each fiber is a thread of its own that knows nothing of the others but
// what the product's locks and queues tell it, so that races between the product's threads are
// found although only one of them runs at a time. The world itself is not watched, and the checks
// of check.h, which look into everything, are left out.
//
// Times are microseconds since the world began, but clock_now_us adds the offset of the process
// that asks, and a microsecond each time it is asked within an event: machines have clocks of their
// own, and what is done takes time.
#pragma once

#include "base/buffer.h"
#include "base/status.h"

#include <stdint.h>

#define WORLD_NEVER UINT64_MAX

typedef struct fiber fiber;
typedef void world_call(void *argument);

// One life of a process; a restart makes another one. Never freed while the world lasts.
typedef struct process {
    struct process *next;
    char name[32]; // "decode-1"
    char host[32]; // "10.0.0.3"
    int machine;   // for cuts between machines
    bool alive;
    uint64_t stalled_until_us; // stopped (SIGSTOP) until then
    uint64_t clock_offset_us;
    uint64_t clock_us; // what its clock said last; no two answers are the same
    uint32_t slowness; // of its compute, in percent
    int signals, signal_fd;
    fiber *fibers;
    void *role;    // what the cluster knows of it
    void *server;  // http.c
    void *watches; // http.c: of signals
    void *engine;  // check.c: a worker's
    void *jobs;    // check.c: a worker's
    void *handoff; // check.c: a worker's
} process;

// What the world does is counted by name for the report.
typedef enum world_count {
    WORLD_EVENTS,
    WORLD_SWITCHES,
    WORLD_MESSAGES,
    WORLD_REPEATS,
    WORLD_LOST,
    WORLD_OVERTAKEN,
    WORLD_PAGE_RUNS,
    WORLD_KILLS,
    WORLD_STALLS,
    WORLD_CUTS,
    WORLD_GOODBYES,
    WORLD_ROUTER_KILLS,
    WORLD_ROUTER_DRAINS,
    WORLD_SLOW_STEPS,
    WORLD_BROKEN_PAIRS,
    WORLD_FULL,
    WORLD_BAD_RUNS,
    WORLD_FAULT_POINTS,
    WORLD_LEAVES,
    WORLD_REQUESTS,
    WORLD_ANSWERED,
    WORLD_LIMITED,
    WORLD_NO_WORKER,
    WORLD_GAVE_UP,
    WORLD_POISON,
    WORLD_DEADLINES,
    WORLD_DRAINED,
    WORLD_CUT_OFF,
    WORLD_ABANDONED,
    WORLD_TOKENS,
    WORLD_CHECKS,
    WORLD_VIRTUAL_MS,
    WORLD_COUNTS
} world_count;
extern const char *const world_count_names[WORLD_COUNTS];
extern uint64_t world_counts[WORLD_COUNTS];

// ---- the world --------------------------------------------------------------------------------

void world_begin(uint64_t seed, bool trace);
// Run events until `until_us`, or until nothing is left.
void world_run(uint64_t until_us);
uint64_t world_now_us(void);
// One line of the event log, where it is wanted.
void world_trace(const char *format, ...) __attribute__((format(printf, 1, 2)));
bool world_traces(void);
// An invariant is broken: say so with the seed, and end.
void world_violation(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));
// Called after every event.
extern void (*world_checker)(process *p);
// Processor time that the events of this process took; NULL: nobody's is measured.
extern const process *world_measured;
extern double world_measured_s;

uint64_t world_random(void);
// low..high, both included.
uint64_t world_between(uint64_t low, uint64_t high);
bool world_chance(double probability);

// Call `call(argument)` in `delay_us`, on behalf of `p` (NULL: the world itself): a dead process
// hears nothing, a stopped one later. Calls of equal time keep their order.
void world_after(process *p, uint64_t delay_us, world_call *call, void *argument);

// ---- processes --------------------------------------------------------------------------------

process *world_process(const char *name, int machine);
process *world_current(void);
// All that are or were.
process *world_processes(void);
// SIGKILL: its fibers never run again, the network notices.
void world_kill(process *p);
void world_stall(process *p, uint64_t duration_us);
// No message passes between two machines for so long.
void world_cut(int one, int other, uint64_t duration_us);
// When a message that wants to pass now will pass: now, or the end of the cut.
uint64_t world_passes_us(int one, int other);
// When everything that is stopped or cut now will go on.
uint64_t world_healed_us(void);
// The stand-ins' part of a kill.
void mailbox_process_died(process *p);
void fabric_process_died(process *p);
void http_process_died(process *p);

// ---- fibers -----------------------------------------------------------------------------------

fiber *world_fiber(process *p, void *(*run)(void *), void *argument);
fiber *world_running(void); // NULL: no fiber
// Wait until woken or `timeout_us` passed; true: woken.
bool world_park(uint64_t timeout_us);
void world_wake(fiber *f);
void world_sleep(uint64_t duration_us);
bool world_ended(const fiber *f);
void world_on_end(fiber *f, fiber *waiter);
void *world_waits_for(const fiber *f); // the condition variable, for signals to it
void world_set_waits_for(fiber *f, void *what);
fiber *world_next_fiber(fiber *f); // of its process

// What was done before a `give` was done before what follows the `take` of the same address.
#if defined(WORLD_WATCHES_THREADS)
#include <sanitizer/tsan_interface.h>
static inline void world_give(void *address)
{
    __tsan_release(address);
}
static inline void world_take(void *address)
{
    __tsan_acquire(address);
}
#else
static inline void world_give(void *address)
{
    (void)address;
}
static inline void world_take(void *address)
{
    (void)address;
}
#endif

// ---- descriptors ------------------------------------------------------------------------------

// A descriptor of the world: readable or not. One fiber or one watch listens to it.
int world_descriptor(void);
void world_descriptor_close(int fd);
void world_descriptor_set(int fd, bool readable);
bool world_descriptor_readable(int fd);
void world_descriptor_wait(int fd, fiber *f);                            // NULL: nobody
void world_descriptor_watch(int fd, void (*on)(void *), void *argument); // NULL: nobody
