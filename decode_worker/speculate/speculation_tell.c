#include "decode_worker/speculate/speculation_private.h"

#include "base/utf8.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define LATE_STEPS 1000.0
#define SOON_STEPS 32.0
#define TOLD_OUTCOMES 1000   // that an alpha which is told remembers
#define EXPECTED_OFFERS 32.0 // that the expected alpha is the mean of
#define RULE_OF_THUMB 0.6    // the alpha from which others say that guessing pays
#define SOURCE_MAX 33        // bytes of where guesses come from, with the NUL

static const char *const state_names[GUESS_STATES] = {
    [GUESS_ON] = "on",         [GUESS_PROBING] = "probing",    [GUESS_BELOW] = "below_break_even",
    [GUESS_LOST] = "lost",     [GUESS_LIMIT] = "limit",        [GUESS_PROMPTS] = "prompts",
    [GUESS_NONE] = "no_guess", [GUESS_MEASURES] = "measuring", [GUESS_PAGES] = "pages",
};

const char *guess_state_name(guess_state state)
{
    return state_names[state];
}

// ---- noting -----------------------------------------------------------------------------------

void speculation_tell_begin(speculation *p)
{
    for (int c = 0; c < SEQUENCE_CLASSES; c++)
        for (int d = 0; d < SPECULATION_DRAFTERS; d++)
            p->tales[c].outcomes[d] = acceptance_begin(TOLD_OUTCOMES);
}

static guess_tale *tale_of(speculation *p, int32_t slot)
{
    return &p->tales[p->slots[slot].class];
}

static void steps_clear(speculation *p)
{
    for (int c = 0; c < SEQUENCE_CLASSES; c++)
        memset(p->tales[c].step, 0, sizeof p->tales[c].step);
}

void speculation_tell_prompts(speculation *p, const speculation_item *items, int32_t count)
{
    steps_clear(p);
    for (int32_t i = 0; i < count; i++)
        if (items[i].slot >= 0)
            tale_of(p, items[i].slot)->step[GUESS_PROMPTS]++;
}

// Whether more guesses would pay but for the limit of the step or engine.draft_tokens.
static bool is_limited(const speculation *p, const step_facts *facts)
{
    int32_t chosen = 0, could = 0;
    double added_us =
        facts->fixed_us + controller_rounds_us(&p->cost, facts, p->offers, p->step_count);
    for (int32_t i = 0; i < p->step_count; i++) {
        chosen += p->offers[i].chosen;
        could += p->offers[i].count;
    }
    if (chosen > 0 && !p->probing)
        return chosen >= facts->room ||
               (facts->limit_us > 0 &&
                cost_curve_us(&p->cost, facts->rows + chosen + 1) + added_us > facts->limit_us);
    if (facts->limit_us <= 0 || p->step_count > COST_ROWS_MAX ||
        cost_curve_us(&p->cost, facts->rows + could) + facts->fixed_us <= facts->limit_us)
        return false;
    offer offers[COST_ROWS_MAX];
    step_facts unlimited = *facts;
    unlimited.limit_us = 0;
    memcpy(offers, p->offers, (size_t)p->step_count * sizeof offers[0]);
    return controller_choose(&p->cost, &unlimited, offers, p->step_count) > 1;
}

static guess_state state_of(const speculation *p, int32_t i, bool plain, bool limited)
{
    const guess_offer *o = &p->step[i];
    int only = p->slots[o->item.slot].only;
    if (o->given > 0)
        return p->probing ? GUESS_PROBING : GUESS_ON;
    if (o->drafter < 0 && p->model && (only < 0 || only == MODEL) &&
        !draft_model_has(p->model, o->item.slot))
        return GUESS_PAGES;
    if (o->drafter < 0 || p->offers[i].chosen > 0) // chosen and not taken: the answer ends there
        return GUESS_NONE;
    return plain ? GUESS_MEASURES : o->lost ? GUESS_LOST : limited ? GUESS_LIMIT : GUESS_BELOW;
}

static void expect(double *known, double alpha)
{
    *known = *known > 0 ? *known + (alpha - *known) / EXPECTED_OFFERS : alpha;
}

void speculation_tell_step(speculation *p, const step_facts *facts, bool plain)
{
    bool unknown = cost_curve_us(&p->cost, facts->rows) <= 0;
    bool limited = !plain && !unknown && is_limited(p, facts);
    steps_clear(p);
    for (int32_t i = 0; i < p->step_count; i++) {
        guess_offer *o = &p->step[i];
        if (o->item.slot < 0)
            continue;
        guess_tale *t = tale_of(p, o->item.slot);
        o->state = state_of(p, i, plain || unknown, limited);
        t->step[o->state]++;
        if (o->drafter >= 0)
            expect(&t->expected[o->drafter], p->offers[i].alpha);
        if (o->drafter >= 0 && o->state == GUESS_BELOW)
            expect(&t->below_alpha[o->drafter], p->offers[i].alpha);
    }
}

