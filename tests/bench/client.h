// A client of an OpenAI-compatible server, for the sub-commands of penstock-bench that load one.
//
// Prompts are lists of random token ids, so their length is exact for every tokenizer and no prefix
// repeats. Times are the client's, in seconds of bench_now. Blocking; each thread has its own
// answer.
#pragma once

#include "net/http_client.h"

typedef struct client_server {
    const char *url;       // "http://host:port", or https
    const char *authority; // PEM file of who signed the server's certificate; NULL: the system's
    const char *key_file;  // its first line is an API key; NULL: none
    char model[256];       // found by client_find_model
    char fields[600];      // of every request
} client_server;

// What to ask for. `number` and `seed` choose the prompt.
typedef struct client_ask {
    uint64_t seed;
    int number;
    int prompt_tokens, max_tokens;
} client_ask;

// One answer as it comes. An event is a piece of text, of one token or more.
typedef struct client_answer {
    double sent;        // when the request set out, on a connection that was there
    double *times;      // [max_tokens + 2] of the events; the caller's
    int events, tokens; // tokens: as the server counts them
    int status;         // of HTTP; 0: no answer came
    bool done;          // with [DONE] and text
    bool stopped;       // by `stop`
    char why[200];      // where it is not done
} client_answer;

// Read the key, and ask the server for its first model's name; before any other request. Errors:
// those of http_client.h, STATUS_PEER_REFUSED.
status client_find_model(client_server *server, error *failure);
// Ask, and take events in until the end, an error, or `stop` (NULL: never), looked at with each
// event and a few times a second.
void client_run(const client_server *server, const client_ask *ask, const atomic_bool *stop,
                client_answer *answer);
// Memory for answers to `ask`, and its end.
bool client_answer_open(const client_ask *ask, client_answer *answer);
void client_answer_close(client_answer *answer);
