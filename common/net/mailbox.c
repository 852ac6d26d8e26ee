#include "net/mailbox_internal.h"

#include "base/clock.h"
#include "base/log.h"

#include <nng/protocol/reqrep0/rep.h>
#include <nng/protocol/reqrep0/req.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// Long enough for what was under way on a connection to end, also on a busy machine.
#define REST_BEFORE_CLOSE_US 100000
#define CLOSE_STUCK_US 5000000

const mailbox_limits mailbox_limits_default = {
    .message_max = (size_t)4 << 20,
    .outgoing_max = 4096,
};

// nng starts its threads with the first thing that is asked of it; they inherit how the thread that
// asked is scheduled.
status mailbox_threads_batch(error *failure)
{
    struct sched_param parameters = { 0 };
    nng_aio *first = NULL;
    int before = sched_getscheduler(0);
    if (before < 0 || sched_setscheduler(0, SCHED_BATCH, &parameters) != 0)
        return error_set(failure, STATUS_IO, "control.batch_threads",
                         "control.batch_threads is not possible here: %s", strerror(errno));
    if (nng_aio_alloc(&first, NULL, NULL) == 0)
        nng_aio_free(first);
    if (sched_setscheduler(0, before, &parameters) != 0)
        return error_set(failure, STATUS_IO, "control.batch_threads",
                         "control.batch_threads cannot be ended for the loop: %s", strerror(errno));
    return STATUS_OK;
}

// ---- shared ------------------------------------------------------------------------------------

mailbox_event *mailbox_event_new(mailbox_event_kind kind, void *owner, nng_msg *message)
{
    mailbox_event *event = calloc(1, sizeof(*event));
    if (event == NULL)
        return NULL;
    event->kind = kind;
    event->owner = owner;
    event->arrived_us = clock_now_us();
    event->message = message;
    if (message != NULL)
        event->data = (slice){ nng_msg_body(message), nng_msg_len(message) };
    return event;
}

void mailbox_event_free(mailbox_event *event)
{
    if (event == NULL)
        return;
    if (event->message != NULL)
        nng_msg_free(event->message);
    if (event->context != NULL)
        mailbox_request_release(event->context);
    free(event);
}

nng_msg *mailbox_message_new(slice data)
{
    nng_msg *message = NULL;
    if (nng_msg_alloc(&message, data.size) != 0)
        return NULL;
    if (data.size > 0)
        memcpy(nng_msg_body(message), data.data, data.size);
    return message;
}

status mailbox_failed(error *failure, const char *url, const char *what, int code)
{
    status result = code == NNG_ENOMEM ? STATUS_NO_MEMORY : STATUS_IO;
    return error_set(failure, result, "", "cannot %s %s: %s", what, url, nng_strerror(code));
}

static bool mailbox_on_tcp(const char *url)
{
    return strncmp(url, "tcp", 3) == 0 || strncmp(url, "tls", 3) == 0;
}

int mailbox_dial(nng_socket socket, const char *url, const char *peer_name)
{
    nng_dialer dialer;
    int code = nng_dialer_create(&dialer, socket, url);
    if (code == 0)
        code = mailbox_secure_dialer(dialer, url, peer_name);
    if (code == 0 && mailbox_on_tcp(url))
        code = nng_dialer_set_bool(dialer, NNG_OPT_TCP_KEEPALIVE, true);
    return code != 0 ? code : nng_dialer_start(dialer, NNG_FLAG_NONBLOCK);
}

status mailbox_listen(nng_socket socket, const char *url, char real_url[MAILBOX_URL_MAX],
                      error *failure)
{
    nng_listener listener;
    int code = nng_listener_create(&listener, socket, url);
    if (code != 0)
        return mailbox_failed(failure, url, "listen at", code);
    bool tcp = mailbox_on_tcp(url);
    code = mailbox_secure_listener(listener, url);
    if (code == 0 && tcp)
        code = nng_listener_set_bool(listener, NNG_OPT_TCP_KEEPALIVE, true);
    if (code == 0)
        code = nng_listener_start(listener, 0);
    if (code != 0)
        return mailbox_failed(failure, url, "listen at", code);
    snprintf(real_url, MAILBOX_URL_MAX, "%s", url);
    const char *port = strrchr(url, ':');
    int bound = 0;
    if (tcp && port != NULL && nng_listener_get_int(listener, NNG_OPT_TCP_BOUND_PORT, &bound) == 0)
        snprintf(real_url, MAILBOX_URL_MAX, "%.*s:%d", (int)(port - url), url, bound);
    return STATUS_OK;
}

