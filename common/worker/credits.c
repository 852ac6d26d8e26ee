#include "worker/credits.h"

// What the part should become: a floor, and of the rest as much as its use is of all use. A small
// constant use of everybody keeps parts equal while nobody works.
static uint32_t target_of(uint32_t whole, const credits_part *p, uint64_t used, uint32_t count)
{
    uint32_t floor = whole / (4 * count), idle = whole / 16 + 1;
    uint64_t rest = whole - floor * count;
    return floor + (uint32_t)(rest * (p->used + idle) / (used + (uint64_t)idle * count));
}

void credits_divide(uint32_t whole, credits_part *parts, int count)
{
    uint64_t used = 0, told = 0;
    for (int i = 0; i < count; i++) {
        used += parts[i].used;
        told += parts[i].told;
    }
    uint64_t unspoken = told < whole ? whole - told : 0; // to be given away in this round
    for (int i = 0; i < count; i++) {
        uint32_t target = target_of(whole, &parts[i], used, (uint32_t)count);
        uint32_t before = parts[i].told;
        if (target + whole / 32 < before) { // what is in use is not taken away
            uint32_t least = parts[i].used < before ? parts[i].used : before;
            parts[i].told = target > least ? target : least;
        } else if (target > before + whole / 32) {
            uint64_t more = target - before < unspoken ? target - before : unspoken;
            parts[i].told += (uint32_t)more;
            unspoken -= more;
        }
    }
}

uint64_t credits_of(uint64_t number, uint32_t part)
{
    uint64_t some = number * part / CREDITS_WHOLE;
    return some == 0 && number > 0 ? 1 : some;
}
