// penstock-bench engine: the speed of the engine alone, without a network.
//
// prefill: the time to compute `prompt` tokens behind `depth` tokens that are in the cache already,
// one sequence. decode: `batch` sequences with `depth` tokens of cache each, `generate` tokens for
// every one. Each figure is the median of the repeats. gb_per_s and gop_per_s count what the work
// needs (speed.h), not what an engine adds. Load is opening the file, from a warm or a cold page
// cache as it is; beside it this process's peak memory up to there. The machine's limits are
// measured before and after, because the memory of a shared host has states.
#include "bench.h"
#include "limits.h"
#include "speed.h"
#include "workload.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>

#define LIST_MAX 16

typedef struct options {
    engine_settings engine;
    int prompt, generate, repeats;
    int batches[LIST_MAX], depths[LIST_MAX];
    int batch_count, depth_count;
    bool json, limits;
} options;

static const char usage_text[] =
    "usage: penstock-bench engine --model FILE [options]\n\n"
    "  --model FILE       a GGUF file\n"
    "  --threads N        compute threads; 0: what affinity and quota allow (default 0)\n"
    "  --level LEVEL      auto, scalar, avx2 or avx512 (default auto)\n"
    "  --kv-type TYPE     f16 or f32 (default f16)\n"
    "  --prompt N         tokens of a prefill (default 512)\n"
    "  --generate N       tokens of a decode, each sequence (default 128)\n"
    "  --batch A,B,...    sequences of a decode (default 1)\n"
    "  --depth A,B,...    tokens in the cache before (default 0)\n"
    "  --chunk N          tokens of a step's chunk (default 512)\n"
    "  --repeats N        of which the median counts (default 3)\n"
    "  --no-limits        do not measure the machine's own limits\n"
    "  --json             one JSON object a line\n";

// False: a sentence was printed. The names are in the order of `names` below.
static bool option_take(options *o, int name, const char *value)
{
    int number = 0;
    bool good = true;
    switch (name) {
    case 'm':
        o->engine.model = optarg;
        break;
    case 'l':
        o->engine.level = optarg;
        break;
    case 'k':
        o->engine.kv_type = optarg;
        break;
    case 't':
        good = bench_number(value, 0, &number);
        o->engine.threads = number;
        break;
    case 'p':
        good = bench_number(value, 1, &o->prompt);
        break;
    case 'g':
        good = bench_number(value, 1, &o->generate);
        break;
    case 'c':
        good = bench_number(value, 1, &number);
        o->engine.chunk_tokens = number;
        break;
    case 'r':
        good = bench_number(value, 1, &o->repeats) && o->repeats <= SPEED_REPEATS_MAX;
        break;
    case 'b':
        good = (o->batch_count = bench_list(value, 1, o->batches, LIST_MAX)) > 0;
        break;
    case 'd':
        good = (o->depth_count = bench_list(value, 0, o->depths, LIST_MAX)) > 0;
        break;
    case 'j':
        o->json = true;
        break;
    case 'n':
        o->limits = false;
        break;
    default:
        return false;
    }
    if (!good)
        fprintf(stderr, "penstock-bench engine: '%s' is no value for this option\n", value);
    return good;
}

// 0: run; else the exit status plus 1.
static int options_parse(int argc, char **argv, options *o)
{
    static const struct option names[] = {
        { "model", 1, NULL, 'm' },   { "level", 1, NULL, 'l' },   { "kv-type", 1, NULL, 'k' },
        { "threads", 1, NULL, 't' }, { "prompt", 1, NULL, 'p' },  { "generate", 1, NULL, 'g' },
        { "chunk", 1, NULL, 'c' },   { "repeats", 1, NULL, 'r' }, { "batch", 1, NULL, 'b' },
        { "depth", 1, NULL, 'd' },   { "json", 0, NULL, 'j' },    { "no-limits", 0, NULL, 'n' },
        { "help", 0, NULL, 'h' },    { NULL, 0, NULL, 0 },
    };
    *o = (options){ .prompt = 512, .generate = 128, .repeats = 3, .limits = true };
    o->engine = workload_settings("");
    o->batches[0] = o->batch_count = o->depth_count = 1;
    for (int name; (name = getopt_long(argc, argv, "", names, NULL)) != -1;) {
        if (name == 'h') {
            fputs(usage_text, stdout);
            return 1;
        }
        if (!option_take(o, name, optarg))
            return 3;
    }
    if (o->engine.model[0] == '\0' || optind < argc) {
        fputs(usage_text, stderr);
        return 3;
    }
    return 0;
}

