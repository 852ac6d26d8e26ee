// Fields that do not change the text: who asks, for what, and how urgent it is. All but
// service_tier are checked and have no effect.
#include "router/request_private.h"

#include "base/utf8.h"

#include <stdio.h>
#include <string.h>

#define METADATA_MAX 16
#define METADATA_KEY_MAX 64
#define METADATA_VALUE_MAX 512
#define TIERS                                                                                      \
    "\"auto\", \"default\" or \"standard_only\", \"priority\", \"scale\" or \"fast\" "             \
    "(interactive), "                                                                              \
    "\"flex\" or \"batch\" (batch)"

typedef enum hint_type {
    HINT_STRING,
    HINT_BOOL,
    HINT_OBJECT,
    HINT_STRINGS,
    HINT_OBJECTS,
    HINT_CACHE_CONTROL,
    HINT_DIAGNOSTICS,
    HINT_EPHEMERAL,
    HINT_LIFETIME,
    HINT_SPEED,
} hint_type;

static const struct {
    const char *right;
    const char *words[2]; // of a string; none: any
    request_part inner;   // of an object whose members are hints; REQUEST_PART_BODY: they are not
} types[] = {
    [HINT_STRING] = { .right = "a string" },
    [HINT_BOOL] = { .right = "true or false" },
    [HINT_OBJECT] = { .right = "an object" },
    [HINT_STRINGS] = { .right = "an array of strings" },
    [HINT_OBJECTS] = { .right = "an array of objects" },
    [HINT_CACHE_CONTROL] = { .right = "an object", .inner = REQUEST_PART_CACHE_CONTROL },
    [HINT_DIAGNOSTICS] = { .right = "an object", .inner = REQUEST_PART_DIAGNOSTICS },
    [HINT_EPHEMERAL] = { .right = "\"ephemeral\"", .words = { "ephemeral" } },
    [HINT_LIFETIME] = { .right = "\"5m\" or \"1h\"", .words = { "5m", "1h" } },
    [HINT_SPEED] = { .right = "\"standard\" or \"fast\"", .words = { "standard", "fast" } },
};

// clang-format off
static const struct {
    request_part part;
    const char *name;
    hint_type type;
} hints[] = {
    { REQUEST_PART_BODY, "user", HINT_STRING },
    { REQUEST_PART_BODY, "safety_identifier", HINT_STRING },
    { REQUEST_PART_BODY, "prompt_cache_key", HINT_STRING },
    { REQUEST_PART_BODY, "prompt_cache_retention", HINT_STRING },
    { REQUEST_PART_BODY, "prompt_cache_options", HINT_OBJECT },
    { REQUEST_PART_BODY, "prediction", HINT_OBJECT }, // guesses of the answer: it is the same
    { REQUEST_PART_BODY, "store", HINT_BOOL },
    // Anthropic's.
    { REQUEST_PART_MESSAGES_BODY, "cache_control", HINT_CACHE_CONTROL },
    { REQUEST_PART_MESSAGES_BODY, "diagnostics", HINT_DIAGNOSTICS },
    { REQUEST_PART_MESSAGES_BODY, "inference_geo", HINT_STRING },
    { REQUEST_PART_MESSAGES_BODY, "speed", HINT_SPEED },
    { REQUEST_PART_MESSAGES_BODY, "user_profile_id", HINT_STRING },
    { REQUEST_PART_MESSAGES_BODY, "workspace_id", HINT_STRING },
    { REQUEST_PART_CACHE_CONTROL, "type", HINT_EPHEMERAL },
    { REQUEST_PART_CACHE_CONTROL, "ttl", HINT_LIFETIME },
    { REQUEST_PART_DIAGNOSTICS, "previous_message_id", HINT_STRING },
    { REQUEST_PART_TEXT, "cache_control", HINT_CACHE_CONTROL },
    { REQUEST_PART_TEXT, "citations", HINT_OBJECTS },
    { REQUEST_PART_RESULT, "cache_control", HINT_CACHE_CONTROL },
    { REQUEST_PART_RESULT, "is_error", HINT_BOOL },
    { REQUEST_PART_RESULT, "toolset_name", HINT_STRING },
    { REQUEST_PART_CALL, "cache_control", HINT_CACHE_CONTROL },
    { REQUEST_PART_CALL, "caller", HINT_OBJECT },
    { REQUEST_PART_CALL, "toolset_name", HINT_STRING },
    { REQUEST_PART_THOUGHT, "signature", HINT_STRING },
    { REQUEST_PART_REDACTED, "data", HINT_STRING },
    { REQUEST_PART_TOOL, "type", HINT_STRING },
    { REQUEST_PART_TOOL, "cache_control", HINT_CACHE_CONTROL },
    { REQUEST_PART_TOOL, "strict", HINT_BOOL },
    { REQUEST_PART_TOOL, "defer_loading", HINT_BOOL },
    { REQUEST_PART_TOOL, "eager_input_streaming", HINT_BOOL },
    { REQUEST_PART_TOOL, "input_examples", HINT_OBJECTS },
    { REQUEST_PART_TOOL, "allowed_callers", HINT_STRINGS },
    { REQUEST_PART_CHOICE, "disable_parallel_tool_use", HINT_BOOL },
};
// clang-format on

