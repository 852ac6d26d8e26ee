// penstock-bench handoff: pages between two processes of this program over the fabric, with the
// messages, the checks and the acknowledgements of a real hand-off.
//
// The parent is the decode worker, the child (this program again, by exec) the prefill worker.
// Three phases: transfers one after another, of which each gives a rate; transfers two at a time,
// which give the rate of a busy pair; single pages, which give the latency of a hand-over. Both
// processes read the same monotonic clock.
#include "bench.h"

#include "base/clock.h"
#include "base/log.h"
#include "handoff/handoff.h"

#include <fcntl.h>
#include <getopt.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#define LANES 2
#define TRANSFERS_MAX 400 // of each phase
#define PREFILL 1u
#define DECODE 2u

extern char **environ;

typedef struct handoff_options {
    int pages, transfers, window;
    long page_bytes, run_bytes;
    bool checksums, json;
    const char *transports, *host;
    int child_port; // 0: this is the parent
} handoff_options;

// When a transfer was begun, could send, had its pages given, was acknowledged; by the child.
// Microseconds.
typedef struct sample {
    uint64_t begun, ready, acknowledged;
} sample;

typedef struct report_from_child {
    double cpu_s; // of the two phases with many pages
    sample samples[3 * TRANSFERS_MAX];
} report_from_child;

typedef struct side {
    handoff *h;
    handoff_options o;
    uint8_t *pool;
    int total; // transfers of all phases
} side;

static double cpu_seconds(void)
{
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
           1e-6 * (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec);
}

static int phase_of(const side *s, int number)
{
    return number / s->o.transfers;
}

static int pages_of(const side *s, int number)
{
    return phase_of(s, number) == 2 ? 1 : s->o.pages;
}

// The transfer that follows in the same lane, or -1. Phases do not overlap: the next one starts
// when the last transfer of the one before is over.
static int following(const side *s, int number)
{
    int step = phase_of(s, number) == 1 ? LANES : 1, next = number + step;
    return next < s->total && phase_of(s, next) == phase_of(s, number) ? next : -1;
}

static handoff_key key_of(int number)
{
    return (handoff_key){ 1, (uint64_t)number, 1 };
}

static int open_side(side *s, bool listen)
{
    size_t size = (size_t)s->o.pages * LANES * (size_t)s->o.page_bytes;
    error failure;
    handoff_settings settings = { .host = (char *)s->o.host,
                                  .transports = (char *)s->o.transports,
                                  .devices = "",
                                  .checksums = s->o.checksums,
                                  .run_bytes = (uint64_t)s->o.run_bytes,
                                  .window = s->o.window,
                                  .suspect_us = 2000000,
                                  .fail_us = 20000000,
                                  .connect_us = 10000000,
                                  .peers = 64 };
    handoff_identity identity = { .incarnation = listen ? DECODE : PREFILL,
                                  .model_name = "bench",
                                  .architecture = "none",
                                  .kv_layout = "bytes",
                                  .page_tokens = 64,
                                  .page_bytes = (uint64_t)s->o.page_bytes,
                                  .context = 64u * (uint32_t)s->o.pages,
                                  .vocabulary = 1 };
    s->pool = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (s->pool == MAP_FAILED) {
        fprintf(stderr, "penstock-bench handoff: no memory for %zu bytes of pages\n", size);
        return 1;
    }
    madvise(s->pool, size, MADV_HUGEPAGE);
    memset(s->pool, listen ? 0 : 7, size);
    if (handoff_open(&settings, &identity, listen, s->pool, size, &s->h, &failure) != STATUS_OK) {
        fprintf(stderr, "penstock-bench handoff: %s\n", failure.text);
        return 1;
    }
    return 0;
}

static handoff_event *next_event(side *s)
{
    struct pollfd wait = { .fd = handoff_event_fd(s->h), .events = POLLIN };
    for (int i = 0; i < 60; i++) {
        handoff_event *event = handoff_event_next(s->h);
        if (event)
            return event;
        poll(&wait, 1, 1000);
    }
    return NULL;
}

static void fill_pages(const side *s, int number, int32_t *pages)
{
    for (int i = 0; i < s->o.pages; i++)
        pages[i] = (number % LANES) * s->o.pages + i;
}

// ---- the prefill side
// ------------------------------------------------------------------------------

