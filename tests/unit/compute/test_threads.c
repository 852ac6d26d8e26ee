#include "compute/cpu/threads.h"

#include <sched.h>
#include <stdatomic.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#define PHASES 64
#define UNITS 5

typedef struct round_trip {
    cpu_threads *threads;
    int run;
    _Atomic int32_t taken[PHASES], finished[PHASES];
    int marks[PHASES][UNITS]; // the run that wrote each unit last
    _Atomic bool wrong;
} round_trip;

// Units of each phase are taken by whoever comes; after the wait all of them are there to see.
static void walk(void *context, int thread, int count)
{
    round_trip *r = context;
    (void)thread, (void)count;
    for (int phase = 0; phase < PHASES; phase++) {
        for (int unit; (unit = atomic_fetch_add(&r->taken[phase], 1)) < UNITS;) {
            r->marks[phase][unit] = r->run;
            if (atomic_fetch_add(&r->finished[phase], 1) + 1 == UNITS)
                cpu_threads_notify(r->threads);
        }
        cpu_threads_wait(r->threads, &r->finished[phase], UNITS);
        for (int unit = 0; unit < UNITS; unit++)
            if (r->marks[phase][unit] != r->run)
                atomic_store(&r->wrong, true);
    }
}

static void walk_once(round_trip *r)
{
    r->run++;
    for (int phase = 0; phase < PHASES; phase++) {
        atomic_store(&r->taken[phase], 0);
        atomic_store(&r->finished[phase], 0);
    }
    cpu_threads_run(r->threads, walk, r);
    for (int phase = 0; phase < PHASES; phase++)
        for (int unit = 0; unit < UNITS; unit++)
            assert_int_equal(r->marks[phase][unit], r->run);
}

static void a_phase_sees_all_that_the_one_before_wrote(void **state)
{
    (void)state;
    for (int count = 1; count <= 5; count += 2) {
        static round_trip r;
        error failure;
        memset(&r, 0, sizeof r);
        assert_int_equal(cpu_threads_open(count, NULL, 0, &r.threads, &failure), STATUS_OK);
        assert_int_equal(cpu_threads_count(r.threads), count);
        for (int run = 0; run < 200; run++)
            walk_once(&r);
        cpu_threads_close(r.threads);
        assert_false(r.wrong);
    }
}

// Longer between two runs than any thread spins.
static void threads_that_fell_asleep_are_woken(void **state)
{
    (void)state;
    static round_trip r;
    error failure;
    memset(&r, 0, sizeof r);
    assert_int_equal(cpu_threads_open(2, NULL, 0, &r.threads, &failure), STATUS_OK);
    for (int run = 0; run < 20; run++) {
        walk_once(&r);
        usleep(2000);
    }
    cpu_threads_close(r.threads);
    assert_false(r.wrong);
}

typedef struct guest_run {
    cpu_threads *threads;
    uint64_t *busy;
    _Atomic int joined; // runs that thread 1 was in
    _Atomic bool wait, left;
} guest_run;

// Thread 0 waits for the other one to come, and then for it to leave because its core is wanted
// back.
static void host_and_guest(void *context, int thread, int count)
{
    guest_run *r = context;
    assert_int_equal(count, 2);
    if (thread == 1) {
        atomic_fetch_add(&r->joined, 1);
        while (cpu_threads_may(r->threads, 1))
            ;
        atomic_store(&r->left, true);
        return;
    }
    assert_true(cpu_threads_may(r->threads, 0));
    while (r->wait && r->joined == 0)
        ;
    __atomic_store_n(&r->busy[3], (uint64_t)1 << 40, __ATOMIC_RELAXED);
}

static void a_borrowed_core_is_given_back_at_once(void **state)
{
    (void)state;
    static uint64_t busy[BACKEND_BUSY_WORDS];
    static guest_run r;
    error failure;
    memset(busy, 0, sizeof busy);
    r = (guest_run){ .busy = busy, .wait = true };
    assert_int_equal(cpu_threads_open(2, NULL, 0, &r.threads, &failure), STATUS_OK);
    cpu_threads_borrow(r.threads, 1, 0, busy);
    cpu_threads_run(r.threads, host_and_guest, &r);
    assert_int_equal(r.joined, 1);
    assert_true(r.left);
    r.wait = false; // its owner still computes: nobody comes, and nobody is waited for
    for (int run = 0; run < 50; run++)
        cpu_threads_run(r.threads, host_and_guest, &r);
    assert_int_equal(r.joined, 1);
    memset(busy, 0, sizeof busy);
    r.wait = true;
    r.joined = 0;
    cpu_threads_run(r.threads, host_and_guest, &r);
    assert_int_equal(r.joined, 1);
    cpu_threads_close(r.threads);
}

// Both threads on one core: the second joins when it can, and nobody waits for it before.
static void a_run_ends_without_threads_that_come_late(void **state)
{
    (void)state;
    static round_trip r;
    int core = sched_getcpu();
    error failure;
    memset(&r, 0, sizeof r);
    assert_int_equal(cpu_threads_open(4, &core, 1, &r.threads, &failure), STATUS_OK);
    cpu_threads_pin_caller(r.threads);
    for (int run = 0; run < 50; run++)
        walk_once(&r);
    cpu_threads_close(r.threads);
    assert_false(r.wrong);
}

