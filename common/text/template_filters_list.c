// Filters on sequences and dicts.
#include "text/template_private.h"

static bool given(jinja_value v)
{
    return v.type != JINJA_ABSENT && v.type != JINJA_NONE;
}

static jinja_value folded(jinja_render *r, jinja_value v, bool case_sensitive)
{
    return v.type == JINJA_STRING && !case_sensitive ? jinja_recase(r, v.string, JINJA_LOWER) : v;
}

static jinja_value at_path(jinja_render *r, jinja_value item, jinja_value attribute)
{
    return given(attribute) ? jinja_path(r, item, attribute) : item;
}

// A copy that may be changed.
static jinja_list *copied(jinja_render *r, jinja_value v)
{
    const jinja_list *list = jinja_iterate(r, v);
    jinja_list *copy = jinja_list_new(r, list->count);
    for (uint32_t i = 0; i < list->count; i++)
        jinja_list_add(r, copy, list->items[i]);
    return copy;
}

static jinja_value filter_length(jinja_render *r, jinja_value self,
                                 const jinja_arguments *arguments)
{
    (void)arguments;
    return jinja_int(jinja_length(r, self));
}

static jinja_value filter_first(jinja_render *r, jinja_value self, const jinja_arguments *arguments)
{
    (void)arguments;
    const jinja_list *list = jinja_iterate(r, self);
    return list->count > 0 ? list->items[0] : jinja_undefined(NULL);
}

static jinja_value filter_last(jinja_render *r, jinja_value self, const jinja_arguments *arguments)
{
    (void)arguments;
    if (self.type == JINJA_ITERATOR)
        jinja_fail(&r->task, TEMPLATE_FAULT_TYPE, "last: a generator cannot be reversed");
    const jinja_list *list = jinja_iterate(r, self);
    return list->count > 0 ? list->items[list->count - 1] : jinja_undefined(NULL);
}

static jinja_value filter_list(jinja_render *r, jinja_value self, const jinja_arguments *arguments)
{
    (void)arguments;
    return jinja_list_value(copied(r, self), JINJA_LIST);
}

static jinja_value filter_join(jinja_render *r, jinja_value self, const jinja_arguments *arguments)
{
    jinja_builder b;
    jinja_build_begin(&b, r);
    const jinja_list *list = jinja_iterate(r, self);
    for (uint32_t i = 0; i < list->count; i++) {
        if (i > 0 && arguments->values[0].type != JINJA_ABSENT)
            jinja_print(&b, arguments->values[0]);
        jinja_print(&b, at_path(r, list->items[i], arguments->values[1]));
    }
    return jinja_build_end(&b);
}

static jinja_value filter_reverse(jinja_render *r, jinja_value self,
                                  const jinja_arguments *arguments)
{
    (void)arguments;
    jinja_value none = jinja_none(), bounds[3] = { none, none, jinja_int(-1) };
    if (self.type == JINJA_STRING)
        return jinja_slice_of(r, self, bounds);
    jinja_list *list = copied(r, self);
    jinja_value v = jinja_slice_of(r, jinja_list_value(list, JINJA_LIST), bounds);
    return jinja_iterator_value(r, v.list, "list_reverseiterator");
}

// The keys to sort by: for each item a tuple of the attributes ("a,b.c") or of the item itself.
static jinja_value *sort_keys(jinja_render *r, const jinja_list *list, jinja_value attribute,
                              bool case_sensitive)
{
    jinja_list *paths = NULL;
    if (attribute.type == JINJA_STRING)
        paths = jinja_split(r, attribute.string, jinja_text(r, SLICE(","), JINJA_MARKUP).string, -1,
                            false);
    jinja_value *keys = jinja_allocate(&r->task, ((size_t)list->count + 1) * sizeof *keys);
    for (uint32_t i = 0; i < list->count; i++) {
        jinja_list *key = jinja_list_new(r, 1);
        for (uint32_t k = 0; k < (paths ? paths->count : 1); k++) {
            jinja_value v = at_path(r, list->items[i], paths ? paths->items[k] : attribute);
            jinja_list_add(r, key, folded(r, v, case_sensitive));
        }
        keys[i] = jinja_list_value(key, JINJA_TUPLE);
    }
    return keys;
}

static jinja_value filter_sort(jinja_render *r, jinja_value self, const jinja_arguments *arguments)
{
    const jinja_value *a = arguments->values; // reverse case_sensitive attribute
    jinja_list *list = copied(r, self);
    jinja_value *keys = sort_keys(r, list, a[2], jinja_true(r, a[1]));
    jinja_sort(r, keys, list->items, list->count, jinja_true(r, a[0]));
    return jinja_list_value(list, JINJA_LIST);
}

