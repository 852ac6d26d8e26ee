#include "load.h"

#include "base/clock.h"
#include "base/random.h"
#include "net/mailbox.h"
#include "net/message.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#define BATCH_MAX 4096        // updates of one message
#define STEPS_AHEAD 2         // messages that the router has not taken yet, when there is no rate
#define STEP_SHORTEST_US 1000 // a real step is never shorter

typedef struct sequence {
    Penstock__RequestId id;
    uint32_t attempt, index, max_tokens;
} sequence;

typedef struct worker {
    mailbox_pair *pair;
    bool decode;
    sequence *sequences;
    size_t count;
    uint64_t step_us, beat_us; // when the next one is due
    double owed;               // tokens that the rate allows
    uint64_t paid_us;
    uint64_t router_clock_us, router_beat_us;
} worker;

atomic_ullong workers_rate, workers_tokens, workers_tickets, workers_unsent;

static workers_settings settings;
static queue *events;
static worker *all;
static pthread_t thread;
static atomic_bool ending;

static void say(worker *w, const message_to_router *m)
{
    buffer bytes = { 0 };
    message_pack(&m->base, &bytes);
    if (mailbox_pair_send(w->pair, buffer_slice(&bytes), false) != STATUS_OK && !ending)
        atomic_fetch_add(&workers_unsent, 1);
    buffer_close(&bytes);
}

static void beat(worker *w, uint64_t now)
{
    Penstock__WorkerBeat b = PENSTOCK__WORKER_BEAT__INIT;
    message_to_router m = PENSTOCK__TO_ROUTER__INIT;
    b.router_clock_us = w->router_clock_us;
    b.since_beat_us = w->router_clock_us ? now - w->router_beat_us : 0;
    b.clock_us = now;
    b.healthy = true;
    b.sequences_running = (uint32_t)w->count;
    m.body_case = PENSTOCK__TO_ROUTER__BODY_BEAT;
    m.beat = &b;
    say(w, &m);
    w->beat_us = now + 500000;
}

// ---- tokens -------------------------------------------------------------------------------------

typedef struct batch {
    Penstock__Token token, *token_list[1];
    Penstock__TokenUpdate updates[BATCH_MAX], *update_list[BATCH_MAX];
    Penstock__WorkerTimes times;
} batch;

static void batch_send(worker *w, batch *b, size_t count)
{
    Penstock__TokenBatch tokens = PENSTOCK__TOKEN_BATCH__INIT;
    message_to_router m = PENSTOCK__TO_ROUTER__INIT;
    tokens.n_updates = count;
    tokens.updates = b->update_list;
    m.body_case = PENSTOCK__TO_ROUTER__BODY_TOKENS;
    m.tokens = &tokens;
    say(w, &m);
    atomic_fetch_add(&workers_tokens, count);
}

// The next token of a sequence; true: it was the last.
static bool update_fill(batch *b, size_t at, sequence *s, bool prefill)
{
    Penstock__TokenUpdate *u = &b->updates[at];
    penstock__token_update__init(u);
    u->request = &s->id;
    u->attempt = s->attempt;
    u->times = s->index <= 1 ? &b->times : NULL;
    u->first_index = s->index++;
    u->n_tokens = 1;
    u->tokens = b->token_list;
    bool last = s->index >= s->max_tokens;
    u->finish = last ? PENSTOCK__FINISH__FINISH_LENGTH : PENSTOCK__FINISH__FINISH_NONE;
    u->handing_over = prefill && !last;
    b->update_list[at] = u;
    return last;
}

static void batch_open(batch *b, uint64_t now)
{
    penstock__token__init(&b->token);
    penstock__worker_times__init(&b->times);
    b->token.id = settings.token;
    b->token.logprob = -0.5f;
    b->token_list[0] = &b->token;
    b->times.received = b->times.prefill_begun = b->times.prefill_done = now;
}

