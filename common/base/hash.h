// Hashes: one door to xxHash (XXH3). Not cryptographic. Same bytes on every machine and build.
//
// `hash128` identifies weights and prefixes (two equal hashes are taken for equal content);
// `hash64` is a checksum of data in flight and of logits.
//
// Prefix identity: h(0) = hash128(seed bytes), h(i) = hash128(h(i-1) little endian, then the tokens
// of page i as little-endian int32). The seed carries the numeric id, the KV layout, the adapter
// and the tenant's salt. Only full pages have a hash.
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <stdbool.h>

typedef struct hash128 {
    uint64_t low, high;
} hash128;

uint64_t hash64_of(const void *data, size_t size, uint64_t seed);
hash128 hash128_of(const void *data, size_t size);
static inline bool hash128_equal(hash128 a, hash128 b)
{
    return a.low == b.low && a.high == b.high;
}
// 32 lower-case hex digits, most significant first, and a NUL.
void hash128_format(hash128 h, char text[33]);

// The next link of a prefix chain: `parent` and the `count` tokens of one page.
#define HASH_PAGE_TOKENS_MAX 512
hash128 hash_prefix_next(hash128 parent, const int32_t *tokens, size_t count);

// Streaming form for files and multi-part content.
typedef struct hash_stream hash_stream;
hash_stream *hash_stream_begin(void); // NULL: no memory
void hash_stream_add(hash_stream *s, const void *data, size_t size);
hash128 hash_stream_end(hash_stream *s); // frees it
