// The door of the router's HTTP: which key a request shows, what it may do with it, what is said of
// it in the log, and the second listener for operators.
//
// With `security.keys_file` every request of the API shows a key (Authorization: Bearer, or as the
// password of Basic, or x-api-key), and the operators' routes (metrics, cluster, requests, orders)
// an admin key. /health and /ready ask nobody, nor do the page's files: the page asks its reader
// for a key and sends that. With `http.admin_listen` the operators' routes are only there; whoever
// reaches that address is an operator and needs no key.
//
// A key is asked for before the body is read. What depends on the body (model, class, tokens of the
// prompt) is asked by whoever parsed it: gate_grant. Everything runs on the router's loop.
#pragma once

#include "router/keys.h"
#include "router/router.h"

// Flags of routes: each has one of the first three.
#define ROUTE_OPEN HTTP_OWNER_FLAG           // nobody is asked for a key
#define ROUTE_API (HTTP_OWNER_FLAG << 1)     // any key
#define ROUTE_ADMIN (HTTP_OWNER_FLAG << 2)   // an admin key
#define ROUTE_COUNTED (HTTP_OWNER_FLAG << 3) // a request in the sense of a key's limits
#define ROUTE_PAGE (HTTP_OWNER_FLAG << 4)    // a file of the page: equal for all, asks nobody

// Keys and listeners, as the settings say. STATUS_BAD_CONFIG, IO ... with a sentence.
status gate_open(router *r, gate **opened, error *failure);
void gate_close(gate *g); // NULL is allowed; cuts every connection
// Read keys and certificate again; what is at fault stays as it is, and the log says why.
void gate_reload(gate *g);
void gate_refuse_keep_alive(gate *g); // see http.h
size_t gate_connections(const gate *g);

// What a parsed request holds of its key until its end; zeroed: nothing.
typedef struct gate_hold {
    api_key *key;
    uint64_t reserved; // tokens
} gate_hold;

// What an answer to a refused request says.
typedef struct gate_refusal {
    int status_code;
    const char *param, *code;
    int retry_after_s; // 0: nothing of the kind
    char message[256];
} gate_refusal;

// Whether a parsed request may go on; its prompt's tokens are reserved. Fields of the answer tell
// how the limits stand. False: `refusal` says what to answer.
bool gate_grant(gate *g, http_request *http, const request *parsed, gate_hold *hold,
                gate_refusal *refusal);
// Of a parsed question that no worker is asked: whether its key may still use the model; the file
// of keys may have been read again since.
bool gate_grant_model(gate *g, const http_request *http, const served_model *model,
                      gate_refusal *refusal);
// Its end, with the tokens that were used.
void gate_settle(gate *g, gate_hold *hold, uint64_t prompt_tokens, uint64_t completion_tokens);

// The key that a request showed; NULL: none (keys are off, or an operator's listener).
const api_key *gate_key(const http_request *http);
bool gate_keys_on(const gate *g);
// Those that its key may not use: they do not exist for it.
model_set gate_hidden_models(const gate *g, const http_request *http);
bool gate_model_allowed(const gate *g, const http_request *http, const served_model *model);
// It asked for one that does not exist, perhaps for its key only: counted.
void gate_model_missed(gate *g, const http_request *http);
// The salt of its tenant for prefixes (Ticket.prefix_salt). False: it shares them with everybody.
bool gate_salt(const gate *g, const http_request *http, uint8_t salt[16]);
