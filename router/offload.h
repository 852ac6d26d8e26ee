// A helper thread for work that would hold up the loop: large bodies to parse and tokenise.
//
// A job runs on the helper, in the order of submission, and its `done` on the loop afterwards. A
// job may touch only what it was given. Jobs that are never asked for again (the client left) still
// run and are done; there is no cancelling.
#pragma once

#include "net/http_loop.h"
#include "router/models.h"

typedef struct offload offload;

typedef struct offload_job {
    void (*work)(void *context, const model_encoders *e); // on the helper, with its encoders
    void (*done)(void *context);                          // on the loop
    void *context;
} offload_job;

status offload_open(http_loop *loop, const models *served, size_t jobs_max, offload **opened,
                    error *failure);
// Waits for the job at hand; jobs that were not begun are done without having worked.
void offload_close(offload *o); // NULL is allowed
// STATUS_FULL: `jobs_max` are waiting.
status offload_submit(offload *o, const offload_job *job);
