// The methods of strings. Arguments are Python's; what Python has and is not here is undefined.
#include "text/template_private.h"

#define METHOD(name)                                                                               \
    static jinja_value name(jinja_render *r, jinja_value self, const jinja_arguments *arguments)

static bool given(jinja_value v)
{
    return v.type != JINJA_ABSENT && v.type != JINJA_NONE;
}

static const jinja_string *optional_string(jinja_render *r, jinja_value v, const char *what)
{
    return given(v) ? jinja_need_string(r, v, what) : NULL;
}

#define CASE_METHOD(name, way)                                                                     \
    METHOD(name)                                                                                   \
    {                                                                                              \
        (void)arguments;                                                                           \
        return jinja_recase(r, self.string, way);                                                  \
    }
CASE_METHOD(method_upper, JINJA_UPPER)
CASE_METHOD(method_lower, JINJA_LOWER)
CASE_METHOD(method_title, JINJA_TITLE)
CASE_METHOD(method_capitalize, JINJA_CAPITALIZE)
CASE_METHOD(method_swapcase, JINJA_SWAP)

#define STRIP_METHOD(name, sides)                                                                  \
    METHOD(name)                                                                                   \
    {                                                                                              \
        return jinja_strip(r, self.string,                                                         \
                           optional_string(r, arguments->values[0], "the set of characters"),      \
                           sides);                                                                 \
    }
STRIP_METHOD(method_strip, JINJA_LEFT | JINJA_RIGHT)
STRIP_METHOD(method_lstrip, JINJA_LEFT)
STRIP_METHOD(method_rstrip, JINJA_RIGHT)

// The bytes that the arguments `start` and `end` (at `at` and after) leave; false: none can match.
static bool window(jinja_render *r, jinja_value self, const jinja_value *bounds, size_t *from,
                   size_t *to)
{
    int64_t length = self.string->length, start = 0, end = length;
    if (given(bounds[0]))
        start = jinja_need_int(r, bounds[0], "start");
    if (given(bounds[1]))
        end = jinja_need_int(r, bounds[1], "end");
    if (start < 0)
        start = start + length < 0 ? 0 : start + length;
    if (end < 0)
        end = end + length < 0 ? 0 : end + length;
    if (end > length)
        end = length;
    if (start > end)
        return false;
    *from = jinja_offset(r, self.string, start);
    *to = jinja_offset(r, self.string, end);
    return true;
}

static int64_t find(jinja_render *r, jinja_value self, const jinja_arguments *arguments, bool last)
{
    const jinja_string *s = self.string,
                       *needle = jinja_need_string(r, arguments->values[0], "sub");
    size_t from, to;
    if (!window(r, self, arguments->values + 1, &from, &to))
        return -1;
    slice text = { s->bytes, to };
    size_t found = last ? jinja_find_last(r, text, jinja_slice(needle), to)
                        : jinja_find(r, text, jinja_slice(needle), from);
    if (found == SIZE_MAX || found < from)
        return -1;
    jinja_work(r, found);
    return (int64_t)jinja_count_points((slice){ s->bytes, found });
}

METHOD(method_find)
{
    return jinja_int(find(r, self, arguments, false));
}

METHOD(method_rfind)
{
    return jinja_int(find(r, self, arguments, true));
}

static jinja_value need_found(jinja_render *r, int64_t index)
{
    if (index < 0)
        jinja_fail(&r->task, TEMPLATE_FAULT_TYPE, "index: the substring is not found");
    return jinja_int(index);
}

METHOD(method_index)
{
    return need_found(r, find(r, self, arguments, false));
}

METHOD(method_rindex)
{
    return need_found(r, find(r, self, arguments, true));
}

METHOD(method_count)
{
    const jinja_string *needle = jinja_need_string(r, arguments->values[0], "sub");
    size_t from, to;
    int64_t count = 0;
    if (!window(r, self, arguments->values + 1, &from, &to))
        return jinja_int(0);
    slice text = { self.string->bytes, to };
    if (needle->size == 0)
        return jinja_int(
            (int64_t)jinja_count_points((slice){ self.string->bytes + from, to - from }) + 1);
    while ((from = jinja_find(r, text, jinja_slice(needle), from)) != SIZE_MAX) {
        count++;
        from += needle->size;
    }
    return jinja_int(count);
}

