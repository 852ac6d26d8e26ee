// The name that a worker joins with is one that a router takes: UTF-8 of 63 bytes at most.
#include "worker/worker_private.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

#include <cmocka.h>

static const char *host;

// In place of the C library's.
int gethostname(char *name, size_t size)
{
    strncpy(name, host, size);
    return 0;
}

static status open_named(const char *name, char chosen[64], error *failure)
{
    worker_settings settings = { .name = (char *)name };
    worker_identity identity = { .role = PENSTOCK__ROLE__ROLE_PREFILL };
    worker *w;
    status result = worker_open(&settings, &identity, &w, failure);
    if (result != STATUS_OK)
        return result;
    snprintf(chosen, 64, "%s", w->name);
    worker_close(w);
    return result;
}

static void a_name_that_no_router_takes_is_refused(void **state)
{
    (void)state;
    char chosen[64];
    error failure = { 0 };
    const char *wrong[] = {
        "a123456789b123456789c123456789d123456789e123456789f123456789g123", // 64 bytes
        "Caf\xe9",
        "two\nlines",
    };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        assert_int_equal(open_named(wrong[i], chosen, &failure), STATUS_BAD_CONFIG);
        assert_string_equal(failure.param, "worker.name");
    }
    assert_non_null(strstr(failure.text, "worker.name is \"two?lines\" (9 bytes); it must be"));
    assert_int_equal(open_named(wrong[0] + 1, chosen, &failure), STATUS_OK);
    assert_string_equal(chosen, wrong[0] + 1);
    assert_int_equal(open_named("Caf\u00e9", chosen, &failure), STATUS_OK);
    assert_string_equal(chosen, "Caf\u00e9");
}

static void a_name_of_its_own_fits_whatever_the_host_is_called(void **state)
{
    (void)state;
    char chosen[64], wanted[64];
    error failure = { 0 };
    host = "penstock-prefill-0";
    assert_int_equal(open_named("", chosen, &failure), STATUS_OK);
    snprintf(wanted, sizeof wanted, "penstock-prefill-0-prefill-%d", (int)getpid());
    assert_string_equal(chosen, wanted);
    host = "a123456789b123456789c123456789d123456789e123456789f123456789g123";
    assert_int_equal(open_named("", chosen, &failure), STATUS_OK);
    snprintf(wanted, sizeof wanted, "%.40s-prefill-%d", host, (int)getpid());
    assert_string_equal(chosen, wanted);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_name_that_no_router_takes_is_refused),
        cmocka_unit_test(a_name_of_its_own_fits_whatever_the_host_is_called),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
