// The queue: operations are recorded, and a submit runs the whole list on all threads, with one
// barrier behind each phase of an operation. The step thread takes part, so a submit returns when
// everything has run. Also the operations that only move bytes.
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

// A barrier before every phase but the very first; the end of the run is one too.
static void run_list(void *context, int thread, int count)
{
    backend_queue *q = context;
    backend *b = q->backend;
    for (int i = 0; i < q->count; i++) {
        cpu_operation *o = &q->operations[i];
        for (int phase = 0; phase < o->phases; phase++) {
            if (phase > 0 && o->needs_phase != NULL && !o->needs_phase(o, b, phase))
                continue;
            if (i > 0 || phase > 0)
                cpu_threads_barrier(b->threads);
            o->run(o, b, phase, thread, count);
        }
    }
}

static void run_recorded(backend_queue *q)
{
    if (q->count > 0) {
        cpu_threads_pin_caller(q->backend->threads);
        cpu_threads_run(q->backend->threads, run_list, q);
    }
    q->count = 0;
}

cpu_operation *cpu_queue_add(backend_queue *q,
                             void (*run)(cpu_operation *, backend *, int, int, int))
{
    if (q->count == OPERATIONS_MAX)
        run_recorded(q);
    cpu_operation *o = &q->operations[q->count++];
    memset(o, 0, sizeof *o);
    o->run = run;
    o->phases = 1;
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

static void run_copy(cpu_operation *o, backend *b, int phase, int thread, int count)
{
    (void)b, (void)thread, (void)count;
    int first, last, pieces = (int)((o->size + COPY_STEP - 1) / COPY_STEP);
    while (cpu_take(&o->taken[phase], pieces, 1, &first, &last)) {
        size_t at = (size_t)first * COPY_STEP, left = o->size - at;
        memcpy((uint8_t *)o->destination + at, (const uint8_t *)o->source + at,
               left < COPY_STEP ? left : COPY_STEP);
    }
}

void cpu_copy(backend_queue *q, void *destination, const void *source, size_t size)
{
    CHECK(size / COPY_STEP < INT32_MAX);
    cpu_operation *o = cpu_queue_add(q, run_copy);
    o->destination = destination;
    o->source = source;
    o->size = size;
}

static void run_signal(cpu_operation *o, backend *b, int phase, int thread, int count)
{
    (void)b, (void)phase, (void)count;
    if (thread == 0)
        __atomic_store_n(o->flag, o->value, __ATOMIC_RELEASE);
}

void cpu_signal(backend_queue *q, volatile uint32_t *host_flag, uint32_t value)
{
    cpu_operation *o = cpu_queue_add(q, run_signal);
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
