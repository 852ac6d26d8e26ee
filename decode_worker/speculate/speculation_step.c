#include "decode_worker/speculate/speculation_private.h"

#include "base/clock.h"

#include <math.h>
#include <stddef.h>

#define PLAIN_EVERY 64 // steps with guesses between two without, so that their time stays known
#define PLAIN_EVERY_FIRST 8 // until it was measured so often
#define PLAIN_ENOUGH 4
#define ON_STEPS 32.0 // that `on` is the share of
#define HOPELESS 0.95 // where guesses must be right more often, they never are
// A shadow that rested computes the tokens since: so many with its next guess at no cost, and each
// of the others takes about so much of a round.
#define CATCH_UP_FREE 4
#define CATCH_UP_SHARE 0.25
#define PAY_BACK 16 // steps

// What guesses of each band are worth before anything was learned.
static const double priors[DRAFT_BANDS] = { 0.3, 0.5, 0.65, 0.8 };
#define MODEL_PRIOR 0.65
#define CREDIT 0.5       // of what is missing to certainty
#define CREDIT_GUESSES 6 // over which it is used up
#define START_TOKENS 3   // offered of a sequence of which no guess was right yet
#define START_TIMES 4    // more for each right token of late
#define OTHERS 6.0       // outcomes of its own that what is known of others weighs at first
#define OTHERS_LEAST 2.0 // and at last

// ---- guessing ---------------------------------------------------------------------------------

static ledger *ledger_of(speculation *p, bool modelled, int32_t rows)
{
    int at = 0;
    while (at < LEDGERS - 1 && rows >> (at + 1) > 0)
        at++;
    return &p->ledgers[modelled][at];
}

static int batch_bucket(int32_t rows)
{
    return rows <= 1 ? 0 : rows < 8 ? 1 : 2;
}

// Where a sequence counts the guesses of a drafter.
static int slot_band(int drafter, int32_t band)
{
    return drafter == MODEL ? DRAFT_BANDS : band;
}

// From the general to the particular: each level is drawn towards the one above it until it has
// outcomes of its own. Texts differ much in how well they can be guessed, so a sequence gets some
// credit for its first guesses, as long as finding out may cost something.
static double alpha_of(const speculation *p, const guess_offer *o, int drafter)
{
    int band = drafter == MODEL ? 0 : o->draft.band;
    double prior = drafter == MODEL ? MODEL_PRIOR : priors[band];
    double alpha = acceptance_alpha(&p->all[drafter][band], prior, 4);
    const guess_slot *s = &p->slots[o->item.slot];
    const acceptance *bucket = &p->buckets[drafter][band][s->class][s->temperature][p->batch];
    alpha = acceptance_alpha(bucket, alpha, 30);
    int at = slot_band(drafter, band);
    if (s->guesses[at] < CREDIT_GUESSES && p->allowance.steps > 0)
        alpha += (1 - alpha) * CREDIT * (1 - (double)s->guesses[at] / CREDIT_GUESSES);
    // What others teach counts less with every guess of its own: a text may turn.
    double weight = fmax(OTHERS / (1 + s->guesses[at] / OTHERS), OTHERS_LEAST);
    return acceptance_alpha(&s->bands[at], alpha, weight);
}

// How many tokens of a drafter a sequence may be offered: few until some were right. A text that
// cannot be guessed shows that at the price of few rows.
static int32_t count_of(const speculation *p, const guess_offer *o, int drafter, int32_t could)
{
    const acceptance *own = &p->slots[o->item.slot].bands[slot_band(drafter, o->draft.band)];
    double most = START_TOKENS + START_TIMES * own->accepted;
    return could < most ? could : (int32_t)most;
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
        int only = p->slots[o->item.slot].only;
        if (!p->texts[i] || (only >= 0 && only != i))
            continue;
        speculation_texts[i]->guess(p->texts[i], o->item.slot, tokens, count,
                                    (int32_t)p->settings->tokens, &other.draft);
        double alpha = other.draft.count > 0 ? alpha_of(p, &other, i) : 0;
        if (alpha > best) {
            best = alpha;
            o->draft = other.draft;
            o->drafter = i;
        }
    }
    return best;
}

