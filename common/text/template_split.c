// Cutting strings into lists, padding them, and reading numbers out of them.
#include "text/template_private.h"

#include <errno.h>
#include <stdlib.h>

static bool is_line_end(uint32_t c)
{
    return c == '\n' || c == '\r' || c == 0x0B || c == 0x0C || (c >= 0x1C && c <= 0x1E) ||
           c == 0x85 || c == 0x2028 || c == 0x2029;
}

jinja_list *jinja_split_lines(jinja_render *r, const jinja_string *s, bool keep_ends)
{
    jinja_list *lines = jinja_list_new(r, 0);
    size_t from = 0;
    for (size_t at = 0, size; at < s->size; at += size) {
        uint32_t point = jinja_decode(s->bytes + at, &size);
        if (!is_line_end(point))
            continue;
        if (point == '\r' && at + 1 < s->size && s->bytes[at + 1] == '\n')
            size = 2;
        jinja_list_add(r, lines, jinja_part(r, s, from, keep_ends ? at + size : at));
        from = at + size;
    }
    if (from < s->size)
        jinja_list_add(r, lines, jinja_part(r, s, from, s->size));
    return lines;
}

static void reverse(jinja_list *list)
{
    for (uint32_t i = 0; i < list->count / 2; i++) {
        jinja_value v = list->items[i];
        list->items[i] = list->items[list->count - 1 - i];
        list->items[list->count - 1 - i] = v;
    }
}

static size_t skip_left(const jinja_string *s, size_t at, bool space)
{
    size_t size;
    while (at < s->size && jinja_is_space(jinja_decode(s->bytes + at, &size)) == space)
        at += size;
    return at;
}

static size_t skip_right(const jinja_string *s, size_t end, bool space)
{
    size_t ignored;
    while (end > 0) {
        size_t size = jinja_last_size(s->bytes, end);
        if (jinja_is_space(jinja_decode(s->bytes + end - size, &ignored)) != space)
            break;
        end -= size;
    }
    return end;
}

static void split_space(jinja_render *r, const jinja_string *s, int64_t limit, jinja_list *parts)
{
    for (size_t at = skip_left(s, 0, true), end; at < s->size; at = skip_left(s, end, true)) {
        end = limit-- == 0 ? s->size : skip_left(s, at, false);
        jinja_list_add(r, parts, jinja_part(r, s, at, end));
    }
}

static void split_space_right(jinja_render *r, const jinja_string *s, int64_t limit,
                              jinja_list *parts)
{
    for (size_t end = skip_right(s, s->size, true), at; end > 0; end = skip_right(s, at, true)) {
        at = limit-- == 0 ? 0 : skip_right(s, end, false);
        jinja_list_add(r, parts, jinja_part(r, s, at, end));
    }
    reverse(parts);
}

static void split_at(jinja_render *r, const jinja_string *s, slice separator, int64_t limit,
                     jinja_list *parts)
{
    size_t from = 0;
    for (; limit != 0; limit--) {
        size_t found = jinja_find(r, jinja_slice(s), separator, from);
        if (found == SIZE_MAX)
            break;
        jinja_list_add(r, parts, jinja_part(r, s, from, found));
        from = found + separator.size;
    }
    jinja_list_add(r, parts, jinja_part(r, s, from, s->size));
}

static void split_at_right(jinja_render *r, const jinja_string *s, slice separator, int64_t limit,
                           jinja_list *parts)
{
    size_t end = s->size;
    for (; limit != 0; limit--) {
        size_t found = jinja_find_last(r, jinja_slice(s), separator, end);
        if (found == SIZE_MAX)
            break;
        jinja_list_add(r, parts, jinja_part(r, s, found + separator.size, end));
        end = found;
    }
    jinja_list_add(r, parts, jinja_part(r, s, 0, end));
    reverse(parts);
}