static jinja_value filter_dictsort(jinja_render *r, jinja_value self,
                                   const jinja_arguments *arguments)
{
    const jinja_value *a = arguments->values; // case_sensitive by reverse
    slice by = a[1].type == JINJA_ABSENT ? SLICE("key")
                                         : jinja_slice(jinja_need_string(r, a[1], "dictsort: by"));
    jinja_need_defined(r, self);
    bool by_value = slice_equal(by, SLICE("value"));
    if (self.type != JINJA_DICT || (!by_value && !slice_equal(by, SLICE("key"))))
        jinja_fail(&r->task, TEMPLATE_FAULT_TYPE,
                   "dictsort sorts a dict by 'key' or 'value', not a value of type %s by '%.*s'",
                   jinja_type_name(self), (int)(by.size > 40 ? 40 : by.size), by.data);
    jinja_list *items = jinja_items(r, self.dict);
    jinja_value *keys = sort_keys(r, items, jinja_int(by_value), jinja_true(r, a[0]));
    jinja_sort(r, keys, items->items, items->count, jinja_true(r, a[2]));
    return jinja_list_value(items, JINJA_LIST);
}

static jinja_value filter_unique(jinja_render *r, jinja_value self,
                                 const jinja_arguments *arguments)
{
    const jinja_value *a = arguments->values; // case_sensitive attribute
    const jinja_list *list = jinja_iterate(r, self);
    jinja_list *kept = jinja_list_new(r, 0);
    jinja_dict *seen = jinja_dict_new(r);
    for (uint32_t i = 0; i < list->count; i++) {
        jinja_value key = folded(r, at_path(r, list->items[i], a[1]), jinja_true(r, a[0]));
        if (jinja_dict_get(r, seen, key))
            continue;
        jinja_dict_set(r, seen, key, jinja_none());
        jinja_list_add(r, kept, list->items[i]);
    }
    return jinja_iterator_value(r, kept, "generator");
}

static jinja_value extreme(jinja_render *r, jinja_value self, const jinja_arguments *arguments,
                           bool largest)
{
    const jinja_value *a = arguments->values; // case_sensitive attribute
    const jinja_list *list = jinja_iterate(r, self);
    jinja_value best = jinja_undefined(NULL), best_key = best;
    for (uint32_t i = 0; i < list->count; i++) {
        jinja_value key = folded(r, at_path(r, list->items[i], a[1]), jinja_true(r, a[0]));
        if (i > 0) {
            int order =
                largest ? jinja_order(r, key, best_key, ">") : jinja_order(r, best_key, key, "<");
            if (order != 1)
                continue;
        }
        best = list->items[i];
        best_key = key;
    }
    return best;
}

static jinja_value filter_min(jinja_render *r, jinja_value self, const jinja_arguments *arguments)
{
    return extreme(r, self, arguments, false);
}

static jinja_value filter_max(jinja_render *r, jinja_value self, const jinja_arguments *arguments)
{
    return extreme(r, self, arguments, true);
}

static jinja_value filter_sum(jinja_render *r, jinja_value self, const jinja_arguments *arguments)
{
    const jinja_value *a = arguments->values; // attribute start
    const jinja_list *list = jinja_iterate(r, self);
    jinja_value sum = a[1].type == JINJA_ABSENT ? jinja_int(0) : a[1];
    if (sum.type == JINJA_STRING)
        jinja_fail(&r->task, TEMPLATE_FAULT_TYPE, "sum cannot join strings");
    for (uint32_t i = 0; i < list->count; i++)
        sum = jinja_binary(r, '+', sum, at_path(r, list->items[i], a[0]));
    return sum;
}

static jinja_value filter_batch(jinja_render *r, jinja_value self, const jinja_arguments *arguments)
{
    int64_t size = jinja_need_int(r, arguments->values[0], "batch: linecount");
    const jinja_list *list = jinja_iterate(r, self);
    jinja_list *rows = jinja_list_new(r, 0), *row = NULL;
    if (size <= 0)
        jinja_fail(&r->task, TEMPLATE_FAULT_TYPE, "batch: linecount must be positive");
    for (uint32_t i = 0; i < list->count; i++) {
        if (i % (uint64_t)size == 0) {
            row = jinja_list_new(r, 0);
            jinja_list_add(r, rows, jinja_list_value(row, JINJA_LIST));
        }
        jinja_list_add(r, row, list->items[i]);
    }
    while (row && given(arguments->values[1]) && row->count < size)
        jinja_list_add(r, row, arguments->values[1]);
    return jinja_iterator_value(r, rows, "generator");
}

