// SIGHUP: the settings are read again, by the step thread.
#include "worker/station_private.h"

#include <string.h>

const char *const station_live_keys[] = {
    "log.level",
    "log.format",
    "faults",
    "engine.mixed_tokens",
    "engine.mixed_step",
    "engine.batch_share",
    "queue.waiting",
    "queue.waiting_time",
    "queue.interactive_sequences",
    "queue.batch_sequences",
    "queue.overtaking",
    "queue.batch_patience",
    "worker.drain_seconds",
    NULL,
};

static status check(const void *fresh, void *context, error *failure)
{
    (void)context;
    return fault_check(&((const station_config *)fresh)->fault, failure);
}

// A live key holds its new value: what does not read it at the moment of use is told.
static void apply(station *s, const char *key)
{
    error failure;
    if (strncmp(key, "log.", 4) == 0) {
        log_apply(&s->config->log);
    } else if (strncmp(key, "engine.", 7) == 0) {
        engine_set_mix(s->engine, &s->config->engine);
    } else if (strcmp(key, "faults") == 0) {
        fault_disarm_all();
        CHECK(fault_arm(&s->config->fault, &failure) == STATUS_OK);
    }
}

static void changed(const char *key, bool taken, void *context)
{
    station *s = context;
    if (taken)
        apply(s, key);
    if (taken)
        log_info(s->role->name, "reload %s is taken", key);
    else
        log_warn(s->role->name, "reload %s needs a restart", key);
}

void station_reload(station *s)
{
    config_reload reload = { check, changed, s };
    error failure;
    if (config_read_again(s->program, s->argc, s->argv, s->settings, &reload, &failure) ==
        STATUS_OK)
        log_info(s->role->name, "reload done");
    else
        log_error(s->role->name, "reload refused, nothing changed: %s", failure.text);
}
