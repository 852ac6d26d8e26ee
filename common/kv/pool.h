// The page pool: which pages of the KV cache are free, cached or held.
//
// A page is in exactly one state, so that free + cached + held = total after every call (checked):
//   free    nobody needs its content
//   held    one or more holders: sequences whose table names it, and sends in flight
//   cached  nobody holds it, but it is kept as a reusable prefix until its room is needed
// The pool knows page numbers only, not memory and not tokens. kept pages are those that an index
// (kv/reuse.h) can find again; when the last holder lets go, a kept page is cached and any other is
// free. A page that is kept, or has several holders, is read-only.
//
// Free pages lie in a list in which adjacent free pages are always neighbours in ascending order
// (runs are joined with boundary tags: Knuth, The Art of Computer Programming 1, section 2.5),
// so a take hands out runs and a hand-off needs few messages. Cached pages lie in order of
// release; the oldest is evicted first. Every operation is O(1) a page. Owned by one thread,
// allocates at open only.
#pragma once

#include "base/status.h"

#include <stdint.h>

typedef struct kv_pool kv_pool;

// Called when a cached page is about to be reused: whoever indexes it must forget it.
typedef void kv_pool_evict(void *context, int32_t page);

// `pages` >= 1, all free. STATUS_NO_MEMORY.
status kv_pool_open(int32_t pages, kv_pool **opened);
void kv_pool_close(kv_pool *p);
void kv_pool_on_evict(kv_pool *p, kv_pool_evict *evict, void *context);

// Take `count` >= 0 pages, each with one holder; cached pages are evicted where free ones are
// short. STATUS_OVERLOADED: there are not so many; then nothing was taken and nothing evicted.
status kv_pool_take(kv_pool *p, int32_t count, int32_t *pages);
// One more holder. The page is held or cached.
void kv_pool_hold(kv_pool *p, int32_t page);
// One holder less. Release a sequence's pages from its end, so that its tail is evicted first.
void kv_pool_release(kv_pool *p, int32_t page);
int32_t kv_pool_holders(const kv_pool *p, int32_t page);

// Mark a held page as kept, and undo that; a cached page that is forgotten becomes free.
void kv_pool_keep(kv_pool *p, int32_t page);
void kv_pool_forget(kv_pool *p, int32_t page);
bool kv_pool_kept(const kv_pool *p, int32_t page);
// A cached page becomes the last to be evicted; nothing for any other.
void kv_pool_touch(kv_pool *p, int32_t page);

int32_t kv_pool_total(const kv_pool *p);
int32_t kv_pool_free(const kv_pool *p);
int32_t kv_pool_cached(const kv_pool *p);
int32_t kv_pool_held(const kv_pool *p);
uint64_t kv_pool_evicted(const kv_pool *p); // since open
