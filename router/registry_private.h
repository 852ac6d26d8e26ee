// Inside the registry: joining (registry_join.c) and living (registry.c).
#pragma once

#include "router/registry.h"

struct registry {
    http_loop *loop;
    const router_settings *settings;
    const registry_model *model;
    registry_hooks hooks;
    uint64_t incarnation;
    queue *events;
    mailbox_server *server;
    http_watch *watch;
    http_timer *beat_timer, *check_timer;
    registry_worker **workers;
    size_t count, capacity;
    uint64_t next_serial;
    uint64_t refused, lost;
};

// Answer one request of the control socket; frees the event.
void registry_answer(registry *r, mailbox_event *event);
// End a worker: close its pair, tell the hooks, free it.
void registry_lose(registry *r, registry_worker *w, status cause);
// Speak to a worker now.
void registry_speak(registry *r, registry_worker *w);