jinja_list *jinja_split(jinja_render *r, const jinja_string *s, const jinja_string *separator,
                        int64_t limit, bool from_right)
{
    jinja_list *parts = jinja_list_new(r, 0);
    jinja_work(r, s->size);
    if (separator && separator->size == 0)
        jinja_fail(&r->task, TEMPLATE_FAULT_TYPE, "split: the separator is empty");
    if (!separator)
        (from_right ? split_space_right : split_space)(r, s, limit, parts);
    else
        (from_right ? split_at_right : split_at)(r, s, jinja_slice(separator), limit, parts);
    return parts;
}

jinja_value jinja_pad(jinja_render *r, const jinja_string *s, int64_t width,
                      const jinja_string *fill, int side)
{
    int64_t missing = width - s->length;
    if (missing <= 0)
        return jinja_part(r, s, 0, s->size);
    if (fill->length != 1)
        jinja_fail(&r->task, TEMPLATE_FAULT_TYPE, "the fill must be exactly one character");
    int64_t left = side == JINJA_LEFT    ? missing
                   : side == JINJA_RIGHT ? 0
                                         : missing / 2 + (missing & width & 1);
    jinja_builder b;
    jinja_build_begin(&b, r);
    for (int64_t i = 0; i < left; i++)
        jinja_append_string(&b, fill);
    jinja_append_string(&b, s);
    for (int64_t i = left; i < missing; i++)
        jinja_append_string(&b, fill);
    return jinja_build_end(&b);
}

static slice trimmed(slice text)
{
    jinja_string s = { .bytes = text.data, .size = (uint32_t)text.size };
    size_t from = skip_left(&s, 0, true), to = skip_right(&s, text.size, true);
    return to > from ? (slice){ text.data + from, to - from } : (slice){ text.data, 0 };
}

// Copy without underscores, which may only stand between two of the `allowed` characters.
static bool copy_number(slice text, const char *allowed, char *out, size_t room)
{
    size_t size = 0;
    for (size_t i = 0; i < text.size; i++) {
        char c = text.data[i];
        bool inner = i > 0 && i + 1 < text.size && text.data[i - 1] != '_';
        if (c == '_' && inner && strchr(allowed, text.data[i - 1]) && text.data[i + 1] &&
            strchr(allowed, text.data[i + 1]))
            continue;
        if (!c || size + 1 >= room)
            return false;
        out[size++] = c;
    }
    out[size] = '\0';
    return size > 0;
}

int jinja_parse_int(slice text, int base, int64_t *integer)
{
    char digits[128], *end;
    text = trimmed(text);
    if (!copy_number(text, "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ", digits,
                     sizeof digits))
        return 0;
    char *number = digits + (digits[0] == '-' || digits[0] == '+');
    if (number[0] == '0' && number[1] && strchr("xXoObB", number[1])) {
        int named = strchr("xX", number[1]) ? 16 : strchr("oO", number[1]) ? 8 : 2;
        if (base == named || base == 0) {
            base = named;
            number += 2;
        }
    }
    if (base == 0)
        base = 10;
    const char *p = number;
    for (; *p; p++) {
        int value = *p >= '0' && *p <= '9'   ? *p - '0'
                    : *p >= 'a' && *p <= 'z' ? *p - 'a' + 10
                    : *p >= 'A' && *p <= 'Z' ? *p - 'A' + 10
                                             : 99;
        if (value >= base)
            return 0;
    }
    if (p == number)
        return 0;
    errno = 0;
    unsigned long long magnitude = strtoull(number, &end, base);
    bool negative = digits[0] == '-';
    if (errno || magnitude > (unsigned long long)INT64_MAX + negative)
        return -1;
    *integer = negative ? (int64_t)(0 - magnitude) : (int64_t)magnitude;
    return 1;
}

bool jinja_parse_float(slice text, double *real)
{
    char digits[512], *end;
    if (!copy_number(trimmed(text), "0123456789", digits, sizeof digits))
        return false;
    for (const char *p = digits; *p; p++) // strtod also knows hexadecimal and nan(...)
        if (strchr("xXpP(", *p))
            return false;
    *real = strtod(digits, &end);
    return *end == '\0';
}
