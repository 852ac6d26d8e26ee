#include "router/alerts.h"

#include "base/utf8.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define BUSY 0.7        // a share in use from which a resource may be what requests wait for
#define IDLE 0.2        // a share in use below which a role has little to do
#define BACKLOG_S 2.0   // of prompts on the prefill workers
#define WAIT_BAD_S 10.0 // in the line
#define GONE_S 120.0    // that a death is told
#define NAMES_MAX 3     // in a sentence

typedef struct list {
    alert *found;
    size_t count;
    const char *model; // that the next ones are about, where there are several; else NULL
} list;

// What the usable workers of a role have, in sum.
typedef struct load {
    size_t workers, usable;
    double pages, pages_spent, sequences, sequences_spent, tokens, tokens_outstanding, tokens_per_s;
    bool tokens_bounded;
} load;

const char *alert_level_name(alert_level level)
{
    static const char *const names[] = { "note", "warning", "bad" };
    return names[level];
}

__attribute__((format(printf, 4, 5))) static void add(list *l, alert_level level, const char *code,
                                                      const char *format, ...)
{
    if (l->count == ALERTS_MAX)
        return;
    alert *a = &l->found[l->count++];
    va_list arguments;
    a->level = level;
    a->code = code;
    int used = l->model
                   ? snprintf(a->text, sizeof a->text, "%.*s: ", utf8_fit(l->model, 64), l->model)
                   : 0;
    va_start(arguments, format);
    vsnprintf(a->text + used, sizeof a->text - (size_t)used, format, arguments);
    va_end(arguments);
    a->text[utf8_fit(a->text, sizeof a->text)] = 0;
}

// "12,340"
static const char *grouped(double number, char text[32])
{
    char digits[24];
    int size = snprintf(digits, sizeof digits, "%.0f", number < 0 ? 0 : number);
    char *at = text;
    for (int i = 0; i < size; i++) {
        if (i > 0 && (size - i) % 3 == 0)
            *at++ = ',';
        *at++ = digits[i];
    }
    *at = 0;
    return text;
}

static const char *plural(double count)
{
    return count == 1 ? "" : "s";
}

static load load_of(const alerts_view *v, const alerts_model *m, policy_role role)
{
    load l = { .tokens_bounded = true };
    for (size_t i = 0; i < v->worker_count; i++) {
        const alerts_worker *w = &v->workers[i];
        if (w->role != role || &v->models[w->model] != m)
            continue;
        l.workers++;
        if (!w->usable)
            continue;
        l.usable++;
        l.pages += (double)w->pages;
        l.pages_spent += (double)w->pages_spent;
        l.sequences += (double)w->sequences;
        l.sequences_spent += (double)w->sequences_spent;
        l.tokens += (double)w->tokens;
        l.tokens_outstanding += (double)w->tokens_outstanding;
        l.tokens_per_s += w->tokens_per_s;
        l.tokens_bounded = l.tokens_bounded && w->tokens > 0;
    }
    return l;
}

static double share(double used, double granted)
{
    return granted > 0 ? used / granted : used > 0;
}

static double greatest(double a, double b)
{
    return a > b ? a : b;
}

static double prefill_use(const load *l)
{
    double tokens = l->tokens_bounded ? share(l->tokens_outstanding, l->tokens) : 0;
    return greatest(
        greatest(share(l->pages_spent, l->pages), share(l->sequences_spent, l->sequences)), tokens);
}

// ---- what requests wait for -------------------------------------------------------------------

static void decode_bottleneck(list *l, const alerts_model *m, const load *decode,
                              const load *prefill, alert_level level)
{
    char used[32], of[32];
    bool pages = share(decode->pages_spent, decode->pages) >=
                 share(decode->sequences_spent, decode->sequences);
    const char *advice =
        prefill->usable > 1 && prefill_use(prefill) < IDLE
            ? " Prefill has little to do: a worker that flips to decode would help."
            : "";
    add(l, level, "decode_bottleneck",
        "Decode is the bottleneck: %zu request%s wait%s for %s (%s of %s in use), the first for "
        "%.1f s.%s",
        m->waiting, plural((double)m->waiting), m->waiting == 1 ? "s" : "",
        pages ? "pages" : "a place in a batch",
        grouped(pages ? decode->pages_spent : decode->sequences_spent, used),
        grouped(pages ? decode->pages : decode->sequences, of), m->oldest_s, advice);
}

static void prefill_bottleneck(list *l, const alerts_model *m, const load *decode,
                               const load *prefill, alert_level level)
{
    char tokens[32], time[48] = "";
    double use = greatest(share(decode->pages_spent, decode->pages),
                          share(decode->sequences_spent, decode->sequences));
    if (prefill->tokens_per_s > 0)
        snprintf(time, sizeof time, ", about %.1f s of work",
                 prefill->tokens_outstanding / prefill->tokens_per_s);
    add(l, level, "prefill_bottleneck",
        "Prefill is the bottleneck: %zu request%s wait%s, the first for %.1f s; %s prompt tokens "
        "are ahead%s.%s",
        m->waiting, plural((double)m->waiting), m->waiting == 1 ? "s" : "", m->oldest_s,
        grouped(prefill->tokens_outstanding, tokens), time,
        decode->usable > 1 && use < IDLE
            ? " Decode has little to do: a worker that flips to prefill would help."
            : "");
}

