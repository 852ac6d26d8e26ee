#include "fake_worker.h"

#include "base/clock.h"
#include "base/hash.h"

#include <math.h>
#include <stdlib.h>
#include <unistd.h>

static int32_t fake_token(const fake_worker *w, const fake_sequence *s, int64_t index)
{
    if (w->settings.answer_tokens > 0 && !s->ignore_eos && index + 1 >= w->settings.answer_tokens)
        return w->settings.eos;
    return s->tokens[(size_t)index % s->prompt_count];
}

static void request_id_fill(Penstock__RequestId *id, const fake_sequence *s)
{
    penstock__request_id__init(id);
    id->router = s->router;
    id->number = s->number;
}

static void sequence_end(fake_worker *w, fake_sequence *s)
{
    fake_sequence **link = &w->sequences;
    while (*link != s)
        link = &(*link)->next;
    *link = s->next;
    w->pages_held -= s->pages;
    w->running--;
    free(s->tokens);
    free(s);
}

static void refuse(fake_worker *w, const message_ticket *t)
{
    Penstock__Refused refused = PENSTOCK__REFUSED__INIT;
    Penstock__ToRouter m = PENSTOCK__TO_ROUTER__INIT;
    refused.request = t->request;
    refused.attempt = t->attempt;
    refused.code = STATUS_OVERLOADED;
    refused.text = (char *)"no pages";
    m.body_case = PENSTOCK__TO_ROUTER__BODY_REFUSED;
    m.refused = &refused;
    fake_send(w, &m);
}

void fake_ticket(fake_worker *w, const message_ticket *t)
{
    uint64_t pages = (t->n_tokens + w->settings.page_tokens - 1) / w->settings.page_tokens + 1;
    uint64_t now = clock_now_us();
    if (w->settings.die)
        _exit(0);
    if (w->tickets++ < w->settings.refuse || w->pages_held + pages > w->settings.pages ||
        w->running >= w->settings.sequences) {
        refuse(w, t);
        return;
    }
    fake_sequence *s = calloc(1, sizeof *s);
    s->router = t->request->router;
    s->number = t->request->number;
    s->attempt = t->attempt;
    s->count = t->n_tokens;
    s->prompt_count = t->prompt_count;
    s->tokens = malloc(t->n_tokens * sizeof *s->tokens);
    memcpy(s->tokens, t->tokens, t->n_tokens * sizeof *s->tokens);
    s->made = (int64_t)(t->n_tokens - t->prompt_count);
    s->max_tokens = t->max_tokens;
    s->ignore_eos = t->ignore_eos;
    s->hash = t->logits_hash;
    s->top = t->sampling->top_logprobs;
    s->pages = pages;
    s->faulty = w->tickets == 1;
    s->received_us = s->begun_us = now;
    s->due_us = now + (uint64_t)w->settings.prefill_ms * 1000;
    if (w->settings.decode && t->prefill) {
        s->made++; // the prefill worker reports the first one
        s->begun_us = 0;
        s->due_us += (uint64_t)w->settings.handover_ms * 1000;
    }
    w->pages_held += pages;
    w->running++;
    w->prompt_tokens += t->n_tokens;
    s->next = w->sequences;
    w->sequences = s;
}

void fake_cancel(fake_worker *w, const Penstock__Cancel *c)
{
    fake_sequence *next;
    for (fake_sequence *s = w->sequences; s; s = next) {
        next = s->next;
        if (s->router == c->request->router && s->number == c->request->number &&
            s->attempt == c->attempt)
            sequence_end(w, s);
    }
}

static void report_failed(fake_worker *w, fake_sequence *s)
{
    Penstock__RequestId id;
    Penstock__Failed failed = PENSTOCK__FAILED__INIT;
    Penstock__ToRouter m = PENSTOCK__TO_ROUTER__INIT;
    request_id_fill(&id, s);
    failed.request = &id;
    failed.attempt = s->attempt;
    failed.code = STATUS_INTERNAL;
    failed.text = (char *)"asked to fail";
    m.body_case = PENSTOCK__TO_ROUTER__BODY_FAILED;
    m.failed = &failed;
    fake_send(w, &m);
}

static void report_handed_over(fake_worker *w, fake_sequence *s)
{
    Penstock__RequestId id;
    Penstock__HandedOver over = PENSTOCK__HANDED_OVER__INIT;
    Penstock__ToRouter m = PENSTOCK__TO_ROUTER__INIT;
    request_id_fill(&id, s);
    over.request = &id;
    over.attempt = s->attempt;
    over.bytes = s->pages * 4096;
    m.body_case = PENSTOCK__TO_ROUTER__BODY_HANDED_OVER;
    m.handed_over = &over;
    fake_send(w, &m);
}

