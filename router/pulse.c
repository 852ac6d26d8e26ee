#include "router/pulse.h"

#include "base/clock.h"
#include "router/dispatcher.h"

#include <stdlib.h>

#define DEPARTED_MAX 16
#define DEPARTED_US 600000000u // ten minutes

typedef struct departed {
    char name[64];
    policy_role role;
    bool left;
    size_t model;
    uint64_t at_us; // 0: free
} departed;

struct pulse {
    router *router;
    http_timer *timer;
    trend *trend;
    departed departed[DEPARTED_MAX];
    size_t next; // in `departed`
};

// ---- samples ----------------------------------------------------------------------------------

static double total(const router *r, router_metric metric, const char *label, const char *two)
{
    return router_metrics_total(r->metrics, metric, label, two);
}

static void totals_gather(const router *r, double totals[TREND_COUNTERS])
{
    dispatcher_counts counts = dispatcher_count(r->dispatcher);
    totals[TREND_FINISHED] = total(r, ROUTER_METRIC_REQUESTS, "stop", NULL) +
                             total(r, ROUTER_METRIC_REQUESTS, "length", NULL);
    totals[TREND_ERRORS] = total(r, ROUTER_METRIC_REQUESTS, "error", NULL);
    totals[TREND_REFUSED] = total(r, ROUTER_METRIC_HTTP, NULL, "429");
    totals[TREND_RETRIES] = total(r, ROUTER_METRIC_RETRIES, NULL, NULL);
    totals[TREND_NO_PREFILL] = total(r, ROUTER_METRIC_FALLBACKS, "no_prefill_worker", NULL);
    totals[TREND_HANDOFF_FAILED] = total(r, ROUTER_METRIC_FALLBACKS, "handoff_failed", NULL);
    totals[TREND_GENERATED_TOKENS] = (double)counts.tokens;
    totals[TREND_PROMPT_TOKENS] = (double)counts.prompt_tokens;
    totals[TREND_HANDOFF_BYTES] = total(r, ROUTER_METRIC_HANDOFF_BYTES, NULL, NULL);
}

static void on_sample(void *context)
{
    pulse *p = context;
    router *r = p->router;
    dispatcher_counts counts = dispatcher_count(r->dispatcher);
    double totals[TREND_COUNTERS];
    double levels[TREND_LEVELS] = {
        [TREND_WAITING] = (double)counts.waiting, [TREND_RUNNING] = (double)counts.running
    };
    for (size_t i = 0; i < registry_count(r->registry); i++) {
        const registry_worker *w = registry_at(r->registry, i);
        if (w->role != POLICY_DECODE)
            continue;
        levels[TREND_PAGES_GRANTED] += (double)w->page_credits;
        levels[TREND_PAGES_SPENT] += (double)w->pages_spent;
    }
    totals_gather(r, totals);
    trend_sample(p->trend, totals, levels);
    http_timer_start(p->timer, TREND_SAMPLE_US);
}

status pulse_open(router *r, pulse **opened)
{
    pulse *p = calloc(1, sizeof *p);
    if (!p)
        return STATUS_NO_MEMORY;
    p->router = r;
    if (trend_open(&p->trend) != STATUS_OK ||
        http_timer_open(r->loop, on_sample, p, &p->timer) != STATUS_OK) {
        pulse_close(p);
        return STATUS_NO_MEMORY;
    }
    router_metrics_follow(r->metrics, p->trend);
    http_timer_start(p->timer, TREND_SAMPLE_US);
    *opened = p;
    return STATUS_OK;
}

void pulse_close(pulse *p)
{
    if (!p)
        return;
    router_metrics_follow(p->router->metrics, NULL);
    http_timer_close(p->timer);
    trend_close(p->trend);
    free(p);
}

const trend *pulse_trend(const pulse *p)
{
    return p->trend;
}

// ---- who is gone ------------------------------------------------------------------------------

void pulse_on_lost(pulse *p, const registry_worker *w)
{
    departed *d = &p->departed[p->next++ % DEPARTED_MAX];
    *d = (departed){
        .role = w->role, .left = w->left, .model = w->model->index, .at_us = clock_now_us()
    };
    memcpy(d->name, w->name, sizeof d->name);
}

static bool is_back(const router *r, const char *name)
{
    for (size_t i = 0; i < registry_count(r->registry); i++)
        if (strcmp(registry_at(r->registry, i)->name, name) == 0)
            return true;
    return false;
}

