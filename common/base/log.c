#include "base/log.h"

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

static const char *const level_names[] = { "error", "warn", "info", "debug", NULL };

static const config_key log_keys[] = {
    { "log.level", CONFIG_STRING, offsetof(log_settings, level), "info", 0, 0, "",
      "How much is logged: each level includes those before it.", level_names },
};
const config_section log_config_section = { log_keys, sizeof(log_keys) / sizeof(log_keys[0]) };

static _Atomic int current_level = LOG_INFO;
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

void log_line(log_level level, const char *tag, const char *format, ...)
{
    if (!log_enabled(level))
        return;
    uint64_t now_us = clock_wall_us();
    time_t now_s = (time_t)(now_us / 1000000);
    struct tm parts;
    gmtime_r(&now_s, &parts);
    char line[LINE_MAX_BYTES];
    size_t size = strftime(line, sizeof(line), "%Y-%m-%dT%H:%M:%S", &parts);
    size += (size_t)snprintf(line + size, sizeof(line) - size, ".%03d %s %.32s ",
                             (int)(now_us / 1000 % 1000), level_names[level], tag);
    size_t room = sizeof(line) - size - 1; // one byte for the line end
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(line + size, room, format, arguments);
    va_end(arguments);
    if (length >= (int)room)
        memcpy(line + size + room - 4, "...", 4);
    utf8_make_printable(line + size); // one call is one line, whatever it quotes
    size = strlen(line);
    line[size++] = '\n';
    if (atomic_exchange_explicit(&progress_shown, false, memory_order_relaxed))
        write_all("\r\033[K", 4);
    write_all(line, size);
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
