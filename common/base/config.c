#include "base/config_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

const config_key *config_key_find(const config_program *program, void *settings, const char *name,
                                  void **field)
{
    for (size_t p = 0; p < program->part_count; p++) {
        const config_part *part = &program->parts[p];
        for (size_t k = 0; k < part->section->count; k++) {
            const config_key *key = &part->section->keys[k];
            if (strcmp(key->name, name) == 0) {
                *field = (char *)settings + part->offset + key->offset;
                return key;
            }
        }
    }
    return NULL;
}

bool config_group_exists(const config_program *program, const char *name)
{
    size_t size = strlen(name);
    for (size_t p = 0; p < program->part_count; p++) {
        const config_section *section = program->parts[p].section;
        for (size_t k = 0; k < section->count; k++) {
            const char *known = section->keys[k].name;
            if (strncmp(known, name, size) == 0 && known[size] == '.')
                return true;
        }
    }
    return false;
}

// Levenshtein distance, for names of at most SPELL_MAX bytes.
#define SPELL_MAX 63
static size_t spelling_distance(const char *a, const char *b)
{
    size_t row[SPELL_MAX + 1];
    size_t width = strlen(b);
    if (width > SPELL_MAX || strlen(a) > SPELL_MAX)
        return SIZE_MAX;
    for (size_t j = 0; j <= width; j++)
        row[j] = j;
    for (size_t i = 1; a[i - 1] != 0; i++) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t j = 1; j <= width; j++) {
            size_t best = diagonal + (a[i - 1] != b[j - 1]);
            best = row[j] + 1 < best ? row[j] + 1 : best;
            best = row[j - 1] + 1 < best ? row[j - 1] + 1 : best;
            diagonal = row[j];
            row[j] = best;
        }
    }
    return row[width];
}

status config_key_unknown(const config_program *program, const char *name, error *failure)
{
    const char *nearest = NULL;
    size_t nearest_distance = strlen(name) / 3 + 1; // further away is another word
    for (size_t p = 0; p < program->part_count; p++) {
        const config_section *section = program->parts[p].section;
        for (size_t k = 0; k < section->count; k++) {
            size_t distance = spelling_distance(name, section->keys[k].name);
            if (distance < nearest_distance) {
                nearest_distance = distance;
                nearest = section->keys[k].name;
            }
        }
    }
    if (nearest != NULL)
        return error_set(failure, STATUS_BAD_CONFIG, name,
                         "the key %.80s is not known; did you mean %s?", name, nearest);
    return error_set(failure, STATUS_BAD_CONFIG, name,
                     "the key %.80s is not known; --print-config lists the keys", name);
}

status config_set(const config_program *program, void *settings, const char *name,
                  const char *value, error *failure)
{
    void *field = NULL;
    config_value parsed;
    const config_key *key = config_key_find(program, settings, name, &field);
    const config_list *list = config_list_find(program, name);
    if (list != NULL)
        return config_list_parse(list, value, settings, failure);
    if (key == NULL)
        return config_key_unknown(program, name, failure);
    status result = config_value_parse(key, value, &parsed, failure);
    if (result != STATUS_OK)
        return result;
    result = config_value_check(key, &parsed, failure);
    if (result == STATUS_OK)
        config_value_store(key, &parsed, field);
    else
        config_value_close(key->type, &parsed);
    return result;
}

void config_close(const config_program *program, void *settings)
{
    for (size_t p = 0; p < program->part_count; p++) {
        const config_part *part = &program->parts[p];
        for (size_t k = 0; k < part->section->count; k++) {
            const config_key *key = &part->section->keys[k];
            config_value nothing = { 0 };
            config_value_store(key, &nothing, (char *)settings + part->offset + key->offset);
        }
    }
    for (size_t i = 0; i < program->list_count; i++)
        config_list_close(&program->lists[i], settings);
    memset(settings, 0, program->settings_size);
}

// A default that does not pass its own check is a mistake in the table.
void config_set_defaults(const config_program *program, void *settings)
{
    memset(settings, 0, program->settings_size);
    for (size_t p = 0; p < program->part_count; p++) {
        const config_section *section = program->parts[p].section;
        for (size_t k = 0; k < section->count; k++) {
            const config_key *key = &section->keys[k];
            error failure;
            if (config_set(program, settings, key->name, key->initial, &failure) != STATUS_OK) {
                fprintf(stderr, "default of %s: %s\n", key->name, failure.text);
                CHECK(!"every default is valid");
            }
        }
    }
}