// A step of a decode worker: one token of each sequence, in one message.
static void step(worker *w, batch *b, uint64_t now)
{
    size_t ended = 0, count = w->count < BATCH_MAX ? w->count : BATCH_MAX;
    batch_open(b, now);
    for (size_t i = 0; i < count; i++)
        if (update_fill(b, i, &w->sequences[i], false))
            ended++;
    batch_send(w, b, count);
    for (size_t i = count; ended > 0 && i-- > 0;)
        if (w->sequences[i].index >= w->sequences[i].max_tokens)
            w->sequences[i] = w->sequences[--w->count];
}

// When the next step is due, as the rate wants it.
static void turn(worker *w, batch *b, uint64_t now)
{
    uint64_t rate = atomic_load(&workers_rate);
    if (now >= w->beat_us)
        beat(w, now);
    if (w->count == 0 || !w->decode) {
        w->paid_us = now;
        return;
    }
    w->owed += (double)(now - w->paid_us) * 1e-6 * (double)rate / settings.decode;
    w->paid_us = now;
    if (w->owed > 4.0 * (double)w->count)
        w->owed = 4.0 * (double)w->count; // this program is too slow for the rate: it says so
    if (rate > 0 && w->owed < (double)w->count)
        return;
    if (rate == 0 && (mailbox_pair_waiting(w->pair) > STEPS_AHEAD || now < w->step_us))
        return;
    w->owed -= (double)w->count;
    w->step_us = now + STEP_SHORTEST_US;
    step(w, b, now);
}

static void prefill_answer(worker *w, batch *b, sequence *s)
{
    Penstock__HandedOver over = PENSTOCK__HANDED_OVER__INIT;
    message_to_router m = PENSTOCK__TO_ROUTER__INIT;
    batch_open(b, clock_now_us());
    bool last = update_fill(b, 0, s, true);
    batch_send(w, b, 1);
    if (last)
        return;
    over.request = &s->id;
    over.attempt = s->attempt;
    over.bytes = 4096;
    m.body_case = PENSTOCK__TO_ROUTER__BODY_HANDED_OVER;
    m.handed_over = &over;
    say(w, &m);
}

static void on_ticket(worker *w, batch *b, const message_ticket *t)
{
    sequence s = { .attempt = t->attempt, .max_tokens = t->max_tokens };
    penstock__request_id__init(&s.id);
    s.id.router = t->request->router;
    s.id.number = t->request->number;
    s.index = (uint32_t)t->n_tokens - t->prompt_count;
    if (!w->decode) {
        prefill_answer(w, b, &s);
        return;
    }
    atomic_fetch_add(&workers_tickets, 1);
    s.index += t->prefill != NULL;
    if (s.index < s.max_tokens && w->count < settings.sequences)
        w->sequences[w->count++] = s;
}

static void on_cancel(worker *w, const Penstock__Cancel *c)
{
    for (size_t i = w->count; i-- > 0;)
        if (w->sequences[i].id.number == c->request->number &&
            w->sequences[i].attempt == c->attempt)
            w->sequences[i] = w->sequences[--w->count];
}

static void on_message(worker *w, batch *b, slice data)
{
    message_to_worker *m = NULL;
    if (message_unpack_to_worker(data, &m, NULL) != STATUS_OK)
        return;
    if (m->body_case == PENSTOCK__TO_WORKER__BODY_TICKET)
        on_ticket(w, b, m->ticket);
    else if (m->body_case == PENSTOCK__TO_WORKER__BODY_CANCEL)
        on_cancel(w, m->cancel);
    else if (m->body_case == PENSTOCK__TO_WORKER__BODY_BEAT) {
        w->router_clock_us = m->beat->clock_us;
        w->router_beat_us = clock_now_us();
    }
    message_free(m);
}

