// The keywords of a schema that speak of one kind of value each.
#include "text/grammar_private.h"

#include <math.h>

#define PATTERNS_MAX 4
#define COUNT_MAX 1000000
#define UNIQUE_MAX 8 // values whose sets are told apart

int64_t keyword_count(grammar_task *t, const json_t *schema, const char *keyword, int64_t missing)
{
    const json_t *value = json_object_get(schema, keyword);
    if (!value)
        return missing;
    double number = json_number_value(value);
    if (!json_is_number(value) || number < 0 || number != floor(number) || number > COUNT_MAX)
        grammar_fail(
            t, json_is_number(value) && number > COUNT_MAX ? STATUS_TOO_LARGE : STATUS_INVALID,
            keyword, "%s must be an integer from 0 to %d", keyword, COUNT_MAX);
    return (int64_t)number;
}

// ---- numbers -----------------------------------------------------------------------------------

static bool number_keyword(grammar_task *t, const json_t *schema, const char *keyword, decimal *d)
{
    const json_t *value = json_object_get(schema, keyword);
    if (!value)
        return false;
    if (!json_is_number(value))
        grammar_fail(t, STATUS_INVALID, keyword, "%s must be a number", keyword);
    *d = decimal_of(t, value);
    return true;
}

static void multiple_keyword(grammar_task *t, const json_t *schema, number_rules *r)
{
    const json_t *value = json_object_get(schema, "multipleOf");
    double number = json_number_value(value);
    if (!value)
        return;
    if (!json_is_number(value) || !(number > 0))
        grammar_fail(t, STATUS_INVALID, "multipleOf", "multipleOf must be a number above 0");
    if (number != floor(number) || number > COUNT_MAX)
        grammar_fail(t, STATUS_UNSUPPORTED, "multipleOf", "multipleOf is %g; served are integers",
                     number);
    r->multiple = (int64_t)number;
}

shape keywords_number(grammar_task *t, const json_t *schema, bool integer)
{
    number_rules r = { .integer = integer };
    decimal other;
    r.has_low = number_keyword(t, schema, "minimum", &r.low);
    r.has_high = number_keyword(t, schema, "maximum", &r.high);
    if (number_keyword(t, schema, "exclusiveMinimum", &other) &&
        (!r.has_low || decimal_compare(&other, &r.low) >= 0)) {
        r.low = other;
        r.has_low = r.low_exclusive = true;
    }
    if (number_keyword(t, schema, "exclusiveMaximum", &other) &&
        (!r.has_high || decimal_compare(&other, &r.high) <= 0)) {
        r.high = other;
        r.has_high = r.high_exclusive = true;
    }
    multiple_keyword(t, schema, &r);
    if (!integer && !r.has_low && !r.has_high && r.multiple == 0)
        return shape_any(t, SHAPE_NUMBER);
    return (shape){ .kind = SHAPE_NUMBER, .number = number_compile(t, &r) };
}

// ---- strings -----------------------------------------------------------------------------------

static const char *string_keyword(grammar_task *t, const json_t *schema, const char *keyword)
{
    const json_t *value = json_object_get(schema, keyword);
    if (value && !json_is_string(value))
        grammar_fail(t, STATUS_INVALID, keyword, "%s must be a string", keyword);
    return value ? json_string_value(value) : NULL;
}

static void text_narrow(grammar_task *t, shape_text *text, automaton *by)
{
    bool free = !text->automaton && text->min == 0 && text->max < 0;
    text->automaton = free ? by : automaton_combine(t, text_automaton(t, text), by, AUTOMATON_BOTH);
}

shape keywords_text(grammar_task *t, const json_t *schema)
{
    shape one = { .kind = SHAPE_TEXT };
    const char *pattern = string_keyword(t, schema, "pattern");
    const char *format = string_keyword(t, schema, "format");
    one.text.min = keyword_count(t, schema, "minLength", 0);
    one.text.max = keyword_count(t, schema, "maxLength", -1);
    if (pattern) {
        const json_t *value = json_object_get(schema, "pattern");
        slice text = { pattern, json_string_length(value) };
        text_narrow(t, &one.text, regex_compile(t, text, false, "pattern"));
    }
    if (format) {
        const char *known = regex_of_format(format);
        if (!known)
            grammar_fail(
                t, STATUS_UNSUPPORTED, "format",
                "the format \"%.60s\" is not served; served are date-time, date, time, uuid, "
                "ipv4 and email",
                format);
        automaton *a = regex_compile(t, slice_of(known), false, "format");
        a->exact = false; // a format allows more than is written
        text_narrow(t, &one.text, a);
    }
    return one;
}

// ---- arrays ------------------------------------------------------------------------------------

// uniqueItems needs the values to be few, so that what came can be kept in mind.
static const json_t *unique_values(grammar_task *t, const json_t *items, const json_t *prefix)
{
    const json_t *values = json_object_get(items, "enum");
    size_t count = json_array_size(values);
    bool fine = count > 0 && count <= UNIQUE_MAX && !prefix;
    for (size_t i = 0; fine && i < count; i++)
        for (size_t k = 0; fine && k <= i; k++) {
            const json_t *a = json_array_get(values, i), *b = json_array_get(values, k);
            bool numbers = json_is_number(a) && json_is_number(b);
            fine = json_typeof(a) > JSON_ARRAY &&
                   (i == k ||
                    (numbers ? json_number_value(a) != json_number_value(b) : !json_equal(a, b)));
        }
    if (!fine)
        grammar_fail(
            t, STATUS_UNSUPPORTED, "uniqueItems",
            "uniqueItems is served only where maxItems is at most 1, or items has an enum of "
            "at most %d strings, numbers, booleans and nulls that all differ",
            UNIQUE_MAX);
    return values;
}