static bool has_affix(jinja_render *r, jinja_value self, size_t from, size_t to, jinja_value affix,
                      bool front)
{
    const jinja_string *s = jinja_need_string(r, affix, "a prefix or suffix");
    jinja_work(r, s->size);
    return to - from >= s->size &&
           memcmp(self.string->bytes + (front ? from : to - s->size), s->bytes, s->size) == 0;
}

static jinja_value affix_test(jinja_render *r, jinja_value self, const jinja_arguments *arguments,
                              bool front)
{
    jinja_value affix = arguments->values[0];
    size_t from, to;
    if (affix.type != JINJA_TUPLE)
        jinja_need_string(r, affix, "a prefix or suffix");
    if (!window(r, self, arguments->values + 1, &from, &to))
        return jinja_bool(false);
    if (affix.type != JINJA_TUPLE)
        return jinja_bool(has_affix(r, self, from, to, affix, front));
    for (uint32_t i = 0; i < affix.list->count; i++)
        if (has_affix(r, self, from, to, affix.list->items[i], front))
            return jinja_bool(true);
    return jinja_bool(false);
}

METHOD(method_startswith)
{
    return affix_test(r, self, arguments, true);
}

METHOD(method_endswith)
{
    return affix_test(r, self, arguments, false);
}

METHOD(method_removeprefix)
{
    size_t size = jinja_need_string(r, arguments->values[0], "the prefix")->size;
    bool has = has_affix(r, self, 0, self.string->size, arguments->values[0], true);
    return jinja_part(r, self.string, has ? size : 0, self.string->size);
}

METHOD(method_removesuffix)
{
    size_t size = jinja_need_string(r, arguments->values[0], "the suffix")->size;
    bool has = has_affix(r, self, 0, self.string->size, arguments->values[0], false);
    return jinja_part(r, self.string, 0, self.string->size - (has ? size : 0));
}

static jinja_value split(jinja_render *r, jinja_value self, const jinja_arguments *arguments,
                         bool from_right)
{
    const jinja_string *separator = optional_string(r, arguments->values[0], "the separator");
    int64_t limit = arguments->values[1].type == JINJA_ABSENT
                        ? -1
                        : jinja_need_int(r, arguments->values[1], "maxsplit");
    return jinja_list_value(jinja_split(r, self.string, separator, limit, from_right), JINJA_LIST);
}

METHOD(method_split)
{
    return split(r, self, arguments, false);
}

METHOD(method_rsplit)
{
    return split(r, self, arguments, true);
}

METHOD(method_splitlines)
{
    return jinja_list_value(jinja_split_lines(r, self.string, jinja_true(r, arguments->values[0])),
                            JINJA_LIST);
}

static jinja_value partition(jinja_render *r, jinja_value self, const jinja_arguments *arguments,
                             bool last)
{
    const jinja_string *s = self.string;
    const jinja_string *separator = jinja_need_string(r, arguments->values[0], "the separator");
    if (separator->size == 0)
        jinja_fail(&r->task, TEMPLATE_FAULT_TYPE, "partition: the separator is empty");
    size_t at = last ? jinja_find_last(r, jinja_slice(s), jinja_slice(separator), s->size)
                     : jinja_find(r, jinja_slice(s), jinja_slice(separator), 0);
    size_t first = at != SIZE_MAX ? at : last ? 0 : s->size;
    size_t second = at != SIZE_MAX ? at + separator->size : first;
    jinja_list *three = jinja_list_new(r, 3);
    jinja_list_add(r, three, jinja_part(r, s, 0, first));
    jinja_list_add(r, three, jinja_part(r, s, first, second));
    jinja_list_add(r, three, jinja_part(r, s, second, s->size));
    return jinja_list_value(three, JINJA_TUPLE);
}

METHOD(method_partition)
{
    return partition(r, self, arguments, false);
}

METHOD(method_rpartition)
{
    return partition(r, self, arguments, true);
}

METHOD(method_replace)
{
    const jinja_value *a = arguments->values;
    return jinja_replace(r, self.string, jinja_need_string(r, a[0], "old"),
                         jinja_need_string(r, a[1], "new"),
                         a[2].type == JINJA_ABSENT ? -1 : jinja_need_int(r, a[2], "count"));
}

METHOD(method_join)
{
    const jinja_list *list = jinja_iterate(r, arguments->values[0]);
    jinja_builder b;
    jinja_build_begin(&b, r);
    for (uint32_t i = 0; i < list->count; i++) {
        if (i > 0)
            jinja_append_string(&b, self.string);
        jinja_append_string(&b, jinja_need_string(r, list->items[i], "an element to join"));
    }
    return jinja_build_end(&b);
}

