// Statements and the template as a whole.
#include "text/template_syntax.h"

#include "base/hash.h"
#include "base/utf8.h"

#include <stdlib.h>

enum { SOURCE_MAX = 1 << 20, TREE_MEMORY_MAX = 256 << 20, NAME_BUCKETS = 256 };

typedef struct name_entry {
    jinja_string string;
    struct name_entry *next;
} name_entry;

struct jinja_names {
    name_entry *buckets[NAME_BUCKETS];
};

struct jinja_names *jinja_names_open(jinja_task *task)
{
    struct jinja_names *names = jinja_allocate(task, sizeof *names);
    memset(names, 0, sizeof *names);
    return names;
}

static unsigned bucket_of(slice text)
{
    return (unsigned)(hash64_of(text.data, text.size, 0) % NAME_BUCKETS);
}

static name_entry *find_name(const struct jinja_names *names, slice text)
{
    name_entry *entry = names->buckets[bucket_of(text)];
    while (entry && !slice_equal(jinja_slice(&entry->string), text))
        entry = entry->next;
    return entry;
}

bool jinja_names_hold(const struct jinja_names *names, slice text)
{
    return find_name(names, text) != NULL;
}

const jinja_string *jinja_intern(jinja_task *task, struct jinja_names *names, slice text)
{
    name_entry *entry = find_name(names, text);
    if (entry)
        return &entry->string;
    char *bytes = jinja_allocate(task, text.size + 1);
    memcpy(bytes, text.data, text.size);
    bytes[text.size] = '\0';
    entry = jinja_allocate(task, sizeof *entry);
    entry->string = (jinja_string){ .bytes = bytes,
                                    .size = (uint32_t)text.size,
                                    .length = (uint32_t)jinja_count_points(text),
                                    .origin = JINJA_MARKUP };
    name_entry **bucket = &names->buckets[bucket_of(text)];
    entry->next = *bucket;
    *bucket = entry;
    return &entry->string;
}

// An `if` stands around the unknown filters and tests from `first` on: they fail only when reached.
void jinja_shield_unknown(jinja_parser *p, uint32_t first)
{
    for (uint32_t i = first; i < p->unknown_count; i++)
        p->unknown_shielded |= UINT64_C(1) << i;
}

// The scope in which they stand ends: those that no `if` shields are errors, the rest is settled.
void jinja_refuse_unknown(jinja_parser *p, uint32_t first)
{
    for (uint32_t i = first; i < p->unknown_count; i++) {
        const jinja_node *node = p->unknown[i];
        if (p->unknown_shielded >> i & 1)
            continue;
        p->task->line = node->line;
        jinja_fail(p->task, TEMPLATE_FAULT_RUNTIME, "there is no %s named '%.*s'",
                   node->kind == JINJA_FILTER ? "filter" : "test", (int)node->text->size,
                   node->text->bytes);
    }
    p->unknown_count = first;
    p->unknown_shielded &= (UINT64_C(1) << first) - 1;
}

static jinja_node *parse_body(jinja_parser *p, const char *const *ends);

// Parse up to "{% end %}" and go past it. A scope of its own for unknown filters, as in Jinja.
static jinja_node *parse_scope(jinja_parser *p, const char *end)
{
    uint32_t first = p->unknown_count;
    jinja_node *body = parse_body(p, (const char *const[]){ end, NULL });
    jinja_lexer_next(&p->lexer);
    jinja_expect(p, JINJA_BLOCK_END, "'%}'");
    jinja_refuse_unknown(p, first);
    return body;
}

// The body of something that becomes a function: no break or continue of a loop around it.
static jinja_node *parse_function_body(jinja_parser *p, const char *end)
{
    uint32_t loops = p->loops;
    p->loops = 0;
    jinja_node *body = parse_scope(p, end);
    p->loops = loops;
    return body;
}

static bool is_constant_name(const jinja_parser *p)
{
    return jinja_at_word(p, "true") || jinja_at_word(p, "false") || jinja_at_word(p, "none") ||
           jinja_at_word(p, "True") || jinja_at_word(p, "False") || jinja_at_word(p, "None");
}

static jinja_node *parse_target_name(jinja_parser *p)
{
    if (!jinja_at(p, JINJA_IDENTIFIER) || is_constant_name(p))
        jinja_unexpected(p, "a name to assign to");
    jinja_node *node = jinja_node_new(p, JINJA_NAME);
    node->text = jinja_intern(p->task, p->names, p->lexer.text);
    jinja_lexer_next(&p->lexer);
    return node;
}

