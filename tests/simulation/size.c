#include "size.h"

#include "client.h"
#include "cluster.h"
#include "fake_model.h"

#include "base/clock.h"
#include "checkpoint/gguf.h"
#include "harness/tiny_model.h"
#include "net/mailbox.h"
#include "net/message.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define STEP_US 5000          // of a decode worker: one token of each sequence
#define PREFILL_US_A_TOKEN 20 // of a prefill worker
#define HANDOFF_US 3000       // from the first token until the decode worker goes on
#define BEAT_US 500000
#define JOIN_LONGEST_US 60000000
#define SEQUENCES 64
#define PAGES 4096
#define PAGE_TOKENS 64

// One generation under way at a decode worker.
typedef struct running {
    struct running *next;
    message_request_id id;
    uint32_t attempt, index, max_tokens, min_tokens;
    uint64_t chain, seed, not_before_us;
} running;

typedef struct speaker {
    process *process;
    bool decode, stepping;
    queue *events;
    mailbox_pair *pair;
    bool joined;
    running *sequences;
    uint64_t free_us;                     // prefill: when what it has is computed
    uint64_t router_clock_us, arrived_us; // of the router's last heartbeat
} speaker;

static hash128 weights;
static const char *router_url;
static uint32_t joined;

static double real_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

// ---- speaking ---------------------------------------------------------------------------------

static void say(speaker *s, message_to_router *m)
{
    buffer bytes = { 0 };
    message_pack(&m->base, &bytes);
    CHECK(mailbox_pair_send(s->pair, buffer_slice(&bytes), false) == STATUS_OK);
    buffer_close(&bytes);
}

static void beat(void *argument)
{
    speaker *s = argument;
    Penstock__WorkerBeat b = PENSTOCK__WORKER_BEAT__INIT;
    message_to_router m = PENSTOCK__TO_ROUTER__INIT;
    b.router_clock_us = s->router_clock_us;
    b.since_beat_us = s->arrived_us ? clock_now_us() - s->arrived_us : 0;
    b.clock_us = clock_now_us();
    b.pages_free = PAGES;
    b.healthy = true;
    b.transport = (char *)"tcp";
    m.body_case = PENSTOCK__TO_ROUTER__BODY_BEAT;
    m.beat = &b;
    say(s, &m);
    world_after(s->process, BEAT_US, beat, s);
}

#define UPDATES_MAX (2 * SEQUENCES)

// The updates of one message, with what they point to.
typedef struct batch {
    size_t count;
    Penstock__TokenUpdate updates[UPDATES_MAX], *list[UPDATES_MAX];
    Penstock__Token tokens[UPDATES_MAX], *token_list[UPDATES_MAX];
    message_request_id ids[UPDATES_MAX];
} batch;

static batch out; // one message is written at a time

// Draw the next token of `r`; true where it is the last.
static bool token_add(running *r, bool handing_over)
{
    size_t i = out.count++;
    CHECK(i < UPDATES_MAX);
    int32_t token = fake_model_draw(r->chain, r->seed, r->index >= r->min_tokens);
    Penstock__TokenUpdate *u = out.list[i] = &out.updates[i];
    penstock__token__init(&out.tokens[i]);
    penstock__token_update__init(u);
    out.ids[i] = r->id;
    out.tokens[i].id = token;
    out.token_list[i] = &out.tokens[i];
    u->request = &out.ids[i];
    u->attempt = r->attempt;
    u->first_index = r->index++;
    u->n_tokens = 1;
    u->tokens = &out.token_list[i];
    if (token == FAKE_MODEL_END_TOKEN)
        u->finish = PENSTOCK__FINISH__FINISH_STOP;
    else if (r->index >= r->max_tokens)
        u->finish = PENSTOCK__FINISH__FINISH_LENGTH;
    u->handing_over = handing_over && !u->finish;
    r->chain = fake_model_chain(r->chain, token);
    return u->finish != PENSTOCK__FINISH__FINISH_NONE;
}

static void tokens_say(speaker *s)
{
    Penstock__TokenBatch tokens = PENSTOCK__TOKEN_BATCH__INIT;
    message_to_router m = PENSTOCK__TO_ROUTER__INIT;
    if (out.count == 0)
        return;
    tokens.n_updates = out.count;
    tokens.updates = out.list;
    m.body_case = PENSTOCK__TO_ROUTER__BODY_TOKENS;
    m.tokens = &tokens;
    say(s, &m);
    out.count = 0;
}

// ---- working ----------------------------------------------------------------------------------

static void step(void *argument)
{
    speaker *s = argument;
    for (running **at = &s->sequences; *at;) {
        running *r = *at;
        if (r->not_before_us > world_now_us() || !token_add(r, false)) {
            at = &r->next;
            continue;
        }
        *at = r->next;
        free(r);
    }
    tokens_say(s);
    s->stepping = s->sequences != NULL;
    if (s->stepping)
        world_after(s->process, STEP_US, step, s);
}

