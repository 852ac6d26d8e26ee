#include "router/settings.h"

#define FIELD(name) offsetof(router_settings, name)

static const char *const tool_formats[] = { "auto",    "none",  "hermes", "llama3",
                                            "mistral", "gemma", NULL };
static const char *const reasonings[] = { "auto", "off", NULL };
static const char *const admin_accesses[] = { "local", "key", "off", NULL };

// clang-format off
static const config_key router_keys[] = {
    { "control.listen", CONFIG_STRING, FIELD(control_listen), "tcp://127.0.0.1:7000", 0, 0, "",
      "Where workers register: tcp://host:port or ipc:///path.", NULL },
    { "control.heartbeat", CONFIG_DURATION, FIELD(heartbeat_us), "500ms", 10e3, 60e6, "",
      "How often router and worker speak.", NULL },
    { "control.suspect_after", CONFIG_DURATION, FIELD(suspect_after_us), "1500ms", 20e3, 600e6, "",
      "A worker silent for this long gets no new work.", NULL },
    { "control.dead_after", CONFIG_DURATION, FIELD(dead_after_us), "3s", 40e3, 600e6, "",
      "A worker silent for this long is dead: its requests go to another one.", NULL },
    { "control.workers_max", CONFIG_INT, FIELD(workers_max), "1024", 1, 65536, "workers",
      "Workers that may be registered at a time.", NULL },
    { "control.batch_threads", CONFIG_BOOL, FIELD(batch_threads), "false", 0, 0, "",
      "For a router with cores of its own and many workers: threads that read messages wait for the loop to rest; more requests a second.", NULL },
    { "router.model", CONFIG_STRING, FIELD(model.file), "", 0, 0, "",
      "GGUF file with the tokenizer and chat template; workers must serve the same file. Further ones: models.", NULL },
    { "router.model_name", CONFIG_STRING, FIELD(model.name), "", 0, 0, "",
      "The model's name in the API; empty: the file's name without its ending.", NULL },
    { "router.model_aliases", CONFIG_STRINGS, FIELD(model.aliases), "", 0, 0, "",
      "Further names that requests may use.", NULL },
    { "router.chat_template", CONFIG_STRING, FIELD(model.chat_template), "", 0, 0, "",
      "File with a chat template (Jinja) in place of the model file's own; empty: that one.", NULL },
    { "router.tool_format", CONFIG_STRING, FIELD(model.tool_format), "auto", 0, 0, "",
      "How the model writes calls of tools; auto: as its template shows.", tool_formats },
    { "router.reasoning", CONFIG_STRING, FIELD(model.reasoning), "auto", 0, 0, "",
      "Whether <think> blocks become reasoning_content, where the template knows them.", reasonings },
    { "router.running_max", CONFIG_INT, FIELD(running_max), "4096", 1, 1000000, "requests",
      "Requests under way in all, waiting ones included; more are answered 429.", NULL },
    { "router.retry_budget", CONFIG_DURATION, FIELD(retry_budget_us), "30s", 0, 3600e6, "",
      "A request whose worker failed is tried again for this long.", NULL },
    { "router.worker_wait", CONFIG_DURATION, FIELD(worker_wait_us), "5s", 0, 3600e6, "",
      "A request that comes while no worker can serve it waits this long for one.", NULL },
    { "router.poison_deaths", CONFIG_INT, FIELD(poison_deaths), "3", 2, 1000, "workers",
      "A request that so many workers died with is refused; the last of them ran nothing beside it.", NULL },
    { "router.request_timeout", CONFIG_DURATION, FIELD(request_timeout_us), "30min", 0, 86400e6, "",
      "A request must be answered in this time; 0: no limit.", NULL },
    { "router.drain_deadline", CONFIG_DURATION, FIELD(drain_deadline_us), "30s", 0, 86400e6, "",
      "After SIGTERM running requests may go on for this long.", NULL },
    { "router.silence", CONFIG_DURATION, FIELD(silence_us), "15s", 100e3, 3600e6, "",
      "A stream silent for this long gets a comment line, so that proxies keep it.", NULL },
    { "router.offload_bytes", CONFIG_BYTES, FIELD(offload_bytes), "32KiB", 0, 268435456, "bytes",
      "Larger request bodies are parsed and tokenised on a helper thread.", NULL },
    { "router.history", CONFIG_INT, FIELD(history), "1024", 1, 1000000, "requests",
      "Finished requests that /requests/{id} still explains.", NULL },
    { "admission.interactive_queue", CONFIG_INT, FIELD(queue_max[ADMISSION_INTERACTIVE]), "512", 1, 1e6,
      "requests", "Interactive requests that may wait for room on a worker; more are answered 429.", NULL },
    { "admission.batch_queue", CONFIG_INT, FIELD(queue_max[ADMISSION_BATCH]), "512", 1, 1e6, "requests",
      "Batch requests (priority 1) that may wait for room; more are answered 429.", NULL },
    { "admission.interactive_share", CONFIG_FLOAT, FIELD(share[ADMISSION_INTERACTIVE]), "1", 0.01, 1, "",
      "Share of the decode workers' credits that interactive requests may hold.", NULL },
    { "admission.batch_share", CONFIG_FLOAT, FIELD(share[ADMISSION_BATCH]), "0.8", 0.01, 1, "",
      "Share of the decode workers' credits that batch requests may hold.", NULL },
    { "admission.batch_delay", CONFIG_DURATION, FIELD(batch_delay_us), "10s", 0, 86400e6, "",
      "A batch request waits behind interactive ones that came up to this long after it.", NULL },
    { "admission.patience", CONFIG_DURATION, FIELD(patience_us), "2s", 0, 3600e6, "",
      "Others pass a request that finds no room for this long; then a worker is kept free for it.", NULL },
    { "policy.local_prefill_tokens", CONFIG_INT, FIELD(local_prefill_tokens), "64", 0, 1e9,
      "tokens",
      "Prompts of at most this many tokens are computed by the decode worker itself.", NULL },
    { "policy.local_prefill", CONFIG_BOOL, FIELD(local_prefill), "true", 0, 0, "",
      "Whether decode workers compute prompts while no prefill worker is alive.", NULL },
    { "policy.versions", CONFIG_STRINGS, FIELD(model.versions), "", 0, 0, "",
      "Versions of the model: the weights' 32 hex digits, a colon and the share of new requests; none: this router's file.", NULL },
    { "policy.mixed_numeric_ids", CONFIG_BOOL, FIELD(mixed_numeric_ids), "false", 0, 0, "",
      "Whether workers with unlike numeric ids may pair and recover each other's requests.", NULL },
    { "http.admin_listen", CONFIG_STRINGS, FIELD(admin_listen), "", 0, 0, "",
      "Addresses where operators' routes (/metrics, /cluster, /requests, /, /admin) are instead, without a key; none: http.listen.", NULL },
    { "security.keys_file", CONFIG_STRING, FIELD(keys_file), "", 0, 0, "",
      "File of API keys, one a line as `penstock key` prints it; empty: nobody needs a key.", NULL },
    { "security.tenant_isolation", CONFIG_BOOL, FIELD(tenant_isolation), "true", 0, 0, "",
      "Whether a key's requests share cached prefixes only with those of its own tenant.", NULL },
    { "log.access", CONFIG_BOOL, FIELD(access_log), "true", 0, 0, "",
      "One line a request; GETs of health and operators' routes at level debug.", NULL },
    { "admin.access", CONFIG_STRING, FIELD(admin_access), "local", 0, 0, "",
      "Who may order workers about: clients of this machine, holders of the key (with security.keys_file: of an admin key), nobody.", admin_accesses },
    { "admin.key_file", CONFIG_STRING, FIELD(admin_key_file), "", 0, 0, "",
      "File whose first line is the Bearer token of operators, for admin.access key.", NULL },
    { "api.debug", CONFIG_BOOL, FIELD(debug), "false", 0, 0, "",
      "Allow the request extension logits_hash.", NULL },
    { "api.choices_max", CONFIG_INT, FIELD(choices_max), "128", 1, 4096, "sequences",
      "Sequences of one request: its prompts times n, or times best_of.", NULL },
    { "api.stop_strings_max", CONFIG_INT, FIELD(stop_strings_max), "16", 1, 64, "strings",
      "Stop strings of one request.", NULL },
    { "api.logit_bias_max", CONFIG_INT, FIELD(logit_bias_max), "1024", 1, 1024, "tokens",
      "Entries of a request's logit_bias.", NULL },
    { "api.top_logprobs_max", CONFIG_INT, FIELD(top_logprobs_max), "20", 0, 20, "tokens",
      "Alternatives per token that a request may ask for.", NULL },
    { "api.tokenize_tokens", CONFIG_INT, FIELD(tokenize_tokens), "262144", 1024, 16777216, "tokens",
      "Tokens of a text that /tokenize and /detokenize take; an answer of so many holds up the router for some 10 ms.", NULL },
    { "api.prompt_scores_max", CONFIG_INT, FIELD(prompt_scores_max), "524288", 1, 16777216, "log-probabilities",
      "Those of prompts in one answer (prompt_logprobs, echo with logprobs): tokens of all prompts, times the answers to each, times one and the alternatives. An echo without them counts as if it had them.", NULL },
    { "api.tools_max", CONFIG_INT, FIELD(tools_max), "128", 1, 1024, "functions",
      "Functions that a request may offer as tools.", NULL },
    { "api.tools_bytes", CONFIG_BYTES, FIELD(tools_bytes), "128KiB", 256, 1048576, "bytes",
      "JSON of a request's tools.", NULL },
};
// clang-format on

