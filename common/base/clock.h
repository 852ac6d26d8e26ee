// Time. Durations and deadlines use the monotonic clock; the wall clock is only for people (log
// lines, `created` in answers). Any thread.
#pragma once

#include <stdint.h>

// Microseconds of the monotonic clock of this machine since an arbitrary start.
uint64_t clock_now_us(void);
// Since 1970-01-01 UTC. Nothing but what people read may depend on it: it jumps (fault clock.jump).
uint64_t clock_wall_us(void);
uint64_t clock_wall_s(void);
// `since_us`, from which something is measured, later by how long this process stood still: that is
// no time in which others were silent or nothing was done. Not past now.
static inline uint64_t clock_forgive(uint64_t since_us, uint64_t absent_us, uint64_t now_us)
{
    return since_us + absent_us < now_us ? since_us + absent_us : now_us;
}
// Sleep at least this long (tests and start-up only; no loop of ours sleeps).
void clock_sleep_us(uint64_t duration_us);
