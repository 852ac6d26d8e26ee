// Source to tokens. What is data and what is stripped follows the lexer of Jinja 3.1 with
// trim_blocks and lstrip_blocks: a newline after a block tag or comment goes, and so do blanks
// before one on its line;
// "-" strips all white space on its side, "+" keeps it.
#include "text/template_syntax.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

enum { IN_DATA, AT_BLOCK, AT_EXPRESSION, IN_BLOCK, IN_EXPRESSION, IN_COMMENT, IN_RAW };

void jinja_lexer_begin(jinja_lexer *lexer, jinja_task *task, slice source)
{
    char *copy = jinja_allocate(task, source.size + 1);
    size_t size = 0;
    for (size_t i = 0; i < source.size; i++) {
        copy[size++] = source.data[i] == '\r' ? '\n' : source.data[i];
        if (source.data[i] == '\r' && i + 1 < source.size && source.data[i + 1] == '\n')
            i++;
    }
    if (size > 0 && copy[size - 1] == '\n')
        size--;
    copy[size] = '\0';
    *lexer = (jinja_lexer){
        .task = task, .source = copy, .size = size, .line = 1, .line_starting = true
    };
}

static void fail_at(jinja_lexer *lexer, const char *what)
{
    lexer->task->line = lexer->line;
    jinja_fail(lexer->task, TEMPLATE_FAULT_RUNTIME, "%s", what);
}

static bool starts(const jinja_lexer *lexer, size_t at, const char *text)
{
    size_t size = strlen(text);
    return at <= lexer->size && lexer->size - at >= size &&
           memcmp(lexer->source + at, text, size) == 0;
}

// The offset after the white space that begins at `at`.
static size_t skip_space(const jinja_lexer *lexer, size_t at)
{
    while (at < lexer->size) {
        size_t size;
        if (!jinja_is_space(jinja_decode(lexer->source + at, &size)))
            break;
        at += size;
    }
    return at;
}

static void advance(jinja_lexer *lexer, size_t to)
{
    for (size_t i = lexer->position; i < to; i++)
        lexer->line += lexer->source[i] == '\n';
    lexer->position = to;
}

// The end of a tag whose closing text is at `at` ("%}", "#}"); 0 where it is not there.
static size_t tag_end(const jinja_lexer *lexer, size_t at, const char *closing, bool trims)
{
    if (starts(lexer, at, "-") && starts(lexer, at + 1, closing))
        return skip_space(lexer, at + 3);
    if (trims && starts(lexer, at, "+") && starts(lexer, at + 1, closing))
        return at + 3;
    if (!starts(lexer, at, closing))
        return 0;
    return at + 2 + (trims && starts(lexer, at + 2, "\n"));
}

static void leave_tag(jinja_lexer *lexer, size_t end)
{
    advance(lexer, end);
    lexer->line_starting = end > 0 && lexer->source[end - 1] == '\n';
    lexer->state = IN_DATA;
}

// The end of "{% raw %}" at `at` (which is a "{%"), or 0; likewise of "{% endraw %}".
static size_t raw_tag(const jinja_lexer *lexer, size_t at, const char *word)
{
    size_t i = at + 2;
    if (starts(lexer, i, "-") || starts(lexer, i, "+"))
        i++;
    i = skip_space(lexer, i);
    if (!starts(lexer, i, word))
        return 0;
    i = skip_space(lexer, i + strlen(word));
    bool end = word[0] == 'e';
    if (!end && starts(lexer, i, "+"))
        return 0;
    return tag_end(lexer, i, "%}", end);
}

// What is left of the data `from`..`to` before a tag with this sign.
static size_t strip_before(const jinja_lexer *lexer, size_t from, size_t to, char sign,
                           bool expression)
{
    if (sign == '+' || (expression && sign != '-'))
        return to;
    size_t kept = to;
    while (kept > from) {
        size_t size = jinja_last_size(lexer->source, kept), ignored;
        if (sign != '-' && lexer->source[kept - 1] == '\n')
            return kept;
        if (!jinja_is_space(jinja_decode(lexer->source + kept - size, &ignored)))
            return sign == '-' ? kept : to;
        kept -= size;
    }
    return sign == '-' || lexer->line_starting ? from : to;
}

