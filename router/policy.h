// Where a request goes: a pure function of (view, ask). No clock, no network, no state; production
// and simulation call the same code.
//
// The rule is least loaded. Of the decode workers that have a free sequence and page credits for
// the request's tokens plus one page, the one with the smallest share of its pages and sequences in
// use is taken; of the prefill workers that compute the same numbers and have credits, the one that
// will be through its outstanding tokens first. Whoever computes the prompt also needs token
// credits for it; one that has nothing to compute takes a prompt of any length. So does a worker
// with pages on which this router has nothing: its part of the credits moves with its use
// (worker/credits.h), and must not shut out a request that the pool can hold. A prompt of at most
// `local_prefill_tokens` is computed by the decode worker itself; so is any prompt while no
// matching prefill worker is alive, and one whose hand-offs failed, if that is allowed.
#pragma once

#include "base/hash.h"

#include <stddef.h>
#include <stdint.h>

typedef enum policy_role { POLICY_PREFILL, POLICY_DECODE } policy_role;

// One worker as the policy sees it.
typedef struct policy_worker {
    policy_role role;
    bool alive;      // joined and not dead
    bool usable;     // alive, not suspect, healthy, not leaving
    bool alone;      // runs a request that must run alone
    bool kept;       // its room is kept for a request that waits
    hash128 weights; // the version of the model
    hash128 numeric_id;
    uint32_t page_tokens;
    uint32_t context;                        // tokens of a sequence at most
    uint64_t pages_pool;                     // pages that it has
    uint64_t pages_max, pages_spent;         // of them, credits of this router
    uint32_t sequences_max, sequences_spent; // likewise
    uint64_t tokens_outstanding;             // prompt tokens sent and not yet computed
    uint64_t tokens_max;                     // of those, as granted; 0: any number
    double tokens_per_s;                     // measured prefill rate; 0: unknown
} policy_worker;

// Everything that a placement depends on; borrowed for the call.
typedef struct policy_view {
    const policy_worker *workers;
    size_t count;
    uint64_t local_prefill_tokens;
    bool local_prefill;
    bool mixed_numeric_ids;
} policy_view;

// What one request needs.
typedef struct policy_ask {
    uint64_t tokens; // prompt, and what earlier attempts delivered
    uint64_t length; // prompt and answer at most: what the worker's context must hold
    hash128 weights; // the version that it stays within
    bool bound;      // tokens were delivered: only `numeric_id` may go on
    hash128 numeric_id;
    bool alone;          // it met two deaths: no other request beside it
    bool handoff_failed; // more than once: the pair may be cut off from each other
    bool moving;         // its pages come from a decode worker with equal numbers: no prefill
    size_t avoid;        // index of a worker that just failed it, taken only if there is no other;
                         // SIZE_MAX: none
} policy_ask;

typedef enum policy_verdict {
    POLICY_PLACED,
    POLICY_WAIT,      // a worker that could serve it is full
    POLICY_NO_WORKER, // no worker that could serve it is alive
    POLICY_TOO_LARGE, // no living worker has that many pages
} policy_verdict;

// Why a plan names no prefill worker.
typedef enum policy_local {
    POLICY_LOCAL_NOT,
    POLICY_LOCAL_SHORT,      // the prompt is short
    POLICY_LOCAL_NO_PREFILL, // no matching prefill worker is alive
    POLICY_LOCAL_HANDOFF,    // its hand-offs failed
    POLICY_LOCAL_COUNT,
} policy_local;

typedef struct policy_plan {
    policy_verdict verdict;
    size_t decode;  // index into the view
    size_t prefill; // SIZE_MAX: the decode worker computes the prompt
    policy_local local;
    bool mixed; // continues with another numeric id (allowed by the settings)
} policy_plan;

// The plan for `ask`: with POLICY_PLACED the indices are of workers that have room now. Equal views
// and asks give equal plans.
policy_plan policy_place(const policy_view *view, const policy_ask *ask);
// Where an ask that must wait will fit first: the worker with the most room for it. `prefill` is
// SIZE_MAX where the prompt has room, or needs none, on a prefill worker; both are SIZE_MAX where
// no worker could serve it. The caller marks them `kept`, so that nobody else takes their room.
void policy_reserve(const policy_view *view, const policy_ask *ask, size_t *decode,
                    size_t *prefill);
// Page credits that a request of `tokens` takes on a worker: its pages and one more.
uint64_t policy_pages(uint32_t page_tokens, uint64_t tokens);
// "prefill" or "decode".
const char *policy_role_name(policy_role role);
// "short_prompt", "no_prefill_worker", "handoff_failed".
const char *policy_local_name(policy_local local);