#define ROW(name) offsetof(model_settings, name)

// clang-format off
static const config_key model_keys[] = {
    { "file", CONFIG_STRING, ROW(file), "", 0, 0, "", "As router.model.", NULL },
    { "name", CONFIG_STRING, ROW(name), "", 0, 0, "", "As router.model_name.", NULL },
    { "aliases", CONFIG_STRINGS, ROW(aliases), "", 0, 0, "", "As router.model_aliases.", NULL },
    { "chat_template", CONFIG_STRING, ROW(chat_template), "", 0, 0, "", "As router.chat_template.", NULL },
    { "tool_format", CONFIG_STRING, ROW(tool_format), "auto", 0, 0, "", "As router.tool_format.", tool_formats },
    { "reasoning", CONFIG_STRING, ROW(reasoning), "auto", 0, 0, "", "As router.reasoning.", reasonings },
    { "versions", CONFIG_STRINGS, ROW(versions), "", 0, 0, "", "As policy.versions.", NULL },
};
// clang-format on
static const config_section model_section = { model_keys, sizeof model_keys / sizeof *model_keys };
static const config_part model_part = { &model_section, 0 };
static const char *const model_live_keys[] = { "versions", NULL };
static const config_program model_row = { .parts = &model_part,
                                          .part_count = 1,
                                          .settings_size = sizeof(model_settings),
                                          .live = model_live_keys };

