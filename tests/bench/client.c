#include "client.h"

#include "bench.h"

#include "base/random.h"

#include <jansson.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TOKEN_LOW 1000
#define TOKEN_HIGH 30000
#define PATIENCE_S 300 // for each byte
#define LINE_MAX_BYTES ((size_t)1 << 20)

static void write_body(const client_server *s, const client_ask *ask, buffer *body)
{
    buffer_printf(body, "{\"model\":");
    buffer_append_json(body, slice_of(s->model));
    buffer_printf(body,
                  ",\"stream\":true,\"stream_options\":{\"include_usage\":true},\"temperature\":0,"
                  "\"ignore_eos\":true,\"max_tokens\":%d,\"prompt\":[",
                  ask->max_tokens);
    uint64_t key = random_row_key(ask->seed, 0, (uint64_t)ask->number);
    for (int i = 0; i < ask->prompt_tokens; i++)
        buffer_printf(
            body, "%s%d", i ? "," : "",
            (int)(TOKEN_LOW + random_token_bits(key, (uint32_t)i) % (TOKEN_HIGH - TOKEN_LOW)));
    buffer_append_text(body, "]}");
}

// One "data:" line. Returns false where it reports an error.
static bool take_event(client_answer *a, const char *text)
{
    if (strncmp(text, "[DONE]", 6) == 0) {
        a->done = true;
        return true;
    }
    json_t *event = json_loads(text, 0, NULL);
    bool good = event != NULL && json_object_get(event, "error") == NULL;
    json_t *usage = json_object_get(event, "usage");
    if (json_is_object(usage))
        a->tokens = (int)json_integer_value(json_object_get(usage, "completion_tokens"));
    json_t *choice = json_array_get(json_object_get(event, "choices"), 0);
    const char *words = json_string_value(json_object_get(choice, "text"));
    if (words != NULL && words[0] != '\0')
        a->times[a->events++] = bench_now();
    json_decref(event);
    return good;
}

// One line of the answer; false where it is the end of all hope.
static bool take_line(client_answer *a, const client_ask *ask, const char *line)
{
    if (strncmp(line, "data: ", 6) != 0)
        return true;
    return a->events <= ask->max_tokens && take_event(a, line + 6);
}

// The lines that are whole.
static bool take_lines(client_answer *a, const client_ask *ask, buffer *pending)
{
    bool good = true;
    char *end;
    while (good && pending->size > 0 && (end = memchr(pending->data, '\n', pending->size))) {
        *end = '\0';
        good = take_line(a, ask, pending->data);
        if (!good)
            snprintf(a->why, sizeof a->why, "%.180s", pending->data);
        buffer_drop_front(pending, (size_t)(end - pending->data) + 1);
    }
    return good;
}

static void read_events(http_client *client, const client_ask *ask, client_answer *a)
{
    buffer pending = { .limit = LINE_MAX_BYTES };
    error failure = { 0 };
    bool good = true, over = false;
    status result = STATUS_OK;
    snprintf(a->why, sizeof a->why, "the stream ended without [DONE]");
    while (good && !a->done && !over && result == STATUS_OK) {
        result = http_client_read(client, &pending, &over, &failure);
        good = take_lines(a, ask, &pending);
    }
    if (result != STATUS_OK)
        snprintf(a->why, sizeof a->why, "%.180s", failure.text);
    a->stopped = result == STATUS_CANCELLED;
    a->done = good && a->done && a->events > 0;
    buffer_close(&pending);
}

// All of an answer's body.
static status body_read(http_client *client, buffer *body, error *failure)
{
    status result = STATUS_OK;
    for (bool done = false; !done && result == STATUS_OK;)
        result = http_client_read(client, body, &done, failure);
    return result;
}

void client_run(const client_server *server, const client_ask *ask, const atomic_bool *stop,
                client_answer *answer)
{
    http_client_options options = { server->url, server->authority, PATIENCE_S, stop };
    http_client *client = NULL;
    buffer body = { 0 }, refusal = { 0 };
    error failure = { 0 };
    status result = STATUS_OK;
    *answer = (client_answer){ .times = answer->times };
    write_body(server, ask, &body);
    TRY(http_client_open(&options, &client, &failure));
    answer->sent = bench_now();
    TRY(http_client_send(client, "POST", "/v1/completions", slice_of(server->fields),
                         buffer_slice(&body), &answer->status, &failure));
    if (answer->status == 200) {
        read_events(client, ask, answer);
    } else {
        TRY(body_read(client, &refusal, &failure));
        snprintf(answer->why, sizeof answer->why, "status %d: %.170s", answer->status,
                 refusal.data ? refusal.data : "");
    }
fail:
    if (result != STATUS_OK)
        snprintf(answer->why, sizeof answer->why, "%.180s", failure.text);
    answer->stopped = answer->stopped || result == STATUS_CANCELLED;
    http_client_close(client);
    buffer_close(&body);
    buffer_close(&refusal);
}

bool client_answer_open(const client_ask *ask, client_answer *answer)
{
    *answer = (client_answer){ .times = calloc((size_t)ask->max_tokens + 2, sizeof(double)) };
    return answer->times != NULL;
}

void client_answer_close(client_answer *answer)
{
    free(answer->times);
    answer->times = NULL;
}

status client_find_model(client_server *s, error *failure)
{
    http_client_options options = { s->url, s->authority, 0, NULL };
    http_client *client = NULL;
    buffer body = { .limit = LINE_MAX_BYTES }, fields = { .limit = sizeof s->fields - 1 };
    json_t *models = NULL;
    status result = STATUS_OK;
    int code = 0;
    TRY(http_client_key_append(s->key_file, &fields, failure));
    snprintf(s->fields, sizeof s->fields, "%s", buffer_slice(&fields).data);
    TRY(http_client_open(&options, &client, failure));
    TRY(http_client_send(client, "GET", "/v1/models", slice_of(s->fields), SLICE(""), &code,
                         failure));
    TRY(body_read(client, &body, failure));
    models = json_loadb(body.data ? body.data : "", body.size, 0, NULL);
    const char *id = json_string_value(
        json_object_get(json_array_get(json_object_get(models, "data"), 0), "id"));
    snprintf(s->model, sizeof s->model, "%s", id ? id : "");
    if (!id)
        result = error_set(failure, STATUS_PEER_REFUSED, "",
                           "%s/v1/models names no model (status %d): %.200s", s->url, code,
                           body.data ? body.data : "");
fail:
    json_decref(models);
    http_client_close(client);
    buffer_close(&fields);
    buffer_close(&body);
    return result;
}
