#include "world.h"

#include "base/random.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

#define STACK_BYTES (256u << 10)
#define MACHINES_MAX 2048
#define CUTS_MAX 64

// clang-format off
const char *const world_count_names[WORLD_COUNTS] = {
    "events", "switches", "messages", "repeats", "lost_tails", "overtakings", "page_runs",
    "kills", "stalls", "cuts", "goodbyes", "router_kills", "router_drains", "slow_steps", "broken_pairs", "full", "bad_runs", "fault_points",
    "client_leaves", "requests", "answered", "limited", "no_worker", "gave_up", "poison", "deadline", "drained",
    "cut_off", "abandoned", "tokens", "checks", "virtual_ms",
};
// clang-format on
uint64_t world_counts[WORLD_COUNTS];
void (*world_checker)(process *p);
const process *world_measured;
double world_measured_s;

typedef struct event {
    uint64_t due_us, order;
    process *process;
    world_call *call;
    void *argument;
} event;

struct fiber {
    fiber *next; // of the process
    process *process;
    ucontext_t context;
    void *stack;
    void *(*run)(void *);
    void *argument;
    bool begun, parked, woken, ended;
    uint64_t parks; // timeouts of earlier ones are void
    void *waits_for;
    fiber *waiter;
    void *sanitizer; // its fake stack, or the thread sanitizer's fiber
};

typedef struct cut {
    int one, other;
    uint64_t until_us;
} cut;

static struct world {
    uint64_t seed, random, now_us, order;
    bool trace;
    event *heap;
    size_t count, capacity;
    process *processes, *current;
    fiber *running;
    ucontext_t main;
    void *main_sanitizer;
    cut cuts[CUTS_MAX];
    void *stacks; // free ones, linked by their first word
} world;

// ---- time and chance --------------------------------------------------------------------------

void world_begin(uint64_t seed, bool trace)
{
    world = (struct world){ .seed = seed, .random = random_mix(seed), .trace = trace };
    memset(world_counts, 0, sizeof world_counts);
#if defined(WORLD_WATCHES_THREADS)
    world.main_sanitizer = __tsan_get_current_fiber();
#endif
}

uint64_t world_now_us(void)
{
    return world.now_us;
}

uint64_t world_random(void)
{
    return random_mix(world.random++);
}

uint64_t world_between(uint64_t low, uint64_t high)
{
    return low + world_random() % (high - low + 1);
}

bool world_chance(double probability)
{
    return random_unit(world_random()) < probability;
}

bool world_traces(void)
{
    return world.trace;
}

static void line_print(const char *format, va_list arguments)
{
    fprintf(stderr, "%11.6f %-10s ", (double)world.now_us / 1e6,
            world.current ? world.current->name : "-");
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
}

void world_trace(const char *format, ...)
{
    if (!world.trace)
        return;
    va_list arguments;
    va_start(arguments, format);
    line_print(format, arguments);
    va_end(arguments);
}

void world_violation(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fprintf(stderr, "seed %llu: VIOLATION ", (unsigned long long)world.seed);
    line_print(format, arguments);
    va_end(arguments);
    fprintf(stderr, "again: tests/simulation/run --seed %llu --trace\n",
            (unsigned long long)world.seed);
    _exit(1);
}

// ---- events -----------------------------------------------------------------------------------

static bool sooner(const event *a, const event *b)
{
    return a->due_us != b->due_us ? a->due_us < b->due_us : a->order < b->order;
}

static void heap_push(event e)
{
    if (world.count == world.capacity) {
        world.capacity = world.capacity ? 2 * world.capacity : 1024;
        world.heap = realloc(world.heap, world.capacity * sizeof *world.heap);
        CHECK(world.heap);
    }
    size_t at = world.count++;
    for (size_t parent; at > 0; at = parent) {
        parent = (at - 1) / 2;
        if (!sooner(&e, &world.heap[parent]))
            break;
        world.heap[at] = world.heap[parent];
    }
    world.heap[at] = e;
}

static event heap_pop(void)
{
    event first = world.heap[0], last = world.heap[--world.count];
    size_t at = 0;
    for (size_t child; (child = 2 * at + 1) < world.count; at = child) {
        if (child + 1 < world.count && sooner(&world.heap[child + 1], &world.heap[child]))
            child++;
        if (!sooner(&world.heap[child], &last))
            break;
        world.heap[at] = world.heap[child];
    }
    world.heap[at] = last;
    return first;
}