// ---- closing -----------------------------------------------------------------------------------

typedef struct closing {
    struct closing *next;
    void (*close)(void *argument);
    void *argument;
    uint64_t due_us;
} closing;

// All that waits to be closed, in order of time. The thread is made with the first and lives as
// long as the process.
static struct {
    pthread_mutex_t lock;
    pthread_cond_t wake;
    closing *first, **last;
    bool begun;
    uint64_t busy_since_us; // 0: nothing is being closed
} closer = { .lock = PTHREAD_MUTEX_INITIALIZER,
             .wake = PTHREAD_COND_INITIALIZER,
             .last = &closer.first };

static void *closer_main(void *unused)
{
    (void)unused;
    for (;;) {
        pthread_mutex_lock(&closer.lock);
        while (closer.first == NULL)
            pthread_cond_wait(&closer.wake, &closer.lock);
        uint64_t due_us =
            closer.first->due_us; // it stays in the list, which keeps it in sight of leak checks
        pthread_mutex_unlock(&closer.lock);
        for (uint64_t now_us; (now_us = clock_now_us()) < due_us;)
            clock_sleep_us(due_us - now_us);
        pthread_mutex_lock(&closer.lock);
        closing *c = closer.first;
        closer.first = c->next;
        if (closer.first == NULL)
            closer.last = &closer.first;
        closer.busy_since_us = clock_now_us();
        pthread_mutex_unlock(&closer.lock);
        c->close(c->argument);
        free(c);
        pthread_mutex_lock(&closer.lock);
        closer.busy_since_us = 0;
        pthread_mutex_unlock(&closer.lock);
    }
    return NULL;
}

static bool closer_begin(void)
{
    pthread_t thread;
    if (!closer.begun && pthread_create(&thread, NULL, closer_main, NULL) == 0) {
        pthread_detach(thread);
        closer.begun = true;
    }
    return closer.begun;
}

void mailbox_close_later(void (*close)(void *argument), void *argument)
{
    closing *c = calloc(1, sizeof(*c));
    pthread_mutex_lock(&closer.lock);
    bool later = c != NULL && closer_begin();
    uint64_t busy_us = closer.busy_since_us == 0 ? 0 : clock_now_us() - closer.busy_since_us;
    if (later) {
        *c = (closing){ .close = close,
                        .argument = argument,
                        .due_us = clock_now_us() + REST_BEFORE_CLOSE_US };
        *closer.last = c;
        closer.last = &c->next;
        pthread_cond_signal(&closer.wake);
    }
    pthread_mutex_unlock(&closer.lock);
    if (busy_us > CLOSE_STUCK_US)
        log_warn("mailbox",
                 "a socket is being closed for %llu s; those that are closed keep their memory",
                 (unsigned long long)(busy_us / 1000000));
    if (later)
        return;
    free(c);
    clock_sleep_us(REST_BEFORE_CLOSE_US);
    close(argument);
}

// ---- server ------------------------------------------------------------------------------------

// One request at a time: received, given out as an event, answered (or let go), received again.
typedef struct server_context {
    mailbox_server *server;
    nng_ctx ctx;
    nng_aio *aio;
    bool replying; // the aio sends; else it receives
} server_context;

// Events that are out keep the memory of a closed server, because they point to their context.
struct mailbox_server {
    pthread_mutex_t lock;
    nng_socket socket;
    queue *events;
    void *owner;
    char url[MAILBOX_URL_MAX];
    bool closed, finished; // asked to close; the socket is closed
    int events_out;
    int count;
    server_context contexts[];
};

