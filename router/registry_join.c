#include "router/registry_private.h"

#include "base/clock.h"
#include "base/utf8.h"

#include <stdio.h>
#include <stdlib.h>

static void control_reply(registry *r, mailbox_event *event, bool accepted, const char *reason)
{
    Penstock__ControlReply reply = PENSTOCK__CONTROL_REPLY__INIT;
    buffer bytes = { 0 };
    reply.accepted = accepted;
    reply.reason = (char *)(reason ? reason : "");
    reply.router = r->incarnation;
    reply.heartbeat_ms = (uint32_t)(r->settings->heartbeat_us / 1000);
    reply.dead_after_ms = (uint32_t)(r->settings->dead_after_us / 1000);
    reply.protocol = MESSAGE_PROTOCOL;
    message_pack(&reply.base, &bytes);
    mailbox_reply(event, buffer_slice(&bytes));
    buffer_close(&bytes);
}

static served_model *model_of(const registry *r, const Penstock__ModelIdentity *theirs)
{
    hash128 weights;
    memcpy(&weights, theirs->weights.data, sizeof weights);
    return models_of_weights(r->models, weights);
}

static status stranger_refuse(const registry *r, const Penstock__ModelIdentity *theirs,
                              error *failure)
{
    char digits[33];
    hash128 weights;
    buffer ours = { .limit = 400 };
    for (size_t i = 0; i < r->models->count; i++) {
        const prompt_identity *own = &r->models->items[i].prompt.identity;
        hash128_format(own->weights, digits);
        buffer_printf(&ours, "%s\"%s\", %s", i ? ", " : "", own->name, digits);
    }
    memcpy(&weights, theirs->weights.data, sizeof weights);
    hash128_format(weights, digits);
    error_set(failure, STATUS_PEER_MISMATCH, "model",
              "the worker serves other weights (\"%s\", %s) than this router's %s, and "
              "policy.versions does not list them",
              theirs->name, digits, ours.data ? ours.data : "");
    buffer_close(&ours);
    return STATUS_PEER_MISMATCH;
}

static status numbers_check(const registry *r, const Penstock__Register *m, error *failure)
{
    const Penstock__ModelIdentity *model = m->model;
    if (!model || model->weights.len != sizeof(hash128) || model->numeric_id.len != sizeof(hash128))
        return error_set(
            failure, STATUS_PEER_MISMATCH, "model",
            "the registration lacks the model's weights or numeric id (16 bytes each)");
    const served_model *served = model_of(r, model);
    if (!served)
        return stranger_refuse(r, model, failure);
    if (model->vocabulary < (uint32_t)served->prompt.identity.vocabulary)
        return error_set(failure, STATUS_PEER_MISMATCH, "model.vocabulary",
                         "the worker's vocabulary has %u tokens; the tokenizer has %d",
                         model->vocabulary, served->prompt.identity.vocabulary);
    if (model->page_tokens == 0 || model->context == 0 || m->sequences == 0 || m->page_credits == 0)
        return error_set(failure, STATUS_PEER_PROTOCOL, "",
                         "page_tokens, context, sequences and page_credits must not be 0");
    if (m->page_credits > m->pages)
        return error_set(failure, STATUS_PEER_PROTOCOL, "page_credits",
                         "page_credits is %llu, more than the %llu pages of the pool",
                         (unsigned long long)m->page_credits, (unsigned long long)m->pages);
    return STATUS_OK;
}

// A worker whose pages none of the other role's workers can take would never be of use: prefill and
// decode workers of one model keep the same KV type.
static status layout_check(const registry *r, const Penstock__Register *m, error *failure)
{
    policy_role role = m->role == PENSTOCK__ROLE__ROLE_DECODE ? POLICY_DECODE : POLICY_PREFILL;
    const registry_worker *unlike = NULL;
    for (size_t i = 0; i < r->count; i++) {
        const registry_worker *w = r->workers[i];
        if (w->role == role || w->left || w->incarnation == m->incarnation ||
            memcmp(&w->weights, m->model->weights.data, sizeof w->weights) != 0)
            continue;
        if (strcmp(w->kv_layout, m->model->kv_layout) == 0)
            return STATUS_OK;
        unlike = w;
    }
    if (!unlike)
        return STATUS_OK;
    return error_set(failure, STATUS_PEER_MISMATCH, "model.kv_layout",
                     "the worker's KV cache is \"%.60s\" where that of %s worker %s is \"%s\"; "
                     "engine.kv_type must be the same for both roles",
                     m->model->kv_layout, policy_role_name(unlike->role), unlike->name,
                     unlike->kv_layout);
}

static status register_check(const registry *r, const Penstock__Register *m, error *failure)
{
    if (m->role != PENSTOCK__ROLE__ROLE_PREFILL && m->role != PENSTOCK__ROLE__ROLE_DECODE)
        return error_set(failure, STATUS_PEER_PROTOCOL, "role",
                         "role is neither prefill nor decode");
    if (m->worker[0] == 0 || strlen(m->worker) >= sizeof((registry_worker *)0)->name)
        return error_set(failure, STATUS_PEER_PROTOCOL, "worker",
                         "worker must be a name of 1 to 63 bytes");
    if (mailbox_url_check("pair_url", m->pair_url, failure) != STATUS_OK)
        return failure->code = STATUS_PEER_PROTOCOL;
    if (strlen(m->pair_url) >= sizeof((registry_worker *)0)->pair_url)
        return error_set(failure, STATUS_PEER_PROTOCOL, "pair_url", "pair_url is too long");
    if (m->role == PENSTOCK__ROLE__ROLE_DECODE &&
        (strlen(m->fabric_host) >= sizeof((registry_worker *)0)->fabric_host ||
         m->fabric_port > 65535))
        return error_set(failure, STATUS_PEER_PROTOCOL, "fabric_host",
                         "fabric_host and fabric_port are not an address");
    status result = numbers_check(r, m, failure);
    return result == STATUS_OK ? layout_check(r, m, failure) : result;
}

