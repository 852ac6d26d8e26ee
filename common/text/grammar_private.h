// Inside the grammar compiler: its task, and the parts that it hands from one to the next:
//
//   source --schema, template--> shapes --program--> nodes       (grammar_schema*.c,
//   grammar_program.c) pattern --regex--> NFA --subsets--> automaton (grammar_regex.c,
//   grammar_automaton.c)
//
// A task owns an arena and a landing place: whatever goes wrong below jumps to the one setjmp in
// grammar_compile. That is safe because nothing below owns anything but arena memory.
#pragma once

#include "text/grammar.h"

#include <jansson.h>
#include <setjmp.h>

// The value of a hexadecimal digit, or -1.
static inline int hex_digit(uint8_t byte)
{
    return byte >= '0' && byte <= '9'   ? byte - '0'
           : byte >= 'a' && byte <= 'f' ? byte - 'a' + 10
           : byte >= 'A' && byte <= 'F' ? byte - 'A' + 10
                                        : -1;
}

// ---- the task (grammar.c) ----------------------------------------------------------------------

typedef struct grammar_block grammar_block;
typedef struct grammar_builder grammar_builder;
typedef struct grammar_rule grammar_rule;

typedef struct grammar_task {
    jmp_buf landing;
    error *failure; // may be NULL
    status code;
    grammar_block *blocks;
    grammar_block *scratch; // blocks of what the program was made from, once it is made
    size_t memory_used;
    uint64_t work_used;
    grammar_builder *builder;
    json_t *root;                                    // of the schema that is compiled now
    int depth;                                       // of shapes_of
    struct automaton *any_number, *canonical_number; // NULL: not asked for yet
} grammar_task;

// Zeroed memory that lives as long as the task.
void *grammar_allocate(grammar_task *t, size_t size);
// Room for one more item behind `count`: the array, perhaps moved.
void *grammar_grow(grammar_task *t, void *items, size_t count, size_t *capacity, size_t item_size);
// Count elementary operations; a source that needs too many is refused.
void grammar_work(grammar_task *t, uint64_t operations);
// `param` is the keyword at fault, or "".
_Noreturn void grammar_fail(grammar_task *t, status code, const char *param, const char *format,
                            ...) __attribute__((format(printf, 4, 5)));

// ---- automata (grammar_automaton.c, grammar_nfa.c)
// -----------------------------------------------

// A deterministic automaton over bytes. State 0 is dead, and from every other one an accepting one
// can be reached; `start` 0: it accepts nothing.
typedef struct automaton {
    int32_t states, classes, start;
    bool exact; // it stands for just what the schema allows, so that its complement may be taken
    uint8_t class_of[256];
    int32_t *next; // [states][classes]
    bool *accepts; // [states]
} automaton;

static inline int32_t automaton_next(const automaton *a, int32_t state, uint8_t byte)
{
    return a->next[state * a->classes + a->class_of[byte]];
}
bool automaton_accepts(const automaton *a, slice text);

typedef enum automaton_operation {
    AUTOMATON_BOTH,
    AUTOMATON_EITHER,
    AUTOMATON_FIRST_ONLY,
} automaton_operation;
automaton *automaton_combine(grammar_task *t, const automaton *a, const automaton *b,
                             automaton_operation operation);
// Make what cannot reach an accepting state dead.
void automaton_trim(grammar_task *t, automaton *a);

// A nondeterministic one, while it is built: nodes by index, node 0 accepts.
typedef enum nfa_kind { NFA_ACCEPT, NFA_FORK, NFA_RANGE, NFA_BEGIN, NFA_END } nfa_kind;
typedef struct nfa_node {
    nfa_kind kind;
    uint8_t low, high;   // NFA_RANGE: bytes
    int32_t next, other; // other: NFA_FORK
} nfa_node;
typedef struct nfa {
    nfa_node *nodes;
    size_t count, capacity;
} nfa;
void nfa_begin(grammar_task *t, nfa *n);
int32_t nfa_add(grammar_task *t, nfa *n, nfa_node node);
// A path of bytes to `next`; its first node.
int32_t nfa_bytes(grammar_task *t, nfa *n, slice text, int32_t next);
// One character out of low..high (code points), as UTF-8; surrogates are left out.
int32_t nfa_characters(grammar_task *t, nfa *n, int32_t low, int32_t high, int32_t next);
// Any number of characters, then `next`.
int32_t nfa_anything(grammar_task *t, nfa *n, int32_t next);
automaton *nfa_determine(grammar_task *t, const nfa *n, int32_t start);

