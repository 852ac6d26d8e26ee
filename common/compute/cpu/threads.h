// The CPU backend's compute threads: persistent, and woken once per submitted list of work.
//
// The thread that calls `cpu_threads_run` (the step thread) takes part as thread 0. The others join
// when the system lets them run: work is handed out piece by piece and nobody waits for a thread
// that has not begun, so a machine with more to do than cores costs the late thread's share of
// speed and not a time slice per operation. Waiting for pieces that others hold is a short spin
// with `pause`, then a futex. There is no spin where more threads than cores would run, and none
// for a while after the kernel had to take the core away from us: it would burn the very time that
// the other threads need.
#pragma once

#include "base/status.h"
#include "compute/backend.h"

#include <stdint.h>

#define CPU_THREADS_MAX 256

typedef struct cpu_threads cpu_threads;

// Runs on each thread that joins a run, thread 0 always; `thread` is 0 .. count - 1. It must come
// to its end whether or not any other thread joins.
typedef void (*cpu_threads_body)(void *context, int thread, int count);

// How many threads this process may keep busy: the cores of its affinity mask, or the cgroup's CPU
// quota rounded down (version 1 and 2, each level up to the root) where that is less; at least 1.
int cpu_threads_available(void);
// The quota part alone, for a given root of the file system (tests pass a folder of their own,
// "" means the real one). 0: no limit.
int cpu_threads_quota(const char *root);
// The cores of "0-3,8" as a list, at most `capacity` of them. STATUS_BAD_CONFIG with a sentence for
// anything else, and for a core that this process may not use.
status cpu_threads_parse_cores(const char *text, int *cores, int capacity, int *count,
                               error *failure);

// Start `count` - 1 threads (1 <= count <= CPU_THREADS_MAX). `cores`: `core_count` core numbers;
// thread i runs on cores[i % core_count]. core_count 0: nothing is pinned, the system places them.
status cpu_threads_open(int count, const int *cores, int core_count, cpu_threads **opened,
                        error *failure);
// Pin the calling thread as thread 0, once, where cores were named: a thread that it creates later
// inherits that, so only the thread that runs steps calls it, after it has begun to.
void cpu_threads_pin_caller(cpu_threads *t);
// Thread `thread` (not 0) gets a core of somebody else: it leaves a run, and joins none, while a
// word of `busy` is not 0 (backend_borrowed). Between two runs.
void cpu_threads_borrow(cpu_threads *t, int thread, int core, const uint64_t *busy);
// Inside a run: whether the thread may take another piece of work; else it must leave.
bool cpu_threads_may(const cpu_threads *t, int thread);
// Ends and joins the threads, and unpins the caller if it is thread 0. No run may be in progress.
void cpu_threads_close(cpu_threads *t);
int cpu_threads_count(const cpu_threads *t);

// Run `body` on all threads that come, and return when each of them has left it. One caller at a
// time.
void cpu_threads_run(cpu_threads *t, cpu_threads_body body, void *context);
// Inside a run: return when *counter is `value`; what was written before it became that is visible
// then. Whoever makes it so must call notify.
void cpu_threads_wait(cpu_threads *t, const _Atomic int32_t *counter, int32_t value);
void cpu_threads_notify(cpu_threads *t);
