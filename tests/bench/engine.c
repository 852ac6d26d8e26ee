// penstock-bench engine: the speed of the engine alone, without a network.
//
// prefill: the time to compute `prompt` tokens behind `depth` tokens that are in the cache already,
// one sequence. decode: `batch` sequences with `depth` tokens of cache each, `generate` tokens for
// every one. Each figure is the median of the repeats. gb_per_s is what the steps must read (each
// weight once a step, each cached key and value once), gop_per_s what they must multiply and add
// (matrices only): neither counts work that an engine adds.
#include "bench.h"
#include "limits.h"

#include "model/engine.h"
#include "model/model.h"

#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LIST_MAX 16
#define REPEATS_MAX 32

typedef struct options {
    engine_settings engine;
    int prompt, generate, repeats;
    int batches[LIST_MAX], depths[LIST_MAX];
    int batch_count, depth_count;
    bool json, limits;
} options;

// What one row of a step multiplies: layers for every row, the head for rows with logits.
typedef struct work {
    double layer_weights, head_weights;
} work;

typedef struct bench {
    engine *engine;
    options options;
    work work;
    int32_t *tokens; // more than the longest case, so that sequences can begin at different places
} bench;

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

static int list_parse(const char *text, int low, int *values)
{
    int count = 0;
    char *end;
    do {
        long value = strtol(text, &end, 10);
        if (end == text || value < low || value > 1 << 20 || count == LIST_MAX)
            return 0;
        values[count++] = (int)value;
        text = end + 1;
    } while (*end == ',');
    return *end == '\0' ? count : 0;
}

static bool number_parse(const char *text, int low, int *value)
{
    int values[LIST_MAX];
    if (list_parse(text, low, values) != 1)
        return false;
    *value = values[0];
    return true;
}

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
        good = number_parse(value, 0, &number);
        o->engine.threads = number;
        break;
    case 'p':
        good = number_parse(value, 1, &o->prompt);
        break;
    case 'g':
        good = number_parse(value, 1, &o->generate);
        break;
    case 'c':
        good = number_parse(value, 1, &number);
        o->engine.chunk_tokens = number;
        break;
    case 'r':
        good = number_parse(value, 1, &o->repeats) && o->repeats <= REPEATS_MAX;
        break;
    case 'b':
        good = (o->batch_count = list_parse(value, 1, o->batches)) > 0;
        break;
    case 'd':
        good = (o->depth_count = list_parse(value, 0, o->depths)) > 0;
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
    o->engine = (engine_settings){ .model = "",
                                   .level = "auto",
                                   .cores = "",
                                   .kv_type = "f16",
                                   .page_tokens = 64,
                                   .prefix_reuse = true,
                                   .chunk_tokens = 512 };
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

static int decode_ramp(const options *o, int batch, int length);

// Settings that hold the largest case. STATUS_INVALID where the model's context does not.
static status settings_size(options *o, const model_config *c, int *length, error *failure)
{
    int batch = list_largest(o->batches, o->batch_count);
    int depth = list_largest(o->depths, o->depth_count);
    int decode = depth + o->generate + decode_ramp(o, batch, depth + 1) + 2;
    *length = depth + o->prompt + 2 > decode ? depth + o->prompt + 2 : decode;
    if (*length > c->context)
        return error_set(failure, STATUS_INVALID, "depth",
                         "depth and tokens make %d; the model's context is %d", *length,
                         c->context);
    int64_t pages = (int64_t)(*length / o->engine.page_tokens + 2) * batch;
    int64_t number_bytes = strcmp(o->engine.kv_type, "f32") == 0 ? 4 : 2;
    o->engine.kv_bytes = (uint64_t)(pages * o->engine.page_tokens * 2 * c->layers * c->kv_heads *
                                    c->head_size * number_bytes);
    o->engine.context = *length;
    o->engine.max_sequences = batch;
    o->engine.step_tokens = batch > o->engine.chunk_tokens ? batch : o->engine.chunk_tokens;
    return STATUS_OK;
}

