// penstock-bench speculate: what guessing tokens gains, as a decode worker does it.
//
// Each line of the prompts file is a JSON object: {"name", "text", "max_tokens"}; `text` is read
// with control tokens. A case is one prompt (or all of them, for `--batch` sequences in turn) at
// one temperature. It is served without guesses and with each drafter, by turns, and the rates of
// the tokens behind the first one are compared; the texts must be the same. `--fixed` guesses that
// many tokens whether it pays or not, which shows what the controller should have chosen.
#include "bench.h"
#include "workload.h"

#include "decode_worker/speculate/speculation.h"
#include "text/encoder.h"

#include <getopt.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LIST_MAX 16
#define BATCH_MAX 64
#define PROMPTS_MAX 64
#define TOKENS_MAX 4096

typedef struct prompt {
    char *name;
    token_list tokens;
    int max_tokens;
} prompt;

typedef struct options {
    engine_settings engine;
    const char *draft, *prompts_path;
    int layers;
    const char *only; // a prompt's name; NULL: each
    int batches[LIST_MAX], batch_count, fixed[LIST_MAX], fixed_count, repeats, probe;
    int max_tokens; // 0: as each prompt says
    double temperatures[LIST_MAX];
    int temperature_count;
    char *drafters[LIST_MAX];
    int drafter_count;
    bool json;
} options;

typedef struct bench {
    options o;
    engine *engine;
    speculation *speculation; // NULL: off
    prompt prompts[PROMPTS_MAX];
    int prompt_count;
} bench;

// One case served once.
typedef struct outcome {
    double seconds; // from the first token of the last sequence to the end
    double tokens;  // drawn in that time
    uint64_t text;  // hash of all tokens
    double steps, on, drafted, accepted, rejected; // `on`: steps with guesses
} outcome;

static const char usage_text[] =
    "usage: penstock-bench speculate --model FILE --prompts FILE [options]\n\n"
    "  --model FILE          the GGUF file that is served\n"
    "  --draft FILE          a small one of the same vocabulary that guesses for it\n"
    "  --layers N            or the first layers of the served model\n"
    "  --prompts FILE        JSON Lines of {\"name\", \"text\", \"max_tokens\"}\n"
    "  --only NAME           measure this prompt alone; the others only come before it\n"
    "  --drafters A,B        of ngram, suffix, model, auto (default auto)\n"
    "  --batch N,M           sequences at a time (default 1); more than one: prompts in turn\n"
    "  --temperature X,Y     (default 0)\n"
    "  --fixed N,M           also guess so many tokens whether it pays or not\n"
    "  --probe N             percent of the steps that probe where it does not pay (default 1)\n"
    "  --threads N           compute threads; 0: what affinity and quota allow (default 0)\n"
    "  --max-tokens N        of each answer, at most\n"
    "  --repeats N           of which the median counts (default 3)\n"
    "  --json                one JSON object a line\n";

static bool doubles_parse(const char *text, double *values, int *count)
{
    char *end;
    *count = 0;
    do {
        values[(*count)++] = strtod(text, &end);
        if (end == text || *count == LIST_MAX)
            return false;
        text = end + 1;
    } while (*end == ',');
    return *end == '\0';
}

static bool names_parse(char *text, char **names, int *count)
{
    *count = 0;
    for (char *name = strtok(text, ","); name; name = strtok(NULL, ",")) {
        if (*count == LIST_MAX)
            return false;
        names[(*count)++] = name;
    }
    return *count > 0;
}

static bool option_take(options *o, int name, char *value)
{
    int number = 0;
    switch (name) {
    case 'm':
        o->engine.model = value;
        return true;
    case 'd':
        o->draft = value;
        return true;
    case 'l':
        return bench_number(value, 1, &o->layers);
    case 'p':
        o->prompts_path = value;
        return true;
    case 'o':
        o->only = value;
        return true;
    case 'D':
        return names_parse(value, o->drafters, &o->drafter_count);
    case 'T':
        return doubles_parse(value, o->temperatures, &o->temperature_count);
    case 'b':
        o->batch_count = bench_list(value, 1, o->batches, LIST_MAX);
        return o->batch_count > 0;
    case 'f':
        o->fixed_count = bench_list(value, 1, o->fixed, LIST_MAX);
        return o->fixed_count > 0;
    case 'P':
        return bench_number(value, 0, &o->probe);
    case 'M':
        return bench_number(value, 2, &o->max_tokens);
    case 'r':
        return bench_number(value, 1, &o->repeats) && o->repeats <= LIST_MAX;
    case 't':
        if (!bench_number(value, 0, &number))
            return false;
        o->engine.threads = number;
        return true;
    case 'j':
        return o->json = true;
    default:
        return false;
    }
}

