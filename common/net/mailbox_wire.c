#include "net/mailbox_wire.h"

#include <string.h>

#define IPC_MESSAGE 1 // the only kind of head

// A zero, "SP", version 0, the protocol (16: PAIR0) in two bytes, two zeros.
static const uint8_t greeting_of_pairs[WIRE_GREETING] = { 0, 'S', 'P', 0, 0, 16, 0, 0 };

wire_kind wire_kind_of(const char *url)
{
    return strncmp(url, "ipc://", 6) == 0 ? WIRE_IPC : WIRE_TCP;
}

void wire_greeting_write(uint8_t greeting[WIRE_GREETING])
{
    memcpy(greeting, greeting_of_pairs, WIRE_GREETING);
}

bool wire_greeting_fits(const uint8_t greeting[WIRE_GREETING])
{
    return memcmp(greeting, greeting_of_pairs, WIRE_GREETING) == 0;
}

size_t wire_head_size(wire_kind kind)
{
    return kind == WIRE_IPC ? 9 : 8;
}

void wire_head_write(wire_kind kind, uint64_t size, uint8_t head[WIRE_HEAD_MAX])
{
    if (kind == WIRE_IPC)
        *head++ = IPC_MESSAGE;
    for (int i = 0; i < 8; i++)
        head[i] = (uint8_t)(size >> (56 - 8 * i));
}

bool wire_head_read(wire_kind kind, const uint8_t *head, uint64_t *size)
{
    if (kind == WIRE_IPC && *head++ != IPC_MESSAGE)
        return false;
    *size = 0;
    for (int i = 0; i < 8; i++)
        *size = *size << 8 | head[i];
    return true;
}
