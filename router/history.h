// Time lines: what happened to a request when, for /requests/{id}, the log and the histograms.
//
// All stamps are microseconds of the router's monotonic clock, 0 where it did not happen. Those of
// workers were moved there by the offset that heartbeats estimate; `clock_error_us` bounds what
// that may be off. The history is a ring of the most recent requests, running ones included. It
// belongs to the loop.
#pragma once

#include "base/buffer.h"
#include "base/status.h"

#include <stdint.h>

typedef struct timeline {
    uint64_t number; // of the request in this router
    char id[56];     // "chatcmpl-..." or "cmpl-...", with "-1" behind it for choice 1
    char http_id[65];
    const char *model;   // its name lives as long as the router; NULL: not known
    const char *outcome; // "running", "stop", "length", "abort", "error", "rejected"
    char prefill_worker[64], decode_worker[64];
    uint64_t prompt_tokens, cached_tokens, completion_tokens, received_tokens;
    uint32_t attempts;
    const char *local; // why there was no prefill worker, or NULL
    uint64_t arrived, parsed, routed, prefill_begun, prefill_done, first_page, last_page,
        first_step, first_token, first_byte, done;
    uint64_t handed_over;
    uint64_t handed_over_bytes;
    uint64_t prefill_clock_error_us, decode_clock_error_us;
} timeline;

typedef struct history history;

status history_open(size_t capacity, history **opened);
void history_close(history *h);
// A slot for a new request, the oldest one's; valid until `capacity` further ones.
timeline *history_add(history *h, uint64_t number);
timeline *history_number(history *h, uint64_t number); // NULL: unknown, or forgotten
// By the answer's id or by X-Request-Id.
timeline *history_find(history *h, slice id);
// As a JSON object; times in ms since the request arrived, which was `age_ms` ago.
void history_render(const timeline *t, buffer *out);
// The newest requests as a JSON array of these objects, at most `limit`, newest first.
void history_render_newest(const history *h, size_t limit, buffer *out);
// Between two stamps; 0 where one of them did not happen.
double timeline_seconds(uint64_t from, uint64_t to);
