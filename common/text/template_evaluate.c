// The value of an expression; calls and their arguments.
#include "text/template_syntax.h"

#include <stdio.h>

void jinja_work(jinja_render *r, size_t bytes)
{
    r->work += bytes;
    if (r->work / 64 > r->limits.steps)
        jinja_fail(&r->task, TEMPLATE_FAULT_LIMIT, "the template takes more than %zu steps",
                   r->limits.steps);
}

void jinja_enter(jinja_render *r)
{
    jinja_work(r, 64);
    if (++r->depth > r->limits.depth)
        jinja_fail(&r->task, TEMPLATE_FAULT_LIMIT, "the template nests more than %zu deep",
                   r->limits.depth);
}

void jinja_leave(jinja_render *r)
{
    r->depth--;
}

// --- names ---

void jinja_bind(jinja_render *r, jinja_scope *scope, const jinja_string *name, jinja_value v)
{
    for (jinja_binding *b = scope->bindings; b; b = b->next) {
        jinja_work(r, 4);
        if (b->name == name) {
            b->value = v;
            return;
        }
    }
    jinja_binding *b = jinja_allocate(&r->task, sizeof *b);
    *b = (jinja_binding){ .name = name, .value = v, .next = scope->bindings };
    scope->bindings = b;
}

jinja_value jinja_lookup(jinja_render *r, jinja_scope *scope, const jinja_string *name)
{
    for (jinja_scope *s = scope; s; s = s->parent) {
        for (jinja_binding *b = s->bindings; b; b = b->next) {
            jinja_work(r, 4);
            if (b->name == name)
                return b->value;
        }
    }
    // Variables become values when they are first read, and stay in the outermost scope.
    json_t *json = json_object_getn(r->context->variables, name->bytes, name->size);
    if (json) {
        jinja_value v = jinja_from_json(r, json);
        jinja_bind(r, &r->variables, name, v);
        return v;
    }
    const jinja_routine *global = jinja_find_global(jinja_slice(name));
    return global ? jinja_make_method(r, global, jinja_none()) : jinja_undefined(name);
}

static jinja_value assign_item(jinja_render *r, jinja_scope *scope, const jinja_node *target,
                               jinja_value v)
{
    jinja_value namespace = jinja_lookup(r, scope, target->a->text);
    if (namespace.type != JINJA_NAMESPACE)
        jinja_fail(&r->task, TEMPLATE_FAULT_RUNTIME,
                   "cannot assign an attribute on a value of type %s, only on a namespace",
                   jinja_type_name(namespace));
    jinja_dict_set(r, namespace.dict, (jinja_value){ .type = JINJA_STRING, .string = target->text },
                   v);
    return v;
}

void jinja_assign(jinja_render *r, jinja_scope *scope, const jinja_node *target, jinja_value v)
{
    if (target->kind == JINJA_NAME) {
        jinja_bind(r, scope, target->text, v);
        return;
    }
    if (target->kind == JINJA_ATTRIBUTE) {
        assign_item(r, scope, target, v);
        return;
    }
    jinja_need_defined(r, v);
    const jinja_list *list = jinja_iterate(r, v);
    if (list->count != target->count)
        jinja_fail(&r->task, TEMPLATE_FAULT_TYPE, "%u values were found where %u are assigned",
                   list->count, target->count);
    uint32_t i = 0;
    for (const jinja_node *part = target->a; part; part = part->next)
        jinja_assign(r, scope, part, list->items[i++]);
}

// --- calls ---

jinja_value jinja_make_method(jinja_render *r, const jinja_routine *routine, jinja_value self)
{
    jinja_method *method = jinja_allocate(&r->task, sizeof *method);
    *method = (jinja_method){ .routine = routine, .self = self };
    return (jinja_value){ .type = JINJA_METHOD, .method = method };
}

