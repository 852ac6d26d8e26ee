#include "worker/report.h"

#include <stdlib.h>

static Penstock__RequestId request_id(const handoff_key *key)
{
    Penstock__RequestId id = PENSTOCK__REQUEST_ID__INIT;
    id.router = key->router;
    id.number = key->number;
    return id;
}

static Penstock__WorkerTimes times_of(const job *j)
{
    Penstock__WorkerTimes times = PENSTOCK__WORKER_TIMES__INIT;
    times.received = j->times.received;
    times.prefill_begun = j->times.prefill_begun;
    times.prefill_done = j->times.prefill_done;
    times.first_page = j->times.first_page;
    times.last_page = j->times.last_page;
    times.first_step = j->times.first_step;
    times.finished = j->times.finished;
    return times;
}

void report_refused(worker_router *router, const handoff_key *key, status code, const char *text)
{
    if (router == NULL)
        return;
    Penstock__RequestId id = request_id(key);
    Penstock__Refused refused = PENSTOCK__REFUSED__INIT;
    refused.request = &id;
    refused.attempt = key->attempt;
    refused.code = code;
    refused.text = (char *)text;
    message_to_router message = PENSTOCK__TO_ROUTER__INIT;
    message.body_case = PENSTOCK__TO_ROUTER__BODY_REFUSED;
    message.refused = &refused;
    worker_send(router, &message);
}

void report_failed(const job *j, status code, const char *text)
{
    if (j->router == NULL)
        return;
    Penstock__RequestId id = request_id(&j->key);
    Penstock__Failed failed = PENSTOCK__FAILED__INIT;
    failed.request = &id;
    failed.attempt = j->key.attempt;
    failed.code = code;
    failed.text = (char *)text;
    message_to_router message = PENSTOCK__TO_ROUTER__INIT;
    message.body_case = PENSTOCK__TO_ROUTER__BODY_FAILED;
    message.failed = &failed;
    worker_send(j->router, &message);
}

void report_seat(const job *j, int32_t pages)
{
    if (j->router == NULL)
        return;
    Penstock__RequestId id = request_id(&j->key);
    Penstock__SeatReport seat = PENSTOCK__SEAT_REPORT__INIT;
    seat.request = &id;
    seat.attempt = j->key.attempt;
    seat.cached_tokens = (uint32_t)j->cached_tokens;
    seat.pages = (uint32_t)pages;
    message_to_router message = PENSTOCK__TO_ROUTER__INIT;
    message.body_case = PENSTOCK__TO_ROUTER__BODY_SEAT;
    message.seat = &seat;
    worker_send(j->router, &message);
}

void report_handed_over(const job *j, uint64_t bytes)
{
    if (j->router == NULL)
        return;
    Penstock__RequestId id = request_id(&j->key);
    Penstock__WorkerTimes times = times_of(j);
    Penstock__HandedOver over = PENSTOCK__HANDED_OVER__INIT;
    over.request = &id;
    over.attempt = j->key.attempt;
    over.bytes = bytes;
    over.times = &times;
    message_to_router message = PENSTOCK__TO_ROUTER__INIT;
    message.body_case = PENSTOCK__TO_ROUTER__BODY_HANDED_OVER;
    message.handed_over = &over;
    worker_send(j->router, &message);
}

void report_order(worker_router *router, uint64_t id, const error *failure)
{
    Penstock__OrderAnswer answer = PENSTOCK__ORDER_ANSWER__INIT;
    answer.id = id;
    answer.accepted = failure == NULL;
    answer.reason = (char *)(failure != NULL ? failure->text : "");
    message_to_router message = PENSTOCK__TO_ROUTER__INIT;
    message.body_case = PENSTOCK__TO_ROUTER__BODY_ORDER_ANSWER;
    message.order_answer = &answer;
    worker_send(router, &message);
}

// ---- tokens ------------------------------------------------------------------------------------

typedef struct row {
    worker_router *router; // NULL: sent
    Penstock__TokenUpdate update;
    Penstock__RequestId id;
    Penstock__WorkerTimes times;
    Penstock__Token token;
    Penstock__Token *tokens[1];
    int32_t top_ids[BACKEND_TOP_MAX];
    float top_logprobs[BACKEND_TOP_MAX];
} row;

