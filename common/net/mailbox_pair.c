#include "net/mailbox_internal.h"

#include "base/fault.h"

#include <nng/protocol/pair0/pair.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// nng's own buffers are small: what waits there cannot be passed by an urgent message (out), and
// counts against memory with the largest message each (in).
#define SOCKET_SEND_MESSAGES 2
#define SOCKET_RECEIVE_MESSAGES 0
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

// Two aios work for a pair: one receives (and, while the event queue is full, sleeps), one sends.
// Their callbacks and the callbacks of the connection run on nng's threads; all meet under the
// lock, which is held for a few instructions and never across anything that waits.
struct mailbox_pair {
    pthread_mutex_t lock;
    nng_socket socket;
    nng_aio *receiving, *sending;
    queue *events;
    void *owner;
    mailbox_limits limits;
    char url[MAILBOX_URL_MAX];
    bool closed;

    pair_state state;
    int pipe;         // nng's number of the connection
    int removed_pipe; // the last that went before we heard that it came
    bool up_due;      // MAILBOX_UP is still to be queued
    bool down_due;    // MAILBOX_DOWN likewise, after the last message
    bool resting;     // `receiving` sleeps
    nng_msg *parked;  // received, not yet queued

    lane lanes[LANES];
    int sending_lane;
    bool send_busy;
    size_t waiting; // in the lanes and in `sending`
};

static void drop_waiting(mailbox_pair *p);

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

// Queue what is due, in order; false where the queue has no room.
static bool deliver(mailbox_pair *p)
{
    if (p->up_due && !push_event(p, MAILBOX_UP, NULL))
        return false;
    p->up_due = false;
    if (p->parked != NULL && !push_event(p, MAILBOX_MESSAGE, p->parked))
        return false;
    p->parked = NULL;
    if (!p->down_due)
        return true;
    if (!push_event(p, MAILBOX_DOWN, NULL))
        return false;
    p->down_due = false;
    return true;
}

// Under the lock: go on receiving, or rest while the queue is full. nng 1.5 tells of the end of a
// connection (NNG_PIPE_EV_REM_POST, which waits for the lock) before it takes it apart; asked for a
// message later than that, while one was on its way in, it reads through a null pointer. So a lost
// pair is never asked for one.
static void receive_next(mailbox_pair *p)
{
    bool delivered = deliver(p);
    p->resting = !delivered;
    if (!delivered)
        nng_sleep_aio(REST_MS, p->receiving);
    else if (p->state != PAIR_LOST)
        nng_recv_aio(p->socket, p->receiving);
}

static void lost(mailbox_pair *p)
{
    p->state = PAIR_LOST;
    p->down_due = true;
    drop_waiting(p);
    nng_aio_abort(p->sending, NNG_ECONNRESET);
}

static void connected(mailbox_pair *p, int pipe)
{
    p->state = PAIR_CONNECTED;
    p->pipe = pipe;
    p->up_due = true;
    if (p->removed_pipe == pipe)
        lost(p);
}

static void on_received(void *argument)
{
    mailbox_pair *p = argument;
    pthread_mutex_lock(&p->lock);
    int code = nng_aio_result(p->receiving);
    nng_msg *message = !p->resting && code == 0 ? nng_aio_get_msg(p->receiving) : NULL;
    if (message != NULL) {
        // A message may overtake the news of its own connection.
        int pipe = nng_pipe_id(nng_msg_get_pipe(message));
        if (p->state == PAIR_WAITING)
            connected(p, pipe);
        p->parked = message;
    }
    if (!p->closed && code != NNG_ECLOSED)
        receive_next(p);
    pthread_mutex_unlock(&p->lock);
}

// ---- sending -----------------------------------------------------------------------------------

