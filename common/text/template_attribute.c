// Attributes, subscripts and slices, and the methods of everything but strings.
//
// As in Jinja's sandbox: `a.b` tries the attribute, then the key; `a['b']` the key, then the
// attribute. Names with a leading underscore and methods that change their object give an undefined
// value that cannot be used.
#include "text/template_syntax.h"

#include <stdlib.h>

jinja_value jinja_refused(const jinja_string *name)
{
    return (jinja_value){ .type = JINJA_UNDEFINED, .flag = true, .string = name };
}

static jinja_value loop_neighbour(const jinja_loop *loop, int64_t index, const jinja_string *name)
{
    if (index < 0 || index >= loop->list->count)
        return jinja_undefined(name);
    return loop->list->items[index];
}

static jinja_value loop_attribute(const jinja_loop *loop, const jinja_string *name)
{
    int64_t index = loop->index, count = loop->list->count;
    slice text = jinja_slice(name);
    if (slice_equal(text, SLICE("index")))
        return jinja_int(index + 1);
    if (slice_equal(text, SLICE("index0")))
        return jinja_int(index);
    if (slice_equal(text, SLICE("first")))
        return jinja_bool(index == 0);
    if (slice_equal(text, SLICE("last")))
        return jinja_bool(index + 1 == count);
    if (slice_equal(text, SLICE("length")))
        return jinja_int(count);
    if (slice_equal(text, SLICE("revindex")))
        return jinja_int(count - index);
    if (slice_equal(text, SLICE("revindex0")))
        return jinja_int(count - index - 1);
    if (slice_equal(text, SLICE("depth")))
        return jinja_int((int64_t)loop->depth + 1);
    if (slice_equal(text, SLICE("depth0")))
        return jinja_int(loop->depth);
    if (slice_equal(text, SLICE("previtem")))
        return loop_neighbour(loop, index - 1, name);
    if (slice_equal(text, SLICE("nextitem")))
        return loop_neighbour(loop, index + 1, name);
    return jinja_undefined(name);
}

static jinja_value macro_attribute(jinja_render *r, const jinja_macro *macro,
                                   const jinja_string *name)
{
    slice text = jinja_slice(name);
    if (slice_equal(text, SLICE("name")))
        return (jinja_value){ .type = JINJA_STRING, .string = macro->node->text };
    if (slice_equal(text, SLICE("arguments"))) {
        jinja_list *list = jinja_list_new(r, 0);
        for (const jinja_node *i = macro->node->a; i; i = i->next)
            jinja_list_add(r, list, (jinja_value){ .type = JINJA_STRING, .string = i->text });
        return jinja_list_value(list, JINJA_TUPLE);
    }
    if (slice_equal(text, SLICE("caller")))
        return jinja_bool(macro->node->uses & JINJA_USES_CALLER);
    if (slice_equal(text, SLICE("catch_varargs")))
        return jinja_bool(macro->node->uses & JINJA_USES_VARARGS);
    if (slice_equal(text, SLICE("catch_kwargs")))
        return jinja_bool(macro->node->uses & JINJA_USES_KWARGS);
    return jinja_undefined(name);
}

jinja_value jinja_own_attribute(jinja_render *r, jinja_value v, const jinja_string *name)
{
    slice text = jinja_slice(name);
    const jinja_routine *method = jinja_find_method(v.type, text);
    if (method)
        return jinja_make_method(r, method, v);
    if (jinja_changes_object(v.type, text))
        return jinja_refused(name);
    jinja_value key = { .type = JINJA_STRING, .string = name }, found = { .type = JINJA_ABSENT };
    switch (v.type) {
    case JINJA_NAMESPACE: {
        const jinja_value *held = jinja_dict_get(r, v.dict, key);
        return held ? *held : found;
    }
    case JINJA_LOOP:
        return loop_attribute(v.loop, name);
    case JINJA_MACRO:
        return macro_attribute(r, v.macro, name);
    case JINJA_CYCLER:
        if (slice_equal(text, SLICE("current")))
            return v.cycler->list->items[v.cycler->position];
        return found;
    case JINJA_TUPLE:
        if (v.flag && slice_equal(text, SLICE("grouper")))
            return v.list->items[0];
        if (v.flag && slice_equal(text, SLICE("list")))
            return v.list->items[1];
        return found;
    default:
        return found;
    }
}