static jinja_node *parse_target(jinja_parser *p, bool namespace);

static jinja_node *parse_target_item(jinja_parser *p, bool namespace)
{
    if (jinja_accept(p, '(')) {
        jinja_parser_enter(p);
        jinja_node *inner = parse_target(p, namespace);
        p->depth--;
        jinja_expect(p, ')', "')'");
        return inner;
    }
    jinja_node *node = parse_target_name(p);
    if (!namespace || !jinja_accept(p, '.'))
        return node;
    jinja_node *attribute = parse_target_name(p);
    attribute->kind = JINJA_ATTRIBUTE;
    attribute->a = node;
    return attribute;
}

// A name, namespace attribute, or a tuple of these.
static jinja_node *parse_target(jinja_parser *p, bool namespace)
{
    jinja_node *tuple = jinja_node_new(p, JINJA_TUPLE_OF), **tail = &tuple->a;
    bool comma = false;
    do {
        if (comma && !jinja_at(p, JINJA_IDENTIFIER) && !jinja_at(p, '('))
            break;
        if (comma && jinja_at_word(p, "in"))
            break;
        jinja_node_append(tuple, &tail, parse_target_item(p, namespace));
    } while (jinja_accept(p, ',') && (comma = true));
    return comma ? tuple : tuple->a;
}

static jinja_node *parse_for(jinja_parser *p)
{
    jinja_node *node = jinja_node_new(p, JINJA_FOR);
    node->a = parse_target(p, false);
    if (!jinja_accept_word(p, "in"))
        jinja_unexpected(p, "'in'");
    node->b = jinja_parse_tuple(p, false, "recursive");
    uint32_t first = p->unknown_count;
    if (jinja_accept_word(p, "if"))
        node->e = jinja_parse_expression(p);
    node->flag = jinja_accept_word(p, "recursive");
    jinja_expect(p, JINJA_BLOCK_END, "'%}'");
    p->loops++;
    node->c = parse_body(p, (const char *const[]){ "else", "endfor", NULL });
    p->loops--;
    if (jinja_accept_word(p, "else")) {
        jinja_expect(p, JINJA_BLOCK_END, "'%}'");
        node->d = parse_body(p, (const char *const[]){ "endfor", NULL });
    }
    jinja_lexer_next(&p->lexer);
    jinja_expect(p, JINJA_BLOCK_END, "'%}'");
    jinja_refuse_unknown(p, first);
    return node;
}

static jinja_node *parse_if(jinja_parser *p)
{
    uint32_t first = p->unknown_count;
    jinja_node *top = jinja_node_new(p, JINJA_IF), *node = top;
    for (;;) {
        node->a = jinja_parse_tuple(p, false, NULL);
        jinja_expect(p, JINJA_BLOCK_END, "'%}'");
        node->b = parse_body(p, (const char *const[]){ "elif", "else", "endif", NULL });
        if (!jinja_accept_word(p, "elif"))
            break;
        node->c = jinja_node_new(p, JINJA_IF);
        node = node->c;
    }
    if (jinja_accept_word(p, "else")) {
        jinja_expect(p, JINJA_BLOCK_END, "'%}'");
        node->c = parse_body(p, (const char *const[]){ "endif", NULL });
    }
    jinja_lexer_next(&p->lexer);
    jinja_expect(p, JINJA_BLOCK_END, "'%}'");
    jinja_shield_unknown(p, first);
    return top;
}

static jinja_node *parse_set(jinja_parser *p)
{
    jinja_node *node = jinja_node_new(p, JINJA_SET);
    node->a = parse_target(p, true);
    if (jinja_accept(p, '=')) {
        node->b = jinja_parse_tuple(p, true, NULL);
        jinja_expect(p, JINJA_BLOCK_END, "'%}'");
        return node;
    }
    node->kind = JINJA_SET_BLOCK;
    node->b = jinja_parse_filters(p, NULL, false);
    jinja_expect(p, JINJA_BLOCK_END, "'%}' or '='");
    node->c = parse_scope(p, "endset");
    return node;
}

static jinja_node *parse_with(jinja_parser *p)
{
    jinja_node *node = jinja_node_new(p, JINJA_WITH), **targets = &node->a, **values = &node->b;
    uint32_t count = 0;
    while (!jinja_at(p, JINJA_BLOCK_END)) {
        if (count++ > 0)
            jinja_expect(p, ',', "',' or '%}'");
        jinja_node_append(node, &targets, parse_target_name(p));
        jinja_expect(p, '=', "'='");
        jinja_node_append(node, &values, jinja_parse_expression(p));
    }
    jinja_lexer_next(&p->lexer);
    node->c = parse_scope(p, "endwith");
    return node;
}

