// What the router notes about the whole cluster beside its metrics: a sample of the trend every two
// seconds, which workers are gone, and from both the alerts. For the page at / and /cluster.
// Belongs to the loop.
#pragma once

#include "router/alerts.h"
#include "router/router.h"
#include "router/trend.h"

typedef struct pulse pulse;

// Metrics and loop are open; the first sample comes two seconds later. STATUS_NO_MEMORY.
status pulse_open(router *r, pulse **opened);
void pulse_close(pulse *p); // NULL is allowed
// A worker is about to leave the registry.
void pulse_on_lost(pulse *p, const registry_worker *w);
// Append `,"alerts":[...],"departed":[...]`: the alerts of this moment, and the workers that left
// within the last ten minutes and did not come back.
void pulse_render(const pulse *p, buffer *out);
const trend *pulse_trend(const pulse *p);
