#include "cluster.h"

#include "check.h"
#include "client.h"
#include "network.h"

#include "decode_worker/decode.h"
#include "prefill_worker/prefill.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

#define MEMBERS_MAX 16
#define FIRE_BEGINS_US 500000
#define PEACE_US 9000000 // after the fire: workers join again, what is late ends
#define SOBER_REQUESTS 4 // asked in peace: they must be answered
#define REQUEST_LONGEST_US 60000000

typedef enum member_kind { MEMBER_ROUTER, MEMBER_PREFILL, MEMBER_DECODE } member_kind;

// A program that somebody starts again whenever it ends.
typedef struct member {
    member_kind kind;
    char name[32];
    int machine;
    process *process; // of its present life
    router *router;
    bool restarts; // a restart is due
    bool spared;   // no fault comes to it
} member;

static struct cluster {
    const char *model;
    member members[MEMBERS_MAX];
    int count, routers;
    bool fire;
    bool spares; // one worker of each kind and all routers
    uint64_t fire_us, clients;
    // Of this seed's processes.
    int page_tokens, pages, sequences, chunk, peers;
    int64_t local_prefill_tokens;
    bool local_prefill, recompute, checksums;
    // Weights of the faults, and how often one comes.
    uint32_t kill, stall, cut, goodbye, router_kill, router_drain, slow;
    uint64_t fault_every_us, retry_budget_ms, client_timeout_ms;
    double full; // connections that take no more
} cluster;

router *cluster_router(const process *p)
{
    const member *m = p->role;
    return m && m->kind == MEMBER_ROUTER ? m->router : NULL;
}

uint64_t cluster_retry_budget_us(void)
{
    return 1000 * cluster.retry_budget_ms;
}

double cluster_client_timeout_s(void)
{
    return (double)cluster.client_timeout_ms / 1000;
}

size_t cluster_worker_count(void)
{
    return (size_t)(cluster.count - cluster.routers);
}

// ---- programs ---------------------------------------------------------------------------------

#define ARGUMENTS_MAX 40

typedef struct arguments {
    int count;
    char *items[ARGUMENTS_MAX];
} arguments;

__attribute__((format(printf, 2, 3))) static void set(arguments *a, const char *format, ...)
{
    char text[512];
    va_list values;
    va_start(values, format);
    vsnprintf(text, sizeof text, format, values);
    va_end(values);
    CHECK(a->count + 2 < ARGUMENTS_MAX);
    a->items[a->count++] = (char *)"--set";
    a->items[a->count++] = strdup(text);
}

static void router_arguments(const member *m, arguments *a)
{
    set(a, "log.access=false");
    set(a, "control.listen=tcp://%s:7000", m->process->host);
    set(a, "router.model=%s", cluster.model);
    set(a, "router.model_name=tiny");
    set(a, "router.retry_budget=%llums", (unsigned long long)cluster.retry_budget_ms);
    set(a, "router.request_timeout=45s");
    set(a, "router.drain_deadline=3s");
    set(a, "policy.local_prefill_tokens=%lld", (long long)cluster.local_prefill_tokens);
    set(a, "policy.local_prefill=%s", cluster.local_prefill ? "true" : "false");
}

static void worker_arguments(const member *m, arguments *a)
{
    char routers[256] = "";
    for (int i = 0; i < cluster.routers; i++) {
        size_t size = strlen(routers);
        snprintf(routers + size, sizeof routers - size, "%stcp://10.0.0.%d:7000", i ? "," : "",
                 cluster.members[i].machine + 1);
    }
    set(a, "worker.name=%s", m->name);
    set(a, "worker.host=%s", m->process->host);
    set(a, "worker.routers=%s", routers);
    set(a, "worker.drain_seconds=%d", (int)world_between(0, 4));
    set(a, "engine.model=%s", cluster.model);
    set(a, "engine.cores=0");
    set(a, "engine.page_tokens=%d", cluster.page_tokens);
    set(a, "engine.kv_bytes=%d", cluster.pages * cluster.page_tokens * 64);
    set(a, "engine.max_sequences=%d", cluster.sequences);
    set(a, "engine.step_tokens=%d", cluster.chunk + cluster.sequences);
    set(a, "engine.chunk_tokens=%d", cluster.chunk);
    set(a, "engine.context=320");
    set(a, "fabric.run_bytes=64KiB");
    set(a, "fabric.peers=%d", cluster.peers);
    set(a, "fabric.checksums=%s", cluster.checksums ? "true" : "false");
    if (m->kind == MEMBER_DECODE)
        set(a, "decode.recompute_failed_handoff=%s", cluster.recompute ? "true" : "false");
}

