#include "decode_worker/speculate/speculation_private.h"

#include "base/utf8.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BUCKET_OUTCOMES 4000 // how far back buckets remember
#define SLOT_OUTCOMES 12     // and sequences, so that a text that changes is noticed within it

const drafter_kind *const speculation_texts[TEXTS] = { &drafter_ngram, &drafter_suffix };
static const char *const drafter_names[SPECULATION_DRAFTERS] = { "ngram", "suffix", "model" };

static const char *const drafters[] = { "auto", "off", "ngram", "suffix", "model", NULL };
#define AT(field) offsetof(speculation_settings, field)
// clang-format off
static const config_key keys[] = {
    { "speculate.drafter", CONFIG_STRING, AT(drafter), "auto", 0, 0, "", "Where guesses of the next tokens come from: ngram (the request's own text), suffix (recent answers of this worker), model (speculate.model or speculate.layers), auto (all of them) or off. No answer depends on it.", drafters },
    { "speculate.model", CONFIG_STRING, AT(model), "", 0, 0, "", "Path of a small GGUF file with the vocabulary of engine.model that guesses for it; empty: none.", NULL },
    { "speculate.layers", CONFIG_INT, AT(layers), "0", 0, 1000, "layers", "So many of the first layers of engine.model, with its head, guess for it (layer skip; models that were not trained for it are seldom guessed right); 0: none.", NULL },
    { "speculate.kv_bytes", CONFIG_BYTES, AT(kv_bytes), "128MiB", 1 << 16, 1e15, "bytes", "Memory of the draft model's KV pages.", NULL },
    { "speculate.prompt_tokens", CONFIG_INT, AT(prompt_tokens), "32", 1, 65536, "tokens", "Tokens of a prompt that the draft model computes between two steps.", NULL },
    { "speculate.tokens", CONFIG_INT, AT(tokens), "16", 1, DRAFT_MAX, "tokens", "Tokens guessed for one sequence in a step, at most; engine.draft_tokens bounds those of all.", NULL },
    { "speculate.fixed", CONFIG_INT, AT(fixed), "0", 0, DRAFT_MAX, "tokens", "So many tokens are guessed wherever there is a guess, whether that pays or not (tests and measurements); 0: as it pays.", NULL },
    { "speculate.probe_percent", CONFIG_INT, AT(probe_percent), "1", 0, 100, "percent", "Of the steps, those that try whether guesses pay where they are off, or longer ones where they are on, at most (beside the first 16); and of the time, what finding out whether guesses pay may cost.", NULL },
    { "speculate.step", CONFIG_DURATION, AT(step_us), "20ms", 0, 6e7, "", "No step of several answers, an interactive one among them, is predicted to take longer because of guesses, or 1.4 times as long as without them where that is more, so that those that were not guessed do not wait for the others; 0s: no limit.", NULL },
    { "speculate.step_batch", CONFIG_DURATION, AT(step_batch_us), "100ms", 0, 6e7, "", "The same where all answers of the step are of the batch class; 0s: no limit.", NULL },
    { "speculate.memory_tokens", CONFIG_INT, AT(memory_tokens), "131072", 32768, 16777216, "tokens", "Tokens of past answers that the suffix drafter keeps; each takes about 120 bytes.", NULL },
};
// clang-format on
#undef AT
const config_section speculation_config_section = { keys, sizeof keys / sizeof keys[0] };

#define STRETCH 1.4       // that guesses may make a step longer whatever speculate.step says
#define MARGIN 0.02       // a gain below it is none
#define MARGIN_ROW 0.01   // more, for each row but one: a crowd's costs are known less well
#define MARGIN_UNSURE 0.1 // more, over the root of how often a step without guesses was measured

// ---- opening ----------------------------------------------------------------------------------

static void acceptances_begin(speculation *p)
{
    acceptance *buckets = &p->buckets[0][0][0][0][0];
    for (size_t i = 0; i < sizeof p->buckets / sizeof *buckets; i++)
        buckets[i] = acceptance_begin(BUCKET_OUTCOMES);
    for (int i = 0; i < SPECULATION_DRAFTERS; i++)
        for (int band = 0; band < DRAFT_BANDS; band++)
            p->all[i][band] = acceptance_begin(BUCKET_OUTCOMES);
    speculation_tell_begin(p);
}

