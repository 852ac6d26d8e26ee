#include "handoff/handoff_private.h"

#include "base/clock.h"
#include "base/fault.h"
#include "base/log.h"

#include <stdlib.h>

static handoff_send *find_send(handoff *h, const handoff_key *key)
{
    for (uint32_t i = 0; i < h->sends_used; i++)
        if (h->sends[i].t.state != SEND_FREE && handoff_key_equal(&h->sends[i].key, key))
            return &h->sends[i];
    return NULL;
}

// A send that ended before its seat opened told nobody: the seat is answered when it opens. And a
// seat that found no place ends its send, which may begin later.
static void note_ended(handoff *h, handoff_key key)
{
    h->ended[h->ended_next++ % HANDOFF_ENDED] = key;
}

static bool has_ended(const handoff *h, const handoff_key *key)
{
    uint32_t known = h->ended_next < HANDOFF_ENDED ? h->ended_next : HANDOFF_ENDED;
    for (uint32_t i = 0; i < known; i++)
        if (handoff_key_equal(&h->ended[i], key))
            return true;
    return false;
}

static handoff_send *take_send(handoff *h, handoff_key key, handoff_pair *pair)
{
    for (uint32_t i = 0; i < HANDOFF_TRANSFERS_MAX; i++) {
        handoff_send *s = &h->sends[i];
        if (i < h->sends_used && s->t.state != SEND_FREE)
            continue;
        if (i >= h->sends_used)
            h->sends_used = i + 1;
        *s = (handoff_send){ .key = key, .pair = pair };
        s->pages = h->page_memory + (size_t)i * (size_t)h->pages_max;
        return s;
    }
    return NULL;
}

static void emit(handoff *h, const handoff_send *s, handoff_event_kind kind, status code)
{
    handoff_event event = { .kind = kind, .key = s->key, .code = code, .bytes = s->bytes };
    event.first_page = s->first_page;
    event.first_page_us = s->first_us;
    event.last_page_us = s->last_us;
    handoff_emit(h, &event);
}

// A busy pair is watched for signs of life.
static void watch_pair(handoff *h, handoff_pair *p)
{
    bool busy = p->state != PAIR_READY;
    for (uint32_t i = 0; i < h->sends_used && !busy; i++)
        busy = h->sends[i].t.state != SEND_FREE && h->sends[i].pair == p;
    fabric_set_busy(h->net, p->peer, busy);
}

static void apply(handoff *h, handoff_send *s, send_event event, status code)
{
    uint8_t before = s->t.state;
    uint32_t actions = table_send_step(&s->t, event);
    CHECK(!(actions & TABLE_NEVER));
    if (s->code == STATUS_OK && (s->t.state == SEND_STOPPING || (actions & TABLE_OVER)))
        s->code = code;
    h->changed = true;
    h->stats.runs_dropped += (actions & TABLE_DROP) != 0;
    h->early -= before == SEND_EARLY && s->t.state != SEND_EARLY;
    h->early += before != SEND_EARLY && s->t.state == SEND_EARLY;
    if (actions & TABLE_TELL)
        wire_send_ended(h, s->pair, s->key, s->generation, s->code);
    if (actions & TABLE_FAIL)
        fabric_fail(h->net, s->pair->peer, s->code);
    if (actions & TABLE_READY)
        emit(h, s, HANDOFF_SEAT_READY, STATUS_OK);
    if (actions & TABLE_SHIPPED)
        emit(h, s, HANDOFF_SHIPPED, STATUS_OK);
    if (actions & TABLE_DONE)
        emit(h, s, HANDOFF_DELIVERED, STATUS_OK);
    if (actions & TABLE_OVER)
        emit(h, s, HANDOFF_SEND_OVER, s->code);
    h->stats.transfers_done += (actions & TABLE_DONE) != 0;
    h->stats.transfers_failed += (actions & TABLE_OVER) != 0;
    if (before != SEND_FREE && s->t.state == SEND_FREE) {
        if (before != SEND_EARLY)
            note_ended(h, s->key);
        free(s->corrupt);
        s->corrupt = NULL;
        if (s->pair && s->pair->state != PAIR_FREE)
            watch_pair(h, s->pair);
        s->pair = NULL;
    } else if (before == SEND_FREE && s->pair)
        fabric_set_busy(h->net, s->pair->peer, true);
}