void speculation_tell_outcome(speculation *p, sequence_class class, int drafter, int32_t drafted,
                              int32_t accepted)
{
    speculation_drafter *d = &p->stats.classes[class].drafters[drafter];
    acceptance_add(&p->tales[class].outcomes[drafter], drafted, accepted);
    d->drafted += (uint64_t)drafted;
    d->accepted += (uint64_t)accepted;
    d->rejected += accepted < drafted;
    for (int32_t i = 0; i < drafted && i <= accepted; i++) {
        d->tried[i]++;
        d->right[i] += i < accepted;
    }
}

static void keep(double *sum, double steps, double more)
{
    *sum = *sum * (1 - 1 / steps) + more;
}

// How long what a drafter offers has been below break-even: until answers go on with its guesses.
static void belows_note(speculation *p, double us)
{
    int32_t below[SEQUENCE_CLASSES][SPECULATION_DRAFTERS] = { { 0 } };
    int32_t on[SEQUENCE_CLASSES][SPECULATION_DRAFTERS] = { { 0 } };
    for (int32_t i = 0; i < p->step_count; i++) {
        const guess_offer *o = &p->step[i];
        if (o->item.slot < 0 || o->drafter < 0)
            continue;
        sequence_class class = p->slots[o->item.slot].class;
        below[class][o->drafter] += o->state == GUESS_BELOW;
        on[class][o->drafter] += o->state == GUESS_ON;
    }
    for (int c = 0; c < SEQUENCE_CLASSES; c++)
        for (int d = 0; d < SPECULATION_DRAFTERS; d++) {
            double *sum = &p->tales[c].below_us[d];
            *sum = on[c][d] > 0 ? 0 : *sum + (below[c][d] > 0 ? us : 0);
            keep(&p->tales[c].below[d], SOON_STEPS, below[c][d]);
            keep(&p->tales[c].used[d], SOON_STEPS, on[c][d]);
        }
}

// Right guesses by class. Guesses that the engine took may have found no page then.
static void outcomes_gather(speculation *p, int32_t accepted[SEQUENCE_CLASSES])
{
    for (int32_t i = 0; i < p->step_count; i++) {
        const guess_offer *o = &p->step[i];
        int32_t drafted = 0, right = 0;
        if (o->item.slot < 0 || o->given == 0)
            continue;
        guess_tale *t = tale_of(p, o->item.slot);
        sequence_drafted(o->item.sequence, &drafted, &right);
        accepted[p->slots[o->item.slot].class] += right;
        if (drafted == 0) {
            t->step[o->state]--;
            t->step[GUESS_PAGES]++;
        }
    }
}

void speculation_tell_report(speculation *p, const engine_report *report)
{
    int32_t accepted[SEQUENCE_CLASSES] = { 0 }, rows = report->decode_rows - report->draft_rows;
    double us = (double)report->duration_us + p->drafting_us;
    double plain_us = cost_curve_us(&p->cost, rows) + p->context_us;
    if (report->decode_rows == 0)
        return;
    p->batch_mean += (rows - p->batch_mean) / (p->batch_mean > 0 ? SOON_STEPS : 1);
    outcomes_gather(p, accepted);
    belows_note(p, us);
    for (int c = 0; c < SEQUENCE_CLASSES; c++) {
        guess_tale *t = &p->tales[c];
        double answers = 0;
        for (int s = 0; s < GUESS_STATES; s++) {
            p->stats.classes[c].rows[s] += (uint64_t)t->step[s];
            keep(&t->late[s], LATE_STEPS, t->step[s]);
            keep(&t->soon[s], SOON_STEPS, t->step[s]);
            answers += t->step[s];
        }
        bool known = p->guessed && report->prefill_rows == 0 && plain_us > 0;
        double lost = known ? answers * fmin(us / plain_us, 2) : answers; // 2: somebody else's
        keep(&t->us, LATE_STEPS, answers > 0 ? us : 0);
        keep(&t->answers, LATE_STEPS, answers);
        keep(&t->tokens, LATE_STEPS, answers + accepted[c]);
        keep(&t->gained, LATE_STEPS, known ? answers + accepted[c] - lost : 0);
    }
    steps_clear(p);
}

// ---- telling ----------------------------------------------------------------------------------

