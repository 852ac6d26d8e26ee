#include "fake_worker.h"

#include "base/clock.h"
#include "base/random.h"
#include "checkpoint/gguf.h"

#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

static volatile sig_atomic_t leaving;

static void on_signal(int number)
{
    (void)number;
    leaving = 1;
}

void fake_send(fake_worker *w, const message_to_router *m)
{
    buffer bytes = { 0 };
    message_pack(&m->base, &bytes);
    if (mailbox_pair_send(w->pair, buffer_slice(&bytes), false) != STATUS_OK)
        w->down = true;
    buffer_close(&bytes);
}

static void beat_send(fake_worker *w, uint64_t now)
{
    Penstock__WorkerBeat beat = PENSTOCK__WORKER_BEAT__INIT;
    Penstock__ToRouter m = PENSTOCK__TO_ROUTER__INIT;
    beat.router_clock_us = w->router_clock_us;
    beat.since_beat_us = w->router_clock_us ? now - w->router_beat_us : 0;
    beat.clock_us = now;
    beat.pages_held = w->pages_held;
    beat.pages_free = w->settings.pages - w->pages_held;
    beat.sequences_running = w->running;
    beat.steps = w->steps;
    beat.prefill_tokens = w->prompt_tokens;
    beat.decode_tokens = w->tokens_made;
    beat.healthy = true;
    beat.cordoned = w->cordoned;
    beat.draining = w->draining;
    m.body_case = PENSTOCK__TO_ROUTER__BODY_BEAT;
    m.beat = &beat;
    fake_send(w, &m);
    w->beat_due_us = now + w->beat_interval_us;
}

static void on_order(fake_worker *w, const Penstock__Order *o)
{
    Penstock__OrderAnswer answer = PENSTOCK__ORDER_ANSWER__INIT;
    Penstock__ToRouter m = PENSTOCK__TO_ROUTER__INIT;
    answer.id = o->id;
    answer.accepted = o->kind != PENSTOCK__ORDER_KIND__ORDER_FLIP;
    answer.reason = (char *)(answer.accepted ? "" : "a fake cannot flip");
    if (o->kind == PENSTOCK__ORDER_KIND__ORDER_DRAIN)
        w->draining = true;
    else if (answer.accepted)
        w->cordoned = o->kind == PENSTOCK__ORDER_KIND__ORDER_CORDON;
    m.body_case = PENSTOCK__TO_ROUTER__BODY_ORDER_ANSWER;
    m.order_answer = &answer;
    fake_send(w, &m);
    beat_send(w, clock_now_us());
}

static void on_message(fake_worker *w, slice data)
{
    message_to_worker *m = NULL;
    error failure;
    if (message_unpack_to_worker(data, &m, &failure) != STATUS_OK) {
        fprintf(stderr, "fake worker: the router broke the protocol: %s\n", failure.text);
        exit(4);
    }
    if (m->body_case == PENSTOCK__TO_WORKER__BODY_TICKET) {
        fake_ticket(w, m->ticket);
        beat_send(w, clock_now_us());
    } else if (m->body_case == PENSTOCK__TO_WORKER__BODY_CANCEL) {
        fake_cancel(w, m->cancel);
        beat_send(w, clock_now_us());
    } else if (m->body_case == PENSTOCK__TO_WORKER__BODY_BEAT) {
        w->router_clock_us = m->beat->clock_us;
        w->router_beat_us = clock_now_us();
    } else if (m->body_case == PENSTOCK__TO_WORKER__BODY_ORDER) {
        on_order(w, m->order);
    } else if (m->body_case == PENSTOCK__TO_WORKER__BODY_DRAIN) {
        w->draining = true;
    }
    message_free(m);
}

