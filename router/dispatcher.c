#include "router/dispatcher_private.h"

#include "base/clock.h"
#include "base/random.h"
#include "router/registry_cancel.h"

#include <stdlib.h>

#define TOP_P_MIN 1e-9f // top_p 0 means "the best token": the smallest share that keeps one

// ---- credits ----------------------------------------------------------------------------------

// What a class holds is counted where requests stay: on decode workers.
void dispatcher_spend(exchange_share *share, registry_worker *w, const exchange *x, uint64_t tokens,
                      bool outstanding)
{
    *share = (exchange_share){ .serial = w->serial,
                               .pages = policy_pages(w->page_tokens, tokens),
                               .tokens = outstanding ? tokens : 0,
                               .held = w->role == POLICY_DECODE
                                           ? &dispatcher_line_of(x)->held[x->request->priority]
                                           : NULL };
    w->pages_spent += share->pages;
    w->tokens_outstanding += share->tokens;
    w->sequences_spent++;
    w->alone = w->alone || x->alone;
    registry_touch(x->dispatcher->router->registry, w);
    if (share->held) {
        share->held->pages += share->pages;
        share->held->sequences++;
    }
}

void dispatcher_grow(dispatcher *d, registry_worker *w, exchange_share *share, uint64_t pages)
{
    if (pages <= share->pages)
        return;
    registry_touch(d->router->registry, w);
    w->pages_spent += pages - share->pages;
    if (share->held)
        share->held->pages += pages - share->pages;
    share->pages = pages;
}

void dispatcher_release(dispatcher *d, exchange_share *share)
{
    if (share->held) {
        share->held->pages -= share->pages;
        share->held->sequences--;
    }
    registry_worker *w = share->serial ? registry_find(d->router->registry, share->serial) : NULL;
    if (w) {
        w->pages_spent -= share->pages;
        w->tokens_outstanding -= share->tokens;
        w->sequences_spent--;
        w->alone = false; // it ran by itself, if at all
        registry_touch(d->router->registry, w);
    }
    *share = (exchange_share){ 0 };
}

static void cancel_send(dispatcher *d, const exchange *x, uint64_t serial, uint32_t attempt)
{
    registry_worker *w = serial ? registry_find(d->router->registry, serial) : NULL;
    if (w)
        registry_cancel(d->router->registry, w, x->number, attempt);
}

void dispatcher_recall(dispatcher *d, exchange *x)
{
    cancel_send(d, x, x->decode.serial, x->attempt);
    cancel_send(d, x, x->prefill.serial, x->attempt);
    if (x->moving) // the order may not have been followed
        cancel_send(d, x, x->prefill.serial, x->attempt - 1);
    dispatcher_release(d, &x->decode);
    dispatcher_release(d, &x->prefill);
}

// ---- tickets ----------------------------------------------------------------------------------

static void sampling_fill(const exchange *x, Penstock__Sampling *out)
{
    const request_sampling *s = &x->request->sampling;
    out->temperature = (float)s->temperature;
    out->top_p = s->top_p < (double)TOP_P_MIN ? TOP_P_MIN : (float)s->top_p;
    out->min_p = (float)s->min_p;
    out->typical_p = (float)s->typical_p;
    out->top_k = (int32_t)s->top_k;
    out->repetition_penalty = (float)s->repetition_penalty;
    out->frequency_penalty = (float)s->frequency_penalty;
    out->presence_penalty = (float)s->presence_penalty;
    out->seed = (uint64_t)s->seed;
    out->choice = x->draw;
    out->n_bias_tokens = out->n_biases = x->request->bias_count;
    out->bias_tokens = x->request->bias_tokens;
    out->biases = x->request->biases;
    int64_t own = x->request->top_logprobs, prompt = x->request->prompt_top_logprobs;
    out->top_logprobs = (uint32_t)(own > prompt ? own : prompt);
}

// Prompt, then what earlier attempts delivered. False: no memory.
static bool tokens_fill(dispatcher *d, const exchange *x)
{
    d->scratch.count = 0;
    for (size_t i = 0; i < x->prompt->tokens.count; i++)
        if (!token_list_append(&d->scratch, x->prompt->tokens.ids[i]))
            return false;
    for (size_t i = 0; i < x->stream.received.count; i++)
        if (!token_list_append(&d->scratch, x->stream.received.ids[i]))
            return false;
    return true;
}

