#include "decode_worker/speculate/speculation.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TEMPERATURES 3
#define BATCHES 3
#define BUCKET_OUTCOMES 4000 // how far back buckets remember
#define SLOT_OUTCOMES 12     // and sequences, so that a text that changes is noticed within it
#define MARGIN 0.02
#define UNKNOWN_EVERY 16 // steps between two probes of a step's cost that is not known yet

#define TEXTS 2 // drafters that only look at texts; their guesses cost nothing
#define MODEL TEXTS

static const drafter_kind *const kinds[TEXTS] = { &drafter_ngram, &drafter_suffix };
static const char *const drafter_names[SPECULATION_DRAFTERS] = { "ngram", "suffix", "model" };
// What guesses of each band are worth before anything was learned.
static const double priors[DRAFT_BANDS] = { 0.3, 0.5, 0.65, 0.8 };
#define MODEL_PRIOR 0.65

static const char *const drafters[] = { "auto", "off", "ngram", "suffix", "model", NULL };
#define AT(field) offsetof(speculation_settings, field)
// clang-format off
static const config_key keys[] = {
    { "speculate.drafter", CONFIG_STRING, AT(drafter), "auto", 0, 0, "", "Where guesses of the next tokens come from: ngram (the request's own text), suffix (recent answers of this worker), model (speculate.model), auto (all of them) or off. No answer depends on it.", drafters },
    { "speculate.model", CONFIG_STRING, AT(model), "", 0, 0, "", "Path of a small GGUF file with the vocabulary of engine.model that guesses for it; empty: none.", NULL },
    { "speculate.kv_bytes", CONFIG_BYTES, AT(kv_bytes), "128MiB", 1 << 16, 1e15, "bytes", "Memory of the draft model's KV pages.", NULL },
    { "speculate.prompt_tokens", CONFIG_INT, AT(prompt_tokens), "32", 1, 65536, "tokens", "Tokens of a prompt that the draft model computes between two steps.", NULL },
    { "speculate.tokens", CONFIG_INT, AT(tokens), "16", 1, DRAFT_MAX, "tokens", "Tokens guessed for one sequence in a step, at most; engine.draft_tokens bounds those of all.", NULL },
    { "speculate.probe_percent", CONFIG_INT, AT(probe_percent), "1", 0, 100, "percent", "Of the steps in which guessing does not pay, those that try whether it does again.", NULL },
    { "speculate.step", CONFIG_DURATION, AT(step_us), "0s", 0, 6e7, "", "No step with guesses is predicted to take longer; 0s: no limit.", NULL },
    { "speculate.memory_tokens", CONFIG_INT, AT(memory_tokens), "131072", 32768, 16777216, "tokens", "Tokens of past answers that the suffix drafter keeps; each takes about 150 bytes.", NULL },
};
// clang-format on
#undef AT
const config_section speculation_config_section = { keys, sizeof keys / sizeof keys[0] };

typedef struct guess_slot {
    bool used;
    sequence_class class;
    int temperature; // bucket
    acceptance bands[DRAFT_BANDS];
} guess_slot;

// What was offered for an item of the step.
typedef struct guess_offer {
    speculation_item item;
    int drafter; // -1: none
    draft draft;
} guess_offer;

struct speculation {
    const speculation_settings *settings;
    int32_t slot_count, draft_tokens;
    void *texts[TEXTS];      // drafters; NULL: off
    draft_model *model;      // NULL: none
    guess_slot *slots;       // [slot_count]
    guess_offer *step;       // [slot_count] of the step under way
    offer *offers;           // [slot_count]
    draft_request *requests; // [slot_count]
    int32_t step_count;
    int batch; // bucket of the step
    bool guessed, probing;
    size_t weight_bytes; // of the model that is served
    cost_curve cost;
    double context_us; // of the last step
    uint64_t since_probe;
    int32_t probe_length; // of the next probe: 1, 2, 4, 8 in turn
    acceptance all[SPECULATION_DRAFTERS][DRAFT_BANDS], total[SPECULATION_DRAFTERS];
    acceptance buckets[SPECULATION_DRAFTERS][DRAFT_BANDS][SEQUENCE_CLASSES][TEMPERATURES][BATCHES];
    speculation_stats stats;
};

