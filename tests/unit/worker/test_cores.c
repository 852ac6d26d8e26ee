// Facts about sharing the cores of a machine. Claims belong to processes, so each claimant is this
// program again.
#include "worker/cores.h"

#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

extern char **environ;

static char folder[64];

// Claim, say what was taken on standard output, and hold it until killed.
static int claimant_main(const char *mode, const char *where)
{
    char taken[256];
    cores_claim(mode, where, taken);
    cpu_set_t set;
    sched_getaffinity(0, sizeof(set), &set);
    printf("%d %s\n", CPU_COUNT(&set), taken);
    fflush(stdout);
    pause();
    return 0;
}

typedef struct claimant {
    pid_t pid;
    int count;
    char cores[256];
} claimant;

static claimant claim(const char *mode)
{
    claimant c = { 0 };
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[1], 1);
    char *arguments[] = { "cores", (char *)mode, folder, NULL };
    assert_int_equal(posix_spawn(&c.pid, "/proc/self/exe", &actions, NULL, arguments, environ), 0);
    posix_spawn_file_actions_destroy(&actions);
    close(ends[1]);
    FILE *said = fdopen(ends[0], "r");
    assert_int_equal(fscanf(said, "%d %255s", &c.count, c.cores), 2);
    fclose(said);
    return c;
}

static void release(claimant *c)
{
    kill(c->pid, SIGKILL);
    waitpid(c->pid, NULL, 0);
}

static int allowed(void)
{
    cpu_set_t set;
    sched_getaffinity(0, sizeof(set), &set);
    return CPU_COUNT(&set);
}

static void two_workers_get_disjoint_halves_and_a_dead_one_lets_go(void **state)
{
    (void)state;
    if (allowed() < 2)
        skip();
    claimant first = claim("auto"), second = claim("auto");
    assert_int_equal(first.count, allowed() / 2);
    assert_int_equal(second.count, allowed() / 2);
    assert_string_not_equal(first.cores, second.cores);
    release(&first);
    claimant third = claim("auto"); // takes the place of the dead one
    assert_string_equal(third.cores, first.cores);
    claimant fourth = claim("auto"), fifth = claim("auto"); // doubled up, evenly
    assert_string_not_equal(fourth.cores, fifth.cores);
    release(&second);
    release(&third);
    release(&fourth);
    release(&fifth);
}

static void all_takes_everything_and_claims_nothing(void **state)
{
    (void)state;
    claimant whole = claim("all");
    assert_int_equal(whole.count, allowed());
    if (allowed() >= 2) {
        claimant half = claim("auto");
        assert_int_equal(half.count, allowed() / 2);
        assert_true(strncmp(half.cores, whole.cores, strcspn(half.cores, ",")) == 0);
        release(&half);
    }
    release(&whole);
}

static void a_folder_that_cannot_be_used_leaves_all_cores(void **state)
{
    (void)state;
    char kept[64];
    snprintf(kept, sizeof(kept), "%s", folder);
    snprintf(folder, sizeof(folder), "/proc/no/such/folder");
    claimant c = claim("auto");
    assert_int_equal(c.count, allowed());
    release(&c);
    snprintf(folder, sizeof(folder), "%s", kept);
}

static int folder_make(void **state)
{
    (void)state;
    snprintf(folder, sizeof(folder), "/tmp/penstock-cores-XXXXXX");
    return mkdtemp(folder) == NULL;
}

static int folder_remove(void **state)
{
    (void)state;
    char command[128];
    snprintf(command, sizeof(command), "rm -r %s", folder);
    return system(command);
}

int main(int argc, char **argv)
{
    if (argc == 3)
        return claimant_main(argv[1], argv[2]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_workers_get_disjoint_halves_and_a_dead_one_lets_go),
        cmocka_unit_test(all_takes_everything_and_claims_nothing),
        cmocka_unit_test(a_folder_that_cannot_be_used_leaves_all_cores),
    };
    return cmocka_run_group_tests(tests, folder_make, folder_remove);
}
