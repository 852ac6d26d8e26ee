#include "base/config.h"

#include "base/buffer.h"
#include "base/fault.h"
#include "base/log.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

typedef struct http_settings {
    char *listen;
    int64_t port;
    bool debug;
    double weight;
    uint64_t body;
    int64_t idle_us;
    config_strings keys;
} http_settings;

static const config_key http_keys[] = {
    { "http.listen", CONFIG_STRING, offsetof(http_settings, listen), "127.0.0.1", 0, 0, "",
      "Address that the API listens on.", NULL },
    { "http.port", CONFIG_INT, offsetof(http_settings, port), "8080", 0, 5000000000, "", "Port.",
      NULL },
    { "api.debug", CONFIG_BOOL, offsetof(http_settings, debug), "false", 0, 0, "",
      "Allow extensions.", NULL },
    { "http.weight", CONFIG_FLOAT, offsetof(http_settings, weight), "0.5", 0, 1, "", "A share.",
      NULL },
    { "http.limits.body", CONFIG_BYTES, offsetof(http_settings, body), "8MiB", 1, 0x1p40, "",
      "Largest body.", NULL },
    { "http.limits.idle", CONFIG_DURATION, offsetof(http_settings, idle_us), "30s", 1000, 3600e6,
      "", "Longest silence.", NULL },
    { "http.keys", CONFIG_STRINGS, offsetof(http_settings, keys), "", 0, 0, "", "API keys.", NULL },
};
static const config_section http_section = { http_keys, sizeof(http_keys) / sizeof(http_keys[0]) };

typedef struct backend_row {
    char *name;
    int64_t weight;
    config_strings hosts;
} backend_row;

static const config_key backend_keys[] = {
    { "name", CONFIG_STRING, offsetof(backend_row, name), "", 0, 0, "", "Its name.", NULL },
    { "weight", CONFIG_INT, offsetof(backend_row, weight), "1", 0, 10, "", "A share.", NULL },
    { "hosts", CONFIG_STRINGS, offsetof(backend_row, hosts), "", 0, 0, "", "Addresses.", NULL },
};
static const config_section backend_section = { backend_keys, 3 };
static const config_part backend_part = { &backend_section, 0 };
static const char *const backend_live_keys[] = { "weight", NULL };
static const config_program backend_program = { .parts = &backend_part,
                                                .part_count = 1,
                                                .settings_size = sizeof(backend_row),
                                                .live = backend_live_keys };

typedef struct settings {
    config_rows backends;
    http_settings http;
    log_settings log;
    fault_settings fault;
} settings;

static const config_part parts[] = {
    { &http_section, offsetof(settings, http) },
    { &log_config_section, offsetof(settings, log) },
    { &fault_config_section, offsetof(settings, fault) },
};
static const char *const live_keys[] = { "http.weight", "http.keys", "log.level", NULL };
static const config_list lists[] = {
    { "backends", offsetof(settings, backends), &backend_program, 2, "Where it goes." },
};
static const config_program program = {
    "penstock-test", "a program of the tests.", parts, 3, sizeof(settings), live_keys, lists, 1
};

static void open_defaults(settings *s)
{
    char *argv[] = { "penstock-test", NULL };
    config_action action;
    error failure;
    assert_int_equal(config_open(&program, 1, argv, s, &action, &failure), STATUS_OK);
    assert_int_equal(action, CONFIG_RUN);
}

static void defaults_come_from_the_table(void **state)
{
    (void)state;
    settings s;
    open_defaults(&s);
    assert_string_equal(s.http.listen, "127.0.0.1");
    assert_int_equal(s.http.port, 8080);
    assert_false(s.http.debug);
    assert_true(s.http.weight == 0.5);
    assert_int_equal(s.http.body, 8 << 20);
    assert_int_equal(s.http.idle_us, 30000000);
    assert_int_equal(s.http.keys.count, 0);
    assert_string_equal(s.log.level, "info");
    config_close(&program, &s);
}

