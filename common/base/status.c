#include "base/status.h"

#include <stdio.h>
#include <stdlib.h>

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
