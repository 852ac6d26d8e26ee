#include "handoff/handoff_private.h"

#include "base/activity.h"
#include "base/clock.h"
#include "base/log.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

// clang-format off
#define KEY(field) offsetof(handoff_settings, field)
static const config_key fabric_keys[] = {
    { "fabric.host", CONFIG_STRING, KEY(host), "", 0, 0, "",
      "Address that the fabric binds and that prefill workers connect to; empty: that of the control plane.", NULL },
    { "fabric.port", CONFIG_INT, KEY(port), "0", 0, 65535, "",
      "Port of the fabric; 0: any free one.", NULL },
    { "fabric.transports", CONFIG_STRING, KEY(transports), "tcp,self", 0, 0, "",
      "UCX transports in order of preference (UCX_TLS), such as \"rc,tcp,self\".", NULL },
    { "fabric.devices", CONFIG_STRING, KEY(devices), "", 0, 0, "",
      "Network devices for UCX (UCX_NET_DEVICES); empty: the interface that holds fabric.host.", NULL },
    { "fabric.checksums", CONFIG_BOOL, KEY(checksums), "false", 0, 0, "",
      "Send and verify a checksum of every page run. Costs about 0.13 s of processor time per GB at each side.", NULL },
    { "fabric.run_bytes", CONFIG_BYTES, KEY(run_bytes), "1MiB", 65536, 67108864, "bytes",
      "Pages are gathered into messages of about this size.", NULL },
    { "fabric.window", CONFIG_INT, KEY(window), "8", 1, 64, "runs",
      "Page runs under way per peer.", NULL },
    { "fabric.suspect", CONFIG_DURATION, KEY(suspect_us), "2s", 10000, 600e6, "",
      "A peer that owes something and is silent so long is logged.", NULL },
    { "fabric.fail", CONFIG_DURATION, KEY(fail_us), "5s", 20000, 600e6, "",
      "A peer that owes something and is silent so long is given up.", NULL },
    { "fabric.connect", CONFIG_DURATION, KEY(connect_us), "5s", 10000, 600e6, "",
      "Time for a pair of workers to connect, compare and probe.", NULL },
    { "fabric.peers", CONFIG_INT, KEY(peers), "64", 1, HANDOFF_PEERS_MAX * 3 / 4, "workers",
      "Connections to other workers that stay open; of more, those that rest for fabric.suspect are closed, the one that was used longest ago first, and made again when they are wanted.", NULL },
    { "fabric.allow_slow", CONFIG_BOOL, KEY(allow_slow), "false", 0, 0, "",
      "Use a pair although its transport is not the first of fabric.transports (counted).", NULL },
};
// clang-format on
const config_section handoff_config_section = { fabric_keys,
                                                sizeof(fabric_keys) / sizeof(fabric_keys[0]) };

bool handoff_key_equal(const handoff_key *a, const handoff_key *b)
{
    return a->router == b->router && a->number == b->number && a->attempt == b->attempt;
}

// ---- events, notes, statistics: fabric thread
// ------------------------------------------------------

// Events wait in their order behind a full queue until the step thread takes some.
static void flush_events(handoff *h)
{
    while (h->backlog) {
        event_box *next = h->backlog->next; // read before the step thread can free it
        if (queue_push(h->events, h->backlog) != STATUS_OK)
            return;
        h->backlog = next;
        if (next == NULL)
            h->backlog_end = &h->backlog;
    }
}

void handoff_emit(handoff *h, const handoff_event *event)
{
    event_box *box = malloc(sizeof(*box));
    CHECK(box != NULL);
    box->event = *event;
    box->next = NULL;
    *h->backlog_end = box;
    h->backlog_end = &box->next;
}

void handoff_note_peer(handoff *h, uint64_t incarnation, status code, uint64_t duration_us)
{
    h->notes[h->note_next++ % HANDOFF_NOTES] =
        (handoff_note){ incarnation, fabric_now_us(h->net) + duration_us, code };
}

