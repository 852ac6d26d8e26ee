// The file of API keys, and the limits of a key.
#include "router/keys.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static char path[] = "/tmp/penstock-keys-XXXXXX";
static keys *opened;

static int file_make(void **state)
{
    (void)state;
    int descriptor = mkstemp(path);
    close(descriptor);
    return descriptor < 0;
}

static int file_remove(void **state)
{
    (void)state;
    return unlink(path);
}

static void write_text(const char *text)
{
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

// "sha256:..." of a secret.
static const char *hash_of(const char *secret)
{
    static char text[4][80];
    static int turn;
    uint8_t digest[HTTP_DIGEST_SIZE];
    char *out = text[turn++ % 4];
    http_sha256(slice_of(secret), digest);
    int at = sprintf(out, "sha256:");
    for (size_t i = 0; i < sizeof digest; i++)
        at += sprintf(out + at, "%02x", digest[i]);
    return out;
}

static status lines_open(const char *format, const char *first, const char *second, error *failure)
{
    char text[2048];
    snprintf(text, sizeof text, format, first, second);
    write_text(text);
    opened = NULL;
    return keys_open(path, &opened, failure);
}

static void a_line_is_a_key_with_limits(void **state)
{
    (void)state;
    error failure;
    assert_int_equal(
        lines_open("# keys\n\nplain %s\n"
                   "  full\t%s requests_per_minute=60 tokens_per_minute=600 concurrent=2 "
                   "class=batch models=a,b/c tenant=t admin\r\n",
                   hash_of("one"), hash_of("two"), &failure),
        STATUS_OK);
    assert_int_equal(keys_count(opened), 2);
    const api_key *plain = keys_find(opened, SLICE("one")), *full = keys_find(opened, SLICE("two"));
    assert_null(keys_find(opened, SLICE("three")));
    assert_null(keys_find(opened, SLICE("")));
    assert_string_equal(plain->name, "plain");
    assert_true(plain->classes[ADMISSION_INTERACTIVE] && plain->classes[ADMISSION_BATCH]);
    assert_true(!plain->admin && plain->requests.limit == 0 && plain->model_count == 0);
    assert_string_equal(full->name, "full");
    assert_true(!full->classes[ADMISSION_INTERACTIVE] && full->classes[ADMISSION_BATCH]);
    assert_true(full->admin && full->requests.limit == 60 && full->tokens.limit == 600);
    assert_int_equal(full->concurrent, 2);
    assert_int_equal(full->model_count, 2);
    assert_string_equal(full->models[1], "b/c");
    keys_close(opened);
}

static void what_is_wrong_is_named_with_its_line(void **state)
{
    (void)state;
    static const struct {
        const char *text, *sentence; // %s: a right hash
    } cases[] = {
        { "", "holds no key" },
        { "# none\n", "holds no key" },
        { "\nn@me %s\n", ":2: a key's name is 1 to 64 of" },
        { "a\n", ":1: key a: behind the name stands sha256:" },
        { "a %sff\n", ":1: key a: behind the name stands sha256:" },
        { "a sha256:00\n", "64 hex digits" },
        { "a %s requests_per_minute=0\n",
          "\"requests_per_minute=0\"; it must be a whole number above 0" },
        { "a %s tokens_per_minute=9x\n", "it must be a whole number" },
        { "a %s concurrent=99999999999999999999\n", "it must be a whole number" },
        { "a %s class=slow\n", "right is interactive, batch" },
        { "a %s class=\n", "right is interactive, batch" },
        { "a %s models=,\n", "one to 64 models" },
        { "a %s tenant=\n", "1 to 64 of letters" },
        { "a %s admin=yes\n", "\"admin=yes\"; right is requests_per_minute=" },
        { "a %s\na sha256:0000000000000000000000000000000000000000000000000000000000000000\n",
          ":2: the key a stands twice" },
        { "a %s\nb %s\n", ":2: b has the hash of another key" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        error failure = { 0 };
        char text[1024], *at = text;
        for (const char *from = cases[i].text; *from; from++) {
            if (from[0] == '%' && from[1] == 's') {
                at += sprintf(at, "%s", hash_of("one"));
                from++;
            } else {
                *at++ = *from;
            }
        }
        *at = 0;
        write_text(text);
        opened = NULL;
        assert_int_equal(keys_open(path, &opened, &failure), STATUS_BAD_CONFIG);
        assert_null(opened);
        if (!strstr(failure.text, cases[i].sentence) || !strstr(failure.text, path))
            fail_msg("\"%s\" is not in \"%s\"", cases[i].sentence, failure.text);
    }
    error failure;
    assert_int_equal(keys_open("/nowhere/keys", &opened, &failure), STATUS_BAD_CONFIG);
    assert_non_null(strstr(failure.text, "/nowhere/keys cannot be read: No such file"));
}

static void requests_fill_again_in_a_minute(void **state)
{
    (void)state;
    error failure;
    assert_int_equal(
        lines_open("a %s requests_per_minute=3 concurrent=2\n", hash_of("one"), "", &failure),
        STATUS_OK);
    api_key *key = keys_find(opened, SLICE("one"));
    const uint64_t s = 1000000;
    assert_int_equal(keys_enter(key, 10 * s), KEYS_ALLOWED);
    assert_int_equal(keys_enter(key, 10 * s), KEYS_ALLOWED);
    assert_int_equal(keys_enter(key, 10 * s), KEYS_CONCURRENT);
    keys_leave(key);
    assert_int_equal(keys_enter(key, 10 * s), KEYS_ALLOWED);
    keys_leave(key);
    keys_leave(key);
    assert_int_equal(keys_enter(key, 10 * s), KEYS_REQUESTS);
    assert_true(keys_bucket_wait_s(&key->requests, 1, 10 * s) == 20);
    assert_int_equal(keys_enter(key, 29 * s), KEYS_REQUESTS);
    assert_int_equal(keys_enter(key, 31 * s), KEYS_ALLOWED);
    keys_leave(key);
    assert_true(keys_bucket_level(&key->requests, 10000 * s) == 3); // and no more
    keys_close(opened);
}

static void tokens_are_reserved_settled_and_owed(void **state)
{
    (void)state;
    error failure;
    assert_int_equal(lines_open("a %s tokens_per_minute=600\n", hash_of("one"), "", &failure),
                     STATUS_OK);
    api_key *key = keys_find(opened, SLICE("one"));
    const uint64_t s = 1000000;
    uint64_t reserved;
    assert_int_equal(keys_reserve(key, 601, s, &reserved), KEYS_TOO_LARGE);
    assert_int_equal(keys_reserve(key, 400, s, &reserved), KEYS_ALLOWED);
    assert_int_equal(keys_reserve(key, 400, s, &reserved), KEYS_TOKENS);
    assert_true(keys_bucket_wait_s(&key->tokens, 400, s) == 20);
    keys_settle(key, 400, 0, s); // it never ran
    assert_int_equal(keys_reserve(key, 100, s, &reserved), KEYS_ALLOWED);
    keys_settle(key, 100, 1200, s); // a long answer
    assert_int_equal(keys_enter(key, s), KEYS_TOKENS);
    assert_int_equal(keys_enter(key, 60 * s), KEYS_TOKENS);
    assert_int_equal(keys_enter(key, 62 * s), KEYS_ALLOWED); // the debt of 600 is paid
    keys_leave(key);
    keys_close(opened);
}

static void a_tenant_is_a_name_on_every_router(void **state)
{
    (void)state;
    error failure;
    assert_int_equal(lines_open("a %s\nb %s tenant=a\n", hash_of("one"), hash_of("two"), &failure),
                     STATUS_OK);
    uint8_t salt[16];
    memcpy(salt, keys_find(opened, SLICE("one"))->salt, 16);
    assert_memory_equal(salt, keys_find(opened, SLICE("two"))->salt, 16);
    keys_close(opened);
    assert_int_equal(lines_open("a %s\nc %s\n", hash_of("other"), hash_of("two"), &failure),
                     STATUS_OK);
    assert_memory_equal(salt, keys_find(opened, SLICE("other"))->salt, 16);
    assert_memory_not_equal(salt, keys_find(opened, SLICE("two"))->salt, 16);
    keys_close(opened);
}

static void reading_again_keeps_counts_and_what_is_held(void **state)
{
    (void)state;
    error failure;
    char text[1024];
    assert_int_equal(
        lines_open("a %s requests_per_minute=3\nb %s\n", hash_of("one"), hash_of("two"), &failure),
        STATUS_OK);
    api_key *a = keys_find(opened, SLICE("one")), *b = keys_find(opened, SLICE("two"));
    keys_take(a);
    keys_take(b);
    for (int i = 0; i < 3; i++)
        assert_int_equal(keys_enter(a, 1), KEYS_ALLOWED);
    write_text("nonsense\n");
    assert_int_equal(keys_read_again(opened, 2, &failure), STATUS_BAD_CONFIG);
    assert_ptr_equal(keys_find(opened, SLICE("two")), b);
    // b is gone; a has another secret and a higher limit.
    snprintf(text, sizeof text, "c %s\na %s requests_per_minute=600 models=m\n", hash_of("three"),
             hash_of("four"));
    write_text(text);
    assert_int_equal(keys_read_again(opened, 2, &failure), STATUS_OK);
    assert_null(keys_find(opened, SLICE("one")));
    assert_null(keys_find(opened, SLICE("two")));
    assert_non_null(keys_find(opened, SLICE("three")));
    assert_ptr_equal(keys_find(opened, SLICE("four")), a);
    assert_int_equal(a->running, 3);
    assert_int_equal(a->model_count, 1);
    assert_int_equal(keys_enter(a, 2), KEYS_REQUESTS);
    assert_true(b->gone);
    assert_string_equal(b->name, "b");
    keys_release(b);
    keys_close(opened);
    assert_true(a->gone); // and still held
    keys_release(a);
}

static void reread(const char *format, const char *first, uint64_t now_us)
{
    char text[1024];
    error failure = { 0 };
    snprintf(text, sizeof text, format, first);
    write_text(text);
    if (keys_read_again(opened, now_us, &failure) != STATUS_OK)
        fail_msg("%s", failure.text);
}

// What was used of a limit stays used under another one; time counts by the limit that held then.
static void limits_that_change_keep_what_was_used(void **state)
{
    (void)state;
    error failure;
    const uint64_t s = 1000000;
    uint64_t reserved;
    assert_int_equal(lines_open("a %s tokens_per_minute=600\n", hash_of("one"), "", &failure),
                     STATUS_OK);
    api_key *key = keys_find(opened, SLICE("one"));
    assert_int_equal(keys_reserve(key, 600, 10 * s, &reserved), KEYS_ALLOWED);
    assert_int_equal(reserved, 600);
    reread("a %s tokens_per_minute=6000\n", hash_of("one"), 40 * s);
    assert_ptr_equal(keys_find(opened, SLICE("one")), key);
    assert_true(keys_bucket_level(&key->tokens, 40 * s) == 300); // half a minute of 600
    assert_true(keys_bucket_level(&key->tokens, 41 * s) == 400); // a second of 6000
    reread("a %s tokens_per_minute=100\n", hash_of("one"), 41 * s);
    assert_true(keys_bucket_level(&key->tokens, 41 * s) == 100);
    // A debt goes along, and so does one that is settled after the change.
    keys_settle(key, reserved, 1000, 41 * s);
    assert_true(keys_bucket_level(&key->tokens, 41 * s) == -300);
    reread("a %s tokens_per_minute=60\n", hash_of("one"), 41 * s);
    assert_true(keys_bucket_level(&key->tokens, 41 * s) == -300);
    // Begun without a limit, ended under one: nothing was taken, so nothing is given back.
    reread("a %s\n", hash_of("one"), 50 * s);
    assert_int_equal(keys_reserve(key, 500, 50 * s, &reserved), KEYS_ALLOWED);
    assert_int_equal(reserved, 0);
    reread("a %s tokens_per_minute=60\n", hash_of("one"), 50 * s);
    keys_settle(key, reserved, 510, 50 * s);
    assert_true(keys_bucket_level(&key->tokens, 50 * s) == 60 - 510);
    // The other way round it costs nothing.
    reread("a %s\n", hash_of("one"), 60 * s);
    keys_settle(key, 10, 1000, 60 * s);
    assert_int_equal(keys_enter(key, 60 * s), KEYS_ALLOWED);
    keys_close(opened);
}

// Removed and named again while an old request runs: the new key knows nothing of it, and the old
// one ends with its request. (The sanitizers see whether everything is freed.)
static void a_key_that_comes_back_is_another_one(void **state)
{
    (void)state;
    error failure;
    assert_int_equal(lines_open("a %s concurrent=1\n", hash_of("one"), "", &failure), STATUS_OK);
    api_key *old = keys_find(opened, SLICE("one"));
    keys_take(old);
    assert_int_equal(keys_enter(old, 1), KEYS_ALLOWED);
    reread("b %s\n", hash_of("two"), 2);
    assert_true(old->gone);
    reread("a %s concurrent=1\n", hash_of("one"), 3);
    api_key *fresh = keys_find(opened, SLICE("one"));
    assert_ptr_not_equal(fresh, old);
    assert_int_equal(fresh->running, 0);
    assert_int_equal(keys_enter(fresh, 4), KEYS_ALLOWED);
    keys_settle(old, 0, 9, 4);
    keys_leave(old);
    keys_release(old);
    assert_int_equal(fresh->running, 1);
    // Every key of many comes and goes.
    char text[16384], *at = text;
    for (int i = 0; i < 100; i++)
        at += sprintf(at, "k%d sha256:%064d models=a,b tenant=t\n", i, i);
    write_text(text);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(keys_read_again(opened, 5, &failure), STATUS_OK);
        assert_int_equal(keys_count(opened), 100);
    }
    keys_close(opened);
}

#define MANY 10000

static void write_many(int first, int count, const char *last)
{
    FILE *file = fopen(path, "w");
    char secret[32];
    assert_non_null(file);
    for (int i = first; i < first + count; i++) {
        snprintf(secret, sizeof secret, "secret-%d", i);
        fprintf(file, "k%d %s concurrent=%d\n", i, hash_of(secret), i % 7 + 1);
    }
    fputs(last, file);
    fclose(file);
}

static void thousands_of_keys_are_told_apart(void **state)
{
    (void)state;
    error failure = { 0 };
    char last[160], secret[32];
    write_many(0, MANY, "");
    assert_int_equal(keys_open(path, &opened, &failure), STATUS_OK);
    assert_int_equal(keys_count(opened), MANY);
    api_key *kept = keys_find(opened, SLICE("secret-9999"));
    assert_non_null(kept);
    assert_int_equal(keys_enter(kept, 1), KEYS_ALLOWED);
    // Half of them go, as many come; who stays is the same.
    write_many(MANY / 2, MANY, "");
    assert_int_equal(keys_read_again(opened, 2, &failure), STATUS_OK);
    assert_int_equal(keys_count(opened), MANY);
    assert_null(keys_find(opened, SLICE("secret-4999")));
    for (int i = MANY / 2; i < MANY / 2 + MANY; i += 97) {
        snprintf(secret, sizeof secret, "secret-%d", i);
        const api_key *key = keys_find(opened, slice_of(secret));
        assert_non_null(key);
        assert_int_equal(atoi(key->name + 1), i);
        assert_int_equal(key->concurrent, i % 7 + 1);
    }
    assert_ptr_equal(keys_find(opened, SLICE("secret-9999")), kept);
    assert_int_equal(kept->running, 1);
    // One too many is named, wherever its like stands, and changes nothing.
    snprintf(last, sizeof last, "k7000 %s\n", hash_of("another"));
    write_many(MANY / 2, MANY, last);
    assert_int_equal(keys_read_again(opened, 3, &failure), STATUS_BAD_CONFIG);
    assert_non_null(strstr(failure.text, ":10001"));
    assert_non_null(strstr(failure.text, "the key k7000 stands twice"));
    snprintf(last, sizeof last, "other %s\n", hash_of("secret-8000"));
    write_many(MANY / 2, MANY, last);
    assert_int_equal(keys_read_again(opened, 3, &failure), STATUS_BAD_CONFIG);
    assert_non_null(strstr(failure.text, "other has the hash of another key"));
    write_many(0, KEYS_MAX + 1, "");
    assert_int_equal(keys_read_again(opened, 3, &failure), STATUS_BAD_CONFIG);
    assert_non_null(strstr(failure.text, "there are more than 16384 keys"));
    assert_int_equal(keys_count(opened), MANY);
    write_many(0, KEYS_MAX, "");
    assert_int_equal(keys_read_again(opened, 4, &failure), STATUS_OK);
    assert_int_equal(keys_count(opened), KEYS_MAX);
    keys_leave(kept);
    keys_close(opened);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_line_is_a_key_with_limits),
        cmocka_unit_test(what_is_wrong_is_named_with_its_line),
        cmocka_unit_test(requests_fill_again_in_a_minute),
        cmocka_unit_test(tokens_are_reserved_settled_and_owed),
        cmocka_unit_test(a_tenant_is_a_name_on_every_router),
        cmocka_unit_test(reading_again_keeps_counts_and_what_is_held),
        cmocka_unit_test(limits_that_change_keep_what_was_used),
        cmocka_unit_test(a_key_that_comes_back_is_another_one),
        cmocka_unit_test(thousands_of_keys_are_told_apart),
    };
    return cmocka_run_group_tests(tests, file_make, file_remove);
}
