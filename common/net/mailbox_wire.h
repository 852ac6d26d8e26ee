// How messages stand on the connection of a pair: as nng's PAIR0 socket writes them (the SP
// mapping), so that workers and routers of versions before, which used that socket, are understood.
// Each side begins with a greeting of 8 bytes; then comes message after message, each behind a head
// that tells its size. Pure functions. Not for others than mailbox_*.c.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define WIRE_GREETING 8
#define WIRE_HEAD_MAX 9

// 8 bytes; on ipc:// one more, which is always 1.
typedef enum wire_kind {
    WIRE_TCP, // and TLS
    WIRE_IPC,
} wire_kind;

wire_kind wire_kind_of(const char *url);
void wire_greeting_write(uint8_t greeting[WIRE_GREETING]);
// Whether the other side is a PAIR0 too.
bool wire_greeting_fits(const uint8_t greeting[WIRE_GREETING]);
size_t wire_head_size(wire_kind kind);
void wire_head_write(wire_kind kind, uint64_t size, uint8_t head[WIRE_HEAD_MAX]);
// False: it is no head.
bool wire_head_read(wire_kind kind, const uint8_t *head, uint64_t *size);
