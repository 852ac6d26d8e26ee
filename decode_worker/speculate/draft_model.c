#include "decode_worker/speculate/draft_model.h"

#include "base/clock.h"
#include "base/fault.h"
#include "base/log.h"
#include "checkpoint/gguf.h"

#include <stdlib.h>
#include <string.h>

// A guess that takes longer than so many times what it usually does, what shadows have to catch up
// with included, and so much beyond that, ends with the tokens that it has: nobody's answer waits
// for it.
#define STALL_TIMES 4
#define STALL_US 10000
#define PROMPT_MEMORY 1024 // tokens of prompts that what one takes is the mean of

typedef enum shadow_state { SHADOW_NONE, SHADOW_PROMPT, SHADOW_READY } shadow_state;

typedef struct shadow {
    shadow_state state;
    sequence *sequence;
    uint64_t number;        // of its begin: prompts are computed in this order
    draft_request *request; // of the guess under way; NULL: it rests
} shadow;

struct draft_model {
    engine *engine;
    int32_t slot_count, chunk_tokens;
    shadow *shadows; // [slot_count]
    uint64_t begun;
    draft_model_troubles troubles;
    cost_curve cost;       // of a step by its sequences
    double prompt_us;      // of a token of a prompt; 0: not known yet
    int32_t prompt_tokens; // that stand behind it, at most PROMPT_MEMORY
};

// ---- opening ----------------------------------------------------------------------------------

// Equal ids must mean equal texts; one file may have more of them (padding), which are never drawn
// by the other.
static status vocabularies_compare(const char *target_path, const char *path, error *failure)
{
    static const char key[] = "tokenizer.ggml.tokens";
    gguf *files[2] = { NULL };
    gguf_array texts[2];
    const char *paths[2] = { target_path, path };
    status result = STATUS_OK;
    for (int i = 0; i < 2; i++) {
        TRY(gguf_open(paths[i], &files[i], failure));
        TRY(gguf_get_array(files[i], key, GGUF_STRING, &texts[i], failure));
    }
    uint64_t count = texts[0].count < texts[1].count ? texts[0].count : texts[1].count;
    for (uint64_t i = 0; i < count; i++) {
        slice a = gguf_array_take_string(&texts[0]), b = gguf_array_take_string(&texts[1]);
        if (!slice_equal(a, b))
            TRY(error_set(
                failure, STATUS_BAD_CONFIG, "speculate.model",
                "speculate.model %s has another vocabulary: its token %llu is \"%.*s\" and "
                "the served model's is \"%.*s\"",
                path, (unsigned long long)i, (int)(b.size < 40 ? b.size : 40), b.data,
                (int)(a.size < 40 ? a.size : 40), a.data));
    }
fail:
    for (int i = 0; i < 2; i++)
        if (files[i])
            gguf_close(files[i]);
    return result;
}

status draft_model_open(const engine_settings *settings, const char *path, const engine *served,
                        draft_model **opened, error *failure)
{
    const engine_facts *target = engine_facts_of(served);
    engine_settings own = *settings;
    status result = STATUS_NO_MEMORY;
    draft_model *m = calloc(1, sizeof *m);
    if (!m)
        return error_set(failure, result, "", "memory is short for the draft model");
    own.max_sequences = target->max_sequences;
    own.rewinds = true;
    own.beside = served;
    if (own.layers > 0)
        own.context = target->context;
    own.draft_tokens = own.score_tokens = own.growth_tokens = own.mixed_tokens = own.mixed_step_us =
        0;
    if (own.step_tokens < own.max_sequences)
        own.step_tokens = own.max_sequences;
    m->slot_count = target->max_sequences;
    m->chunk_tokens = (int32_t)own.chunk_tokens;
    m->shadows = calloc((size_t)m->slot_count, sizeof m->shadows[0]);
    if (!m->shadows) {
        error_set(failure, result, "", "memory is short for the draft model");
        goto fail;
    }
    if (own.layers == 0)
        TRY(vocabularies_compare(path, settings->model, failure));
    TRY(engine_open(&own, &m->engine, failure));
    const engine_facts *f = engine_facts_of(m->engine);
    log_info("speculate", "loaded draft model %s pages %d context %d bytes %zu of %zu",
             f->model_name, f->pages, f->context, f->weight_bytes, target->weight_bytes);
    *opened = m;
    return STATUS_OK;
fail:
    draft_model_close(m);
    return result;
}