static const config_list router_lists[] = {
    { "models", FIELD(further_models), &model_row, MODELS_MAX,
      "Further models, beside router.model or in its place; each has workers of its own." },
};

static const config_section router_section = { router_keys,
                                               sizeof router_keys / sizeof *router_keys };

static const config_part router_parts[] = {
    { &log_config_section, FIELD(log) },          { &http_config_section, FIELD(http) },
    { &mailbox_config_section, FIELD(security) }, { &router_section, 0 },
    { &fault_config_section, FIELD(faults) },
};

// What the loop alone reads, at the moment of use. Keys of requests (api.*) are read by the helper
// thread as well.
static const char *const live_keys[] = {
    "log.level",
    "log.format",
    "log.access",
    "faults",
    "router.running_max",
    "router.retry_budget",
    "router.worker_wait",
    "router.poison_deaths",
    "router.request_timeout",
    "router.drain_deadline",
    "security.tenant_isolation",
    "router.silence",
    "admission.interactive_queue",
    "admission.batch_queue",
    "admission.interactive_share",
    "admission.batch_share",
    "admission.batch_delay",
    "admission.patience",
    "policy.local_prefill_tokens",
    "policy.local_prefill",
    "policy.versions",
    "policy.mixed_numeric_ids",
    NULL,
};

const config_program router_program = {
    .name = "penstock-router",
    .summary =
        "The front of a Penstock cluster: takes OpenAI-style requests, places them on prefill "
        "and decode workers, streams the answers.",
    .parts = router_parts,
    .part_count = sizeof router_parts / sizeof *router_parts,
    .settings_size = sizeof(router_settings),
    .live = live_keys,
    .lists = router_lists,
    .list_count = sizeof router_lists / sizeof *router_lists,
};
