// penstock-bench serve: N closed-loop streams against an OpenAI-compatible server.
//
// Prompts are lists of random token ids, so their length is exact for every tokenizer and no prefix
// repeats. Times are the client's: TTFT from the request's last byte to the first event with text,
// time per output token = (last - first) / (tokens - 1), gap = between two events of one stream.
#include "bench.h"

#include "base/buffer.h"
#include "base/random.h"

#include <jansson.h>

#include <errno.h>
#include <getopt.h>
#include <netdb.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#define TOKEN_LOW 1000
#define TOKEN_HIGH 30000
#define LINE_MAX_BYTES ((size_t)1 << 20)

typedef struct serve_options {
    char host[256], port[16];
    int streams, requests, prompt_tokens, max_tokens;
    uint64_t seed;
    bool json;
    char model[256];
} serve_options;

// What all threads add up, under the lock.
typedef struct serve_totals {
    pthread_mutex_t lock;
    int next;
    double *ttft, *per_token, *gap;
    size_t count, gap_count, gap_capacity;
    long tokens, errors;
    char first_error[200];
} serve_totals;

typedef struct serve_thread {
    const serve_options *options;
    serve_totals *totals;
    pthread_t thread;
} serve_thread;

// One answer as it comes.
typedef struct serve_answer {
    double sent, first, last;
    int events, tokens;
    bool done;
    double *gaps;
} serve_answer;

static int connect_to(const serve_options *o)
{
    struct addrinfo hints = { .ai_socktype = SOCK_STREAM }, *found = NULL;
    if (getaddrinfo(o->host, o->port, &hints, &found) != 0)
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
    struct timeval limit = { .tv_sec = 300 };
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

static void write_request(const serve_options *o, int number, buffer *out)
{
    buffer body = { 0 };
    buffer_printf(&body, "{\"model\":");
    buffer_append_json(&body, slice_of(o->model));
    buffer_printf(&body,
                  ",\"stream\":true,\"stream_options\":{\"include_usage\":true},\"temperature\":0,"
                  "\"ignore_eos\":true,\"max_tokens\":%d,\"prompt\":[",
                  o->max_tokens);
    for (int i = 0; i < o->prompt_tokens; i++) {
        uint64_t bits =
            random_token_bits(random_row_key(o->seed, 0, (uint64_t)number), (uint32_t)i);
        buffer_printf(&body, "%s%d", i ? "," : "",
                      (int)(TOKEN_LOW + bits % (TOKEN_HIGH - TOKEN_LOW)));
    }
    buffer_printf(&body, "]}");
    buffer_printf(out,
                  "POST /v1/completions HTTP/1.1\r\nHost: %s:%s\r\nConnection: close\r\n"
                  "Content-Type: application/json\r\nContent-Length: %zu\r\n\r\n",
                  o->host, o->port, body.size);
    buffer_append_slice(out, buffer_slice(&body));
    buffer_close(&body);
}

// One "data:" line. Returns false where it reports an error.
static bool take_event(serve_answer *a, const char *text)
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
    if (words != NULL && words[0] != '\0') {
        double now = bench_now();
        if (a->events > 0)
            a->gaps[a->events - 1] = now - a->last;
        else
            a->first = now;
        a->last = now;
        a->events++;
    }
    json_decref(event);
    return good;
}

// Read the answer line by line; false with a reason in `why`.
static bool read_answer(int fd, const serve_options *o, serve_answer *a, char *why, size_t why_size)
{
    buffer pending = { .limit = LINE_MAX_BYTES };
    bool status_seen = false, good = true;
    char block[16384];
    ssize_t n;
    snprintf(why, why_size, "the stream ended without [DONE]");
    while (good && !a->done && (n = recv(fd, block, sizeof block, 0)) > 0) {
        buffer_append(&pending, block, (size_t)n);
        char *end;
        while (good && pending.size > 0 &&
               (end = memchr(pending.data, '\n', pending.size)) != NULL) {
            *end = '\0';
            if (!status_seen) {
                status_seen = true;
                good = strstr(pending.data, " 200 ") != NULL;
            } else if (strncmp(pending.data, "data: ", 6) == 0) {
                good = a->events <= o->max_tokens && take_event(a, pending.data + 6);
            }
            if (!good)
                snprintf(why, why_size, "%.180s", pending.data);
            buffer_drop_front(&pending, (size_t)(end - pending.data) + 1);
        }
    }
    buffer_close(&pending);
    return good && a->done && a->events > 0;
}

