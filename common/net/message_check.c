#include "net/message_check.h"

#include "base/utf8.h"
#include "net/message_check_private.h"

#include <math.h>
#include <string.h>

#define STRING_MAX 1024
#define GRAMMAR_MAX 262144
#define HOST_MAX 63 // what handoff_peer holds
#define PORT_MAX 65535
#define TOKENS_PER_UPDATE_MAX 4096
#define PAGE_TOKENS_MAX 512
#define PAGES_MAX 1048576
#define PROBE_BYTES_MAX ((uint64_t)256 << 20)

// ---- rules of single messages ------------------------------------------------------------------

static bool all_natural(const int32_t *values, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (values[i] < 0)
            return false;
    return true;
}

static bool all_finite(const float *values, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (!isfinite(values[i]))
            return false;
    return true;
}

static bool hash_size(ProtobufCBinaryData bytes)
{
    return bytes.len == 16;
}

static status check_token(const void *message, error *failure)
{
    const Penstock__Token *m = message;
    RULE(m->id >= 0, "token.id", "ids count from 0");
    RULE(!isnan(m->logprob), "token.logprob", "it must be a number");
    RULE(m->n_top_ids == m->n_top_logprobs, "token.top_ids", "each needs its log-probability");
    RULE(m->n_top_ids <= MESSAGE_TOP_MAX, "token.top_ids", "20 at most");
    RULE(all_natural(m->top_ids, m->n_top_ids), "token.top_ids", "ids count from 0");
    return STATUS_OK;
}

static status check_model(const void *message, error *failure)
{
    const Penstock__ModelIdentity *m = message;
    RULE(hash_size(m->weights), "model.weights", "a hash has 16 bytes");
    RULE(hash_size(m->numeric_id), "model.numeric_id", "a hash has 16 bytes");
    RULE(m->name[0] != 0, "model.name", "it must not be empty");
    RULE(m->kv_layout[0] != 0, "model.kv_layout", "it must not be empty");
    RULE(m->page_tokens >= 1 && m->page_tokens <= PAGE_TOKENS_MAX, "model.page_tokens",
         "1 to 512 tokens");
    RULE(m->page_bytes >= 1, "model.page_bytes", "a page has bytes");
    RULE(m->context >= 1 && m->context <= INT32_MAX, "model.context", "1 to 2147483647 tokens");
    RULE(m->vocabulary >= 1 && m->vocabulary <= INT32_MAX, "model.vocabulary",
         "1 to 2147483647 tokens");
    return STATUS_OK;
}

static status check_register(const void *message, error *failure)
{
    const Penstock__Register *m = message;
    RULE(m->incarnation != 0, "register.incarnation", "0 names nobody");
    RULE(m->worker[0] != 0, "register.worker", "a worker has a name");
    RULE(m->role != PENSTOCK__ROLE__ROLE_UNKNOWN, "register.role", "prefill or decode");
    RULE(m->pair_url[0] != 0, "register.pair_url", "the router needs a place to dial");
    RULE(strlen(m->fabric_host) <= HOST_MAX, "register.fabric_host", "63 bytes at most");
    RULE(m->fabric_port <= PORT_MAX, "register.fabric_port", "0 to 65535");
    RULE(m->pages >= 1 && m->pages <= INT32_MAX, "register.pages", "1 to 2147483647 pages");
    RULE(m->page_credits <= m->pages, "register.page_credits", "no more than there are pages");
    return STATUS_OK;
}

static status check_deregister(const void *message, error *failure)
{
    const Penstock__Deregister *m = message;
    RULE(m->incarnation != 0, "deregister.incarnation", "0 names nobody");
    return STATUS_OK;
}

static status check_protocol(uint32_t protocol, uint32_t oldest, uint32_t newest, error *failure)
{
    if (protocol >= oldest && protocol <= newest)
        return STATUS_OK;
    return error_set(failure, STATUS_PEER_PROTOCOL, "protocol",
                     oldest == newest
                         ? "protocol is %u; this program speaks %u"
                         : "protocol is %u; this program understands %u and %u (upgrade "
                           "one version at a time)",
                     protocol, oldest, newest);
}

static status check_control_request(const void *message, error *failure)
{
    const Penstock__ControlRequest *m = message;
    return check_protocol(m->protocol, MESSAGE_PROTOCOL_OLDEST, MESSAGE_PROTOCOL, failure);
}

