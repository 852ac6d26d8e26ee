#include "base/clock.h"

#include "base/fault.h"
#include "base/status.h"

#include <errno.h>
#include <time.h>

uint64_t clock_now_us(void)
{
    struct timespec now;
    CHECK(clock_gettime(CLOCK_MONOTONIC, &now) == 0);
    return (uint64_t)now.tv_sec * 1000000u + (uint64_t)now.tv_nsec / 1000u;
}

uint64_t clock_wall_us(void)
{
    struct timespec now;
    CHECK(clock_gettime(CLOCK_REALTIME, &now) == 0);
    int64_t jump_s = fault_fires(FAULT_CLOCK_JUMP) ? fault_value(FAULT_CLOCK_JUMP) : 0;
    return (uint64_t)(now.tv_sec + jump_s) * 1000000u + (uint64_t)now.tv_nsec / 1000u;
}

uint64_t clock_wall_s(void)
{
    return clock_wall_us() / 1000000u;
}

void clock_sleep_us(uint64_t duration_us)
{
    struct timespec left = {
        .tv_sec = (time_t)(duration_us / 1000000u),
        .tv_nsec = (long)(duration_us % 1000000u) * 1000,
    };
    while (nanosleep(&left, &left) != 0 && errno == EINTR) {
    }
}