static void add_answer(serve_totals *t, const serve_answer *a, bool good, const char *why)
{
    pthread_mutex_lock(&t->lock);
    if (!good) {
        if (t->errors++ == 0)
            snprintf(t->first_error, sizeof t->first_error, "%s", why);
    } else {
        t->ttft[t->count] = a->first - a->sent;
        t->per_token[t->count] = a->tokens > 1 ? (a->last - a->first) / (a->tokens - 1) : 0.0;
        t->count++;
        t->tokens += a->tokens;
        for (int i = 0; i + 1 < a->events && t->gap_count < t->gap_capacity; i++)
            t->gap[t->gap_count++] = a->gaps[i];
    }
    pthread_mutex_unlock(&t->lock);
}

static void *run_stream(void *argument)
{
    serve_thread *self = argument;
    const serve_options *o = self->options;
    serve_totals *t = self->totals;
    double *gaps = calloc((size_t)o->max_tokens + 2, sizeof *gaps);
    for (;;) {
        pthread_mutex_lock(&t->lock);
        int number = t->next < o->requests ? t->next++ : -1;
        pthread_mutex_unlock(&t->lock);
        if (number < 0)
            break;
        buffer request = { 0 };
        write_request(o, number, &request);
        serve_answer answer = { .gaps = gaps };
        char why[200] = "cannot connect";
        int fd = connect_to(o);
        bool good = fd >= 0 && send_all(fd, request.data, request.size);
        answer.sent = bench_now();
        good = good && read_answer(fd, o, &answer, why, sizeof why);
        if (fd >= 0)
            close(fd);
        buffer_close(&request);
        add_answer(t, &answer, good, why);
    }
    free(gaps);
    return NULL;
}

static void print_row(const serve_options *o, const char *name, double *values, size_t count)
{
    double p[3] = { bench_percentile(values, count, 50), bench_percentile(values, count, 90),
                    bench_percentile(values, count, 99) };
    double largest = count ? values[count - 1] : 0;
    const char *format = o->json ? "{\"what\":\"%s\",\"unit\":\"ms\",\"p50\":%.2f,\"p90\":%.2f,"
                                   "\"p99\":%.2f,\"max\":%.2f}\n"
                                 : "%-22s ms   p50 %9.2f   p90 %9.2f   p99 %9.2f   max %9.2f\n";
    printf(format, name, p[0] * 1e3, p[1] * 1e3, p[2] * 1e3, largest * 1e3);
}

static bool find_model(serve_options *o)
{
    int fd = connect_to(o);
    buffer request = { 0 }, answer = { .limit = LINE_MAX_BYTES };
    buffer_printf(&request, "GET /v1/models HTTP/1.1\r\nHost: %s:%s\r\nConnection: close\r\n\r\n",
                  o->host, o->port);
    bool good = fd >= 0 && send_all(fd, request.data, request.size);
    char block[4096];
    ssize_t n;
    while (good && (n = recv(fd, block, sizeof block, 0)) > 0)
        buffer_append(&answer, block, (size_t)n);
    char *body = answer.data ? strstr(answer.data, "{") : NULL;
    json_t *models = body ? json_loads(body, JSON_DISABLE_EOF_CHECK, NULL) : NULL;
    const char *id = json_string_value(
        json_object_get(json_array_get(json_object_get(models, "data"), 0), "id"));
    if (id != NULL)
        snprintf(o->model, sizeof o->model, "%s", id);
    good = id != NULL;
    json_decref(models);
    buffer_close(&request);
    buffer_close(&answer);
    if (fd >= 0)
        close(fd);
    return good;
}

static bool parse_url(const char *url, serve_options *o)
{
    const char *rest = strncmp(url, "http://", 7) == 0 ? url + 7 : url;
    char copy[256];
    snprintf(copy, sizeof copy, "%s", rest);
    copy[strcspn(copy, "/")] = '\0';
    char *colon = strrchr(copy, ':');
    snprintf(o->port, sizeof o->port, "%s", colon ? colon + 1 : "80");
    if (colon)
        *colon = '\0';
    char *host = copy;
    size_t size = strlen(copy);
    if (copy[0] == '[' && size > 1 && copy[size - 1] == ']') {
        copy[size - 1] = '\0';
        host = copy + 1;
    }
    snprintf(o->host, sizeof o->host, "%s", host);
    return o->host[0] != '\0' && atoi(o->port) > 0;
}