static status model_drafter_open(speculation *p, const engine_settings *settings_served,
                                 const engine *served, error *failure)
{
    engine_settings own = *settings_served;
    own.layers = p->settings->layers;
    if (own.layers == 0)
        own.model = p->settings->model;
    own.kv_bytes = p->settings->kv_bytes;
    own.context = 0;
    own.chunk_tokens = own.step_tokens = p->settings->prompt_tokens;
    p->stats.drafter_count++;
    status result = draft_model_open(&own, settings_served->model, served, &p->model, failure);
    if (result != STATUS_OK)
        return result;
    if (own.layers > 0)
        snprintf(p->model_name, sizeof p->model_name, "its first %lld layers",
                 (long long)own.layers);
    else
        snprintf(p->model_name, sizeof p->model_name, "%s",
                 draft_model_facts(p->model)->model_name);
    utf8_make_printable(p->model_name); // it goes into messages, maybe cut
    p->stats.drafters[MODEL].draft = p->model_name;
    return STATUS_OK;
}

static status model_settings_check(const speculation_settings *s, bool alone, error *failure)
{
    bool file = s->model[0] != '\0';
    if (file && s->layers > 0)
        return error_set(failure, STATUS_BAD_CONFIG, "speculate.layers",
                         "speculate.layers is %lld and speculate.model is a file; only one of them "
                         "can be the draft model",
                         (long long)s->layers);
    if (alone && !file && s->layers == 0)
        return error_set(failure, STATUS_BAD_CONFIG, "speculate.model",
                         "speculate.drafter is model; speculate.model must be the path of a GGUF "
                         "file, or speculate.layers a number of layers");
    return STATUS_OK;
}

static status drafters_open(speculation *p, const engine_settings *settings_served,
                            const engine *served, error *failure)
{
    const engine_facts *facts = engine_facts_of(served);
    drafter_limits limits = { .slots = p->slot_count,
                              .context = facts->context,
                              .memory = p->settings->memory_tokens };
    bool all = strcmp(p->settings->drafter, "auto") == 0;
    bool alone = strcmp(p->settings->drafter, drafter_names[MODEL]) == 0;
    status result = model_settings_check(p->settings, alone, failure);
    for (int i = 0; result == STATUS_OK && i < TEXTS; i++) {
        if (!all && strcmp(p->settings->drafter, drafter_names[i]) != 0)
            continue;
        result = speculation_texts[i]->open(&limits, &p->texts[i], failure);
        p->stats.drafter_count += result == STATUS_OK;
    }
    bool there = p->settings->model[0] != '\0' || p->settings->layers > 0;
    if (result != STATUS_OK || !there || (!all && !alone))
        return result;
    return model_drafter_open(p, settings_served, served, failure);
}

status speculation_open(const speculation_settings *settings,
                        const engine_settings *settings_served, const engine *served,
                        speculation **opened, error *failure)
{
    const engine_facts *facts = engine_facts_of(served);
    speculation *p = calloc(1, sizeof *p);
    status result = STATUS_NO_MEMORY;
    if (!p)
        return error_set(failure, result, "", "memory is short for guesses");
    p->settings = settings;
    p->slot_count = facts->max_sequences;
    p->draft_tokens = facts->draft_tokens;
    p->weight_bytes = facts->weight_bytes;
    p->probes = probes_begin();
    p->probe_length = 1;
    p->allowance.steps = ALLOWANCE_FIRST;
    p->stats.gain = 1;
    p->slots = calloc((size_t)p->slot_count, sizeof p->slots[0]);
    p->step = calloc((size_t)p->slot_count, sizeof p->step[0]);
    p->offers = calloc((size_t)p->slot_count, sizeof p->offers[0]);
    p->requests = calloc((size_t)p->slot_count, sizeof p->requests[0]);
    acceptances_begin(p);
    for (int i = 0; i < SPECULATION_DRAFTERS; i++)
        p->stats.drafters[i] = (speculation_drafter){ .name = drafter_names[i], .draft = "" };
    if (p->slots && p->step && p->offers && p->requests)
        result =
            p->draft_tokens > 0 ? drafters_open(p, settings_served, served, failure) : STATUS_OK;
    else
        error_set(failure, result, "", "memory is short for guesses");
    if (result != STATUS_OK) {
        speculation_close(p);
        return result;
    }
    *opened = p;
    return STATUS_OK;
}

