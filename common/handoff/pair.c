#include "handoff/handoff_private.h"

#include "base/clock.h"
#include "base/log.h"

#include <stdio.h>
#include <stdlib.h>

#define REFUSAL_HOLDS_US 5000000 // a peer that serves something else is not asked again so soon
#define FAILURE_HOLDS_US 200000  // nor one that could not be reached

handoff_pair *pair_of(handoff *h, fabric_peer peer)
{
    for (uint32_t i = 0; i < HANDOFF_PEERS_MAX; i++)
        if (h->pairs[i].state != PAIR_FREE && h->pairs[i].peer == peer)
            return &h->pairs[i];
    return NULL;
}

handoff_pair *pair_for(handoff *h, uint64_t incarnation, bool client)
{
    for (uint32_t i = 0; i < HANDOFF_PEERS_MAX; i++) {
        handoff_pair *p = &h->pairs[i];
        if (p->state != PAIR_FREE && p->state != PAIR_CLOSING && p->state != PAIR_REFUSED &&
            p->client == client && p->incarnation == incarnation)
            return p;
    }
    return NULL;
}

// Whether a transfer goes over it, or waits for it.
static bool is_used(const handoff *h, const handoff_pair *p)
{
    for (uint32_t i = 0; i < h->sends_used; i++)
        if (h->sends[i].t.state != SEND_FREE && h->sends[i].pair == p)
            return true;
    for (uint32_t i = 0; i < h->seats_used; i++)
        if (h->seats[i].t.state != SEAT_FREE && h->seats[i].pair == p)
            return true;
    return false;
}

void pair_use(handoff *h, handoff_pair *p)
{
    p->used_us = fabric_now_us(h->net);
}

static handoff_pair *take_pair(handoff *h)
{
    for (uint32_t i = 0; i < HANDOFF_PEERS_MAX; i++)
        if (h->pairs[i].state == PAIR_FREE)
            return &h->pairs[i];
    return NULL;
}

// The transport must be the first one that the configuration names, or what it stands for.
static bool transport_is_slow(const char *name)
{
    const char *list = getenv("UCX_TLS");
    if (list == NULL || *list == '^' || *name == 0)
        return false;
    list += strncmp(list, "self,", 5) == 0 ? 5 : 0;
    size_t length = strcspn(list, ",");
    if (strncmp(list, "all", length) == 0 || strncmp(name, list, length) == 0)
        return false;
    if (strncmp(list, "ib", length) == 0)
        return strncmp(name, "rc_", 3) != 0 && strncmp(name, "dc_", 3) != 0;
    if (strncmp(list, "sm", length) == 0 || strncmp(list, "shm", length) == 0)
        return strcmp(name, "posix") != 0 && strcmp(name, "sysv") != 0 && strcmp(name, "cma") != 0;
    return true;
}

static void release_probe(handoff_pair *p)
{
    if (p->probe_held > 0 && p->state != PAIR_FREE)
        return;
    free(p->probe);
    p->probe = NULL;
}

// The pair is in use from now on, or it is not any more: its transfers hear of it. `spared`: it
// worked and nothing went over it, so that the next one who wants it may connect at once.
static void tell_transfers(handoff *h, handoff_pair *p, bool spared)
{
    bool ready = p->state == PAIR_READY;
    if (ready) {
        h->stats.peers_open++;
        pair_use(h, p);
        fabric_transport(h->net, p->peer, h->stats.transport);
        log_info(HANDOFF_TAG, "peer %s ready transport %s gbps %.2f token %s", p->address,
                 h->stats.transport, h->stats.probe_gbps,
                 p->token.half[0] | p->token.half[1] ? "shown" : "none");
    } else if (p->client && !spared)
        handoff_note_peer(h, p->incarnation, p->code,
                          p->code == STATUS_PEER_MISMATCH ? REFUSAL_HOLDS_US : FAILURE_HOLDS_US);
    send_raise(h, p, ready ? SEND_PAIR_READY : SEND_PAIR_FAILED);
    seat_raise(h, p, ready ? SEAT_PAIR_READY : SEAT_PAIR_FAILED);
}

// The next round's data, or the answer to the peer's.
static void answer_probe(handoff *h, handoff_pair *p)
{
    status result = STATUS_OK;
    if (p->state == PAIR_READY) {
        if (p->client)
            wire_confirm(h, p);
        release_probe(p);
        return;
    }
    if (p->client && p->round + 1 == HANDOFF_PROBE_ROUNDS)
        p->probe_begin_us = clock_now_us();
    result = wire_probe(h, p, !p->client, p->client ? h->pattern : p->probe);
    if (result != STATUS_OK && result != STATUS_PEER_CLOSED)
        fabric_fail(h->net, p->peer, result);
}

