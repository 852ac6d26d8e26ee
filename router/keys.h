// API keys: who may ask, for what, and how much.
//
// The file names one key a line, with the SHA-256 of the key and not the key itself; blank lines
// and those that begin with # count for nothing:
//
//     NAME sha256:64-HEX-DIGITS [requests_per_minute=N] [tokens_per_minute=N] [concurrent=N]
//          [class=interactive|batch] [models=A,B] [tenant=NAME] [admin]            (all on one
//          line)
//
// What is not named is not limited. Keys are drawn by `penstock key` from 192 random bits, so a
// fast hash keeps them: a slow one (bcrypt, scrypt) makes guessing passwords expensive, and nobody
// guesses 192 bits at any speed, while every request would pay for it. A key of one's own choice
// would be such a password: the file cannot tell, so do not write the hash of one into it.
//
// Limits are buckets that fill in a minute, and each router counts its own. A request takes one of
// the requests; its prompt's tokens are taken when it is parsed, and the rest is settled at its
// end, so a long answer leaves a debt that later requests wait for.
//
// A key is its own tenant unless it names one; keys of one tenant share prefixes (prefix_salt).
// Everything here belongs to the router's loop.
#pragma once

#include "net/http_key_line.h"
#include "router/admission.h"

#include "base/status.h"

#define KEYS_MAX 16384

// What fills to `limit` in a minute. limit 0: no limit.
typedef struct keys_bucket {
    int64_t limit;
    double level; // below 0: a debt
    uint64_t filled_us;
} keys_bucket;

// One key. It lives until its line is gone and nobody holds it any more.
typedef struct api_key {
    char name[HTTP_KEY_NAME_MAX + 1];
    uint8_t digest[HTTP_DIGEST_SIZE];
    uint8_t salt[16]; // of its tenant
    keys_bucket requests, tokens;
    int64_t concurrent; // 0: no limit
    bool admin;
    bool classes[ADMISSION_CLASSES];
    char **models; // [model_count]; none: all of them
    size_t model_count;
    int64_t running, references;
    bool gone; // its line is
} api_key;

typedef struct keys keys;

// Why a request may not go on.
typedef enum keys_verdict {
    KEYS_ALLOWED,
    KEYS_REQUESTS,   // too many in a minute
    KEYS_TOKENS,     // too many in a minute
    KEYS_TOO_LARGE,  // more tokens than the limit: never
    KEYS_CONCURRENT, // too many at a time
} keys_verdict;

// STATUS_BAD_CONFIG names the file, the line and what would be right.
status keys_open(const char *path, keys **opened, error *failure);
// Keys that are still there by name keep their counts: what was used of a limit stays used under
// another one. A failure changes nothing.
status keys_read_again(keys *k, uint64_t now_us, error *failure);
void keys_close(keys *k); // NULL is allowed; nobody holds a key any more
size_t keys_count(const keys *k);

// The key of this secret; NULL: there is none. The time does not tell how near it was.
api_key *keys_find(keys *k, slice secret);
// Hold a key beyond the call, and let go of it.
void keys_take(api_key *key);
void keys_release(api_key *key);

// A request begins: one of the requests, a place among those at a time, and not while tokens are
// owed. keys_leave gives the place back.
keys_verdict keys_enter(api_key *key, uint64_t now_us);
void keys_leave(api_key *key);
// Take `tokens` of a prompt: `reserved` of them, none where tokens are not limited. At the end, put
// right what was taken by what was used; the limits may be others by then.
keys_verdict keys_reserve(api_key *key, uint64_t tokens, uint64_t now_us, uint64_t *reserved);
void keys_settle(api_key *key, uint64_t reserved, uint64_t used, uint64_t now_us);

// How a bucket stands now.
double keys_bucket_level(const keys_bucket *b, uint64_t now_us);
// Seconds until it holds `wanted`.
double keys_bucket_wait_s(const keys_bucket *b, double wanted, uint64_t now_us);
