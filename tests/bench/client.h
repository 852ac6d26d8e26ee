// A client of an OpenAI-compatible server, for the sub-commands of penstock-bench that load one.
//
// Prompts are lists of random token ids, so their length is exact for every tokenizer and no prefix
// repeats. Times are the client's, in seconds of bench_now. Blocking; each thread has its own
// answer.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct client_server {
    char host[256], port[16];
    char model[256];
} client_server;

// What to ask for. `number` and `seed` choose the prompt.
typedef struct client_ask {
    uint64_t seed;
    int number;
    int prompt_tokens, max_tokens;
} client_ask;

// One answer as it comes. An event is a piece of text, of one token or more.
typedef struct client_answer {
    double sent;        // the request's last byte
    double *times;      // [max_tokens + 2] of the events; the caller's
    int events, tokens; // tokens: as the server counts them
    int status;         // of HTTP; 0: no answer came
    bool done;          // with [DONE] and text
    bool stopped;       // by `stop`
    char why[200];      // where it is not done
} client_answer;

// "http://host:port"; false where it is no such thing.
bool client_parse_url(const char *url, client_server *server);
// Ask the server for its first model's name; false where it does not answer.
bool client_find_model(client_server *server);
// Ask, and take events in until the end, an error, or `stop` (NULL: never), looked at with each
// event and a few times a second.
void client_run(const client_server *server, const client_ask *ask, const volatile bool *stop,
                client_answer *answer);
// Memory for answers to `ask`, and its end.
bool client_answer_open(const client_ask *ask, client_answer *answer);
void client_answer_close(client_answer *answer);
