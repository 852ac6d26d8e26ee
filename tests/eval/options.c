#include "eval/options.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef enum option_kind {
    OPTION_TEXT,   // const char *
    OPTION_NUMBER, // int, `least` to `most`
    OPTION_FLAG,   // bool
    OPTION_MODEL,  // another of `models`
    OPTION_TYPES,  // kv_types
} option_kind;

typedef struct option_row {
    char letter;
    const char *name, *value;
    option_kind kind;
    size_t offset;
    int least, most, initial;
    const char *help;
} option_row;

#define AT(field) offsetof(eval_options, field)
// clang-format off
static const option_row rows[] = {
    { 'm', "model", "FILE", OPTION_MODEL, 0, 0, 0, 0, "a GGUF file; FILE,kv=TYPE chooses its type of KV cache; may be repeated" },
    { 'k', "kv-type", "A,B", OPTION_TYPES, 0, 0, 0, 0, "types of KV cache of models that name none, each with each (default f16); a reference takes the first" },
    { 'r', "reference", "FILE", OPTION_TEXT, AT(reference), 0, 0, 0, "the model to compare with, as --model" },
    { 'R', "reference-file", "RUN", OPTION_TEXT, AT(reference_file), 0, 0, 0, "a run that --save-reference stored, in place of --reference and --text" },
    { 'S', "save-reference", "RUN", OPTION_TEXT, AT(save_reference), 0, 0, 0, "store the reference's logits in a file" },
    { 't', "text", "FILE", OPTION_TEXT, AT(text), 0, 0, 0, "the text to predict (UTF-8)" },
    { 's', "set", "FILE", OPTION_TEXT, AT(set), 0, 0, 0, "multiple-choice questions, JSON Lines (tests/eval/README.md)" },
    { 'c', "context", "N", OPTION_NUMBER, AT(context), 2, 1 << 24, 0, "tokens of a window (default 1024, or what the model can)" },
    { 'd', "stride", "N", OPTION_NUMBER, AT(stride), 1, 1 << 24, 0, "tokens from a window to the next (default: no overlap)" },
    { 'w', "windows", "N", OPTION_NUMBER, AT(windows), 1, 1 << 24, 0, "windows at most (default: the whole text)" },
    { 'C', "csv", "FILE", OPTION_TEXT, AT(csv), 0, 0, 0, "write the table as CSV as well" },
    { 'V', "svg", "FILE", OPTION_TEXT, AT(svg), 0, 0, 0, "draw quality against speed and memory" },
    { 'p', "pool", "MIB", OPTION_NUMBER, AT(pool_mib), 1, 1 << 24, 1024, "MiB of KV pages for the count of resident sequences (default 1024)" },
    { 'q', "sequence-tokens", "N", OPTION_NUMBER, AT(sequence_tokens), 1, 1 << 24, 2048, "tokens of such a sequence (default 2048)" },
    { 'n', "no-speed", NULL, OPTION_FLAG, AT(no_speed), 0, 0, 0, "leave the speed columns empty" },
    { 'P', "prompt", "N", OPTION_NUMBER, AT(prompt), 1, 1 << 24, 512, "tokens of a measured prefill (default 512)" },
    { 'g', "generate", "N", OPTION_NUMBER, AT(generate), 1, 1 << 24, 64, "tokens of each sequence of a measured decode (default 64)" },
    { 'D', "depth", "N", OPTION_NUMBER, AT(depth), 1, 1 << 24, 512, "tokens in the cache before a measured decode (default 512)" },
    { 'x', "repeats", "N", OPTION_NUMBER, AT(repeats), 1, 32, 3, "measurements of which the median counts (default 3)" },
    { 'T', "threads", "N", OPTION_NUMBER, AT(threads), 0, 256, 0, "compute threads (default: what affinity and quota allow)" },
    { 'l', "level", "LEVEL", OPTION_TEXT, AT(level), 0, 0, 0, "auto, scalar, avx2 or avx512 (default auto)" },
    { 'j', "json", NULL, OPTION_FLAG, AT(json), 0, 0, 0, "one JSON object a line" },
};
// clang-format on
#undef AT
#define ROWS (sizeof rows / sizeof rows[0])

static const option_row *row_of(int letter)
{
    for (size_t i = 0; i < ROWS; i++)
        if (rows[i].letter == letter)
            return &rows[i];
    return NULL;
}

