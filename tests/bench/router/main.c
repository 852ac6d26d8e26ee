// router-load: what one router process takes. It puts a load on a router that runs already and
// prints one line a window: rates as clients see them, and the router's own processor time.
//
//   router-load --pid PID --control URL --http HOST:PORT --model FILE
//       --requests CONNECTIONS [--max-tokens N] [--prompt-words N] [--prefill N]
//       --streams N --rate TOKENS_PER_S,...       0: as fast as the router takes them in
//       --memory N --prompt-tokens P
//       --seconds S (of a window)  --workers N (decode workers)
#include "load.h"

#include "base/buffer.h"
#include "base/clock.h"
#include "checkpoint/gguf.h"
#include "text/tokenizer.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

typedef struct options {
    int pid;
    const char *control, *http, *model, *rates;
    int requests, streams, memory; // one of them: connections
    int max_tokens, prompt_words, prompt_tokens, prefill, workers;
    double seconds;
} options;

typedef struct reading {
    double cpu_s, at_s;
    uint64_t requests, events, tokens, sent;
} reading;

static void fail(const char *what)
{
    fprintf(stderr, "router-load: %s\n", what);
    exit(2);
}

// ---- the router's process -----------------------------------------------------------------------

static double cpu_seconds(int pid)
{
    char path[64], text[1024];
    unsigned long user, system;
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    FILE *file = fopen(path, "r");
    if (!file || !fgets(text, sizeof text, file))
        fail("the router has gone");
    fclose(file);
    char *behind = strrchr(text, ')');
    if (!behind || sscanf(behind + 1, " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &user,
                          &system) != 2)
        fail("/proc/PID/stat cannot be read");
    return (double)(user + system) / (double)sysconf(_SC_CLK_TCK);
}

static double resident_mib(int pid)
{
    char path[64];
    unsigned long pages = 0;
    snprintf(path, sizeof path, "/proc/%d/statm", pid);
    FILE *file = fopen(path, "r");
    if (!file || fscanf(file, "%*u %lu", &pages) != 1)
        fail("the router has gone");
    fclose(file);
    return (double)pages * (double)sysconf(_SC_PAGESIZE) / 1048576;
}

static reading read_all(const options *o)
{
    return (reading){ .cpu_s = cpu_seconds(o->pid),
                      .at_s = (double)clock_now_us() * 1e-6,
                      .requests = clients_requests,
                      .events = clients_events,
                      .tokens = clients_tokens,
                      .sent = workers_tokens };
}

static void window(const options *o, double seconds, reading *first, reading *last)
{
    *first = read_all(o);
    clock_sleep_us((uint64_t)(seconds * 1e6));
    *last = read_all(o);
}

// ---- what is asked
// --------------------------------------------------------------------------------

static void clients_go(const options *o, const char *body, int connections, bool again)
{
    static char host[256];
    static buffer kept;
    snprintf(host, sizeof host, "%s", o->http);
    char *colon = strrchr(host, ':');
    if (!colon)
        fail("--http is not HOST:PORT");
    *colon = 0;
    buffer_append_text(&kept, body);
    clients_settings settings = { host, colon + 1, connections, kept.data, again, 4000 };
    clients_start(&settings);
}

// Token ids of any kind, or words.
static void body_write(const options *o, bool stream, int max_tokens, buffer *out)
{
    buffer_printf(out,
                  "{\"model\":\"load\",\"temperature\":0,\"ignore_eos\":true,\"max_tokens\":%d,",
                  max_tokens);
    buffer_append_text(out, stream ? "\"stream\":true,\"prompt\":" : "\"prompt\":");
    if (o->prompt_words > 0) {
        buffer_append_text(out, "\"");
        for (int i = 0; i < o->prompt_words; i++)
            buffer_append_text(out, i % 3 ? "word " : "another ");
        buffer_append_text(out, "\"}");
        return;
    }
    for (int i = 0; i < o->prompt_tokens; i++)
        buffer_printf(out, "%c%d", i ? ',' : '[', 100 + i % 100);
    buffer_append_text(out, "]}");
}

static void requests_measure(const options *o)
{
    buffer body = { 0 };
    reading a, b;
    atomic_store(&workers_rate, 0);
    body_write(o, false, o->max_tokens, &body);
    clients_go(o, body.data, o->requests, true);
    clock_sleep_us(1000000);
    window(o, o->seconds, &a, &b);
    double seconds = b.at_s - a.at_s, cpu = b.cpu_s - a.cpu_s;
    double requests = (double)(b.requests - a.requests);
    printf("requests: %.0f/s, %.1f us of the router's processor time each (%.0f%% of a core, so "
           "%.0f/s on a whole one); %d connections, %llu failures\n",
           requests / seconds, 1e6 * cpu / requests, 100 * cpu / seconds, requests / cpu,
           o->requests, (unsigned long long)clients_failures);
    buffer_close(&body);
}

static void stream_line(const options *o, uint64_t rate)
{
    reading a, b;
    atomic_store(&workers_rate, rate);
    clock_sleep_us(1000000);
    window(o, o->seconds, &a, &b);
    double seconds = b.at_s - a.at_s, cpu = b.cpu_s - a.cpu_s;
    double events = (double)(b.events - a.events), tokens = (double)(b.tokens - a.tokens);
    char wanted[32];
    snprintf(wanted, sizeof wanted, rate ? "%llu tokens/s" : "all it takes",
             (unsigned long long)rate);
    printf("streams %d, %s wanted: sent %.0f/s, delivered %.0f tokens/s in %.0f events/s; router "
           "%.0f%% of a core, %.2f us an event, %.2f us a token: %.0f events/s and %.0f tokens/s a "
           "whole core; failures %llu\n",
           o->streams, wanted, (double)(b.sent - a.sent) / seconds, tokens / seconds,
           events / seconds, 100 * cpu / seconds, 1e6 * cpu / events, 1e6 * cpu / tokens,
           events / cpu, tokens / cpu, (unsigned long long)clients_failures);
}