// The caller is pinned when it asks for it, and free again afterwards.
static void named_cores_pin_the_caller_until_the_end(void **state)
{
    (void)state;
    cpu_threads *threads;
    cpu_set_t before, during, after;
    error failure;
    int core = sched_getcpu();
    assert_int_equal(sched_getaffinity(0, sizeof before, &before), 0);
    assert_int_equal(cpu_threads_open(2, &core, 1, &threads, &failure), STATUS_OK);
    cpu_threads_pin_caller(threads);
    assert_int_equal(sched_getaffinity(0, sizeof during, &during), 0);
    assert_int_equal(CPU_COUNT(&during), 1);
    assert_true(CPU_ISSET(core, &during));
    static round_trip r;
    r.threads = threads;
    walk_once(&r);
    cpu_threads_close(threads);
    assert_int_equal(sched_getaffinity(0, sizeof after, &after), 0);
    assert_true(CPU_EQUAL(&before, &after));
}

static void core_lists_are_parsed_and_checked(void **state)
{
    (void)state;
    int cores[64], count;
    error failure;
    cpu_set_t set;
    assert_int_equal(sched_getaffinity(0, sizeof set, &set), 0);
    int own = 0;
    while (!CPU_ISSET(own, &set))
        own++;
    char text[32];
    snprintf(text, sizeof text, "%d", own);
    assert_int_equal(cpu_threads_parse_cores(text, cores, 64, &count, &failure), STATUS_OK);
    assert_int_equal(count, 1);
    assert_int_equal(cores[0], own);
    snprintf(text, sizeof text, "%d-%d", own, own);
    assert_int_equal(cpu_threads_parse_cores(text, cores, 64, &count, &failure), STATUS_OK);
    snprintf(text, sizeof text, "%d,%d", own, own);
    assert_int_equal(cpu_threads_parse_cores(text, cores, 64, &count, &failure), STATUS_BAD_CONFIG);
    const char *const bad[] = { "",   "a",    "0-",   "-1",   "1-0", "0,",         ",0",
                                "0x", "0 ,1", "0--1", "1023", "0+1", "0-99999999", "4294967296" };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_int_equal(cpu_threads_parse_cores(bad[i], cores, 64, &count, &failure),
                         STATUS_BAD_CONFIG);
        assert_string_equal(failure.param, "cores");
    }
}

// ---- quotas, in a folder that looks like a root
// ----------------------------------------------------

static char root[64];

static void put(const char *path, const char *text)
{
    char full[512];
    snprintf(full, sizeof full, "%s%s", root, path);
    for (char *slash = strchr(full + strlen(root) + 1, '/'); slash != NULL;
         slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        mkdir(full, 0700);
        *slash = '/';
    }
    FILE *file = fopen(full, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

static int make_root(void **state)
{
    (void)state;
    snprintf(root, sizeof root, "/tmp/penstock-quota-XXXXXX");
    return mkdtemp(root) == NULL;
}

static int remove_root(void **state)
{
    char command[128];
    (void)state;
    snprintf(command, sizeof command, "rm -r %s", root);
    return system(command);
}

static void quotas_of_version_2_are_the_least_of_all_levels(void **state)
{
    (void)state;
    put("/proc/self/cgroup", "0::/pod/worker\n");
    assert_int_equal(cpu_threads_quota(root), 0);
    put("/sys/fs/cgroup/pod/worker/cpu.max", "max 100000\n");
    assert_int_equal(cpu_threads_quota(root), 0);
    put("/sys/fs/cgroup/pod/cpu.max", "350000 100000\n");
    assert_int_equal(cpu_threads_quota(root), 3);
    put("/sys/fs/cgroup/pod/worker/cpu.max", "199999 100000\n");
    assert_int_equal(cpu_threads_quota(root), 1);
    put("/sys/fs/cgroup/pod/worker/cpu.max", "20000 100000\n");
    assert_int_equal(cpu_threads_quota(root), 1);
    put("/sys/fs/cgroup/pod/worker/cpu.max", "nonsense\n");
    assert_int_equal(cpu_threads_quota(root), 3);
}

static void quotas_of_version_1_count_too(void **state)
{
    (void)state;
    put("/proc/self/cgroup", "12:memory:/x\n4:cpu,cpuacct:/docker/abc\n1:name=systemd:/\n");
    put("/sys/fs/cgroup/cpu/docker/abc/cpu.cfs_quota_us", "-1\n");
    put("/sys/fs/cgroup/cpu/docker/abc/cpu.cfs_period_us", "100000\n");
    assert_int_equal(cpu_threads_quota(root), 0);
    put("/sys/fs/cgroup/cpu/docker/abc/cpu.cfs_quota_us", "250000\n");
    assert_int_equal(cpu_threads_quota(root), 2);
}

// Inside a container the name may be the host's: the mount's own root then holds the quota.
static void a_foreign_group_name_leaves_the_root_quota(void **state)
{
    (void)state;
    put("/proc/self/cgroup", "0::/kubepods.slice/gone\n");
    put("/sys/fs/cgroup/cpu.max", "400000 100000\n");
    assert_int_equal(cpu_threads_quota(root), 4);
}

static void at_least_one_thread_is_available(void **state)
{
    (void)state;
    assert_in_range(cpu_threads_available(), 1, CPU_THREADS_MAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_phase_sees_all_that_the_one_before_wrote),
        cmocka_unit_test(a_run_ends_without_threads_that_come_late),
        cmocka_unit_test(threads_that_fell_asleep_are_woken),
        cmocka_unit_test(a_borrowed_core_is_given_back_at_once),
        cmocka_unit_test(named_cores_pin_the_caller_until_the_end),
        cmocka_unit_test(core_lists_are_parsed_and_checked),
        cmocka_unit_test_setup_teardown(quotas_of_version_2_are_the_least_of_all_levels, make_root,
                                        remove_root),
        cmocka_unit_test_setup_teardown(quotas_of_version_1_count_too, make_root, remove_root),
        cmocka_unit_test_setup_teardown(a_foreign_group_name_leaves_the_root_quota, make_root,
                                        remove_root),
        cmocka_unit_test(at_least_one_thread_is_available),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