// Open the engine for the largest case, and count what a row multiplies.
static status bench_open(bench *b, error *failure)
{
    options *o = &b->options;
    gguf *file = NULL;
    model_config c;
    int length;
    status result;
    TRY(gguf_open(o->engine.model, &file, failure));
    TRY(model_config_read(file, &c, failure));
    TRY(settings_size(o, &c, &length, failure));
    TRY(engine_open(&o->engine, &b->engine, failure));
    double q = (double)c.heads * c.head_size, kv = (double)c.kv_heads * c.head_size;
    b->work.layer_weights = c.layers * (double)c.width * (2 * q + 2 * kv + 3.0 * c.feed_forward);
    b->work.head_weights = (double)c.rows * c.width;
    size_t count = (size_t)length + (size_t)o->engine.max_sequences;
    b->tokens = calloc(count, sizeof b->tokens[0]);
    CHECK(b->tokens);
    for (size_t i = 0; i < count; i++)
        b->tokens[i] = (int32_t)((i * 7919 + 13) % (size_t)c.vocabulary);
fail:
    if (file)
        gguf_close(file);
    return result;
}

// Start a sequence; those of unlike `index` share no prefix.
static sequence *sequence_begin(bench *b, int index, int count, int max_tokens, sequence_mode mode)
{
    error failure = { 0 };
    sequence *s = NULL;
    sequence_request request = {
        .tokens = b->tokens + index,
        .token_count = count,
        .prompt_count = count,
        .mode = mode,
        .max_tokens = max_tokens,
        .ignore_eos = true,
        .sampling = { .top_p = 1, .typical_p = 1, .repetition_penalty = 1 },
    };
    if (engine_sequence_open(b->engine, &request, &s, &failure) != STATUS_OK) {
        fprintf(stderr, "penstock-bench engine: %s\n", failure.text);
        exit(1);
    }
    engine_sequence_start(b->engine, s);
    return s;
}

// One measured case: what was done and how long it took.
typedef struct measure {
    double seconds, tokens, weight_passes, kv_tokens, logit_rows;
} measure;

// The tokens before are left in the prefix cache by a first sequence, so `depth`
// counts in whole pages.
static measure prefill_measure(bench *b, int depth)
{
    engine_report report;
    measure m = { .logit_rows = 1 };
    engine_prefixes_drop(b->engine);
    if (depth > 0) {
        sequence *before = sequence_begin(b, 0, depth + 1, 1, SEQUENCE_PROMPT);
        while (engine_has_work(b->engine))
            engine_step(b->engine, &report);
        engine_sequence_close(b->engine, before, true);
    }
    sequence *s = sequence_begin(b, 0, depth + b->options.prompt, 1, SEQUENCE_PROMPT);
    m.tokens = depth + b->options.prompt - sequence_computed(s);
    double begun = bench_now();
    while (engine_has_work(b->engine)) {
        engine_step(b->engine, &report);
        m.weight_passes++;
        m.kv_tokens += sequence_computed(s);
    }
    m.seconds = bench_now() - begun;
    engine_sequence_close(b->engine, s, false);
    return m;
}

// Steps of `batch` prompts of `length` tokens before all of them decode, at most.
static int decode_ramp(const options *o, int batch, int length)
{
    return (int)((int64_t)batch * length / o->engine.chunk_tokens) + batch + 2;
}

// `generate` steps in which every sequence decodes and nothing else runs.
static measure decode_measure(bench *b, int batch, int depth)
{
    engine_report report;
    measure m = { 0 };
    sequence **all = calloc((size_t)batch, sizeof *all);
    int length = depth > 0 ? depth : 1, generate = b->options.generate;
    engine_prefixes_drop(b->engine);
    for (int i = 0; i < batch; i++)
        all[i] = sequence_begin(b, i, length, generate + decode_ramp(&b->options, batch, length),
                                SEQUENCE_GENERATE);
    do
        engine_step(b->engine, &report);
    while (report.token_count < batch);
    double begun = bench_now();
    for (int step = 0; step < generate; step++) {
        engine_step(b->engine, &report);
        CHECK(report.decode_rows == batch && report.rows == batch);
        m.weight_passes++;
        m.tokens += report.token_count;
        for (int i = 0; i < batch; i++)
            m.kv_tokens += sequence_computed(all[i]);
    }
    m.seconds = bench_now() - begun;
    m.logit_rows = m.tokens;
    for (int i = 0; i < batch; i++)
        engine_sequence_close(b->engine, all[i], false);
    free(all);
    return m;
}

