#include "kv/pool.h"

#include "base/fault.h"

#include <stdlib.h>

typedef struct page {
    int32_t previous, next; // in the free list or the cached list
    int32_t run_end;        // of a run's first page its last, and the other way round
    int32_t holders;
    bool kept, free;
} page;

struct kv_pool {
    int32_t total, free_count, cached_count, held_count;
    uint64_t evicted;
    kv_pool_evict *evict;
    void *evict_context;
    page pages[]; // total, then the heads of the free list and of the cached list
};

#define FREE_HEAD(p) ((p)->total)
#define CACHED_HEAD(p) ((p)->total + 1)

static void segment_insert(kv_pool *p, int32_t after, int32_t first, int32_t last)
{
    int32_t next = p->pages[after].next;
    p->pages[first].previous = after;
    p->pages[last].next = next;
    p->pages[after].next = first;
    p->pages[next].previous = last;
}

static void segment_remove(kv_pool *p, int32_t first, int32_t last)
{
    int32_t previous = p->pages[first].previous, next = p->pages[last].next;
    p->pages[previous].next = next;
    p->pages[next].previous = previous;
}

static void counts_check(const kv_pool *p)
{
    CHECK(p->free_count >= 0 && p->cached_count >= 0 && p->held_count >= 0);
    CHECK(p->free_count + p->cached_count + p->held_count == p->total);
}

static page *page_of(const kv_pool *p, int32_t index)
{
    CHECK(index >= 0 && index < p->total);
    return (page *)&p->pages[index];
}

// Put a page into the free list, joined to the runs on both sides of it.
static void free_insert(kv_pool *p, int32_t index)
{
    bool left = index > 0 && p->pages[index - 1].free;
    bool right = index + 1 < p->total && p->pages[index + 1].free;
    int32_t first = left ? p->pages[index - 1].run_end : index;
    int32_t last = right ? p->pages[index + 1].run_end : index;
    if (right)
        segment_remove(p, index + 1, last);
    segment_insert(p, left ? index - 1 : p->pages[FREE_HEAD(p)].previous, index, index);
    if (right)
        segment_insert(p, index, index + 1, last);
    p->pages[first].run_end = last;
    p->pages[last].run_end = first;
    p->pages[index].free = true;
    p->free_count++;
}

// Take the first page of the list, which is the first of its run.
static int32_t free_remove(kv_pool *p)
{
    int32_t index = p->pages[FREE_HEAD(p)].next;
    int32_t last = p->pages[index].run_end;
    segment_remove(p, index, index);
    if (last != index) {
        p->pages[index + 1].run_end = last;
        p->pages[last].run_end = index + 1;
    }
    p->pages[index].free = false;
    p->free_count--;
    return index;
}

status kv_pool_open(int32_t pages, kv_pool **opened)
{
    CHECK(pages >= 1 && pages < INT32_MAX - 2);
    kv_pool *p = calloc(1, sizeof *p + ((size_t)pages + 2) * sizeof p->pages[0]);
    if (!p)
        return STATUS_NO_MEMORY;
    p->total = pages;
    p->held_count = pages;
    for (int32_t head = FREE_HEAD(p); head <= CACHED_HEAD(p); head++)
        p->pages[head].previous = p->pages[head].next = head;
    for (int32_t i = 0; i < pages; i++) {
        free_insert(p, i);
        p->held_count--;
    }
    counts_check(p);
    *opened = p;
    return STATUS_OK;
}

void kv_pool_close(kv_pool *p)
{
    free(p);
}

void kv_pool_on_evict(kv_pool *p, kv_pool_evict *evict, void *context)
{
    p->evict = evict;
    p->evict_context = context;
}

static void evict_oldest(kv_pool *p)
{
    int32_t index = p->pages[CACHED_HEAD(p)].next;
    if (p->evict)
        p->evict(p->evict_context, index);
    p->pages[index].kept = false;
    segment_remove(p, index, index);
    p->cached_count--;
    p->evicted++;
    free_insert(p, index);
}

status kv_pool_take(kv_pool *p, int32_t count, int32_t *pages)
{
    CHECK(count >= 0);
    if (count > p->free_count + p->cached_count)
        return STATUS_OVERLOADED;
    if (count > 0 && fault_fires(FAULT_POOL_EXHAUST))
        return STATUS_OVERLOADED;
    while (p->free_count < count)
        evict_oldest(p);
    for (int32_t i = 0; i < count; i++) {
        pages[i] = free_remove(p);
        CHECK(p->pages[pages[i]].holders == 0 && !p->pages[pages[i]].kept);
        p->pages[pages[i]].holders = 1;
    }
    p->held_count += count;
    counts_check(p);
    return STATUS_OK;
}

void kv_pool_hold(kv_pool *p, int32_t index)
{
    page *g = page_of(p, index);
    CHECK(!g->free);
    if (g->holders == 0) {
        segment_remove(p, index, index);
        p->cached_count--;
        p->held_count++;
    }
    g->holders++;
    counts_check(p);
}

void kv_pool_release(kv_pool *p, int32_t index)
{
    page *g = page_of(p, index);
    CHECK(g->holders > 0);
    if (--g->holders > 0)
        return;
    p->held_count--;
    if (g->kept) {
        segment_insert(p, p->pages[CACHED_HEAD(p)].previous, index, index);
        p->cached_count++;
    } else {
        free_insert(p, index);
    }
    counts_check(p);
}

int32_t kv_pool_holders(const kv_pool *p, int32_t index)
{
    return page_of(p, index)->holders;
}

void kv_pool_keep(kv_pool *p, int32_t index)
{
    page *g = page_of(p, index);
    CHECK(g->holders > 0);
    g->kept = true;
}

void kv_pool_forget(kv_pool *p, int32_t index)
{
    page *g = page_of(p, index);
    if (!g->kept)
        return;
    g->kept = false;
    if (g->holders > 0)
        return;
    segment_remove(p, index, index);
    p->cached_count--;
    free_insert(p, index);
    counts_check(p);
}

bool kv_pool_kept(const kv_pool *p, int32_t index)
{
    return page_of(p, index)->kept;
}

void kv_pool_touch(kv_pool *p, int32_t index)
{
    page *g = page_of(p, index);
    if (g->holders > 0 || !g->kept)
        return;
    segment_remove(p, index, index);
    segment_insert(p, p->pages[CACHED_HEAD(p)].previous, index, index);
}

int32_t kv_pool_total(const kv_pool *p)
{
    return p->total;
}

int32_t kv_pool_free(const kv_pool *p)
{
    return p->free_count;
}

int32_t kv_pool_cached(const kv_pool *p)
{
    return p->cached_count;
}

int32_t kv_pool_held(const kv_pool *p)
{
    return p->held_count;
}

uint64_t kv_pool_evicted(const kv_pool *p)
{
    return p->evicted;
}
