// What a process says before a fault of its own ends it.
//
// SIGSEGV, SIGBUS, SIGFPE, SIGILL and SIGABRT are answered with error lines of the log: the signal,
// the address, the thread by name, then a line for each frame of its stack as "file+offset"
// (`addr2line -fpe FILE OFFSET` turns one into function and line; the programs are built with
// symbols). Then the process dies of the signal as it would have without this, so that a core file
// shows the place and a supervisor starts another. Whatever happens while it reports, it is gone
// within 5 seconds. No client text is in the report.
#pragma once

// Call once, on the main thread, before others are started. Handlers of a library (UCX sets some
// that wait for a debugger) are replaced; a build with a sanitizer keeps the sanitizer's.
void crash_report_install(void);