static void begin_send(side *s, int number, report_from_child *r)
{
    handoff_peer peer = { .incarnation = DECODE, .port = (uint16_t)s->o.child_port };
    snprintf(peer.host, sizeof(peer.host), "%s", s->o.host);
    r->samples[number].begun = clock_now_us();
    handoff_send_begin(s->h, key_of(number), &peer);
}

static void send(side *s, int number, report_from_child *r, int32_t *pages)
{
    int count = pages_of(s, number);
    handoff_record record = { .computed = count * 64, .next_token = 0 };
    r->samples[number].ready = clock_now_us();
    fill_pages(s, number, pages);
    handoff_send_pages(s->h, key_of(number), 0, pages, count);
    handoff_send_end(s->h, key_of(number), &record);
}

// Begin what a phase begins with, given that `done` transfers are over.
static void begin_phase(side *s, int done, report_from_child *r)
{
    int lanes = done == s->o.transfers ? LANES : 1;
    bool starts = done == 0 || done == s->o.transfers || done == 2 * s->o.transfers;
    for (int i = 0; starts && i < lanes; i++)
        begin_send(s, done + i, r);
}

static int run_child(side *s, report_from_child *r)
{
    int32_t *pages = malloc((size_t)s->o.pages * sizeof(*pages));
    double cpu_begun = cpu_seconds();
    begin_phase(s, 0, r);
    for (int done = 0; done < s->total;) {
        handoff_event *event = next_event(s);
        if (event == NULL || event->kind == HANDOFF_SEND_OVER) {
            fprintf(stderr, "penstock-bench handoff: a transfer ended: %s\n",
                    event ? status_text(event->code) : "nothing came");
            return 1;
        }
        int number = (int)event->key.number;
        if (event->kind == HANDOFF_SEAT_READY)
            send(s, number, r, pages);
        else {
            r->samples[number].acknowledged = clock_now_us();
            if (following(s, number) >= 0)
                begin_send(s, following(s, number), r);
            begin_phase(s, ++done, r);
            if (done == 2 * s->o.transfers)
                r->cpu_s = cpu_seconds() - cpu_begun;
        }
        handoff_event_free(event);
    }
    free(pages);
    return 0;
}

static int child(handoff_options o)
{
    side s = { .o = o, .total = 3 * o.transfers };
    report_from_child *r = calloc(1, sizeof(*r));
    if (r == NULL || open_side(&s, false) != 0 || run_child(&s, r) != 0)
        return 1;
    for (size_t sent = 0; sent < sizeof(*r);) {
        ssize_t n = write(STDOUT_FILENO, (char *)r + sent, sizeof(*r) - sent);
        if (n <= 0)
            return 1;
        sent += (size_t)n;
    }
    handoff_close(s.h);
    return 0;
}

// ---- the decode side
// -------------------------------------------------------------------------------

static void open_seat(side *s, int number, int32_t *pages)
{
    fill_pages(s, number, pages);
    handoff_admit(s->h, PREFILL, (handoff_token){ { 0 } });
    handoff_seat_open(s->h, key_of(number), PREFILL, (uint64_t)number + 1, pages, s->o.pages, 0);
}

static void open_phase(side *s, int done, int32_t *pages)
{
    int lanes = done == s->o.transfers ? LANES : 1;
    bool starts = done == 0 || done == s->o.transfers || done == 2 * s->o.transfers;
    for (int i = 0; starts && i < lanes; i++)
        open_seat(s, done + i, pages);
}

// Take all transfers; `filled` gets the time of each.
static int run_parent(side *s, uint64_t *filled, double *cpu_s)
{
    int32_t *pages = malloc((size_t)s->o.pages * sizeof(*pages));
    double cpu_begun = cpu_seconds();
    open_phase(s, 0, pages);
    for (int done = 0; done < s->total;) {
        handoff_event *event = next_event(s);
        if (event == NULL || event->kind != HANDOFF_SEAT_FILLED) {
            fprintf(stderr, "penstock-bench handoff: a seat was not filled: %s\n",
                    event ? status_text(event->code) : "nothing came");
            return 1;
        }
        int number = (int)event->key.number;
        filled[number] = clock_now_us();
        if (following(s, number) >= 0)
            open_seat(s, following(s, number), pages);
        open_phase(s, ++done, pages);
        if (done == 2 * s->o.transfers)
            *cpu_s = cpu_seconds() - cpu_begun;
        handoff_event_free(event);
    }
    free(pages);
    return 0;
}

