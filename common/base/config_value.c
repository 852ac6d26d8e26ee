#include "base/config_internal.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

typedef struct unit {
    const char *name;
    uint64_t scale;
} unit;

// Ascending, so that printing can take the largest that divides.
static const unit byte_units[] = {
    { "B", 1 },
    { "KiB", (uint64_t)1 << 10 },
    { "MiB", (uint64_t)1 << 20 },
    { "GiB", (uint64_t)1 << 30 },
    { "TiB", (uint64_t)1 << 40 },
    { NULL, 0 },
};
static const unit duration_units[] = {
    { "us", 1 },         { "ms", 1000 },       { "s", 1000000 },
    { "min", 60000000 }, { "h", 3600000000u }, { NULL, 0 },
};

const char *config_type_wants(config_type type)
{
    switch (type) {
    case CONFIG_BOOL:
        return "true or false";
    case CONFIG_INT:
        return "a whole number";
    case CONFIG_FLOAT:
        return "a number";
    case CONFIG_STRING:
        return "text in quotes";
    case CONFIG_BYTES:
        return "a size such as \"512MiB\" (B, KiB, MiB, GiB, TiB)";
    case CONFIG_DURATION:
        return "a duration such as \"500ms\" (us, ms, s, min, h)";
    case CONFIG_STRINGS:
        return "a list of texts such as [\"a\", \"b\"]";
    }
    return "a value";
}

// DIGITS[.DIGITS][UNIT] to a whole number of the smallest unit. No unit: times 1 where allowed.
static bool parse_quantity(const char *text, const unit *units, bool unit_needed, uint64_t *amount)
{
    unsigned __int128 whole = 0, part = 0;
    uint64_t part_scale = 1;
    const char *at = text;
    if (*at < '0' || *at > '9')
        return false;
    for (; *at >= '0' && *at <= '9'; at++) {
        whole = whole * 10 + (unsigned)(*at - '0');
        if (whole > UINT64_MAX)
            return false;
    }
    if (*at == '.') {
        for (at++; *at >= '0' && *at <= '9' && part_scale < 1000000000000u; at++) {
            part = part * 10 + (unsigned)(*at - '0');
            part_scale *= 10;
        }
        if (part_scale == 1)
            return false;
    }
    uint64_t scale = 0;
    for (const unit *u = units; u->name != NULL; u++) {
        if (strcmp(at, u->name) == 0)
            scale = u->scale;
    }
    if (*at == 0 && (!unit_needed || (whole == 0 && part == 0)))
        scale = 1;
    if (scale == 0 || (scale == 1 && part != 0))
        return false;
    unsigned __int128 total = whole * scale + part * scale / part_scale;
    *amount = (uint64_t)total;
    return total <= INT64_MAX;
}

static bool parse_strings(const char *text, config_strings *strings)
{
    *strings = (config_strings){ 0 };
    if (*text == 0)
        return true;
    size_t count = 1;
    for (const char *at = text; *at != 0; at++)
        count += *at == ',';
    strings->items = calloc(count, sizeof(strings->items[0]));
    if (strings->items == NULL)
        return false;
    for (const char *at = text; strings->count < count; strings->count++) {
        size_t size = strcspn(at, ",");
        strings->items[strings->count] = strndup(at, size);
        if (strings->items[strings->count] == NULL)
            return false;
        at += size + 1;
    }
    return true;
}

static bool parse_whole_number(const char *text, int64_t *number)
{
    char *end;
    errno = 0;
    *number = strtoll(text, &end, 10);
    return end != text && *end == 0 && errno == 0 && strchr("+-0123456789", text[0]) != NULL;
}

// Decimal only: "nan", "inf" and hexadecimal forms, which strtod takes, are refused.
static bool parse_number(const char *text, double *number)
{
    char *end;
    if (text[0] == 0 || text[strspn(text, "+-.0123456789eE")] != 0)
        return false;
    *number = strtod(text, &end);
    return *end == 0 && isfinite(*number);
}

