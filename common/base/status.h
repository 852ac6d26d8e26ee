// What a call came to, and who must act on it.
//
// Every function that can fail returns a `status`. The code says who must act: the REQUEST (tell
// the client, 4xx), the PEER (drop it and plan again) or SELF (log and exit; a supervisor
// restarts). A function whose failure a person will read also fills an `error`: one sentence that
// names the field, the value and what would be right. All of this is plain data; any thread may use
// it.
#pragma once

#include <stdbool.h>
#include <stddef.h>

typedef enum status_owner {
    STATUS_OWNER_NONE,    // nobody: it is no failure
    STATUS_OWNER_REQUEST, // the client, by another request or a later one
    STATUS_OWNER_PEER,    // us: drop the peer and plan again without it
    STATUS_OWNER_SELF,    // the operator: this process cannot go on with it
} status_owner;

// code, who must act, text. The text completes "the call ended because ...".
#define STATUS_LIST(X)                                                                             \
    X(OK, NONE, "it succeeded")                                                                    \
    X(AGAIN, NONE, "nothing is ready yet")                                                         \
    X(INVALID, REQUEST, "a value is not valid")                                                    \
    X(TOO_LARGE, REQUEST, "a limit on size was passed")                                            \
    X(CONTEXT_LENGTH, REQUEST, "the model's context is too short for it")                          \
    X(NOT_FOUND, REQUEST, "there is no such thing")                                                \
    X(CANCELLED, REQUEST, "the client cancelled it")                                               \
    X(DEADLINE, REQUEST, "its deadline passed")                                                    \
    X(OVERLOADED, REQUEST, "there is no room for it at present")                                   \
    X(UNAVAILABLE, REQUEST, "no worker can serve it at present")                                   \
    X(PEER_CLOSED, PEER, "the peer closed the connection")                                         \
    X(PEER_SILENT, PEER, "the peer fell silent")                                                   \
    X(PEER_PROTOCOL, PEER, "the peer broke the protocol")                                          \
    X(PEER_MISMATCH, PEER, "the peer serves something else")                                       \
    X(PEER_REFUSED, PEER, "the peer refused")                                                      \
    X(FULL, SELF, "a bounded store is full")                                                       \
    X(NO_MEMORY, SELF, "memory is short")                                                          \
    X(IO, SELF, "the system refused an operation")                                                 \
    X(BAD_FILE, SELF, "a file is not what it should be")                                           \
    X(BAD_CONFIG, SELF, "the configuration is not valid")                                          \
    X(UNSUPPORTED, SELF, "this build does not support it")                                         \
    X(NUMERIC, SELF, "a computation gave no number")                                               \
    X(INTERNAL, SELF, "an internal rule was broken")

typedef enum status {
#define STATUS_ENUM(code, owner, text) STATUS_##code,
    STATUS_LIST(STATUS_ENUM)
#undef STATUS_ENUM
        STATUS_COUNT
} status;

// The code's name ("TOO_LARGE"), its text, and who must act. Never NULL.
const char *status_name(status code);
const char *status_text(status code);
status_owner status_must_act(status code);

// A failure as a person reads it. `param` names the field, key or tensor at fault, or is empty.
// Both strings are NUL-terminated valid UTF-8 without control characters.
typedef struct error {
    status code;
    char param[96];
    char text[416];
} error;

// Fill `failure` (which may be NULL) and return `code`, so that a function can end with
// `return error_set(failure, STATUS_INVALID, "temperature", "temperature is %g; ...", value);`.
// Bytes that are not printable UTF-8 (a hostile value quoted in the text) become '?'.
status error_set(error *failure, status code, const char *param, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

// Put "prefix: " in front of the text, for a caller that knows more (the file, the route).
void error_prefix(error *failure, const char *format, ...) __attribute__((format(printf, 2, 3)));

// TRY jumps to the function's one cleanup label, `fail`, with the code in its local `status
// result`.
#define TRY(call)                                                                                  \
    do {                                                                                           \
        result = (call);                                                                           \
        if (result != STATUS_OK)                                                                   \
            goto fail;                                                                             \
    } while (0)

// CHECK states what the programmer promises; it is on in release builds and ends the process.
#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (__builtin_expect(!(condition), 0))                                                     \
            check_failed(#condition, __FILE__, __LINE__);                                          \
    } while (0)
_Noreturn void check_failed(const char *condition, const char *file, int line);