status handoff_noted(const handoff *h, uint64_t incarnation)
{
    for (uint32_t i = 0; i < HANDOFF_NOTES; i++)
        if (h->notes[i].incarnation == incarnation && h->notes[i].until_us > fabric_now_us(h->net))
            return h->notes[i].code;
    return STATUS_OK;
}

static void publish_stats(handoff *h)
{
    handoff_stats *stats = &h->stats;
    stats->sends_open = stats->seats_open = 0;
    stats->pages_quarantined = 0;
    for (uint32_t i = 0; i < h->sends_used; i++) {
        const handoff_send *s = &h->sends[i];
        stats->sends_open += s->t.state != SEND_FREE;
        if (s->t.state == SEND_STOPPING)
            stats->pages_quarantined += (uint64_t)(s->ready - s->first_page);
    }
    for (uint32_t i = 0; i < h->seats_used; i++) {
        const handoff_seat *s = &h->seats[i];
        stats->seats_open += s->t.state != SEAT_FREE;
        if ((s->t.state == SEAT_FAILED || s->t.state == SEAT_CLOSING) && s->t.held > 0)
            stats->pages_quarantined += (uint64_t)(s->page_count - s->first_page);
    }
    pthread_mutex_lock(&h->lock);
    h->published = *stats;
    pthread_mutex_unlock(&h->lock);
    h->changed = false;
}

// ---- the fabric thread
// -----------------------------------------------------------------------------

static void on_sent(void *owner, fabric_peer peer, uint64_t token, status code)
{
    handoff *h = owner;
    (void)peer;
    if (token & HANDOFF_TOKEN_PROBE)
        pair_probe_returned(h, &h->pairs[token & 0xffff], false, code);
    else
        send_returned(h, token, code);
}

static void on_received(void *owner, fabric_peer peer, uint64_t token, status code)
{
    handoff *h = owner;
    (void)peer;
    if (token & HANDOFF_TOKEN_PROBE)
        pair_probe_returned(h, &h->pairs[token & 0xffff], true, code);
    else
        seat_returned(h, token, code);
}

static void run_commands(handoff *h)
{
    handoff_command *c;
    for (int i = 0; i < 256 && (c = queue_pop(h->commands)); i++) {
        if (c->kind == COMMAND_STOP)
            h->stop = true;
        else if (c->kind == COMMAND_ADMIT)
            admit_command(h, c);
        else if (c->kind == COMMAND_SEAT_OPEN || c->kind == COMMAND_SEAT_CLOSE)
            seat_command(h, c);
        else
            send_command(h, c);
        CHECK(queue_push(h->free_commands, c) == STATUS_OK);
    }
}

// Deadlines, a few times a second. Time in which this thread did not run is not counted.
static void tick(handoff *h)
{
    uint64_t now_us = fabric_now_us(h->net);
    uint64_t passed_us = now_us - h->tick_us, usual_us = (uint64_t)h->settings.fail_us / 20;
    if (passed_us < usual_us)
        return;
    uint64_t absent_us = passed_us > 4 * usual_us ? passed_us - usual_us : 0;
    h->tick_us = now_us;
    pair_tick(h, absent_us);
    send_tick(h, absent_us);
    seat_tick(h, absent_us);
}

static int64_t time_to_sleep_us(const handoff *h)
{
    int64_t sleep_us = h->settings.fail_us / 20;
    uint64_t now_us = fabric_now_us(h->net), wakeup_us = send_wakeup_us(h);
    if (h->backlog)
        sleep_us = sleep_us < 1000 ? sleep_us : 1000;
    if (wakeup_us != UINT64_MAX && wakeup_us < now_us + (uint64_t)sleep_us)
        sleep_us = wakeup_us > now_us ? (int64_t)(wakeup_us - now_us) : 0;
    return sleep_us;
}