static jinja_value filter_slice(jinja_render *r, jinja_value self, const jinja_arguments *arguments)
{
    int64_t count = jinja_need_int(r, arguments->values[0], "slice: slices");
    const jinja_list *list = jinja_iterate(r, self);
    jinja_list *columns = jinja_list_new(r, 0);
    if (count <= 0)
        jinja_fail(&r->task, TEMPLATE_FAULT_TYPE, "slice: slices must be positive");
    uint32_t at = 0;
    for (int64_t i = 0; i < count; i++) {
        jinja_list *column = jinja_list_new(r, 0);
        int64_t size = list->count / count + (i < list->count % count);
        for (int64_t k = 0; k < size; k++)
            jinja_list_add(r, column, list->items[at++]);
        if (given(arguments->values[1]) && i >= list->count % count)
            jinja_list_add(r, column, arguments->values[1]);
        jinja_list_add(r, columns, jinja_list_value(column, JINJA_LIST));
    }
    return jinja_iterator_value(r, columns, "generator");
}

static jinja_value filter_groupby(jinja_render *r, jinja_value self,
                                  const jinja_arguments *arguments)
{
    const jinja_value *a = arguments->values; // attribute default case_sensitive
    jinja_list *list = copied(r, self), *groups = jinja_list_new(r, 0), *members = NULL;
    bool exact = jinja_true(r, a[2]);
    jinja_value *keys = jinja_allocate(&r->task, ((size_t)list->count + 1) * sizeof *keys);
    jinja_value last = jinja_none();
    for (int round = 0; round < 2; round++) { // to sort, then to cut
        for (uint32_t i = 0; i < list->count; i++) {
            jinja_value name = at_path(r, list->items[i], a[0]);
            if (name.type == JINJA_UNDEFINED && given(a[1]))
                name = a[1];
            keys[i] = folded(r, name, exact);
            if (round == 1 && (!members || !jinja_equal(r, keys[i], last))) {
                members = jinja_list_new(r, 0);
                jinja_value group = jinja_pair(r, name, jinja_list_value(members, JINJA_LIST));
                group.flag = true;
                jinja_list_add(r, groups, group);
                last = keys[i];
            }
            if (round == 1)
                jinja_list_add(r, members, list->items[i]);
        }
        if (round == 0)
            jinja_sort(r, keys, list->items, list->count, false);
    }
    return jinja_list_value(groups, JINJA_LIST);
}

static jinja_value filter_items(jinja_render *r, jinja_value self, const jinja_arguments *arguments)
{
    (void)arguments;
    if (self.type != JINJA_DICT && self.type != JINJA_UNDEFINED)
        jinja_fail(&r->task, TEMPLATE_FAULT_TYPE, "items: a value of type %s is no mapping",
                   jinja_type_name(self));
    jinja_list *list = self.type == JINJA_DICT ? jinja_items(r, self.dict) : jinja_iterate(r, self);
    return jinja_iterator_value(r, list, "generator");
}

static jinja_value filter_attr(jinja_render *r, jinja_value self, const jinja_arguments *arguments)
{
    const jinja_string *name = jinja_need_string(r, arguments->values[0], "attr: name");
    jinja_need_defined(r, self);
    if (name->size > 0 && name->bytes[0] == '_')
        return jinja_refused(name);
    jinja_value v = jinja_own_attribute(r, self, name);
    return v.type == JINJA_ABSENT ? jinja_undefined(name) : v;
}

// --- filters that take a filter or a test by its name ---

static jinja_value map_attribute(jinja_render *r, const jinja_list *list,
                                 const jinja_arguments *arguments)
{
    jinja_value path = jinja_none(), otherwise = { .type = JINJA_ABSENT };
    for (uint32_t i = 0; i < arguments->named_count; i++) {
        slice name = jinja_slice(arguments->names[i]);
        if (slice_equal(name, SLICE("attribute")))
            path = arguments->named[i];
        else if (slice_equal(name, SLICE("default")))
            otherwise = arguments->named[i];
        else
            jinja_fail(&r->task, TEMPLATE_FAULT_TYPE, "map: the argument '%.*s' is unknown",
                       (int)(name.size > 60 ? 60 : name.size), name.data);
    }
    if (!given(path))
        jinja_fail(&r->task, TEMPLATE_FAULT_TYPE, "map needs the name of a filter, or attribute=");
    jinja_list *mapped = jinja_list_new(r, 0);
    for (uint32_t i = 0; i < list->count; i++) {
        jinja_value v = jinja_path(r, list->items[i], path);
        jinja_list_add(r, mapped, v.type == JINJA_UNDEFINED && given(otherwise) ? otherwise : v);
    }
    return jinja_iterator_value(r, mapped, "generator");
}