static void a_text_sets_every_type(void **state)
{
    (void)state;
    settings s;
    error failure;
    open_defaults(&s);
    const char *text = "# a comment with 99999999999\n"
                       "http: { listen = \"0.0.0.0\"; port = 5000000000L; weight = 1;\n"
                       "  limits: { body = \"1.5GiB\"; idle = \"2min\"; }\n"
                       "  keys = [\"a,b\", \"c\"]; };\n"
                       "api: { debug = true; };\n";
    assert_int_equal(config_load_text(&program, &s, "t.cfg", text, &failure), STATUS_OK);
    assert_string_equal(s.http.listen, "0.0.0.0");
    assert_int_equal(s.http.port, 5000000000);
    assert_true(s.http.debug);
    assert_true(s.http.weight == 1);
    assert_int_equal(s.http.body, (uint64_t)3 << 29);
    assert_int_equal(s.http.idle_us, 120000000);
    assert_int_equal(s.http.keys.count, 2);
    assert_string_equal(s.http.keys.items[0], "a,b");
    config_close(&program, &s);
}

// A text, and what its failure must contain: the key, the file and the line among it.
static const char *const bad_texts[][2] = {
    { "\nhttp: { prot = 1; };",
      "t.cfg:2: the key http.prot is not known; did you mean http.port?" },
    { "nonsense = 1;", "t.cfg:1: the key nonsense is not known; --print-config" },
    { "http: {\n port = \"80\"; };", "t.cfg:2: http.port is text; it must be a whole number" },
    { "http: { port = 5000000000; };", "t.cfg:1: a number past 32 bits must end in L" },
    { "http: { port = -2147483649; };", "t.cfg:1: a number past 32 bits" },
    { "http: { port = 0xffffffff; };", "t.cfg:1: a number past 32 bits" },
    { "http: { port = 99999999999999999999L; };", "t.cfg:1: this number is past 64 bits" },
    { "http: { port = 5000000001L; };", "http.port is 5000000001L; it must be between 0 and" },
    { "http: { port = -1; };", "http.port is -1; it must be between 0 and 5000000000L" },
    { "http: { port = 1.5; };", "http.port is a number with a fraction" },
    { "http: { weight = 1.5; };", "http.weight is 1.5; it must be between 0.0 and 1.0" },
    { "http: { weight = 1.0e999; };", "http.weight is past all bounds; it must be a number" },
    { "http: { listen = 1; };", "http.listen is a whole number; it must be text in quotes" },
    { "http: { limits: { body = \"5MB\"; }; };", "http.limits.body is \"5MB\"; it must be a size" },
    { "http: { limits: { body = -5; }; };", "http.limits.body is a whole number; it must be" },
    { "http: { limits: { body = \"0\"; }; };",
      "is \"0B\"; it must be between \"1B\" and \"1TiB\"" },
    { "http: { limits: { idle = 5; }; };", "http.limits.idle is a whole number; it must be a dur" },
    { "http: { limits: { idle = \"5\"; }; };", "http.limits.idle is \"5\"; it must be a duration" },
    { "http: { limits: { idle = \"2h\"; }; };", "it must be between \"1ms\" and \"1h\"" },
    { "http: { keys = \"a\"; };", "http.keys is text; it must be a list" },
    { "http: { keys = [1]; };", "http.keys is a list with something else than texts" },
    { "http = 1;", "t.cfg:1: http is a whole number; it must be a group" },
    { "http: { listen: { x = 1; }; };", "http.listen is a group; it must be text" },
    { "api: { debug = 1; };", "api.debug is a whole number; it must be true or false" },
    { "log: { level = \"loud\"; };", "log.level is \"loud\"; it must be one of error, warn, info" },
    { "http: { port = 1; port = 2; };", "t.cfg:1: this is not valid: duplicate setting" },
    { "\n\nhttp: {", "t.cfg:3: this is not valid: syntax error" },
    { "@include \"/dev/zero\"\n", "t.cfg:1: @include is not supported" },
    { "x = ((((((((((((((((((1))))))))))))))))));", "nested too deep" },
};

static void a_fault_names_key_file_and_line_and_changes_nothing(void **state)
{
    (void)state;
    settings s;
    open_defaults(&s);
    for (size_t i = 0; i < sizeof(bad_texts) / sizeof(bad_texts[0]); i++) {
        error failure = { 0 };
        buffer text = { 0 };
        buffer_printf(&text, "%s", bad_texts[i][0]);
        status result = config_load_text(&program, &s, "t.cfg", text.data, &failure);
        if (result != STATUS_BAD_CONFIG || strstr(failure.text, bad_texts[i][1]) == NULL)
            fail_msg("case %zu: %s", i, failure.text);
        buffer_close(&text);
    }
    error failure;
    const char *half = "log: { level = \"debug\"; };\nhttp: { port = -1; };";
    assert_int_equal(config_load_text(&program, &s, "t.cfg", half, &failure), STATUS_BAD_CONFIG);
    assert_string_equal(s.log.level, "info");
    assert_int_equal(s.http.port, 8080);
    config_close(&program, &s);
}

