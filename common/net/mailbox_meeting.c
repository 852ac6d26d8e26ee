#include "net/mailbox_meeting.h"

#include "net/mailbox_wire.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DIAL_MS 10000
#define PAUSE_FIRST_MS 100 // before a dial is tried again, or a failed accept
#define PAUSE_MAX_MS 2000

// A connection that has not greeted yet. The limit of its time is a sleep beside the greeting, at
// whose end the connection is closed: nng 1.5 does not end what waits for TLS's handshake
// otherwise, and a limit of each read or write would begin anew with every byte.
typedef struct guest {
    mailbox_meeting *meeting;
    nng_aio *greeting, *limit;
    int awaited;        // callbacks of these two that are still to come; 0: a free place
    nng_stream *stream; // NULL: its greeting is over
    uint8_t bytes[WIRE_GREETING];
    size_t done;
    bool told; // its own greeting is out: now it listens
} guest;

int mailbox_greeting_ms = 10000;

// `arriving` accepts or dials. It has a time limit, so it must not be the one that pauses: in
// nng 1.5 whatever runs out of time on an aio that ever slept seems to have succeeded. Callbacks
// run on nng's threads and meet under the lock.
struct mailbox_meeting {
    pthread_mutex_t lock;
    nng_stream_listener *listener; // one of the two
    nng_stream_dialer *dialer;
    nng_aio *arriving, *pausing;
    mailbox_met *met;
    void *owner;
    bool encrypted;
    bool over; // a peer was taken
    bool stopped;
    int pause_ms;
    int greeting_ms;
    int places; // who dials needs one
    guest guests[];
};

// ---- greeting ----------------------------------------------------------------------------------

static void pause_then_arrive(mailbox_meeting *m)
{
    nng_sleep_aio(m->pause_ms, m->pausing);
    m->pause_ms = 2 * m->pause_ms < PAUSE_MAX_MS ? 2 * m->pause_ms : PAUSE_MAX_MS;
}

static void greet(guest *g)
{
    nng_iov rest = { g->bytes + g->done, WIRE_GREETING - g->done };
    nng_aio_set_iov(g->greeting, 1, &rest);
    if (g->told)
        nng_stream_recv(g->stream, g->greeting);
    else
        nng_stream_send(g->stream, g->greeting);
    if (g->meeting->encrypted && mailbox_failed_unheard(g->stream))
        nng_stream_close(g->stream); // which ends the greeting
}

// True: there is more to be said or heard.
static bool greeting_goes_on(guest *g)
{
    if (nng_aio_result(g->greeting) != 0 || g->meeting->stopped)
        return false;
    g->done += nng_aio_count(g->greeting);
    if (g->done < WIRE_GREETING)
        return true;
    if (g->told)
        return false;
    g->told = true;
    g->done = 0;
    return true;
}

// One of the guest's two callbacks has done its work; under the lock. Behind the last of them
// another guest may come.
static void callback_came(guest *g)
{
    mailbox_meeting *m = g->meeting;
    if (--g->awaited == 0 && m->dialer != NULL && !m->over && !m->stopped)
        pause_then_arrive(m);
}

static void on_limit(void *argument)
{
    guest *g = argument;
    pthread_mutex_lock(&g->meeting->lock);
    if (g->stream != NULL)
        nng_stream_close(g->stream); // which ends the greeting
    callback_came(g);
    pthread_mutex_unlock(&g->meeting->lock);
}

static void on_greeting(void *argument)
{
    guest *g = argument;
    mailbox_meeting *m = g->meeting;
    pthread_mutex_lock(&m->lock);
    if (greeting_goes_on(g)) {
        greet(g);
        pthread_mutex_unlock(&m->lock);
        return;
    }
    bool fits = !m->stopped && !m->over && nng_aio_result(g->greeting) == 0 && g->told &&
                g->done == WIRE_GREETING && wire_greeting_fits(g->bytes);
    nng_stream *stream = g->stream;
    g->stream = NULL; // the limit leaves it alone from now on
    pthread_mutex_unlock(&m->lock);
    bool taken = fits && m->met(m->owner, stream);
    if (!taken)
        nng_stream_free(stream);
    pthread_mutex_lock(&m->lock);
    m->over = m->over || taken;
    nng_aio_cancel(g->limit);
    callback_came(g);
    pthread_mutex_unlock(&m->lock);
}

