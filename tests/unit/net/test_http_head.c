// The head of a request and the chunked coding have one reading, or none.
#include "net/http_head.h"

#include <stdarg.h>
#include <setjmp.h>
#include <cmocka.h>

#define HOST "Host: a\r\n"
#define GET "GET / HTTP/1.1\r\n" HOST
#define POST "POST /v1/x HTTP/1.1\r\n" HOST

static const struct {
    const char *text;
    int status; // 0: accepted
} heads[] = {
    { GET "\r\n", 0 },
    { "\r\n\r\n" GET "\r\n", 0 },
    { "GET /?a=b HTTP/1.0\r\n\r\n", 0 },
    { "GET http://h/x HTTP/1.1\r\n" HOST "\r\n", 0 },
    { POST "Content-Length: 4\r\n\r\n", 0 },
    { POST "content-length:4 \r\n\r\n", 0 },
    { POST "Transfer-Encoding: Chunked\r\n\r\n", 0 },
    { POST "Expect: 100-continue\r\n\r\n", 0 },
    { GET "X: \xc3\xa9\r\n\r\n", 0 },
    { "GET / HTTP/1.1\r\n\r\n", 400 },
    { GET HOST "\r\n", 400 },
    { "GET / HTTP/1.1\r\nHost : a\r\n\r\n", 400 },
    { GET "X: a\r\n b\r\n\r\n", 400 },
    { GET "X: \xff\r\n\r\n", 400 },
    { GET "X: a\x01\r\n\r\n", 400 },
    { GET "no colon\r\n\r\n", 400 },
    { "GET /\xc4 HTTP/1.1\r\n" HOST "\r\n", 400 },
    { "GET / HTTP/1.1 \r\n" HOST "\r\n", 400 },
    { "GET  / HTTP/1.1\r\n" HOST "\r\n", 400 },
    { "GET /\r\n\r\n", 400 },
    { "GET / HTTP/2.0\r\n" HOST "\r\n", 505 },
    { "GET x HTTP/1.1\r\n" HOST "\r\n", 400 },
    { "\x16\x03\x01\x02 hello\r\n\r\n", 400 },
    { "GET / HTTP/1.1\nHost: a\n\n", 400 },
    { "GET / HTTP/1.1\r\nHost: a\n\r\n", 400 },
    { GET "X: a\rb\r\n\r\n", 400 },
    { POST "Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n", 400 },
    { POST "Content-Length: 4\r\nContent-Length: 5\r\n\r\n", 400 },
    { POST "Content-Length: 4\r\nContent-Length: 4\r\n\r\n", 400 },
    { POST "Content-Length: +5\r\n\r\n", 400 },
    { POST "Content-Length: -1\r\n\r\n", 400 },
    { POST "Content-Length: 0x10\r\n\r\n", 400 },
    { POST "Content-Length: 5, 5\r\n\r\n", 400 },
    { POST "Content-Length:\r\n\r\n", 400 },
    { POST "Content-Length: 99999999999999999999\r\n\r\n", 400 },
    { POST "Transfer-Encoding: xchunked\r\n\r\n", 400 },
    { POST "Transfer-Encoding: gzip, chunked\r\n\r\n", 400 },
    { POST "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n", 400 },
    { "POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n", 400 },
    { POST "Expect: nonsense\r\n\r\n", 417 },
};

static void every_head_has_one_reading(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof heads / sizeof *heads; i++) {
        http_head head;
        http_refusal refusal;
        size_t size = strlen(heads[i].text);
        size_t found = http_head_find(heads[i].text, size, 0, 16384, &refusal);
        if (found > 0 && !http_head_parse(heads[i].text, found, &head, &refusal))
            assert_int_not_equal(refusal.status, 0);
        if (refusal.status != heads[i].status)
            fail_msg("head %zu: status %d (%s), wanted %d:\n%s", i, refusal.status,
                     refusal.text ? refusal.text : "", heads[i].status, heads[i].text);
    }
}

static void a_head_is_found_wherever_it_is_cut(void **state)
{
    (void)state;
    const char *text = "\r\n" POST "Content-Length: 4\r\n\r\nbody";
    size_t whole = strlen(text) - 4, seen = 0;
    for (size_t size = 1; size <= strlen(text); size++) {
        http_refusal refusal;
        size_t found = http_head_find(text, size, seen, 16384, &refusal);
        assert_int_equal(refusal.status, 0);
        assert_int_equal(found, size >= whole ? whole : 0);
        if (found)
            break;
        seen = size;
    }
}

static void a_head_past_the_limit_is_431(void **state)
{
    (void)state;
    char text[2000];
    memset(text, 'a', sizeof text);
    http_refusal refusal;
    assert_int_equal(http_head_find(text, 1000, 0, 1024, &refusal), 0);
    assert_int_equal(refusal.status, 0);
    assert_int_equal(http_head_find(text, 1024, 1000, 1024, &refusal), 0);
    assert_int_equal(refusal.status, 431);
}

