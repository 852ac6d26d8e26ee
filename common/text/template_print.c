// Python's str() and repr(). What Python would print with an address in it is an error here.
#include "text/template_syntax.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

// The shortest digits that read back as the same number, laid out as Python does.
void jinja_format_float(double real, char text[JINJA_FLOAT_TEXT])
{
    char digits[32], *exponent_text;
    if (isnan(real) || isinf(real)) {
        strcpy(text, isnan(real) ? "nan" : real < 0 ? "-inf" : "inf");
        return;
    }
    for (int precision = 0; precision < 17; precision++) {
        snprintf(digits, sizeof digits, "%.*e", precision, real);
        if (strtod(digits, NULL) == real)
            break;
    }
    exponent_text = strchr(digits, 'e');
    int exponent = atoi(exponent_text + 1);
    *exponent_text = '\0';
    char *mantissa = digits[0] == '-' ? digits + 1 : digits;
    const char *sign = digits[0] == '-' ? "-" : "";
    size_t count = strlen(mantissa);
    if (count > 1) // take the point out: d.ddd becomes dddd
        memmove(mantissa + 1, mantissa + 2, count-- - 1);
    if (exponent < -4 || exponent >= 16)
        snprintf(text, JINJA_FLOAT_TEXT, "%s%c%s%se%s%02d", sign, mantissa[0], count > 1 ? "." : "",
                 mantissa + 1, exponent < 0 ? "-" : "+", abs(exponent));
    else if (exponent < 0)
        snprintf(text, JINJA_FLOAT_TEXT, "%s0.%.*s%s", sign, -exponent - 1, "000", mantissa);
    else if ((int)count <= exponent + 1)
        snprintf(text, JINJA_FLOAT_TEXT, "%s%s%.*s.0", sign, mantissa, exponent + 1 - (int)count,
                 "0000000000000000");
    else
        snprintf(text, JINJA_FLOAT_TEXT, "%s%.*s.%s", sign, exponent + 1, mantissa,
                 mantissa + exponent + 1);
}

static void repr_escaped(jinja_builder *b, uint32_t point)
{
    char text[16];
    if (point == '\n' || point == '\r' || point == '\t')
        snprintf(text, sizeof text, "\\%c", point == '\n' ? 'n' : point == '\r' ? 'r' : 't');
    else if (point < 0x100)
        snprintf(text, sizeof text, "\\x%02x", point);
    else
        snprintf(text, sizeof text, point < 0x10000 ? "\\u%04x" : "\\U%08x", point);
    jinja_append_text(b, text);
}

static void repr_string(jinja_builder *b, const jinja_string *s)
{
    bool single = memchr(s->bytes, '\'', s->size), twin = memchr(s->bytes, '"', s->size);
    char quote[2] = { single && !twin ? '"' : '\'', '\0' };
    size_t done = 0;
    jinja_append_text(b, quote);
    for (size_t at = 0, size; at < s->size; at += size) {
        uint32_t point = jinja_decode(s->bytes + at, &size);
        if (point != '\\' && point != (uint8_t)quote[0] && jinja_is_printable(point))
            continue;
        jinja_append_part(b, s, done, at);
        done = at + size;
        if (point == '\\' || point == (uint8_t)quote[0])
            jinja_append_text(b, point == '\\' ? "\\\\" : "\\'");
        else
            repr_escaped(b, point);
    }
    jinja_append_part(b, s, done, s->size);
    jinja_append_text(b, quote);
}

static void repr_list(jinja_builder *b, const jinja_list *list, const char *open, const char *close)
{
    jinja_append_text(b, open);
    for (uint32_t i = 0; i < list->count; i++) {
        if (i > 0)
            jinja_append_text(b, ", ");
        jinja_print_repr(b, list->items[i]);
    }
    jinja_append_text(b, close);
}

static void repr_dict(jinja_builder *b, const jinja_dict *dict)
{
    jinja_append_text(b, "{");
    for (uint32_t i = 0; i < dict->count; i++) {
        if (i > 0)
            jinja_append_text(b, ", ");
        jinja_print_repr(b, dict->entries[i].key);
        jinja_append_text(b, ": ");
        jinja_print_repr(b, dict->entries[i].value);
    }
    jinja_append_text(b, "}");
}

static void print_number(jinja_builder *b, jinja_value v)
{
    char text[JINJA_FLOAT_TEXT];
    if (v.type == JINJA_WIDE) {
        jinja_append_string(b, v.string);
        return;
    }
    if (v.type == JINJA_FLOAT)
        jinja_format_float(v.real, text);
    else
        snprintf(text, sizeof text, "%" PRId64, v.integer);
    jinja_append_text(b, text);
}

static void print_object(jinja_builder *b, jinja_value v)
{
    char text[120];
    switch (v.type) {
    case JINJA_RANGE:
        snprintf(text, sizeof text, "range(%" PRId64 ", %" PRId64, v.range->start, v.range->stop);
        jinja_append_text(b, text);
        snprintf(text, sizeof text, ", %" PRId64 ")", v.range->step);
        jinja_append_text(b, v.range->step == 1 ? ")" : text);
        break;
    case JINJA_VIEW:
        jinja_append_text(b, v.view->name);
        repr_list(b, v.view->list, "([", "])");
        break;
    case JINJA_NAMESPACE:
        jinja_append_text(b, "<Namespace ");
        repr_dict(b, v.dict);
        jinja_append_text(b, ">");
        break;
    case JINJA_LOOP:
        snprintf(text, sizeof text, "<LoopContext %u/%u>", v.loop->index + 1, v.loop->list->count);
        jinja_append_text(b, text);
        break;
    case JINJA_MACRO:
        jinja_append_text(b, "<Macro ");
        repr_string(b, v.macro->node->text);
        jinja_append_text(b, ">");
        break;
    default:
        jinja_fail(&b->render->task, TEMPLATE_FAULT_TYPE, "a value of type %s cannot be printed",
                   jinja_type_name(v));
    }
}

void jinja_print_repr(jinja_builder *b, jinja_value v)
{
    jinja_enter(b->render);
    switch (v.type) {
    case JINJA_UNDEFINED:
        jinja_append_text(b, "Undefined");
        break;
    case JINJA_NONE:
        jinja_append_text(b, "None");
        break;
    case JINJA_BOOL:
        jinja_append_text(b, v.boolean ? "True" : "False");
        break;
    case JINJA_INT:
    case JINJA_WIDE:
    case JINJA_FLOAT:
        print_number(b, v);
        break;
    case JINJA_STRING:
        if (v.string->safe)
            jinja_append_text(b, "Markup(");
        repr_string(b, v.string);
        if (v.string->safe)
            jinja_append_text(b, ")");
        break;
    case JINJA_LIST:
        repr_list(b, v.list, "[", "]");
        break;
    case JINJA_TUPLE:
        repr_list(b, v.list, "(", v.list->count == 1 ? ",)" : ")");
        break;
    case JINJA_DICT:
        repr_dict(b, v.dict);
        break;
    default:
        print_object(b, v);
    }
    jinja_leave(b->render);
}

void jinja_print(jinja_builder *b, jinja_value v)
{
    if (v.type == JINJA_STRING)
        jinja_append_string(b, v.string);
    else if (v.type != JINJA_UNDEFINED)
        jinja_print_repr(b, v);
}

jinja_value jinja_string_of(jinja_render *r, jinja_value v)
{
    if (v.type == JINJA_STRING)
        return v;
    jinja_builder b;
    jinja_build_begin(&b, r);
    jinja_print(&b, v);
    return jinja_build_end(&b);
}