// Move the named arguments to the places that the routine's parameter list gives them.
static void place_named(jinja_render *r, const jinja_routine *routine,
                        const jinja_arguments *arguments, uint32_t count, jinja_value *placed)
{
    for (uint32_t i = 0; i < arguments->named_count; i++) {
        slice name = jinja_slice(arguments->names[i]);
        const char *word = routine->parameters;
        uint32_t at = 0;
        for (; at < count; at++) {
            size_t size = strcspn(word, " ");
            if (slice_equal((slice){ word, size }, name))
                break;
            word += size + (word[size] == ' ');
        }
        if (at == count || placed[at].type != JINJA_ABSENT)
            jinja_fail(&r->task, TEMPLATE_FAULT_TYPE, "%s: the argument '%.*s' is %s",
                       routine->name, (int)(name.size > 60 ? 60 : name.size), name.data,
                       at == count ? "unknown" : "given twice");
        placed[at] = arguments->named[i];
    }
}

enum { PARAMETERS_MAX = 8 };

jinja_value jinja_run(jinja_render *r, const jinja_routine *routine, jinja_value self,
                      const jinja_arguments *arguments)
{
    if (!routine->parameters)
        return routine->run(r, self, arguments);
    jinja_value placed[PARAMETERS_MAX] = { { .type = JINJA_ABSENT } };
    uint32_t count = routine->parameters[0] != '\0';
    for (const char *c = routine->parameters; *c; c++)
        count += *c == ' ';
    if (arguments->count > count)
        jinja_fail(&r->task, TEMPLATE_FAULT_TYPE, "%s takes at most %u arguments, not %u",
                   routine->name, count, arguments->count);
    for (uint32_t i = 0; i < arguments->count; i++)
        placed[i] = arguments->values[i];
    place_named(r, routine, arguments, count, placed);
    for (uint32_t i = 0; i < routine->required; i++)
        if (placed[i].type == JINJA_ABSENT)
            jinja_fail(&r->task, TEMPLATE_FAULT_TYPE, "%s needs at least %u arguments",
                       routine->name, routine->required);
    return routine->run(r, self, &(jinja_arguments){ .values = placed, .count = count });
}

jinja_value jinja_call(jinja_render *r, jinja_value callee, const jinja_arguments *arguments)
{
    switch (callee.type) {
    case JINJA_UNDEFINED:
        jinja_fail_undefined(r, callee);
    case JINJA_METHOD:
        return jinja_run(r, callee.method->routine, callee.method->self, arguments);
    case JINJA_MACRO:
        return jinja_call_macro(r, callee.macro, arguments);
    case JINJA_LOOP:
        if (arguments->count != 1 || arguments->named_count != 0)
            jinja_fail(&r->task, TEMPLATE_FAULT_TYPE, "loop() takes one argument");
        return jinja_call_loop(r, callee.loop, arguments->values[0]);
    case JINJA_JOINER: {
        bool used = callee.joiner->used;
        callee.joiner->used = true;
        return used ? callee.joiner->text : jinja_text(r, SLICE(""), JINJA_MARKUP);
    }
    default:
        jinja_fail(&r->task, TEMPLATE_FAULT_TYPE, "a value of type %s cannot be called",
                   jinja_type_name(callee));
    }
}

static void add_named(jinja_render *r, jinja_arguments *arguments, uint32_t room,
                      const jinja_string *name, jinja_value v)
{
    for (uint32_t i = 0; i < arguments->named_count; i++)
        if (slice_equal(jinja_slice(arguments->names[i]), jinja_slice(name)))
            jinja_fail(&r->task, TEMPLATE_FAULT_TYPE, "the argument '%.*s' is given twice",
                       (int)(name->size > 60 ? 60 : name->size), name->bytes);
    CHECK(arguments->named_count < room);
    arguments->names[arguments->named_count] = name;
    arguments->named[arguments->named_count++] = v;
}