// Sooner while it is not known what such a step costs, later where it is known to gain nothing even
// if all is right.
static probe_pace pace_of(const speculation *p, const step_facts *facts)
{
    offer right = { .alpha = 1, .count = p->probe_length };
    if (!cost_curve_knows(&p->cost, facts->rows + p->probe_length))
        return PROBE_UNKNOWN;
    return controller_gain(&p->cost, facts, &right) > 1 ? PROBE_USUAL : PROBE_HOPELESS;
}

// Guesses of one sequence, at most so many, with which the step keeps its limit.
static int32_t most_within(const speculation *p, const step_facts *facts, bool drafted,
                           int32_t most)
{
    double round_us = drafted ? controller_round_us(&p->cost, facts, 1) : 0;
    while (facts->limit_us > 0 && most > 0 &&
           cost_curve_us(&p->cost, facts->rows + most) + facts->fixed_us + most * round_us >
               facts->limit_us)
        most--;
    return most;
}

// A step that tries what guessing does, where it would otherwise be off, as far as that may cost
// something. One sequence guesses, in turn.
static void probe(speculation *p, const step_facts *facts)
{
    int32_t reach = cost_curve_reach(&p->cost, facts->rows) - facts->rows;
    int32_t most = p->probe_length < reach ? p->probe_length : reach;
    bool due = probes_due(&p->probes, p->settings->probe_percent, pace_of(p, facts));
    if (!due || p->allowance.steps <= 0)
        return;
    for (int32_t i = 0; i < p->step_count; i++) {
        int32_t at = (int32_t)((p->stats.steps_probing + (uint64_t)i) % (uint64_t)p->step_count);
        int32_t could = p->step[at].could;
        if (could == 0 || p->step[at].dear)
            continue;
        most = most_within(p, facts, p->step[at].drafter == MODEL, could < most ? could : most);
        if (most == 0)
            return; // it would be too long a step for the others
        p->offers[at].chosen = most;
        p->probe_length = p->probe_length < 8 ? p->probe_length * 2 : 1;
        probes_spend(&p->probes);
        p->probing = true;
        return;
    }
}

// Where it is on, it is tried what twice as many guesses cost, as rarely.
static void widen(speculation *p, const step_facts *facts)
{
    bool due = probes_due(&p->probes, p->settings->probe_percent, PROBE_USUAL);
    if (due && p->allowance.steps > 0 &&
        controller_widen(&p->cost, facts, p->offers, p->step_count))
        probes_spend(&p->probes);
}

// Steps that the small model's catching up with a sequence takes before its first guess.
static double shadow_late(const speculation *p, const step_facts *facts, const guess_offer *o)
{
    int32_t count;
    sequence_tokens(o->item.sequence, &count);
    double late = draft_model_behind(p->model, o->item.slot, count) - CATCH_UP_FREE;
    double us = controller_round_us(&p->cost, facts, 1) * CATCH_UP_SHARE;
    double plain_us = cost_curve_us(&p->cost, facts->rows) + p->context_us;
    return plain_us > 0 ? fmax(late, 0) * us / plain_us : 0;
}

// What is offered for one sequence: the text's guess, which is there, or the model's, which is made
// only if it is chosen; whichever gains more alone. What catching up costs must be won back soon.
static offer offer_make(speculation *p, guess_offer *o, const step_facts *facts)
{
    offer text = { 0 }, model = { .drafted = true };
    o->drafter = -1;
    o->could = o->given = 0;
    o->lost = o->dear = false;
    if (o->item.slot < 0)
        return text;
    text.alpha = guess_text(p, o);
    o->could = o->drafter >= 0 ? o->draft.count : 0;
    o->lost = ledger_loses(ledger_of(p, false, facts->rows));
    if (o->drafter >= 0 && !o->lost)
        text.count = count_of(p, o, o->drafter, o->could);
    if (!p->model || !draft_model_ready(p->model, o->item.slot))
        return text;
    guess_offer other = { .item = o->item };
    model.alpha = alpha_of(p, &other, MODEL);
    model.count = count_of(p, &other, MODEL, (int32_t)p->settings->tokens);
    double late = shadow_late(p, facts, o), gain = controller_gain(&p->cost, facts, &model);
    bool lost = ledger_loses(ledger_of(p, true, facts->rows));
    bool loses = lost || late > PAY_BACK * (gain - 1);
    if (text.count > 0 && (loses || controller_gain(&p->cost, facts, &text) >= gain))
        return text;
    o->drafter = MODEL;
    o->could = (int32_t)p->settings->tokens;
    o->lost = lost;
    o->dear = late > p->allowance.steps;
    model.count = loses ? 0 : model.count;
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
    if (count == 0)
        return;
    uint64_t begun_us = clock_now_us();
    draft_model_guess(p->model, p->requests, count);
    uint64_t took_us = clock_now_us() - begun_us;
    p->drafting_us = (double)took_us;
    p->stats.drafting_us += took_us;
    p->modelled = true;
}