static int parse_options(int argc, char **argv, serve_options *o)
{
    static const struct option names[] = {
        { "base-url", required_argument, NULL, 'u' },
        { "streams", required_argument, NULL, 's' },
        { "requests", required_argument, NULL, 'n' },
        { "prompt-tokens", required_argument, NULL, 'p' },
        { "max-tokens", required_argument, NULL, 'm' },
        { "seed", required_argument, NULL, 'r' },
        { "json", no_argument, NULL, 'j' },
        { "help", no_argument, NULL, 'h' },
        { NULL, 0, NULL, 0 },
    };
    int option;
    while ((option = getopt_long(argc, argv, "", names, NULL)) >= 0) {
        switch (option) {
        case 'u':
            if (!parse_url(optarg, o))
                return 2;
            break;
        case 's':
            o->streams = atoi(optarg);
            break;
        case 'n':
            o->requests = atoi(optarg);
            break;
        case 'p':
            o->prompt_tokens = atoi(optarg);
            break;
        case 'm':
            o->max_tokens = atoi(optarg);
            break;
        case 'r':
            o->seed = strtoull(optarg, NULL, 10);
            break;
        case 'j':
            o->json = true;
            break;
        case 'h':
            printf("usage: penstock-bench serve --base-url http://HOST:PORT [--streams N] "
                   "[--requests N]\n"
                   "       [--prompt-tokens P] [--max-tokens M] [--seed N] [--json]\n");
            return 1;
        default:
            return 2;
        }
    }
    if (o->requests == 0)
        o->requests = o->streams * 3;
    bool good = o->host[0] && o->streams > 0 && o->streams <= 4096 && o->requests > 0 &&
                o->prompt_tokens > 0 && o->prompt_tokens <= 1000000 && o->max_tokens > 0 &&
                o->max_tokens <= 1000000;
    return good ? 0 : 2;
}

static void report(const serve_options *o, serve_totals *t, double seconds)
{
    print_row(o, "ttft", t->ttft, t->count);
    print_row(o, "time_per_output_token", t->per_token, t->count);
    print_row(o, "gap", t->gap, t->gap_count);
    printf(
        o->json
            ? "{\"what\":\"serve\",\"streams\":%d,\"requests\":%zu,\"errors\":%ld,\"tokens\":%ld,"
              "\"seconds\":%.2f,\"tokens_per_s\":%.1f}\n"
            : "%d streams, %zu requests done, %ld errors, %ld tokens in %.2f s: %.1f tokens/s\n",
        o->streams, t->count, t->errors, t->tokens, seconds, (double)t->tokens / seconds);
}

int bench_serve(int argc, char **argv)
{
    serve_options o = {
        .streams = 8, .prompt_tokens = 256, .max_tokens = 64, .seed = random_system()
    };
    int parsed = parse_options(argc, argv, &o);
    if (parsed != 0) {
        if (parsed == 2)
            fprintf(stderr,
                    "penstock-bench serve: needs --base-url and positive counts; see --help\n");
        return parsed == 1 ? 0 : 2;
    }
    if (!find_model(&o)) {
        fprintf(stderr,
                "penstock-bench serve: no model at http://%s:%s/v1/models: is the server up?\n",
                o.host, o.port);
        return 1;
    }
    size_t requests = (size_t)o.requests;
    serve_totals t = { .lock = PTHREAD_MUTEX_INITIALIZER,
                       .gap_capacity = requests * (size_t)o.max_tokens };
    t.ttft = calloc(requests, sizeof(double));
    t.per_token = calloc(requests, sizeof(double));
    t.gap = calloc(t.gap_capacity, sizeof(double));
    serve_thread *threads = calloc((size_t)o.streams, sizeof *threads);
    double begun = bench_now();
    for (int i = 0; i < o.streams; i++) {
        threads[i] = (serve_thread){ .options = &o, .totals = &t };
        pthread_create(&threads[i].thread, NULL, run_stream, &threads[i]);
    }
    for (int i = 0; i < o.streams; i++)
        pthread_join(threads[i].thread, NULL);
    report(&o, &t, bench_now() - begun);
    if (t.errors > 0)
        fprintf(stderr, "penstock-bench serve: %ld requests failed; the first: %s\n", t.errors,
                t.first_error);
    free(threads);
    free(t.ttft);
    free(t.per_token);
    free(t.gap);
    return t.errors > 0 ? 1 : 0;
}