// One token, as a batch of one update. Returns whether it was the last.
static bool report_token(fake_worker *w, fake_sequence *s)
{
    Penstock__RequestId id;
    Penstock__WorkerTimes times = PENSTOCK__WORKER_TIMES__INIT;
    Penstock__Token token = PENSTOCK__TOKEN__INIT;
    Penstock__TokenUpdate update = PENSTOCK__TOKEN_UPDATE__INIT;
    Penstock__TokenBatch batch = PENSTOCK__TOKEN_BATCH__INIT;
    Penstock__ToRouter m = PENSTOCK__TO_ROUTER__INIT;
    Penstock__Token *tokens[] = { &token };
    Penstock__TokenUpdate *updates[] = { &update, &update };
    int32_t top_ids[32];
    float top_logprobs[32];
    int64_t index = s->made++;
    uint64_t now = clock_now_us();
    request_id_fill(&id, s);
    token.id = fake_token(w, s, index);
    token.logprob = -0.25f * (float)(index + 1);
    token.logits_hash = s->hash ? hash64_of(&token.id, sizeof token.id, (uint64_t)index) : 0;
    for (uint32_t k = 0; k < s->top && k < 32; k++) {
        top_ids[k] = (token.id + (int32_t)k) % (int32_t)w->settings.vocabulary;
        top_logprobs[k] = k + 1 == s->top && k > 0 ? -INFINITY : -0.25f * (float)(k + 1);
    }
    token.n_top_ids = token.n_top_logprobs = s->top < 32 ? s->top : 32;
    token.top_ids = top_ids;
    token.top_logprobs = top_logprobs;
    update.request = &id;
    update.attempt = s->attempt;
    update.first_index = (uint32_t)index;
    update.n_tokens = 1;
    update.tokens = tokens;
    update.cached_tokens = w->settings.page_tokens < s->prompt_count ? w->settings.page_tokens : 0;
    bool ends =
        w->settings.answer_tokens > 0 && !s->ignore_eos && index + 1 >= w->settings.answer_tokens;
    if (w->settings.nan_after && index + 1 > w->settings.nan_after)
        update.finish = PENSTOCK__FINISH__FINISH_FAILED;
    else if (ends)
        update.finish = PENSTOCK__FINISH__FINISH_STOP;
    else if (s->made >= s->max_tokens)
        update.finish = PENSTOCK__FINISH__FINISH_LENGTH;
    update.handing_over = !w->settings.decode && update.finish == PENSTOCK__FINISH__FINISH_NONE;
    times.received = s->received_us;
    if (s->begun_us) {
        times.prefill_begun = s->begun_us;
        times.prefill_done = s->done_us ? s->done_us : (s->done_us = now);
    }
    if (w->settings.decode)
        times.first_step = now;
    update.times = &times;
    batch.n_updates = w->settings.repeat ? 2 : 1;
    batch.updates = updates;
    m.body_case = PENSTOCK__TO_ROUTER__BODY_TOKENS;
    m.tokens = &batch;
    fake_send(w, &m);
    w->tokens_made++;
    return update.finish != PENSTOCK__FINISH__FINISH_NONE;
}

// What is due for one sequence.
static void sequence_step(fake_worker *w, fake_sequence *s, uint64_t now)
{
    const fake_settings *f = &w->settings;
    if (s->handing_over) {
        report_handed_over(w, s);
        sequence_end(w, s);
        return;
    }
    if (s->made >= s->max_tokens) { // the prefill worker made the only one
        sequence_end(w, s);
        return;
    }
    if (s->faulty && f->fail_after && s->made >= f->fail_after) {
        report_failed(w, s);
        sequence_end(w, s);
        return;
    }
    if (s->faulty && f->gap_after && s->made == f->gap_after)
        s->made++;
    if (report_token(w, s)) {
        sequence_end(w, s);
    } else if (!f->decode) {
        s->handing_over = true;
        s->due_us = now + (uint64_t)f->handover_ms * 1000;
    } else {
        s->due_us = now + (uint64_t)f->step_ms * 1000;
    }
}

uint64_t fake_step(fake_worker *w, uint64_t now)
{
    uint64_t due = UINT64_MAX;
    fake_sequence *next;
    for (fake_sequence *s = w->sequences; s; s = next) {
        next = s->next;
        if (s->due_us <= now)
            sequence_step(w, s, now);
    }
    w->steps++;
    for (fake_sequence *s = w->sequences; s; s = s->next)
        due = s->due_us < due ? s->due_us : due;
    return due;
}
