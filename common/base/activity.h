// What the threads of this process do, for the moment when nothing moves on.
//
// A thread gives itself a name and says now and then which operation it begins; whoever notices
// that there is no progress has all of it logged, together with what the kernel knows of every
// thread. Any thread; saying costs a few relaxed stores, and the reader may see a moment between
// two of them.
#pragma once

// This thread is called so from now on (a text that lives as long as the process). There are
// ACTIVITY_THREADS_MAX places; a thread that finds none stays nameless.
#define ACTIVITY_THREADS_MAX 64
void activity_begin(const char *thread);
void activity_end(void);
// What it does from now on: a text that lives as long as the process, such as "computing a step".
void activity_now(const char *operation);
// One line in the log for each thread of the process: name, what it does and for how long, its
// state in the kernel (R runs, S sleeps, D waits for a disk, T is stopped) and what it waits for.
void activity_dump(const char *tag);
