// Prefix reuse: from the tokens of a prompt to the pages that hold their keys and values already.
//
// Only full pages are found. A page's identity is the hash chain of base/hash.h: its parent's hash
// and its own tokens. A hit is verified by comparing the stored tokens and the parent's hash, not
// by the page's hash alone. The seed of a chain carries everything that changes the numbers
// (numeric id, layout, adapter, tenant's salt), so chains of different seeds never meet, and equal
// seeds give equal hashes on every machine.
//
// The index holds nothing: a page of it is either held by a sequence or cached by the pool
// (kv/pool.h), which evicts the least recently used and tells the index. Owned by the pool's
// thread, allocates at open only.
#pragma once

#include "base/hash.h"
#include "kv/pool.h"

typedef struct kv_reuse kv_reuse;

// An index over the pages of `pool`, which it must not outlive. `page_tokens` tokens fill a page.
status kv_reuse_open(kv_pool *pool, int32_t page_tokens, kv_reuse **opened);
void kv_reuse_close(kv_reuse *r);

// The start of a chain: hash128 over `id` (numeric id), the layout's name,
// page_tokens and the salt.
hash128 kv_reuse_seed(hash128 id, const char *layout, int32_t page_tokens, hash128 salt);

// The page that follows `parent` in the chain with these page_tokens tokens, or -1. `self` (may be
// NULL) becomes its hash, found or not.
int32_t kv_reuse_find(const kv_reuse *r, hash128 parent, const int32_t *tokens, hash128 *self);

// Hold the longest run of known pages from the start of the chain, at most `limit` of
// them; returns how many were written to `pages`. `chain` becomes the hash of the last one
// (of the seed, if none).
int32_t kv_reuse_take(kv_reuse *r, hash128 seed, const int32_t *tokens, int32_t limit,
                      int32_t *pages, hash128 *chain);

// Make a full, held page findable; `parent` becomes its own hash. Where another page has the same
// identity, that one stays the known one (and counts as used now), and `page` is left alone.
void kv_reuse_add(kv_reuse *r, hash128 *parent, const int32_t *tokens, int32_t page);

// Forget a page, if it is known; a cached one becomes free.
void kv_reuse_forget(kv_reuse *r, int32_t page);
// Forget everything; cached pages become free.
void kv_reuse_drop(kv_reuse *r);

int32_t kv_reuse_count(const kv_reuse *r); // pages that can be found
