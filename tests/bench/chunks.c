// penstock-bench chunks: what a long prompt costs the answers that run beside it, by the size of
// its chunks.
//
// Some sequences decode; a prompt arrives and is computed in the same steps, `chunk` rows in each.
// A large chunk ends the prompt sooner, a small one keeps the gaps between tokens short: the sweep
// shows both, for choosing engine.mixed_tokens of a decode worker and engine.chunk_tokens of a
// prefill worker.
#include "bench.h"
#include "workload.h"

#include "checkpoint/gguf.h"
#include "model/config.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>

#define CHUNKS_MAX 16
#define ALONE_STEPS 64

typedef struct options {
    engine_settings engine;
    int decoders, depth, prompt;
    int chunks[CHUNKS_MAX], chunk_count;
    bool json;
} options;

static const char usage_text[] =
    "usage: penstock-bench chunks --model FILE [options]\n\n"
    "  --model FILE       a GGUF file\n"
    "  --threads N        compute threads; 0: what affinity and quota allow (default 0)\n"
    "  --decoders N       sequences that decode (default 8)\n"
    "  --depth N          tokens each of them has before (default 64)\n"
    "  --prompt N         tokens of the prompt that arrives (default 4000)\n"
    "  --chunks A,B,...   rows of it in a step (default 16,32,64,128,256,512)\n"
    "  --json             one JSON object a line\n";

// 0: run; else the exit status plus 1.
static int options_parse(int argc, char **argv, options *o)
{
    static const struct option names[] = {
        { "model", 1, NULL, 'm' }, { "threads", 1, NULL, 't' }, { "decoders", 1, NULL, 'd' },
        { "depth", 1, NULL, 'e' }, { "prompt", 1, NULL, 'p' },  { "chunks", 1, NULL, 'c' },
        { "json", 0, NULL, 'j' },  { "help", 0, NULL, 'h' },    { NULL, 0, NULL, 0 },
    };
    int threads = 0;
    *o = (options){ .decoders = 8, .depth = 64, .prompt = 4000 };
    o->engine = workload_settings("");
    o->chunk_count = bench_list("16,32,64,128,256,512", 1, o->chunks, CHUNKS_MAX);
    for (int name; (name = getopt_long(argc, argv, "", names, NULL)) != -1;) {
        bool good = name != '?';
        if (name == 'h') {
            fputs(usage_text, stdout);
            return 1;
        }
        if (name == 'm')
            o->engine.model = optarg;
        else if (name == 'j')
            o->json = true;
        else if (name == 'c')
            good = (o->chunk_count = bench_list(optarg, 1, o->chunks, CHUNKS_MAX)) > 0;
        else if (name == 't')
            good = bench_number(optarg, 0, &threads);
        else if (good)
            good = bench_number(optarg, 1,
                                name == 'd'   ? &o->decoders
                                : name == 'e' ? &o->depth
                                              : &o->prompt);
        if (!good)
            return 3;
    }
    o->engine.threads = threads;
    if (o->engine.model[0] == '\0' || optind < argc) {
        fputs(usage_text, stderr);
        return 3;
    }
    return 0;
}

// Tokens that a decoder makes at most: one in each step of the prompts, and those alone.
static int answer_tokens(const options *o, int chunk)
{
    return (o->prompt + o->decoders * o->depth) / chunk + ALONE_STEPS + o->decoders + 8;
}

static status settings_size(options *o, int chunk, error *failure)
{
    gguf *file = NULL;
    model_config c;
    status result;
    int decoder = o->depth + answer_tokens(o, chunk) + 1;
    int length = decoder > o->prompt + 2 ? decoder : o->prompt + 2;
    TRY(gguf_open(o->engine.model, &file, failure));
    TRY(model_config_read(file, &c, failure));
    o->engine.kv_bytes =
        workload_pool_bytes(&o->engine, c.layers, c.kv_heads, c.head_size, o->decoders + 1, length);
    o->engine.context = length;
    o->engine.max_sequences = o->decoders + 1;
    o->engine.chunk_tokens = chunk;
    o->engine.mixed_tokens = chunk;
    o->engine.step_tokens = chunk + o->decoders;
    if (length > c.context)
        result =
            error_set(failure, STATUS_CONTEXT_LENGTH, "prompt",
                      "this needs a context of %d tokens; the model's is %d", length, c.context);
fail:
    if (file)
        gguf_close(file);
    return result;
}

static void decoders_begin(const options *o, engine *e, int chunk)
{
    engine_report report;
    for (int i = 0; i < o->decoders; i++)
        workload_begin(e, i, o->depth, answer_tokens(o, chunk), SEQUENCE_GENERATE, NULL);
    do
        engine_step(e, &report);
    while (report.token_count < o->decoders);
}

static void chunk_run(const options *o, engine *e, int chunk)
{
    engine_report report;
    double gaps[ALONE_STEPS], largest = 0, steps = 0;
    decoders_begin(o, e, chunk);
    for (int i = 0; i < ALONE_STEPS; i++) {
        engine_step(e, &report);
        gaps[i] = (double)report.duration_us * 1e-6;
    }
    double alone = bench_percentile(gaps, ALONE_STEPS, 50), begun = bench_now();
    const sequence *prompt = workload_begin(e, o->decoders, o->prompt, 1, SEQUENCE_PROMPT, NULL);
    while (sequence_computed(prompt) < o->prompt) {
        engine_step(e, &report);
        CHECK(report.decode_rows == o->decoders);
        double gap = (double)report.duration_us * 1e-6;
        largest = gap > largest ? gap : largest;
        steps++;
    }
    double seconds = bench_now() - begun;
    printf(o->json ? "{\"what\":\"chunks\",\"chunk\":%d,\"prefill_tokens_per_s\":%.1f,"
                     "\"prompt_s\":%.3f,\"gap_alone_s\":%.5f,\"gap_mean_s\":%.5f,"
                     "\"gap_largest_s\":%.5f}\n"
                   : "chunk %4d  prefill %8.1f tokens/s, prompt done in %6.3f s  gap alone %.5f s, "
                     "beside it mean %.5f s, largest %.5f s\n",
           chunk, o->prompt / seconds, seconds, alone, seconds / steps, largest);
    fflush(stdout);
}

int bench_chunks(int argc, char **argv)
{
    options o;
    error failure = { 0 };
    int stop = options_parse(argc, argv, &o);
    if (stop)
        return stop - 1;
    for (int i = 0; i < o.chunk_count; i++) {
        engine *e = NULL;
        if (settings_size(&o, o.chunks[i], &failure) != STATUS_OK ||
            engine_open(&o.engine, &e, &failure) != STATUS_OK) {
            fprintf(stderr, "penstock-bench chunks: %s\n", failure.text);
            return 1;
        }
        chunk_run(&o, e, o.chunks[i]);
        engine_close(e);
    }
    return 0;
}