static bool word_is_right(json_t *value, hint_type type)
{
    const char *const *words = types[type].words;
    for (size_t i = 0; i < 2 && words[i]; i++)
        if (slice_equal(request_text(value), slice_of(words[i])))
            return true;
    return !words[0];
}

static status word_check(const char *field, json_t *value, hint_type type, error *failure)
{
    if (!json_is_string(value))
        return request_must_be(field, value, types[type].right, failure);
    if (word_is_right(value, type))
        return STATUS_OK;
    return error_set(failure, STATUS_INVALID, field, "%s is \"%.*s\"; right is %s", field,
                     utf8_fit(json_string_value(value), 40), json_string_value(value),
                     types[type].right);
}

static status array_check(const char *field, json_t *value, hint_type type, error *failure)
{
    if (!json_is_array(value))
        return request_must_be(field, value, types[type].right, failure);
    for (size_t i = 0; i < json_array_size(value); i++) {
        json_t *item = json_array_get(value, i);
        if (type == HINT_STRINGS ? !json_is_string(item) : !json_is_object(item))
            return error_set(failure, STATUS_INVALID, field, "%s[%zu] is %s; right is %s", field, i,
                             request_type_name(item),
                             type == HINT_STRINGS ? "a string" : "an object");
    }
    return STATUS_OK;
}

static status hint_check(const char *field, json_t *value, hint_type type, error *failure)
{
    switch (type) {
    case HINT_BOOL:
        return json_is_boolean(value) ? STATUS_OK
                                      : request_must_be(field, value, types[type].right, failure);
    case HINT_OBJECT:
    case HINT_CACHE_CONTROL:
    case HINT_DIAGNOSTICS:
        if (!json_is_object(value))
            return request_must_be(field, value, types[type].right, failure);
        return types[type].inner == REQUEST_PART_BODY
                   ? STATUS_OK
                   : request_part_check(types[type].inner, field, value, failure);
    case HINT_STRINGS:
    case HINT_OBJECTS:
        return array_check(field, value, type, failure);
    default:
        return word_check(field, value, type, failure);
    }
}

status request_part_check(request_part part, const char *field, json_t *object, error *failure)
{
    status result = STATUS_OK;
    for (size_t i = 0; result == STATUS_OK && i < sizeof hints / sizeof *hints; i++) {
        char name[160];
        json_t *value = hints[i].part == part ? request_member(object, hints[i].name) : NULL;
        if (!value)
            continue;
        snprintf(name, sizeof name, "%s%s%s", field, field[0] ? "." : "", hints[i].name);
        result = hint_check(name, value, hints[i].type, failure);
    }
    return result;
}

static status metadata_check(json_t *body, error *failure)
{
    json_t *metadata = request_member(body, "metadata"), *value;
    const char *key;
    if (!metadata)
        return STATUS_OK;
    if (!json_is_object(metadata))
        return request_must_be("metadata", metadata, "an object", failure);
    if (json_object_size(metadata) > METADATA_MAX)
        return error_set(failure, STATUS_INVALID, "metadata",
                         "metadata has %zu members; right is at most %d",
                         json_object_size(metadata), METADATA_MAX);
    json_object_foreach(metadata, key, value)
    {
        bool fits = json_is_null(value) ||
                    (json_is_string(value) && json_string_length(value) <= METADATA_VALUE_MAX);
        if (!fits || strlen(key) > METADATA_KEY_MAX)
            return error_set(failure, STATUS_INVALID, "metadata",
                             "metadata[\"%.*s\"] is not right: keys have at most %d bytes, values "
                             "are strings of at most %d",
                             utf8_fit(key, 64), key, METADATA_KEY_MAX, METADATA_VALUE_MAX);
    }
    return STATUS_OK;
}

// OpenAI's tiers, and Anthropic's, by what they mean here: the class, unless `priority` names it.
static status tier_parse(json_t *body, request *r, error *failure)
{
    static const struct {
        const char *name;
        int priority; // -1: as it is
    } tiers[] = { { "auto", -1 }, { "default", -1 }, { "standard_only", -1 }, { "priority", 0 },
                  { "scale", 0 }, { "fast", 0 },     { "flex", 1 },           { "batch", 1 } };
    json_t *value = request_member(body, "service_tier");
    if (!value)
        return STATUS_OK;
    for (size_t i = 0; json_is_string(value) && i < sizeof tiers / sizeof *tiers; i++) {
        if (strcmp(json_string_value(value), tiers[i].name) != 0)
            continue;
        if (tiers[i].priority >= 0 && !request_member(body, "priority"))
            r->priority = tiers[i].priority;
        return STATUS_OK;
    }
    if (!json_is_string(value))
        return request_must_be("service_tier", value, TIERS, failure);
    return error_set(failure, STATUS_INVALID, "service_tier",
                     "service_tier is \"%.*s\"; right is " TIERS,
                     utf8_fit(json_string_value(value), 40), json_string_value(value));
}

status request_hints_parse(json_t *body, request *r, error *failure)
{
    status result = request_part_check(REQUEST_PART_BODY, "", body, failure);
    if (result == STATUS_OK)
        result = metadata_check(body, failure);
    return result == STATUS_OK ? tier_parse(body, r, failure) : result;
}