static void streams_measure(const options *o)
{
    buffer body = { 0 };
    body_write(o, true, o->max_tokens, &body);
    atomic_store(&workers_rate, 5000);
    clients_go(o, body.data, o->streams, true);
    while (clients_open < (unsigned)o->streams)
        clock_sleep_us(10000);
    for (const char *at = o->rates; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL)
        stream_line(o, strtoull(at, NULL, 10));
    buffer_close(&body);
}

static void memory_measure(const options *o)
{
    buffer body = { 0 };
    body_write(o, true, o->max_tokens, &body);
    double before = resident_mib(o->pid);
    atomic_store(&workers_rate, (uint64_t)o->memory * 4);
    clients_go(o, body.data, o->memory, false);
    while (clients_open < (unsigned)o->memory && clients_failures == 0)
        clock_sleep_us(10000);
    clock_sleep_us((uint64_t)(o->seconds * 1e6));
    double after = resident_mib(o->pid);
    double tokens = (double)clients_tokens / o->memory;
    double kept = (o->prompt_tokens + tokens) * 4 * o->memory / 1048576;
    printf(
        "memory: %.1f MiB without requests, %.1f MiB with %d open streams of %d prompt tokens and "
        "%.0f answer tokens; their ids are %.1f MiB; beyond base and ids %.1f MiB, %.2f KiB a "
        "stream; failures %llu\n",
        before, after, o->memory, o->prompt_tokens, tokens, kept, after - before - kept,
        (after - before - kept) * 1024 / o->memory, (unsigned long long)clients_failures);
    buffer_close(&body);
}

// ---- options
// --------------------------------------------------------------------------------------

// clang-format off
static const struct option names[] = {
    { "pid", 1, 0, 'p' },     { "control", 1, 0, 'c' },    { "http", 1, 0, 'h' },
    { "model", 1, 0, 'm' },   { "rate", 1, 0, 'r' },       { "requests", 1, 0, 'R' },
    { "streams", 1, 0, 's' }, { "memory", 1, 0, 'M' },     { "max-tokens", 1, 0, 't' },
    { "workers", 1, 0, 'w' }, { "prompt-words", 1, 0, 'W' }, { "prompt-tokens", 1, 0, 'T' },
    { "prefill", 1, 0, 'P' }, { "seconds", 1, 0, 'S' },    { 0 },
};

static options options_take(int argc, char **argv)
{
    options o = { .max_tokens = 1, .prompt_tokens = 32, .workers = 4, .seconds = 4, .rates = "0" };
    for (int c; (c = getopt_long(argc, argv, "", names, NULL)) != -1;) {
        int number = optarg ? atoi(optarg) : 0;
        switch (c) {
        case 'p': o.pid = number; break;
        case 'c': o.control = optarg; break;
        case 'h': o.http = optarg; break;
        case 'm': o.model = optarg; break;
        case 'r': o.rates = optarg; break;
        case 'R': o.requests = number; break;
        case 's': o.streams = number; break;
        case 'M': o.memory = number; break;
        case 't': o.max_tokens = number; break;
        case 'w': o.workers = number; break;
        case 'W': o.prompt_words = number; break;
        case 'T': o.prompt_tokens = number; break;
        case 'P': o.prefill = number; break;
        case 'S': o.seconds = atof(optarg); break;
        default: exit(2);
        }
    }
    if (!o.pid || !o.control || !o.http || !o.model || !(o.requests || o.streams || o.memory))
        fail("--pid, --control, --http, --model and one of --requests, --streams, --memory are needed");
    return o;
}

// clang-format on

// The letter that answers are made of.
static int32_t letter_find(const tokenizer *t)
{
    for (int32_t i = 0; i < tokenizer_token_count(t); i++)
        if (slice_equal(tokenizer_token_bytes(t, i), SLICE("x")))
            return i;
    fail("the model has no token for the letter x");
    return 0;
}

static void workers_go(const options *o)
{
    error failure = { 0 };
    gguf *file;
    tokenizer *tokens;
    workers_settings settings = { .router = o->control,
                                  .context = 1u << 20,
                                  .sequences = 1u << 16,
                                  .prefill = o->prefill,
                                  .decode = o->workers };
    if (gguf_open(o->model, &file, &failure) != STATUS_OK ||
        gguf_digest(file, &settings.weights, &failure) != STATUS_OK ||
        tokenizer_open(file, &tokens, &failure) != STATUS_OK)
        fail(failure.text);
    settings.token = letter_find(tokens);
    settings.vocabulary = (uint32_t)tokenizer_token_count(tokens);
    workers_start(&settings);
    tokenizer_close(tokens);
    gguf_close(file);
    clock_sleep_us(300000);
}

int main(int argc, char **argv)
{
    options o = options_take(argc, argv);
    struct rlimit files;
    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
    setvbuf(stdout, NULL, _IOLBF, 0);
    workers_go(&o);
    if (o.requests)
        requests_measure(&o);
    else if (o.streams)
        streams_measure(&o);
    else
        memory_measure(&o);
    clients_stop();
    workers_stop();
    if (workers_unsent > 0)
        printf("the router did not take %llu messages\n", (unsigned long long)workers_unsent);
    return clients_failures || workers_unsent ? 1 : 0;
}
