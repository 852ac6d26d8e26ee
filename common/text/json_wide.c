#include "text/json_wide.h"

#include "base/random.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

enum { MARK_SIZE = 18 }; // '<', 16 digits, '>'

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

// The size of the wide integer at the front of `text`, or 0. `before` is the byte in front of it.
static size_t wide_size(slice text, char before)
{
    size_t sign = text.data[0] == '-', size = sign;
    if (before && !strchr(",:[ \t\r\n", before)) // within another word
        return 0;
    while (size < text.size && is_digit(text.data[size]))
        size++;
    size_t digits = size - sign;
    if (digits < 19 || digits > JSON_WIDE_DIGITS_MAX || text.data[sign] == '0')
        return 0;
    if (size < text.size && strchr(".eE", text.data[size]) && text.data[size])
        return 0;
    size_t behind = size;
    while (behind < text.size && strchr(" \t\r\n", text.data[behind]) && text.data[behind])
        behind++;
    if (behind < text.size && text.data[behind] == ':') // a key must have been a string
        return 0;
    static const char least[] = "9223372036854775808"; // INT64_MIN without its sign
    int order = digits > 19 ? 1 : memcmp(text.data + sign, least, 19);
    return order > 0 || (order == 0 && !sign) ? size : 0;
}

// The text with strings in place of wide integers, each behind `mark`; how many there are.
static size_t rewrite(slice text, const char *mark, buffer *out)
{
    size_t count = 0, from = 0;
    bool in_string = false;
    for (size_t at = 0; at < text.size; at++) {
        char c = text.data[at];
        if (in_string && c == '\\')
            at++;
        else if (c == '"')
            in_string = !in_string;
        if (in_string || (!is_digit(c) && c != '-'))
            continue;
        slice rest = { text.data + at, text.size - at };
        size_t size = wide_size(rest, at ? text.data[at - 1] : 0);
        if (size == 0)
            continue;
        buffer_append(out, text.data + from, at - from);
        buffer_append_byte(out, '"');
        buffer_append_text(out, mark);
        buffer_append(out, rest.data, size);
        buffer_append_byte(out, '"');
        from = at + size;
        at = from - 1;
        count++;
    }
    buffer_append(out, text.data + from, text.size - from);
    return count;
}

// Take the marks off again, and note who had one. False without memory.
static bool collect(json_t *json, const char *mark, json_t *wide)
{
    size_t index;
    const char *key;
    json_t *item;
    bool fine = true;
    json_array_foreach(json, index, item) fine = fine && collect(item, mark, wide);
    json_object_foreach(json, key, item) fine = fine && collect(item, mark, wide);
    if (json_is_string(json) && json_string_length(json) > MARK_SIZE &&
        memcmp(json_string_value(json), mark, MARK_SIZE) == 0) {
        char digits[JSON_WIDE_DIGITS_MAX + 2];
        snprintf(digits, sizeof digits, "%s", json_string_value(json) + MARK_SIZE);
        fine = fine && json_string_set(json, digits) == 0 && json_array_append(wide, json) == 0;
    }
    return fine;
}

json_t *json_wide_load(slice text, size_t flags, json_t **wide, json_error_t *failure)
{
    *wide = NULL;
    json_t *json = json_loadb(text.data, text.size, flags, failure);
    if (json || json_error_code(failure) != json_error_numeric_overflow)
        return json;
    char mark[MARK_SIZE + 1]; // nobody can know it
    json_error_t second;
    buffer rewritten = { 0 };
    snprintf(mark, sizeof mark, "<%016" PRIx64 ">", random_system());
    size_t count = rewrite(text, mark, &rewritten);
    if (count > 0 && count <= JSON_WIDE_MAX && !rewritten.overflow)
        json = json_loadb(rewritten.data, rewritten.size, flags, &second);
    buffer_close(&rewritten);
    *wide = json ? json_array() : NULL;
    if (json && (!*wide || !collect(json, mark, *wide))) {
        json_decref(json);
        json_decref(*wide);
        *wide = json = NULL;
    }
    return json;
}

size_t json_wide_count(json_t *json, json_t *wide)
{
    size_t index, count = 0;
    const char *key;
    json_t *item;
    json_array_foreach(json, index, item) count += json_wide_count(item, wide);
    json_object_foreach(json, key, item) count += json_wide_count(item, wide);
    for (size_t i = 0; json_is_string(json) && i < json_array_size(wide); i++)
        count += json_array_get(wide, i) == json;
    return count;
}
