// What Python says about values: conversion from JSON, truth, equality, order.
#include "text/template_private.h"

#include <math.h>

static bool holds(json_t *list, const json_t *json)
{
    for (size_t i = 0; i < json_array_size(list); i++)
        if (json_array_get(list, i) == json)
            return true;
    return false;
}

static jinja_value from_object(jinja_render *r, json_t *json)
{
    jinja_dict *dict = jinja_dict_new(r);
    for (void *i = json_object_iter(json); i; i = json_object_iter_next(json, i)) {
        slice key = { json_object_iter_key(i), json_object_iter_key_len(i) };
        jinja_dict_set(r, dict, jinja_text(r, key, JINJA_CONTENT),
                       jinja_from_json(r, json_object_iter_value(i)));
    }
    return (jinja_value){ .type = JINJA_DICT, .dict = dict };
}

static jinja_value from_array(jinja_render *r, json_t *json)
{
    size_t count = json_array_size(json);
    jinja_list *list = jinja_list_new(r, 0);
    for (size_t i = 0; i < count; i++)
        jinja_list_add(r, list, jinja_from_json(r, json_array_get(json, i)));
    return jinja_list_value(list, JINJA_LIST);
}

jinja_value jinja_from_json(jinja_render *r, json_t *json)
{
    jinja_value v = jinja_none();
    jinja_enter(r);
    switch (json_typeof(json)) {
    case JSON_OBJECT:
        v = from_object(r, json);
        break;
    case JSON_ARRAY:
        v = from_array(r, json);
        break;
    case JSON_STRING:
        v = jinja_text(r, (slice){ json_string_value(json), json_string_length(json) },
                       holds(r->context->markup, json) ? JINJA_MARKUP : JINJA_CONTENT);
        if (holds(r->context->integers, json))
            v.type = JINJA_WIDE;
        break;
    case JSON_INTEGER:
        v = jinja_int(json_integer_value(json));
        break;
    case JSON_REAL:
        v = jinja_float(json_real_value(json));
        break;
    case JSON_TRUE:
    case JSON_FALSE:
        v = jinja_bool(json_typeof(json) == JSON_TRUE);
        break;
    case JSON_NULL:
        break;
    }
    jinja_leave(r);
    return v;
}

const char *jinja_type_name(jinja_value v)
{
    static const char *const names[] = {
        [JINJA_ABSENT] = "NoneType",
        [JINJA_UNDEFINED] = "Undefined",
        [JINJA_NONE] = "NoneType",
        [JINJA_BOOL] = "bool",
        [JINJA_INT] = "int",
        [JINJA_WIDE] = "int",
        [JINJA_FLOAT] = "float",
        [JINJA_STRING] = "str",
        [JINJA_LIST] = "list",
        [JINJA_TUPLE] = "tuple",
        [JINJA_DICT] = "dict",
        [JINJA_RANGE] = "range",
        [JINJA_VIEW] = "dict view",
        [JINJA_ITERATOR] = "generator",
        [JINJA_NAMESPACE] = "Namespace",
        [JINJA_LOOP] = "LoopContext",
        [JINJA_MACRO] = "Macro",
        [JINJA_METHOD] = "function",
        [JINJA_CYCLER] = "Cycler",
        [JINJA_JOINER] = "Joiner",
    };
    return names[v.type];
}

_Noreturn void jinja_fail_undefined(jinja_render *r, jinja_value v)
{
    slice name = v.string ? jinja_slice(v.string) : SLICE("a value");
    if (v.flag)
        jinja_fail(&r->task, TEMPLATE_FAULT_SECURITY, "access to '%.*s' is not safe here",
                   (int)(name.size > 80 ? 80 : name.size), name.data);
    jinja_fail(&r->task, TEMPLATE_FAULT_UNDEFINED, "'%.*s' is undefined",
               (int)(name.size > 80 ? 80 : name.size), name.data);
}

void jinja_need_defined(jinja_render *r, jinja_value v)
{
    if (v.type == JINJA_UNDEFINED)
        jinja_fail_undefined(r, v);
}

bool jinja_true(jinja_render *r, jinja_value v)
{
    (void)r;
    switch (v.type) {
    case JINJA_ABSENT:
    case JINJA_UNDEFINED:
    case JINJA_NONE:
        return false;
    case JINJA_BOOL:
        return v.boolean;
    case JINJA_INT:
        return v.integer != 0;
    case JINJA_FLOAT:
        return v.real != 0;
    case JINJA_STRING:
        return v.string->size > 0;
    case JINJA_LIST:
    case JINJA_TUPLE:
        return v.list->count > 0;
    case JINJA_DICT:
        return v.dict->count > 0;
    case JINJA_RANGE:
        return v.range->count > 0;
    case JINJA_VIEW:
        return v.view->list->count > 0;
    default:
        return true;
    }
}

bool jinja_integral(jinja_value v, int64_t *integer)
{
    if (v.type != JINJA_INT && v.type != JINJA_BOOL)
        return false;
    *integer = v.type == JINJA_INT ? v.integer : v.boolean;
    return true;
}

bool jinja_number(jinja_value v, double *real)
{
    int64_t integer;
    if (v.type == JINJA_FLOAT) {
        *real = v.real;
        return true;
    }
    if (!jinja_integral(v, &integer))
        return false;
    *real = (double)integer;
    return true;
}

int64_t jinja_need_int(jinja_render *r, jinja_value v, const char *what)
{
    int64_t integer;
    jinja_need_defined(r, v);
    if (!jinja_integral(v, &integer))
        jinja_fail(&r->task, TEMPLATE_FAULT_TYPE, "%s must be an integer, not %s", what,
                   jinja_type_name(v));
    return integer;
}

