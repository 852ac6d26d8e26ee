#include "net/message.h"

#include "net/message_check.h"

#include <stdlib.h>

// An unpacked message may take this many bytes for each packed one (the leanest thing that we send,
// an update of one token, takes about 16), and this many in any case.
#define MEMORY_FACTOR 32
#define MEMORY_BASE 8192

typedef struct budget {
    size_t left;
    bool passed;
} budget;

static void *budget_take(void *data, size_t size)
{
    budget *b = data;
    if (size > b->left) {
        b->passed = true;
        return NULL;
    }
    b->left -= size;
    return malloc(size);
}

static void budget_give(void *data, void *memory)
{
    (void)data; // what was given back is not taken again: the budget bounds the work as well
    free(memory);
}

void message_pack(const ProtobufCMessage *message, buffer *out)
{
    size_t size = protobuf_c_message_get_packed_size(message);
    if (!buffer_reserve(out, size))
        return;
    protobuf_c_message_pack(message, (uint8_t *)out->data + out->size);
    out->size += size;
    out->data[out->size] = 0;
}

static status unpack(const ProtobufCMessageDescriptor *descriptor, slice bytes, void *unpacked,
                     error *failure)
{
    *(void **)unpacked = NULL;
    if (bytes.size > MESSAGE_SIZE_MAX)
        return error_set(failure, STATUS_PEER_PROTOCOL, "",
                         "a message has %zu bytes; %zu are allowed", bytes.size, MESSAGE_SIZE_MAX);
    budget memory = { .left = MEMORY_BASE + MEMORY_FACTOR * bytes.size };
    ProtobufCAllocator allocator = { budget_take, budget_give, &memory };
    ProtobufCMessage *message =
        protobuf_c_message_unpack(descriptor, &allocator, bytes.size, (const uint8_t *)bytes.data);
    if (message == NULL && memory.passed)
        return error_set(failure, STATUS_PEER_PROTOCOL, "",
                         "a message of %zu bytes unfolds to more memory than is allowed for it",
                         bytes.size);
    if (message == NULL)
        return error_set(failure, STATUS_PEER_PROTOCOL, "", "a message of %zu bytes is not a %s",
                         bytes.size, descriptor->name);
    status result = message_check(message, failure);
    if (result != STATUS_OK) {
        protobuf_c_message_free_unpacked(message, NULL);
        return result;
    }
    *(void **)unpacked = message;
    return STATUS_OK;
}

status message_unpack_control_request(slice bytes, message_control_request **m, error *failure)
{
    return unpack(&penstock__control_request__descriptor, bytes, m, failure);
}

status message_unpack_control_reply(slice bytes, message_control_reply **m, error *failure)
{
    return unpack(&penstock__control_reply__descriptor, bytes, m, failure);
}

status message_unpack_to_worker(slice bytes, message_to_worker **m, error *failure)
{
    return unpack(&penstock__to_worker__descriptor, bytes, m, failure);
}

status message_unpack_to_router(slice bytes, message_to_router **m, error *failure)
{
    return unpack(&penstock__to_router__descriptor, bytes, m, failure);
}

status message_unpack_fabric(slice bytes, message_fabric **m, error *failure)
{
    return unpack(&penstock__fabric_header__descriptor, bytes, m, failure);
}

void message_free(void *unpacked)
{
    // Every message begins with its descriptor, so one function frees all of them.
    if (unpacked != NULL)
        protobuf_c_message_free_unpacked(unpacked, NULL);
}
