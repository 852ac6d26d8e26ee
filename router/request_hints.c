// Fields that do not change the text: who asks, for what, and how urgent it is. All but
// service_tier are checked and have no effect.
#include "router/request_private.h"

#include <string.h>

#define METADATA_MAX 16
#define METADATA_KEY_MAX 64
#define METADATA_VALUE_MAX 512

static status string_check(json_t *body, const char *name, error *failure)
{
    json_t *value = request_member(body, name);
    if (!value || json_is_string(value))
        return STATUS_OK;
    return request_must_be(name, value, "a string", failure);
}

static status object_check(json_t *body, const char *name, error *failure)
{
    json_t *value = request_member(body, name);
    if (!value || json_is_object(value))
        return STATUS_OK;
    return request_must_be(name, value, "an object", failure);
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
                             "metadata[\"%.64s\"] is not right: keys have at most %d bytes, values "
                             "are strings of at most %d",
                             key, METADATA_KEY_MAX, METADATA_VALUE_MAX);
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
    return error_set(failure, STATUS_INVALID, "service_tier",
                     "service_tier must be \"auto\", \"default\", \"priority\" (interactive), or "
                     "\"flex\" or \"batch\" (batch)");
}

status request_hints_parse(json_t *body, request *r, error *failure)
{
    status result = STATUS_OK;
    json_t *store = request_member(body, "store");
    TRY(string_check(body, "user", failure));
    TRY(string_check(body, "safety_identifier", failure));
    TRY(string_check(body, "prompt_cache_key", failure));
    TRY(string_check(body, "prompt_cache_retention", failure));
    TRY(object_check(body, "prompt_cache_options", failure));
    TRY(object_check(body, "prediction", failure)); // guesses of the answer: it is the same without
    TRY(metadata_check(body, failure));
    TRY(tier_parse(body, r, failure));
    if (store && !json_is_boolean(store))
        result = request_must_be("store", store, "true or false", failure);
fail:
    return result;
}
