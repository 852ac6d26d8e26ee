// Filters on text and numbers, and the table of all filters.
#include "text/template_private.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static const jinja_string *text_of(jinja_render *r, jinja_value v)
{
    return jinja_string_of(r, v).string;
}

static int64_t int_or(jinja_render *r, jinja_value v, int64_t otherwise, const char *what)
{
    return v.type == JINJA_ABSENT ? otherwise : jinja_need_int(r, v, what);
}

#define CASE_FILTER(name, way)                                                                     \
    static jinja_value name(jinja_render *r, jinja_value self, const jinja_arguments *arguments)   \
    {                                                                                              \
        (void)arguments;                                                                           \
        return jinja_recase(r, text_of(r, self), way);                                             \
    }
CASE_FILTER(filter_upper, JINJA_UPPER)
CASE_FILTER(filter_lower, JINJA_LOWER)
CASE_FILTER(filter_title, JINJA_WORDS)
CASE_FILTER(filter_capitalize, JINJA_CAPITALIZE)

static jinja_value filter_trim(jinja_render *r, jinja_value self, const jinja_arguments *arguments)
{
    jinja_value set = arguments->values[0];
    bool given = set.type != JINJA_ABSENT && set.type != JINJA_NONE;
    return jinja_strip(r, text_of(r, self), given ? jinja_need_string(r, set, "trim: chars") : NULL,
                       JINJA_LEFT | JINJA_RIGHT);
}

static jinja_value filter_replace(jinja_render *r, jinja_value self,
                                  const jinja_arguments *arguments)
{
    const jinja_value *given = arguments->values;
    bool counted = given[2].type != JINJA_ABSENT && given[2].type != JINJA_NONE;
    return jinja_replace(r, text_of(r, self), text_of(r, given[0]), text_of(r, given[1]),
                         counted ? jinja_need_int(r, given[2], "replace: count") : -1);
}

static jinja_value filter_center(jinja_render *r, jinja_value self,
                                 const jinja_arguments *arguments)
{
    int64_t width = int_or(r, arguments->values[0], 80, "center: width");
    return jinja_pad(r, text_of(r, self), width, jinja_text(r, SLICE(" "), JINJA_CONTENT).string,
                     JINJA_LEFT | JINJA_RIGHT);
}

static const jinja_string *spaces(jinja_render *r, int64_t count)
{
    return jinja_pad(r, jinja_text(r, SLICE(""), JINJA_MARKUP).string, count,
                     jinja_text(r, SLICE(" "), JINJA_MARKUP).string, JINJA_RIGHT)
        .string;
}

static jinja_value filter_indent(jinja_render *r, jinja_value self,
                                 const jinja_arguments *arguments)
{
    const jinja_value *given = arguments->values; // width first blank
    const jinja_string *indent = given[0].type == JINJA_STRING
                                     ? given[0].string
                                     : spaces(r, int_or(r, given[0], 4, "indent: width"));
    jinja_builder whole, b;
    jinja_build_begin(&whole, r);
    jinja_append_string(&whole, jinja_need_string(r, self, "the value to indent"));
    jinja_append(&whole, SLICE("\n"), JINJA_MARKUP);
    jinja_list *lines = jinja_split_lines(r, jinja_build_end(&whole).string, false);
    jinja_build_begin(&b, r);
    for (uint32_t i = 0; i < lines->count; i++) {
        const jinja_string *line = lines->items[i].string;
        if (i > 0)
            jinja_append(&b, SLICE("\n"), JINJA_MARKUP);
        if (i == 0 ? jinja_true(r, given[1]) : line->size > 0 || jinja_true(r, given[2]))
            jinja_append_string(&b, indent);
        jinja_append_string(&b, line);
    }
    return jinja_build_end(&b);
}

