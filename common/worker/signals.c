// SIGTERM and SIGINT: the first drains, the second ends the process. SIGHUP: read the settings
// again.
#include "worker/worker_private.h"

#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

static int signal_fd = -1;
static atomic_int signal_count;
static atomic_bool serving, reload_wanted;

// Only async-signal-safe calls in these three.
static void wake(void)
{
    uint64_t one = 1;
    ssize_t written = write(signal_fd, &one, sizeof(one));
    (void)written; // the counter says it too, the descriptor only wakes
}

static void on_signal(int number)
{
    (void)number;
    if (!atomic_load(&serving))
        _exit(0);
    if (atomic_fetch_add(&signal_count, 1) > 0)
        _exit(3);
    wake();
}

static void on_hangup(int number)
{
    (void)number;
    atomic_store(&reload_wanted, true);
    wake();
}

void worker_signals_open(void)
{
    signal_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    CHECK(signal_fd >= 0);
    struct sigaction action = { .sa_handler = on_signal, .sa_flags = SA_RESTART };
    CHECK(sigaction(SIGTERM, &action, NULL) == 0 && sigaction(SIGINT, &action, NULL) == 0);
    struct sigaction hangup = { .sa_handler = on_hangup, .sa_flags = SA_RESTART };
    CHECK(sigaction(SIGHUP, &hangup, NULL) == 0);
    struct sigaction ignore = { .sa_handler = SIG_IGN };
    CHECK(sigaction(SIGPIPE, &ignore, NULL) == 0);
}

void worker_signals_serve(void)
{
    atomic_store(&serving, true);
}

int worker_signal_count(void)
{
    return atomic_load(&signal_count);
}

bool worker_signal_reload(void)
{
    if (!atomic_exchange(&reload_wanted, false))
        return false;
    uint64_t count;
    ssize_t size = read(signal_fd, &count, sizeof(count));
    (void)size; // nothing was there
    return true;
}

int worker_signal_fd(void)
{
    return signal_fd;
}
