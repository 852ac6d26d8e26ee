// A client of HTTP/1.1 for programs that wait: one request a connection, with TLS where the URL
// says https. Answers come whole or piece by piece. Blocking; each client belongs to one thread.
#pragma once

#include "base/buffer.h"
#include "base/status.h"

#include <stdatomic.h>

typedef struct http_client http_client;

typedef struct http_client_options {
    const char *url;       // http://host:port or https://host:port
    const char *authority; // PEM file of who signed the server's certificate; NULL: the system's
    unsigned patience_s;   // for each byte; 0: 15
    // Looked at whenever a signal interrupts the waiting, and a few times a second while nothing
    // comes: true ends it with STATUS_CANCELLED. NULL: waiting goes on.
    const atomic_bool *stop;
} http_client_options;

// Connect. SIGPIPE is ignored from now on (OpenSSL would raise it). STATUS_INVALID (the URL),
// BAD_FILE (the authority), UNAVAILABLE, CANCELLED, with a sentence. What the options point to
// outlives the client.
status http_client_open(const http_client_options *options, http_client **opened, error *failure);
void http_client_close(http_client *c); // NULL is allowed

// Append the field that shows an API key, which is the first line of `file` (NULL: none is shown).
// STATUS_BAD_FILE.
status http_client_key_append(const char *file, buffer *fields, error *failure);

// Send a request and read the head of its answer; once. `fields` are further lines, each ended by
// CRLF. This and the next: STATUS_UNAVAILABLE (broken, or out of patience), CANCELLED,
// PEER_PROTOCOL (not HTTP, or too long), with a sentence.
status http_client_send(http_client *c, const char *method, const char *path, slice fields,
                        slice body, int *status_code, error *failure);
// Append more of the answer's body to `out`; `*done`: it is complete, and nothing was appended.
status http_client_read(http_client *c, buffer *out, bool *done, error *failure);
