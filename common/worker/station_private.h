// Inside of common/worker/station*.c. Not for others.
#pragma once

#include "worker/station.h"

// ---- station.c: what the loop does to jobs
void station_ticket(station *s, worker_event *event);
void station_cancel(station *s, const worker_event *event);
void station_migrate(station *s, const worker_event *event);
void station_router_gone(station *s, const worker_router *router);
void station_admit(station *s);
void station_expire(station *s);
void station_drain(station *s);
void station_give_back(station *s);
void station_transfer(station *s, const handoff_event *event);

// ---- station_order.c
// What an operator wants; it is answered.
void station_order(station *s, const worker_event *event);

// ---- station_reload.c
// Read the settings again; what cannot change while the process runs is named in the log.
void station_reload(station *s);

// ---- station_loop.c
// Until the drain is over.
void station_run(station *s);