void speculation_close(speculation *p)
{
    if (!p)
        return;
    for (int i = 0; i < TEXTS; i++)
        if (p->texts[i])
            speculation_texts[i]->close(p->texts[i]);
    draft_model_close(p->model);
    free(p->slots);
    free(p->step);
    free(p->offers);
    free(p->requests);
    free(p);
}

// ---- slots ------------------------------------------------------------------------------------

static int temperature_bucket(float temperature)
{
    return temperature <= 0 ? 0 : temperature <= 0.7f ? 1 : 2;
}

// -1: any; SPECULATION_DRAFTERS: none.
static int drafter_of(const char *name)
{
    int at = 0;
    if (name[0] == '\0')
        return -1;
    while (at < SPECULATION_DRAFTERS && strcmp(name, drafter_names[at]) != 0)
        at++;
    return at;
}

bool speculation_guided(const speculation *p, const char *drafter)
{
    int only = drafter_of(drafter);
    return p->model && (only < 0 || only == MODEL);
}

int32_t speculation_begin(speculation *p, const sequence_request *request, const char *drafter)
{
    int32_t slot = 0;
    int only = drafter_of(drafter);
    while (slot < p->slot_count && p->slots[slot].used)
        slot++;
    if (slot == p->slot_count || p->stats.drafter_count == 0 || only == SPECULATION_DRAFTERS)
        return -1;
    p->slots[slot].used = true;
    p->slots[slot].only = only;
    p->slots[slot].class = request->class;
    p->slots[slot].temperature = temperature_bucket(request->sampling.temperature);
    for (int band = 0; band <= DRAFT_BANDS; band++) {
        p->slots[slot].bands[band] = acceptance_begin(SLOT_OUTCOMES);
        p->slots[slot].guesses[band] = 0;
    }
    for (int i = 0; i < TEXTS; i++)
        if (p->texts[i])
            speculation_texts[i]->begin(p->texts[i], slot, request->prefix_salt);
    if (speculation_guided(p, drafter))
        draft_model_begin(p->model, slot, request);
    return slot;
}

void speculation_end(speculation *p, int32_t slot, const int32_t *tokens, int32_t prompt_count,
                     int32_t count)
{
    if (slot < 0)
        return;
    p->slots[slot].used = false;
    for (int i = 0; i < TEXTS; i++)
        if (p->texts[i])
            speculation_texts[i]->end(p->texts[i], slot, tokens, prompt_count, count);
    if (p->model)
        draft_model_end(p->model, slot);
}

// ---- what a step costs ------------------------------------------------------------------------

step_facts speculation_facts(const speculation *p, int32_t rows)
{
    double plain_us = cost_curve_us(&p->cost, rows) + p->context_us;
    double limit_us = rows > 1 ? p->limit_us : 0;
    double known = fmax(cost_curve_count(&p->cost, rows), 1);
    step_facts facts = { .rows = rows,
                         .room = p->draft_tokens,
                         .fixed_us = p->context_us,
                         .limit_us = limit_us > 0 ? fmax(limit_us, STRETCH * plain_us) : 0,
                         .margin = MARGIN + MARGIN_UNSURE / sqrt(known) + MARGIN_ROW * (rows - 1) };
    if (p->model) {
        facts.draft = draft_model_cost(p->model);
        facts.draft_share =
            (double)draft_model_facts(p->model)->weight_bytes / (double)p->weight_bytes;
    }
    return facts;
}
