#include "eval/line.h"

#include <stdio.h>

status line_print(json_t *object, error *failure)
{
    if (!object)
        return error_set(failure, STATUS_NUMERIC, "", "a figure is no finite number");
    json_dumpf(object, stdout, JSON_COMPACT | JSON_REAL_PRECISION(9));
    json_decref(object);
    printf("\n");
    fflush(stdout);
    return STATUS_OK;
}