// A prefill worker's first token, and the pages that are through by then.
typedef struct prompt {
    speaker *speaker;
    running sequence;
    bool over;
} prompt;

static void pages_done(void *argument)
{
    prompt *p = argument;
    Penstock__HandedOver h = PENSTOCK__HANDED_OVER__INIT;
    message_to_router m = PENSTOCK__TO_ROUTER__INIT;
    h.request = &p->sequence.id;
    h.attempt = p->sequence.attempt;
    m.body_case = PENSTOCK__TO_ROUTER__BODY_HANDED_OVER;
    m.handed_over = &h;
    say(p->speaker, &m);
    free(p);
}

static void prompt_done(void *argument)
{
    prompt *p = argument;
    bool last = token_add(&p->sequence, true);
    tokens_say(p->speaker);
    if (last)
        free(p);
    else
        world_after(p->speaker->process, HANDOFF_US, pages_done, p);
}

static running sequence_of(const message_ticket *t)
{
    running r = { .id = *t->request,
                  .attempt = t->attempt,
                  .index = (uint32_t)t->n_tokens - t->prompt_count,
                  .max_tokens = t->max_tokens,
                  .min_tokens = t->min_tokens,
                  .seed = t->sampling->seed };
    for (size_t i = 0; i < t->n_tokens; i++)
        r.chain = fake_model_chain(r.chain, t->tokens[i]);
    return r;
}

// The decode worker goes on where the prefill worker stops: both draw the same first token.
static void decode_take(speaker *s, const message_ticket *t)
{
    running *r = calloc(1, sizeof *r);
    CHECK(r);
    *r = sequence_of(t);
    r->not_before_us = world_now_us() + t->n_tokens * PREFILL_US_A_TOKEN;
    if (t->prefill) {
        int32_t first = fake_model_draw(r->chain, r->seed, r->index >= r->min_tokens);
        r->chain = fake_model_chain(r->chain, first);
        r->not_before_us += HANDOFF_US;
        if (first == FAKE_MODEL_END_TOKEN || ++r->index >= r->max_tokens) {
            free(r); // the prefill worker has ended it
            return;
        }
    }
    r->next = s->sequences;
    s->sequences = r;
    if (!s->stepping)
        world_after(s->process, STEP_US, step, s);
    s->stepping = true;
}

static void prefill_take(speaker *s, const message_ticket *t)
{
    prompt *p = calloc(1, sizeof *p);
    CHECK(p);
    p->speaker = s;
    p->sequence = sequence_of(t);
    uint64_t now_us = world_now_us(), begin_us = s->free_us > now_us ? s->free_us : now_us;
    s->free_us = begin_us + t->n_tokens * PREFILL_US_A_TOKEN;
    world_after(s->process, s->free_us - now_us, prompt_done, p);
}

static void hear(void *argument)
{
    speaker *s = argument;
    for (mailbox_event *e; (e = queue_pop(s->events)) != NULL; mailbox_event_free(e)) {
        message_to_worker *m = NULL;
        CHECK(e->kind != MAILBOX_DOWN);
        if (e->kind == MAILBOX_UP) {
            joined++;
            beat(s);
        }
        if (e->kind != MAILBOX_MESSAGE)
            continue;
        CHECK(message_unpack_to_worker(e->data, &m, NULL) == STATUS_OK);
        if (m->body_case == PENSTOCK__TO_WORKER__BODY_BEAT) {
            s->router_clock_us = m->beat->clock_us;
            s->arrived_us = e->arrived_us;
        } else if (m->body_case == PENSTOCK__TO_WORKER__BODY_TICKET && s->decode) {
            decode_take(s, m->ticket);
        } else if (m->body_case == PENSTOCK__TO_WORKER__BODY_TICKET) {
            prefill_take(s, m->ticket);
        }
        message_free(m);
    }
}

// ---- joining ----------------------------------------------------------------------------------

static void register_pack(const speaker *s, buffer *question)
{
    hash128 numeric = weights;
    Penstock__ModelIdentity model = PENSTOCK__MODEL_IDENTITY__INIT;
    Penstock__Register r = PENSTOCK__REGISTER__INIT;
    message_control_request m = PENSTOCK__CONTROL_REQUEST__INIT;
    model.name = (char *)"tiny";
    model.architecture = (char *)"llama";
    model.kv_layout = (char *)"world/1";
    model.weights = (ProtobufCBinaryData){ sizeof weights, (uint8_t *)&weights };
    model.numeric_id = (ProtobufCBinaryData){ sizeof numeric, (uint8_t *)&numeric };
    model.page_tokens = PAGE_TOKENS;
    model.page_bytes = 1;
    model.context = 2048;
    model.vocabulary = (uint32_t)tiny_model_vocabulary();
    r.worker = s->process->name;
    r.incarnation = world_random() | 1;
    r.role = s->decode ? PENSTOCK__ROLE__ROLE_DECODE : PENSTOCK__ROLE__ROLE_PREFILL;
    r.model = &model;
    r.pair_url = (char *)mailbox_pair_url(s->pair);
    r.fabric_host = s->process->host;
    r.fabric_port = 1;
    r.pages = r.page_credits = PAGES;
    r.sequences = SEQUENCES;
    r.threads = 1;
    r.version = (char *)"world";
    m.protocol = MESSAGE_PROTOCOL;
    m.body_case = PENSTOCK__CONTROL_REQUEST__BODY_REGISTER;
    m.register_ = &r;
    message_pack(&m.base, question);
}