static pid_t start_child(const handoff_options *o, uint16_t port, int *out)
{
    char text[6][32];
    int fds[2];
    pid_t pid = -1;
    posix_spawn_file_actions_t actions;
    snprintf(text[0], 32, "%u", port);
    snprintf(text[1], 32, "%d", o->pages);
    snprintf(text[2], 32, "%ld", o->page_bytes);
    snprintf(text[3], 32, "%d", o->transfers);
    snprintf(text[4], 32, "%ld", o->run_bytes);
    snprintf(text[5], 32, "%d", o->window);
    char *argv[] = { "penstock-bench",
                     "handoff",
                     "--child",
                     text[0],
                     "--pages",
                     text[1],
                     "--page-bytes",
                     text[2],
                     "--transfers",
                     text[3],
                     "--run-bytes",
                     text[4],
                     "--window",
                     text[5],
                     "--host",
                     (char *)o->host,
                     "--transports",
                     (char *)o->transports,
                     o->checksums ? "--checksums" : NULL,
                     NULL };
    if (pipe2(fds, O_CLOEXEC) != 0)
        return -1;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, fds[1], STDOUT_FILENO);
    if (posix_spawn(&pid, "/proc/self/exe", &actions, NULL, argv, environ) != 0)
        pid = -1;
    posix_spawn_file_actions_destroy(&actions);
    close(fds[1]);
    *out = fds[0];
    return pid;
}

static void report(const side *s, const report_from_child *r, const uint64_t *filled, double cpu_s)
{
    const handoff_options *o = &s->o;
    int n = o->transfers;
    double *rate = calloc((size_t)n, sizeof(double)), *ready = calloc((size_t)n, sizeof(double));
    double *latency = calloc((size_t)n, sizeof(double));
    double bytes = (double)o->pages * (double)o->page_bytes;
    for (int i = 0; i < n; i++) {
        rate[i] = bytes / (double)(filled[i] - r->samples[i].ready) * 1e-3;
        ready[i] = (double)(r->samples[2 * n + i].ready - r->samples[2 * n + i].begun);
        latency[i] = (double)(filled[2 * n + i] - r->samples[2 * n + i].ready);
    }
    double busy = bytes * n / (double)(filled[2 * n - 1] - r->samples[n].ready) * 1e-3;
    double gigabytes = 2 * bytes * n * 1e-9;
    handoff_stats stats;
    handoff_stats_of(s->h, &stats);
    double p50 = bench_percentile(rate, (size_t)n, 50), best = rate[n - 1];
    double latency50 = bench_percentile(latency, (size_t)n, 50), latency99 = latency[n - 1];
    double ready50 = bench_percentile(ready, (size_t)n, 50);
    if (o->json)
        printf("{\"bench\":\"handoff\",\"transport\":\"%s\",\"page_bytes\":%ld,\"pages\":%d,"
               "\"transfers\":%d,\"run_bytes\":%ld,\"window\":%d,\"checksums\":%s,"
               "\"probe_gbps\":%.3f,\"gbps_p50\":%.3f,\"gbps_best\":%.3f,\"gbps_busy\":%.3f,"
               "\"handover_us_p50\":%.0f,\"handover_us_max\":%.0f,\"seat_us_p50\":%.0f,"
               "\"cpu_s_per_gb_prefill\":%.3f,\"cpu_s_per_gb_decode\":%.3f}\n",
               stats.transport, o->page_bytes, o->pages, n, o->run_bytes, o->window,
               o->checksums ? "true" : "false", stats.probe_gbps, p50, best, busy, latency50,
               latency99, ready50, r->cpu_s / gigabytes, cpu_s / gigabytes);
    else
        printf("transport %s, %d transfers of %d pages of %ld bytes, checksums %s\n"
               "  one at a time  %6.2f GB/s p50, %.2f best\n  busy pair      %6.2f GB/s\n"
               "  one page       %6.0f us p50, %.0f max, from complete page to filled seat\n"
               "  seat           %6.0f us p50, from ticket to seat\n"
               "  processor      %6.3f s per GB at the prefill side, %.3f at the decode side\n",
               stats.transport, n, o->pages, o->page_bytes, o->checksums ? "on" : "off", p50, best,
               busy, latency50, latency99, ready50, r->cpu_s / gigabytes, cpu_s / gigabytes);
    free(rate);
    free(ready);
    free(latency);
}

