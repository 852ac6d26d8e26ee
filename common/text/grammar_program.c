// Shapes to the program that the machine runs: nodes, rules, and what each node needs.
#include "text/grammar_private.h"

#include <ctype.h>

#define NODES_MAX 200000
#define RULES_MAX 20000
#define AUTOMATA_MAX 4000

struct grammar_rule {
    terms value;
    json_t *root;  // of its schemas, for references
    int32_t start; // -1: not compiled yet, or nothing is allowed
};

struct grammar_builder {
    program_node *nodes;
    size_t node_count, node_capacity;
    grammar_rule *rules;
    size_t rule_count, rule_capacity, rule_done;
    automaton **automata;
    size_t automaton_count, automaton_capacity;
    char *literals;
    size_t literal_size, literal_capacity;
};

void program_begin(grammar_task *t)
{
    t->builder = grammar_allocate(t, sizeof *t->builder);
}

int32_t program_add(grammar_task *t, node_kind kind, int32_t next, int32_t a, int32_t b)
{
    grammar_builder *p = t->builder;
    if (p->node_count >= NODES_MAX)
        grammar_fail(t, STATUS_TOO_LARGE, "", "the grammar needs more than %d nodes", NODES_MAX);
    p->nodes = grammar_grow(t, p->nodes, p->node_count, &p->node_capacity, sizeof(program_node));
    p->nodes[p->node_count] = (program_node){ kind, next, a, b, NODE_NEED_NEVER };
    grammar_work(t, 1);
    return (int32_t)p->node_count++;
}

int32_t program_fork(grammar_task *t, int32_t one, int32_t other)
{
    if (one < 0 || other < 0)
        return one < 0 ? other : one;
    return program_add(t, NODE_FORK, one, other, 0);
}

void program_patch(grammar_task *t, int32_t fork, int32_t one, int32_t other)
{
    program_node *n = &t->builder->nodes[fork];
    n->next = one < 0 ? other : one;
    n->a = other < 0 ? one : other;
}

int32_t program_bytes(grammar_task *t, slice text, int32_t next)
{
    grammar_builder *p = t->builder;
    if (text.size == 0 || next < 0)
        return next;
    // The same text again, as "," and names in several states of an object are.
    int32_t at = -1;
    for (size_t i = p->node_count; at < 0 && i > 0 && i + 64 > p->node_count; i--) {
        const program_node *n = &p->nodes[i - 1];
        if (n->kind == NODE_BYTES && n->b == (int32_t)text.size &&
            memcmp(p->literals + n->a, text.data, text.size) == 0)
            at = n->a;
    }
    if (at < 0) {
        at = (int32_t)p->literal_size;
        while (p->literal_size + text.size > p->literal_capacity)
            p->literals =
                grammar_grow(t, p->literals, p->literal_capacity, &p->literal_capacity, 1);
        memcpy(p->literals + at, text.data, text.size);
        p->literal_size += text.size;
    }
    return program_add(t, NODE_BYTES, next, at, (int32_t)text.size);
}

static int32_t automaton_index(grammar_task *t, automaton *a)
{
    grammar_builder *p = t->builder;
    for (size_t i = p->automaton_count; i > 0 && i + 32 > p->automaton_count; i--)
        if (p->automata[i - 1] == a)
            return (int32_t)i - 1;
    if (p->automaton_count >= AUTOMATA_MAX)
        grammar_fail(t, STATUS_TOO_LARGE, "", "the grammar has more than %d patterns",
                     AUTOMATA_MAX);
    p->automata =
        grammar_grow(t, p->automata, p->automaton_count, &p->automaton_capacity, sizeof a);
    p->automata[p->automaton_count] = a;
    return (int32_t)p->automaton_count++;
}

int32_t program_raw(grammar_task *t, automaton *a, int32_t next)
{
    return a->start == 0 || next < 0 ? -1
                                     : program_add(t, NODE_RAW, next, automaton_index(t, a), 0);
}

int32_t program_text(grammar_task *t, const shape_text *text, int32_t next)
{
    if (next < 0)
        return -1;
    if (!text->automaton)
        return program_add(t, NODE_FREE, next, (int32_t)text->min, (int32_t)text->max);
    if (text->automaton->start == 0)
        return -1;
    return program_add(t, NODE_TEXT, next, automaton_index(t, text->automaton), 0);
}

// As sets: recursion must come back to rules that are known, whatever joined their terms.
static bool terms_equal(grammar_task *t, const terms *a, const terms *b)
{
    bool same = a->count == b->count;
    for (int32_t i = 0; same && i < a->count; i++) {
        grammar_work(t, (uint64_t)b->count / 8);
        same = terms_hold(b, &a->list[i]);
    }
    return same;
}