// ---- opening ----------------------------------------------------------------------------------

static void acceptances_begin(speculation *p)
{
    acceptance *buckets = &p->buckets[0][0][0][0][0];
    for (size_t i = 0; i < sizeof p->buckets / sizeof *buckets; i++)
        buckets[i] = acceptance_begin(BUCKET_OUTCOMES);
    for (int i = 0; i < SPECULATION_DRAFTERS; i++) {
        p->total[i] = acceptance_begin(BUCKET_OUTCOMES);
        for (int band = 0; band < DRAFT_BANDS; band++)
            p->all[i][band] = acceptance_begin(BUCKET_OUTCOMES);
    }
}

static status model_drafter_open(speculation *p, const engine_settings *served,
                                 const engine_facts *facts, error *failure)
{
    engine_settings own = *served;
    own.model = p->settings->model;
    own.kv_bytes = p->settings->kv_bytes;
    own.context = 0;
    own.chunk_tokens = own.step_tokens = p->settings->prompt_tokens;
    p->stats.drafter_count++;
    return draft_model_open(&own, served->model, facts, &p->model, failure);
}

static status drafters_open(speculation *p, const engine_settings *served,
                            const engine_facts *facts, error *failure)
{
    drafter_limits limits = { .slots = p->slot_count,
                              .context = facts->context,
                              .vocabulary = facts->vocabulary,
                              .memory = p->settings->memory_tokens };
    bool all = strcmp(p->settings->drafter, "auto") == 0;
    for (int i = 0; i < TEXTS; i++) {
        if (!all && strcmp(p->settings->drafter, drafter_names[i]) != 0)
            continue;
        status result = kinds[i]->open(&limits, &p->texts[i], failure);
        if (result != STATUS_OK)
            return result;
        p->stats.drafter_count++;
    }
    bool alone = strcmp(p->settings->drafter, drafter_names[MODEL]) == 0;
    if (alone && p->settings->model[0] == '\0')
        return error_set(failure, STATUS_BAD_CONFIG, "speculate.model",
                         "speculate.drafter is model; speculate.model must be the path of a GGUF "
                         "file");
    if (p->settings->model[0] == '\0' || (!all && !alone))
        return STATUS_OK;
    return model_drafter_open(p, served, facts, failure);
}

