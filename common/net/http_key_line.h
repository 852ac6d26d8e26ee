// A line of the file of API keys: read by the router (router/keys.h says what it means), written by
// `penstock key`. Pure functions; any thread.
#pragma once

#include "base/status.h"
#include "net/http_secret.h"

#include <stdint.h>

#define HTTP_KEY_NAME_MAX 64
#define HTTP_KEY_MODELS_MAX 64
#define HTTP_KEY_LIMIT_MAX INT64_C(1000000000000)

// Slices point into the line.
typedef struct http_key_line {
    slice name;
    uint8_t digest[HTTP_DIGEST_SIZE];
    int64_t requests_per_minute, tokens_per_minute, concurrent; // 0: no limit
    bool interactive, batch;                                    // classes that it may send
    slice models;                                               // with commas; empty: all
    slice tenant;                                               // its name, where it names none
    bool admin;
} http_key_line;

// Whether it holds nothing but blanks or a comment.
bool http_key_line_empty(slice line);
// STATUS_BAD_CONFIG and a sentence that names the key and what would be right.
status http_key_line_parse(slice line, http_key_line *parsed, error *failure);
// The next of names with commas; false: there is none.
bool http_key_line_take(slice *names, slice *name);