static void flags_come_after_files(void **state)
{
    (void)state;
    char path[] = "/tmp/penstock-config-XXXXXX";
    int file = mkstemp(path);
    const char *text = "http: { port = 1; listen = \"file\"; };";
    assert_true(file >= 0 && write(file, text, strlen(text)) == (ssize_t)strlen(text));
    close(file);
    char *argv[] = { "p", "--set", "http.port=2", "--config", path, "--set=faults=a,b" };
    settings s;
    config_action action;
    error failure;
    assert_int_equal(config_open(&program, 6, argv, &s, &action, &failure), STATUS_OK);
    assert_int_equal(s.http.port, 2);
    assert_string_equal(s.http.listen, "file");
    assert_int_equal(s.fault.points.count, 2);
    config_close(&program, &s);
    unlink(path);
}

static const char *const bad_lines[][3] = {
    { "--set", "http.port=x", "--set: http.port is \"x\"; it must be a whole number" },
    { "--set", "http.port= 5", "it must be a whole number" },
    { "--set", "http.weight=nan", "http.weight is \"nan\"; it must be a number" },
    { "--set", "http.weight=0x1", "it must be a number" },
    { "--set", "http.limits.body=99999999999TiB", "it must be a size" },
    { "--set", "http.limits.body=-1", "it must be a size" },
    { "--set", "http.limits.idle=1.s", "it must be a duration" },
    { "--set", "nope", "is not of the form key=value" },
    { "--set", "=x", "is not of the form key=value" },
    { "--set", NULL, "--set needs a value" },
    { "--config", "/nonexistent/x.cfg", "cannot open /nonexistent/x.cfg" },
    { "--config", "/", "cannot read /" },
    { "--config", "/dev/zero", "too large" },
    { "--frobnicate", NULL,
      "the argument \"--frobnicate\" is not known; try penstock-test --help" },
    { "http.port=5", NULL, "is not known" },
};

static void a_bad_command_line_is_one_sentence(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(bad_lines) / sizeof(bad_lines[0]); i++) {
        char *argv[] = { "p", (char *)bad_lines[i][0], (char *)bad_lines[i][1] };
        settings s;
        config_action action;
        error failure;
        status result = config_open(&program, bad_lines[i][1] ? 3 : 2, argv, &s, &action, &failure);
        if (result != STATUS_BAD_CONFIG || strstr(failure.text, bad_lines[i][2]) == NULL)
            fail_msg("case %zu: %s", i, failure.text);
    }
}

// Run config_open with standard output going to a file, and return what it printed.
static char *printed_by(int argc, char **argv, char *text, size_t size)
{
    char path[] = "/tmp/penstock-config-XXXXXX";
    int file = mkstemp(path);
    fflush(stdout);
    int saved = dup(STDOUT_FILENO);
    dup2(file, STDOUT_FILENO);
    settings s;
    config_action action;
    error failure;
    status result = config_open(&program, argc, argv, &s, &action, &failure);
    dup2(saved, STDOUT_FILENO);
    close(saved);
    assert_int_equal(result, STATUS_OK);
    assert_int_equal(action, CONFIG_EXIT);
    config_close(&program, &s);
    ssize_t count = pread(file, text, size - 1, 0);
    assert_true(count > 0);
    text[count] = 0;
    close(file);
    unlink(path);
    return text;
}