// The least alpha that any number of guesses needs. The draft model's rounds take their time.
static double break_even_of(const speculation *p, const step_facts *facts, int drafter)
{
    double best = 1;
    for (int32_t g = 1; g <= p->settings->tokens && (g == 1 || g * facts->rows <= facts->room);
         g *= 2)
        best = fmin(best, controller_break_even(&p->cost, facts, g, drafter == MODEL));
    return best;
}

static void alpha_tell(const acceptance *outcomes, speculation_drafter *d)
{
    d->alpha = acceptance_alpha(outcomes, 0, 0);
    d->outcomes = outcomes->accepted + outcomes->rejected;
    acceptance_interval(outcomes, &d->low, &d->high);
}

static void drafter_add(const speculation_drafter *of_class, speculation_drafter *all)
{
    all->drafted += of_class->drafted;
    all->accepted += of_class->accepted;
    all->rejected += of_class->rejected;
    all->expected = fmax(all->expected, of_class->expected);
    for (int i = 0; i < DRAFT_MAX; i++) {
        all->tried[i] += of_class->tried[i];
        all->right[i] += of_class->right[i];
    }
}

static void class_tell(const guess_tale *t, speculation_class *to)
{
    double sum = 0, most = 0;
    for (int s = 0; s < GUESS_STATES; s++)
        sum += t->late[s];
    for (int s = 0; s < GUESS_STATES; s++) {
        to->shares[s] = sum > 0 ? t->late[s] / sum : 0;
        // Where a quarter of the answers are guessed for, the others but wait for their turn.
        double soon = s == GUESS_ON ? 3 * t->soon[s] : s == GUESS_PROBING ? 0 : t->soon[s];
        if (soon > most) {
            most = soon;
            to->now = (guess_state)s;
        }
    }
    to->tokens_per_step = t->answers > 0 ? t->tokens / t->answers : 0;
    to->tokens_per_s = t->us > 0 ? t->tokens / t->us * 1e6 : 0;
    to->gained_per_s = t->us > 0 ? t->gained / t->us * 1e6 : 0;
}

// Whose guesses decide what most answers are in: those that are used, that are below break-even, or
// else that promise most.
static void decider_tell(const guess_tale *t, speculation_class *to)
{
    double most = 0;
    to->drafter = -1;
    for (int i = 0; i < SPECULATION_DRAFTERS; i++) {
        const speculation_drafter *d = &to->drafters[i];
        double alpha = to->now == GUESS_ON      ? d->alpha
                       : to->now == GUESS_BELOW ? t->below_alpha[i]
                                                : d->expected;
        double weight = to->now == GUESS_ON      ? t->used[i]
                        : to->now == GUESS_BELOW ? t->below[i]
                                                 : alpha;
        if (weight <= most || alpha <= 0)
            continue;
        most = weight;
        to->drafter = i;
        to->alpha = alpha;
        to->break_even = d->break_even;
    }
}

void speculation_stats_of(const speculation *p, speculation_stats *stats)
{
    int32_t batch = (int32_t)lround(fmax(1, p->batch_mean));
    step_facts facts = speculation_facts(p, batch);
    *stats = p->stats;
    stats->batch = batch;
    if (p->model)
        stats->troubles = *draft_model_troubles_of(p->model);
    for (int i = 0; i < SPECULATION_DRAFTERS; i++) {
        speculation_drafter *all = &stats->drafters[i];
        acceptance sum = { 0 };
        all->break_even = break_even_of(p, &facts, i);
        for (int c = 0; c < SEQUENCE_CLASSES; c++) {
            const guess_tale *t = &p->tales[c];
            speculation_drafter *d = &stats->classes[c].drafters[i];
            d->name = all->name;
            d->draft = all->draft;
            d->break_even = all->break_even;
            d->expected = t->expected[i];
            d->below_s = t->below_us[i] / 1e6;
            alpha_tell(&t->outcomes[i], d);
            drafter_add(d, all);
            sum.accepted += t->outcomes[i].accepted;
            sum.rejected += t->outcomes[i].rejected;
        }
        alpha_tell(&sum, all);
    }
    stats->break_even = stats->drafters[0].break_even;
    for (int c = 0; c < SEQUENCE_CLASSES; c++) {
        class_tell(&p->tales[c], &stats->classes[c]);
        decider_tell(&p->tales[c], &stats->classes[c]);
    }
}

// ---- words ------------------------------------------------------------------------------------

// A cut may have gone through a letter, and a file's name is what somebody chose.
static void source_name(const speculation_drafter *d, char text[SOURCE_MAX])
{
    const char *words = d->draft[0] != '\0'             ? d->draft
                        : strcmp(d->name, "ngram") == 0 ? "its own text"
                                                        : "past answers";
    snprintf(text, SOURCE_MAX, "%.*s", SOURCE_MAX - 1, words);
    utf8_make_printable(text);
}

