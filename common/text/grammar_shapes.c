// Shapes: what a value may be, as a list of alternatives by kind; and their algebra. What lies
// inside arrays and objects stays unevaluated terms, so recursive schemas end.
#include "text/grammar_private.h"

#define SHAPES_MAX 512
#define REFERENCES_MAX 64

// ---- terms -------------------------------------------------------------------------------------

bool terms_hold(const terms *list, const term *x)
{
    for (int32_t i = 0; i < list->count; i++)
        if (list->list[i].json == x->json && list->list[i].kind == x->kind)
            return true;
    return false;
}

terms terms_of(grammar_task *t, term_kind kind, const json_t *json)
{
    // A bare reference stands for its target, so that recursion comes back to known terms.
    const json_t *reference = kind == TERM_VALUE ? NULL : json_object_get(json, "$ref");
    for (int hops = 0; json_is_string(reference) && json_object_size(json) == 1; hops++) {
        if (hops > REFERENCES_MAX)
            grammar_fail(t, STATUS_INVALID, "$ref", "$ref leads back to itself");
        json = schema_resolve(t, json_string_value(reference));
        reference = json_object_get(json, "$ref");
    }
    if (json_is_true(json) && kind == TERM_SCHEMA)
        return (terms){ 0 };
    terms made = { grammar_allocate(t, sizeof(term)), 1 };
    made.list[0] = (term){ kind, json };
    return made;
}

terms terms_join(grammar_task *t, terms a, terms b)
{
    if (a.count == 0 || b.count == 0)
        return a.count == 0 ? b : a;
    terms made = { grammar_allocate(t, (size_t)(a.count + b.count) * sizeof(term)), 0 };
    grammar_work(t, (uint64_t)a.count * (uint64_t)b.count / 8);
    for (int32_t i = 0; i < a.count; i++)
        made.list[made.count++] = a.list[i];
    for (int32_t i = 0; i < b.count; i++)
        if (!terms_hold(&a, &b.list[i]))
            made.list[made.count++] = b.list[i];
    return made;
}

// ---- lists -------------------------------------------------------------------------------------

void shapes_add(grammar_task *t, shapes *s, shape one)
{
    if (s->count >= SHAPES_MAX)
        grammar_fail(t, STATUS_TOO_LARGE, "", "a value has more than %d alternatives", SHAPES_MAX);
    s->list = grammar_grow(t, s->list, s->count, &s->capacity, sizeof one);
    s->list[s->count++] = one;
    grammar_work(t, 1);
}

void shapes_unite(grammar_task *t, shapes *a, const shapes *b)
{
    for (size_t i = 0; i < b->count; i++) {
        bool known = false;
        for (size_t k = 0; b->list[i].kind <= SHAPE_FALSE && k < a->count; k++)
            known |= a->list[k].kind == b->list[i].kind;
        if (!known)
            shapes_add(t, a, b->list[i]);
    }
}

shape shape_any(grammar_task *t, shape_kind kind)
{
    shape s = { .kind = kind };
    number_rules none = { 0 };
    if (kind == SHAPE_NUMBER && !t->any_number)
        t->any_number = number_compile(t, &none);
    if (kind == SHAPE_NUMBER)
        s.number = t->any_number;
    else if (kind == SHAPE_TEXT)
        s.text.max = -1;
    else if (kind == SHAPE_ARRAY)
        s.array.max = -1;
    else if (kind == SHAPE_OBJECT)
        s.object.max = -1;
    return s;
}

shapes shapes_any(grammar_task *t)
{
    shapes all = { 0 };
    for (shape_kind kind = 0; kind < SHAPE_KINDS; kind++)
        shapes_add(t, &all, shape_any(t, kind));
    return all;
}

// ---- both --------------------------------------------------------------------------------------

automaton *text_automaton(grammar_task *t, const shape_text *text)
{
    return text->automaton ? text->automaton : automaton_of_length(t, text->min, text->max);
}

static int64_t smaller_max(int64_t a, int64_t b)
{
    return a < 0 ? b : b < 0 ? a : a < b ? a : b;
}

static bool text_both(grammar_task *t, const shape_text *a, const shape_text *b, shape_text *made)
{
    if (a->automaton && !b->automaton && b->min == 0 && b->max < 0) {
        *made = *a;
    } else if (b->automaton && !a->automaton && a->min == 0 && a->max < 0) {
        *made = *b;
    } else if (a->automaton || b->automaton) {
        made->automaton =
            automaton_combine(t, text_automaton(t, a), text_automaton(t, b), AUTOMATON_BOTH);
        return made->automaton->start != 0;
    } else {
        *made = (shape_text){ .min = a->min > b->min ? a->min : b->min,
                              .max = smaller_max(a->max, b->max) };
        return made->max < 0 || made->min <= made->max;
    }
    return true;
}

