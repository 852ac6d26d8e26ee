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

static void on_work(int number)
{
    (void)number;
    cores_busy(true);
}

static void on_rest(int number)
{
    (void)number;
    cores_busy(false);
}

// Claim, say what was taken on standard output, and hold it until killed.
static int claimant_main(const char *mode, const char *where)
{
    char taken[256];
    cores_claim(mode, where, taken);
    signal(SIGUSR1, on_work); // before a word is said: who hears it may send one at once
    signal(SIGUSR2, on_rest);
    cpu_set_t set;
    sched_getaffinity(0, sizeof(set), &set);
    printf("%d %s\n", CPU_COUNT(&set), taken);
    fflush(stdout);
    for (;;)
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

static bool any_busy(const backend_borrowed *b)
{
    uint64_t any = 0;
    for (int i = 0; i < BACKEND_BUSY_WORDS; i++)
        any |= __atomic_load_n(&b->busy[i], __ATOMIC_RELAXED);
    return any != 0;
}

static void wait_until_busy(const backend_borrowed *b, bool busy)
{
    for (int i = 0; i < 60000 && any_busy(b) != busy; i++)
        usleep(1000);
    assert_int_equal(any_busy(b), busy);
}

// This process claims after another one, and sees when that one computes.
static void a_core_is_lent_while_its_owner_rests(void **state)
{
    (void)state;
    if (allowed() != 2)
        skip();
    claimant owner = claim("auto");
    char taken[256];
    backend_borrowed borrowed[8];
    cores_claim("auto", folder, taken);
    assert_int_equal(cores_borrow(folder, borrowed, 8), 1);
    assert_int_equal(borrowed[0].core, atoi(owner.cores));
    assert_string_not_equal(taken, owner.cores);
    wait_until_busy(borrowed, false);
    kill(owner.pid, SIGUSR1);
    wait_until_busy(borrowed, true);
    kill(owner.pid, SIGUSR2);
    wait_until_busy(borrowed, false);
    kill(owner.pid, SIGUSR1);
    wait_until_busy(borrowed, true);
    release(&owner); // it died at work: its core is not borrowed until the claim is taken again
    assert_true(any_busy(borrowed));
    cores_restore(); // a child inherits the affinity
    owner = claim("auto");
    bool busy = any_busy(borrowed), same = borrowed[0].core == atoi(owner.cores);
    release(&owner);
    assert_true(same && !busy);
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
        cmocka_unit_test(a_core_is_lent_while_its_owner_rests),
    };
    return cmocka_run_group_tests(tests, folder_make, folder_remove);
}
