// The routes of the API: completions and models; the table of all routes.
#include "router/admin.h"
#include "router/call.h"
#include "router/status_api.h"

#include <inttypes.h>

static void handle_chat(http_request *http, void *context)
{
    router *r = context;
    call_begin(r->dispatcher, http, REQUEST_CHAT);
}

static void handle_completions(http_request *http, void *context)
{
    router *r = context;
    call_begin(r->dispatcher, http, REQUEST_COMPLETION);
}

static void append_model(const router *r, const served_model *model, slice name, buffer *out)
{
    buffer_append_text(out, "{\"id\":");
    buffer_append_json(out, name);
    buffer_printf(out,
                  ",\"object\":\"model\",\"created\":%" PRIu64
                  ",\"owned_by\":\"penstock\",\"max_model_len\":%u}",
                  r->started_s, model_context(model));
}

static void handle_models(http_request *http, void *context)
{
    router *r = context;
    buffer out = { 0 };
    const char *comma = "";
    buffer_append_text(&out, "{\"object\":\"list\",\"data\":[");
    for (size_t i = 0; i < r->models.count; i++) {
        const served_model *model = &r->models.items[i];
        if (!gate_model_allowed(r->gate, http, model))
            continue;
        buffer_append_text(&out, comma);
        comma = ",";
        append_model(r, model, slice_of(model->prompt.identity.name), &out);
        for (size_t k = 0; k < model->aliases->count; k++) {
            buffer_append_byte(&out, ',');
            append_model(r, model, slice_of(model->aliases->items[k]), &out);
        }
    }
    buffer_append_text(&out, "]}");
    http_respond(http, 200, "application/json", buffer_slice(&out));
    buffer_close(&out);
}

static void handle_model(http_request *http, void *context)
{
    router *r = context;
    slice name = http_request_rest(http);
    const served_model *model = models_find(&r->models, name);
    if (!model || !gate_model_allowed(r->gate, http, model)) {
        http_respond_error(http, 404, NULL, "model", "model_not_found",
                           "there is no model of this name; see /v1/models");
        return;
    }
    buffer out = { 0 };
    append_model(r, model, name, &out);
    http_respond(http, 200, "application/json", buffer_slice(&out));
    buffer_close(&out);
}

const http_route router_routes[] = {
    { "POST", "/v1/chat/completions", handle_chat, HTTP_JSON_BODY | ROUTE_API | ROUTE_COUNTED },
    { "POST", "/v1/completions", handle_completions, HTTP_JSON_BODY | ROUTE_API | ROUTE_COUNTED },
    { "GET", "/v1/models", handle_models, ROUTE_API },
    { "GET", "/v1/models/*", handle_model, ROUTE_API },
    { "GET", "/health", status_api_health, ROUTE_OPEN },
    { "GET", "/ready", status_api_ready, ROUTE_OPEN },
    { "GET", "/metrics", status_api_metrics, ROUTE_ADMIN },
    { "GET", "/cluster", status_api_cluster, ROUTE_ADMIN },
    { "POST", "/admin/workers", admin_handle, HTTP_JSON_BODY | ROUTE_ADMIN },
    { "GET", "/trend", status_api_trend, ROUTE_ADMIN },
    { "GET", "/trend/*", status_api_trend, ROUTE_ADMIN },
    { "GET", "/requests", status_api_requests, ROUTE_ADMIN },
    { "GET", "/requests/*", status_api_request, ROUTE_ADMIN },
    { "GET", "/", status_api_page, ROUTE_ADMIN | ROUTE_PAGE },
    { "GET", "/ui/*", status_api_page, ROUTE_ADMIN | ROUTE_PAGE },
};
const size_t router_route_count = sizeof router_routes / sizeof *router_routes;
