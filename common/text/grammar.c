#include "text/grammar_private.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

enum { ALIGNMENT = 16, CHUNK_SIZE = 64 * 1024 };
#define MEMORY_MAX ((size_t)64 << 20)
#define WORK_MAX ((uint64_t)20 << 20) // a tenth of a second or two

struct grammar_block {
    grammar_block *next;
    size_t size, used;
    _Alignas(ALIGNMENT) char data[];
};

// ---- the task ----------------------------------------------------------------------------------

_Noreturn void grammar_fail(grammar_task *t, status code, const char *param, const char *format,
                            ...)
{
    char text[400];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    t->code = error_set(t->failure, code, param, "%s", text);
    longjmp(t->landing, 1);
}

void grammar_work(grammar_task *t, uint64_t operations)
{
    t->work_used += operations;
    if (t->work_used > WORK_MAX)
        grammar_fail(t, STATUS_TOO_LARGE, "", "it takes too much work to compile");
}

void *grammar_allocate(grammar_task *t, size_t size)
{
    size = (size + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    grammar_block *block = t->blocks;
    if (!block || block->size - block->used < size) {
        size_t room = size > CHUNK_SIZE ? size : CHUNK_SIZE;
        if (room > MEMORY_MAX - t->memory_used)
            grammar_fail(t, STATUS_TOO_LARGE, "", "it takes more than %zu bytes to compile",
                         MEMORY_MAX);
        block = calloc(1, sizeof *block + room);
        if (!block)
            grammar_fail(t, STATUS_NO_MEMORY, "", "no memory for the grammar");
        t->memory_used += room;
        block->size = room;
        block->next = t->blocks;
        t->blocks = block;
    }
    void *data = block->data + block->used;
    block->used += size;
    grammar_work(t, size / 64);
    return data;
}

void *grammar_grow(grammar_task *t, void *items, size_t count, size_t *capacity, size_t item_size)
{
    if (count < *capacity)
        return items;
    size_t room = *capacity ? *capacity * 2 : 8;
    void *moved = grammar_allocate(t, room * item_size);
    if (count > 0)
        memcpy(moved, items, count * item_size);
    *capacity = room;
    return moved;
}

static void blocks_free(grammar_block *block)
{
    while (block) {
        grammar_block *next = block->next;
        free(block);
        block = next;
    }
}

// ---- sources -----------------------------------------------------------------------------------

static json_t *json_parse(grammar_task *t, slice text, const char *what)
{
    json_error_t at;
    json_t *json = json_loadb(text.data, text.size,
                              JSON_DECODE_ANY | JSON_ALLOW_NUL | JSON_REJECT_DUPLICATES, &at);
    if (!json)
        grammar_fail(t, STATUS_INVALID, "", "the %s is not valid JSON: %s (line %d, column %d)",
                     what, at.text, at.line, at.column);
    return json;
}

static int32_t choice_compile(grammar_task *t, const json_t *list, int32_t end)
{
    size_t count = json_array_size(list);
    if (!json_is_array(list) || count == 0)
        grammar_fail(t, STATUS_INVALID, "", "a choice must be an array of at least one string");
    slice *texts = grammar_allocate(t, count * sizeof *texts);
    for (size_t i = 0; i < count; i++) {
        const json_t *item = json_array_get(list, i);
        if (!json_is_string(item) || json_string_length(item) == 0)
            grammar_fail(t, STATUS_INVALID, "",
                         "item %zu of the choice must be a string of at "
                         "least one character",
                         i);
        texts[i] = (slice){ json_string_value(item), json_string_length(item) };
    }
    return program_raw(t, automaton_of_texts(t, texts, count), end);
}

static json_t *object_schema(void)
{
    return json_pack("{s:s}", "type", "object");
}

typedef enum source_kind {
    SOURCE_SCHEMA,
    SOURCE_OBJECT,
    SOURCE_REGEX,
    SOURCE_CHOICE,
    SOURCE_TEMPLATE,
    SOURCE_KINDS
} source_kind;
static const char *const source_tags[SOURCE_KINDS] = { "json_schema", "json_object", "regex",
                                                       "choice", "template" };
static const char *const source_names[SOURCE_KINDS] = { "schema", "", "", "choice", "template" };

static void source_compile(grammar_task *t, source_kind kind, slice text, json_t *json, grammar *g)
{
    program_begin(t);
    int32_t end = program_add(t, NODE_RETURN, -1, 0, 0), start = -1;
    t->root = json;
    if (kind == SOURCE_SCHEMA || kind == SOURCE_OBJECT)
        start = program_value(t, terms_of(t, TERM_SCHEMA, json), end);
    else if (kind == SOURCE_REGEX)
        start = program_raw(t, regex_compile(t, text, true, ""), end);
    else if (kind == SOURCE_CHOICE)
        start = choice_compile(t, json, end);
    else
        start = grammar_template(t, json, end);
    program_rules(t);
    if (start < 0)
        grammar_fail(t, STATUS_INVALID, "", "nothing at all is allowed by it");
    program_end(t, start, g);
}

// Parse the JSON under the landing place: a failed compilation frees it here.
static status task_run(grammar_task *t, source_kind kind, slice text, grammar *g)
{
    json_t *volatile json = NULL;
    if (setjmp(t->landing) == 0) {
        if (kind == SOURCE_OBJECT)
            json = object_schema();
        else if (kind != SOURCE_REGEX)
            json = json_parse(t, text, source_names[kind]);
        source_compile(t, kind, text, json, g);
        t->code = STATUS_OK;
    }
    json_decref(json);
    return t->code;
}

status grammar_compile(slice source, grammar **compiled, error *failure)
{
    slice tag;
    int kind = 0;
    if (source.size > GRAMMAR_SOURCE_MAX)
        return error_set(failure, STATUS_TOO_LARGE, "",
                         "the grammar has %zu bytes; right is at "
                         "most %zu",
                         source.size, GRAMMAR_SOURCE_MAX);
    const char *end = source.size ? memchr(source.data, '\n', source.size) : NULL;
    tag = (slice){ source.data, end ? (size_t)(end - source.data) : 0 };
    while (kind < SOURCE_KINDS && !slice_equal(tag, slice_of(source_tags[kind])))
        kind++;
    if (kind == SOURCE_KINDS)
        return error_set(failure, STATUS_UNSUPPORTED, "",
                         "the grammar begins with none of json_schema, json_object, regex, choice "
                         "and template");
    slice text = { end + 1, source.size - tag.size - 1 };
    grammar *g = calloc(1, sizeof *g);
    if (!g)
        return error_set(failure, STATUS_NO_MEMORY, "", "no memory for the grammar");
    grammar_task t = { .failure = failure };
    status result = task_run(&t, (source_kind)kind, text, g);
    g->blocks = t.blocks;
    blocks_free(t.scratch);
    atomic_store(&g->holders, 1);
    if (result != STATUS_OK) {
        grammar_release(g);
        return result;
    }
    *compiled = g;
    return STATUS_OK;
}

grammar *grammar_hold(grammar *g)
{
    atomic_fetch_add(&g->holders, 1);
    return g;
}

size_t grammar_size(const grammar *g)
{
    size_t size = sizeof *g;
    for (const grammar_block *block = g->blocks; block; block = block->next)
        size += sizeof *block + block->size;
    return size;
}

void grammar_release(grammar *g)
{
    if (!g || atomic_fetch_sub(&g->holders, 1) != 1)
        return;
    blocks_free(g->blocks);
    free(g);
}
