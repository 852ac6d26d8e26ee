// JSON text with integers of any size, which jansson (64 bits) refuses: schemas of tools have them
// as bounds.
#pragma once

#include "base/buffer.h"

#include <jansson.h>

enum { JSON_WIDE_MAX = 64, JSON_WIDE_DIGITS_MAX = 1000 };

// As json_loadb. Where that fails because of integers beyond 64 bits, at most JSON_WIDE_MAX of them
// with at most JSON_WIDE_DIGITS_MAX digits, they become strings of their digits, and `wide` an
// array of these very json_t; else `wide` is NULL. Both are new references.
json_t *json_wide_load(slice text, size_t flags, json_t **wide, json_error_t *failure);
// How many elements of `wide` stand somewhere in `json`.
size_t json_wide_count(json_t *json, json_t *wide);
