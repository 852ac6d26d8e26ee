// "%s %5.2f %(key)s" % x, which the filter `format` uses too.
#include "text/template_private.h"

#include <math.h>

typedef struct percent {
    jinja_render *render;
    jinja_value arguments;
    uint32_t used;
} percent;

static jinja_value next_argument(percent *p)
{
    bool tuple = p->arguments.type == JINJA_TUPLE;
    uint32_t count = tuple ? p->arguments.list->count : 1;
    if (p->used >= count)
        jinja_fail_format(p->render, "there are not enough arguments");
    p->used++;
    return tuple ? p->arguments.list->items[p->used - 1] : p->arguments;
}

static jinja_value keyed_argument(percent *p, const jinja_string *format, size_t *at)
{
    size_t end = jinja_find(p->render, jinja_slice(format), SLICE(")"), *at);
    if (end == SIZE_MAX || p->arguments.type != JINJA_DICT)
        jinja_fail_format(p->render, "a named field needs a dict and a closing ')'");
    jinja_value key = jinja_part(p->render, format, *at, end);
    const jinja_value *held = jinja_dict_get(p->render, p->arguments.dict, key);
    if (!held)
        jinja_fail_format(p->render, "the dict lacks the key of a field");
    *at = end + 1;
    return *held;
}

static int starred(percent *p, const jinja_string *format, size_t *at, int most)
{
    if (*at >= format->size || format->bytes[*at] != '*')
        return jinja_format_number(p->render, format->bytes, format->size, at, most);
    ++*at;
    int64_t number = jinja_need_int(p->render, next_argument(p), "a width or precision");
    if (number < -most || number > most)
        jinja_fail_format(p->render, "a width or precision is too large");
    return (int)number;
}

static void percent_value(jinja_builder *b, jinja_format_spec *spec, jinja_value v)
{
    int64_t integer;
    double real;
    jinja_render *r = b->render;
    switch (spec->type) {
    case 's':
    case 'r':
    case 'c':
        spec->zero = false;
        if (!spec->align)
            spec->align = '>';
        if (spec->type == 'c')
            jinja_format_character(b, spec, v);
        else
            jinja_format_text(
                b, spec, (spec->type == 's' ? jinja_string_of(r, v) : jinja_repr(r, v)).string);
        return;
    case 'd':
    case 'i':
    case 'u':
    case 'o':
    case 'x':
    case 'X':
        jinja_need_defined(r, v);
        if (v.type == JINJA_FLOAT && strchr("diu", spec->type) && fabs(v.real) < 0x1p63)
            v = jinja_int((int64_t)v.real);
        if (!jinja_integral(v, &integer))
            jinja_fail_format(r, "a number is required");
        jinja_format_integer(b, spec, integer);
        return;
    case 'e':
    case 'E':
    case 'f':
    case 'F':
    case 'g':
    case 'G':
        jinja_need_defined(r, v);
        if (!jinja_number(v, &real))
            jinja_fail_format(r, "a number is required");
        jinja_format_real(b, spec, real);
        return;
    default:
        jinja_fail_format(r, "there is no such conversion");
    }
}

static void percent_field(percent *p, jinja_builder *b, const jinja_string *format, size_t *at)
{
    jinja_format_spec spec = { .fill = SLICE(" "), .precision = -1 };
    jinja_value v = { .type = JINJA_ABSENT };
    if (*at < format->size && format->bytes[*at] == '(') {
        ++*at;
        v = keyed_argument(p, format, at);
    }
    for (; *at < format->size; ++*at) {
        char c = format->bytes[*at];
        if (c == '-')
            spec.align = '<';
        else if (c == '0')
            spec.zero = true;
        else if (c == '#')
            spec.alternate = true;
        else if (c == '+' || (c == ' ' && spec.sign != '+'))
            spec.sign = c;
        else if (c != ' ')
            break;
    }
    spec.width = starred(p, format, at, JINJA_WIDTH_MAX);
    if (spec.width < 0) {
        spec.align = '<';
        spec.width = -spec.width;
    }
    if (*at < format->size && format->bytes[*at] == '.') {
        ++*at;
        spec.precision = starred(p, format, at, JINJA_PRECISION_MAX);
        spec.precision = spec.precision < 0 ? 0 : spec.precision;
    }
    if (*at < format->size && strchr("hlL", format->bytes[*at]) && format->bytes[*at])
        ++*at;
    if (*at >= format->size)
        jinja_fail_format(p->render, "a field is incomplete");
    spec.type = format->bytes[(*at)++];
    if (spec.type == '%') {
        jinja_append_part(b, format, *at - 1, *at);
        return;
    }
    percent_value(b, &spec, v.type == JINJA_ABSENT ? next_argument(p) : v);
}

jinja_value jinja_format_percent(jinja_render *r, const jinja_string *format, jinja_value arguments)
{
    percent p = { .render = r, .arguments = arguments };
    jinja_builder b;
    jinja_build_begin(&b, r);
    for (size_t at = 0; at < format->size;) {
        size_t found = jinja_find(r, jinja_slice(format), SLICE("%"), at);
        size_t end = found == SIZE_MAX ? format->size : found;
        jinja_append_part(&b, format, at, end);
        at = end + 1;
        if (found != SIZE_MAX)
            percent_field(&p, &b, format, &at);
    }
    bool mapping = arguments.type == JINJA_DICT || arguments.type == JINJA_LIST;
    uint32_t count = arguments.type == JINJA_TUPLE ? arguments.list->count : 1;
    if (!mapping && p.used < count)
        jinja_fail_format(r, "not all arguments were used");
    return jinja_build_end(&b);
}
