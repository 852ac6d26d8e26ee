#include "base/config_internal.h"

#include <errno.h>
#include <stdlib.h>

#define DEPTH_MAX 16

// A position in a configuration text, moved by one token at a time. The lexical rules are those of
// libconfig's manual, section "Configuration File Grammar".
typedef struct scanner {
    const char *name;
    const char *at;
    int line;
    int depth;
    error *failure;
} scanner;

static status fail_at(scanner *s, const char *what, const char *quoted, int size)
{
    return error_set(s->failure, STATUS_BAD_CONFIG, "", "%s:%d: %s%s%.*s", s->name, s->line, what,
                     size ? " " : "", size, quoted);
}

static void skip_to(scanner *s, const char *end)
{
    for (; *s->at != 0 && strncmp(s->at, end, strlen(end)) != 0; s->at++)
        s->line += *s->at == '\n';
    if (*s->at != 0 && *end != '\n')
        s->at += strlen(end);
}

static void skip_string(scanner *s)
{
    for (s->at++; *s->at != 0 && *s->at != '"'; s->at++) {
        if (*s->at == '\\' && s->at[1] != 0)
            s->at++;
        s->line += *s->at == '\n';
    }
    if (*s->at == '"')
        s->at++;
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

// libconfig cuts integers to 32 bits without a word unless they end in L.
static status scan_number(scanner *s)
{
    const char *start = s->at;
    char digits[64];
    bool hex, real = false;
    if (*s->at == '+' || *s->at == '-')
        s->at++;
    hex = s->at[0] == '0' && (s->at[1] == 'x' || s->at[1] == 'X');
    for (;; s->at++) {
        bool exponent = !hex && (*s->at == 'e' || *s->at == 'E');
        if (exponent && (s->at[1] == '+' || s->at[1] == '-'))
            s->at++;
        real |= exponent || *s->at == '.';
        if (!is_digit(*s->at) && !is_letter(*s->at) && *s->at != '.' && !exponent)
            break;
    }
    int size = (int)(s->at - start > 40 ? 40 : s->at - start);
    if (s->at - start >= (ptrdiff_t)sizeof(digits))
        return fail_at(s, "this number has too many digits:", start, size);
    if (real)
        return STATUS_OK;
    memcpy(digits, start, (size_t)(s->at - start));
    digits[s->at - start] = 0;
    char *end;
    errno = 0;
    long long number = strtoll(digits, &end, hex ? 16 : 10);
    if (errno == ERANGE)
        return fail_at(s, "this number is past 64 bits:", start, size);
    bool wide = *end == 'L';
    if (!wide && (number > INT32_MAX || number < INT32_MIN))
        return fail_at(s, "a number past 32 bits must end in L (or be a size in quotes):", start,
                       size);
    return STATUS_OK;
}

static status scan_token(scanner *s)
{
    char c = *s->at;
    if (c == '#' || (c == '/' && s->at[1] == '/'))
        skip_to(s, "\n");
    else if (c == '/' && s->at[1] == '*') {
        s->at += 2;
        skip_to(s, "*/");
    } else if (c == '"')
        skip_string(s);
    else if (is_digit(c) || ((c == '+' || c == '-') && is_digit(s->at[1])))
        return scan_number(s);
    else if (is_letter(c) || c == '*') {
        while (is_letter(*s->at) || is_digit(*s->at) || (*s->at != 0 && strchr("-_*", *s->at)))
            s->at++;
    } else {
        if (c == '@')
            return fail_at(s, "@include is not supported; give --config more than once", "", 0);
        s->depth += (c == '{' || c == '[' || c == '(') - (c == '}' || c == ']' || c == ')');
        if (s->depth > DEPTH_MAX)
            return fail_at(s, "groups and lists are nested too deep", "", 0);
        s->line += c == '\n';
        s->at++;
    }
    return STATUS_OK;
}

status config_scan_text(const char *name, const char *text, error *failure)
{
    scanner s = { .name = name, .at = text, .line = 1, .failure = failure };
    status result = STATUS_OK;
    if (strlen(text) > CONFIG_TEXT_MAX)
        return error_set(failure, STATUS_BAD_CONFIG, "", "%s: a configuration may have 1 MiB",
                         name);
    while (result == STATUS_OK && *s.at != 0)
        result = scan_token(&s);
    return result;
}