static int list_largest(const int *values, int count)
{
    int largest = 0;
    for (int i = 0; i < count; i++)
        largest = values[i] > largest ? values[i] : largest;
    return largest;
}

// The median of the repeats; batch 0: a prefill.
static void case_run(const options *o, speed *s, int batch, int depth)
{
    speed_result m = speed_median(s, batch, depth, o->repeats);
    printf(o->json ? "{\"what\":\"%s\",\"tokens\":%.0f,\"batch\":%d,\"depth\":%d,"
                     "\"tokens_per_s\":%.6g,\"gb_per_s\":%.6g,\"gop_per_s\":%.6g}\n"
                   : "%-8s tokens %6.0f  batch %3d  depth %5d  %9.2f tokens/s  %7.3f GB/s  %8.2f "
                     "GOP/s\n",
           batch == 0 ? "prefill" : "decode", m.tokens, batch == 0 ? 1 : batch, depth,
           m.tokens / m.seconds, speed_bytes(s, &m) / m.seconds / 1e9,
           speed_operations(s, &m) / m.seconds / 1e9);
    fflush(stdout);
}

// The peak has whatever loading took and gave back; of the pool, only pages that were touched.
static void load_print(const options *o, const speed *s)
{
    const engine_facts *f = engine_facts_of(speed_engine(s));
    struct rusage usage = { 0 };
    struct stat file = { 0 };
    getrusage(RUSAGE_SELF, &usage);
    stat(o->engine.model, &file);
    printf(o->json
               ? "{\"what\":\"load\",\"seconds\":%.4f,\"file_bytes\":%.0f,"
                 "\"weight_bytes\":%.0f,\"pool_bytes\":%.0f,\"kv_token_bytes\":%.1f,"
                 "\"peak_bytes\":%.0f}\n"
               : "load     %.3f s  file %.0f bytes  weights of a step %.0f bytes  pool %.0f bytes  "
                 "KV of a token %.1f bytes  peak memory %.0f bytes\n",
           speed_load_seconds(s), (double)file.st_size, (double)f->weight_bytes,
           (double)f->layout.page_bytes * f->pages,
           (double)f->layout.page_bytes / f->layout.page_tokens, (double)usage.ru_maxrss * 1024);
    fflush(stdout);
}

static void limits_print(const options *o, int threads)
{
    bench_limits l = bench_limits_measure(threads);
    const char *lines[] = {
        "{\"what\":\"limit\",\"name\":\"dram read\",\"threads\":%d,\"gb_per_s\":%.2f}\n",
        "limit    dram read, %d threads: %.2f GB/s\n",
        "{\"what\":\"limit\",\"name\":\"int8 multiply-add\",\"threads\":%d,\"gop_per_s\":%.1f,"
        "\"instruction\":\"%s\"}\n",
        "limit    int8 multiply-add, %d threads: %.1f GOP/s (%s)\n",
    };
    int plain = !o->json;
    if (l.read_gb_per_s > 0)
        printf(plain ? lines[1] : lines[0], threads, l.read_gb_per_s);
    if (l.int8_gop_per_s > 0)
        printf(plain ? lines[3] : lines[2], threads, l.int8_gop_per_s, l.instruction);
    fflush(stdout);
}

static void cases_run(const options *o, speed *s)
{
    int threads = engine_facts_of(speed_engine(s))->threads;
    load_print(o, s);
    if (o->limits)
        limits_print(o, threads);
    for (int d = 0; d < o->depth_count; d++)
        case_run(o, s, 0, o->depths[d]);
    for (int d = 0; d < o->depth_count; d++)
        for (int i = 0; i < o->batch_count; i++)
            case_run(o, s, o->batches[i], o->depths[d]);
    if (o->limits)
        limits_print(o, threads);
}

int bench_engine(int argc, char **argv)
{
    options o;
    speed *s = NULL;
    error failure = { 0 };
    int stop = options_parse(argc, argv, &o);
    if (stop)
        return stop - 1;
    speed_plan plan = { .engine = o.engine,
                        .prompt = o.prompt,
                        .generate = o.generate,
                        .batch = list_largest(o.batches, o.batch_count),
                        .depth = list_largest(o.depths, o.depth_count) };
    status result = speed_open(&plan, &s, &failure);
    if (result == STATUS_OK)
        cases_run(&o, s);
    else
        fprintf(stderr, "penstock-bench engine: %s\n", failure.text);
    speed_close(s);
    return result == STATUS_OK ? 0 : 1;
}
