// W3C trace context: the `traceparent` of a request. Pure functions; any thread.
//
// Source: https://www.w3.org/TR/trace-context/ (version 00). A header that is not valid is treated
// as if it were not there, as the standard wants it; so is one that comes twice.
#pragma once

#include "net/http_head.h"

typedef struct http_trace {
    char id[33];   // 32 lower-case hex digits; empty: the request is part of no trace
    char flags[3]; // 2 hex digits
} http_trace;

// False: there is no valid one, and `trace` is empty.
bool http_trace_parse(slice field, http_trace *trace);
http_trace http_trace_of(const http_head *head);
