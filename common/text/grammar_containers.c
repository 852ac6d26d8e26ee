// Arrays and objects to nodes. Both are built from their end: what a node leads to is there first.
#include "text/grammar_private.h"

#include <stdio.h>

#define ITEMS_MAX 20000
#define PATTERNS_MAX 6 // of all schemas that an object joins

// Behind ',' and ':' one space may stand.
static int32_t spaced(grammar_task *t, slice text, int32_t next)
{
    if (next < 0)
        return -1;
    int32_t space = program_bytes(t, SLICE(" "), next);
    return program_bytes(t, text, program_fork(t, space, next));
}

// ---- arrays ------------------------------------------------------------------------------------

// Item `i`, then `plain`; where `found` is a node, also an item that `contains` asks for, then
// that.
static int32_t item(grammar_task *t, const shape_array *a, int64_t i, int32_t plain, int32_t found)
{
    terms value = i < a->prefix_count ? a->prefix[i] : a->rest;
    int32_t wanted = found < 0 ? -1 : program_value(t, terms_join(t, value, a->contains), found);
    return program_fork(t, wanted, program_value(t, value, plain));
}

// Items of which each of a few values may come once: begin and behind are told apart by the set of
// those that came.
static int32_t unique_array(grammar_task *t, const shape_array *a, int32_t end)
{
    int count = (int)json_array_size(a->unique);
    int32_t *behind = grammar_allocate(t, sizeof(int32_t) << count), begin = -1;
    if (a->has_contains || a->prefix_count > 0)
        grammar_fail(t, STATUS_UNSUPPORTED, "uniqueItems",
                     "uniqueItems is not served beside contains or prefixItems");
    for (int set = (1 << count) - 1; set >= 0; set--) {
        int64_t came = __builtin_popcount((unsigned)set);
        begin = -1;
        for (int i = 0; i < count && (a->max < 0 || came < a->max); i++) {
            const json_t *value = json_array_get(a->unique, (size_t)i);
            terms one = terms_join(t, a->rest, terms_of(t, TERM_VALUE, value));
            if (!(set >> i & 1))
                begin = program_fork(t, program_value(t, one, behind[set | 1 << i]), begin);
        }
        int32_t more = set == 0 ? begin : spaced(t, SLICE(","), begin);
        behind[set] = program_fork(t, came >= a->min ? end : -1, more);
    }
    return program_bytes(t, SLICE("["), behind[0]);
}

// begin[have]: where item i begins; behind[have]: where i items are over. `have` 0: the item of
// `contains` is still to come.
int32_t program_array(grammar_task *t, const shape_array *a, int32_t next)
{
    bool open = a->max < 0;
    int64_t least = a->min > a->prefix_count ? a->min : a->prefix_count;
    int64_t last = open ? least : a->max;
    int32_t end = program_bytes(t, SLICE("]"), next), begin[2] = { -1, -1 };
    int32_t behind[2] = { -1, end };
    if (a->unique)
        return unique_array(t, a, end);
    if (last > ITEMS_MAX)
        grammar_fail(t, STATUS_TOO_LARGE, open ? "minItems" : "maxItems",
                     "an array has %lld items; right is at most %d", (long long)last, ITEMS_MAX);
    if (open) { // from here on all items are alike
        behind[0] = a->has_contains ? program_add(t, NODE_FORK, -1, -1, 0) : -1;
        behind[1] = program_add(t, NODE_FORK, -1, -1, 0);
        begin[1] = item(t, a, last, behind[1], -1);
        program_patch(t, behind[1], end, spaced(t, SLICE(","), begin[1]));
        if (a->has_contains) {
            begin[0] = item(t, a, last, behind[0], behind[1]);
            program_patch(t, behind[0], -1, spaced(t, SLICE(","), begin[0]));
        }
    }
    for (int64_t i = last - 1; i >= 0; i--) {
        begin[0] = a->has_contains ? item(t, a, i, behind[0], behind[1]) : -1;
        begin[1] = item(t, a, i, behind[1], -1);
        behind[0] = spaced(t, SLICE(","), begin[0]);
        behind[1] = program_fork(t, i >= a->min ? end : -1, spaced(t, SLICE(","), begin[1]));
    }
    int have = a->has_contains ? 0 : 1;
    int32_t empty = have == 1 && a->min == 0 ? end : -1;
    return program_bytes(t, SLICE("["), program_fork(t, empty, begin[have]));
}

// ---- names -------------------------------------------------------------------------------------

// "name": as JSON.
static slice name_text(grammar_task *t, slice name)
{
    char *text = grammar_allocate(t, 6 * name.size + 4);
    size_t used = 0;
    static const char letters[] = "\b\f\n\r\t\"\\", escapes[] = "bfnrt\"\\";
    text[used++] = '"';
    for (size_t i = 0; i < name.size; i++) {
        const char *known = name.data[i] ? strchr(letters, name.data[i]) : NULL;
        if (known)
            used += (size_t)sprintf(text + used, "\\%c", escapes[known - letters]);
        else if ((uint8_t)name.data[i] < 0x20)
            used += (size_t)sprintf(text + used, "\\u%04x", name.data[i]);
        else
            text[used++] = name.data[i];
    }
    text[used++] = '"';
    text[used++] = ':';
    return (slice){ text, used };
}

typedef struct object_build {
    grammar_task *t;
    const shape_object *o;
    int32_t end;       // '}'
    int64_t count_top; // counts from here on are not told apart
    automaton *others; // names that are not listed; NULL: any
} object_build;

