// JSON Schema to shapes: which keywords there are, references, and what joins schemas.
#include "text/grammar_private.h"

#include <stdlib.h>

#define SCHEMA_DEPTH_MAX 64

// Keywords with a meaning here or in grammar_keywords.c.
static const char *const known[] = {
    "type",
    "enum",
    "const",
    "properties",
    "required",
    "additionalProperties",
    "patternProperties",
    "propertyNames",
    "minProperties",
    "maxProperties",
    "dependentRequired",
    "items",
    "prefixItems",
    "minItems",
    "maxItems",
    "contains",
    "uniqueItems",
    "minLength",
    "maxLength",
    "pattern",
    "format",
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "multipleOf",
    "anyOf",
    "allOf",
    "oneOf",
    "not",
    "if",
    "then",
    "else",
    "$ref",
    "$defs",
    "definitions",
    "minContains",
};
// Keywords that say nothing about what is valid.
static const char *const annotations[] = {
    "title",    "description",   "default",         "examples",         "example",
    "$comment", "deprecated",    "readOnly",        "writeOnly",        "$schema",
    "$id",      "discriminator", "contentEncoding", "contentMediaType",
};

static bool listed(const char *const *list, size_t count, const char *name)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(list[i], name) == 0)
            return true;
    return false;
}

static void keywords_check(grammar_task *t, const json_t *schema)
{
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)schema, name, value)
    {
        bool fine = listed(known, sizeof known / sizeof known[0], name) ||
                    listed(annotations, sizeof annotations / sizeof annotations[0], name) ||
                    strncmp(name, "x-", 2) == 0;
        if (!fine)
            grammar_fail(t, STATUS_UNSUPPORTED, name, "the keyword %.60s is not served", name);
        if (strcmp(name, "$id") == 0 && schema != t->root)
            grammar_fail(t, STATUS_UNSUPPORTED, name, "$id is served only at the root");
    }
}

// ---- references --------------------------------------------------------------------------------

// One part of a JSON pointer in a URI fragment: %HH, then ~0 and ~1. The end of the part.
static const char *part_read(const char *at, char *part, size_t size)
{
    size_t used = 0;
    while (*at && *at != '/' && used + 1 < size) {
        char c = *at++;
        int high = c == '%' ? hex_digit((uint8_t)at[0]) : -1;
        int low = high >= 0 ? hex_digit((uint8_t)at[1]) : -1;
        if (low >= 0) {
            c = (char)(high * 16 + low);
            at += 2;
        } else if (c == '~' && (*at == '0' || *at == '1')) {
            c = *at++ == '0' ? '~' : '/';
        }
        part[used++] = c;
    }
    part[used] = 0;
    return at;
}

const json_t *schema_resolve(grammar_task *t, const char *reference)
{
    const json_t *found = t->root;
    char part[256];
    const char *at = reference + (reference[0] == '#');
    if (reference[0] != '#' || (*at && *at != '/'))
        grammar_fail(t, STATUS_UNSUPPORTED, "$ref",
                     "$ref is \"%.80s\"; served are \"#\" and \"#/...\"", reference);
    while (*at == '/' && found) {
        at = part_read(at + 1, part, sizeof part);
        grammar_work(t, 4);
        if (json_is_array(found) && part[0] >= '0' && part[0] <= '9')
            found = json_array_get(found, (size_t)strtoul(part, NULL, 10));
        else
            found = json_object_get(found, part);
    }
    if (!found || *at)
        grammar_fail(t, STATUS_INVALID, "$ref", "$ref is \"%.80s\", which leads nowhere",
                     reference);
    return found;
}

// ---- joining -----------------------------------------------------------------------------------

static const json_t *schema_list(grammar_task *t, const json_t *schema, const char *keyword)
{
    const json_t *list = json_object_get(schema, keyword);
    if (list && (!json_is_array(list) || json_array_size(list) == 0))
        grammar_fail(t, STATUS_INVALID, keyword, "%s must be an array of at least one schema",
                     keyword);
    return list;
}

static shapes any_of(grammar_task *t, const json_t *list)
{
    shapes made = { 0 };
    for (size_t i = 0; i < json_array_size(list); i++) {
        shapes one = shapes_of_schema(t, json_array_get(list, i));
        shapes_unite(t, &made, &one);
    }
    return made;
}

