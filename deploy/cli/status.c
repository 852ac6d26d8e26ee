// A table of routers and their workers: states, pages, queues, and rates between two looks. On a
// terminal it is drawn again every second until Ctrl-C.
#include "deploy/cli/cli.h"

#include "base/clock.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define LOOK_US 1000000
#define FIRST_LOOK_US 500000 // between the two looks of --once

// What a router said, and before that.
typedef struct look {
    json_t *now, *before; // NULL: nothing
    uint64_t now_us, before_us;
    error failure; // where now is NULL
} look;

static atomic_bool over;

static void on_interrupt(int number)
{
    (void)number;
    over = 1;
}

static void look_take(const cli *c, size_t router, look *l)
{
    json_decref(l->before);
    l->before = l->now;
    l->before_us = l->now_us;
    l->now = NULL;
    l->now_us = clock_now_us();
    cli_request(c, c->routers[router], "/cluster", NULL, &l->now, &l->failure);
}

static const json_t *worker_before(const look *l, const json_t *worker)
{
    const json_t *w;
    size_t i;
    json_array_foreach(json_object_get(l->before, "workers"), i, w)
    {
        if (strcmp(cli_text(w, "incarnation"), cli_text(worker, "incarnation")) == 0)
            return w;
    }
    return NULL;
}

// Growth of a worker's counter in a second; negative: not known yet.
static double rate(const look *l, const json_t *worker, const char *counter)
{
    const json_t *before = worker_before(l, worker);
    double seconds = (double)(l->now_us - l->before_us) / 1e6;
    return before && seconds > 0
               ? (cli_number(worker, counter) - cli_number(before, counter)) / seconds
               : -1;
}

static void rate_format(double rate, char text[24])
{
    if (rate < 0)
        snprintf(text, 24, "-");
    else
        snprintf(text, 24, "%.0f", rate);
}

static void worker_print(const look *l, const json_t *w, int width)
{
    char pages[32], run[32], prefill[24], decode[24];
    snprintf(pages, sizeof pages, "%.0f/%.0f", cli_number(w, "pages") - cli_number(w, "pages_free"),
             cli_number(w, "pages"));
    snprintf(run, sizeof run, "%.0f+%.0f", cli_number(w, "sequences_running"),
             cli_number(w, "sequences_waiting"));
    rate_format(rate(l, w, "prefill_tokens"), prefill);
    rate_format(rate(l, w, "decode_tokens"), decode);
    printf("  %-*s  %-7s  %-9s  %-13s  %-9s  %12s  %11s  %8.1f\n", width, cli_text(w, "name"),
           cli_text(w, "role"), cli_text(w, "state"), pages, run, prefill, decode,
           cli_number(w, "step_ms"));
}

static double rate_sum(const look *l, const char *counter)
{
    const json_t *w;
    size_t i;
    double sum = 0;
    json_array_foreach(json_object_get(l->now, "workers"), i, w)
    {
        double one = rate(l, w, counter);
        sum += one > 0 ? one : 0;
    }
    return sum;
}

static void models_print(const json_t *models)
{
    const json_t *m;
    size_t i;
    json_array_foreach(models, i, m)
    {
        printf("  model %s: %.0f waiting, %.0f running%s%s\n", cli_text(m, "name"),
               cli_number(m, "requests_waiting"), cli_number(m, "requests_running"),
               json_is_true(json_object_get(m, "ready")) ? "" : "; not ready: ",
               json_is_true(json_object_get(m, "ready")) ? "" : cli_text(m, "not_ready_reason"));
    }
}

// Why guesses are on or off, for each class of answers on each worker that tells.
static void guesses_print(const json_t *worker, int width)
{
    const json_t *told = json_object_get(worker, "guesses"), *class;
    size_t i;
    json_array_foreach(json_object_get(told, "classes"), i, class)
    {
        printf("  %-*s  guesses for %s answers are %s\n", width,
               i == 0 ? cli_text(worker, "name") : "", cli_text(class, "name"),
               cli_text(class, "sentence"));
    }
}

