#include "kv/reuse.h"

#include <stdlib.h>
#include <string.h>

typedef struct entry {
    hash128 self, parent;
    int32_t next; // in its bucket
    bool known;
} entry;

struct kv_reuse {
    kv_pool *pool;
    int32_t page_tokens, count;
    uint64_t bucket_mask;
    int32_t *buckets; // first page of each, or -1
    entry *entries;   // [pages]
    int32_t *tokens;  // [pages][page_tokens]
};

static int32_t *bucket_of(const kv_reuse *r, hash128 self)
{
    return &r->buckets[self.low & r->bucket_mask];
}

static void page_forget(void *context, int32_t page)
{
    kv_reuse *r = context;
    entry *e = &r->entries[page];
    CHECK(e->known);
    int32_t *link = bucket_of(r, e->self);
    while (*link != page)
        link = &r->entries[*link].next;
    *link = e->next;
    e->known = false;
    r->count--;
}

status kv_reuse_open(kv_pool *pool, int32_t page_tokens, kv_reuse **opened)
{
    CHECK(page_tokens >= 1);
    size_t pages = (size_t)kv_pool_total(pool), buckets = 1;
    while (buckets < 2 * pages)
        buckets *= 2;
    kv_reuse *r = calloc(1, sizeof *r);
    if (!r)
        return STATUS_NO_MEMORY;
    r->pool = pool;
    r->page_tokens = page_tokens;
    r->bucket_mask = buckets - 1;
    r->buckets = malloc(buckets * sizeof r->buckets[0]);
    r->entries = calloc(pages, sizeof r->entries[0]);
    r->tokens = calloc(pages * (size_t)page_tokens, sizeof r->tokens[0]);
    if (!r->buckets || !r->entries || !r->tokens) {
        kv_reuse_close(r);
        return STATUS_NO_MEMORY;
    }
    memset(r->buckets, 0xff, buckets * sizeof r->buckets[0]);
    kv_pool_on_evict(pool, page_forget, r);
    *opened = r;
    return STATUS_OK;
}

void kv_reuse_close(kv_reuse *r)
{
    if (!r)
        return;
    kv_pool_on_evict(r->pool, NULL, NULL);
    free(r->buckets);
    free(r->entries);
    free(r->tokens);
    free(r);
}

hash128 kv_reuse_seed(hash128 id, const char *layout, int32_t page_tokens, hash128 salt)
{
    struct {
        uint64_t words[5];
        char layout[64];
    } seed = { { id.low, id.high, (uint64_t)page_tokens, salt.low, salt.high }, { 0 } };
    CHECK(strlen(layout) < sizeof seed.layout);
    memcpy(seed.layout, layout, strlen(layout));
    return hash128_of(&seed, sizeof seed);
}

int32_t kv_reuse_find(const kv_reuse *r, hash128 parent, const int32_t *tokens, hash128 *self)
{
    hash128 h = hash_prefix_next(parent, tokens, (size_t)r->page_tokens);
    if (self)
        *self = h;
    size_t bytes = (size_t)r->page_tokens * sizeof tokens[0];
    for (int32_t page = *bucket_of(r, h); page >= 0; page = r->entries[page].next) {
        const entry *e = &r->entries[page];
        if (hash128_equal(e->self, h) && hash128_equal(e->parent, parent) &&
            memcmp(r->tokens + (size_t)page * (size_t)r->page_tokens, tokens, bytes) == 0)
            return page;
    }
    return -1;
}

int32_t kv_reuse_take(kv_reuse *r, hash128 seed, const int32_t *tokens, int32_t limit,
                      int32_t *pages, hash128 *chain)
{
    *chain = seed;
    int32_t taken = 0;
    while (taken < limit) {
        hash128 self;
        int32_t page =
            kv_reuse_find(r, *chain, tokens + (size_t)taken * (size_t)r->page_tokens, &self);
        if (page < 0)
            break;
        kv_pool_hold(r->pool, page);
        pages[taken++] = page;
        *chain = self;
    }
    return taken;
}

void kv_reuse_add(kv_reuse *r, hash128 *parent, const int32_t *tokens, int32_t page)
{
    hash128 self;
    int32_t known = kv_reuse_find(r, *parent, tokens, &self);
    if (known < 0) {
        entry *e = &r->entries[page];
        CHECK(!e->known);
        kv_pool_keep(r->pool, page);
        *e = (entry){ self, *parent, *bucket_of(r, self), true };
        *bucket_of(r, self) = page;
        memcpy(r->tokens + (size_t)page * (size_t)r->page_tokens, tokens,
               (size_t)r->page_tokens * sizeof tokens[0]);
        r->count++;
    } else {
        kv_pool_touch(r->pool, known);
    }
    *parent = self;
}

void kv_reuse_forget(kv_reuse *r, int32_t page)
{
    if (!r->entries[page].known)
        return;
    page_forget(r, page);
    kv_pool_forget(r->pool, page);
}

void kv_reuse_drop(kv_reuse *r)
{
    for (int32_t page = 0; page < kv_pool_total(r->pool); page++)
        kv_reuse_forget(r, page);
    CHECK(r->count == 0);
}

int32_t kv_reuse_count(const kv_reuse *r)
{
    return r->count;
}