static bool options_parse(int argc, char **argv, options *o)
{
    static const struct option names[] = {
        { "model", 1, NULL, 'm' },       { "draft", 1, NULL, 'd' },
        { "layers", 1, NULL, 'l' },      { "prompts", 1, NULL, 'p' },
        { "only", 1, NULL, 'o' },        { "drafters", 1, NULL, 'D' },
        { "batch", 1, NULL, 'b' },       { "fixed", 1, NULL, 'f' },
        { "temperature", 1, NULL, 'T' }, { "probe", 1, NULL, 'P' },
        { "threads", 1, NULL, 't' },     { "repeats", 1, NULL, 'r' },
        { "json", 0, NULL, 'j' },        { "max-tokens", 1, NULL, 'M' },
        { "help", 0, NULL, 'h' },        { NULL, 0, NULL, 0 },
    };
    *o = (options){ .batches = { 1 },
                    .batch_count = 1,
                    .temperature_count = 1,
                    .drafters = { "auto" },
                    .drafter_count = 1,
                    .repeats = 3,
                    .probe = 1 };
    o->engine = workload_settings("");
    for (int name; (name = getopt_long(argc, argv, "", names, NULL)) != -1;)
        if (!option_take(o, name, optarg))
            return false;
    return o->engine.model[0] != '\0' && o->prompts_path && optind == argc;
}

// ---- prompts ----------------------------------------------------------------------------------

static status prompt_read(bench *b, encoder *e, const char *line, error *failure)
{
    prompt *p = &b->prompts[b->prompt_count];
    json_error_t at;
    json_t *object = json_loads(line, 0, &at);
    const char *name, *text;
    status result = STATUS_OK;
    if (!object || json_unpack(object, "{s:s,s:s,s:i}", "name", &name, "text", &text, "max_tokens",
                               &p->max_tokens) != 0)
        TRY(error_set(failure, STATUS_INVALID, "prompts",
                      "a line of the prompts file is not {\"name\", \"text\", \"max_tokens\"}"));
    TRY(encoder_encode_text(e, slice_of(text), true, TOKENS_MAX, &p->tokens, failure));
    p->name = strdup(name);
    if (b->o.max_tokens > 0 && b->o.max_tokens < p->max_tokens)
        p->max_tokens = b->o.max_tokens;
    b->prompt_count++;
fail:
    json_decref(object);
    return result;
}

static status prompts_read(bench *b, error *failure)
{
    gguf *file = NULL;
    tokenizer *tokens = NULL;
    encoder *e = NULL;
    char *line = NULL;
    size_t size = 0;
    status result = STATUS_OK;
    FILE *prompts = fopen(b->o.prompts_path, "r");
    if (!prompts)
        TRY(error_set(failure, STATUS_IO, "prompts", "%s cannot be read", b->o.prompts_path));
    TRY(gguf_open(b->o.engine.model, &file, failure));
    TRY(tokenizer_open(file, &tokens, failure));
    TRY(encoder_open(tokens, &e));
    while (b->prompt_count < PROMPTS_MAX && getline(&line, &size, prompts) > 0)
        TRY(prompt_read(b, e, line, failure));
    if (b->prompt_count == 0)
        result = error_set(failure, STATUS_INVALID, "prompts", "there is no such prompt in %s",
                           b->o.prompts_path);
fail:
    free(line);
    encoder_close(e);
    tokenizer_close(tokens);
    if (file)
        gguf_close(file);
    if (prompts)
        fclose(prompts);
    return result;
}

// ---- serving ----------------------------------------------------------------------------------

typedef struct client {
    sequence *sequence;
    int32_t slot, drawn;
    bool ended;
    const prompt *prompt;
} client;

static void client_begin(bench *b, client *c, const prompt *p, double temperature, int number)
{
    error failure = { 0 };
    sequence_request r = {
        .tokens = p->tokens.ids,
        .token_count = (int32_t)p->tokens.count,
        .prompt_count = (int32_t)p->tokens.count,
        .max_tokens = p->max_tokens,
        .owner = c,
        .sampling = { .temperature = (float)temperature,
                      .top_p = 1,
                      .typical_p = 1,
                      .repetition_penalty = 1,
                      .seed = (uint64_t)number },
    };
    *c = (client){ .prompt = p, .slot = -1 };
    if (engine_sequence_open(b->engine, &r, &c->sequence, &failure) != STATUS_OK) {
        fprintf(stderr, "penstock-bench speculate: %s\n", failure.text);
        exit(1);
    }
    engine_sequence_start(b->engine, c->sequence);
    if (b->speculation)
        c->slot = speculation_begin(b->speculation, &r, "");
}

