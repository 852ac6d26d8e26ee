// `penstock`: the front program for people. Each subcommand is a row of the table in main.c and
// talks to a router over HTTP, or does its work here.
//
// Exit status of every subcommand: 0 done, 1 it could not be done (a sentence on standard error
// says why), 2 a bad command line.
#pragma once

#include "base/status.h"

#include <jansson.h>

typedef struct cli {
    const char *router;   // URL: "http://host:port"
    const char *key_file; // NULL: none
    bool json;            // print what the router says as it is
    bool wait;            // until it is done, not only ordered
} cli;

typedef struct cli_command {
    const char *name, *arguments, *help;
    int argument_count;
    int (*run)(const cli *c, const char *name, char **arguments);
} cli_command;

// client.c: one request, at most `CLI_ANSWER_MAX` bytes of answer. STATUS_OK where the router
// answered 200 with JSON, which is the caller's to decref; otherwise a sentence: the router's own
// where it sent one. `body` NULL: GET.
#define CLI_ANSWER_MAX ((size_t)64 << 20)
status cli_request(const cli *c, const char *path, json_t *body, json_t **answer, error *failure);

// workers.c
int cli_workers(const cli *c, const char *name, char **arguments);
// drain, cordon, uncordon, flip: `name` is the action.
int cli_order(const cli *c, const char *name, char **arguments);