void world_after(process *p, uint64_t delay_us, world_call *call, void *argument)
{
    heap_push((event){ world.now_us + delay_us, world.order++, p, call, argument });
}

static double processor_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static void event_call(const event *e)
{
    bool measured = world_measured && world_measured == e->process;
    double begun = measured ? processor_seconds() : 0;
    e->call(e->argument);
    world_measured_s += measured ? processor_seconds() - begun : 0;
}

void world_run(uint64_t until_us)
{
    while (world.count > 0 && world.heap[0].due_us <= until_us) {
        event e = heap_pop();
        world.now_us = e.due_us > world.now_us ? e.due_us : world.now_us;
        if (e.process && !e.process->alive)
            continue;
        if (e.process && e.process->stalled_until_us > world.now_us) {
            e.due_us = e.process->stalled_until_us; // with its old order: it keeps its place
            heap_push(e);
            continue;
        }
        world_counts[WORLD_EVENTS]++;
        world.current = e.process;
        event_call(&e);
        if (world_checker)
            world_checker(e.process);
        world.current = NULL;
    }
    if (world.now_us < until_us && until_us != WORLD_NEVER)
        world.now_us = until_us;
}

// ---- processes --------------------------------------------------------------------------------

process *world_process(const char *name, int machine)
{
    process *p = calloc(1, sizeof *p);
    CHECK(p && machine < MACHINES_MAX);
    snprintf(p->name, sizeof p->name, "%s", name);
    snprintf(p->host, sizeof p->host, "10.0.%d.%d", machine / 250, machine % 250 + 1);
    p->machine = machine;
    p->alive = true;
    p->slowness = 100;
    p->clock_offset_us = world_between(1000000, 1000000000000);
    p->signal_fd = world_descriptor();
    p->next = world.processes;
    world.processes = p;
    return p;
}

process *world_current(void)
{
    return world.current;
}

process *world_processes(void)
{
    return world.processes;
}

void world_kill(process *p)
{
    if (!p->alive)
        return;
    p->alive = false;
    mailbox_process_died(p);
    fabric_process_died(p);
    http_process_died(p);
    for (fiber *f = p->fibers; f; f = f->next) {
        if (!f->stack || f == world.running)
            continue;
        *(void **)f->stack = world.stacks;
        world.stacks = f->stack;
        f->stack = NULL;
    }
}

void world_stall(process *p, uint64_t duration_us)
{
    uint64_t until_us = world.now_us + duration_us;
    if (until_us > p->stalled_until_us)
        p->stalled_until_us = until_us;
}

static cut *cut_find(int one, int other)
{
    for (int i = 0; i < CUTS_MAX; i++) {
        cut *c = &world.cuts[i];
        if (c->until_us > world.now_us &&
            ((c->one == one && c->other == other) || (c->one == other && c->other == one)))
            return c;
    }
    return NULL;
}

void world_cut(int one, int other, uint64_t duration_us)
{
    cut *c = cut_find(one, other);
    for (int i = 0; i < CUTS_MAX && !c; i++)
        if (world.cuts[i].until_us <= world.now_us)
            c = &world.cuts[i];
    if (c)
        *c = (cut){ one, other, world.now_us + duration_us };
}

uint64_t world_passes_us(int one, int other)
{
    const cut *c = cut_find(one, other);
    return c ? c->until_us : world.now_us;
}

uint64_t world_healed_us(void)
{
    uint64_t until_us = world.now_us;
    for (int i = 0; i < CUTS_MAX; i++)
        if (world.cuts[i].until_us > until_us)
            until_us = world.cuts[i].until_us;
    for (const process *p = world.processes; p; p = p->next)
        if (p->alive && p->stalled_until_us > until_us)
            until_us = p->stalled_until_us;
    return until_us;
}

// ---- fibers -----------------------------------------------------------------------------------

