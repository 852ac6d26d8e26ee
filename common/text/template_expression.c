// Expressions, by the grammar of Jinja 3.1, loosest first: conditional, or, and, not, comparison, +
// -, ~,
// * / // %, ** (which associates to the left); then what template_primary.c reads.
#include "text/template_syntax.h"

static jinja_node *parse_or(jinja_parser *p);

jinja_node *jinja_node_new(jinja_parser *p, jinja_kind kind)
{
    jinja_node *node = jinja_allocate(p->task, sizeof *node);
    *node = (jinja_node){ .kind = kind, .line = p->lexer.token_line };
    return node;
}

bool jinja_at(const jinja_parser *p, int token)
{
    return p->lexer.token == token;
}

bool jinja_at_word(const jinja_parser *p, const char *word)
{
    return p->lexer.token == JINJA_IDENTIFIER && slice_equal(p->lexer.text, slice_of(word));
}

bool jinja_accept(jinja_parser *p, int token)
{
    if (!jinja_at(p, token))
        return false;
    jinja_lexer_next(&p->lexer);
    return true;
}

bool jinja_accept_word(jinja_parser *p, const char *word)
{
    if (!jinja_at_word(p, word))
        return false;
    jinja_lexer_next(&p->lexer);
    return true;
}

_Noreturn void jinja_unexpected(jinja_parser *p, const char *wanted)
{
    char text[64];
    p->task->line = p->lexer.token_line;
    jinja_fail(p->task, TEMPLATE_FAULT_RUNTIME, "found %s where %s was expected",
               jinja_token_text(&p->lexer, text), wanted);
}

void jinja_expect(jinja_parser *p, int token, const char *what)
{
    if (!jinja_accept(p, token))
        jinja_unexpected(p, what);
}

void jinja_parser_enter(jinja_parser *p)
{
    p->task->line = p->lexer.token_line;
    if (++p->depth > JINJA_NESTING_MAX)
        jinja_fail(p->task, TEMPLATE_FAULT_LIMIT, "it is nested more than %d deep",
                   JINJA_NESTING_MAX);
}

// Put `item` at the end of a list; `tail` points at the last `next`.
void jinja_node_append(jinja_node *list, jinja_node ***tail, jinja_node *item)
{
    **tail = item;
    *tail = &item->next;
    list->count++;
}

static jinja_node *binary(jinja_parser *p, int operator, jinja_node * left)
{
    jinja_node *node = jinja_node_new(p, JINJA_BINARY);
    node->operator=(uint8_t) operator;
    node->a = left;
    return node;
}

static jinja_node *parse_product(jinja_parser *p)
{
    jinja_node *left = NULL;
    int operator= 0;
    for (;;) {
        jinja_node *right = jinja_parse_unary(p, true);
        while (jinja_at(p, JINJA_POWER)) {
            right = binary(p, JINJA_POWER, right);
            jinja_lexer_next(&p->lexer);
            right->b = jinja_parse_unary(p, true);
        }
        if (left) {
            left = binary(p, operator, left);
            left->b = right;
        } else {
            left = right;
        }
        operator= p->lexer.token;
        if (operator!= '*' && operator!= '/' && operator!= '%' && operator!= JINJA_FLOOR_DIVIDE)
            return left;
        jinja_lexer_next(&p->lexer);
    }
}

static jinja_node *parse_concatenation(jinja_parser *p)
{
    jinja_node *first = parse_product(p);
    if (!jinja_at(p, '~'))
        return first;
    jinja_node *node = jinja_node_new(p, JINJA_CONCATENATE), **tail = &node->a;
    jinja_node_append(node, &tail, first);
    while (jinja_accept(p, '~'))
        jinja_node_append(node, &tail, parse_product(p));
    return node;
}

static jinja_node *parse_sum(jinja_parser *p)
{
    jinja_node *left = parse_concatenation(p);
    while (jinja_at(p, '+') || jinja_at(p, '-')) {
        left = binary(p, p->lexer.token, left);
        jinja_lexer_next(&p->lexer);
        left->b = parse_concatenation(p);
    }
    return left;
}