shape keywords_array(grammar_task *t, const json_t *schema)
{
    shape one = shape_any(t, SHAPE_ARRAY);
    shape_array *a = &one.array;
    const json_t *prefix = json_object_get(schema, "prefixItems");
    const json_t *items = json_object_get(schema, "items");
    const json_t *contains = json_object_get(schema, "contains");
    const json_t *unique = json_object_get(schema, "uniqueItems");
    a->min = keyword_count(t, schema, "minItems", 0);
    a->max = keyword_count(t, schema, "maxItems", -1);
    if ((prefix && !json_is_array(prefix)) || json_is_array(items))
        grammar_fail(t, STATUS_INVALID, prefix ? "prefixItems" : "items",
                     "prefixItems must be an array of schemas and items one schema");
    a->prefix_count = (int32_t)json_array_size(prefix);
    a->prefix = grammar_allocate(t, (size_t)a->prefix_count * sizeof(terms));
    for (int32_t i = 0; i < a->prefix_count; i++)
        a->prefix[i] = terms_of(t, TERM_SCHEMA, json_array_get(prefix, (size_t)i));
    if (items)
        a->rest = terms_of(t, TERM_SCHEMA, items);
    if (unique && !json_is_boolean(unique))
        grammar_fail(t, STATUS_INVALID, "uniqueItems", "uniqueItems must be true or false");
    if (json_is_true(unique) && (a->max < 0 || a->max > 1))
        a->unique = unique_values(t, items, prefix);
    if (keyword_count(t, schema, "minContains", 1) != 1)
        grammar_fail(t, STATUS_UNSUPPORTED, "minContains", "minContains is served only as 1");
    a->has_contains = contains != NULL;
    if (contains)
        a->contains = terms_of(t, TERM_SCHEMA, contains);
    return one;
}

// ---- objects -----------------------------------------------------------------------------------

static void patterns_read(grammar_task *t, const json_t *rules, object_free *f)
{
    const char *pattern;
    json_t *value;
    if (!json_is_object(rules) || json_object_size(rules) > PATTERNS_MAX)
        grammar_fail(t, json_is_object(rules) ? STATUS_TOO_LARGE : STATUS_INVALID,
                     "patternProperties",
                     "patternProperties must be an object of at most %d patterns", PATTERNS_MAX);
    f->patterns = grammar_allocate(t, PATTERNS_MAX * sizeof(object_pattern));
    json_object_foreach((json_t *)rules, pattern, value)
    {
        f->patterns[f->pattern_count++] = (object_pattern){
            regex_compile(t, slice_of(pattern), false, "patternProperties"),
            terms_of(t, TERM_SCHEMA, value),
        };
    }
}

// Names that may stand anywhere: what `propertyNames` allows of strings.
static automaton *names_read(grammar_task *t, const json_t *schema)
{
    shapes allowed = shapes_of_schema(t, schema);
    automaton *names = NULL;
    for (size_t i = 0; i < allowed.count; i++) {
        const shape *one = &allowed.list[i];
        if (one->kind != SHAPE_TEXT)
            continue;
        automaton *a = text_automaton(t, &one->text);
        names = names ? automaton_combine(t, names, a, AUTOMATON_EITHER) : a;
    }
    return names ? names : automaton_of_texts(t, NULL, 0);
}

static void property_add(grammar_task *t, shape_object *o, slice name, terms value)
{
    const object_free *f = o->free;
    for (int32_t i = 0; o->free_count > 0 && i < f->pattern_count; i++)
        if (automaton_accepts(f->patterns[i].names, name))
            value = terms_join(t, value, f->patterns[i].value);
    if (o->names && !automaton_accepts(o->names, name))
        value = terms_of(t, TERM_SCHEMA, json_false());
    object_add(t, o, (object_property){ name, value, false });
}

static void required_read(grammar_task *t, const json_t *list, shape_object *o)
{
    if (list && !json_is_array(list))
        grammar_fail(t, STATUS_INVALID, "required", "required must be an array of names");
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *item = json_array_get(list, i);
        if (!json_is_string(item))
            grammar_fail(t, STATUS_INVALID, "required", "required must be an array of names");
        slice name = { json_string_value(item), json_string_length(item) };
        object_property *p = object_find(o, name);
        if (p)
            p->required = true;
        else
            object_add(t, o, (object_property){ name, object_free_value(t, o, name), true });
    }
}

shape keywords_object(grammar_task *t, const json_t *schema)
{
    shape one = shape_any(t, SHAPE_OBJECT);
    shape_object *o = &one.object;
    const json_t *patterns = json_object_get(schema, "patternProperties");
    const json_t *extra = json_object_get(schema, "additionalProperties");
    const json_t *names = json_object_get(schema, "propertyNames");
    const json_t *properties = json_object_get(schema, "properties");
    const char *name;
    json_t *value;
    o->min = keyword_count(t, schema, "minProperties", 0);
    o->max = keyword_count(t, schema, "maxProperties", -1);
    if (patterns || (extra && !json_is_true(extra))) {
        o->free = grammar_allocate(t, sizeof(object_free));
        o->free_count = 1;
        if (patterns)
            patterns_read(t, patterns, &o->free[0]);
        if (extra)
            o->free[0].extra = terms_of(t, TERM_SCHEMA, extra);
    }
    if (names)
        o->names = names_read(t, names);
    if (properties && !json_is_object(properties))
        grammar_fail(t, STATUS_INVALID, "properties", "properties must be an object of schemas");
    json_object_foreach((json_t *)properties, name, value)
        property_add(t, o, slice_of(name), terms_of(t, TERM_SCHEMA, value));
    required_read(t, json_object_get(schema, "required"), o);
    return one;
}
