#include "net/http_trace.h"

#include <string.h>

#define TRACE_SIZE 55 // "00-" 32 digits "-" 16 digits "-" 2 digits

// `size` lower-case hex digits, not all of them 0 unless that is allowed.
static bool digits(const char *text, size_t size, bool zero_allowed)
{
    bool zero = true;
    for (size_t i = 0; i < size; i++) {
        char c = text[i];
        if (!(c >= '0' && c <= '9') && !(c >= 'a' && c <= 'f'))
            return false;
        zero = zero && c == '0';
    }
    return zero_allowed || !zero;
}

bool http_trace_parse(slice field, http_trace *trace)
{
    const char *text = field.data;
    *trace = (http_trace){ .id = "" };
    if (field.size < TRACE_SIZE || text[2] != '-' || text[35] != '-' || text[52] != '-')
        return false;
    bool first = text[0] == '0' && text[1] == '0';
    // Later versions may say more behind another dash.
    if (field.size > TRACE_SIZE && (first || text[TRACE_SIZE] != '-'))
        return false;
    if (!digits(text, 2, true) || (text[0] == 'f' && text[1] == 'f') ||
        !digits(text + 3, 32, false) || !digits(text + 36, 16, false) ||
        !digits(text + 53, 2, true))
        return false;
    memcpy(trace->id, text + 3, 32);
    memcpy(trace->flags, text + 53, 2);
    return true;
}

http_trace http_trace_of(const http_head *head)
{
    http_trace trace = { .id = "" };
    if (http_head_field_count(head, "traceparent") == 1)
        http_trace_parse(http_head_field(head, "traceparent"), &trace);
    return trace;
}
