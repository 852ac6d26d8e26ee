// The insides of the template engine, shared by the template_*.c files only.
//
// A task (one parse or one render) owns an arena and a landing place. Whatever goes wrong below
// calls jinja_fail, which fills the caller's `error` and jumps to the landing place in
// template_open or template_render. The jump is safe because nothing below owns anything but arena
// memory, and it spares several hundred call sites a check that one of them would forget.
//
// Values are immutable after they were built, except namespaces, loops, cyclers, joiners and
// iterators. Strings carry their origin (template.h): one for all bytes, or one mark per byte.
#pragma once

#include "base/buffer.h"
#include "base/status.h"
#include "text/template.h"
#include "text/unicode.h"

#include <setjmp.h>

// --- the task: arena and landing place (template_arena.c) ---

typedef struct jinja_chunk jinja_chunk;

typedef struct jinja_task {
    jmp_buf landing;
    error *failure;
    status code;
    template_fault fault;
    uint32_t line; // of the node in work, for the error's text
    jinja_chunk *chunks;
    size_t memory_used, memory_limit;
} jinja_task;

// Never NULL: past the limit the task fails. Aligned to 16, not zeroed.
void *jinja_allocate(jinja_task *task, size_t size);
// Grow the allocation of `old_size` bytes; in place where it is the last one.
void *jinja_resize(jinja_task *task, void *data, size_t old_size, size_t new_size);
void jinja_task_close(jinja_task *task);
// End the task: "line N: " and the text (raised messages go out bare).
_Noreturn void jinja_fail(jinja_task *task, template_fault fault, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

// --- values ---

typedef enum jinja_type {
    JINJA_ABSENT, // an argument that was not given; never seen by templates
    JINJA_UNDEFINED,
    JINJA_NONE,
    JINJA_BOOL,
    JINJA_INT,
    JINJA_WIDE, // an integer beyond 64 bits, as its digits: printed and compared, not computed with
    JINJA_FLOAT,
    JINJA_STRING,
    JINJA_LIST,
    JINJA_TUPLE,
    JINJA_DICT,
    JINJA_RANGE,
    JINJA_VIEW,     // dict.keys(), .values(), .items()
    JINJA_ITERATOR, // what lazy filters give: walked once, no length, no index
    JINJA_NAMESPACE,
    JINJA_LOOP,
    JINJA_MACRO,
    JINJA_METHOD, // a routine bound to its object; globals are bound to none
    JINJA_CYCLER,
    JINJA_JOINER,
} jinja_type;

typedef enum jinja_origin { JINJA_CONTENT, JINJA_MARKUP, JINJA_MIXED } jinja_origin;

typedef struct jinja_string {
    const char *bytes;     // valid UTF-8; may hold NUL
    const uint8_t *marks;  // JINJA_MIXED: per byte JINJA_CONTENT or JINJA_MARKUP; else NULL
    uint32_t size, length; // in bytes, in code points
    uint8_t origin;
    bool safe; // result of `safe` or `escape`: `+` escapes what is joined to it
} jinja_string;

typedef struct jinja_value jinja_value;
typedef struct jinja_list jinja_list;
typedef struct jinja_dict jinja_dict;
typedef struct jinja_range jinja_range;
typedef struct jinja_view jinja_view;
typedef struct jinja_iterator jinja_iterator;
typedef struct jinja_loop jinja_loop;
typedef struct jinja_macro jinja_macro;
typedef struct jinja_method jinja_method;
typedef struct jinja_cycler jinja_cycler;
typedef struct jinja_joiner jinja_joiner;
typedef struct jinja_scope jinja_scope;
typedef struct jinja_node jinja_node;
typedef struct jinja_render jinja_render;

struct jinja_value {
    uint8_t type;
    bool flag; // undefined: the sandbox refused; tuple: of groupby
    union {
        bool boolean;
        int64_t integer;
        double real;
        const jinja_string *string; // also what an undefined value was called, and digits
        jinja_list *list;           // list and tuple
        jinja_dict *dict;           // dict and namespace
        jinja_range *range;
        jinja_view *view;
        jinja_iterator *iterator;
        jinja_loop *loop;
        jinja_macro *macro;
        jinja_method *method;
        jinja_cycler *cycler;
        jinja_joiner *joiner;
    };
};

struct jinja_list {
    jinja_value *items;
    uint32_t count, capacity;
};

typedef struct jinja_entry {
    jinja_value key, value;
    uint64_t hash;
} jinja_entry;

struct jinja_dict { // insertion order; `index` (size a power of two, 0: none) holds entry + 1
    jinja_entry *entries;
    uint32_t *index;
    uint32_t count, capacity, index_size;
};

struct jinja_range {
    int64_t start, stop, step, count;
};

struct jinja_view {
    const char *name;
    jinja_list *list;
};

struct jinja_iterator {
    const char *name;
    jinja_list *list;
    uint32_t position;
};

struct jinja_cycler {
    jinja_list *list;
    uint32_t position;
};

struct jinja_joiner {
    jinja_value text;
    bool used;
};

struct jinja_loop {
    jinja_list *list;
    uint32_t index, depth;
    jinja_value changed; // the arguments of the last loop.changed(), or absent
    const jinja_node *node;
    jinja_scope *scope; // where the loop stands, for recursive loops
};

struct jinja_macro {
    const jinja_node *node;
    jinja_scope *scope;
};

typedef struct jinja_arguments {
    jinja_value *values;
    uint32_t count;
    const jinja_string **names; // of the named ones
    jinja_value *named;
    uint32_t named_count;
} jinja_arguments;

typedef jinja_value jinja_function(jinja_render *r, jinja_value self,
                                   const jinja_arguments *arguments);

// One filter, test, method or global. `parameters` are names between spaces, the first `required`
// of which must be given; the routine then finds each at its place in `values`, absent or not.
// NULL: as they come.
typedef struct jinja_routine {
    const char *name;
    jinja_function *run;
    uint8_t required;
    const char *parameters;
} jinja_routine;

struct jinja_method {
    const jinja_routine *routine;
    jinja_value self;
};

// --- the render ---

typedef struct jinja_builder {
    jinja_render *render;
    char *bytes;
    uint8_t *marks; // NULL while all bytes have `origin`
    size_t size, capacity;
    uint8_t origin;
    bool safe;
} jinja_builder;

typedef struct jinja_binding {
    const jinja_string *name;
    jinja_value value;
    struct jinja_binding *next;
} jinja_binding;

struct jinja_scope {
    jinja_scope *parent;
    jinja_binding *bindings;
};

struct jinja_render {
    jinja_task task;
    const template *source;
    const template_context *context;
    template_limits limits;
    size_t work; // bytes worked on; 64 are a step
    size_t depth;
    jinja_scope variables; // of the context, as far as they were read; the scope around all others
    jinja_value block;     // what the filters of a block apply to
    jinja_builder *out;    // where output goes
};

void jinja_work(jinja_render *r, size_t bytes); // count steps for work on so many bytes
void jinja_enter(jinja_render *r);              // one level deeper, or fail
void jinja_leave(jinja_render *r);

// --- strings (template_string.c) ---

void jinja_build_begin(jinja_builder *b, jinja_render *r);
void jinja_append(jinja_builder *b, slice bytes, jinja_origin origin); // not JINJA_MIXED
void jinja_append_text(jinja_builder *b, const char *text);            // markup? no: content
void jinja_append_string(jinja_builder *b, const jinja_string *s);
void jinja_append_part(jinja_builder *b, const jinja_string *s, size_t from, size_t to);
jinja_value jinja_build_end(jinja_builder *b);
jinja_value jinja_text(jinja_render *r, slice bytes,
                       jinja_origin origin); // bytes are kept, not copied
jinja_value jinja_part(jinja_render *r, const jinja_string *s, size_t from,
                       size_t to);                                          // byte offsets
size_t jinja_offset(jinja_render *r, const jinja_string *s, int64_t index); // of a code point
// Byte offset of `needle` at or after `from`, or SIZE_MAX; and the last one before `to`.
size_t jinja_find(jinja_render *r, slice text, slice needle, size_t from);
size_t jinja_find_last(jinja_render *r, slice text, slice needle, size_t to);
jinja_value jinja_replace(jinja_render *r, const jinja_string *s, const jinja_string *old,
                          const jinja_string *new, int64_t count);
enum { JINJA_LEFT = 1, JINJA_RIGHT = 2 };
// Without characters in `set` (NULL: white space) at the chosen ends.
jinja_value jinja_strip(jinja_render *r, const jinja_string *s, const jinja_string *set, int sides);
jinja_value jinja_escape(jinja_render *r, jinja_value v); // HTML; safe strings stay
jinja_list *jinja_split_lines(jinja_render *r, const jinja_string *s, bool keep_ends);
// At white space where `separator` is NULL; at most `limit` cuts (negative: all).
jinja_list *jinja_split(jinja_render *r, const jinja_string *s, const jinja_string *separator,
                        int64_t limit, bool from_right);
// Pad to `width` code points with `fill` on one side, or on both as Python's center does.
jinja_value jinja_pad(jinja_render *r, const jinja_string *s, int64_t width,
                      const jinja_string *fill, int side);
// Python's int(text, base): 1, or 0 where it is no number, or -1 where it does not fit.
int jinja_parse_int(slice text, int base, int64_t *integer);
bool jinja_parse_float(slice text, double *real); // Python's float(text)
static inline slice jinja_slice(const jinja_string *s)
{
    return (slice){ s->bytes, s->size };
}

// --- characters (template_unicode.c) ---

// The code point at `bytes` (valid UTF-8) and its size.
static inline uint32_t jinja_decode(const char *bytes, size_t *size)
{
    if ((unsigned char)bytes[0] < 0x80) { // most are
        *size = 1;
        return (unsigned char)bytes[0];
    }
    return (uint32_t)unicode_decode(bytes, size);
}
size_t jinja_encode(uint32_t point, char bytes[4]);
size_t jinja_last_size(const char *bytes, size_t end); // of the character that ends at `end`
size_t jinja_count_points(slice text);
bool jinja_is_space(uint32_t point);
bool jinja_is_printable(uint32_t point);
bool jinja_is_alpha(uint32_t point);
bool jinja_is_decimal(uint32_t point);
bool jinja_is_digit(uint32_t point);
bool jinja_is_numeric(uint32_t point);
bool jinja_is_upper(uint32_t point);
bool jinja_is_lower(uint32_t point);
bool jinja_is_title(uint32_t point);
// JINJA_WORDS is the filter `title`: a word begins after white space or one of -({[<.
typedef enum jinja_case {
    JINJA_UPPER,
    JINJA_LOWER,
    JINJA_TITLE,
    JINJA_WORDS,
    JINJA_CAPITALIZE,
    JINJA_SWAP,
} jinja_case;
jinja_value jinja_recase(jinja_render *r, const jinja_string *s, jinja_case way);

// --- values (template_value.c, template_container.c, template_print.c, template_json.c) ---

static inline jinja_value jinja_undefined(const jinja_string *name)
{
    return (jinja_value){ .type = JINJA_UNDEFINED, .string = name };
}
static inline jinja_value jinja_none(void)
{
    return (jinja_value){ .type = JINJA_NONE };
}
static inline jinja_value jinja_bool(bool b)
{
    return (jinja_value){ .type = JINJA_BOOL, .boolean = b };
}
static inline jinja_value jinja_int(int64_t i)
{
    return (jinja_value){ .type = JINJA_INT, .integer = i };
}
static inline jinja_value jinja_float(double d)
{
    return (jinja_value){ .type = JINJA_FLOAT, .real = d };
}
jinja_value jinja_from_json(jinja_render *r, json_t *json);
const char *jinja_type_name(jinja_value v); // Python's
bool jinja_true(jinja_render *r, jinja_value v);
bool jinja_equal(jinja_render *r, jinja_value a, jinja_value b);
// Order of two numbers, one of them wide: -1, 0, 1, or 2 where the other is not a number.
int jinja_order_wide(jinja_value a, jinja_value b);
int jinja_order(jinja_render *r, jinja_value a, jinja_value b, const char *operator); // or fail
bool jinja_contains(jinja_render *r, jinja_value container, jinja_value item);
bool jinja_integral(jinja_value v, int64_t *integer); // bool and int
bool jinja_number(jinja_value v, double *real);       // bool, int and float
int64_t jinja_need_int(jinja_render *r, jinja_value v, const char *what);
const jinja_string *jinja_need_string(jinja_render *r, jinja_value v, const char *what);
_Noreturn void jinja_fail_undefined(jinja_render *r, jinja_value v);
void jinja_need_defined(jinja_render *r, jinja_value v);

jinja_list *jinja_list_new(jinja_render *r, uint32_t capacity);
void jinja_list_add(jinja_render *r, jinja_list *list, jinja_value v);
jinja_value jinja_list_value(jinja_list *list, jinja_type type); // list or tuple
jinja_value jinja_iterator_value(jinja_render *r, jinja_list *list, const char *name);
jinja_value jinja_pair(jinja_render *r, jinja_value a, jinja_value b); // a tuple
jinja_list *jinja_iterate(jinja_render *r, jinja_value v);             // or fail; do not change it
jinja_list *jinja_items(jinja_render *r, const jinja_dict *dict);      // tuples
int64_t jinja_length(jinja_render *r, jinja_value v);                  // or fail
void jinja_sort(jinja_render *r, jinja_value *keys, jinja_value *items, uint32_t count,
                bool reverse);
jinja_dict *jinja_dict_new(jinja_render *r);
void jinja_dict_set(jinja_render *r, jinja_dict *dict, jinja_value key, jinja_value v);
const jinja_value *jinja_dict_get(jinja_render *r, const jinja_dict *dict, jinja_value key);
void jinja_dict_update(jinja_render *r, jinja_dict *dict, jinja_value with); // a mapping or pairs

void jinja_print(jinja_builder *b, jinja_value v);      // Python's str()
void jinja_print_repr(jinja_builder *b, jinja_value v); // Python's repr()
jinja_value jinja_string_of(jinja_render *r, jinja_value v);
enum { JINJA_FLOAT_TEXT = 72 };
void jinja_format_float(double real, char text[JINJA_FLOAT_TEXT]); // Python's repr of a float
jinja_value jinja_to_json(jinja_render *r, jinja_value self, const jinja_arguments *arguments);

// --- operations ---

jinja_value jinja_binary(jinja_render *r, int operator, jinja_value a, jinja_value b);
jinja_value jinja_negate(jinja_render *r, int operator, jinja_value v);
bool jinja_compare(jinja_render *r, int operator, jinja_value a, jinja_value b);
jinja_value jinja_attribute(jinja_render *r, jinja_value v, const jinja_string *name);
jinja_value jinja_item(jinja_render *r, jinja_value v, jinja_value key);
// What Python's getattr would find, or an absent value; keys of dicts are not looked at.
jinja_value jinja_own_attribute(jinja_render *r, jinja_value v, const jinja_string *name);
jinja_value jinja_refused(const jinja_string *name); // an undefined value that the sandbox made
jinja_value jinja_slice_of(jinja_render *r, jinja_value v, const jinja_value bounds[3]);
// An attribute path as filters take it: "a.b.0", or an integer.
jinja_value jinja_path(jinja_render *r, jinja_value v, jinja_value path);

enum { JINJA_WIDTH_MAX = 100000, JINJA_PRECISION_MAX = 100 };

typedef struct jinja_format_spec {
    slice fill; // one character
    char align; // '<', '>', '^', '=' or 0
    char sign;  // '+', ' ' or 0
    char group; // ',' or '_' or 0
    char type;  // 0: none given
    bool alternate, zero;
    int width, precision; // precision -1: none
} jinja_format_spec;

_Noreturn void jinja_fail_format(jinja_render *r, const char *what);
void jinja_format_text(jinja_builder *b, const jinja_format_spec *spec, const jinja_string *s);
void jinja_format_integer(jinja_builder *b, const jinja_format_spec *spec, int64_t integer);
void jinja_format_real(jinja_builder *b, const jinja_format_spec *spec, double real);
void jinja_format_character(jinja_builder *b, const jinja_format_spec *spec, jinja_value v);
jinja_value jinja_repr(jinja_render *r, jinja_value v);
int jinja_format_number(jinja_render *r, const char *bytes, size_t size, size_t *at, int most);
jinja_value jinja_format_percent(jinja_render *r, const jinja_string *format,
                                 jinja_value arguments);
jinja_value jinja_format_braces(jinja_render *r, jinja_value self,
                                const jinja_arguments *arguments);

jinja_value jinja_evaluate(jinja_render *r, jinja_scope *scope, const jinja_node *node);
void jinja_evaluate_arguments(jinja_render *r, jinja_scope *scope, const jinja_node *list,
                              jinja_arguments *arguments);
jinja_value jinja_call(jinja_render *r, jinja_value callee, const jinja_arguments *arguments);
jinja_value jinja_run(jinja_render *r, const jinja_routine *routine, jinja_value self,
                      const jinja_arguments *arguments);
jinja_value jinja_call_macro(jinja_render *r, jinja_macro *macro, const jinja_arguments *arguments);
jinja_value jinja_call_loop(jinja_render *r, jinja_loop *loop, jinja_value iterable);
void jinja_assign(jinja_render *r, jinja_scope *scope, const jinja_node *target, jinja_value v);
void jinja_bind(jinja_render *r, jinja_scope *scope, const jinja_string *name, jinja_value v);
jinja_value jinja_lookup(jinja_render *r, jinja_scope *scope, const jinja_string *name);
jinja_value jinja_make_method(jinja_render *r, const jinja_routine *routine, jinja_value self);

// --- tables; NULL: there is no such routine ---

const jinja_routine *jinja_find_filter(slice name);
const jinja_routine *jinja_find_test(slice name);
const jinja_routine *jinja_find_global(slice name);
const jinja_routine *jinja_find_method(jinja_type type, slice name);
bool jinja_changes_object(jinja_type type,
                          slice name); // list.append and the like, which are refused
const jinja_routine *jinja_find_row(const jinja_routine *rows, size_t count, slice name);
extern const jinja_routine jinja_text_filters[], jinja_list_filters[];
extern const size_t jinja_text_filter_count, jinja_list_filter_count;
extern const jinja_routine jinja_string_methods[], jinja_string_predicates[];
extern const size_t jinja_string_method_count, jinja_string_predicate_count;
