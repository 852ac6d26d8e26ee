#include "model/engine_parts.h"

#include "base/clock.h"
#include "base/fault.h"

#include <math.h>

// The fault point logits.nan: the first row of logits becomes NaN, as a broken
// weight would make it.
static void fault_logits(engine *e)
{
    const model_config *c = model_config_of(e->model);
    if (e->batch.logit_rows == 0 || !fault_fires(FAULT_LOGITS_NAN))
        return;
    for (int32_t i = 0; i < c->rows; i++)
        e->row[i] = NAN;
    e->table->activation_write(e->queue, model_logits(e->model), 0, 1, e->row);
}

static void step_run(engine *e)
{
    const backend_table *t = e->table;
    int32_t count = e->batch.logit_rows;
    if (!t->step_begin(e->queue, &e->batch))
        model_forward(e->model, e->queue, &e->kv, &e->batch);
    t->step_end(e->queue);
    fault_logits(e);
    for (int32_t i = 0; i < count; i++)
        e->arrays.samples[i] = sampler_row(e->logit_sequences[i]);
    if (count > 0)
        t->sample(e->queue, model_logits(e->model), e->arrays.samples, count, e->arrays.results);
    t->queue_wait(e->queue, t->queue_submit(e->queue));
}

static uint64_t row_hash(engine *e, int32_t row)
{
    e->table->activation_read(e->queue, model_logits(e->model), row, 1, e->row);
    return hash64_of(e->row, (size_t)e->facts.vocabulary * sizeof e->row[0], 0);
}

// Take in the token that row `row` of the logits gave its sequence.
static void token_collect(engine *e, int32_t row, engine_token *token)
{
    sequence *s = e->logit_sequences[row];
    *token = (engine_token){
        .sequence = s,
        .owner = s->owner,
        .output_index = s->token_count - s->prompt_count,
        .sampled = e->arrays.results[row],
        .logits_hash = s->logits_hash ? row_hash(e, row) : 0,
        .finish = SEQUENCE_FAILED,
    };
    if (token->sampled.token >= 0) {
        sequence_publish(e, s);
        token->finish = sampler_finish_of(e, s, token->sampled.token);
        sampler_add(e, s, token->sampled.token);
    }
    if (token->finish != SEQUENCE_UNFINISHED || s->mode == SEQUENCE_PROMPT) {
        sequence_leave(e, s);
        s->state = SEQUENCE_RESTING;
    } else {
        s->state = SEQUENCE_DECODING;
    }
}

void engine_step(engine *e, engine_report *report)
{
    uint64_t begun_us = clock_now_us();
    *report = (engine_report){ .tokens = e->tokens, .preempted = e->preempted };
    if (!batch_compose(e, report))
        return;
    step_run(e);
    for (int32_t i = 0; i < e->batch.sequences; i++)
        e->batch_sequences[i]->computed += e->batch_rows[i];
    for (int32_t i = 0; i < e->batch.logit_rows; i++)
        token_collect(e, i, &e->tokens[report->token_count++]);
    report->duration_us = clock_now_us() - begun_us;
    e->prompt_rows += report->prefill_rows;
    cost_learn(&e->cost, &e->work, (double)report->duration_us);
}

bool engine_has_work(const engine *e)
{
    return e->running_count > 0;
}

const engine_facts *engine_facts_of(const engine *e)
{
    return &e->facts;
}

int32_t engine_pages_free(const engine *e)
{
    return kv_pool_free(e->pool) + kv_pool_cached(e->pool);
}

int32_t engine_pages_held(const engine *e)
{
    return kv_pool_held(e->pool);
}

uint64_t engine_pages_evicted(const engine *e)
{
    return kv_pool_evicted(e->pool);
}

int32_t engine_sequences_open(const engine *e)
{
    return e->open_count;
}

int32_t engine_pages_needed(const engine *e, int32_t token_count)
{
    return token_count / e->kv.layout.page_tokens + 1;
}

void engine_page_hold(engine *e, int32_t page)
{
    kv_pool_hold(e->pool, page);
}

void engine_page_release(engine *e, int32_t page)
{
    kv_pool_release(e->pool, page);
}

void *engine_page_data(const engine *e, int32_t page)
{
    CHECK(page >= 0 && page < e->kv.pages);
    return (char *)e->kv.memory.data + (size_t)page * (size_t)e->kv.layout.page_bytes;
}

void engine_pool_memory(const engine *e, void **data, size_t *size)
{
    *data = e->kv.memory.data;
    *size = e->kv.memory.size;
}

void engine_prefixes_drop(engine *e)
{
    if (e->reuse)
        kv_reuse_drop(e->reuse);
}
