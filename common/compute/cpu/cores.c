// How many cores, and which: affinity masks, core lists and cgroup quotas.
#include "compute/cpu/threads.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PATH_SIZE 1024

// The first line of a small file, without its end of line. False where there is none.
static bool read_line(const char *path, char *line, int size)
{
    FILE *file = fopen(path, "re");
    if (file == NULL)
        return false;
    bool got = fgets(line, size, file) != NULL;
    fclose(file);
    if (got)
        line[strcspn(line, "\n")] = '\0';
    return got;
}

// Cores of one cgroup level, 0 for no limit. Version 2: "MAX PERIOD" or "max PERIOD" in cpu.max;
// version 1: two files, and a quota of -1 means no limit.
static int level_quota(const char *folder, bool version_2)
{
    char path[PATH_SIZE + 32], line[64];
    long long quota = 0, period = 0;
    if (version_2) {
        snprintf(path, sizeof path, "%s/cpu.max", folder);
        if (!read_line(path, line, sizeof line) || sscanf(line, "%lld %lld", &quota, &period) != 2)
            return 0;
    } else {
        snprintf(path, sizeof path, "%s/cpu.cfs_quota_us", folder);
        if (!read_line(path, line, sizeof line) || sscanf(line, "%lld", &quota) != 1)
            return 0;
        snprintf(path, sizeof path, "%s/cpu.cfs_period_us", folder);
        if (!read_line(path, line, sizeof line) || sscanf(line, "%lld", &period) != 1)
            return 0;
    }
    if (quota <= 0 || period <= 0)
        return 0;
    long long cores = quota / period;
    return cores < 1 ? 1 : cores > CPU_THREADS_MAX ? CPU_THREADS_MAX : (int)cores;
}

static int lesser(int a, int b)
{
    return a == 0 ? b : b == 0 ? a : a < b ? a : b;
}

// The least quota from `group` (as /proc/self/cgroup names it) up to the mount's root. Inside a
// container the name may belong to the host and not exist here; the root then still counts.
static int group_quota(const char *mount, const char *group, bool version_2)
{
    char folder[PATH_SIZE];
    int n = snprintf(folder, sizeof folder, "%s%s", mount, group);
    if (n < 0 || n >= (int)sizeof folder)
        return level_quota(mount, version_2);
    size_t base = strlen(mount);
    int quota = 0;
    for (;;) {
        quota = lesser(quota, level_quota(folder, version_2));
        char *slash = strrchr(folder, '/');
        if (strlen(folder) <= base || slash == NULL || (size_t)(slash - folder) < base)
            return quota;
        *slash = '\0';
    }
}

static bool lists_cpu(const char *controllers)
{
    for (const char *at = controllers; *at != '\0';) {
        size_t n = strcspn(at, ",");
        if (n == 3 && memcmp(at, "cpu", 3) == 0)
            return true;
        at += n + (at[n] == ',');
    }
    return false;
}

int cpu_threads_quota(const char *root)
{
    char path[PATH_SIZE], line[PATH_SIZE];
    int quota = 0;
    snprintf(path, sizeof path, "%s/proc/self/cgroup", root);
    FILE *file = fopen(path, "re");
    if (file == NULL)
        return 0;
    while (fgets(line, sizeof line, file) != NULL) {
        line[strcspn(line, "\n")] = '\0';
        char *controllers = strchr(line, ':');
        char *group = controllers == NULL ? NULL : strchr(controllers + 1, ':');
        if (group == NULL)
            continue;
        *group++ = '\0';
        controllers++;
        char mount[PATH_SIZE];
        if (*controllers == '\0') {
            snprintf(mount, sizeof mount, "%s/sys/fs/cgroup", root);
            quota = lesser(quota, group_quota(mount, group, true));
        } else if (lists_cpu(controllers)) {
            snprintf(mount, sizeof mount, "%s/sys/fs/cgroup/cpu", root);
            quota = lesser(quota, group_quota(mount, group, false));
        }
    }
    fclose(file);
    return quota;
}

int cpu_threads_available(void)
{
    cpu_set_t set;
    int cores = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
    int count = lesser(cores, cpu_threads_quota(""));
    return count < 1 ? 1 : count > CPU_THREADS_MAX ? CPU_THREADS_MAX : count;
}

static status bad_cores(error *failure, const char *text)
{
    return error_set(failure, STATUS_BAD_CONFIG, "cores",
                     "cores is \"%s\"; it must be a list such as 0-3,8 of core numbers that this "
                     "process may use, each once",
                     text);
}

// One "N" or "N-M"; `at` moves behind it. False where it is not that.
static bool parse_range(const char **at, long *first, long *last)
{
    char *end;
    errno = 0;
    if (**at < '0' || **at > '9')
        return false;
    *first = *last = strtol(*at, &end, 10);
    if (*end == '-') {
        if (end[1] < '0' || end[1] > '9')
            return false;
        *last = strtol(end + 1, &end, 10);
    }
    *at = end;
    return errno == 0 && *first <= *last && *last < CPU_SETSIZE;
}

status cpu_threads_parse_cores(const char *text, int *cores, int capacity, int *count,
                               error *failure)
{
    cpu_set_t allowed;
    if (sched_getaffinity(0, sizeof allowed, &allowed) != 0)
        return error_set(failure, STATUS_IO, "cores", "the affinity mask cannot be read: %s",
                         strerror(errno));
    int n = 0;
    for (const char *at = text;;) {
        long first, last;
        if (!parse_range(&at, &first, &last))
            return bad_cores(failure, text);
        for (long core = first; core <= last; core++) {
            if (n == capacity || !CPU_ISSET((int)core, &allowed))
                return bad_cores(failure, text);
            CPU_CLR((int)core, &allowed);
            cores[n++] = (int)core;
        }
        if (*at == '\0')
            break;
        if (*at++ != ',')
            return bad_cores(failure, text);
    }
    *count = n;
    return STATUS_OK;
}