// What lets one endpoint of `prefill` into `decode`. None where one of them does not know tokens:
// it is of a version before and must go on working while the others are replaced.
static ProtobufCBinaryData token_make(const registry_worker *decode, const registry_worker *prefill,
                                      uint64_t random[2])
{
    if (!decode->fabric_tokens || !prefill->fabric_tokens)
        return (ProtobufCBinaryData){ 0 };
    random[0] = random_system();
    random[1] = random_system();
    return (ProtobufCBinaryData){ 2 * sizeof(random[0]), (uint8_t *)random };
}

static void peer_fill(Penstock__PlanPeer *peer, const registry_worker *w, ProtobufCBinaryData token)
{
    penstock__plan_peer__init(peer);
    peer->incarnation = w->incarnation;
    peer->token = token;
    if (w->role == POLICY_DECODE) {
        peer->host = (char *)w->fabric_host;
        peer->port = w->fabric_port;
    }
}

// Microseconds; 0: no deadline. One that has just passed is the tick's to end.
static uint64_t time_left(const exchange *x)
{
    uint64_t now = clock_now_us();
    if (x->call->deadline_us == 0)
        return 0;
    return x->call->deadline_us > now ? x->call->deadline_us - now : 1;
}

// The sequence leaves `from`: the ticket for its next worker is out.
static status migrate_send(dispatcher *d, const exchange *x, registry_worker *from,
                           const Penstock__Ticket *t, Penstock__PlanPeer *target)
{
    Penstock__Migrate migrate = PENSTOCK__MIGRATE__INIT;
    Penstock__ToWorker m = PENSTOCK__TO_WORKER__INIT;
    migrate.request = t->request;
    migrate.attempt = x->attempt - 1;
    migrate.next_attempt = x->attempt;
    migrate.token_count = (uint32_t)t->n_tokens;
    migrate.spare_tokens = t->spare_tokens;
    migrate.target = target;
    m.body_case = PENSTOCK__TO_WORKER__BODY_MIGRATE;
    m.migrate = &migrate;
    return registry_send(d->router->registry, from, &m, false);
}

status dispatcher_tickets(dispatcher *d, exchange *x, registry_worker *decode,
                          registry_worker *prefill)
{
    Penstock__RequestId id = PENSTOCK__REQUEST_ID__INIT;
    Penstock__Sampling sampling = PENSTOCK__SAMPLING__INIT;
    Penstock__Ticket t = PENSTOCK__TICKET__INIT;
    Penstock__ToWorker m = PENSTOCK__TO_WORKER__INIT;
    Penstock__PlanPeer peer;
    ProtobufCBinaryData token = { 0 };
    uint64_t random[2];
    if (!tokens_fill(d, x))
        return STATUS_NO_MEMORY;
    id.router = d->router->incarnation;
    id.number = x->number;
    sampling_fill(x, &sampling);
    t.request = &id;
    t.attempt = x->attempt;
    t.n_tokens = d->scratch.count - x->moving; // the last one comes with the record
    t.spare_tokens = x->moving ? MIGRATION_SPARE : 0;
    t.tokens = d->scratch.ids;
    t.prompt_count = (uint32_t)x->prompt->tokens.count;
    t.max_tokens = x->prompt->max_tokens ? (uint32_t)x->prompt->max_tokens : 1;
    t.prompt_scores = stream_lacks_scores(&x->stream);
    t.min_tokens = (uint32_t)x->request->min_tokens;
    t.ignore_eos = x->request->ignore_eos;
    t.n_stop_ids = x->request->stop_id_count;
    t.stop_ids = (int32_t *)x->request->stop_ids; // only read
    t.sampling = &sampling;
    t.priority = (uint32_t)x->request->priority;
    t.timeout_us = time_left(x);
    t.logits_hash = x->request->logits_hash;
    t.alone = x->alone;
    t.drafter = (char *)request_drafter_name(x->request->drafter);
    if (x->call->salted)
        t.prefix_salt = (ProtobufCBinaryData){ sizeof x->call->salt, x->call->salt };
    if (x->request->grammar.size > 0)
        t.grammar = x->request->grammar.data;
    m.body_case = PENSTOCK__TO_WORKER__BODY_TICKET;
    m.ticket = &t;
    if (prefill) {
        token = token_make(decode, prefill, random);
        peer_fill(&peer, prefill, token);
        t.prefill = &peer;
    }
    status result = registry_send(d->router->registry, decode, &m, false);
    if (result != STATUS_OK || !prefill)
        return result;
    peer_fill(&peer, decode, token);
    if (x->moving)
        return migrate_send(d, x, prefill, &t, &peer);
    t.prefill = NULL;
    t.decode = &peer;
    return registry_send(d->router->registry, prefill, &m, false);
}