static void server_free(mailbox_server *s)
{
    for (int i = 0; i < s->count; i++)
        if (s->contexts[i].aio != NULL)
            nng_aio_free(s->contexts[i].aio);
    pthread_mutex_destroy(&s->lock);
    free(s);
}

// Under the lock.
static void context_receive(server_context *c)
{
    c->replying = false;
    if (!c->server->closed)
        nng_ctx_recv(c->ctx, c->aio);
}

// Under the lock. Where no event can be made or queued the worker gets no answer and asks again.
static void context_deliver(server_context *c, nng_msg *message)
{
    mailbox_server *s = c->server;
    mailbox_event *event = mailbox_event_new(MAILBOX_REQUEST, s->owner, message);
    if (event == NULL) {
        nng_msg_free(message);
        context_receive(c);
        return;
    }
    event->context = c;
    s->events_out++;
    if (queue_push(s->events, event) == STATUS_OK)
        return;
    s->events_out--;
    event->context = NULL;
    mailbox_event_free(event);
    context_receive(c);
}

// On one of nng's threads: a request came in or an answer went out.
static void on_context(void *argument)
{
    server_context *c = argument;
    mailbox_server *s = c->server;
    pthread_mutex_lock(&s->lock);
    int code = nng_aio_result(c->aio);
    if (code != 0 && c->replying && nng_aio_get_msg(c->aio) != NULL)
        nng_msg_free(nng_aio_get_msg(c->aio));
    nng_msg *message = code == 0 && !c->replying ? nng_aio_get_msg(c->aio) : NULL;
    if (message != NULL && s->closed)
        nng_msg_free(message);
    else if (message != NULL)
        context_deliver(c, message);
    else if (code != NNG_ECLOSED && code != NNG_ECANCELED)
        context_receive(c);
    pthread_mutex_unlock(&s->lock);
}

status mailbox_server_open(const char *url, int contexts, const mailbox_limits *limits,
                           queue *events, void *owner, mailbox_server **opened, error *failure)
{
    CHECK(contexts > 0 && contexts <= 1024);
    mailbox_server *s = calloc(1, sizeof(*s) + (size_t)contexts * sizeof(s->contexts[0]));
    if (s == NULL)
        return error_set(failure, STATUS_NO_MEMORY, "", "memory is short for %s", url);
    pthread_mutex_init(&s->lock, NULL);
    s->events = events;
    s->owner = owner;
    s->count = contexts;
    int code = nng_rep0_open(&s->socket);
    if (code != 0) {
        server_free(s);
        return mailbox_failed(failure, url, "open a socket for", code);
    }
    code = nng_socket_set_size(s->socket, NNG_OPT_RECVMAXSZ, limits->message_max);
    for (int i = 0; code == 0 && i < contexts; i++) {
        s->contexts[i].server = s;
        code = nng_ctx_open(&s->contexts[i].ctx, s->socket);
        if (code == 0)
            code = nng_aio_alloc(&s->contexts[i].aio, on_context, &s->contexts[i]);
    }
    status result = code == 0 ? mailbox_listen(s->socket, url, s->url, failure)
                              : mailbox_failed(failure, url, "open a socket for", code);
    if (result != STATUS_OK) {
        nng_close(s->socket);
        server_free(s);
        return result;
    }
    pthread_mutex_lock(&s->lock);
    for (int i = 0; i < contexts; i++)
        context_receive(&s->contexts[i]);
    pthread_mutex_unlock(&s->lock);
    *opened = s;
    return STATUS_OK;
}

const char *mailbox_server_url(const mailbox_server *s)
{
    return s->url;
}

static void server_finish(void *argument)
{
    mailbox_server *s = argument;
    nng_close(s->socket);
    for (int i = 0; i < s->count; i++)
        nng_aio_stop(s->contexts[i].aio);
    pthread_mutex_lock(&s->lock);
    s->finished = true;
    bool last = s->events_out == 0;
    pthread_mutex_unlock(&s->lock);
    if (last)
        server_free(s);
}

void mailbox_server_close(mailbox_server *s)
{
    if (s == NULL)
        return;
    pthread_mutex_lock(&s->lock);
    s->closed = true;
    pthread_mutex_unlock(&s->lock);
    for (int i = 0; i < s->count; i++)
        nng_aio_abort(s->contexts[i].aio, NNG_ECANCELED);
    mailbox_close_later(server_finish, s);
}