static void lane_push(mailbox_pair *p, int which, nng_msg *message, bool front)
{
    lane *l = &p->lanes[which];
    size_t capacity = p->limits.outgoing_max;
    CHECK(l->count < capacity);
    if (front)
        l->head = (l->head + capacity - 1) % capacity;
    l->messages[front ? l->head : (l->head + l->count) % capacity] = message;
    l->count++;
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

static void send_next(mailbox_pair *p)
{
    if (p->send_busy || p->closed || p->state == PAIR_LOST)
        return;
    p->sending_lane = p->lanes[LANE_URGENT].count > 0 ? LANE_URGENT : LANE_ORDINARY;
    nng_msg *message = lane_pop(p, p->sending_lane);
    if (message == NULL)
        return;
    p->send_busy = true;
    nng_aio_set_msg(p->sending, message);
    nng_aio_set_timeout(p->sending, (nng_duration)(p->limits.send_timeout_us / 1000));
    nng_send_aio(p->socket, p->sending);
}

static void on_sent(void *argument)
{
    mailbox_pair *p = argument;
    pthread_mutex_lock(&p->lock);
    int code = nng_aio_result(p->sending);
    p->send_busy = false;
    nng_msg *message = code == 0 ? NULL : nng_aio_get_msg(p->sending);
    bool again = code == NNG_ETIMEDOUT && !p->closed && p->state != PAIR_LOST;
    if (message != NULL && again)
        lane_push(p, p->sending_lane, message, true);
    else {
        p->waiting--;
        if (message != NULL)
            nng_msg_free(message);
    }
    send_next(p);
    pthread_mutex_unlock(&p->lock);
}

static status send_one(mailbox_pair *p, slice data, bool urgent)
{
    nng_msg *message = mailbox_message_new(data);
    if (message == NULL)
        return STATUS_NO_MEMORY;
    status result = STATUS_OK;
    pthread_mutex_lock(&p->lock);
    if (p->closed || p->state == PAIR_LOST)
        result = STATUS_PEER_CLOSED;
    else if (p->waiting >= p->limits.outgoing_max)
        result = STATUS_FULL;
    else {
        lane_push(p, urgent ? LANE_URGENT : LANE_ORDINARY, message, false);
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

// On one of nng's threads. A pair that had its connection turns every other away.
static void on_pipe(nng_pipe pipe, nng_pipe_ev event, void *argument)
{
    mailbox_pair *p = argument;
    int id = nng_pipe_id(pipe);
    pthread_mutex_lock(&p->lock);
    bool reject = event == NNG_PIPE_EV_ADD_PRE && p->state != PAIR_WAITING;
    if (event == NNG_PIPE_EV_ADD_POST && p->state == PAIR_WAITING)
        connected(p, id);
    else if (event == NNG_PIPE_EV_REM_POST && p->state == PAIR_CONNECTED && p->pipe == id)
        lost(p);
    else if (event == NNG_PIPE_EV_REM_POST && p->state == PAIR_WAITING)
        p->removed_pipe = id;
    // Wake the receiver where there is news to queue; one that rests looks by itself.
    if ((p->up_due || p->down_due) && !p->closed && !p->resting)
        nng_aio_abort(p->receiving, NNG_ECANCELED);
    pthread_mutex_unlock(&p->lock);
    if (reject)
        nng_pipe_close(pipe);
}

static void pair_free(mailbox_pair *p)
{
    if (p->receiving != NULL)
        nng_aio_free(p->receiving);
    if (p->sending != NULL)
        nng_aio_free(p->sending);
    if (p->parked != NULL)
        nng_msg_free(p->parked);
    for (int i = 0; i < LANES; i++)
        free(p->lanes[i].messages);
    pthread_mutex_destroy(&p->lock);
    free(p);
}

// Its socket is closed: no connection speaks any more.
static void pair_finish(void *argument)
{
    mailbox_pair *p = argument;
    nng_aio_stop(p->receiving);
    nng_aio_stop(p->sending);
    drop_waiting(p);
    pair_free(p);
}

void mailbox_pair_close(mailbox_pair *p)
{
    if (p == NULL)
        return;
    pthread_mutex_lock(&p->lock);
    p->closed = true;
    pthread_mutex_unlock(&p->lock);
    nng_aio_abort(p->receiving, NNG_ECANCELED);
    nng_aio_abort(p->sending, NNG_ECANCELED);
    mailbox_close_later(p->socket, pair_finish, p);
}

static int set_options(nng_socket socket, const mailbox_limits *limits)
{
    int code = nng_socket_set_size(socket, NNG_OPT_RECVMAXSZ, limits->message_max);
    if (code == 0)
        code = nng_socket_set_int(socket, NNG_OPT_SENDBUF, SOCKET_SEND_MESSAGES);
    if (code == 0)
        code = nng_socket_set_int(socket, NNG_OPT_RECVBUF, SOCKET_RECEIVE_MESSAGES);
    if (code == 0)
        code = nng_socket_set_ms(socket, NNG_OPT_RECONNMINT, 100);
    if (code == 0)
        code = nng_socket_set_ms(socket, NNG_OPT_RECONNMAXT, 2000);
    return code;
}

// A pair without its endpoint; on failure nothing is left.
static status pair_new(const char *url, const mailbox_limits *limits, queue *events, void *owner,
                       mailbox_pair **made, error *failure)
{
    CHECK(limits->outgoing_max > 0);
    mailbox_pair *p = calloc(1, sizeof(*p));
    if (p == NULL)
        return error_set(failure, STATUS_NO_MEMORY, "", "memory is short for %s", url);
    pthread_mutex_init(&p->lock, NULL);
    p->events = events;
    p->owner = owner;
    p->limits = *limits;
    int code = 0;
    for (int i = 0; i < LANES; i++) {
        p->lanes[i].messages = calloc(limits->outgoing_max, sizeof(nng_msg *));
        if (p->lanes[i].messages == NULL)
            code = NNG_ENOMEM;
    }
    if (code == 0)
        code = nng_aio_alloc(&p->receiving, on_received, p);
    if (code == 0)
        code = nng_aio_alloc(&p->sending, on_sent, p);
    if (code == 0)
        code = nng_pair0_open(&p->socket);
    if (code != 0) {
        pair_free(p);
        return mailbox_failed(failure, url, "open a socket for", code);
    }
    code = set_options(p->socket, limits);
    for (int i = NNG_PIPE_EV_ADD_PRE; code == 0 && i <= NNG_PIPE_EV_REM_POST; i++)
        code = nng_pipe_notify(p->socket, (nng_pipe_ev)i, on_pipe, p);
    if (code != 0) {
        mailbox_pair_close(p);
        return mailbox_failed(failure, url, "open a socket for", code);
    }
    *made = p;
    return STATUS_OK;
}

static void pair_begin(mailbox_pair *p)
{
    pthread_mutex_lock(&p->lock);
    receive_next(p);
    pthread_mutex_unlock(&p->lock);
}

status mailbox_pair_listen(const char *url, const mailbox_limits *limits, queue *events,
                           void *owner, mailbox_pair **opened, error *failure)
{
    mailbox_pair *p;
    status result = pair_new(url, limits, events, owner, &p, failure);
    if (result != STATUS_OK)
        return result;
    pair_begin(p);
    result = mailbox_listen(p->socket, url, p->url, failure);
    if (result != STATUS_OK) {
        mailbox_pair_close(p);
        return result;
    }
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
    pair_begin(p);
    snprintf(p->url, sizeof(p->url), "%s", url);
    int code = mailbox_dial(p->socket, url, limits->peer_name);
    if (code != 0) {
        mailbox_pair_close(p);
        return mailbox_failed(failure, url, "dial", code);
    }
    *opened = p;
    return STATUS_OK;
}

const char *mailbox_pair_url(const mailbox_pair *p)
{
    return p->url;
}
