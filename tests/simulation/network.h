// What the network stand-ins share: how long things take, and in which order they arrive.
#pragma once

#include "world.h"

// Latency of one message, mostly tens of microseconds, now and then milliseconds.
uint64_t network_latency_us(void);
// When something sent now from `from` to `to` arrives, not before *last_us, which moves along.
uint64_t network_arrival_us(int from, int to, uint64_t *last_us);

// The chances of the transport's own faults while the world is under fire.
typedef struct network_faults {
    double repeat;     // a control message comes twice
    double overtake;   // an urgent message passes ordinary ones
    double slow;       // a message takes up to 200 ms
    double break_pair; // a control connection breaks by itself, per message
    double bad_run;    // a page run arrives with a wrong byte
    double full;       // a router's pair takes no more for up to 200 ms, per message
} network_faults;
extern network_faults network;
