// Lists of groups: everything but reading them, which is libconfig's (config_file.c).
#include "base/config_internal.h"

#include <stdlib.h>

const config_list *config_list_find(const config_program *program, const char *name)
{
    for (size_t i = 0; i < program->list_count; i++)
        if (strcmp(program->lists[i].name, name) == 0)
            return &program->lists[i];
    return NULL;
}

void config_rows_close(const config_list *list, config_rows *rows)
{
    for (size_t i = 0; i < rows->count; i++)
        config_close(list->row, (char *)rows->items + i * list->row->settings_size);
    free(rows->items);
    *rows = (config_rows){ 0 };
}

void config_list_close(const config_list *list, void *settings)
{
    config_rows_close(list, (config_rows *)((char *)settings + list->offset));
}

status config_list_parse(const config_list *list, const char *text, void *settings, error *failure)
{
    // A program that has nothing but this list, so that the text cannot set anything else.
    config_program only = { .name = "", .lists = list, .list_count = 1 };
    buffer file = { .limit = CONFIG_TEXT_MAX };
    buffer_printf(&file, "%s = %s;", list->name, text);
    status result =
        file.overflow
            ? error_set(failure, STATUS_NO_MEMORY, list->name, "%s is too long", list->name)
            : config_load_text(&only, settings, list->name, file.data, failure);
    buffer_close(&file);
    return result;
}

static void row_format(const config_program *row, const char *fields, buffer *out)
{
    const config_part *part = &row->parts[0];
    buffer_append_text(out, "\n    {");
    for (size_t k = 0; k < part->section->count; k++) {
        const config_key *key = &part->section->keys[k];
        config_value value = config_value_load(key, fields + part->offset + key->offset);
        buffer_printf(out, " %s = ", key->name);
        config_value_format(key->type, &value, out);
        buffer_append_byte(out, ';');
    }
    buffer_append_text(out, " }");
}

void config_list_format(const config_list *list, const void *settings, buffer *out)
{
    const config_rows *rows = (const config_rows *)((const char *)settings + list->offset);
    buffer_append_byte(out, '(');
    for (size_t i = 0; i < rows->count; i++) {
        if (i > 0)
            buffer_append_byte(out, ',');
        row_format(list->row, (const char *)rows->items + i * list->row->settings_size, out);
    }
    buffer_append_text(out, rows->count ? "\n)" : ")");
}
