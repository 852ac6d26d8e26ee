// A live sequence leaves for another decode worker: this one is the sender of the hand-off.
//
// With the router's order the send begins and the job takes the number of the attempt that goes on
// elsewhere. When the seat is open there, the full pages go while the sequence generates on. When
// they are gone, or it made as many tokens as the seat has room for, it rests; the rest of its
// pages and the record go, and with the acknowledgement it is over here. If it ends before that, or
// anything fails, the transfer is cancelled, or reported, like a prefill worker's. Step thread.
#pragma once

#include "worker/station.h"

void migrate_begin(station *s, job *j, const Penstock__Migrate *order);
// An event of such a job's send.
void migrate_transfer(station *s, job *j, const handoff_event *event);
// Behind a step: those that must not go on before their seat is open rest.
void migrate_stepped(station *s);