static void find_bottleneck(list *l, const alerts_view *v, const alerts_model *m)
{
    load prefill = load_of(v, m, POLICY_PREFILL), decode = load_of(v, m, POLICY_DECODE);
    double by_decode = greatest(share(decode.pages_spent, decode.pages),
                                share(decode.sequences_spent, decode.sequences));
    double by_prefill = prefill.usable ? prefill_use(&prefill) : 0;
    alert_level level = m->oldest_s >= WAIT_BAD_S ? ALERT_BAD : ALERT_WARNING;
    double backlog_s =
        prefill.tokens_per_s > 0 ? prefill.tokens_outstanding / prefill.tokens_per_s : 0;
    if (m->waiting > 0 && m->oldest_s >= ALERTS_WAIT_S && decode.usable > 0) {
        if (greatest(by_decode, by_prefill) < BUSY)
            add(l, level, "no_room",
                "%zu request%s wait%s, the first for %.1f s, although workers have room: no single "
                "one has enough, or the share of a class is used up.",
                m->waiting, plural((double)m->waiting), m->waiting == 1 ? "s" : "", m->oldest_s);
        else if (by_decode >= by_prefill)
            decode_bottleneck(l, m, &decode, &prefill, level);
        else
            prefill_bottleneck(l, m, &decode, &prefill, level);
    } else if (backlog_s >= BACKLOG_S) {
        char tokens[32];
        add(l, ALERT_WARNING, "prefill_backlog",
            "Prompts queue up at prefill: %s tokens are ahead, about %.1f s of work for %zu "
            "worker%s.",
            grouped(prefill.tokens_outstanding, tokens), backlog_s, prefill.usable,
            plural((double)prefill.usable));
    }
}

// ---- workers ----------------------------------------------------------------------------------

// Those in a state: "decode-1, decode-2 and 4 more". The number.
static size_t names_of(const alerts_view *v, const char *state, char names[160])
{
    size_t count = 0, used = 0;
    names[0] = 0;
    for (size_t i = 0; i < v->worker_count; i++) {
        const alerts_worker *w = &v->workers[i];
        if (strcmp(w->state, state) != 0)
            continue;
        if (count++ < NAMES_MAX)
            used += (size_t)snprintf(names + used, 160 - used, "%s%.*s", count > 1 ? ", " : "",
                                     utf8_fit(w->name, 40), w->name);
    }
    if (count > NAMES_MAX)
        snprintf(names + used, 160 - used, " and %zu more", count - NAMES_MAX);
    return count;
}

static void find_workers(list *l, const alerts_view *v)
{
    char names[160], pages[32];
    double quarantined = 0;
    size_t count;
    if ((count = names_of(v, "suspect", names)) > 0)
        add(l, ALERT_WARNING, "suspect", "%s %s silent and get%s no new work.", names,
            count == 1 ? "is" : "are", count == 1 ? "s" : "");
    if ((count = names_of(v, "unhealthy", names)) > 0)
        add(l, ALERT_BAD, "unhealthy", "%s %s work and make%s no progress.", names,
            count == 1 ? "has" : "have", count == 1 ? "s" : "");
    if ((count = names_of(v, "draining", names)) > 0)
        add(l, ALERT_NOTE, "draining", "%s drain%s: nothing new goes there.", names,
            count == 1 ? "s" : "");
    if ((count = names_of(v, "cordoned", names)) > 0)
        add(l, ALERT_NOTE, "cordoned", "%s %s cordoned by an operator.", names,
            count == 1 ? "is" : "are");
    for (size_t i = 0; i < v->worker_count; i++)
        quarantined += (double)v->workers[i].pages_quarantined;
    if (quarantined > 0)
        add(l, ALERT_WARNING, "quarantine",
            "%s page%s held back until the connection that may still touch them is closed.",
            grouped(quarantined, pages), quarantined == 1 ? " is" : "s are");
}

static void find_departed(list *l, const alerts_view *v)
{
    for (size_t i = 0; i < v->departed_count; i++) {
        const alerts_departed *d = &v->departed[i];
        if (d->left || d->ago_s > GONE_S)
            continue;
        add(l, ALERT_WARNING, "worker_lost",
            "The %s worker %.*s died %.0f s ago and has not come back.", policy_role_name(d->role),
            utf8_fit(d->name, 64), d->name, d->ago_s);
    }
}

// ---- guessed tokens ---------------------------------------------------------------------------

