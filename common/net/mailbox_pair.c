#include "net/mailbox_meeting.h"
#include "net/mailbox_wire.h"

#include "base/fault.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// What one look at the connection reads at most; larger messages are read where they stay.
#define INPUT_BYTES 8192
// How often a pair whose event queue was full looks again.
#define REST_MS 2

enum { LANE_ORDINARY, LANE_URGENT, LANES };

// A ring of messages that wait to be sent.
typedef struct lane {
    nng_msg **messages;
    size_t head, count;
} lane;

typedef enum pair_state {
    PAIR_WAITING,   // for its peer
    PAIR_CONNECTED, // the one connection of its life
    PAIR_LOST,      // it is over
} pair_state;

// Messages on their way in: bytes that were read, and a message that is not whole yet.
typedef struct input {
    uint8_t *bytes; // [INPUT_BYTES]
    size_t at, end;
    nng_msg *begun;
    size_t begun_bytes; // of it that are there
    bool broken;        // what came is no message, or too large
} input;

// The message on its way out.
typedef struct output {
    nng_msg *message; // NULL: none
    uint8_t head[WIRE_HEAD_MAX];
    size_t done; // bytes of head and message
} output;

// Not nng's PAIR0 socket but its streams: the socket can lose its thread that buries connections
// when a peer dies amid traffic (mailbox_close_later), a stream cannot, because each of its
// operations ends with it. Two aios work for a pair: one receives (and, while the event queue is
// full, sleeps), one sends. Their callbacks and those of the meeting run on nng's threads; all meet
// under the lock, which is never held across anything that waits.
struct mailbox_pair {
    pthread_mutex_t lock;
    mailbox_meeting *meeting;
    nng_stream *stream; // NULL: not yet; closed when it is lost, freed with the pair
    nng_aio *receiving, *sending;
    queue *events;
    void *owner;
    mailbox_limits limits;
    wire_kind kind;
    bool encrypted;
    char url[MAILBOX_URL_MAX];
    bool closed;

    pair_state state;
    bool up_due;     // MAILBOX_UP is still to be queued
    bool down_due;   // MAILBOX_DOWN likewise, after the last message
    bool resting;    // `receiving` sleeps
    nng_msg *parked; // received, not yet queued
    input in;

    lane lanes[LANES];
    output out;
    size_t waiting; // in the lanes and in `out`
};

static void drop_waiting(mailbox_pair *p);
static void lost(mailbox_pair *p);

// ---- receiving ---------------------------------------------------------------------------------

static bool push_event(mailbox_pair *p, mailbox_event_kind kind, nng_msg *message)
{
    mailbox_event *event = mailbox_event_new(kind, p->owner, message);
    if (event == NULL)
        return false;
    if (queue_push(p->events, event) == STATUS_OK)
        return true;
    free(event); // the message stays with the caller
    return false;
}

// Queue what is due before the next message; false where the queue has no room.
static bool deliver(mailbox_pair *p)
{
    if (p->up_due && !push_event(p, MAILBOX_UP, NULL))
        return false;
    p->up_due = false;
    if (p->parked != NULL && !push_event(p, MAILBOX_MESSAGE, p->parked))
        return false;
    p->parked = NULL;
    return true;
}

// The next whole message of what was read; NULL: there is none.
static nng_msg *input_take(input *in, wire_kind kind, size_t message_max)
{
    size_t head = wire_head_size(kind);
    if (in->begun == NULL) {
        uint64_t size;
        if (in->broken || in->end - in->at < head)
            return NULL;
        in->broken = !wire_head_read(kind, in->bytes + in->at, &size) || size > message_max ||
                     nng_msg_alloc(&in->begun, (size_t)size) != 0;
        if (in->broken)
            return NULL;
        in->at += head;
        in->begun_bytes = 0;
    }
    size_t lacking = nng_msg_len(in->begun) - in->begun_bytes;
    size_t taken = in->end - in->at < lacking ? in->end - in->at : lacking;
    if (taken > 0)
        memcpy((uint8_t *)nng_msg_body(in->begun) + in->begun_bytes, in->bytes + in->at, taken);
    in->at += taken;
    in->begun_bytes += taken;
    if (taken < lacking)
        return NULL;
    nng_msg *message = in->begun;
    in->begun = NULL;
    return message;
}