static void *stack_take(void)
{
    void *stack = world.stacks;
    if (stack) {
        world.stacks = *(void **)stack;
#if defined(__SANITIZE_ADDRESS__)
        __asan_unpoison_memory_region(stack, STACK_BYTES);
#endif
        return stack;
    }
    stack = mmap(NULL, STACK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(stack != MAP_FAILED);
    return stack;
}

// Between the scheduler and a fiber; the sanitizers must be told.
static void switch_to(fiber *f)
{
    world_counts[WORLD_SWITCHES]++;
    world.running = f;
#if defined(WORLD_WATCHES_THREADS)
    __tsan_switch_to_fiber(f->sanitizer, f->parks > 0 ? __tsan_switch_to_fiber_no_sync : 0);
#endif
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_start_switch_fiber(&world.main_sanitizer, f->stack, STACK_BYTES);
#endif
    swapcontext(&world.main, &f->context);
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_finish_switch_fiber(world.main_sanitizer, NULL, NULL);
#endif
    world.running = NULL;
}

#if defined(__SANITIZE_ADDRESS__)
static const void *main_stack;
static size_t main_stack_size;
#endif

static void switch_back(fiber *f)
{
#if defined(WORLD_WATCHES_THREADS)
    __tsan_switch_to_fiber(world.main_sanitizer, 0);
#endif
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_start_switch_fiber(f->ended ? NULL : &f->sanitizer, main_stack, main_stack_size);
#endif
    swapcontext(&f->context, &world.main);
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_finish_switch_fiber(f->sanitizer, &main_stack, &main_stack_size);
#endif
}

static void fiber_main(void)
{
    fiber *f = world.running;
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_finish_switch_fiber(NULL, &main_stack, &main_stack_size);
#endif
    f->run(f->argument);
    world_give(f);
    f->ended = true;
    if (f->waiter)
        world_wake(f->waiter);
    switch_back(f);
}

static void fiber_resume(void *argument)
{
    fiber *f = argument;
    if (!f->begun) {
        f->begun = true;
        f->stack = stack_take();
        getcontext(&f->context);
        f->context.uc_stack.ss_sp = f->stack;
        f->context.uc_stack.ss_size = STACK_BYTES;
        f->context.uc_link = NULL;
        makecontext(&f->context, fiber_main, 0);
#if defined(WORLD_WATCHES_THREADS)
        f->sanitizer = __tsan_create_fiber(0);
#endif
    }
    switch_to(f);
}

fiber *world_fiber(process *p, void *(*run)(void *), void *argument)
{
    fiber *f = calloc(1, sizeof *f);
    CHECK(f);
    f->process = p;
    f->run = run;
    f->argument = argument;
    f->next = p->fibers;
    p->fibers = f;
    world_after(p, 0, fiber_resume, f);
    return f;
}

fiber *world_running(void)
{
    return world.running;
}

typedef struct timeout {
    fiber *fiber;
    uint64_t park;
} timeout;

static void on_timeout(void *argument)
{
    timeout t = *(timeout *)argument;
    free(argument);
    if (!t.fiber->parked || t.fiber->parks != t.park)
        return;
    t.fiber->parked = false;
    t.fiber->woken = false;
    fiber_resume(t.fiber);
}

static void on_wake(void *argument)
{
    fiber *f = argument;
    f->woken = true;
    fiber_resume(f);
}

bool world_park(uint64_t timeout_us)
{
    fiber *f = world.running;
    CHECK(f);
    f->parked = true;
    f->parks++;
    if (timeout_us != WORLD_NEVER) {
        timeout *t = malloc(sizeof *t);
        CHECK(t);
        *t = (timeout){ f, f->parks };
        world_after(f->process, timeout_us, on_timeout, t);
    }
    switch_back(f);
    return f->woken;
}

void world_wake(fiber *f)
{
    if (!f->parked || f->ended)
        return;
    f->parked = false;
    world_after(f->process, 0, on_wake, f);
}

void world_sleep(uint64_t duration_us)
{
    uint64_t end_us = world.now_us + duration_us;
    do
        world_park(end_us > world.now_us ? end_us - world.now_us : 0);
    while (world.now_us < end_us);
}

bool world_ended(const fiber *f)
{
    return f->ended;
}

void world_on_end(fiber *f, fiber *waiter)
{
    f->waiter = waiter;
}

void *world_waits_for(const fiber *f)
{
    return f->waits_for;
}

void world_set_waits_for(fiber *f, void *what)
{
    f->waits_for = what;
}

fiber *world_next_fiber(fiber *f)
{
    return f->next;
}
