#include "router/versions.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define SHARE_MAX 1e6

// 16 hex digits.
static bool half_parse(const char *text, uint64_t *half)
{
    *half = 0;
    for (int i = 0; i < 16; i++) {
        char c = text[i];
        bool digit = c >= '0' && c <= '9';
        if (!digit && !(c >= 'a' && c <= 'f'))
            return false;
        *half = *half << 4 | (uint64_t)(digit ? c - '0' : c - 'a' + 10);
    }
    return true;
}

static status version_parse(const char *key, const char *text, version *v, error *failure)
{
    char *end = NULL;
    bool right = strlen(text) > 33 && text[32] == ':' && half_parse(text, &v->weights.high) &&
                 half_parse(text + 16, &v->weights.low);
    v->share = right ? strtod(text + 33, &end) : 0;
    if (right && end != text + 33 && *end == 0 && v->share >= 0 && v->share <= SHARE_MAX)
        return STATUS_OK;
    return error_set(failure, STATUS_BAD_CONFIG, key,
                     "%s has \"%.80s\"; right is the weights' 32 hex digits, a colon and a share "
                     "such as 90",
                     key, text);
}

status versions_parse(const char *key, const config_strings *texts, hash128 own, versions *parsed,
                      error *failure)
{
    double sum = 0;
    *parsed = (versions){ .own = own, .count = texts->count };
    if (texts->count == 0) {
        parsed->count = 1;
        parsed->items[0] = (version){ own, 1 };
        return STATUS_OK;
    }
    if (texts->count > VERSIONS_MAX)
        return error_set(failure, STATUS_BAD_CONFIG, key,
                         "%s has %zu entries; at most %d are allowed", key, texts->count,
                         VERSIONS_MAX);
    for (size_t i = 0; i < texts->count; i++) {
        status result = version_parse(key, texts->items[i], &parsed->items[i], failure);
        if (result != STATUS_OK)
            return result;
        for (size_t k = 0; k < i; k++)
            if (hash128_equal(parsed->items[k].weights, parsed->items[i].weights))
                return error_set(failure, STATUS_BAD_CONFIG, key, "%s names %.32s twice", key,
                                 texts->items[i]);
        sum += parsed->items[i].share;
    }
    return sum > 0 ? STATUS_OK
                   : error_set(failure, STATUS_BAD_CONFIG, key, "%s gives no version a share", key);
}

bool versions_allow(const versions *v, hash128 weights)
{
    bool listed = hash128_equal(v->own, weights);
    for (size_t i = 0; i < v->count && !listed; i++)
        listed = hash128_equal(v->items[i].weights, weights);
    return listed;
}

size_t versions_choose(const versions *v, const bool marked[VERSIONS_MAX], double draw)
{
    double sum = 0, passed = 0;
    size_t chosen = SIZE_MAX;
    for (size_t i = 0; i < v->count; i++)
        sum += marked[i] ? v->items[i].share : 0;
    for (size_t i = 0; i < v->count; i++) {
        if (!marked[i] || v->items[i].share <= 0)
            continue;
        chosen = i; // the last one takes what rounding leaves
        passed += v->items[i].share;
        if (draw * sum < passed)
            break;
    }
    return chosen;
}

// Multiples of the golden ratio spread evenly whatever their count.
double versions_draw(slice key, uint64_t number)
{
    uint64_t bits =
        key.size > 0 ? hash64_of(key.data, key.size, 1) : number * UINT64_C(0x9e3779b97f4a7c15);
    return (double)(bits >> 11) * 0x1p-53;
}

void versions_fingerprint(hash128 weights, char text[24])
{
    snprintf(text, 24, "fp_%016" PRIx64, weights.high);
}