int32_t program_value(grammar_task *t, terms value, int32_t next)
{
    grammar_builder *p = t->builder;
    size_t i = 0;
    if (next < 0)
        return -1;
    while (i < p->rule_count && !terms_equal(t, &p->rules[i].value, &value))
        i++;
    grammar_work(t, i / 8);
    if (i == p->rule_count) {
        if (p->rule_count >= RULES_MAX)
            grammar_fail(t, STATUS_TOO_LARGE, "", "the grammar has more than %d kinds of values",
                         RULES_MAX);
        p->rules = grammar_grow(t, p->rules, i, &p->rule_capacity, sizeof(grammar_rule));
        p->rules[p->rule_count++] = (grammar_rule){ value, t->root, -1 };
    }
    return program_add(t, NODE_CALL, next, (int32_t)i, 0);
}

static int32_t shape_emit(grammar_task *t, const shape *s, int32_t end)
{
    switch (s->kind) {
    case SHAPE_NULL:
        return program_bytes(t, SLICE("null"), end);
    case SHAPE_TRUE:
        return program_bytes(t, SLICE("true"), end);
    case SHAPE_FALSE:
        return program_bytes(t, SLICE("false"), end);
    case SHAPE_NUMBER:
        return program_raw(t, s->number, end);
    case SHAPE_TEXT:
        return program_text(t, &s->text, end);
    case SHAPE_ARRAY:
        return program_array(t, &s->array, end);
    default:
        return program_object(t, &s->object, end);
    }
}

void program_rules(grammar_task *t)
{
    grammar_builder *p = t->builder;
    for (; p->rule_done < p->rule_count; p->rule_done++) {
        terms value = p->rules[p->rule_done].value;
        t->depth = 0;
        t->root = p->rules[p->rule_done].root;
        shapes s = shapes_of(t, &value);
        int32_t start = -1, end = program_add(t, NODE_RETURN, -1, 0, 0);
        for (size_t i = s.count; i > 0; i--)
            start = program_fork(t, shape_emit(t, &s.list[i - 1], end), start);
        p->rules[p->rule_done].start = start;
    }
}

// ---- the end -----------------------------------------------------------------------------------

static int32_t node_need(const grammar_builder *p, const program_node *n)
{
    int32_t next = n->next >= 0 ? p->nodes[n->next].need : 0, other;
    if (n->kind == NODE_RETURN)
        return 0;
    if (n->next < 0) // a fork that leads nowhere
        return NODE_NEED_NEVER;
    if (n->kind == NODE_FORK) {
        other = p->nodes[n->a].need;
        return next < other ? next : other;
    }
    if (n->kind != NODE_CALL || next == NODE_NEED_NEVER)
        return next;
    int32_t start = p->rules[n->a].start;
    other = start < 0 ? NODE_NEED_NEVER : p->nodes[start].need;
    // A call whose rule is the last of its own nests nothing: the machine keeps no frame for it.
    if (other != NODE_NEED_NEVER && p->nodes[n->next].kind != NODE_RETURN)
        other++;
    return next > other ? next : other;
}

// Least fixpoint, from above: what stays NODE_NEED_NEVER can never be completed.
static void needs_find(grammar_task *t)
{
    grammar_builder *p = t->builder;
    bool changed = true;
    while (changed) {
        changed = false;
        grammar_work(t, p->node_count);
        // Nodes follow what they lead to, but for loops and rules.
        for (size_t i = 0; i < p->node_count; i++) {
            int32_t need = node_need(p, &p->nodes[i]);
            changed |= need != p->nodes[i].need;
            p->nodes[i].need = need;
        }
    }
}

// Split the classes of bytes by another partition.
static void classes_split(grammar *g, const uint8_t other[256])
{
    int16_t seen[256][2];
    int32_t count = 0;
    for (int byte = 0; byte < 256; byte++) {
        int32_t c = 0;
        while (c < count && (seen[c][0] != g->class_of[byte] || seen[c][1] != other[byte]))
            c++;
        if (c == count) {
            seen[count][0] = g->class_of[byte];
            seen[count++][1] = other[byte];
            g->class_byte[c] = (uint8_t)byte;
        }
        // Earlier bytes were moved already; `seen` keeps what they were.
        g->class_of[byte] = (uint8_t)c;
    }
    g->classes = count;
}

