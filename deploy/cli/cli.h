// `penstock`: the front program for people. Each subcommand is a row of the table in main.c and
// talks to a router over HTTP, does its work here, or is a program of its own beside this one.
//
// Exit status of every subcommand: 0 done, 1 it could not be done (a sentence on standard error
// says why), 2 a bad command line.
#pragma once

#include "net/http_client.h"

#include <jansson.h>

#define CLI_ROUTERS_MAX 16

// What the command line says.
typedef struct cli {
    const char *routers[CLI_ROUTERS_MAX]; // URLs: "http://host:port"; the first one is talked to
    size_t router_count;                  // at least 1
    const char *key_file;                 // its first line is an API key; NULL: none
    const char *authority;      // PEM file of who signed https routers; NULL: the system's
    const char *model, *system; // chat; NULL: the router's first model, no system message
    bool json;                  // for programs
    bool wait;                  // drain, flip: until it is done, not only ordered
    bool once;                  // status: look once
} cli;

typedef struct cli_command {
    const char *name, *arguments, *help;
    int argument_min, argument_max;
    unsigned options; // that make sense with it; see main.c
    int (*run)(const cli *c, const char *name, int count, char **arguments);
} cli_command;

// client.c
// An answer under way. `stop`, where it is not NULL, ends the waiting (see http_client.h).
// STATUS_OK where the router answered 200; otherwise a sentence: the router's own where it sent
// one. `body` NULL: GET.
status cli_open(const cli *c, const char *url, const char *path, const json_t *body,
                const atomic_bool *stop, http_client **opened, error *failure);
// The same, and the whole answer, which must be a JSON object of at most CLI_ANSWER_MAX bytes; it
// is the caller's to decref.
#define CLI_ANSWER_MAX ((size_t)64 << 20)
status cli_request(const cli *c, const char *url, const char *path, const json_t *body,
                   json_t **answer, error *failure);
// Print it as this program's; returns the exit status 1.
int cli_failed(const error *failure);
// A member of an object; "?" and 0 where there is none.
const char *cli_text(const json_t *object, const char *name);
double cli_number(const json_t *object, const char *name);

// workers.c
int cli_workers(const cli *c, const char *name, int count, char **arguments);
// drain, cordon, uncordon, flip: `name` is the action.
int cli_order(const cli *c, const char *name, int count, char **arguments);
// status.c
int cli_status(const cli *c, const char *name, int count, char **arguments);
// chat.c
int cli_chat(const cli *c, const char *name, int count, char **arguments);
// key.c
int cli_key(const cli *c, const char *name, int count, char **arguments);
