// Statements, loops and macros, and template_render around them.
#include "text/template_syntax.h"

#include <stdlib.h>

typedef enum flow { FLOW_ON, FLOW_BREAK, FLOW_CONTINUE } flow;

static flow execute_body(jinja_render *r, jinja_scope *scope, const jinja_node *body);

static jinja_scope *scope_new(jinja_render *r, jinja_scope *parent)
{
    jinja_scope *scope = jinja_allocate(&r->task, sizeof *scope);
    *scope = (jinja_scope){ .parent = parent };
    return scope;
}

// Run a body in a scope of its own and give what it writes.
static jinja_value capture(jinja_render *r, jinja_scope *scope, const jinja_node *body, flow *how)
{
    jinja_builder b, *outer = r->out;
    jinja_build_begin(&b, r);
    r->out = &b;
    *how = execute_body(r, scope, body);
    r->out = outer;
    return jinja_build_end(&b);
}

// --- loops ---

static jinja_list *select_items(jinja_render *r, jinja_scope *scope, const jinja_node *node,
                                jinja_list *list)
{
    if (!node->e)
        return list;
    jinja_list *selected = jinja_list_new(r, 0);
    for (uint32_t i = 0; i < list->count; i++) {
        jinja_scope *inner = scope_new(r, scope);
        jinja_assign(r, inner, node->a, list->items[i]);
        if (jinja_true(r, jinja_evaluate(r, inner, node->e)))
            jinja_list_add(r, selected, list->items[i]);
    }
    return selected;
}

static flow run_loop(jinja_render *r, jinja_scope *scope, const jinja_node *node,
                     jinja_value iterable, uint32_t depth)
{
    jinja_loop *loop = jinja_allocate(&r->task, sizeof *loop);
    bool completed = false; // one round to its end; as in Jinja, `else` runs if there was none
    *loop = (jinja_loop){ .node = node, .scope = scope, .depth = depth };
    loop->list = select_items(r, scope, node, jinja_iterate(r, iterable));
    for (; loop->index < loop->list->count; loop->index++) {
        jinja_scope *inner = scope_new(r, scope);
        jinja_bind(r, inner, r->source->loop, (jinja_value){ .type = JINJA_LOOP, .loop = loop });
        jinja_assign(r, inner, node->a, loop->list->items[loop->index]);
        flow how = execute_body(r, inner, node->c);
        if (how == FLOW_BREAK)
            break;
        completed = completed || how == FLOW_ON;
    }
    return completed ? FLOW_ON : execute_body(r, scope_new(r, scope), node->d);
}

jinja_value jinja_call_loop(jinja_render *r, jinja_loop *loop, jinja_value iterable)
{
    jinja_builder b, *outer = r->out;
    if (!loop->node->flag)
        jinja_fail(&r->task, TEMPLATE_FAULT_TYPE,
                   "loop() is only for loops with the word 'recursive'");
    jinja_enter(r);
    jinja_build_begin(&b, r);
    r->out = &b;
    run_loop(r, loop->scope, loop->node, iterable, loop->depth + 1);
    r->out = outer;
    jinja_leave(r);
    return jinja_build_end(&b);
}

// --- macros ---

static bool is_parameter(const jinja_macro *macro, const jinja_string *name, uint32_t from)
{
    uint32_t at = 0;
    for (const jinja_node *i = macro->node->a; i; i = i->next, at++)
        if (at >= from && slice_equal(jinja_slice(i->text), jinja_slice(name)))
            return true;
    return false;
}

static _Noreturn void fail_argument(jinja_render *r, const jinja_macro *macro,
                                    const jinja_string *name)
{
    jinja_fail(&r->task, TEMPLATE_FAULT_TYPE, "the macro '%.*s' takes no argument '%.*s'",
               (int)macro->node->text->size, macro->node->text->bytes,
               (int)(name->size > 60 ? 60 : name->size), name->bytes);
}

// What the parameters did not take: caller, varargs and kwargs, if the body reads them.
static void bind_rest(jinja_render *r, jinja_scope *scope, const jinja_macro *macro,
                      const jinja_arguments *arguments)
{
    const jinja_node *node = macro->node;
    jinja_list *varargs = jinja_list_new(r, 0);
    jinja_dict *kwargs = jinja_dict_new(r);
    for (uint32_t i = node->count; i < arguments->count; i++)
        jinja_list_add(r, varargs, arguments->values[i]);
    if (varargs->count > 0 && !(node->uses & JINJA_USES_VARARGS))
        jinja_fail(&r->task, TEMPLATE_FAULT_TYPE, "the macro '%.*s' takes at most %u arguments",
                   (int)node->text->size, node->text->bytes, node->count);
    if (node->uses & JINJA_USES_CALLER)
        jinja_bind(r, scope, r->source->caller, jinja_undefined(r->source->caller));
    for (uint32_t i = 0; i < arguments->named_count; i++) {
        const jinja_string *name = arguments->names[i];
        if (is_parameter(macro, name, arguments->count))
            continue;
        if ((node->uses & JINJA_USES_CALLER) && name == r->source->caller) {
            jinja_bind(r, scope, name, arguments->named[i]);
            continue;
        }
        if (!(node->uses & JINJA_USES_KWARGS))
            fail_argument(r, macro, name);
        jinja_dict_set(r, kwargs, (jinja_value){ .type = JINJA_STRING, .string = name },
                       arguments->named[i]);
    }
    if (node->uses & JINJA_USES_VARARGS)
        jinja_bind(r, scope, r->source->varargs, jinja_list_value(varargs, JINJA_TUPLE));
    if (node->uses & JINJA_USES_KWARGS)
        jinja_bind(r, scope, r->source->kwargs,
                   (jinja_value){ .type = JINJA_DICT, .dict = kwargs });
}