// Take what `other` allows out of `one`; false where nothing is left.
static bool alone(grammar_task *t, shape *one, const shape *other)
{
    shapes a = { 0 }, b = { 0 };
    if (one->kind != other->kind || shape_apart(t, one, other, "oneOf"))
        return true;
    if (one->kind <= SHAPE_FALSE)
        return false;
    if (one->kind >= SHAPE_ARRAY)
        grammar_fail(t, STATUS_UNSUPPORTED, "oneOf",
                     "alternatives of oneOf may overlap; objects must be told apart by a required "
                     "property (or use anyOf)");
    shapes_add(t, &a, *one);
    shapes_add(t, &b, *other);
    shapes not_b = shapes_complement(t, &b, "oneOf");
    shapes left = shapes_both(t, &a, &not_b, "oneOf");
    if (left.count > 0)
        *one = left.list[0];
    return left.count > 0;
}

static shapes one_of(grammar_task *t, const json_t *list)
{
    size_t count = json_array_size(list);
    shapes made = { 0 };
    shapes *each = grammar_allocate(t, count * sizeof *each);
    for (size_t i = 0; i < count; i++)
        each[i] = shapes_of_schema(t, json_array_get(list, i));
    for (size_t i = 0; i < count; i++)
        for (size_t k = 0; k < each[i].count; k++) {
            shape one = each[i].list[k];
            bool left = true;
            grammar_work(t, count / 8);
            for (size_t j = 0; j < count; j++)
                for (size_t m = 0; left && j != i && m < each[j].count; m++)
                    left = alone(t, &one, &each[j].list[m]);
            if (left)
                shapes_add(t, &made, one);
        }
    return made;
}

// (if and then) or (not if and else)
static shapes if_then_else(grammar_task *t, const json_t *schema)
{
    shapes yes = shapes_of_schema(t, json_object_get(schema, "if"));
    shapes no = shapes_complement(t, &yes, "if");
    const json_t *then = json_object_get(schema, "then"), *other = json_object_get(schema, "else");
    if (then) {
        shapes s = shapes_of_schema(t, then);
        yes = shapes_both(t, &yes, &s, "then");
    }
    if (other) {
        shapes s = shapes_of_schema(t, other);
        no = shapes_both(t, &no, &s, "else");
    }
    shapes_unite(t, &yes, &no);
    return yes;
}

// For each name: it is absent, or those that it demands are there.
static shapes dependent_required(grammar_task *t, shapes made, const json_t *rules)
{
    const char *name;
    json_t *list;
    if (!json_is_object(rules))
        grammar_fail(t, STATUS_INVALID, "dependentRequired", "dependentRequired must be an object");
    json_object_foreach((json_t *)rules, name, list)
    {
        shapes two = { 0 };
        shape absent = shape_any(t, SHAPE_OBJECT), present = absent;
        if (!json_is_array(list))
            grammar_fail(t, STATUS_INVALID, "dependentRequired",
                         "dependentRequired must hold arrays of names");
        terms never = terms_of(t, TERM_SCHEMA, json_false());
        object_add(t, &absent.object, (object_property){ slice_of(name), never, false });
        for (size_t i = 0; i < json_array_size(list); i++) {
            const json_t *other = json_array_get(list, i);
            if (!json_is_string(other))
                grammar_fail(t, STATUS_INVALID, "dependentRequired",
                             "dependentRequired must hold arrays of names");
            slice text = { json_string_value(other), json_string_length(other) };
            if (!object_find(&present.object, text))
                object_add(t, &present.object, (object_property){ text, { 0 }, true });
        }
        for (shape_kind kind = 0; kind < SHAPE_OBJECT; kind++)
            shapes_add(t, &two, shape_any(t, kind));
        shapes_add(t, &two, absent);
        shapes_add(t, &two, present);
        made = shapes_both(t, &made, &two, "dependentRequired");
    }
    return made;
}

// ---- one schema --------------------------------------------------------------------------------

static const char *const type_names[] = { "null",   "boolean", "integer", "number",
                                          "string", "array",   "object" };
#define TYPES (sizeof type_names / sizeof type_names[0])