static void parse_signature(jinja_parser *p, jinja_node *macro)
{
    jinja_node **tail = &macro->a;
    jinja_expect(p, '(', "'('");
    while (!jinja_accept(p, ')')) {
        if (macro->count > 0)
            jinja_expect(p, ',', "',' or ')'");
        jinja_node *parameter = parse_target_name(p);
        if (jinja_accept(p, '=')) {
            parameter->b = jinja_parse_expression(p);
            macro->flag = true;
        } else if (macro->flag) {
            jinja_unexpected(p, "'=' (a parameter behind one that has a default needs one too)");
        }
        jinja_node_append(macro, &tail, parameter);
    }
}

static void parse_macro_body(jinja_parser *p, jinja_node *macro, const char *end)
{
    uint8_t around = p->uses;
    p->uses = 0;
    macro->c = parse_function_body(p, end);
    macro->uses = p->uses;
    p->uses |= around;
}

static jinja_node *parse_macro(jinja_parser *p)
{
    jinja_node *macro = jinja_node_new(p, JINJA_MACRO_OF);
    macro->text = parse_target_name(p)->text;
    parse_signature(p, macro);
    jinja_expect(p, JINJA_BLOCK_END, "'%}'");
    parse_macro_body(p, macro, "endmacro");
    return macro;
}

static jinja_node *parse_call_block(jinja_parser *p)
{
    jinja_node *node = jinja_node_new(p, JINJA_CALL_BLOCK);
    node->d = jinja_node_new(p, JINJA_MACRO_OF);
    node->d->text = jinja_intern(p->task, p->names, SLICE("caller"));
    if (jinja_at(p, '('))
        parse_signature(p, node->d);
    node->a = jinja_parse_expression(p);
    if (node->a->kind != JINJA_CALL)
        jinja_unexpected(p, "a call");
    jinja_expect(p, JINJA_BLOCK_END, "'%}'");
    parse_macro_body(p, node->d, "endcall");
    return node;
}

static jinja_node *parse_filter_block(jinja_parser *p)
{
    jinja_node *node = jinja_node_new(p, JINJA_FILTER_BLOCK);
    node->b = jinja_parse_filters(p, NULL, true);
    jinja_expect(p, JINJA_BLOCK_END, "'%}'");
    node->c = parse_scope(p, "endfilter");
    return node;
}

static jinja_node *parse_generation(jinja_parser *p)
{
    jinja_node *node = jinja_node_new(p, JINJA_GROUP);
    jinja_expect(p, JINJA_BLOCK_END, "'%}'");
    node->c = parse_function_body(p, "endgeneration");
    return node;
}

static jinja_node *parse_loop_control(jinja_parser *p, jinja_kind kind)
{
    jinja_node *node = jinja_node_new(p, kind);
    p->task->line = node->line;
    if (p->loops == 0)
        jinja_fail(p->task, TEMPLATE_FAULT_RUNTIME, "'%s' stands outside a loop",
                   kind == JINJA_BREAK ? "break" : "continue");
    jinja_expect(p, JINJA_BLOCK_END, "'%}'");
    return node;
}

static jinja_node *parse_statement(jinja_parser *p)
{
    static const char *const refused[] = { "include", "import",     "from",
                                           "extends", "autoescape", "block" };
    char text[64];
    p->task->line = p->lexer.token_line;
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        if (jinja_at_word(p, refused[i]))
            jinja_fail(p->task, TEMPLATE_FAULT_RUNTIME,
                       "the tag '%s' is not supported: a chat template is one file", refused[i]);
    if (jinja_accept_word(p, "for"))
        return parse_for(p);
    if (jinja_accept_word(p, "if"))
        return parse_if(p);
    if (jinja_accept_word(p, "set"))
        return parse_set(p);
    if (jinja_accept_word(p, "with"))
        return parse_with(p);
    if (jinja_accept_word(p, "macro"))
        return parse_macro(p);
    if (jinja_accept_word(p, "call"))
        return parse_call_block(p);
    if (jinja_accept_word(p, "filter"))
        return parse_filter_block(p);
    if (jinja_accept_word(p, "generation"))
        return parse_generation(p);
    if (jinja_accept_word(p, "break"))
        return parse_loop_control(p, JINJA_BREAK);
    if (jinja_accept_word(p, "continue"))
        return parse_loop_control(p, JINJA_CONTINUE);
    if (jinja_accept_word(p, "print")) {
        jinja_node *node = jinja_node_new(p, JINJA_OUTPUT);
        node->a = jinja_parse_tuple(p, true, NULL);
        jinja_expect(p, JINJA_BLOCK_END, "'%}'");
        return node;
    }
    jinja_fail(p->task, TEMPLATE_FAULT_RUNTIME, "there is no tag %s",
               jinja_token_text(&p->lexer, text));
}

