#include "check.h"

#include "cluster.h"

#include "handoff/handoff.h"
#include "model/engine_parts.h"
#include "router/dispatcher_private.h"
#include "worker/job.h"

#include <stdlib.h>

// ---- what the product opens (--wrap) ----------------------------------------------------------

status __real_engine_open(const engine_settings *settings, engine **opened, error *failure);
status __wrap_engine_open(const engine_settings *settings, engine **opened, error *failure);
void __real_engine_close(engine *e);
void __wrap_engine_close(engine *e);
status __real_job_table_open(int32_t capacity, int32_t pages, job_table **opened);
status __wrap_job_table_open(int32_t capacity, int32_t pages, job_table **opened);
void __real_job_table_close(job_table *t);
void __wrap_job_table_close(job_table *t);
job *__real_job_add(job_table *t, const handoff_key *key);
job *__wrap_job_add(job_table *t, const handoff_key *key);
stream_result __real_stream_push(stream *s, const message_token_update *update);
stream_result __wrap_stream_push(stream *s, const message_token_update *update);

status __wrap_engine_open(const engine_settings *settings, engine **opened, error *failure)
{
    status result = __real_engine_open(settings, opened, failure);
    if (result == STATUS_OK)
        world_current()->engine = *opened;
    return result;
}

void __wrap_engine_close(engine *e)
{
    world_current()->engine = NULL;
    __real_engine_close(e);
}

status __wrap_job_table_open(int32_t capacity, int32_t pages, job_table **opened)
{
    status result = __real_job_table_open(capacity, pages, opened);
    if (result == STATUS_OK)
        world_current()->jobs = *opened;
    return result;
}

void __wrap_job_table_close(job_table *t)
{
    world_current()->jobs = NULL;
    __real_job_table_close(t);
}

// A worker computes its part of an attempt once, however often the ticket comes.
job *__wrap_job_add(job_table *t, const handoff_key *key)
{
    static struct begun {
        const process *worker;
        handoff_key key;
    } * begun;
    static size_t count, capacity;
    job *j = __real_job_add(t, key);
    for (size_t i = 0; j && i < count; i++) {
        const handoff_key *k = &begun[i].key;
        if (begun[i].worker == world_current() && k->router == key->router &&
            k->number == key->number && k->attempt == key->attempt)
            world_violation("request %llu attempt %u is begun again",
                            (unsigned long long)key->number, key->attempt);
    }
    if (count == capacity) {
        capacity = capacity ? 2 * capacity : 256;
        begun = realloc(begun, capacity * sizeof *begun);
        CHECK(begun);
    }
    if (j)
        begun[count++] = (struct begun){ world_current(), *key };
    return j;
}

// Only the live attempt may write to a client's stream.
stream_result __wrap_stream_push(stream *s, const message_token_update *update)
{
    const exchange *x =
        (const exchange *)(const void *)((const char *)s - offsetof(exchange, stream));
    bool moves = x->moving && update->attempt + 1 == x->attempt; // until its tokens have moved
    if (update->attempt != x->attempt && !moves)
        world_violation("request %llu attempt %u writes into the answer of attempt %u",
                        (unsigned long long)x->number, update->attempt, x->attempt);
    return __real_stream_push(s, update);
}

// ---- pages ------------------------------------------------------------------------------------

static int32_t page_of(const process *p, const void *address)
{
    const engine *e = p->engine;
    if (!e)
        return -1;
    const char *first = e->kv.memory.data, *at = address;
    if (at < first || at >= first + e->kv.memory.size)
        return -1;
    return (int32_t)((at - first) / e->kv.layout.page_bytes);
}

bool check_is_pool(const process *p, const void *address)
{
    return page_of(p, address) >= 0;
}

static void page_check(const process *p, const char *at, size_t size, const char *what)
{
    const engine *e = p->engine;
    for (size_t done = 0; done < size; done += (size_t)e->kv.layout.page_bytes) {
        int32_t page = page_of(p, at + done);
        if (page < 0 || kv_pool_holders(e->pool, page) == 0)
            world_violation("a peer %s page %d of %s, which nobody holds", what, page, p->name);
    }
}

#if defined(WORLD_WATCHES_THREADS)
#define LOOKS false // to look would be a race with whom it looks at
#else
#define LOOKS true
#endif

void check_read(const process *p, const void *from, size_t size)
{
    if (LOOKS && check_is_pool(p, from))
        page_check(p, from, size, "reads");
}

void check_write(const process *p, const void *to, size_t size)
{
    if (LOOKS && check_is_pool(p, to))
        page_check(p, to, size, "writes");
}

static bool has_pages(const sequence *s)
{
    return s->state != SEQUENCE_CLOSED && s->state != SEQUENCE_PREEMPTED;
}