// Where the next bytes go; input_take has taken what it could.
static void input_read(mailbox_pair *p)
{
    input *in = &p->in;
    nng_iov places[2];
    unsigned count = 0;
    size_t left = in->end - in->at; // less than a head
    memmove(in->bytes, in->bytes + in->at, left);
    in->at = 0;
    in->end = left;
    if (in->begun != NULL)
        places[count++] = (nng_iov){ (uint8_t *)nng_msg_body(in->begun) + in->begun_bytes,
                                     nng_msg_len(in->begun) - in->begun_bytes };
    places[count++] = (nng_iov){ in->bytes + left, INPUT_BYTES - left };
    nng_aio_set_iov(p->receiving, count, places);
    nng_stream_recv(p->stream, p->receiving);
    if (p->encrypted && mailbox_failed_unheard(p->stream))
        lost(p); // which ends the receive
}

// So many bytes went where input_read said.
static void input_came(input *in, size_t count)
{
    if (in->begun != NULL) {
        size_t lacking = nng_msg_len(in->begun) - in->begun_bytes;
        size_t taken = count < lacking ? count : lacking;
        in->begun_bytes += taken;
        count -= taken;
    }
    in->end += count;
}

// The connection is over. Whatever is under way on the stream ends with it, and nothing may be
// begun on it any more.
static void lost(mailbox_pair *p)
{
    p->state = PAIR_LOST;
    p->down_due = true;
    drop_waiting(p);
    nng_stream_close(p->stream);
}

// Under the lock: queue what came, then read on, or rest while the queue is full. What was read
// before the connection was lost comes before MAILBOX_DOWN.
static void receive_next(mailbox_pair *p)
{
    bool delivered;
    while ((delivered = deliver(p)) &&
           (p->parked = input_take(&p->in, p->kind, p->limits.message_max)) != NULL)
        ;
    if (delivered && p->in.broken && p->state == PAIR_CONNECTED)
        lost(p);
    if (delivered && p->down_due) {
        delivered = push_event(p, MAILBOX_DOWN, NULL);
        p->down_due = !delivered;
    }
    p->resting = !delivered;
    if (!delivered)
        nng_sleep_aio(REST_MS, p->receiving);
    else if (p->state == PAIR_CONNECTED)
        input_read(p);
}

static void on_received(void *argument)
{
    mailbox_pair *p = argument;
    pthread_mutex_lock(&p->lock);
    bool read = !p->resting;
    if (read && nng_aio_result(p->receiving) == 0)
        input_came(&p->in, nng_aio_count(p->receiving));
    else if (read && p->state == PAIR_CONNECTED && !p->closed)
        lost(p);
    if (!p->closed)
        receive_next(p);
    pthread_mutex_unlock(&p->lock);
}

// ---- sending -----------------------------------------------------------------------------------

static void lane_push(mailbox_pair *p, int which, nng_msg *message)
{
    lane *l = &p->lanes[which];
    CHECK(l->count < p->limits.outgoing_max);
    l->messages[(l->head + l->count++) % p->limits.outgoing_max] = message;
}

static nng_msg *lane_pop(mailbox_pair *p, int which)
{
    lane *l = &p->lanes[which];
    if (l->count == 0)
        return NULL;
    nng_msg *message = l->messages[l->head];
    l->head = (l->head + 1) % p->limits.outgoing_max;
    l->count--;
    return message;
}

static void drop_waiting(mailbox_pair *p)
{
    for (int i = 0; i < LANES; i++)
        for (nng_msg *message; (message = lane_pop(p, i)) != NULL; p->waiting--)
            nng_msg_free(message);
}

