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

// Enqueue the draw of one token for each of `drawing`, from the row `round` behind its first.
static void draw(engine *e, int32_t count, int32_t round)
{
    for (int32_t i = 0; i < count; i++) {
        e->arrays.samples[i] = sampler_row(e->batch_sequences[e->drawing[i]]);
        e->arrays.samples[i].row = e->batch_logits[e->drawing[i]] + round;
    }
    if (count > 0)
        e->table->sample(e->queue, model_logits(e->model), e->arrays.samples, count,
                         e->arrays.results);
    e->table->queue_wait(e->queue, e->table->queue_submit(e->queue));
}

static uint64_t row_hash(engine *e, int32_t row)
{
    e->table->activation_read(e->queue, model_logits(e->model), row, 1, e->row);
    return hash64_of(e->row, (size_t)e->facts.vocabulary * sizeof e->row[0], 0);
}

// Take in the token that was drawn from row `row` of the logits.
static void token_collect(engine *e, sequence *s, int32_t row, const backend_sampled *sampled,
                          engine_token *token)
{
    *token = (engine_token){
        .sequence = s,
        .owner = s->owner,
        .output_index = s->token_count - s->prompt_count,
        .sampled = *sampled,
        .logits_hash = s->logits_hash ? row_hash(e, row) : 0,
        .finish = SEQUENCE_FAILED,
    };
    if (s->unscored)
        token->sampled.token = -1;
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

// What was drawn for each of `drawing`, of which those stay whose draft it confirms: the next row
// was computed from this very token, so its logits count. Returns how many stay.
static int32_t round_collect(engine *e, int32_t count, int32_t round, engine_report *report)
{
    int32_t stay = 0;
    for (int32_t i = 0; i < count; i++) {
        int32_t index = e->drawing[i];
        sequence *s = e->batch_sequences[index];
        const backend_sampled *sampled = &e->arrays.results[i];
        bool confirmed = round < s->drafted && sampled->token == s->tokens[s->token_count];
        if (round > 0)
            s->computed++;
        engine_token *token = &e->tokens[report->token_count++];
        token_collect(e, s, e->batch_logits[index] + round, sampled, token);
        token->later = round > 0;
        if (!confirmed)
            continue;
        s->accepted++;
        report->accepted_count++;
        if (s->state == SEQUENCE_DECODING)
            e->drawing[stay++] = index;
    }
    return stay;
}

// Rows of drafts count as computed only when the token that they were computed from was drawn.
static int32_t drawing_begin(engine *e, engine_report *report)
{
    int32_t count = 0;
    for (int32_t i = 0; i < e->batch.sequences; i++) {
        sequence *s = e->batch_sequences[i];
        s->drafted = s->draft_count;
        s->draft_count = s->accepted = 0;
        s->computed += e->batch_rows[i] - s->drafted;
        report->draft_rows += s->drafted;
        if (e->batch_logits[i] >= 0)
            e->drawing[count++] = i;
    }
    return count;
}

void engine_step(engine *e, engine_report *report)
{
    uint64_t begun_us = clock_now_us();
    *report = (engine_report){ .tokens = e->tokens, .preempted = e->preempted };
    if (!batch_compose(e, report))
        return;
    if (!e->table->step_begin(e->queue, &e->batch))
        model_forward(e->model, e->queue, &e->kv, &e->batch);
    e->table->step_end(e->queue);
    fault_logits(e);
    score_collect(e, report);
    int32_t count = drawing_begin(e, report);
    for (int32_t round = 0; round == 0 || count > 0; round++) {
        draw(e, count, round);
        count = round_collect(e, count, round, report);
    }
    report->duration_us = clock_now_us() - begun_us;
    e->prompt_rows += report->prefill_rows;
    // The rows of a draft share the cache that they read, so such a step tells little of what
    // reading it costs; what they cost themselves is learned where they are chosen.
    if (report->draft_rows == 0)
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
