// Regular expressions: a recursive-descent parser into a tree, and the tree into an NFA from its
// end to its beginning. The syntax is told in grammar.h.
#include "text/grammar_private.h"
#include "text/unicode.h"

#define GROUPS_DEPTH_MAX 100
#define REPEAT_MAX 1000
#define CHARACTER_LAST 0x10ffff

typedef enum tree_kind {
    TREE_EMPTY,
    TREE_SET,
    TREE_BEGIN,
    TREE_END,
    TREE_SEQUENCE,
    TREE_EITHER,
    TREE_REPEAT
} tree_kind;

typedef struct range {
    int32_t low, high;
} range;

typedef struct tree {
    tree_kind kind;
    struct tree *left, *right; // right: TREE_SEQUENCE, TREE_EITHER
    range *ranges;             // TREE_SET
    size_t range_count, range_capacity;
    int min, max; // TREE_REPEAT; max < 0: no limit
} tree;

typedef struct parser {
    grammar_task *t;
    slice rest, whole;
    const char *param;
    int depth;
} parser;

static const struct {
    const char *format, *pattern;
} formats[] = {
    { "date", "^" // a day that its month has; a century's leap year only where 400 divides it
              "(\\d{4}-((0[13578]|1[02])-(0[1-9]|[12]\\d|3[01])|(0[469]|11)-(0[1-9]|[12]\\d|30)|"
              "02-(0[1-9]|1\\d|2[0-8]))|"
              "(\\d\\d(0[48]|[2468][048]|[13579][26])|(0[48]|[2468][048]|[13579][26])00)-02-29)$" },
    { "time",
      "^([01]\\d|2[0-3]):[0-5]\\d:[0-5]\\d(\\.\\d{1,6})?(Z|[+-]([01]\\d|2[0-3]):[0-5]\\d)$" },
    { "uuid", "^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$" },
    { "ipv4",
      "^((25[0-5]|2[0-4]\\d|1\\d\\d|[1-9]?\\d)(\\.(25[0-5]|2[0-4]\\d|1\\d\\d|[1-9]?\\d)){3})$" },
    { "email", "^[A-Za-z0-9_%+-]{1,32}(\\.[A-Za-z0-9_%+-]{1,32}){0,3}@"
               "[A-Za-z0-9]([A-Za-z0-9-]{0,30}[A-Za-z0-9])?"
               "(\\.[A-Za-z0-9]([A-Za-z0-9-]{0,30}[A-Za-z0-9])?){1,4}$" },
    { "date-time",
      "^(([0-9]{3}[1-9]|[0-9]{2}[1-9][0-9]|[0-9][1-9][0-9]{2}|[1-9][0-9]{3})-"
      "((0[13578]|1[02])-(0[1-9]|[12]\\d|3[01])|(0[469]|11)-(0[1-9]|[12]\\d|30)|"
      "02-(0[1-9]|1\\d|2[0-8]))|"
      "(\\d\\d(0[48]|[2468][048]|[13579][26])|(0[48]|[2468][048]|[13579][26])00)-02-29)"
      "T([01]\\d|2[0-3]):[0-5]\\d:[0-5]\\d(\\.\\d{1,6})?"
      "(Z|[+-]([01]\\d|2[0-3]):[0-5]\\d)$" },
};

const char *regex_of_format(const char *format)
{
    for (size_t i = 0; i < sizeof formats / sizeof formats[0]; i++)
        if (strcmp(formats[i].format, format) == 0)
            return formats[i].pattern;
    return NULL;
}

// ---- reading -----------------------------------------------------------------------------------

_Noreturn static void refuse(parser *p, status code, const char *what)
{
    size_t at = p->whole.size - p->rest.size;
    grammar_fail(p->t, code, p->param, "%s%sthe regular expression %s at byte %zu", p->param,
                 p->param[0] ? ": " : "", what, at);
}

static int peek(const parser *p)
{
    return p->rest.size ? (uint8_t)p->rest.data[0] : -1;
}

static void skip(parser *p, size_t count)
{
    p->rest.data += count;
    p->rest.size -= count;
}

static bool take(parser *p, char c)
{
    if (peek(p) != (uint8_t)c)
        return false;
    skip(p, 1);
    return true;
}

static int32_t take_character(parser *p)
{
    size_t size;
    int32_t c = unicode_decode(p->rest.data, &size);
    skip(p, size);
    return c;
}

