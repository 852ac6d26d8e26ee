#include "client.h"

#include "bench.h"

#include "base/buffer.h"
#include "base/random.h"

#include <jansson.h>

#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#define TOKEN_LOW 1000
#define TOKEN_HIGH 30000
#define LOOK_US 250000 // between two looks at `stop` while nothing comes
#define SILENCE_MAX_S 300
#define LINE_MAX_BYTES ((size_t)1 << 20)

static int connect_to(const client_server *s)
{
    struct addrinfo hints = { .ai_socktype = SOCK_STREAM }, *found = NULL;
    if (getaddrinfo(s->host, s->port, &hints, &found) != 0)
        return -1;
    int fd = -1;
    for (struct addrinfo *a = found; a != NULL && fd < 0; a = a->ai_next) {
        fd = socket(a->ai_family, a->ai_socktype | SOCK_CLOEXEC, a->ai_protocol);
        if (fd >= 0 && connect(fd, a->ai_addr, a->ai_addrlen) != 0) {
            close(fd);
            fd = -1;
        }
    }
    freeaddrinfo(found);
    struct timeval limit = { .tv_usec = LOOK_US };
    if (fd >= 0)
        setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    return fd;
}

static bool send_all(int fd, const char *data, size_t size)
{
    while (size > 0) {
        ssize_t n = send(fd, data, size, MSG_NOSIGNAL);
        if (n <= 0)
            return false;
        data += n;
        size -= (size_t)n;
    }
    return true;
}

static void write_request(const client_server *s, const client_ask *ask, buffer *out)
{
    buffer body = { 0 };
    buffer_printf(&body, "{\"model\":");
    buffer_append_json(&body, slice_of(s->model));
    buffer_printf(&body,
                  ",\"stream\":true,\"stream_options\":{\"include_usage\":true},\"temperature\":0,"
                  "\"ignore_eos\":true,\"max_tokens\":%d,\"prompt\":[",
                  ask->max_tokens);
    uint64_t key = random_row_key(ask->seed, 0, (uint64_t)ask->number);
    for (int i = 0; i < ask->prompt_tokens; i++)
        buffer_printf(
            &body, "%s%d", i ? "," : "",
            (int)(TOKEN_LOW + random_token_bits(key, (uint32_t)i) % (TOKEN_HIGH - TOKEN_LOW)));
    buffer_printf(&body, "]}");
    buffer_printf(out,
                  "POST /v1/completions HTTP/1.1\r\nHost: %s:%s\r\nConnection: close\r\n"
                  "Content-Type: application/json\r\nContent-Length: %zu\r\n\r\n",
                  s->host, s->port, body.size);
    buffer_append_slice(out, buffer_slice(&body));
    buffer_close(&body);
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
    if (a->status == 0) {
        sscanf(line, "HTTP/1.1 %d", &a->status);
        return a->status == 200;
    }
    if (strncmp(line, "data: ", 6) != 0)
        return true;
    return a->events <= ask->max_tokens && take_event(a, line + 6);
}

// recv, until something comes, `stop` says so, or nobody spoke for too long.
static ssize_t receive(int fd, char *block, size_t size, const volatile bool *stop)
{
    double begun = bench_now();
    for (;;) {
        ssize_t n = recv(fd, block, size, 0);
        bool later = n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR);
        if (!later || (stop != NULL && *stop) || bench_now() - begun > SILENCE_MAX_S)
            return n;
    }
}

static void read_answer(int fd, const client_ask *ask, const volatile bool *stop, client_answer *a)
{
    buffer pending = { .limit = LINE_MAX_BYTES };
    bool good = true;
    char block[16384];
    snprintf(a->why, sizeof a->why, "the stream ended without [DONE]");
    for (ssize_t n; good && !a->done && !a->stopped; a->stopped = stop != NULL && *stop) {
        n = receive(fd, block, sizeof block, stop);
        if (n <= 0)
            break;
        buffer_append(&pending, block, (size_t)n);
        char *end;
        while (good && pending.size > 0 &&
               (end = memchr(pending.data, '\n', pending.size)) != NULL) {
            *end = '\0';
            good = take_line(a, ask, pending.data);
            if (!good)
                snprintf(a->why, sizeof a->why, "%.180s", pending.data);
            buffer_drop_front(&pending, (size_t)(end - pending.data) + 1);
        }
    }
    a->stopped = stop != NULL && *stop && !a->done;
    buffer_close(&pending);
    a->done = good && a->done && a->events > 0;
}

void client_run(const client_server *server, const client_ask *ask, const volatile bool *stop,
                client_answer *answer)
{
    buffer request = { 0 };
    write_request(server, ask, &request);
    *answer = (client_answer){ .times = answer->times, .why = "cannot connect" };
    int fd = connect_to(server);
    bool good = fd >= 0 && send_all(fd, request.data, request.size);
    answer->sent = bench_now();
    if (good)
        read_answer(fd, ask, stop, answer);
    if (fd >= 0)
        close(fd);
    buffer_close(&request);
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

bool client_find_model(client_server *s)
{
    int fd = connect_to(s);
    buffer request = { 0 }, answer = { .limit = LINE_MAX_BYTES };
    buffer_printf(&request, "GET /v1/models HTTP/1.1\r\nHost: %s:%s\r\nConnection: close\r\n\r\n",
                  s->host, s->port);
    bool good = fd >= 0 && send_all(fd, request.data, request.size);
    char block[4096];
    ssize_t n;
    while (good && (n = receive(fd, block, sizeof block, NULL)) > 0)
        buffer_append(&answer, block, (size_t)n);
    char *body = answer.data ? strstr(answer.data, "{") : NULL;
    json_t *models = body ? json_loads(body, JSON_DISABLE_EOF_CHECK, NULL) : NULL;
    const char *id = json_string_value(
        json_object_get(json_array_get(json_object_get(models, "data"), 0), "id"));
    if (id != NULL)
        snprintf(s->model, sizeof s->model, "%s", id);
    good = id != NULL;
    json_decref(models);
    buffer_close(&request);
    buffer_close(&answer);
    if (fd >= 0)
        close(fd);
    return good;
}

bool client_parse_url(const char *url, client_server *s)
{
    const char *rest = strncmp(url, "http://", 7) == 0 ? url + 7 : url;
    char copy[256];
    snprintf(copy, sizeof copy, "%s", rest);
    copy[strcspn(copy, "/")] = '\0';
    char *colon = strrchr(copy, ':');
    snprintf(s->port, sizeof s->port, "%s", colon ? colon + 1 : "80");
    if (colon)
        *colon = '\0';
    char *host = copy;
    size_t size = strlen(copy);
    if (copy[0] == '[' && size > 1 && copy[size - 1] == ']') {
        copy[size - 1] = '\0';
        host = copy + 1;
    }
    snprintf(s->host, sizeof s->host, "%s", host);
    return s->host[0] != '\0' && atoi(s->port) > 0;
}
