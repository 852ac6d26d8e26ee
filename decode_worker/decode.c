#include "decode_worker/decode.h"

#include "base/clock.h"
#include "decode_worker/guesses_report.h"
#include "decode_worker/migrate.h"
#include "worker/ticket.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#define AT(field) offsetof(decode_settings, field)
// clang-format off
static const config_key keys[] = {
    { "decode.recompute_failed_handoff", CONFIG_BOOL, AT(recompute_failed_handoff), "false", 0, 0, "", "Compute a prompt here when its hand-off failed (counted as a fallback); false: the router plans it again.", NULL },
};
// clang-format on
#undef AT
static const config_section section = { keys, sizeof(keys) / sizeof(keys[0]) };

static const decode_settings *settings_of(const station *s)
{
    return &((const decode_config *)s->settings)->decode;
}

// ---- guesses ----------------------------------------------------------------------------------

// What the role owns beside the station.
typedef struct decode_own {
    speculation *speculation;
    speculation_item *items;       // [max_sequences] of the step that comes
    guide **guides;                // [max_sequences] of the draft model, by slot; NULL: none
    uint64_t shown_us;             // when the page was told
    draft_model_troubles troubles; // told already
    guesses_warned warned;
} decode_own;

#define SHOW_US 250000

static status own_open(station *s, error *failure)
{
    const engine_facts *facts = engine_facts_of(s->engine);
    decode_own *own = s->own = calloc(1, sizeof(*own));
    if (own != NULL) {
        own->items = calloc((size_t)facts->max_sequences, sizeof(own->items[0]));
        own->guides = calloc((size_t)facts->max_sequences, sizeof(own->guides[0]));
    }
    if (own == NULL || own->items == NULL || own->guides == NULL)
        return error_set(failure, STATUS_NO_MEMORY, "", "memory is short");
    return speculation_open(&((const decode_config *)s->settings)->speculate, &s->config->engine,
                            s->engine, &own->speculation, failure);
}

static void own_close(station *s)
{
    decode_own *own = s->own;
    if (own == NULL)
        return;
    speculation_close(own->speculation);
    free(own->items);
    free(own->guides);
    free(own);
}

// What the draft model, where it may guess for it, may draw: a place of its own in the same
// grammar. NULL: anything, or it does not guess.
static guide *guesses_guide(station *s, const job *j, sequence_request *request)
{
    const speculation *p = ((const decode_own *)s->own)->speculation;
    guide *other = NULL;
    if (j->guide != NULL && speculation_guided(p, j->message->ticket->drafter))
        other = guides_take(s->guides, slice_of(j->message->ticket->grammar));
    if (other != NULL && guide_state_of(other) == GUIDE_READY)
        request->guide = guide_begin(other);
    return other;
}

static void guesses_begin(station *s, job *j)
{
    decode_own *own = s->own;
    sequence_request request;
    error failure;
    if (ticket_read(j->message->ticket, SEQUENCE_GENERATE, j, s->biases, &request, &failure) !=
        STATUS_OK)
        return;
    guide *other = guesses_guide(s, j, &request);
    j->guess_slot = speculation_begin(own->speculation, &request, j->message->ticket->drafter);
    if (j->guess_slot < 0)
        guide_release(other);
    else
        own->guides[j->guess_slot] = other;
}

static void closing(station *s, job *j)
{
    decode_own *own = s->own;
    int32_t count;
    const int32_t *tokens = sequence_tokens(j->sequence, &count);
    speculation_end(own->speculation, j->guess_slot, tokens, j->prompt_count, count);
    if (j->guess_slot >= 0) {
        guide_release(own->guides[j->guess_slot]);
        own->guides[j->guess_slot] = NULL;
    }
    j->guess_slot = -1;
}

static void trouble_show(station *s, const char *reason, uint64_t *told, uint64_t now)
{
    for (; *told < now; ++*told)
        page_fallback(s->page, "guesses", reason);
}

static void guesses_show(station *s, uint64_t now_us)
{
    decode_own *own = s->own;
    if (now_us - own->shown_us < SHOW_US)
        return;
    own->shown_us = now_us;
    draft_model_troubles now = guesses_report(own->speculation, &s->state.guesses);
    trouble_show(s, "pages", &own->troubles.pages, now.pages);
    trouble_show(s, "failed", &own->troubles.failed, now.failed);
    trouble_show(s, "stalled", &own->troubles.stalled, now.stalled);
    page_guesses_show(s->page, engine_facts_of(s->engine)->model_name, &s->state.guesses);
    guesses_warn(own->speculation, &own->warned);
}

static bool idle(station *s)
{
    return speculation_work(((decode_own *)s->own)->speculation);
}

// A sequence that moves makes one token a step: its seat has room for so many.
static void stepping(station *s)
{
    decode_own *own = s->own;
    int32_t count = 0;
    bool prompts = false;
    for (int32_t i = 0; i < job_count(s->jobs); i++) {
        const job *j = job_at(s->jobs, i);
        prompts = prompts || j->state == JOB_COMPUTING;
        if (j->state == JOB_RUNNING)
            own->items[count++] =
                (speculation_item){ j->sequence, j->moving ? -1 : j->guess_slot, j->class };
    }
    speculation_guess(own->speculation, s->engine, own->items, count, prompts);
}

// ---- tickets -----------------------------------------------------------------------------------

