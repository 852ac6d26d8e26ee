#include "router/keys.h"

#include "base/hash.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#define FILE_MAX ((size_t)4 << 20)
#define MINUTE_US 60e6
#define SLOTS (2 * KEYS_MAX) // of an index; a power of two

struct keys {
    char *path;
    api_key **items;        // [count]
    uint64_t (*digests)[4]; // [count]: what keys_find looks through
    size_t count;
};

// ---- one line ---------------------------------------------------------------------------------

// Same text, same salt, on every router; nothing that a tenant may choose decides it.
static void salt_make(slice tenant, uint8_t salt[16])
{
    uint8_t digest[HTTP_DIGEST_SIZE];
    buffer text = { 0 };
    buffer_append_text(&text, "penstock tenant ");
    buffer_append_slice(&text, tenant);
    http_sha256(buffer_slice(&text), digest);
    memcpy(salt, digest, 16);
    buffer_close(&text);
}

static void key_free(api_key *key)
{
    for (size_t i = 0; i < key->model_count; i++)
        free(key->models[i]);
    free(key->models);
    free(key);
}

static void bucket_fill(keys_bucket *b, uint64_t now_us)
{
    b->level = keys_bucket_level(b, now_us);
    b->filled_us = now_us;
}

static bool models_copy(slice names, api_key *key)
{
    key->models = calloc(HTTP_KEY_MODELS_MAX, sizeof *key->models);
    if (!key->models)
        return false;
    for (slice name; http_key_line_take(&names, &name); key->model_count++) {
        key->models[key->model_count] = strndup(name.data, name.size);
        if (!key->models[key->model_count])
            return false;
    }
    return true;
}

// NULL: `failure` says why (without file and line).
static api_key *line_parse(slice line, error *failure)
{
    http_key_line l;
    if (http_key_line_parse(line, &l, failure) != STATUS_OK)
        return NULL;
    api_key *key = calloc(1, sizeof *key);
    if (!key || (l.models.size > 0 && !models_copy(l.models, key))) {
        error_set(failure, STATUS_NO_MEMORY, "", "no memory for a key");
        if (key)
            key_free(key);
        return NULL;
    }
    memcpy(key->name, l.name.data, l.name.size);
    memcpy(key->digest, l.digest, sizeof key->digest);
    salt_make(l.tenant, key->salt);
    key->requests.limit = l.requests_per_minute;
    key->tokens.limit = l.tokens_per_minute;
    key->concurrent = l.concurrent;
    key->classes[ADMISSION_INTERACTIVE] = l.interactive;
    key->classes[ADMISSION_BATCH] = l.batch;
    key->admin = l.admin;
    key->requests.level = (double)key->requests.limit;
    key->tokens.level = (double)key->tokens.limit;
    return key;
}

// ---- the file ---------------------------------------------------------------------------------

// What a file says: its keys, and where the one with a name or a digest stands, so that a file of
// thousands is read without comparing each with each.
typedef struct key_list {
    api_key **items; // [count], of KEYS_MAX
    size_t count;
    uint32_t *by_name, *by_digest; // [SLOTS]: one more than the index; 0: free
} key_list;

static void index_close(key_list *l)
{
    free(l->by_name);
    free(l->by_digest);
    l->by_name = l->by_digest = NULL;
}

static void list_close(key_list *l)
{
    for (size_t i = 0; i < l->count; i++)
        key_free(l->items[i]);
    free(l->items);
    index_close(l);
}

// The slot of the key with that name, or the free one where it belongs.
static uint32_t *name_slot(const key_list *l, const char *name)
{
    size_t at = (size_t)hash64_of(name, strlen(name), 0) % SLOTS;
    while (l->by_name[at] && strcmp(l->items[l->by_name[at] - 1]->name, name) != 0)
        at = (at + 1) % SLOTS;
    return &l->by_name[at];
}

static uint32_t *digest_slot(const key_list *l, const uint8_t digest[HTTP_DIGEST_SIZE])
{
    size_t at = (size_t)hash64_of(digest, HTTP_DIGEST_SIZE, 0) % SLOTS;
    while (l->by_digest[at] &&
           memcmp(l->items[l->by_digest[at] - 1]->digest, digest, HTTP_DIGEST_SIZE) != 0)
        at = (at + 1) % SLOTS;
    return &l->by_digest[at];
}

