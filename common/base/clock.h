// Time. Durations and deadlines use the monotonic clock; the wall clock is only for people (log
// lines, `created` in answers). Any thread.
#pragma once

#include <stdint.h>

// Microseconds of the monotonic clock of this machine since an arbitrary start.
uint64_t clock_now_us(void);
// Since 1970-01-01 UTC. Nothing but what people read may depend on it: it jumps (fault clock.jump).
uint64_t clock_wall_us(void);
uint64_t clock_wall_s(void);
// `at_us`, from which something is measured or at which it is due, later by how long this process
// stood still: that is no time in which others were silent or nothing was done. Not past
// `latest_us`: now, or for a deadline what one that begins now would have.
static inline uint64_t clock_forgive(uint64_t at_us, uint64_t absent_us, uint64_t latest_us)
{
    return at_us + absent_us < latest_us ? at_us + absent_us : latest_us;
}
// Sleep at least this long (tests and start-up only; no loop of ours sleeps).
void clock_sleep_us(uint64_t duration_us);