static void measure_print(const bench *b, const char *what, int batch, int depth, const measure *m)
{
    const engine_facts *f = engine_facts_of(b->engine);
    double kv_token = (double)f->layout.page_bytes / f->layout.page_tokens;
    double bytes = m->weight_passes * (double)f->weight_bytes + m->kv_tokens * kv_token;
    double operations =
        2 * (m->tokens * b->work.layer_weights + m->logit_rows * b->work.head_weights);
    printf(b->options.json
               ? "{\"what\":\"%s\",\"tokens\":%.0f,\"batch\":%d,\"depth\":%d,"
                 "\"tokens_per_s\":%.6g,\"gb_per_s\":%.6g,\"gop_per_s\":%.6g}\n"
               : "%-8s tokens %6.0f  batch %3d  depth %5d  %9.2f tokens/s  %7.3f GB/s  %8.2f "
                 "GOP/s\n",
           what, m->tokens, batch, depth, m->tokens / m->seconds, bytes / m->seconds / 1e9,
           operations / m->seconds / 1e9);
    fflush(stdout);
}

static int measure_compare(const void *a, const void *b)
{
    const measure *x = a, *y = b;
    return (x->seconds > y->seconds) - (x->seconds < y->seconds);
}

// The median of the repeats; batch 0: a prefill.
static void case_run(bench *b, int batch, int depth)
{
    measure all[REPEATS_MAX];
    int repeats = b->options.repeats;
    for (int i = 0; i < repeats; i++)
        all[i] = batch == 0 ? prefill_measure(b, depth) : decode_measure(b, batch, depth);
    qsort(all, (size_t)repeats, sizeof all[0], measure_compare);
    measure_print(b, batch == 0 ? "prefill" : "decode", batch == 0 ? 1 : batch, depth,
                  &all[repeats / 2]);
}

static void limits_print(const bench *b)
{
    bench_limits l = bench_limits_measure(engine_facts_of(b->engine)->threads);
    const char *lines[] = {
        "{\"what\":\"limit\",\"name\":\"dram read\",\"threads\":%d,\"gb_per_s\":%.2f}\n",
        "limit    dram read, %d threads: %.2f GB/s\n",
        "{\"what\":\"limit\",\"name\":\"int8 multiply-add\",\"threads\":%d,\"gop_per_s\":%.1f,"
        "\"instruction\":\"%s\"}\n",
        "limit    int8 multiply-add, %d threads: %.1f GOP/s (%s)\n",
    };
    int threads = engine_facts_of(b->engine)->threads, plain = !b->options.json;
    if (l.read_gb_per_s > 0)
        printf(plain ? lines[1] : lines[0], threads, l.read_gb_per_s);
    if (l.int8_gop_per_s > 0)
        printf(plain ? lines[3] : lines[2], threads, l.int8_gop_per_s, l.instruction);
    fflush(stdout);
}

int bench_engine(int argc, char **argv)
{
    bench b = { 0 };
    error failure = { 0 };
    int stop = options_parse(argc, argv, &b.options);
    if (stop)
        return stop - 1;
    status result = bench_open(&b, &failure);
    if (result == STATUS_OK) {
        const options *o = &b.options;
        if (o->limits)
            limits_print(&b);
        for (int d = 0; d < o->depth_count; d++)
            case_run(&b, 0, o->depths[d]);
        for (int d = 0; d < o->depth_count; d++)
            for (int i = 0; i < o->batch_count; i++)
                case_run(&b, o->batches[i], o->depths[d]);
    } else {
        fprintf(stderr, "penstock-bench engine: %s\n", failure.text);
    }
    engine_close(b.engine);
    free(b.tokens);
    return result == STATUS_OK ? 0 : 1;
}