static void what_print_config_prints_can_be_read_back(void **state)
{
    (void)state;
    char *argv[] = { "p",     "--print-config",         "--set", "http.listen=a\"b\\c\n",
                     "--set", "http.port=4999999999",   "--set", "http.weight=0.1",
                     "--set", "http.limits.idle=1.5ms", "--set", "http.limits.body=1000",
                     "--set", "http.keys=x,,y" };
    static char first[16384], second[16384];
    printed_by(14, argv, first, sizeof(first));
    assert_non_null(strstr(first, "# Address that the API listens on."));
    assert_non_null(strstr(first, "default \"127.0.0.1\""));
    assert_non_null(strstr(first, "from 0 to 5000000000L"));
    char path[] = "/tmp/penstock-config-XXXXXX";
    int file = mkstemp(path);
    assert_int_equal(write(file, first, strlen(first)), strlen(first));
    close(file);
    char *again[] = { "p", "--config", path, "--print-config" };
    printed_by(4, again, second, sizeof(second));
    unlink(path);
    assert_string_equal(first, second);
    char *help[] = { "p", "--frobnicate", "--help" };
    printed_by(3, help, first, sizeof(first));
    assert_non_null(strstr(first, "http.limits.idle"));
    assert_non_null(strstr(first, "--print-config"));
    char *version[] = { "p", "--version" };
    printed_by(2, version, first, sizeof(first));
    assert_string_equal(first, "penstock-test " PENSTOCK_VERSION "\n");
}

// ---- reading again -----------------------------------------------------------------------------

static char changed_keys[256];

static void note_changed(const char *key, bool taken, void *context)
{
    (void)context;
    snprintf(changed_keys + strlen(changed_keys), sizeof changed_keys - strlen(changed_keys),
             "%s %s. ", key, taken ? "taken" : "kept");
}

static status refuse_weight_one(const void *fresh, void *context, error *failure)
{
    (void)context;
    const settings *s = fresh;
    return s->http.weight == 1 ? error_set(failure, STATUS_BAD_CONFIG, "http.weight", "too heavy")
                               : STATUS_OK;
}

static status read_again(settings *s, const char *path, const char *text)
{
    char *argv[] = { "p", "--config", (char *)path, "--set", "http.port=4" };
    config_reload reload = { refuse_weight_one, note_changed, NULL };
    error failure;
    FILE *file = fopen(path, "w");
    fputs(text, file);
    fclose(file);
    changed_keys[0] = 0;
    return config_read_again(&program, 5, argv, s, &reload, &failure);
}

static void live_keys_are_taken_again_and_others_named(void **state)
{
    (void)state;
    char path[] = "/tmp/penstock-config-XXXXXX";
    char *argv[] = { "p", "--config", path, "--set", "http.port=4" };
    config_action action;
    error failure;
    settings s;
    close(mkstemp(path));
    assert_int_equal(config_open(&program, 5, argv, &s, &action, &failure), STATUS_OK);
    assert_int_equal(read_again(&s, path, ""), STATUS_OK);
    assert_string_equal(changed_keys, "");
    const char *text = "http: { weight = 0.25; keys = [\"a\", \"b\"]; listen = \"x\"; port = 9; };";
    assert_int_equal(read_again(&s, path, text), STATUS_OK);
    assert_string_equal(changed_keys, "http.listen kept. http.weight taken. http.keys taken. ");
    assert_true(s.http.weight == 0.25);
    assert_string_equal(s.http.keys.items[1], "b");
    assert_string_equal(s.http.listen, "127.0.0.1");
    assert_int_equal(s.http.port, 4); // the command line still wins
    assert_int_equal(read_again(&s, path, "http: { weight = 2.0; };"), STATUS_BAD_CONFIG);
    assert_int_equal(read_again(&s, path, "http: { weight = 1.0; };"), STATUS_BAD_CONFIG);
    assert_string_equal(changed_keys, "");
    assert_true(s.http.weight == 0.25);
    config_close(&program, &s);
    unlink(path);
}

static const backend_row *backend(const settings *s, size_t i)
{
    return &((const backend_row *)s->backends.items)[i];
}