jinja_value jinja_attribute(jinja_render *r, jinja_value v, const jinja_string *name)
{
    jinja_need_defined(r, v);
    bool private = name->size > 0 && name->bytes[0] == '_';
    if (private && v.type == JINJA_NAMESPACE)
        jinja_fail_undefined(r, jinja_refused(name));
    if (private && name->size > 1 && name->bytes[1] == '_')
        return jinja_refused(name);
    jinja_value own = jinja_own_attribute(r, v, name);
    if (own.type != JINJA_ABSENT)
        return own;
    jinja_value key = { .type = JINJA_STRING, .string = name };
    const jinja_value *held = v.type == JINJA_DICT ? jinja_dict_get(r, v.dict, key) : NULL;
    return held ? *held : jinja_undefined(name);
}

static jinja_value at_index(jinja_render *r, jinja_value v, int64_t index)
{
    int64_t count = v.type == JINJA_STRING  ? v.string->length
                    : v.type == JINJA_RANGE ? v.range->count
                                            : v.list->count;
    if (index < 0)
        index += count;
    if (index < 0 || index >= count)
        return jinja_undefined(NULL);
    if (v.type == JINJA_RANGE)
        return jinja_int(v.range->start + index * v.range->step);
    if (v.type != JINJA_STRING)
        return v.list->items[index];
    size_t from = jinja_offset(r, v.string, index), size;
    jinja_decode(v.string->bytes + from, &size);
    return jinja_part(r, v.string, from, from + size);
}

jinja_value jinja_item(jinja_render *r, jinja_value v, jinja_value key)
{
    int64_t index;
    jinja_need_defined(r, v);
    if (v.type == JINJA_DICT && key.type != JINJA_LIST && key.type != JINJA_DICT) {
        const jinja_value *held = jinja_dict_get(r, v.dict, key);
        if (held)
            return *held;
    }
    bool sequence = v.type == JINJA_STRING || v.type == JINJA_LIST || v.type == JINJA_TUPLE ||
                    v.type == JINJA_RANGE;
    if (sequence && jinja_integral(key, &index))
        return at_index(r, v, index);
    if (key.type != JINJA_STRING)
        return jinja_undefined(NULL);
    if (key.string->size > 0 && key.string->bytes[0] == '_')
        return key.string->size > 1 && key.string->bytes[1] == '_' ? jinja_refused(key.string)
                                                                   : jinja_undefined(key.string);
    jinja_value own = jinja_own_attribute(r, v, key.string);
    return own.type == JINJA_ABSENT ? jinja_undefined(key.string) : own;
}

jinja_value jinja_path(jinja_render *r, jinja_value v, jinja_value path)
{
    if (path.type != JINJA_STRING)
        return jinja_item(r, v, path);
    slice text = jinja_slice(path.string);
    for (size_t at = 0;;) {
        size_t dot = jinja_find(r, text, SLICE("."), at), end = dot == SIZE_MAX ? text.size : dot;
        size_t digits = at;
        while (digits < end && text.data[digits] >= '0' && text.data[digits] <= '9')
            digits++;
        if (digits == end && end > at && end - at < 18) {
            char number[20] = { 0 };
            memcpy(number, text.data + at, end - at);
            v = jinja_item(r, v, jinja_int(strtoll(number, NULL, 10)));
        } else {
            v = jinja_item(r, v, jinja_part(r, path.string, at, end));
        }
        if (dot == SIZE_MAX)
            return v;
        at = dot + 1;
    }
}

static int64_t clamp(int64_t i, int64_t count, int64_t low, int64_t high)
{
    if (i < 0)
        i += count;
    return i < low ? low : i > high ? high : i;
}

static bool bound_of(jinja_render *r, jinja_value v, int64_t *bound)
{
    if (v.type == JINJA_ABSENT || v.type == JINJA_NONE)
        return false;
    *bound = jinja_need_int(r, v, "a slice bound");
    return true;
}