// Free names by which patterns they match: one way for each set of patterns.
static int32_t free_set(object_build *b, unsigned set, int32_t next)
{
    grammar_task *t = b->t;
    shape_text name = { .automaton = b->others, .max = -1 };
    terms value = { 0 };
    unsigned bit = 1;
    for (int32_t i = 0; i < b->o->free_count; i++) {
        const object_free *f = &b->o->free[i];
        bool matched = false;
        for (int32_t k = 0; k < f->pattern_count; k++, bit <<= 1) {
            const object_pattern *p = &f->patterns[k];
            bool matches = (set & bit) != 0;
            name.automaton = automaton_combine(t, text_automaton(t, &name), p->names,
                                               matches ? AUTOMATON_BOTH : AUTOMATON_FIRST_ONLY);
            if (matches)
                value = terms_join(t, value, p->value);
            matched |= matches;
        }
        if (!matched)
            value = terms_join(t, value, f->extra);
    }
    for (int32_t i = 0; i < value.count; i++)
        if (value.list[i].kind == TERM_SCHEMA && json_is_false(value.list[i].json))
            return -1;
    return program_text(t, &name, spaced(t, SLICE(":"), program_value(t, value, next)));
}

static int32_t free_property(object_build *b, int32_t next)
{
    int32_t patterns = 0, made = -1;
    for (int32_t i = 0; i < b->o->free_count; i++)
        patterns += b->o->free[i].pattern_count;
    if (patterns > PATTERNS_MAX)
        grammar_fail(b->t, STATUS_TOO_LARGE, "patternProperties",
                     "an object has %d patternProperties; right is at most %d", patterns,
                     PATTERNS_MAX);
    for (unsigned set = 0; set < 1u << patterns; set++)
        made = program_fork(b->t, free_set(b, set, next), made);
    return made;
}

static automaton *names_of_others(grammar_task *t, const shape_object *o)
{
    size_t count = (size_t)o->property_count;
    if (count == 0)
        return o->names;
    slice *names = grammar_allocate(t, count * sizeof *names);
    for (size_t i = 0; i < count; i++)
        names[i] = o->properties[i].name;
    const automaton *all = o->names ? o->names : automaton_of_length(t, 0, -1);
    return automaton_combine(t, all, automaton_of_texts(t, names, count), AUTOMATON_FIRST_ONLY);
}

// ---- objects -----------------------------------------------------------------------------------

// Where `count` properties are over: the end, or one more behind a comma.
static void behind_patch(object_build *b, int32_t fork, int64_t count, bool may_end, int32_t more)
{
    bool ends = may_end && count >= b->o->min;
    program_patch(b->t, fork, ends ? b->end : -1,
                  count > 0 ? spaced(b->t, SLICE(","), more) : more);
}

static bool may_grow(const object_build *b, int64_t count)
{
    return b->o->max < 0 || count < b->o->max;
}

static int64_t counted(const object_build *b, int64_t count)
{
    return count < b->count_top ? count : b->count_top;
}

// Free names end an object: behind[count] for all counts.
static void free_build(object_build *b, int32_t *next_name, int32_t *behind)
{
    bool some = false;
    int64_t required = 0;
    for (int64_t count = b->count_top; count >= 0; count--) {
        behind[count] = program_add(b->t, NODE_FORK, -1, -1, 0);
        next_name[count] = -1;
        if (may_grow(b, count))
            next_name[count] = free_property(b, behind[counted(b, count + 1)]);
        some |= next_name[count] >= 0;
        behind_patch(b, behind[count], count, true, next_name[count]);
    }
    for (int32_t i = 0; i < b->o->property_count; i++)
        required += b->o->properties[i].required;
    // Free names may repeat, and a name that comes twice counts once.
    if (some && b->o->min > required + 1)
        grammar_fail(
            b->t, STATUS_UNSUPPORTED, "minProperties",
            "minProperties is %lld with %lld required and free names, which cannot be kept "
            "apart; served is at most one more than are required",
            (long long)b->o->min, (long long)required);
}

// next_name[count]: where the name of property i or a later one begins; behind[count]: where the
// properties before i are over.
int32_t program_object(grammar_task *t, const shape_object *o, int32_t next)
{
    int64_t top = o->min > o->max ? o->min : o->max;
    object_build b = { .t = t, .o = o, .count_top = top > 1 ? top : 1 };
    if (b.count_top > ITEMS_MAX)
        grammar_fail(t, STATUS_TOO_LARGE, "minProperties",
                     "minProperties or maxProperties is more than %d", ITEMS_MAX);
    b.end = program_bytes(t, SLICE("}"), next);
    b.others = names_of_others(t, o);
    size_t size = (size_t)(b.count_top + 1) * sizeof(int32_t);
    int32_t *next_name = grammar_allocate(t, size), *behind = grammar_allocate(t, size);
    free_build(&b, next_name, behind);
    bool may_end = true;
    for (int32_t i = o->property_count - 1; i >= 0; i--) {
        const object_property *p = &o->properties[i];
        slice name = name_text(t, p->name);
        may_end = may_end && !p->required;
        // Upwards: behind[count + 1] is still that of the properties up to i.
        for (int64_t count = 0; count <= counted(&b, i); count++) {
            int32_t after = behind[counted(&b, count + 1)], one = -1;
            if (may_grow(&b, count))
                one = program_value(t, p->value, after);
            one = one < 0 ? -1 : spaced(t, name, one);
            next_name[count] = program_fork(t, one, p->required ? -1 : next_name[count]);
        }
        for (int64_t count = 0; count <= counted(&b, i); count++) {
            behind[count] = program_add(t, NODE_FORK, -1, -1, 0);
            behind_patch(&b, behind[count], count, may_end, next_name[count]);
        }
    }
    return program_bytes(t, SLICE("{"), behind[0]);
}
