// penstock-bench interfere: what long prompts do to answers that run.
//
// Twice the same: some streams generate; once nothing else happens, once a long prompt arrives
// every few seconds. Tokens, time per token and gaps are those of the streams inside the window; a
// stream that stalls at the window's end has a gap until there.
#include "bench.h"
#include "client.h"

#include "base/clock.h"
#include "base/random.h"

#include <getopt.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define STALL_S 0.05
#define STREAMS_MAX 1024

typedef struct interfere_options {
    client_server server;
    int decoders, prompt_tokens, max_tokens, intruder_tokens, intruder_out;
    double seconds, every, warm, wait;
    uint64_t seed;
    bool json;
} interfere_options;

// One request on a thread of its own.
typedef struct stream {
    const client_server *server;
    client_ask ask;
    client_answer answer;
    const atomic_bool *stop;
    pthread_t thread;
    volatile bool over;
} stream;

typedef struct window {
    double begin, end;
    double *gaps, *per_token; // seconds
    size_t gap_count, per_token_count;
    long tokens;
    int ended_early, errors;
} window;

static void *stream_main(void *argument)
{
    stream *s = argument;
    client_run(s->server, &s->ask, s->stop, &s->answer);
    s->over = true;
    return NULL;
}

static bool stream_start(stream *s, const interfere_options *o, int number, bool intruder,
                         const atomic_bool *stop)
{
    *s = (stream){ .server = &o->server, .stop = stop };
    s->ask = (client_ask){ .seed = o->seed,
                           .number = number,
                           .prompt_tokens = intruder ? o->intruder_tokens : o->prompt_tokens,
                           .max_tokens = intruder ? o->intruder_out : o->max_tokens };
    return client_answer_open(&s->ask, &s->answer) &&
           pthread_create(&s->thread, NULL, stream_main, s) == 0;
}

static void sleep_until(double moment)
{
    double now = bench_now();
    if (moment > now)
        clock_sleep_us((uint64_t)((moment - now) * 1e6));
}

// Take in what one stream did inside the window.
static void window_add(window *w, const stream *s)
{
    const client_answer *a = &s->answer;
    int first = 0, last = a->events - 1;
    while (first <= last && a->times[first] < w->begin)
        first++;
    while (last >= first && a->times[last] > w->end)
        last--;
    w->tokens += last - first + 1;
    w->ended_early += a->done;
    w->errors += !a->done && !a->stopped;
    int from = first > 0 ? first - 1 : first; // the gap that reaches into the window counts too
    for (int i = from; i < last; i++)
        w->gaps[w->gap_count++] = a->times[i + 1] - a->times[i];
    if (last >= from && !a->done && w->end - a->times[last] > STALL_S)
        w->gaps[w->gap_count++] = w->end - a->times[last];
    if (last > from)
        w->per_token[w->per_token_count++] = (a->times[last] - a->times[from]) / (last - from);
}

static void window_print(const interfere_options *o, window *w, bool with)
{
    if (w->per_token_count == 0) {
        fprintf(stderr, "penstock-bench interfere: no stream had two tokens in the window\n");
        return;
    }
    double per_token = bench_percentile(w->per_token, w->per_token_count, 50) * 1e3;
    double slowest = w->per_token[w->per_token_count - 1] * 1e3;
    double p50 = bench_percentile(w->gaps, w->gap_count, 50) * 1e3;
    double p99 = bench_percentile(w->gaps, w->gap_count, 99) * 1e3;
    double largest = w->gaps[w->gap_count - 1] * 1e3;
    const char *format =
        o->json ? "{\"what\":\"%s\",\"streams\":%d,\"seconds\":%.2f,\"tokens\":%ld,"
                  "\"tokens_per_s\":%.1f,\"per_token_ms\":%.2f,\"per_token_max_ms\":%.2f,"
                  "\"gap_p50_ms\":%.1f,\"gap_p99_ms\":%.1f,\"gap_max_ms\":%.1f,"
                  "\"ended_early\":%d,\"errors\":%d}\n"
                : "%-8s %d streams, %.1f s: %ld tokens, %.1f tokens/s; per token %.2f ms (slowest "
                  "stream %.2f); gap p50 %.1f, p99 %.1f, max %.1f ms; %d ended early, %d errors\n";
    double seconds = w->end - w->begin;
    printf(format, with ? "with" : "without", o->decoders, seconds, w->tokens,
           (double)w->tokens / seconds, per_token, slowest, p50, p99, largest, w->ended_early,
           w->errors);
}