// False: there is no place for it.
static bool guest_enters(mailbox_meeting *m, nng_stream *stream)
{
    for (int i = 0; i < m->places; i++) {
        guest *g = &m->guests[i];
        if (g->awaited > 0)
            continue;
        g->awaited = 2;
        g->stream = stream;
        g->done = 0;
        g->told = false;
        wire_greeting_write(g->bytes);
        nng_sleep_aio(m->greeting_ms, g->limit);
        greet(g);
        return true;
    }
    return false;
}

// ---- arriving ----------------------------------------------------------------------------------

static void arrive(mailbox_meeting *m)
{
    if (m->listener != NULL)
        nng_stream_listener_accept(m->listener, m->arriving);
    else
        nng_stream_dialer_dial(m->dialer, m->arriving);
}

static void on_paused(void *argument)
{
    mailbox_meeting *m = argument;
    pthread_mutex_lock(&m->lock);
    if (!m->stopped)
        arrive(m);
    pthread_mutex_unlock(&m->lock);
}

static void on_arrived(void *argument)
{
    mailbox_meeting *m = argument;
    pthread_mutex_lock(&m->lock);
    bool came = nng_aio_result(m->arriving) == 0;
    nng_stream *stream = came ? nng_aio_get_output(m->arriving, 0) : NULL;
    bool enters = came && !m->stopped && !m->over && guest_enters(m, stream);
    if (came && m->listener != NULL)
        m->pause_ms = PAUSE_FIRST_MS;
    if (!m->stopped && !came)
        pause_then_arrive(m);
    else if (!m->stopped && m->listener != NULL)
        arrive(m); // one that dialled waits for how the greeting ends
    pthread_mutex_unlock(&m->lock);
    if (came && !enters)
        nng_stream_free(stream);
}

// ---- opening and closing -----------------------------------------------------------------------

static void aio_stop(nng_aio *aio)
{
    if (aio != NULL)
        nng_aio_stop(aio);
}

static void aio_end(nng_aio *aio)
{
    aio_stop(aio);
    nng_aio_free(aio);
}

void mailbox_meeting_close(mailbox_meeting *m)
{
    if (m == NULL)
        return;
    mailbox_meeting_stop(m);
    // Callbacks free the connections that they hold.
    aio_end(m->pausing);
    aio_end(m->arriving);
    for (int i = 0; i < m->places; i++) {
        aio_stop(m->guests[i].limit);
        aio_end(m->guests[i].greeting); // which cancels the limit
        nng_aio_free(m->guests[i].limit);
    }
    nng_stream_listener_free(m->listener);
    nng_stream_dialer_free(m->dialer);
    pthread_mutex_destroy(&m->lock);
    free(m);
}

void mailbox_meeting_stop(mailbox_meeting *m)
{
    if (m == NULL)
        return;
    pthread_mutex_lock(&m->lock);
    bool first = !m->stopped;
    m->stopped = true;
    for (int i = 0; i < m->places; i++)
        if (m->guests[i].stream != NULL)
            nng_stream_close(m->guests[i].stream); // ends its greeting
    pthread_mutex_unlock(&m->lock);
    if (first && m->listener != NULL)
        nng_stream_listener_close(m->listener);
    if (first && m->dialer != NULL)
        nng_stream_dialer_close(m->dialer);
}