void draft_model_close(draft_model *m)
{
    if (!m)
        return;
    for (int32_t i = 0; m->engine && i < m->slot_count; i++)
        draft_model_end(m, i);
    engine_close(m->engine);
    free(m->shadows);
    free(m);
}

const engine_facts *draft_model_facts(const draft_model *m)
{
    return engine_facts_of(m->engine);
}

// ---- shadows ----------------------------------------------------------------------------------

void draft_model_begin(draft_model *m, int32_t slot, const sequence_request *request)
{
    shadow *s = &m->shadows[slot];
    sequence_request own = *request;
    own.mode = SEQUENCE_GENERATE;
    own.max_tokens = engine_facts_of(m->engine)->context;
    own.spare_tokens = 0;
    own.logits_hash = own.scores = false;
    own.sampling.top_count = 0;
    own.owner = s;
    *s = (shadow){ .number = ++m->begun };
    if (engine_sequence_open(m->engine, &own, &s->sequence, NULL) != STATUS_OK) {
        m->troubles.pages++;
        return;
    }
    engine_sequence_start(m->engine, s->sequence);
    engine_sequence_rest(m->engine, s->sequence);
    s->state = SHADOW_PROMPT;
}

void draft_model_end(draft_model *m, int32_t slot)
{
    shadow *s = &m->shadows[slot];
    if (s->state != SHADOW_NONE)
        engine_sequence_close(m->engine, s->sequence, true);
    *s = (shadow){ 0 };
}

const draft_model_troubles *draft_model_troubles_of(const draft_model *m)
{
    return &m->troubles;
}

bool draft_model_has(const draft_model *m, int32_t slot)
{
    return m->shadows[slot].state != SHADOW_NONE;
}

bool draft_model_ready(const draft_model *m, int32_t slot)
{
    return m->shadows[slot].state == SHADOW_READY;
}

// It is a shadow no more: its sequence goes on without guesses from here.
static void shadow_drop(draft_model *m, shadow *s, uint64_t *trouble)
{
    draft_model_end(m, (int32_t)(s - m->shadows));
    ++*trouble;
}

// A step of the small model, and what it took. Those whose pages were short or whose logits held no
// number are dropped.
static void step(draft_model *m, engine_report *report)
{
    uint64_t begun_us = clock_now_us();
    if (fault_fires(FAULT_DRAFT_STALL))
        clock_sleep_us(1000 * (uint64_t)fault_value(FAULT_DRAFT_STALL));
    engine_step(m->engine, report);
    report->duration_us = clock_now_us() - begun_us;
    for (int32_t i = 0; i < report->preempted_count; i++)
        shadow_drop(m, sequence_owner(report->preempted[i]), &m->troubles.pages);
    for (int32_t i = 0; i < report->token_count; i++)
        if (report->tokens[i].finish == SEQUENCE_FAILED || fault_fires(FAULT_DRAFT_FAIL))
            shadow_drop(m, report->tokens[i].owner, &m->troubles.failed);
}

// So many tokens of a prompt took so long. More than twice what was expected counts as twice, as in
// a cost_curve.
static void prompt_cost_add(draft_model *m, int32_t tokens, double us)
{
    if (tokens < 1 || us <= 0)
        return;
    double each = us / tokens;
    if (m->prompt_us > 0 && each > 2 * m->prompt_us)
        each = 2 * m->prompt_us;
    int32_t sum = m->prompt_tokens + tokens;
    m->prompt_tokens = sum < PROMPT_MEMORY ? sum : PROMPT_MEMORY;
    double weight = (double)tokens / m->prompt_tokens;
    m->prompt_us += (each - m->prompt_us) * (weight < 1 ? weight : 1);
}

bool draft_model_work(draft_model *m)
{
    shadow *next = NULL;
    for (int32_t i = 0; i < m->slot_count; i++) {
        shadow *s = &m->shadows[i];
        if (s->state == SHADOW_PROMPT && (!next || s->number < next->number))
            next = s;
    }
    if (!next)
        return false;
    engine_report report;
    engine_sequence_resume(m->engine, next->sequence);
    step(m, &report);
    prompt_cost_add(m, report.rows, (double)report.duration_us);
    if (next->state == SHADOW_NONE)
        return true;
    if (report.token_count > 0)
        next->state = SHADOW_READY; // its first guess is forgotten: the target draws that token
    if (report.token_count == 0 || report.tokens[0].finish == SEQUENCE_UNFINISHED)
        engine_sequence_rest(m->engine, next->sequence);
    return true;
}

