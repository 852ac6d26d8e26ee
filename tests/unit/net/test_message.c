// Facts about the door to protobuf-c: what goes through unchanged, and what is turned away with
// which sentence.
#include "net/message.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

// ---- good messages -----------------------------------------------------------------------------

static int32_t tokens[] = { 1, 2, 300, 40000 };

typedef struct ticket_parts {
    Penstock__ToWorker message;
    Penstock__Ticket ticket;
    Penstock__RequestId request;
    Penstock__Sampling sampling;
    Penstock__PlanPeer peer;
} ticket_parts;

// Points into `parts`, which must not move.
static void good_ticket(ticket_parts *parts)
{
    penstock__to_worker__init(&parts->message);
    penstock__ticket__init(&parts->ticket);
    penstock__request_id__init(&parts->request);
    penstock__sampling__init(&parts->sampling);
    penstock__plan_peer__init(&parts->peer);
    parts->message.body_case = PENSTOCK__TO_WORKER__BODY_TICKET;
    parts->message.ticket = &parts->ticket;
    parts->request.router = 7;
    parts->request.number = 1;
    parts->ticket.request = &parts->request;
    parts->ticket.tokens = tokens;
    parts->ticket.n_tokens = 4;
    parts->ticket.prompt_count = 4;
    parts->ticket.max_tokens = 16;
    parts->ticket.sampling = &parts->sampling;
    parts->sampling.top_p = 1;
    parts->sampling.typical_p = 1;
    parts->sampling.repetition_penalty = 1;
    parts->peer.incarnation = 5;
    parts->peer.host = "10.0.0.1";
    parts->peer.port = 4000;
}

static status through(const Penstock__ToWorker *message, error *failure)
{
    buffer bytes = { 0 };
    message_pack(&message->base, &bytes);
    message_to_worker *unpacked = NULL;
    status result = message_unpack_to_worker(buffer_slice(&bytes), &unpacked, failure);
    assert_true((result == STATUS_OK) == (unpacked != NULL));
    message_free(unpacked);
    buffer_close(&bytes);
    return result;
}

static void refused_for(ticket_parts *parts, const char *field)
{
    error failure = { 0 };
    assert_int_equal(through(&parts->message, &failure), STATUS_PEER_PROTOCOL);
    assert_string_equal(failure.param, field);
    assert_non_null(strstr(failure.text, field));
}

// ---- facts -------------------------------------------------------------------------------------

static void a_ticket_comes_out_as_it_went_in(void **state)
{
    (void)state;
    ticket_parts parts;
    good_ticket(&parts);
    parts.ticket.decode = &parts.peer;
    buffer bytes = { 0 };
    buffer_append_text(&bytes, "front");
    message_pack(&parts.message.base, &bytes);
    message_to_worker *m;
    slice packed = { bytes.data + 5, bytes.size - 5 };
    assert_int_equal(message_unpack_to_worker(packed, &m, NULL), STATUS_OK);
    assert_int_equal(m->ticket->n_tokens, 4);
    assert_memory_equal(m->ticket->tokens, tokens, sizeof(tokens));
    assert_int_equal(m->ticket->request->router, 7);
    assert_string_equal(m->ticket->decode->host, "10.0.0.1");
    assert_null(m->ticket->prefill);
    message_free(m);
    buffer_close(&bytes);
}

static void broken_tickets_are_turned_away_by_field(void **state)
{
    (void)state;
    ticket_parts parts;
    good_ticket(&parts);
    assert_int_equal(through(&parts.message, NULL), STATUS_OK);
    parts.ticket.n_tokens = 0;
    refused_for(&parts, "ticket.tokens");
    good_ticket(&parts);
    parts.ticket.prompt_count = 5;
    refused_for(&parts, "ticket.prompt_count");
    good_ticket(&parts);
    parts.ticket.request = NULL;
    refused_for(&parts, "request");
    good_ticket(&parts);
    parts.ticket.sampling = NULL;
    refused_for(&parts, "sampling");
    good_ticket(&parts);
    parts.sampling.temperature = 0.0f / 0.0f;
    refused_for(&parts, "sampling.temperature");
    good_ticket(&parts);
    int32_t negative[] = { 3, -1 };
    parts.ticket.tokens = negative;
    parts.ticket.n_tokens = 2;
    parts.ticket.prompt_count = 2;
    refused_for(&parts, "ticket.tokens");
    good_ticket(&parts);
    float bias = 1;
    parts.sampling.biases = &bias;
    parts.sampling.n_biases = 1;
    refused_for(&parts, "sampling.biases");
    good_ticket(&parts);
    parts.ticket.adapter = "\xff\xfe";
    refused_for(&parts, "adapter");
    good_ticket(&parts);
    uint8_t salt[3] = { 0 };
    parts.ticket.prefix_salt = (ProtobufCBinaryData){ 3, salt };
    refused_for(&parts, "ticket.prefix_salt");
    good_ticket(&parts);
    parts.ticket.prefill = &parts.peer;
    parts.peer.token = (ProtobufCBinaryData){ 3, salt };
    refused_for(&parts, "peer.token");
    good_ticket(&parts);
    parts.peer.host = "";
    parts.ticket.decode = &parts.peer;
    refused_for(&parts, "ticket.decode");
}

