#include "base/config_internal.h"

#include <stdlib.h>

static const char *const type_names[] = {
    [CONFIG_BOOL] = "true or false", [CONFIG_INT] = "whole number", [CONFIG_FLOAT] = "number",
    [CONFIG_STRING] = "text",        [CONFIG_BYTES] = "size",       [CONFIG_DURATION] = "duration",
    [CONFIG_STRINGS] = "texts",
};

static bool has_range(const config_key *key)
{
    bool numeric = key->type == CONFIG_INT || key->type == CONFIG_FLOAT ||
                   key->type == CONFIG_BYTES || key->type == CONFIG_DURATION;
    return numeric && (key->min != 0 || key->max != 0);
}

static void print_limit(const config_key *key, double limit, buffer *out)
{
    config_value value = config_value_of_number(key->type, limit);
    config_value_format(key->type, &value, out);
}

// "whole number of tokens, default 64, from 16 to 128" or "text, default "info", one of ...".
static void print_facts(const config_program *program, const config_key *key, buffer *out)
{
    config_value value;
    buffer_append_text(out, type_names[key->type]);
    if (key->unit[0] != 0)
        buffer_printf(out, " (%s)", key->unit);
    buffer_append_text(out, ", default ");
    CHECK(config_value_parse(key, key->initial, &value, NULL) == STATUS_OK);
    config_value_format(key->type, &value, out);
    config_value_close(key->type, &value);
    if (has_range(key)) {
        buffer_append_text(out, ", from ");
        print_limit(key, key->min, out);
        buffer_append_text(out, " to ");
        print_limit(key, key->max, out);
    }
    for (size_t i = 0; key->type == CONFIG_STRING && key->among && key->among[i]; i++)
        buffer_printf(out, "%s%s", i ? ", " : ", one of ", key->among[i]);
    if (config_key_is_live(program, key->name))
        buffer_append_text(out, "; SIGHUP reads it again");
}

void config_print_help(const config_program *program, buffer *out)
{
    buffer_printf(out, "%s: %s\n\n", program->name, program->summary);
    buffer_printf(out, "usage: %s [--config FILE]... [--set KEY=VALUE]...\n\n", program->name);
    buffer_append_text(out, "  --config FILE     read settings from FILE (libconfig syntax)\n"
                            "  --set KEY=VALUE   one setting; comes after every file\n"
                            "  --print-config    print every setting as a file for --config\n"
                            "  --version         print the version\n"
                            "  --help            print this text\n\n"
                            "settings:\n");
    for (size_t p = 0; p < program->part_count; p++) {
        const config_section *section = program->parts[p].section;
        for (size_t k = 0; k < section->count; k++) {
            const config_key *key = &section->keys[k];
            buffer_printf(out, "  %s\n      %s\n      ", key->name, key->help);
            print_facts(program, key, out);
            buffer_append_byte(out, '\n');
        }
    }
    for (size_t i = 0; i < program->list_count; i++) {
        const config_list *list = &program->lists[i];
        buffer_printf(out, "  %s\n      %s\n      at most %zu groups in a list, each with\n",
                      list->name, list->help, list->max);
        for (size_t k = 0; k < list->row->parts[0].section->count; k++) {
            const config_key *key = &list->row->parts[0].section->keys[k];
            buffer_printf(out, "      %s: %s ", key->name, key->help);
            print_facts(list->row, key, out);
            buffer_append_byte(out, '\n');
        }
    }
}

typedef struct listed_key {
    const config_key *key;
    const void *field;
    bool printed;
} listed_key;

typedef struct listing {
    const config_program *program;
    listed_key *keys;
    size_t count;
    buffer *out;
} listing;

static void print_key(const config_program *program, const listed_key *listed, size_t prefix_size,
                      int depth, buffer *out)
{
    int indent = 4 * depth;
    config_value value = config_value_load(listed->key, listed->field);
    buffer_printf(out, "%*s# %s\n%*s# (", indent, "", listed->key->help, indent, "");
    print_facts(program, listed->key, out);
    buffer_printf(out, ")\n%*s%s = ", indent, "", listed->key->name + prefix_size);
    config_value_format(listed->key->type, &value, out);
    buffer_append_text(out, ";\n");
}

// The keys below `prefix` ("" or "http."), in the order of the tables; a group stands where its
// first key does and takes in all its keys, from whichever section they come. Depth is bounded by
// the dots.
static void print_level(listing *all, const char *prefix, size_t prefix_size, int depth)
{
    for (size_t i = 0; i < all->count; i++) {
        listed_key *listed = &all->keys[i];
        const char *name = listed->key->name;
        if (listed->printed || strncmp(name, prefix, prefix_size) != 0)
            continue;
        const char *dot = strchr(name + prefix_size, '.');
        if (dot == NULL) {
            print_key(all->program, listed, prefix_size, depth, all->out);
            listed->printed = true;
            continue;
        }
        int indent = 4 * depth;
        int group_size = (int)(dot - name - (ptrdiff_t)prefix_size);
        buffer_printf(all->out, "%*s%.*s:\n%*s{\n", indent, "", group_size, name + prefix_size,
                      indent, "");
        print_level(all, name, (size_t)(dot + 1 - name), depth + 1);
        buffer_printf(all->out, "%*s};\n", indent, "");
    }
}

void config_print_settings(const config_program *program, const void *settings, buffer *out)
{
    listing all = { .program = program, .out = out };
    for (size_t p = 0; p < program->part_count; p++)
        all.count += program->parts[p].section->count;
    all.keys = calloc(all.count + 1, sizeof(all.keys[0]));
    CHECK(all.keys != NULL);
    size_t at = 0;
    for (size_t p = 0; p < program->part_count; p++) {
        const config_part *part = &program->parts[p];
        for (size_t k = 0; k < part->section->count; k++) {
            const config_key *key = &part->section->keys[k];
            const char *field = (const char *)settings + part->offset + key->offset;
            all.keys[at++] = (listed_key){ .key = key, .field = field };
        }
    }
    buffer_printf(out, "# Settings of %s %s.\n", program->name, PENSTOCK_VERSION);
    print_level(&all, "", 0, 0);
    free(all.keys);
    for (size_t i = 0; i < program->list_count; i++) {
        buffer_printf(out, "# %s\n%s = ", program->lists[i].help, program->lists[i].name);
        config_list_format(&program->lists[i], settings, out);
        buffer_append_text(out, ";\n");
    }
}