// One step of all; true while some generate or compute.
static bool step(bench *b, client *clients, int batch, outcome *done)
{
    engine_report report;
    speculation_item items[BATCH_MAX];
    int32_t running = 0;
    bool prompts = false;
    for (int i = 0; i < batch; i++) {
        if (clients[i].drawn > 0 && !clients[i].ended)
            items[running++] = (speculation_item){ .sequence = clients[i].sequence, .slot = clients[i].slot };
        prompts = prompts || clients[i].drawn == 0;
    }
    if (b->speculation)
        speculation_guess(b->speculation, b->engine, items, running, prompts);
    engine_step(b->engine, &report);
    if (b->speculation)
        speculation_learn(b->speculation, &report);
    for (int32_t i = 0; i < report.token_count; i++) {
        client *c = report.tokens[i].owner;
        int32_t token = report.tokens[i].sampled.token;
        c->drawn++;
        c->ended = report.tokens[i].finish != SEQUENCE_UNFINISHED;
        done->text +=
            hash64_of(&token, sizeof token, (uint64_t)(c - clients) << 32 | (uint32_t)c->drawn);
    }
    done->tokens += report.token_count;
    done->steps++;
    return engine_has_work(b->engine);
}

static outcome serve(bench *b, const prompt *first, int batch, double temperature)
{
    client clients[BATCH_MAX];
    outcome done = { 0 };
    bool all = false;
    for (int i = 0; i < batch; i++)
        client_begin(b, &clients[i], batch == 1 ? first : &b->prompts[i % b->prompt_count],
                     temperature, i + 1);
    while (!all && step(b, clients, batch, &done)) {
        all = true;
        for (int i = 0; i < batch; i++)
            all = all && clients[i].drawn > 0;
    }
    while (b->speculation && speculation_work(b->speculation))
        ; // as while a seat waits for its pages
    done.tokens = done.steps = 0;
    double begun = bench_now();
    while (engine_has_work(b->engine))
        step(b, clients, batch, &done);
    done.seconds = bench_now() - begun;
    for (int i = 0; i < batch; i++) {
        int32_t count;
        const int32_t *tokens = sequence_tokens(clients[i].sequence, &count);
        if (b->speculation)
            speculation_end(b->speculation, clients[i].slot, tokens,
                            (int32_t)clients[i].prompt->tokens.count, count);
        engine_sequence_close(b->engine, clients[i].sequence, false);
    }
    engine_prefixes_drop(b->engine);
    return done;
}

// ---- cases ------------------------------------------------------------------------------------

// Of all drafters since the speculation was opened.
static outcome totals(const speculation *p)
{
    outcome o = { 0 };
    speculation_stats s;
    speculation_stats_of(p, &s);
    for (int i = 0; i < SPECULATION_DRAFTERS; i++) {
        o.drafted += (double)s.drafters[i].drafted;
        o.accepted += (double)s.drafters[i].accepted;
        o.rejected += (double)s.drafters[i].rejected;
    }
    o.on = (double)s.steps_on;
    return o;
}

static void print(const bench *b, const char *name, int batch, double temperature,
                  const char *drafter, int fixed, const outcome *o, double rate, double ratio)
{
    double outcomes = o->accepted + o->rejected;
    double alpha = outcomes > 0 ? o->accepted / outcomes : 0;
    double share = o->drafted > 0 ? o->accepted / o->drafted : 0;
    double a_step = o->tokens / o->steps / batch, on = o->on / o->steps;
    if (b->o.json)
        printf(
            "{\"what\":\"speculate\",\"prompt\":\"%s\",\"batch\":%d,\"temperature\":%g,"
            "\"drafter\":\"%s\",\"fixed\":%d,\"tokens_per_s\":%.2f,\"ratio\":%.3f,\"alpha\":%.3f,"
            "\"accepted_share\":%.3f,\"tokens_per_step\":%.2f,\"on\":%.3f}\n",
            name, batch, temperature, drafter, fixed, rate, ratio, alpha, share, a_step, on);
    else
        printf("%-10s %5d %5.2f  %-7s %3d  %9.1f  %6.2fx  %6.3f  %6.3f  %6.2f  %5.2f\n", name,
               batch, temperature, drafter, fixed, rate, ratio, alpha, share, a_step, on);
    fflush(stdout);
}

// As a worker that has served all other prompts and never this one. NULL: it could not be opened.
static speculation *speculation_new(bench *b, const speculation_settings *settings, const prompt *p,
                                    double temperature)
{
    error failure = { 0 };
    if (speculation_open(settings, &b->o.engine, b->engine, &b->speculation, &failure) !=
        STATUS_OK) {
        fprintf(stderr, "penstock-bench speculate: %s\n", failure.text);
        return b->speculation = NULL;
    }
    for (int i = 0; i < b->prompt_count; i++)
        if (&b->prompts[i] != p)
            serve(b, &b->prompts[i], 1, temperature);
    return b->speculation;
}

