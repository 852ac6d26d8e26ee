#include "worker/flip.h"

#include "base/clock.h"
#include "worker/cores.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/close_range.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define TRY_US 5000000 // for the other program to print its configuration

extern char **environ;

struct flip {
    char program[PATH_MAX];
    char **arguments; // NULL-ended, each owned
    size_t count;
};

static bool argument_add(flip *f, const char *text)
{
    char **grown = realloc(f->arguments, (f->count + 2) * sizeof *grown);
    char *copy = strdup(text);
    if (grown)
        f->arguments = grown;
    if (!grown || !copy) {
        free(copy);
        return false;
    }
    f->arguments[f->count++] = copy;
    f->arguments[f->count] = NULL;
    return true;
}

// The flag at argv[*at], its value (NULL: it has none), and on to the next.
static const char *flag_take(int argc, char **argv, int *at, const char **value)
{
    const char *flag = argv[(*at)++];
    *value = NULL;
    if (strcmp(flag, "--set") == 0 || strcmp(flag, "--config") == 0)
        *value = *at < argc ? argv[(*at)++] : NULL;
    else if (strncmp(flag, "--set=", 6) == 0)
        *value = flag + 6;
    else if (strncmp(flag, "--config=", 9) == 0)
        *value = flag + 9;
    return strncmp(flag, "--set", 5) == 0 ? "--set" : *value ? "--config" : flag;
}

// Whether an assignment is of a key in the group of this role.
static bool of_role(const char *assignment, const char *role)
{
    size_t size = strlen(role);
    return strncmp(assignment, role, size) == 0 && assignment[size] == '.';
}

static bool arguments_make(flip *f, const char *own, const char *config, int argc, char **argv)
{
    bool good = argument_add(f, f->program), replaced = config[0] == 0;
    if (!replaced)
        good = good && argument_add(f, "--config") && argument_add(f, config);
    for (int at = 1; at < argc;) {
        const char *value, *flag = flag_take(argc, argv, &at, &value);
        if (value && ((strcmp(flag, "--config") == 0 && !replaced) ||
                      (strcmp(flag, "--set") == 0 && of_role(value, own))))
            continue;
        good = good && argument_add(f, flag) && (!value || argument_add(f, value));
    }
    return good;
}

static bool program_find(const char *role, char path[PATH_MAX])
{
    char own[PATH_MAX - 64];
    ssize_t size = readlink("/proc/self/exe", own, sizeof own - 1);
    if (size <= 0)
        return false;
    own[size] = 0;
    char *slash = strrchr(own, '/');
    if (!slash)
        return false;
    *slash = 0;
    snprintf(path, PATH_MAX, "%s/penstock-%s", own, role);
    return access(path, X_OK) == 0;
}

// ---- trying -----------------------------------------------------------------------------------

// The first line of what it writes to standard error.
static void complaint_read(int fd, char text[256])
{
    size_t size = 0;
    ssize_t more;
    while (size < 255 && (more = read(fd, text + size, 255 - size)) > 0)
        size += (size_t)more;
    text[size] = 0;
    text[strcspn(text, "\n")] = 0;
}

// Its exit status; -1: it did not end in time, and was killed.
static int child_wait(pid_t child)
{
    uint64_t end_us = clock_now_us() + TRY_US;
    int code;
    while (waitpid(child, &code, WNOHANG) == 0) {
        if (clock_now_us() > end_us) {
            kill(child, SIGKILL);
            waitpid(child, &code, 0);
            return -1;
        }
        clock_sleep_us(2000);
    }
    return WIFEXITED(code) ? WEXITSTATUS(code) : -1;
}

static status arguments_try(flip *f, error *failure)
{
    int ends[2];
    pid_t child;
    char complaint[256] = "";
    posix_spawn_file_actions_t actions;
    if (!argument_add(f, "--print-config"))
        return error_set(failure, STATUS_NO_MEMORY, "", "memory is short");
    if (pipe2(ends, O_CLOEXEC) != 0)
        return error_set(failure, STATUS_IO, "", "no pipe: %s", strerror(errno));
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
    posix_spawn_file_actions_adddup2(&actions, ends[1], STDERR_FILENO);
    int result = posix_spawn(&child, f->program, &actions, NULL, f->arguments, environ);
    posix_spawn_file_actions_destroy(&actions);
    close(ends[1]);
    int code = result == 0 ? child_wait(child) : -1;
    if (code != 0)
        complaint_read(ends[0], complaint);
    close(ends[0]);
    free(f->arguments[--f->count]);
    f->arguments[f->count] = NULL;
    return code == 0 ? STATUS_OK
                     : error_set(failure, STATUS_BAD_CONFIG, "",
                                 "the other role's program would not start: %s",
                                 result != 0    ? strerror(result)
                                 : complaint[0] ? complaint
                                                : "it said nothing");
}

// ---- the whole --------------------------------------------------------------------------------

status flip_prepare(const char *own, const char *role, const char *config, int argc, char **argv,
                    flip **prepared, error *failure)
{
    status result = STATUS_OK;
    flip *f = calloc(1, sizeof *f);
    if (!f)
        return error_set(failure, STATUS_NO_MEMORY, "", "memory is short");
    if (!program_find(role, f->program)) {
        result = error_set(failure, STATUS_BAD_CONFIG, "",
                           "there is no program penstock-%s beside this one", role);
        goto fail;
    }
    if (!arguments_make(f, own, config, argc, argv)) {
        result = error_set(failure, STATUS_NO_MEMORY, "", "memory is short");
        goto fail;
    }
    TRY(arguments_try(f, failure));
    *prepared = f;
    return STATUS_OK;
fail:
    flip_free(f);
    return result;
}

void flip_execute(const flip *f, error *failure)
{
    cores_restore();
    // Whatever a library left open belongs to this life.
    close_range(STDERR_FILENO + 1, ~0u, CLOSE_RANGE_CLOEXEC);
    execv(f->program, f->arguments);
    error_set(failure, STATUS_IO, "", "%s cannot be executed: %s", f->program, strerror(errno));
}

void flip_free(flip *f)
{
    if (!f)
        return;
    for (size_t i = 0; i < f->count; i++)
        free(f->arguments[i]);
    free(f->arguments);
    free(f);
}