static int of_100(double alpha)
{
    long guesses = lround(100 * alpha);
    return guesses < 0 ? 0 : guesses > 100 ? 100 : (int)guesses;
}

// What does not fit is cut: numbers are as long as they are.
__attribute__((format(printf, 2, 3))) static void say(char *text, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, SPECULATION_SENTENCE_MAX, format, arguments);
    va_end(arguments);
}

static void below_sentence(const speculation_class *c, int32_t batch, char *text)
{
    char source[SOURCE_MAX];
    int right = of_100(c->alpha), needed = of_100(c->break_even);
    source_name(&c->drafters[c->drafter], source);
    if (c->break_even >= 1)
        say(text,
            "off: of 100 guesses from %s, %d are right (alpha %.2f); at batch %d (answers in a "
            "step) not even 100 pay for checking them (rule of thumb %.1f)",
            source, right, c->alpha, batch, RULE_OF_THUMB);
    else if (c->alpha < c->break_even)
        say(text,
            "off: of 100 guesses from %s, %d are right (alpha %.2f); at batch %d (answers in a "
            "step) %d are needed to pay for checking them (break-even %.2f; rule of thumb "
            "%.1f)",
            source, right, c->alpha, batch, needed > right ? needed : right + 1, c->break_even,
            RULE_OF_THUMB);
    else
        say(text,
            "off now: of 100 guesses from %s, %d are right (alpha %.2f); at batch %d (answers "
            "in a step) about %d are needed, more or less by answer",
            source, right, c->alpha, batch, needed);
}

static void on_sentence(const speculation_class *c, int32_t batch, char *text)
{
    char source[SOURCE_MAX];
    int right = of_100(c->alpha), needed = of_100(c->break_even);
    double without = fmax(0, c->tokens_per_s - c->gained_per_s);
    source_name(&c->drafters[c->drafter], source);
    if (c->alpha < c->break_even) // which is that of guesses for all answers
        say(text,
            "on for the surest: of 100 guesses from %s, %d are right (alpha %.2f); for all, %d "
            "are needed at batch %d; %.2f tokens a step, %.1f tokens/s instead of %.1f",
            source, right, c->alpha, needed, batch, c->tokens_per_step, c->tokens_per_s, without);
    else
        say(text,
            "on: of 100 guesses from %s, %d are right (alpha %.2f); at batch %d (answers in a "
            "step) %d are needed; %.2f tokens a step, %.1f tokens/s instead of %.1f",
            source, right, c->alpha, batch, needed, c->tokens_per_step, c->tokens_per_s, without);
}

void speculation_class_sentence(const speculation_stats *stats, sequence_class class,
                                char text[SPECULATION_SENTENCE_MAX])
{
    static const char *const words[GUESS_STATES] = {
        [GUESS_ON] = "on: it was just begun",
        [GUESS_BELOW] = "off: guesses would cost more than they bring",
        [GUESS_LOST] = "off: guesses seemed to pay, but of late steps with them brought less than "
                       "steps without; they are tried again soon",
        [GUESS_LIMIT] = "off: guesses would pay, but a step would take longer than "
                        "speculate.step or speculate.step_batch allows, or engine.draft_tokens "
                        "are guessed already",
        [GUESS_PROMPTS] = "off for now: prompts are computed in the same steps, and beside them "
                          "nothing is guessed",
        [GUESS_NONE] = "off: nothing in the texts so far tells what comes next",
        [GUESS_MEASURES] = "waiting: how long steps take is being measured",
        [GUESS_PAGES] = "off: no page of the cache is left for guesses",
    };
    const speculation_class *c = &stats->classes[class];
    bool any = c->tokens_per_step > 0, numbers = any && c->drafter >= 0 && c->break_even > 0;
    if (numbers && c->now == GUESS_BELOW)
        below_sentence(c, stats->batch, text);
    else if (numbers && c->now == GUESS_ON)
        on_sentence(c, stats->batch, text);
    else
        snprintf(text, SPECULATION_SENTENCE_MAX, "%s", any ? words[c->now] : "");
}

void speculation_sentence(const speculation *p, char text[SPECULATION_SENTENCE_MAX])
{
    speculation_stats s;
    speculation_stats_of(p, &s);
    int most = 0;
    for (int c = 1; c < SEQUENCE_CLASSES; c++)
        if (p->tales[c].answers > p->tales[most].answers)
            most = c;
    speculation_class_sentence(&s, (sequence_class)most, text);
    if (s.drafter_count == 0)
        snprintf(text, SPECULATION_SENTENCE_MAX, "off: no drafter is configured");
    else if (text[0] == '\0')
        snprintf(text, SPECULATION_SENTENCE_MAX, "waiting: nothing was guessed yet");
}
