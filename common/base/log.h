// Log lines on standard error: "2026-01-31T12:00:00.123 info router worker joined role decode", or,
// with `log.format` json,
// {"time":"2026-01-31T12:00:00.123","level":"info","tag":"router","message":"worker joined role
// decode"}.
//
// Lower case, `key value` pairs, one line a call, written with a single write(2), so lines of
// several threads never mix. The tag is the module's name. Client text (prompts, answers) is never
// logged. Any thread may log. Nothing here allocates.
#pragma once

#include "base/buffer.h"
#include "base/config.h"

typedef enum log_level { LOG_ERROR, LOG_WARN, LOG_INFO, LOG_DEBUG } log_level;

// The `log` section of every program's configuration.
typedef struct log_settings {
    char *level;  // error | warn | info | debug
    char *format; // text | json
} log_settings;
extern const config_section log_config_section; // names "log.*", offsets into log_settings

// Take level and format from the configuration; values that it does not know change nothing.
void log_apply(const log_settings *s);
// Set the level; before the first call it is LOG_INFO.
void log_level_set(log_level level);
// "info" -> LOG_INFO; false where the name is unknown.
bool log_level_parse(const char *name, log_level *level);
bool log_enabled(log_level level);
// Lines as JSON objects from now on, or as text (before the first call). "json" and "text" are the
// names.
void log_format_set(const char *name);

void log_line(log_level level, const char *tag, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

// A line of fields. As text: "name value name value"; a value with blanks or quotes stands in
// quotes, an empty one is "-". As JSON: members of the object, numbers bare. Values are cut where
// the line would pass its limit of 2 KiB.
typedef struct log_field {
    const char *name;
    slice text; // NULL data: it is `number`
    double number;
    int decimals; // of `number`
} log_field;
void log_fields(log_level level, const char *tag, const log_field *fields, size_t count);

#define log_error(tag, ...) log_line(LOG_ERROR, tag, __VA_ARGS__)
#define log_warn(tag, ...) log_line(LOG_WARN, tag, __VA_ARGS__)
#define log_info(tag, ...) log_line(LOG_INFO, tag, __VA_ARGS__)
#define log_debug(tag, ...)                                                                        \
    do {                                                                                           \
        if (log_enabled(LOG_DEBUG))                                                                \
            log_line(LOG_DEBUG, tag, __VA_ARGS__);                                                 \
    } while (0)

// A progress line for long work ("loading weights 42 %"): redrawn in place on a terminal, silent in
// a log. `done` of `total`; done == total ends the line.
void log_progress(const char *what, double done, double total);