typedef struct command_line {
    const char *name; // of the program
    int count;
    char **arguments;
    bool help, version, print_settings;
} command_line;

// The value of the flag at `*at` ("--set x" or "--set=x"), or NULL where it is another flag.
// A flag without its value sets the failure.
static const char *flag_value(const command_line *line, const char *flag, int *at, error *failure)
{
    const char *argument = line->arguments[*at];
    size_t size = strlen(flag);
    if (strncmp(argument, flag, size) != 0)
        return NULL;
    if (argument[size] == '=')
        return argument + size + 1;
    if (argument[size] != 0)
        return NULL;
    if (*at + 1 < line->count)
        return line->arguments[++*at];
    error_set(failure, STATUS_BAD_CONFIG, flag, "%s needs a value", flag);
    return NULL;
}

static status apply_set(const config_program *program, void *settings, const char *assignment,
                        error *failure)
{
    const char *equals = strchr(assignment, '=');
    char name[128];
    if (equals == NULL || equals == assignment || (size_t)(equals - assignment) >= sizeof(name))
        return error_set(failure, STATUS_BAD_CONFIG, "--set",
                         "--set \"%.80s\" is not of the form key=value", assignment);
    memcpy(name, assignment, (size_t)(equals - assignment));
    name[equals - assignment] = 0;
    status result = config_set(program, settings, name, equals + 1, failure);
    if (result != STATUS_OK)
        error_prefix(failure, "--set");
    return result;
}

// One pass over the arguments: the files in the first, the assignments in the second.
static status walk_arguments(const config_program *program, command_line *line, bool files,
                             void *settings, error *failure)
{
    for (int at = 1; at < line->count; at++) {
        const char *argument = line->arguments[at];
        const char *value;
        status result = STATUS_OK;
        failure->code = STATUS_OK;
        if (strcmp(argument, "--help") == 0)
            line->help = true;
        else if (strcmp(argument, "--version") == 0)
            line->version = true;
        else if (strcmp(argument, "--print-config") == 0)
            line->print_settings = true;
        else if ((value = flag_value(line, "--config", &at, failure)) != NULL)
            result = files ? config_load_file(program, settings, value, failure) : STATUS_OK;
        else if ((value = flag_value(line, "--set", &at, failure)) != NULL)
            result = files ? STATUS_OK : apply_set(program, settings, value, failure);
        else if (failure->code == STATUS_OK)
            result = error_set(failure, STATUS_BAD_CONFIG, argument,
                               "the argument \"%.80s\" is not known; try %s --help", argument,
                               line->name);
        if (result == STATUS_OK)
            result = failure->code;
        if (result != STATUS_OK)
            return result;
    }
    return STATUS_OK;
}

static void print_to_output(buffer *text)
{
    fwrite(text->data, 1, text->size, stdout);
    fflush(stdout);
}

status config_open(const config_program *program, int argc, char **argv, void *settings,
                   config_action *action, error *failure)
{
    error unread;
    buffer text = { 0 };
    command_line line = { .name = program->name, .count = argc, .arguments = argv };
    if (failure == NULL)
        failure = &unread;
    *failure = (error){ 0 };
    config_set_defaults(program, settings);
    // Help must not depend on whether the rest of the command line is right.
    for (int at = 1; at < argc; at++)
        line.help |= strcmp(argv[at], "--help") == 0;
    status result = STATUS_OK;
    if (!line.help)
        result = walk_arguments(program, &line, true, settings, failure);
    if (!line.help && result == STATUS_OK)
        result = walk_arguments(program, &line, false, settings, failure);
    if (result != STATUS_OK) {
        config_close(program, settings);
        return result;
    }
    if (line.help)
        config_print_help(program, &text);
    else if (line.version)
        buffer_printf(&text, "%s %s\n", program->name, PENSTOCK_VERSION);
    else if (line.print_settings)
        config_print_settings(program, settings, &text);
    *action = text.size > 0 ? CONFIG_EXIT : CONFIG_RUN;
    if (*action == CONFIG_EXIT)
        print_to_output(&text);
    buffer_close(&text);
    return STATUS_OK;
}