void pair_apply(handoff *h, handoff_pair *p, pair_event event, status code)
{
    uint8_t before = p->state;
    uint32_t actions = table_pair_step(&p->state, event);
    CHECK(!(actions & TABLE_NEVER));
    if (before == PAIR_READY && p->state != PAIR_READY)
        h->stats.peers_open--;
    if (p->state == PAIR_CLOSING && before != PAIR_CLOSING) {
        p->code = code;
        log_info(HANDOFF_TAG, "peer %s over after %s: %s", p->address,
                 table_state_name(TABLE_PAIR, before), status_text(code));
    }
    h->changed = true;
    if (actions & TABLE_OPEN) {
        if (p->client)
            wire_hello(h, p);
        else
            wire_hello_reply(h, p, true, "");
    }
    if (actions & TABLE_ANSWER)
        answer_probe(h, p);
    if (actions & TABLE_RAISE)
        tell_transfers(h, p, before == PAIR_READY && !is_used(h, p));
    if (actions & TABLE_FAIL)
        fabric_fail(h->net, p->peer, code);
}

// Of more pairs than are to stay open, those that no transfer needs are closed, the one that was
// used longest ago first. One that was used a moment ago stays: its other end may have opened a
// seat over it for a ticket that is about to come here. Peers that have not been admitted do not
// count: they take nobody's place.
static void close_unused(handoff *h)
{
    int64_t open = 0;
    uint64_t now_us = fabric_now_us(h->net);
    for (uint32_t i = 0; i < HANDOFF_PEERS_MAX; i++) {
        uint8_t state = h->pairs[i].state;
        open += state == PAIR_GREETING || state == PAIR_PROBING || state == PAIR_READY;
    }
    for (; open > h->settings.peers; open--) {
        handoff_pair *oldest = NULL;
        for (uint32_t i = 0; i < HANDOFF_PEERS_MAX; i++) {
            handoff_pair *p = &h->pairs[i];
            if (p->state != PAIR_READY)
                continue;
            if (is_used(h, p))
                p->used_us = now_us; // it rests from the end of its last transfer on
            bool rests = p->used_us + (uint64_t)h->settings.suspect_us < now_us;
            if (rests && (!oldest || p->used_us < oldest->used_us))
                oldest = p;
        }
        if (oldest == NULL)
            return; // looked at again when a pair was made or time has passed
        h->stats.unused_pairs++;
        pair_apply(h, oldest, PAIR_UNUSED, STATUS_CANCELLED);
    }
}

status pair_connect(handoff *h, const handoff_peer *peer, handoff_pair **made)
{
    error failure;
    status result = handoff_noted(h, peer->incarnation);
    if (result != STATUS_OK)
        return result;
    handoff_pair *p = take_pair(h);
    fabric_peer id = 0;
    if (p == NULL)
        result = error_set(&failure, STATUS_FULL, "", "all %u pairs are in use", HANDOFF_PEERS_MAX);
    else
        result = fabric_connect(h->net, peer->host, peer->port, &id, &failure);
    if (result != STATUS_OK) {
        log_warn(HANDOFF_TAG, "peer %s:%u not connected: %s", peer->host, peer->port, failure.text);
        return result;
    }
    *p = (handoff_pair){
        .client = true, .peer = id, .incarnation = peer->incarnation, .token = peer->token
    };
    p->deadline_us = fabric_now_us(h->net) + (uint64_t)h->settings.connect_us;
    snprintf(p->address, sizeof(p->address), "%s:%u", peer->host, peer->port);
    fabric_set_busy(h->net, id, true);
    pair_apply(h, p, PAIR_CONNECT, STATUS_OK);
    close_unused(h);
    *made = p;
    return STATUS_OK;
}

void pair_on_accepted(void *owner, fabric_peer peer, const char *address)
{
    handoff *h = owner;
    handoff_pair *p = take_pair(h);
    if (p == NULL) {
        log_warn(HANDOFF_TAG, "peer %s refused: all pairs are in use", address);
        fabric_fail(h->net, peer, STATUS_FULL);
        return;
    }
    *p = (handoff_pair){ .peer = peer };
    p->deadline_us = fabric_now_us(h->net) + 2 * (uint64_t)h->settings.connect_us;
    snprintf(p->address, sizeof(p->address), "%s", address);
    pair_apply(h, p, PAIR_ACCEPT, STATUS_OK);
}

static void refuse(handoff *h, handoff_pair *p, const error *failure)
{
    log_warn(HANDOFF_TAG, "peer %s refused: %s", p->address, failure->text);
    wire_hello_reply(h, p, false, failure->text);
    p->code = failure->code;
    pair_apply(h, p, PAIR_STRANGER, failure->code);
}