static bool give_data(jinja_lexer *lexer, size_t from, size_t to)
{
    if (from == to)
        return false;
    lexer->token = JINJA_DATA;
    lexer->text = (slice){ lexer->source + from, to - from };
    return true;
}

// Read data up to the next tag and stand after the tag's beginning. True if a token was made.
static bool next_data(jinja_lexer *lexer)
{
    size_t from = lexer->position, at = from;
    lexer->token_line = lexer->line;
    while (at + 1 < lexer->size && !(lexer->source[at] == '{' &&
                                     strchr("%{#", lexer->source[at + 1]) && lexer->source[at + 1]))
        at++;
    if (at + 1 >= lexer->size) {
        advance(lexer, lexer->size);
        if (!give_data(lexer, from, lexer->size))
            lexer->token = JINJA_END;
        return true;
    }
    char kind = lexer->source[at + 1], sign = at + 2 < lexer->size ? lexer->source[at + 2] : '\0';
    size_t kept = strip_before(lexer, from, at, sign, kind == '{');
    size_t raw = kind == '%' ? raw_tag(lexer, at, "raw") : 0;
    if (raw) {
        leave_tag(lexer, raw);
        lexer->state = IN_RAW;
    } else {
        advance(lexer, at + 2 + (sign == '-' || sign == '+'));
        lexer->state = kind == '%' ? AT_BLOCK : kind == '{' ? AT_EXPRESSION : IN_COMMENT;
        lexer->line_starting = false;
    }
    return give_data(lexer, from, kept);
}

static bool next_raw(jinja_lexer *lexer)
{
    size_t from = lexer->position;
    lexer->token_line = lexer->line;
    for (size_t at = from; at + 1 < lexer->size; at++) {
        if (!starts(lexer, at, "{%"))
            continue;
        size_t end = raw_tag(lexer, at, "endraw");
        if (!end)
            continue;
        char sign = lexer->source[at + 2];
        size_t kept = strip_before(lexer, from, at, sign, false);
        leave_tag(lexer, end);
        return give_data(lexer, from, kept);
    }
    fail_at(lexer, "the raw block has no {% endraw %}");
    return false;
}

static void skip_comment(jinja_lexer *lexer)
{
    size_t from = lexer->position, at = from;
    while (at < lexer->size && !starts(lexer, at, "#}"))
        at++;
    if (at >= lexer->size)
        fail_at(lexer, "the comment has no end #}");
    if (at > from && (lexer->source[at - 1] == '-' || lexer->source[at - 1] == '+'))
        at--;
    leave_tag(lexer, tag_end(lexer, at, "#}", true));
}

static bool is_word(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           (unsigned char)c >= 0x80;
}

static bool is_decimal(char c)
{
    return c >= '0' && c <= '9';
}

// The end of digits with single underscores between them.
static size_t digits_end(const jinja_lexer *lexer, size_t at)
{
    while (is_decimal(lexer->source[at]) ||
           (lexer->source[at] == '_' && is_decimal(lexer->source[at + 1])))
        at++;
    return at;
}

static void copy_digits(jinja_lexer *lexer, size_t from, size_t to, char *text, size_t room)
{
    size_t size = 0;
    for (size_t i = from; i < to; i++) {
        if (lexer->source[i] == '_')
            continue;
        if (size + 1 >= room)
            fail_at(lexer, "a number is longer than 60 characters");
        text[size++] = lexer->source[i];
    }
    text[size] = '\0';
}

static size_t exponent_end(const jinja_lexer *lexer, size_t at)
{
    if (lexer->source[at] != 'e' && lexer->source[at] != 'E')
        return at;
    size_t i = at + 1;
    if (lexer->source[i] == '+' || lexer->source[i] == '-')
        i++;
    return is_decimal(lexer->source[i]) ? digits_end(lexer, i) : at;
}