status config_value_parse(const config_key *key, const char *text, config_value *value,
                          error *failure)
{
    bool valid = false;
    uint64_t amount = 0;
    *value = (config_value){ 0 };
    switch (key->type) {
    case CONFIG_BOOL:
        value->boolean = strcmp(text, "true") == 0;
        valid = value->boolean || strcmp(text, "false") == 0;
        break;
    case CONFIG_INT:
        valid = parse_whole_number(text, &value->integer);
        break;
    case CONFIG_FLOAT:
        valid = parse_number(text, &value->real);
        break;
    case CONFIG_BYTES:
        valid = parse_quantity(text, byte_units, false, &amount);
        value->bytes = amount;
        break;
    case CONFIG_DURATION:
        valid = parse_quantity(text, duration_units, true, &amount);
        value->integer = (int64_t)amount;
        break;
    case CONFIG_STRING:
        value->text = strdup(text);
        if (value->text == NULL)
            return error_set(failure, STATUS_NO_MEMORY, key->name, "memory is short");
        return STATUS_OK;
    case CONFIG_STRINGS:
        if (parse_strings(text, &value->strings))
            return STATUS_OK;
        config_value_close(key->type, value);
        return error_set(failure, STATUS_NO_MEMORY, key->name, "memory is short");
    }
    if (valid)
        return STATUS_OK;
    return error_set(failure, STATUS_BAD_CONFIG, key->name, "%s is \"%.80s\"; it must be %s",
                     key->name, text, config_type_wants(key->type));
}

static double as_number(const config_key *key, const config_value *value)
{
    switch (key->type) {
    case CONFIG_INT:
    case CONFIG_DURATION:
        return (double)value->integer;
    case CONFIG_FLOAT:
        return value->real;
    case CONFIG_BYTES:
        return (double)value->bytes;
    default:
        return 0;
    }
}

config_value config_value_of_number(config_type type, double number)
{
    config_value value = { 0 };
    // A limit past 2^63 is as good as none.
    int64_t whole = number >= 0x1p63 ? INT64_MAX : (int64_t)number;
    if (type == CONFIG_FLOAT)
        value.real = number;
    else if (type == CONFIG_BYTES)
        value.bytes = (uint64_t)whole;
    else
        value.integer = whole;
    return value;
}

static status range_failure(const config_key *key, const config_value *value, error *failure)
{
    buffer is = { 0 }, low = { 0 }, high = { 0 };
    config_value limits[2] = { config_value_of_number(key->type, key->min),
                               config_value_of_number(key->type, key->max) };
    config_value_format(key->type, value, &is);
    config_value_format(key->type, &limits[0], &low);
    config_value_format(key->type, &limits[1], &high);
    status result = error_set(failure, STATUS_BAD_CONFIG, key->name,
                              "%s is %s; it must be between %s and %s%s%s", key->name, is.data,
                              low.data, high.data, key->unit[0] ? " " : "", key->unit);
    buffer_close(&is);
    buffer_close(&low);
    buffer_close(&high);
    return result;
}

status config_value_check(const config_key *key, const config_value *value, error *failure)
{
    bool numeric = key->type == CONFIG_INT || key->type == CONFIG_FLOAT ||
                   key->type == CONFIG_BYTES || key->type == CONFIG_DURATION;
    if (numeric && (key->min != 0 || key->max != 0)) {
        double number = as_number(key, value);
        if (number < key->min || number > key->max)
            return range_failure(key, value, failure);
    }
    if (key->type != CONFIG_STRING || key->among == NULL)
        return STATUS_OK;
    buffer allowed = { 0 };
    bool found = false;
    for (size_t i = 0; key->among[i] != NULL; i++) {
        found |= strcmp(key->among[i], value->text) == 0;
        buffer_printf(&allowed, "%s%s", i ? ", " : "", key->among[i]);
    }
    if (!found)
        error_set(failure, STATUS_BAD_CONFIG, key->name, "%s is \"%.80s\"; it must be one of %s",
                  key->name, value->text, allowed.data ? allowed.data : "nothing");
    buffer_close(&allowed);
    return found ? STATUS_OK : STATUS_BAD_CONFIG;
}