struct report_batch {
    int32_t capacity, count;
    row *rows;                       // [capacity]
    Penstock__TokenUpdate **updates; // [capacity]
};

status report_batch_open(int32_t sequences, report_batch **opened)
{
    report_batch *b = calloc(1, sizeof(*b));
    if (b == NULL)
        return STATUS_NO_MEMORY;
    b->capacity = sequences;
    b->rows = calloc((size_t)sequences, sizeof(b->rows[0]));
    b->updates = calloc((size_t)sequences, sizeof(b->updates[0]));
    if (b->rows == NULL || b->updates == NULL) {
        report_batch_close(b);
        return STATUS_NO_MEMORY;
    }
    *opened = b;
    return STATUS_OK;
}

void report_batch_close(report_batch *b)
{
    if (b == NULL)
        return;
    free(b->rows);
    free(b->updates);
    free(b);
}

static Penstock__Finish finish_of(sequence_finish finish)
{
    switch (finish) {
    case SEQUENCE_UNFINISHED:
        return PENSTOCK__FINISH__FINISH_NONE;
    case SEQUENCE_STOP:
        return PENSTOCK__FINISH__FINISH_STOP;
    case SEQUENCE_LENGTH:
        return PENSTOCK__FINISH__FINISH_LENGTH;
    case SEQUENCE_FAILED:
        break;
    }
    return PENSTOCK__FINISH__FINISH_FAILED;
}

static void token_fill(row *r, const engine_token *from)
{
    const backend_sampled *sampled = &from->sampled;
    penstock__token__init(&r->token);
    r->token.id = sampled->token;
    r->token.logprob = sampled->logprob;
    r->token.logits_hash = from->logits_hash;
    size_t count = 0;
    while (count < BACKEND_TOP_MAX && sampled->top_tokens[count] >= 0) {
        r->top_ids[count] = sampled->top_tokens[count];
        r->top_logprobs[count] = sampled->top_logprobs[count];
        count++;
    }
    r->token.n_top_ids = r->token.n_top_logprobs = count;
    r->token.top_ids = r->top_ids;
    r->token.top_logprobs = r->top_logprobs;
    r->tokens[0] = &r->token;
    r->update.tokens = r->tokens;
    r->update.n_tokens = 1;
}

void report_batch_add(report_batch *b, job *j, const engine_token *token, bool handing_over)
{
    if (j->router == NULL)
        return;
    CHECK(b->count < b->capacity);
    row *r = &b->rows[b->count++];
    r->router = j->router;
    r->id = request_id(&j->key);
    penstock__token_update__init(&r->update);
    r->update.request = &r->id;
    r->update.attempt = j->key.attempt;
    r->update.first_index = (uint32_t)token->output_index;
    r->update.finish = finish_of(token->finish);
    r->update.cached_tokens = (uint32_t)j->cached_tokens;
    r->update.handing_over = handing_over;
    if (!j->told_times || token->finish != SEQUENCE_UNFINISHED) {
        r->times = times_of(j);
        r->update.times = &r->times;
        j->told_times = true;
    }
    if (token->finish != SEQUENCE_FAILED) // no token was drawn
        token_fill(r, token);
}

void report_batch_send(report_batch *b)
{
    for (int32_t i = 0; i < b->count; i++) {
        worker_router *router = b->rows[i].router;
        if (router == NULL)
            continue;
        Penstock__TokenBatch batch = PENSTOCK__TOKEN_BATCH__INIT;
        batch.updates = b->updates;
        for (int32_t k = i; k < b->count; k++) {
            if (b->rows[k].router != router)
                continue;
            b->updates[batch.n_updates++] = &b->rows[k].update;
            b->rows[k].router = NULL;
        }
        message_to_router message = PENSTOCK__TO_ROUTER__INIT;
        message.body_case = PENSTOCK__TO_ROUTER__BODY_TOKENS;
        message.tokens = &batch;
        worker_send(router, &message);
    }
    b->count = 0;
}