static void forget_greeting(handoff_pair *p)
{
    message_free(p->greeting);
    p->greeting = NULL;
}

static void take_in(handoff *h, handoff_pair *p, const Penstock__Hello *hello)
{
    error failure;
    p->token = handoff_token_of(hello->token.data, hello->token.len);
    // A worker that connects again has given its earlier connection up.
    handoff_pair *earlier = pair_for(h, hello->incarnation, false);
    if (earlier)
        pair_apply(h, earlier, PAIR_BAD, STATUS_PEER_CLOSED);
    p->incarnation = hello->incarnation;
    if (wire_compare(h, hello, &failure) != STATUS_OK)
        refuse(h, p, &failure);
    else {
        pair_apply(h, p, PAIR_HELLO, STATUS_OK);
        close_unused(h);
    }
}

void pair_on_hello(handoff *h, handoff_pair *p, message_fabric **m)
{
    error failure;
    const Penstock__Hello *hello = (*m)->hello;
    if (p->state != PAIR_ACCEPTED || p->greeting) {
        pair_apply(h, p, PAIR_BAD, STATUS_PEER_PROTOCOL);
        return;
    }
    // A worker that was restarted will get no token for its former life.
    if (wire_wanted(h, hello, &failure) != STATUS_OK)
        refuse(h, p, &failure);
    else if (admit_take(h, hello))
        take_in(h, p, hello);
    else {
        uint64_t latest_us = fabric_now_us(h->net) + (uint64_t)h->settings.connect_us;
        p->deadline_us = p->deadline_us < latest_us ? p->deadline_us : latest_us;
        p->greeting = *m;
        *m = NULL;
    }
}

// Greetings that waited for what is known now; of one incarnation, or (0) of all.
static void look_who_waits(handoff *h, uint64_t incarnation)
{
    for (uint32_t i = 0; i < HANDOFF_PEERS_MAX; i++) {
        handoff_pair *p = &h->pairs[i];
        if (p->state != PAIR_ACCEPTED || p->greeting == NULL ||
            (incarnation != 0 && p->greeting->hello->incarnation != incarnation) ||
            !admit_take(h, p->greeting->hello))
            continue;
        take_in(h, p, p->greeting->hello);
        forget_greeting(p);
    }
}

void pair_on_admission(handoff *h, uint64_t incarnation)
{
    handoff_pair *known = pair_for(h, incarnation, false);
    if (known)
        pair_use(h, known);
    look_who_waits(h, incarnation);
}

void pair_on_unreadable(handoff *h, handoff_pair *p, const error *failure)
{
    if (p->state == PAIR_ACCEPTED) {
        refuse(h, p, failure);
        return;
    }
    log_warn(HANDOFF_TAG, "peer %s sent what cannot be read: %s", p->address, failure->text);
    pair_apply(h, p, PAIR_BAD, STATUS_PEER_PROTOCOL);
}

void pair_on_reply(handoff *h, handoff_pair *p, const Penstock__HelloReply *reply)
{
    if (p->state != PAIR_GREETING)
        pair_apply(h, p, PAIR_BAD, STATUS_PEER_PROTOCOL);
    else if (!reply->accepted || reply->incarnation != p->incarnation) {
        log_warn(HANDOFF_TAG, "peer %s refuses: %s", p->address,
                 reply->accepted ? "it is another incarnation" : reply->reason);
        pair_apply(h, p, PAIR_UNWELCOME, STATUS_PEER_MISMATCH);
    } else
        pair_apply(h, p, PAIR_WELCOME, STATUS_OK);
}

// The set-up is done on this side: is the transport what the configuration wants?
static void confirm(handoff *h, handoff_pair *p)
{
    char name[32];
    fabric_transport(h->net, p->peer, name);
    if (transport_is_slow(name)) {
        h->stats.slow_pairs++;
        log_warn(HANDOFF_TAG, "peer %s is reached by %s only, %s is wanted%s", p->address, name,
                 getenv("UCX_TLS"), h->settings.allow_slow ? "" : " and fabric.allow_slow is off");
        if (!h->settings.allow_slow) {
            pair_apply(h, p, PAIR_BAD, STATUS_PEER_REFUSED);
            return;
        }
    }
    if (p->probe_us > 0)
        h->stats.probe_gbps = 2e-3 * HANDOFF_PROBE_BYTES / (double)p->probe_us;
    pair_apply(h, p, PAIR_CONFIRM, STATUS_OK);
}

void pair_on_confirm(handoff *h, handoff_pair *p, const Penstock__Probe *probe)
{
    if (p->client || p->state != PAIR_PROBING || probe->bytes != 0 ||
        probe->sequence != HANDOFF_PROBE_ROUNDS || p->round != HANDOFF_PROBE_ROUNDS)
        pair_apply(h, p, PAIR_BAD, STATUS_PEER_PROTOCOL);
    else
        confirm(h, p);
}