// Whether the draft model's guesses have stayed below break-even for a class of answers, longer
// than `longest`.
static bool stays_below(const guesses_drafter *d, const guesses_drafter *longest)
{
    bool below = d->expected < d->break_even || d->break_even >= 1; // still, with what it offers
    return d->draft[0] != 0 && d->below_s >= ALERTS_BELOW_S && below &&
           (!longest || d->below_s > longest->below_s);
}

// A draft model takes memory, and somebody chose it; guesses from texts cost nothing while they are
// off. The worker that it is worst on stands for all.
static void find_draft_below(list *l, const alerts_view *v, const alerts_model *m)
{
    const guesses_drafter *worst = NULL;
    const guesses_class *class = NULL;
    const alerts_worker *where = NULL;
    for (size_t i = 0; i < v->worker_count; i++) {
        const alerts_worker *w = &v->workers[i];
        if (&v->models[w->model] != m || !w->guesses || w->sequences_spent == 0)
            continue;
        for (size_t c = 0; c < w->guesses->class_count; c++)
            for (size_t k = 0; k < w->guesses->classes[c].drafter_count; k++)
                if (stays_below(&w->guesses->classes[c].drafters[k], worst)) {
                    where = w;
                    class = &w->guesses->classes[c];
                    worst = &class->drafters[k];
                }
    }
    if (!worst)
        return;
    char needed[48];
    if (worst->break_even < 1)
        snprintf(needed, sizeof needed, "%.0f are needed", 100 * worst->break_even);
    else
        snprintf(needed, sizeof needed, "not even 100 pay for checking them");
    add(l, ALERT_WARNING, "draft_below_break_even",
        "The draft model %.*s does not pay on %.*s: of 100 guesses %.0f are right (alpha %.2f), "
        "and %s at batch %u, so for %s answers it is off (the usual rule of thumb is 0.6).",
        utf8_fit(worst->draft, 32), worst->draft, utf8_fit(where->name, 32), where->name,
        100 * worst->expected, worst->expected, needed, where->guesses->batch, class->name);
}

// ---- requests ---------------------------------------------------------------------------------

static void find_requests(list *l, const alerts_view *v)
{
    char n[32];
    if (v->errors > 0)
        add(l, ALERT_BAD, "errors", "%s request%s failed within the last minute.",
            grouped(v->errors, n), plural(v->errors));
    if (v->refused > 0)
        add(l, ALERT_WARNING, "refused",
            "%s request%s within the last minute: too many wait (429).", grouped(v->refused, n),
            v->refused == 1 ? " was refused" : "s were refused");
    if (v->retries > 0)
        add(l, ALERT_WARNING, "retries",
            "%s further attempt%s within the last minute: requests went on elsewhere, or wait.",
            grouped(v->retries, n), v->retries == 1 ? " was needed" : "s were needed");
    if (v->handoff_failed > 0)
        add(l, ALERT_WARNING, "handoff_failed",
            "Hand-offs fail: %s prompt%s computed by decode workers within the last minute.",
            grouped(v->handoff_failed, n), v->handoff_failed == 1 ? " was" : "s were");
}

static void find_prefill_missing(list *l, const alerts_view *v, const alerts_model *m)
{
    load prefill = load_of(v, m, POLICY_PREFILL), decode = load_of(v, m, POLICY_DECODE);
    char n[32];
    if (!v->local_prefill || decode.usable == 0 || prefill.usable > 0)
        return;
    if (v->no_prefill > 0 && v->model_count == 1)
        add(l, ALERT_WARNING, "no_prefill",
            "No prefill worker can take work: decode workers compute the prompts themselves, %s "
            "within the last minute.",
            grouped(v->no_prefill, n));
    else
        add(l, ALERT_WARNING, "no_prefill",
            "No prefill worker can take work: decode workers compute the prompts themselves.");
}

size_t alerts_find(const alerts_view *view, alert found[ALERTS_MAX])
{
    alert unsorted[ALERTS_MAX];
    list l = { .found = unsorted };
    size_t count = 0;
    for (size_t i = 0; i < view->model_count; i++) {
        const alerts_model *m = &view->models[i];
        l.model = view->model_count > 1 ? m->name : NULL;
        if (m->not_ready)
            add(&l, ALERT_BAD, "not_ready", "No request can be served: %.*s.",
                utf8_fit(m->not_ready, 160), m->not_ready);
        find_bottleneck(&l, view, m);
        find_prefill_missing(&l, view, m);
        find_draft_below(&l, view, m);
    }
    l.model = NULL;
    find_requests(&l, view);
    find_departed(&l, view);
    find_workers(&l, view);
    if (view->draining)
        add(&l, ALERT_NOTE, "router_draining",
            "The router takes nothing new; %zu request%s finished.", view->running,
            view->running == 1 ? " is being" : "s are being");
    for (int level = ALERT_BAD; level >= ALERT_NOTE; level--)
        for (size_t i = 0; i < l.count; i++)
            if ((int)unsorted[i].level == level)
                found[count++] = unsorted[i];
    return count;
}
