// The workers' processes of fake_router.h.
#include "fake_router.h"

#include "base/clock.h"
#include "harness/tiny_model.h"

#include <setjmp.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

extern char **environ;

char fake_model[64];

int fake_model_make(void **state)
{
    (void)state;
    tiny_model options = tiny_model_default(7);
    tiny_model_temporary(&options, fake_model);
    return 0;
}

int fake_model_remove(void **state)
{
    (void)state;
    return unlink(fake_model);
}

// A failed test must not leave processes behind: they would also hold its output open.
static pid_t started[64];
static int started_count;

static void kill_started(void)
{
    for (int i = 0; i < started_count; i++)
        if (started[i] > 0)
            fake_process_kill(started[i]);
}

static void remember(pid_t pid)
{
    if (started_count == 0)
        atexit(kill_started);
    if (started_count < 64)
        started[started_count++] = pid;
}

static void forget(pid_t pid)
{
    for (int i = 0; i < started_count; i++)
        if (started[i] == pid)
            started[i] = 0;
}

pid_t fake_process_start(const char *role, const fake_router *r, const char *const *settings)
{
    char self[512], program[640], model_setting[640], routers[256];
    ssize_t size = readlink("/proc/self/exe", self, sizeof(self) - 1);
    assert_true(size > 0);
    self[size] = 0;
    *strrchr(self, '/') = 0;
    snprintf(program, sizeof(program), "%s/../bin/penstock-%s", self, role);
    snprintf(model_setting, sizeof(model_setting), "engine.model=%s", fake_model);
    snprintf(routers, sizeof(routers), "worker.routers=%s", fake_router_url(r));
    const char *arguments[64] = { program,
                                  "--set",
                                  model_setting,
                                  "--set",
                                  routers,
                                  "--set",
                                  "engine.kv_bytes=4MiB",
                                  "--set",
                                  "worker.host=127.0.0.1" };
    size_t count = 9;
    for (; settings != NULL && *settings != NULL && count < 60; settings++) {
        arguments[count++] = "--set";
        arguments[count++] = *settings;
    }
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
    // UCX's memory hooks crash one sanitizer in dying threads; its crash handlers hide reports of
    // the other.
    setenv("UCX_MEM_EVENTS", "n", 0);
    setenv("UCX_HANDLE_ERRORS", "none", 0);
#endif
    pid_t pid;
    assert_int_equal(posix_spawn(&pid, program, NULL, NULL, (char *const *)arguments, environ), 0);
    remember(pid);
    return pid;
}

int fake_process_wait(fake_router *r, pid_t pid, int timeout_ms)
{
    uint64_t end_us = clock_now_us() + (uint64_t)timeout_ms * 1000;
    while (clock_now_us() < end_us) {
        int code;
        if (waitpid(pid, &code, WNOHANG) == pid) {
            forget(pid);
            return WIFEXITED(code) ? WEXITSTATUS(code) : 128 + WTERMSIG(code);
        }
        fake_router_pump(r, 20);
    }
    fake_process_kill(pid);
    return -1;
}

void fake_process_end(fake_router *r, pid_t pid, int timeout_ms)
{
    kill(pid, SIGTERM);
    assert_int_equal(fake_process_wait(r, pid, timeout_ms), 0);
}

void fake_process_kill(pid_t pid)
{
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    forget(pid);
}
