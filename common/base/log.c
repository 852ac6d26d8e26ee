#include "base/log.h"

#include "base/buffer.h"
#include "base/clock.h"
#include "base/utf8.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define LINE_MAX_BYTES 2048
#define TEXT_AROUND 32 // quotes, names and ends around a value

static const char *const level_names[] = { "error", "warn", "info", "debug", NULL };
static const char *const format_names[] = { "text", "json", NULL };

static const config_key log_keys[] = {
    { "log.level", CONFIG_STRING, offsetof(log_settings, level), "info", 0, 0, "",
      "How much is logged: each level includes those before it.", level_names },
    { "log.format", CONFIG_STRING, offsetof(log_settings, format), "text", 0, 0, "",
      "How a line looks: words, or one JSON object.", format_names },
};
const config_section log_config_section = { log_keys, sizeof(log_keys) / sizeof(log_keys[0]) };

static _Atomic int current_level = LOG_INFO;
static atomic_bool as_json;
static atomic_bool progress_shown; // a progress line stands on the terminal, without its line end

void log_level_set(log_level level)
{
    atomic_store_explicit(&current_level, (int)level, memory_order_relaxed);
}

bool log_level_parse(const char *name, log_level *level)
{
    for (int i = 0; level_names[i] != NULL; i++) {
        if (strcmp(name, level_names[i]) == 0) {
            *level = (log_level)i;
            return true;
        }
    }
    return false;
}

void log_apply(const log_settings *s)
{
    log_level level;
    if (log_level_parse(s->level, &level))
        log_level_set(level);
    log_format_set(s->format);
}

bool log_enabled(log_level level)
{
    return (int)level <= atomic_load_explicit(&current_level, memory_order_relaxed);
}

// A log that cannot be written has nowhere to complain, so failures are dropped here on purpose.
static void write_all(const char *text, size_t size)
{
    while (size > 0) {
        ssize_t written = write(STDERR_FILENO, text, size);
        if (written <= 0)
            return;
        text += written;
        size -= (size_t)written;
    }
}

void log_format_set(const char *name)
{
    atomic_store_explicit(&as_json, strcmp(name, "json") == 0, memory_order_relaxed);
}

// A line on its way out. Nothing here allocates: the buffer's memory is the caller's.
typedef struct log_text {
    buffer text;
    char memory[LINE_MAX_BYTES];
} log_text;

static void line_begin(log_text *l, log_level level, const char *tag)
{
    uint64_t now_us = clock_wall_us();
    time_t now_s = (time_t)(now_us / 1000000);
    struct tm parts;
    char time[32];
    gmtime_r(&now_s, &parts);
    strftime(time, sizeof(time), "%Y-%m-%dT%H:%M:%S", &parts);
    // One byte stays for the line end; two for the end of an object.
    l->text = (buffer){ .data = l->memory,
                        .capacity = sizeof(l->memory),
                        .limit = sizeof(l->memory) - 4 };
    buffer_printf(&l->text,
                  atomic_load_explicit(&as_json, memory_order_relaxed)
                      ? "{\"time\":\"%s.%03d\",\"level\":\"%s\",\"tag\":\"%.32s\""
                      : "%s.%03d %s %.32s",
                  time, (int)(now_us / 1000 % 1000), level_names[level], tag);
}

// As a JSON string of at most `room` bytes between its quotes: cut between characters.
static void append_cut_json(buffer *out, slice text, size_t room)
{
    size_t at = 0, used = 0;
    while (at < text.size) {
        size_t size = utf8_sequence_size(text.data + at, text.size - at);
        unsigned char byte = (unsigned char)text.data[at];
        size_t needs = size == 0 ? 3 : byte < 0x20 ? 6 : byte == '"' || byte == '\\' ? 2 : size;
        if (used + needs > room)
            break;
        used += needs;
        at += size ? size : 1;
    }
    buffer_append_json(out, (slice){ text.data, at });
}

static void line_end(log_text *l)
{
    if (atomic_load_explicit(&as_json, memory_order_relaxed))
        l->memory[l->text.size++] = '}';
    l->memory[l->text.size++] = '\n';
    if (atomic_exchange_explicit(&progress_shown, false, memory_order_relaxed))
        write_all("\r\033[K", 4);
    write_all(l->memory, l->text.size);
}

void log_line(log_level level, const char *tag, const char *format, ...)
{
    if (!log_enabled(level))
        return;
    log_text l;
    char text[LINE_MAX_BYTES];
    va_list arguments;
    line_begin(&l, level, tag);
    bool json = atomic_load_explicit(&as_json, memory_order_relaxed);
    size_t room = sizeof(l.memory) - l.text.size - TEXT_AROUND;
    va_start(arguments, format);
    int length = vsnprintf(text, room, format, arguments);
    va_end(arguments);
    if (length >= (int)room)
        memcpy(text + room - 4, "...", 4);
    utf8_make_printable(text); // one call is one line, whatever it quotes
    buffer_append_text(&l.text, json ? ",\"message\":" : " ");
    if (json)
        append_cut_json(&l.text, slice_of(text), room);
    else
        buffer_append_text(&l.text, text);
    line_end(&l);
}

// Whether it can stand among words without quotes.
static bool is_word(slice text)
{
    for (size_t i = 0; i < text.size; i++)
        if (text.data[i] <= ' ' || text.data[i] == 0x7f || text.data[i] == '"' ||
            (text.data[i] & 0x80))
            return false;
    return text.size > 0;
}

static void field_append(buffer *out, const log_field *f, bool json)
{
    size_t taken = out->size + strlen(f->name) + TEXT_AROUND;
    size_t room = taken < out->limit ? out->limit - taken : 0;
    buffer_printf(out, json ? ",\"%s\":" : " %s ", f->name);
    if (!f->text.data)
        buffer_printf(out, "%.*f", f->decimals, f->number);
    else if (!json && f->text.size == 0)
        buffer_append_byte(out, '-');
    else if (!json && f->text.size <= room && is_word(f->text))
        buffer_append_slice(out, f->text);
    else
        append_cut_json(out, f->text, room);
}

void log_fields(log_level level, const char *tag, const log_field *fields, size_t count)
{
    if (!log_enabled(level))
        return;
    log_text l;
    line_begin(&l, level, tag);
    bool json = atomic_load_explicit(&as_json, memory_order_relaxed);
    for (size_t i = 0;
         i < count && l.text.size + strlen(fields[i].name) + 2 * TEXT_AROUND < l.text.limit; i++)
        field_append(&l.text, &fields[i], json);
    line_end(&l);
}

void log_progress(const char *what, double done, double total)
{
    if (!isatty(STDERR_FILENO))
        return;
    double share = total > 0 && done < total ? done / total : 1;
    char line[256];
    int size = snprintf(line, sizeof(line), "\r\033[K%.200s %3.0f %%%s", what, 100 * share,
                        share < 1 ? "" : "\n");
    atomic_store_explicit(&progress_shown, share < 1, memory_order_relaxed);
    write_all(line, (size_t)size);
}
