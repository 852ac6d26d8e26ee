// The world's HTTP clients: each asks one thing, knows the right answer, and checks every byte.
#pragma once

#include "world.h"

struct http_request;

typedef enum client_end {
    CLIENT_WAITS,
    CLIENT_ANSWERED,  // whole and right
    CLIENT_LIMITED,   // 429
    CLIENT_FAILED,    // a clear error object
    CLIENT_CUT_OFF,   // its router died
    CLIENT_ABANDONED, // it left by itself
} client_end;

// Which errors a client may get.
typedef enum client_patience {
    CLIENT_BEARS_NOTHING, // it asks in peace
    CLIENT_BEARS_POISON,  // under fire, but one worker of each kind and all routers are spared
    CLIENT_BEARS_ALL,     // under fire
} client_patience;

typedef struct client {
    struct client *next;
    uint64_t number;
    process *router;
    struct http_request *http; // NULL: nothing is under way
    uint64_t last_us;          // of what the router sent
    uint64_t begun_us, ended_us;
    bool stream;
    client_patience patience;
    int32_t prompt[256];
    size_t prompt_count, max_tokens, min_tokens;
    uint64_t seed;
    size_t leave_after;  // bytes; 0: never
    char stop[4];        // a stop string; empty: none
    char expected[1024]; // the text
    const char *expected_finish;
    size_t expected_tokens;
    char got[1100];
    size_t got_size;
    buffer head; // what came and is not a whole event yet
    int status_code;
    bool done_mark, error_event;
    char error_code[48];
    char finish[16];
    client_end end;
} client;

// Ask `router` now.
client *client_begin(process *asked, client_patience patience);
client *client_list(void);

// http.c: post to a router of the world; what it answers comes back by these, in order.
void http_post(client *c, const char *path, slice body);
void http_leave(client *c);
void client_on_data(client *c, int status_code, slice data);
void client_on_end(client *c);
void client_on_cut(client *c);
// SIGTERM for a process whose loop listens to it (a router); false: it does not yet.
bool http_signal(process *p, int signal);
