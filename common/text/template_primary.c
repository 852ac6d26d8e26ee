// What binds tightest in an expression: signs, literals, names, brackets, then the attributes,
// subscripts, calls, filters and tests behind them.
#include "text/template_syntax.h"

#include <stdio.h>

static const jinja_string *take_name(jinja_parser *p, const char *what)
{
    if (!jinja_at(p, JINJA_IDENTIFIER))
        jinja_unexpected(p, what);
    const jinja_string *name = jinja_intern(p->task, p->names, p->lexer.text);
    jinja_lexer_next(&p->lexer);
    return name;
}

static jinja_node *string_constant(jinja_parser *p)
{
    jinja_node *node = jinja_node_new(p, JINJA_CONSTANT);
    slice all = p->lexer.text;
    jinja_lexer_next(&p->lexer);
    while (jinja_at(p, JINJA_TEXT_LITERAL)) { // neighbours are joined, as in Python
        slice more = p->lexer.text;
        char *joined = jinja_allocate(p->task, all.size + more.size + 1);
        memcpy(joined, all.data, all.size);
        memcpy(joined + all.size, more.data, more.size);
        all = (slice){ joined, all.size + more.size };
        jinja_lexer_next(&p->lexer);
    }
    jinja_string *s = jinja_allocate(p->task, sizeof *s);
    *s = (jinja_string){ .bytes = all.data,
                         .size = (uint32_t)all.size,
                         .length = (uint32_t)jinja_count_points(all),
                         .origin = JINJA_MARKUP };
    jinja_intern(p->task, p->names, all); // so that template_mentions finds it
    node->value = (jinja_value){ .type = JINJA_STRING, .string = s };
    return node;
}

static jinja_node *parse_name(jinja_parser *p)
{
    static const struct {
        const char *word;
        jinja_value value;
    } words[] = { { "true", { .type = JINJA_BOOL, .boolean = true } },
                  { "True", { .type = JINJA_BOOL, .boolean = true } },
                  { "false", { .type = JINJA_BOOL } },
                  { "False", { .type = JINJA_BOOL } },
                  { "none", { .type = JINJA_NONE } },
                  { "None", { .type = JINJA_NONE } } };
    jinja_node *node = jinja_node_new(p, JINJA_NAME);
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        if (jinja_accept_word(p, words[i].word)) {
            node->kind = JINJA_CONSTANT;
            node->value = words[i].value;
            return node;
        }
    }
    if (jinja_at_word(p, "caller"))
        p->uses |= JINJA_USES_CALLER;
    else if (jinja_at_word(p, "varargs"))
        p->uses |= JINJA_USES_VARARGS;
    else if (jinja_at_word(p, "kwargs"))
        p->uses |= JINJA_USES_KWARGS;
    node->text = take_name(p, "a name");
    return node;
}

static jinja_node *parse_list(jinja_parser *p)
{
    jinja_node *list = jinja_node_new(p, JINJA_LIST_OF), **tail = &list->a;
    jinja_lexer_next(&p->lexer);
    while (!jinja_accept(p, ']')) {
        if (list->count > 0)
            jinja_expect(p, ',', "',' or ']'");
        if (jinja_accept(p, ']'))
            break;
        jinja_node_append(list, &tail, jinja_parse_expression(p));
    }
    return list;
}

static jinja_node *parse_dict(jinja_parser *p)
{
    jinja_node *dict = jinja_node_new(p, JINJA_DICT_OF), **tail = &dict->a;
    jinja_lexer_next(&p->lexer);
    while (!jinja_accept(p, '}')) {
        if (dict->count > 0)
            jinja_expect(p, ',', "',' or '}'");
        if (jinja_accept(p, '}'))
            break;
        jinja_node_append(dict, &tail, jinja_parse_expression(p));
        jinja_expect(p, ':', "':'");
        jinja_node_append(dict, &tail, jinja_parse_expression(p));
    }
    return dict;
}

