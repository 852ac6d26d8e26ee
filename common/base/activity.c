#include "base/activity.h"

#include "base/clock.h"
#include "base/log.h"

#include <dirent.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

typedef struct place {
    _Atomic long tid; // 0: free
    _Atomic(const char *) thread;
    _Atomic(const char *) operation;
    _Atomic uint64_t since_us;
} place;

static place places[ACTIVITY_THREADS_MAX];
static _Thread_local place *own;

void activity_begin(const char *thread)
{
    long tid = syscall(SYS_gettid);
    for (int i = 0; own == NULL && i < ACTIVITY_THREADS_MAX; i++) {
        long nobody = 0;
        if (atomic_compare_exchange_strong(&places[i].tid, &nobody, tid))
            own = &places[i];
    }
    if (own != NULL)
        atomic_store_explicit(&own->thread, thread, memory_order_relaxed);
    activity_now("beginning");
}

void activity_end(void)
{
    if (own == NULL)
        return;
    atomic_store(&own->tid, 0);
    own = NULL;
}

void activity_now(const char *operation)
{
    if (own == NULL)
        return;
    atomic_store_explicit(&own->operation, operation, memory_order_relaxed);
    atomic_store_explicit(&own->since_us, clock_now_us(), memory_order_relaxed);
}

// ---- the dump ---------------------------------------------------------------------------------

// The first line of a file of this thread, or "?".
static void task_read(long tid, const char *file, char text[256])
{
    char path[64];
    snprintf(path, sizeof path, "/proc/self/task/%ld/%s", tid, file);
    FILE *from = fopen(path, "r");
    if (from == NULL || fgets(text, 256, from) == NULL)
        strcpy(text, "?");
    if (from != NULL)
        fclose(from);
    text[strcspn(text, "\n")] = 0;
}

static void task_log(const char *tag, long tid)
{
    char stat[256], waits[256], comm[256];
    const place *p = NULL;
    for (int i = 0; i < ACTIVITY_THREADS_MAX && p == NULL; i++)
        if (atomic_load(&places[i].tid) == tid)
            p = &places[i];
    task_read(tid, "stat", stat);
    task_read(tid, "wchan", waits);
    task_read(tid, "comm", comm);
    const char *behind = strrchr(stat, ')'); // the state follows the name, which may hold anything
    char state = behind != NULL && behind[1] == ' ' ? behind[2] : '?';
    if (p == NULL) {
        log_warn(tag, "thread %ld name %s state %c waits_in %s", tid, comm, state, waits);
        return;
    }
    uint64_t since_us = atomic_load_explicit(&p->since_us, memory_order_relaxed);
    const char *thread = atomic_load_explicit(&p->thread, memory_order_relaxed);
    const char *operation = atomic_load_explicit(&p->operation, memory_order_relaxed);
    log_warn(tag, "thread %ld name %s state %c waits_in %s does \"%s\" for_ms %llu", tid, thread,
             state, waits, operation != NULL ? operation : "?",
             (unsigned long long)((clock_now_us() - since_us) / 1000));
}

void activity_dump(const char *tag)
{
    DIR *tasks = opendir("/proc/self/task");
    if (tasks == NULL) {
        log_warn(tag, "the threads cannot be listed");
        return;
    }
    for (struct dirent *entry; (entry = readdir(tasks)) != NULL;)
        if (entry->d_name[0] != '.')
            task_log(tag, strtol(entry->d_name, NULL, 10));
    closedir(tasks);
}
