// A configuration text: config_load_text either takes it or leaves the settings as they were, and
// what
// --print-config then prints is taken again.
#include "base/config_internal.h"
#include "base/fault.h"
#include "base/log.h"

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef struct settings {
    char *listen;
    int64_t port;
    bool debug;
    double weight;
    uint64_t body;
    int64_t idle_us;
    config_strings keys;
    log_settings log;
    fault_settings fault;
} settings;

// clang-format off
static const config_key keys[] = {
    { "http.listen", CONFIG_STRING, offsetof(settings, listen), "127.0.0.1", 0, 0, "", "Text.", NULL },
    { "http.port", CONFIG_INT, offsetof(settings, port), "8080", 0, 0x1p62, "", "Whole.", NULL },
    { "api.debug", CONFIG_BOOL, offsetof(settings, debug), "false", 0, 0, "", "Bool.", NULL },
    { "http.weight", CONFIG_FLOAT, offsetof(settings, weight), "0.5", 0, 0, "", "Real.", NULL },
    { "http.limits.body", CONFIG_BYTES, offsetof(settings, body), "8MiB", 0, 0, "", "Size.", NULL },
    { "http.limits.idle", CONFIG_DURATION, offsetof(settings, idle_us), "1s", 0, 0, "", "Time.", NULL },
    { "http.keys", CONFIG_STRINGS, offsetof(settings, keys), "", 0, 0, "", "Texts.", NULL },
};
// clang-format on
static const config_section section = { keys, sizeof(keys) / sizeof(keys[0]) };
static const config_part parts[] = {
    { &section, 0 },
    { &log_config_section, offsetof(settings, log) },
    { &fault_config_section, offsetof(settings, fault) },
};
static const config_program program = { "fuzz", "a fuzz target.", parts, 3, sizeof(settings) };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    settings s;
    config_action action;
    error failure = { 0 };
    char *argv[] = { "fuzz", NULL };
    buffer text = { 0 }, before = { 0 }, after = { 0 };
    CHECK(config_open(&program, 1, argv, &s, &action, &failure) == STATUS_OK);
    config_print_settings(&program, &s, &before);
    buffer_append(&text, data, size);
    buffer_append_byte(&text, 0);
    if (config_load_text(&program, &s, "fuzz.cfg", text.data, &failure) == STATUS_OK) {
        (void)fault_arm(&s.fault, &failure);
        fault_disarm_all();
        config_print_settings(&program, &s, &after);
        settings again;
        buffer repeated = { 0 };
        CHECK(config_open(&program, 1, argv, &again, &action, &failure) == STATUS_OK);
        CHECK(config_load_text(&program, &again, "printed", after.data, &failure) == STATUS_OK);
        config_print_settings(&program, &again, &repeated);
        CHECK(slice_equal(buffer_slice(&after), buffer_slice(&repeated)));
        buffer_close(&repeated);
        config_close(&program, &again);
    } else {
        CHECK(failure.code != STATUS_OK && failure.text[0] != 0);
        config_print_settings(&program, &s, &after);
        CHECK(slice_equal(buffer_slice(&before), buffer_slice(&after)));
    }
    config_close(&program, &s);
    buffer_close(&text);
    buffer_close(&before);
    buffer_close(&after);
    return 0;
}