// With guesses and without, by turns. False: the texts differ, or it could not be opened.
static bool case_run(bench *b, const prompt *p, int batch, double temperature, const char *drafter,
                     int fixed)
{
    speculation_settings settings = { .drafter = (char *)drafter,
                                      .model = b->o.draft ? (char *)b->o.draft : "",
                                      .layers = b->o.layers,
                                      .kv_bytes = 512 << 20,
                                      .prompt_tokens = 64,
                                      .tokens = fixed > 0 ? fixed : 16,
                                      .probe_percent = b->o.probe,
                                      .fixed = fixed,
                                      .step_us = 20000,
                                      .memory_tokens = 131072 };
    double off[LIST_MAX], on[LIST_MAX], ratios[LIST_MAX];
    outcome before = { 0 }, after = { 0 }, with = { 0 };
    bool same = true;
    for (int i = 0; i < b->o.repeats; i++) {
        speculation *s = speculation_new(b, &settings, p, temperature);
        if (!s)
            return false;
        before = totals(s);
        with = serve(b, p, batch, temperature);
        after = totals(s);
        speculation_close(s);
        b->speculation = NULL;
        outcome without = serve(b, p, batch, temperature);
        same = same && with.text == without.text;
        off[i] = without.tokens / without.seconds;
        on[i] = with.tokens / with.seconds;
        ratios[i] = on[i] / off[i];
    }
    with.on = after.on - before.on;
    with.drafted = after.drafted - before.drafted;
    with.accepted = after.accepted - before.accepted;
    with.rejected = after.rejected - before.rejected;
    size_t n = (size_t)b->o.repeats;
    outcome plain = { .tokens = batch, .steps = 1 };
    const char *name = batch == 1 ? p->name : "all";
    print(b, name, batch, temperature, "off", 0, &plain, bench_percentile(off, n, 50), 1);
    print(b, name, batch, temperature, drafter, fixed, &with, bench_percentile(on, n, 50),
          bench_percentile(ratios, n, 50));
    if (!same)
        fprintf(stderr, "penstock-bench speculate: %s: the text with guesses is another one\n",
                name);
    return same;
}

static bool cases_run(bench *b)
{
    bool same = true;
    const options *o = &b->o;
    for (int t = 0; t < o->temperature_count; t++)
        for (int n = 0; n < o->batch_count; n++)
            for (int p = 0; p < (o->batches[n] == 1 ? b->prompt_count : 1); p++) {
                if (o->only && o->batches[n] == 1 && strcmp(o->only, b->prompts[p].name) != 0)
                    continue;
                for (int d = 0; d < o->drafter_count; d++)
                    for (int f = -1; f < o->fixed_count; f++)
                        same = case_run(b, &b->prompts[p], o->batches[n], o->temperatures[t],
                                        o->drafters[d], f < 0 ? 0 : o->fixed[f]) &&
                               same;
            }
    return same;
}

static status engine_size(bench *b, error *failure)
{
    int most = 1, tokens = 0;
    engine_settings *s = &b->o.engine;
    for (int i = 0; i < b->o.batch_count; i++)
        most = b->o.batches[i] > most ? b->o.batches[i] : most;
    for (int i = 0; i < b->prompt_count; i++) {
        int needed = (int)b->prompts[i].tokens.count + b->prompts[i].max_tokens + 1;
        tokens = needed > tokens ? needed : tokens;
    }
    if (most > BATCH_MAX)
        return error_set(failure, STATUS_INVALID, "batch", "--batch is %d; at most %d are possible",
                         most, BATCH_MAX);
    s->max_sequences = most;
    s->draft_tokens = 32;
    s->step_tokens = 512;
    s->chunk_tokens = 256;
    s->context = tokens + 64;
    s->kv_bytes = (uint64_t)1 << 31;
    return engine_open(s, &b->engine, failure);
}

int bench_speculate(int argc, char **argv)
{
    static bench b;
    error failure = { 0 };
    bool same = false;
    status result;
    if (!options_parse(argc, argv, &b.o)) {
        fputs(usage_text, stderr);
        return 2;
    }
    TRY(prompts_read(&b, &failure));
    TRY(engine_size(&b, &failure));
    if (!b.o.json)
        printf("%-10s %5s %5s  %-7s %3s  %9s  %7s  %6s  %6s  %6s  %5s\n", "prompt", "batch", "temp",
               "drafter", "g", "tokens/s", "ratio", "alpha", "share", "a step", "on");
    same = cases_run(&b);
fail:
    if (result != STATUS_OK)
        fprintf(stderr, "penstock-bench speculate: %s\n", failure.text);
    for (int i = 0; i < b.prompt_count; i++) {
        token_list_close(&b.prompts[i].tokens);
        free(b.prompts[i].name);
    }
    engine_close(b.engine);
    return result == STATUS_OK && same ? 0 : 1;
}
