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

typedef struct token_row {
    int32_t next; // of the same sequence; -1: none
    Penstock__Token token;
    int32_t top_ids[BACKEND_TOP_MAX];
    float top_logprobs[BACKEND_TOP_MAX];
} token_row;

static void token_fill(token_row *t, const backend_sampled *sampled)
{
    size_t count = 0;
    t->next = -1;
    penstock__token__init(&t->token);
    t->token.id = sampled->token;
    t->token.logprob = sampled->logprob;
    while (count < BACKEND_TOP_MAX && sampled->top_tokens[count] >= 0) {
        t->top_ids[count] = sampled->top_tokens[count];
        t->top_logprobs[count] = sampled->top_logprobs[count];
        count++;
    }
    t->token.n_top_ids = t->token.n_top_logprobs = count;
    t->token.top_ids = t->top_ids;
    t->token.top_logprobs = t->top_logprobs;
}

#define SCORES_TOLD 32 // in one message

static void scores_send(const engine_score *scores, size_t count)
{
    const job *j = scores[0].owner;
    token_row rows[SCORES_TOLD];
    Penstock__Token *list[SCORES_TOLD];
    Penstock__PromptScores told = PENSTOCK__PROMPT_SCORES__INIT;
    Penstock__RequestId id = request_id(&j->key);
    message_to_router message = PENSTOCK__TO_ROUTER__INIT;
    if (j->router == NULL)
        return;
    for (size_t i = 0; i < count; i++) {
        token_fill(&rows[i], &scores[i].sampled);
        list[i] = &rows[i].token;
    }
    told.request = &id;
    told.attempt = j->key.attempt;
    told.first_position = (uint32_t)scores[0].position;
    told.n_tokens = count;
    told.tokens = list;
    message.body_case = PENSTOCK__TO_ROUTER__BODY_SCORES;
    message.scores = &told;
    worker_send(j->router, &message);
}

void report_scores(const engine_report *report)
{
    int32_t count = 0;
    for (int32_t i = 0; i < report->score_count; i += count) {
        const engine_score *first = &report->scores[i];
        count = 1;
        while (count < SCORES_TOLD && i + count < report->score_count &&
               first[count].owner == first->owner)
            count++;
        scores_send(first, (size_t)count);
    }
}

typedef struct row {
    worker_router *router; // NULL: sent
    const job *job;
    int32_t first, last; // of tokens; -1: none
    Penstock__TokenUpdate update;
    Penstock__RequestId id;
    Penstock__WorkerTimes times;
} row;

struct report_batch {
    int32_t capacity, count, token_count;
    row *rows;                       // [capacity] one for each sequence
    token_row *tokens;               // [capacity]
    Penstock__Token **lists;         // [capacity] tokens of each row side by side
    Penstock__TokenUpdate **updates; // [capacity]
};

status report_batch_open(int32_t tokens, report_batch **opened)
{
    report_batch *b = calloc(1, sizeof(*b));
    if (b == NULL)
        return STATUS_NO_MEMORY;
    b->capacity = tokens;
    b->rows = calloc((size_t)tokens, sizeof(b->rows[0]));
    b->tokens = calloc((size_t)tokens, sizeof(b->tokens[0]));
    b->lists = calloc((size_t)tokens, sizeof(b->lists[0]));
    b->updates = calloc((size_t)tokens, sizeof(b->updates[0]));
    if (b->rows == NULL || b->tokens == NULL || b->lists == NULL || b->updates == NULL) {
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
    free(b->tokens);
    free(b->lists);
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

static void token_add(report_batch *b, row *r, const engine_token *from)
{
    CHECK(b->token_count < b->capacity);
    int32_t index = b->token_count++;
    token_row *t = &b->tokens[index];
    token_fill(t, &from->sampled);
    t->token.logits_hash = from->logits_hash;
    if (r->first < 0)
        r->first = index;
    else
        b->tokens[r->last].next = index;
    r->last = index;
    r->update.n_tokens++;
}

// The row of a job in this batch; a new one where it has none.
static row *row_of(report_batch *b, const job *j, const engine_token *token)
{
    for (int32_t i = b->count - 1; token->later && i >= 0; i--)
        if (b->rows[i].job == j)
            return &b->rows[i];
    CHECK(b->count < b->capacity);
    row *r = &b->rows[b->count++];
    r->router = j->router;
    r->job = j;
    r->first = r->last = -1;
    r->id = request_id(&j->key);
    penstock__token_update__init(&r->update);
    r->update.request = &r->id;
    r->update.attempt = j->key.attempt;
    r->update.first_index = (uint32_t)token->output_index;
    int32_t drafted, accepted;
    sequence_drafted(token->sequence, &drafted, &accepted);
    r->update.right_guesses = (uint32_t)accepted;
    r->update.wrong_guesses = (uint32_t)(drafted - accepted);
    return r;
}

void report_batch_add(report_batch *b, job *j, const engine_token *token, bool handing_over)
{
    if (j->router == NULL)
        return;
    row *r = row_of(b, j, token);
    r->update.finish = finish_of(token->finish);
    r->update.cached_tokens = (uint32_t)j->cached_tokens;
    r->update.handing_over = handing_over;
    if (!j->told_times || token->finish != SEQUENCE_UNFINISHED) {
        r->times = times_of(j);
        r->update.times = &r->times;
        j->told_times = true;
    }
    if (token->finish != SEQUENCE_FAILED) // no token was drawn
        token_add(b, r, token);
}

// Lay the tokens of every row side by side, as messages want them.
static void lists_fill(report_batch *b)
{
    int32_t used = 0;
    for (int32_t i = 0; i < b->count; i++) {
        row *r = &b->rows[i];
        r->update.tokens = b->lists + used;
        for (int32_t t = r->first; t >= 0; t = b->tokens[t].next)
            b->lists[used++] = &b->tokens[t].token;
    }
}

void report_batch_send(report_batch *b)
{
    lists_fill(b);
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
    b->count = b->token_count = 0;
}
