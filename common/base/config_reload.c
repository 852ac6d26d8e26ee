#include "base/config_internal.h"

#include <stdio.h>
#include <stdlib.h>

bool config_key_is_live(const config_program *program, const char *name)
{
    for (size_t i = 0; program->live && program->live[i]; i++)
        if (strcmp(program->live[i], name) == 0)
            return true;
    return false;
}

// By what --print-config would show of them.
static bool field_changed(const config_key *key, const void *old, const void *fresh)
{
    buffer texts[2] = { { 0 }, { 0 } };
    config_value values[2] = { config_value_load(key, old), config_value_load(key, fresh) };
    for (int i = 0; i < 2; i++)
        config_value_format(key->type, &values[i], &texts[i]);
    bool changed = !slice_equal(buffer_slice(&texts[0]), buffer_slice(&texts[1]));
    buffer_close(&texts[0]);
    buffer_close(&texts[1]);
    return changed;
}

static void field_swap(config_type type, void *left, void *right)
{
    char kept[sizeof(config_strings)];
    size_t size = config_field_size(type);
    memcpy(kept, left, size);
    memcpy(left, right, size);
    memcpy(right, kept, size);
}

// `prefix` stands before the names that are told.
static void section_take(const config_program *program, const config_part *part, void *settings,
                         void *fresh, const char *prefix, const config_reload *reload)
{
    char name[128];
    for (size_t k = 0; k < part->section->count; k++) {
        const config_key *key = &part->section->keys[k];
        char *old = (char *)settings + part->offset + key->offset;
        char *new = (char *)fresh + part->offset + key->offset;
        if (!field_changed(key, old, new))
            continue;
        bool live = config_key_is_live(program, key->name);
        if (live)
            field_swap(key->type, old, new);
        snprintf(name, sizeof name, "%s%s", prefix, key->name);
        reload->changed(name, live, reload->context);
    }
}

// Whether two groups are the same but for what may change while the program runs.
static bool group_is_same(const config_program *row, const char *old, const char *fresh)
{
    for (size_t p = 0; p < row->part_count; p++) {
        const config_part *part = &row->parts[p];
        for (size_t k = 0; k < part->section->count; k++) {
            const config_key *key = &part->section->keys[k];
            size_t offset = part->offset + key->offset;
            if (!config_key_is_live(row, key->name) &&
                field_changed(key, old + offset, fresh + offset))
                return false;
        }
    }
    return true;
}

static void list_take(const config_list *list, void *settings, void *fresh,
                      const config_reload *reload)
{
    const config_program *row = list->row;
    config_rows *old = (config_rows *)((char *)settings + list->offset);
    config_rows *new = (config_rows *)((char *)fresh + list->offset);
    bool same = old->count == new->count;
    char prefix[96];
    for (size_t i = 0; i < old->count && i < new->count; i++) {
        char *fields = (char *)old->items + i * row->settings_size;
        char *others = (char *)new->items + i * row->settings_size;
        if (!group_is_same(row, fields, others)) {
            same = false;
            continue;
        }
        snprintf(prefix, sizeof prefix, "%s[%zu].", list->name, i);
        for (size_t p = 0; p < row->part_count; p++)
            section_take(row, &row->parts[p], fields, others, prefix, reload);
    }
    if (!same)
        reload->changed(list->name, false, reload->context);
}

status config_read_again(const config_program *program, int argc, char **argv, void *settings,
                         const config_reload *reload, error *failure)
{
    config_action action;
    void *fresh = calloc(1, program->settings_size);
    if (fresh == NULL)
        return error_set(failure, STATUS_NO_MEMORY, "", "memory is short");
    status result = config_open(program, argc, argv, fresh, &action, failure);
    if (result != STATUS_OK) {
        free(fresh);
        return result;
    }
    if (reload->check)
        result = reload->check(fresh, reload->context, failure);
    for (size_t p = 0; result == STATUS_OK && p < program->part_count; p++)
        section_take(program, &program->parts[p], settings, fresh, "", reload);
    for (size_t i = 0; result == STATUS_OK && i < program->list_count; i++)
        list_take(&program->lists[i], settings, fresh, reload);
    config_close(program, fresh);
    free(fresh);
    return result;
}
