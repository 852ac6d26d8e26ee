// A worker without an engine, for tests of the router: it joins, beats, takes tickets and answers
// with tokens that follow from the ticket alone, at a set pace. It keeps real count of pages and
// sequences, and obeys Cancel.
//
// Output token i is prompt[i % prompt_count], so an answer repeats its prompt, and a further
// attempt goes on exactly where the earlier one ended. With `answer_tokens` N the answer ends with
// `eos` after N tokens (unless ignore_eos). A prefill worker reports token 0 after prefill_ms and
// HandedOver handover_ms later; a decode worker whose ticket names a prefill worker begins with
// token 1 after the sum of both. It follows orders but flips. One thread.
#pragma once

#include "net/mailbox.h"
#include "net/message.h"

typedef struct fake_settings {
    const char *router, *name, *model;
    bool decode;
    uint64_t pages;
    uint32_t sequences, page_tokens, context, vocabulary;
    uint64_t numeric;       // any number; unlike ones do not pair
    uint64_t weights_delta; // added to the weights' hash: another model
    int64_t step_ms, prefill_ms, handover_ms;
    int64_t answer_tokens;
    int32_t eos;
    uint32_t protocol; // that it speaks
    size_t count;      // workers in this process, all alike but for their names
    // Faults; 0: none.
    int64_t refuse;     // the first N tickets are refused as overloaded
    int64_t fail_after; // the first ticket fails after N tokens
    int64_t gap_after;  // the first ticket skips a token after N tokens
    int64_t nan_after;  // tickets end as FINISH_FAILED after N tokens
    bool die;           // end at the first ticket, without a word
    bool repeat;        // every token is reported twice
} fake_settings;

typedef struct fake_sequence {
    struct fake_sequence *next;
    uint64_t router, number;
    uint32_t attempt;
    int32_t *tokens; // the ticket's
    size_t count, prompt_count;
    int64_t made; // output tokens in all, earlier attempts included
    int64_t max_tokens;
    bool ignore_eos, hash, handing_over, faulty;
    uint32_t top;
    uint64_t received_us, begun_us, done_us, due_us;
    uint64_t pages;
} fake_sequence;

typedef struct fake_worker {
    fake_settings settings;
    char name[64];
    mailbox_pair *pair;
    queue *events; // of all workers of the process
    fake_sequence *sequences;
    uint64_t pages_held;
    uint32_t running;
    int64_t tickets;
    uint64_t steps, tokens_made, prompt_tokens;
    uint64_t router_clock_us, router_beat_us; // the last RouterBeat and when it came
    uint64_t beat_due_us, beat_interval_us;
    bool down, cordoned, draining;
} fake_worker;

// fake_sequences.c
void fake_ticket(fake_worker *w, const message_ticket *t);
void fake_cancel(fake_worker *w, const Penstock__Cancel *c);
// Everything that is due; returns when the next thing is.
uint64_t fake_step(fake_worker *w, uint64_t now);
void fake_send(fake_worker *w, const message_to_router *m);