static jinja_value slice_range(jinja_render *r, const jinja_range *range, int64_t start,
                               int64_t stop, int64_t step)
{
    jinja_range *part = jinja_allocate(&r->task, sizeof *part);
    int64_t distance = step > 0 ? stop - start : start - stop, size = step > 0 ? step : -step;
    *part = (jinja_range){ range->start + start * range->step, range->start + stop * range->step,
                           range->step * step, distance > 0 ? (distance + size - 1) / size : 0 };
    return (jinja_value){ .type = JINJA_RANGE, .range = part };
}

jinja_value jinja_slice_of(jinja_render *r, jinja_value v, const jinja_value bounds[3])
{
    int64_t step = 1, start, stop, count = 0;
    jinja_need_defined(r, v);
    if (v.type == JINJA_STRING)
        count = v.string->length;
    else if (v.type == JINJA_LIST || v.type == JINJA_TUPLE)
        count = v.list->count;
    else if (v.type == JINJA_RANGE)
        count = v.range->count;
    else
        jinja_fail(&r->task, TEMPLATE_FAULT_TYPE, "a value of type %s cannot be sliced",
                   jinja_type_name(v));
    if (bound_of(r, bounds[2], &step) && step == 0)
        jinja_fail(&r->task, TEMPLATE_FAULT_TYPE, "the step of a slice is zero");
    if (step < -count - 1) // the same elements, and no overflow below
        step = -count - 1;
    if (step > count + 1)
        step = count + 1;
    int64_t low = step < 0 ? -1 : 0, high = step < 0 ? count - 1 : count;
    start =
        bound_of(r, bounds[0], &start) ? clamp(start, count, low, high) : (step < 0 ? high : low);
    stop = bound_of(r, bounds[1], &stop) ? clamp(stop, count, low, high) : (step < 0 ? low : high);
    if (v.type == JINJA_STRING && step == 1)
        return jinja_part(r, v.string, jinja_offset(r, v.string, start),
                          jinja_offset(r, v.string, stop > start ? stop : start));
    if (v.type == JINJA_RANGE)
        return slice_range(r, v.range, start, stop, step);
    jinja_list *from = jinja_iterate(r, v), *list = jinja_list_new(r, 0);
    for (int64_t i = start; step > 0 ? i < stop : i > stop; i += step)
        jinja_list_add(r, list, from->items[i]);
    if (v.type != JINJA_STRING)
        return jinja_list_value(list, v.type == JINJA_TUPLE ? JINJA_TUPLE : JINJA_LIST);
    jinja_builder b;
    jinja_build_begin(&b, r);
    for (uint32_t i = 0; i < list->count; i++)
        jinja_append_string(&b, list->items[i].string);
    b.safe = v.string->safe;
    return jinja_build_end(&b);
}

// --- methods ---

static jinja_value list_index(jinja_render *r, jinja_value self, const jinja_arguments *arguments)
{
    for (uint32_t i = 0; i < self.list->count; i++)
        if (jinja_equal(r, self.list->items[i], arguments->values[0]))
            return jinja_int(i);
    jinja_fail(&r->task, TEMPLATE_FAULT_TYPE, "index: the list has no such element");
}

static jinja_value list_count(jinja_render *r, jinja_value self, const jinja_arguments *arguments)
{
    int64_t count = 0;
    for (uint32_t i = 0; i < self.list->count; i++)
        count += jinja_equal(r, self.list->items[i], arguments->values[0]);
    return jinja_int(count);
}

static jinja_value copy_of(jinja_render *r, jinja_value self, const jinja_arguments *arguments)
{
    (void)r, (void)arguments; // values do not change, so a copy is the value itself
    return self;
}

static jinja_value dict_get(jinja_render *r, jinja_value self, const jinja_arguments *arguments)
{
    const jinja_value *held = jinja_dict_get(r, self.dict, arguments->values[0]);
    jinja_value other = arguments->values[1];
    return held ? *held : other.type == JINJA_ABSENT ? jinja_none() : other;
}

static jinja_value view_of(jinja_render *r, const char *name, jinja_list *list)
{
    jinja_view *view = jinja_allocate(&r->task, sizeof *view);
    *view = (jinja_view){ .name = name, .list = list };
    return (jinja_value){ .type = JINJA_VIEW, .view = view };
}

static jinja_value dict_keys(jinja_render *r, jinja_value self, const jinja_arguments *arguments)
{
    (void)arguments;
    return view_of(r, "dict_keys", jinja_iterate(r, self));
}

