// The fields of a request that are lists: stop, stop_token_ids, logit_bias.
#include "router/request_private.h"

#include "base/utf8.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

status request_stop_parse(const request_rules *rules, json_t *body, request *r, error *failure)
{
    const char *field = request_is_messages(r) ? "stop_sequences" : "stop"; // the client's name
    json_t *value = request_member(body, "stop");
    slice strings[STOP_STRINGS_MAX];
    size_t count = 0, limit = (size_t)rules->settings->stop_strings_max;
    if (value && !json_is_string(value) && !json_is_array(value))
        return request_must_be(field, value, "a string or an array of strings", failure);
    size_t given = json_is_array(value) ? json_array_size(value) : value != NULL;
    if (given > limit)
        return error_set(failure, STATUS_INVALID, field, "%s has %zu strings; right is at most %zu",
                         field, given, limit);
    for (size_t i = 0; i < given; i++) {
        json_t *item = json_is_array(value) ? json_array_get(value, i) : value;
        if (!json_is_string(item))
            return error_set(failure, STATUS_INVALID, field, "%s[%zu] is %s; right is a string",
                             field, i, request_type_name(item));
        if (json_string_length(item) == 0)
            return error_set(
                failure, STATUS_INVALID, field,
                "%s holds an empty string; right are strings of at least one character", field);
        strings[count++] = request_text(item);
    }
    return stop_open(strings, count, &r->stops, failure);
}

status request_token_id_parse(const request_rules *rules, json_t *item, const char *field,
                              size_t index, int32_t *id, error *failure)
{
    char name[64];
    int64_t count = rules->model->identity.vocabulary;
    if (json_is_integer(item) && json_integer_value(item) >= 0 &&
        json_integer_value(item) < count) {
        *id = (int32_t)json_integer_value(item);
        return STATUS_OK;
    }
    snprintf(name, sizeof name, "%s[%zu]", field, index);
    if (json_is_integer(item))
        return error_set(failure, STATUS_INVALID, name,
                         "%s is %lld; right is a token id between 0 and %lld", name,
                         (long long)json_integer_value(item), (long long)count - 1);
    return error_set(failure, STATUS_INVALID, name,
                     "%s is %s; right is a token id between 0 and %lld", name,
                     request_type_name(item), (long long)count - 1);
}

status request_stop_ids_parse(const request_rules *rules, json_t *body, request *r, error *failure)
{
    json_t *value = request_member(body, "stop_token_ids");
    if (!value)
        return STATUS_OK;
    if (!json_is_array(value) || json_array_size(value) > REQUEST_STOP_IDS_MAX)
        return error_set(failure, STATUS_INVALID, "stop_token_ids",
                         "stop_token_ids must be an array of at most %u token ids",
                         REQUEST_STOP_IDS_MAX);
    for (size_t i = 0; i < json_array_size(value); i++) {
        status result = request_token_id_parse(rules, json_array_get(value, i), "stop_token_ids", i,
                                               &r->stop_ids[i], failure);
        if (result != STATUS_OK)
            return result;
    }
    r->stop_id_count = json_array_size(value);
    return STATUS_OK;
}

// "0" to the last id, in the one decimal form.
static bool bias_key_parse(const char *key, int64_t count, int32_t *id)
{
    int64_t value = 0;
    size_t size = strlen(key);
    if (size == 0 || size > 10 || (size > 1 && key[0] == '0'))
        return false;
    for (size_t i = 0; i < size; i++) {
        if (key[i] < '0' || key[i] > '9')
            return false;
        value = value * 10 + (key[i] - '0');
    }
    *id = (int32_t)value;
    return value < count;
}

typedef struct bias {
    int32_t id;
    float value;
} bias;

static int bias_compare(const void *a, const void *b)
{
    return ((const bias *)a)->id < ((const bias *)b)->id ? -1 : 1;
}

static status bias_read(const request_rules *rules, json_t *value, bias *entries, error *failure)
{
    const char *key;
    json_t *item;
    size_t count = 0;
    json_object_foreach(value, key, item)
    {
        double number = json_number_value(item);
        if (!bias_key_parse(key, rules->model->identity.vocabulary, &entries[count].id))
            return error_set(
                failure, STATUS_INVALID, "logit_bias",
                "logit_bias has the key \"%.*s\"; right is a token id between 0 and %d",
                utf8_fit(key, 40), key, rules->model->identity.vocabulary - 1);
        if (!json_is_number(item) || !isfinite(number) || number < -100 || number > 100)
            return error_set(failure, STATUS_INVALID, "logit_bias",
                             "logit_bias[\"%s\"] must be a number between -100 and 100", key);
        entries[count++].value = (float)number;
    }
    qsort(entries, count, sizeof *entries, bias_compare);
    return STATUS_OK;
}

status request_bias_parse(const request_rules *rules, json_t *body, request *r, error *failure)
{
    json_t *value = request_member(body, "logit_bias");
    if (!value)
        return STATUS_OK;
    size_t count = json_object_size(value);
    if (!json_is_object(value))
        return request_must_be("logit_bias", value, "an object from token ids to numbers", failure);
    if ((int64_t)count > rules->settings->logit_bias_max)
        return error_set(failure, STATUS_INVALID, "logit_bias",
                         "logit_bias has %zu entries; right is at most %lld", count,
                         (long long)rules->settings->logit_bias_max);
    if (count == 0)
        return STATUS_OK;
    bias *entries = calloc(count, sizeof *entries);
    r->bias_tokens = calloc(count, sizeof *r->bias_tokens);
    r->biases = calloc(count, sizeof *r->biases);
    status result = entries && r->bias_tokens && r->biases
                        ? bias_read(rules, value, entries, failure)
                        : error_set(failure, STATUS_NO_MEMORY, "", "no memory for logit_bias");
    for (size_t i = 0; result == STATUS_OK && i < count; i++) {
        r->bias_tokens[i] = entries[i].id;
        r->biases[i] = entries[i].value;
        r->bias_count = count;
    }
    free(entries);
    return result;
}
