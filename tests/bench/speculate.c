// penstock-bench speculate: what guessing tokens gains, as a decode worker does it.
//
// Each line of the prompts file is a JSON object: {"name", "text", "max_tokens"}; `text` is read
// with control tokens. A case is one prompt (or all of them, for `--batch` sequences in turn) at
// one temperature. It is served with guesses and without at once, in short turns, and the rates of
// the tokens behind the first one are compared; the texts must be the same. `--fixed` guesses that
// many tokens whether it pays or not, which shows what the controller should have chosen.
#include "bench.h"
#include "output.h"
#include "speculate.h"
#include "workload.h"

#include <getopt.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LIST_MAX 16
#define PROMPTS_MAX 64
#define TOKENS_MAX 4096
#define ROWS_MAX 512
#define WARM_TOKENS 64 // of each prompt that was served before

typedef struct options {
    engine_settings engine;
    const char *draft, *prompts_path, *svg;
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
    speculate_prompt prompts[PROMPTS_MAX];
    int prompt_count;
    bool found;                   // the one that is to be measured
    speculate_row rows[ROWS_MAX]; // of the picture
    int row_count;
} bench;

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
    "  --repeats N           of each case, which are counted together (default 3)\n"
    "  --svg FILE            draw gain by number of guesses\n"
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

static bool is_drafter(const char *name)
{
    const char *const *known = speculation_config_section.keys[0].among;
    while (*known && strcmp(*known, name) != 0)
        known++;
    if (!*known)
        fprintf(stderr, "penstock-bench speculate: there is no drafter named %s\n", name);
    return *known != NULL;
}

static bool drafters_parse(char *text, options *o)
{
    o->drafter_count = 0;
    for (char *name = strtok(text, ","); name; name = strtok(NULL, ",")) {
        if (o->drafter_count == LIST_MAX || !is_drafter(name))
            return false;
        o->drafters[o->drafter_count++] = name;
    }
    return o->drafter_count > 0;
}

