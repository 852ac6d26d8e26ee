#include "checkpoint/gguf_private.h"

#include <math.h>
#include <stdio.h>

static const gguf_entry *find(const gguf *file, const char *key)
{
    int64_t index = gguf_find_name(file->entries, sizeof(*file->entries), file->entries_by_key,
                                   file->entry_count, slice_of(key));
    return index < 0 ? NULL : &file->entries[index];
}

bool gguf_has(const gguf *file, const char *key, gguf_kind *kind)
{
    const gguf_entry *entry = find(file, key);
    if (entry != NULL && kind != NULL)
        *kind = entry->kind;
    return entry != NULL;
}

uint64_t gguf_key_count(const gguf *file)
{
    return file->entry_count;
}

slice gguf_key_at(const gguf *file, uint64_t index)
{
    CHECK(index < file->entry_count);
    return file->entries[index].key;
}

static status need(const gguf *file, const char *key, const char *expected,
                   const gguf_entry **entry, error *failure)
{
    *entry = find(file, key);
    if (*entry == NULL)
        return gguf_fail(file, failure, slice_of(key), "key %s (%s) is missing", key, expected);
    return STATUS_OK;
}

static status wrong_kind(const gguf *file, const gguf_entry *entry, const char *expected,
                         error *failure)
{
    return gguf_fail(file, failure, entry->key, "key %.*s is of kind %s; %s is expected",
                     gguf_shown(entry->key), entry->key.data, gguf_kind_name(entry->kind),
                     expected);
}

#define LOAD(type, at)                                                                             \
    ({                                                                                             \
        type loaded;                                                                               \
        memcpy(&loaded, at, sizeof(loaded));                                                       \
        loaded;                                                                                    \
    })

static bool kind_is_integer(gguf_kind kind)
{
    return gguf_kind_bytes(kind) != 0 && kind != GGUF_F32 && kind != GGUF_F64 && kind != GGUF_BOOL;
}

static bool kind_is_number(gguf_kind kind)
{
    return gguf_kind_bytes(kind) != 0 && kind != GGUF_BOOL;
}

// The value's bits sign- or zero-extended; `negative` tells which way to read them.
static uint64_t load_integer(gguf_kind kind, const uint8_t *at, bool *negative)
{
    int64_t value = 0;
    *negative = false;
    switch (kind) {
    case GGUF_U8:
    case GGUF_BOOL:
        return *at;
    case GGUF_U16:
        return LOAD(uint16_t, at);
    case GGUF_U32:
        return LOAD(uint32_t, at);
    case GGUF_U64:
        return LOAD(uint64_t, at);
    case GGUF_I8:
        value = (int8_t)*at;
        break;
    case GGUF_I16:
        value = LOAD(int16_t, at);
        break;
    case GGUF_I32:
        value = LOAD(int32_t, at);
        break;
    case GGUF_I64:
        value = LOAD(int64_t, at);
        break;
    default:
        CHECK(!"an integer kind");
    }
    *negative = value < 0;
    return (uint64_t)value;
}

static double load_number(gguf_kind kind, const uint8_t *at)
{
    if (kind == GGUF_F32)
        return LOAD(float, at);
    if (kind == GGUF_F64)
        return LOAD(double, at);
    bool negative;
    uint64_t bits = load_integer(kind, at, &negative);
    return negative ? (double)(int64_t)bits : (double)bits;
}

status gguf_get_u64(const gguf *file, const char *key, uint64_t *value, error *failure)
{
    status result = STATUS_OK;
    const gguf_entry *entry;
    TRY(need(file, key, "an integer", &entry, failure));
    if (!kind_is_integer(entry->kind))
        return wrong_kind(file, entry, "an integer", failure);
    bool negative;
    uint64_t bits = load_integer(entry->kind, entry->value, &negative);
    if (negative)
        return gguf_fail(file, failure, entry->key, "key %s is %lld; it must not be negative", key,
                         (long long)bits);
    *value = bits;
fail:
    return result;
}