static jinja_node *parse_primary(jinja_parser *p)
{
    jinja_node *node;
    switch (p->lexer.token) {
    case JINJA_IDENTIFIER:
        return parse_name(p);
    case JINJA_TEXT_LITERAL:
        return string_constant(p);
    case JINJA_INT_LITERAL:
        node = jinja_node_new(p, JINJA_CONSTANT);
        node->value = jinja_int(p->lexer.integer);
        jinja_lexer_next(&p->lexer);
        return node;
    case JINJA_FLOAT_LITERAL:
        node = jinja_node_new(p, JINJA_CONSTANT);
        node->value = jinja_float(p->lexer.real);
        jinja_lexer_next(&p->lexer);
        return node;
    case '(':
        node = jinja_node_new(p, JINJA_TUPLE_OF);
        jinja_lexer_next(&p->lexer);
        if (jinja_accept(p, ')'))
            return node;
        node = jinja_parse_tuple(p, true, NULL);
        jinja_expect(p, ')', "')'");
        return node;
    case '[':
        return parse_list(p);
    case '{':
        return parse_dict(p);
    default:
        jinja_unexpected(p, "an expression");
    }
}

// The arguments of a call, filter or test, from '(' to ')'.
static void parse_arguments(jinja_parser *p, jinja_node *call)
{
    jinja_node **tail = &call->b;
    jinja_expect(p, '(', "'('");
    bool named = false;
    while (!jinja_accept(p, ')')) {
        if (call->count > 0)
            jinja_expect(p, ',', "',' or ')'");
        if (jinja_accept(p, ')'))
            break;
        jinja_node *argument = jinja_node_new(p, JINJA_ARGUMENT);
        if (jinja_accept(p, '*'))
            argument->operator= '*';
        else if (jinja_accept(p, JINJA_POWER))
            argument->operator= 'd';
        argument->a = jinja_parse_expression(p);
        if (!argument->operator&& jinja_at(p, '=') && argument->a->kind == JINJA_NAME) {
            jinja_lexer_next(&p->lexer);
            argument->text = argument->a->text;
            argument->a = jinja_parse_expression(p);
            named = true;
        } else if (!argument->operator&& named) {
            jinja_unexpected(p, "a named argument after another one");
        }
        jinja_node_append(call, &tail, argument);
    }
}

static jinja_node *parse_subscript_part(jinja_parser *p)
{
    jinja_node *slice_node = jinja_node_new(p, JINJA_SLICE);
    jinja_node **bounds[3] = { &slice_node->b, &slice_node->c, &slice_node->d };
    bool is_slice = false;
    for (int i = 0; i < 3; i++) {
        if (!jinja_at(p, ':') && !jinja_at(p, ']') && !jinja_at(p, ','))
            *bounds[i] = jinja_parse_expression(p);
        if (i < 2 && jinja_accept(p, ':'))
            is_slice = true;
        else
            break;
    }
    if (is_slice)
        return slice_node;
    if (!slice_node->b)
        jinja_unexpected(p, "an expression");
    return slice_node->b;
}

static jinja_node *parse_subscript(jinja_parser *p, jinja_node *target)
{
    jinja_node *node = jinja_node_new(p, JINJA_ITEM);
    node->a = target;
    if (jinja_accept(p, '.')) {
        if (jinja_at(p, JINJA_INT_LITERAL)) {
            node->b = jinja_node_new(p, JINJA_CONSTANT);
            node->b->value = jinja_int(p->lexer.integer);
            jinja_lexer_next(&p->lexer);
            return node;
        }
        node->kind = JINJA_ATTRIBUTE;
        node->text = take_name(p, "a name or a number");
        return node;
    }
    jinja_lexer_next(&p->lexer);
    jinja_node *part = parse_subscript_part(p);
    if (jinja_at(p, ',')) { // a tuple as key
        jinja_node *tuple = jinja_node_new(p, JINJA_TUPLE_OF), **tail = &tuple->a;
        jinja_node_append(tuple, &tail, part);
        while (jinja_accept(p, ',') && !jinja_at(p, ']'))
            jinja_node_append(tuple, &tail, parse_subscript_part(p));
        part = tuple;
    }
    jinja_expect(p, ']', "']'");
    if (part->kind == JINJA_SLICE && !part->a) {
        part->a = target;
        return part;
    }
    node->b = part;
    return node;
}

static jinja_node *parse_call(jinja_parser *p, jinja_node *callee)
{
    jinja_node *call = jinja_node_new(p, JINJA_CALL);
    call->a = callee;
    parse_arguments(p, call);
    return call;
}