static void a_long_text_is_turned_away(void **state)
{
    (void)state;
    ticket_parts parts;
    good_ticket(&parts);
    char text[1026];
    memset(text, 'a', sizeof(text) - 1);
    text[1025] = 0;
    parts.ticket.adapter = text;
    refused_for(&parts, "adapter");
    text[1024] = 0;
    assert_int_equal(through(&parts.message, NULL), STATUS_OK);
}

static void a_message_without_a_body_is_turned_away(void **state)
{
    (void)state;
    message_to_worker *to_worker;
    message_to_router *to_router;
    message_fabric *fabric;
    slice none = { "", 0 };
    error failure;
    assert_int_equal(message_unpack_to_worker(none, &to_worker, &failure), STATUS_PEER_PROTOCOL);
    assert_string_equal(failure.param, "body");
    assert_int_equal(message_unpack_to_router(none, &to_router, &failure), STATUS_PEER_PROTOCOL);
    assert_int_equal(message_unpack_fabric(none, &fabric, &failure), STATUS_PEER_PROTOCOL);
}

static void every_truncation_of_a_ticket_is_turned_away_or_whole(void **state)
{
    (void)state;
    ticket_parts parts;
    good_ticket(&parts);
    parts.ticket.decode = &parts.peer;
    buffer bytes = { 0 };
    message_pack(&parts.message.base, &bytes);
    for (size_t size = 0; size < bytes.size; size++) {
        message_to_worker *m = NULL;
        assert_int_equal(message_unpack_to_worker((slice){ bytes.data, size }, &m, NULL),
                         STATUS_PEER_PROTOCOL);
        assert_null(m);
    }
    buffer_close(&bytes);
}

static void size_and_memory_are_capped(void **state)
{
    (void)state;
    size_t size = MESSAGE_SIZE_MAX + 1;
    char *bytes = calloc(1, size);
    assert_non_null(bytes);
    message_to_router *m = NULL;
    error failure;
    assert_int_equal(message_unpack_to_router((slice){ bytes, size }, &m, &failure),
                     STATUS_PEER_PROTOCOL);
    assert_non_null(strstr(failure.text, "4194304"));
    // A batch of 60,000 empty updates, two bytes each: it would unfold to a hundred times its size.
    size_t count = 60000;
    bytes[0] = 0x22; // field 4, length-delimited
    bytes[1] = (char)(0x80 | (2 * count & 0x7f));
    bytes[2] = (char)(0x80 | (2 * count >> 7 & 0x7f));
    bytes[3] = (char)(2 * count >> 14);
    for (size_t i = 0; i < count; i++)
        bytes[4 + 2 * i] = 0x0a;
    assert_int_equal(message_unpack_to_router((slice){ bytes, 4 + 2 * count }, &m, &failure),
                     STATUS_PEER_PROTOCOL);
    assert_non_null(strstr(failure.text, "memory"));
    free(bytes);
}

static void the_largest_batch_of_lean_updates_fits_the_memory(void **state)
{
    (void)state;
    enum { COUNT = 2000 };
    static Penstock__TokenUpdate updates[COUNT];
    static Penstock__TokenUpdate *list[COUNT];
    Penstock__RequestId request = PENSTOCK__REQUEST_ID__INIT;
    Penstock__Token token = PENSTOCK__TOKEN__INIT;
    Penstock__Token *token_list[] = { &token };
    for (int i = 0; i < COUNT; i++) {
        penstock__token_update__init(&updates[i]);
        updates[i].request = &request;
        updates[i].n_tokens = 1;
        updates[i].tokens = token_list;
        list[i] = &updates[i];
    }
    request.router = 1;
    Penstock__TokenBatch batch = PENSTOCK__TOKEN_BATCH__INIT;
    batch.n_updates = COUNT;
    batch.updates = list;
    Penstock__ToRouter message = PENSTOCK__TO_ROUTER__INIT;
    message.body_case = PENSTOCK__TO_ROUTER__BODY_TOKENS;
    message.tokens = &batch;
    buffer bytes = { 0 };
    message_pack(&message.base, &bytes);
    message_to_router *m;
    error failure = { 0 };
    assert_int_equal(message_unpack_to_router(buffer_slice(&bytes), &m, &failure), STATUS_OK);
    assert_int_equal(m->tokens->n_updates, COUNT);
    message_free(m);
    token.n_top_ids = 1;
    token.top_ids = tokens;
    buffer_clear(&bytes);
    message_pack(&message.base, &bytes);
    assert_int_equal(message_unpack_to_router(buffer_slice(&bytes), &m, &failure),
                     STATUS_PEER_PROTOCOL);
    assert_string_equal(failure.param, "token.top_ids");
    buffer_close(&bytes);
}