static int parent(handoff_options o)
{
    side s = { .o = o, .total = 3 * o.transfers };
    report_from_child *r = calloc(1, sizeof(*r));
    uint64_t *filled = calloc((size_t)s.total, sizeof(*filled));
    char host[64];
    uint16_t port;
    int out = -1, state = 0;
    double cpu_s = 0;
    if (r == NULL || filled == NULL || open_side(&s, true) != 0)
        return 1;
    handoff_address(s.h, host, &port);
    pid_t pid = start_child(&o, port, &out);
    int result = pid < 0 ? 1 : run_parent(&s, filled, &cpu_s);
    size_t got = 0;
    for (ssize_t n = 1; result == 0 && got < sizeof(*r) && n > 0; got += n > 0 ? (size_t)n : 0)
        n = read(out, (char *)r + got, sizeof(*r) - got);
    if (result == 0 && got == sizeof(*r))
        report(&s, r, filled, cpu_s);
    else
        result = 1;
    close(out);
    if (pid > 0 && result != 0)
        kill(pid, SIGKILL);
    if (pid > 0)
        waitpid(pid, &state, 0);
    handoff_close(s.h);
    free(r);
    free(filled);
    return result;
}

static void usage(FILE *to)
{
    fprintf(to, "usage: penstock-bench handoff [--json] [--pages N] [--page-bytes N] "
                "[--transfers N]\n    [--run-bytes N] [--window N] [--checksums] [--host ADDRESS] "
                "[--transports LIST]\n\nTwo processes of this program on one machine. The default "
                "page is that of a 135 M model.\n");
}

int bench_handoff(int argc, char **argv)
{
    static const struct option long_options[] = {
        { "json", no_argument, NULL, 'j' },
        { "pages", required_argument, NULL, 'p' },
        { "page-bytes", required_argument, NULL, 'b' },
        { "transfers", required_argument, NULL, 't' },
        { "run-bytes", required_argument, NULL, 'r' },
        { "window", required_argument, NULL, 'w' },
        { "checksums", no_argument, NULL, 'k' },
        { "host", required_argument, NULL, 'h' },
        { "transports", required_argument, NULL, 'T' },
        { "child", required_argument, NULL, 'c' },
        { "help", no_argument, NULL, 'H' },
        { 0 },
    };
    handoff_options o = { .pages = 32,
                          .transfers = 20,
                          .window = 8,
                          .page_bytes = 1474560,
                          .run_bytes = 1 << 20,
                          .transports = "tcp,self",
                          .host = "127.0.0.1" };
    for (int c; (c = getopt_long(argc, argv, "", long_options, NULL)) != -1;) {
        o.json |= c == 'j';
        o.checksums |= c == 'k';
        o.pages = c == 'p' ? atoi(optarg) : o.pages;
        o.page_bytes = c == 'b' ? atol(optarg) : o.page_bytes;
        o.transfers = c == 't' ? atoi(optarg) : o.transfers;
        o.run_bytes = c == 'r' ? atol(optarg) : o.run_bytes;
        o.window = c == 'w' ? atoi(optarg) : o.window;
        o.host = c == 'h' ? optarg : o.host;
        o.transports = c == 'T' ? optarg : o.transports;
        o.child_port = c == 'c' ? atoi(optarg) : o.child_port;
        if (c == 'H' || c == '?') {
            usage(c == 'H' ? stdout : stderr);
            return c == 'H' ? 0 : 2;
        }
    }
    if (o.pages < 1 || o.pages > 4096 || o.page_bytes < 64 || o.page_bytes > (64 << 20) ||
        o.transfers < 2 || o.transfers > TRANSFERS_MAX || o.window < 1 || o.window > 64 ||
        o.run_bytes < 64) {
        fprintf(stderr, "penstock-bench handoff: a number is out of range; see --help\n");
        return 2;
    }
    log_level_set(LOG_WARN);
    return o.child_port ? child(o) : parent(o);
}