static void refuse_begin(handoff *h, handoff_key key, status code)
{
    handoff_event event = { .kind = HANDOFF_SEND_OVER, .key = key, .code = code };
    h->stats.transfers_failed++;
    h->changed = true;
    note_ended(h, key);
    handoff_emit(h, &event);
}

static void begin(handoff *h, const handoff_command *c)
{
    handoff_send *s = find_send(h, &c->key);
    if (s && s->t.state == SEND_EARLY && s->pair->incarnation != c->peer.incarnation) {
        apply(h, s, SEND_SEAT_CLOSED, STATUS_PEER_MISMATCH); // a seat of another worker
        s = NULL;
    }
    if (s) {
        apply(h, s, SEND_BEGIN, STATUS_OK);
        return;
    }
    if (has_ended(h, &c->key)) {
        refuse_begin(h, c->key, STATUS_OVERLOADED); // its seat found no place and is over
        return;
    }
    handoff_pair *p = pair_for(h, c->peer.incarnation, true);
    status result = p ? STATUS_OK : pair_connect(h, &c->peer, &p);
    if (p)
        pair_use(h, p);
    s = result == STATUS_OK ? take_send(h, c->key, p) : NULL;
    if (s == NULL) {
        refuse_begin(h, c->key, result == STATUS_OK ? STATUS_OVERLOADED : result);
        return;
    }
    apply(h, s, SEND_BEGIN, STATUS_OK);
    if (p->state == PAIR_READY)
        apply(h, s, SEND_PAIR_READY, STATUS_OK);
}

// Pages that the seat needs are kept in order; those it holds already are skipped.
static void take_pages(handoff *h, handoff_send *s, const handoff_command *c)
{
    int32_t skip = c->first < s->first_page ? s->first_page - c->first : 0;
    if (skip >= c->count)
        return;
    int32_t first = c->first + skip, end = c->first + c->count;
    if (first != s->ready || end > s->page_count) {
        log_error(HANDOFF_TAG, "pages %d..%d were given, %d..%d are next", first, end, s->ready,
                  s->page_count);
        apply(h, s, SEND_CANCEL, STATUS_INTERNAL);
        return;
    }
    memcpy(s->pages + first, c->pages + skip, (size_t)(end - first) * sizeof(s->pages[0]));
    s->ready = end;
}

void send_command(handoff *h, const handoff_command *c)
{
    static const send_event events[] = {
        [COMMAND_SEND_PAGES] = SEND_PAGES,
        [COMMAND_SEND_END] = SEND_END,
        [COMMAND_SEND_CANCEL] = SEND_CANCEL,
    };
    if (c->kind == COMMAND_SEND_BEGIN) {
        begin(h, c);
        return;
    }
    handoff_send *s = find_send(h, &c->key);
    if (s == NULL)
        return; // it crossed the event that ended the transfer
    bool flowing = s->t.state == SEND_FLOWING;
    apply(h, s, events[c->kind], STATUS_CANCELLED);
    if (flowing && c->kind == COMMAND_SEND_PAGES)
        take_pages(h, s, c);
    if (flowing && c->kind == COMMAND_SEND_END)
        s->record = c->record;
    s->progress_us = fabric_now_us(h->net);
}

void send_on_seat_open(handoff *h, handoff_pair *p, const Penstock__SeatOpen *m)
{
    handoff_key key = wire_key(m->transfer);
    handoff_send *s = find_send(h, &key);
    if (m->page_count > (uint32_t)h->pages_max || m->transfer->generation == 0) {
        pair_apply(h, p, PAIR_BAD, STATUS_PEER_PROTOCOL);
        return;
    }
    if (s && s->pair != p) {
        h->stats.runs_dropped++;
        return;
    }
    bool ended = s == NULL && has_ended(h, &key);
    if (s == NULL && !ended && h->early < HANDOFF_EARLY_MAX)
        s = take_send(h, key, p);
    if (s == NULL) {
        wire_send_ended(h, p, key, m->transfer->generation,
                        ended ? STATUS_CANCELLED : STATUS_OVERLOADED);
        if (!ended)
            note_ended(h, key);
        return;
    }
    if (s->t.state == SEND_FREE || s->t.state == SEND_WAITING) {
        s->generation = m->transfer->generation;
        s->first_page = s->next = s->ready = (int32_t)m->first_page;
        s->page_count = (int32_t)m->page_count;
    }
    s->progress_us = fabric_now_us(h->net);
    apply(h, s, SEND_SEAT_OPEN, STATUS_OK);
}