static void join(fake_worker *w, uint64_t incarnation, hash128 weights)
{
    error failure = { 0 };
    buffer question = { 0 }, answer = { 0 };
    message_control_reply *reply = NULL;
    hash128 numeric = { w->settings.numeric, 1 };
    Penstock__ModelIdentity model = PENSTOCK__MODEL_IDENTITY__INIT;
    Penstock__Register r = PENSTOCK__REGISTER__INIT;
    Penstock__ControlRequest request = PENSTOCK__CONTROL_REQUEST__INIT;
    weights.low += w->settings.weights_delta;
    weights.high += w->settings.weights_delta; // fingerprints show this half
    model.name = (char *)"fake";
    model.architecture = (char *)"llama";
    model.kv_layout = (char *)"fake-1";
    model.weights = (ProtobufCBinaryData){ sizeof weights, (uint8_t *)&weights };
    model.numeric_id = (ProtobufCBinaryData){ sizeof numeric, (uint8_t *)&numeric };
    model.page_tokens = w->settings.page_tokens;
    model.page_bytes = 4096;
    model.context = w->settings.context;
    model.vocabulary = w->settings.vocabulary;
    r.worker = (char *)w->settings.name;
    r.incarnation = incarnation;
    r.role = w->settings.decode ? PENSTOCK__ROLE__ROLE_DECODE : PENSTOCK__ROLE__ROLE_PREFILL;
    r.model = &model;
    r.pair_url = (char *)mailbox_pair_url(w->pair);
    r.fabric_host = (char *)(w->settings.decode ? "127.0.0.1" : "");
    r.fabric_port = w->settings.decode ? 9 : 0;
    r.pages = r.page_credits = w->settings.pages;
    r.sequences = w->settings.sequences;
    r.version = (char *)"fake";
    request.protocol = w->settings.protocol;
    request.body_case = PENSTOCK__CONTROL_REQUEST__BODY_REGISTER;
    request.register_ = &r;
    message_pack(&request.base, &question);
    for (int i = 0;; i++) {
        status result = mailbox_request(w->settings.router, buffer_slice(&question), 1000000,
                                        &answer, &failure);
        if (result == STATUS_OK)
            break;
        if (i == 50 || leaving) {
            fprintf(stderr, "fake worker: no router: %s\n", failure.text);
            exit(5);
        }
        clock_sleep_us(100000);
    }
    CHECK(message_unpack_control_reply(buffer_slice(&answer), &reply, &failure) == STATUS_OK);
    if (!reply->accepted) {
        fprintf(stderr, "fake worker: refused: %s\n", reply->reason);
        exit(6);
    }
    w->beat_interval_us = reply->heartbeat_ms * 1000u;
    message_free(reply);
    buffer_close(&question);
    buffer_close(&answer);
}

// What one worker has to do now; returns when it has something to do next.
static uint64_t worker_turn(fake_worker *w, uint64_t now)
{
    uint32_t running = w->running;
    uint64_t due = running > 0 || w->settings.count == 1 ? fake_step(w, now) : UINT64_MAX;
    if (now >= w->beat_due_us || running != w->running)
        beat_send(w, now);
    return due < w->beat_due_us ? due : w->beat_due_us;
}

static void on_event(fake_worker *w, const mailbox_event *event)
{
    if (event->kind == MAILBOX_MESSAGE)
        on_message(w, event->data);
    if (event->kind == MAILBOX_DOWN)
        w->down = true;
    if (event->kind == MAILBOX_UP)
        beat_send(w, clock_now_us());
}

// What all of them have to do now. False: one is down or drained.
static bool turn(fake_worker *workers, size_t count, int64_t wait_us, uint64_t *due)
{
    bool over = false;
    mailbox_event *event =
        wait_us > 0 ? queue_pop_wait(workers->events, wait_us) : queue_pop(workers->events);
    for (int i = 0; event && i < 256; i++) {
        on_event(event->owner, event);
        mailbox_event_free(event);
        event = i < 255 ? queue_pop(workers->events) : NULL;
    }
    uint64_t now = clock_now_us();
    *due = UINT64_MAX;
    for (size_t i = 0; i < count; i++) {
        uint64_t next = worker_turn(&workers[i], now);
        *due = next < *due ? next : *due;
        over = over || workers[i].down || (workers[i].draining && workers[i].running == 0);
    }
    return !over;
}

// Until the first of them is down or drained, or a signal came.
static void serve(fake_worker *workers, size_t count)
{
    uint64_t due = 0, now;
    bool goes_on = true;
    while (!leaving && goes_on) {
        now = clock_now_us();
        int64_t wait = due > now ? (int64_t)(due - now) : 0;
        goes_on = turn(workers, count, wait < 50000 ? wait : 50000, &due);
    }
}

static const struct option options[] = {
    { "router", 1, 0, 'r' },
    { "name", 1, 0, 'n' },
    { "model", 1, 0, 'm' },
    { "role", 1, 0, 'R' },
    { "pages", 1, 0, 'p' },
    { "sequences", 1, 0, 's' },
    { "page-tokens", 1, 0, 't' },
    { "context", 1, 0, 'c' },
    { "vocabulary", 1, 0, 'v' },
    { "numeric", 1, 0, 'N' },
    { "weights", 1, 0, 'w' },
    { "step-ms", 1, 0, 'S' },
    { "prefill-ms", 1, 0, 'P' },
    { "handover-ms", 1, 0, 'H' },
    { "answer", 1, 0, 'a' },
    { "eos", 1, 0, 'e' },
    { "refuse", 1, 0, 'f' },
    { "fail-after", 1, 0, 'F' },
    { "gap-after", 1, 0, 'g' },
    { "nan-after", 1, 0, 'x' },
    { "protocol", 1, 0, 'V' },
    { "count", 1, 0, 'C' },
    { "repeat", 0, 0, 'd' },
    { "die", 0, 0, 'D' },
    { 0 },
};

