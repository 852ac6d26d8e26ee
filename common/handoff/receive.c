#include "handoff/handoff_private.h"

#include "base/clock.h"
#include "base/log.h"

static handoff_seat *find_seat(handoff *h, const handoff_key *key)
{
    for (uint32_t i = 0; i < h->seats_used; i++)
        if (h->seats[i].t.state != SEAT_FREE && handoff_key_equal(&h->seats[i].key, key))
            return &h->seats[i];
    return NULL;
}

// The seat that a message of this pair means, or NULL: unknown, of another peer, or of another
// generation.
static handoff_seat *seat_meant(handoff *h, handoff_pair *p, const Penstock__Transfer *t)
{
    handoff_key key = wire_key(t);
    handoff_seat *s = find_seat(h, &key);
    if (s && s->pair == p && s->generation == t->generation)
        return s;
    h->stats.runs_dropped++;
    h->changed = true;
    return NULL;
}

static void emit(handoff *h, const handoff_seat *s, handoff_event_kind kind, status code)
{
    handoff_event event = { .kind = kind, .key = s->key, .code = code, .bytes = s->bytes };
    event.first_page = s->first_page;
    event.record = s->record;
    event.first_page_us = s->first_us;
    event.last_page_us = s->last_us;
    handoff_emit(h, &event);
}

static void watch_pair(handoff *h, handoff_pair *p)
{
    bool busy = p->state != PAIR_READY;
    for (uint32_t i = 0; i < h->seats_used && !busy; i++)
        busy = h->seats[i].t.state != SEAT_FREE && h->seats[i].pair == p;
    fabric_set_busy(h->net, p->peer, busy);
}

static void apply(handoff *h, handoff_seat *s, seat_event event, status code)
{
    uint8_t before = s->t.state;
    uint32_t actions = table_seat_step(&s->t, event);
    CHECK(!(actions & TABLE_NEVER));
    if (s->code == STATUS_OK && (s->t.state == SEAT_FAILED || s->t.state == SEAT_CLOSING))
        s->code = code;
    h->changed = true;
    h->stats.runs_dropped += (actions & TABLE_DROP) != 0;
    if (actions & TABLE_OPEN)
        wire_seat_open(h, s);
    if (actions & TABLE_TELL)
        wire_seat_closed(h, s);
    if (actions & TABLE_ANSWER)
        wire_received(h, s);
    if (actions & TABLE_FAIL)
        fabric_fail(h->net, s->pair->peer, s->code);
    if (actions & TABLE_FAILED)
        emit(h, s, HANDOFF_SEAT_FAILED, s->code);
    if (actions & TABLE_DONE)
        emit(h, s, HANDOFF_SEAT_FILLED, STATUS_OK);
    if (actions & TABLE_OVER)
        emit(h, s, HANDOFF_SEAT_OVER, s->code);
    h->stats.transfers_done += (actions & TABLE_DONE) != 0;
    h->stats.transfers_failed += (actions & TABLE_FAILED) != 0;
    if (s->pair && before != SEAT_FREE && s->t.state == SEAT_FREE) {
        if (s->pair->state != PAIR_FREE)
            watch_pair(h, s->pair);
        s->pair = NULL;
    } else if (s->pair && before == SEAT_WAITING)
        fabric_set_busy(h->net, s->pair->peer, true);
}

static handoff_seat *take_seat(handoff *h, const handoff_command *c)
{
    for (uint32_t i = 0; i < HANDOFF_TRANSFERS_MAX; i++) {
        handoff_seat *s = &h->seats[i];
        if (i < h->seats_used && s->t.state != SEAT_FREE)
            continue;
        if (i >= h->seats_used)
            h->seats_used = i + 1;
        size_t at = (size_t)(HANDOFF_TRANSFERS_MAX + i) * (size_t)h->pages_max;
        *s = (handoff_seat){ .key = c->key,
                             .incarnation = c->peer.incarnation,
                             .generation = c->generation,
                             .first_page = c->first_page,
                             .page_count = c->page_count,
                             .pages = h->page_memory + at,
                             .in = h->in_memory + (size_t)i * (size_t)h->pages_max,
                             .needed = -1,
                             .progress_us = fabric_now_us(h->net) };
        memset(s->in, SEAT_PAGE_MISSING, (size_t)c->page_count);
        return s;
    }
    return NULL;
}

// The pages are all named: the seat waits for its peer, which may be there already.
static void open_seat(handoff *h, handoff_seat *s)
{
    uint32_t index = (uint32_t)(s - h->seats);
    if (index >= h->seats_used) // it did not count while its pages were being named
        h->seats_used = index + 1;
    apply(h, s, SEAT_OPEN, STATUS_OK);
    handoff_pair *p = pair_for(h, s->incarnation, false);
    if (p == NULL || p->state != PAIR_READY)
        return;
    s->pair = p;
    pair_use(h, p);
    apply(h, s, SEAT_PAIR_READY, STATUS_OK);
}

