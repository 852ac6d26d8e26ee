#include "compute/cpu/threads.h"

#include "base/clock.h"

#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

// Long enough to bridge the gap between two operations of a step, short enough not to matter when
// nobody comes: a futex wake costs about 20 us here.
#define SPIN_US 40
// After the kernel took the core away inside a run, do not spin for this long.
#define CALM_US 20000

// A word that changes once per event, and how many threads sleep on it.
typedef struct gate {
    _Alignas(64) _Atomic uint32_t word;
    _Atomic uint32_t sleepers;
} gate;

struct cpu_threads {
    gate start;                            // bumped once per run
    gate phase;                            // bumped once per barrier
    _Alignas(64) _Atomic uint32_t arrived; // at the current barrier
    _Alignas(64) _Atomic uint32_t spin_us; // 0: sleep at once
    cpu_threads_body body;
    void *context;
    _Atomic bool ending;
    bool crowded; // more threads than cores: never spin
    bool caller_pinned;
    pid_t pinned_caller;
    cpu_set_t caller_mask; // before it was pinned
    long switches;         // involuntary ones of thread 0, at the last look
    uint64_t calm_until;   // clock of the time when spinning may resume
    int count, core_count;
    int cores[CPU_THREADS_MAX];
    pthread_t threads[CPU_THREADS_MAX];
};

typedef struct launch {
    cpu_threads *threads;
    int index;
} launch;

static void gate_sleep(gate *g, uint32_t seen)
{
    atomic_fetch_add(&g->sleepers, 1);
    while (atomic_load(&g->word) == seen)
        syscall(SYS_futex, &g->word, FUTEX_WAIT_PRIVATE, seen, NULL, NULL, 0);
    atomic_fetch_sub(&g->sleepers, 1);
}

// Return when the word is no longer `seen`.
static void gate_wait(gate *g, uint32_t seen, uint32_t spin_us)
{
    uint64_t until = 0;
    while (spin_us != 0) {
        for (int i = 0; i < 64; i++) {
            if (atomic_load_explicit(&g->word, memory_order_acquire) != seen)
                return;
            __builtin_ia32_pause();
        }
        uint64_t now = clock_now_us();
        if (until == 0)
            until = now + spin_us;
        else if (now >= until)
            break;
    }
    gate_sleep(g, seen);
}

// Both sides are sequentially consistent: either the sleeper sees the new word, or we see it.
static void gate_open(gate *g)
{
    atomic_fetch_add(&g->word, 1);
    if (atomic_load(&g->sleepers) != 0)
        syscall(SYS_futex, &g->word, FUTEX_WAKE_PRIVATE, INT32_MAX, NULL, NULL, 0);
}

static void pin_to(int core)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(core, &set);
    // A core that went away since the settings were checked leaves the thread where it is.
    (void)sched_setaffinity(0, sizeof set, &set);
}

void cpu_threads_barrier(cpu_threads *t)
{
    if (t->count == 1)
        return;
    uint32_t seen = atomic_load_explicit(&t->phase.word, memory_order_relaxed);
    if (atomic_fetch_add(&t->arrived, 1) == (uint32_t)t->count - 1) {
        atomic_store_explicit(&t->arrived, 0, memory_order_relaxed);
        gate_open(&t->phase);
        return;
    }
    gate_wait(&t->phase, seen, atomic_load_explicit(&t->spin_us, memory_order_relaxed));
}

static void *thread_main(void *argument)
{
    launch l = *(launch *)argument;
    cpu_threads *t = l.threads;
    free(argument);
    if (t->core_count > 0)
        pin_to(t->cores[l.index % t->core_count]);
    for (uint32_t seen = 0;; seen++) {
        gate_wait(&t->start, seen, atomic_load_explicit(&t->spin_us, memory_order_relaxed));
        if (atomic_load(&t->ending))
            return NULL;
        t->body(t->context, l.index, t->count);
        cpu_threads_barrier(t);
    }
}

// Involuntary context switches of this thread tell that somebody else wants its core.
static void look_for_company(cpu_threads *t)
{
    struct rusage usage;
    if (t->crowded || getrusage(RUSAGE_THREAD, &usage) != 0)
        return;
    uint64_t now = clock_now_us();
    if (usage.ru_nivcsw != t->switches)
        t->calm_until = now + CALM_US;
    t->switches = usage.ru_nivcsw;
    atomic_store_explicit(&t->spin_us, now < t->calm_until ? 0 : SPIN_US, memory_order_relaxed);
}

void cpu_threads_run(cpu_threads *t, cpu_threads_body body, void *context)
{
    if (t->count == 1) {
        body(context, 0, 1);
        return;
    }
    look_for_company(t);
    t->body = body;
    t->context = context;
    gate_open(&t->start);
    body(context, 0, t->count);
    cpu_threads_barrier(t);
}

void cpu_threads_pin_caller(cpu_threads *t)
{
    if (t->caller_pinned || t->core_count == 0)
        return;
    t->caller_pinned = true;
    if (sched_getaffinity(0, sizeof t->caller_mask, &t->caller_mask) != 0)
        return;
    t->pinned_caller = gettid();
    pin_to(t->cores[0]);
}

static status start_thread(cpu_threads *t, int index, error *failure)
{
    launch *l = malloc(sizeof *l);
    if (l == NULL)
        return error_set(failure, STATUS_NO_MEMORY, "threads", "no memory to start a thread");
    *l = (launch){ t, index };
    int code = pthread_create(&t->threads[index], NULL, thread_main, l);
    if (code == 0)
        return STATUS_OK;
    free(l);
    return error_set(failure, STATUS_IO, "threads", "compute thread %d of %d does not start: %s",
                     index, t->count, strerror(code));
}

// Threads 1 .. started - 1 exist.
static void end_threads(cpu_threads *t, int started)
{
    atomic_store(&t->ending, true);
    gate_open(&t->start);
    for (int i = 1; i < started; i++)
        pthread_join(t->threads[i], NULL);
    free(t);
}

status cpu_threads_open(int count, const int *cores, int core_count, cpu_threads **opened,
                        error *failure)
{
    CHECK(count >= 1 && count <= CPU_THREADS_MAX && core_count <= CPU_THREADS_MAX);
    cpu_threads *t = aligned_alloc(64, (sizeof *t + 63) / 64 * 64);
    if (t == NULL)
        return error_set(failure, STATUS_NO_MEMORY, "threads", "no memory for the thread table");
    memset(t, 0, sizeof *t);
    t->count = count;
    t->core_count = core_count;
    if (core_count > 0)
        memcpy(t->cores, cores, (size_t)core_count * sizeof *cores);
    t->crowded = count > (core_count > 0 ? core_count : cpu_threads_available());
    atomic_store(&t->spin_us, t->crowded ? 0 : SPIN_US);
    for (int i = 1; i < count; i++) {
        status result = start_thread(t, i, failure);
        if (result != STATUS_OK) {
            end_threads(t, i);
            return result;
        }
    }
    *opened = t;
    return STATUS_OK;
}

void cpu_threads_close(cpu_threads *t)
{
    if (t == NULL)
        return;
    if (t->caller_pinned && t->pinned_caller == gettid())
        (void)sched_setaffinity(0, sizeof t->caller_mask, &t->caller_mask);
    end_threads(t, t->count);
}

int cpu_threads_count(const cpu_threads *t)
{
    return t->count;
}