static jinja_value filter_truncate(jinja_render *r, jinja_value self,
                                   const jinja_arguments *arguments)
{
    const jinja_value *given = arguments->values; // length killwords end leeway
    int64_t length = int_or(r, given[0], 255, "truncate: length");
    int64_t leeway = given[3].type == JINJA_NONE ? 5 : int_or(r, given[3], 5, "truncate: leeway");
    const jinja_string *end = given[2].type == JINJA_ABSENT
                                  ? jinja_text(r, SLICE("..."), JINJA_CONTENT).string
                                  : jinja_need_string(r, given[2], "truncate: end");
    if (length < end->length || leeway < 0)
        jinja_fail(&r->task, TEMPLATE_FAULT_TYPE, "truncate: length or leeway is too small");
    int64_t size = jinja_length(r, self); // in Python, a short list passes too
    if (size <= length || size - length <= leeway)
        return self;
    const jinja_string *s = jinja_need_string(r, self, "the value to truncate");
    size_t to = jinja_offset(r, s, length - end->length);
    if (!jinja_true(r, given[1])) {
        size_t space = jinja_find_last(r, jinja_slice(s), SLICE(" "), to);
        to = space == SIZE_MAX ? to : space;
    }
    jinja_builder b;
    jinja_build_begin(&b, r);
    jinja_append_part(&b, s, 0, to);
    jinja_append_string(&b, end);
    return jinja_build_end(&b);
}

static jinja_value filter_wordcount(jinja_render *r, jinja_value self,
                                    const jinja_arguments *arguments)
{
    (void)arguments;
    const jinja_string *s = text_of(r, self);
    int64_t count = 0;
    bool inside = false;
    jinja_work(r, s->size);
    for (size_t at = 0, size; at < s->size; at += size) {
        uint32_t point = jinja_decode(s->bytes + at, &size);
        bool word = jinja_is_alpha(point) || jinja_is_numeric(point) || point == '_';
        count += word && !inside;
        inside = word;
    }
    return jinja_int(count);
}

// Take out what stands between `open` and `close`, as far as both are there.
static const jinja_string *strip_between(jinja_render *r, const jinja_string *s, slice open,
                                         slice close)
{
    jinja_builder b;
    jinja_build_begin(&b, r);
    size_t at = 0;
    for (;;) {
        size_t from = jinja_find(r, jinja_slice(s), open, at), to = SIZE_MAX;
        if (from != SIZE_MAX)
            to = jinja_find(r, jinja_slice(s), close, from);
        if (to == SIZE_MAX)
            break;
        jinja_append_part(&b, s, at, from);
        at = to + close.size;
    }
    jinja_append_part(&b, s, at, s->size);
    return jinja_build_end(&b).string;
}

static void append_unescaped(jinja_builder *b, const jinja_string *s)
{
    static const char *const names[][2] = {
        { "&amp;", "&" },   { "&lt;", "<" },   { "&gt;", ">" },
        { "&quot;", "\"" }, { "&#34;", "\"" }, { "&#39;", "'" }
    };
    for (size_t at = 0; at < s->size;) {
        size_t found = jinja_find(b->render, jinja_slice(s), SLICE("&"), at), i = 0;
        size_t end = found == SIZE_MAX ? s->size : found;
        jinja_append_part(b, s, at, end);
        at = end;
        if (found == SIZE_MAX)
            return;
        while (i < 6 && (s->size - at < strlen(names[i][0]) ||
                         memcmp(s->bytes + at, names[i][0], strlen(names[i][0])) != 0))
            i++;
        if (i < 6) {
            jinja_append_text(b, names[i][1]);
            at += strlen(names[i][0]);
        } else if (at + 1 < s->size &&
                   (s->bytes[at + 1] == '#' || jinja_is_alpha((uint8_t)s->bytes[at + 1]))) {
            jinja_fail(&b->render->task, TEMPLATE_FAULT_RUNTIME,
                       "striptags: an HTML entity beyond amp, lt, gt, quot, #34 and #39");
        } else {
            jinja_append_part(b, s, at, at + 1);
            at++;
        }
    }
}