status speculation_open(const speculation_settings *settings, const engine_settings *served,
                        const engine_facts *facts, speculation **opened, error *failure)
{
    speculation *p = calloc(1, sizeof *p);
    status result = STATUS_NO_MEMORY;
    if (!p)
        return error_set(failure, result, "", "memory is short for guesses");
    p->settings = settings;
    p->slot_count = facts->max_sequences;
    p->draft_tokens = facts->draft_tokens;
    p->weight_bytes = facts->weight_bytes;
    p->probe_length = 1;
    p->stats.gain = 1;
    p->slots = calloc((size_t)p->slot_count, sizeof p->slots[0]);
    p->step = calloc((size_t)p->slot_count, sizeof p->step[0]);
    p->offers = calloc((size_t)p->slot_count, sizeof p->offers[0]);
    p->requests = calloc((size_t)p->slot_count, sizeof p->requests[0]);
    acceptances_begin(p);
    for (int i = 0; i < SPECULATION_DRAFTERS; i++)
        p->stats.drafters[i].name = drafter_names[i];
    if (p->slots && p->step && p->offers && p->requests)
        result = p->draft_tokens > 0 ? drafters_open(p, served, facts, failure) : STATUS_OK;
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
            kinds[i]->close(p->texts[i]);
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

int32_t speculation_begin(speculation *p, const sequence_request *request)
{
    int32_t slot = 0;
    while (slot < p->slot_count && p->slots[slot].used)
        slot++;
    if (slot == p->slot_count || p->stats.drafter_count == 0)
        return -1;
    p->slots[slot].used = true;
    p->slots[slot].class = request->class;
    p->slots[slot].temperature = temperature_bucket(request->sampling.temperature);
    for (int band = 0; band < DRAFT_BANDS; band++)
        p->slots[slot].bands[band] = acceptance_begin(SLOT_OUTCOMES);
    for (int i = 0; i < TEXTS; i++)
        if (p->texts[i])
            kinds[i]->begin(p->texts[i], slot, request->prefix_salt);
    if (p->model)
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
            kinds[i]->end(p->texts[i], slot, tokens, prompt_count, count);
    if (p->model)
        draft_model_end(p->model, slot);
}

// ---- guessing ---------------------------------------------------------------------------------

static int batch_bucket(int32_t rows)
{
    return rows <= 1 ? 0 : rows < 8 ? 1 : 2;
}

// From the general to the particular: each level is drawn towards the one above it until it has
// outcomes of its own.
static double alpha_of(const speculation *p, const guess_offer *o, int drafter)
{
    int band = o->draft.band;
    double prior = drafter == MODEL ? MODEL_PRIOR : priors[band];
    double alpha = acceptance_alpha(&p->all[drafter][band], prior, 4);
    const guess_slot *s = &p->slots[o->item.slot];
    const acceptance *bucket = &p->buckets[drafter][band][s->class][s->temperature][p->batch];
    alpha = acceptance_alpha(bucket, alpha, 30);
    return acceptance_alpha(&s->bands[band], alpha, 6);
}

// The best guess from texts for one sequence. Returns its alpha.
static double guess_text(speculation *p, guess_offer *o)
{
    int32_t count;
    const int32_t *tokens = sequence_tokens(o->item.sequence, &count);
    double best = 0;
    guess_offer other = *o;
    o->drafter = -1;
    for (int i = 0; i < TEXTS; i++) {
        if (!p->texts[i])
            continue;
        kinds[i]->guess(p->texts[i], o->item.slot, tokens, count, (int32_t)p->settings->tokens,
                        &other.draft);
        double alpha = other.draft.count > 0 ? alpha_of(p, &other, i) : 0;
        if (alpha > best) {
            best = alpha;
            o->draft = other.draft;
            o->drafter = i;
        }
    }
    return best;
}

static step_facts facts_of(const speculation *p, int32_t rows)
{
    return (step_facts){ .rows = rows,
                         .room = p->draft_tokens,
                         .fixed_us = p->context_us,
                         .limit_us = (double)p->settings->step_us,
                         .margin = MARGIN };
}

static bool cost_is_known(const speculation *p, int32_t rows)
{
    return rows > COST_ROWS_MAX || p->cost.count[rows] > 0;
}

// A step that tries what guessing does, where it would otherwise be off: now and then, and sooner
// while it is not known what such a step costs. One sequence guesses, in turn.
static void probe(speculation *p, int32_t rows)
{
    uint64_t every =
        p->settings->probe_percent > 0 ? 100 / (uint64_t)p->settings->probe_percent : 0;
    if (every > UNKNOWN_EVERY && !cost_is_known(p, rows + p->probe_length))
        every = UNKNOWN_EVERY;
    if (every == 0 || ++p->since_probe < every)
        return;
    for (int32_t i = 0; i < p->step_count; i++) {
        int32_t at = (int32_t)((p->stats.steps_probing + (uint64_t)i) % (uint64_t)p->step_count);
        offer *o = &p->offers[at];
        if (o->count == 0)
            continue;
        o->chosen = o->count < p->probe_length ? o->count : p->probe_length;
        p->probe_length = p->probe_length < 8 ? p->probe_length * 2 : 1;
        p->since_probe = 0;
        p->probing = true;
        return;
    }
}

// The small model's round for `count` sequences, before it was measured: by the bytes that it
// reads.
static double model_round_us(const speculation *p, int32_t count)
{
    double us = draft_model_round_us(p->model, count > 0 ? count : 1);
    double share = (double)draft_model_facts(p->model)->weight_bytes / (double)p->weight_bytes;
    return us > 0 ? us : share * (cost_curve_us(&p->cost, 1) + p->context_us);
}

// What is offered for one sequence: the text's guess, which is there, or the model's, which is made
// only if it is chosen; whichever gains more alone.
static offer offer_make(speculation *p, guess_offer *o, const step_facts *facts, int32_t models)
{
    offer text = { 0 }, model = { 0 };
    o->drafter = -1;
    if (o->item.slot < 0)
        return text;
    text.alpha = guess_text(p, o);
    text.count = o->drafter >= 0 ? o->draft.count : 0;
    if (!p->model || !draft_model_ready(p->model, o->item.slot))
        return text;
    guess_offer other = { .item = o->item };
    model.alpha = alpha_of(p, &other, MODEL);
    model.count = (int32_t)p->settings->tokens;
    model.draft_us = model_round_us(p, models) / models;
    if (text.count > 0 &&
        controller_gain(&p->cost, facts, &text) >= controller_gain(&p->cost, facts, &model))
        return text;
    o->drafter = MODEL;
    return model;
}

// Let the small model make the guesses that were chosen of it.
static void model_guess(speculation *p)
{
    int32_t count = 0;
    for (int32_t i = 0; i < p->step_count; i++) {
        guess_offer *o = &p->step[i];
        draft_request *r = &p->requests[count];
        if (o->drafter != MODEL || p->offers[i].chosen == 0)
            continue;
        *r = (draft_request){ .slot = o->item.slot,
                              .limit = p->offers[i].chosen,
                              .guess = &o->draft };
        r->tokens = sequence_tokens(o->item.sequence, &r->count);
        count++;
    }
    if (count > 0)
        draft_model_guess(p->model, p->requests, count);
}

static void drafts_give(speculation *p, engine *e)
{
    for (int32_t i = 0; i < p->step_count; i++) {
        const guess_offer *o = &p->step[i];
        int32_t chosen = p->offers[i].chosen;
        chosen = chosen < o->draft.count ? chosen : o->draft.count;
        if (o->drafter >= 0 && chosen > 0 &&
            engine_sequence_draft(e, o->item.sequence, o->draft.tokens, chosen) > 0)
            p->guessed = true;
    }
}

bool speculation_work(speculation *p)
{
    return p->model && draft_model_work(p->model);
}

void speculation_guess(speculation *p, engine *e, const speculation_item *items, int32_t count,
                       bool prompts)
{
    bool any = false;
    int32_t models = 0;
    p->step_count = 0;
    p->guessed = p->probing = false;
    p->batch = batch_bucket(count);
    p->stats.batch = count;
    p->stats.gain = 1;
    speculation_work(p);
    if (prompts || p->stats.drafter_count == 0 || count > p->slot_count)
        return;
    for (int32_t i = 0; p->model && i < count; i++)
        models += items[i].slot >= 0 && draft_model_ready(p->model, items[i].slot);
    step_facts facts = facts_of(p, count);
    for (int32_t i = 0; i < count; i++) {
        guess_offer *o = &p->step[p->step_count];
        o->item = items[i];
        o->draft.count = 0;
        p->offers[p->step_count++] = offer_make(p, o, &facts, models);
        any = any || o->drafter >= 0;
    }
    p->stats.gain = controller_choose(&p->cost, &facts, p->offers, p->step_count);
    for (int32_t i = 0; p->settings->fixed > 0 && i < p->step_count; i++) {
        offer *o = &p->offers[i];
        o->chosen = o->count < p->settings->fixed ? o->count : (int32_t)p->settings->fixed;
    }
    if (any && p->settings->fixed == 0 && p->stats.gain <= 1)
        probe(p, count);
    model_guess(p);
    drafts_give(p, e);
    if (!any && count > 0)
        p->stats.steps_blank++;
}

// ---- learning ---------------------------------------------------------------------------------

static void outcome_learn(speculation *p, const guess_offer *o, int32_t drafted, int32_t accepted)
{
    int d = o->drafter, band = d == MODEL ? 0 : o->draft.band;
    speculation_drafter *s = &p->stats.drafters[d];
    acceptance_add(&p->total[d], drafted, accepted);
    acceptance_add(&p->all[d][band], drafted, accepted);
    guess_slot *slot = &p->slots[o->item.slot];
    acceptance_add(&p->buckets[d][band][slot->class][slot->temperature][p->batch], drafted,
                   accepted);
    acceptance_add(&slot->bands[band], drafted, accepted);
    s->drafted += (uint64_t)drafted;
    s->accepted += (uint64_t)accepted;
    s->rejected += accepted < drafted;
    for (int32_t i = 0; i < drafted && i <= accepted; i++) {
        s->tried[i]++;
        s->right[i] += i < accepted;
    }
}

void speculation_learn(speculation *p, const engine_report *report)
{
    speculation_stats *s = &p->stats;
    p->context_us = (double)report->context_us;
    if (report->decode_rows > 0 && report->prefill_rows == 0)
        cost_curve_add(&p->cost, report->decode_rows,
                       (double)report->duration_us - (double)report->context_us);
    if (report->decode_rows > 0) {
        if (report->prefill_rows > 0)
            s->steps_prompts++;
        else if (p->guessed)
            s->steps_on++;
        else
            s->steps_off++;
        s->steps_probing += p->guessed && p->probing;
    }
    for (int32_t i = 0; i < p->step_count; i++) {
        int32_t drafted = 0, accepted = 0;
        if (p->offers[i].chosen > 0)
            sequence_drafted(p->step[i].item.sequence, &drafted, &accepted);
        if (drafted > 0)
            outcome_learn(p, &p->step[i], drafted, accepted);
    }
    p->step_count = 0;
    p->guessed = p->probing = false;
}

// ---- telling ----------------------------------------------------------------------------------

void speculation_stats_of(const speculation *p, speculation_stats *stats)
{
    step_facts facts = facts_of(p, p->stats.batch > 0 ? p->stats.batch : 1);
    *stats = p->stats;
    stats->unshadowed = p->model ? draft_model_unshadowed(p->model) : 0;
    stats->break_even = controller_break_even(&p->cost, &facts, 4, 0);
    for (int i = 0; i < SPECULATION_DRAFTERS; i++) {
        speculation_drafter *d = &stats->drafters[i];
        d->alpha = acceptance_alpha(&p->total[i], 0, 0);
        acceptance_interval(&p->total[i], &d->low, &d->high);
    }
}

void speculation_sentence(const speculation *p, char text[200])
{
    speculation_stats s;
    const speculation_drafter *best = NULL;
    speculation_stats_of(p, &s);
    for (int i = 0; i < SPECULATION_DRAFTERS; i++)
        if (s.drafters[i].drafted > 0 && (!best || s.drafters[i].alpha > best->alpha))
            best = &s.drafters[i];
    if (s.drafter_count == 0)
        snprintf(text, 200, "off: no drafter is configured");
    else if (!best || s.break_even <= 0)
        snprintf(text, 200, "waiting: nothing was guessed yet");
    else if (s.gain > 1)
        snprintf(text, 200,
                 "on (%s): about %.0f %% of the next tokens are guessed right, %.0f %% are needed "
                 "at batch %d",
                 best->name, 100 * best->alpha, 100 * s.break_even, s.batch);
    else
        snprintf(text, 200,
                 "off (%s): about %.0f %% of the next tokens are guessed right, %.0f %% are needed "
                 "at batch %d",
                 best->name, 100 * best->alpha, 100 * s.break_even, s.batch);
}
