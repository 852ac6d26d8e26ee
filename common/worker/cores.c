#include "worker/cores.h"

#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define CLAIMS_MAX 64 // workers on one core
#define PATH_MAX_HERE 512

static bool folder_open(const char *wanted, char path[PATH_MAX_HERE])
{
    const char *runtime = getenv("XDG_RUNTIME_DIR");
    if (wanted[0] != 0)
        snprintf(path, PATH_MAX_HERE, "%s", wanted);
    else if (runtime != NULL && runtime[0] == '/')
        snprintf(path, PATH_MAX_HERE, "%s/penstock", runtime);
    else
        snprintf(path, PATH_MAX_HERE, "/tmp/penstock-%u", (unsigned)getuid());
    if (mkdir(path, 0700) != 0 && errno != EEXIST)
        return false;
    // In a folder that everybody may write, only one of our own is to be trusted.
    struct stat about;
    return lstat(path, &about) == 0 && S_ISDIR(about.st_mode) && about.st_uid == geteuid();
}

static int lock_open(const char *folder, const char *name, int operation)
{
    char path[PATH_MAX_HERE + 64];
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd >= 0 && flock(fd, operation) != 0) {
        close(fd);
        return -1;
    }
    return fd;
}

// Map the busy bytes of a core, one for each claim. NULL where that cannot be.
static uint8_t *busy_map(const char *folder, int core)
{
    char path[PATH_MAX_HERE + 64];
    snprintf(path, sizeof(path), "%s/core-%d.busy", folder, core);
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    void *mapped = MAP_FAILED;
    if (fd >= 0 && ftruncate(fd, CLAIMS_MAX) == 0)
        mapped = mmap(NULL, CLAIMS_MAX, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (fd >= 0)
        close(fd);
    return mapped == MAP_FAILED ? NULL : mapped;
}

// Lock the first free claim of a core; the descriptor stays open for the life of the process, or is
// returned for closing. `claims` gets how many others hold the core.
static int claim_open(const char *folder, int core, int *claims)
{
    for (int i = 0; i < CLAIMS_MAX; i++) {
        char name[64];
        snprintf(name, sizeof(name), "core-%d.%d", core, i);
        int fd = lock_open(folder, name, LOCK_EX | LOCK_NB);
        *claims = i;
        if (fd >= 0)
            return fd;
    }
    return -1;
}

typedef struct candidate {
    int core, claims, fd;
} candidate;

static int by_claims(const void *left, const void *right)
{
    const candidate *a = left, *b = right;
    return a->claims != b->claims ? a->claims - b->claims : a->core - b->core;
}

static void list_format(const cpu_set_t *set, char text[256])
{
    size_t at = 0;
    text[0] = 0;
    for (int core = 0; core < CPU_SETSIZE && at + 8 < 256; core++)
        if (CPU_ISSET(core, set))
            at += (size_t)snprintf(text + at, 256 - at, "%s%d", at > 0 ? "," : "", core);
}

static uint8_t *own_busy[CPU_SETSIZE]; // the bytes of this process's claims
static int own_count;
static bool says_busy;

static void lend(const char *folder, int core, int claim)
{
    uint8_t *bytes = busy_map(folder, core);
    if (bytes == NULL) {
        log_warn("worker", "core %d cannot be lent error %s", core, strerror(errno));
        return;
    }
    own_busy[own_count++] = bytes + claim;
    __atomic_store_n(bytes + claim, 0, __ATOMIC_RELAXED); // a dead one may have left it set
}

void cores_busy(bool busy)
{
    if (own_count == 0)
        return;
    for (int i = 0; busy != says_busy && i < own_count; i++)
        __atomic_store_n(own_busy[i], busy, __ATOMIC_RELAXED);
    says_busy = busy;
}

// Take half of `allowed` into `share`; false where a core cannot be claimed.
static bool half_take(const char *folder, const cpu_set_t *allowed, cpu_set_t *share)
{
    candidate candidates[CPU_SETSIZE];
    int count = 0;
    bool good = true;
    for (int core = 0; core < CPU_SETSIZE; core++) {
        if (!CPU_ISSET(core, allowed))
            continue;
        candidate c = { .core = core };
        c.fd = claim_open(folder, core, &c.claims);
        good = good && c.fd >= 0;
        candidates[count++] = c;
    }
    qsort(candidates, (size_t)count, sizeof(candidates[0]), by_claims);
    int wanted = count / 2 > 1 ? count / 2 : 1;
    CPU_ZERO(share);
    for (int i = 0; i < count; i++) {
        if (i < wanted && good) {
            CPU_SET(candidates[i].core, share);
            lend(folder, candidates[i].core, candidates[i].claims);
        } else if (candidates[i].fd >= 0)
            close(candidates[i].fd);
    }
    return good;
}

static cpu_set_t before_claim; // of the process, once it was narrowed
static bool narrowed;

void cores_restore(void)
{
    if (narrowed)
        sched_setaffinity(0, sizeof(before_claim), &before_claim);
}

void cores_claim(const char *mode, const char *folder, char taken[256])
{
    cpu_set_t allowed, share;
    char path[PATH_MAX_HERE];
    CHECK(sched_getaffinity(0, sizeof(allowed), &allowed) == 0);
    list_format(&allowed, taken);
    if (strcmp(mode, "all") == 0 || CPU_COUNT(&allowed) < 2)
        return;
    int turn = folder_open(folder, path) ? lock_open(path, "turn", LOCK_EX) : -1;
    bool good = turn >= 0 && half_take(path, &allowed, &share);
    if (turn >= 0)
        close(turn);
    if (!good || sched_setaffinity(0, sizeof(share), &share) != 0) {
        log_warn("worker", "cores cannot be shared folder %s error %s; all are used", path,
                 strerror(errno));
        return;
    }
    before_claim = allowed;
    narrowed = true;
    list_format(&share, taken);
}

int cores_borrow(const char *folder, backend_borrowed *borrowed, int room)
{
    _Static_assert(CLAIMS_MAX == BACKEND_BUSY_WORDS * sizeof(uint64_t), "a byte for each claim");
    cpu_set_t own;
    char path[PATH_MAX_HERE];
    int count = 0;
    if (!narrowed || sched_getaffinity(0, sizeof(own), &own) != 0 || !folder_open(folder, path))
        return 0;
    for (int core = 0; core < CPU_SETSIZE && count < room; core++) {
        if (!CPU_ISSET(core, &before_claim) || CPU_ISSET(core, &own))
            continue;
        void *busy = busy_map(path, core);
        if (busy == NULL)
            log_warn("worker", "core %d cannot be borrowed error %s", core, strerror(errno));
        else
            borrowed[count++] = (backend_borrowed){ core, busy };
    }
    return count;
}
