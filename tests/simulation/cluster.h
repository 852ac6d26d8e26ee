// The cluster of one seed: which processes there are, what happens to them, and when.
#pragma once

#include "router/router.h"
#include "world.h"

// The whole history of a seed; ends the process at the first broken invariant.
void cluster_live(uint64_t seed, const char *model, bool trace);
// One router in a world without faults, for size.c.
process *cluster_router_start(const char *model);
// The router that runs in a process; NULL: another program, or not open.
router *cluster_router(const process *p);
// The routers' retry budget.
uint64_t cluster_retry_budget_us(void);
// The `timeout` of requests under fire; 0: they name none.
double cluster_client_timeout_s(void);
// Workers that are meant to be alive.
size_t cluster_worker_count(void);