#define PAGES_MAX 4096
static const process *looked_at;
static int32_t holders[PAGES_MAX];
static bool started[PAGES_MAX]; // in the table of a sequence that computes

static void receive_check(const fabric_piece *piece)
{
    const engine *e = looked_at->engine;
    for (size_t done = 0; done < piece->size; done += (size_t)e->kv.layout.page_bytes) {
        int32_t page = page_of(looked_at, (const char *)piece->data + done);
        if (page < 0)
            return; // a probe
        if (holders[page] == 0)
            world_violation("page %d is free, and a peer may still write it", page);
        if (started[page])
            world_violation("page %d is of a running sequence, and a peer may still write it",
                            page);
    }
}

// Every page has the holders that its sequences and transfers make, no more and no fewer; and what
// a peer may write belongs to its transfer alone.
static void pages_check(const process *p)
{
    const engine *e = p->engine;
    if (!e || !p->jobs)
        return;
    int32_t total = kv_pool_total(e->pool);
    CHECK(total <= PAGES_MAX);
    memset(holders, 0, (size_t)total * sizeof holders[0]);
    memset(started, 0, (size_t)total * sizeof started[0]);
    for (int32_t i = 0; i < e->facts.max_sequences; i++) {
        const sequence *s = &e->slots[i];
        if (!has_pages(s))
            continue;
        for (int32_t k = 0; k < s->page_count; k++) {
            holders[s->pages[k]]++;
            started[s->pages[k]] = started[s->pages[k]] || s->state != SEQUENCE_OPEN;
        }
    }
    for (int32_t i = 0; i < job_count(p->jobs); i++) {
        const job *j = job_at(p->jobs, i);
        for (int32_t k = 0; k < j->held_count; k++)
            holders[j->held[k]]++;
    }
    for (int32_t page = 0; page < total; page++)
        if (kv_pool_holders(e->pool, page) != holders[page])
            world_violation("page %d has %d holders, and sequences and transfers account for %d",
                            page, kv_pool_holders(e->pool, page), holders[page]);
    looked_at = p;
    fabric_each_receive(p, receive_check);
}

// ---- credits ----------------------------------------------------------------------------------

typedef struct tally {
    uint64_t pages, tokens;
    uint32_t sequences;
} tally;

static void share_add(const exchange *x, const exchange_share *share, uint64_t serial, tally *sum)
{
    if (share->serial == 0 || share->serial != serial)
        return;
    if (x->state != EXCHANGE_RUNNING)
        world_violation("request %llu does not run and keeps credits",
                        (unsigned long long)x->number);
    sum->pages += share->pages;
    sum->tokens += share->tokens;
    sum->sequences++;
}

static void held_add(const dispatcher_line *line, const exchange_share *share, exchange_held *held)
{
    for (size_t i = 0; i < ADMISSION_CLASSES; i++) {
        if (share->held != &line->held[i])
            continue;
        held[i].pages += share->pages;
        held[i].sequences++;
    }
}

// What the classes hold on decode workers is what their requests spent there.
static void classes_check(const dispatcher *d, const dispatcher_line *line)
{
    exchange_held held[ADMISSION_CLASSES] = { 0 };
    for (const exchange *x = d->all; x; x = x->all_next) {
        held_add(line, &x->decode, held);
        held_add(line, &x->prefill, held); // the one that it moves away from
    }
    for (size_t i = 0; i < ADMISSION_CLASSES; i++)
        if (held[i].pages != line->held[i].pages || held[i].sequences != line->held[i].sequences)
            world_violation("class %zu holds %llu pages and %llu sequences, counted are %llu, %llu",
                            i, (unsigned long long)held[i].pages,
                            (unsigned long long)held[i].sequences,
                            (unsigned long long)line->held[i].pages,
                            (unsigned long long)line->held[i].sequences);
}

