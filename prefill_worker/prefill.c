#include "prefill_worker/prefill.h"

#include "base/clock.h"

#include <stddef.h>

// ---- tickets -----------------------------------------------------------------------------------

static status begin(station *s, job *j, error *failure)
{
    const Penstock__PlanPeer *decode = j->message->ticket->decode;
    if (decode == NULL)
        return error_set(failure, STATUS_INVALID, "decode",
                         "this is a prefill worker; the ticket names no decode worker");
    station_send_begin(s, j, decode);
    return STATUS_OK;
}

static void enter(station *s, job *j)
{
    j->state = JOB_COMPUTING;
    engine_sequence_start(s->engine, j->sequence);
}

// ---- pages -------------------------------------------------------------------------------------

// Send what is complete and was not sent: full pages of finished chunks; with the first token also
// the last page and the record.
static void pump(station *s, job *j)
{
    if (!j->seat_ready || j->sequence == NULL || j->sent_end)
        return;
    int32_t page_tokens = engine_facts_of(s->engine)->layout.page_tokens;
    int32_t table_count;
    const int32_t *pages = sequence_pages(j->sequence, &table_count);
    bool last = j->next_token >= 0;
    int32_t complete = last ? (j->token_count + page_tokens - 1) / page_tokens
                            : sequence_computed(j->sequence) / page_tokens;
    CHECK(complete <= table_count);
    int32_t count = complete - j->next_page;
    if (count > 0) {
        station_hold(s, j, pages + j->next_page, count);
        handoff_send_pages(s->handoff, j->key, j->next_page, pages + j->next_page, count);
        j->next_page = complete;
    }
    if (last) {
        handoff_record record = { .computed = j->token_count, .next_token = j->next_token };
        handoff_send_end(s->handoff, j->key, &record);
        j->sent_end = true;
    }
}

// The peer's seat is open; it holds a prefix already, but never all of the prompt.
static void seat_ready(station *s, job *j, int32_t first_page)
{
    int32_t page_tokens = engine_facts_of(s->engine)->layout.page_tokens;
    if (first_page < 0 || first_page > (j->token_count - 1) / page_tokens) {
        station_fail(s, j, STATUS_PEER_PROTOCOL, "the seat begins behind the prompt");
        return;
    }
    j->seat_ready = true;
    j->next_page = first_page;
    pump(s, j);
}

static void transfer(station *s, job *j, const handoff_event *event)
{
    switch (event->kind) {
    case HANDOFF_SEAT_READY:
        seat_ready(s, j, event->first_page);
        break;
    case HANDOFF_DELIVERED:
        j->times.first_page = event->first_page_us;
        j->times.last_page = event->last_page_us;
        j->times.finished = clock_now_us();
        report_handed_over(j, event->bytes);
        station_end(s, j, true);
        break;
    case HANDOFF_SEND_OVER:
        station_fail(s, j, event->code == STATUS_OK ? STATUS_PEER_CLOSED : event->code,
                     "the hand-off failed");
        break;
    default:
        break;
    }
}

// ---- steps -------------------------------------------------------------------------------------

static void first_token_report(station *s, const engine_token *token)
{
    job *j = token->owner;
    bool over = token->finish != SEQUENCE_UNFINISHED;
    j->times.prefill_done = clock_now_us();
    station_count_reused(s, j);
    if (over)
        j->times.finished = j->times.prefill_done;
    report_batch_add(s->batch, j, token, !over);
}

static void first_token_take(station *s, const engine_token *token)
{
    job *j = token->owner;
    if (token->finish != SEQUENCE_UNFINISHED) { // nothing is handed over: the seat is released
        station_end(s, j, token->finish != SEQUENCE_FAILED);
        return;
    }
    j->state = JOB_SENDING;
    j->next_token = token->sampled.token;
}

static void stepped(station *s, const engine_report *report)
{
    // The first tokens go to the router before anything else: they do not wait for pages, and the
    // end of a request is known before its seat is released.
    for (int32_t i = 0; i < report->token_count; i++)
        first_token_report(s, &report->tokens[i]);
    report_batch_send(s->batch);
    for (int32_t i = 0; i < report->token_count; i++)
        first_token_take(s, &report->tokens[i]);
    for (int32_t i = 0; i < job_count(s->jobs); i++) {
        job *j = job_at(s->jobs, i);
        if (j->state == JOB_COMPUTING || j->state == JOB_SENDING)
            pump(s, j);
    }
}

const station_role prefill_role = {
    .name = "prefill",
    .role = PENSTOCK__ROLE__ROLE_PREFILL,
    .mode = SEQUENCE_PROMPT,
    .seats = false,
    .begin = begin,
    .enter = enter,
    .transfer = transfer,
    .stepped = stepped,
};

static const config_part parts[] = { STATION_PARTS };

const config_program prefill_program = {
    .name = "penstock-prefill",
    .summary = "Computes prompts and ships their KV pages to decode workers.",
    .parts = parts,
    .part_count = sizeof(parts) / sizeof(parts[0]),
    .settings_size = sizeof(prefill_config),
    .live = station_live_keys,
};