static mailbox_meeting *meeting_new(const char *url, int places, mailbox_met *met, void *owner)
{
    mailbox_meeting *m = calloc(1, sizeof(*m) + (size_t)places * sizeof(m->guests[0]));
    if (m == NULL)
        return NULL;
    pthread_mutex_init(&m->lock, NULL);
    m->places = places;
    m->encrypted = mailbox_encrypted(url);
    m->met = met;
    m->owner = owner;
    m->pause_ms = PAUSE_FIRST_MS;
    m->greeting_ms = mailbox_greeting_ms;
    int code = nng_aio_alloc(&m->arriving, on_arrived, m);
    if (code == 0)
        code = nng_aio_alloc(&m->pausing, on_paused, m);
    for (int i = 0; code == 0 && i < m->places; i++) {
        guest *g = &m->guests[i];
        g->meeting = m;
        code = nng_aio_alloc(&g->greeting, on_greeting, g);
        if (code == 0)
            code = nng_aio_alloc(&g->limit, on_limit, g);
    }
    if (code == 0)
        return m;
    mailbox_meeting_close(m);
    return NULL;
}

status mailbox_meeting_listen(const char *url, mailbox_met *met, void *owner,
                              char real_url[MAILBOX_URL_MAX], mailbox_meeting **made,
                              error *failure)
{
    mailbox_meeting *m = meeting_new(url, MEETING_GUESTS, met, owner);
    if (m == NULL)
        return mailbox_failed(failure, url, "listen at", NNG_ENOMEM);
    bool tcp = wire_kind_of(url) == WIRE_TCP;
    int code = nng_stream_listener_alloc(&m->listener, url);
    if (code == 0)
        code = mailbox_secure_stream_listener(m->listener, url);
    if (code == 0 && tcp)
        code = nng_stream_listener_set_bool(m->listener, NNG_OPT_TCP_KEEPALIVE, true);
    if (code == 0 && tcp)
        code = nng_stream_listener_set_bool(m->listener, NNG_OPT_TCP_NODELAY, true);
    if (code == 0)
        code = nng_stream_listener_listen(m->listener);
    if (code != 0) {
        mailbox_meeting_close(m);
        return mailbox_failed(failure, url, "listen at", code);
    }
    const char *port = strrchr(url, ':');
    int bound = 0;
    snprintf(real_url, MAILBOX_URL_MAX, "%s", url);
    if (tcp && port != NULL &&
        nng_stream_listener_get_int(m->listener, NNG_OPT_TCP_BOUND_PORT, &bound) == 0)
        snprintf(real_url, MAILBOX_URL_MAX, "%.*s:%d", (int)(port - url), url, bound);
    *made = m;
    return STATUS_OK;
}

status mailbox_meeting_dial(const char *url, const char *peer_name, mailbox_met *met, void *owner,
                            mailbox_meeting **made, error *failure)
{
    mailbox_meeting *m = meeting_new(url, 1, met, owner);
    if (m == NULL)
        return mailbox_failed(failure, url, "dial", NNG_ENOMEM);
    nng_aio_set_timeout(m->arriving, DIAL_MS);
    int code = nng_stream_dialer_alloc(&m->dialer, url);
    if (code == 0)
        code = mailbox_secure_stream_dialer(m->dialer, url, peer_name);
    if (code == 0 && wire_kind_of(url) == WIRE_TCP)
        code = nng_stream_dialer_set_bool(m->dialer, NNG_OPT_TCP_KEEPALIVE, true);
    if (code == 0 && wire_kind_of(url) == WIRE_TCP)
        code = nng_stream_dialer_set_bool(m->dialer, NNG_OPT_TCP_NODELAY, true);
    if (code != 0) {
        mailbox_meeting_close(m);
        return mailbox_failed(failure, url, "dial", code);
    }
    *made = m;
    return STATUS_OK;
}

void mailbox_meeting_begin(mailbox_meeting *m)
{
    pthread_mutex_lock(&m->lock);
    arrive(m);
    pthread_mutex_unlock(&m->lock);
}