static const jinja_routine *named_routine(jinja_render *r, jinja_value v, bool test)
{
    slice name = jinja_slice(jinja_need_string(r, v, "the name of a filter or test"));
    const jinja_routine *routine = test ? jinja_find_test(name) : jinja_find_filter(name);
    if (!routine)
        jinja_fail(&r->task, TEMPLATE_FAULT_RUNTIME, "there is no %s named '%.*s'",
                   test ? "test" : "filter", (int)(name.size > 60 ? 60 : name.size), name.data);
    return routine;
}

static jinja_arguments behind(const jinja_arguments *arguments, uint32_t first)
{
    jinja_arguments rest = *arguments;
    if (first > 0)
        rest.values += first;
    rest.count -= first;
    return rest;
}

static jinja_value filter_map(jinja_render *r, jinja_value self, const jinja_arguments *arguments)
{
    const jinja_list *list = jinja_iterate(r, self);
    if (arguments->count == 0)
        return map_attribute(r, list, arguments);
    const jinja_routine *routine = named_routine(r, arguments->values[0], false);
    jinja_arguments rest = behind(arguments, 1);
    jinja_list *mapped = jinja_list_new(r, 0);
    jinja_enter(r);
    for (uint32_t i = 0; i < list->count; i++)
        jinja_list_add(r, mapped, jinja_run(r, routine, list->items[i], &rest));
    jinja_leave(r);
    return jinja_iterator_value(r, mapped, "generator");
}

static jinja_value choose(jinja_render *r, jinja_value self, const jinja_arguments *arguments,
                          bool by_attribute, bool wanted)
{
    const jinja_list *list = jinja_iterate(r, self);
    jinja_list *chosen = jinja_list_new(r, 0);
    uint32_t first = by_attribute;
    if (arguments->count < first)
        jinja_fail(&r->task, TEMPLATE_FAULT_TYPE, "the name of an attribute is missing");
    const jinja_routine *test =
        arguments->count > first ? named_routine(r, arguments->values[first], true) : NULL;
    jinja_arguments rest = behind(arguments, test ? first + 1 : first);
    jinja_enter(r);
    for (uint32_t i = 0; i < list->count; i++) {
        jinja_value v = list->items[i];
        if (by_attribute)
            v = jinja_path(r, v, arguments->values[0]);
        if (test)
            v = jinja_run(r, test, v, &rest);
        if (jinja_true(r, v) == wanted)
            jinja_list_add(r, chosen, list->items[i]);
    }
    jinja_leave(r);
    return jinja_iterator_value(r, chosen, "generator");
}

#define CHOOSE_FILTER(name, by_attribute, wanted)                                                  \
    static jinja_value name(jinja_render *r, jinja_value self, const jinja_arguments *arguments)   \
    {                                                                                              \
        return choose(r, self, arguments, by_attribute, wanted);                                   \
    }
CHOOSE_FILTER(filter_select, false, true)
CHOOSE_FILTER(filter_reject, false, false)
CHOOSE_FILTER(filter_selectattr, true, true)
CHOOSE_FILTER(filter_rejectattr, true, false)

const jinja_routine jinja_list_filters[] = {
    { "attr", filter_attr, 1, "name" },
    { "batch", filter_batch, 1, "linecount fill_with" },
    { "count", filter_length, 0, "" },
    { "dictsort", filter_dictsort, 0, "case_sensitive by reverse" },
    { "first", filter_first, 0, "" },
    { "groupby", filter_groupby, 1, "attribute default case_sensitive" },
    { "items", filter_items, 0, "" },
    { "join", filter_join, 0, "d attribute" },
    { "last", filter_last, 0, "" },
    { "length", filter_length, 0, "" },
    { "list", filter_list, 0, "" },
    { "map", filter_map, 0, NULL },
    { "max", filter_max, 0, "case_sensitive attribute" },
    { "min", filter_min, 0, "case_sensitive attribute" },
    { "reject", filter_reject, 0, NULL },
    { "rejectattr", filter_rejectattr, 0, NULL },
    { "reverse", filter_reverse, 0, "" },
    { "select", filter_select, 0, NULL },
    { "selectattr", filter_selectattr, 0, NULL },
    { "slice", filter_slice, 1, "slices fill_with" },
    { "sort", filter_sort, 0, "reverse case_sensitive attribute" },
    { "sum", filter_sum, 0, "attribute start" },
    { "unique", filter_unique, 0, "case_sensitive attribute" },
};
const size_t jinja_list_filter_count = sizeof jinja_list_filters / sizeof *jinja_list_filters;
