// The routes of the API, and the table of all routes.
#include "base/utf8.h"
#include "router/admin.h"
#include "router/call.h"
#include "router/status_api.h"

#include <inttypes.h>

static void handle_chat(http_request *http, void *context)
{
    call_begin(((router *)context)->dispatcher, http, REQUEST_CHAT);
}

static void handle_completions(http_request *http, void *context)
{
    call_begin(((router *)context)->dispatcher, http, REQUEST_COMPLETION);
}

static void handle_messages(http_request *http, void *context)
{
    call_begin(((router *)context)->dispatcher, http, REQUEST_MESSAGES);
}

static void handle_messages_count(http_request *http, void *context)
{
    call_begin(((router *)context)->dispatcher, http, REQUEST_MESSAGES_COUNT);
}

static void handle_tokenize(http_request *http, void *context)
{
    call_begin(((router *)context)->dispatcher, http, REQUEST_TOKENIZE);
}

static void handle_detokenize(http_request *http, void *context)
{
    call_begin(((router *)context)->dispatcher, http, REQUEST_DETOKENIZE);
}

// What OpenAI's API has and this one has not: said by name, and not as a path that nobody knows.
static void handle_unserved(http_request *http, void *context)
{
    (void)context;
    char message[256];
    slice path = http_request_path(http);
    snprintf(message, sizeof message,
             "%.*s is not served here; this server has /v1/chat/completions, /v1/completions, "
             "/v1/messages, /v1/models, /tokenize and /detokenize",
             utf8_fit(path.data, path.size < 60 ? path.size : 60), path.data);
    http_respond_error(http, 501, "not_supported_error", NULL, "endpoint_not_supported", message);
}

static void append_special(const tokenizer *t, const char *name, int32_t id, buffer *out)
{
    buffer_printf(out, ",\"%s\":", name);
    if (id == TOKENIZER_NO_ID) {
        buffer_printf(out, "null,\"%s_id\":null", name);
        return;
    }
    buffer_append_json(out, tokenizer_token_bytes(t, id));
    buffer_printf(out, ",\"%s_id\":%d", name, id);
}

// The members of an object.
static void append_tokenizer(const served_model *model, buffer *out)
{
    const tokenizer *t = model->prompt.tokens;
    char weights[33];
    hash128_format(model->prompt.identity.weights, weights);
    buffer_append_text(out, "\"model\":");
    buffer_append_json(out, slice_of(model->prompt.identity.name));
    buffer_printf(out,
                  ",\"tokenizer_class\":\"penstock\",\"weights\":\"%s\",\"vocab_size\":%d,"
                  "\"model_max_length\":%u,\"add_bos_token\":%s,\"has_chat_template\":%s",
                  weights, model->prompt.identity.vocabulary, model_context(model),
                  tokenizer_adds_bos(t) ? "true" : "false", model->prompt.chat ? "true" : "false");
    append_special(t, "bos_token", tokenizer_bos(t), out);
    append_special(t, "eos_token", tokenizer_eos(t), out);
}

// The first model's members, as clients of one model look for them, and those of all models.
static void handle_tokenizer_info(http_request *http, void *context)
{
    router *r = context;
    buffer out = { 0 }, rows = { 0 };
    for (size_t i = 0; i < r->models.count; i++) {
        if (!gate_model_allowed(r->gate, http, &r->models.items[i]))
            continue;
        if (out.size == 0) {
            buffer_append_byte(&out, '{');
            append_tokenizer(&r->models.items[i], &out);
        }
        buffer_append_text(&rows, rows.size ? ",{" : "{");
        append_tokenizer(&r->models.items[i], &rows);
        buffer_append_byte(&rows, '}');
    }
    buffer_append_text(&out, out.size ? ",\"tokenizers\":[" : "{\"tokenizers\":[");
    buffer_append_slice(&out, buffer_slice(&rows));
    buffer_append_text(&out, "]}");
    http_respond(http, 200, "application/json", buffer_slice(&out));
    buffer_close(&rows);
    buffer_close(&out);
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
        for (size_t k = 0; k < model->source->aliases.count; k++) {
            buffer_append_byte(&out, ',');
            append_model(r, model, slice_of(model->source->aliases.items[k]), &out);
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

// Each says who may use it (router/gate.h).
const http_route router_routes[] = {
    { "POST", "/v1/chat/completions", handle_chat, HTTP_JSON_BODY | ROUTE_API | ROUTE_COUNTED },
    { "POST", "/v1/completions", handle_completions, HTTP_JSON_BODY | ROUTE_API | ROUTE_COUNTED },
    { "POST", "/v1/messages", handle_messages, HTTP_JSON_BODY | ROUTE_API | ROUTE_COUNTED },
    { "POST", "/v1/messages/count_tokens", handle_messages_count, HTTP_JSON_BODY | ROUTE_API },
    { "POST", "/tokenize", handle_tokenize, HTTP_JSON_BODY | ROUTE_API },
    { "POST", "/detokenize", handle_detokenize, HTTP_JSON_BODY | ROUTE_API },
    { "GET", "/tokenizer_info", handle_tokenizer_info, ROUTE_API },
    { "GET", "/v1/models", handle_models, ROUTE_API },
    { "GET", "/v1/models/*", handle_model, ROUTE_API },
    { "POST", "/v1/embeddings", handle_unserved, ROUTE_API },
    { "POST", "/v1/moderations", handle_unserved, ROUTE_API },
    { "POST", "/v1/responses", handle_unserved, ROUTE_API },
    { "POST", "/v1/images/*", handle_unserved, ROUTE_API },
    { "POST", "/v1/audio/*", handle_unserved, ROUTE_API },
    { "POST", "/v1/files", handle_unserved, ROUTE_API },
    { "GET", "/v1/files", handle_unserved, ROUTE_API },
    { "POST", "/v1/fine_tuning/*", handle_unserved, ROUTE_API },
    { "POST", "/v1/assistants", handle_unserved, ROUTE_API },
    { "GET", "/v1/assistants", handle_unserved, ROUTE_API },
    { "POST", "/v1/threads", handle_unserved, ROUTE_API },
    { "POST", "/v1/batches", handle_unserved, ROUTE_API },
    { "GET", "/v1/batches", handle_unserved, ROUTE_API },
    { "POST", "/v1/uploads", handle_unserved, ROUTE_API },
    { "POST", "/v1/vector_stores", handle_unserved, ROUTE_API },
    { "GET", "/v1/vector_stores", handle_unserved, ROUTE_API },
    { "POST", "/v1/realtime/*", handle_unserved, ROUTE_API },
    { "GET", "/v1/responses/*", handle_unserved, ROUTE_API },
    { "GET", "/v1/files/*", handle_unserved, ROUTE_API },
    { "GET", "/v1/assistants/*", handle_unserved, ROUTE_API },
    { "GET", "/v1/threads/*", handle_unserved, ROUTE_API },
    { "GET", "/v1/batches/*", handle_unserved, ROUTE_API },
    { "GET", "/v1/uploads/*", handle_unserved, ROUTE_API },
    { "GET", "/v1/vector_stores/*", handle_unserved, ROUTE_API },
    { "GET", "/v1/fine_tuning/*", handle_unserved, ROUTE_API },
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