static void another_protocol_is_named_in_the_refusal(void **state)
{
    (void)state;
    Penstock__Deregister deregister = PENSTOCK__DEREGISTER__INIT;
    deregister.incarnation = 9;
    Penstock__ControlRequest request = PENSTOCK__CONTROL_REQUEST__INIT;
    request.body_case = PENSTOCK__CONTROL_REQUEST__BODY_DEREGISTER;
    request.deregister = &deregister;
    buffer bytes = { 0 };
    for (uint32_t protocol = MESSAGE_PROTOCOL_OLDEST - 1; protocol <= MESSAGE_PROTOCOL + 1;
         protocol++) {
        bool understood = protocol >= MESSAGE_PROTOCOL_OLDEST && protocol <= MESSAGE_PROTOCOL;
        message_control_request *m;
        error failure;
        char sentence[128];
        request.protocol = protocol;
        buffer_clear(&bytes);
        message_pack(&request.base, &bytes);
        assert_int_equal(message_unpack_control_request(buffer_slice(&bytes), &m, &failure),
                         understood ? STATUS_OK : STATUS_PEER_PROTOCOL);
        snprintf(
            sentence, sizeof sentence,
            "protocol is %u; this program understands %u and %u (upgrade one version at a time)",
            protocol, MESSAGE_PROTOCOL_OLDEST, MESSAGE_PROTOCOL);
        if (!understood)
            assert_string_equal(failure.text, sentence);
        message_free(m);
    }
    buffer_close(&bytes);
}

static void unknown_enum_values_and_codes_are_turned_away(void **state)
{
    (void)state;
    Penstock__RequestId request = PENSTOCK__REQUEST_ID__INIT;
    Penstock__Failed failed = PENSTOCK__FAILED__INIT;
    failed.request = &request;
    failed.code = STATUS_COUNT;
    Penstock__ToRouter message = PENSTOCK__TO_ROUTER__INIT;
    message.body_case = PENSTOCK__TO_ROUTER__BODY_FAILED;
    message.failed = &failed;
    buffer bytes = { 0 };
    message_pack(&message.base, &bytes);
    message_to_router *m;
    error failure;
    assert_int_equal(message_unpack_to_router(buffer_slice(&bytes), &m, &failure),
                     STATUS_PEER_PROTOCOL);
    assert_string_equal(failure.param, "failed.code");
    Penstock__TokenUpdate update = PENSTOCK__TOKEN_UPDATE__INIT;
    Penstock__TokenUpdate *list[] = { &update };
    update.request = &request;
    update.finish = (Penstock__Finish)17;
    Penstock__TokenBatch batch = PENSTOCK__TOKEN_BATCH__INIT;
    batch.n_updates = 1;
    batch.updates = list;
    message.body_case = PENSTOCK__TO_ROUTER__BODY_TOKENS;
    message.tokens = &batch;
    buffer_clear(&bytes);
    message_pack(&message.base, &bytes);
    assert_int_equal(message_unpack_to_router(buffer_slice(&bytes), &m, &failure),
                     STATUS_PEER_PROTOCOL);
    assert_string_equal(failure.param, "finish");
    buffer_close(&bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_ticket_comes_out_as_it_went_in),
        cmocka_unit_test(broken_tickets_are_turned_away_by_field),
        cmocka_unit_test(a_long_text_is_turned_away),
        cmocka_unit_test(a_message_without_a_body_is_turned_away),
        cmocka_unit_test(every_truncation_of_a_ticket_is_turned_away_or_whole),
        cmocka_unit_test(size_and_memory_are_capped),
        cmocka_unit_test(the_largest_batch_of_lean_updates_fits_the_memory),
        cmocka_unit_test(another_protocol_is_named_in_the_refusal),
        cmocka_unit_test(unknown_enum_values_and_codes_are_turned_away),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