// What is left of the message goes on.
static void send_rest(mailbox_pair *p)
{
    output *o = &p->out;
    size_t head = wire_head_size(p->kind), size = nng_msg_len(o->message);
    size_t body_done = o->done > head ? o->done - head : 0;
    nng_iov parts[2];
    unsigned count = 0;
    if (o->done < head)
        parts[count++] = (nng_iov){ o->head + o->done, head - o->done };
    if (body_done < size)
        parts[count++] =
            (nng_iov){ (uint8_t *)nng_msg_body(o->message) + body_done, size - body_done };
    nng_aio_set_iov(p->sending, count, parts);
    nng_stream_send(p->stream, p->sending);
}

static void send_next(mailbox_pair *p)
{
    if (p->out.message != NULL || p->closed || p->state != PAIR_CONNECTED)
        return;
    bool urgent = p->lanes[LANE_URGENT].count > 0;
    p->out.message = lane_pop(p, urgent ? LANE_URGENT : LANE_ORDINARY);
    if (p->out.message == NULL)
        return;
    wire_head_write(p->kind, nng_msg_len(p->out.message), p->out.head);
    p->out.done = 0;
    send_rest(p);
}

static void on_sent(void *argument)
{
    mailbox_pair *p = argument;
    pthread_mutex_lock(&p->lock);
    bool went = nng_aio_result(p->sending) == 0;
    if (went)
        p->out.done += nng_aio_count(p->sending);
    bool whole = p->out.done == wire_head_size(p->kind) + nng_msg_len(p->out.message);
    if (went && !whole && p->state == PAIR_CONNECTED) {
        send_rest(p);
    } else {
        nng_msg_free(p->out.message);
        p->out.message = NULL;
        p->waiting--;
        if (!went && p->state == PAIR_CONNECTED && !p->closed)
            lost(p);
        send_next(p);
    }
    pthread_mutex_unlock(&p->lock);
}

static status send_one(mailbox_pair *p, slice data, bool urgent)
{
    nng_msg *message = mailbox_message_new(data);
    if (message == NULL)
        return STATUS_NO_MEMORY;
    status result = STATUS_OK;
    pthread_mutex_lock(&p->lock);
    if (p->encrypted && p->state == PAIR_CONNECTED && mailbox_failed_unheard(p->stream))
        lost(p);
    if (p->closed || p->state == PAIR_LOST)
        result = STATUS_PEER_CLOSED;
    else if (p->waiting >= p->limits.outgoing_max)
        result = STATUS_FULL;
    else {
        lane_push(p, urgent ? LANE_URGENT : LANE_ORDINARY, message);
        p->waiting++;
        send_next(p);
    }
    pthread_mutex_unlock(&p->lock);
    if (result != STATUS_OK)
        nng_msg_free(message);
    return result;
}

status mailbox_pair_send(mailbox_pair *p, slice data, bool urgent)
{
    if (fault_fires(FAULT_MESSAGE_DROP))
        return STATUS_OK;
    status result = send_one(p, data, urgent);
    if (result == STATUS_OK && fault_fires(FAULT_MESSAGE_REPEAT))
        send_one(p, data, urgent);
    return result;
}

size_t mailbox_pair_waiting(mailbox_pair *p)
{
    pthread_mutex_lock(&p->lock);
    size_t waiting = p->waiting;
    pthread_mutex_unlock(&p->lock);
    return waiting;
}

// ---- the connection ----------------------------------------------------------------------------

// On one of nng's threads: the peer has greeted.
static bool on_met(void *owner, nng_stream *stream)
{
    mailbox_pair *p = owner;
    pthread_mutex_lock(&p->lock);
    bool taken = p->state == PAIR_WAITING && !p->closed;
    if (taken) {
        p->stream = stream;
        p->state = PAIR_CONNECTED;
        p->up_due = true;
        receive_next(p);
        send_next(p);
    }
    pthread_mutex_unlock(&p->lock);
    return taken;
}