static status line_append(slice line, key_list *l, error *failure)
{
    if (http_key_line_empty(line))
        return STATUS_OK;
    if (l->count == KEYS_MAX)
        return error_set(failure, STATUS_BAD_CONFIG, "", "there are more than %d keys", KEYS_MAX);
    api_key *key = line_parse(line, failure);
    if (!key)
        return failure->code;
    uint32_t *name = name_slot(l, key->name), *digest = digest_slot(l, key->digest);
    if (*name || *digest) {
        error_set(failure, STATUS_BAD_CONFIG, "",
                  *name ? "the key %s stands twice" : "%s has the hash of another key", key->name);
        key_free(key);
        return failure->code;
    }
    l->items[l->count++] = key;
    *name = *digest = (uint32_t)l->count;
    return STATUS_OK;
}

static status text_parse(const char *path, slice text, key_list *l, error *failure)
{
    size_t number = 0;
    for (slice line; slice_take_line(&text, &line);) {
        number++;
        status result = line_append(line, l, failure);
        if (result != STATUS_OK) {
            error_prefix(failure, "%.150s:%zu", path, number);
            return result;
        }
    }
    if (l->count == 0)
        return error_set(failure, STATUS_BAD_CONFIG, "security.keys_file",
                         "%.200s holds no key, so nobody could ask anything", path);
    return STATUS_OK;
}

static status file_read(const char *path, buffer *text, error *failure)
{
    char block[65536];
    FILE *file = fopen(path, "r");
    text->limit = FILE_MAX;
    for (size_t size; file && (size = fread(block, 1, sizeof block, file)) > 0;)
        buffer_append(text, block, size);
    bool broken = !file || ferror(file);
    int why = errno;
    if (file)
        fclose(file);
    if (broken)
        return error_set(failure, STATUS_BAD_CONFIG, "security.keys_file",
                         "security.keys_file: %.200s cannot be read: %s", path, strerror(why));
    if (text->overflow)
        return error_set(failure, STATUS_BAD_CONFIG, "security.keys_file",
                         "security.keys_file: %.200s is larger than 4 MiB", path);
    return STATUS_OK;
}

static status list_read(const char *path, key_list *l, error *failure)
{
    buffer text = { 0 };
    *l = (key_list){ .items = calloc(KEYS_MAX, sizeof *l->items),
                     .by_name = calloc(SLOTS, sizeof *l->by_name),
                     .by_digest = calloc(SLOTS, sizeof *l->by_digest) };
    status result = l->items && l->by_name && l->by_digest
                        ? file_read(path, &text, failure)
                        : error_set(failure, STATUS_NO_MEMORY, "", "no memory for the keys");
    if (result == STATUS_OK)
        result = text_parse(path, buffer_slice(&text), l, failure);
    buffer_close(&text);
    if (result != STATUS_OK)
        list_close(l);
    return result;
}

// The line is gone; so is the key once nobody holds it.
static void key_drop(api_key *key)
{
    key->gone = true;
    if (key->references == 0)
        key_free(key);
}

// What was used stays used; the time until now counts by the old limit.
static void bucket_move(keys_bucket *old, keys_bucket *fresh, uint64_t now_us)
{
    bucket_fill(old, now_us);
    fresh->filled_us = now_us;
    if (old->limit > 0 && old->level < fresh->level)
        fresh->level = old->level;
}

// What the file says of a key that was there before; its counts stay.
static void key_move(api_key *from, api_key *to, uint64_t now_us)
{
    api_key kept = *to;
    bucket_move(&kept.requests, &from->requests, now_us);
    bucket_move(&kept.tokens, &from->tokens, now_us);
    *to = *from;
    to->running = kept.running;
    to->references = kept.references;
    from->models = kept.models;
    from->model_count = kept.model_count;
    key_free(from);
}

static void list_take(keys *k, key_list *l, uint64_t now_us)
{
    for (size_t i = 0; i < k->count; i++) {
        api_key *old = k->items[i];
        uint32_t at = *name_slot(l, old->name);
        if (at == 0) {
            key_drop(old);
            continue;
        }
        key_move(l->items[at - 1], old, now_us);
        l->items[at - 1] = old;
    }
    free(k->items);
    k->items = l->items;
    k->count = l->count;
    index_close(l);
    for (size_t i = 0; i < k->count; i++)
        memcpy(k->digests[i], k->items[i]->digest, HTTP_DIGEST_SIZE);
}

