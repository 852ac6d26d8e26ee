// The filter tojson: json.dumps of Python with ensure_ascii off, as transformers has it.
#include "text/template_private.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

typedef struct json_style {
    bool ascii, sort, indented;
    const jinja_string *indent;     // one level
    const jinja_string *item, *key; // separators
} json_style;

static void write_value(jinja_builder *b, const json_style *style, jinja_value v, int level);

static void write_unicode(jinja_builder *b, uint32_t point)
{
    char text[16];
    if (point >= 0x10000)
        snprintf(text, sizeof text, "\\u%04x\\u%04x", 0xD7C0 + (point >> 10),
                 0xDC00 + (point & 0x3FF));
    else
        snprintf(text, sizeof text, "\\u%04x", point);
    jinja_append_text(b, text);
}

static void write_escaped(jinja_builder *b, uint32_t point)
{
    static const char letters[] = "\"\"\\\\\nn\rr\tt\bb\ff";
    for (size_t i = 0; letters[i]; i += 2) {
        if (point == (uint8_t)letters[i]) {
            jinja_append_text(b, (char[]){ '\\', letters[i + 1], '\0' });
            return;
        }
    }
    write_unicode(b, point);
}

static void write_string(jinja_builder *b, const json_style *style, const jinja_string *s)
{
    size_t done = 0;
    jinja_append_text(b, "\"");
    for (size_t at = 0, size; at < s->size; at += size) {
        uint32_t point = jinja_decode(s->bytes + at, &size);
        if (point >= 0x20 && point != '"' && point != '\\' && !(style->ascii && point >= 0x7F))
            continue;
        jinja_append_part(b, s, done, at);
        write_escaped(b, point);
        done = at + size;
    }
    jinja_append_part(b, s, done, s->size);
    jinja_append_text(b, "\"");
}

static void write_number(jinja_builder *b, jinja_value v)
{
    char text[JINJA_FLOAT_TEXT];
    if (v.type == JINJA_WIDE) {
        jinja_append_string(b, v.string);
        return;
    }
    if (v.type == JINJA_INT)
        snprintf(text, sizeof text, "%" PRId64, v.integer);
    else if (isnan(v.real) || isinf(v.real))
        strcpy(text, isnan(v.real) ? "NaN" : v.real < 0 ? "-Infinity" : "Infinity");
    else
        jinja_format_float(v.real, text);
    jinja_append_text(b, text);
}

static void write_newline(jinja_builder *b, const json_style *style, int level)
{
    if (!style->indented)
        return;
    jinja_append_text(b, "\n");
    for (int i = 0; i < level; i++)
        jinja_append_string(b, style->indent);
}

static void write_list(jinja_builder *b, const json_style *style, const jinja_list *list, int level)
{
    jinja_append_text(b, "[");
    for (uint32_t i = 0; i < list->count; i++) {
        if (i > 0)
            jinja_append_string(b, style->item);
        write_newline(b, style, level + 1);
        write_value(b, style, list->items[i], level + 1);
    }
    if (list->count > 0)
        write_newline(b, style, level);
    jinja_append_text(b, "]");
}

static void write_key(jinja_builder *b, const json_style *style, jinja_value key)
{
    if (key.type == JINJA_STRING) {
        write_string(b, style, key.string);
        return;
    }
    if (key.type != JINJA_NONE && key.type != JINJA_BOOL && key.type != JINJA_INT &&
        key.type != JINJA_FLOAT)
        jinja_fail(&b->render->task, TEMPLATE_FAULT_TYPE, "tojson: a key of type %s is not JSON",
                   jinja_type_name(key));
    jinja_append_text(b, "\"");
    write_value(b, style, key, 0);
    jinja_append_text(b, "\"");
}

static void write_dict(jinja_builder *b, const json_style *style, const jinja_dict *dict, int level)
{
    jinja_render *r = b->render;
    jinja_list *items = jinja_items(r, dict);
    if (style->sort) {
        jinja_value *keys = jinja_allocate(&r->task, (dict->count + 1) * sizeof *keys);
        for (uint32_t i = 0; i < dict->count; i++)
            keys[i] = dict->entries[i].key;
        jinja_sort(r, keys, items->items, items->count, false);
    }
    jinja_append_text(b, "{");
    for (uint32_t i = 0; i < items->count; i++) {
        if (i > 0)
            jinja_append_string(b, style->item);
        write_newline(b, style, level + 1);
        write_key(b, style, items->items[i].list->items[0]);
        jinja_append_string(b, style->key);
        write_value(b, style, items->items[i].list->items[1], level + 1);
    }
    if (items->count > 0)
        write_newline(b, style, level);
    jinja_append_text(b, "}");
}

static void write_value(jinja_builder *b, const json_style *style, jinja_value v, int level)
{
    jinja_enter(b->render);
    switch (v.type) {
    case JINJA_NONE:
        jinja_append_text(b, "null");
        break;
    case JINJA_BOOL:
        jinja_append_text(b, v.boolean ? "true" : "false");
        break;
    case JINJA_INT:
    case JINJA_WIDE:
    case JINJA_FLOAT:
        write_number(b, v);
        break;
    case JINJA_STRING:
        write_string(b, style, v.string);
        break;
    case JINJA_LIST:
    case JINJA_TUPLE:
        write_list(b, style, v.list, level);
        break;
    case JINJA_DICT:
        write_dict(b, style, v.dict, level);
        break;
    default:
        jinja_fail(&b->render->task, TEMPLATE_FAULT_TYPE, "tojson: a value of type %s is not JSON",
                   jinja_type_name(v));
    }
    jinja_leave(b->render);
}

static const jinja_string *plain(jinja_render *r, const char *text)
{
    return jinja_text(r, slice_of(text), JINJA_CONTENT).string;
}

static const jinja_string *indent_of(jinja_render *r, jinja_value v)
{
    if (v.type == JINJA_STRING)
        return v.string;
    int64_t count = jinja_need_int(r, v, "tojson: indent");
    if (count > 64)
        jinja_fail(&r->task, TEMPLATE_FAULT_LIMIT, "tojson: indent is %" PRId64 "; at most 64",
                   count);
    char *spaces = jinja_allocate(&r->task, 65);
    memset(spaces, ' ', 64);
    return jinja_text(r, (slice){ spaces, count > 0 ? (size_t)count : 0 }, JINJA_CONTENT).string;
}

jinja_value jinja_to_json(jinja_render *r, jinja_value self, const jinja_arguments *arguments)
{
    const jinja_value *given = arguments->values; // ensure_ascii indent separators sort_keys
    json_style style = { .ascii = jinja_true(r, given[0]), .sort = jinja_true(r, given[3]) };
    style.indented = given[1].type != JINJA_ABSENT && given[1].type != JINJA_NONE;
    if (style.indented)
        style.indent = indent_of(r, given[1]);
    if (given[2].type != JINJA_ABSENT && given[2].type != JINJA_NONE) {
        const jinja_list *two = jinja_iterate(r, given[2]);
        if (two->count != 2)
            jinja_fail(&r->task, TEMPLATE_FAULT_TYPE, "tojson: separators has %u elements, not 2",
                       two->count);
        style.item = jinja_need_string(r, two->items[0], "tojson: a separator");
        style.key = jinja_need_string(r, two->items[1], "tojson: a separator");
    } else {
        style.item = plain(r, style.indented ? "," : ", ");
        style.key = plain(r, ": ");
    }
    jinja_builder b;
    jinja_build_begin(&b, r);
    write_value(&b, &style, self, 0);
    return jinja_build_end(&b);
}