static int router_live(member *m, arguments *a)
{
    router_settings *settings = calloc(1, sizeof *settings);
    config_action action;
    error failure = { 0 };
    if (config_open(&router_program, a->count, a->items, settings, &action, &failure) !=
            STATUS_OK ||
        router_open(settings, &m->router, &failure) != STATUS_OK)
        world_violation("the router does not start: %s", failure.text);
    router *r = m->router;
    int code = router_run(r);
    m->router = NULL;
    router_close(r);
    return code;
}

static void member_start(void *argument);

// In a while somebody starts it again.
static void member_restart(member *m)
{
    if (m->restarts)
        return;
    m->restarts = true;
    world_after(NULL, world_between(100000, 2500000), member_start, m);
}

static void *member_main(void *argument)
{
    member *m = argument;
    process *p = m->process;
    arguments a = { .count = 1, .items = { m->name } };
    int code;
    if (m->kind == MEMBER_ROUTER) {
        router_arguments(m, &a);
        code = router_live(m, &a);
    } else {
        bool decode = m->kind == MEMBER_DECODE;
        void *settings = calloc(1, sizeof(decode_config) + sizeof(prefill_config));
        worker_arguments(m, &a);
        code = station_main(decode ? &decode_program : &prefill_program, settings,
                            decode ? &decode_role : &prefill_role, a.count, a.items);
        if (code != 0)
            world_violation("the worker does not start");
    }
    world_trace("exits with %d", code);
    world_kill(p);
    member_restart(m);
    return NULL;
}

static void member_start(void *argument)
{
    member *m = argument;
    m->restarts = false;
    m->router = NULL;
    m->process = world_process(m->name, m->machine);
    m->process->role = m;
    world_trace("start %s", m->name);
    world_fiber(m->process, member_main, m);
}

// ---- faults -----------------------------------------------------------------------------------

static member *member_any(bool is_router)
{
    member *m;
    do
        m = &cluster.members[world_between(0, (uint64_t)cluster.count - 1)];
    while ((m->kind == MEMBER_ROUTER) != is_router);
    return m;
}

static uint64_t pause_choose(void)
{
    return world_chance(0.6) ? world_between(20000, 1200000) : world_between(1200000, 7000000);
}

static void fault_kill(member *m, world_count count)
{
    if (!m->process->alive || m->spared)
        return;
    world_counts[count]++;
    world_trace("kill %s", m->name);
    m->router = NULL;
    world_kill(m->process);
    member_restart(m);
}

static void fault_terminate(member *m)
{
    process *p = m->process;
    if (!p->alive || m->spared)
        return;
    world_trace("terminate %s", m->name);
    if (m->kind == MEMBER_ROUTER) {
        world_counts[WORLD_ROUTER_DRAINS] += http_signal(p, SIGTERM);
        return;
    }
    world_counts[WORLD_GOODBYES]++;
    if (++p->signals > 1)
        fault_kill(m, WORLD_KILLS); // the second signal ends it at once
    else
        world_descriptor_set(p->signal_fd, true);
}

static void fault_cut(void)
{
    const member *one = &cluster.members[world_between(0, (uint64_t)cluster.count - 1)];
    const member *other = &cluster.members[world_between(0, (uint64_t)cluster.count - 1)];
    uint64_t duration_us = pause_choose();
    if (one == other || (one->spared && other->spared))
        return;
    world_counts[WORLD_CUTS]++;
    world_trace("cut %s from %s for %.3f s", one->name, other->name, (double)duration_us / 1e6);
    world_cut(one->machine, other->machine, duration_us);
}

static void fault_stall(member *m)
{
    uint64_t duration_us = pause_choose();
    if (!m->process->alive || m->spared)
        return;
    world_counts[WORLD_STALLS]++;
    world_trace("stop %s for %.3f s", m->name, (double)duration_us / 1e6);
    world_stall(m->process, duration_us);
}

static void fault_slow(member *m)
{
    if (m->spared)
        return;
    world_counts[WORLD_SLOW_STEPS]++;
    m->process->slowness = (uint32_t)world_between(100, 2000);
}