static tree *tree_make(parser *p, tree_kind kind, tree *left, tree *right)
{
    tree *x = grammar_allocate(p->t, sizeof *x);
    *x = (tree){ .kind = kind, .left = left, .right = right };
    return x;
}

// ---- sets --------------------------------------------------------------------------------------

static void set_add(parser *p, tree *set, int32_t low, int32_t high)
{
    set->ranges =
        grammar_grow(p->t, set->ranges, set->range_count, &set->range_capacity, sizeof(range));
    set->ranges[set->range_count++] = (range){ low, high };
}

static int compare_ranges(const void *a, const void *b)
{
    const range *x = a, *y = b;
    return x->low < y->low ? -1 : x->low > y->low;
}

// Ascending, apart, and turned into what is not in them where asked.
static void set_finish(parser *p, tree *set, bool negate)
{
    tree made = { 0 };
    int32_t from = 0; // the first character behind the ranges so far
    if (set->range_count > 0)
        qsort(set->ranges, set->range_count, sizeof(range), compare_ranges);
    for (size_t i = 0; i < set->range_count; i++) {
        range r = set->ranges[i];
        if (negate && r.low > from)
            set_add(p, &made, from, r.low - 1);
        if (!negate && r.high >= from)
            set_add(p, &made, r.low > from ? r.low : from, r.high);
        from = r.high + 1 > from ? r.high + 1 : from;
    }
    if (negate && from <= CHARACTER_LAST)
        set_add(p, &made, from, CHARACTER_LAST);
    set->ranges = made.ranges;
    set->range_count = made.range_count;
    set->range_capacity = made.range_capacity;
}

// \d \w \s and their opposites; false: `letter` is none of them.
static bool set_add_class(parser *p, tree *set, int letter)
{
    tree inner = { .kind = TREE_SET };
    switch (letter | 0x20) {
    case 'd':
        set_add(p, &inner, '0', '9');
        break;
    case 'w':
        set_add(p, &inner, '0', '9');
        set_add(p, &inner, 'A', 'Z');
        set_add(p, &inner, '_', '_');
        set_add(p, &inner, 'a', 'z');
        break;
    case 's':
        set_add(p, &inner, '\t', '\r');
        set_add(p, &inner, ' ', ' ');
        break;
    default:
        return false;
    }
    set_finish(p, &inner, letter < 'a');
    for (size_t i = 0; i < inner.range_count; i++)
        set_add(p, set, inner.ranges[i].low, inner.ranges[i].high);
    return true;
}

static int32_t take_hex(parser *p, int digits)
{
    int32_t value = 0;
    for (int i = 0; i < digits; i++) {
        int digit = p->rest.size > 0 ? hex_digit((uint8_t)p->rest.data[0]) : -1;
        if (digit < 0)
            refuse(p, STATUS_INVALID, "lacks a hexadecimal digit");
        value = value * 16 + digit;
        skip(p, 1);
    }
    return value;
}

static int32_t take_braced_hex(parser *p)
{
    int32_t value = 0;
    skip(p, 1);
    for (int digits = 0; !take(p, '}'); digits++) {
        if (digits == 6)
            refuse(p, STATUS_INVALID, "has too long an escape");
        value = value * 16 + take_hex(p, 1);
    }
    return value;
}

// Behind a backslash: one character.
static int32_t take_escape(parser *p)
{
    static const char letters[] = "tnrfv0", means[] = "\t\n\r\f\v\0";
    if (p->rest.size == 0)
        refuse(p, STATUS_INVALID, "ends with a backslash");
    int c = peek(p);
    const char *known = strchr(letters, c);
    int32_t value = -1;
    if (c >= 0x80)
        return take_character(p);
    if (c == '0' && p->rest.size > 1 && p->rest.data[1] >= '0' && p->rest.data[1] <= '9')
        refuse(p, STATUS_UNSUPPORTED, "has an octal escape, which is not served,");
    if (known && c) {
        value = means[known - letters];
    } else if (c == 'x' || c == 'u') {
        skip(p, 1);
        value = c == 'u' && peek(p) == '{' ? take_braced_hex(p) : take_hex(p, c == 'x' ? 2 : 4);
        if (value > CHARACTER_LAST || (value >= 0xd800 && value <= 0xdfff))
            refuse(p, STATUS_UNSUPPORTED, "has the escape of a surrogate or of no character");
        return value;
    } else if ((c >= '1' && c <= '9') || ((c | 0x20) >= 'a' && (c | 0x20) <= 'z')) {
        refuse(p, STATUS_UNSUPPORTED,
               "has an escape that is not served (\\b, \\B, \\p, a back reference or another)");
    } else {
        value = c;
    }
    skip(p, 1);
    return value;
}

