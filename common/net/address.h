// Host and port as people write them: "127.0.0.1:8080", "[::1]:8080", "router.example:8080",
// ":8080".
//
// The one parser for every address in configurations and messages. An IPv6 address with a port
// stands in brackets; without a port it may stand alone ("::1"). Output always brackets it. Plain
// functions; any thread.
#pragma once

#include "base/buffer.h"
#include "base/status.h"

#include <stdint.h>

typedef struct address {
    char host[256]; // without brackets; empty: every address of this machine
    uint16_t port;
} address;

// `port_default` is taken where the text names no port; negative: a port is required. Port 0 asks
// the system to choose. STATUS_INVALID with a sentence that quotes `text`.
status address_parse(slice text, int port_default, address *parsed, error *failure);
// "host:port" or "[host]:port".
void address_format(const address *a, char text[272]);
