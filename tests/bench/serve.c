// penstock-bench serve: N closed-loop streams against an OpenAI-compatible server.
//
// TTFT from when the request sets out to the first event with text, time per output token = (last -
// first) / (tokens - 1), gap = between two events of one stream.
#include "bench.h"
#include "client.h"

#include "base/random.h"

#include <getopt.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct serve_options {
    client_server server;
    int streams, requests, prompt_tokens, max_tokens;
    uint64_t seed;
    bool json;
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

static void add_answer(serve_totals *t, const client_answer *a)
{
    pthread_mutex_lock(&t->lock);
    if (!a->done) {
        if (t->errors++ == 0)
            snprintf(t->first_error, sizeof t->first_error, "%s", a->why);
    } else {
        double first = a->times[0], last = a->times[a->events - 1];
        t->ttft[t->count] = first - a->sent;
        t->per_token[t->count] = a->tokens > 1 ? (last - first) / (a->tokens - 1) : 0.0;
        t->count++;
        t->tokens += a->tokens;
        for (int i = 1; i < a->events && t->gap_count < t->gap_capacity; i++)
            t->gap[t->gap_count++] = a->times[i] - a->times[i - 1];
    }
    pthread_mutex_unlock(&t->lock);
}

static void *run_stream(void *argument)
{
    serve_thread *self = argument;
    const serve_options *o = self->options;
    serve_totals *t = self->totals;
    client_ask ask = { .seed = o->seed,
                       .prompt_tokens = o->prompt_tokens,
                       .max_tokens = o->max_tokens };
    client_answer answer;
    bool memory = client_answer_open(&ask, &answer);
    while (memory) {
        pthread_mutex_lock(&t->lock);
        ask.number = t->next < o->requests ? t->next++ : -1;
        pthread_mutex_unlock(&t->lock);
        if (ask.number < 0)
            break;
        client_run(&o->server, &ask, NULL, &answer);
        add_answer(t, &answer);
    }
    client_answer_close(&answer);
    return NULL;
}

// A row of a thing that never happened (a gap in answers of one token) is left out.
static void print_row(const serve_options *o, const char *name, double *values, size_t count)
{
    if (count == 0)
        return;
    double p[3] = { bench_percentile(values, count, 50), bench_percentile(values, count, 90),
                    bench_percentile(values, count, 99) };
    double largest = values[count - 1];
    const char *format = o->json ? "{\"what\":\"%s\",\"unit\":\"ms\",\"p50\":%.2f,\"p90\":%.2f,"
                                   "\"p99\":%.2f,\"max\":%.2f}\n"
                                 : "%-22s ms   p50 %9.2f   p90 %9.2f   p99 %9.2f   max %9.2f\n";
    printf(format, name, p[0] * 1e3, p[1] * 1e3, p[2] * 1e3, largest * 1e3);
}

static int parse_options(int argc, char **argv, serve_options *o)
{
    static const struct option names[] = {
        { "base-url", required_argument, NULL, 'u' },
        { "key-file", required_argument, NULL, 'k' },
        { "ca", required_argument, NULL, 'c' },
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
            o->server.url = optarg;
            break;
        case 'k':
            o->server.key_file = optarg;
            break;
        case 'c':
            o->server.authority = optarg;
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
            printf("usage: penstock-bench serve --base-url http://HOST:PORT [--key-file FILE] "
                   "[--ca FILE]\n"
                   "       [--streams N] [--requests N] [--prompt-tokens P] [--max-tokens M] "
                   "[--seed N] [--json]\n\n"
                   "--key-file: its first line is an API key; --ca: certificates of who signed "
                   "the server's (https)\n");
            return 1;
        default:
            return 2;
        }
    }
    if (o->requests == 0)
        o->requests = o->streams * 3;
    bool good = o->server.url && o->streams > 0 && o->streams <= 4096 && o->requests > 0 &&
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
    error failure = { 0 };
    if (client_find_model(&o.server, &failure) != STATUS_OK) {
        fprintf(stderr, "penstock-bench serve: %s\n", failure.text);
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