status gguf_get_f64(const gguf *file, const char *key, double *value, error *failure)
{
    status result = STATUS_OK;
    const gguf_entry *entry;
    TRY(need(file, key, "a number", &entry, failure));
    if (!kind_is_number(entry->kind))
        return wrong_kind(file, entry, "a number", failure);
    double number = load_number(entry->kind, entry->value);
    if (!isfinite(number))
        return gguf_fail(file, failure, entry->key, "key %s is %g; it must be finite", key, number);
    *value = number;
fail:
    return result;
}

status gguf_get_bool(const gguf *file, const char *key, bool *value, error *failure)
{
    status result = STATUS_OK;
    const gguf_entry *entry;
    TRY(need(file, key, "a bool", &entry, failure));
    if (entry->kind != GGUF_BOOL)
        return wrong_kind(file, entry, "a bool", failure);
    if (*entry->value > 1)
        return gguf_fail(file, failure, entry->key, "key %s is the byte %u; a bool is 0 or 1", key,
                         *entry->value);
    *value = *entry->value == 1;
fail:
    return result;
}

status gguf_get_string(const gguf *file, const char *key, slice *value, error *failure)
{
    status result = STATUS_OK;
    const gguf_entry *entry;
    TRY(need(file, key, "a string", &entry, failure));
    if (entry->kind != GGUF_STRING)
        return wrong_kind(file, entry, "a string", failure);
    *value = (slice){ (const char *)entry->value + 8, LOAD(uint64_t, entry->value) };
fail:
    return result;
}

status gguf_get_array(const gguf *file, const char *key, gguf_kind kind, gguf_array *value,
                      error *failure)
{
    status result = STATUS_OK;
    const gguf_entry *entry;
    char expected[32];
    snprintf(expected, sizeof(expected), "an array of %s", gguf_kind_name(kind));
    TRY(need(file, key, expected, &entry, failure));
    if (entry->kind != GGUF_ARRAY)
        return wrong_kind(file, entry, expected, failure);
    gguf_kind found = (gguf_kind)LOAD(uint32_t, entry->value);
    bool fits = found == kind || (kind == GGUF_U64 && kind_is_integer(found)) ||
                (kind == GGUF_F64 && kind_is_number(found));
    if (!fits)
        return gguf_fail(file, failure, entry->key, "key %s is an array of %s; %s is expected", key,
                         gguf_kind_name(found), expected);
    *value = (gguf_array){ found, LOAD(uint64_t, entry->value + 4), entry->value + 12 };
fail:
    return result;
}

status gguf_get_u64_or(const gguf *file, const char *key, uint64_t otherwise, uint64_t *value,
                       error *failure)
{
    if (gguf_has(file, key, NULL))
        return gguf_get_u64(file, key, value, failure);
    *value = otherwise;
    return STATUS_OK;
}

status gguf_get_f64_or(const gguf *file, const char *key, double otherwise, double *value,
                       error *failure)
{
    if (gguf_has(file, key, NULL))
        return gguf_get_f64(file, key, value, failure);
    *value = otherwise;
    return STATUS_OK;
}

status gguf_get_bool_or(const gguf *file, const char *key, bool otherwise, bool *value,
                        error *failure)
{
    if (gguf_has(file, key, NULL))
        return gguf_get_bool(file, key, value, failure);
    *value = otherwise;
    return STATUS_OK;
}

slice gguf_array_take_string(gguf_array *array)
{
    CHECK(array->kind == GGUF_STRING && array->count > 0);
    slice text = { (const char *)array->data + 8, LOAD(uint64_t, array->data) };
    array->data += 8 + text.size;
    array->count--;
    return text;
}

bool gguf_array_u64(const gguf_array *array, uint64_t index, uint64_t *value)
{
    CHECK(index < array->count && (kind_is_integer(array->kind) || array->kind == GGUF_BOOL));
    bool negative;
    const uint8_t *at = array->data + index * gguf_kind_bytes(array->kind);
    uint64_t bits = load_integer(array->kind, at, &negative);
    if (negative)
        return false;
    *value = bits;
    return true;
}

double gguf_array_f64(const gguf_array *array, uint64_t index)
{
    CHECK(index < array->count && kind_is_number(array->kind));
    return load_number(array->kind, array->data + index * gguf_kind_bytes(array->kind));
}
