// One ticket in a worker, from its arrival until nothing of it is held: the table of all, and their
// order of waiting.
//
// Owned by the step thread. A job leaves the table when its sequence is closed and its transfer (a
// send of a prefill worker, a seat of a decode worker) is over, because until then a peer may touch
// its pages.
#pragma once

#include "handoff/handoff.h"
#include "model/engine.h"
#include "worker/guide.h"
#include "worker/worker.h"

typedef enum job_state {
    JOB_WAITING,   // for pages, a sequence slot, or to be alone
    JOB_SEATED,    // decode: its pages wait for the prefill worker
    JOB_COMPUTING, // its prompt is computed here
    JOB_SENDING,   // its last token here is out, pages may still travel
    JOB_RUNNING,   // decode: it generates
    JOB_ENDING,    // over for its router; its transfer is not
} job_state;

// Stamps of clock_now_us, as in WorkerTimes; 0: not yet.
typedef struct job_times {
    uint64_t received, prefill_begun, prefill_done, first_page, last_page, first_step, finished;
} job_times;

typedef struct job {
    handoff_key key;
    worker_router *router; // NULL: gone, nothing is reported
    job_state state;
    message_to_worker *message; // while it waits; message->ticket
    sequence *sequence;         // NULL while it waits and after its end
    guide *guide;               // of its grammar; NULL: it has none, or after its end
    sequence_class class;
    int64_t overtaken;    // tickets that entered before it while it found no room
    int32_t tried_pages;  // pages that were free, and sequences open, when it last found no room
    int32_t tried_open;   // -1: it was not tried
    uint64_t tried_us;    // when that was
    uint64_t deadline_us; // 0: none
    job_times times;
    int32_t token_count, prompt_count;
    int32_t cached_tokens; // of the prompt, not computed here
    bool alone;            // no other job may be in the engine
    bool told_times;       // the first update was sent
    bool moving;           // decode: it goes on at another worker

    bool transfer;        // a send or a seat is open in the hand-off
    bool sends;           // it is a send
    bool stopping;        // it was cancelled or closed; its OVER event is due
    bool transfer_failed; // the hand-off gave it up
    bool recompute;       // decode: compute the prompt here when the seat is over
    bool seat_ready;      // send: the peer said where to begin
    bool sent_end;        // send: the record is on its way
    int32_t guess_slot;   // decode: where its next tokens are guessed; -1: nowhere
    int32_t next_token;   // prefill: drawn; -1: not yet
    int32_t next_page;    // send: the first that was not sent
    int32_t moved_from;   // moving: tokens that the target's ticket has
    int32_t moved_spare;  // moving: tokens that may follow before it rests
    int32_t held_count;   // pages held for the transfer
    int32_t *held;        // [pages of a sequence at most]
} job;

typedef struct job_table job_table;

// Room for `capacity` jobs of at most `pages` pages.
status job_table_open(int32_t capacity, int32_t pages, job_table **opened);
void job_table_close(job_table *t);
int32_t job_count(const job_table *t);
// Jobs in the order of their arrival: index 0..job_count-1. Removal moves the later ones up.
job *job_at(const job_table *t, int32_t index);
// NULL where there is none. `any_attempt` ignores key.attempt and finds a job that is not ending.
job *job_find(const job_table *t, const handoff_key *key, bool any_attempt);
// A zeroed job (but for `held`, and next_token, guess_slot and tried_open = -1); NULL where the
// table is full.
job *job_add(job_table *t, const handoff_key *key);
void job_remove(job_table *t, job *j);
// Note a ticket that came. True where it, or a later attempt of its request, came before: among the
// last few thousand, whatever became of it since.
bool job_came_before(job_table *t, const handoff_key *key);
// How many are in a state.
int32_t job_count_in(const job_table *t, job_state state);
