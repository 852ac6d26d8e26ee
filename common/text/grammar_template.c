// Templates: literal text around schemas, alternatives, and repetition.
#include "text/grammar_private.h"

#define DEPTH_MAX 32
#define REPEAT_MAX 64

_Noreturn static void refuse(grammar_task *t, const char *what)
{
    grammar_fail(t, STATUS_INVALID, "", "a node of the template %s", what);
}

static int32_t repeat(grammar_task *t, const json_t *node, int32_t next)
{
    const json_t *inner = json_object_get(node, "repeat");
    const json_t *separator = json_object_get(node, "separator");
    int64_t min = keyword_count(t, node, "min", 1), max = keyword_count(t, node, "max", 1);
    slice between = { json_string_value(separator), json_string_length(separator) };
    if (max > REPEAT_MAX || max < min || (separator && !json_is_string(separator)))
        refuse(t,
               "repeats with a min above its max, a max above 64 or a separator that is no string");
    int32_t at = next;
    for (int64_t i = max; i > 0; i--) {
        int32_t one = grammar_template(t, inner, at);
        if (i > 1)
            one = program_bytes(t, between, one);
        at = i > min ? program_fork(t, one, next) : one;
    }
    return at;
}

static int32_t list(grammar_task *t, const json_t *items, bool any, int32_t next)
{
    int32_t at = any ? -1 : next;
    if (!json_is_array(items) || json_array_size(items) == 0)
        refuse(t, "must hold an array of at least one node");
    for (size_t i = json_array_size(items); i > 0; i--) {
        const json_t *one = json_array_get(items, i - 1);
        at = any ? program_fork(t, grammar_template(t, one, next), at)
                 : grammar_template(t, one, at);
    }
    return at;
}

static int32_t schema(grammar_task *t, json_t *root, int32_t next)
{
    json_t *outer = t->root;
    t->root = root;
    int32_t made = program_value(t, terms_of(t, TERM_SCHEMA, root), next);
    t->root = outer;
    return made;
}

int32_t grammar_template(grammar_task *t, const json_t *node, int32_t next)
{
    json_t *part;
    int32_t made = -1;
    grammar_work(t, 32); // an empty text adds no node, however often it is repeated
    if (json_is_string(node))
        return program_bytes(t, (slice){ json_string_value(node), json_string_length(node) }, next);
    if (++t->depth > DEPTH_MAX)
        refuse(t, "nests too deep");
    if ((part = json_object_get(node, "sequence")) != NULL)
        made = list(t, part, false, next);
    else if ((part = json_object_get(node, "any")) != NULL)
        made = list(t, part, true, next);
    else if (json_object_get(node, "repeat"))
        made = repeat(t, node, next);
    else if ((part = json_object_get(node, "json_schema")) != NULL)
        made = schema(t, part, next);
    else if (json_is_true(json_object_get(node, "json_object")))
        made = program_object(t, &(shape_object){ .max = -1 }, next);
    else if (json_is_string(part = json_object_get(node, "regex")))
        made = program_raw(
            t,
            regex_compile(t, (slice){ json_string_value(part), json_string_length(part) }, true,
                          "regex"),
            next);
    else
        refuse(t, "is none of a string, sequence, any, repeat, json_schema, json_object and regex");
    t->depth--;
    return made;
}