static void drafts_give(speculation *p, engine *e)
{
    for (int32_t i = 0; i < p->step_count; i++) {
        guess_offer *o = &p->step[i];
        int32_t chosen = p->offers[i].chosen;
        chosen = chosen < o->draft.count ? chosen : o->draft.count;
        if (o->drafter >= 0 && chosen > 0)
            o->given = engine_sequence_draft(e, o->item.sequence, o->draft.tokens, chosen);
        p->guessed = p->guessed || o->given > 0;
    }
}

// What was chosen is not done, whatever it was predicted to gain.
static void offers_withdraw(speculation *p)
{
    p->stats.gain = 1;
    for (int32_t i = 0; i < p->step_count; i++)
        p->offers[i].chosen = 0;
}

// Whether the small model has anything to do for sequences in a step of so many rows: its guesses
// are right often enough, or finding out what they cost or are worth may cost something. Where not,
// its prompts are not computed between steps either.
static bool model_may_pay(const speculation *p, const step_facts *facts)
{
    if (!p->model || facts->rows < 1 || p->settings->fixed > 0)
        return p->model != NULL;
    double needed = controller_break_even(&p->cost, facts, 2, true);
    double alpha = acceptance_alpha(&p->all[MODEL][0], MODEL_PRIOR, 4);
    bool known = cost_curve_knows(&p->cost, 2 * facts->rows) && cost_curve_us(facts->draft, 1) > 0;
    return alpha > needed || (p->allowance.steps > 0 && (needed < HOPELESS || !known));
}

bool speculation_work(speculation *p)
{
    return p->model && draft_model_work(p->model);
}

// Between two steps answers wait for it, so it counts.
static void model_work(speculation *p, const step_facts *facts)
{
    uint64_t begun_us = clock_now_us();
    double plain_us = cost_curve_us(&p->cost, facts->rows);
    if (model_may_pay(p, facts) && speculation_work(p) && plain_us > 0)
        allowance_add(&p->allowance, -(double)(clock_now_us() - begun_us) / plain_us);
}

static void offers_make(speculation *p, const step_facts *facts, const speculation_item *items)
{
    step_facts alone = *facts; // an offer is compared as one of many alike
    for (int32_t i = 0; p->model && i < facts->rows; i++)
        alone.sharers += items[i].slot >= 0 && draft_model_ready(p->model, items[i].slot);
    for (int32_t i = 0; i < facts->rows; i++) {
        guess_offer *o = &p->step[i];
        o->item = items[i];
        o->draft.count = 0;
        p->offers[i] = offer_make(p, o, &alone);
    }
    p->step_count = facts->rows;
}

// So many for each, whether it pays or not.
static void offers_fix(speculation *p)
{
    for (int32_t i = 0; i < p->step_count; i++) {
        int32_t could = p->step[i].could, fixed = (int32_t)p->settings->fixed;
        p->offers[i].chosen = could < fixed ? could : fixed;
    }
}

static void step_begin(speculation *p, const speculation_item *items, int32_t count)
{
    p->step_count = 0;
    p->guessed = p->probing = p->modelled = false;
    p->drafting_us = 0;
    p->batch = batch_bucket(count);
    p->stats.gain = 1;
    p->limit_us = 0;
    for (int32_t i = 0; i < count; i++) {
        double limit_us = (double)(items[i].class == SEQUENCE_BATCH ? p->settings->step_batch_us
                                                                    : p->settings->step_us);
        if (limit_us > 0 && (p->limit_us <= 0 || limit_us < p->limit_us))
            p->limit_us = limit_us;
    }
}

