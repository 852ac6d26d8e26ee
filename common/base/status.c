#include "base/status.h"

#include "base/utf8.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct status_row {
    const char *name, *text;
    status_owner owner;
} status_row;

static const status_row rows[STATUS_COUNT] = {
#define STATUS_ROW(code, owner, text) { #code, text, STATUS_OWNER_##owner },
    STATUS_LIST(STATUS_ROW)
#undef STATUS_ROW
};

const char *status_name(status code)
{
    return (unsigned)code < STATUS_COUNT ? rows[code].name : "UNKNOWN";
}

const char *status_text(status code)
{
    return (unsigned)code < STATUS_COUNT ? rows[code].text : "an unknown code was returned";
}

status_owner status_must_act(status code)
{
    return (unsigned)code < STATUS_COUNT ? rows[code].owner : STATUS_OWNER_SELF;
}

_Noreturn void check_failed(const char *condition, const char *file, int line)
{
    fprintf(stderr, "check failed: %s at %s:%d\n", condition, file, line);
    abort();
}

// A sentence that was cut to fit must not end in half a character, which would then read as '?'.
static void drop_cut_character(char *text)
{
    text[utf8_fit(text, strlen(text))] = 0;
}

static void print_text(char *text, size_t size, const char *format, va_list arguments)
{
    int length = vsnprintf(text, size, format, arguments);
    if (length < 0)
        snprintf(text, size, "%s", "the sentence could not be formatted");
    if (length >= (int)size)
        drop_cut_character(text);
    utf8_make_printable(text);
}

status error_set(error *failure, status code, const char *param, const char *format, ...)
{
    if (failure == NULL)
        return code;
    // The caller may quote the error's own text, so the sentence is made beside it.
    error made = { .code = code };
    va_list arguments;
    va_start(arguments, format);
    print_text(made.text, sizeof(made.text), format, arguments);
    va_end(arguments);
    int length = snprintf(made.param, sizeof(made.param), "%s", param ? param : "");
    if (length >= (int)sizeof(made.param))
        drop_cut_character(made.param);
    utf8_make_printable(made.param);
    *failure = made;
    return code;
}

void error_prefix(error *failure, const char *format, ...)
{
    if (failure == NULL)
        return;
    char prefix[sizeof(failure->text)];
    va_list arguments;
    va_start(arguments, format);
    print_text(prefix, sizeof(prefix), format, arguments);
    va_end(arguments);
    char joined[2 * sizeof(failure->text) + 2];
    snprintf(joined, sizeof(joined), "%s: %s", prefix, failure->text);
    bool cut = strlen(joined) >= sizeof(failure->text);
    joined[sizeof(failure->text) - 1] = 0;
    if (cut)
        drop_cut_character(joined);
    memcpy(failure->text, joined, sizeof(failure->text));
}