static jinja_value filter_striptags(jinja_render *r, jinja_value self,
                                    const jinja_arguments *arguments)
{
    (void)arguments;
    const jinja_string *s = strip_between(r, text_of(r, self), SLICE("<!--"), SLICE("-->"));
    s = strip_between(r, s, SLICE("<"), SLICE(">"));
    jinja_list *words = jinja_split(r, s, NULL, -1, false);
    jinja_builder b;
    jinja_build_begin(&b, r);
    for (uint32_t i = 0; i < words->count; i++) {
        if (i > 0)
            jinja_append_text(&b, " ");
        append_unescaped(&b, words->items[i].string);
    }
    return jinja_build_end(&b);
}

static void append_quoted(jinja_builder *b, const jinja_string *s, bool query)
{
    for (size_t i = 0; i < s->size; i++) {
        char c = s->bytes[i], text[4];
        bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                     (c && strchr("_.-~", c)) || (c == '/' && !query);
        if (plain)
            jinja_append_part(b, s, i, i + 1);
        else if (c == ' ' && query)
            jinja_append_text(b, "+");
        else {
            snprintf(text, sizeof text, "%%%02X", (uint8_t)c);
            jinja_append_text(b, text);
        }
    }
}

static jinja_value filter_urlencode(jinja_render *r, jinja_value self,
                                    const jinja_arguments *arguments)
{
    (void)arguments;
    jinja_builder b;
    jinja_build_begin(&b, r);
    if (self.type == JINJA_STRING || self.type == JINJA_INT || self.type == JINJA_FLOAT ||
        self.type == JINJA_WIDE || self.type == JINJA_BOOL || self.type == JINJA_NONE) {
        append_quoted(&b, text_of(r, self), false);
        return jinja_build_end(&b);
    }
    const jinja_list *pairs =
        self.type == JINJA_DICT ? jinja_items(r, self.dict) : jinja_iterate(r, self);
    for (uint32_t i = 0; i < pairs->count; i++) {
        const jinja_list *pair = jinja_iterate(r, pairs->items[i]);
        if (pair->count != 2)
            jinja_fail(&r->task, TEMPLATE_FAULT_TYPE, "urlencode: an element is no pair");
        if (i > 0)
            jinja_append_text(&b, "&");
        append_quoted(&b, text_of(r, pair->items[0]), true);
        jinja_append_text(&b, "=");
        append_quoted(&b, text_of(r, pair->items[1]), true);
    }
    return jinja_build_end(&b);
}

static jinja_value filter_escape(jinja_render *r, jinja_value self,
                                 const jinja_arguments *arguments)
{
    (void)arguments;
    return jinja_escape(r, self);
}

static jinja_value marked_safe(jinja_render *r, jinja_value self, bool safe)
{
    const jinja_string *s = text_of(r, self);
    jinja_string *copy = jinja_allocate(&r->task, sizeof *copy);
    *copy = *s;
    copy->safe = safe;
    return (jinja_value){ .type = JINJA_STRING, .string = copy };
}

static jinja_value filter_forceescape(jinja_render *r, jinja_value self,
                                      const jinja_arguments *arguments)
{
    (void)arguments;
    return jinja_escape(r, marked_safe(r, self, false));
}

static jinja_value filter_safe(jinja_render *r, jinja_value self, const jinja_arguments *arguments)
{
    (void)arguments;
    return marked_safe(r, self, true);
}

static jinja_value filter_string(jinja_render *r, jinja_value self,
                                 const jinja_arguments *arguments)
{
    (void)arguments;
    return jinja_string_of(r, self);
}

