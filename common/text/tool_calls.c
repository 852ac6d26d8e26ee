#include "text/tool_calls_private.h"

#include "text/json_scanner.h"

#include <jansson.h>
#include <stdlib.h>

enum {
    TEXT,   // white space and the beginning of a mark are held
    OPENED, // behind a mark, before the object
    OBJECT, // in the object of a call
    AFTER,  // behind an object: a comma or bracket of the list, a separator, the closing mark
};
enum { NO_MEMBER, NAME, ARGUMENTS, OTHER }; // of the call's object
enum { WHITE_SPACE_MAX = 256 };             // held at a time; longer runs are text

struct tool_parser {
    const tool_syntax *syntax;
    slice *names; // [name_count], their bytes in name_bytes
    size_t name_count;
    buffer name_bytes;
    tool_handler *handler;
    void *context;
    int state;
    bool bare_allowed; // nothing but white space came so far, or a bare call ended
    bool bare;         // the call at hand has no mark
    bool in_list;
    bool after_call; // the white space that comes next is layout
    bool no_memory;
    buffer held;  // source that may still be part of a call
    buffer text;  // text that was let through and not yet told
    size_t begun; // calls that were told
    // the object of the call at hand; offsets are in `held`
    json_scanner scanner;
    int member;
    size_t begin; // of the key or value at hand
    char name[TOOL_NAME_MAX + 1];
    size_t name_size; // 0: not known yet
    bool has_arguments;
    bool arguments_whole, told; // told: TOOL_EVENT_CALL is out
    size_t arguments_begin, arguments_end;
    size_t arguments_told; // up to here
    buffer spelt;          // the arguments, where they were spelt in a string
};

// --- telling ---

static void tell(tool_parser *p, tool_event_kind kind, slice text)
{
    tool_event event = { kind, p->begun ? p->begun - 1 : 0, text };
    p->handler(p->context, &event);
}

static void tell_text(tool_parser *p)
{
    if (p->text.size > 0)
        tell(p, TOOL_EVENT_TEXT, buffer_slice(&p->text));
    p->no_memory = p->no_memory || p->text.overflow;
    buffer_clear(&p->text);
}

static void tell_arguments(tool_parser *p)
{
    size_t end = p->arguments_whole ? p->arguments_end : p->held.size;
    if (p->told && end > p->arguments_told) {
        slice piece = { p->held.data + p->arguments_told, end - p->arguments_told };
        tell(p, TOOL_EVENT_ARGUMENTS, piece);
        p->arguments_told = end;
    }
}

static void tell_call(tool_parser *p)
{
    tell_text(p);
    p->begun++;
    tell(p, TOOL_EVENT_CALL, (slice){ p->name, p->name_size });
    p->told = true;
    p->arguments_told = p->arguments_begin;
}

// --- text ---

static bool is_space(char c)
{
    return c == ' ' || c == '\n' || c == '\r' || c == '\t';
}

static size_t space_size(slice text)
{
    size_t size = 0;
    while (size < text.size && is_space(text.data[size]))
        size++;
    return size;
}

// What is held up to `size` is text after all.
static void let_through(tool_parser *p, size_t size)
{
    size_t from = p->after_call ? space_size(buffer_slice(&p->held)) : 0;
    if (from < size) {
        buffer_append(&p->text, p->held.data + from, size - from);
        p->after_call = false;
    }
    buffer_drop_front(&p->held, size);
}

typedef enum match { MATCH_NONE, MATCH_BEGINNING, MATCH_WHOLE } match;

static match match_mark(slice text, const char *mark)
{
    size_t size = mark ? strlen(mark) : 0;
    size_t common = text.size < size ? text.size : size;
    if (size == 0 || memcmp(text.data, mark, common) != 0)
        return MATCH_NONE;
    return common == size ? MATCH_WHOLE : MATCH_BEGINNING;
}

static match match_open(const tool_parser *p, slice text)
{
    match best = MATCH_NONE;
    for (int i = 0; i < TOOL_MARKS_MAX; i++) {
        match found = match_mark(text, p->syntax->open[i]);
        best = found > best ? found : best;
    }
    return best;
}

static void open_object(tool_parser *p)
{
    p->state = OBJECT;
    p->scanner = (json_scanner){ 0 };
    p->member = NO_MEMBER;
    p->name_size = 0;
    p->has_arguments = p->arguments_whole = p->told = false;
    buffer_clear(&p->spelt);
}

static void in_object(tool_parser *p, char c);

static void in_text(tool_parser *p, char c)
{
    buffer_append_byte(&p->held, c);
    while (p->held.size > 0) {
        slice held = buffer_slice(&p->held);
        size_t space = space_size(held);
        slice rest = { held.data + space, held.size - space };
        if (rest.size == 0) {
            if (space > WHITE_SPACE_MAX)
                let_through(p, space);
            return;
        }
        match found = match_open(p, rest);
        if (found == MATCH_WHOLE) {
            p->state = OPENED;
            p->bare = p->in_list = false;
            return;
        }
        if (found == MATCH_BEGINNING)
            return;
        if (p->bare_allowed && rest.data[0] == '{') { // it is all that is held behind the space
            p->held.size--;                           // in_object appends it again
            p->bare = true;
            p->in_list = false;
            open_object(p);
            in_object(p, '{');
            return;
        }
        p->bare_allowed = false;
        let_through(p, space + 1);
    }
}

