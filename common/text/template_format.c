// Formatting by a specification, as Python does it for "%s" % x and for "{}".format(x).
//
// What Python has and this does not (nested fields, `n`, `#` with a float) is an error.
#include "text/template_private.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { NUMBER_MAX = 512 };

_Noreturn void jinja_fail_format(jinja_render *r, const char *what)
{
    jinja_fail(&r->task, TEMPLATE_FAULT_TYPE, "format: %s", what);
}

static void pad(jinja_builder *b, slice fill, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        jinja_append(b, fill, JINJA_CONTENT);
}

void jinja_format_text(jinja_builder *b, const jinja_format_spec *spec, const jinja_string *s)
{
    size_t end = spec->precision >= 0 ? jinja_offset(b->render, s, spec->precision) : s->size;
    const jinja_string *part = jinja_part(b->render, s, 0, end).string;
    int64_t missing = spec->width - (int64_t)part->length, left = 0;
    if (spec->align == '=')
        jinja_fail_format(b->render, "'=' is not allowed for a string");
    if (missing > 0)
        left = spec->align == '>' ? missing : spec->align == '^' ? missing / 2 : 0;
    pad(b, spec->fill, left);
    jinja_append_string(b, part);
    pad(b, spec->fill, missing - left);
}

// A number in three parts: sign and prefix, digits, and what pads them.
static void append_number(jinja_builder *b, const jinja_format_spec *spec, bool negative,
                          const char *prefix, const char *digits)
{
    char head[8];
    snprintf(head, sizeof head, "%s%s",
             negative     ? "-"
             : spec->sign ? (char[]){ spec->sign, 0 }
                          : "",
             prefix);
    int64_t missing = spec->width - (int64_t)(strlen(head) + strlen(digits)), left = 0;
    char align = spec->align ? spec->align : spec->zero ? '=' : '>';
    slice fill = spec->zero && !spec->align ? SLICE("0") : spec->fill;
    if (missing > 0)
        left = align == '<' ? 0 : align == '^' ? missing / 2 : missing;
    if (align != '=')
        pad(b, fill, left);
    jinja_append_text(b, head);
    if (align == '=')
        pad(b, fill, left);
    jinja_append_text(b, digits);
    pad(b, fill, missing - left);
}

// Put `group` between every three digits of the integer part.
static void group_digits(jinja_render *r, const jinja_format_spec *spec, char *digits)
{
    char grouped[NUMBER_MAX];
    size_t whole = strspn(digits, "0123456789"), size = 0, all = strlen(digits);
    if (!spec->group)
        return;
    if (spec->zero || all * 2 >= sizeof grouped)
        jinja_fail_format(r, "grouping with leading zeros or of so long a number is not supported");
    for (size_t i = 0; i < all; i++) {
        if (i > 0 && i < whole && (whole - i) % 3 == 0)
            grouped[size++] = spec->group;
        grouped[size++] = digits[i];
    }
    grouped[size] = '\0';
    strcpy(digits, grouped);
}

void jinja_format_integer(jinja_builder *b, const jinja_format_spec *spec, int64_t integer)
{
    char digits[NUMBER_MAX], raw[72];
    uint64_t magnitude = integer < 0 ? 0 - (uint64_t)integer : (uint64_t)integer;
    unsigned base = spec->type == 'x' || spec->type == 'X' ? 16
                    : spec->type == 'o'                    ? 8
                    : spec->type == 'b'                    ? 2
                                                           : 10;
    size_t at = sizeof raw;
    raw[--at] = '\0';
    do {
        raw[--at] = (spec->type == 'X' ? "0123456789ABCDEF" : "0123456789abcdef")[magnitude % base];
        magnitude /= base;
    } while (magnitude);
    size_t size = strlen(raw + at);
    size_t zeros = spec->precision > (int)size ? (size_t)spec->precision - size : 0;
    memset(digits, '0', zeros);
    strcpy(digits + zeros, raw + at);
    if (base == 10)
        group_digits(b->render, spec, digits);
    char prefix[3] = { '0', spec->type, '\0' };
    append_number(b, spec, integer < 0, spec->alternate && base != 10 ? prefix : "", digits);
}

void jinja_format_real(jinja_builder *b, const jinja_format_spec *spec, double real)
{
    char digits[NUMBER_MAX];
    int precision = spec->precision >= 0 ? spec->precision : 6;
    if (spec->alternate)
        jinja_fail_format(b->render, "'#' is not supported for a float");
    double size = fabs(real);
    switch (isfinite(real) ? spec->type : 'r') {
    case 'f':
    case 'F':
        snprintf(digits, sizeof digits, "%.*f", precision, size);
        break;
    case '%':
        snprintf(digits, sizeof digits, "%.*f%%", precision, size * 100);
        break;
    case 'e':
        snprintf(digits, sizeof digits, "%.*e", precision, size);
        break;
    case 'E':
        snprintf(digits, sizeof digits, "%.*E", precision, size);
        break;
    case 'g':
        snprintf(digits, sizeof digits, "%.*g", precision, size);
        break;
    case 'G':
        snprintf(digits, sizeof digits, "%.*G", precision, size);
        break;
    default:
        if (spec->precision >= 0 && isfinite(real))
            jinja_fail_format(b->render, "a precision for a float needs a type such as f");
        jinja_format_float(size, digits);
    }
    group_digits(b->render, spec, digits);
    append_number(b, spec, signbit(real) && !isnan(real), "", digits);
}

void jinja_format_character(jinja_builder *b, const jinja_format_spec *spec, jinja_value v)
{
    int64_t point;
    if (v.type == JINJA_STRING && v.string->length == 1) {
        jinja_format_text(b, spec, v.string);
        return;
    }
    if (!jinja_integral(v, &point) || point < 0 || point > 0x10FFFF ||
        (point >= 0xD800 && point <= 0xDFFF))
        jinja_fail_format(b->render, "c needs a character or its number");
    char *bytes = jinja_allocate(&b->render->task, 4);
    slice text = { bytes, jinja_encode((uint32_t)point, bytes) };
    jinja_format_text(b, spec, jinja_text(b->render, text, JINJA_CONTENT).string);
}

jinja_value jinja_repr(jinja_render *r, jinja_value v)
{
    jinja_builder b;
    jinja_build_begin(&b, r);
    jinja_print_repr(&b, v);
    return jinja_build_end(&b);
}

int jinja_format_number(jinja_render *r, const char *bytes, size_t size, size_t *at, int most)
{
    int number = 0;
    while (*at < size && bytes[*at] >= '0' && bytes[*at] <= '9') {
        number = number * 10 + (bytes[(*at)++] - '0');
        if (number > most)
            jinja_fail_format(r, "a width or precision is too large");
    }
    return number;
}
