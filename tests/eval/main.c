// The table of penstock-eval's sub-commands. Exit status: 0, 1 after a failure, 2 for a bad command
// line.
#include "eval/eval.h"

#include <stdio.h>
#include <string.h>

typedef struct eval_command {
    eval_usage usage;
    status (*run)(const eval_options *o, error *failure);
} eval_command;

static const eval_command commands[] = {
    { { "perplexity", "mktcdwTlj", "mt", "How well models predict a text." }, eval_perplexity },
    { { "compare", "mkrRStcdwTlj", "",
        "How far models are from a reference: KL divergence, top-1 agreement, likelihood." },
      eval_compare },
    { { "choices", "mksTlj", "ms", "Accuracy on multiple-choice questions." }, eval_choices },
    { { "table", "mktscdwCVpqnPgDxTl", "mt",
        "Memory, speed and quality of models and KV types side by side." },
      eval_table },
};
static const size_t command_count = sizeof commands / sizeof commands[0];

static void usage(FILE *to)
{
    fprintf(to, "usage: penstock-eval COMMAND [--help] [options]\n\n");
    for (size_t i = 0; i < command_count; i++)
        fprintf(to, "  %-11s %s\n", commands[i].usage.name, commands[i].usage.help);
}

static int command_run(const eval_command *c, int argc, char **argv)
{
    eval_options o;
    eval_action action;
    error failure = { 0 };
    int exit_status = 2;
    status result = options_parse(&c->usage, argc, argv, &o, &action, &failure);
    if (result == STATUS_OK && action == EVAL_EXIT)
        return 0;
    if (result == STATUS_OK) {
        exit_status = 1;
        result = c->run(&o, &failure);
    }
    if (result == STATUS_OK)
        return 0;
    fprintf(stderr, "penstock-eval %s: %s\n", c->usage.name,
            failure.text[0] ? failure.text : status_text(result));
    return exit_status;
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "--help") == 0) {
        usage(stdout);
        return 0;
    }
    if (argc > 1 && strcmp(argv[1], "--version") == 0) {
        printf("penstock-eval %s\n", PENSTOCK_VERSION);
        return 0;
    }
    for (size_t i = 0; argc > 1 && i < command_count; i++)
        if (strcmp(argv[1], commands[i].usage.name) == 0)
            return command_run(&commands[i], argc - 1, argv + 1);
    if (argc > 1)
        fprintf(stderr, "penstock-eval: there is no command '%s'\n", argv[1]);
    usage(stderr);
    return 2;
}
