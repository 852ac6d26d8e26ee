// The one door to libconfig.
#include "base/config_internal.h"

#include <errno.h>
#include <libconfig.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

// A walk over the parsed text. It runs twice: the first time checks everything, the second stores,
// so that a text with a fault changes nothing.
typedef struct walk {
    const config_program *program;
    void *settings;
    bool storing;
    error *failure;
} walk;

static status wrong_type(const config_key *key, const char *is, error *failure)
{
    return error_set(failure, STATUS_BAD_CONFIG, key->name, "%s is %s; it must be %s", key->name,
                     is, config_type_wants(key->type));
}

static const char *describe(const config_setting_t *setting)
{
    switch (config_setting_type(setting)) {
    case CONFIG_TYPE_INT:
    case CONFIG_TYPE_INT64:
        return "a whole number";
    case CONFIG_TYPE_FLOAT:
        return "a number with a fraction";
    case CONFIG_TYPE_STRING:
        return "text";
    case CONFIG_TYPE_BOOL:
        return "true or false";
    case CONFIG_TYPE_ARRAY:
    case CONFIG_TYPE_LIST:
        return "a list";
    default:
        return "a group";
    }
}

static status read_strings(const config_key *key, const config_setting_t *setting,
                           config_strings *strings, error *failure)
{
    int count = config_setting_length(setting);
    *strings = (config_strings){ 0 };
    if (count == 0)
        return STATUS_OK;
    strings->items = calloc((size_t)count, sizeof(strings->items[0]));
    if (strings->items == NULL)
        return error_set(failure, STATUS_NO_MEMORY, key->name, "memory is short");
    for (int i = 0; i < count; i++) {
        const config_setting_t *item = config_setting_get_elem(setting, (unsigned)i);
        if (config_setting_type(item) != CONFIG_TYPE_STRING)
            return wrong_type(key, "a list with something else than texts in it", failure);
        strings->items[i] = strdup(config_setting_get_string(item));
        if (strings->items[i] == NULL)
            return error_set(failure, STATUS_NO_MEMORY, key->name, "memory is short");
        strings->count++;
    }
    return STATUS_OK;
}

static status read_number(const config_key *key, const config_setting_t *setting,
                          config_value *value, error *failure)
{
    int type = config_setting_type(setting);
    bool whole = type == CONFIG_TYPE_INT || type == CONFIG_TYPE_INT64;
    int64_t number = whole ? (int64_t)config_setting_get_int64(setting) : 0;
    if (key->type == CONFIG_FLOAT && (whole || type == CONFIG_TYPE_FLOAT)) {
        value->real = whole ? (double)number : config_setting_get_float(setting);
        return isfinite(value->real) ? STATUS_OK : wrong_type(key, "past all bounds", failure);
    }
    if (key->type == CONFIG_INT && whole) {
        value->integer = number;
        return STATUS_OK;
    }
    if (key->type == CONFIG_BYTES && whole && number >= 0) {
        value->bytes = (uint64_t)number;
        return STATUS_OK;
    }
    return wrong_type(key, describe(setting), failure);
}

// A setting's value in the key's type; sizes and durations are texts in a file.
static status read_value(const config_key *key, const config_setting_t *setting,
                         config_value *value, error *failure)
{
    int type = config_setting_type(setting);
    *value = (config_value){ 0 };
    bool from_text =
        key->type == CONFIG_STRING || key->type == CONFIG_BYTES || key->type == CONFIG_DURATION;
    if (from_text && type == CONFIG_TYPE_STRING)
        return config_value_parse(key, config_setting_get_string(setting), value, failure);
    if (key->type == CONFIG_STRINGS && (type == CONFIG_TYPE_ARRAY || type == CONFIG_TYPE_LIST))
        return read_strings(key, setting, &value->strings, failure);
    if (key->type == CONFIG_BOOL && type == CONFIG_TYPE_BOOL) {
        value->boolean = config_setting_get_bool(setting) != 0;
        return STATUS_OK;
    }
    if (key->type == CONFIG_INT || key->type == CONFIG_FLOAT || key->type == CONFIG_BYTES)
        return read_number(key, setting, value, failure);
    return wrong_type(key, describe(setting), failure);
}

static status take_key(walk *w, const config_key *key, void *field, const config_setting_t *setting)
{
    config_value value;
    status result = read_value(key, setting, &value, w->failure);
    if (result == STATUS_OK)
        result = config_value_check(key, &value, w->failure);
    if (result == STATUS_OK && w->storing)
        config_value_store(key, &value, field);
    else
        config_value_close(key->type, &value);
    return result;
}

static status walk_group(walk *w, const config_setting_t *group, const char *prefix, int *line);