static void next_number(jinja_lexer *lexer)
{
    const char *s = lexer->source;
    size_t from = lexer->position, end = digits_end(lexer, from);
    size_t fraction = s[end] == '.' && is_decimal(s[end + 1]) ? digits_end(lexer, end + 1) : end;
    size_t all = exponent_end(lexer, fraction);
    char text[64];
    if (all > end && (from == 0 || s[from - 1] != '.')) {
        copy_digits(lexer, from, all, text, sizeof text);
        lexer->token = JINJA_FLOAT_LITERAL;
        lexer->real = strtod(text, NULL);
        lexer->position = all;
        return;
    }
    int base = 10;
    const char *digits = "0123456789_";
    if (s[from] == '0' && s[from + 1] && strchr("xXoObB", s[from + 1])) {
        base = strchr("xX", s[from + 1]) ? 16 : strchr("oO", s[from + 1]) ? 8 : 2;
        digits = base == 16 ? "0123456789abcdefABCDEF_" : base == 8 ? "01234567_" : "01_";
        from += 2;
        end = from + strspn(s + from, digits);
        if (end == from)
            fail_at(lexer, "a number has a prefix but no digits");
    } else if (s[from] == '0') {
        end = from + strspn(s + from, "0");
    }
    copy_digits(lexer, from, end, text, sizeof text);
    errno = 0;
    lexer->integer = strtoll(text, NULL, base);
    if (errno)
        fail_at(lexer, "an integer does not fit 64 bits");
    lexer->token = JINJA_INT_LITERAL;
    lexer->position = end;
}

static size_t unescape_number(jinja_lexer *lexer, size_t *at, int digits, char bytes[4])
{
    uint32_t point = 0;
    for (int i = 0; i < digits; i++, ++*at) {
        const char *hex = "0123456789abcdef";
        char c = *at < lexer->size ? lexer->source[*at] : '\0';
        const char *found = c ? strchr(hex, c >= 'A' && c <= 'F' ? c + 32 : c) : NULL;
        if (!found)
            fail_at(lexer, "a string has an escape with too few hexadecimal digits");
        point = point * 16 + (uint32_t)(found - hex);
    }
    if (point > 0x10FFFF || (point >= 0xD800 && point <= 0xDFFF))
        fail_at(lexer, "a string has an escape for a code point that is no character");
    return jinja_encode(point, bytes);
}

// One escape, `*at` behind its backslash, to `out`; returns the bytes written (at most 4).
static size_t unescape(jinja_lexer *lexer, size_t *at, char *out)
{
    static const char plain[] = "\\\\''\"\"a\ab\bf\fn\nr\rt\tv\v";
    char c = lexer->source[(*at)++];
    for (size_t i = 0; plain[i]; i += 2) {
        if (plain[i] == c) {
            *out = plain[i + 1];
            return 1;
        }
    }
    if (c == '\n')
        return 0;
    if (c == 'x' || c == 'u' || c == 'U')
        return unescape_number(lexer, at, c == 'x' ? 2 : c == 'u' ? 4 : 8, out);
    if (c >= '0' && c <= '7') {
        uint32_t point = (uint32_t)(c - '0');
        for (int i = 0; i < 2 && lexer->source[*at] >= '0' && lexer->source[*at] <= '7'; i++)
            point = point * 8 + (uint32_t)(lexer->source[(*at)++] - '0');
        return jinja_encode(point, out);
    }
    if (c == 'N')
        fail_at(lexer, "the escape \\N{...} is not supported in a string");
    out[0] = '\\';
    out[1] = c;
    return 2;
}

static void next_string(jinja_lexer *lexer)
{
    const char *s = lexer->source;
    char quote = s[lexer->position];
    size_t at = lexer->position + 1, end = at;
    while (end < lexer->size && s[end] != quote)
        end += s[end] == '\\' ? 2 : 1;
    if (end >= lexer->size)
        fail_at(lexer, "a string has no closing quote");
    char *out = jinja_allocate(lexer->task, end - at + 1);
    size_t size = 0;
    while (at < end) {
        if (s[at] != '\\') {
            out[size++] = s[at++];
            continue;
        }
        at++;
        size += unescape(lexer, &at, out + size);
        if (at > end)
            fail_at(lexer, "a string has an escape with too few hexadecimal digits");
    }
    advance(lexer, end + 1);
    lexer->token = JINJA_TEXT_LITERAL;
    lexer->text = (slice){ out, size };
}

