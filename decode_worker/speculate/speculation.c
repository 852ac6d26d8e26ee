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

static const drafter_kind *const kinds[SPECULATION_DRAFTERS] = { &drafter_ngram, &drafter_suffix };
// What guesses of each band are worth before anything was learned.
static const double priors[DRAFT_BANDS] = { 0.3, 0.5, 0.65, 0.8 };

static const char *const drafters[] = { "auto", "off", "ngram", "suffix", NULL };
#define AT(field) offsetof(speculation_settings, field)
// clang-format off
static const config_key keys[] = {
    { "speculate.drafter", CONFIG_STRING, AT(drafter), "auto", 0, 0, "", "Where guesses of the next tokens come from: ngram (the request's own text), suffix (recent answers of this worker), auto (both) or off. No answer depends on it.", drafters },
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
    void *drafters[SPECULATION_DRAFTERS]; // NULL: off
    guess_slot *slots;                    // [slot_count]
    guess_offer *step;                    // [slot_count] of the step under way
    offer *offers;                        // [slot_count]
    int32_t step_count;
    int batch; // bucket of the step
    bool guessed, probing, prompts;
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

static status drafters_open(speculation *p, const engine_facts *facts, error *failure)
{
    drafter_limits limits = { .slots = p->slot_count,
                              .context = facts->context,
                              .vocabulary = facts->vocabulary,
                              .memory = p->settings->memory_tokens };
    bool all = strcmp(p->settings->drafter, "auto") == 0;
    for (int i = 0; i < SPECULATION_DRAFTERS; i++) {
        p->stats.drafters[i].name = kinds[i]->name;
        if (!all && strcmp(p->settings->drafter, kinds[i]->name) != 0)
            continue;
        status result = kinds[i]->open(&limits, &p->drafters[i], failure);
        if (result != STATUS_OK)
            return result;
        p->stats.drafter_count++;
    }
    return STATUS_OK;
}

status speculation_open(const speculation_settings *settings, const engine_facts *facts,
                        speculation **opened, error *failure)
{
    speculation *p = calloc(1, sizeof *p);
    status result = STATUS_NO_MEMORY;
    if (!p)
        return error_set(failure, result, "", "memory is short for guesses");
    p->settings = settings;
    p->slot_count = facts->max_sequences;
    p->draft_tokens = facts->draft_tokens;
    p->probe_length = 1;
    p->stats.gain = 1;
    p->slots = calloc((size_t)p->slot_count, sizeof p->slots[0]);
    p->step = calloc((size_t)p->slot_count, sizeof p->step[0]);
    p->offers = calloc((size_t)p->slot_count, sizeof p->offers[0]);
    acceptances_begin(p);
    if (p->slots && p->step && p->offers)
        result = p->draft_tokens > 0 ? drafters_open(p, facts, failure) : STATUS_OK;
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
    for (int i = 0; i < SPECULATION_DRAFTERS; i++)
        if (p->drafters[i])
            kinds[i]->close(p->drafters[i]);
    free(p->slots);
    free(p->step);
    free(p->offers);
    free(p);
}

// ---- slots ------------------------------------------------------------------------------------

static int temperature_bucket(float temperature)
{
    return temperature <= 0 ? 0 : temperature <= 0.7f ? 1 : 2;
}

int32_t speculation_begin(speculation *p, const speculation_traits *traits)
{
    int32_t slot = 0;
    while (slot < p->slot_count && p->slots[slot].used)
        slot++;
    if (slot == p->slot_count || p->stats.drafter_count == 0)
        return -1;
    p->slots[slot].used = true;
    p->slots[slot].class = traits->class;
    p->slots[slot].temperature = temperature_bucket(traits->temperature);
    for (int band = 0; band < DRAFT_BANDS; band++)
        p->slots[slot].bands[band] = acceptance_begin(SLOT_OUTCOMES);
    for (int i = 0; i < SPECULATION_DRAFTERS; i++)
        if (p->drafters[i])
            kinds[i]->begin(p->drafters[i], slot, traits->tenant);
    return slot;
}

void speculation_end(speculation *p, int32_t slot, const int32_t *tokens, int32_t prompt_count,
                     int32_t count)
{
    if (slot < 0)
        return;
    p->slots[slot].used = false;
    for (int i = 0; i < SPECULATION_DRAFTERS; i++)
        if (p->drafters[i])
            kinds[i]->end(p->drafters[i], slot, tokens, prompt_count, count);
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
    double alpha = acceptance_alpha(&p->all[drafter][band], priors[band], 4);
    const guess_slot *s = &p->slots[o->item.slot];
    const acceptance *bucket = &p->buckets[drafter][band][s->class][s->temperature][p->batch];
    alpha = acceptance_alpha(bucket, alpha, 30);
    return acceptance_alpha(&s->bands[band], alpha, 6);
}

// The drafters' best guess for one sequence. Returns its alpha.
static double guess_best(speculation *p, guess_offer *o)
{
    int32_t count;
    const int32_t *tokens = sequence_tokens(o->item.sequence, &count);
    double best = 0;
    guess_offer other = *o;
    o->drafter = -1;
    for (int i = 0; i < SPECULATION_DRAFTERS; i++) {
        if (!p->drafters[i])
            continue;
        kinds[i]->guess(p->drafters[i], o->item.slot, tokens, count, (int32_t)p->settings->tokens,
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

void speculation_guess(speculation *p, engine *e, const speculation_item *items, int32_t count,
                       bool prompts)
{
    p->step_count = 0;
    p->guessed = p->probing = false;
    p->prompts = prompts;
    p->batch = batch_bucket(count);
    p->stats.batch = count;
    p->stats.gain = 1;
    bool any = false;
    if (prompts || p->stats.drafter_count == 0 || count > p->slot_count)
        return;
    for (int32_t i = 0; i < count; i++) {
        guess_offer *o = &p->step[p->step_count];
        o->item = items[i];
        o->drafter = -1;
        double alpha = items[i].slot >= 0 ? guess_best(p, o) : 0;
        p->offers[p->step_count++] =
            (offer){ .alpha = alpha, .count = o->drafter >= 0 ? o->draft.count : 0 };
        any = any || o->drafter >= 0;
    }
    step_facts facts = facts_of(p, count);
    p->stats.gain = controller_choose(&p->cost, &facts, p->offers, p->step_count);
    if (any && p->stats.gain <= 1)
        probe(p, count);
    for (int32_t i = 0; i < p->step_count; i++)
        if (p->offers[i].chosen > 0 &&
            engine_sequence_draft(e, p->step[i].item.sequence, p->step[i].draft.tokens,
                                  p->offers[i].chosen) > 0)
            p->guessed = true;
    if (!any && count > 0)
        p->stats.steps_blank++;
}

// ---- learning ---------------------------------------------------------------------------------

static void outcome_learn(speculation *p, const guess_offer *o, int32_t drafted, int32_t accepted)
{
    int d = o->drafter, band = o->draft.band;
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
        if (p->drafters[i] && s.drafters[i].drafted > 0 &&
            (!best || s.drafters[i].alpha > best->alpha))
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
