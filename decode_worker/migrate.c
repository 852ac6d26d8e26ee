#include "decode_worker/migrate.h"

#include <string.h>

// Tokens that the target's ticket does not have, but for the last, which has no KV yet.
static int32_t made(const job *j)
{
    return sequence_computed(j->sequence) - j->moved_from;
}

static void rest(station *s, job *j)
{
    engine_sequence_rest(s->engine, j->sequence);
    j->state = JOB_SENDING;
}

void migrate_begin(station *s, job *j, const Penstock__Migrate *order)
{
    j->moved_from = (int32_t)order->token_count;
    j->moved_spare = (int32_t)order->spare_tokens;
    if (j->moved_from < j->prompt_count || made(j) < 0 || made(j) > j->moved_spare) {
        station_fail(s, j, STATUS_UNAVAILABLE, "the order to move does not fit the sequence");
        return;
    }
    j->key.attempt = order->next_attempt;
    j->moving = true;
    station_send_begin(s, j, order->target);
    if (made(j) == j->moved_spare) // the seat has no room for the next step's token
        rest(s, j);
}

static void pages_send(station *s, job *j, int32_t end)
{
    int32_t count;
    const int32_t *pages = sequence_pages(j->sequence, &count) + j->next_page;
    CHECK(end <= count && j->next_page <= end);
    count = end - j->next_page;
    if (count > 0) {
        station_hold(s, j, pages, count);
        handoff_send_pages(s->handoff, j->key, j->next_page, pages, count);
    }
    j->next_page = end;
}

// It generates no more: the pages that were not sent, and the record.
static void finish(station *s, job *j)
{
    int32_t page_tokens = engine_facts_of(s->engine)->layout.page_tokens;
    int32_t count, computed = sequence_computed(j->sequence);
    const int32_t *tokens = sequence_tokens(j->sequence, &count);
    if (j->state == JOB_RUNNING)
        rest(s, j);
    pages_send(s, j, (computed + page_tokens - 1) / page_tokens);
    handoff_record record = { .computed = computed,
                              .next_token = tokens[computed],
                              .made_count = made(j) };
    memcpy(record.made, tokens + j->moved_from, (size_t)made(j) * sizeof(tokens[0]));
    handoff_send_end(s->handoff, j->key, &record);
    j->sent_end = true;
}

// The peer's seat is open: what is full goes while the sequence generates on.
static void seat_ready(station *s, job *j, int32_t first_page)
{
    int32_t page_tokens = engine_facts_of(s->engine)->layout.page_tokens;
    int32_t full = sequence_computed(j->sequence) / page_tokens;
    if (first_page < 0 || first_page > (j->moved_from - 1) / page_tokens) {
        station_fail(s, j, STATUS_PEER_PROTOCOL, "the seat begins behind the prompt");
        return;
    }
    j->seat_ready = true;
    j->next_page = first_page;
    if (j->state == JOB_RUNNING && full > first_page)
        pages_send(s, j, full);
    else
        finish(s, j);
}

void migrate_transfer(station *s, job *j, const handoff_event *event)
{
    switch (event->kind) {
    case HANDOFF_SEAT_READY:
        seat_ready(s, j, event->first_page);
        break;
    case HANDOFF_SHIPPED:
        if (!j->sent_end)
            finish(s, j);
        break;
    case HANDOFF_DELIVERED:
        report_handed_over(j, event->bytes);
        station_end(s, j, true);
        break;
    case HANDOFF_SEND_OVER:
        station_fail(s, j, event->code == STATUS_OK ? STATUS_PEER_CLOSED : event->code,
                     "the sequence could not be moved");
        break;
    default:
        break;
    }
}

void migrate_stepped(station *s)
{
    for (int32_t i = 0; i < job_count(s->jobs); i++) {
        job *j = job_at(s->jobs, i);
        if (!j->moving || j->state != JOB_RUNNING || made(j) < j->moved_spare)
            continue;
        if (j->seat_ready)
            finish(s, j);
        else
            rest(s, j);
    }
}
