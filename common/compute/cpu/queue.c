// The queue: operations are recorded, and a submit runs the whole list on all threads. A thread
// takes pieces of the current phase until none is left, waits until those that others took are
// finished, and goes on; one that comes late walks past what is done. The step thread takes part,
// so a submit returns when everything has run. Also the operations that only move bytes.
#include "compute/cpu/cpu.h"

#include <stdlib.h>
#include <string.h>

#define OPERATIONS_MAX 2048
#define COPY_STEP (256 << 10)

struct backend_queue {
    backend *backend;
    uint64_t submitted;
    int count;
    cpu_operation operations[OPERATIONS_MAX];
};

status cpu_queue_open(backend *b, backend_queue **opened)
{
    backend_queue *q = cpu_memory_take(sizeof *q);
    if (q == NULL)
        return STATUS_NO_MEMORY;
    q->backend = b;
    *opened = q;
    return STATUS_OK;
}

void cpu_queue_close(backend_queue *q)
{
    cpu_memory_release(q, sizeof *q);
}

bool cpu_take(_Atomic int32_t *taken, int total, int threads, int piece_max, int *first, int *last)
{
    int32_t at = atomic_load_explicit(taken, memory_order_relaxed), size;
    do {
        if (at >= total)
            return false;
        size = (total - at) / threads;
        if (piece_max > 0 && size > piece_max)
            size = piece_max;
        size = size < 1 ? 1 : size;
    } while (!atomic_compare_exchange_weak_explicit(taken, &at, at + size, memory_order_relaxed,
                                                    memory_order_relaxed));
    *first = at;
    *last = at + size;
    return true;
}

// False: the thread's core is wanted back.
static bool run_phase(cpu_operation *o, backend *b, int phase, int thread, int count)
{
    int total = o->count_units == NULL ? o->units[phase] : o->count_units(o, b, phase);
    int first, last;
    while (cpu_threads_may(b->threads, thread) &&
           cpu_take(&o->taken[phase], total, count, o->piece_max, &first, &last)) {
        o->run(o, b, phase, thread, first, last);
        int before = atomic_fetch_add(&o->finished[phase], last - first);
        if (before + last - first == total)
            cpu_threads_notify(b->threads);
    }
    if (!cpu_threads_may(b->threads, thread))
        return false;
    cpu_threads_wait(b->threads, &o->finished[phase], total);
    return true;
}

static void run_list(void *context, int thread, int count)
{
    backend_queue *q = context;
    for (int i = 0; i < q->count; i++)
        for (int phase = 0; phase < q->operations[i].phases; phase++)
            if (!run_phase(&q->operations[i], q->backend, phase, thread, count))
                return;
}

static void run_recorded(backend_queue *q)
{
    cpu_operation *attention = NULL;
    for (int i = q->count - 1; i >= 0; i--) {
        q->operations[i].next_attention = attention;
        if (q->operations[i].attends)
            attention = &q->operations[i];
    }
    if (q->count > 0) {
        cpu_threads_pin_caller(q->backend->threads);
        cpu_threads_run(q->backend->threads, run_list, q);
    }
    q->count = 0;
}

cpu_operation *cpu_queue_add(backend_queue *q,
                             void (*run)(cpu_operation *, backend *, int, int, int, int), int units)
{
    if (q->count == OPERATIONS_MAX)
        run_recorded(q);
    cpu_operation *o = &q->operations[q->count++];
    memset(o, 0, sizeof *o);
    o->run = run;
    o->phases = 1;
    o->units[0] = units;
    o->serial = ++q->backend->serial;
    return o;
}

uint64_t cpu_queue_submit(backend_queue *q)
{
    run_recorded(q);
    return ++q->submitted;
}

bool cpu_queue_done(backend_queue *q, uint64_t submitted)
{
    return submitted <= q->submitted;
}

void cpu_queue_wait(backend_queue *q, uint64_t submitted)
{
    CHECK(submitted <= q->submitted);
}

static void run_copy(cpu_operation *o, backend *b, int phase, int thread, int first, int last)
{
    size_t at = (size_t)first * COPY_STEP, end = (size_t)last * COPY_STEP;
    (void)b, (void)phase, (void)thread;
    memcpy((uint8_t *)o->destination + at, (const uint8_t *)o->source + at,
           (end < o->size ? end : o->size) - at);
}

void cpu_copy(backend_queue *q, void *destination, const void *source, size_t size)
{
    CHECK(size / COPY_STEP < INT32_MAX);
    cpu_operation *o = cpu_queue_add(q, run_copy, (int)((size + COPY_STEP - 1) / COPY_STEP));
    o->destination = destination;
    o->source = source;
    o->size = size;
}

static void run_signal(cpu_operation *o, backend *b, int phase, int thread, int first, int last)
{
    (void)b, (void)phase, (void)thread, (void)first, (void)last;
    __atomic_store_n(o->flag, o->value, __ATOMIC_RELEASE);
}

void cpu_signal(backend_queue *q, volatile uint32_t *host_flag, uint32_t value)
{
    cpu_operation *o = cpu_queue_add(q, run_signal, 1);
    o->flag = host_flag;
    o->value = value;
}

bool cpu_step_begin(backend_queue *q, const backend_batch *batch)
{
    (void)q, (void)batch;
    return false;
}

void cpu_step_end(backend_queue *q)
{
    (void)q;
}

// One rank: its own sum is the sum.
void cpu_all_reduce(backend_queue *q, backend_activation *a, int rows)
{
    (void)q;
    CHECK(rows <= a->rows);
}
