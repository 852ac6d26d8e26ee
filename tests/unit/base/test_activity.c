// What threads say of themselves is found in the dump, together with the nameless ones.
#include "base/activity.h"

#include "base/clock.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

static atomic_int ready, leave;

static void *named(void *context)
{
    activity_begin(context);
    activity_now("waiting for the test");
    atomic_fetch_add(&ready, 1);
    while (!atomic_load(&leave))
        clock_sleep_us(1000);
    activity_end();
    return NULL;
}

static void *nameless(void *context)
{
    (void)context;
    activity_now("nobody hears this");
    atomic_fetch_add(&ready, 1);
    while (!atomic_load(&leave))
        clock_sleep_us(1000);
    activity_end();
    return NULL;
}

// The log of a dump.
static void dump(char text[8192])
{
    int ends[2], kept = dup(STDERR_FILENO);
    assert_int_equal(pipe(ends), 0);
    dup2(ends[1], STDERR_FILENO);
    activity_dump("test");
    dup2(kept, STDERR_FILENO);
    close(kept);
    close(ends[1]);
    ssize_t size = read(ends[0], text, 8191);
    close(ends[0]);
    text[size > 0 ? size : 0] = 0;
}

static void every_thread_is_in_the_dump(void **state)
{
    (void)state;
    static char text[8192];
    pthread_t threads[3];
    activity_begin("main");
    activity_now("testing");
    pthread_create(&threads[0], NULL, named, "first");
    pthread_create(&threads[1], NULL, named, "second");
    pthread_create(&threads[2], NULL, nameless, NULL);
    while (atomic_load(&ready) < 3)
        clock_sleep_us(1000);
    clock_sleep_us(30000);
    dump(text);
    assert_non_null(strstr(text, "name first state "));
    assert_non_null(strstr(text, "name second state "));
    assert_non_null(strstr(text, "does \"waiting for the test\" for_ms "));
    assert_non_null(strstr(text, "name main state "));
    assert_non_null(strstr(text, "does \"testing\""));
    assert_null(strstr(text, "nobody hears"));
    int lines = 0;
    for (const char *at = text; (at = strchr(at, '\n')) != NULL; at++)
        lines++;
    assert_true(lines >= 4); // a sanitizer has a thread of its own
    atomic_store(&leave, 1);
    for (int i = 0; i < 3; i++)
        pthread_join(threads[i], NULL);
    dump(text);
    assert_null(strstr(text, "name first"));
}

static void places_are_used_again(void **state)
{
    (void)state;
    for (int i = 0; i < 3 * ACTIVITY_THREADS_MAX; i++) {
        static char text[8192];
        pthread_t thread;
        atomic_store(&leave, 0);
        atomic_store(&ready, 0);
        pthread_create(&thread, NULL, named, "again");
        while (atomic_load(&ready) < 1)
            clock_sleep_us(100);
        if (i + 1 == 3 * ACTIVITY_THREADS_MAX) {
            dump(text);
            assert_non_null(strstr(text, "name again"));
        }
        atomic_store(&leave, 1);
        pthread_join(thread, NULL);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_thread_is_in_the_dump),
        cmocka_unit_test(places_are_used_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