static jinja_node *parse_postfix(jinja_parser *p, jinja_node *node)
{
    for (;;) {
        if (jinja_at(p, '.') || jinja_at(p, '['))
            node = parse_subscript(p, node);
        else if (jinja_at(p, '('))
            node = parse_call(p, node);
        else
            return node;
    }
}

// "a.b.c": the names of filters and tests may hold dots.
static const jinja_string *dotted_name(jinja_parser *p, const char *what)
{
    const jinja_string *name = take_name(p, what);
    while (jinja_accept(p, '.')) {
        const jinja_string *more = take_name(p, what);
        char text[128];
        int size = snprintf(text, sizeof text, "%.*s.%.*s", (int)name->size, name->bytes,
                            (int)more->size, more->bytes);
        if (size < 0 || size >= (int)sizeof text)
            jinja_unexpected(p, "a shorter name");
        name = jinja_intern(p->task, p->names, (slice){ text, (size_t)size });
    }
    return name;
}

static void note_unknown(jinja_parser *p, jinja_node *node)
{
    if (node->routine)
        return;
    p->unknown[p->unknown_count++] = node;
    if (p->unknown_count == sizeof p->unknown / sizeof *p->unknown) {
        p->unknown_shielded = 0;
        jinja_refuse_unknown(p, p->unknown_count - 1);
    }
}

static jinja_node *parse_filter(jinja_parser *p, jinja_node *target)
{
    jinja_node *node = jinja_node_new(p, JINJA_FILTER);
    node->a = target;
    node->text = dotted_name(p, "the name of a filter");
    node->routine = jinja_find_filter(jinja_slice(node->text));
    note_unknown(p, node);
    if (jinja_at(p, '('))
        parse_arguments(p, node);
    return node;
}

static bool begins_test_argument(const jinja_parser *p)
{
    switch (p->lexer.token) {
    case JINJA_IDENTIFIER:
        return !jinja_at_word(p, "else") && !jinja_at_word(p, "or") && !jinja_at_word(p, "and");
    case JINJA_TEXT_LITERAL:
    case JINJA_INT_LITERAL:
    case JINJA_FLOAT_LITERAL:
    case '(':
    case '[':
    case '{':
        return true;
    default:
        return false;
    }
}

static jinja_node *parse_test(jinja_parser *p, jinja_node *target)
{
    bool negated = jinja_accept_word(p, "not");
    jinja_node *node = jinja_node_new(p, JINJA_TEST);
    node->a = target;
    node->text = dotted_name(p, "the name of a test");
    node->routine = jinja_find_test(jinja_slice(node->text));
    note_unknown(p, node);
    if (jinja_at(p, '(')) {
        parse_arguments(p, node);
    } else if (begins_test_argument(p)) {
        if (jinja_at_word(p, "is"))
            jinja_unexpected(p, "no second test (tests cannot be chained with 'is')");
        jinja_node *argument = jinja_node_new(p, JINJA_ARGUMENT), **tail = &node->b;
        argument->a = parse_postfix(p, parse_primary(p));
        jinja_node_append(node, &tail, argument);
    }
    if (!negated)
        return node;
    jinja_node *inverted = jinja_node_new(p, JINJA_NOT);
    inverted->a = node;
    return inverted;
}

jinja_node *jinja_parse_filters(jinja_parser *p, jinja_node *target, bool start_inline)
{
    for (;;) {
        if (start_inline || jinja_accept(p, '|'))
            target = parse_filter(p, target);
        else if (target && jinja_accept_word(p, "is"))
            target = parse_test(p, target);
        else if (target && jinja_at(p, '('))
            target = parse_call(p, target);
        else
            return target;
        start_inline = false;
    }
}

jinja_node *jinja_parse_unary(jinja_parser *p, bool filters)
{
    jinja_node *node;
    jinja_parser_enter(p);
    if (jinja_at(p, '-') || jinja_at(p, '+')) {
        node = jinja_node_new(p, JINJA_UNARY);
        node->operator= p->lexer.token;
        jinja_lexer_next(&p->lexer);
        node->a = jinja_parse_unary(p, false);
    } else {
        node = parse_primary(p);
    }
    node = parse_postfix(p, node);
    p->depth--;
    return filters ? jinja_parse_filters(p, node, false) : node;
}