static void step(tool_parser *p, char c);

// What is held is no call. All of it but a last byte that was not taken yet is text.
static void break_off(tool_parser *p)
{
    tell_arguments(p);
    if (p->told)
        tell(p, TOOL_EVENT_BROKEN, (slice){ 0 });
    p->told = p->bare_allowed = p->in_list = false;
    p->state = TEXT;
    let_through(p, p->held.size);
}

// --- calls ---

static void in_opened(tool_parser *p, char c)
{
    if (c == '{') {
        open_object(p);
        in_object(p, c);
    } else if (is_space(c)) {
        buffer_append_byte(&p->held, c);
    } else if (c == '[' && p->syntax->list && !p->in_list && !p->bare) {
        p->in_list = true;
        buffer_append_byte(&p->held, c);
    } else {
        break_off(p);
        step(p, c);
    }
}

// The string at held[begin..end), with its quotes, decoded; a new reference or NULL.
static json_t *decode(const tool_parser *p, size_t begin, size_t end)
{
    return json_loadb(p->held.data + begin, end - begin, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
}

static bool take_name(tool_parser *p, size_t end)
{
    json_t *text = decode(p, p->begin, end);
    slice name = { text ? json_string_value(text) : "", text ? json_string_length(text) : 0 };
    bool known = false;
    for (size_t i = 0; i < p->name_count && !known; i++)
        known = slice_equal(name, p->names[i]);
    known = known && name.size > 0 && name.size <= TOOL_NAME_MAX && p->name_size == 0;
    if (known) {
        memcpy(p->name, name.data, name.size);
        p->name_size = name.size;
    }
    json_decref(text);
    return known;
}

// Arguments in a string: it must spell an object.
static bool take_spelt(tool_parser *p, size_t end)
{
    json_t *text = decode(p, p->begin, end);
    json_t *object =
        text ? json_loadb(json_string_value(text), json_string_length(text), JSON_ALLOW_NUL, NULL)
             : NULL;
    bool is_object = json_is_object(object);
    if (is_object)
        buffer_append(&p->spelt, json_string_value(text), json_string_length(text));
    json_decref(object);
    json_decref(text);
    return is_object;
}

static int member_of(slice key, bool bare)
{
    if (slice_equal(key, SLICE("\"name\"")))
        return NAME;
    if (slice_equal(key, SLICE("\"arguments\"")) || slice_equal(key, SLICE("\"parameters\"")))
        return ARGUMENTS;
    bool harmless = slice_equal(key, SLICE("\"id\"")) || slice_equal(key, SLICE("\"type\""));
    return bare && !harmless ? NO_MEMBER : OTHER;
}

// A value of the call's object begins with the byte `c` at held[begin].
static bool begin_member(tool_parser *p, char c)
{
    if (p->member == NAME)
        return c == '"' && p->name_size == 0;
    if (p->member != ARGUMENTS)
        return true;
    if ((c != '{' && c != '"') || p->has_arguments)
        return false;
    p->has_arguments = true;
    p->arguments_begin = p->begin;
    return true;
}

static bool end_object(tool_parser *p)
{
    if (p->name_size == 0 || (p->bare && !p->has_arguments))
        return false;
    if (!p->told)
        tell_call(p);
    if (p->spelt.size > 0)
        tell(p, TOOL_EVENT_ARGUMENTS, buffer_slice(&p->spelt));
    else if (p->has_arguments)
        tell_arguments(p);
    else
        tell(p, TOOL_EVENT_ARGUMENTS, SLICE("{}"));
    tell(p, TOOL_EVENT_END, (slice){ 0 });
    p->told = false;
    p->after_call = true;
    p->bare_allowed = p->syntax->bare;
    p->state = AFTER;
    buffer_clear(&p->held);
    return true;
}

// One thing that happened in the call's object; false where it makes it no call. `depth` is that
// before the byte.
static bool happened(tool_parser *p, json_happening what, uint8_t depth, char c)
{
    size_t end = p->held.size;
    if (depth == 1 && (what == JSON_KEY_BEGAN || what == JSON_BEGAN))
        p->begin = end - 1;
    if (depth == 1 && what == JSON_KEY_ENDED) {
        p->member = member_of((slice){ p->held.data + p->begin, end - p->begin }, p->bare);
        return p->member != NO_MEMBER;
    }
    if (depth == 1 && what == JSON_BEGAN)
        return begin_member(p, c);
    if (depth == 1 && what == JSON_STRING_ENDED && p->member == NAME)
        return take_name(p, end);
    if (depth == 1 && what == JSON_STRING_ENDED && p->member == ARGUMENTS)
        return take_spelt(p, end);
    if (depth == 2 && what == JSON_CLOSED && p->member == ARGUMENTS) {
        p->arguments_whole = true;
        p->arguments_end = end;
    }
    return true;
}

static void in_object(tool_parser *p, char c)
{
    uint8_t depth = p->scanner.depth;
    json_happening what = json_scanner_push(&p->scanner, c);
    if (what == JSON_BROKEN) {
        break_off(p);
        step(p, c);
        return;
    }
    buffer_append_byte(&p->held, c);
    bool fine = !p->held.overflow && happened(p, what, depth, c);
    bool ends = fine && depth == 1 && what == JSON_CLOSED;
    if (ends)
        fine = end_object(p);
    if (!fine)
        break_off(p);
    else if (!ends && !p->told && p->name_size > 0 && p->has_arguments &&
             p->held.data[p->arguments_begin] == '{')
        tell_call(p);
}

// Behind a call: what is held is looked at anew as text.
static void back_to_text(tool_parser *p)
{
    buffer held = p->held;
    p->held = (buffer){ 0 };
    p->state = TEXT;
    for (size_t i = 0; i < held.size; i++)
        step(p, held.data[i]);
    buffer_close(&held);
}

static void in_after(tool_parser *p, char c)
{
    buffer_append_byte(&p->held, c);
    slice held = buffer_slice(&p->held);
    size_t space = space_size(held);
    slice rest = { held.data + space, held.size - space };
    if (rest.size == 0 && space <= WHITE_SPACE_MAX)
        return;
    if (p->in_list && rest.size == 1 && c == ',') {
        p->state = OPENED;
        return;
    }
    if (p->in_list && rest.size == 1 && c == ']') {
        p->in_list = false;
        buffer_clear(&p->held);
        return;
    }
    if (!p->in_list && match_mark(rest, p->syntax->separator) == MATCH_WHOLE) {
        p->state = OPENED;
        p->bare = true;
        return;
    }
    match found = rest.size > 0 ? match_mark(rest, p->syntax->close) : MATCH_NONE;
    if (found == MATCH_BEGINNING)
        return;
    if (found == MATCH_WHOLE) {
        buffer_clear(&p->held);
        p->state = TEXT;
        return;
    }
    back_to_text(p);
}

static void step(tool_parser *p, char c)
{
    switch (p->state) {
    case OPENED:
        in_opened(p, c);
        break;
    case OBJECT:
        in_object(p, c);
        break;
    case AFTER:
        in_after(p, c);
        break;
    default:
        in_text(p, c);
    }
}

// --- the interface ---

tool_parser *tool_parser_open(tool_format format, const slice *names, size_t name_count,
                              tool_handler *handler, void *context)
{
    tool_parser *p = calloc(1, sizeof *p);
    if (!p)
        return NULL;
    p->syntax = tool_syntax_of(format);
    p->handler = handler;
    p->context = context;
    p->bare_allowed = p->syntax->bare;
    p->names = calloc(name_count + 1, sizeof *p->names);
    for (size_t i = 0; i < name_count; i++)
        buffer_append_slice(&p->name_bytes, names[i]);
    if (!p->names || p->name_bytes.overflow) {
        tool_parser_close(p);
        return NULL;
    }
    size_t at = 0;
    for (size_t i = 0; i < name_count; at += names[i++].size)
        p->names[i] = (slice){ p->name_bytes.data + at, names[i].size };
    p->name_count = name_count;
    return p;
}

void tool_parser_close(tool_parser *p)
{
    if (!p)
        return;
    free(p->names);
    buffer_close(&p->name_bytes);
    buffer_close(&p->held);
    buffer_close(&p->text);
    buffer_close(&p->spelt);
    free(p);
}

// Bytes that can neither begin a mark nor touch one, so that text need not be looked at one by one.
static size_t plain_size(const tool_parser *p, slice text)
{
    if (p->state != TEXT || p->held.size > 0 || p->bare_allowed || p->after_call)
        return 0;
    for (size_t i = 0; i < text.size; i++) {
        char c = text.data[i];
        if (is_space(c))
            return i;
        for (int m = 0; m < TOOL_MARKS_MAX; m++)
            if (p->syntax->open[m] && c == p->syntax->open[m][0])
                return i;
    }
    return text.size;
}

static bool told_all(tool_parser *p)
{
    tell_text(p);
    tell_arguments(p);
    return !p->no_memory && !p->held.overflow && !p->spelt.overflow;
}

bool tool_parser_push(tool_parser *p, slice arrived)
{
    for (size_t i = 0; i < arrived.size;) {
        slice rest = { arrived.data + i, arrived.size - i };
        size_t plain = plain_size(p, rest);
        buffer_append(&p->text, rest.data, plain);
        i += plain;
        if (i < arrived.size)
            step(p, arrived.data[i++]);
    }
    return told_all(p);
}

bool tool_parser_end(tool_parser *p)
{
    if (p->state == AFTER)
        back_to_text(p);
    if (p->state != TEXT)
        break_off(p);
    let_through(p, p->held.size);
    return told_all(p);
}