static int comparison_operator(jinja_parser *p)
{
    int token = p->lexer.token;
    if (token == JINJA_EQUAL || token == JINJA_NOT_EQUAL || token == JINJA_LESS_EQUAL ||
        token == JINJA_GREATER_EQUAL || token == '<' || token == '>') {
        jinja_lexer_next(&p->lexer);
        return token;
    }
    if (jinja_accept_word(p, "in"))
        return JINJA_IN;
    if (!jinja_at_word(p, "not"))
        return 0;
    // "not" here can only begin "not in": look ahead on a copy.
    jinja_lexer ahead = p->lexer;
    jinja_lexer_next(&ahead);
    if (ahead.token != JINJA_IDENTIFIER || !slice_equal(ahead.text, SLICE("in")))
        return 0;
    p->lexer = ahead;
    jinja_lexer_next(&p->lexer);
    return JINJA_NOT_IN;
}

static jinja_node *parse_comparison(jinja_parser *p)
{
    jinja_node *first = parse_sum(p), *node = NULL, **tail = NULL;
    int operator;
    while ((operator= comparison_operator(p))) {
        if (!node) {
            node = jinja_node_new(p, JINJA_COMPARE);
            node->a = first;
            tail = &node->b;
        }
        jinja_node *operand = parse_sum(p), *step = jinja_node_new(p, JINJA_ARGUMENT);
        step->a = operand;
        step->operator=(uint8_t) operator;
        jinja_node_append(node, &tail, step);
    }
    return node ? node : first;
}

static jinja_node *parse_not(jinja_parser *p)
{
    if (!jinja_at_word(p, "not"))
        return parse_comparison(p);
    jinja_parser_enter(p);
    jinja_node *node = jinja_node_new(p, JINJA_NOT);
    jinja_lexer_next(&p->lexer);
    node->a = parse_not(p);
    p->depth--;
    return node;
}

static jinja_node *parse_and(jinja_parser *p)
{
    jinja_node *left = parse_not(p);
    while (jinja_at_word(p, "and")) {
        jinja_node *node = jinja_node_new(p, JINJA_AND);
        jinja_lexer_next(&p->lexer);
        node->a = left;
        node->b = parse_not(p);
        left = node;
    }
    return left;
}

static jinja_node *parse_or(jinja_parser *p)
{
    jinja_node *left = parse_and(p);
    while (jinja_at_word(p, "or")) {
        jinja_node *node = jinja_node_new(p, JINJA_OR);
        jinja_lexer_next(&p->lexer);
        node->a = left;
        node->b = parse_and(p);
        left = node;
    }
    return left;
}

jinja_node *jinja_parse_expression(jinja_parser *p)
{
    jinja_parser_enter(p);
    uint32_t first = p->unknown_count;
    jinja_node *value = parse_or(p);
    while (jinja_at_word(p, "if")) {
        jinja_node *node = jinja_node_new(p, JINJA_CONDITIONAL);
        jinja_lexer_next(&p->lexer);
        node->a = value;
        node->b = parse_or(p);
        if (jinja_accept_word(p, "else"))
            node->c = jinja_parse_expression(p);
        jinja_shield_unknown(p, first);
        value = node;
    }
    p->depth--;
    return value;
}

jinja_node *jinja_parse_tuple(jinja_parser *p, bool conditional, const char *end_word)
{
    jinja_node *tuple = jinja_node_new(p, JINJA_TUPLE_OF), **tail = &tuple->a;
    bool comma = false;
    for (;;) {
        bool ends = jinja_at(p, JINJA_EXPRESSION_END) || jinja_at(p, JINJA_BLOCK_END) ||
                    jinja_at(p, ')') || (end_word && jinja_at_word(p, end_word));
        if (ends && tuple->count > 0)
            break;
        jinja_node_append(tuple, &tail, conditional ? jinja_parse_expression(p) : parse_or(p));
        if (!jinja_accept(p, ','))
            break;
        comma = true;
    }
    return comma ? tuple : tuple->a;
}
