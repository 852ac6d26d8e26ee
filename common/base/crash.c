#include "base/crash.h"

#include "base/log.h"

#include <dlfcn.h>
#include <execinfo.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#define FRAMES_MAX 64
#define REPORT_SECONDS 5

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED true
#else
#define SANITIZED false
#endif

// The main thread's handler has a stack of its own, so that an overflow of its stack is told too.
static char handler_stack[64 * 1024];

// Dladdr and the log's clock take locks that the dying thread or another may hold; alarm(2) ends
// such a wait.
static void report(int number, siginfo_t *about, void *context)
{
    (void)context;
    alarm(REPORT_SECONDS);
    char thread[17] = "";
    prctl(PR_GET_NAME, thread);
    log_error("crash", "signal %d (%s) code %d address %p thread %s", number, sigabbrev_np(number),
              about->si_code, about->si_addr, thread);
    void *frames[FRAMES_MAX];
    int count = backtrace(frames, FRAMES_MAX);
    for (int i = 0; i < count; i++) {
        Dl_info place;
        if (dladdr(frames[i], &place) && place.dli_fname)
            log_error("crash", "frame %d %s+0x%zx %s", i, place.dli_fname,
                      (size_t)((uintptr_t)frames[i] - (uintptr_t)place.dli_fbase),
                      place.dli_sname ? place.dli_sname : "-");
        else
            log_error("crash", "frame %d %p", i, frames[i]);
    }
    // The handler is gone (SA_RESETHAND): this waits until the handler returns, and then ends the
    // process at the place of the fault.
    raise(number);
}

void crash_report_install(void)
{
    if (SANITIZED)
        return;
    void *once[1];
    backtrace(once, 1); // the first call loads a library, which a dying process had better not do
    sigaltstack(&(stack_t){ .ss_sp = handler_stack, .ss_size = sizeof(handler_stack) }, NULL);
    static const int signals[] = { SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT };
    struct sigaction action = { .sa_sigaction = report,
                                .sa_flags = (int)(SA_SIGINFO | SA_RESETHAND | SA_ONSTACK) };
    sigemptyset(&action.sa_mask);
    for (size_t i = 0; i < sizeof(signals) / sizeof(signals[0]); i++)
        sigaction(signals[i], &action, NULL);
}
