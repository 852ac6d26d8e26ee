// The fields of a request that are one number or one boolean, and those that are refused by name.
#include "router/request_private.h"

#include "base/utf8.h"

#include <math.h>
#include <string.h>

#define CHAT 1u
#define COMPLETION 2u
#define BOTH (CHAT | COMPLETION)

typedef enum field_type { FIELD_NUMBER, FIELD_INTEGER, FIELD_BOOL } field_type;

typedef struct request_field {
    const char *name;
    unsigned kinds;
    field_type type;
    size_t offset; // of a double, int64_t or bool in struct request
    double initial, min, max;
} request_field;

#define AT(member) offsetof(request, member)

// clang-format off
static const request_field fields[] = {
    { "temperature",           BOTH,       FIELD_NUMBER,  AT(sampling.temperature), 1, 0, 2 },
    { "top_p",                 BOTH,       FIELD_NUMBER,  AT(sampling.top_p), 1, 0, 1 },
    { "min_p",                 BOTH,       FIELD_NUMBER,  AT(sampling.min_p), 0, 0, 1 },
    { "typical_p",             BOTH,       FIELD_NUMBER,  AT(sampling.typical_p), 1, 0.001, 1 },
    { "top_k",                 BOTH,       FIELD_INTEGER, AT(sampling.top_k), 0, -1, 2147483647 },
    { "repetition_penalty", BOTH, FIELD_NUMBER, AT(sampling.repetition_penalty), 1, 0.01, 100 },
    { "frequency_penalty", BOTH, FIELD_NUMBER, AT(sampling.frequency_penalty), 0, -2, 2 },
    { "presence_penalty",      BOTH,       FIELD_NUMBER,  AT(sampling.presence_penalty), 0, -2, 2 },
    // The second of the two wins where both are given.
    { "max_tokens",            BOTH,       FIELD_INTEGER, AT(max_tokens), -1, 0, 9.3e18 },
    { "max_completion_tokens", BOTH,       FIELD_INTEGER, AT(max_tokens), -1, 1, 9.3e18 },
    { "min_tokens",            BOTH,       FIELD_INTEGER, AT(min_tokens), 0, 0, 9.3e18 },
    { "n",                     BOTH,       FIELD_INTEGER, AT(n), 1, 1, 1e6 },
    { "best_of",               COMPLETION, FIELD_INTEGER, AT(best_of), 0, 1, 1e6 },
    { "priority",              BOTH,       FIELD_INTEGER, AT(priority), 0, 0, 1 },
    { "timeout",               BOTH,       FIELD_NUMBER,  AT(timeout_s), 0, 0.001, 86400 },
    { "ignore_eos",            BOTH,       FIELD_BOOL,    AT(ignore_eos), 0, 0, 0 },
    { "skip_special_tokens",   BOTH,       FIELD_BOOL,    AT(skip_special_tokens), 1, 0, 0 },
    { "stream",                BOTH,       FIELD_BOOL,    AT(stream), 0, 0, 0 },
    { "echo",                  COMPLETION, FIELD_BOOL,    AT(echo), 0, 0, 0 },
    { "include_stop_str_in_output", BOTH,  FIELD_BOOL,    AT(include_stop), 0, 0, 0 },
    { "logits_hash",           BOTH,       FIELD_BOOL,    AT(logits_hash), 0, 0, 0 },
    { "logprobs",              CHAT,       FIELD_BOOL,    AT(logprobs), 0, 0, 0 },
    { "add_generation_prompt",  CHAT,       FIELD_BOOL,    AT(add_generation_prompt), 1, 0, 0 },
    { "continue_final_message", CHAT,       FIELD_BOOL,    AT(continue_final_message), 0, 0, 0 },
    { "top_logprobs",          CHAT,       FIELD_INTEGER, AT(top_logprobs), 0, 0, 20 },
    { "prompt_logprobs",       BOTH,       FIELD_INTEGER, AT(prompt_top_logprobs), 0, 0, 20 },
    { "logprobs",              COMPLETION, FIELD_INTEGER, AT(top_logprobs), 0, 0, 20 },
};
// clang-format on

