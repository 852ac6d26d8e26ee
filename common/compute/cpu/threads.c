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
#define RUN_OPEN 0x80000000u
#define PAUSES 64 // between two looks at the clock

// A word that changes once per event, and how many threads sleep on it.
typedef struct gate {
    _Alignas(64) _Atomic uint32_t word;
    _Atomic uint32_t sleepers;
} gate;

struct cpu_threads {
    gate start;  // bumped once per run
    gate news;   // bumped by notify
    gate inside; // RUN_OPEN, and how many threads beside the caller are in the run
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
    int count, core_count, borrowed_count;
    const uint64_t *busy[CPU_THREADS_MAX]; // of borrowed cores; NULL: the thread's own
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
        for (int i = 0; i < PAUSES; i++) {
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

static void gate_wake(gate *g)
{
    syscall(SYS_futex, &g->word, FUTEX_WAKE_PRIVATE, INT32_MAX, NULL, NULL, 0);
}

// Both sides are sequentially consistent: either the sleeper sees the new word, or we see it.
static void gate_open(gate *g)
{
    atomic_fetch_add(&g->word, 1);
    if (atomic_load(&g->sleepers) != 0)
        gate_wake(g);
}

static void pin_to(int core)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(core, &set);
    // A core that went away since the settings were checked leaves the thread where it is.
    (void)sched_setaffinity(0, sizeof set, &set);
}

void cpu_threads_notify(cpu_threads *t)
{
    gate_open(&t->news);
}

void cpu_threads_wait(cpu_threads *t, const _Atomic int32_t *counter, int32_t value)
{
    uint32_t spin_us = atomic_load_explicit(&t->spin_us, memory_order_relaxed);
    uint64_t until = spin_us == 0 ? 0 : UINT64_MAX;
    for (;;) {
        for (int i = 0; i < PAUSES; i++) {
            if (atomic_load_explicit(counter, memory_order_acquire) == value)
                return;
            __builtin_ia32_pause();
        }
        uint64_t now = clock_now_us();
        if (until == UINT64_MAX)
            until = now + spin_us;
        if (now < until)
            continue;
        // The word is read before the counter: news after that is not slept through.
        uint32_t seen = atomic_load(&t->news.word);
        if (atomic_load(counter) == value)
            return;
        gate_sleep(&t->news, seen);
    }
}

bool cpu_threads_may(const cpu_threads *t, int thread)
{
    const uint64_t *busy = t->busy[thread];
    uint64_t any = 0;
    for (int i = 0; busy != NULL && i < BACKEND_BUSY_WORDS; i++)
        any |= __atomic_load_n(&busy[i], __ATOMIC_RELAXED);
    return any == 0;
}

// Whether a thread beside the caller may take part: waking one in vain would disturb its core's
// owner.
static bool company(const cpu_threads *t)
{
    bool any = t->count - t->borrowed_count > 1;
    for (int i = 1; i < t->count && !any; i++)
        any = cpu_threads_may(t, i);
    return any;
}

// Take part in the run that is open now, if one is.
static void join_run(cpu_threads *t, int index)
{
    if (!cpu_threads_may(t, index))
        return;
    uint32_t inside = atomic_load(&t->inside.word);
    do {
        if ((inside & RUN_OPEN) == 0)
            return;
    } while (!atomic_compare_exchange_weak(&t->inside.word, &inside, inside + 1));
    t->body(t->context, index, t->count);
    // The last one out of a closed run tells the caller.
    if (atomic_fetch_sub(&t->inside.word, 1) == 1 && atomic_load(&t->inside.sleepers) != 0)
        gate_wake(&t->inside);
}

static void *thread_main(void *argument)
{
    launch l = *(launch *)argument;
    cpu_threads *t = l.threads;
    free(argument);
    if (t->core_count > 0)
        pin_to(t->cores[l.index % t->core_count]);
    uint32_t seen = 0;
    for (;;) {
        gate_wait(&t->start, seen, atomic_load_explicit(&t->spin_us, memory_order_relaxed));
        seen = atomic_load(&t->start.word);
        if (atomic_load(&t->ending))
            return NULL;
        join_run(t, l.index);
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
    if (!company(t)) {
        body(context, 0, t->count);
        return;
    }
    look_for_company(t);
    t->body = body;
    t->context = context;
    atomic_store(&t->inside.word, RUN_OPEN);
    gate_open(&t->start);
    body(context, 0, t->count);
    uint32_t inside = atomic_fetch_and(&t->inside.word, ~RUN_OPEN) & ~RUN_OPEN;
    for (; inside != 0; inside = atomic_load(&t->inside.word))
        gate_wait(&t->inside, inside, atomic_load_explicit(&t->spin_us, memory_order_relaxed));
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

void cpu_threads_borrow(cpu_threads *t, int thread, int core, const uint64_t *busy)
{
    cpu_set_t set;
    CHECK(thread > 0 && thread < t->count && t->busy[thread] == NULL);
    t->busy[thread] = busy;
    t->borrowed_count++;
    int own = t->count - t->borrowed_count;
    t->crowded = own > (t->core_count > 0 ? t->core_count : cpu_threads_available());
    atomic_store(&t->spin_us, t->crowded ? 0 : SPIN_US);
    CPU_ZERO(&set);
    CPU_SET(core, &set);
    // A core that this process may not have leaves the thread where it is.
    (void)pthread_setaffinity_np(t->threads[thread], sizeof set, &set);
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
