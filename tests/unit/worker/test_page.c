// The table of a worker's metrics is the one that people read.
#include "harness/metrics_page.h"
#include "worker/page.h"

static void the_page_shows_this_table(void **state)
{
    (void)state;
    buffer table = { 0 };
    page_describe(&table);
    metrics_page_check("worker", &table);
    buffer_close(&table);
}

int main(int count, char **arguments)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(the_page_shows_this_table) };
    if (metrics_page_printed(count, arguments, page_describe))
        return 0;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
