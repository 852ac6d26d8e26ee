#include "router/admission.h"

#include <math.h>

#define WINDOW_US 1000000
#define SMOOTHING 0.5 // weight of the newest window
#define RETRY_UNKNOWN_S 2
#define RETRY_MAX_S 60

const char *admission_class_name(admission_class class)
{
    return class == ADMISSION_BATCH ? "batch" : "interactive";
}

uint64_t admission_order(admission_class class, uint64_t arrived_us, uint64_t batch_delay_us)
{
    return class == ADMISSION_BATCH ? arrived_us + batch_delay_us : arrived_us;
}

bool admission_share_allows(double share, uint64_t granted, uint64_t held, uint64_t wanted)
{
    return share >= 1 || held == 0 || (double)held + (double)wanted <= share * (double)granted;
}

void admission_rate_left(admission_rate *r, size_t waiting_after)
{
    r->left++;
    r->idle = r->idle || waiting_after == 0;
}

void admission_rate_tick(admission_rate *r, uint64_t now_us, size_t waiting)
{
    r->idle = r->idle || waiting == 0;
    if (r->window_us != 0 && now_us - r->window_us < WINDOW_US)
        return;
    if (r->window_us != 0 && !r->idle) {
        double rate = (double)r->left * 1e6 / (double)(now_us - r->window_us);
        r->per_s = r->per_s > 0 ? (1 - SMOOTHING) * r->per_s + SMOOTHING * rate : rate;
    }
    r->window_us = now_us;
    r->left = 0;
    r->idle = waiting == 0;
}

double admission_wait_s(const admission_rate *r, size_t ahead)
{
    return r->per_s > 0 ? (double)ahead / r->per_s : -1;
}

int admission_retry_after(const admission_rate *r, size_t ahead)
{
    double seconds = ceil(admission_wait_s(r, ahead));
    if (seconds < 0)
        return RETRY_UNKNOWN_S;
    return seconds < 1 ? 1 : seconds > RETRY_MAX_S ? RETRY_MAX_S : (int)seconds;
}
