#include "net/http_secret.h"

#include "base/status.h"
#include "net/http_head.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <sys/random.h>

#define RANDOM_BYTES 24
#define BASIC_MAX 1024 // bytes of base64

void http_sha256(slice data, uint8_t digest[HTTP_DIGEST_SIZE])
{
    unsigned int size = 0;
    CHECK(EVP_Digest(data.data, data.size, digest, &size, EVP_sha256(), NULL) == 1 &&
          size == HTTP_DIGEST_SIZE);
}

void http_secret_new(char text[HTTP_SECRET_SIZE])
{
    uint8_t random[RANDOM_BYTES];
    CHECK(getrandom(random, sizeof random, 0) == (ssize_t)sizeof random);
    memcpy(text, "psk-", 5);
    for (size_t i = 0; i < sizeof random; i++)
        snprintf(text + 4 + 2 * i, 3, "%02x", random[i]);
}

bool http_secret_equal(slice a, slice b)
{
    return a.size == b.size && CRYPTO_memcmp(a.data, b.data, a.size) == 0;
}

// What follows the scheme's name and one or more blanks.
static slice scheme_rest(slice field, const char *scheme)
{
    size_t size = strlen(scheme);
    if (field.size <= size + 1 || !http_text_equal((slice){ field.data, size }, scheme) ||
        field.data[size] != ' ')
        return (slice){ NULL, 0 };
    slice rest = { field.data + size + 1, field.size - size - 1 };
    while (rest.size > 0 && rest.data[0] == ' ')
        rest = (slice){ rest.data + 1, rest.size - 1 };
    return rest;
}

slice http_secret_bearer(slice field)
{
    return scheme_rest(field, "Bearer");
}

bool http_secret_basic(slice field, buffer *password)
{
    unsigned char plain[BASIC_MAX / 4 * 3 + 1];
    slice coded = scheme_rest(field, "Basic");
    buffer_clear(password);
    if (!coded.data || coded.size == 0 || coded.size > BASIC_MAX || coded.size % 4 != 0)
        return false;
    int size = EVP_DecodeBlock(plain, (const unsigned char *)coded.data, (int)coded.size);
    // Its padding is decoded to zeros.
    for (size_t i = coded.size; size > 0 && i > coded.size - 2 && coded.data[i - 1] == '='; i--)
        size--;
    const char *colon = size > 0 ? memchr(plain, ':', (size_t)size) : NULL;
    if (colon)
        buffer_append(password, colon + 1, (size_t)size - (size_t)(colon + 1 - (char *)plain));
    OPENSSL_cleanse(plain, sizeof plain);
    return colon && !password->overflow;
}