// What became of the long prompts.
static void intruders_print(const interfere_options *o, const stream *streams, int sent)
{
    double *ttft = calloc((size_t)sent + 1, sizeof *ttft);
    int served = 0, refused = 0, lost = 0, unfinished = 0, begun = 0;
    for (int i = 0; i < sent; i++) {
        const client_answer *a = &streams[i].answer;
        served += a->done;
        refused += a->status == 429;
        unfinished += a->stopped && a->status != 429;
        lost += !a->done && !a->stopped && a->status != 429;
        if (ttft && a->events > 0)
            ttft[begun++] = a->times[0] - a->sent;
    }
    double p50 = begun ? bench_percentile(ttft, (size_t)begun, 50) : 0;
    printf(o->json ? "{\"what\":\"prompts\",\"sent\":%d,\"served\":%d,\"refused\":%d,"
                     "\"unfinished\":%d,\"lost\":%d,\"begun\":%d,\"ttft_p50_s\":%.3f,"
                     "\"ttft_max_s\":%.3f}\n"
                   : "prompts  %d sent: %d served, %d refused with 429, %d unfinished, %d lost; of "
                     "%d the TTFT: p50 %.2f, max %.2f s\n",
           sent, served, refused, unfinished, lost, begun, p50, begun ? ttft[begun - 1] : 0.0);
    free(ttft);
}

// Send the long prompts when they are due; returns how many.
static int intruders_send(const interfere_options *o, stream *intruders, double begin,
                          const atomic_bool *stop)
{
    int sent = 0;
    while (sent < STREAMS_MAX && bench_now() - begin < o->seconds) {
        if (!stream_start(&intruders[sent], o, STREAMS_MAX + sent, true, stop))
            break;
        sent++;
        sleep_until(begin + fmin(sent * o->every, o->seconds));
    }
    sleep_until(begin + o->seconds);
    return sent;
}

static void intruders_wait(const interfere_options *o, stream *intruders, int sent,
                           atomic_bool *stop)
{
    double until = bench_now() + o->wait;
    for (int i = 0; i < sent; i++) {
        while (!intruders[i].over && bench_now() < until)
            clock_sleep_us(20000);
    }
    *stop = true;
    for (int i = 0; i < sent; i++)
        pthread_join(intruders[i].thread, NULL);
}

// One window; false where memory or threads are short.
static bool window_run(const interfere_options *o, bool with)
{
    static atomic_bool stop, stop_intruders;
    stream *streams = calloc((size_t)o->decoders, sizeof *streams);
    stream *intruders = calloc(STREAMS_MAX, sizeof *intruders);
    window w = { 0 };
    int started = 0, sent = 0;
    stop = stop_intruders = false;
    w.gaps = calloc((size_t)o->decoders * ((size_t)o->max_tokens + 4), sizeof *w.gaps);
    w.per_token = calloc((size_t)o->decoders, sizeof *w.per_token);
    bool good = streams && intruders && w.gaps && w.per_token;
    while (good && started < o->decoders) {
        int number = started + (with ? o->decoders : 0); // no prefix of the first time is known
        good = stream_start(&streams[started], o, number, false, &stop);
        started += good;
    }
    sleep_until(bench_now() + o->warm);
    w.begin = bench_now();
    if (good && with)
        sent = intruders_send(o, intruders, w.begin, &stop_intruders);
    else
        sleep_until(w.begin + o->seconds);
    w.end = bench_now();
    stop = true;
    for (int i = 0; i < started; i++) {
        pthread_join(streams[i].thread, NULL);
        window_add(&w, &streams[i]);
        if (!streams[i].answer.done && !streams[i].answer.stopped)
            fprintf(stderr, "penstock-bench interfere: a stream failed: %s\n",
                    streams[i].answer.why);
        client_answer_close(&streams[i].answer);
    }
    intruders_wait(o, intruders, sent, &stop_intruders);
    if (good)
        window_print(o, &w, with);
    if (good && with)
        intruders_print(o, intruders, sent);
    for (int i = 0; i < sent; i++)
        client_answer_close(&intruders[i].answer);
    free(streams);
    free(intruders);
    free(w.gaps);
    free(w.per_token);
    return good;
}