static void next_operator(jinja_lexer *lexer)
{
    static const struct {
        char text[3];
        uint8_t token;
    } pairs[] = { { "//", JINJA_FLOOR_DIVIDE }, { "**", JINJA_POWER },
                  { "==", JINJA_EQUAL },        { "!=", JINJA_NOT_EQUAL },
                  { "<=", JINJA_LESS_EQUAL },   { ">=", JINJA_GREATER_EQUAL } };
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        if (starts(lexer, lexer->position, pairs[i].text)) {
            lexer->token = pairs[i].token;
            lexer->position += 2;
            return;
        }
    }
    char c = lexer->source[lexer->position];
    if (!c || !strchr("+-/*%~[](){}<>=.:|,;", c))
        fail_at(lexer, "a character is not part of the language");
    if (strchr("([{", c)) {
        if (lexer->closer_count == sizeof lexer->closers)
            fail_at(lexer, "brackets are nested more than 256 deep");
        lexer->closers[lexer->closer_count++] = c == '(' ? ')' : c == '[' ? ']' : '}';
    } else if (strchr(")]}", c)) {
        if (lexer->closer_count == 0 || lexer->closers[--lexer->closer_count] != c)
            fail_at(lexer, "a closing bracket does not fit the opening one");
    }
    lexer->token = (uint8_t)c;
    lexer->position++;
}

static void next_in_tag(jinja_lexer *lexer)
{
    bool block = lexer->state == IN_BLOCK;
    advance(lexer, skip_space(lexer, lexer->position));
    lexer->token_line = lexer->line;
    size_t at = lexer->position;
    size_t end = lexer->closer_count ? 0 : tag_end(lexer, at, block ? "%}" : "}}", block);
    if (end) {
        lexer->token = block ? JINJA_BLOCK_END : JINJA_EXPRESSION_END;
        leave_tag(lexer, end);
        return;
    }
    if (at >= lexer->size) {
        lexer->token = JINJA_END;
        return;
    }
    char c = lexer->source[at];
    if (is_decimal(c)) {
        next_number(lexer);
    } else if (is_word(c)) {
        while (lexer->position < lexer->size && is_word(lexer->source[lexer->position]))
            lexer->position++;
        lexer->token = JINJA_IDENTIFIER;
        lexer->text = (slice){ lexer->source + at, lexer->position - at };
    } else if (c == '"' || c == '\'') {
        next_string(lexer);
    } else {
        next_operator(lexer);
    }
}

void jinja_lexer_next(jinja_lexer *lexer)
{
    for (;;) {
        switch (lexer->state) {
        case AT_BLOCK:
        case AT_EXPRESSION:
            lexer->token = lexer->state == AT_BLOCK ? JINJA_BLOCK_BEGIN : JINJA_EXPRESSION_BEGIN;
            lexer->token_line = lexer->line;
            lexer->state = lexer->state == AT_BLOCK ? IN_BLOCK : IN_EXPRESSION;
            return;
        case IN_BLOCK:
        case IN_EXPRESSION:
            next_in_tag(lexer);
            return;
        case IN_COMMENT:
            skip_comment(lexer);
            break;
        case IN_RAW:
            if (next_raw(lexer))
                return;
            break;
        default:
            if (next_data(lexer))
                return;
        }
    }
}

const char *jinja_token_text(const jinja_lexer *lexer, char text[64])
{
    switch (lexer->token) {
    case JINJA_END:
        return "the end of the template";
    case JINJA_DATA:
        return "text";
    case JINJA_EXPRESSION_BEGIN:
        return "'{{'";
    case JINJA_EXPRESSION_END:
        return "'}}'";
    case JINJA_BLOCK_BEGIN:
        return "'{%'";
    case JINJA_BLOCK_END:
        return "'%}'";
    case JINJA_IDENTIFIER:
        snprintf(text, 64, "'%.*s'", lexer->text.size > 40 ? 40 : (int)lexer->text.size,
                 lexer->text.data);
        return text;
    case JINJA_TEXT_LITERAL:
        return "a string";
    case JINJA_INT_LITERAL:
    case JINJA_FLOAT_LITERAL:
        return "a number";
    case JINJA_EQUAL:
        return "'=='";
    case JINJA_NOT_EQUAL:
        return "'!='";
    case JINJA_LESS_EQUAL:
        return "'<='";
    case JINJA_GREATER_EQUAL:
        return "'>='";
    case JINJA_FLOOR_DIVIDE:
        return "'//'";
    case JINJA_POWER:
        return "'**'";
    default:
        snprintf(text, 64, "'%c'", lexer->token);
        return text;
    }
}
