// Arithmetic and comparison, as Python has them, on integers of 64 bits.
#include "text/template_syntax.h"

#include <math.h>

static const char *operator_text(int operator)
{
    switch (operator) {
    case '+':
        return "+";
    case '-':
        return "-";
    case '*':
        return "*";
    case '/':
        return "/";
    case '%':
        return "%";
    case '<':
        return "<";
    case '>':
        return ">";
    case JINJA_LESS_EQUAL:
        return "<=";
    case JINJA_GREATER_EQUAL:
        return ">=";
    case JINJA_FLOOR_DIVIDE:
        return "//";
    default:
        return "**";
    }
}

static _Noreturn void fail_overflow(jinja_render *r)
{
    jinja_fail(&r->task, TEMPLATE_FAULT_TYPE, "an integer does not fit 64 bits");
}

static _Noreturn void fail_types(jinja_render *r, int operator, jinja_value a, jinja_value b)
{
    jinja_need_defined(r, a);
    jinja_need_defined(r, b);
    if (a.type == JINJA_WIDE || b.type == JINJA_WIDE)
        fail_overflow(r);
    jinja_fail(&r->task, TEMPLATE_FAULT_TYPE, "'%s' is not supported between %s and %s",
               operator_text(operator), jinja_type_name(a), jinja_type_name(b));
}

static _Noreturn void fail_zero(jinja_render *r)
{
    jinja_fail(&r->task, TEMPLATE_FAULT_TYPE, "division by zero");
}

static int64_t integer_power(jinja_render *r, int64_t base, int64_t exponent)
{
    int64_t result = 1;
    if (base == 0 || base == 1)
        return exponent == 0 ? 1 : base;
    if (base == -1)
        return exponent % 2 ? -1 : 1;
    for (; exponent > 0; exponent--) // at most 63 rounds before it overflows
        if (__builtin_mul_overflow(result, base, &result))
            fail_overflow(r);
    return result;
}

static int64_t floor_divide(int64_t a, int64_t b)
{
    int64_t quotient = a / b;
    return quotient - (a % b != 0 && (a < 0) != (b < 0));
}

static int64_t floor_modulo(int64_t a, int64_t b)
{
    int64_t rest = a % b;
    return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}

static jinja_value on_integers(jinja_render *r, int operator, int64_t a, int64_t b)
{
    int64_t result = 0;
    bool overflow = false;
    switch (operator) {
    case '+':
        overflow = __builtin_add_overflow(a, b, &result);
        break;
    case '-':
        overflow = __builtin_sub_overflow(a, b, &result);
        break;
    case '*':
        overflow = __builtin_mul_overflow(a, b, &result);
        break;
    case '/':
        if (b == 0)
            fail_zero(r);
        return jinja_float((double)((long double)a / (long double)b));
    case '%':
    case JINJA_FLOOR_DIVIDE:
        if (b == 0)
            fail_zero(r);
        overflow = a == INT64_MIN && b == -1 && operator!= '%';
        if (b == -1)
            result = operator== '%' || overflow ? 0 : - a;
        else
            result = operator== '%' ? floor_modulo(a, b) : floor_divide(a, b);
        break;
    default:
        if (b < 0 && a == 0)
            fail_zero(r);
        if (b < 0)
            return jinja_float(pow((double)a, (double)b));
        result = integer_power(r, a, b);
    }
    if (overflow)
        fail_overflow(r);
    return jinja_int(result);
}

static double modulo(double a, double b)
{
    double rest = fmod(a, b);
    if (rest == 0)
        return copysign(0, b);
    return (rest < 0) != (b < 0) ? rest + b : rest;
}

static jinja_value on_floats(jinja_render *r, int operator, double a, double b)
{
    switch (operator) {
    case '+':
        return jinja_float(a + b);
    case '-':
        return jinja_float(a - b);
    case '*':
        return jinja_float(a * b);
    case '/':
        if (b == 0)
            fail_zero(r);
        return jinja_float(a / b);
    case '%':
        if (b == 0)
            fail_zero(r);
        return jinja_float(modulo(a, b));
    case JINJA_FLOOR_DIVIDE: {
        if (b == 0)
            fail_zero(r);
        double quotient = (a - modulo(a, b)) / b, whole = floor(quotient);
        if (whole == 0)
            return jinja_float(copysign(0, a / b));
        return jinja_float(quotient - whole > 0.5 ? whole + 1 : whole);
    }
    default:
        if (a == 0 && b < 0)
            fail_zero(r);
        if (a < 0 && floor(b) != b)
            jinja_fail(&r->task, TEMPLATE_FAULT_TYPE, "a power is not a real number");
        double power = pow(a, b);
        if (isinf(power) && isfinite(a) && isfinite(b))
            jinja_fail(&r->task, TEMPLATE_FAULT_TYPE, "a power is too large");
        return jinja_float(power);
    }
}