static status check_control_reply(const void *message, error *failure)
{
    const Penstock__ControlReply *m = message;
    RULE(m->accepted || m->reason[0] != 0, "reply.reason", "a refusal says why");
    if (!m->accepted)
        return STATUS_OK;
    RULE(m->heartbeat_ms >= 10 && m->heartbeat_ms <= 60000, "reply.heartbeat_ms", "10 to 60000 ms");
    RULE(m->dead_after_ms > m->heartbeat_ms && m->dead_after_ms <= 3600000, "reply.dead_after_ms",
         "longer than a heartbeat, at most an hour");
    return STATUS_OK;
}

static status check_sampling(const void *message, error *failure)
{
    const Penstock__Sampling *m = message;
    RULE(m->temperature >= 0 && m->temperature <= 100, "sampling.temperature", "0 to 100");
    RULE(m->top_p > 0 && m->top_p <= 1, "sampling.top_p", "above 0, at most 1");
    RULE(m->min_p >= 0 && m->min_p <= 1, "sampling.min_p", "0 to 1");
    RULE(m->typical_p > 0 && m->typical_p <= 1, "sampling.typical_p", "above 0, at most 1");
    RULE(m->top_k >= 0, "sampling.top_k", "0 (off) or more");
    RULE(m->repetition_penalty > 0 && m->repetition_penalty <= 100, "sampling.repetition_penalty",
         "above 0, at most 100");
    RULE(fabsf(m->frequency_penalty) <= 100, "sampling.frequency_penalty", "-100 to 100");
    RULE(fabsf(m->presence_penalty) <= 100, "sampling.presence_penalty", "-100 to 100");
    RULE(m->n_bias_tokens == m->n_biases, "sampling.biases", "one for each of bias_tokens");
    RULE(m->n_biases <= MESSAGE_BIASES_MAX, "sampling.biases", "1024 at most");
    RULE(all_natural(m->bias_tokens, m->n_bias_tokens), "sampling.bias_tokens", "ids count from 0");
    RULE(all_finite(m->biases, m->n_biases), "sampling.biases", "they must be numbers");
    RULE(m->top_logprobs <= MESSAGE_TOP_MAX, "sampling.top_logprobs", "20 at most");
    return STATUS_OK;
}

static status check_plan_peer(const void *message, error *failure)
{
    const Penstock__PlanPeer *m = message;
    RULE(m->incarnation != 0, "peer.incarnation", "0 names nobody");
    RULE(strlen(m->host) <= HOST_MAX, "peer.host", "63 bytes at most");
    RULE(m->port <= PORT_MAX, "peer.port", "0 to 65535");
    RULE(m->token.len == 0 || hash_size(m->token), "peer.token", "0 or 16 bytes");
    return STATUS_OK;
}

static status check_ticket(const void *message, error *failure)
{
    const Penstock__Ticket *m = message;
    RULE(m->n_tokens >= 1 && m->n_tokens <= MESSAGE_TOKENS_MAX, "ticket.tokens",
         "1 to 1048576 tokens");
    RULE(all_natural(m->tokens, m->n_tokens), "ticket.tokens", "ids count from 0");
    RULE(m->prompt_count >= 1 && m->prompt_count <= m->n_tokens, "ticket.prompt_count",
         "1 to the number of tokens");
    RULE(m->max_tokens >= 1 && m->max_tokens <= INT32_MAX, "ticket.max_tokens", "1 to 2147483647");
    RULE(m->min_tokens <= INT32_MAX, "ticket.min_tokens", "0 to 2147483647");
    RULE(m->n_stop_ids <= MESSAGE_STOP_IDS_MAX, "ticket.stop_ids", "16 at most");
    RULE(all_natural(m->stop_ids, m->n_stop_ids), "ticket.stop_ids", "ids count from 0");
    RULE(m->priority <= 1, "ticket.priority", "0 (interactive) or 1 (batch)");
    RULE(m->prefix_salt.len == 0 || hash_size(m->prefix_salt), "ticket.prefix_salt",
         "0 or 16 bytes");
    RULE(m->prefill == NULL || m->decode == NULL, "ticket.decode",
         "a ticket names the other worker, not both");
    RULE(m->decode == NULL || (m->decode->host[0] != 0 && m->decode->port != 0), "ticket.decode",
         "it needs the address for the pages");
    RULE(m->spare_tokens <= MESSAGE_MADE_MAX, "ticket.spare_tokens", "128 at most");
    RULE(strlen(m->drafter) <= DRAFTER_MAX, "ticket.drafter", "15 bytes at most");
    return STATUS_OK;
}