static void fields_say_how_a_connection_goes_on(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        bool keep;
    } cases[] = {
        { GET "\r\n", true },
        { GET "Connection: close\r\n\r\n", false },
        { GET "Connection: TE, Close\r\n\r\n", false },
        { "GET / HTTP/1.0\r\n\r\n", false },
        { "GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", true },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        http_head head;
        http_refusal refusal;
        assert_true(http_head_parse(cases[i].text, strlen(cases[i].text), &head, &refusal));
        assert_int_equal(head.keep_alive, cases[i].keep);
    }
}

static const struct {
    const char *text;
    const char *body; // NULL: refused
    int status;
} chunked[] = {
    { "0\r\n\r\n", "", 0 },
    { "5\r\nhello\r\n0\r\n\r\n", "hello", 0 },
    { "1\r\na\r\n1\r\nb\r\n1\r\nc\r\n0\r\n\r\n", "abc", 0 },
    { "a\r\n0123456789\r\nB\r\n0123456789a\r\n0\r\n\r\n", "01234567890123456789a", 0 },
    { "3;name=value\r\nabc\r\n0;x\r\n\r\n", "abc", 0 },
    { "3\r\nabc\r\n0\r\nTrailer: x\r\nOther: y\r\n\r\n", "abc", 0 },
    { "003\r\nabc\r\n0\r\n\r\n", "abc", 0 },
    { "3\nabc\r\n0\r\n\r\n", NULL, 400 },
    { "3\r\nabcd\r\n0\r\n\r\n", NULL, 400 },
    { "\r\nabc", NULL, 400 },
    { "-3\r\nabc\r\n", NULL, 400 },
    { "0x3\r\nabc\r\n", NULL, 400 },
    { "ffffffffffffffff\r\n", NULL, 400 },
    { "fffffffffffffff\r\n", NULL, 413 },
    { "65\r\n", NULL, 413 },
};

// An empty field in front of a proxy's own is there: nobody may take the client for a local one.
static void an_empty_field_is_not_a_missing_one(void **state)
{
    (void)state;
    const char text[] =
        "GET / HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: \r\nX-Forwarded-For: 192.0.2.7\r\n\r\n";
    http_head head = { 0 };
    http_refusal refusal = { 0 };
    assert_true(http_head_parse(text, strlen(text), &head, &refusal));
    assert_non_null(http_head_field(&head, "x-forwarded-for").data);
    assert_int_equal(http_head_field(&head, "x-forwarded-for").size, 0);
    assert_null(http_head_field(&head, "Forwarded").data);
}

static void chunked_bodies_have_one_reading_wherever_they_are_cut(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof chunked / sizeof *chunked; i++) {
        for (size_t piece = 1; piece < 9; piece++) {
            http_chunks c = { 0 };
            http_refusal refusal = { 0 };
            buffer body = { 0 };
            size_t size = strlen(chunked[i].text), at = 0;
            while (at < size && !c.done && refusal.status == 0) {
                size_t take = size - at < piece ? size - at : piece;
                size_t used =
                    http_chunks_feed(&c, chunked[i].text + at, take, 100, &body, &refusal);
                assert_true(used == take || c.done || refusal.status != 0);
                at += used;
            }
            assert_int_equal(refusal.status, chunked[i].status);
            if (chunked[i].body) {
                assert_true(c.done);
                assert_int_equal(at, size);
                assert_string_equal(buffer_slice(&body).data, chunked[i].body);
            }
            assert_true(body.size <= 100);
            buffer_close(&body);
        }
    }
}

static void bytes_after_a_chunked_body_are_left(void **state)
{
    (void)state;
    http_chunks c = { 0 };
    http_refusal refusal;
    buffer body = { 0 };
    assert_int_equal(http_chunks_feed(&c, "1\r\na\r\n0\r\n\r\nGET", 14, 100, &body, &refusal), 11);
    assert_true(c.done);
    buffer_close(&body);
}

static void only_json_in_utf8_is_json(void **state)
{
    (void)state;
    static const char *const good[] = { "application/json", "Application/JSON",
                                        "application/json; charset=utf-8",
                                        "application/json;charset=\"UTF-8\"" };
    static const char *const bad[] = { "text/plain", "application/json; charset=latin1",
                                       "application/jsonx", "", "application/json, text/plain" };
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        assert_true(http_content_is_json(slice_of(good[i])));
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_false(http_content_is_json(slice_of(bad[i])));
    assert_false(http_content_is_json((slice){ NULL, 0 }));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_head_has_one_reading),
        cmocka_unit_test(a_head_is_found_wherever_it_is_cut),
        cmocka_unit_test(a_head_past_the_limit_is_431),
        cmocka_unit_test(fields_say_how_a_connection_goes_on),
        cmocka_unit_test(an_empty_field_is_not_a_missing_one),
        cmocka_unit_test(chunked_bodies_have_one_reading_wherever_they_are_cut),
        cmocka_unit_test(bytes_after_a_chunked_body_are_left),
        cmocka_unit_test(only_json_in_utf8_is_json),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
