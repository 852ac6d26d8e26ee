#include "handoff/handoff_private.h"

#include "base/clock.h"

handoff_token handoff_token_of(const void *bytes, size_t size)
{
    handoff_token token = { { 0 } };
    if (size == sizeof(token))
        memcpy(&token, bytes, sizeof(token));
    return token;
}

// When an admission ends that is given now.
static uint64_t latest_us(const handoff *h)
{
    return fabric_now_us(h->net) + 2 * (uint64_t)h->settings.connect_us;
}

void admit_command(handoff *h, const handoff_command *c)
{
    h->admissions[h->admission_next++ % HANDOFF_ADMISSIONS] = (handoff_admission){
        .incarnation = c->peer.incarnation,
        .until_us = latest_us(h),
        .token = c->peer.token,
    };
    pair_on_admission(h, c->peer.incarnation);
}

// Takes the same time for all tokens that differ.
static bool equal(const handoff_token *a, const handoff_token *b)
{
    return ((a->half[0] ^ b->half[0]) | (a->half[1] ^ b->half[1])) == 0;
}

bool admit_take(handoff *h, const Penstock__Hello *hello)
{
    handoff_token shown = handoff_token_of(hello->token.data, hello->token.len);
    for (uint32_t i = 0; i < HANDOFF_ADMISSIONS; i++) {
        handoff_admission *a = &h->admissions[i];
        if (a->incarnation != hello->incarnation || a->until_us < fabric_now_us(h->net) ||
            !equal(&a->token, &shown))
            continue;
        *a = (handoff_admission){ 0 };
        return true;
    }
    return false;
}

void admit_forgive(handoff *h, uint64_t absent_us)
{
    uint64_t end_us = latest_us(h);
    for (uint32_t i = 0; i < HANDOFF_ADMISSIONS; i++) {
        handoff_admission *a = &h->admissions[i];
        if (a->incarnation != 0)
            a->until_us = clock_forgive(a->until_us, absent_us, end_us);
    }
}
