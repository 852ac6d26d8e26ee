// Secrets that HTTP clients show: their digests, comparing them, making new ones. Pure functions
// but for http_secret_new; any thread. One door to OpenSSL's digests.
#pragma once

#include "base/buffer.h"

#define HTTP_DIGEST_SIZE 32
#define HTTP_SECRET_SIZE 53 // "psk-", 48 hex digits, NUL

void http_sha256(slice data, uint8_t digest[HTTP_DIGEST_SIZE]);
// A new secret from 24 random bytes of the system.
void http_secret_new(char text[HTTP_SECRET_SIZE]);
// Equal in a time that does not tell where they differ (it tells the sizes).
bool http_secret_equal(slice a, slice b);
// What "Bearer SECRET" shows ("Bearer" in any case); NULL data where the field's value is something
// else.
slice http_secret_bearer(slice field);
// The password of "Basic BASE64(user:password)", written to `password`; false for anything else, or
// where it does not fit.
bool http_secret_basic(slice field, buffer *password);
