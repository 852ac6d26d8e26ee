// For tests that use UCX: settings that UCX reads when its library is loaded, long before main.
#pragma once

#include <stdlib.h>
#include <unistd.h>

// Start this program again with them, once. UCX's memory hooks (UCX_MEM_EVENTS) crash
// ThreadSanitizer at the end of a thread, and its crash handlers (UCX_HANDLE_ERRORS) hide the
// reports of AddressSanitizer; the fabric needs neither.
static inline void fabric_exec(char **argv)
{
    if (getenv("UCX_MEM_EVENTS"))
        return;
    setenv("UCX_MEM_EVENTS", "n", 1);
    setenv("UCX_HANDLE_ERRORS", "none", 0);
    execv("/proc/self/exe", argv);
    abort();
}
