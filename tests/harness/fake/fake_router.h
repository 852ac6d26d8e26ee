// A router for tests of the workers: it accepts whoever joins, keeps the heartbeats going and hands
// every message to the test. Single-threaded: things happen inside fake_router_next and the
// functions that wait.
//
// The workers are real processes of the programs beside the test. Failures of the harness are
// cmocka failures.
#pragma once

#include "net/mailbox.h"
#include "net/message.h"

#include <stdbool.h>
#include <sys/types.h>

typedef struct fake_router fake_router;
typedef struct fake_worker fake_worker;

// What a worker said. The message is freed by the next call.
typedef struct fake_event {
    fake_worker *from;
    message_to_router *message; // NULL: its connection ended
} fake_event;

fake_router *fake_router_open(void);
void fake_router_close(fake_router *r);
const char *fake_router_url(const fake_router *r);
// It is a router of the protocol before: it refuses workers that speak the present one.
void fake_router_older(fake_router *r);
// False: no heartbeats are sent.
void fake_router_speak(fake_router *r, bool speak);
// How often a worker registered, and how often one deregistered.
int fake_router_joins(const fake_router *r);
int fake_router_leaves(const fake_router *r);

// The next message that is no heartbeat; false after `timeout_ms`.
bool fake_router_next(fake_router *r, int timeout_ms, fake_event *event);
// Wait for the `count`th worker that joined (from 1), connected and with a heartbeat.
fake_worker *fake_router_worker(fake_router *r, int count);
// The last heartbeat, refreshed by whatever pumps; `fake_router_pump` does it for a while.
const message_worker_beat *fake_worker_beat(const fake_worker *w);
const message_register *fake_worker_register(const fake_worker *w);
bool fake_worker_connected(const fake_worker *w);
void fake_router_pump(fake_router *r, int ms);
// Pump until the worker says that nothing runs, waits or is held; false after `timeout_ms`.
bool fake_worker_idle(fake_router *r, const fake_worker *w, int timeout_ms);
void fake_worker_send(fake_worker *w, const message_to_worker *message);
void fake_worker_send_bytes(fake_worker *w, slice bytes);
// Close its pair, as a router that dies.
void fake_worker_drop(fake_worker *w);

// ---- tickets
typedef struct fake_ticket {
    message_to_worker message;
    Penstock__Ticket ticket;
    Penstock__RequestId request;
    Penstock__Sampling sampling;
    Penstock__PlanPeer prefill, decode;
} fake_ticket;
// A greedy ticket that ignores the end of text; `t` must not move afterwards.
void fake_ticket_make(fake_ticket *t, uint64_t number, const int32_t *tokens, size_t count,
                      uint32_t max_tokens);
void fake_worker_cancel(fake_worker *w, uint64_t number, uint32_t attempt);

// What came of one request.
typedef struct fake_answer {
    int32_t tokens[512];
    uint64_t hashes[512];
    bool seen[512];
    int count;             // tokens without a gap before them
    int length;            // behind the last token
    int32_t finish;        // Penstock__Finish
    uint32_t refused_code; // of Refused
    uint32_t failed_code;  // of Failed
    uint32_t cached_tokens;
    int handed_over; // HandedOver messages
    int seats;       // SeatReports
    bool handing_over;
    bool times_first_step;
    char text[256];
} fake_answer;
// Take an event into the answer of request `number`; tokens that come twice must be equal.
void fake_answer_take(fake_answer *a, uint64_t number, const fake_event *event);
// Pump until the request ended (finish with every token, refused, failed); false after
// `timeout_ms`.
bool fake_answer_wait(fake_router *r, fake_answer *a, uint64_t number, int timeout_ms);
// Send a ticket and wait for what comes of it; it must end within `timeout_ms`.
fake_answer fake_worker_ask(fake_worker *w, const fake_ticket *t, int timeout_ms);

// ---- processes
// The tiny model of a group of tests: its file, the group's setup and its teardown.
extern char fake_model[64];
int fake_model_make(void **state);
int fake_model_remove(void **state);
// Start penstock-ROLE with the group's model, this router and further "key=value" settings
// (NULL-ended).
pid_t fake_process_start(const char *role, const fake_router *r, const char *const *settings);
// Wait for its end, pumping the router; the exit status, or -1 after `timeout_ms` (it is killed).
int fake_process_wait(fake_router *r, pid_t pid, int timeout_ms);
// Signal it to drain; it must end with status 0 within `timeout_ms`.
void fake_process_end(fake_router *r, pid_t pid, int timeout_ms);
void fake_process_kill(pid_t pid);
