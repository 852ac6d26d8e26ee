// Messages between processes: one door to protobuf-c.
//
// The generated structs of proto/cluster.proto are the message types, under short names. `unpack`
// is the only way in: it caps the size, counts every allocation against a limit in proportion to
// the bytes, checks what the schema cannot say (counts, ranges, UTF-8, required parts) and returns
// STATUS_PEER_PROTOCOL with a sentence for anything else. Any thread.
#pragma once

#include "base/buffer.h"
#include "base/status.h"

#include "cluster.pb-c.h"

#define MESSAGE_PROTOCOL 2u // between workers and routers; see ControlRequest in the schema
#define MESSAGE_PROTOCOL_OLDEST                                                                    \
    1u // that is still understood, so that programs can be replaced one by one
#define MESSAGE_FABRIC_PROTOCOL 1u         // between workers
#define MESSAGE_SIZE_MAX ((size_t)4 << 20) // of one packed message
#define MESSAGE_TOKENS_MAX 1048576u        // in a ticket
#define MESSAGE_STOP_IDS_MAX 16u           // in a ticket
#define MESSAGE_BIASES_MAX 1024u           // in a ticket's sampling
#define MESSAGE_TOP_MAX 20u                // alternatives of a token
#define MESSAGE_DRAFTERS_MAX 4u
#define MESSAGE_GUESS_CLASSES_MAX 2u
#define MESSAGE_GUESS_STATES_MAX 12u
#define MESSAGE_GUESS_POSITIONS_MAX 16u
#define MESSAGE_GUESS_NAME_MAX 24u // of a drafter, class or state, with its NUL
#define MESSAGE_SENTENCE_MAX 200u  // with its NUL
#define MESSAGE_MADE_MAX 128u      // tokens in a hand-over record, next_token aside

typedef Penstock__ControlRequest message_control_request;
typedef Penstock__ControlReply message_control_reply;
typedef Penstock__ToWorker message_to_worker;
typedef Penstock__ToRouter message_to_router;
typedef Penstock__FabricHeader message_fabric;
typedef Penstock__Ticket message_ticket;
typedef Penstock__Token message_token;
typedef Penstock__TokenUpdate message_token_update;
typedef Penstock__WorkerBeat message_worker_beat;
typedef Penstock__Register message_register;
typedef Penstock__RequestId message_request_id;

// Append the packed form of any message to `out`.
void message_pack(const ProtobufCMessage *message, buffer *out);

status message_unpack_control_request(slice bytes, message_control_request **m, error *failure);
status message_unpack_control_reply(slice bytes, message_control_reply **m, error *failure);
status message_unpack_to_worker(slice bytes, message_to_worker **m, error *failure);
status message_unpack_to_router(slice bytes, message_to_router **m, error *failure);
status message_unpack_fabric(slice bytes, message_fabric **m, error *failure);

// Free what an unpack returned (NULL is allowed).
void message_free(void *unpacked);
