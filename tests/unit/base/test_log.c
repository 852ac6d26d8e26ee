#include "base/log.h"

#include <ctype.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static int saved;
static int captured;

static void capture_begin(void)
{
    char path[] = "/tmp/penstock-log-XXXXXX";
    captured = mkstemp(path);
    unlink(path);
    saved = dup(STDERR_FILENO);
    dup2(captured, STDERR_FILENO);
}

static void capture_end(char *text, size_t size)
{
    dup2(saved, STDERR_FILENO);
    close(saved);
    ssize_t count = pread(captured, text, size - 1, 0);
    text[count < 0 ? 0 : count] = 0;
    close(captured);
}

static void a_line_has_time_level_tag_and_text(void **state)
{
    (void)state;
    char text[4096];
    capture_begin();
    log_info("router", "worker %s role %s", "joined", "decode");
    log_debug("router", "not shown %d", 1);
    log_progress("loading", 1, 2); // not a terminal: silent
    capture_end(text, sizeof(text));
    // 2026-01-31T12:00:00.123 info router worker joined role decode
    const char *shape = "dddd-dd-ddTdd:dd:dd.ddd";
    for (size_t i = 0; shape[i] != 0; i++)
        assert_true(shape[i] == 'd' ? isdigit((unsigned char)text[i]) : text[i] == shape[i]);
    assert_string_equal(text + strlen(shape), " info router worker joined role decode\n");
}

static void the_level_filters(void **state)
{
    (void)state;
    char text[4096];
    log_level level;
    assert_true(log_level_parse("warn", &level));
    assert_false(log_level_parse("WARN", &level));
    log_level_set(level);
    capture_begin();
    log_info("a", "no");
    log_warn("a", "yes");
    log_error("a", "yes");
    log_level_set(LOG_DEBUG);
    log_debug("a", "yes");
    log_level_set(LOG_INFO);
    capture_end(text, sizeof(text));
    assert_null(strstr(text, "no\n"));
    assert_non_null(strstr(text, " warn a yes\n"));
    assert_non_null(strstr(text, " error a yes\n"));
    assert_non_null(strstr(text, " debug a yes\n"));
}

static void one_call_is_one_line_whatever_it_quotes(void **state)
{
    (void)state;
    char text[4096], longer[4000];
    memset(longer, 'x', sizeof(longer) - 1);
    longer[sizeof(longer) - 1] = 0;
    capture_begin();
    log_info("a", "quoted %s", "two\nlines\x1b\xff");
    log_info("a", "%s", longer);
    capture_end(text, sizeof(text));
    assert_non_null(strstr(text, " quoted two?lines??\n"));
    assert_non_null(strstr(text, "xxx...\n"));
    assert_true(strchr(strchr(text, '\n') + 1, '\n')[1] == 0);
}

static void fields_are_words_or_members(void **state)
{
    (void)state;
    char text[8192], longer[4000];
    memset(longer, '"', sizeof(longer) - 1);
    longer[sizeof(longer) - 1] = 0;
    const log_field fields[] = { { .name = "method", .text = SLICE("GET") },
                                 { .name = "who", .text = SLICE("a \"b\"\n\xff") },
                                 { .name = "none", .text = SLICE("") },
                                 { .name = "ms", .number = 1.25, .decimals = 2 } };
    const log_field huge[] = { { .name = "quotes", .text = slice_of(longer) },
                               { .name = "last", .number = 1 } };
    capture_begin();
    log_fields(LOG_INFO, "access", fields, 4);
    log_fields(LOG_DEBUG, "access", fields, 4);
    log_format_set("json");
    log_fields(LOG_INFO, "access", fields, 4);
    log_info("router", "says \"%s\"", "x\ty");
    log_info("router", "%s", longer);
    log_fields(LOG_INFO, "access", huge, 2);
    log_format_set("text");
    capture_end(text, sizeof(text));
    char *line = strtok(text, "\n");
    assert_string_equal(
        line + 23, " info access method GET who \"a \\\"b\\\"\\n\xef\xbf\xbd\" none - ms 1.25");
    line = strtok(NULL, "\n");
    assert_memory_equal(line, "{\"time\":\"20", 11);
    assert_string_equal(line + 9 + 23,
                        "\",\"level\":\"info\",\"tag\":\"access\",\"method\":\"GET\","
                        "\"who\":\"a \\\"b\\\"\\n\xef\xbf\xbd\",\"none\":\"\",\"ms\":1.25}");
    line = strtok(NULL, "\n");
    assert_string_equal(
        line + 9 + 23,
        "\",\"level\":\"info\",\"tag\":\"router\",\"message\":\"says \\\"x?y\\\"\"}");
    for (int i = 0; i < 2; i++) { // cut, and whole objects still
        line = strtok(NULL, "\n");
        assert_true(strlen(line) < 2048 && strlen(line) > 1900);
        assert_string_equal(line + strlen(line) - 2, "\"}");
    }
}

static void *log_many(void *argument)
{
    (void)argument;
    for (int i = 0; i < 100; i++)
        log_info("thread", "a line of exactly this text");
    return NULL;
}

static void lines_of_several_threads_do_not_mix(void **state)
{
    (void)state;
    static char text[65536];
    pthread_t threads[3];
    capture_begin();
    for (int i = 0; i < 3; i++)
        pthread_create(&threads[i], NULL, log_many, NULL);
    for (int i = 0; i < 3; i++)
        pthread_join(threads[i], NULL);
    capture_end(text, sizeof(text));
    int lines = 0;
    for (char *line = strtok(text, "\n"); line != NULL; line = strtok(NULL, "\n"), lines++)
        assert_string_equal(line + 23, " info thread a line of exactly this text");
    assert_int_equal(lines, 300);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_line_has_time_level_tag_and_text),
        cmocka_unit_test(the_level_filters),
        cmocka_unit_test(one_call_is_one_line_whatever_it_quotes),
        cmocka_unit_test(fields_are_words_or_members),
        cmocka_unit_test(lines_of_several_threads_do_not_mix),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
