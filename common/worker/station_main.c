// The life of the process: configuration, start, loop, end.
#include "worker/station_private.h"

#include "base/clock.h"
#include "base/crash.h"
#include "base/random.h"
#include "worker/cores.h"
#include "worker/worker_private.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXIT_NOT_STARTED 1
#define CORES_BORROWED_MAX 64
#define ROUTE_ATTEMPTS 600 // of 100 ms: how long to wait at the start for a route to a router

#define AT(field) offsetof(station_settings, field)
// clang-format off
static const config_key queue_keys[] = {
    { "queue.waiting", CONFIG_INT, AT(waiting), "256", 0, 65536, "tickets", "Tickets that may wait for pages or a sequence; more are refused.", NULL },
    { "queue.waiting_time", CONFIG_DURATION, AT(waiting_us), "30s", 1000, 3.6e9, "", "How long a ticket may wait before it is refused.", NULL },
    { "queue.interactive_sequences", CONFIG_INT, AT(interactive_sequences), "0", 0, 4096, "sequences", "Interactive sequences in the engine at a time, at most; 0: as many as fit.", NULL },
    { "queue.batch_sequences", CONFIG_INT, AT(batch_sequences), "0", 0, 4096, "sequences", "Sequences of the batch class in the engine at a time, at most; 0: as many as fit.", NULL },
    { "queue.overtaking", CONFIG_INT, AT(overtaking), "16", 0, 65536, "tickets", "Tickets that may enter before an earlier one that finds no room; then they wait until it is in.", NULL },
    { "queue.batch_patience", CONFIG_DURATION, AT(batch_patience_us), "5s", 0, 3.6e9, "", "Interactive tickets enter before those of the batch class that wait for less than this.", NULL },
    { "queue.tokens", CONFIG_INT, AT(tokens), "32768", 0, 1e12, "tokens", "Prompt tokens that routers may have sent here and that are not yet computed; 0: any number. A longer prompt is taken when there is nothing else to compute.", NULL },
    { "queue.grammars", CONFIG_INT, AT(grammars), "16", 0, 4096, "grammars", "Compiled grammars that stay for tickets to come, beside those in use; each takes little as a rule, and up to about 30 MiB.", NULL },
    { "queue.grammar_bytes", CONFIG_BYTES, AT(grammar_bytes), "256MiB", 1048576, 1e12, "bytes", "Sources and compiled grammars of tickets, waiting ones too; a ticket whose grammar finds no room is refused.", NULL },
};
// clang-format on
#undef AT
const config_section station_config_section = { queue_keys,
                                                sizeof(queue_keys) / sizeof(queue_keys[0]) };

static void identity_fill(station *s)
{
    const engine_facts *f = engine_facts_of(s->engine);
    s->identity = (worker_identity){
        .role = s->role->role,
        .incarnation = random_system() | 1, // 0 names nobody
        .model_name = f->model_name,
        .architecture = f->architecture,
        .kv_layout = f->layout.name,
        .weights = f->weights,
        .numeric_id = f->numeric_id,
        .page_tokens = (uint32_t)f->layout.page_tokens,
        .page_bytes = (uint64_t)f->layout.page_bytes,
        .context = (uint32_t)f->context,
        .vocabulary = (uint32_t)f->vocabulary,
        .pages = (uint64_t)f->pages,
        .sequences = (uint32_t)f->max_sequences,
        .tokens = (uint64_t)s->config->queue.tokens,
        .threads = (uint32_t)f->threads,
    };
}

// The fabric binds one address before any router is joined: the configured one, or the one that
// leads to the first router. A name that cannot be looked up yet (the router starts later) is
// waited for.
static status fabric_host(const station *s, char host[64], error *failure)
{
    const char *configured =
        s->config->fabric.host[0] != 0 ? s->config->fabric.host : s->config->worker.host;
    snprintf(host, 64, "%s", configured[0] != 0 ? configured : "127.0.0.1");
    if (configured[0] != 0 || s->config->worker.routers.count == 0)
        return STATUS_OK;
    status result = STATUS_UNAVAILABLE;
    for (int i = 0; i < ROUTE_ATTEMPTS && result != STATUS_OK; i++) {
        if (i > 0)
            clock_sleep_us(100000);
        result = worker_route(s->config->worker.routers.items[0], host, failure);
        if (result != STATUS_OK && i % 50 == 0)
            log_warn(s->role->name, "no route yet reason %s", failure->text);
    }
    return result;
}

static status handoff_start(station *s, error *failure)
{
    char host[64];
    status result = fabric_host(s, host, failure);
    if (result != STATUS_OK)
        return result;
    handoff_settings settings = s->config->fabric;
    settings.host = host;
    const worker_identity *w = &s->identity;
    handoff_identity identity = {
        .incarnation = w->incarnation,
        .model_name = w->model_name,
        .architecture = w->architecture,
        .kv_layout = w->kv_layout,
        .weights = w->weights,
        .numeric_id = w->numeric_id,
        .page_tokens = w->page_tokens,
        .context = w->context,
        .vocabulary = w->vocabulary,
        .page_bytes = w->page_bytes,
    };
    void *pool;
    size_t pool_size;
    engine_pool_memory(s->engine, &pool, &pool_size);
    result =
        handoff_open(&settings, &identity, s->role->seats, pool, pool_size, &s->handoff, failure);
    if (result == STATUS_OK && s->role->seats)
        handoff_address(s->handoff, s->identity.fabric_host, &s->identity.fabric_port);
    return result;
}