static status check_migrate(const void *message, error *failure)
{
    const Penstock__Migrate *m = message;
    RULE(m->next_attempt > m->attempt, "migrate.next_attempt", "later than attempt");
    RULE(m->token_count >= 1 && m->token_count <= MESSAGE_TOKENS_MAX, "migrate.token_count",
         "1 to 1048576 tokens");
    RULE(m->spare_tokens <= MESSAGE_MADE_MAX, "migrate.spare_tokens", "128 at most");
    RULE(m->target->host[0] != 0 && m->target->port != 0, "migrate.target",
         "it needs the address for the pages");
    return STATUS_OK;
}

static status check_code(uint32_t code, const char *field, error *failure)
{
    RULE(code != STATUS_OK && code < STATUS_COUNT, field, "a code of the status list");
    return STATUS_OK;
}

static status check_refused(const void *message, error *failure)
{
    return check_code(((const Penstock__Refused *)message)->code, "refused.code", failure);
}

static status check_failed_message(const void *message, error *failure)
{
    return check_code(((const Penstock__Failed *)message)->code, "failed.code", failure);
}

static status check_update(const void *message, error *failure)
{
    const Penstock__TokenUpdate *m = message;
    RULE(m->n_tokens <= TOKENS_PER_UPDATE_MAX, "update.tokens", "4096 at most");
    RULE(m->n_tokens >= 1 || m->finish != PENSTOCK__FINISH__FINISH_NONE, "update.tokens",
         "an update without a finish brings tokens");
    RULE(m->first_index <= INT32_MAX - TOKENS_PER_UPDATE_MAX, "update.first_index", "too large");
    RULE(m->right_guesses <= m->n_tokens, "update.right_guesses", "no more than tokens");
    RULE(m->wrong_guesses <= TOKENS_PER_UPDATE_MAX, "update.wrong_guesses", "4096 at most");
    RULE(!m->handing_over || m->finish == PENSTOCK__FINISH__FINISH_NONE, "update.handing_over",
         "what is finished is not handed over");
    return STATUS_OK;
}

static status check_scores(const void *message, error *failure)
{
    const Penstock__PromptScores *m = message;
    RULE(m->n_tokens >= 1 && m->n_tokens <= TOKENS_PER_UPDATE_MAX, "scores.tokens", "1 to 4096");
    RULE(m->first_position >= 1 && m->first_position <= INT32_MAX - TOKENS_PER_UPDATE_MAX,
         "scores.first_position", "nothing comes before the first token");
    return STATUS_OK;
}

static status check_batch(const void *message, error *failure)
{
    const Penstock__TokenBatch *m = message;
    RULE(m->n_updates >= 1, "tokens.updates", "a batch brings updates");
    return STATUS_OK;
}

static status check_beat(const void *message, error *failure)
{
    const Penstock__WorkerBeat *m = message;
    RULE(isfinite(m->handoff_gbps) && m->handoff_gbps >= 0, "beat.handoff_gbps",
         "a number of at least 0");
    return STATUS_OK;
}

static status check_order(const void *message, error *failure)
{
    const Penstock__Order *m = message;
    RULE(m->kind != PENSTOCK__ORDER_KIND__ORDER_NONE, "order.kind", "an order says what to do");
    RULE((m->kind == PENSTOCK__ORDER_KIND__ORDER_FLIP) == (m->role != PENSTOCK__ROLE__ROLE_UNKNOWN),
         "order.role", "it belongs to a flip, and to nothing else");
    return STATUS_OK;
}

static status check_order_answer(const void *message, error *failure)
{
    const Penstock__OrderAnswer *m = message;
    RULE(m->accepted || m->reason[0] != 0, "order_answer.reason", "a refusal says why");
    return STATUS_OK;
}

