// What is wrong with the cluster, in words: a pure function of what the router knows. The page at /
// and /cluster show the sentences.
//
// An alert is worth a person's look: a bottleneck with requests that wait for it, workers that are
// silent, ill or gone, requests that failed or were refused, and whatever is done in a worse way
// than planned. What passes within half a second is none.
#pragma once

#include "net/guesses.h"
#include "router/policy.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ALERTS_MAX 16
#define ALERTS_WAIT_S 0.5 // that a request may wait before somebody is told
#define ALERTS_BELOW_S 60 // that a draft model may stay below break-even

typedef enum alert_level {
    ALERT_NOTE,    // good to know
    ALERT_WARNING, // slower or nearer to a limit than it should be
    ALERT_BAD,     // requests fail, or will
} alert_level;

typedef struct alert {
    alert_level level;
    const char *code; // stable, for programs: "decode_bottleneck"
    char text[320];   // a sentence or two
} alert;

// One model, whose line and workers are its own.
typedef struct alerts_model {
    const char *name;
    const char *not_ready; // why no request for it can be served; NULL: they can
    size_t waiting;
    double oldest_s; // that the first in its line has waited
} alerts_model;

// One worker; strings are borrowed for the call.
typedef struct alerts_worker {
    const char *name;
    size_t model; // index
    policy_role role;
    const char *state; // as registry_state_name
    bool usable;
    uint64_t pages, pages_spent; // credits of this router
    uint64_t sequences, sequences_spent;
    uint64_t tokens, tokens_outstanding; // prompt tokens; 0 credits: any number
    double tokens_per_s;                 // of prefill; 0: unknown
    uint64_t pages_quarantined;
    const guesses *guesses; // NULL: it told nothing of guessed tokens
} alerts_worker;

// One that left or died within the last ten minutes and did not come back.
typedef struct alerts_departed {
    const char *name;
    policy_role role;
    bool left; // with a goodbye
    double ago_s;
    const char *model; // its name
} alerts_departed;

typedef struct alerts_view {
    bool draining;
    bool local_prefill; // decode workers compute prompts where no prefill worker can
    size_t running;     // requests
    const alerts_model *models;
    size_t model_count;
    const alerts_worker *workers;
    size_t worker_count;
    const alerts_departed *departed;
    size_t departed_count;
    // Of the last minute.
    double errors, refused, retries, no_prefill, handoff_failed;
} alerts_view;

// Worst first. At most ALERTS_MAX; the number found.
size_t alerts_find(const alerts_view *view, alert found[ALERTS_MAX]);
// "note", "warning", "bad".
const char *alert_level_name(alert_level level);