static bool array_both(grammar_task *t, const shape_array *a, const shape_array *b,
                       shape_array *made, const char *keyword)
{
    int32_t count = a->prefix_count > b->prefix_count ? a->prefix_count : b->prefix_count;
    if (a->has_contains && b->has_contains)
        grammar_fail(t, STATUS_UNSUPPORTED, "contains",
                     "contains may stand once for an array; %s "
                     "joins two",
                     keyword);
    if (a->unique && b->unique && a->unique != b->unique)
        grammar_fail(t, STATUS_UNSUPPORTED, "uniqueItems",
                     "uniqueItems may stand once for an array; %s joins two", keyword);
    *made = a->has_contains ? *a : *b;
    made->unique = a->unique ? a->unique : b->unique;
    made->prefix = grammar_allocate(t, (size_t)count * sizeof(terms));
    made->prefix_count = count;
    for (int32_t i = 0; i < count; i++)
        made->prefix[i] = terms_join(t, i < a->prefix_count ? a->prefix[i] : a->rest,
                                     i < b->prefix_count ? b->prefix[i] : b->rest);
    made->rest = terms_join(t, a->rest, b->rest);
    made->min = a->min > b->min ? a->min : b->min;
    made->max = smaller_max(a->max, b->max);
    return made->max < 0 || made->min <= made->max;
}

object_property *object_find(const shape_object *o, slice name)
{
    for (int32_t i = 0; i < o->property_count; i++)
        if (slice_equal(o->properties[i].name, name))
            return &o->properties[i];
    return NULL;
}

void object_add(grammar_task *t, shape_object *o, object_property p)
{
    size_t count = (size_t)o->property_count;
    grammar_work(t, count + 1); // somebody looked whether it is there
    o->properties = grammar_grow(t, o->properties, count, &o->property_capacity, sizeof p);
    o->properties[o->property_count++] = p;
}

terms object_free_value(grammar_task *t, const shape_object *o, slice name)
{
    terms value = { 0 };
    if (o->names && !automaton_accepts(o->names, name))
        return terms_of(t, TERM_SCHEMA, json_false());
    for (int32_t i = 0; i < o->free_count; i++) {
        const object_free *f = &o->free[i];
        bool matched = false;
        for (int32_t k = 0; k < f->pattern_count; k++)
            if (automaton_accepts(f->patterns[k].names, name)) {
                value = terms_join(t, value, f->patterns[k].value);
                matched = true;
            }
        if (!matched)
            value = terms_join(t, value, f->extra);
    }
    return value;
}

static bool object_both(grammar_task *t, const shape_object *a, const shape_object *b,
                        shape_object *made)
{
    *made = (shape_object){ .min = a->min > b->min ? a->min : b->min,
                            .max = smaller_max(a->max, b->max),
                            .names = a->names ? a->names : b->names };
    for (int32_t i = 0; i < a->property_count; i++) {
        object_property p = a->properties[i];
        const object_property *other = object_find(b, p.name);
        p.value = terms_join(t, p.value, other ? other->value : object_free_value(t, b, p.name));
        p.required |= other && other->required;
        object_add(t, made, p);
    }
    for (int32_t i = 0; i < b->property_count; i++) {
        object_property p = b->properties[i];
        if (object_find(a, p.name))
            continue;
        p.value = terms_join(t, p.value, object_free_value(t, a, p.name));
        object_add(t, made, p);
    }
    if (a->names && b->names)
        made->names = automaton_combine(t, a->names, b->names, AUTOMATON_BOTH);
    made->free_count = a->free_count + b->free_count;
    made->free = grammar_allocate(t, (size_t)made->free_count * sizeof(object_free));
    for (int32_t i = 0; i < made->free_count; i++)
        made->free[i] = i < a->free_count ? a->free[i] : b->free[i - a->free_count];
    return made->max < 0 || made->min <= made->max;
}

// False where nothing is both, as far as is known without looking inside.
static bool shape_both(grammar_task *t, const shape *a, const shape *b, shape *made,
                       const char *keyword)
{
    if (a->kind != b->kind)
        return false;
    *made = (shape){ .kind = a->kind };
    switch (a->kind) {
    case SHAPE_NUMBER:
        made->number = automaton_combine(t, a->number, b->number, AUTOMATON_BOTH);
        return made->number->start != 0;
    case SHAPE_TEXT:
        return text_both(t, &a->text, &b->text, &made->text);
    case SHAPE_ARRAY:
        return array_both(t, &a->array, &b->array, &made->array, keyword);
    case SHAPE_OBJECT:
        return object_both(t, &a->object, &b->object, &made->object);
    default:
        return true;
    }
}