static jinja_value filter_format(jinja_render *r, jinja_value self,
                                 const jinja_arguments *arguments)
{
    jinja_list list = { arguments->values, arguments->count, arguments->count };
    if (arguments->count > 0 && arguments->named_count > 0)
        jinja_fail(&r->task, TEMPLATE_FAULT_TYPE,
                   "format takes named or other arguments, not both");
    if (arguments->named_count == 0)
        return jinja_format_percent(r, text_of(r, self), jinja_list_value(&list, JINJA_TUPLE));
    jinja_dict *dict = jinja_dict_new(r);
    for (uint32_t i = 0; i < arguments->named_count; i++)
        jinja_dict_set(r, dict,
                       (jinja_value){ .type = JINJA_STRING, .string = arguments->names[i] },
                       arguments->named[i]);
    return jinja_format_percent(r, text_of(r, self),
                                (jinja_value){ .type = JINJA_DICT, .dict = dict });
}

static jinja_value truncated(jinja_render *r, double real, jinja_value otherwise)
{
    if (isnan(real) || isinf(real))
        return otherwise;
    if (real >= 0x1p63 || real < -0x1p63)
        jinja_fail(&r->task, TEMPLATE_FAULT_TYPE, "an integer does not fit 64 bits");
    return jinja_int((int64_t)real);
}

static jinja_value filter_int(jinja_render *r, jinja_value self, const jinja_arguments *arguments)
{
    jinja_value otherwise = arguments->values[0];
    int64_t base = int_or(r, arguments->values[1], 10, "int: base"), integer;
    double real;
    if (otherwise.type == JINJA_ABSENT)
        otherwise = jinja_int(0);
    jinja_need_defined(r, self);
    if (jinja_integral(self, &integer))
        return jinja_int(integer);
    if (self.type == JINJA_WIDE)
        return self;
    if (self.type == JINJA_FLOAT)
        return truncated(r, self.real, otherwise);
    if (self.type != JINJA_STRING)
        return otherwise;
    bool known = base == 0 || (base >= 2 && base <= 36);
    int read = known ? jinja_parse_int(jinja_slice(self.string), (int)base, &integer) : 0;
    if (read < 0)
        jinja_fail(&r->task, TEMPLATE_FAULT_TYPE, "an integer does not fit 64 bits");
    if (read > 0)
        return jinja_int(integer);
    return jinja_parse_float(jinja_slice(self.string), &real) ? truncated(r, real, otherwise)
                                                              : otherwise;
}

static jinja_value filter_float(jinja_render *r, jinja_value self, const jinja_arguments *arguments)
{
    jinja_value otherwise = arguments->values[0];
    double real;
    if (otherwise.type == JINJA_ABSENT)
        otherwise = jinja_float(0);
    jinja_need_defined(r, self);
    if (jinja_number(self, &real) || ((self.type == JINJA_STRING || self.type == JINJA_WIDE) &&
                                      jinja_parse_float(jinja_slice(self.string), &real))) {
        if (self.type == JINJA_WIDE && isinf(real))
            jinja_fail(&r->task, TEMPLATE_FAULT_TYPE, "float: an integer is too large");
        return jinja_float(real);
    }
    return otherwise;
}

static jinja_value filter_abs(jinja_render *r, jinja_value self, const jinja_arguments *arguments)
{
    (void)arguments;
    int64_t integer;
    if (self.type == JINJA_FLOAT)
        return jinja_float(fabs(self.real));
    jinja_need_defined(r, self);
    if (!jinja_integral(self, &integer) || integer == INT64_MIN)
        jinja_fail(&r->task, TEMPLATE_FAULT_TYPE, "abs: a value of type %s has none",
                   jinja_type_name(self));
    return jinja_int(integer < 0 ? -integer : integer);
}

// Python's round(): half to even on the exact value, which printf does too.
static double round_to(double real, int64_t precision)
{
    char text[400];
    if (precision > 300 || isnan(real) || isinf(real))
        return real;
    if (precision >= 0) {
        snprintf(text, sizeof text, "%.*f", (int)precision, real);
        return fabs(real) < 1e15 ? strtod(text, NULL) : real;
    }
    double scale = pow(10, precision < -300 ? 300 : (double)-precision);
    return nearbyint(real / scale) * scale;
}

