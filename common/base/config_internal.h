// What the parts of base/config share: values on their way from text to a field, and the walk over
// keys.
//
// Included by common/base/config*.c only. A value owns its memory until it is stored or closed.
#pragma once

#include "base/buffer.h"
#include "base/config.h"

#define CONFIG_TEXT_MAX ((size_t)1 << 20)

typedef union config_value {
    config_strings strings; // the largest comes first: { 0 } is only sure to clear this one
    bool boolean;
    int64_t integer; // INT; DURATION in microseconds
    double real;
    uint64_t bytes;
    char *text;
} config_value;

// The key called `name` and its field in `settings`; NULL where there is none.
const config_key *config_key_find(const config_program *program, void *settings, const char *name,
                                  void **field);
// True where some key lies below the group `name` ("http" for "http.listen").
bool config_group_exists(const config_program *program, const char *name);
// Fail with a sentence about a key that no table has, naming the one that is spelled most like it.
status config_key_unknown(const config_program *program, const char *name, error *failure);

// Every field of `settings` gets its default; what was there is overwritten.
void config_set_defaults(const config_program *program, void *settings);

// The list called `name`; NULL where there is none.
const config_list *config_list_find(const config_program *program, const char *name);
// From the syntax of --set, and append in the syntax of a file.
status config_list_parse(const config_list *list, const char *text, void *settings, error *failure);
void config_list_format(const config_list *list, const void *settings, buffer *out);
void config_rows_close(const config_list *list, config_rows *rows);
void config_list_close(const config_list *list, void *settings);

// Whether a running program takes another value of it.
bool config_key_is_live(const config_program *program, const char *name);

// "a whole number", "a size such as ...": completes "it must be".
const char *config_type_wants(config_type type);
// Bytes of a field of this type, in settings and in a config_value alike.
size_t config_field_size(config_type type);
// From the syntax of --set. The failure names the key.
status config_value_parse(const config_key *key, const char *text, config_value *value,
                          error *failure);
// Range and allowed values.
status config_value_check(const config_key *key, const config_value *value, error *failure);
// Move `value` into the field, freeing what was there.
void config_value_store(const config_key *key, config_value *value, void *field);
void config_value_close(config_type type, config_value *value);
config_value config_value_load(const config_key *key, const void *field); // borrows
// A limit of a numeric key as a value of its type.
config_value config_value_of_number(config_type type, double number);
// Append as it stands in a .cfg file, quotes and all; reading it back gives the same value.
void config_value_format(config_type type, const config_value *value, buffer *out);

void config_print_help(const config_program *program, buffer *out);
void config_print_settings(const config_program *program, const void *settings, buffer *out);

// Refuse what libconfig would accept and misread (integers past their width, @include, nesting
// without end). The failure reads "NAME:LINE: sentence".
status config_scan_text(const char *name, const char *text, error *failure);
