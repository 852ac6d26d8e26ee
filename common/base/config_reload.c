#include "base/config_internal.h"

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

static void section_take(const config_program *program, const config_part *part, void *settings,
                         void *fresh, const config_reload *reload)
{
    for (size_t k = 0; k < part->section->count; k++) {
        const config_key *key = &part->section->keys[k];
        char *old = (char *)settings + part->offset + key->offset;
        char *new = (char *)fresh + part->offset + key->offset;
        if (!field_changed(key, old, new))
            continue;
        bool live = config_key_is_live(program, key->name);
        if (live)
            field_swap(key->type, old, new);
        reload->changed(key->name, live, reload->context);
    }
}

static void lists_compare(const config_program *program, const void *settings, const void *fresh,
                          const config_reload *reload)
{
    for (size_t i = 0; i < program->list_count; i++) {
        buffer texts[2] = { { 0 }, { 0 } };
        config_list_format(&program->lists[i], settings, &texts[0]);
        config_list_format(&program->lists[i], fresh, &texts[1]);
        if (!slice_equal(buffer_slice(&texts[0]), buffer_slice(&texts[1])))
            reload->changed(program->lists[i].name, false, reload->context);
        buffer_close(&texts[0]);
        buffer_close(&texts[1]);
    }
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
        result = reload->check(fresh, failure);
    for (size_t p = 0; result == STATUS_OK && p < program->part_count; p++)
        section_take(program, &program->parts[p], settings, fresh, reload);
    if (result == STATUS_OK)
        lists_compare(program, settings, fresh, reload);
    config_close(program, fresh);
    free(fresh);
    return result;
}