const jinja_string *jinja_need_string(jinja_render *r, jinja_value v, const char *what)
{
    jinja_need_defined(r, v);
    if (v.type != JINJA_STRING)
        jinja_fail(&r->task, TEMPLATE_FAULT_TYPE, "%s must be a string, not %s", what,
                   jinja_type_name(v));
    return v.string;
}

// -1, 0, 1, or 2 where one is not a number. long double holds every int64 and every double.
static int order_numbers(jinja_value a, jinja_value b)
{
    int64_t i;
    if (a.type == JINJA_WIDE || b.type == JINJA_WIDE)
        return jinja_order_wide(a, b);
    long double x = a.type == JINJA_FLOAT ? a.real : 0, y = b.type == JINJA_FLOAT ? b.real : 0;
    if (a.type != JINJA_FLOAT)
        x = jinja_integral(a, &i) ? i : 0;
    if (b.type != JINJA_FLOAT)
        y = jinja_integral(b, &i) ? i : 0;
    return isnan(x) || isnan(y) ? 2 : x < y ? -1 : x > y;
}

static bool is_number(jinja_value v)
{
    return v.type == JINJA_INT || v.type == JINJA_BOOL || v.type == JINJA_FLOAT ||
           v.type == JINJA_WIDE;
}

static bool equal_lists(jinja_render *r, const jinja_list *a, const jinja_list *b)
{
    if (a->count != b->count)
        return false;
    for (uint32_t i = 0; i < a->count; i++)
        if (!jinja_equal(r, a->items[i], b->items[i]))
            return false;
    return true;
}

static bool equal_dicts(jinja_render *r, const jinja_dict *a, const jinja_dict *b)
{
    if (a->count != b->count)
        return false;
    for (uint32_t i = 0; i < a->count; i++) {
        const jinja_value *other = jinja_dict_get(r, b, a->entries[i].key);
        if (!other || !jinja_equal(r, a->entries[i].value, *other))
            return false;
    }
    return true;
}

static bool equal_same_type(jinja_render *r, jinja_value a, jinja_value b)
{
    switch (a.type) {
    case JINJA_UNDEFINED:
    case JINJA_NONE:
        return true;
    case JINJA_STRING:
        jinja_work(r, a.string->size);
        return slice_equal(jinja_slice(a.string), jinja_slice(b.string));
    case JINJA_LIST:
    case JINJA_TUPLE:
        return equal_lists(r, a.list, b.list);
    case JINJA_DICT:
        return equal_dicts(r, a.dict, b.dict);
    case JINJA_RANGE:
        return a.range->count == b.range->count &&
               (a.range->count == 0 || (a.range->start == b.range->start &&
                                        (a.range->count == 1 || a.range->step == b.range->step)));
    case JINJA_METHOD:
        return a.method->routine == b.method->routine &&
               jinja_equal(r, a.method->self, b.method->self);
    default:
        return a.dict == b.dict; // the same object
    }
}

bool jinja_equal(jinja_render *r, jinja_value a, jinja_value b)
{
    jinja_work(r, 8);
    if (is_number(a) && is_number(b))
        return order_numbers(a, b) == 0;
    if (a.type != b.type)
        return false;
    jinja_enter(r);
    bool equal = equal_same_type(r, a, b);
    jinja_leave(r);
    return equal;
}

static int order_lists(jinja_render *r, const jinja_list *a, const jinja_list *b,
                       const char *operator)
{
    uint32_t shorter = a->count < b->count ? a->count : b->count;
    for (uint32_t i = 0; i < shorter; i++)
        if (!jinja_equal(r, a->items[i], b->items[i]))
            return jinja_order(r, a->items[i], b->items[i], operator);
    return a->count < b->count ? -1 : a->count > b->count;
}

int jinja_order(jinja_render *r, jinja_value a, jinja_value b, const char *operator)
{
    jinja_need_defined(r, a);
    jinja_need_defined(r, b);
    if (is_number(a) && is_number(b))
        return order_numbers(a, b);
    if (a.type == JINJA_STRING && b.type == JINJA_STRING) {
        size_t shorter = a.string->size < b.string->size ? a.string->size : b.string->size;
        jinja_work(r, shorter);
        int order = memcmp(a.string->bytes, b.string->bytes, shorter);
        if (order == 0)
            return a.string->size < b.string->size ? -1 : a.string->size > b.string->size;
        return order < 0 ? -1 : 1;
    }
    if (a.type != b.type || (a.type != JINJA_LIST && a.type != JINJA_TUPLE))
        jinja_fail(&r->task, TEMPLATE_FAULT_TYPE,
                   "'%s' is not supported between %s and %s", operator, jinja_type_name(a),
                   jinja_type_name(b));
    jinja_enter(r);
    int order = order_lists(r, a.list, b.list, operator);
    jinja_leave(r);
    return order;
}

bool jinja_contains(jinja_render *r, jinja_value container, jinja_value item)
{
    if (container.type == JINJA_STRING) {
        const jinja_string *needle = jinja_need_string(r, item, "the left side of 'in <string>'");
        return jinja_find(r, jinja_slice(container.string), jinja_slice(needle), 0) != SIZE_MAX;
    }
    if (container.type == JINJA_DICT)
        return jinja_dict_get(r, container.dict, item) != NULL;
    const jinja_list *list = jinja_iterate(r, container);
    for (uint32_t i = 0; i < list->count; i++)
        if (jinja_equal(r, list->items[i], item))
            return true;
    return false;
}