// Newest first, each name once.
static size_t departed_gather(const pulse *p, alerts_departed gone[DEPARTED_MAX])
{
    uint64_t now = clock_now_us();
    size_t count = 0;
    for (size_t i = 1; i <= DEPARTED_MAX && i <= p->next; i++) {
        const departed *d = &p->departed[(p->next - i) % DEPARTED_MAX];
        bool known = now - d->at_us > DEPARTED_US || is_back(p->router, d->name);
        for (size_t k = 0; k < count; k++)
            known = known || strcmp(gone[k].name, d->name) == 0;
        if (!known)
            gone[count++] =
                (alerts_departed){ d->name, d->role, d->left, (double)(now - d->at_us) / 1e6,
                                   p->router->models.items[d->model].prompt.identity.name };
    }
    return count;
}

// ---- alerts -----------------------------------------------------------------------------------

static void workers_gather(const router *r, alerts_worker *workers)
{
    for (size_t i = 0; i < registry_count(r->registry); i++) {
        const registry_worker *w = registry_at(r->registry, i);
        workers[i] = (alerts_worker){ .name = w->name,
                                      .model = w->model->index,
                                      .role = w->role,
                                      .state = registry_state_name(w),
                                      .usable = registry_usable(w),
                                      .pages = w->page_credits,
                                      .pages_spent = w->pages_spent,
                                      .sequences = w->sequences,
                                      .sequences_spent = w->sequences_spent,
                                      .tokens = w->token_credits,
                                      .tokens_outstanding = w->tokens_outstanding,
                                      .tokens_per_s = w->prefill_tokens_per_s,
                                      .pages_quarantined = w->beat.pages_quarantined,
                                      .guesses = &w->beat.guesses };
    }
}

static void models_gather(const router *r, alerts_model served[MODELS_MAX],
                          char reasons[MODELS_MAX][160])
{
    for (size_t i = 0; i < r->models.count; i++) {
        const served_model *m = &r->models.items[i];
        dispatcher_counts counts = dispatcher_count_model(r->dispatcher, m);
        bool ready = r->draining || router_ready(r, m, reasons[i]);
        served[i] = (alerts_model){ m->prompt.identity.name, ready ? NULL : reasons[i],
                                    counts.waiting, (double)counts.oldest_us / 1e6 };
    }
}

static void append_alerts(const alerts_view *view, buffer *out)
{
    alert found[ALERTS_MAX];
    size_t count = alerts_find(view, found);
    buffer_append_text(out, ",\"alerts\":[");
    for (size_t i = 0; i < count; i++) {
        buffer_printf(out, "%s{\"level\":\"%s\",\"code\":\"%s\",\"text\":", i ? "," : "",
                      alert_level_name(found[i].level), found[i].code);
        buffer_append_json(out, slice_of(found[i].text));
        buffer_append_byte(out, '}');
    }
    buffer_append_byte(out, ']');
}

static void append_departed(const alerts_departed *gone, size_t count, buffer *out)
{
    buffer_append_text(out, ",\"departed\":[");
    for (size_t i = 0; i < count; i++) {
        buffer_append_text(out, i ? ",{\"name\":" : "{\"name\":");
        buffer_append_json(out, slice_of(gone[i].name));
        buffer_append_text(out, ",\"model\":");
        buffer_append_json(out, slice_of(gone[i].model));
        buffer_printf(out, ",\"role\":\"%s\",\"said_goodbye\":%s,\"ago_s\":%.1f}",
                      policy_role_name(gone[i].role), gone[i].left ? "true" : "false",
                      gone[i].ago_s);
    }
    buffer_append_byte(out, ']');
}

void pulse_render(const pulse *p, buffer *out)
{
    const router *r = p->router;
    size_t count = registry_count(r->registry);
    alerts_worker *workers = calloc(count + 1, sizeof *workers);
    alerts_model served[MODELS_MAX];
    alerts_departed gone[DEPARTED_MAX];
    char reasons[MODELS_MAX][160];
    size_t gone_count = departed_gather(p, gone);
    if (!workers)
        return;
    workers_gather(r, workers);
    models_gather(r, served, reasons);
    alerts_view view = {
        .draining = r->draining,
        .local_prefill = r->settings->local_prefill,
        .running = dispatcher_count(r->dispatcher).running,
        .models = served,
        .model_count = r->models.count,
        .workers = workers,
        .worker_count = count,
        .departed = gone,
        .departed_count = gone_count,
        .errors = trend_sum(p->trend, TREND_ERRORS, TREND_MINUTE),
        .refused = trend_sum(p->trend, TREND_REFUSED, TREND_MINUTE),
        .retries = trend_sum(p->trend, TREND_RETRIES, TREND_MINUTE),
        .no_prefill = trend_sum(p->trend, TREND_NO_PREFILL, TREND_MINUTE),
        .handoff_failed = trend_sum(p->trend, TREND_HANDOFF_FAILED, TREND_MINUTE),
    };
    append_alerts(&view, out);
    append_departed(gone, gone_count, out);
    free(workers);
}
