#include "deploy/cli/cli.h"

#include <stdio.h>
#include <string.h>

// clang-format off
static const cli_command commands[] = {
    { "workers", "", "Show the workers that the router knows.", 0, cli_workers },
    { "drain", "WORKER", "Let it finish or hand over what runs; then it ends.", 1, cli_order },
    { "cordon", "WORKER", "Give it no new work, from any router.", 1, cli_order },
    { "uncordon", "WORKER", "Give it work again.", 1, cli_order },
    { "flip", "WORKER ROLE", "Drain it; then the same process begins again as prefill or decode.", 2, cli_order },
};
// clang-format on
#define COMMANDS (sizeof commands / sizeof *commands)

static void usage(FILE *out)
{
    fprintf(out, "penstock: looks after a Penstock cluster.\n\n"
                 "    penstock [OPTIONS] COMMAND [ARGUMENTS]\n\nCommands:\n");
    for (size_t i = 0; i < COMMANDS; i++)
        fprintf(out, "    %-9s%-13s%s\n", commands[i].name, commands[i].arguments,
                commands[i].help);
    fprintf(out,
            "\nWORKER is a name or an incarnation as `penstock workers` shows it.\n\nOptions:\n"
            "    --router URL     the router to talk to (http://127.0.0.1:8080)\n"
            "    --key-file FILE  its first line is the operators' key (router: admin.access)\n"
            "    --wait           drain, flip: come back when it is done\n"
            "    --json           workers: what the router says, as it is\n"
            "    --help, --version\n\n"
            "Exit status: 0 done, 1 not done, 2 bad command line.\n");
}

static int misused(const char *sentence, const char *what)
{
    fprintf(stderr, "penstock: ");
    fprintf(stderr, sentence, what);
    fprintf(stderr, "; try penstock --help\n");
    return 2;
}

static const cli_command *command_find(const char *name)
{
    for (size_t i = 0; i < COMMANDS; i++)
        if (strcmp(commands[i].name, name) == 0)
            return &commands[i];
    return NULL;
}

// Options stand before, behind and between the words; the words go to `words`. -1: go on;
// otherwise the exit status.
static int options_take(cli *c, int argc, char **argv, char **words, int *count)
{
    for (int i = 1; i < argc; i++) {
        const char **text = strcmp(argv[i], "--router") == 0     ? &c->router
                            : strcmp(argv[i], "--key-file") == 0 ? &c->key_file
                                                                 : NULL;
        if (text && i + 1 == argc)
            return misused("%s needs a value", argv[i]);
        if (text) {
            *text = argv[++i];
        } else if (strcmp(argv[i], "--json") == 0) {
            c->json = true;
        } else if (strcmp(argv[i], "--wait") == 0) {
            c->wait = true;
        } else if (strcmp(argv[i], "--help") == 0) {
            usage(stdout);
            return 0;
        } else if (strcmp(argv[i], "--version") == 0) {
            printf("penstock %s\n", PENSTOCK_VERSION);
            return 0;
        } else if (argv[i][0] == '-') {
            return misused("the option %s is not known", argv[i]);
        } else {
            words[(*count)++] = argv[i];
        }
    }
    return -1;
}

int main(int argc, char **argv)
{
    cli c = { .router = "http://127.0.0.1:8080" };
    int count = 0, code = options_take(&c, argc, argv, argv, &count);
    if (code >= 0)
        return code;
    if (count == 0) {
        usage(stderr);
        return 2;
    }
    const cli_command *command = command_find(argv[0]);
    if (!command)
        return misused("there is no command %s", argv[0]);
    if (count - 1 != command->argument_count)
        return misused(command->arguments[0] ? "right is: penstock %s WORKER [ROLE]"
                                             : "%s takes no arguments",
                       command->name);
    return command->run(&c, command->name, argv + 1);
}
