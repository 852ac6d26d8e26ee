// A file of API keys: read, and read again over another one.
//
// Whatever stands in it, reading ends with keys that are found by nothing but their digests, or
// with a sentence.
#include "router/keys.h"

#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

static char path[32];
static int file = -1;

static void text_write(const void *text, size_t size)
{
    CHECK(ftruncate(file, 0) == 0 && pwrite(file, text, size, 0) == (ssize_t)size);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    static const char before[] =
        "a sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad admin "
        "models=m\n";
    error failure = { 0 };
    keys *k = NULL;
    if (file < 0) {
        file = memfd_create("keys", MFD_CLOEXEC);
        CHECK(file >= 0);
        snprintf(path, sizeof path, "/proc/self/fd/%d", file);
    }
    text_write(before, sizeof before - 1);
    CHECK(keys_open(path, &k, &failure) == STATUS_OK);
    api_key *held = keys_find(k, SLICE("abc"));
    CHECK(held);
    keys_take(held);
    text_write(bytes, size);
    if (keys_read_again(k, 2, &failure) == STATUS_OK) {
        CHECK(keys_count(k) > 0 && keys_count(k) <= KEYS_MAX);
    } else {
        CHECK(failure.text[0] && failure.code != STATUS_OK);
        CHECK(keys_find(k, SLICE("abc")) == held);
    }
    keys_enter(held, 1);
    uint64_t reserved;
    keys_reserve(held, 5, 2, &reserved);
    keys_settle(held, reserved, 7, 3);
    keys_close(k);
    keys_release(held);
    return 0;
}
