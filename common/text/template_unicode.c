// Characters: UTF-8, Python's classes and its case mappings.
//
// Simple mappings and categories come from utf8proc; the mappings to several characters from
// Unicode's SpecialCasing table, unconditional part, plus the rule for the final sigma.
#include "text/template_private.h"

#include <utf8proc.h>

size_t jinja_encode(uint32_t point, char bytes[4])
{
    return (size_t)utf8proc_encode_char((utf8proc_int32_t)point, (utf8proc_uint8_t *)bytes);
}

size_t jinja_last_size(const char *bytes, size_t end)
{
    size_t size = 1;
    while (size < end && size < 4 && ((uint8_t)bytes[end - size] & 0xC0) == 0x80)
        size++;
    return size;
}

size_t jinja_count_points(slice text)
{
    size_t count = 0;
    for (size_t i = 0; i < text.size; i++)
        count += ((uint8_t)text.data[i] & 0xC0) != 0x80;
    return count;
}

bool jinja_is_space(uint32_t c)
{
    if (c < 0x80)
        return c == ' ' || (c >= '\t' && c <= '\r') || (c >= 0x1C && c <= 0x1F);
    return c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 ||
           c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

static utf8proc_category_t category(uint32_t point)
{
    return utf8proc_category((utf8proc_int32_t)point);
}

bool jinja_is_printable(uint32_t point)
{
    switch (category(point)) {
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
        return false;
    case UTF8PROC_CATEGORY_ZS:
        return point == ' ';
    default:
        return true;
    }
}

bool jinja_is_alpha(uint32_t point)
{
    utf8proc_category_t c = category(point);
    return c == UTF8PROC_CATEGORY_LU || c == UTF8PROC_CATEGORY_LL || c == UTF8PROC_CATEGORY_LT ||
           c == UTF8PROC_CATEGORY_LM || c == UTF8PROC_CATEGORY_LO;
}

bool jinja_is_decimal(uint32_t point)
{
    return category(point) == UTF8PROC_CATEGORY_ND;
}

bool jinja_is_digit(uint32_t point)
{
    return jinja_is_decimal(point) || point == 0xB2 || point == 0xB3 || point == 0xB9 ||
           point == 0x2070 || (point >= 0x2074 && point <= 0x2079) ||
           (point >= 0x2080 && point <= 0x2089);
}

bool jinja_is_numeric(uint32_t point)
{
    utf8proc_category_t c = category(point);
    return c == UTF8PROC_CATEGORY_ND || c == UTF8PROC_CATEGORY_NL || c == UTF8PROC_CATEGORY_NO;
}

bool jinja_is_upper(uint32_t point)
{
    return category(point) == UTF8PROC_CATEGORY_LU;
}

bool jinja_is_lower(uint32_t point)
{
    return category(point) == UTF8PROC_CATEGORY_LL || point == 0xAA || point == 0xBA;
}

bool jinja_is_title(uint32_t point)
{
    return category(point) == UTF8PROC_CATEGORY_LT;
}

static bool is_cased(uint32_t point)
{
    return jinja_is_upper(point) || jinja_is_lower(point) || jinja_is_title(point);
}

static bool is_case_ignorable(uint32_t point)
{
    if (point < 0x80)
        return point == '\'' || point == '.' || point == ':' || point == '^' || point == '`';
    utf8proc_category_t c = category(point);
    return c == UTF8PROC_CATEGORY_MN || c == UTF8PROC_CATEGORY_ME || c == UTF8PROC_CATEGORY_CF ||
           c == UTF8PROC_CATEGORY_LM || c == UTF8PROC_CATEGORY_SK || point == 0xB7 ||
           point == 0x2019;
}

// clang-format off
static const struct {
    uint16_t point, upper[3];
} special_upper[] = {
    { 0xDF, { 0x53, 0x53 } }, { 0x149, { 0x2BC, 0x4E } }, { 0x1F0, { 0x4A, 0x30C } },
    { 0x390, { 0x399, 0x308, 0x301 } }, { 0x3B0, { 0x3A5, 0x308, 0x301 } },
    { 0x587, { 0x535, 0x552 } }, { 0x1E96, { 0x48, 0x331 } }, { 0x1E97, { 0x54, 0x308 } },
    { 0x1E98, { 0x57, 0x30A } }, { 0x1E99, { 0x59, 0x30A } }, { 0x1E9A, { 0x41, 0x2BE } },
    { 0x1F50, { 0x3A5, 0x313 } }, { 0x1F52, { 0x3A5, 0x313, 0x300 } },
    { 0x1F54, { 0x3A5, 0x313, 0x301 } }, { 0x1F56, { 0x3A5, 0x313, 0x342 } },
    { 0x1F80, { 0x1F08, 0x399 } }, { 0x1F81, { 0x1F09, 0x399 } }, { 0x1F82, { 0x1F0A, 0x399 } },
    { 0x1F83, { 0x1F0B, 0x399 } }, { 0x1F84, { 0x1F0C, 0x399 } }, { 0x1F85, { 0x1F0D, 0x399 } },
    { 0x1F86, { 0x1F0E, 0x399 } }, { 0x1F87, { 0x1F0F, 0x399 } }, { 0x1F88, { 0x1F08, 0x399 } },
    { 0x1F89, { 0x1F09, 0x399 } }, { 0x1F8A, { 0x1F0A, 0x399 } }, { 0x1F8B, { 0x1F0B, 0x399 } },
    { 0x1F8C, { 0x1F0C, 0x399 } }, { 0x1F8D, { 0x1F0D, 0x399 } }, { 0x1F8E, { 0x1F0E, 0x399 } },
    { 0x1F8F, { 0x1F0F, 0x399 } }, { 0x1F90, { 0x1F28, 0x399 } }, { 0x1F91, { 0x1F29, 0x399 } },
    { 0x1F92, { 0x1F2A, 0x399 } }, { 0x1F93, { 0x1F2B, 0x399 } }, { 0x1F94, { 0x1F2C, 0x399 } },
    { 0x1F95, { 0x1F2D, 0x399 } }, { 0x1F96, { 0x1F2E, 0x399 } }, { 0x1F97, { 0x1F2F, 0x399 } },
    { 0x1F98, { 0x1F28, 0x399 } }, { 0x1F99, { 0x1F29, 0x399 } }, { 0x1F9A, { 0x1F2A, 0x399 } },
    { 0x1F9B, { 0x1F2B, 0x399 } }, { 0x1F9C, { 0x1F2C, 0x399 } }, { 0x1F9D, { 0x1F2D, 0x399 } },
    { 0x1F9E, { 0x1F2E, 0x399 } }, { 0x1F9F, { 0x1F2F, 0x399 } }, { 0x1FA0, { 0x1F68, 0x399 } },
    { 0x1FA1, { 0x1F69, 0x399 } }, { 0x1FA2, { 0x1F6A, 0x399 } }, { 0x1FA3, { 0x1F6B, 0x399 } },
    { 0x1FA4, { 0x1F6C, 0x399 } }, { 0x1FA5, { 0x1F6D, 0x399 } }, { 0x1FA6, { 0x1F6E, 0x399 } },
    { 0x1FA7, { 0x1F6F, 0x399 } }, { 0x1FA8, { 0x1F68, 0x399 } }, { 0x1FA9, { 0x1F69, 0x399 } },
    { 0x1FAA, { 0x1F6A, 0x399 } }, { 0x1FAB, { 0x1F6B, 0x399 } }, { 0x1FAC, { 0x1F6C, 0x399 } },
    { 0x1FAD, { 0x1F6D, 0x399 } }, { 0x1FAE, { 0x1F6E, 0x399 } }, { 0x1FAF, { 0x1F6F, 0x399 } },
    { 0x1FB2, { 0x1FBA, 0x399 } }, { 0x1FB3, { 0x391, 0x399 } }, { 0x1FB4, { 0x386, 0x399 } },
    { 0x1FB6, { 0x391, 0x342 } }, { 0x1FB7, { 0x391, 0x342, 0x399 } },
    { 0x1FBC, { 0x391, 0x399 } }, { 0x1FC2, { 0x1FCA, 0x399 } }, { 0x1FC3, { 0x397, 0x399 } },
    { 0x1FC4, { 0x389, 0x399 } }, { 0x1FC6, { 0x397, 0x342 } },
    { 0x1FC7, { 0x397, 0x342, 0x399 } }, { 0x1FCC, { 0x397, 0x399 } },
    { 0x1FD2, { 0x399, 0x308, 0x300 } }, { 0x1FD3, { 0x399, 0x308, 0x301 } },
    { 0x1FD6, { 0x399, 0x342 } }, { 0x1FD7, { 0x399, 0x308, 0x342 } },
    { 0x1FE2, { 0x3A5, 0x308, 0x300 } }, { 0x1FE3, { 0x3A5, 0x308, 0x301 } },
    { 0x1FE4, { 0x3A1, 0x313 } }, { 0x1FE6, { 0x3A5, 0x342 } },
    { 0x1FE7, { 0x3A5, 0x308, 0x342 } }, { 0x1FF2, { 0x1FFA, 0x399 } },
    { 0x1FF3, { 0x3A9, 0x399 } }, { 0x1FF4, { 0x38F, 0x399 } }, { 0x1FF6, { 0x3A9, 0x342 } },
    { 0x1FF7, { 0x3A9, 0x342, 0x399 } }, { 0x1FFC, { 0x3A9, 0x399 } }, { 0xFB00, { 0x46, 0x46 } },
    { 0xFB01, { 0x46, 0x49 } }, { 0xFB02, { 0x46, 0x4C } }, { 0xFB03, { 0x46, 0x46, 0x49 } },
    { 0xFB04, { 0x46, 0x46, 0x4C } }, { 0xFB05, { 0x53, 0x54 } }, { 0xFB06, { 0x53, 0x54 } },
    { 0xFB13, { 0x544, 0x546 } }, { 0xFB14, { 0x544, 0x535 } }, { 0xFB15, { 0x544, 0x53B } },
    { 0xFB16, { 0x54E, 0x546 } }, { 0xFB17, { 0x544, 0x53D } },
};
// clang-format on

static const uint16_t *find_special(uint32_t point)
{
    size_t low = 0, high = sizeof special_upper / sizeof *special_upper;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (special_upper[middle].point == point)
            return special_upper[middle].upper;
        if (special_upper[middle].point < point)
            low = middle + 1;
        else
            high = middle;
    }
    return NULL;
}

