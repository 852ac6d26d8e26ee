// The table of the router's metrics is the one that people read.
#include "harness/metrics_page.h"
#include "router/router_metrics.h"

static void the_page_shows_this_table(void **state)
{
    (void)state;
    buffer table = { 0 };
    router_metrics_describe(&table);
    metrics_page_check("router", &table);
    buffer_close(&table);
}

int main(int count, char **arguments)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(the_page_shows_this_table) };
    if (metrics_page_printed(count, arguments, router_metrics_describe))
        return 0;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