void jinja_evaluate_arguments(jinja_render *r, jinja_scope *scope, const jinja_node *list,
                              jinja_arguments *arguments)
{
    *arguments = (jinja_arguments){ 0 };
    jinja_list *values = jinja_list_new(r, 0);
    jinja_list *unpacked = jinja_list_new(r, 0); // one element per argument with a name or **
    uint32_t room = 0;
    for (const jinja_node *i = list; i; i = i->next) {
        jinja_value v = jinja_evaluate(r, scope, i->a);
        if (i->operator== '*') {
            const jinja_list *more = jinja_iterate(r, v);
            for (uint32_t k = 0; k < more->count; k++)
                jinja_list_add(r, values, more->items[k]);
        } else if (i->operator== 'd' || i->text) {
            if (i->operator== 'd' && v.type != JINJA_DICT)
                jinja_fail(&r->task, TEMPLATE_FAULT_TYPE, "the value after ** is no dict");
            room += i->text ? 1 : v.dict->count;
            jinja_list_add(r, unpacked, v);
        } else {
            jinja_list_add(r, values, v);
        }
    }
    arguments->values = values->items;
    arguments->count = values->count;
    if (room == 0)
        return;
    arguments->names = jinja_allocate(&r->task, room * sizeof *arguments->names);
    arguments->named = jinja_allocate(&r->task, room * sizeof *arguments->named);
    uint32_t next = 0;
    for (const jinja_node *i = list; i; i = i->next) {
        if (i->text)
            add_named(r, arguments, room, i->text, unpacked->items[next++]);
        if (i->operator!= 'd')
            continue;
        const jinja_dict *dict = unpacked->items[next++].dict;
        for (uint32_t k = 0; k < dict->count; k++)
            add_named(r, arguments, room,
                      jinja_need_string(r, dict->entries[k].key, "the name of an argument"),
                      dict->entries[k].value);
    }
}

// --- expressions ---

static jinja_value evaluate_routine(jinja_render *r, jinja_scope *scope, const jinja_node *node)
{
    jinja_arguments arguments;
    if (!node->routine)
        jinja_fail(&r->task, TEMPLATE_FAULT_RUNTIME, "there is no %s named '%.*s'",
                   node->kind == JINJA_FILTER ? "filter" : "test", (int)node->text->size,
                   node->text->bytes);
    jinja_value self = jinja_evaluate(r, scope, node->a);
    jinja_evaluate_arguments(r, scope, node->b, &arguments);
    r->task.line = node->line;
    return jinja_run(r, node->routine, self, &arguments);
}

static jinja_value evaluate_call(jinja_render *r, jinja_scope *scope, const jinja_node *node)
{
    jinja_arguments arguments;
    jinja_value callee = jinja_evaluate(r, scope, node->a);
    jinja_evaluate_arguments(r, scope, node->b, &arguments);
    r->task.line = node->line;
    return jinja_call(r, callee, &arguments);
}

static jinja_value evaluate_list(jinja_render *r, jinja_scope *scope, const jinja_node *node)
{
    jinja_list *list = jinja_list_new(r, node->count);
    for (const jinja_node *i = node->a; i; i = i->next)
        jinja_list_add(r, list, jinja_evaluate(r, scope, i));
    return jinja_list_value(list, node->kind == JINJA_LIST_OF ? JINJA_LIST : JINJA_TUPLE);
}

static jinja_value evaluate_dict(jinja_render *r, jinja_scope *scope, const jinja_node *node)
{
    jinja_dict *dict = jinja_dict_new(r);
    for (const jinja_node *i = node->a; i; i = i->next->next) {
        jinja_value key = jinja_evaluate(r, scope, i);
        jinja_dict_set(r, dict, key, jinja_evaluate(r, scope, i->next));
    }
    return (jinja_value){ .type = JINJA_DICT, .dict = dict };
}