// A capital sigma is written final where a cased letter stands before it and none behind.
static bool is_final_sigma(const jinja_string *s, size_t from, size_t at)
{
    size_t i = at, size;
    uint32_t point = 0;
    bool cased = false;
    while (i > from && !cased) {
        i -= jinja_last_size(s->bytes, i);
        point = jinja_decode(s->bytes + i, &size);
        if (!is_case_ignorable(point) && !(cased = is_cased(point)))
            return false;
    }
    if (!cased)
        return false;
    for (i = at + 2; i < s->size; i += size) {
        point = jinja_decode(s->bytes + i, &size);
        if (!is_case_ignorable(point))
            return !is_cased(point);
    }
    return true;
}

// Up to three code points for one; returns how many.
static int map_upper(uint32_t point, bool title, uint32_t mapped[3])
{
    const uint16_t *special = find_special(point);
    utf8proc_int32_t c = (utf8proc_int32_t)point, simple = utf8proc_totitle(c);
    if (!special || (title && simple != c && point != 0xDF)) {
        mapped[0] = (uint32_t)(title ? simple : utf8proc_toupper(c));
        return 1;
    }
    int count = 0;
    for (; count < 3 && special[count]; count++)
        mapped[count] =
            title && count > 0 ? (uint32_t)utf8proc_tolower(special[count]) : special[count];
    return count;
}