static jinja_value pad(jinja_render *r, jinja_value self, const jinja_arguments *arguments,
                       int sides)
{
    const jinja_string *fill = arguments->values[1].type == JINJA_ABSENT
                                   ? jinja_text(r, SLICE(" "), JINJA_MARKUP).string
                                   : jinja_need_string(r, arguments->values[1], "the fill");
    return jinja_pad(r, self.string, jinja_need_int(r, arguments->values[0], "width"), fill, sides);
}

METHOD(method_center)
{
    return pad(r, self, arguments, JINJA_LEFT | JINJA_RIGHT);
}

METHOD(method_ljust)
{
    return pad(r, self, arguments, JINJA_RIGHT);
}

METHOD(method_rjust)
{
    return pad(r, self, arguments, JINJA_LEFT);
}

METHOD(method_zfill)
{
    const jinja_string *s = self.string;
    int64_t width = jinja_need_int(r, arguments->values[0], "width");
    size_t sign = s->size > 0 && (s->bytes[0] == '-' || s->bytes[0] == '+');
    const jinja_string *rest = jinja_part(r, s, sign, s->size).string;
    jinja_builder b;
    jinja_build_begin(&b, r);
    jinja_append_part(&b, s, 0, sign);
    jinja_append_string(&b, jinja_pad(r, rest, width > (int64_t)sign ? width - (int64_t)sign : 0,
                                      jinja_text(r, SLICE("0"), JINJA_MARKUP).string, JINJA_LEFT)
                                .string);
    return jinja_build_end(&b);
}

METHOD(method_expandtabs)
{
    int64_t width = arguments->values[0].type == JINJA_ABSENT
                        ? 8
                        : jinja_need_int(r, arguments->values[0], "tabsize");
    int64_t column = 0;
    jinja_builder b;
    jinja_build_begin(&b, r);
    for (size_t at = 0, size; at < self.string->size; at += size, column++) {
        uint32_t point = jinja_decode(self.string->bytes + at, &size);
        if (point != '\t') {
            jinja_append_part(&b, self.string, at, at + size);
            if (point == '\n' || point == '\r')
                column = -1;
            continue;
        }
        int64_t count = width > 0 ? width - column % width : 0;
        for (int64_t i = 0; i < count; i++)
            jinja_append_text(&b, " ");
        column += count - 1;
    }
    return jinja_build_end(&b);
}

const jinja_routine jinja_string_methods[] = {
    { "capitalize", method_capitalize, 0, "" },
    { "center", method_center, 1, "width fillchar" },
    { "count", method_count, 1, "sub start end" },
    { "endswith", method_endswith, 1, "suffix start end" },
    { "expandtabs", method_expandtabs, 0, "tabsize" },
    { "find", method_find, 1, "sub start end" },
    { "format", jinja_format_braces, 0, NULL },
    { "index", method_index, 1, "sub start end" },
    { "join", method_join, 1, "iterable" },
    { "ljust", method_ljust, 1, "width fillchar" },
    { "lower", method_lower, 0, "" },
    { "lstrip", method_lstrip, 0, "chars" },
    { "partition", method_partition, 1, "sep" },
    { "removeprefix", method_removeprefix, 1, "prefix" },
    { "removesuffix", method_removesuffix, 1, "suffix" },
    { "replace", method_replace, 2, "old new count" },
    { "rfind", method_rfind, 1, "sub start end" },
    { "rindex", method_rindex, 1, "sub start end" },
    { "rjust", method_rjust, 1, "width fillchar" },
    { "rpartition", method_rpartition, 1, "sep" },
    { "rsplit", method_rsplit, 0, "sep maxsplit" },
    { "rstrip", method_rstrip, 0, "chars" },
    { "split", method_split, 0, "sep maxsplit" },
    { "splitlines", method_splitlines, 0, "keepends" },
    { "startswith", method_startswith, 1, "prefix start end" },
    { "strip", method_strip, 0, "chars" },
    { "swapcase", method_swapcase, 0, "" },
    { "title", method_title, 0, "" },
    { "upper", method_upper, 0, "" },
    { "zfill", method_zfill, 1, "width" },
};
const size_t jinja_string_method_count = sizeof jinja_string_methods / sizeof *jinja_string_methods;