static jinja_value filter_round(jinja_render *r, jinja_value self, const jinja_arguments *arguments)
{
    int64_t precision = int_or(r, arguments->values[0], 0, "round: precision"), integer;
    double real;
    slice method = arguments->values[1].type == JINJA_ABSENT
                       ? SLICE("common")
                       : jinja_slice(jinja_need_string(r, arguments->values[1], "round: method"));
    jinja_need_defined(r, self);
    if (!jinja_number(self, &real))
        jinja_fail(&r->task, TEMPLATE_FAULT_TYPE, "round: a value of type %s is no number",
                   jinja_type_name(self));
    bool up = slice_equal(method, SLICE("ceil")), down = slice_equal(method, SLICE("floor"));
    if ((up || down) && jinja_integral(self, &integer) && precision >= 0)
        return jinja_float(real);
    if (up || down) {
        double scale = pow(10, (double)precision);
        return jinja_float((up ? ceil(real * scale) : floor(real * scale)) / scale + 0.0);
    }
    if (!slice_equal(method, SLICE("common")))
        jinja_fail(&r->task, TEMPLATE_FAULT_TYPE, "round: method is common, ceil or floor");
    if (jinja_integral(self, &integer) && precision >= 0)
        return jinja_int(integer);
    if (self.type != JINJA_FLOAT)
        jinja_fail(&r->task, TEMPLATE_FAULT_TYPE, "round: a negative precision needs a float");
    return jinja_float(round_to(real, precision));
}

static jinja_value filter_default(jinja_render *r, jinja_value self,
                                  const jinja_arguments *arguments)
{
    bool use = self.type == JINJA_UNDEFINED ||
               (jinja_true(r, arguments->values[1]) && !jinja_true(r, self));
    if (!use)
        return self;
    return arguments->values[0].type == JINJA_ABSENT ? jinja_text(r, SLICE(""), JINJA_MARKUP)
                                                     : arguments->values[0];
}

const jinja_routine jinja_text_filters[] = {
    { "abs", filter_abs, 0, "" },
    { "capitalize", filter_capitalize, 0, "" },
    { "center", filter_center, 0, "width" },
    { "d", filter_default, 0, "default_value boolean" },
    { "default", filter_default, 0, "default_value boolean" },
    { "e", filter_escape, 0, "" },
    { "escape", filter_escape, 0, "" },
    { "float", filter_float, 0, "default" },
    { "forceescape", filter_forceescape, 0, "" },
    { "format", filter_format, 0, NULL },
    { "indent", filter_indent, 0, "width first blank" },
    { "int", filter_int, 0, "default base" },
    { "lower", filter_lower, 0, "" },
    { "replace", filter_replace, 2, "old new count" },
    { "round", filter_round, 0, "precision method" },
    { "safe", filter_safe, 0, "" },
    { "string", filter_string, 0, "" },
    { "striptags", filter_striptags, 0, "" },
    { "title", filter_title, 0, "" },
    { "tojson", jinja_to_json, 0, "ensure_ascii indent separators sort_keys" },
    { "trim", filter_trim, 0, "chars" },
    { "truncate", filter_truncate, 0, "length killwords end leeway" },
    { "upper", filter_upper, 0, "" },
    { "urlencode", filter_urlencode, 0, "" },
    { "wordcount", filter_wordcount, 0, "" },
};
const size_t jinja_text_filter_count = sizeof jinja_text_filters / sizeof *jinja_text_filters;

const jinja_routine *jinja_find_filter(slice name)
{
    const jinja_routine *found = jinja_find_row(jinja_text_filters, jinja_text_filter_count, name);
    return found ? found : jinja_find_row(jinja_list_filters, jinja_list_filter_count, name);
}
