#include "base/crash.h"

#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static void *write_nowhere(void *unused)
{
    (void)unused;
    pthread_setname_np(pthread_self(), "victim");
    int *volatile nowhere = (int *)16;
    *nowhere = 1;
    return NULL;
}

static void fault_in_a_thread(void)
{
    pthread_t thread;
    if (pthread_create(&thread, NULL, write_nowhere, NULL) == 0)
        pthread_join(thread, NULL);
}

// Not a loop for the optimiser, and endless only in fact.
static __attribute__((noinline)) int deeper(const volatile char *above)
{
    volatile char here[4096];
    here[0] = above ? above[0] : 0;
    return here[0] ? 0 : deeper(here) + here[0];
}

static void overflow_the_stack(void)
{
    deeper(NULL);
}

// What `die` makes a process say, and the signal that ends it (0: none did).
static int last_words(void (*die)(void), char *words, size_t size)
{
    int ends[2], ended = 0;
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        setrlimit(RLIMIT_CORE, &(struct rlimit){ 0, 0 });
        dup2(ends[1], STDERR_FILENO);
        static const int others[] = { SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT };
        for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
            signal(others[i], SIG_DFL); // cmocka's
        crash_report_install();
        die();
        _exit(0);
    }
    close(ends[1]);
    size_t used = 0;
    for (ssize_t got; (got = read(ends[0], words + used, size - 1 - used)) > 0;)
        used += (size_t)got;
    words[used] = '\0';
    close(ends[0]);
    assert_int_equal(waitpid(child, &ended, 0), child);
    return WIFSIGNALED(ended) ? WTERMSIG(ended) : 0;
}

static void a_fault_is_told_with_its_thread_and_frames(void **state)
{
    (void)state;
    char words[16384];
    assert_int_equal(last_words(fault_in_a_thread, words, sizeof(words)), SIGSEGV);
    assert_non_null(strstr(words, "error crash signal 11 (SEGV)"));
    assert_non_null(strstr(words, "address 0x10 thread victim"));
    assert_non_null(strstr(words, "error crash frame 1 "));
    assert_non_null(strstr(words, "base-crash+0x")); // this program's own frames
}

static void an_abort_is_told(void **state)
{
    (void)state;
    char words[16384];
    assert_int_equal(last_words(abort, words, sizeof(words)), SIGABRT);
    assert_non_null(strstr(words, "error crash signal 6 (ABRT)"));
}

static void an_overflow_of_the_main_stack_is_told(void **state)
{
    (void)state;
    char words[16384];
    assert_int_equal(last_words(overflow_the_stack, words, sizeof(words)), SIGSEGV);
    assert_non_null(strstr(words, "error crash signal 11 (SEGV)"));
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
static const bool sanitized = true; // the sanitizer's report is the better one and stays
#else
static const bool sanitized = false;
#endif

int main(void)
{
    if (sanitized) {
        puts("skipped: a sanitizer reports crashes itself");
        return 77;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_fault_is_told_with_its_thread_and_frames),
        cmocka_unit_test(an_abort_is_told),
        cmocka_unit_test(an_overflow_of_the_main_stack_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