// The texts of a list, and texts by their number of characters (max < 0: no limit).
automaton *automaton_of_texts(grammar_task *t, const slice *texts, size_t count);
automaton *automaton_of_length(grammar_task *t, int64_t min, int64_t max);

// ---- regular expressions (grammar_regex.c)
// -------------------------------------------------------

// `anchored`: the whole text must match; else some part of it.
automaton *regex_compile(grammar_task *t, slice pattern, bool anchored, const char *param);
// The pattern of a known `format`, or NULL.
const char *regex_of_format(const char *format);

// ---- numbers (grammar_number.c)
// ------------------------------------------------------------------

// A number as decimal digits, exactly.
#define DECIMAL_DIGITS_MAX 340
typedef struct decimal {
    bool negative;
    int whole, fraction; // digits of each in `digits`; no zero in front but a single one
    uint8_t digits[2 * DECIMAL_DIGITS_MAX];
} decimal;
typedef struct number_rules {
    bool integer, has_low, has_high, low_exclusive, high_exclusive;
    decimal low, high;
    int64_t multiple; // 0: any
} number_rules;
decimal decimal_of(grammar_task *t, const json_t *number);
int decimal_compare(const decimal *a, const decimal *b);
automaton *number_compile(grammar_task *t, const number_rules *rules);
// Just this number, in one spelling.
automaton *number_constant(grammar_task *t, const json_t *number);
// What complements are taken in: each number in one spelling.
automaton *number_canonical(grammar_task *t);

// ---- shapes (grammar_shapes.c)
// ---------------------------------------------------------------------

// What a value must be: all of its terms. None: anything.
typedef enum term_kind { TERM_SCHEMA, TERM_NOT_SCHEMA, TERM_VALUE } term_kind;
typedef struct term {
    term_kind kind;
    const json_t *json; // identity is the pointer
} term;
typedef struct terms {
    term *list; // without repetition, in the order of the source: it orders the properties
    int32_t count;
} terms;
bool terms_hold(const terms *list, const term *x);
// Those of `a`, then those of `b` that are not among them. Never ordered by address: the same
// source must be the same language in every process.
terms terms_join(grammar_task *t, terms a, terms b);
terms terms_of(grammar_task *t, term_kind kind, const json_t *json);

typedef enum shape_kind {
    SHAPE_NULL,
    SHAPE_TRUE,
    SHAPE_FALSE,
    SHAPE_NUMBER,
    SHAPE_TEXT,
    SHAPE_ARRAY,
    SHAPE_OBJECT,
    SHAPE_KINDS
} shape_kind;

typedef struct shape_text {
    automaton *automaton; // NULL: free, with a length in characters
    int64_t min, max;     // max < 0: no limit
} shape_text;

typedef struct shape_array {
    terms *prefix;
    int32_t prefix_count;
    terms rest;
    int64_t min, max;
    bool has_contains;
    terms contains;       // of one item at least
    const json_t *unique; // the values of which each may come once; NULL: not so
} shape_array;

typedef struct object_property {
    slice name;
    terms value;
    bool required;
} object_property;
typedef struct object_pattern {
    automaton *names;
    terms value;
} object_pattern;
// What one schema says of names that are not listed: by patterns, or else `extra`.
typedef struct object_free {
    object_pattern *patterns;
    int32_t pattern_count;
    terms extra;
} object_free;
typedef struct shape_object {
    object_property *properties;
    int32_t property_count;
    size_t property_capacity;
    object_free *free;
    int32_t free_count;
    automaton *names; // of free ones; NULL: any
    int64_t min, max;
} shape_object;

// One alternative of what a value may be.
typedef struct shape {
    shape_kind kind;
    union {
        automaton *number;
        shape_text text;
        shape_array array;
        shape_object object;
    };
} shape;
typedef struct shapes {
    shape *list;
    size_t count, capacity;
} shapes;