status keys_read_again(keys *k, uint64_t now_us, error *failure)
{
    key_list fresh;
    status result = list_read(k->path, &fresh, failure);
    if (result == STATUS_OK)
        list_take(k, &fresh, now_us);
    return result;
}

status keys_open(const char *path, keys **opened, error *failure)
{
    keys *k = calloc(1, sizeof *k);
    if (k) {
        k->path = strdup(path);
        k->digests = calloc(KEYS_MAX, sizeof *k->digests);
    }
    status result = k && k->path && k->digests
                        ? keys_read_again(k, 0, failure)
                        : error_set(failure, STATUS_NO_MEMORY, "", "no memory for the keys");
    if (result == STATUS_OK)
        *opened = k;
    else
        keys_close(k);
    return result;
}

void keys_close(keys *k)
{
    if (!k)
        return;
    for (size_t i = 0; i < k->count; i++)
        key_drop(k->items[i]);
    free(k->items);
    free(k->digests);
    free(k->path);
    free(k);
}

size_t keys_count(const keys *k)
{
    return k->count;
}

// ---- finding ----------------------------------------------------------------------------------

// Every key is looked at, and nothing branches on what is compared.
api_key *keys_find(keys *k, slice secret)
{
    uint64_t wanted[4];
    size_t found = 0; // one more than the index
    http_sha256(secret, (uint8_t *)wanted);
    for (size_t i = 0; i < k->count; i++) {
        const uint64_t *have = k->digests[i];
        uint64_t difference = (wanted[0] ^ have[0]) | (wanted[1] ^ have[1]) |
                              (wanted[2] ^ have[2]) | (wanted[3] ^ have[3]);
        uint64_t equal = ((difference | (0 - difference)) >> 63) - 1; // all ones, or 0
        found |= (i + 1) & equal;
    }
    return found ? k->items[found - 1] : NULL;
}

void keys_take(api_key *key)
{
    key->references++;
}

void keys_release(api_key *key)
{
    CHECK(key->references > 0);
    if (--key->references == 0 && key->gone)
        key_free(key);
}

// ---- limits -----------------------------------------------------------------------------------

double keys_bucket_level(const keys_bucket *b, uint64_t now_us)
{
    if (b->filled_us == 0 || now_us <= b->filled_us)
        return b->level;
    double level = b->level + (double)b->limit * (double)(now_us - b->filled_us) / MINUTE_US;
    return level < (double)b->limit ? level : (double)b->limit;
}

double keys_bucket_wait_s(const keys_bucket *b, double wanted, uint64_t now_us)
{
    double missing = wanted - keys_bucket_level(b, now_us);
    return b->limit == 0 || missing <= 0 ? 0 : missing * 60 / (double)b->limit;
}

keys_verdict keys_enter(api_key *key, uint64_t now_us)
{
    if (key->concurrent && key->running >= key->concurrent)
        return KEYS_CONCURRENT;
    if (key->tokens.limit && keys_bucket_level(&key->tokens, now_us) < 1)
        return KEYS_TOKENS;
    if (key->requests.limit) {
        bucket_fill(&key->requests, now_us);
        if (key->requests.level < 1)
            return KEYS_REQUESTS;
        key->requests.level -= 1;
    }
    key->running++;
    return KEYS_ALLOWED;
}

void keys_leave(api_key *key)
{
    CHECK(key->running > 0);
    key->running--;
}

keys_verdict keys_reserve(api_key *key, uint64_t tokens, uint64_t now_us, uint64_t *reserved)
{
    *reserved = 0;
    if (key->tokens.limit == 0)
        return KEYS_ALLOWED;
    if (tokens > (uint64_t)key->tokens.limit)
        return KEYS_TOO_LARGE;
    bucket_fill(&key->tokens, now_us);
    if (key->tokens.level < (double)tokens)
        return KEYS_TOKENS;
    key->tokens.level -= (double)tokens;
    *reserved = tokens;
    return KEYS_ALLOWED;
}

void keys_settle(api_key *key, uint64_t reserved, uint64_t used, uint64_t now_us)
{
    if (key->tokens.limit == 0)
        return;
    bucket_fill(&key->tokens, now_us);
    key->tokens.level += (double)reserved - (double)used;
    if (key->tokens.level > (double)key->tokens.limit)
        key->tokens.level = (double)key->tokens.limit;
}
