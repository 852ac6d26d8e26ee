// One request to a router, without waiting for ever.
#include "deploy/cli/cli.h"

#include "base/buffer.h"

#include <stdio.h>
#include <stdlib.h>

int cli_failed(const error *failure)
{
    fprintf(stderr, "penstock: %s\n", failure->text);
    return 1;
}

const char *cli_text(const json_t *object, const char *name)
{
    const char *text = json_string_value(json_object_get(object, name));
    return text ? text : "?";
}

double cli_number(const json_t *object, const char *name)
{
    return json_number_value(json_object_get(object, name));
}

static status body_read(http_client *client, buffer *out, error *failure)
{
    bool done = false;
    status result = STATUS_OK;
    out->limit = CLI_ANSWER_MAX;
    while (!done && result == STATUS_OK)
        result = http_client_read(client, out, &done, failure);
    return result;
}

// The router's error sentence, or its status.
static status refusal(http_client *client, int code, error *failure)
{
    buffer body = { 0 };
    error unread;
    body_read(client, &body, &unread); // what there is of it
    json_t *root = json_loadb(body.size ? body.data : "", body.size, JSON_REJECT_DUPLICATES, NULL);
    const char *sentence =
        json_string_value(json_object_get(json_object_get(root, "error"), "message"));
    status result =
        sentence
            ? error_set(failure, STATUS_PEER_REFUSED, "", "%s", sentence)
            : error_set(failure, STATUS_PEER_REFUSED, "",
                        "the router answered with status %d and no JSON; is it a Penstock router?",
                        code);
    json_decref(root);
    buffer_close(&body);
    return result;
}

status cli_open(const cli *c, const char *url, const char *path, const json_t *body,
                const atomic_bool *stop, http_client **opened, error *failure)
{
    status result = STATUS_OK;
    http_client_options options = { url, c->authority, stop ? 120 : 0, stop };
    http_client *client = NULL;
    buffer fields = { 0 };
    char *text = body ? json_dumps(body, JSON_COMPACT) : NULL;
    int code = 0;
    TRY(http_client_key_append(c->key_file, &fields, failure));
    TRY(http_client_open(&options, &client, failure));
    TRY(http_client_send(client, body ? "POST" : "GET", path, buffer_slice(&fields),
                         slice_of(text ? text : ""), &code, failure));
    if (code != 200)
        TRY(refusal(client, code, failure));
    *opened = client;
    client = NULL;
fail:
    http_client_close(client);
    buffer_close(&fields);
    free(text);
    return result;
}

status cli_request(const cli *c, const char *url, const char *path, const json_t *body,
                   json_t **answer, error *failure)
{
    http_client *client = NULL;
    buffer text = { 0 };
    status result = cli_open(c, url, path, body, NULL, &client, failure);
    if (result == STATUS_OK)
        result = body_read(client, &text, failure);
    json_t *root = result == STATUS_OK ? json_loadb(text.size ? text.data : "", text.size,
                                                    JSON_REJECT_DUPLICATES, NULL)
                                       : NULL;
    if (result == STATUS_OK && !json_is_object(root)) {
        json_decref(root);
        result =
            error_set(failure, STATUS_PEER_PROTOCOL, "",
                      "the router answered with status 200 and no JSON; is it a Penstock router?");
    } else {
        *answer = root;
    }
    buffer_close(&text);
    http_client_close(client);
    return result;
}