static status open_fabric(handoff *h, error *failure)
{
    uint64_t run_max = FABRIC_PIECES_MAX * h->identity.page_bytes;
    fabric_settings settings = {
        .host = h->settings.host,
        .port = (uint16_t)h->settings.port,
        .listen = h->listen,
        .peers_max = HANDOFF_PEERS_MAX,
        .window = (uint32_t)h->settings.window,
        .data_max = run_max > HANDOFF_PROBE_BYTES ? run_max : HANDOFF_PROBE_BYTES,
        .suspect_us = h->settings.suspect_us,
        .fail_us = h->settings.fail_us,
        .pool = h->pool,
        .pool_size = h->pool_size,
    };
    fabric_handlers handlers = {
        .owner = h,
        .accepted = pair_on_accepted,
        .message = wire_on_message,
        .place = wire_on_place,
        .received = on_received,
        .sent = on_sent,
        .failed = pair_on_failed,
        .closed = pair_on_closed,
    };
    status result = fabric_open(&settings, &handlers, &h->net, failure);
    if (result != STATUS_OK)
        return result;
    fabric_address(h->net, h->host, &h->port);
    return fabric_watch(h->net, queue_event_fd(h->commands));
}

static void *run(void *argument)
{
    handoff *h = argument;
    error failure = { 0 };
    activity_begin("fabric");
    status code = open_fabric(h, &failure);
    bool works = code == STATUS_OK;
    if (works)
        h->tick_us = fabric_now_us(h->net);
    pthread_mutex_lock(&h->lock);
    h->opened = true;
    h->open_code = code;
    h->open_error = failure;
    pthread_cond_signal(&h->opened_signal);
    pthread_mutex_unlock(&h->lock);
    while (works && !h->stop) {
        activity_now("waiting for the fabric, or moving pages");
        fabric_turn(h->net, time_to_sleep_us(h));
        activity_now("following commands and deadlines");
        run_commands(h);
        send_pump(h);
        tick(h);
        if (h->changed)
            publish_stats(h);
        flush_events(h);
    }
    activity_now("closing the fabric");
    fabric_close(h->net);
    activity_end();
    return NULL;
}

// ---- open and close
// --------------------------------------------------------------------------------

static void release(handoff *h)
{
    void *item;
    for (uint32_t i = 0; i < HANDOFF_PEERS_MAX; i++) {
        free(h->pairs[i].probe);
        message_free(h->pairs[i].greeting);
    }
    for (uint32_t i = 0; h->sends && i < HANDOFF_TRANSFERS_MAX; i++)
        free(h->sends[i].corrupt);
    while (h->events && (item = queue_pop(h->events)))
        free(item);
    while (h->backlog) {
        event_box *next = h->backlog->next;
        free(h->backlog);
        h->backlog = next;
    }
    queue_close(h->events);
    queue_close(h->commands);
    queue_close(h->free_commands);
    buffer_close(&h->scratch);
    pthread_mutex_destroy(&h->lock);
    pthread_cond_destroy(&h->opened_signal);
    free((char *)h->identity.model_name);
    free((char *)h->identity.architecture);
    free((char *)h->identity.kv_layout);
    free(h->settings.host);
    free(h->command_memory);
    free(h->sends);
    free(h->seats);
    free(h->page_memory);
    free(h->in_memory);
    free(h->runs);
    free(h->ended);
    free(h->admissions);
    free(h->pattern);
    free(h);
}

