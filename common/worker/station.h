// One worker process: an engine, a hand-off and a worker around it, and the loop of the step thread
// that joins them.
//
// The loop: take what routers and the hand-off said (without waiting), end what is late, let
// waiting tickets in, tell the beat thread what is, compute one step, report its tokens. Where the
// engine has no work it sleeps until there is something. Prefill and decode worker differ in what a
// ticket begins, in the events of their side of a transfer, and in what they do with a step's
// tokens: their station_role.
#pragma once

#include "base/fault.h"
#include "base/log.h"
#include "worker/flip.h"
#include "worker/job.h"
#include "worker/page.h"
#include "worker/report.h"

#include <stddef.h>

// The `queue` section of a worker's configuration.
typedef struct station_settings {
    int64_t waiting;               // tickets that may wait for room
    int64_t waiting_us;            // how long
    int64_t interactive_sequences; // of that class in the engine at a time; 0: no limit of its own
    int64_t batch_sequences;
    int64_t overtaking;        // tickets that may enter before one that finds no room
    int64_t batch_patience_us; // then a batch ticket waits in one row with the interactive ones
    int64_t tokens;            // of prompts that routers may send ahead of their computation
    int64_t grammars;          // compiled ones kept for tickets to come
    uint64_t grammar_bytes;    // of sources and compiled grammars, waiting ones too
} station_settings;

// What every worker's settings begin with. Sections: log.*, faults, worker.*, queue.*, engine.*,
// fabric.*, http.*.
typedef struct station_config {
    log_settings log;
    fault_settings fault;
    worker_settings worker;
    station_settings queue;
    engine_settings engine;
    handoff_settings fabric;
    http_settings http;
    mailbox_security security;
} station_config;
extern const config_section station_config_section; // keys "queue.*"

// The parts of a config_program whose settings begin with a station_config.
// clang-format off
#define STATION_PARTS                                                      \
    { &log_config_section, offsetof(station_config, log) },                \
    { &fault_config_section, offsetof(station_config, fault) },            \
    { &worker_config_section, offsetof(station_config, worker) },          \
    { &station_config_section, offsetof(station_config, queue) },          \
    { &engine_config_section, offsetof(station_config, engine) },          \
    { &handoff_config_section, offsetof(station_config, fabric) },         \
    { &http_config_section_worker, offsetof(station_config, http) },       \
    { &mailbox_config_section, offsetof(station_config, security) }
// clang-format on

// The live keys of such a program: read by the step thread alone, at the moment of use.
extern const char *const station_live_keys[];

typedef struct station station;

typedef struct station_role {
    const char *name; // "prefill", "decode"
    Penstock__Role role;
    sequence_mode mode;
    bool seats; // transfers are received, not sent
    // A ticket came, before it waits for room; a failure refuses it.
    status (*begin)(station *s, job *j, error *failure);
    // Its sequence is open: start it, or seat it.
    void (*enter)(station *s, job *j);
    // A running sequence shall go on at another worker; NULL: this role has none.
    void (*migrate)(station *s, job *j, const Penstock__Migrate *order);
    // An event of its transfer, but for what ends a transfer that was stopped.
    void (*transfer)(station *s, job *j, const handoff_event *event);
    // The engine has nothing to do: do something else for the time of a step; false: there is
    // nothing.
    bool (*idle)(station *s);
    // A step comes.
    void (*stepping)(station *s);
    // A step is done.
    void (*stepped)(station *s, const engine_report *report);
    // What the role owns (`station.own`), behind the engine's opening and before its end. NULL:
    // nothing.
    status (*open)(station *s, error *failure);
    void (*close)(station *s);
    // The sequence of a job closes.
    void (*closing)(station *s, job *j);
} station_role;

// What roles work with.
struct station {
    const station_role *role;
    const station_config *config;
    void *settings; // the program's, beginning with `config`
    void *own;      // the role's
    const config_program *program;
    engine *engine;
    handoff *handoff;
    worker *worker;
    page *page;
    job_table *jobs;
    report_batch *batch;
    guides *guides;
    worker_identity identity;
    worker_state state;
    uint64_t step_begun_us; // of the step that `stepped` speaks of
    uint64_t generation;    // of the last seat
    backend_token_bias *biases;
    uint64_t slow_pairs; // counted as fallbacks already
    int argc;            // of main
    char **argv;
    flip *flip; // what the process becomes after its drain; NULL: it ends
};

// The whole program: configuration, start, loop, drain, end; returns its exit status (worker.h).
// `settings` begins with a station_config.
int station_main(const config_program *program, void *settings, const station_role *role, int argc,
                 char **argv);

// The job is over for its router, with whatever was said about it: its sequence closes now (`keep`:
// its pages stay as reusable prefix), its transfer is stopped, and it leaves the table when that is
// over.
void station_end(station *s, job *j, bool keep);
// station_end after Failed was sent and counted.
void station_fail(station *s, job *j, status code, const char *text);
// Begin to send to a peer; the job's key names the transfer.
void station_send_begin(station *s, job *j, const Penstock__PlanPeer *peer);
// Hold pages for the transfer, and let go of all of them.
void station_hold(station *s, job *j, const int32_t *pages, int32_t count);
// With a computed job's first token: how much of its prompt was found in the pool is final only
// now, because a prompt that another job computes at the same time counts too.
void station_count_reused(station *s, job *j);
