// The router as a whole: what its parts share. One event loop owns everything here; the only other
// threads are nng's, which push into the registry's queue, and the helper of offload.h, which sees
// nothing but its job.
#pragma once

#include "base/metrics.h"
#include "router/history.h"
#include "router/offload.h"
#include "router/registry.h"
#include "router/router_metrics.h"
#include "router/request.h"

typedef struct dispatcher dispatcher;
typedef struct admin admin;
typedef struct gate gate;
typedef struct pulse pulse;

// Open to the router's own files: handlers get it as their context, hooks as theirs.
typedef struct router {
    router_settings *settings;
    models models;
    uint64_t incarnation;           // random; the first half of every request id
    uint64_t started_us, started_s; // monotonic, and wall clock
    http_loop *loop;
    gate *gate; // the HTTP servers, and who may pass
    registry *registry;
    dispatcher *dispatcher;
    admin *admin;
    pulse *pulse;
    offload *offload;
    history *history;
    router_metrics *metrics;
    model_encoders encoders; // of the loop's thread
    int argc;                // of main, to read the settings again on SIGHUP; 0: it is ignored
    char **argv;
    bool draining;  // SIGTERM came: nothing new is taken
    bool drain_cut; // requests were cut by the drain's deadline
} router;

// Read the models, listen on both sockets. `settings` must outlive the router. STATUS_BAD_CONFIG,
// BAD_FILE, IO ... with a sentence.
status router_open(router_settings *settings, router **opened, error *failure);
// Serve until a drain has ended. The exit status: 0 every request was finished, 1 failure, 3 some
// were cut.
int router_run(router *r);
void router_close(router *r); // NULL is allowed; cuts what is left

// Whether a request for this model could be served now; else a sentence. NULL: for any of them.
bool router_ready(const router *r, const served_model *model, char reason[160]);

// api.c and status_api.c
extern const http_route router_routes[];
extern const size_t router_route_count;