// Nothing of it speaks any more.
static void pair_free(mailbox_pair *p)
{
    if (p->receiving != NULL)
        nng_aio_free(p->receiving);
    if (p->sending != NULL)
        nng_aio_free(p->sending);
    nng_stream_free(p->stream);
    nng_msg *messages[] = { p->parked, p->in.begun, p->out.message };
    for (size_t i = 0; i < sizeof(messages) / sizeof(messages[0]); i++)
        if (messages[i] != NULL)
            nng_msg_free(messages[i]);
    for (int i = 0; i < LANES; i++)
        free(p->lanes[i].messages);
    free(p->in.bytes);
    pthread_mutex_destroy(&p->lock);
    free(p);
}

static void pair_finish(void *argument)
{
    mailbox_pair *p = argument;
    mailbox_meeting_close(p->meeting);
    pthread_mutex_lock(&p->lock);
    if (p->state == PAIR_CONNECTED)
        lost(
            p); // before the aios are waited for: only closing ends all that a stream has under way
    pthread_mutex_unlock(&p->lock);
    nng_aio_stop(p->receiving);
    nng_aio_stop(p->sending);
    pair_free(p);
}

// What has begun to leave gets its time to do so.
void mailbox_pair_close(mailbox_pair *p)
{
    if (p == NULL)
        return;
    pthread_mutex_lock(&p->lock);
    p->closed = true;
    drop_waiting(p);
    pthread_mutex_unlock(&p->lock);
    mailbox_meeting_stop(p->meeting);
    mailbox_close_later(pair_finish, p);
}

// A pair without its meeting; on failure nothing is left.
static status pair_new(const char *url, const mailbox_limits *limits, queue *events, void *owner,
                       mailbox_pair **made, error *failure)
{
    CHECK(limits->outgoing_max > 0);
    mailbox_pair *p = calloc(1, sizeof(*p));
    if (p == NULL)
        return mailbox_failed(failure, url, "open a pair for", NNG_ENOMEM);
    pthread_mutex_init(&p->lock, NULL);
    p->events = events;
    p->owner = owner;
    p->limits = *limits;
    p->kind = wire_kind_of(url);
    p->encrypted = mailbox_encrypted(url);
    p->in.bytes = malloc(INPUT_BYTES);
    int code = p->in.bytes == NULL ? NNG_ENOMEM : 0;
    for (int i = 0; i < LANES; i++) {
        p->lanes[i].messages = calloc(limits->outgoing_max, sizeof(nng_msg *));
        if (p->lanes[i].messages == NULL)
            code = NNG_ENOMEM;
    }
    if (code == 0)
        code = nng_aio_alloc(&p->receiving, on_received, p);
    if (code == 0)
        code = nng_aio_alloc(&p->sending, on_sent, p);
    if (code != 0) {
        pair_free(p);
        return mailbox_failed(failure, url, "open a pair for", code);
    }
    *made = p;
    return STATUS_OK;
}

status mailbox_pair_listen(const char *url, const mailbox_limits *limits, queue *events,
                           void *owner, mailbox_pair **opened, error *failure)
{
    mailbox_pair *p;
    status result = pair_new(url, limits, events, owner, &p, failure);
    if (result != STATUS_OK)
        return result;
    result = mailbox_meeting_listen(url, on_met, p, p->url, &p->meeting, failure);
    if (result != STATUS_OK) {
        pair_free(p);
        return result;
    }
    mailbox_meeting_begin(p->meeting);
    *opened = p;
    return STATUS_OK;
}

status mailbox_pair_dial(const char *url, const mailbox_limits *limits, queue *events, void *owner,
                         mailbox_pair **opened, error *failure)
{
    mailbox_pair *p;
    status result = pair_new(url, limits, events, owner, &p, failure);
    if (result != STATUS_OK)
        return result;
    snprintf(p->url, sizeof(p->url), "%s", url);
    result = mailbox_meeting_dial(url, limits->peer_name, on_met, p, &p->meeting, failure);
    if (result != STATUS_OK) {
        pair_free(p);
        return result;
    }
    mailbox_meeting_begin(p->meeting);
    *opened = p;
    return STATUS_OK;
}

const char *mailbox_pair_url(const mailbox_pair *p)
{
    return p->url;
}