// `from` is where the text begins in which a sigma may be final.
static int map_lower(const jinja_string *s, size_t from, size_t at, uint32_t point,
                     uint32_t mapped[3])
{
    if (point == 0x130) { // I with a dot
        mapped[0] = 'i';
        mapped[1] = 0x307;
        return 2;
    }
    if (point == 0x3A3 && is_final_sigma(s, from, at))
        mapped[0] = 0x3C2;
    else
        mapped[0] = (uint32_t)utf8proc_tolower((utf8proc_int32_t)point);
    return 1;
}

static bool begins_word(uint32_t point)
{
    return jinja_is_space(point) || (point < 0x80 && strchr("-({[<", (int)point) && point);
}

jinja_value jinja_recase(jinja_render *r, const jinja_string *s, jinja_case way)
{
    jinja_builder b;
    jinja_build_begin(&b, r);
    bool after_cased = false;
    size_t from = 0;
    jinja_work(r, s->size * 8);
    for (size_t at = 0, size; at < s->size; at += size) {
        uint32_t point = jinja_decode(s->bytes + at, &size), mapped[3];
        bool up = way == JINJA_UPPER || (way == JINJA_CAPITALIZE && at == 0) ||
                  ((way == JINJA_TITLE || way == JINJA_WORDS) && !after_cased) ||
                  (way == JINJA_SWAP && jinja_is_lower(point));
        bool title = way == JINJA_TITLE || way == JINJA_CAPITALIZE;
        if (way == JINJA_WORDS && !after_cased)
            from = at + size;
        int count = up ? map_upper(point, title, mapped) : map_lower(s, from, at, point, mapped);
        if (way == JINJA_SWAP && !up && !jinja_is_upper(point))
            mapped[0] = point;
        after_cased = way == JINJA_WORDS ? !begins_word(point) : is_cased(point);
        jinja_origin origin = s->origin == JINJA_MIXED ? s->marks[at] : s->origin;
        for (int i = 0; i < count; i++) {
            char bytes[4];
            jinja_append(&b, (slice){ bytes, jinja_encode(mapped[i], bytes) }, origin);
        }
    }
    b.safe = s->safe;
    return jinja_build_end(&b);
}