static const char usage_text[] =
    "usage: penstock-bench interfere --base-url http://HOST:PORT [options]\n\n"
    "  --key-file FILE      its first line is an API key\n"
    "  --ca FILE            certificates of who signed the server's (https)\n"
    "  --decoders N         streams that generate all the time (default 8)\n"
    "  --prompt-tokens P    of their prompts (default 64)\n"
    "  --max-tokens M       of their answers (default 4000)\n"
    "  --intruder-tokens P  of the long prompts (default 4000)\n"
    "  --intruder-out M     of their answers (default 32)\n"
    "  --seconds S          of each window (default 30)\n"
    "  --every S            between two long prompts (default 30: one)\n"
    "  --warm S             before a window, for the streams to start (default 4)\n"
    "  --wait S             after it, for the long prompts to end (default 0)\n"
    "  --seed N             of the prompts (default: another one each time)\n"
    "  --json               one JSON object a line\n";

static const struct option option_names[] = {
    { "base-url", 1, NULL, 'u' },
    { "key-file", 1, NULL, 'k' },
    { "ca", 1, NULL, 'c' },
    { "decoders", 1, NULL, 'd' },
    { "prompt-tokens", 1, NULL, 'p' },
    { "max-tokens", 1, NULL, 'm' },
    { "seconds", 1, NULL, 's' },
    { "intruder-tokens", 1, NULL, 'P' },
    { "every", 1, NULL, 'e' },
    { "intruder-out", 1, NULL, 'M' },
    { "warm", 1, NULL, 'w' },
    { "wait", 1, NULL, 'W' },
    { "seed", 1, NULL, 'r' },
    { "json", 0, NULL, 'j' },
    { "help", 0, NULL, 'h' },
    { NULL, 0, NULL, 0 },
};

// False where the value cannot be.
static bool option_take(interfere_options *o, int name, const char *value)
{
    int *numbers[128] = { ['d'] = &o->decoders,
                          ['p'] = &o->prompt_tokens,
                          ['m'] = &o->max_tokens,
                          ['P'] = &o->intruder_tokens,
                          ['M'] = &o->intruder_out };
    double *times[128] = {
        ['s'] = &o->seconds, ['e'] = &o->every, ['w'] = &o->warm, ['W'] = &o->wait
    };
    if (name == 'u')
        o->server.url = value;
    else if (name == 'k')
        o->server.key_file = value;
    else if (name == 'c')
        o->server.authority = value;
    else if (name == 'r')
        o->seed = strtoull(value, NULL, 10);
    else if (name == 'j')
        o->json = true;
    else if (name > 0 && name < 128 && numbers[name])
        return (*numbers[name] = atoi(value)) > 0 && *numbers[name] <= 1000000;
    else if (name > 0 && name < 128 && times[name])
        return (*times[name] = atof(value)) >= 0 && *times[name] <= 86400;
    else
        return false;
    return true;
}

int bench_interfere(int argc, char **argv)
{
    interfere_options o = { .decoders = 8,
                            .prompt_tokens = 64,
                            .max_tokens = 4000,
                            .intruder_tokens = 4000,
                            .intruder_out = 32,
                            .seconds = 30,
                            .every = 30,
                            .warm = 4,
                            .seed = random_system() };
    bool good = true;
    for (int name; good && (name = getopt_long(argc, argv, "", option_names, NULL)) >= 0;) {
        if (name == 'h') {
            fputs(usage_text, stdout);
            return 0;
        }
        good = option_take(&o, name, optarg);
    }
    if (!good || !o.server.url || o.seconds <= 0 || o.every <= 0 || o.decoders > STREAMS_MAX / 2) {
        fprintf(stderr, "penstock-bench interfere: needs --base-url, and numbers that can be; see "
                        "--help\n");
        return 2;
    }
    error failure = { 0 };
    if (client_find_model(&o.server, &failure) != STATUS_OK) {
        fprintf(stderr, "penstock-bench interfere: %s\n", failure.text);
        return 1;
    }
    if (!window_run(&o, false) || !window_run(&o, true)) {
        fprintf(stderr, "penstock-bench interfere: memory or threads are short\n");
        return 1;
    }
    return 0;
}
