// Packed bytes of every kind of message: the first byte chooses the kind. What unpack takes must
// pack, and be taken again.
#include "net/message.h"

#include <stdint.h>

static status unpack(int kind, slice bytes, void **m)
{
    error failure;
    switch (kind) {
    case 0:
        return message_unpack_control_request(bytes, (message_control_request **)m, &failure);
    case 1:
        return message_unpack_control_reply(bytes, (message_control_reply **)m, &failure);
    case 2:
        return message_unpack_to_worker(bytes, (message_to_worker **)m, &failure);
    case 3:
        return message_unpack_to_router(bytes, (message_to_router **)m, &failure);
    default:
        return message_unpack_fabric(bytes, (message_fabric **)m, &failure);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0)
        return 0;
    int kind = data[0] % 5;
    void *m = NULL, *again = NULL;
    if (unpack(kind, (slice){ (const char *)data + 1, size - 1 }, &m) != STATUS_OK) {
        CHECK(m == NULL);
        return 0;
    }
    buffer packed = { 0 };
    message_pack(m, &packed);
    // One that packs smaller may unfold to more memory than its new size is allowed.
    CHECK(unpack(kind, buffer_slice(&packed), &again) == STATUS_OK || packed.size < size - 1);
    message_free(again);
    message_free(m);
    buffer_close(&packed);
    return 0;
}
