// deploy/METRICS.md holds the tables of metrics behind marks; whoever owns a table tests that the
// page shows it, line for line, and prints it with `--print`.
#pragma once

#include "base/buffer.h"

#include <stdio.h>
#include <stdlib.h>

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

#define METRICS_PAGE PENSTOCK_SOURCE_DIR "/deploy/METRICS.md"

// The table stands behind "<!-- metrics: NAME -->" and ends with an empty line.
static inline void metrics_page_check(const char *name, const buffer *table)
{
    FILE *file = fopen(METRICS_PAGE, "r");
    char *text = calloc(1, 1 << 20), mark[64];
    assert_non_null(file);
    assert_non_null(text);
    assert_true(fread(text, 1, (1 << 20) - 1, file) > 0);
    fclose(file);
    snprintf(mark, sizeof mark, "<!-- metrics: %s -->\n", name);
    char *at = strstr(text, mark);
    if (!at)
        fail_msg("%s has no mark %s", METRICS_PAGE, mark);
    at += strlen(mark);
    bool same = strncmp(at, table->data, table->size) == 0 &&
                (at[table->size] == '\n' || at[table->size] == 0);
    free(text);
    if (!same)
        fail_msg("%s shows another table behind %s: this test with --print writes it", METRICS_PAGE,
                 mark);
}

static inline bool metrics_page_printed(int count, char **arguments, void (*describe)(buffer *out))
{
    buffer out = { 0 };
    if (count != 2 || strcmp(arguments[1], "--print") != 0)
        return false;
    describe(&out);
    fwrite(out.data, 1, out.size, stdout);
    buffer_close(&out);
    return true;
}