static jinja_value add_strings(jinja_render *r, jinja_value a, jinja_value b)
{
    bool safe = a.string->safe || b.string->safe;
    jinja_builder text;
    jinja_build_begin(&text, r);
    jinja_append_string(&text, safe ? jinja_escape(r, a).string : a.string);
    jinja_append_string(&text, safe ? jinja_escape(r, b).string : b.string);
    text.safe = safe;
    return jinja_build_end(&text);
}

static jinja_value add_lists(jinja_render *r, jinja_value a, jinja_value b)
{
    jinja_list *list = jinja_list_new(r, a.list->count + b.list->count);
    for (uint32_t i = 0; i < a.list->count; i++)
        jinja_list_add(r, list, a.list->items[i]);
    for (uint32_t i = 0; i < b.list->count; i++)
        jinja_list_add(r, list, b.list->items[i]);
    return jinja_list_value(list, a.type);
}

static jinja_value repeat(jinja_render *r, jinja_value v, int64_t count)
{
    if (v.type == JINJA_STRING) {
        jinja_builder b;
        jinja_build_begin(&b, r);
        for (int64_t i = 0; i < count && v.string->size > 0; i++)
            jinja_append_string(&b, v.string);
        b.safe = v.string->safe;
        return jinja_build_end(&b);
    }
    jinja_list *list = jinja_list_new(r, 0);
    for (int64_t i = 0; i < count && v.list->count > 0; i++)
        for (uint32_t k = 0; k < v.list->count; k++)
            jinja_list_add(r, list, v.list->items[k]);
    return jinja_list_value(list, v.type);
}

static bool is_sequence(jinja_value v)
{
    return v.type == JINJA_STRING || v.type == JINJA_LIST || v.type == JINJA_TUPLE;
}

jinja_value jinja_binary(jinja_render *r, int operator, jinja_value a, jinja_value b)
{
    int64_t x, y;
    double p, q;
    if (jinja_integral(a, &x) && jinja_integral(b, &y))
        return on_integers(r, operator, x, y);
    if (jinja_number(a, &p) && jinja_number(b, &q))
        return on_floats(r, operator, p, q);
    if (operator== '%' && a.type == JINJA_STRING)
        return jinja_format_percent(r, a.string, b);
    if (operator== '+' && a.type == b.type && is_sequence(a))
        return a.type == JINJA_STRING ? add_strings(r, a, b) : add_lists(r, a, b);
    if (operator== '*' && is_sequence(a) && jinja_integral(b, &y))
        return repeat(r, a, y);
    if (operator== '*' && is_sequence(b) && jinja_integral(a, &x))
        return repeat(r, b, x);
    fail_types(r, operator, a, b);
}

jinja_value jinja_negate(jinja_render *r, int operator, jinja_value v)
{
    int64_t integer;
    jinja_need_defined(r, v);
    if (v.type == JINJA_FLOAT)
        return jinja_float(operator== '-' ? -v.real : v.real);
    if (!jinja_integral(v, &integer))
        jinja_fail(&r->task, TEMPLATE_FAULT_TYPE, "a value of type %s cannot have a sign",
                   jinja_type_name(v));
    return on_integers(r, operator, 0, integer);
}

bool jinja_compare(jinja_render *r, int operator, jinja_value a, jinja_value b)
{
    int order;
    switch (operator) {
    case JINJA_EQUAL:
        return jinja_equal(r, a, b);
    case JINJA_NOT_EQUAL:
        return !jinja_equal(r, a, b);
    case JINJA_IN:
        return jinja_contains(r, b, a);
    case JINJA_NOT_IN:
        return !jinja_contains(r, b, a);
    }
    order = jinja_order(r, a, b, operator_text(operator));
    if (order == 2) // one is not a number
        return false;
    switch (operator) {
    case '<':
        return order < 0;
    case '>':
        return order > 0;
    case JINJA_LESS_EQUAL:
        return order <= 0;
    default:
        return order >= 0;
    }
}
