// The router's configuration: every key with its default, range, unit and sentence is in
// settings.c; `--print-config` prints them. After the start they are read
// only, but for the live keys, which the loop replaces on SIGHUP.
#pragma once

#include "base/config.h"
#include "base/fault.h"
#include "base/log.h"
#include "net/http.h"
#include "net/mailbox.h"
#include "router/admission.h"

#define MODELS_MAX 16

// One model: router.model* and policy.versions for the first, a group of the list `models` each for
// further ones.
typedef struct model_settings {
    char *file;          // path of the GGUF file with tokenizer and template
    char *name;          // what clients call it; empty: from the file's name
    char *chat_template; // path of a template instead of the file's own; empty: that one
    char *tool_format;   // how it writes calls of tools: "auto", or a name of text/tool_calls.h
    char *reasoning;     // "auto": blocks of thought are told apart; "off"
    config_strings aliases;
    config_strings versions; // see router/versions.h
} model_settings;

typedef struct router_settings {
    // Sections that other modules define.
    log_settings log;
    fault_settings faults;
    http_settings http;
    mailbox_security security;
    // control.*: the socket that workers register on, and how their silence is judged (heartbeat <
    // suspect < dead).
    char *control_listen;
    int64_t heartbeat_us, suspect_after_us, dead_after_us;
    int64_t workers_max;
    bool batch_threads; // see mailbox_threads_batch
    // What is served.
    model_settings model;
    config_rows further_models; // of model_settings
    // router.*: limits of requests in time and number.
    int64_t running_max; // requests under way in all
    int64_t retry_budget_us;
    int64_t worker_wait_us; // that nobody can serve a request
    int64_t poison_deaths;
    int64_t request_timeout_us; // 0: none
    int64_t drain_deadline_us;
    int64_t silence_us;     // an SSE comment after this long without a token
    uint64_t offload_bytes; // bodies above go to the helper thread
    int64_t history;        // finished requests that are still explained
    // admission.*: see router/admission.h. Arrays are by class.
    int64_t queue_max[ADMISSION_CLASSES]; // requests that wait for room
    double share[ADMISSION_CLASSES];      // of the credits
    int64_t batch_delay_us, patience_us;
    // policy.*: see router/policy.h.
    int64_t local_prefill_tokens; // prompts up to this length stay on the decode worker
    bool local_prefill;     // may a decode worker compute a prompt where no prefill worker lives
    bool mixed_numeric_ids; // may an attempt go on with other numbers
    // The door: see router/gate.h and router/keys.h.
    config_strings admin_listen; // http.admin_listen
    char *keys_file;             // security.keys_file; empty: nobody needs a key
    bool tenant_isolation;       // security.tenant_isolation
    bool access_log;             // log.access
    // admin.*: see router/admin.h.
    char *admin_access, *admin_key_file;
    // api.*: what one request may ask for.
    bool debug; // allow logits_hash
    int64_t choices_max, stop_strings_max, logit_bias_max, top_logprobs_max, tokenize_tokens;
    int64_t prompt_scores_max;
    int64_t tools_max;
    uint64_t tools_bytes;
} router_settings;

// The program for config_open: fills a router_settings. All strings live until config_close.
extern const config_program router_program;