static jinja_node *parse_text(jinja_parser *p)
{
    jinja_node *node = jinja_node_new(p, JINJA_TEXT);
    jinja_string *s = jinja_allocate(p->task, sizeof *s);
    *s = (jinja_string){ .bytes = p->lexer.text.data,
                         .size = (uint32_t)p->lexer.text.size,
                         .origin = JINJA_MARKUP };
    node->value = (jinja_value){ .type = JINJA_STRING, .string = s };
    jinja_lexer_next(&p->lexer);
    return node;
}

// Statements up to one of the tags in `ends` (which stays the current token), or to the end of the
// template where `ends` is NULL.
static jinja_node *parse_body(jinja_parser *p, const char *const *ends)
{
    jinja_node *list = jinja_node_new(p, JINJA_GROUP), **tail = &list->a;
    jinja_parser_enter(p);
    for (;;) {
        if (jinja_at(p, JINJA_DATA)) {
            jinja_node_append(list, &tail, parse_text(p));
        } else if (jinja_accept(p, JINJA_EXPRESSION_BEGIN)) {
            jinja_node *node = jinja_node_new(p, JINJA_OUTPUT);
            node->a = jinja_parse_tuple(p, true, NULL);
            jinja_expect(p, JINJA_EXPRESSION_END, "'}}'");
            jinja_node_append(list, &tail, node);
        } else if (jinja_accept(p, JINJA_BLOCK_BEGIN)) {
            for (const char *const *end = ends; end && *end; end++) {
                if (jinja_at_word(p, *end)) {
                    p->depth--;
                    return list->a;
                }
            }
            jinja_node_append(list, &tail, parse_statement(p));
        } else if (!ends) {
            p->depth--;
            return list->a;
        } else {
            char wanted[64] = "'{% ";
            while (ends[1])
                ends++;
            strncat(wanted, ends[0], 32);
            strcat(wanted, " %}'");
            jinja_unexpected(p, wanted);
        }
    }
}

static status check_source(slice source, error *failure)
{
    uint32_t line = 1;
    if (source.size > SOURCE_MAX)
        return error_set(failure, STATUS_TOO_LARGE, "",
                         "the template has %zu bytes; at most %d are read", source.size,
                         SOURCE_MAX);
    for (size_t i = 0; i < source.size;) {
        size_t size = utf8_sequence_size(source.data + i, source.size - i);
        if (size == 0)
            return error_set(failure, STATUS_INVALID, "",
                             "line %u: byte %zu of the template is not UTF-8", line, i);
        line += source.data[i] == '\n';
        i += size;
    }
    return STATUS_OK;
}

status template_open(slice source, template **opened, error *failure)
{
    *opened = NULL;
    status code = check_source(source, failure);
    if (code != STATUS_OK)
        return code;
    template *t = calloc(1, sizeof *t);
    if (!t)
        return error_set(failure, STATUS_NO_MEMORY, "", "no memory for the template");
    t->task = (jinja_task){ .failure = failure, .memory_limit = TREE_MEMORY_MAX };
    if (setjmp(t->task.landing)) {
        code = t->task.code;
        template_close(t);
        return code;
    }
    t->names = jinja_names_open(&t->task);
    t->loop = jinja_intern(&t->task, t->names, SLICE("loop"));
    t->caller = jinja_intern(&t->task, t->names, SLICE("caller"));
    t->varargs = jinja_intern(&t->task, t->names, SLICE("varargs"));
    t->kwargs = jinja_intern(&t->task, t->names, SLICE("kwargs"));
    jinja_parser p = { .task = &t->task, .names = t->names };
    jinja_lexer_begin(&p.lexer, &t->task, source);
    jinja_lexer_next(&p.lexer);
    t->body = parse_body(&p, NULL);
    jinja_refuse_unknown(&p, 0);
    t->task.failure = NULL;
    *opened = t;
    return STATUS_OK;
}

void template_close(template *t)
{
    if (!t)
        return;
    jinja_task_close(&t->task);
    free(t);
}

bool template_mentions(const template *t, const char *name)
{
    return jinja_names_hold(t->names, slice_of(name));
}
