// The tests behind `is`.
#include "text/template_syntax.h"

#define TEST(name)                                                                                 \
    static jinja_value name(jinja_render *r, jinja_value self, const jinja_arguments *arguments)

// A test of the type alone.
#define TYPE_TEST(name, condition)                                                                 \
    TEST(name)                                                                                     \
    {                                                                                              \
        (void)r, (void)arguments;                                                                  \
        return jinja_bool(condition);                                                              \
    }

static bool is_mapping(jinja_value v)
{
    return v.type == JINJA_DICT;
}

static bool is_sequence(jinja_value v)
{
    return v.type == JINJA_STRING || v.type == JINJA_LIST || v.type == JINJA_TUPLE ||
           v.type == JINJA_DICT || v.type == JINJA_RANGE || v.type == JINJA_UNDEFINED;
}

static bool is_callable(jinja_value v)
{
    return v.type == JINJA_METHOD || v.type == JINJA_MACRO || v.type == JINJA_JOINER ||
           v.type == JINJA_LOOP || v.type == JINJA_UNDEFINED;
}

TYPE_TEST(test_defined, self.type != JINJA_UNDEFINED)
TYPE_TEST(test_undefined, self.type == JINJA_UNDEFINED)
TYPE_TEST(test_none, self.type == JINJA_NONE)
TYPE_TEST(test_boolean, self.type == JINJA_BOOL)
TYPE_TEST(test_true, self.type == JINJA_BOOL && self.boolean)
TYPE_TEST(test_false, self.type == JINJA_BOOL && !self.boolean)
TYPE_TEST(test_integer, self.type == JINJA_INT || self.type == JINJA_WIDE)
TYPE_TEST(test_float, self.type == JINJA_FLOAT)
TYPE_TEST(test_number, self.type == JINJA_INT || self.type == JINJA_FLOAT ||
                           self.type == JINJA_BOOL || self.type == JINJA_WIDE)
TYPE_TEST(test_string, self.type == JINJA_STRING)
TYPE_TEST(test_mapping, is_mapping(self))
TYPE_TEST(test_sequence, is_sequence(self))
TYPE_TEST(test_iterable, is_sequence(self) || self.type == JINJA_VIEW ||
                             self.type == JINJA_ITERATOR || self.type == JINJA_LOOP)
TYPE_TEST(test_callable, is_callable(self))
TYPE_TEST(test_escaped, self.type == JINJA_STRING && self.string->safe)

static int64_t remainder_of(jinja_render *r, jinja_value v, jinja_value by)
{
    jinja_value rest = jinja_binary(r, '%', v, by);
    if (rest.type == JINJA_FLOAT)
        return rest.real == 0 ? 0 : rest.real == 1 ? 1 : 2;
    return jinja_need_int(r, rest, "the value tested");
}

TEST(test_odd)
{
    (void)arguments;
    return jinja_bool(remainder_of(r, self, jinja_int(2)) == 1);
}

TEST(test_even)
{
    (void)arguments;
    return jinja_bool(remainder_of(r, self, jinja_int(2)) == 0);
}

TEST(test_divisibleby)
{
    return jinja_bool(remainder_of(r, self, arguments->values[0]) == 0);
}

TEST(test_sameas)
{
    jinja_value other = arguments->values[0];
    if (self.type != other.type)
        return jinja_bool(false);
    if (self.type == JINJA_LIST || self.type == JINJA_TUPLE || self.type == JINJA_DICT)
        return jinja_bool(self.list == other.list);
    return jinja_bool(jinja_equal(r, self, other));
}

TEST(test_in)
{
    return jinja_bool(jinja_contains(r, arguments->values[0], self));
}

static jinja_value run_method(jinja_render *r, jinja_value self, slice name)
{
    static const jinja_arguments none;
    jinja_value text = jinja_string_of(r, self);
    return jinja_run(r, jinja_find_method(JINJA_STRING, name), text, &none);
}

TEST(test_lower)
{
    (void)arguments;
    return run_method(r, self, SLICE("islower"));
}

TEST(test_upper)
{
    (void)arguments;
    return run_method(r, self, SLICE("isupper"));
}

static void need_hashable(jinja_render *r, jinja_value v)
{
    static const jinja_dict empty;
    jinja_dict_get(r, &empty, v);
}

TEST(test_filter)
{
    (void)arguments;
    need_hashable(r, self);
    return jinja_bool(self.type == JINJA_STRING && jinja_find_filter(jinja_slice(self.string)));
}

TEST(test_test)
{
    (void)arguments;
    need_hashable(r, self);
    return jinja_bool(self.type == JINJA_STRING && jinja_find_test(jinja_slice(self.string)));
}

#define COMPARE_TEST(name, operator)                                                               \
    TEST(name)                                                                                     \
    {                                                                                              \
        return jinja_bool(jinja_compare(r, operator, self, arguments->values[0]));                 \
    }
COMPARE_TEST(test_eq, JINJA_EQUAL)
COMPARE_TEST(test_ne, JINJA_NOT_EQUAL)
COMPARE_TEST(test_lt, '<')
COMPARE_TEST(test_le, JINJA_LESS_EQUAL)
COMPARE_TEST(test_gt, '>')
COMPARE_TEST(test_ge, JINJA_GREATER_EQUAL)

static const jinja_routine tests[] = {
    { "!=", test_ne, 1, "other" },
    { "<", test_lt, 1, "other" },
    { "<=", test_le, 1, "other" },
    { "==", test_eq, 1, "other" },
    { ">", test_gt, 1, "other" },
    { ">=", test_ge, 1, "other" },
    { "boolean", test_boolean, 0, "" },
    { "callable", test_callable, 0, "" },
    { "defined", test_defined, 0, "" },
    { "divisibleby", test_divisibleby, 1, "num" },
    { "eq", test_eq, 1, "other" },
    { "equalto", test_eq, 1, "other" },
    { "escaped", test_escaped, 0, "" },
    { "even", test_even, 0, "" },
    { "false", test_false, 0, "" },
    { "filter", test_filter, 0, "" },
    { "float", test_float, 0, "" },
    { "ge", test_ge, 1, "other" },
    { "greaterthan", test_gt, 1, "other" },
    { "gt", test_gt, 1, "other" },
    { "in", test_in, 1, "seq" },
    { "integer", test_integer, 0, "" },
    { "iterable", test_iterable, 0, "" },
    { "le", test_le, 1, "other" },
    { "lessthan", test_lt, 1, "other" },
    { "lower", test_lower, 0, "" },
    { "lt", test_lt, 1, "other" },
    { "mapping", test_mapping, 0, "" },
    { "ne", test_ne, 1, "other" },
    { "none", test_none, 0, "" },
    { "number", test_number, 0, "" },
    { "odd", test_odd, 0, "" },
    { "sameas", test_sameas, 1, "other" },
    { "sequence", test_sequence, 0, "" },
    { "string", test_string, 0, "" },
    { "test", test_test, 0, "" },
    { "true", test_true, 0, "" },
    { "undefined", test_undefined, 0, "" },
    { "upper", test_upper, 0, "" },
};

const jinja_routine *jinja_find_test(slice name)
{
    return jinja_find_row(tests, sizeof tests / sizeof *tests, name);
}