// Known fields with a rule elsewhere, or without an effect on the answer.
static const char *const other_fields[] = {
    "model",
    "messages",
    "prompt",
    "stop",
    "stop_token_ids",
    "logit_bias",
    "stream_options",
    "seed",
    "speculate",
    "user",
    "metadata",
    "store",
    "service_tier",
    "safety_identifier",
    "prompt_cache_key",
    "prompt_cache_retention",
    "prompt_cache_options",
    "prediction",
    "tools",
    "tool_choice",
    "parallel_tool_calls",
    "chat_template_kwargs",
    "documents",
    "response_format",
    "structured_outputs",
};

// Fields that would change the answer and are not offered. Accepted only with a value that asks for
// nothing: `neutral` in compact JSON (NULL: none does). `instead`: what does the same here.
static const struct {
    const char *name;
    const char *neutral, *instead;
} refused_fields[] = {
    { "suffix", "\"\"", NULL },
    { "functions", "[]", "tools" },
    { "function_call", "\"none\"", "tool_choice" },
    { "modalities", "[\"text\"]", NULL },
    { "audio", NULL, NULL },
    { "moderation", NULL, NULL },
    { "web_search_options", NULL, NULL },
    { "reasoning_effort", "\"none\"", NULL },
    { "verbosity", "\"medium\"", NULL },
    { "guided_json", NULL, "structured_outputs.json" },
    { "guided_regex", NULL, "structured_outputs.regex" },
    { "guided_choice", NULL, "structured_outputs.choice" },
    { "guided_grammar", NULL, NULL },
    { "grammar", NULL, NULL },
    { "use_beam_search", "false", NULL },
    { "length_penalty", "1.0", NULL },
    { "bad_words", "[]", "logit_bias" },
    { "truncate_prompt_tokens", NULL, NULL },
    { "lora", NULL, NULL },
    { "adapter", NULL, NULL },
};

static status field_range(const request_field *f, json_t *value, error *failure)
{
    if (f->type == FIELD_BOOL)
        return request_must_be(f->name, value, "true or false", failure);
    const char *kind = f->type == FIELD_INTEGER ? "an integer" : "a number";
    bool open = f->max > 9e18;
    bool integer = json_is_integer(value);
    char found[48];
    if (integer)
        snprintf(found, sizeof found, "%lld", (long long)json_integer_value(value));
    else if (json_is_real(value))
        snprintf(found, sizeof found, "%.9g", json_real_value(value));
    else
        snprintf(found, sizeof found, "%s", request_type_name(value));
    if (open)
        return error_set(failure, STATUS_INVALID, f->name, "%s is %s; right is %s of at least %.9g",
                         f->name, found, kind, f->min);
    return error_set(failure, STATUS_INVALID, f->name,
                     "%s is %s; right is %s between %.10g and %.10g", f->name, found, kind, f->min,
                     f->max);
}

static status field_parse(const request_field *f, json_t *value, request *r, error *failure)
{
    void *field = (char *)r + f->offset;
    if (f->type == FIELD_BOOL) {
        if (!json_is_boolean(value))
            return field_range(f, value, failure);
        *(bool *)field = json_is_true(value);
        return STATUS_OK;
    }
    if (f->type == FIELD_INTEGER) {
        if (!json_is_integer(value))
            return field_range(f, value, failure);
        int64_t number = json_integer_value(value);
        if ((double)number < f->min || (double)number > f->max)
            return field_range(f, value, failure);
        *(int64_t *)field = number;
        return STATUS_OK;
    }
    double number = json_number_value(value);
    if (!json_is_number(value) || !isfinite(number) || number < f->min || number > f->max)
        return field_range(f, value, failure);
    *(double *)field = number;
    return STATUS_OK;
}