static void router_print(const char *url, const look *l)
{
    const json_t *workers = json_object_get(l->now, "workers"), *w, *alert;
    size_t i;
    int width = 6;
    if (!l->now) {
        printf("router %s: %s\n", url, l->failure.text);
        return;
    }
    printf("router %s  %s  up %.0f s  connections %.0f  prompt tokens/s %.0f  tokens/s %.0f\n", url,
           json_is_true(json_object_get(l->now, "draining")) ? "draining"
           : json_is_true(json_object_get(l->now, "ready"))  ? "ready"
                                                             : cli_text(l->now, "not_ready_reason"),
           cli_number(l->now, "uptime_s"), cli_number(l->now, "connections"),
           rate_sum(l, "prefill_tokens"), rate_sum(l, "decode_tokens"));
    models_print(json_object_get(l->now, "models"));
    json_array_foreach(json_object_get(l->now, "alerts"), i, alert)
    {
        printf("  ! %s\n", cli_text(alert, "text"));
    }
    json_array_foreach(workers, i, w)
    {
        int size = (int)strlen(cli_text(w, "name"));
        width = size > width ? size : width;
    }
    if (json_array_size(workers) == 0) {
        printf("  (no worker has joined this router)\n");
        return;
    }
    printf("  %-*s  %-7s  %-9s  %-13s  %-9s  %12s  %11s  %8s\n", width, "worker", "role", "state",
           "pages used", "run+wait", "prefill tok/s", "decode tok/s", "step ms");
    json_array_foreach(workers, i, w)
    {
        worker_print(l, w, width);
    }
    json_array_foreach(workers, i, w)
    {
        guesses_print(w, width);
    }
}

static void json_print(const cli *c, look *looks)
{
    json_t *routers = json_array();
    for (size_t i = 0; i < c->router_count; i++) {
        look *l = &looks[i];
        json_t *one =
            l->now ? json_pack("{s:s,s:O,s:f,s:f}", "router", c->routers[i], "cluster", l->now,
                               "prefill_tokens_per_s", rate_sum(l, "prefill_tokens"),
                               "decode_tokens_per_s", rate_sum(l, "decode_tokens"))
                   : json_pack("{s:s,s:s}", "router", c->routers[i], "error", l->failure.text);
        json_array_append_new(routers, one);
    }
    json_t *answer = json_pack("{s:o}", "routers", routers);
    json_dumpf(answer, stdout, JSON_INDENT(2));
    printf("\n");
    json_decref(answer);
}

static bool looks_take(const cli *c, look *looks)
{
    bool any = false;
    for (size_t i = 0; i < c->router_count; i++) {
        look_take(c, i, &looks[i]);
        any = any || looks[i].now;
    }
    return any;
}

static void looks_print(const cli *c, const look *looks)
{
    for (size_t i = 0; i < c->router_count; i++)
        router_print(c->routers[i], &looks[i]);
    fflush(stdout);
}

int cli_status(const cli *c, const char *name, int count, char **arguments)
{
    (void)name, (void)count, (void)arguments;
    look looks[CLI_ROUTERS_MAX] = { 0 };
    struct sigaction action = { .sa_handler = on_interrupt };
    bool watch = !c->once && !c->json && isatty(1), any = looks_take(c, looks);
    if (any && !watch) { // rates need two looks
        clock_sleep_us(FIRST_LOOK_US);
        any = looks_take(c, looks);
    }
    if (watch)
        sigaction(SIGINT, &action, NULL);
    while (watch && !over) {
        fputs("\033[H\033[J", stdout); // the screen is empty
        looks_print(c, looks);
        usleep(LOOK_US); // a signal ends it early
        any = over ? any : looks_take(c, looks);
    }
    if (c->json)
        json_print(c, looks);
    else if (!watch && any)
        looks_print(c, looks);
    else if (!any)
        cli_failed(&looks[0].failure);
    for (size_t i = 0; i < c->router_count; i++) {
        json_decref(looks[i].now);
        json_decref(looks[i].before);
    }
    return any ? 0 : 1;
}