static status check_hello(const void *message, error *failure)
{
    const Penstock__Hello *m = message;
    RULE(m->incarnation != 0, "hello.incarnation", "0 names nobody");
    RULE(m->token.len == 0 || hash_size(m->token), "hello.token", "0 or 16 bytes");
    return check_protocol(m->protocol, MESSAGE_FABRIC_PROTOCOL, MESSAGE_FABRIC_PROTOCOL, failure);
}

static status check_hello_reply(const void *message, error *failure)
{
    const Penstock__HelloReply *m = message;
    RULE(m->accepted || m->reason[0] != 0, "hello_reply.reason", "a refusal says why");
    return STATUS_OK;
}

static status check_probe(const void *message, error *failure)
{
    const Penstock__Probe *m = message;
    RULE(m->bytes <= PROBE_BYTES_MAX, "probe.bytes", "256 MiB at most");
    return STATUS_OK;
}

static status check_seat_open(const void *message, error *failure)
{
    const Penstock__SeatOpen *m = message;
    RULE(m->page_count >= 1 && m->page_count <= PAGES_MAX, "seat_open.page_count",
         "1 to 1048576 pages");
    RULE(m->first_page <= m->page_count, "seat_open.first_page", "no more than page_count");
    return STATUS_OK;
}

static status check_page_run(const void *message, error *failure)
{
    const Penstock__PageRun *m = message;
    RULE(m->page_count >= 1 && m->page_count <= PAGES_MAX, "page_run.page_count",
         "1 to 1048576 pages");
    RULE(m->first_page <= PAGES_MAX, "page_run.first_page", "0 to 1048576");
    return STATUS_OK;
}

static status check_record(const void *message, error *failure)
{
    const Penstock__HandoverRecord *m = message;
    RULE(m->computed >= 1 && m->computed <= INT32_MAX, "record.computed", "1 to 2147483647 tokens");
    RULE(m->n_made <= MESSAGE_MADE_MAX, "record.made", "128 at most");
    RULE(all_natural(m->made, m->n_made), "record.made", "ids count from 0");
    return STATUS_OK;
}

// clang-format off
static const struct rule {
    const ProtobufCMessageDescriptor *descriptor;
    status (*check)(const void *message, error *failure);
} rules[] = {
    { &penstock__token__descriptor,           check_token },
    { &penstock__model_identity__descriptor,  check_model },
    { &penstock__register__descriptor,        check_register },
    { &penstock__deregister__descriptor,      check_deregister },
    { &penstock__control_request__descriptor, check_control_request },
    { &penstock__control_reply__descriptor,   check_control_reply },
    { &penstock__sampling__descriptor,        check_sampling },
    { &penstock__plan_peer__descriptor,       check_plan_peer },
    { &penstock__ticket__descriptor,          check_ticket },
    { &penstock__migrate__descriptor,         check_migrate },
    { &penstock__refused__descriptor,         check_refused },
    { &penstock__failed__descriptor,          check_failed_message },
    { &penstock__token_update__descriptor,    check_update },
    { &penstock__token_batch__descriptor,     check_batch },
    { &penstock__prompt_scores__descriptor,   check_scores },
    { &penstock__drafter__descriptor,         check_drafter },
    { &penstock__guess_state__descriptor,     check_guess_state },
    { &penstock__guess_class__descriptor,     check_guess_class },
    { &penstock__guesses__descriptor,         check_guesses },
    { &penstock__worker_beat__descriptor,     check_beat },
    { &penstock__order__descriptor,           check_order },
    { &penstock__order_answer__descriptor,    check_order_answer },
    { &penstock__hello__descriptor,           check_hello },
    { &penstock__hello_reply__descriptor,     check_hello_reply },
    { &penstock__probe__descriptor,           check_probe },
    { &penstock__seat_open__descriptor,       check_seat_open },
    { &penstock__page_run__descriptor,        check_page_run },
    { &penstock__handover_record__descriptor, check_record },
};
// clang-format on

// ---- the walk ----------------------------------------------------------------------------------

// Sub-messages that may be missing; all others are required.
static const char *const optional_fields[] = { "prefill", "decode", "times", "guesses" };

static bool may_be_missing(const char *name)
{
    for (size_t i = 0; i < sizeof(optional_fields) / sizeof(optional_fields[0]); i++)
        if (strcmp(name, optional_fields[i]) == 0)
            return true;
    return false;
}

