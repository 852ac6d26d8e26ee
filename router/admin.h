// Orders of operators to workers: POST /admin/workers with {"worker": NAME, "action": ACTION}.
//
// Actions: drain (finish or hand over what runs, then leave), cordon (nothing new), uncordon, and
// flip with "role" (drain, then begin again as the other role). The order goes to the worker, which
// says at once whether it will do it and tells every router by its heartbeats, so it is given to
// one router only. A worker of protocol 1 knows no order but drain and gives no answer.
//
// Who may give orders is `admin.access`: "local" (clients of this machine that no proxy speaks
// and no browser's page speak for), "key" (who has the key of admin.key_file as Bearer token or,
// with security.keys_file, an admin key), or "off". Everything runs on the
// router's loop.
#pragma once

#include "router/router.h"

// STATUS_BAD_CONFIG and a sentence where the key file cannot be used.
status admin_open(router *r, admin **opened, error *failure);
// Orders without an answer are answered by nothing: the server is closed before.
void admin_close(admin *a); // NULL is allowed

// The handler of the route; its context is the router.
void admin_handle(http_request *http, void *context);
// A worker's answer, or its end.
void admin_on_answer(admin *a, const registry_worker *w, const Penstock__OrderAnswer *m);
void admin_on_lost(admin *a, const registry_worker *w);
