// penstock-bench batching: what continuous batching gains over static batching.
//
// The same requests go through one engine twice: once each answer that ends makes room for the next
// at once (continuous), once a batch is only begun when the one before has ended entirely (static).
// Lengths of answers are drawn log-uniformly between two bounds, so most are short and some are
// long, as in a chat; all requests wait from the beginning, which is the case that flatters static
// batching most.
#include "bench.h"
#include "workload.h"

#include "base/random.h"
#include "checkpoint/gguf.h"
#include "model/config.h"

#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

typedef struct options {
    engine_settings engine;
    int sequences, requests, prompt, shortest, longest, seed;
    bool json;
} options;

// What a run did.
typedef struct outcome {
    double seconds, tokens, steps, rows;
} outcome;

static const char usage_text[] =
    "usage: penstock-bench batching --model FILE [options]\n\n"
    "  --model FILE       a GGUF file\n"
    "  --threads N        compute threads; 0: what affinity and quota allow (default 0)\n"
    "  --sequences N      answers at a time (default 16)\n"
    "  --requests N       in all (default 64)\n"
    "  --prompt N         tokens of each prompt (default 32)\n"
    "  --shortest N       tokens of the shortest answer (default 20)\n"
    "  --longest N        tokens of the longest answer (default 2000)\n"
    "  --seed N           of the lengths (default 1)\n"
    "  --json             one JSON object a line\n";

// 0: run; else the exit status plus 1.
static int options_parse(int argc, char **argv, options *o)
{
    // Numbers have their place in `numbers` below.
    static const struct option names[] = {
        { "model", 1, NULL, 'm' },  { "threads", 1, NULL, 0 }, { "sequences", 1, NULL, 1 },
        { "requests", 1, NULL, 2 }, { "prompt", 1, NULL, 3 },  { "shortest", 1, NULL, 4 },
        { "longest", 1, NULL, 5 },  { "seed", 1, NULL, 6 },    { "json", 0, NULL, 'j' },
        { "help", 0, NULL, 'h' },   { NULL, 0, NULL, 0 },
    };
    int threads = 0;
    *o =
        (options){ .sequences = 16, .requests = 64, .prompt = 32, .shortest = 20, .longest = 2000 };
    o->engine = workload_settings("");
    o->seed = 1;
    int *const numbers[] = { &threads,     &o->sequences, &o->requests, &o->prompt,
                             &o->shortest, &o->longest,   &o->seed };
    for (int name; (name = getopt_long(argc, argv, "", names, NULL)) != -1;) {
        if (name == 'h') {
            fputs(usage_text, stdout);
            return 1;
        }
        if (name == 'm')
            o->engine.model = optarg;
        else if (name == 'j')
            o->json = true;
        else if (name == '?' || !bench_number(optarg, name == 0 ? 0 : 1, numbers[name]))
            return 3;
    }
    o->engine.threads = threads;
    if (o->engine.model[0] == '\0' || optind < argc || o->shortest > o->longest) {
        fputs(usage_text, stderr);
        return 3;
    }
    return 0;
}

static status settings_size(options *o, error *failure)
{
    gguf *file = NULL;
    model_config c;
    status result;
    int length = o->prompt + o->longest + 1;
    TRY(gguf_open(o->engine.model, &file, failure));
    TRY(model_config_read(file, &c, failure));
    o->engine.kv_bytes =
        workload_pool_bytes(&o->engine, c.layers, c.kv_heads, c.head_size, o->sequences, length);
    o->engine.context = length;
    o->engine.max_sequences = o->sequences;
    o->engine.step_tokens = o->engine.chunk_tokens + o->sequences;
    if (length > c.context)
        result = error_set(failure, STATUS_CONTEXT_LENGTH, "longest",
                           "prompt and longest answer make %d; the model's context is %d", length,
                           c.context);
fail:
    if (file)
        gguf_close(file);
    return result;
}

// Log-uniform between the bounds.
static int answer_length(const options *o, int number)
{
    uint64_t bits = random_token_bits(random_row_key((uint64_t)o->seed, 0, (uint64_t)number), 0);
    double u = (double)(bits >> 11) * 0x1p-53;
    return (int)lround(o->shortest * pow((double)o->longest / o->shortest, u));
}

static outcome run(const options *o, engine *e)
{
    outcome done = { 0 };
    engine_report report;
    int begun = 0, ended = 0;
    double start = bench_now();
    while (ended < o->requests) {
        sequence *s;
        while (begun < o->requests && engine_sequences_open(e) < o->sequences &&
               workload_try(e, begun, o->prompt, answer_length(o, begun), SEQUENCE_GENERATE, NULL,
                            &s) == STATUS_OK)
            begun++;
        engine_step(e, &report);
        CHECK(report.preempted_count == 0); // the pool holds every answer at its longest
        done.steps++;
        done.rows += report.decode_rows;
        done.tokens += report.token_count;
        for (int i = 0; i < report.token_count; i++)
            if (report.tokens[i].finish != SEQUENCE_UNFINISHED) {
                engine_sequence_close(e, report.tokens[i].sequence, false);
                ended++;
            }
    }
    done.seconds = bench_now() - start;
    return done;
}

static status batching_run(options *o, char *batching, outcome *done, error *failure)
{
    engine *e = NULL;
    o->engine.batching = batching;
    status result = engine_open(&o->engine, &e, failure);
    if (result != STATUS_OK)
        return result;
    *done = run(o, e);
    printf(o->json ? "{\"what\":\"batching\",\"batching\":\"%s\",\"tokens\":%.0f,\"seconds\":%.3f,"
                     "\"tokens_per_s\":%.2f,\"rows_per_step\":%.3f}\n"
                   : "%-10s %7.0f tokens in %7.3f s  %8.2f tokens/s  %6.2f answers a step\n",
           batching, done->tokens, done->seconds, done->tokens / done->seconds,
           done->rows / done->steps);
    fflush(stdout);
    engine_close(e);
    return STATUS_OK;
}

int bench_batching(int argc, char **argv)
{
    options o;
    outcome continuous, static_;
    error failure = { 0 };
    int stop = options_parse(argc, argv, &o);
    if (stop)
        return stop - 1;
    status result;
    TRY(settings_size(&o, &failure));
    TRY(batching_run(&o, "continuous", &continuous, &failure));
    TRY(batching_run(&o, "static", &static_, &failure));
    if (!o.json)
        printf("continuous batching gives %.2fx the tokens a second\n",
               static_.seconds / continuous.seconds);
    return 0;
fail:
    fprintf(stderr, "penstock-bench batching: %s\n", failure.text);
    return result != STATUS_OK;
}