static void text_copy(char *to, size_t size, const char *from)
{
    snprintf(to, size, "%.*s", utf8_fit(from, size - 1), from);
}

static void credits_take(registry_worker *w, const Penstock__Register *m)
{
    w->page_credits = m->page_credits;
    w->token_credits = m->token_credits;
    w->sequences = m->sequences;
}

static registry_worker *worker_new(registry *r, const Penstock__Register *m, uint32_t protocol)
{
    registry_worker *w = calloc(1, sizeof *w);
    if (!w)
        return NULL;
    w->serial = ++r->next_serial;
    w->incarnation = m->incarnation;
    text_copy(w->name, sizeof w->name, m->worker);
    text_copy(w->pair_url, sizeof w->pair_url, m->pair_url);
    text_copy(w->version, sizeof w->version, m->version);
    text_copy(w->kv_layout, sizeof w->kv_layout, m->model->kv_layout);
    text_copy(w->fabric_host, sizeof w->fabric_host, m->fabric_host);
    w->fabric_port = m->fabric_port;
    w->role = m->role == PENSTOCK__ROLE__ROLE_DECODE ? POLICY_DECODE : POLICY_PREFILL;
    w->model = model_of(r, m->model);
    memcpy(&w->weights, m->model->weights.data, sizeof w->weights);
    memcpy(&w->numeric_id, m->model->numeric_id.data, sizeof w->numeric_id);
    w->page_tokens = m->model->page_tokens;
    w->context = m->model->context;
    w->protocol = protocol;
    w->fabric_tokens = m->fabric_tokens;
    w->threads = m->threads;
    w->pages = m->pages;
    credits_take(w, m);
    w->joined_us = w->heard_us = clock_now_us();
    w->clock_error_us = UINT64_MAX;
    return w;
}

static status worker_join(registry *r, const Penstock__Register *m, uint32_t protocol,
                          error *failure)
{
    for (size_t i = 0; i < r->count; i++) {
        registry_worker *known = r->workers[i];
        bool same = known->incarnation == m->incarnation;
        if (same && strcmp(known->pair_url, m->pair_url) == 0) {
            credits_take(known, m); // it asked again: it has its pair already
            registry_touch(r, known);
            return STATUS_OK;
        }
        policy_role role = m->role == PENSTOCK__ROLE__ROLE_DECODE ? POLICY_DECODE : POLICY_PREFILL;
        if (same || (known->role == role && strcmp(known->name, m->worker) == 0)) {
            registry_lose(r, known, STATUS_PEER_CLOSED); // it lost its pair, or was started anew
            break;
        }
    }
    if ((int64_t)r->count >= r->settings->workers_max)
        return error_set(failure, STATUS_PEER_REFUSED, "",
                         "the router has its %lld workers already",
                         (long long)r->settings->workers_max);
    if (r->count == r->capacity) {
        size_t capacity = r->capacity ? 2 * r->capacity : 16;
        registry_worker **grown = realloc(r->workers, capacity * sizeof *grown);
        if (!grown)
            return error_set(failure, STATUS_NO_MEMORY, "",
                             "the router has no memory for a worker");
        r->workers = grown;
        r->capacity = capacity;
    }
    registry_worker *w = worker_new(r, m, protocol);
    if (!w)
        return error_set(failure, STATUS_NO_MEMORY, "", "the router has no memory for a worker");
    mailbox_limits limits = mailbox_limits_default;
    limits.peer_name = w->role == POLICY_DECODE ? MAILBOX_DECODE : MAILBOX_PREFILL;
    status result = mailbox_pair_dial(m->pair_url, &limits, r->events, (void *)(uintptr_t)w->serial,
                                      &w->pair, failure);
    if (result != STATUS_OK) {
        free(w);
        return result;
    }
    registry_index(r, w);
    registry_context_follow(r, w->model);
    log_info("registry", "worker joins name %s role %s model %s incarnation %016llx serial %llu",
             w->name, policy_role_name(w->role), w->model->prompt.identity.name,
             (unsigned long long)w->incarnation, (unsigned long long)w->serial);
    return STATUS_OK;
}

void registry_answer(registry *r, mailbox_event *event)
{
    message_control_request *m = NULL;
    error failure = { 0 };
    status result = message_unpack_control_request(event->data, &m, &failure);
    if (result == STATUS_OK && m->body_case == PENSTOCK__CONTROL_REQUEST__BODY_REGISTER) {
        result = register_check(r, m->register_, &failure);
        if (result == STATUS_OK)
            result = worker_join(r, m->register_, m->protocol, &failure);
    } else if (result == STATUS_OK && m->body_case == PENSTOCK__CONTROL_REQUEST__BODY_DEREGISTER) {
        for (size_t i = 0; i < r->count; i++)
            if (r->workers[i]->incarnation == m->deregister->incarnation) {
                r->workers[i]->left = true;
                registry_lose(r, r->workers[i], STATUS_PEER_CLOSED);
                break;
            }
    } else if (result == STATUS_OK) {
        result = error_set(&failure, STATUS_PEER_PROTOCOL, "", "the request asks for nothing");
    }
    if (result != STATUS_OK) {
        r->refused++;
        log_warn("registry", "registration refused cause \"%s\"", failure.text);
    }
    control_reply(r, event, result == STATUS_OK, failure.text);
    message_free(m);
}