static void bind_parameters(jinja_render *r, jinja_scope *scope, const jinja_macro *macro,
                            const jinja_arguments *arguments)
{
    uint32_t at = 0;
    for (const jinja_node *i = macro->node->a; i; i = i->next, at++) {
        jinja_value v = { .type = JINJA_ABSENT };
        if (at < arguments->count)
            v = arguments->values[at];
        for (uint32_t k = 0; at >= arguments->count && k < arguments->named_count; k++)
            if (slice_equal(jinja_slice(arguments->names[k]), jinja_slice(i->text)))
                v = arguments->named[k];
        if (v.type == JINJA_ABSENT)
            v = i->b ? jinja_evaluate(r, scope, i->b) : jinja_undefined(i->text);
        jinja_bind(r, scope, i->text, v);
    }
}

jinja_value jinja_call_macro(jinja_render *r, jinja_macro *macro, const jinja_arguments *arguments)
{
    flow how;
    jinja_enter(r);
    jinja_scope *scope = scope_new(r, macro->scope);
    bind_rest(r, scope, macro, arguments);
    bind_parameters(r, scope, macro, arguments);
    jinja_value text = capture(r, scope, macro->node->c, &how);
    jinja_leave(r);
    return text;
}

static jinja_value macro_value(jinja_render *r, jinja_scope *scope, const jinja_node *node)
{
    jinja_macro *macro = jinja_allocate(&r->task, sizeof *macro);
    *macro = (jinja_macro){ .node = node, .scope = scope };
    return (jinja_value){ .type = JINJA_MACRO, .macro = macro };
}

static void execute_call_block(jinja_render *r, jinja_scope *scope, const jinja_node *node)
{
    jinja_arguments arguments, all;
    jinja_value callee = jinja_evaluate(r, scope, node->a->a);
    jinja_evaluate_arguments(r, scope, node->a->b, &arguments);
    all = arguments;
    all.names = jinja_allocate(&r->task, (arguments.named_count + 1) * sizeof *all.names);
    all.named = jinja_allocate(&r->task, (arguments.named_count + 1) * sizeof *all.named);
    for (uint32_t i = 0; i < arguments.named_count; i++) {
        all.names[i] = arguments.names[i];
        all.named[i] = arguments.named[i];
    }
    all.names[all.named_count] = r->source->caller;
    all.named[all.named_count++] = macro_value(r, scope, node->d);
    r->task.line = node->line;
    jinja_print(r->out, jinja_call(r, callee, &all));
}

// --- statements ---

static flow execute_if(jinja_render *r, jinja_scope *scope, const jinja_node *node)
{
    while (!jinja_true(r, jinja_evaluate(r, scope, node->a))) {
        if (!node->c)
            return FLOW_ON;
        if (node->c->kind != JINJA_IF || node->c->next)
            return execute_body(r, scope, node->c);
        node = node->c; // elif
    }
    return execute_body(r, scope, node->b);
}

static void execute_set(jinja_render *r, jinja_scope *scope, const jinja_node *node)
{
    jinja_assign(r, scope, node->a, jinja_evaluate(r, scope, node->b));
}

static flow execute_block(jinja_render *r, jinja_scope *scope, const jinja_node *node)
{
    flow how;
    jinja_value v = capture(r, scope_new(r, scope), node->c, &how);
    if (how != FLOW_ON)
        return how;
    if (node->b) {
        r->block = v;
        v = jinja_evaluate(r, scope, node->b);
    }
    if (node->kind == JINJA_SET_BLOCK)
        jinja_assign(r, scope, node->a, v);
    else
        jinja_append_string(r->out, jinja_need_string(r, v, "what a filter block gives"));
    return FLOW_ON;
}

static flow execute_with(jinja_render *r, jinja_scope *scope, const jinja_node *node)
{
    jinja_scope *inner = scope_new(r, scope);
    const jinja_node *value = node->b;
    for (const jinja_node *i = node->a; i; i = i->next, value = value->next)
        jinja_assign(r, inner, i, jinja_evaluate(r, scope, value));
    return execute_body(r, inner, node->c);
}

