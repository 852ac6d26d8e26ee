// Configuration as a table: each key has a name, type, default, range, unit and a sentence. The
// table parses files and command lines, checks them, and prints itself. One door to libconfig.
//
// A program's settings are one struct made of sections; a section is a table of keys with offsets
// into its part. Precedence: defaults < --config FILE (libconfig syntax) < --set key=value and the
// program's own flags, in order. Keys that the table does not know, values of the wrong type or out
// of range are errors that name the key, the file and the line. Used by the main thread at start,
// and by the thread that owns the settings when a signal asks to read them again.
#pragma once

#include "base/status.h"

#include <stdint.h>

typedef struct config_strings {
    size_t count;
    char **items;
} config_strings;

// What a key's field in the settings struct is.
typedef enum config_type {
    CONFIG_BOOL,     // bool
    CONFIG_INT,      // int64_t; in a file, more than 32 bits are written with the suffix L
    CONFIG_FLOAT,    // double
    CONFIG_STRING,   // char *, never NULL
    CONFIG_BYTES,    // uint64_t; "512MiB", "1.5GiB", "64KiB" or a plain number of bytes
    CONFIG_DURATION, // int64_t microseconds; "250us", "500ms", "3s", "10min", "2h"
    CONFIG_STRINGS,  // config_strings; a libconfig list or array of strings; --set key=a,b
} config_type;

typedef struct config_key {
    const char *name; // dotted, as in the file: "http.listen"
    config_type type;
    size_t offset;       // of the field in the section's struct
    const char *initial; // default, in the syntax of --set
    double min, max;  // inclusive; checked for INT, FLOAT, BYTES, DURATION (in microseconds) unless
                      // both are 0
    const char *unit; // "tokens", "bytes", ... or ""
    const char *help; // a sentence
    const char *const *among; // STRING: NULL-ended list of the allowed values, or NULL
} config_key;

typedef struct config_section {
    const config_key *keys;
    size_t count;
} config_section;

// A section placed inside a program's settings struct.
typedef struct config_part {
    const config_section *section;
    size_t offset;
} config_part;

// Groups of one kind: in a file NAME = ( { key = value; ... }, ... ), and --set takes the same text
// behind the =.
typedef struct config_rows {
    size_t count;
    void *items; // [count] structs of the list's row
} config_rows;

typedef struct config_program config_program;

typedef struct config_list {
    const char *name; // at the top of the file, without a dot
    size_t offset;    // of a config_rows in the settings struct
    // The keys of one group; of it only parts, part_count, settings_size and live count.
    const config_program *row;
    size_t max;       // groups at most
    const char *help; // a sentence
} config_list;

struct config_program {
    const char *name;    // "penstock-router"
    const char *summary; // one sentence for --help
    const config_part *parts;
    size_t part_count;
    size_t settings_size;
    // NULL-ended names of the keys that a running program takes again; NULL: none.
    const char *const *live;
    // Groups that may be there several times; none comes or goes while the program runs.
    const config_list *lists;
    size_t list_count;
};

// What the command line asks for.
typedef enum config_action {
    CONFIG_RUN,
    CONFIG_EXIT, // --help, --version or --print-config was printed to standard output: exit with 0
} config_action;

// Fill `settings` (settings_size bytes) from defaults, files and flags. Flags: --help, --version,
// --config FILE, --set key=value (repeatable), --print-config. On failure `failure` holds one
// sentence and nothing is left allocated.
status config_open(const config_program *program, int argc, char **argv, void *settings,
                   config_action *action, error *failure);
// Reading everything again while the program runs (SIGHUP).
typedef struct config_reload {
    // Of the fresh settings, before anything is taken: a failure leaves all as it was. NULL: no
    // more checks.
    status (*check)(const void *fresh, void *context, error *failure);
    // A key has another value than before. `taken`: it is live and the new value holds; otherwise
    // it needs a restart. A key of a list's group is called "NAME[i].key"; a list with other groups
    // than before is told by its own name.
    void (*changed)(const char *key, bool taken, void *context);
    void *context;
} config_reload;
// config_open's work once more with the same arguments; the live keys that changed go into
// `settings`, those of a list's groups too where the group is the same one: at the same place, and
// all its other keys as before. Every live key must be read by the calling thread only. Errors as
// of config_open: nothing has changed then.
status config_read_again(const config_program *program, int argc, char **argv, void *settings,
                         const config_reload *reload, error *failure);
// Free the strings inside.
void config_close(const config_program *program, void *settings);
// One key from its --set syntax; for tests and for live reload.
status config_set(const config_program *program, void *settings, const char *name,
                  const char *value, error *failure);
// A file's keys (libconfig syntax, at most 1 MiB, no @include) on top of what `settings` holds: all
// of them, or none where one is at fault. The failure reads "FILE:LINE: sentence". (Not "read":
// libconfig exports config_read_file itself.)
status config_load_file(const config_program *program, void *settings, const char *path,
                        error *failure);
// The same from memory; `name` stands for the file in the failure.
status config_load_text(const config_program *program, void *settings, const char *name,
                        const char *text, error *failure);