static status begin(station *s, job *j, error *failure)
{
    (void)s;
    if (j->message->ticket->decode != NULL)
        return error_set(failure, STATUS_INVALID, "decode",
                         "this is a decode worker; the ticket is a prefill worker's");
    return STATUS_OK;
}

static void compute(station *s, job *j)
{
    j->state = JOB_COMPUTING;
    engine_sequence_start(s->engine, j->sequence);
}

// Promise the pages behind the known prefix to the hand-off. The prefix never covers the last
// token's page, so there is at least one.
static void seat(station *s, job *j, uint64_t incarnation)
{
    int32_t page_tokens = engine_facts_of(s->engine)->layout.page_tokens;
    int32_t table_count, first = sequence_reused(j->sequence) / page_tokens;
    const int32_t *pages = sequence_pages(j->sequence, &table_count);
    int32_t spare = (int32_t)j->message->ticket->spare_tokens;
    int32_t count = (j->token_count + spare + page_tokens - 1) / page_tokens;
    count = count < table_count ? count : table_count; // the context ends
    CHECK(first < count);
    station_hold(s, j, pages + first, count - first);
    j->state = JOB_SEATED;
    j->transfer = true;
    handoff_seat_open(s->handoff, j->key, incarnation, ++s->generation, pages, count, first);
    report_seat(j, count);
}

static void enter(station *s, job *j)
{
    const Penstock__PlanPeer *prefill = j->message->ticket->prefill;
    guesses_begin(s, j);
    if (prefill == NULL)
        compute(s, j);
    else
        seat(s, j, prefill->incarnation);
}

// ---- transfers ---------------------------------------------------------------------------------

static void filled(station *s, job *j, const handoff_event *event)
{
    j->times.first_page = event->first_page_us;
    j->times.last_page = event->last_page_us;
    const handoff_record *record = &event->record;
    int32_t tokens[HANDOFF_MADE_MAX + 1];
    memcpy(tokens, record->made, (size_t)record->made_count * sizeof(tokens[0]));
    tokens[record->made_count] = record->next_token;
    status result = engine_sequence_place(s->engine, j->sequence, record->computed, tokens,
                                          record->made_count + 1);
    if (result == STATUS_OK)
        j->state = JOB_RUNNING;
    else
        station_fail(s, j, STATUS_PEER_PROTOCOL, "the hand-over record does not fit the ticket");
}

static void failed(station *s, job *j, status code)
{
    // The prefill worker ended it and told the router why: the first token was the last, or it gave
    // up.
    if (code == STATUS_PEER_REFUSED) {
        station_end(s, j, true);
        return;
    }
    if (!settings_of(s)->recompute_failed_handoff || j->router == NULL) {
        station_fail(s, j, code == STATUS_OK ? STATUS_PEER_CLOSED : code, "the hand-off failed");
        return;
    }
    page_fallback(s->page, "recompute", "handoff");
    j->recompute = true;
    j->stopping = true;
    handoff_seat_close(s->handoff, j->key);
}

static void transfer(station *s, job *j, const handoff_event *event)
{
    if (j->moving) {
        migrate_transfer(s, j, event);
        return;
    }
    switch (event->kind) {
    case HANDOFF_SEAT_FILLED:
        filled(s, j, event);
        break;
    case HANDOFF_SEAT_FAILED:
        failed(s, j, event->code);
        break;
    case HANDOFF_SEAT_OVER:
        CHECK(j->recompute); // every other stopped seat is of an ending job
        j->recompute = j->stopping = j->transfer_failed = false; // it may move yet
        compute(s, j);
        break;
    default:
        break;
    }
}

// ---- steps -------------------------------------------------------------------------------------

static void stepped(station *s, const engine_report *report)
{
    uint64_t now_us = clock_now_us();
    speculation_learn(((decode_own *)s->own)->speculation, report);
    guesses_show(s, now_us);
    for (int32_t i = 0; i < report->token_count; i++) {
        const engine_token *token = &report->tokens[i];
        job *j = token->owner;
        if (j->state == JOB_COMPUTING) {
            j->times.prefill_done = now_us;
            j->state = JOB_RUNNING;
            station_count_reused(s, j);
        } else if (j->times.first_step == 0) {
            j->times.first_step = s->step_begun_us;
            j->told_times = false; // the first decode step belongs to the time line
        }
        if (token->finish != SEQUENCE_UNFINISHED)
            j->times.finished = now_us;
        report_batch_add(s->batch, j, token, false);
        if (token->finish != SEQUENCE_UNFINISHED)
            station_end(s, j, token->finish != SEQUENCE_FAILED);
    }
    migrate_stepped(s);
}

const station_role decode_role = {
    .name = "decode",
    .role = PENSTOCK__ROLE__ROLE_DECODE,
    .mode = SEQUENCE_GENERATE,
    .seats = true,
    .begin = begin,
    .enter = enter,
    .migrate = migrate_begin,
    .transfer = transfer,
    .idle = idle,
    .stepping = stepping,
    .stepped = stepped,
    .open = own_open,
    .close = own_close,
    .closing = closing,
};

static const config_part parts[] = {
    STATION_PARTS,
    { &section, offsetof(decode_config, decode) },
    { &speculation_config_section, offsetof(decode_config, speculate) },
};

const config_program decode_program = {
    .name = "penstock-decode",
    .summary = "Receives KV pages from prefill workers and generates tokens.",
    .parts = parts,
    .part_count = sizeof(parts) / sizeof(parts[0]),
    .settings_size = sizeof(decode_config),
    .live = station_live_keys,
};
