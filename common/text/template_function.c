// The global functions.
#include "text/template_private.h"

#include <inttypes.h>
#include <time.h>

enum { RANGE_MAX = 100000, DATE_MAX = 1024 };

static jinja_value global_range(jinja_render *r, jinja_value self, const jinja_arguments *arguments)
{
    (void)self;
    int64_t bounds[3] = { 0, 0, 1 };
    uint32_t count = 0;
    for (; count < 3 && arguments->values[count].type != JINJA_ABSENT; count++)
        bounds[count] = jinja_need_int(r, arguments->values[count], "an argument of range");
    if (count == 1) {
        bounds[1] = bounds[0];
        bounds[0] = 0;
    }
    if (bounds[2] == 0)
        jinja_fail(&r->task, TEMPLATE_FAULT_TYPE, "the step of range is zero");
    __extension__ typedef __int128 wide; // the distance may not fit 64 bits
    wide distance = bounds[2] > 0 ? (wide)bounds[1] - bounds[0] : (wide)bounds[0] - bounds[1];
    wide step = bounds[2] > 0 ? (wide)bounds[2] : -(wide)bounds[2];
    wide length = distance > 0 ? (distance + step - 1) / step : 0;
    if (length > RANGE_MAX)
        jinja_fail(&r->task, TEMPLATE_FAULT_TYPE, "range is longer than %d", RANGE_MAX);
    jinja_range *range = jinja_allocate(&r->task, sizeof *range);
    *range = (jinja_range){ bounds[0], bounds[1], bounds[2], (int64_t)length };
    return (jinja_value){ .type = JINJA_RANGE, .range = range };
}

static jinja_dict *dict_of(jinja_render *r, const jinja_arguments *arguments, const char *what)
{
    jinja_dict *dict = jinja_dict_new(r);
    if (arguments->count > 1)
        jinja_fail(&r->task, TEMPLATE_FAULT_TYPE, "%s takes one argument without a name", what);
    if (arguments->count == 1)
        jinja_dict_update(r, dict, arguments->values[0]);
    for (uint32_t i = 0; i < arguments->named_count; i++)
        jinja_dict_set(r, dict,
                       (jinja_value){ .type = JINJA_STRING, .string = arguments->names[i] },
                       arguments->named[i]);
    return dict;
}

static jinja_value global_dict(jinja_render *r, jinja_value self, const jinja_arguments *arguments)
{
    (void)self;
    return (jinja_value){ .type = JINJA_DICT, .dict = dict_of(r, arguments, "dict") };
}

static jinja_value global_namespace(jinja_render *r, jinja_value self,
                                    const jinja_arguments *arguments)
{
    (void)self;
    return (jinja_value){ .type = JINJA_NAMESPACE, .dict = dict_of(r, arguments, "namespace") };
}

static jinja_value global_cycler(jinja_render *r, jinja_value self,
                                 const jinja_arguments *arguments)
{
    (void)self;
    if (arguments->count == 0 || arguments->named_count > 0)
        jinja_fail(&r->task, TEMPLATE_FAULT_TYPE, "cycler takes arguments without names");
    jinja_cycler *cycler = jinja_allocate(&r->task, sizeof *cycler);
    *cycler = (jinja_cycler){ .list = jinja_list_new(r, arguments->count) };
    for (uint32_t i = 0; i < arguments->count; i++)
        jinja_list_add(r, cycler->list, arguments->values[i]);
    return (jinja_value){ .type = JINJA_CYCLER, .cycler = cycler };
}

static jinja_value global_joiner(jinja_render *r, jinja_value self,
                                 const jinja_arguments *arguments)
{
    (void)self;
    jinja_joiner *joiner = jinja_allocate(&r->task, sizeof *joiner);
    *joiner = (jinja_joiner){ .text = arguments->values[0] };
    if (joiner->text.type == JINJA_ABSENT)
        joiner->text = jinja_text(r, SLICE(", "), JINJA_MARKUP);
    return (jinja_value){ .type = JINJA_JOINER, .joiner = joiner };
}

static jinja_value global_raise(jinja_render *r, jinja_value self, const jinja_arguments *arguments)
{
    (void)self;
    slice text = jinja_slice(jinja_string_of(r, arguments->values[0]).string);
    jinja_fail(&r->task, TEMPLATE_FAULT_RAISED, "%.*s", (int)(text.size > 399 ? 399 : text.size),
               text.data);
}

// strftime's %f, %z and %Z differ between C and Python's datetime without a time zone.
static void python_format(const jinja_string *format, buffer *adapted)
{
    for (size_t i = 0; i < format->size; i++) {
        char next = i + 1 < format->size ? format->bytes[i + 1] : '\0';
        if (format->bytes[i] != '%' || !next) {
            buffer_append_byte(adapted, format->bytes[i]);
            continue;
        }
        i++;
        if (next == 'f')
            buffer_append_text(adapted, "000000");
        else if (next != 'z' && next != 'Z')
            buffer_append(adapted, format->bytes + i - 1, 2);
    }
}

static jinja_value global_date(jinja_render *r, jinja_value self, const jinja_arguments *arguments)
{
    (void)self;
    const jinja_string *format = jinja_need_string(r, arguments->values[0], "the date format");
    if (format->size == 0)
        return jinja_text(r, SLICE(""), JINJA_MARKUP);
    if (format->size > DATE_MAX / 4 || memchr(format->bytes, '\0', format->size))
        jinja_fail(&r->task, TEMPLATE_FAULT_LIMIT, "the date format is longer than %d bytes",
                   DATE_MAX / 4);
    time_t now = (time_t)r->context->now_s;
    struct tm parts;
    if (!gmtime_r(&now, &parts))
        jinja_fail(&r->task, TEMPLATE_FAULT_TYPE, "the date %" PRId64 " is out of range",
                   r->context->now_s);
    char *text = jinja_allocate(&r->task, DATE_MAX);
    buffer adapted = { 0 };
    python_format(format, &adapted);
    size_t size = adapted.size ? strftime(text, DATE_MAX, adapted.data, &parts) : 0;
    bool lost = adapted.overflow;
    buffer_close(&adapted);
    if (lost)
        jinja_fail(&r->task, TEMPLATE_FAULT_LIMIT, "no memory for the date");
    return jinja_text(r, (slice){ text, size },
                      format->origin == JINJA_MARKUP ? JINJA_MARKUP : JINJA_CONTENT);
}

static const jinja_routine globals[] = {
    { "range", global_range, 1, "start stop step" },
    { "dict", global_dict, 0, NULL },
    { "namespace", global_namespace, 0, NULL },
    { "cycler", global_cycler, 0, NULL },
    { "joiner", global_joiner, 0, "sep" },
    { "raise_exception", global_raise, 1, "message" },
    { "strftime_now", global_date, 1, "format" },
};

const jinja_routine *jinja_find_row(const jinja_routine *rows, size_t count, slice name)
{
    for (size_t i = 0; i < count; i++)
        if (slice_equal(slice_of(rows[i].name), name))
            return &rows[i];
    return NULL;
}

const jinja_routine *jinja_find_global(slice name)
{
    return jinja_find_row(globals, sizeof globals / sizeof *globals, name);
}