// What JSON strings tell apart (escapes, and the parts of UTF-8).
static void classes_of_strings(uint8_t map[256])
{
    static const char own[] = "\"\\/bfnrtudD";
    for (int byte = 0; byte < 256; byte++) {
        const char *at = byte ? strchr(own, byte) : NULL;
        bool digit = byte >= '0' && byte <= '9', letter = byte >= 'a' && byte <= 'f';
        bool capital = byte >= 'A' && byte <= 'F';
        map[byte] = at                           ? (uint8_t)(1 + (at - own))
                    : byte < 0x20                ? 20
                    : byte == '0' || byte == '1' ? (uint8_t)(21 + byte - '0')
                    : digit                      ? (byte < '8' ? 23 : 24)
                    : letter || capital          ? ((byte & 0xdf) < 'C' ? 25 : 26)
                    : byte < 0x80                ? 27
                    : byte < 0xc0                ? (byte < 0x90   ? 28
                                                    : byte < 0xa0 ? 29
                                                                  : 30)
                    : byte < 0xc2                ? 31
                    : byte < 0xe0                ? 32
                    : byte < 0xf0                ? (byte == 0xe0   ? 33
                                                    : byte == 0xed ? 34
                                                                   : 35)
                    : byte < 0xf5                ? (byte == 0xf0   ? 36
                                                    : byte == 0xf4 ? 37
                                                                   : 38)
                                                 : 39;
    }
}

// Whether some content of the strings of a NODE_TEXT has a control character, which is written with
// hexadecimal digits.
static bool has_controls(const automaton *a)
{
    for (int byte = 0; byte < 0x20; byte++)
        for (int32_t s = 1; s < a->states; s++)
            if (automaton_next(a, s, (uint8_t)byte) != 0)
                return true;
    return false;
}

static void classes_find(grammar_task *t, grammar *g)
{
    const grammar_builder *p = t->builder;
    uint8_t map[256];
    bool strings = false, controls = false;
    memset(g->class_of, 0, sizeof g->class_of);
    for (size_t i = 0; i < p->node_count; i++) {
        const program_node *n = &p->nodes[i];
        strings |= n->kind == NODE_FREE || n->kind == NODE_TEXT;
        if (controls || n->kind != NODE_TEXT)
            continue;
        grammar_work(t, (uint64_t)p->automata[n->a]->states);
        controls = has_controls(p->automata[n->a]);
    }
    classes_of_strings(map);
    if (strings)
        classes_split(g, map);
    for (int byte = 0; byte < 256; byte++)
        map[byte] =
            byte < 0x80 && isxdigit(byte) ? (uint8_t)(1 + (byte & 0x1f) + (byte & 0x40)) : 0;
    if (controls)
        classes_split(g, map);
    for (size_t i = 0; i < p->automaton_count; i++) {
        grammar_work(t, 1024);
        classes_split(g, p->automata[i]->class_of);
    }
    for (int byte = 0; byte < 256; byte++)
        map[byte] =
            p->literal_size > 0 && memchr(p->literals, byte, p->literal_size) ? (uint8_t)byte : 255;
    classes_split(g, map);
}

static void *kept(grammar_task *t, const void *data, size_t size)
{
    void *copy = grammar_allocate(t, size);
    if (size > 0)
        memcpy(copy, data, size);
    return copy;
}

void program_end(grammar_task *t, int32_t start, grammar *g)
{
    const grammar_builder *p = t->builder;
    needs_find(t);
    if (p->nodes[start].need >= GRAMMAR_DEPTH_MAX)
        grammar_fail(t, STATUS_INVALID, "", "no finite value is allowed by it");
    classes_find(t, g);
    t->scratch = t->blocks;
    t->blocks = NULL;
    t->memory_used = 0;
    g->start = start;
    g->node_count = (int32_t)p->node_count;
    g->nodes = kept(t, p->nodes, p->node_count * sizeof(program_node));
    g->rule_count = (int32_t)p->rule_count;
    g->rules = grammar_allocate(t, p->rule_count * sizeof(int32_t));
    for (size_t i = 0; i < p->rule_count; i++)
        g->rules[i] = p->rules[i].start;
    g->automaton_count = (int32_t)p->automaton_count;
    g->automata = grammar_allocate(t, p->automaton_count * sizeof(automaton));
    for (size_t i = 0; i < p->automaton_count; i++) {
        automaton *a = &g->automata[i];
        *a = *p->automata[i];
        a->next = kept(t, a->next, (size_t)a->states * (size_t)a->classes * sizeof(int32_t));
        a->accepts = kept(t, a->accepts, (size_t)a->states);
    }
    g->literals = kept(t, p->literals, p->literal_size);
}
