// Cancels, so that no worker goes on with what nobody waits for.
//
// A worker that is not told works on and holds the pages of that attempt. So a Cancel that its pair
// cannot take is kept, and goes before anything else that is sent to that worker: when the next
// message does, and it is looked at every 50 ms. At most REGISTRY_CANCELS_MAX are kept for a
// worker, and they end with it. One for which there is no room, or that was lost on its way, is
// made up for by the worker itself: who tells of an attempt that is over is told again, at most
// REGISTRY_ANSWERS_MAX times in 50 ms for each worker, and never behind kept ones. What holds: of a
// worker that lives and takes messages, every attempt that is over ends by a Cancel, by its own
// end, or after a report that finds its turn. A Cancel never passes its ticket. Everything runs on
// the router's loop.
#pragma once

#include "router/registry.h"

#define REGISTRY_CANCELS_MAX 4096u // as many as a pair keeps messages
#define REGISTRY_ANSWERS_MAX 32u

// The attempt is over: the worker is to stop working on it. One that it does not know is no harm.
void registry_cancel(registry *r, registry_worker *w, uint64_t number, uint32_t attempt);
// It told of an attempt that is over, as if it went on. True: a Cancel is on its way.
bool registry_cancel_again(registry *r, registry_worker *w, uint64_t number, uint32_t attempt);
// Those that are kept now.
size_t registry_cancels_kept(const registry_worker *w);
