// "{} {0} {name.attribute[key]!r:>8}".format(...), without fields within fields.
#include "text/template_private.h"

#include <stdlib.h>

static bool is_align(char c)
{
    return c == '<' || c == '>' || c == '^' || c == '=';
}

static jinja_format_spec read_spec(jinja_render *r, slice text)
{
    jinja_format_spec spec = { .fill = SLICE(" "), .precision = -1 };
    size_t at = 0, size = 0;
    if (text.size > 0)
        jinja_decode(text.data, &size);
    if (size > 0 && size < text.size && is_align(text.data[size])) {
        spec.fill = (slice){ text.data, size };
        spec.align = text.data[size];
        at = size + 1;
    } else if (text.size > 0 && is_align(text.data[0])) {
        spec.align = text.data[at++];
    }
    if (at < text.size && (text.data[at] == '+' || text.data[at] == ' '))
        spec.sign = text.data[at++];
    else if (at < text.size && text.data[at] == '-')
        at++;
    if (at < text.size && text.data[at] == '#')
        spec.alternate = text.data[at++];
    if (at < text.size && text.data[at] == '0')
        spec.zero = text.data[at++];
    spec.width = jinja_format_number(r, text.data, text.size, &at, JINJA_WIDTH_MAX);
    if (at < text.size && (text.data[at] == ',' || text.data[at] == '_'))
        spec.group = text.data[at++];
    if (at < text.size && text.data[at] == '.') {
        size_t digits = ++at;
        spec.precision = jinja_format_number(r, text.data, text.size, &at, JINJA_PRECISION_MAX);
        if (digits == at)
            jinja_fail_format(r, "a precision has no digits");
    }
    if (at < text.size)
        spec.type = text.data[at++];
    if (at < text.size)
        jinja_fail_format(r, "a specification is not valid");
    return spec;
}

static void format_value(jinja_builder *b, jinja_value v, slice text)
{
    int64_t integer;
    jinja_render *r = b->render;
    if (text.size == 0) {
        jinja_print(b, v);
        return;
    }
    jinja_format_spec spec = read_spec(r, text);
    if (v.type == JINJA_STRING) {
        if (spec.sign || spec.alternate || spec.group || (spec.type && spec.type != 's'))
            jinja_fail_format(r, "the specification does not fit a string");
        if (spec.zero && !spec.align)
            spec.fill = SLICE("0");
        jinja_format_text(b, &spec, v.string);
        return;
    }
    bool integral = jinja_integral(v, &integer);
    if (!integral && v.type != JINJA_FLOAT)
        jinja_fail_format(r, "a specification needs a string or a number");
    if (spec.type && !strchr(integral ? "dboxXceEfFgG%" : "eEfFgG%", spec.type))
        jinja_fail_format(r, "the specification does not fit a number");
    if (!integral) {
        jinja_format_real(b, &spec, v.real);
    } else if (spec.type && strchr("eEfFgG%", spec.type)) {
        jinja_format_real(b, &spec, (double)integer);
    } else if (spec.precision >= 0) {
        jinja_fail_format(r, "a precision does not fit an integer");
    } else if (spec.type == 'c') {
        jinja_format_character(b, &spec, v);
    } else {
        jinja_format_integer(b, &spec, integer);
    }
}

// The value of "name.attribute[key]"; `automatic` counts fields without a name (-1: they are
// numbered).
static jinja_value field_value(jinja_render *r, const jinja_arguments *arguments,
                               const jinja_string *field, int64_t *automatic)
{
    size_t end = 0;
    int64_t index = -1;
    jinja_value v = { .type = JINJA_ABSENT };
    while (end < field->size && field->bytes[end] != '.' && field->bytes[end] != '[')
        end++;
    slice name = { field->bytes, end };
    bool digits = end > 0 && end < 10;
    for (size_t i = 0; i < end; i++)
        digits = digits && name.data[i] >= '0' && name.data[i] <= '9';
    if (end == 0 && *automatic >= 0)
        index = (*automatic)++;
    else if (digits && *automatic <= 0 && (*automatic = -1))
        index = strtol(name.data, NULL, 10);
    else if (end == 0 || digits)
        jinja_fail_format(r, "numbered fields and fields without a number do not mix");
    if (index >= 0 && index < arguments->count)
        v = arguments->values[index];
    for (uint32_t i = 0; index < 0 && i < arguments->named_count; i++)
        if (slice_equal(jinja_slice(arguments->names[i]), name))
            v = arguments->named[i];
    if (v.type == JINJA_ABSENT)
        jinja_fail_format(r, "a field has no argument");
    while (end < field->size) {
        bool item = field->bytes[end] == '[';
        size_t from = end + 1, to = from;
        while (to < field->size && (item ? field->bytes[to] != ']'
                                         : field->bytes[to] != '.' && field->bytes[to] != '['))
            to++;
        if (to == from || (item && to == field->size))
            jinja_fail_format(r, "the name of a field is not valid");
        jinja_value part = jinja_part(r, field, from, to);
        int64_t number;
        if (item && jinja_parse_int(jinja_slice(part.string), 10, &number) > 0)
            v = jinja_item(r, v, jinja_int(number));
        else
            v = item ? jinja_item(r, v, part) : jinja_attribute(r, v, part.string);
        end = to + item;
    }
    return v;
}

static void brace_field(jinja_builder *b, const jinja_arguments *arguments, const jinja_string *s,
                        size_t from, size_t to, int64_t *automatic)
{
    jinja_render *r = b->render;
    size_t colon = jinja_find(r, (slice){ s->bytes, to }, SLICE(":"), from);
    size_t name_end = colon == SIZE_MAX ? to : colon;
    slice spec = { s->bytes + to, 0 };
    char conversion = '\0';
    if (colon != SIZE_MAX)
        spec = (slice){ s->bytes + colon + 1, to - colon - 1 };
    if (name_end >= from + 2 && s->bytes[name_end - 2] == '!') {
        conversion = s->bytes[name_end - 1];
        name_end -= 2;
    }
    jinja_value v = field_value(r, arguments, jinja_part(r, s, from, name_end).string, automatic);
    if (conversion && conversion != 's' && conversion != 'r')
        jinja_fail_format(r, "the conversion after '!' is s or r");
    if (conversion)
        v = conversion == 's' ? jinja_string_of(r, v) : jinja_repr(r, v);
    format_value(b, v, spec);
}

jinja_value jinja_format_braces(jinja_render *r, jinja_value self, const jinja_arguments *arguments)
{
    const jinja_string *s = self.string;
    int64_t automatic = 0;
    jinja_builder b;
    jinja_build_begin(&b, r);
    for (size_t at = 0, from = 0; at < s->size; from = at) {
        while (at < s->size && s->bytes[at] != '{' && s->bytes[at] != '}')
            at++;
        jinja_append_part(&b, s, from, at);
        if (at == s->size)
            break;
        if (at + 1 < s->size && s->bytes[at + 1] == s->bytes[at]) {
            jinja_append_part(&b, s, at, at + 1);
            at += 2;
            continue;
        }
        size_t end = at + 1;
        while (end < s->size && s->bytes[end] != '}' && s->bytes[end] != '{')
            end++;
        if (s->bytes[at] == '}' || end == s->size || s->bytes[end] == '{')
            jinja_fail_format(r, "a brace stands alone, or a field is within another");
        brace_field(&b, arguments, s, at + 1, end, &automatic);
        at = end + 1;
    }
    return jinja_build_end(&b);
}