// The groups of a list. Both passes store: a list replaces the one before as a whole, at the
// second.
static status take_list(walk *w, const config_list *list, const config_setting_t *setting,
                        int *line)
{
    config_rows rows = { 0 };
    int count =
        config_setting_type(setting) == CONFIG_TYPE_LIST ? config_setting_length(setting) : -1;
    if (count < 0 || (size_t)count > list->max)
        return error_set(w->failure, STATUS_BAD_CONFIG, list->name,
                         "%s must be a list of at most %zu groups: ( { key = value; }, ... )",
                         list->name, list->max);
    rows.items = calloc((size_t)count + 1, list->row->settings_size);
    if (rows.items == NULL)
        return error_set(w->failure, STATUS_NO_MEMORY, list->name, "memory is short");
    status result = STATUS_OK;
    for (int i = 0; i < count && result == STATUS_OK; i++) {
        const config_setting_t *group = config_setting_get_elem(setting, (unsigned)i);
        void *row = (char *)rows.items + (size_t)i * list->row->settings_size;
        walk inner = { list->row, row, true, w->failure };
        config_set_defaults(list->row, row);
        rows.count++;
        if (config_setting_is_group(group))
            result = walk_group(&inner, group, "", line);
        else
            result = error_set(w->failure, STATUS_BAD_CONFIG, list->name,
                               "%s[%d] is %s; it must be a group of keys in braces", list->name, i,
                               describe(group));
    }
    config_rows *field = (config_rows *)((char *)w->settings + list->offset);
    if (result == STATUS_OK && w->storing) {
        config_rows before = *field;
        *field = rows;
        rows = before;
    }
    config_rows_close(list, &rows);
    return result;
}

// The settings of one group, whose dotted name is `prefix` ("" at the top). Depth is bounded by
// config_scan_text. On failure `*line` is that of the setting at fault.
static status walk_group(walk *w, const config_setting_t *group, const char *prefix, int *line)
{
    int count = config_setting_length(group);
    for (int i = 0; i < count; i++) {
        config_setting_t *setting = config_setting_get_elem(group, (unsigned)i);
        buffer name = { 0 };
        void *field = NULL;
        status result;
        buffer_printf(&name, "%s%s%s", prefix, prefix[0] ? "." : "", config_setting_name(setting));
        *line = (int)config_setting_source_line(setting);
        const config_key *key = config_key_find(w->program, w->settings, name.data, &field);
        const config_list *list = config_list_find(w->program, name.data);
        if (list != NULL)
            result = take_list(w, list, setting, line);
        else if (key != NULL)
            result = take_key(w, key, field, setting);
        else if (!config_group_exists(w->program, name.data))
            result = config_key_unknown(w->program, name.data, w->failure);
        else if (config_setting_is_group(setting))
            result = walk_group(w, setting, name.data, line);
        else
            result = error_set(w->failure, STATUS_BAD_CONFIG, name.data,
                               "%s is %s; it must be a group of keys in braces", name.data,
                               describe(setting));
        buffer_close(&name);
        if (result != STATUS_OK)
            return result;
    }
    return STATUS_OK;
}

status config_load_text(const config_program *program, void *settings, const char *name,
                        const char *text, error *failure)
{
    status result = config_scan_text(name, text, failure);
    if (result != STATUS_OK)
        return result;
    config_t parsed;
    config_init(&parsed);
    if (config_read_string(&parsed, text) != CONFIG_TRUE) {
        result = error_set(failure, STATUS_BAD_CONFIG, "", "%s:%d: this is not valid: %s", name,
                           config_error_line(&parsed), config_error_text(&parsed));
        config_destroy(&parsed);
        return result;
    }
    for (int pass = 0; pass < 2 && result == STATUS_OK; pass++) {
        walk w = { program, settings, pass == 1, failure };
        int line = 0;
        result = walk_group(&w, config_root_setting(&parsed), "", &line);
        if (result != STATUS_OK)
            error_prefix(failure, "%s:%d", name, line);
    }
    config_destroy(&parsed);
    return result;
}

status config_load_file(const config_program *program, void *settings, const char *path,
                        error *failure)
{
    buffer text = { .limit = CONFIG_TEXT_MAX };
    char piece[4096];
    FILE *file = fopen(path, "re");
    if (file == NULL)
        return error_set(failure, STATUS_BAD_CONFIG, "--config", "cannot open %s: %s", path,
                         strerror(errno));
    size_t count;
    while (!text.overflow && (count = fread(piece, 1, sizeof(piece), file)) > 0)
        buffer_append(&text, piece, count);
    int read_errno = ferror(file) ? errno : 0;
    fclose(file);
    status result;
    if (read_errno != 0)
        result = error_set(failure, STATUS_BAD_CONFIG, "--config", "cannot read %s: %s", path,
                           strerror(read_errno));
    else if (text.overflow)
        result = error_set(failure, STATUS_BAD_CONFIG, "--config",
                           "%s is too large: a configuration may have 1 MiB", path);
    else if (text.size > 0 && memchr(text.data, 0, text.size) != NULL)
        result = error_set(failure, STATUS_BAD_CONFIG, "--config",
                           "%s holds a NUL byte, so it is not a configuration", path);
    else
        result = config_load_text(program, settings, path, text.data ? text.data : "", failure);
    buffer_close(&text);
    return result;
}