static unsigned type_bit(grammar_task *t, const json_t *name)
{
    for (unsigned i = 0; i < TYPES; i++)
        if (json_is_string(name) && strcmp(json_string_value(name), type_names[i]) == 0)
            return 1u << i;
    grammar_fail(t, STATUS_INVALID, "type",
                 "type must be null, boolean, integer, number, string, "
                 "array, object or an array of these");
}

static unsigned types_of(grammar_task *t, const json_t *schema)
{
    const json_t *type = json_object_get(schema, "type");
    unsigned bits = 0;
    if (!type)
        return (1u << TYPES) - 1;
    if (!json_is_array(type))
        return type_bit(t, type);
    for (size_t i = 0; i < json_array_size(type); i++)
        bits |= type_bit(t, json_array_get(type, i));
    return bits;
}

static bool bounds_hold(int64_t min, int64_t max)
{
    return max < 0 || min <= max;
}

static shapes own_keywords(grammar_task *t, const json_t *schema)
{
    unsigned types = types_of(t, schema);
    shapes made = { 0 };
    if (types & 1)
        shapes_add(t, &made, (shape){ .kind = SHAPE_NULL });
    if (types & 2) {
        shapes_add(t, &made, (shape){ .kind = SHAPE_TRUE });
        shapes_add(t, &made, (shape){ .kind = SHAPE_FALSE });
    }
    if (types & 12) {
        shape one = keywords_number(t, schema, !(types & 8));
        if (one.number->start != 0)
            shapes_add(t, &made, one);
    }
    if (types & 16) {
        shape one = keywords_text(t, schema);
        const shape_text *text = &one.text;
        if (bounds_hold(text->min, text->max) && !(text->automaton && text->automaton->start == 0))
            shapes_add(t, &made, one);
    }
    if (types & 32) {
        shape one = keywords_array(t, schema);
        if (bounds_hold(one.array.min, one.array.max))
            shapes_add(t, &made, one);
    }
    if (types & 64) {
        shape one = keywords_object(t, schema);
        if (bounds_hold(one.object.min, one.object.max))
            shapes_add(t, &made, one);
    }
    return made;
}

static shapes values_of(grammar_task *t, const json_t *list)
{
    shapes made = { 0 };
    size_t count = json_array_size(list), texts = 0;
    if (!json_is_array(list) || count == 0)
        grammar_fail(t, STATUS_INVALID, "enum", "enum must be an array of at least one value");
    slice *strings = grammar_allocate(t, count * sizeof *strings);
    for (size_t i = 0; i < count; i++) {
        const json_t *value = json_array_get(list, i);
        shapes one;
        if (json_is_string(value)) {
            strings[texts++] = (slice){ json_string_value(value), json_string_length(value) };
            continue;
        }
        one = shapes_of_value(t, value);
        shapes_unite(t, &made, &one);
    }
    if (texts > 0)
        shapes_add(t, &made,
                   (shape){ .kind = SHAPE_TEXT,
                            .text = { automaton_of_texts(t, strings, texts), 0, -1 } });
    return made;
}

// Narrow `made` by what joins other schemas.
static shapes joined(grammar_task *t, shapes made, const json_t *schema)
{
    const json_t *list;
    if ((list = schema_list(t, schema, "allOf")) != NULL)
        for (size_t i = 0; i < json_array_size(list); i++) {
            shapes one = shapes_of_schema(t, json_array_get(list, i));
            made = shapes_both(t, &made, &one, "allOf");
        }
    if ((list = schema_list(t, schema, "anyOf")) != NULL) {
        shapes some = any_of(t, list);
        made = shapes_both(t, &made, &some, "anyOf");
    }
    if ((list = schema_list(t, schema, "oneOf")) != NULL) {
        shapes one = one_of(t, list);
        made = shapes_both(t, &made, &one, "oneOf");
    }
    if ((list = json_object_get(schema, "not")) != NULL) {
        shapes not = shapes_of_schema(t, list);
        not = shapes_complement(t, &not, "not");
        made = shapes_both(t, &made, &not, "not");
    }
    if (json_object_get(schema, "if")) {
        shapes either = if_then_else(t, schema);
        made = shapes_both(t, &made, &either, "if");
    }
    return made;
}