static status jobs_open(station *s, error *failure)
{
    const engine_facts *f = engine_facts_of(s->engine);
    int32_t page_tokens = f->layout.page_tokens;
    // Running, waiting, and as many again whose transfers end.
    int32_t jobs = 2 * f->max_sequences + (int32_t)s->config->queue.waiting + 64;
    status result = job_table_open(jobs, f->context / page_tokens + 2, &s->jobs);
    if (result == STATUS_OK)
        result = report_batch_open(f->max_sequences + f->draft_tokens, &s->batch);
    s->biases = calloc(SEQUENCE_BIAS_MAX, sizeof(s->biases[0]));
    if (result == STATUS_OK && s->biases == NULL)
        result = STATUS_NO_MEMORY;
    return result == STATUS_OK ? result : error_set(failure, result, "", "memory is short");
}

static status station_open(station *s, error *failure)
{
    status result;
    char cores[256];
    backend_borrowed borrowed[CORES_BORROWED_MAX];
    engine_settings settings = s->config->engine;
    if (s->role->mode == SEQUENCE_PROMPT)
        settings.draft_tokens = 0; // nothing is generated
    if (s->config->engine.cores[0] == 0) {
        cores_claim(s->config->worker.cores, s->config->worker.run_folder, cores);
        if (s->config->worker.borrow)
            settings.borrowed_count =
                cores_borrow(s->config->worker.run_folder, borrowed, CORES_BORROWED_MAX);
        settings.borrowed = borrowed;
        log_info(s->role->name, "cores %s borrowed %d", cores, settings.borrowed_count);
    }
    TRY(mailbox_security_start(&s->config->security, failure));
    for (size_t i = 0; i < s->config->worker.routers.count; i++)
        TRY(mailbox_url_check("worker.routers", s->config->worker.routers.items[i], failure));
    TRY(page_open(&s->config->http, &s->page, failure));
    TRY(engine_open(&settings, &s->engine, failure));
    const engine_facts *f = engine_facts_of(s->engine);
    log_info(s->role->name, "loaded model %s level %s threads %d pages %d context %d",
             f->model_name, f->level, f->threads, f->pages, f->context);
    if (s->role->open != NULL)
        TRY(s->role->open(s, failure));
    identity_fill(s);
    TRY(jobs_open(s, failure));
    TRY(guides_open(s->config->engine.model, s->config->queue.grammars,
                    s->config->queue.grammar_bytes, &s->guides, failure));
    TRY(handoff_start(s, failure));
    TRY(worker_open(&s->config->worker, &s->identity, &s->worker, failure));
    TRY(worker_begin(s->worker, failure));
    page_worker(s->page, s->worker);
    return STATUS_OK;
fail:
    return result;
}

static void station_close(station *s)
{
    if (s->page != NULL)
        page_worker(s->page, NULL);
    worker_close(s->worker);
    if (s->handoff != NULL)
        handoff_close(s->handoff);
    job_table_close(s->jobs);
    guides_close(s->guides);
    report_batch_close(s->batch);
    free(s->biases);
    if (s->role->close != NULL)
        s->role->close(s);
    engine_close(s->engine);
    page_close(s->page);
}

static int station_live(station *s)
{
    error failure;
    log_apply(&s->config->log);
    if (fault_arm(&s->config->fault, &failure) != STATUS_OK ||
        station_open(s, &failure) != STATUS_OK) {
        log_error(s->role->name, "not started reason %s", failure.text);
        station_close(s);
        return EXIT_NOT_STARTED;
    }
    station_run(s);
    worker_leave(s->worker);
    log_info(s->role->name, "left after %llu steps", (unsigned long long)s->state.steps);
    station_close(s);
    return 0;
}

int station_main(const config_program *program, void *settings, const station_role *role, int argc,
                 char **argv)
{
    config_action action;
    error failure;
    if (config_open(program, argc, argv, settings, &action, &failure) != STATUS_OK) {
        fprintf(stderr, "%s: %s\n", program->name, failure.text);
        return EXIT_NOT_STARTED;
    }
    int code = 0;
    flip *become = NULL;
    if (action == CONFIG_RUN) {
        crash_report_install();
        worker_signals_open();
        station s = {
            .role = role,
            .config = settings,
            .settings = settings,
            .program = program,
            .argc = argc,
            .argv = argv,
        };
        code = station_live(&s);
        become = s.flip;
    }
    config_close(program, settings);
    if (become != NULL && code == 0 && worker_signal_count() == 0) {
        flip_execute(become, &failure);
        log_error(role->name, "not flipped reason %s", failure.text);
        code = EXIT_NOT_STARTED;
    }
    flip_free(become);
    return code;
}