// A member of a [class]: a character, or -1 after \d and the like, which were added.
static int32_t take_member(parser *p, tree *set)
{
    if (p->rest.size == 0)
        refuse(p, STATUS_INVALID, "has a [ without its ]");
    if (!take(p, '\\'))
        return take_character(p);
    int c = peek(p);
    if (c > 0 && set_add_class(p, set, c)) {
        skip(p, 1);
        return -1;
    }
    if (take(p, 'b'))
        return '\b';
    return take_escape(p);
}

static tree *parse_set(parser *p)
{
    tree *set = tree_make(p, TREE_SET, NULL, NULL);
    bool negate = take(p, '^');
    while (!take(p, ']')) {
        int32_t low = take_member(p, set), high = low;
        if (peek(p) == '-' && p->rest.size > 1 && p->rest.data[1] != ']') {
            skip(p, 1);
            high = take_member(p, set);
            if (low < 0 || high < 0) { // as in [\w-x]: a plain '-'
                set_add(p, set, '-', '-');
                low = low < 0 ? high : low;
                high = low;
            }
            if (high < low)
                refuse(p, STATUS_INVALID, "has a range that runs backwards");
        }
        if (low >= 0)
            set_add(p, set, low, high);
    }
    set_finish(p, set, negate);
    return set;
}

// ---- the tree ----------------------------------------------------------------------------------

static tree *parse_either(parser *p);

static tree *parse_group(parser *p)
{
    if (take(p, '?')) {
        bool plain = take(p, ':');
        if (!plain)
            refuse(p, STATUS_UNSUPPORTED,
                   "has a group that is not served (look-around, a name or flags)");
    }
    if (++p->depth > GROUPS_DEPTH_MAX)
        refuse(p, STATUS_TOO_LARGE, "nests too deep");
    tree *inner = parse_either(p);
    p->depth--;
    if (!take(p, ')'))
        refuse(p, STATUS_INVALID, "has a ( without its )");
    return inner;
}

static tree *parse_atom(parser *p)
{
    tree *set = tree_make(p, TREE_SET, NULL, NULL);
    int c = peek(p);
    if (take(p, '('))
        return parse_group(p);
    if (take(p, '['))
        return parse_set(p);
    if (take(p, '^'))
        return tree_make(p, TREE_BEGIN, NULL, NULL);
    if (take(p, '$'))
        return tree_make(p, TREE_END, NULL, NULL);
    if (c == '*' || c == '+' || c == '?')
        refuse(p, STATUS_INVALID, "has a repetition of nothing");
    if (take(p, '.')) {
        set_add(p, set, '\n', '\n');
        set_add(p, set, '\r', '\r');
        set_add(p, set, 0x2028, 0x2029);
        set_finish(p, set, true);
        return set;
    }
    int32_t one;
    if (take(p, '\\')) {
        if (peek(p) > 0 && set_add_class(p, set, peek(p))) {
            skip(p, 1);
            set_finish(p, set, false);
            return set;
        }
        one = take_escape(p);
    } else {
        one = take_character(p);
    }
    set_add(p, set, one, one);
    return set;
}

static int take_number(parser *p)
{
    int value = -1;
    while (peek(p) >= '0' && peek(p) <= '9') {
        value = (value < 0 ? 0 : value) * 10 + (peek(p) - '0');
        skip(p, 1);
        if (value > REPEAT_MAX)
            refuse(p, STATUS_TOO_LARGE, "has a repetition of more than 1000");
    }
    return value;
}

// {n}, {n,} or {n,m}; false where the brace is a plain character.
static bool take_counts(parser *p, int *min, int *max)
{
    parser before = *p;
    skip(p, 1);
    *min = *max = take_number(p);
    if (*min >= 0 && take(p, ','))
        *max = take_number(p);
    if (*min >= 0 && take(p, '}')) {
        if (*max >= 0 && *max < *min)
            refuse(p, STATUS_INVALID, "has a repetition that runs backwards");
        return true;
    }
    *p = before;
    return false;
}

