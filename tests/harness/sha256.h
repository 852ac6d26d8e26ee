// SHA-256 for comparing with reference digests in tests. Source: FIPS 180-4. Plain function; any
// thread.
#pragma once

#include <stddef.h>
#include <stdint.h>

// 64 lower-case hex digits and a NUL.
void sha256_hex(const void *data, size_t size, char hex[65]);