shapes shapes_both(grammar_task *t, const shapes *a, const shapes *b, const char *keyword)
{
    shapes made = { 0 };
    for (size_t i = 0; i < a->count; i++)
        for (size_t k = 0; k < b->count; k++) {
            shape one;
            if (shape_both(t, &a->list[i], &b->list[k], &one, keyword))
                shapes_add(t, &made, one);
        }
    return made;
}

bool shape_apart(grammar_task *t, const shape *a, const shape *b, const char *keyword)
{
    shape both;
    if (!shape_both(t, a, b, &both, keyword))
        return true;
    // A property that both demand, or one demands and the other forbids, with no value for both.
    for (int32_t i = 0; both.kind == SHAPE_OBJECT && i < both.object.property_count; i++) {
        const object_property *p = &both.object.properties[i];
        if (p->required && shapes_of(t, &p->value).count == 0)
            return true;
    }
    return false;
}

// ---- none --------------------------------------------------------------------------------------

_Noreturn static void refuse_complement(grammar_task *t, const char *keyword, const char *what)
{
    grammar_fail(t, STATUS_UNSUPPORTED, keyword,
                 "%s needs the complement of %s, which is not served", keyword, what);
}

// Objects that break `o`: with a property of a value that is none of its own, or without a required
// one.
static void object_complement(grammar_task *t, const shape_object *o, shapes *made,
                              const char *keyword)
{
    bool plain = o->names == NULL && o->min == 0 && o->max < 0;
    for (int32_t i = 0; i < o->free_count; i++)
        plain = plain && o->free[i].pattern_count == 0 && o->free[i].extra.count == 0;
    if (!plain)
        refuse_complement(t, keyword, "an object with rules for other than single properties");
    for (int32_t i = 0; i < o->property_count; i++) {
        const object_property *p = &o->properties[i];
        shape one = shape_any(t, SHAPE_OBJECT);
        if (p->required) {
            terms never = terms_of(t, TERM_SCHEMA, json_false());
            object_add(t, &one.object, (object_property){ p->name, never, false });
            shapes_add(t, made, one);
        }
        for (int32_t k = 0; k < p->value.count; k++) {
            if (p->value.list[k].kind != TERM_SCHEMA)
                refuse_complement(t, keyword, "a complement inside an object");
            shape other = shape_any(t, SHAPE_OBJECT);
            terms not = terms_of(t, TERM_NOT_SCHEMA, p->value.list[k].json);
            object_add(t, &other.object, (object_property){ p->name, not, true });
            shapes_add(t, made, other);
        }
    }
}

// What of its own kind is not `a`.
static void shape_complement(grammar_task *t, const shape *a, shapes *made, const char *keyword)
{
    shape one = { .kind = a->kind };
    if (a->kind == SHAPE_NUMBER) {
        if (!a->number->exact)
            refuse_complement(t, keyword, "a number that has several spellings");
        if (!t->canonical_number)
            t->canonical_number = number_canonical(t);
        one.number = automaton_combine(t, t->canonical_number, a->number, AUTOMATON_FIRST_ONLY);
        if (one.number->start != 0)
            shapes_add(t, made, one);
    } else if (a->kind == SHAPE_TEXT) {
        automaton *text = text_automaton(t, &a->text);
        if (!text->exact)
            refuse_complement(t, keyword, "a format");
        one.text.automaton =
            automaton_combine(t, automaton_of_length(t, 0, -1), text, AUTOMATON_FIRST_ONLY);
        if (one.text.automaton->start != 0)
            shapes_add(t, made, one);
    } else if (a->kind == SHAPE_ARRAY) {
        const shape_array *x = &a->array;
        if (x->prefix_count > 0 || x->rest.count > 0 || x->min > 0 || x->max >= 0 || x->unique ||
            x->has_contains)
            refuse_complement(t, keyword, "an array with rules");
    } else if (a->kind == SHAPE_OBJECT) {
        object_complement(t, &a->object, made, keyword);
    }
}

shapes shapes_complement(grammar_task *t, const shapes *a, const char *keyword)
{
    shapes made = { 0 };
    for (shape_kind kind = 0; kind < SHAPE_KINDS; kind++) {
        shapes rest = { 0 };
        shapes_add(t, &rest, shape_any(t, kind));
        for (size_t i = 0; i < a->count; i++) {
            shapes none = { 0 };
            if (a->list[i].kind != kind)
                continue;
            shape_complement(t, &a->list[i], &none, keyword);
            rest = shapes_both(t, &rest, &none, keyword);
        }
        shapes_unite(t, &made, &rest);
    }
    return made;
}
