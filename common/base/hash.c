#include "base/hash.h"

#include "base/status.h"

#include <stdio.h>
#include <string.h>
#include <xxhash.h>

// Tokens and parents are hashed as they lie in memory, and the format says little endian.
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
               "hashes are defined on little-endian bytes");

static hash128 from_library(XXH128_hash_t h)
{
    return (hash128){ .low = h.low64, .high = h.high64 };
}

uint64_t hash64_of(const void *data, size_t size, uint64_t seed)
{
    return XXH3_64bits_withSeed(data, size, seed);
}

hash128 hash128_of(const void *data, size_t size)
{
    return from_library(XXH3_128bits(data, size));
}

void hash128_format(hash128 h, char text[33])
{
    snprintf(text, 33, "%016llx%016llx", (unsigned long long)h.high, (unsigned long long)h.low);
}

hash128 hash_prefix_next(hash128 parent, const int32_t *tokens, size_t count)
{
    struct {
        uint64_t parent[2];
        int32_t tokens[HASH_PAGE_TOKENS_MAX];
    } link = { .parent = { parent.low, parent.high } };
    CHECK(count <= HASH_PAGE_TOKENS_MAX);
    memcpy(link.tokens, tokens, count * sizeof(tokens[0]));
    return hash128_of(&link, sizeof(link.parent) + count * sizeof(tokens[0]));
}

// The library's own state, which it allocates with the alignment that it needs.
hash_stream *hash_stream_begin(void)
{
    XXH3_state_t *state = XXH3_createState();
    if (state != NULL)
        XXH3_128bits_reset(state);
    return (hash_stream *)state;
}

void hash_stream_add(hash_stream *s, const void *data, size_t size)
{
    CHECK(XXH3_128bits_update((XXH3_state_t *)s, data, size) == XXH_OK);
}

hash128 hash_stream_end(hash_stream *s)
{
    XXH128_hash_t h = XXH3_128bits_digest((XXH3_state_t *)s);
    XXH3_freeState((XXH3_state_t *)s);
    return from_library(h);
}