static void help_print(const eval_usage *usage)
{
    printf("usage: penstock-eval %s [options]\n\n%s\n\n", usage->name, usage->help);
    for (size_t i = 0; i < ROWS; i++) {
        char left[48];
        if (!strchr(usage->letters, rows[i].letter))
            continue;
        snprintf(left, sizeof left, "--%s %s", rows[i].name, rows[i].value ? rows[i].value : "");
        printf("  %-22s %s\n", left, rows[i].help);
    }
}

static status number_take(const option_row *row, const char *text, int *value, error *failure)
{
    char *end;
    long number = strtol(text, &end, 10);
    if (end == text || *end != '\0' || number < row->least || number > row->most)
        return error_set(failure, STATUS_INVALID, row->name,
                         "--%s is '%s'; it must be a whole number from %d to %d", row->name, text,
                         row->least, row->most);
    *value = (int)number;
    return STATUS_OK;
}

static status types_take(const char *text, eval_options *o, error *failure)
{
    o->kv_type_count = 0;
    for (;;) {
        size_t size = strcspn(text, ",");
        if (o->kv_type_count == EVAL_KV_TYPES_MAX || size == 0 || size >= sizeof o->kv_types[0])
            return error_set(failure, STATUS_INVALID, "kv-type",
                             "--kv-type must be a list of 1 to %d types, such as f16,int8",
                             EVAL_KV_TYPES_MAX);
        snprintf(o->kv_types[o->kv_type_count++], sizeof o->kv_types[0], "%.*s", (int)size, text);
        if (text[size] == '\0')
            return STATUS_OK;
        text += size + 1;
    }
}

static status option_take(const option_row *row, const char *value, eval_options *o, error *failure)
{
    void *field = (char *)o + row->offset;
    switch (row->kind) {
    case OPTION_TEXT:
        *(const char **)field = value;
        return STATUS_OK;
    case OPTION_NUMBER:
        return number_take(row, value, field, failure);
    case OPTION_FLAG:
        *(bool *)field = true;
        return STATUS_OK;
    case OPTION_TYPES:
        return types_take(value, o, failure);
    case OPTION_MODEL:
        break;
    }
    if (o->model_count == EVAL_MODELS_MAX)
        return error_set(failure, STATUS_INVALID, "model", "there are more than %d models",
                         EVAL_MODELS_MAX);
    o->models[o->model_count++] = value;
    return STATUS_OK;
}

static void defaults_fill(eval_options *o)
{
    *o = (eval_options){ .level = "auto", .kv_types = { "f16" }, .kv_type_count = 1 };
    for (size_t i = 0; i < ROWS; i++)
        if (rows[i].kind == OPTION_NUMBER)
            *(int *)((char *)o + rows[i].offset) = rows[i].initial;
}

status options_parse(const eval_usage *usage, int argc, char **argv, eval_options *o,
                     eval_action *action, error *failure)
{
    struct option names[ROWS + 2] = { { "help", 0, NULL, 'h' } };
    bool seen[128] = { false };
    status result = STATUS_OK;
    for (size_t i = 0; i < ROWS; i++)
        names[i + 1] = (struct option){ rows[i].name, rows[i].value != NULL, NULL, rows[i].letter };
    defaults_fill(o);
    *action = EVAL_RUN;
    opterr = 0;
    for (int letter; (letter = getopt_long(argc, argv, "", names, NULL)) != -1;) {
        if (letter == 'h') {
            help_print(usage);
            *action = EVAL_EXIT;
            return STATUS_OK;
        }
        const option_row *row = row_of(letter);
        if (!row)
            return error_set(failure, STATUS_INVALID, "", "'%s' is no option, or lacks its value",
                             argv[optind - 1]);
        if (!strchr(usage->letters, letter))
            return error_set(failure, STATUS_INVALID, "", "%s takes no option --%s", usage->name,
                             row->name);
        seen[letter] = true;
        TRY(option_take(row, optarg, o, failure));
    }
    if (optind < argc)
        return error_set(failure, STATUS_INVALID, "", "'%s' is no option", argv[optind]);
    for (const char *need = usage->needs; *need; need++)
        if (!seen[(unsigned char)*need])
            return error_set(failure, STATUS_INVALID, "", "%s needs --%s (--help lists all)",
                             usage->name, row_of(*need)->name);
fail:
    return result;
}