shapes shapes_of_schema(grammar_task *t, const json_t *schema)
{
    const json_t *value;
    if (json_is_true(schema))
        return shapes_any(t);
    if (json_is_false(schema))
        return (shapes){ 0 };
    if (!json_is_object(schema))
        grammar_fail(t, STATUS_INVALID, "", "a schema must be an object, true or false");
    if (++t->depth > SCHEMA_DEPTH_MAX)
        grammar_fail(t, STATUS_INVALID, "$ref",
                     "schemas join each other more than %d deep (or lead back to themselves)",
                     SCHEMA_DEPTH_MAX);
    // Schemas that allow nothing make no shapes, however often they are referred to.
    grammar_work(t, 16 * (1 + json_object_size(schema)));
    keywords_check(t, schema);
    shapes made = own_keywords(t, schema);
    if ((value = json_object_get(schema, "enum")) != NULL) {
        shapes some = values_of(t, value);
        made = shapes_both(t, &made, &some, "enum");
    }
    if ((value = json_object_get(schema, "const")) != NULL) {
        shapes one = shapes_of_value(t, value);
        made = shapes_both(t, &made, &one, "const");
    }
    if ((value = json_object_get(schema, "$ref")) != NULL) {
        if (!json_is_string(value))
            grammar_fail(t, STATUS_INVALID, "$ref", "$ref must be a string");
        shapes other = shapes_of_schema(t, schema_resolve(t, json_string_value(value)));
        made = shapes_both(t, &other, &made, "$ref");
    }
    made = joined(t, made, schema);
    if ((value = json_object_get(schema, "dependentRequired")) != NULL)
        made = dependent_required(t, made, value);
    t->depth--;
    return made;
}

shapes shapes_of_value(grammar_task *t, const json_t *value)
{
    shape one = { 0 };
    shapes made = { 0 };
    size_t count = json_array_size(value);
    slice text = { json_string_value(value), json_string_length(value) };
    switch (json_typeof(value)) {
    case JSON_NULL:
    case JSON_TRUE:
    case JSON_FALSE:
        one.kind = json_is_null(value)   ? SHAPE_NULL
                   : json_is_true(value) ? SHAPE_TRUE
                                         : SHAPE_FALSE;
        break;
    case JSON_STRING:
        one = (shape){ .kind = SHAPE_TEXT, .text = { automaton_of_texts(t, &text, 1), 0, -1 } };
        break;
    case JSON_ARRAY:
        one = (shape){ .kind = SHAPE_ARRAY,
                       .array = { .min = (int64_t)count, .max = (int64_t)count } };
        one.array.prefix = grammar_allocate(t, count * sizeof(terms));
        one.array.prefix_count = (int32_t)count;
        for (size_t i = 0; i < count; i++)
            one.array.prefix[i] = terms_of(t, TERM_VALUE, json_array_get(value, i));
        break;
    case JSON_OBJECT: {
        const char *name;
        json_t *member;
        one = shape_any(t, SHAPE_OBJECT);
        json_object_foreach((json_t *)value, name, member)
            object_add(t, &one.object,
                       (object_property){ slice_of(name), terms_of(t, TERM_VALUE, member), true });
        one.object.free = grammar_allocate(t, sizeof(object_free));
        one.object.free[0].extra = terms_of(t, TERM_SCHEMA, json_false());
        one.object.free_count = 1;
        break;
    }
    default:
        one = (shape){ .kind = SHAPE_NUMBER, .number = number_constant(t, value) };
    }
    shapes_add(t, &made, one);
    return made;
}

shapes shapes_of(grammar_task *t, const terms *value)
{
    shapes made = { 0 };
    if (value->count == 0)
        return shapes_any(t);
    for (int32_t i = 0; i < value->count; i++) {
        const term *x = &value->list[i];
        shapes one =
            x->kind == TERM_VALUE ? shapes_of_value(t, x->json) : shapes_of_schema(t, x->json);
        if (x->kind == TERM_NOT_SCHEMA)
            one = shapes_complement(t, &one, "not");
        made = i == 0 ? one : shapes_both(t, &made, &one, "allOf");
    }
    return made;
}
