// The routes that say how the cluster is: /health (alive), /ready (can serve now, or why not),
// /metrics (Prometheus), /cluster (JSON), /trend (the last minutes), /requests (the newest time
// lines), /requests/{id} (one of them) and the page at /.
// Handlers of the HTTP server; they read the loop's state.
#pragma once

#include "router/router.h"

// 200 as long as the loop runs; /ready is 200 or 503 with the reason as an error object.
void status_api_health(http_request *http, void *context);
void status_api_ready(http_request *http, void *context);
void status_api_metrics(http_request *http, void *context);
void status_api_cluster(http_request *http, void *context);
// /trend, and /trend/{number}: only samples from this number on.
void status_api_trend(http_request *http, void *context);
void status_api_requests(http_request *http, void *context);
void status_api_request(http_request *http, void *context);
void status_api_page(http_request *http, void *context);

// The files of router/ui/, embedded at build by router/ui/embed.cmake.
typedef struct ui_file {
    const char *path; // as requested
    const char *type;
    const unsigned char *data;
    size_t size;
} ui_file;
extern const ui_file ui_files[];
extern const size_t ui_file_count;