static void live_keys_of_a_group_are_taken_again_where_it_is_the_same_group(void **state)
{
    (void)state;
    char path[] = "/tmp/penstock-config-XXXXXX";
    error failure;
    settings s;
    close(mkstemp(path));
    open_defaults(&s);
    const char *text = "backends = ({ name = \"a\"; }, { name = \"b\"; hosts = [\"x\"]; });";
    assert_int_equal(config_load_text(&program, &s, "f", text, &failure), STATUS_OK);
    text = "backends = ({ name = \"a\"; weight = 4; }, { name = \"b\"; hosts = [\"x\"]; weight = "
           "5; });"
           "http: { port = 4; };";
    assert_int_equal(read_again(&s, path, text), STATUS_OK);
    assert_string_equal(changed_keys,
                        "http.port kept. backends[0].weight taken. backends[1].weight taken. ");
    assert_int_equal(backend(&s, 0)->weight, 4);
    assert_int_equal(backend(&s, 1)->weight, 5);
    assert_string_equal(backend(&s, 1)->hosts.items[0], "x");
    // Another group at its place, or one that comes or goes: the others still take what is theirs.
    text = "backends = ({ name = \"a\"; weight = 6; }, { name = \"c\"; weight = 7; });";
    assert_int_equal(read_again(&s, path, text), STATUS_OK);
    assert_string_equal(changed_keys, "http.port kept. backends[0].weight taken. backends kept. ");
    assert_int_equal(backend(&s, 0)->weight, 6);
    assert_int_equal(backend(&s, 1)->weight, 5);
    assert_string_equal(backend(&s, 1)->name, "b");
    assert_int_equal(read_again(&s, path, "backends = ({ name = \"a\"; weight = 8; });"),
                     STATUS_OK);
    assert_string_equal(changed_keys, "http.port kept. backends[0].weight taken. backends kept. ");
    assert_int_equal(s.backends.count, 2);
    assert_int_equal(backend(&s, 0)->weight, 8);
    config_close(&program, &s);
    unlink(path);
}

static void a_list_of_groups_is_read_from_files_and_set(void **state)
{
    (void)state;
    settings s;
    error failure;
    open_defaults(&s);
    assert_int_equal(s.backends.count, 0);
    const char *text = "backends = ( { name = \"a\"; hosts = [\"x\", \"y\"]; },\n {} );";
    assert_int_equal(config_load_text(&program, &s, "f", text, &failure), STATUS_OK);
    assert_int_equal(s.backends.count, 2);
    assert_string_equal(backend(&s, 0)->name, "a");
    assert_int_equal(backend(&s, 0)->hosts.count, 2);
    assert_int_equal(backend(&s, 1)->weight, 1); // every group has the defaults
    // The list is replaced as a whole.
    assert_int_equal(
        config_set(&program, &s, "backends", "({ name = \"b\"; weight = 7; })", &failure),
        STATUS_OK);
    assert_int_equal(s.backends.count, 1);
    assert_int_equal(backend(&s, 0)->weight, 7);
    config_close(&program, &s);
}

static void what_a_list_may_not_hold_is_named(void **state)
{
    (void)state;
    static const struct {
        const char *text, *sentence;
    } cases[] = {
        { "backends = 1;", "f:1: backends must be a list of at most 2 groups" },
        { "backends = ({}, {}, {});", "f:1: backends must be a list of at most 2 groups" },
        { "backends = ({},\n 5);", "backends[1] is a whole number; it must be a group" },
        { "backends = (\n{ weight = 11; });", "f:2: weight is 11" },
        { "backends = ({ nam = \"a\"; });", "the key nam is not known; did you mean name?" },
    };
    settings s;
    error failure;
    open_defaults(&s);
    assert_int_equal(config_set(&program, &s, "backends", "({ name = \"kept\"; })", &failure),
                     STATUS_OK);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(config_load_text(&program, &s, "f", cases[i].text, &failure),
                         STATUS_BAD_CONFIG);
        if (!strstr(failure.text, cases[i].sentence))
            fail_msg("%s: %s", cases[i].text, failure.text);
        assert_string_equal(backend(&s, 0)->name, "kept");
    }
    // Nothing else can be set along with it.
    assert_int_equal(config_set(&program, &s, "backends", "(); http = { port = 1; }", &failure),
                     STATUS_BAD_CONFIG);
    config_close(&program, &s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_list_of_groups_is_read_from_files_and_set),
        cmocka_unit_test(what_a_list_may_not_hold_is_named),
        cmocka_unit_test(defaults_come_from_the_table),
        cmocka_unit_test(a_text_sets_every_type),
        cmocka_unit_test(a_fault_names_key_file_and_line_and_changes_nothing),
        cmocka_unit_test(flags_come_after_files),
        cmocka_unit_test(a_bad_command_line_is_one_sentence),
        cmocka_unit_test(what_print_config_prints_can_be_read_back),
        cmocka_unit_test(live_keys_are_taken_again_and_others_named),
        cmocka_unit_test(live_keys_of_a_group_are_taken_again_where_it_is_the_same_group),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