static status take_memory(handoff *h)
{
    status result;
    h->run_count = HANDOFF_PEERS_MAX * 2 * (uint32_t)h->settings.window;
    size_t pages = (size_t)HANDOFF_TRANSFERS_MAX * (size_t)h->pages_max;
    h->command_memory = calloc(HANDOFF_COMMANDS, sizeof(h->command_memory[0]));
    h->sends = calloc(HANDOFF_TRANSFERS_MAX, sizeof(h->sends[0]));
    h->seats = calloc(HANDOFF_TRANSFERS_MAX, sizeof(h->seats[0]));
    h->page_memory = calloc(2 * pages, sizeof(h->page_memory[0]));
    h->in_memory = calloc(pages, 1);
    h->runs = calloc(h->run_count, sizeof(h->runs[0]));
    h->ended = calloc(HANDOFF_ENDED, sizeof(h->ended[0]));
    h->admissions = calloc(HANDOFF_ADMISSIONS, sizeof(h->admissions[0]));
    h->pattern = malloc(HANDOFF_PROBE_BYTES);
    if (!h->command_memory || !h->sends || !h->seats || !h->page_memory || !h->in_memory ||
        !h->runs || !h->ended || !h->admissions || !h->pattern)
        return STATUS_NO_MEMORY;
    TRY(queue_open(HANDOFF_COMMANDS, &h->commands));
    TRY(queue_open(HANDOFF_COMMANDS, &h->free_commands));
    TRY(queue_open(4 * HANDOFF_TRANSFERS_MAX, &h->events));
    for (uint32_t i = 0; i < HANDOFF_COMMANDS; i++)
        TRY(queue_push(h->free_commands, &h->command_memory[i]));
    for (uint32_t i = 0; i < h->run_count; i++)
        h->runs[i].next = i + 1 < h->run_count ? i + 1 : HANDOFF_NO_RUN;
    for (uint32_t i = 0; i < HANDOFF_PROBE_BYTES; i++)
        h->pattern[i] = (uint8_t)(i * 2654435761u >> 24);
    h->pattern_checksum = hash64_of(h->pattern, HANDOFF_PROBE_BYTES, 0);
    return STATUS_OK;
fail:
    return result;
}

static status start_thread(handoff *h, error *failure)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before); // signals are for the main thread
    int code = pthread_create(&h->thread, NULL, run, h);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (code != 0)
        return error_set(failure, STATUS_IO, "", "the fabric thread cannot be started");
    pthread_setname_np(h->thread, "fabric");
    pthread_mutex_lock(&h->lock);
    while (!h->opened)
        pthread_cond_wait(&h->opened_signal, &h->lock);
    status result = h->open_code;
    if (result != STATUS_OK && failure)
        *failure = h->open_error;
    pthread_mutex_unlock(&h->lock);
    if (result != STATUS_OK)
        pthread_join(h->thread, NULL);
    return result;
}

status handoff_open(const handoff_settings *settings, const handoff_identity *identity, bool listen,
                    void *pool, size_t pool_size, handoff **opened, error *failure)
{
    CHECK(identity->page_tokens > 0 && identity->page_bytes > 0 && identity->incarnation != 0);
    handoff *h = calloc(1, sizeof(*h));
    status result = STATUS_NO_MEMORY;
    if (h == NULL)
        return error_set(failure, result, "", "memory is short for the hand-off");
    h->settings = *settings;
    h->identity = *identity;
    h->listen = listen;
    h->pool = pool;
    h->pool_size = pool_size;
    h->backlog_end = &h->backlog;
    h->pages_max = (int32_t)(identity->context / identity->page_tokens + 2);
    uint64_t run_pages = (settings->run_bytes + identity->page_bytes / 2) / identity->page_bytes;
    h->run_pages = run_pages < 1 ? 1 : run_pages > 64 ? 64 : (int32_t)run_pages;
    h->settings.host = strdup(settings->host);
    h->identity.model_name = strdup(identity->model_name);
    h->identity.architecture = strdup(identity->architecture);
    h->identity.kv_layout = strdup(identity->kv_layout);
    pthread_mutex_init(&h->lock, NULL);
    pthread_cond_init(&h->opened_signal, NULL);
    if (!h->settings.host || !h->identity.model_name || !h->identity.architecture ||
        !h->identity.kv_layout || take_memory(h) != STATUS_OK) {
        error_set(failure, result, "", "memory is short for the hand-off");
        goto fail;
    }
    TRY(fabric_environment(settings->transports, settings->devices, settings->host, failure));
    TRY(start_thread(h, failure));
    log_info(HANDOFF_TAG, "fabric open transports %s host %s port %u checksums %s",
             settings->transports, h->host, h->port, settings->checksums ? "on" : "off");
    *opened = h;
    return STATUS_OK;
fail:
    release(h);
    return result;
}

void handoff_address(const handoff *h, char host[64], uint16_t *port)
{
    snprintf(host, 64, "%s", h->host);
    *port = h->port;
}

// ---- the step thread's side
// ------------------------------------------------------------------------