static tree *parse_repeat(parser *p)
{
    tree *x = parse_atom(p);
    for (;;) {
        int c = peek(p), min = c == '+' ? 1 : 0, max = c == '?' ? 1 : -1;
        bool counted = c == '{' && take_counts(p, &min, &max);
        if (!counted && c != '*' && c != '+' && c != '?')
            return x;
        if (!counted)
            skip(p, 1);
        if (x->kind == TREE_BEGIN || x->kind == TREE_END)
            refuse(p, STATUS_INVALID, "has a repetition of nothing");
        if (x->kind == TREE_REPEAT && ++p->depth > GROUPS_DEPTH_MAX)
            refuse(p, STATUS_TOO_LARGE, "nests too deep");
        x = tree_make(p, TREE_REPEAT, x, NULL);
        x->min = min;
        x->max = max;
        take(p, '?'); // lazy: the same texts
    }
}

static tree *parse_sequence(parser *p)
{
    tree *x = NULL;
    // Left to right, so that the tree leans left and is walked without deep recursion.
    while (p->rest.size > 0 && peek(p) != '|' && peek(p) != ')') {
        tree *next = parse_repeat(p);
        x = x ? tree_make(p, TREE_SEQUENCE, x, next) : next;
    }
    return x ? x : tree_make(p, TREE_EMPTY, NULL, NULL);
}

static tree *parse_either(parser *p)
{
    tree *x = parse_sequence(p);
    while (take(p, '|'))
        x = tree_make(p, TREE_EITHER, x, parse_sequence(p));
    return x;
}

// ---- the NFA -----------------------------------------------------------------------------------

static int32_t emit(grammar_task *t, nfa *n, const tree *x, int32_t next);

static int32_t emit_repeat(grammar_task *t, nfa *n, const tree *x, int32_t next)
{
    int32_t at = next;
    if (x->max < 0) {
        at = nfa_add(t, n, (nfa_node){ NFA_FORK, 0, 0, next, next });
        int32_t inner = emit(t, n, x->left, at);
        n->nodes[at].other = inner;
    }
    for (int i = x->max - x->min; i > 0; i--)
        at = nfa_add(t, n, (nfa_node){ NFA_FORK, 0, 0, next, emit(t, n, x->left, at) });
    for (int i = x->min; i > 0; i--)
        at = emit(t, n, x->left, at);
    return at;
}

// The first node of what matches `x` and goes on at `next`; -1: nothing matches.
static int32_t emit(grammar_task *t, nfa *n, const tree *x, int32_t next)
{
    int32_t at = -1, other;
    grammar_work(t, 1); // what is empty adds no node, however often it is repeated
    while (x->kind == TREE_SEQUENCE) {
        next = emit(t, n, x->right, next);
        x = x->left;
    }
    switch (x->kind) {
    case TREE_SET:
        for (size_t i = 0; i < x->range_count; i++) {
            other = nfa_characters(t, n, x->ranges[i].low, x->ranges[i].high, next);
            at = at < 0 || other < 0 ? (at < 0 ? other : at)
                                     : nfa_add(t, n, (nfa_node){ NFA_FORK, 0, 0, at, other });
        }
        return at;
    case TREE_BEGIN:
        return nfa_add(t, n, (nfa_node){ NFA_BEGIN, 0, 0, next, -1 });
    case TREE_END:
        return nfa_add(t, n, (nfa_node){ NFA_END, 0, 0, next, -1 });
    case TREE_EITHER:
        at = emit(t, n, x->right, next);
        for (x = x->left; x->kind == TREE_EITHER; x = x->left)
            at = nfa_add(t, n, (nfa_node){ NFA_FORK, 0, 0, emit(t, n, x->right, next), at });
        return nfa_add(t, n, (nfa_node){ NFA_FORK, 0, 0, emit(t, n, x, next), at });
    case TREE_REPEAT:
        return emit_repeat(t, n, x, next);
    default:
        return next;
    }
}

automaton *regex_compile(grammar_task *t, slice pattern, bool anchored, const char *param)
{
    parser p = { .t = t, .rest = pattern, .whole = pattern, .param = param };
    nfa n;
    if (unicode_valid_size(pattern) != pattern.size)
        refuse(&p, STATUS_INVALID, "is not UTF-8");
    tree *x = parse_either(&p);
    if (p.rest.size > 0)
        refuse(&p, STATUS_INVALID, "has a ) without its (");
    nfa_begin(t, &n);
    int32_t start = emit(t, &n, x, anchored ? 0 : nfa_anything(t, &n, 0));
    if (!anchored && start >= 0) {
        int32_t loop = nfa_add(t, &n, (nfa_node){ NFA_FORK, 0, 0, start, start });
        int32_t one = nfa_characters(t, &n, 0, CHARACTER_LAST, loop);
        n.nodes[loop].other = one;
        start = loop;
    }
    return nfa_determine(t, &n, start);
}