// ---- placing ----------------------------------------------------------------------------------

static void place_note(exchange *x, const policy_plan *plan, const registry_worker *decode,
                       const registry_worker *prefill)
{
    router *r = x->dispatcher->router;
    timeline *t = exchange_timeline(x);
    const char *model = exchange_model_name(x);
    uint64_t now = clock_now_us();
    if (plan->local != POLICY_LOCAL_NOT)
        router_metrics_add(r->metrics, ROUTER_METRIC_FALLBACKS, policy_local_name(plan->local),
                           model, 1);
    if (plan->mixed)
        router_metrics_add(r->metrics, ROUTER_METRIC_FALLBACKS, "mixed_numeric_ids", model, 1);
    if (x->attempt == 1) {
        router_metrics_add(r->metrics, ROUTER_METRIC_VERSIONS, x->fingerprint, model, 1);
        router_metrics_observe(r->metrics, ROUTER_METRIC_QUEUE_TIME, model,
                               (double)(now - x->call->queued_us) / 1e6);
    }
    if (!t)
        return;
    if (x->attempt == 1)
        t->routed = now;
    t->attempts = x->attempt;
    t->local = plan->local == POLICY_LOCAL_NOT ? NULL : policy_local_name(plan->local);
    memcpy(t->decode_worker, decode->name, sizeof t->decode_worker);
    if (prefill)
        memcpy(t->prefill_worker, prefill->name, sizeof t->prefill_worker);
    else
        t->prefill_worker[0] = 0;
}

void dispatcher_place(dispatcher *d, exchange *x, const policy_plan *plan)
{
    registry *workers = d->router->registry;
    registry_worker *decode = registry_at(workers, plan->decode);
    registry_worker *prefill =
        plan->prefill == SIZE_MAX ? NULL : registry_at(workers, plan->prefill);
    uint64_t tokens = x->prompt->tokens.count + x->stream.received.count;
    dispatcher_dequeue(d, x);
    x->state = EXCHANGE_RUNNING;
    d->counts.running++;
    dispatcher_line_of(x)->running++;
    x->attempt++;
    x->attempt_tokens = 0;
    x->decode_spoke = false;
    x->by_prefill = prefill != NULL;
    buffer_clear(&x->early);
    x->numeric_id = decode->numeric_id;
    dispatcher_spend(&x->decode, decode, x, tokens, prefill == NULL);
    if (prefill)
        dispatcher_spend(&x->prefill, prefill, x, tokens, true);
    place_note(x, plan, decode, prefill);
    status result = dispatcher_tickets(d, x, decode, prefill);
    if (result != STATUS_OK) {
        error_set(&x->last_failure, result, "", "a worker took no ticket: %s", status_text(result));
        dispatcher_retry(d, x, "send_failed", decode->serial, false);
    }
}

dispatcher_counts dispatcher_count_model(const dispatcher *d, const served_model *model)
{
    const dispatcher_line *line = &d->lines[model->index];
    size_t front = dispatcher_front(line->first);
    const exchange *first = front < ADMISSION_CLASSES ? line->first[front] : NULL;
    return (dispatcher_counts){ .waiting = dispatcher_waiting(line),
                                .running = line->running,
                                .oldest_us = first ? clock_now_us() - first->call->queued_us : 0 };
}

dispatcher_counts dispatcher_count(const dispatcher *d)
{
    dispatcher_counts counts = d->counts;
    for (size_t i = 0; i < d->router->models.count; i++) {
        uint64_t waited_us = dispatcher_count_model(d, &d->router->models.items[i]).oldest_us;
        counts.oldest_us = waited_us > counts.oldest_us ? waited_us : counts.oldest_us;
    }
    return counts;
}

status dispatcher_open(router *r, dispatcher **opened, error *failure)
{
    dispatcher *d = calloc(1, sizeof *d);
    if (!d || http_timer_open(r->loop, dispatcher_on_tick, d, &d->tick) != STATUS_OK) {
        free(d);
        return error_set(failure, STATUS_NO_MEMORY, "", "no memory for the dispatcher");
    }
    d->router = r;
    d->next_number = 1;
    http_timer_start(d->tick, DISPATCHER_TICK_US);
    *opened = d;
    return STATUS_OK;
}

void dispatcher_stop(dispatcher *d)
{
    d->pumping = true;
}

void dispatcher_close(dispatcher *d)
{
    if (!d)
        return;
    CHECK(d->all == NULL && d->calls == NULL);
    http_timer_close(d->tick);
    free(d->view);
    token_list_close(&d->scratch);
    buffer_close(&d->out);
    free(d);
}