static void credits_check(const router *r)
{
    const dispatcher *d = r->dispatcher;
    dispatcher_counts counts = { 0 };
    for (size_t i = 0; i < registry_count(r->registry); i++) {
        const registry_worker *w = registry_at(r->registry, i);
        tally sum = { 0 };
        for (const exchange *x = d->all; x; x = x->all_next) {
            share_add(x, &x->decode, w->serial, &sum);
            share_add(x, &x->prefill, w->serial, &sum);
        }
        if (sum.pages != w->pages_spent || sum.sequences != w->sequences_spent ||
            sum.tokens != w->tokens_outstanding)
            world_violation("worker %s: its requests have %llu pages, %u sequences, %llu tokens; "
                            "spent are %llu, %u, %llu",
                            w->name, (unsigned long long)sum.pages, sum.sequences,
                            (unsigned long long)sum.tokens, (unsigned long long)w->pages_spent,
                            w->sequences_spent, (unsigned long long)w->tokens_outstanding);
    }
    for (size_t i = 0; i < r->models.count; i++)
        classes_check(d, &d->lines[i]);
    if (!dispatcher_view_is_true(d))
        world_violation("what the policy sees of a worker is out of date");
    for (const call *c = d->calls; c; c = c->next)
        counts.parsing += c->parsing;
    for (const exchange *x = d->all; x; x = x->all_next) {
        counts.waiting += x->state == EXCHANGE_WAITING;
        counts.running += x->state == EXCHANGE_RUNNING;
    }
    if (counts.parsing != d->counts.parsing || counts.waiting != d->counts.waiting ||
        counts.running != d->counts.running)
        world_violation("requests parsed %zu waiting %zu running %zu are counted %zu %zu %zu",
                        counts.parsing, counts.waiting, counts.running, d->counts.parsing,
                        d->counts.waiting, d->counts.running);
}

// A router that was not stopped itself loses whoever it did not hear for dead_after, within a
// second.
static void silence_check(const process *p, const router *r)
{
    const uint64_t slack_us = 1000000, now_us = world_now_us() + p->clock_offset_us;
    uint64_t limit_us = (uint64_t)r->settings->dead_after_us + slack_us;
    if (p->stalled_until_us + slack_us > world_now_us())
        return;
    for (size_t i = 0; i < registry_count(r->registry); i++) {
        const registry_worker *w = registry_at(r->registry, i);
        if (now_us > w->heard_us + limit_us)
            world_violation("%s has been silent for %.1f s and is not lost", w->name,
                            (double)(now_us - w->heard_us) / 1e6);
    }
}

void check_process(process *p)
{
    if (!LOOKS || !p || !p->alive)
        return;
    world_counts[WORLD_CHECKS]++;
    const router *r = cluster_router(p);
    if (r) {
        credits_check(r);
        silence_check(p, r);
    } else {
        pages_check(p);
    }
}

// ---- the end ----------------------------------------------------------------------------------

static void router_end_check(const process *p, router *r)
{
    dispatcher_counts counts = dispatcher_count(r->dispatcher);
    if (counts.parsing + counts.waiting + counts.running > 0)
        world_violation("%s still has requests: %zu parsed, %zu waiting, %zu running", p->name,
                        counts.parsing, counts.waiting, counts.running);
    if (registry_count(r->registry) != cluster_worker_count())
        world_violation("%s knows %zu workers, %zu are alive", p->name, registry_count(r->registry),
                        cluster_worker_count());
    for (size_t i = 0; i < registry_count(r->registry); i++) {
        const registry_worker *w = registry_at(r->registry, i);
        if (!registry_usable(w) || w->pages_spent || w->sequences_spent || w->tokens_outstanding ||
            w->alone)
            world_violation("%s: worker %s is %s with %llu pages, %u sequences, %llu tokens spent",
                            p->name, w->name, registry_state_name(w),
                            (unsigned long long)w->pages_spent, w->sequences_spent,
                            (unsigned long long)w->tokens_outstanding);
        const registry_beat *b = &w->beat;
        if (b->pages_held || b->pages_quarantined || b->pages_free != w->pages ||
            b->sequences_running || b->sequences_waiting || b->tokens_waiting)
            world_violation("%s still says pages free %llu held %llu quarantined %llu sequences "
                            "running %u waiting %u",
                            w->name, (unsigned long long)b->pages_free,
                            (unsigned long long)b->pages_held,
                            (unsigned long long)b->pages_quarantined, b->sequences_running,
                            b->sequences_waiting);
    }
}

static void worker_end_check(const process *p)
{
    const engine *e = p->engine;
    for (int32_t i = 0; i < job_count(p->jobs); i++) {
        const job *j = job_at(p->jobs, i);
        world_trace("%s still has request %llu attempt %u state %d%s%s%s", p->name,
                    (unsigned long long)j->key.number, j->key.attempt, (int)j->state,
                    j->transfer ? " transfer" : "", j->stopping ? " stopping" : "",
                    j->router ? "" : " no router");
    }
    if (job_count(p->jobs) || engine_sequences_open(e) || engine_pages_held(e))
        world_violation("%s has %d tickets, %d sequences, %d held pages at the end", p->name,
                        job_count(p->jobs), engine_sequences_open(e), engine_pages_held(e));
}

void check_end(void)
{
    for (process *p = world_processes(); p; p = p->next) {
        if (!p->alive)
            continue;
        router *r = cluster_router(p);
        if (r)
            router_end_check(p, r);
        else
            worker_end_check(p);
    }
    if (fabric_open_requests() > 0)
        world_violation("%zu fabric requests never returned", fabric_open_requests());
}