static void field_reset(const request_field *f, request *r)
{
    void *field = (char *)r + f->offset;
    if (f->type == FIELD_BOOL)
        *(bool *)field = f->initial != 0;
    else if (f->type == FIELD_INTEGER)
        *(int64_t *)field = (int64_t)f->initial;
    else
        *(double *)field = f->initial;
}

static bool value_is_neutral(json_t *value, const char *neutral)
{
    if (!neutral)
        return false;
    json_t *expected = json_loads(neutral, JSON_DECODE_ANY, NULL);
    bool equal =
        json_equal(value, expected) || (json_is_number(value) && json_is_number(expected) &&
                                        json_number_value(value) == json_number_value(expected));
    json_decref(expected);
    return equal;
}

static status refusals_check(json_t *body, error *failure)
{
    for (size_t i = 0; i < sizeof refused_fields / sizeof *refused_fields; i++) {
        const char *name = refused_fields[i].name;
        json_t *value = request_member(body, name);
        if (!value || value_is_neutral(value, refused_fields[i].neutral))
            continue;
        const char *neutral = refused_fields[i].neutral, *instead = refused_fields[i].instead;
        return error_set(
            failure, STATUS_UNSUPPORTED, name, "%s is not supported by this server%s%s%s%s", name,
            neutral ? "; the only value that it takes is " : "", neutral ? neutral : "",
            instead ? "; in its place it has " : "", instead ? instead : "");
    }
    return STATUS_OK;
}

static bool name_is_known(const char *name, unsigned kind)
{
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
        if ((fields[i].kinds & kind) && strcmp(name, fields[i].name) == 0)
            return true;
    for (size_t i = 0; i < sizeof other_fields / sizeof *other_fields; i++)
        if (strcmp(name, other_fields[i]) == 0)
            return true;
    for (size_t i = 0; i < sizeof refused_fields / sizeof *refused_fields; i++)
        if (strcmp(name, refused_fields[i].name) == 0)
            return true;
    return false;
}

static const char *const drafter_names[] = { "", "off", "ngram", "suffix", "model" };
#define DRAFTERS (sizeof drafter_names / sizeof *drafter_names)

const char *request_drafter_name(uint8_t drafter)
{
    return drafter_names[drafter < DRAFTERS ? drafter : 0];
}

// The answer is the same whatever it says, only sooner or later.
static status drafter_parse(json_t *body, request *r, error *failure)
{
    json_t *value = request_member(body, "speculate");
    slice name = request_text(value);
    if (!value || slice_equal(name, SLICE("auto")))
        return STATUS_OK;
    for (size_t i = 1; i < DRAFTERS; i++)
        if (slice_equal(name, slice_of(drafter_names[i]))) {
            r->drafter = (uint8_t)i;
            return STATUS_OK;
        }
    return error_set(failure, STATUS_INVALID, "speculate",
                     "speculate is %s%.*s; right is \"auto\", \"off\", \"ngram\", \"suffix\" or "
                     "\"model\"",
                     json_is_string(value) ? "" : request_type_name(value), utf8_fit(name.data, 40),
                     name.data);
}

static status seed_parse(json_t *body, request *r, error *failure)
{
    json_t *value = request_member(body, "seed");
    if (!value)
        return STATUS_OK;
    if (!json_is_integer(value))
        return request_must_be("seed", value, "a 64-bit integer", failure);
    r->sampling.seed = json_integer_value(value);
    r->sampling.has_seed = true;
    return STATUS_OK;
}

static status option_parse(json_t *options, const char *name, bool *flag, error *failure)
{
    char field[64];
    json_t *value = request_member(options, name);
    snprintf(field, sizeof field, "stream_options.%s", name);
    if (value && !json_is_boolean(value))
        return request_must_be(field, value, "true or false", failure);
    *flag = json_is_true(value);
    return STATUS_OK;
}