static flow execute(jinja_render *r, jinja_scope *scope, const jinja_node *node)
{
    r->task.line = node->line;
    switch (node->kind) {
    case JINJA_TEXT:
        jinja_append_string(r->out, node->value.string);
        return FLOW_ON;
    case JINJA_OUTPUT:
        jinja_print(r->out, jinja_evaluate(r, scope, node->a));
        return FLOW_ON;
    case JINJA_IF:
        return execute_if(r, scope, node);
    case JINJA_FOR:
        return run_loop(r, scope, node, jinja_evaluate(r, scope, node->b), 0);
    case JINJA_SET:
        execute_set(r, scope, node);
        return FLOW_ON;
    case JINJA_SET_BLOCK:
    case JINJA_FILTER_BLOCK:
        return execute_block(r, scope, node);
    case JINJA_WITH:
        return execute_with(r, scope, node);
    case JINJA_MACRO_OF:
        jinja_bind(r, scope, node->text, macro_value(r, scope, node));
        return FLOW_ON;
    case JINJA_CALL_BLOCK:
        execute_call_block(r, scope, node);
        return FLOW_ON;
    case JINJA_GROUP:
        return execute_body(r, scope_new(r, scope), node->c);
    case JINJA_BREAK:
        return FLOW_BREAK;
    default:
        return FLOW_CONTINUE;
    }
}

static flow execute_body(jinja_render *r, jinja_scope *scope, const jinja_node *body)
{
    flow how = FLOW_ON;
    jinja_enter(r);
    for (const jinja_node *node = body; node && how == FLOW_ON; node = node->next) {
        jinja_work(r, 64);
        how = execute(r, scope, node);
    }
    jinja_leave(r);
    return how;
}

// --- the render ---

static size_t or_default(size_t given, size_t otherwise)
{
    return given ? given : otherwise;
}

static template_limits fill_limits(const template_limits *given)
{
    template_limits none = { 0 }, limits = given ? *given : none;
    size_t most = (size_t)1 << 30; // sizes are kept in 32 bits
    limits.steps = or_default(limits.steps, 4 * 1000 * 1000);
    limits.depth = or_default(limits.depth, 600);
    limits.output_bytes = or_default(limits.output_bytes, 8 << 20);
    limits.items = or_default(limits.items, 200 * 1000);
    limits.memory_bytes = or_default(limits.memory_bytes, 128 << 20);
    if (limits.output_bytes > most)
        limits.output_bytes = most;
    if (limits.items > most)
        limits.items = most;
    return limits;
}

static bool add_segment(template_output *output, size_t from, size_t to, bool from_template)
{
    if (output->segment_count == output->segment_capacity) {
        size_t capacity = output->segment_capacity ? output->segment_capacity * 2 : 32;
        template_segment *grown = realloc(output->segments, capacity * sizeof *grown);
        if (!grown)
            return false;
        output->segments = grown;
        output->segment_capacity = capacity;
    }
    output->segments[output->segment_count++] =
        (template_segment){ .offset = from, .size = to - from, .from_template = from_template };
    return true;
}

static bool deliver(template_output *output, const jinja_builder *b)
{
    output->text.limit = b->size + 1;
    buffer_append(&output->text, b->bytes, b->size);
    for (size_t from = 0, to; from < b->size; from = to) {
        uint8_t origin = b->marks ? b->marks[from] : b->origin;
        to = b->marks ? from + 1 : b->size;
        while (to < b->size && b->marks[to] == origin)
            to++;
        if (!add_segment(output, from, to, origin == JINJA_MARKUP))
            return false;
    }
    return !output->text.overflow;
}

// The landing place of every jinja_fail below.
static status run(jinja_render *r, template_output *output)
{
    jinja_builder b;
    if (setjmp(r->task.landing))
        return r->task.code;
    jinja_build_begin(&b, r);
    r->out = &b;
    jinja_scope *top = scope_new(r, &r->variables);
    execute_body(r, top, r->source->body);
    if (!deliver(output, &b))
        return error_set(r->task.failure, STATUS_NO_MEMORY, "", "no memory for the prompt");
    return STATUS_OK;
}

status template_render(const template *t, const template_context *context,
                       const template_limits *limits, template_output *output, error *failure)
{
    jinja_render r = { .source = t, .context = context, .limits = fill_limits(limits) };
    r.task.failure = failure;
    r.task.memory_limit = r.limits.memory_bytes;
    buffer_clear(&output->text);
    output->text.overflow = false;
    output->segment_count = 0;
    status code = run(&r, output);
    output->fault = code == STATUS_OK ? TEMPLATE_FAULT_NONE : r.task.fault;
    if (code != STATUS_OK) {
        buffer_clear(&output->text);
        output->segment_count = 0;
    }
    jinja_task_close(&r.task);
    return code;
}

void template_output_close(template_output *output)
{
    buffer_close(&output->text);
    free(output->segments);
    *output = (template_output){ 0 };
}
