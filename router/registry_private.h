// Inside the registry: joining (registry_join.c), living (registry.c), cancels (registry_cancel.c).
#pragma once

#include "router/registry.h"

#define REGISTRY_BUCKETS 1024u

// Owned by the loop's thread. nng's threads push into `events` and touch nothing else.
struct registry {
    http_loop *loop;
    const router_settings *settings;
    models *models;
    registry_hooks hooks;
    uint64_t incarnation;
    queue *events; // of mailbox_event, from the server and all pairs
    mailbox_server *server;
    http_watch *watch;
    http_timer *beat_timer;  // speaks to every worker
    http_timer *check_timer; // looks for silence
    uint64_t checked_us;     // when it did last
    registry_worker **workers;
    size_t count, capacity;
    registry_worker *buckets[REGISTRY_BUCKETS]; // by serial
    registry_worker *touched;
    uint64_t layout;
    uint64_t next_serial;
    uint64_t refused; // registrations, since the start
};

// Into the table and its bucket.
void registry_index(registry *r, registry_worker *w);
// Answer one request of the control socket; frees the event.
void registry_answer(registry *r, mailbox_event *event);
// End a worker: close its pair, tell the hooks, free it.
void registry_lose(registry *r, registry_worker *w, status cause);
// Its model's `context` is that of its decode workers.
void registry_context_follow(registry *r, served_model *model);
// Speak to a worker now.
void registry_speak(registry *r, registry_worker *w);
// registry_send, without a look at kept cancels.
status registry_post(registry *r, registry_worker *w, const message_to_worker *m, bool urgent);

// registry_cancel.c
// Send the cancels that are kept for it; false: some are left, its pair takes no more.
bool registry_cancels_send(registry *r, registry_worker *w);
// A new turn: try to send them, and its reports may be answered again.
void registry_cancels_turn(registry *r, registry_worker *w);
// It is gone.
void registry_cancels_drop(registry_worker *w);
