// What a worker tells its routers about its jobs. Step thread. A job without a router is told to
// nobody.
#pragma once

#include "worker/job.h"

void report_refused(worker_router *router, const handoff_key *key, status code, const char *text);
void report_failed(const job *j, status code, const char *text);
void report_seat(const job *j, int32_t pages);
void report_handed_over(const job *j, uint64_t bytes);
// The answer to an order; `failure` NULL: it is accepted.
void report_order(worker_router *router, uint64_t id, const error *failure);

// The scores of a step, whose owners are jobs. Before its tokens are told.
void report_scores(const engine_report *report);

// Collects the tokens of a step and sends one message per router. Memory is taken once, for
// `tokens` of a step.
typedef struct report_batch report_batch;
status report_batch_open(int32_t tokens, report_batch **opened);
void report_batch_close(report_batch *b);
// A token of a job, in their order; at most `tokens` between two sends.
void report_batch_add(report_batch *b, job *j, const engine_token *token, bool handing_over);
void report_batch_send(report_batch *b);