// No place for one more half-open transfer: failed and over at once, nothing was ever held.
static void refuse_seat(handoff *h, const handoff_command *c)
{
    handoff_event event = { .kind = HANDOFF_SEAT_FAILED, .key = c->key, .code = STATUS_OVERLOADED };
    h->stats.transfers_failed++;
    h->changed = true;
    handoff_emit(h, &event);
    event.kind = HANDOFF_SEAT_OVER;
    handoff_emit(h, &event);
}

static void name_pages(handoff *h, const handoff_command *c)
{
    bool last = c->first + c->count == c->page_count;
    if (c->first == 0 && find_seat(h, &c->key)) {
        log_error(HANDOFF_TAG, "a seat was opened twice; the second is ignored");
        apply(h, find_seat(h, &c->key), SEAT_OPEN, STATUS_OK);
        h->opening = NULL;
    } else if (c->first == 0) {
        h->opening = take_seat(h, c);
        if (h->opening == NULL)
            refuse_seat(h, c);
    }
    if (h->opening == NULL)
        return;
    memcpy(h->opening->pages + c->first, c->pages, (size_t)c->count * sizeof(c->pages[0]));
    if (last)
        open_seat(h, h->opening);
}

void seat_command(handoff *h, const handoff_command *c)
{
    if (c->kind == COMMAND_SEAT_OPEN) {
        name_pages(h, c);
        return;
    }
    handoff_seat *s = find_seat(h, &c->key);
    if (s)
        apply(h, s, SEAT_CLOSE, STATUS_CANCELLED);
}

static bool run_fits(const handoff *h, const handoff_seat *s, const Penstock__PageRun *m,
                     size_t size)
{
    if (m->page_count > FABRIC_PIECES_MAX || size != m->page_count * h->identity.page_bytes)
        return false;
    int64_t first = m->first_page, end = first + m->page_count;
    int32_t limit = s->needed >= 0 ? s->needed : s->page_count;
    if (first < s->first_page || end > limit)
        return false;
    for (int64_t i = first; i < end; i++)
        if (s->in[i] != SEAT_PAGE_MISSING)
            return false;
    return true;
}

static void place(const handoff *h, handoff_seat *s, const Penstock__PageRun *m,
                  fabric_placement *placement)
{
    size_t size = h->identity.page_bytes;
    const int32_t *pages = s->pages + m->first_page;
    for (uint32_t i = 0; i < m->page_count; i++) {
        if (i > 0 && pages[i] == pages[i - 1] + 1)
            placement->pieces[placement->count - 1].size += size;
        else
            placement->pieces[placement->count++] =
                (fabric_piece){ h->pool + (size_t)pages[i] * size, size };
    }
    memset(s->in + m->first_page, SEAT_PAGE_POSTED, m->page_count);
}

bool seat_place_run(handoff *h, handoff_pair *p, const Penstock__PageRun *m, size_t size,
                    fabric_placement *placement)
{
    handoff_seat *s = seat_meant(h, p, m->transfer);
    if (s == NULL)
        return false;
    bool takes = s->t.state == SEAT_OPENED || s->t.state == SEAT_RECORDED;
    if (takes && !run_fits(h, s, m, size)) {
        log_warn(HANDOFF_TAG, "peer %s sent pages %u..%u that its seat does not want", p->address,
                 m->first_page, m->first_page + m->page_count);
        apply(h, s, SEAT_MALFORMED, STATUS_PEER_PROTOCOL);
        return false;
    }
    apply(h, s, SEAT_ANNOUNCED, STATUS_OK);
    if (!takes)
        return false;
    uint32_t index = h->free_run;
    if (index == HANDOFF_NO_RUN) {
        apply(h, s, SEAT_MALFORMED, STATUS_FULL);
        return false;
    }
    h->free_run = h->runs[index].next;
    h->runs[index] = (handoff_run){ .seat = (uint32_t)(s - h->seats),
                                    .first = (int32_t)m->first_page,
                                    .count = (int32_t)m->page_count,
                                    .checksum = m->checksum };
    placement->token = HANDOFF_TOKEN_RUN | index;
    place(h, s, m, placement);
    s->progress_us = fabric_now_us(h->net);
    apply(h, s, SEAT_POSTED, STATUS_OK);
    return true;
}

// The last of pages and record is in: the transfer is complete.
static void look_if_complete(handoff *h, handoff_seat *s)
{
    if (s->t.state == SEAT_RECORDED && s->t.held == 0 && s->stored == s->needed - s->first_page)
        apply(h, s, SEAT_COMPLETE, STATUS_OK);
}

// Whether a page that the record does not need has come, or is coming.
static bool came_from(const handoff_seat *s, int64_t needed)
{
    for (int64_t i = needed; i < s->page_count; i++)
        if (s->in[i] != SEAT_PAGE_MISSING)
            return true;
    return false;
}

