#include "text/json_scanner.h"

#include <string.h>

enum {
    VALUE,         // a value must come
    FIRST_ELEMENT, // a value or ]
    FIRST_KEY,     // a key or }
    KEY,           // a key must come
    COLON,
    COMMA, // a value ended: a comma, or the bracket that closes
    STRING,
    ESCAPE,
    HEX,
    LITERAL,
    MINUS, // numbers: what was read last
    ZERO,
    INTEGER,
    POINT,
    FRACTION,
    EXPONENT_MARK,
    EXPONENT_SIGN,
    EXPONENT,
    WHOLE,
};

static bool is_space(char c)
{
    return c == ' ' || c == '\n' || c == '\r' || c == '\t';
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool in_object(const json_scanner *s)
{
    return s->depth > 0 && (s->objects >> (s->depth - 1) & 1);
}

static json_happening begin_container(json_scanner *s, char c)
{
    if (s->depth == JSON_SCANNER_DEPTH_MAX)
        return JSON_BROKEN;
    uint64_t bit = (uint64_t)1 << s->depth;
    s->objects = c == '{' ? s->objects | bit : s->objects & ~bit;
    s->depth++;
    s->state = c == '{' ? FIRST_KEY : FIRST_ELEMENT;
    return JSON_BEGAN;
}

static json_happening begin_value(json_scanner *s, char c)
{
    if (is_space(c))
        return JSON_NOTHING;
    if (c == '{' || c == '[')
        return begin_container(s, c);
    if (c == '"') {
        s->is_key = false;
        s->state = STRING;
    } else if (c == 't' || c == 'f' || c == 'n') {
        s->literal = c == 't' ? "rue" : c == 'f' ? "alse" : "ull";
        s->state = LITERAL;
    } else if (c == '-') {
        s->state = MINUS;
    } else if (is_digit(c)) {
        s->state = c == '0' ? ZERO : INTEGER;
    } else {
        return JSON_BROKEN;
    }
    return JSON_BEGAN;
}

static json_happening begin_key(json_scanner *s, char c)
{
    if (is_space(c))
        return JSON_NOTHING;
    if (c != '"')
        return JSON_BROKEN;
    s->is_key = true;
    s->state = STRING;
    return JSON_KEY_BEGAN;
}

static json_happening close_container(json_scanner *s)
{
    s->depth--;
    s->state = s->depth == 0 ? WHOLE : COMMA;
    return JSON_CLOSED;
}

static json_happening after_value(json_scanner *s, char c)
{
    if (is_space(c))
        return JSON_NOTHING;
    if (c == ',' && s->depth > 0) {
        s->state = in_object(s) ? KEY : VALUE;
        return JSON_NOTHING;
    }
    if (s->depth > 0 && c == (in_object(s) ? '}' : ']'))
        return close_container(s);
    return JSON_BROKEN;
}

static json_happening in_string(json_scanner *s, char c)
{
    if (s->state == STRING) {
        if ((unsigned char)c < 0x20)
            return JSON_BROKEN;
        if (c == '\\')
            s->state = ESCAPE;
        if (c != '"')
            return JSON_NOTHING;
        s->state = s->is_key ? COLON : COMMA;
        return s->is_key ? JSON_KEY_ENDED : JSON_STRING_ENDED;
    }
    if (s->state == ESCAPE) {
        if (!c || !strchr("\"\\/bfnrtu", c))
            return JSON_BROKEN;
        s->digits = 4;
        s->state = c == 'u' ? HEX : STRING;
        return JSON_NOTHING;
    }
    if (!is_digit(c) && !((c | 0x20) >= 'a' && (c | 0x20) <= 'f'))
        return JSON_BROKEN;
    if (--s->digits == 0)
        s->state = STRING;
    return JSON_NOTHING;
}

static json_happening in_number(json_scanner *s, char c)
{
    bool whole = s->state == ZERO || s->state == INTEGER;
    if (is_digit(c) && s->state != ZERO) {
        if (s->state == MINUS)
            s->state = c == '0' ? ZERO : INTEGER;
        else if (s->state == POINT)
            s->state = FRACTION;
        else if (s->state == EXPONENT_MARK || s->state == EXPONENT_SIGN)
            s->state = EXPONENT;
    } else if (c == '.' && whole) {
        s->state = POINT;
    } else if ((c == 'e' || c == 'E') && (whole || s->state == FRACTION)) {
        s->state = EXPONENT_MARK;
    } else if ((c == '+' || c == '-') && s->state == EXPONENT_MARK) {
        s->state = EXPONENT_SIGN;
    } else if (whole || s->state == FRACTION || s->state == EXPONENT) {
        s->state = COMMA;
        return after_value(s, c);
    } else {
        return JSON_BROKEN;
    }
    return JSON_NOTHING;
}

static json_happening in_literal(json_scanner *s, char c)
{
    if (c != *s->literal)
        return JSON_BROKEN;
    if (!*++s->literal)
        s->state = COMMA;
    return JSON_NOTHING;
}

json_happening json_scanner_push(json_scanner *s, char c)
{
    switch (s->state) {
    case FIRST_ELEMENT:
        return c == ']' ? close_container(s) : begin_value(s, c);
    case VALUE:
        return begin_value(s, c);
    case FIRST_KEY:
        return c == '}' ? close_container(s) : begin_key(s, c);
    case KEY:
        return begin_key(s, c);
    case COLON:
        if (c == ':')
            s->state = VALUE;
        return c == ':' || is_space(c) ? JSON_NOTHING : JSON_BROKEN;
    case COMMA:
        return after_value(s, c);
    case STRING:
    case ESCAPE:
    case HEX:
        return in_string(s, c);
    case LITERAL:
        return in_literal(s, c);
    case WHOLE:
        return is_space(c) ? JSON_NOTHING : JSON_BROKEN;
    default:
        return in_number(s, c);
    }
}
