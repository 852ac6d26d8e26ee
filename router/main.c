// penstock-router. Exit status: 0 after a drain that finished every request; 1 for a failure at
// start or while running; 2 for a bad command line or configuration; 3 where requests were cut (the
// drain's deadline, or a second signal).
#include "router/router.h"

#include "base/crash.h"

#include <stdio.h>

int main(int argc, char **argv)
{
    router_settings settings;
    config_action action;
    error failure = { 0 };
    if (config_open(&router_program, argc, argv, &settings, &action, &failure) != STATUS_OK) {
        fprintf(stderr, "penstock-router: %s\n", failure.text);
        return 2;
    }
    if (action == CONFIG_EXIT) {
        config_close(&router_program, &settings);
        return 0;
    }
    crash_report_install();
    router *r = NULL;
    int code = 1;
    status result = settings.batch_threads ? mailbox_threads_batch(&failure) : STATUS_OK;
    if (result == STATUS_OK)
        result = router_open(&settings, &r, &failure);
    if (result == STATUS_OK) {
        r->argc = argc;
        r->argv = argv;
        code = router_run(r);
    } else {
        log_error("router", "cannot start: %s", failure.text);
    }
    if (result == STATUS_BAD_CONFIG)
        code = 2;
    router_close(r);
    config_close(&router_program, &settings);
    return code;
}
