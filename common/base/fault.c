#include "base/fault.h"

#include "base/random.h"

#include <math.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const config_key fault_keys[] = {
    { "faults", CONFIG_STRINGS, offsetof(fault_settings, points), "", 0, 0, "",
      "Failures to inject, for tests: NAME[:PROBABILITY[:VALUE[:COUNT]]] each. None by default.",
      NULL },
};
const config_section fault_config_section = { fault_keys, 1 };

static const char *const names[FAULT_COUNT] = {
#define FAULT_NAME(id, name, help) name,
    FAULT_LIST(FAULT_NAME)
#undef FAULT_NAME
};

typedef struct fault_state {
    _Atomic uint64_t threshold; // of 2^53: the point fires where a draw is below it; 0 is off
    _Atomic int64_t value;
    _Atomic int64_t left; // how often it may still fire; negative is without limit
    _Atomic uint64_t draws;
    _Atomic uint64_t fired;
} fault_state;

static fault_state states[FAULT_COUNT];
static atomic_bool any_armed;

typedef struct fault_entry {
    fault_point point;
    double probability;
    int64_t value, count;
} fault_entry;

static bool parse_name(const char *text, size_t size, fault_point *point)
{
    for (int i = 0; i < FAULT_COUNT; i++) {
        if (strlen(names[i]) == size && memcmp(names[i], text, size) == 0) {
            *point = (fault_point)i;
            return true;
        }
    }
    return false;
}

// ":NUMBER" at *at, or nothing; moves on. Leaves `*number` where there is nothing.
static bool parse_field(const char **at, double min, double max, double *number)
{
    if (**at == 0)
        return true;
    char *end;
    const char *start = *at + 1;
    double parsed = strtod(start, &end);
    if (end == start || (*end != 0 && *end != ':') || !(parsed >= min && parsed <= max))
        return false;
    *at = end;
    *number = parsed;
    return true;
}

static status parse_entry(const char *text, fault_entry *entry, error *failure)
{
    size_t size = strcspn(text, ":");
    const char *at = text + size;
    double probability = 1, value = 0, count = -1;
    if (!parse_name(text, size, &entry->point)) {
        char known[320] = "";
        for (int i = 0; i < FAULT_COUNT; i++)
            snprintf(known + strlen(known), sizeof(known) - strlen(known), "%s%s", i ? ", " : "",
                     names[i]);
        return error_set(failure, STATUS_BAD_CONFIG, "faults",
                         "faults has \"%.60s\", which is no fault point; there are %s", text,
                         known);
    }
    if (!parse_field(&at, 0, 1, &probability) || !parse_field(&at, -0x1p53, 0x1p53, &value) ||
        !parse_field(&at, 0, 0x1p53, &count) || *at != 0)
        return error_set(failure, STATUS_BAD_CONFIG, "faults",
                         "faults has \"%.60s\"; it must be NAME[:PROBABILITY[:VALUE[:COUNT]]] with "
                         "a probability from 0 to 1",
                         text);
    entry->probability = probability;
    entry->value = (int64_t)value;
    entry->count = (int64_t)count;
    return STATUS_OK;
}

status fault_check(const fault_settings *settings, error *failure)
{
    fault_entry entry;
    status result = STATUS_OK;
    for (size_t i = 0; i < settings->points.count && result == STATUS_OK; i++)
        result = parse_entry(settings->points.items[i], &entry, failure);
    return result;
}

status fault_arm(const fault_settings *settings, error *failure)
{
    fault_entry entry;
    status result = fault_check(settings, failure);
    if (result != STATUS_OK)
        return result;
    for (size_t i = 0; i < settings->points.count; i++) {
        CHECK(parse_entry(settings->points.items[i], &entry, NULL) == STATUS_OK);
        fault_state *state = &states[entry.point];
        atomic_store(&state->value, entry.value);
        atomic_store(&state->left, entry.count);
        atomic_store(&state->threshold, (uint64_t)(entry.probability * 0x1p53));
        atomic_store(&any_armed, true);
    }
    return STATUS_OK;
}

void fault_disarm_all(void)
{
    atomic_store(&any_armed, false);
    for (int i = 0; i < FAULT_COUNT; i++)
        atomic_store(&states[i].threshold, 0);
}

bool fault_fires(fault_point point)
{
    if (!atomic_load_explicit(&any_armed, memory_order_relaxed))
        return false;
    CHECK((unsigned)point < FAULT_COUNT);
    fault_state *state = &states[point];
    uint64_t threshold = atomic_load(&state->threshold);
    if (threshold == 0)
        return false;
    // The draws of a point are the same in every run, so that a failing test can be repeated.
    uint64_t draw = atomic_fetch_add(&state->draws, 1);
    uint64_t bits = random_token_bits(random_row_key(0, (uint32_t)point, draw), 0);
    if ((bits >> 11) >= threshold)
        return false;
    int64_t left = atomic_load(&state->left);
    do {
        if (left == 0)
            return false;
    } while (left > 0 && !atomic_compare_exchange_weak(&state->left, &left, left - 1));
    atomic_fetch_add(&state->fired, 1);
    return true;
}

int64_t fault_value(fault_point point)
{
    CHECK((unsigned)point < FAULT_COUNT);
    return atomic_load(&states[point].value);
}

uint64_t fault_fired(fault_point point)
{
    CHECK((unsigned)point < FAULT_COUNT);
    return atomic_load(&states[point].fired);
}