void seat_on_record(handoff *h, handoff_pair *p, const Penstock__HandoverRecord *m)
{
    handoff_seat *s = seat_meant(h, p, m->transfer);
    if (s == NULL)
        return;
    int64_t page_tokens = h->identity.page_tokens;
    int64_t needed = (m->computed + page_tokens - 1) / page_tokens;
    if (needed < s->first_page)
        needed = s->first_page;
    bool takes = s->t.state == SEAT_OPENED;
    bool known = (uint32_t)m->next_token->id < h->identity.vocabulary;
    for (size_t i = 0; i < m->n_made; i++)
        known = known && (uint32_t)m->made[i] < h->identity.vocabulary;
    if (takes && (needed > s->page_count || came_from(s, needed) || !known)) {
        log_warn(HANDOFF_TAG, "peer %s sent a record of %u tokens for a seat of %d pages",
                 p->address, m->computed, s->page_count);
        apply(h, s, SEAT_MALFORMED, STATUS_PEER_PROTOCOL);
        return;
    }
    apply(h, s, SEAT_RECORD, STATUS_PEER_PROTOCOL);
    if (!takes)
        return;
    s->needed = (int32_t)needed;
    s->record = (handoff_record){ .computed = (int32_t)m->computed,
                                  .next_token = m->next_token->id,
                                  .made_count = (int32_t)m->n_made };
    if (m->n_made > 0)
        memcpy(s->record.made, m->made, m->n_made * sizeof(m->made[0]));
    s->progress_us = fabric_now_us(h->net);
    look_if_complete(h, s);
}

void seat_on_send_ended(handoff *h, handoff_pair *p, const Penstock__SendEnded *m)
{
    handoff_key key = wire_key(m->transfer);
    handoff_seat *s = find_seat(h, &key);
    // Generation 0: the prefill worker gave up before it heard of the seat.
    if (s && s->pair == p && m->transfer->generation == 0)
        apply(h, s, SEAT_SEND_ENDED, STATUS_PEER_REFUSED);
    else if ((s = seat_meant(h, p, m->transfer)))
        apply(h, s, SEAT_SEND_ENDED, STATUS_PEER_REFUSED);
}

void seat_returned(handoff *h, uint64_t token, status code)
{
    uint32_t index = (uint32_t)token;
    handoff_run run = h->runs[index];
    handoff_seat *s = &h->seats[run.seat];
    h->runs[index].next = h->free_run;
    h->free_run = index;
    CHECK(s->t.state != SEAT_FREE && s->t.held > 0);
    s->progress_us = fabric_now_us(h->net);
    uint64_t size = (uint64_t)run.count * h->identity.page_bytes;
    bool wanted = s->t.state == SEAT_OPENED || s->t.state == SEAT_RECORDED;
    if (code == STATUS_OK && wanted && h->settings.checksums && run.checksum != 0 &&
        handoff_checksum(h, s->pages + run.first, run.count) != run.checksum) {
        log_warn(HANDOFF_TAG, "pages %d..%d from peer %s have a wrong checksum", run.first,
                 run.first + run.count, s->pair->address);
        code = STATUS_PEER_PROTOCOL;
    }
    if (code == STATUS_OK) {
        s->last_us = clock_now_us();
        s->first_us = s->first_us ? s->first_us : s->last_us;
        s->bytes += size;
        s->stored += run.count;
        h->stats.bytes_received += size;
        memset(s->in + run.first, SEAT_PAGE_STORED, (size_t)run.count);
    }
    apply(h, s, code == STATUS_OK ? SEAT_STORED : SEAT_BROKEN, code);
    look_if_complete(h, s);
}

void seat_raise(handoff *h, handoff_pair *p, seat_event event)
{
    for (uint32_t i = 0; i < h->seats_used; i++) {
        handoff_seat *s = &h->seats[i];
        bool waits = s->t.state == SEAT_WAITING && !p->client && p->incarnation != 0 &&
                     s->incarnation == p->incarnation;
        if (s->t.state == SEAT_FREE || (!waits && s->pair != p))
            continue;
        if (event == SEAT_PAIR_READY)
            s->pair = p;
        if (event != SEAT_PAIR_CLOSED || s->t.pair_held)
            apply(h, s, event, p->code);
        if (event == SEAT_PAIR_CLOSED)
            s->pair = NULL; // its place goes to another peer
    }
}

void seat_tick(handoff *h, uint64_t absent_us)
{
    uint64_t now_us = fabric_now_us(h->net), fail_us = (uint64_t)h->settings.fail_us;
    uint64_t wait_us = 6 * (uint64_t)h->settings.connect_us;
    for (uint32_t i = 0; i < h->seats_used; i++) {
        handoff_seat *s = &h->seats[i];
        s->progress_us = clock_forgive(s->progress_us, absent_us, now_us);
        uint64_t silent_us = now_us - s->progress_us;
        if (s->t.state == SEAT_WAITING && silent_us > wait_us)
            apply(h, s, SEAT_UNANSWERED, STATUS_PEER_SILENT);
        if (s->t.state < SEAT_OPENED || s->pair == NULL || s->pair->state != PAIR_READY ||
            silent_us < fail_us)
            continue;
        if (s->t.held > 0) {
            s->progress_us = now_us;
            apply(h, s, SEAT_STALLED, STATUS_PEER_SILENT);
        } else if (s->t.state == SEAT_RECORDED)
            apply(h, s, SEAT_UNANSWERED, STATUS_PEER_SILENT);
    }
    while (h->seats_used > 0 && h->seats[h->seats_used - 1].t.state == SEAT_FREE)
        h->seats_used--;
}