static jinja_value evaluate_slice(jinja_render *r, jinja_scope *scope, const jinja_node *node)
{
    if (!node->a)
        jinja_fail(&r->task, TEMPLATE_FAULT_TYPE, "a slice cannot be part of a key");
    jinja_value v = jinja_evaluate(r, scope, node->a), bounds[3] = { { .type = JINJA_ABSENT } };
    const jinja_node *parts[3] = { node->b, node->c, node->d };
    for (int i = 0; i < 3; i++)
        if (parts[i])
            bounds[i] = jinja_evaluate(r, scope, parts[i]);
    return jinja_slice_of(r, v, bounds);
}

static jinja_value evaluate_compare(jinja_render *r, jinja_scope *scope, const jinja_node *node)
{
    jinja_value left = jinja_evaluate(r, scope, node->a);
    for (const jinja_node *i = node->b; i; i = i->next) {
        jinja_value right = jinja_evaluate(r, scope, i->a);
        r->task.line = node->line;
        if (!jinja_compare(r, i->operator, left, right))
            return jinja_bool(false);
        left = right;
    }
    return jinja_bool(true);
}

static jinja_value evaluate_concatenate(jinja_render *r, jinja_scope *scope, const jinja_node *node)
{
    jinja_builder b;
    jinja_build_begin(&b, r);
    jinja_list *parts = evaluate_list(r, scope, node).list;
    for (uint32_t i = 0; i < parts->count; i++)
        jinja_print(&b, parts->items[i]);
    return jinja_build_end(&b);
}

static jinja_value evaluate_operation(jinja_render *r, jinja_scope *scope, const jinja_node *node)
{
    jinja_value a = jinja_evaluate(r, scope, node->a), b;
    switch (node->kind) {
    case JINJA_ATTRIBUTE:
        r->task.line = node->line;
        return jinja_attribute(r, a, node->text);
    case JINJA_UNARY:
        r->task.line = node->line;
        return jinja_negate(r, node->operator, a);
    case JINJA_NOT:
        return jinja_bool(!jinja_true(r, a));
    case JINJA_AND:
        return jinja_true(r, a) ? jinja_evaluate(r, scope, node->b) : a;
    case JINJA_OR:
        return jinja_true(r, a) ? a : jinja_evaluate(r, scope, node->b);
    case JINJA_ITEM:
        b = jinja_evaluate(r, scope, node->b);
        r->task.line = node->line;
        return jinja_item(r, a, b);
    default:
        b = jinja_evaluate(r, scope, node->b);
        r->task.line = node->line;
        return jinja_binary(r, node->operator, a, b);
    }
}

jinja_value jinja_evaluate(jinja_render *r, jinja_scope *scope, const jinja_node *node)
{
    jinja_value v;
    if (!node) // the head of the filters of a block
        return r->block;
    r->task.line = node->line;
    jinja_enter(r);
    switch (node->kind) {
    case JINJA_CONSTANT:
        v = node->value;
        break;
    case JINJA_NAME:
        v = jinja_lookup(r, scope, node->text);
        break;
    case JINJA_LIST_OF:
    case JINJA_TUPLE_OF:
        v = evaluate_list(r, scope, node);
        break;
    case JINJA_DICT_OF:
        v = evaluate_dict(r, scope, node);
        break;
    case JINJA_SLICE:
        v = evaluate_slice(r, scope, node);
        break;
    case JINJA_CALL:
        v = evaluate_call(r, scope, node);
        break;
    case JINJA_FILTER:
    case JINJA_TEST:
        v = evaluate_routine(r, scope, node);
        break;
    case JINJA_COMPARE:
        v = evaluate_compare(r, scope, node);
        break;
    case JINJA_CONCATENATE:
        v = evaluate_concatenate(r, scope, node);
        break;
    case JINJA_CONDITIONAL:
        if (jinja_true(r, jinja_evaluate(r, scope, node->b)))
            v = jinja_evaluate(r, scope, node->a);
        else
            v = node->c ? jinja_evaluate(r, scope, node->c) : jinja_undefined(NULL);
        break;
    default:
        v = evaluate_operation(r, scope, node);
    }
    jinja_leave(r);
    return v;
}