static void fault_come(void *unused)
{
    (void)unused;
    if (!cluster.fire)
        return;
    uint32_t weights[] = { cluster.kill,        cluster.stall,        cluster.cut, cluster.goodbye,
                           cluster.router_kill, cluster.router_drain, cluster.slow };
    uint64_t sum = 0;
    size_t kind = 0;
    for (size_t i = 0; i < sizeof weights / sizeof weights[0]; i++)
        sum += weights[i];
    uint64_t draw = sum ? world_between(0, sum - 1) : 0;
    while (sum && draw >= weights[kind])
        draw -= weights[kind++];
    if (sum) {
        switch (kind) {
        case 0:
            fault_kill(member_any(false), WORLD_KILLS);
            break;
        case 1:
            fault_stall(member_any(world_chance(0.15)));
            break;
        case 2:
            fault_cut();
            break;
        case 3:
            fault_terminate(member_any(false));
            break;
        case 4:
            fault_kill(member_any(true), WORLD_ROUTER_KILLS);
            break;
        case 5:
            fault_terminate(member_any(true));
            break;
        default:
            fault_slow(member_any(false));
        }
    }
    world_after(NULL, world_between(cluster.fault_every_us / 4, 2 * cluster.fault_every_us),
                fault_come, NULL);
}

// ---- clients ----------------------------------------------------------------------------------

static void client_must_have_ended(void *argument)
{
    const client *c = argument;
    if (c->end == CLIENT_WAITS)
        world_violation("client %llu waits since %.3f s", (unsigned long long)c->number,
                        (double)c->begun_us / 1e6);
}

static void client_come(void *unused)
{
    (void)unused;
    if (!cluster.fire || cluster.clients == 0)
        return;
    const member *m = member_any(true);
    cluster.clients--;
    if (m->router && m->process->alive)
        world_after(
            NULL, REQUEST_LONGEST_US, client_must_have_ended,
            client_begin(m->process, cluster.spares ? CLIENT_BEARS_POISON : CLIENT_BEARS_ALL));
    world_after(NULL, world_chance(0.4) ? 0 : world_between(1000, 300000), client_come, NULL);
}

static bool clients_wait(void)
{
    for (const client *c = client_list(); c; c = c->next)
        if (c->end == CLIENT_WAITS)
            return true;
    return false;
}

// ---- a seed -----------------------------------------------------------------------------------

static uint32_t weight_choose(double chance, uint64_t most)
{
    return world_chance(chance) ? (uint32_t)world_between(1, most) : 0;
}

static double rate_choose(double chance, double most)
{
    return world_chance(chance) ? most * (double)world_between(1, 100) / 100 : 0;
}

// More requests than there is room for, some of which end while others find no connection.
static void crowd_choose(void)
{
    struct cluster *c = &cluster;
    c->sequences = 2;
    c->clients = 80;
    c->client_timeout_ms = world_between(300, 2000);
    c->full = 0.3;
}

static void plan_choose(void)
{
    struct cluster *c = &cluster;
    c->routers = world_chance(0.7) ? 1 : 2;
    int prefills = world_chance(0.05) ? 0 : (int)world_between(1, 3);
    int decodes = (int)world_between(1, 3);
    c->spares = world_chance(0.5);
    c->count = c->routers + prefills + decodes;
    for (int i = 0; i < c->count; i++) {
        member *m = &c->members[i];
        int number = i;
        m->kind = MEMBER_ROUTER;
        if (i >= c->routers) {
            m->kind = i < c->routers + prefills ? MEMBER_PREFILL : MEMBER_DECODE;
            number -= m->kind == MEMBER_PREFILL ? c->routers : c->routers + prefills;
        }
        static const char *const kinds[] = { "router", "prefill", "decode" };
        snprintf(m->name, sizeof m->name, "%s-%d", kinds[m->kind], number + 1);
        m->spared = c->spares && (number == 0 || m->kind == MEMBER_ROUTER);
        m->machine = i;
    }
    c->page_tokens = world_chance(0.8) ? 32 : 64;
    c->pages = (int)world_between(32, 90);
    c->sequences = (int)world_between(2, 12);
    c->chunk = (int)world_between(8, 64);
    c->retry_budget_ms = c->spares || world_chance(0.5) ? 30000 : world_between(2000, 10000);
    c->client_timeout_ms = !c->spares && world_chance(0.2) ? world_between(300, 4000) : 0;
    c->local_prefill_tokens = (int64_t)world_between(0, 40);
    c->local_prefill = prefills == 0 || world_chance(0.8);
    c->recompute = world_chance(0.3);
    c->checksums = world_chance(0.5);
    c->peers = world_chance(0.3) ? 1 : 64; // one pair has to make room for another
    c->fire_us = world_between(2000000, 8000000);
    c->clients = world_between(4, 80);
    c->kill = weight_choose(0.7, 10);
    c->stall = weight_choose(0.5, 8);
    c->cut = weight_choose(0.5, 8);
    c->goodbye = weight_choose(0.4, 5);
    c->router_kill = weight_choose(0.15, 2);
    c->router_drain = weight_choose(0.15, 2);
    c->slow = weight_choose(0.3, 3);
    c->fault_every_us = world_between(100000, 1500000);
    c->full = rate_choose(0.3, 0.02);
    if (!c->spares && world_chance(0.2))
        crowd_choose();
}