// clang-format off
static bool option_take(fake_settings *s, int c)
{
    long long number = optarg ? atoll(optarg) : 0;
    switch (c) {
    case 'r': s->router = optarg; break;
    case 'n': s->name = optarg; break;
    case 'm': s->model = optarg; break;
    case 'R': s->decode = strcmp(optarg, "decode") == 0; break;
    case 'p': s->pages = (uint64_t)number; break;
    case 's': s->sequences = (uint32_t)number; break;
    case 't': s->page_tokens = (uint32_t)number; break;
    case 'c': s->context = (uint32_t)number; break;
    case 'v': s->vocabulary = (uint32_t)number; break;
    case 'N': s->numeric = (uint64_t)number; break;
    case 'w': s->weights_delta = (uint64_t)number; break;
    case 'S': s->step_ms = number; break;
    case 'P': s->prefill_ms = number; break;
    case 'H': s->handover_ms = number; break;
    case 'a': s->answer_tokens = number; break;
    case 'e': s->eos = (int32_t)number; break;
    case 'f': s->refuse = number; break;
    case 'F': s->fail_after = number; break;
    case 'g': s->gap_after = number; break;
    case 'x': s->nan_after = number; break;
    case 'C': s->count = (size_t)number; break;
    case 'V': s->protocol = (uint32_t)number; break;
    case 'd': s->repeat = true; break;
    case 'D': s->die = true; break;
    default: return false;
    }
    return true;
}

// clang-format on

static fake_settings settings_take(int argc, char **argv)
{
    fake_settings s = { .name = "fake",
                        .decode = true,
                        .pages = 256,
                        .sequences = 64,
                        .page_tokens = 64,
                        .context = 8192,
                        .vocabulary = 49152,
                        .numeric = 1,
                        .step_ms = 5,
                        .prefill_ms = 5,
                        .handover_ms = 2,
                        .eos = 2,
                        .protocol = MESSAGE_PROTOCOL,
                        .count = 1 };
    for (int c; (c = getopt_long(argc, argv, "", options, NULL)) != -1;)
        if (!option_take(&s, c))
            exit(2);
    return s;
}

// Worker `index` of this process listens and joins.
static void worker_open(fake_worker *w, const fake_settings *settings, size_t index, queue *events,
                        hash128 weights)
{
    error failure = { 0 };
    *w = (fake_worker){ .settings = *settings, .events = events };
    snprintf(w->name, sizeof w->name, settings->count > 1 ? "%s-%zu" : "%s", settings->name, index);
    w->settings.name = w->name;
    CHECK(mailbox_pair_listen("tcp://127.0.0.1:0", &mailbox_limits_default, events, w, &w->pair,
                              &failure) == STATUS_OK);
    join(w, random_system(), weights);
}

static void worker_close(fake_worker *w)
{
    while (w->sequences) {
        fake_sequence *next = w->sequences->next;
        free(w->sequences->tokens);
        free(w->sequences);
        w->sequences = next;
    }
}

int main(int argc, char **argv)
{
    fake_settings settings = settings_take(argc, argv);
    error failure = { 0 };
    hash128 weights;
    gguf *file = NULL;
    queue *events;
    signal(SIGTERM, on_signal);
    signal(SIGINT, on_signal);
    if (!settings.router || !settings.model ||
        gguf_open(settings.model, &file, &failure) != STATUS_OK ||
        gguf_digest(file, &weights, &failure) != STATUS_OK) {
        fprintf(stderr, "fake worker: --router URL --model FILE are needed. %s\n", failure.text);
        return 2;
    }
    gguf_close(file);
    uint64_t began = clock_now_us();
    fake_worker *workers = calloc(settings.count, sizeof *workers);
    CHECK(workers && queue_open(65536, &events) == STATUS_OK);
    for (size_t i = 0; i < settings.count; i++) {
        uint64_t due;
        worker_open(&workers[i], &settings, i, events, weights);
        turn(workers, i + 1, 0, &due); // those that have joined must not fall silent
    }
    if (settings.count > 1)
        fprintf(stderr, "joined %zu in %.3f s\n", settings.count,
                (double)(clock_now_us() - began) / 1e6);
    serve(workers, settings.count);
    for (size_t i = 0; i < settings.count; i++)
        mailbox_pair_close(workers[i].pair);
    for (mailbox_event *event; (event = queue_pop(events));)
        mailbox_event_free(event);
    queue_close(events);
    for (size_t i = 0; i < settings.count; i++)
        worker_close(&workers[i]);
    free(workers);
    return 0;
}
