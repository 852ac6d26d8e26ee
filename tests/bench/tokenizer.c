// penstock-bench tokenizer: how fast a model's tokenizer reads a text, on one core.
//
// first: an encoder that has seen nothing. again: the same encoder on the same text, so that short
// pieces come from its cache, as in a router that has run for a while. Times are CPU time of the
// one thread; each figure is the median of the repeats, and the best is beside it in the JSON form.
#include "bench.h"

#include "text/detokenizer.h"
#include "text/encoder.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MODELS_MAX 16
#define REPEATS_MAX 101
#define TEXT_BYTES_MAX (64 << 20)

typedef struct options {
    const char *models[MODELS_MAX], *text;
    int model_count, repeats;
    bool json;
} options;

// Seconds of each repeat.
typedef struct timing {
    double first[REPEATS_MAX], again[REPEATS_MAX], decode[REPEATS_MAX];
    size_t tokens;
} timing;

static const char usage_text[] =
    "usage: penstock-bench tokenizer --model FILE [--model FILE ...] --text FILE [options]\n\n"
    "  --model FILE       a GGUF file; repeatable\n"
    "  --text FILE        what to encode, UTF-8\n"
    "  --repeats N        of which the median counts (default 15)\n"
    "  --json             one JSON object a line\n";

static bool options_parse(int argc, char **argv, options *o)
{
    static const struct option known[] = {
        { "model", required_argument, NULL, 'm' },   { "text", required_argument, NULL, 't' },
        { "repeats", required_argument, NULL, 'r' }, { "json", no_argument, NULL, 'j' },
        { "help", no_argument, NULL, 'h' },          { 0 },
    };
    *o = (options){ .repeats = 15 };
    for (int c; (c = getopt_long(argc, argv, "", known, NULL)) != -1;) {
        if (c == 'm' && o->model_count < MODELS_MAX)
            o->models[o->model_count++] = optarg;
        else if (c == 't')
            o->text = optarg;
        else if (c == 'r')
            o->repeats = atoi(optarg);
        else if (c == 'j')
            o->json = true;
        else
            return false;
    }
    return optind == argc && o->model_count > 0 && o->text && o->repeats >= 1 &&
           o->repeats <= REPEATS_MAX;
}

static bool text_read(const char *path, buffer *text)
{
    FILE *file = fopen(path, "rb");
    char part[65536];
    text->limit = TEXT_BYTES_MAX;
    if (!file)
        return false;
    for (size_t size; (size = fread(part, 1, sizeof part, file)) > 0;)
        buffer_append(text, part, size);
    bool good = !ferror(file) && !text->overflow && text->size > 0;
    fclose(file);
    return good;
}

static double cpu_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static status encode_time(encoder *e, slice text, token_list *list, double *seconds, error *failure)
{
    list->count = 0;
    double begin = cpu_now();
    status result = encoder_encode_text(e, text, false, SIZE_MAX, list, failure);
    *seconds = cpu_now() - begin;
    return result;
}

static double decode_time(const tokenizer *t, const token_list *list, buffer *text)
{
    detokenizer d = detokenizer_begin(t, false);
    buffer_clear(text);
    double begin = cpu_now();
    for (size_t i = 0; i < list->count; i++)
        detokenizer_push(&d, list->ids[i], text);
    return cpu_now() - begin;
}

static status repeats_run(const tokenizer *t, slice text, int repeats, timing *times,
                          error *failure)
{
    token_list list = { 0 };
    buffer decoded = { 0 };
    encoder *e = NULL;
    double ignored; // the first repeat grows the list and warms the machine
    status result = STATUS_OK;
    for (int i = -1; i < repeats; i++) {
        TRY(encoder_open(t, &e));
        TRY(encode_time(e, text, &list, i < 0 ? &ignored : &times->first[i], failure));
        TRY(encode_time(e, text, &list, i < 0 ? &ignored : &times->again[i], failure));
        ignored = decode_time(t, &list, &decoded);
        if (i >= 0)
            times->decode[i] = ignored;
        encoder_close(e);
        e = NULL;
    }
    times->tokens = list.count;
fail:
    encoder_close(e);
    token_list_close(&list);
    buffer_close(&decoded);
    return result;
}

static void print(const options *o, const char *model, size_t bytes, timing *times)
{
    const char *name = strrchr(model, '/') ? strrchr(model, '/') + 1 : model;
    size_t n = (size_t)o->repeats;
    double mb = (double)bytes * 1e-6, per_token = (double)bytes / (double)times->tokens;
    double first = mb / bench_percentile(times->first, n, 50);
    double again = mb / bench_percentile(times->again, n, 50);
    double decode = mb / bench_percentile(times->decode, n, 50);
    if (o->json)
        printf("{\"what\": \"tokenizer\", \"model\": \"%s\", \"bytes\": %zu, \"tokens\": %zu, "
               "\"first_mb_per_s\": %.2f, \"first_best_mb_per_s\": %.2f, \"again_mb_per_s\": %.2f, "
               "\"again_best_mb_per_s\": %.2f, \"decode_mb_per_s\": %.1f}\n",
               name, bytes, times->tokens, first, mb / times->first[0], again, mb / times->again[0],
               decode);
    else
        printf("%-44s %6.2f %9.1f %9.1f %9.0f\n", name, per_token, first, again, decode);
}

static status model_run(const options *o, const char *path, slice text, error *failure)
{
    gguf *file = NULL;
    tokenizer *t = NULL;
    timing *times = calloc(1, sizeof *times);
    status result = STATUS_NO_MEMORY;
    if (!times)
        goto fail;
    TRY(gguf_open(path, &file, failure));
    TRY(tokenizer_open(file, &t, failure));
    TRY(repeats_run(t, text, o->repeats, times, failure));
    print(o, path, text.size, times);
fail:
    free(times);
    tokenizer_close(t);
    gguf_close(file);
    return result;
}

int bench_tokenizer(int argc, char **argv)
{
    options o;
    buffer text = { 0 };
    int status_of_run = 0;
    if (!options_parse(argc, argv, &o)) {
        fputs(usage_text, argc == 2 && strcmp(argv[1], "--help") == 0 ? stdout : stderr);
        return argc == 2 && strcmp(argv[1], "--help") == 0 ? 0 : 2;
    }
    if (!text_read(o.text, &text)) {
        fprintf(stderr, "penstock-bench: %s cannot be read, is empty or longer than %d MiB\n",
                o.text, TEXT_BYTES_MAX >> 20);
        return 1;
    }
    if (!o.json)
        printf("%-44s %6s %9s %9s %9s\n", "MB/s on one core", "B/id", "first", "again", "decode");
    for (int i = 0; i < o.model_count && status_of_run == 0; i++) {
        error failure = { 0 };
        if (model_run(&o, o.models[i], buffer_slice(&text), &failure) != STATUS_OK) {
            fprintf(stderr, "penstock-bench: %s\n", failure.text);
            status_of_run = 1;
        }
    }
    buffer_close(&text);
    return status_of_run;
}