// The product's own fault points, those that a world without signals can have.
static void points_arm(void)
{
    static const struct {
        const char *format;
        double most;
    } points[] = { { "pool.exhaust:%.3f", 0.1 },
                   { "ticket.refuse:%.3f", 0.2 },
                   { "handoff.drop:%.3f", 0.05 },
                   { "handoff.delay:%.3f:300", 0.1 },
                   { "worker.stall:%.3f:200", 0.02 } };
    char texts[5][40], *items[5];
    fault_settings settings = { { 0, items } };
    for (size_t i = 0; i < sizeof points / sizeof points[0]; i++) {
        double rate = rate_choose(0.15, points[i].most);
        if (rate == 0)
            continue;
        items[settings.points.count] = texts[i];
        settings.points.count++;
        snprintf(texts[i], sizeof texts[i], points[i].format, rate);
        world_trace("armed %s", texts[i]);
    }
    CHECK(fault_arm(&settings, NULL) == STATUS_OK);
}

static void fire_begin(void)
{
    cluster.fire = true;
    points_arm();
    network = (network_faults){ .repeat = rate_choose(0.4, 0.1),
                                .overtake = rate_choose(0.8, 1),
                                .slow = rate_choose(0.4, 0.05),
                                .break_pair = cluster.spares ? 0 : rate_choose(0.3, 0.003),
                                .bad_run = cluster.checksums ? rate_choose(0.4, 0.1) : 0,
                                .full = cluster.full };
    fault_come(NULL);
}

static void fire_end(void)
{
    cluster.fire = false;
    fault_disarm_all();
    for (int i = 0; i < FAULT_COUNT; i++)
        world_counts[WORLD_FAULT_POINTS] += fault_fired((fault_point)i);
    network = (network_faults){ .overtake = 0.5 };
    for (int i = 0; i < cluster.count; i++)
        cluster.members[i].process->slowness = 100;
    world_run(world_healed_us());
    world_trace("peace");
}

process *cluster_router_start(const char *model)
{
    cluster = (struct cluster){ .model = model, .count = 1, .routers = 1 };
    cluster.retry_budget_ms = 30000;
    cluster.local_prefill_tokens = 32;
    cluster.local_prefill = true;
    member *m = &cluster.members[0];
    snprintf(m->name, sizeof m->name, "router-1");
    member_start(m);
    return m->process;
}

void cluster_live(uint64_t seed, const char *model, bool trace)
{
    world_begin(seed, trace);
    cluster = (struct cluster){ .model = model };
    world_checker = check_process;
    plan_choose();
    for (int i = 0; i < cluster.count; i++)
        member_start(&cluster.members[i]);
    world_run(FIRE_BEGINS_US);
    client_come(NULL);
    fire_begin();
    client_come(NULL);
    world_run(world_now_us() + cluster.fire_us);
    fire_end();
    world_run(world_now_us() + PEACE_US);
    for (int i = 0; i < SOBER_REQUESTS; i++)
        world_after(NULL, REQUEST_LONGEST_US, client_must_have_ended,
                    client_begin(member_any(true)->process, CLIENT_BEARS_NOTHING));
    uint64_t end_us = world_now_us() + REQUEST_LONGEST_US;
    while (clients_wait() && world_now_us() < end_us)
        world_run(world_now_us() + 200000);
    // What ended is told by the next heartbeats; what was cancelled is over by then.
    world_run(world_now_us() + 8000000);
    check_end();
    world_counts[WORLD_VIRTUAL_MS] = world_now_us() / 1000;
}