void send_on_message(handoff *h, handoff_pair *p, handoff_key key, uint64_t generation,
                     send_event event)
{
    handoff_send *s = find_send(h, &key);
    bool known = s && s->pair == p && (s->generation == 0 || s->generation == generation);
    if (known && event == SEND_RECEIVED && s->t.state == SEND_ENDED && !s->record_sent)
        known = false; // it cannot have received what was not sent
    if (known)
        apply(h, s, event, event == SEND_RECEIVED ? STATUS_PEER_PROTOCOL : STATUS_PEER_REFUSED);
    else {
        h->stats.runs_dropped++;
        h->changed = true;
    }
}

void send_raise(handoff *h, handoff_pair *p, send_event event)
{
    for (uint32_t i = 0; i < h->sends_used; i++) {
        handoff_send *s = &h->sends[i];
        bool concerned = s->t.state != SEND_FREE && s->pair == p;
        if (concerned && (event != SEND_PAIR_CLOSED || s->t.pair_held))
            apply(h, s, event, p->code);
    }
}

// The chain makes the checksum independent of how the pages lie in memory.
uint64_t handoff_checksum(const handoff *h, const int32_t *pages, int32_t count)
{
    uint64_t checksum = 0;
    size_t size = h->identity.page_bytes;
    for (int32_t i = 0; i < count; i++)
        checksum = hash64_of(h->pool + (size_t)pages[i] * size, size, checksum);
    return checksum ? checksum : 1; // 0 says that none was computed
}

// A copy of the run with one byte changed, sent instead of it.
static bool corrupt_run(handoff *h, handoff_send *s, int32_t count, fabric_piece *pieces)
{
    size_t size = h->identity.page_bytes;
    if (s->corrupt || !fault_fires(FAULT_HANDOFF_CORRUPT))
        return false;
    s->corrupt = malloc(size * (size_t)count);
    if (s->corrupt == NULL)
        return false;
    for (int32_t i = 0; i < count; i++)
        memcpy(s->corrupt + size * (size_t)i, h->pool + (size_t)s->pages[s->next + i] * size, size);
    s->corrupt[size * (size_t)count / 2] ^= 0x40;
    pieces[0] = (fabric_piece){ s->corrupt, size * (size_t)count };
    return true;
}

// Pages as few pieces: those that are neighbours in the pool become one.
static uint32_t gather(const handoff *h, const int32_t *pages, int32_t count, fabric_piece *pieces)
{
    size_t size = h->identity.page_bytes;
    uint32_t used = 0;
    for (int32_t i = 0; i < count; i++) {
        if (used > 0 && pages[i] == pages[i - 1] + 1)
            pieces[used - 1].size += size;
        else
            pieces[used++] = (fabric_piece){ h->pool + (size_t)pages[i] * size, size };
    }
    return used;
}

static status post_run(handoff *h, handoff_send *s)
{
    fabric_piece pieces[FABRIC_PIECES_MAX];
    int32_t count = s->ready - s->next < h->run_pages ? s->ready - s->next : h->run_pages;
    const int32_t *pages = s->pages + s->next;
    if (fault_fires(FAULT_HANDOFF_DROP)) {
        s->next += count;
        s->runs++;
        return STATUS_OK;
    }
    uint64_t checksum = h->settings.checksums ? handoff_checksum(h, pages, count) : 0;
    uint32_t used = corrupt_run(h, s, count, pieces) ? 1 : gather(h, pages, count, pieces);
    slice header = wire_page_run(h, s, s->next, count, checksum);
    uint64_t token = HANDOFF_TOKEN_RUN | (uint64_t)count << 32 | (uint64_t)(s - h->sends);
    status result = fabric_send_data(h->net, s->pair->peer, header, pieces, used, token);
    if (result != STATUS_OK)
        return result;
    s->next += count;
    s->runs++;
    s->delayed = false;
    if (s->t.held == 0)
        s->progress_us = fabric_now_us(h->net);
    apply(h, s, SEND_POSTED, STATUS_OK);
    return STATUS_OK;
}

