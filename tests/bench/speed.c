#include "speed.h"

#include "base/clock.h"
#include "model/model.h"
#include "workload.h"

#include <stdlib.h>

struct speed {
    speed_plan plan;
    engine *engine;
    double load_seconds;
    // What a row of a step multiplies: layers for every row, the head for rows with logits.
    double layer_weights, head_weights;
};

static double now_s(void)
{
    return (double)clock_now_us() * 1e-6;
}

// Steps of `batch` prompts of `length` tokens before all of them decode, at most.
static int decode_ramp(const speed_plan *p, int batch, int length)
{
    return (int)((int64_t)batch * length / p->engine.chunk_tokens) + batch + 2;
}

// Settings that hold the largest case, whose tokens are `length`.
static status plan_size(speed_plan *p, const model_config *c, int *length, error *failure)
{
    int decode = p->depth + p->generate + decode_ramp(p, p->batch, p->depth + 1) + 2;
    *length = p->depth + p->prompt + 2 > decode ? p->depth + p->prompt + 2 : decode;
    if (*length > c->context)
        return error_set(failure, STATUS_CONTEXT_LENGTH, "depth",
                         "depth and tokens make %d; the model's context is %d", *length,
                         c->context);
    p->engine.kv_bytes =
        workload_pool_bytes(&p->engine, c->layers, c->kv_heads, c->head_size, p->batch, *length);
    p->engine.context = *length;
    p->engine.max_sequences = p->batch;
    p->engine.step_tokens = p->batch > p->engine.chunk_tokens ? p->batch : p->engine.chunk_tokens;
    return STATUS_OK;
}

status speed_open(const speed_plan *plan, speed **opened, error *failure)
{
    speed *s = calloc(1, sizeof *s);
    gguf *file = NULL;
    model_config c;
    int length;
    status result;
    CHECK(s);
    s->plan = *plan;
    TRY(gguf_open(plan->engine.model, &file, failure));
    TRY(model_config_read(file, &c, failure));
    TRY(plan_size(&s->plan, &c, &length, failure));
    double begun = now_s();
    TRY(engine_open(&s->plan.engine, &s->engine, failure));
    s->load_seconds = now_s() - begun;
    double q = (double)c.heads * c.head_size, kv = (double)c.kv_heads * c.head_size;
    s->layer_weights = c.layers * (double)c.width * (2 * q + 2 * kv + 3.0 * c.feed_forward);
    s->head_weights = (double)c.rows * c.width;
    *opened = s;
fail:
    if (file)
        gguf_close(file);
    if (result != STATUS_OK)
        speed_close(s);
    return result;
}

void speed_close(speed *s)
{
    if (!s)
        return;
    engine_close(s->engine);
    free(s);
}

const engine *speed_engine(const speed *s)
{
    return s->engine;
}

double speed_load_seconds(const speed *s)
{
    return s->load_seconds;
}

// The tokens before are left in the prefix cache by a first sequence.
speed_result speed_prefill(speed *s, int depth)
{
    engine_report report;
    speed_result m = { .logit_rows = 1 };
    engine_prefixes_drop(s->engine);
    if (depth > 0) {
        sequence *before = workload_begin(s->engine, 0, depth + 1, 1, SEQUENCE_PROMPT, NULL);
        while (engine_has_work(s->engine))
            engine_step(s->engine, &report);
        engine_sequence_close(s->engine, before, true);
    }
    sequence *own = workload_begin(s->engine, 0, depth + s->plan.prompt, 1, SEQUENCE_PROMPT, NULL);
    m.tokens = depth + s->plan.prompt - sequence_computed(own);
    double begun = now_s();
    while (engine_has_work(s->engine)) {
        engine_step(s->engine, &report);
        m.weight_passes++;
        m.kv_tokens += sequence_computed(own);
    }
    m.seconds = now_s() - begun;
    engine_sequence_close(s->engine, own, false);
    return m;
}

speed_result speed_decode(speed *s, int batch, int depth)
{
    engine_report report;
    speed_result m = { 0 };
    sequence **all = calloc((size_t)batch, sizeof *all);
    int length = depth > 0 ? depth : 1, generate = s->plan.generate;
    CHECK(all);
    engine_prefixes_drop(s->engine);
    for (int i = 0; i < batch; i++)
        all[i] =
            workload_begin(s->engine, i, length, generate + decode_ramp(&s->plan, batch, length),
                           SEQUENCE_GENERATE, NULL);
    do
        engine_step(s->engine, &report);
    while (report.token_count < batch);
    double begun = now_s();
    for (int step = 0; step < generate; step++) {
        engine_step(s->engine, &report);
        CHECK(report.decode_rows == batch && report.rows == batch);
        m.weight_passes++;
        m.tokens += report.token_count;
        for (int i = 0; i < batch; i++)
            m.kv_tokens += sequence_computed(all[i]);
    }
    m.seconds = now_s() - begun;
    m.logit_rows = m.tokens;
    for (int i = 0; i < batch; i++)
        engine_sequence_close(s->engine, all[i], false);
    free(all);
    return m;
}

static int seconds_compare(const void *a, const void *b)
{
    const speed_result *x = a, *y = b;
    return (x->seconds > y->seconds) - (x->seconds < y->seconds);
}

speed_result speed_median(speed *s, int batch, int depth, int repeats)
{
    speed_result all[SPEED_REPEATS_MAX];
    CHECK(repeats >= 1 && repeats <= SPEED_REPEATS_MAX);
    for (int i = 0; i < repeats; i++)
        all[i] = batch == 0 ? speed_prefill(s, depth) : speed_decode(s, batch, depth);
    qsort(all, (size_t)repeats, sizeof all[0], seconds_compare);
    return all[repeats / 2];
}

double speed_bytes(const speed *s, const speed_result *result)
{
    const engine_facts *f = engine_facts_of(s->engine);
    double kv_token = (double)f->layout.page_bytes / f->layout.page_tokens;
    return result->weight_passes * (double)f->weight_bytes + result->kv_tokens * kv_token;
}

double speed_operations(const speed *s, const speed_result *result)
{
    return 2 * (result->tokens * s->layer_weights + result->logit_rows * s->head_weights);
}
