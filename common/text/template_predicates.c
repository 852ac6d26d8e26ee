// The methods of strings that say what characters they hold: isdigit() and its like.
#include "text/template_private.h"

#define METHOD(name)                                                                               \
    static jinja_value name(jinja_render *r, jinja_value self, const jinja_arguments *arguments)

// True if every character is of the class; an empty string is `empty`.
static jinja_value all_are(jinja_render *r, const jinja_string *s, bool (*is)(uint32_t), bool empty)
{
    jinja_work(r, (size_t)s->size * 4);
    for (size_t at = 0, size; at < s->size; at += size)
        if (!is(jinja_decode(s->bytes + at, &size)))
            return jinja_bool(false);
    return jinja_bool(s->size > 0 || empty);
}

static bool is_alphanumeric(uint32_t point)
{
    return jinja_is_alpha(point) || jinja_is_numeric(point);
}

static bool is_ascii(uint32_t point)
{
    return point < 0x80;
}

#define CLASS_METHOD(name, is, empty)                                                              \
    METHOD(name)                                                                                   \
    {                                                                                              \
        (void)arguments;                                                                           \
        return all_are(r, self.string, is, empty);                                                 \
    }
CLASS_METHOD(method_isalnum, is_alphanumeric, false)
CLASS_METHOD(method_isalpha, jinja_is_alpha, false)
CLASS_METHOD(method_isascii, is_ascii, true)
CLASS_METHOD(method_isdecimal, jinja_is_decimal, false)
CLASS_METHOD(method_isdigit, jinja_is_digit, false)
CLASS_METHOD(method_isnumeric, jinja_is_numeric, false)
CLASS_METHOD(method_isprintable, jinja_is_printable, true)
CLASS_METHOD(method_isspace, jinja_is_space, false)

// At least one cased character, and all of them as wanted.
static jinja_value all_cased(jinja_render *r, const jinja_string *s, bool upper)
{
    bool any = false;
    jinja_work(r, (size_t)s->size * 4);
    for (size_t at = 0, size; at < s->size; at += size) {
        uint32_t point = jinja_decode(s->bytes + at, &size);
        if (upper ? jinja_is_lower(point) || jinja_is_title(point)
                  : jinja_is_upper(point) || jinja_is_title(point))
            return jinja_bool(false);
        any = any || (upper ? jinja_is_upper(point) : jinja_is_lower(point));
    }
    return jinja_bool(any);
}

METHOD(method_islower)
{
    (void)arguments;
    return all_cased(r, self.string, false);
}

METHOD(method_isupper)
{
    (void)arguments;
    return all_cased(r, self.string, true);
}

METHOD(method_istitle)
{
    (void)arguments;
    const jinja_string *s = self.string;
    bool inside = false, any = false;
    jinja_work(r, (size_t)s->size * 4);
    for (size_t at = 0, size; at < s->size; at += size) {
        uint32_t point = jinja_decode(s->bytes + at, &size);
        bool upper = jinja_is_upper(point) || jinja_is_title(point), lower = jinja_is_lower(point);
        if ((upper && inside) || (lower && !inside))
            return jinja_bool(false);
        inside = upper || lower;
        any = any || inside;
    }
    return jinja_bool(any);
}

METHOD(method_isidentifier)
{
    (void)arguments;
    const jinja_string *s = self.string;
    size_t size;
    jinja_work(r, s->size);
    for (size_t at = 0; at < s->size; at += size) {
        uint32_t point = jinja_decode(s->bytes + at, &size);
        if (point != '_' && !jinja_is_alpha(point) && !(at > 0 && jinja_is_decimal(point)))
            return jinja_bool(false);
    }
    return jinja_bool(s->size > 0);
}

const jinja_routine jinja_string_predicates[] = {
    { "isalnum", method_isalnum, 0, "" },         { "isalpha", method_isalpha, 0, "" },
    { "isascii", method_isascii, 0, "" },         { "isdecimal", method_isdecimal, 0, "" },
    { "isdigit", method_isdigit, 0, "" },         { "isidentifier", method_isidentifier, 0, "" },
    { "islower", method_islower, 0, "" },         { "isnumeric", method_isnumeric, 0, "" },
    { "isprintable", method_isprintable, 0, "" }, { "isspace", method_isspace, 0, "" },
    { "istitle", method_istitle, 0, "" },         { "isupper", method_isupper, 0, "" },
};
const size_t jinja_string_predicate_count =
    sizeof jinja_string_predicates / sizeof *jinja_string_predicates;