// May a run of this transfer go now? Arms the delay fault once a run.
static bool can_post(handoff *h, handoff_send *s, const handoff_pair *p)
{
    bool flows = s->t.state == SEND_FLOWING || s->t.state == SEND_ENDED;
    if (!flows || s->pair != p || s->next >= s->ready)
        return false;
    uint64_t now_us = fabric_now_us(h->net);
    if (!s->delayed && fault_fires(FAULT_HANDOFF_DELAY)) {
        s->delayed = true;
        s->delayed_until_us = now_us + (uint64_t)fault_value(FAULT_HANDOFF_DELAY) * 1000;
    }
    return !s->delayed || now_us >= s->delayed_until_us;
}

static void pump_records(handoff *h)
{
    for (uint32_t i = 0; i < h->sends_used; i++) {
        handoff_send *s = &h->sends[i];
        if (s->t.state != SEND_ENDED || s->record_sent || s->next < s->ready)
            continue;
        s->record_sent = true;
        s->progress_us = fabric_now_us(h->net);
        wire_record(h, s);
    }
}

// Transfers of a pair share its window in turn, a run at a time.
static void pump_pair(handoff *h, handoff_pair *p)
{
    uint32_t passed = 0;
    while (passed < h->sends_used && fabric_window(h->net, p->peer) > 0) {
        handoff_send *s = &h->sends[p->next_send++ % h->sends_used];
        passed++;
        if (can_post(h, s, p) && post_run(h, s) == STATUS_OK)
            passed = 0;
    }
}

void send_pump(handoff *h)
{
    for (uint32_t i = 0; i < HANDOFF_PEERS_MAX && h->sends_used > 0; i++)
        if (h->pairs[i].state == PAIR_READY && h->pairs[i].client)
            pump_pair(h, &h->pairs[i]);
    pump_records(h);
    while (h->sends_used > 0 && h->sends[h->sends_used - 1].t.state == SEND_FREE)
        h->sends_used--;
}

void send_returned(handoff *h, uint64_t token, status code)
{
    handoff_send *s = &h->sends[token & 0xffffffff];
    uint64_t size = (token >> 32 & 0xffff) * h->identity.page_bytes;
    CHECK(s->t.state != SEND_FREE && s->t.held > 0);
    s->progress_us = fabric_now_us(h->net);
    if (code == STATUS_OK) {
        s->last_us = clock_now_us();
        s->first_us = s->first_us ? s->first_us : s->last_us;
        s->bytes += size;
        h->stats.bytes_sent += size;
    }
    apply(h, s, code == STATUS_OK ? SEND_RETURNED : SEND_BROKEN, code);
    if (s->t.state == SEND_FLOWING && s->t.held == 0 && s->next == s->ready)
        apply(h, s, SEND_SHIPPED, STATUS_OK);
}

void send_tick(handoff *h, uint64_t absent_us)
{
    uint64_t now_us = fabric_now_us(h->net), fail_us = (uint64_t)h->settings.fail_us;
    for (uint32_t i = 0; i < h->sends_used; i++) {
        handoff_send *s = &h->sends[i];
        s->progress_us = clock_forgive(s->progress_us, absent_us, now_us);
        if (s->t.state < SEND_FLOWING || s->pair->state != PAIR_READY ||
            now_us < s->progress_us + fail_us)
            continue;
        if (s->t.held > 0) {
            s->progress_us = now_us;
            apply(h, s, SEND_STALLED, STATUS_PEER_SILENT);
        } else if (s->t.state == SEND_ENDED && s->record_sent)
            apply(h, s, SEND_UNANSWERED, STATUS_PEER_SILENT);
    }
}

uint64_t send_wakeup_us(const handoff *h)
{
    uint64_t first_us = UINT64_MAX, now_us = fabric_now_us(h->net);
    for (uint32_t i = 0; i < h->sends_used; i++) {
        const handoff_send *s = &h->sends[i];
        // A delay that is over waits for the peer or its own end, and those wake us.
        if (s->t.state != SEND_FREE && s->delayed && s->delayed_until_us > now_us &&
            s->delayed_until_us < first_us)
            first_us = s->delayed_until_us;
    }
    return first_us;
}