static void *speaker_join(void *argument)
{
    speaker *s = argument;
    char url[64];
    snprintf(url, sizeof url, "tcp://%s:0", s->process->host);
    CHECK(queue_open(65536, &s->events) == STATUS_OK);
    world_descriptor_watch(queue_event_fd(s->events), hear, s);
    CHECK(mailbox_pair_listen(url, &mailbox_limits_default, s->events, s, &s->pair, NULL) ==
          STATUS_OK);
    while (!s->joined) {
        buffer question = { 0 }, answer = { 0 };
        message_control_reply *reply = NULL;
        register_pack(s, &question);
        if (mailbox_request(router_url, buffer_slice(&question), 2000000, &answer, NULL) ==
                STATUS_OK &&
            message_unpack_control_reply(buffer_slice(&answer), &reply, NULL) == STATUS_OK) {
            if (!reply->accepted)
                world_violation("a worker is refused: %s", reply->reason);
            s->joined = true;
        }
        message_free(reply);
        buffer_close(&question);
        buffer_close(&answer);
    }
    return NULL;
}

// ---- measuring --------------------------------------------------------------------------------

static uint64_t requests_left, interval_us;
static process *router_process;

static void client_come(void *unused)
{
    (void)unused;
    if (requests_left-- == 0)
        return;
    client_begin(router_process, CLIENT_BEARS_NOTHING);
    world_after(NULL, interval_us, client_come, NULL);
}

static uint64_t clients_waiting(uint64_t *longest_us)
{
    uint64_t count = 0;
    for (const client *c = client_list(); c; c = c->next) {
        uint64_t took_us = c->ended_us - c->begun_us;
        count += c->end == CLIENT_WAITS;
        if (c->end != CLIENT_WAITS && took_us > *longest_us)
            *longest_us = took_us;
    }
    return count;
}

static void speakers_start(uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        char name[32];
        speaker *s = calloc(1, sizeof *s);
        CHECK(s);
        s->decode = i % 4 != 0; // one prefill worker for three decode workers
        snprintf(name, sizeof name, "%s-%u", s->decode ? "decode" : "prefill", i);
        s->process = world_process(name, (int)i + 1);
        world_fiber(s->process, speaker_join, s);
    }
}

static bool weights_read(const char *model)
{
    gguf *file = NULL;
    bool good = gguf_open(model, &file, NULL) == STATUS_OK &&
                gguf_digest(file, &weights, NULL) == STATUS_OK;
    gguf_close(file);
    return good;
}

int size_measure(const size_plan *plan, const char *model)
{
    char url[64];
    world_begin(1, false);
    CHECK(weights_read(model));
    router_process = cluster_router_start(model);
    snprintf(url, sizeof url, "tcp://%s:7000", router_process->host);
    router_url = url;
    world_run(1000);
    double begun = real_seconds();
    speakers_start(plan->workers);
    while (joined < plan->workers && world_now_us() < JOIN_LONGEST_US)
        world_run(world_now_us() + 10000);
    uint64_t joined_us = world_now_us();
    printf("join workers %u of %u virtual_s %.2f real_s %.2f\n", joined, plan->workers,
           (double)joined_us / 1e6, real_seconds() - begun);
    world_run(world_now_us() + BEAT_US);
    requests_left = (uint64_t)plan->requests_per_s * plan->seconds;
    interval_us = 1000000 / plan->requests_per_s;
    uint64_t asked = requests_left, begin_us = world_now_us(), longest_us = 0;
    uint64_t events = world_counts[WORLD_EVENTS];
    begun = real_seconds();
    world_measured = router_process;
    client_come(NULL);
    world_run(begin_us + 1000000 * (uint64_t)plan->seconds);
    double real = real_seconds() - begun;
    world_run(world_now_us() + 5000000);
    uint64_t waiting = clients_waiting(&longest_us);
    printf("steer requests %llu answered %llu limited %llu virtual_s %u real_s %.2f router_cpu_s "
           "%.2f requests_per_virtual_s %u requests_per_router_cpu_s %.0f longest_virtual_ms %.1f "
           "events %llu\n",
           (unsigned long long)asked, (unsigned long long)world_counts[WORLD_ANSWERED],
           (unsigned long long)world_counts[WORLD_LIMITED], plan->seconds, real, world_measured_s,
           plan->requests_per_s, (double)asked / world_measured_s, (double)longest_us / 1000,
           (unsigned long long)(world_counts[WORLD_EVENTS] - events));
    return joined == plan->workers && waiting == 0 &&
           world_counts[WORLD_ANSWERED] + world_counts[WORLD_LIMITED] == asked;
}
