#include "deploy/cli/cli.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// Options: a bit each, so that a command can say which of them make sense with it.
enum {
    OPTION_ROUTER = 1,
    OPTION_JSON = 2,
    OPTION_WAIT = 4,
    OPTION_ONCE = 8,
    OPTION_CHAT = 16, // --model, --system
};

// clang-format off
static const cli_command commands[] = {
    { "chat", "", "Talk to the model; in a pipe: answer what standard input asks.", 0, 0, OPTION_ROUTER | OPTION_CHAT, cli_chat },
    { "status", "", "Watch routers, workers, queues and rates.", 0, 0, OPTION_ROUTER | OPTION_ONCE | OPTION_JSON, cli_status },
    { "workers", "", "Show the workers that the router knows.", 0, 0, OPTION_ROUTER | OPTION_JSON, cli_workers },
    { "drain", "WORKER", "Let it finish or hand over what runs; then it ends.", 1, 1, OPTION_ROUTER | OPTION_WAIT, cli_order },
    { "cordon", "WORKER", "Give it no new work, from any router.", 1, 1, OPTION_ROUTER, cli_order },
    { "uncordon", "WORKER", "Give it work again.", 1, 1, OPTION_ROUTER, cli_order },
    { "flip", "WORKER ROLE", "Drain it; then the same process begins again as prefill or decode.", 2, 2, OPTION_ROUTER | OPTION_WAIT, cli_order },
    { "key", "NAME [LIMIT]...", "Make an API key: its line for security.keys_file, and the key.", 1, 32, OPTION_JSON, cli_key },
};
// Programs beside this one, which take everything behind their name.
static const struct {
    const char *name, *help;
} programs[] = {
    { "bench", "Measure speed: penstock-bench." },
    { "eval", "Measure quality: penstock-eval." },
};
// clang-format on
#define COMMANDS (sizeof commands / sizeof *commands)
#define PROGRAMS (sizeof programs / sizeof *programs)

static void usage(FILE *out)
{
    fprintf(out, "penstock: talks to a Penstock cluster and looks after it.\n\n"
                 "    penstock [OPTIONS] COMMAND [ARGUMENTS]\n\nCommands:\n");
    for (size_t i = 0; i < COMMANDS; i++)
        fprintf(out, "    %-9s%-17s%s\n", commands[i].name, commands[i].arguments,
                commands[i].help);
    for (size_t i = 0; i < PROGRAMS; i++)
        fprintf(out, "    %-9s%-17s%s\n", programs[i].name, "ARGUMENTS", programs[i].help);
    fprintf(
        out,
        "\nWORKER is a name or an incarnation as `penstock workers` shows it. LIMIT is one of\n"
        "requests_per_minute=N, tokens_per_minute=N, concurrent=N, class=C, models=M, tenant=T, "
        "admin.\n\nOptions:\n"
        "    --router URL     the router to talk to (http://127.0.0.1:8080); status: several\n"
        "    --key-file FILE  its first line is an API key; operators' commands: an admin key\n"
        "    --ca FILE        certificates of who signed the router's (https)\n"
        "    --model NAME     chat: which model (the router's first one)\n"
        "    --system TEXT    chat: a system message\n"
        "    --once           status: look once, and do not watch\n"
        "    --wait           drain, flip: come back when it is done\n"
        "    --json           workers, status, key: for programs\n"
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

// Where the value of an option goes; NULL: it has none, or is not known.
static const char **option_value(cli *c, const char *name, unsigned *option)
{
    *option = OPTION_ROUTER;
    if (strcmp(name, "--key-file") == 0)
        return &c->key_file;
    if (strcmp(name, "--ca") == 0)
        return &c->authority;
    if (strcmp(name, "--router") == 0)
        return &c->routers[c->router_count++];
    *option = OPTION_CHAT;
    return strcmp(name, "--model") == 0    ? &c->model
           : strcmp(name, "--system") == 0 ? &c->system
                                           : NULL;
}

static bool *option_flag(cli *c, const char *name, unsigned *option)
{
    *option = strcmp(name, "--json") == 0   ? OPTION_JSON
              : strcmp(name, "--wait") == 0 ? OPTION_WAIT
                                            : OPTION_ONCE;
    return *option == OPTION_JSON        ? &c->json
           : *option == OPTION_WAIT      ? &c->wait
           : strcmp(name, "--once") == 0 ? &c->once
                                         : NULL;
}

// Options stand before, behind and between the words; the words go to `words`, the bits of the
// options to `given`. -1: go on; otherwise the exit status.
static int options_take(cli *c, int argc, char **argv, char **words, int *count, unsigned *given)
{
    for (int i = 1; i < argc; i++) {
        unsigned option;
        if (strcmp(argv[i], "--router") == 0 && c->router_count == CLI_ROUTERS_MAX)
            return misused("%s stands there too often: at most 16 are looked at", argv[i]);
        const char **text = option_value(c, argv[i], &option);
        if (text && i + 1 == argc)
            return misused("%s needs a value", argv[i]);
        if (text) {
            *text = argv[++i];
            *given |= option;
            continue;
        }
        bool *flag = option_flag(c, argv[i], &option);
        if (flag) {
            *flag = true;
            *given |= option;
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

// Become the program beside this one.
static int program_run(const char *name, char **argv)
{
    char path[4096];
    ssize_t size = readlink("/proc/self/exe", path, sizeof path - 64);
    char *slash = size > 0 ? memrchr(path, '/', (size_t)size) : NULL;
    if (!slash)
        return misused("it is not known where this program lies, so %s is not found", name);
    snprintf(slash + 1, 64, "penstock-%s", name);
    argv[0] = path;
    execv(path, argv);
    fprintf(stderr, "penstock: %s cannot be started: %s\n", path, strerror(errno));
    return 1;
}

static int command_run(cli *c, const cli_command *command, int count, char **arguments,
                       unsigned given)
{
    if (given & ~command->options)
        return misused("an option does not go with %s", command->name);
    if (c->router_count > 1 && command->run != cli_status)
        return misused("%s talks to one router", command->name);
    if (count < command->argument_min || count > command->argument_max) {
        char right[128];
        snprintf(right, sizeof right, "%s %s", command->name, command->arguments);
        return command->arguments[0] ? misused("right is: penstock %s", right)
                                     : misused("%s takes no arguments", command->name);
    }
    if (c->router_count == 0)
        c->routers[c->router_count++] = "http://127.0.0.1:8080";
    return command->run(c, command->name, count, arguments);
}

int main(int argc, char **argv)
{
    cli c = { 0 };
    unsigned given = 0;
    int count = 0;
    for (size_t i = 0; argc > 1 && i < PROGRAMS; i++)
        if (strcmp(argv[1], programs[i].name) == 0)
            return program_run(programs[i].name, argv + 1);
    int code = options_take(&c, argc, argv, argv, &count, &given);
    if (code >= 0)
        return code;
    if (count == 0) {
        usage(stderr);
        return 2;
    }
    const cli_command *command = command_find(argv[0]);
    return command ? command_run(&c, command, count - 1, argv + 1, given)
                   : misused("there is no command %s", argv[0]);
}