void config_value_close(config_type type, config_value *value)
{
    if (type == CONFIG_STRING)
        free(value->text);
    if (type == CONFIG_STRINGS) {
        for (size_t i = 0; i < value->strings.count; i++)
            free(value->strings.items[i]);
        free(value->strings.items);
    }
    *value = (config_value){ 0 };
}

size_t config_field_size(config_type type)
{
    switch (type) {
    case CONFIG_BOOL:
        return sizeof(bool);
    case CONFIG_STRING:
        return sizeof(char *);
    case CONFIG_STRINGS:
        return sizeof(config_strings);
    default:
        return sizeof(int64_t);
    }
}

config_value config_value_load(const config_key *key, const void *field)
{
    config_value value = { 0 };
    memcpy(&value, field, config_field_size(key->type));
    return value;
}

void config_value_store(const config_key *key, config_value *value, void *field)
{
    config_value old = config_value_load(key, field);
    config_value_close(key->type, &old);
    memcpy(field, value, config_field_size(key->type));
    *value = (config_value){ 0 };
}

static void format_quantity(uint64_t amount, const unit *units, buffer *out)
{
    const unit *best = &units[0];
    for (const unit *u = units; u->name != NULL && amount > 0; u++) {
        if (amount % u->scale == 0)
            best = u;
    }
    buffer_printf(out, "\"%" PRIu64 "%s\"", amount / best->scale, best->name);
}

static void format_text(const char *text, buffer *out)
{
    buffer_append_byte(out, '"');
    for (const char *at = text; *at != 0; at++) {
        unsigned char byte = (unsigned char)*at;
        if (byte == '"' || byte == '\\')
            buffer_printf(out, "\\%c", byte);
        else if (byte < 0x20 || byte == 0x7f)
            buffer_printf(out, "\\x%02x", byte);
        else
            buffer_append_byte(out, *at);
    }
    buffer_append_byte(out, '"');
}

// The shortest decimal that reads back as the same double, with the point that libconfig needs.
static void format_real(double real, buffer *out)
{
    char digits[40];
    for (int precision = 1; precision <= 17; precision++) {
        snprintf(digits, sizeof(digits), "%.*g", precision, real);
        if (strtod(digits, NULL) == real)
            break;
    }
    size_t mantissa = strcspn(digits, "e");
    bool point = memchr(digits, '.', mantissa) != NULL;
    buffer_printf(out, "%.*s%s%s", (int)mantissa, digits, point ? "" : ".0", digits + mantissa);
}

void config_value_format(config_type type, const config_value *value, buffer *out)
{
    switch (type) {
    case CONFIG_BOOL:
        buffer_append_text(out, value->boolean ? "true" : "false");
        break;
    case CONFIG_INT:
        buffer_printf(out, "%" PRId64 "%s", value->integer,
                      value->integer > INT32_MAX || value->integer < INT32_MIN ? "L" : "");
        break;
    case CONFIG_FLOAT:
        format_real(value->real, out);
        break;
    case CONFIG_BYTES:
        format_quantity(value->bytes, byte_units, out);
        break;
    case CONFIG_DURATION:
        format_quantity((uint64_t)value->integer, duration_units, out);
        break;
    case CONFIG_STRING:
        format_text(value->text, out);
        break;
    case CONFIG_STRINGS:
        buffer_append_byte(out, '[');
        for (size_t i = 0; i < value->strings.count; i++) {
            buffer_append_text(out, i ? ", " : "");
            format_text(value->strings.items[i], out);
        }
        buffer_append_byte(out, ']');
        break;
    }
}
