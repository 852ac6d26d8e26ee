// A result as one line of JSON on standard output.
#pragma once

#include "base/status.h"

#include <jansson.h>

// Takes over `object`. STATUS_NUMERIC where json_pack refused it: a figure is no number.
status line_print(json_t *object, error *failure);
