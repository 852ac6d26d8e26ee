// A template as written: the lexer that reads the source, the parser, and the tree that it builds.
//
// Everything here is made once, by template_open on the caller's thread, in the template's own
// arena; a render only reads it.
#pragma once

#include "text/template_private.h"

// --- the tree ---

typedef enum jinja_kind {
    // expressions
    JINJA_CONSTANT,  // value
    JINJA_NAME,      // text
    JINJA_LIST_OF,   // a: items
    JINJA_TUPLE_OF,  // a: items
    JINJA_DICT_OF,   // a: key, value, key, value...
    JINJA_ATTRIBUTE, // a.text
    JINJA_ITEM,      // a[b]
    JINJA_SLICE,     // a[b:c:d], each may be NULL
    JINJA_CALL,      // a(b: arguments)
    JINJA_FILTER,    // a | routine(b), a NULL at the head of a filter block
    JINJA_TEST,      // a is routine(b)
    JINJA_BINARY,    // a operator b
    JINJA_UNARY,     // operator a
    JINJA_AND,
    JINJA_OR,
    JINJA_NOT,
    JINJA_COMPARE,     // a, then b: operands, each with its operator
    JINJA_CONCATENATE, // a: operands
    JINJA_CONDITIONAL, // a if b else c
    JINJA_ARGUMENT,    // a; text: its name, or NULL; operator '*' or 'd' (**): unpacked
    // statements
    JINJA_TEXT,         // value
    JINJA_OUTPUT,       // a
    JINJA_IF,           // a: test, b: body, c: else
    JINJA_FOR,          // a: target, b: iterable, c: body, d: else, e: test; flag: recursive
    JINJA_SET,          // a: target, b: value
    JINJA_SET_BLOCK,    // a: target, b: filters or NULL, c: body
    JINJA_WITH,         // a: targets, b: values, c: body
    JINJA_FILTER_BLOCK, // b: filters, c: body
    JINJA_MACRO_OF,     // text: name, a: parameters (names with default in b), c: body
    JINJA_CALL_BLOCK,   // a: call, d: macro
    JINJA_GROUP,        // c: body in a scope of its own (generation)
    JINJA_BREAK,
    JINJA_CONTINUE,
} jinja_kind;

enum { JINJA_USES_CALLER = 1, JINJA_USES_VARARGS = 2, JINJA_USES_KWARGS = 4 };

struct jinja_node {
    uint8_t kind;
    uint8_t operator; // a token, see jinja_token
    bool flag;
    uint8_t uses; // of macros
    uint32_t line;
    uint32_t count; // of the list in `a` (`b` for arguments)
    const jinja_string *text;
    const jinja_routine *routine; // NULL: unknown, an error when reached
    jinja_value value;
    jinja_node *a, *b, *c, *d, *e, *next;
};

struct template
{
    jinja_task task; // its arena holds the tree
    jinja_node *body;
    struct jinja_names *names;
    const jinja_string *loop, *caller, *varargs, *kwargs; // names that the engine binds
};

// --- the lexer (template_lexer.c) ---

typedef enum jinja_token {
    JINJA_END, // of the source
    JINJA_DATA,
    JINJA_EXPRESSION_BEGIN,
    JINJA_EXPRESSION_END,
    JINJA_BLOCK_BEGIN,
    JINJA_BLOCK_END,
    JINJA_IDENTIFIER,
    JINJA_TEXT_LITERAL,
    JINJA_INT_LITERAL,
    JINJA_FLOAT_LITERAL,
    // operators of one character are that character; the others:
    JINJA_EQUAL = 128,
    JINJA_NOT_EQUAL,
    JINJA_LESS_EQUAL,
    JINJA_GREATER_EQUAL,
    JINJA_FLOOR_DIVIDE,
    JINJA_POWER,
    JINJA_IN, // made by the parser from words
    JINJA_NOT_IN,
} jinja_token;

typedef struct jinja_lexer {
    jinja_task *task;
    const char *source; // newlines already normalised, last one dropped
    size_t size, position;
    uint8_t state;      // see template_lexer.c
    bool line_starting; // the last tag ended with a newline
    char closers[256];  // brackets that are open
    size_t closer_count;
    uint32_t line;
    // the current token
    uint8_t token;
    uint32_t token_line;
    slice text; // identifier, literal (unescaped) or data
    int64_t integer;
    double real;
} jinja_lexer;

void jinja_lexer_begin(jinja_lexer *lexer, jinja_task *task, slice source);
void jinja_lexer_next(jinja_lexer *lexer);
// "end of print statement", "'name'", ... for error texts; valid until the next call on this lexer.
const char *jinja_token_text(const jinja_lexer *lexer, char buffer[64]);

// --- the parser (template_statement.c, template_expression.c) ---

enum { JINJA_NESTING_MAX = 200 }; // of expressions and of statements in the source

typedef struct jinja_parser {
    jinja_task *task;
    jinja_lexer lexer;
    struct jinja_names *names;
    uint32_t depth, loops;
    uint8_t uses; // caller, varargs and kwargs read since it was cleared
    // Unknown filters and tests so far: an error unless an `if` shields them, as in Jinja.
    jinja_node *unknown[64];
    uint32_t unknown_count;
    uint64_t unknown_shielded; // one bit each
} jinja_parser;

// The one string for this spelling, NUL-terminated, so that names compare by pointer.
const jinja_string *jinja_intern(jinja_task *task, struct jinja_names *names, slice text);
struct jinja_names *jinja_names_open(jinja_task *task);
bool jinja_names_hold(const struct jinja_names *names, slice text);

jinja_node *jinja_node_new(jinja_parser *p, jinja_kind kind);
// Put `item` at the end of `list`; `tail` points at the last `next`.
void jinja_node_append(jinja_node *list, jinja_node ***tail, jinja_node *item);
jinja_node *jinja_parse_expression(jinja_parser *p);
// Items between commas are a tuple. `end_word` ends the list too (NULL: none).
jinja_node *jinja_parse_tuple(jinja_parser *p, bool conditional, const char *end_word);
jinja_node *jinja_parse_filters(jinja_parser *p, jinja_node *target, bool start_inline);
jinja_node *jinja_parse_unary(jinja_parser *p, bool filters);
void jinja_parser_enter(jinja_parser *p);
bool jinja_at(const jinja_parser *p, int token);
bool jinja_at_word(const jinja_parser *p, const char *word);
bool jinja_accept(jinja_parser *p, int token);
bool jinja_accept_word(jinja_parser *p, const char *word);
void jinja_expect(jinja_parser *p, int token, const char *what);
_Noreturn void jinja_unexpected(jinja_parser *p, const char *wanted);
void jinja_shield_unknown(jinja_parser *p, uint32_t first);
void jinja_refuse_unknown(jinja_parser *p, uint32_t first);
