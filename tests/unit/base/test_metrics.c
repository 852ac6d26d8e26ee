#include "base/metrics.h"

#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

enum { REQUESTS, QUEUE, LATENCY, UPTIME };
static const double bounds[] = { 0.1, 1, 10 };
static const metrics_spec specs[] = {
    [REQUESTS] = { .name = "penstock_requests_total",
                   .kind = METRICS_COUNTER,
                   .help = "Requests.",
                   .labels = { "role", "why" } },
    [QUEUE] = { .name = "penstock_queue_tokens",
                .kind = METRICS_GAUGE,
                .help = "A \\ and a\nline.",
                .labels = { "worker" } },
    [LATENCY] = { .name = "penstock_wait_seconds",
                  .kind = METRICS_HISTOGRAM,
                  .help = "Waits.",
                  .buckets = bounds,
                  .bucket_count = 3 },
    [UPTIME] = { .name = "penstock_uptime_seconds", .kind = METRICS_GAUGE, .help = "Age." },
};

static metrics *open_registry(void)
{
    metrics *m;
    assert_int_equal(metrics_open(specs, sizeof(specs) / sizeof(specs[0]), &m), STATUS_OK);
    return m;
}

static const char *const labels_a[] = { "decode", "quote\" back\\ line\n" };
static const char *const labels_b[] = { "prefill", "x" };

static void the_text_is_exact(void **state)
{
    (void)state;
    metrics *m = open_registry();
    buffer out = { 0 };
    metrics_add(metrics_series_of(m, REQUESTS, labels_a), 2);
    metrics_add(metrics_series_of(m, REQUESTS, labels_b), 1);
    metrics_add(metrics_series_of(m, REQUESTS, labels_a), 1);
    metrics_set(metrics_series_of(m, UPTIME, NULL), 1.25);
    const double values[] = { 0.05, 0.1, 5, 11, 1e9 };
    for (size_t i = 0; i < 5; i++)
        metrics_observe(metrics_series_of(m, LATENCY, NULL), values[i]);
    metrics_render(m, &out);
    assert_string_equal(
        out.data, "# HELP penstock_requests_total Requests.\n"
                  "# TYPE penstock_requests_total counter\n"
                  "penstock_requests_total{role=\"decode\",why=\"quote\\\" back\\\\ line\\n\"} 3\n"
                  "penstock_requests_total{role=\"prefill\",why=\"x\"} 1\n"
                  "# HELP penstock_wait_seconds Waits.\n"
                  "# TYPE penstock_wait_seconds histogram\n"
                  "penstock_wait_seconds_bucket{le=\"0.1\"} 2\n"
                  "penstock_wait_seconds_bucket{le=\"1\"} 2\n"
                  "penstock_wait_seconds_bucket{le=\"10\"} 3\n"
                  "penstock_wait_seconds_bucket{le=\"+Inf\"} 5\n"
                  "penstock_wait_seconds_sum 1000000016.15\n"
                  "penstock_wait_seconds_count 5\n"
                  "# HELP penstock_uptime_seconds Age.\n"
                  "# TYPE penstock_uptime_seconds gauge\n"
                  "penstock_uptime_seconds 1.25\n");
    buffer_close(&out);
    metrics_close(m);
}

static void a_dropped_series_is_gone(void **state)
{
    (void)state;
    metrics *m = open_registry();
    buffer out = { 0 };
    const char *const one[] = { "w1" }, *const two[] = { "w2" };
    metrics_set(metrics_series_of(m, QUEUE, one), 5);
    metrics_set(metrics_series_of(m, QUEUE, two), NAN);
    metrics_series_drop(m, QUEUE, one);
    metrics_series_drop(m, QUEUE, one);
    metrics_render(m, &out);
    assert_null(strstr(out.data, "w1"));
    assert_non_null(strstr(out.data, "# HELP penstock_queue_tokens A \\\\ and a\\nline.\n"));
    assert_non_null(strstr(out.data, "{worker=\"w2\"} NaN\n"));
    assert_true(metrics_value(metrics_series_of(m, QUEUE, one)) == 0);
    buffer_close(&out);
    metrics_close(m);
}

static void past_the_limit_series_fold_into_other(void **state)
{
    (void)state;
    metrics *m = open_registry();
    buffer out = { 0 };
    for (int i = 0; i < METRICS_SERIES_MAX + 10; i++) {
        char name[16];
        snprintf(name, sizeof(name), "w%d", i);
        const char *const label[] = { name };
        metrics_add(metrics_series_of(m, QUEUE, label), 1);
    }
    metrics_render(m, &out);
    assert_non_null(strstr(out.data, "{worker=\"other\"} 10\n"));
    assert_null(strstr(out.data, "w512"));
    buffer_close(&out);
    metrics_close(m);
}

static void *add_many(void *series)
{
    for (int i = 0; i < 20000; i++)
        metrics_add(series, 1);
    return NULL;
}

static void adding_from_threads_loses_nothing(void **state)
{
    (void)state;
    metrics *m = open_registry();
    metrics_series *s = metrics_series_of(m, REQUESTS, labels_b);
    pthread_t threads[3];
    for (int i = 0; i < 3; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, add_many, s), 0);
    for (int i = 0; i < 3; i++)
        pthread_join(threads[i], NULL);
    assert_true(metrics_value(s) == 60000);
    metrics_close(m);
}

static void promtool_finds_nothing_to_say(void **state)
{
    (void)state;
    if (system("command -v promtool >/dev/null 2>&1") != 0)
        skip();
    metrics *m = open_registry();
    buffer out = { 0 };
    metrics_add(metrics_series_of(m, REQUESTS, labels_a), 0.5);
    metrics_add(metrics_series_of(m, QUEUE, labels_b), -3);
    metrics_observe(metrics_series_of(m, LATENCY, NULL), NAN);
    metrics_render(m, &out);
    FILE *pipe = popen("promtool check metrics", "w");
    assert_non_null(pipe);
    fwrite(out.data, 1, out.size, pipe);
    assert_int_equal(pclose(pipe), 0);
    buffer_close(&out);
    metrics_close(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_text_is_exact),
        cmocka_unit_test(a_dropped_series_is_gone),
        cmocka_unit_test(past_the_limit_series_fold_into_other),
        cmocka_unit_test(adding_from_threads_loses_nothing),
        cmocka_unit_test(promtool_finds_nothing_to_say),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