static bool fixed_parse(const char *text, options *o)
{
    o->fixed_count = bench_list(text, 1, o->fixed, LIST_MAX);
    for (int i = 0; i < o->fixed_count; i++)
        if (o->fixed[i] > DRAFT_MAX) {
            fprintf(stderr, "penstock-bench speculate: --fixed is %d; at most %d can be guessed\n",
                    o->fixed[i], DRAFT_MAX);
            return false;
        }
    return o->fixed_count > 0;
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
        return drafters_parse(value, o);
    case 'T':
        return doubles_parse(value, o->temperatures, &o->temperature_count);
    case 'b':
        o->batch_count = bench_list(value, 1, o->batches, LIST_MAX);
        return o->batch_count > 0;
    case 'f':
        return fixed_parse(value, o);
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
    case 's':
        o->svg = value;
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
        { "model", 1, NULL, 'm' },   { "draft", 1, NULL, 'd' },   { "layers", 1, NULL, 'l' },
        { "prompts", 1, NULL, 'p' }, { "only", 1, NULL, 'o' },    { "drafters", 1, NULL, 'D' },
        { "batch", 1, NULL, 'b' },   { "fixed", 1, NULL, 'f' },   { "temperature", 1, NULL, 'T' },
        { "probe", 1, NULL, 'P' },   { "threads", 1, NULL, 't' }, { "repeats", 1, NULL, 'r' },
        { "svg", 1, NULL, 's' },     { "json", 0, NULL, 'j' },    { "max-tokens", 1, NULL, 'M' },
        { "help", 0, NULL, 'h' },    { NULL, 0, NULL, 0 },
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
    speculate_prompt *p = &b->prompts[b->prompt_count];
    json_error_t at;
    json_t *object = json_loads(line, 0, &at);
    const char *name, *text;
    status result = STATUS_OK;
    if (!object || json_unpack(object, "{s:s,s:s,s:i}", "name", &name, "text", &text, "max_tokens",
                               &p->max_tokens) != 0)
        TRY(error_set(failure, STATUS_INVALID, "prompts",
                      "a line of the prompts file is not {\"name\", \"text\", \"max_tokens\"}"));
    if (p->max_tokens < 2)
        TRY(error_set(failure, STATUS_INVALID, "max_tokens",
                      "max_tokens of prompt %s is %d; it must be 2 or more: the first one is not "
                      "measured",
                      name, p->max_tokens));
    TRY(encoder_encode_text(e, slice_of(text), true, TOKENS_MAX, &p->tokens, failure));
    p->name = strdup(name);
    if (b->o.max_tokens > 0 && b->o.max_tokens < p->max_tokens)
        p->max_tokens = b->o.max_tokens;
    b->prompt_count++;
    b->found = b->found || !b->o.only || strcmp(b->o.only, name) == 0;
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
    if (!b->found)
        result =
            error_set(failure, STATUS_INVALID, "prompts", "there is no prompt%s%s in %s",
                      b->o.only ? " named " : "", b->o.only ? b->o.only : "", b->o.prompts_path);
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

// ---- cases ------------------------------------------------------------------------------------

// A worker that has served all other prompts and never this one. NULL: it could not be opened.
static speculation *worker_new(bench *b, const speculation_settings *settings,
                               const speculate_work *work)
{
    error failure = { 0 };
    speculation *s = NULL;
    if (speculation_open(settings, &b->o.engine, b->engine, &s, &failure) != STATUS_OK) {
        fprintf(stderr, "penstock-bench speculate: %s\n", failure.text);
        return NULL;
    }
    // A fixed number of a model's guesses is learned from nothing.
    bool learns = settings->fixed == 0 || strcmp(settings->drafter, "model") != 0;
    for (int i = 0; learns && i < b->prompt_count; i++) {
        speculate_prompt other = b->prompts[i];
        speculate_work warm = { &other, 1, 1, work->temperature };
        if (other.max_tokens > WARM_TOKENS)
            other.max_tokens = WARM_TOKENS;
        if (work->prompt_count > 1 || &b->prompts[i] != work->prompts)
            speculate_serve(b->engine, s, &warm);
    }
    return s;
}

// Serve a row's case once more, by a new worker.
static bool case_serve(bench *b, const speculate_work *work, const speculate_row *row,
                       speculate_pair *all)
{
    speculation_settings settings = { .drafter = (char *)row->drafter,
                                      .model = b->o.draft ? (char *)b->o.draft : "",
                                      .layers = b->o.layers,
                                      .kv_bytes = 512 << 20,
                                      .prompt_tokens = 64,
                                      .tokens = row->fixed > 0 ? row->fixed : 16,
                                      .probe_percent = b->o.probe,
                                      .fixed = row->fixed,
                                      .step_us = 20000,
                                      .step_batch_us = 100000,
                                      .memory_tokens = 131072 };
    speculation *s = worker_new(b, &settings, work);
    if (!s)
        return false;
    speculate_serve_pair(b->engine, s, work, all);
    speculation_close(s);
    if (all->with.text != all->without.text)
        fprintf(stderr, "penstock-bench speculate: %s: the text with guesses is another one\n",
                row->name);
    return all->with.text == all->without.text;
}

// A drafter at one batch and temperature: as the controller chooses, then with each fixed number,
// then the best of them. Repeats are of all of these in turn: the machine may change meanwhile.
static bool drafter_run(bench *b, const speculate_work *work, const char *drafter)
{
    speculate_row *rows = &b->rows[b->row_count];
    speculate_pair pairs[LIST_MAX + 1] = { 0 };
    int count = 1 + b->o.fixed_count;
    if (b->row_count + count > ROWS_MAX) {
        fprintf(stderr, "penstock-bench speculate: more than %d rows\n", ROWS_MAX);
        return false;
    }
    for (int i = 0; i < count; i++)
        rows[i] = (speculate_row){ .name = work->prompt_count == 1 ? work->prompts->name : "all",
                                   .drafter = drafter,
                                   .batch = work->batch,
                                   .temperature = work->temperature,
                                   .fixed = i == 0 ? 0 : b->o.fixed[i - 1] };
    for (int i = 0; i < count * b->o.repeats; i++)
        if (!case_serve(b, work, &rows[i % count], &pairs[i % count]))
            return false;
    for (int i = 0; i < count; i++) {
        speculate_row_fill(&rows[i], &pairs[i]);
        speculate_row_print(&rows[i], b->o.json);
    }
    speculate_best_print(rows, count, b->o.json);
    b->row_count += count;
    return true;
}

static bool cases_run(bench *b)
{
    bool done = true;
    const options *o = &b->o;
    for (int t = 0; t < o->temperature_count; t++)
        for (int n = 0; n < o->batch_count; n++)
            for (int p = 0; p < (o->batches[n] == 1 ? b->prompt_count : 1); p++) {
                speculate_work work = { &b->prompts[p], o->batches[n] == 1 ? 1 : b->prompt_count,
                                        o->batches[n], o->temperatures[t] };
                if (o->only && work.batch == 1 && strcmp(o->only, b->prompts[p].name) != 0)
                    continue;
                for (int d = 0; d < o->drafter_count; d++)
                    done = drafter_run(b, &work, o->drafters[d]) && done;
            }
    return done;
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
    if (most > SPECULATE_BATCH_MAX)
        return error_set(failure, STATUS_INVALID, "batch", "--batch is %d; at most %d are possible",
                         most, SPECULATE_BATCH_MAX);
    s->max_sequences = 2 * most; // with guesses and without
    s->rewinds = true;           // so that a side may rest for the turn of the other
    s->draft_tokens = 32;
    s->step_tokens = 512;
    s->chunk_tokens = 256;
    s->context = tokens + 64;
    s->kv_bytes = (uint64_t)1 << 31;
    return engine_open(s, &b->engine, failure);
}

static status plot_write(const bench *b, error *failure)
{
    buffer text = { 0 };
    speculate_plot(b->rows, b->row_count, &text);
    status result = output_write(b->o.svg, &text, failure);
    buffer_close(&text);
    return result;
}

int bench_speculate(int argc, char **argv)
{
    static bench b;
    error failure = { 0 };
    bool done = false;
    status result;
    if (!options_parse(argc, argv, &b.o)) {
        fputs(usage_text, stderr);
        return 2;
    }
    TRY(prompts_read(&b, &failure));
    TRY(engine_size(&b, &failure));
    if (!b.o.json)
        speculate_heads_print();
    done = cases_run(&b);
    if (b.o.svg)
        TRY(plot_write(&b, &failure));
fail:
    if (result != STATUS_OK)
        fprintf(stderr, "penstock-bench speculate: %s\n", failure.text);
    for (int i = 0; i < b.prompt_count; i++) {
        token_list_close(&b.prompts[i].tokens);
        free(b.prompts[i].name);
    }
    engine_close(b.engine);
    return result == STATUS_OK && done ? 0 : 1;
}
