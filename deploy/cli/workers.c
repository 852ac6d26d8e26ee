// Workers: showing them, and giving them orders.
#include "deploy/cli/cli.h"

#include "base/clock.h"

#include <stdio.h>
#include <string.h>

#define WAIT_US 1800000000ull // for a drain, at most
#define LOOK_US 200000

// ---- workers ----------------------------------------------------------------------------------

static void worker_print(const json_t *w, int name_width)
{
    char pages[48], credits[48], sequences[32];
    snprintf(pages, sizeof pages, "%.0f/%.0f", cli_number(w, "pages") - cli_number(w, "pages_free"),
             cli_number(w, "pages"));
    snprintf(credits, sizeof credits, "%.0f/%.0f", cli_number(w, "credits_pages_spent"),
             cli_number(w, "credits_pages"));
    snprintf(sequences, sizeof sequences, "%.0f+%.0f", cli_number(w, "sequences_running"),
             cli_number(w, "sequences_waiting"));
    printf("%-*s  %-7s  %-9s  %-13s  %-13s  %-9s  %8.1f  %-16s  %s\n", name_width,
           cli_text(w, "name"), cli_text(w, "role"), cli_text(w, "state"), pages, credits,
           sequences, cli_number(w, "step_ms"), cli_text(w, "incarnation"), cli_text(w, "version"));
}

int cli_workers(const cli *c, const char *name, int count, char **arguments)
{
    (void)name, (void)count, (void)arguments;
    error failure;
    json_t *answer = NULL, *w;
    size_t i;
    int width = 6;
    if (cli_request(c, c->routers[0], "/cluster", NULL, &answer, &failure) != STATUS_OK)
        return cli_failed(&failure);
    const json_t *workers = json_object_get(answer, "workers");
    if (c->json) {
        json_dumpf(workers, stdout, JSON_INDENT(2));
        printf("\n");
        json_decref(answer);
        return 0;
    }
    json_array_foreach(workers, i, w) width =
        (int)strlen(cli_text(w, "name")) > width ? (int)strlen(cli_text(w, "name")) : width;
    printf("%-*s  %-7s  %-9s  %-13s  %-13s  %-9s  %8s  %-16s  %s\n", width, "worker", "role",
           "state", "pages used", "credits used", "run+wait", "step ms", "incarnation", "version");
    json_array_foreach(workers, i, w) worker_print(w, width);
    if (json_array_size(workers) == 0)
        printf("(none has joined this router)\n");
    json_decref(answer);
    return 0;
}

// ---- orders -----------------------------------------------------------------------------------

static const json_t *worker_find(const json_t *answer, const char *name)
{
    size_t i;
    json_t *w;
    json_array_foreach(json_object_get(answer, "workers"), i,
                       w) if (strcmp(cli_text(w, "name"), name) == 0 ||
                              strcmp(cli_text(w, "incarnation"), name) == 0) return w;
    return NULL;
}

// Its name and incarnation now.
static status worker_look(const cli *c, const char *wanted, char name[128], char incarnation[32],
                          error *failure)
{
    json_t *answer = NULL;
    status result = cli_request(c, c->routers[0], "/cluster", NULL, &answer, failure);
    const json_t *w = result == STATUS_OK ? worker_find(answer, wanted) : NULL;
    name[0] = incarnation[0] = 0;
    if (w) {
        snprintf(name, 128, "%s", cli_text(w, "name"));
        snprintf(incarnation, 32, "%s", cli_text(w, "incarnation"));
    }
    json_decref(answer);
    return result;
}

// Whether the order is done: this life is over, and after a flip one of the new role is there.
static status done_look(const cli *c, const char *name, const char *incarnation, const char *role,
                        bool *done, error *failure)
{
    json_t *answer = NULL, *w;
    size_t i;
    status result = cli_request(c, c->routers[0], "/cluster", NULL, &answer, failure);
    *done = result == STATUS_OK && !worker_find(answer, incarnation);
    bool born = role == NULL;
    json_array_foreach(json_object_get(answer, "workers"), i, w) born =
        born || (strcmp(cli_text(w, "name"), name) == 0 && strcmp(cli_text(w, "role"), role) == 0 &&
                 strcmp(cli_text(w, "state"), "alive") == 0);
    *done = *done && born;
    json_decref(answer);
    return result;
}

static int done_wait(const cli *c, const char *name, const char *incarnation, const char *role)
{
    error failure;
    bool done = false;
    for (uint64_t end_us = clock_now_us() + WAIT_US; !done; clock_sleep_us(LOOK_US)) {
        if (done_look(c, name, incarnation, role, &done, &failure) != STATUS_OK)
            return cli_failed(&failure);
        if (clock_now_us() > end_us) {
            fprintf(stderr, "penstock: worker %s did not follow within half an hour\n", name);
            return 1;
        }
    }
    printf("%s: done\n", name);
    return 0;
}

int cli_order(const cli *c, const char *name, int count, char **arguments)
{
    (void)count;
    error failure;
    json_t *answer = NULL;
    char worker[128], incarnation[32];
    const char *role = strcmp(name, "flip") == 0 ? arguments[1] : NULL;
    if (c->wait && worker_look(c, arguments[0], worker, incarnation, &failure) != STATUS_OK)
        return cli_failed(&failure);
    json_t *order =
        json_pack("{s:s,s:s,s:s*}", "worker", arguments[0], "action", name, "role", role);
    status result =
        order ? cli_request(c, c->routers[0], "/admin/workers", order, &answer, &failure)
              : error_set(&failure, STATUS_INVALID, "", "the worker's name must be UTF-8 text");
    json_decref(order);
    if (result != STATUS_OK)
        return cli_failed(&failure);
    printf("%s: %s%s%s accepted\n", cli_text(answer, "worker"), name, role ? " to " : "",
           role ? role : "");
    json_decref(answer);
    return c->wait ? done_wait(c, worker, incarnation, role) : 0;
}