// ---- guesses ----------------------------------------------------------------------------------

// The shadow takes in what its sequence has drawn since; false: no guess now. One that is far
// behind catches up piece by piece, as with a prompt.
static bool shadow_follow(draft_model *m, shadow *s, const draft_request *r)
{
    CHECK(s->state == SHADOW_READY && r->limit <= DRAFT_MAX);
    if (r->limit < 1)
        return false;
    if (engine_sequence_rewind(m->engine, s->sequence, r->tokens, r->count) != STATUS_OK) {
        shadow_drop(m, s, &m->troubles.pages); // or its context has ended
        return false;
    }
    if (r->count - sequence_computed(s->sequence) <= m->chunk_tokens)
        return true;
    engine_sequence_rest(m->engine, s->sequence);
    s->state = SHADOW_PROMPT;
    return false;
}

// What guesses may take. Each shadow computes one token in the first round; those before it are
// computed beside it, like a prompt. Where rounds were never measured, one may take as long as a
// piece of a prompt.
static double patience_us(const draft_model *m, int32_t rounds, int32_t sequences, int32_t late)
{
    double round_us = cost_curve_us(&m->cost, sequences);
    if (round_us <= 0)
        round_us = m->prompt_us * m->chunk_tokens;
    return STALL_TIMES * (rounds * round_us + late * m->prompt_us) + STALL_US;
}

// Shadows take in what was drawn. Returns what their guesses may take.
static double rounds_begin(draft_model *m, draft_request *requests, int32_t count)
{
    int32_t rounds = 0, sequences = 0, late = 0;
    for (int32_t i = 0; i < count; i++) {
        draft_request *r = &requests[i];
        shadow *s = &m->shadows[r->slot];
        r->guess->count = r->guess->band = 0;
        s->request = NULL;
        if (!shadow_follow(m, s, r))
            continue;
        s->request = r;
        rounds = r->limit > rounds ? r->limit : rounds;
        late += r->count - sequence_computed(s->sequence) - 1;
        sequences++;
    }
    return patience_us(m, rounds, sequences, late);
}

static void round_collect(draft_model *m, const engine_report *report)
{
    for (int32_t i = 0; i < report->token_count; i++) {
        const engine_token *t = &report->tokens[i];
        shadow *s = t->owner;
        draft_request *r = s->request;
        if (!r)
            continue; // it was dropped
        r->guess->tokens[r->guess->count++] = t->sampled.token;
        if (t->finish == SEQUENCE_UNFINISHED && r->guess->count < r->limit)
            continue;
        if (t->finish == SEQUENCE_UNFINISHED)
            engine_sequence_rest(m->engine, s->sequence);
        s->request = NULL;
    }
}

void draft_model_guess(draft_model *m, draft_request *requests, int32_t count)
{
    double most_us = rounds_begin(m, requests, count), taken_us = 0;
    while (taken_us <= most_us && engine_has_work(m->engine)) {
        engine_report report;
        step(m, &report);
        taken_us += (double)report.duration_us;
        if (report.rows == 0)
            break;
        round_collect(m, &report);
        // A shadow that rested long has much to catch up with once; that is not what a guess costs.
        if (report.rows <= 2 * report.token_count)
            cost_curve_add(&m->cost, report.token_count, (double)report.duration_us);
    }
    m->troubles.stalled += taken_us > most_us;
    for (int32_t i = 0; i < count; i++) {
        shadow *s = &m->shadows[requests[i].slot];
        if (s->request)
            engine_sequence_rest(m->engine, s->sequence);
        s->request = NULL;
    }
}

const cost_curve *draft_model_cost(const draft_model *m)
{
    return &m->cost;
}

int32_t draft_model_behind(const draft_model *m, int32_t slot, int32_t count)
{
    int32_t computed = sequence_computed(m->shadows[slot].sequence);
    return computed < count ? count - computed : 0;
}