static status stream_options_parse(json_t *body, request *r, error *failure)
{
    json_t *options = request_member(body, "stream_options");
    if (!options)
        return STATUS_OK;
    if (!json_is_object(options))
        return error_set(failure, STATUS_INVALID, "stream_options",
                         "stream_options is %s; right is an object", request_type_name(options));
    if (!r->stream)
        return error_set(failure, STATUS_INVALID, "stream_options",
                         "stream_options is only allowed with \"stream\": true");
    status result = option_parse(options, "include_usage", &r->include_usage, failure);
    if (result == STATUS_OK)
        result = option_parse(options, "continuous_usage_stats", &r->continuous_usage, failure);
    bool obfuscates; // checked, and no effect: events have no padding
    if (result == STATUS_OK)
        result = option_parse(options, "include_obfuscation", &obfuscates, failure);
    return result;
}

// Which log-probabilities are told, and of how many alternatives.
static status logprobs_agree(const request_rules *rules, json_t *body, request *r, error *failure)
{
    int64_t limit = rules->settings->top_logprobs_max;
    const char *field = request_is_chat(r) ? "top_logprobs" : "logprobs";
    r->prompt_logprobs = request_member(body, "prompt_logprobs") != NULL;
    if (r->prompt_logprobs && r->stream)
        return error_set(failure, STATUS_INVALID, "prompt_logprobs",
                         "prompt_logprobs cannot be streamed");
    if (r->kind == REQUEST_COMPLETION)
        r->logprobs = request_member(body, "logprobs") != NULL;
    else if (!r->logprobs && r->top_logprobs > 0)
        return error_set(failure, STATUS_INVALID, "top_logprobs",
                         "top_logprobs is only allowed with \"logprobs\": true");
    if (r->prompt_top_logprobs > r->top_logprobs)
        field = "prompt_logprobs";
    int64_t most =
        r->prompt_top_logprobs > r->top_logprobs ? r->prompt_top_logprobs : r->top_logprobs;
    if (most > limit)
        return error_set(failure, STATUS_INVALID, field,
                         "%lld alternatives were asked for; this server gives at most %lld",
                         (long long)most, (long long)limit);
    return STATUS_OK;
}

// Rules between fields.
static status fields_agree(const request_rules *rules, request *r, error *failure)
{
    if (r->sampling.top_k < 0)
        r->sampling.top_k = 0;
    if (r->max_tokens == 0 && !r->echo)
        return error_set(failure, STATUS_INVALID, "max_tokens",
                         "max_tokens is 0; right is at least 1, or 0 with \"echo\": true");
    r->choices = (size_t)(r->best_of ? r->best_of : r->n);
    if (r->choices < (size_t)r->n)
        return error_set(failure, STATUS_INVALID, "best_of",
                         "best_of is %lld; right is at least n (%lld)", (long long)r->best_of,
                         (long long)r->n);
    if (r->choices > (size_t)r->n && r->stream)
        return error_set(failure, STATUS_INVALID, "best_of",
                         "best_of greater than n cannot be streamed: which answers are the best is "
                         "known at their end");
    if (r->logits_hash && !rules->settings->debug)
        return error_set(failure, STATUS_INVALID, "logits_hash",
                         "logits_hash is only allowed where the router runs with api.debug = true");
    return STATUS_OK;
}

status request_fields_parse(const request_rules *rules, json_t *body, request *r, error *failure)
{
    status result = STATUS_OK;
    unsigned kind = request_is_chat(r) ? CHAT : COMPLETION;
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
        if (fields[i].kinds & kind)
            field_reset(&fields[i], r);
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        json_t *value = fields[i].kinds & kind ? request_member(body, fields[i].name) : NULL;
        if (value)
            TRY(field_parse(&fields[i], value, r, failure));
    }
    TRY(seed_parse(body, r, failure));
    TRY(drafter_parse(body, r, failure));
    TRY(stream_options_parse(body, r, failure));
    TRY(refusals_check(body, failure));
    TRY(fields_agree(rules, r, failure));
    TRY(logprobs_agree(rules, body, r, failure));
    const char *name;
    json_t *value;
    json_object_foreach(body, name, value) r->unknown_fields += !name_is_known(name, kind);
fail:
    return result;
}
