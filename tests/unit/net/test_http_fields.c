// Fields of requests that carry secrets and traces.
#include "net/http_secret.h"
#include "net/http_trace.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static void a_digest_is_sha_256(void **state)
{
    (void)state;
    // FIPS 180-4, the example of one block.
    static const char right[] = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
    uint8_t digest[HTTP_DIGEST_SIZE];
    char text[65];
    http_sha256(SLICE("abc"), digest);
    for (size_t i = 0; i < sizeof digest; i++)
        snprintf(text + 2 * i, 3, "%02x", digest[i]);
    assert_string_equal(text, right);
}

static void new_secrets_are_long_and_never_the_same(void **state)
{
    (void)state;
    char a[HTTP_SECRET_SIZE], b[HTTP_SECRET_SIZE];
    http_secret_new(a);
    http_secret_new(b);
    assert_int_equal(strlen(a), HTTP_SECRET_SIZE - 1);
    assert_memory_equal(a, "psk-", 4);
    assert_string_not_equal(a, b);
    assert_true(http_secret_equal(slice_of(a), slice_of(a)));
    assert_false(http_secret_equal(slice_of(a), slice_of(b)));
    assert_false(http_secret_equal(slice_of(a), (slice){ a, 10 }));
}

static void a_bearer_is_found(void **state)
{
    (void)state;
    assert_true(slice_equal(http_secret_bearer(SLICE("Bearer abc")), SLICE("abc")));
    assert_true(slice_equal(http_secret_bearer(SLICE("bearer  abc")), SLICE("abc")));
    static const char *const none[] = { "", "Bearer", "Bearer ", "Bearerabc", "Basic abc", "abc" };
    for (size_t i = 0; i < sizeof none / sizeof *none; i++)
        assert_null(http_secret_bearer(slice_of(none[i])).data);
}

static void a_basic_password_is_decoded(void **state)
{
    (void)state;
    static const struct {
        const char *field, *password;                                      // NULL: none
    } cases[] = { { "Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==", "open sesame" }, // RFC 7617
                  { "basic YTpi", "b" },
                  { "Basic YTpiYw==", "bc" },
                  { "Basic YTpiY2Q=", "bcd" },
                  { "Basic YTo=", "" },
                  { "Basic YWI=", NULL }, // no colon
                  { "Basic YTp", NULL },
                  { "Basic !!!!", NULL },
                  { "Basic ====", NULL },
                  { "Basic ", NULL },
                  { "Bearer YTpi", NULL } };
    buffer password = { 0 };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(http_secret_basic(slice_of(cases[i].field), &password),
                         cases[i].password != NULL);
        if (cases[i].password)
            assert_true(slice_equal(buffer_slice(&password), slice_of(cases[i].password)));
    }
    buffer_close(&password);
}

#define ID "4bf92f3577b34da6a3ce929d0e0e4736"
#define SPAN "00f067aa0ba902b7"

// The rules of https://www.w3.org/TR/trace-context/
static void only_a_valid_trace_parent_counts(void **state)
{
    (void)state;
    static const struct {
        const char *field;
        bool valid;
    } cases[] = { { "00-" ID "-" SPAN "-01", true },
                  { "00-" ID "-" SPAN "-00", true },
                  { "cc-" ID "-" SPAN "-01", true },
                  { "cc-" ID "-" SPAN "-01-what-the-future-will-be-like", true },
                  { "cc-" ID "-" SPAN "-01.x", false },
                  { "00-" ID "-" SPAN "-01-more", false },
                  { "ff-" ID "-" SPAN "-01", false },
                  { "00-00000000000000000000000000000000-" SPAN "-01", false },
                  { "00-" ID "-0000000000000000-01", false },
                  { "00-4BF92F3577B34DA6A3CE929D0E0E4736-" SPAN "-01", false },
                  { "00-" ID "_" SPAN "-01", false },
                  { "00-" ID "-" SPAN "-0", false },
                  { "", false } };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        http_trace trace;
        assert_int_equal(http_trace_parse(slice_of(cases[i].field), &trace), cases[i].valid);
        assert_string_equal(trace.id, cases[i].valid ? ID : "");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_digest_is_sha_256),
        cmocka_unit_test(new_secrets_are_long_and_never_the_same),
        cmocka_unit_test(a_bearer_is_found),
        cmocka_unit_test(a_basic_password_is_decoded),
        cmocka_unit_test(only_a_valid_trace_parent_counts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