// Whether a step without guesses is due, so that its time is known.
static bool plain_due(const speculation *p, int32_t rows)
{
    double known = cost_curve_count(&p->cost, rows);
    return p->since_plain >= (known >= PLAIN_ENOUGH ? PLAIN_EVERY : PLAIN_EVERY_FIRST) ||
           known == 0;
}

void speculation_guess(speculation *p, engine *e, const speculation_item *items, int32_t count,
                       bool prompts)
{
    step_begin(p, items, count);
    step_facts facts = speculation_facts(p, count);
    model_work(p, &facts);
    if (prompts)
        speculation_tell_prompts(p, items, count);
    if (prompts || count < 1 || p->stats.drafter_count == 0 || count > p->slot_count)
        return;
    offers_make(p, &facts, items);
    probes_earn(&p->probes, p->settings->probe_percent);
    p->stats.gain = controller_choose(&p->cost, &facts, p->offers, count);
    bool plain = plain_due(p, count);
    if (plain)
        offers_withdraw(p);
    if (p->settings->fixed > 0)
        offers_fix(p);
    else if (!plain && p->stats.gain <= 1)
        probe(p, &facts);
    else if (!plain)
        widen(p, &facts);
    model_guess(p);
    drafts_give(p, e);
    speculation_tell_step(p, &facts, plain);
}

// ---- learning ---------------------------------------------------------------------------------

static void outcome_learn(speculation *p, const guess_offer *o, int32_t drafted, int32_t accepted)
{
    int d = o->drafter, band = d == MODEL ? 0 : o->draft.band;
    acceptance_add(&p->all[d][band], drafted, accepted);
    guess_slot *slot = &p->slots[o->item.slot];
    acceptance_add(&p->buckets[d][band][slot->class][slot->temperature][p->batch], drafted,
                   accepted);
    acceptance_add(&slot->bands[slot_band(d, band)], drafted, accepted);
    slot->guesses[slot_band(d, band)]++;
    speculation_tell_outcome(p, slot->class, d, drafted, accepted);
}

// What came of the guesses of a step without prompts. Probes are no loss of the ledger: they are
// not made because they would gain something.
static void ledgers_learn(speculation *p, const engine_report *report)
{
    int32_t rows = report->decode_rows - report->draft_rows;
    bool tried = p->guessed || p->modelled; // the model's time was spent, whatever was taken of it
    if (report->prefill_rows > 0 || rows < 1)
        return;
    double plain_us = cost_curve_us(&p->cost, rows) + p->context_us;
    double tokens = rows + report->accepted_count, us = (double)report->duration_us;
    allowance_earn(&p->allowance, (double)p->settings->probe_percent);
    if (tried && plain_us > 0)
        allowance_add(&p->allowance,
                      controller_gained(rows, plain_us, tokens, us) - p->drafting_us / plain_us);
    if (tried && !p->probing)
        ledger_add(ledger_of(p, p->modelled, rows),
                   controller_gained(rows, plain_us, tokens, us + p->drafting_us), tokens / rows);
    for (int k = 0; k < 2; k++)
        if (!tried || k != p->modelled)
            ledger_forgive(ledger_of(p, k, rows));
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
        s->on += ((p->guessed && !p->probing) - s->on) / ON_STEPS;
    }
    ledgers_learn(p, report);
    for (int32_t i = 0; i < p->step_count; i++) {
        int32_t drafted = 0, accepted = 0;
        const guess_offer *o = &p->step[i];
        if (p->offers[i].chosen == 0)
            continue;
        sequence_drafted(o->item.sequence, &drafted, &accepted);
        if (drafted > 0)
            outcome_learn(p, o, drafted, accepted);
        // What a grammar or an end forbade is wrong; what found no page may be right.
        else if (o->drafter == MODEL && o->draft.count > 0 && o->given == 0)
            acceptance_add(&p->slots[o->item.slot].bands[DRAFT_BANDS], 1, 0);
    }
    speculation_tell_report(p, report);
    p->since_plain = p->guessed ? p->since_plain + 1 : 0;
    p->step_count = 0;
    p->guessed = p->probing = false;
}