static void *serve(void *context)
{
    batch *b = context;
    size_t count = (size_t)(settings.prefill + settings.decode);
    while (!atomic_load(&ending)) {
        mailbox_event *event = queue_pop_wait(events, 500);
        for (; event; event = queue_pop(events)) {
            worker *w = event->owner;
            if (event->kind == MAILBOX_MESSAGE)
                on_message(w, b, event->data);
            else if (event->kind == MAILBOX_UP)
                beat(w, clock_now_us());
            mailbox_event_free(event);
        }
        uint64_t now = clock_now_us();
        for (size_t i = 0; i < count; i++)
            turn(&all[i], b, now);
    }
    return NULL;
}

// ---- joining ------------------------------------------------------------------------------------

static void registration_fill(const worker *w, char *name, Penstock__ModelIdentity *model,
                              Penstock__Register *r)
{
    model->name = (char *)"load";
    model->architecture = (char *)"llama";
    model->kv_layout = (char *)"load-1";
    model->weights = (ProtobufCBinaryData){ sizeof settings.weights, (uint8_t *)&settings.weights };
    model->numeric_id = model->weights;
    model->page_tokens = 64;
    model->page_bytes = 4096;
    model->context = settings.context;
    model->vocabulary = settings.vocabulary;
    r->worker = name;
    r->incarnation = random_system();
    r->role = w->decode ? PENSTOCK__ROLE__ROLE_DECODE : PENSTOCK__ROLE__ROLE_PREFILL;
    r->model = model;
    r->pair_url = (char *)mailbox_pair_url(w->pair);
    r->fabric_host = (char *)(w->decode ? "127.0.0.1" : "");
    r->fabric_port = w->decode ? 9 : 0;
    r->pages = r->page_credits = 1u << 24;
    r->sequences = settings.sequences;
    r->version = (char *)"load";
}

static void join(worker *w, size_t index)
{
    char name[32];
    error failure = { 0 };
    buffer question = { 0 }, answer = { 0 };
    message_control_reply *reply = NULL;
    Penstock__ModelIdentity model = PENSTOCK__MODEL_IDENTITY__INIT;
    Penstock__Register r = PENSTOCK__REGISTER__INIT;
    Penstock__ControlRequest request = PENSTOCK__CONTROL_REQUEST__INIT;
    snprintf(name, sizeof name, "load-%zu", index);
    CHECK(mailbox_pair_listen("tcp://127.0.0.1:0", &mailbox_limits_default, events, w, &w->pair,
                              &failure) == STATUS_OK);
    registration_fill(w, name, &model, &r);
    request.protocol = MESSAGE_PROTOCOL;
    request.body_case = PENSTOCK__CONTROL_REQUEST__BODY_REGISTER;
    request.register_ = &r;
    message_pack(&request.base, &question);
    if (mailbox_request(settings.router, buffer_slice(&question), 5000000, &answer, &failure) !=
            STATUS_OK ||
        message_unpack_control_reply(buffer_slice(&answer), &reply, &failure) != STATUS_OK ||
        !reply->accepted) {
        fprintf(stderr, "router-load: cannot join: %s\n", reply ? reply->reason : failure.text);
        exit(1);
    }
    message_free(reply);
    buffer_close(&question);
    buffer_close(&answer);
}

void workers_start(const workers_settings *given)
{
    settings = *given;
    size_t count = (size_t)(settings.prefill + settings.decode);
    batch *b = calloc(1, sizeof *b);
    all = calloc(count, sizeof *all);
    CHECK(b && all && queue_open(65536, &events) == STATUS_OK);
    for (size_t i = 0; i < count; i++) {
        all[i].decode = i >= (size_t)settings.prefill;
        all[i].sequences = calloc(settings.sequences, sizeof(sequence));
        CHECK(all[i].sequences);
        join(&all[i], i);
    }
    CHECK(pthread_create(&thread, NULL, serve, b) == 0);
}

void workers_stop(void)
{
    atomic_store(&ending, true);
    pthread_join(thread, NULL);
}
