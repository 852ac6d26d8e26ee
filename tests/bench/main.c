// The table of penstock-bench's sub-commands.
#include "bench.h"

#include "base/clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct bench_command {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *help;
} bench_command;

static const bench_command commands[] = {
    { "batching", bench_batching, "continuous against static batching" },
    { "chunks", bench_chunks, "a long prompt beside answers, by the size of its chunks" },
    { "engine", bench_engine, "the engine alone: prefill and decode beside the machine's limits" },
    { "handoff", bench_handoff, "pages between two processes: GB/s and hand-over latency" },
    { "serve", bench_serve,
      "load a running server with streams: TTFT, time per token, largest gap" },
    { "interfere", bench_interfere,
      "what long prompts do to answers that run: the same streams without and with them" },
    { "speculate", bench_speculate, "what guessing tokens gains, for each drafter" },
    { "tokenizer", bench_tokenizer, "a model's tokenizer on a text: MB/s on one core" },
};
static const size_t command_count = sizeof commands / sizeof commands[0];

double bench_now(void)
{
    return (double)clock_now_us() * 1e-6;
}

int bench_list(const char *text, int low, int *values, int capacity)
{
    int count = 0;
    char *end;
    do {
        long value = strtol(text, &end, 10);
        if (end == text || value < low || value > 1 << 20 || count == capacity)
            return 0;
        values[count++] = (int)value;
        text = end + 1;
    } while (*end == ',');
    return *end == '\0' ? count : 0;
}

bool bench_number(const char *text, int low, int *value)
{
    if (bench_list(text, low, value, 1) == 1)
        return true;
    fprintf(stderr, "penstock-bench: '%s' is no value for this option\n", text);
    return false;
}

static void usage(FILE *to)
{
    fprintf(to, "usage: penstock-bench COMMAND [--help] [options]\n\n");
    for (size_t i = 0; i < command_count; i++)
        fprintf(to, "  %-9s %s\n", commands[i].name, commands[i].help);
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "--help") == 0) {
        usage(stdout);
        return 0;
    }
    if (argc > 1 && strcmp(argv[1], "--version") == 0) {
        printf("penstock-bench %s\n", PENSTOCK_VERSION);
        return 0;
    }
    for (size_t i = 0; argc > 1 && i < command_count; i++) {
        if (strcmp(argv[1], commands[i].name) == 0)
            return commands[i].run(argc - 1, argv + 1);
    }
    if (argc > 1)
        fprintf(stderr, "penstock-bench: there is no command '%s'\n", argv[1]);
    usage(stderr);
    return 2;
}
