// One HTTP/1.1 request on a connection of its own, without waiting for ever.
#include "deploy/cli/cli.h"

#include "base/buffer.h"
#include "net/address.h"

#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#define PATIENCE_S 15 // for each byte

static status url_parse(const char *url, address *where, error *failure)
{
    slice rest = slice_of(url);
    if (strncmp(url, "http://", 7) != 0)
        return error_set(failure, STATUS_INVALID, "--router",
                         "the router's URL is \"%.200s\"; right is http://host:port", url);
    rest.data += 7;
    rest.size -= 7;
    while (rest.size > 0 && rest.data[rest.size - 1] == '/')
        rest.size--;
    status result = address_parse(rest, 80, where, failure);
    if (result != STATUS_OK)
        error_prefix(failure, "--router");
    return result;
}

static int connection_try(const struct addrinfo *to)
{
    struct timeval patience = { .tv_sec = PATIENCE_S };
    int fd = socket(to->ai_family, to->ai_socktype | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -1;
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience); // for connect as well
    if (connect(fd, to->ai_addr, to->ai_addrlen) == 0)
        return fd;
    int why = errno;
    close(fd);
    errno = why;
    return -1;
}

static status connection_open(const cli *c, const address *where, int *fd, error *failure)
{
    char port[8];
    struct addrinfo *found = NULL, hints = { .ai_socktype = SOCK_STREAM };
    snprintf(port, sizeof port, "%u", where->port);
    int code = getaddrinfo(where->host[0] ? where->host : "localhost", port, &hints, &found);
    if (code != 0)
        return error_set(failure, STATUS_UNAVAILABLE, "", "the router %s is not found: %s",
                         c->router, gai_strerror(code));
    *fd = -1;
    for (const struct addrinfo *to = found; to && *fd < 0; to = to->ai_next)
        *fd = connection_try(to);
    int why = errno;
    freeaddrinfo(found);
    if (*fd >= 0)
        return STATUS_OK;
    return error_set(failure, STATUS_UNAVAILABLE, "",
                     "the router %s cannot be reached: %s (another one: --router URL)", c->router,
                     strerror(why));
}

// The file's first line, as a field.
static status key_append(const cli *c, buffer *out, error *failure)
{
    char key[512];
    FILE *file = c->key_file ? fopen(c->key_file, "r") : NULL;
    if (!c->key_file)
        return STATUS_OK;
    if (!file || !fgets(key, sizeof key, file)) {
        if (file)
            fclose(file);
        return error_set(failure, STATUS_BAD_FILE, "--key-file", "the key file %s cannot be read",
                         c->key_file);
    }
    fclose(file);
    key[strcspn(key, "\r\n")] = 0;
    buffer_printf(out, "Authorization: Bearer %s\r\n", key);
    return STATUS_OK;
}

static status request_format(const cli *c, const address *where, const char *path, json_t *body,
                             buffer *out, error *failure)
{
    char host[272];
    char *text = body ? json_dumps(body, JSON_COMPACT) : NULL;
    address_format(where, host);
    buffer_printf(out, "%s %s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n", body ? "POST" : "GET",
                  path, host);
    status result = key_append(c, out, failure);
    if (text)
        buffer_printf(out, "Content-Type: application/json\r\nContent-Length: %zu\r\n",
                      strlen(text));
    buffer_append_text(out, "\r\n");
    if (text)
        buffer_append_text(out, text);
    free(text);
    return result;
}

static status exchange(int fd, const buffer *request, buffer *answer, error *failure)
{
    char chunk[65536];
    for (size_t at = 0; at < request->size;) {
        ssize_t sent = send(fd, request->data + at, request->size - at, MSG_NOSIGNAL);
        if (sent <= 0)
            return error_set(failure, STATUS_UNAVAILABLE, "", "the router took no request: %s",
                             strerror(errno));
        at += (size_t)sent;
    }
    answer->limit = CLI_ANSWER_MAX;
    for (ssize_t size; (size = recv(fd, chunk, sizeof chunk, 0)) != 0;) {
        if (size < 0)
            return error_set(failure, STATUS_UNAVAILABLE, "", "the router gave no answer: %s",
                             errno == EAGAIN ? "it took too long" : strerror(errno));
        buffer_append(answer, chunk, (size_t)size);
    }
    return answer->overflow ? error_set(failure, STATUS_TOO_LARGE, "", "the answer is too long")
                            : STATUS_OK;
}

// The router's error sentence, or its status.
static status refusal(int code, json_t *root, error *failure)
{
    const char *sentence =
        json_string_value(json_object_get(json_object_get(root, "error"), "message"));
    if (sentence)
        return error_set(failure, STATUS_PEER_REFUSED, "", "%s", sentence);
    return error_set(failure, STATUS_PEER_REFUSED, "",
                     "the router answered with status %d and no JSON; is it a Penstock router?",
                     code);
}

static status answer_parse(const buffer *answer, json_t **parsed, error *failure)
{
    const char *empty_line = answer->size ? strstr(answer->data, "\r\n\r\n") : NULL;
    int code = 0;
    if (!empty_line || sscanf(answer->data, "HTTP/1.%*d %d", &code) != 1)
        return error_set(failure, STATUS_PEER_PROTOCOL, "",
                         "what answered is not an HTTP server, or it was cut off");
    const char *body = empty_line + 4;
    json_t *root = json_loadb(body, answer->size - (size_t)(body - answer->data),
                              JSON_REJECT_DUPLICATES, NULL);
    if (code == 200 && json_is_object(root)) {
        *parsed = root;
        return STATUS_OK;
    }
    status result = refusal(code, root, failure);
    json_decref(root);
    return result;
}

status cli_request(const cli *c, const char *path, json_t *body, json_t **answer, error *failure)
{
    status result = STATUS_OK;
    address where;
    buffer request = { 0 }, received = { 0 };
    int fd = -1;
    TRY(url_parse(c->router, &where, failure));
    TRY(request_format(c, &where, path, body, &request, failure));
    TRY(connection_open(c, &where, &fd, failure));
    TRY(exchange(fd, &request, &received, failure));
    TRY(answer_parse(&received, answer, failure));
fail:
    if (fd >= 0)
        close(fd);
    buffer_close(&request);
    buffer_close(&received);
    return result;
}