static status check_string(const char *name, const char *text, error *failure)
{
    size_t size = strlen(text);
    size_t limit = strcmp(name, "grammar") == 0 ? GRAMMAR_MAX : STRING_MAX;
    if (size > limit)
        return error_set(failure, STATUS_PEER_PROTOCOL, name, "%s has %zu bytes; %zu are allowed",
                         name, size, limit);
    for (size_t at = 0; at < size;) {
        size_t count = utf8_sequence_size(text + at, size - at);
        RULE(count > 0, name, "it must be UTF-8");
        at += count;
    }
    return STATUS_OK;
}

static status check_value(const ProtobufCFieldDescriptor *field, const void *value, error *failure)
{
    const char *const *text = value;
    const ProtobufCMessage *const *message = value;
    const int32_t *number = value;
    switch (field->type) {
    case PROTOBUF_C_TYPE_STRING:
        return check_string(field->name, *text, failure);
    case PROTOBUF_C_TYPE_ENUM:
        RULE(protobuf_c_enum_descriptor_get_value(field->descriptor, *number) != NULL, field->name,
             "it must be one of the schema's values");
        return STATUS_OK;
    case PROTOBUF_C_TYPE_MESSAGE:
        if (*message == NULL) {
            RULE(may_be_missing(field->name), field->name, "it is missing");
            return STATUS_OK;
        }
        return message_check(*message, failure);
    default:
        return STATUS_OK;
    }
}

// The size of one element of a repeated field that the walk looks into; 0: numbers, which need no
// look.
static size_t element_size(ProtobufCType type)
{
    switch (type) {
    case PROTOBUF_C_TYPE_STRING:
    case PROTOBUF_C_TYPE_MESSAGE:
        return sizeof(void *);
    case PROTOBUF_C_TYPE_ENUM:
        return sizeof(int32_t);
    default:
        return 0;
    }
}

static status check_field(const ProtobufCMessage *message, const ProtobufCFieldDescriptor *field,
                          error *failure)
{
    const char *base = (const char *)message;
    if (field->flags & PROTOBUF_C_FIELD_FLAG_ONEOF) {
        uint32_t set;
        memcpy(&set, base + field->quantifier_offset, sizeof(set));
        return set == field->id ? check_value(field, base + field->offset, failure) : STATUS_OK;
    }
    if (field->label != PROTOBUF_C_LABEL_REPEATED)
        return check_value(field, base + field->offset, failure);
    size_t size = element_size(field->type);
    size_t count = *(const size_t *)(base + field->quantifier_offset);
    const char *elements = *(const char *const *)(base + field->offset);
    for (size_t i = 0; size > 0 && i < count; i++) {
        status result = check_value(field, elements + i * size, failure);
        if (result != STATUS_OK)
            return result;
    }
    return STATUS_OK;
}

// Messages that are nothing but a oneof (and the protocol) must have their body.
static status check_body(const ProtobufCMessage *message, error *failure)
{
    for (unsigned i = 0; i < message->descriptor->n_fields; i++) {
        const ProtobufCFieldDescriptor *field = &message->descriptor->fields[i];
        if (!(field->flags & PROTOBUF_C_FIELD_FLAG_ONEOF))
            continue;
        uint32_t set;
        memcpy(&set, (const char *)message + field->quantifier_offset, sizeof(set));
        RULE(set != 0, "body", "the message says nothing");
        return STATUS_OK;
    }
    return STATUS_OK;
}

status message_check(const ProtobufCMessage *message, error *failure)
{
    const ProtobufCMessageDescriptor *descriptor = message->descriptor;
    status result = STATUS_OK;
    // Fields of a later version pass unread, but no version has a field 0.
    for (unsigned i = 0; i < message->n_unknown_fields; i++)
        RULE(message->unknown_fields[i].tag != 0, "field 0", "fields count from 1");
    for (unsigned i = 0; result == STATUS_OK && i < descriptor->n_fields; i++)
        result = check_field(message, &descriptor->fields[i], failure);
    for (size_t i = 0; result == STATUS_OK && i < sizeof(rules) / sizeof(rules[0]); i++)
        if (rules[i].descriptor == descriptor)
            result = rules[i].check(message, failure);
    return result == STATUS_OK ? check_body(message, failure) : result;
}