static jinja_value dict_values(jinja_render *r, jinja_value self, const jinja_arguments *arguments)
{
    (void)arguments;
    jinja_list *list = jinja_list_new(r, self.dict->count);
    for (uint32_t i = 0; i < self.dict->count; i++)
        jinja_list_add(r, list, self.dict->entries[i].value);
    return view_of(r, "dict_values", list);
}

static jinja_value dict_items(jinja_render *r, jinja_value self, const jinja_arguments *arguments)
{
    (void)arguments;
    return view_of(r, "dict_items", jinja_items(r, self.dict));
}

static jinja_value loop_cycle(jinja_render *r, jinja_value self, const jinja_arguments *arguments)
{
    if (arguments->count == 0)
        jinja_fail(&r->task, TEMPLATE_FAULT_TYPE, "loop.cycle needs an argument");
    return arguments->values[self.loop->index % arguments->count];
}

static jinja_value loop_changed(jinja_render *r, jinja_value self, const jinja_arguments *arguments)
{
    jinja_list *list = jinja_list_new(r, arguments->count);
    for (uint32_t i = 0; i < arguments->count; i++)
        jinja_list_add(r, list, arguments->values[i]);
    jinja_value now = jinja_list_value(list, JINJA_TUPLE), before = self.loop->changed;
    self.loop->changed = now;
    return jinja_bool(before.type == JINJA_ABSENT || !jinja_equal(r, before, now));
}

static jinja_value cycler_next(jinja_render *r, jinja_value self, const jinja_arguments *arguments)
{
    (void)r, (void)arguments;
    jinja_cycler *cycler = self.cycler;
    jinja_value v = cycler->list->items[cycler->position];
    cycler->position = (cycler->position + 1) % cycler->list->count;
    return v;
}

static jinja_value cycler_reset(jinja_render *r, jinja_value self, const jinja_arguments *arguments)
{
    (void)r, (void)arguments;
    self.cycler->position = 0;
    return jinja_none();
}

static const jinja_routine list_methods[] = { { "index", list_index, 1, "value" },
                                              { "count", list_count, 1, "value" },
                                              { "copy", copy_of, 0, "" } };
static const jinja_routine dict_methods[] = { { "get", dict_get, 1, "key default" },
                                              { "keys", dict_keys, 0, "" },
                                              { "values", dict_values, 0, "" },
                                              { "items", dict_items, 0, "" },
                                              { "copy", copy_of, 0, "" } };
static const jinja_routine loop_methods[] = { { "cycle", loop_cycle, 0, NULL },
                                              { "changed", loop_changed, 0, NULL } };
static const jinja_routine cycler_methods[] = { { "next", cycler_next, 0, "" },
                                                { "reset", cycler_reset, 0, "" } };

const jinja_routine *jinja_find_method(jinja_type type, slice name)
{
    const jinja_routine *found;
    switch (type) {
    case JINJA_STRING:
        found = jinja_find_row(jinja_string_methods, jinja_string_method_count, name);
        return found ? found
                     : jinja_find_row(jinja_string_predicates, jinja_string_predicate_count, name);
    case JINJA_LIST:
    case JINJA_TUPLE:
        return jinja_find_row(list_methods, type == JINJA_LIST ? 3 : 2, name);
    case JINJA_DICT:
        return jinja_find_row(dict_methods, sizeof dict_methods / sizeof *dict_methods, name);
    case JINJA_LOOP:
        return jinja_find_row(loop_methods, sizeof loop_methods / sizeof *loop_methods, name);
    case JINJA_CYCLER:
        return jinja_find_row(cycler_methods, sizeof cycler_methods / sizeof *cycler_methods, name);
    default:
        return NULL;
    }
}

bool jinja_changes_object(jinja_type type, slice name)
{
    static const char *const of_list[] = { "append", "clear", "extend",  "insert", "pop",
                                           "remove", "sort",  "reverse", NULL };
    static const char *const of_dict[] = {
        "clear", "pop", "popitem", "setdefault", "update", NULL
    };
    const char *const *names = type == JINJA_LIST ? of_list : type == JINJA_DICT ? of_dict : NULL;
    for (; names && *names; names++)
        if (slice_equal(slice_of(*names), name))
            return true;
    return false;
}