// The fabric thread gives slots back as fast as it pops; it never waits for the network either.
static handoff_command *take_command(handoff *h, command_kind kind, handoff_key key)
{
    handoff_command *c = NULL;
    while (c == NULL)
        c = queue_pop_wait(h->free_commands, 1000000);
    c->kind = kind;
    c->key = key;
    return c;
}

static void give_command(handoff *h, handoff_command *c)
{
    CHECK(queue_push(h->commands, c) == STATUS_OK);
}

void handoff_close(handoff *h)
{
    if (h == NULL)
        return;
    give_command(h, take_command(h, COMMAND_STOP, (handoff_key){ 0 }));
    pthread_join(h->thread, NULL);
    release(h);
}

void handoff_send_begin(handoff *h, handoff_key key, const handoff_peer *peer)
{
    handoff_command *c = take_command(h, COMMAND_SEND_BEGIN, key);
    c->peer = *peer;
    give_command(h, c);
}

static void check_pages(const handoff *h, const int32_t *pages, int32_t count)
{
    for (int32_t i = 0; i < count; i++)
        CHECK(pages[i] >= 0 && ((uint64_t)pages[i] + 1) * h->identity.page_bytes <= h->pool_size);
}

void handoff_send_pages(handoff *h, handoff_key key, int32_t first, const int32_t *pages,
                        int32_t count)
{
    check_pages(h, pages, count);
    for (int32_t at = 0; at < count; at += HANDOFF_COMMAND_PAGES) {
        handoff_command *c = take_command(h, COMMAND_SEND_PAGES, key);
        c->first = first + at;
        c->count = count - at < HANDOFF_COMMAND_PAGES ? count - at : HANDOFF_COMMAND_PAGES;
        memcpy(c->pages, pages + at, (size_t)c->count * sizeof(pages[0]));
        give_command(h, c);
    }
}

void handoff_send_end(handoff *h, handoff_key key, const handoff_record *record)
{
    handoff_command *c = take_command(h, COMMAND_SEND_END, key);
    c->record = *record;
    give_command(h, c);
}

void handoff_send_cancel(handoff *h, handoff_key key)
{
    give_command(h, take_command(h, COMMAND_SEND_CANCEL, key));
}

void handoff_admit(handoff *h, uint64_t incarnation, handoff_token token)
{
    handoff_command *c = take_command(h, COMMAND_ADMIT, (handoff_key){ 0 });
    c->peer.incarnation = incarnation;
    c->peer.token = token;
    give_command(h, c);
}

void handoff_seat_open(handoff *h, handoff_key key, uint64_t incarnation, uint64_t generation,
                       const int32_t *pages, int32_t page_count, int32_t first_page)
{
    CHECK(page_count > 0 && page_count <= h->pages_max && generation != 0);
    CHECK(first_page >= 0 && first_page <= page_count);
    check_pages(h, pages, page_count);
    for (int32_t at = 0; at < page_count; at += HANDOFF_COMMAND_PAGES) {
        handoff_command *c = take_command(h, COMMAND_SEAT_OPEN, key);
        c->peer.incarnation = incarnation;
        c->generation = generation;
        c->page_count = page_count;
        c->first_page = first_page;
        c->first = at;
        c->count =
            page_count - at < HANDOFF_COMMAND_PAGES ? page_count - at : HANDOFF_COMMAND_PAGES;
        memcpy(c->pages, pages + at, (size_t)c->count * sizeof(pages[0]));
        give_command(h, c);
    }
}

void handoff_seat_close(handoff *h, handoff_key key)
{
    give_command(h, take_command(h, COMMAND_SEAT_CLOSE, key));
}

handoff_event *handoff_event_next(handoff *h)
{
    return queue_pop(h->events);
}

void handoff_event_free(handoff_event *event)
{
    free(event); // it is the first member of its box
}

int handoff_event_fd(const handoff *h)
{
    return queue_event_fd(h->events);
}

void handoff_stats_of(handoff *h, handoff_stats *stats)
{
    pthread_mutex_lock(&h->lock);
    *stats = h->published;
    pthread_mutex_unlock(&h->lock);
}