bool pair_place_probe(handoff *h, handoff_pair *p, const Penstock__Probe *probe, size_t size,
                      fabric_placement *placement)
{
    bool expected = p->state == PAIR_PROBING && probe->answer == p->client &&
                    probe->sequence == p->round && p->round < HANDOFF_PROBE_ROUNDS;
    if (!expected || size != probe->bytes || size != HANDOFF_PROBE_BYTES) {
        log_warn(HANDOFF_TAG, "peer %s sent a probe of %zu bytes, %u are expected", p->address,
                 size, HANDOFF_PROBE_BYTES);
        pair_apply(h, p, PAIR_BAD, STATUS_PEER_PROTOCOL);
        return false;
    }
    if (p->probe == NULL)
        p->probe = malloc(HANDOFF_PROBE_BYTES);
    if (p->probe == NULL) {
        pair_apply(h, p, PAIR_BAD, STATUS_NO_MEMORY);
        return false;
    }
    p->probe_checksum = probe->checksum;
    p->probe_held++;
    placement->count = 1;
    placement->pieces[0] = (fabric_piece){ p->probe, HANDOFF_PROBE_BYTES };
    placement->token = HANDOFF_TOKEN_PROBE | (uint64_t)(p - h->pairs);
    return true;
}

static void probe_arrived(handoff *h, handoff_pair *p)
{
    uint64_t now_us = clock_now_us();
    uint64_t checksum = hash64_of(p->probe, HANDOFF_PROBE_BYTES, 0);
    // The answer must be what was sent, not only what the peer says it is.
    if (checksum != p->probe_checksum || (p->client && checksum != h->pattern_checksum)) {
        log_warn(HANDOFF_TAG, "peer %s moves data wrongly: a probe's checksum differs", p->address);
        pair_apply(h, p, PAIR_BAD, STATUS_PEER_PROTOCOL);
        return;
    }
    p->probe_us = now_us - p->probe_begin_us;
    if (!p->client) {
        // The decode worker measures from one probe's end to the next one's: an answer and a probe.
        p->probe_begin_us = now_us;
        pair_apply(h, p, PAIR_PROBE, STATUS_OK);
        p->round++;
        return;
    }
    p->round++;
    if (p->round < HANDOFF_PROBE_ROUNDS)
        pair_apply(h, p, PAIR_PROBE, STATUS_OK);
    else
        confirm(h, p);
}

void pair_probe_returned(handoff *h, handoff_pair *p, bool received, status code)
{
    CHECK(p->probe_held > 0);
    p->probe_held--;
    if (received && code == STATUS_OK && p->state == PAIR_PROBING)
        probe_arrived(h, p);
    else if (code != STATUS_OK && p->state == PAIR_PROBING)
        pair_apply(h, p, PAIR_BAD, code);
    if (p->state == PAIR_READY)
        release_probe(p);
}

void pair_tick(handoff *h, uint64_t absent_us)
{
    uint64_t now_us = fabric_now_us(h->net), connect_us = (uint64_t)h->settings.connect_us;
    if (absent_us > 0) {
        admit_forgive(h, absent_us);
        look_who_waits(h, 0);
    }
    for (uint32_t i = 0; i < HANDOFF_PEERS_MAX; i++) {
        handoff_pair *p = &h->pairs[i];
        bool setting_up = p->state != PAIR_FREE && p->state != PAIR_READY;
        if (!setting_up || p->state == PAIR_CLOSING)
            continue;
        uint64_t most_us = p->client || p->greeting ? connect_us : 2 * connect_us;
        p->deadline_us = clock_forgive(p->deadline_us, absent_us, now_us + most_us);
        if (now_us <= p->deadline_us)
            continue;
        if (p->greeting)
            log_warn(HANDOFF_TAG, "peer %s shows no token that a router gave for it", p->address);
        pair_apply(h, p, PAIR_LATE, p->greeting ? STATUS_PEER_REFUSED : STATUS_PEER_SILENT);
    }
    close_unused(h);
}

void pair_on_failed(void *owner, fabric_peer peer, status code)
{
    handoff *h = owner;
    handoff_pair *p = pair_of(h, peer);
    if (p)
        pair_apply(h, p, PAIR_FAILED, code);
}

void pair_on_closed(void *owner, fabric_peer peer)
{
    handoff *h = owner;
    handoff_pair *p = pair_of(h, peer);
    if (p == NULL)
        return;
    pair_apply(h, p, PAIR_CLOSED, p->code);
    send_raise(h, p, SEND_PAIR_CLOSED);
    seat_raise(h, p, SEAT_PAIR_CLOSED);
    release_probe(p);
    forget_greeting(p);
}