// The event of `c` is done with; its context goes on, or the last one takes a closed server along.
static void context_end(server_context *c, nng_msg *answer)
{
    mailbox_server *s = c->server;
    pthread_mutex_lock(&s->lock);
    s->events_out--;
    bool last = s->finished && s->events_out == 0;
    if (answer != NULL && !s->closed) {
        c->replying = true;
        nng_aio_set_msg(c->aio, answer);
        nng_ctx_send(c->ctx, c->aio);
        answer = NULL;
    } else
        context_receive(c);
    pthread_mutex_unlock(&s->lock);
    if (answer != NULL)
        nng_msg_free(answer);
    if (last)
        server_free(s);
}

void mailbox_request_release(void *context)
{
    context_end(context, NULL);
}

void mailbox_reply(mailbox_event *event, slice data)
{
    CHECK(event->kind == MAILBOX_REQUEST && event->context != NULL);
    server_context *c = event->context;
    event->context = NULL;
    mailbox_event_free(event);
    context_end(c, mailbox_message_new(data));
}

// ---- request -----------------------------------------------------------------------------------

static int milliseconds_until(uint64_t deadline_us)
{
    uint64_t now_us = clock_now_us();
    return now_us >= deadline_us ? 1 : (int)((deadline_us - now_us) / 1000 + 1);
}

// Send once, wait for the answer. The socket's resend timer is off: a slow answer must not make the
// router do the work twice.
static int ask(nng_socket socket, const char *url, slice data, int64_t timeout_us, nng_msg **answer)
{
    uint64_t deadline_us = clock_now_us() + (uint64_t)timeout_us;
    int code = nng_socket_set_size(socket, NNG_OPT_RECVMAXSZ, mailbox_limits_default.message_max);
    if (code == 0)
        code = nng_socket_set_ms(socket, NNG_OPT_REQ_RESENDTIME, NNG_DURATION_INFINITE);
    if (code == 0)
        code = nng_socket_set_ms(socket, NNG_OPT_RECONNMINT, 100);
    if (code == 0)
        code = nng_socket_set_ms(socket, NNG_OPT_RECONNMAXT, 1000);
    if (code == 0)
        code = nng_socket_set_ms(socket, NNG_OPT_SENDTIMEO, milliseconds_until(deadline_us));
    if (code == 0)
        code = mailbox_dial(socket, url, MAILBOX_ROUTER);
    if (code != 0)
        return code;
    nng_msg *question = mailbox_message_new(data);
    if (question == NULL)
        return NNG_ENOMEM;
    code = nng_sendmsg(socket, question, 0);
    if (code != 0) {
        nng_msg_free(question);
        return code;
    }
    code = nng_socket_set_ms(socket, NNG_OPT_RECVTIMEO, milliseconds_until(deadline_us));
    return code != 0 ? code : nng_recvmsg(socket, answer, 0);
}

static void question_close(void *argument)
{
    nng_close((nng_socket){ (uint32_t)(uintptr_t)argument });
}

status mailbox_request(const char *url, slice data, int64_t timeout_us, buffer *reply,
                       error *failure)
{
    nng_socket socket;
    int code = nng_req0_open(&socket);
    if (code != 0)
        return mailbox_failed(failure, url, "open a socket for", code);
    nng_msg *answer = NULL;
    code = ask(socket, url, data, timeout_us, &answer);
    mailbox_close_later(question_close, (void *)(uintptr_t)socket.id);
    if (code == NNG_ETIMEDOUT)
        return error_set(failure, STATUS_PEER_SILENT, "", "%s did not answer within %lld ms", url,
                         (long long)timeout_us / 1000);
    if (code != 0)
        return mailbox_failed(failure, url, "ask", code);
    buffer_append(reply, nng_msg_body(answer), nng_msg_len(answer));
    nng_msg_free(answer);
    return reply->overflow ? error_set(failure, STATUS_NO_MEMORY, "", "no memory for the answer")
                           : STATUS_OK;
}