void shapes_add(grammar_task *t, shapes *s, shape one);
shape shape_any(grammar_task *t, shape_kind kind);
shapes shapes_any(grammar_task *t);
shapes shapes_both(grammar_task *t, const shapes *a, const shapes *b, const char *keyword);
void shapes_unite(grammar_task *t, shapes *a, const shapes *b);
// What is none of `a`; `keyword` asked for it.
shapes shapes_complement(grammar_task *t, const shapes *a, const char *keyword);
automaton *text_automaton(grammar_task *t, const shape_text *text);
// What an object says of a name that it does not list.
terms object_free_value(grammar_task *t, const shape_object *o, slice name);
object_property *object_find(const shape_object *o, slice name);
void object_add(grammar_task *t, shape_object *o, object_property p);
// True where no value can be both.
bool shape_apart(grammar_task *t, const shape *a, const shape *b, const char *keyword);

// ---- schemas (grammar_schema.c, grammar_keywords.c)
// -----------------------------------------------

shapes shapes_of(grammar_task *t, const terms *value);
shapes shapes_of_schema(grammar_task *t, const json_t *schema);
shapes shapes_of_value(grammar_task *t, const json_t *value);
// Where a $ref leads.
const json_t *schema_resolve(grammar_task *t, const char *reference);
// The shape that a schema's own keywords give one kind.
shape keywords_number(grammar_task *t, const json_t *schema, bool integer);
shape keywords_text(grammar_task *t, const json_t *schema);
shape keywords_array(grammar_task *t, const json_t *schema);
shape keywords_object(grammar_task *t, const json_t *schema);
// An integer keyword of at least 0, or `missing`.
int64_t keyword_count(grammar_task *t, const json_t *schema, const char *keyword, int64_t missing);

// ---- the program (grammar_program.c)
// --------------------------------------------------------------

// What the machine runs: a graph of nodes. Threads stand at nodes that consume bytes.
typedef enum node_kind {
    NODE_RETURN, // of a rule: goes on behind the call
    NODE_FORK,   // both `next` and `a`
    NODE_CALL,   // rule `a`, then `next`
    NODE_BYTES,  // `b` bytes at literals + `a`
    NODE_RAW,    // what automaton `a` accepts
    NODE_TEXT,   // a JSON string whose content automaton `a` accepts
    NODE_FREE,   // any JSON string of `a` to `b` characters (b < 0: no limit)
} node_kind;

#define NODE_NEED_NEVER INT32_MAX

typedef struct program_node {
    node_kind kind;
    int32_t next, a, b;
    int32_t need; // calls that must nest from here to the rule's return; NODE_NEED_NEVER: no way
} program_node;

struct grammar {
    _Atomic int32_t holders;
    program_node *nodes;
    int32_t node_count, start;
    int32_t *rules; // [rule_count] first node of each
    int32_t rule_count;
    automaton *automata;
    int32_t automaton_count;
    char *literals;
    uint8_t class_of[256]; // bytes that no node tells apart
    uint8_t class_byte[256];
    int32_t classes;
    grammar_block *blocks; // what all of it lies in
};

void program_begin(grammar_task *t);
int32_t program_add(grammar_task *t, node_kind kind, int32_t next, int32_t a, int32_t b);
int32_t program_fork(grammar_task *t, int32_t one, int32_t other); // either may be -1: the other
// Make a NODE_FORK that was added before its ways were known lead to them; either may be -1.
void program_patch(grammar_task *t, int32_t fork, int32_t one, int32_t other);
int32_t program_bytes(grammar_task *t, slice text, int32_t next);
int32_t program_raw(grammar_task *t, automaton *a, int32_t next);
int32_t program_text(grammar_task *t, const shape_text *text, int32_t next);
// A call of the rule for such a value, compiled when it is first asked for; -1: none such can be.
int32_t program_value(grammar_task *t, terms value, int32_t next);
// Nodes for an object or array (grammar_containers.c).
int32_t program_array(grammar_task *t, const shape_array *array, int32_t next);
int32_t program_object(grammar_task *t, const shape_object *object, int32_t next);
// Compile what is still asked for.
void program_rules(grammar_task *t);
void program_end(grammar_task *t, int32_t start, grammar *g);
// The nodes of a template (grammar_template.c).
int32_t grammar_template(grammar_task *t, const json_t *node, int32_t next);
