// What becomes of TLS where memory is short; what it says on the wire is
// tests/integration/http_tls.py.
#include "net/http_private.h"

#include <event2/event.h>
#include <openssl/ssl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

static bool memory_is_short; // for libevent
static SSL *made;
static int freed;

static void *take(size_t size)
{
    return memory_is_short ? NULL : malloc(size);
}

// The test holds each connection too, so that it can tell who lets go of it.
static void on_made(void *parent, void *data, CRYPTO_EX_DATA *all, int index, long number,
                    void *argument)
{
    (void)data, (void)all, (void)index, (void)number, (void)argument;
    made = parent;
    SSL_up_ref(made);
}

static void on_freed(void *parent, void *data, CRYPTO_EX_DATA *all, int index, long number,
                     void *argument)
{
    (void)parent, (void)data, (void)all, (void)index, (void)number, (void)argument;
    freed++;
}

static void a_connection_that_cannot_be_made_is_freed_once(void **state)
{
    (void)state;
    int ends[2];
    event_set_mem_functions(take, realloc, free);
    struct event_base *base = event_base_new();
    SSL_CTX *tls = SSL_CTX_new(TLS_server_method());
    assert_true(SSL_get_ex_new_index(0, NULL, on_made, NULL, on_freed) >= 0);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    memory_is_short = true;
    struct bufferevent *stream = http_tls_accept((http_tls *)tls, base, ends[0]);
    memory_is_short = false;
    assert_null(stream);
    assert_non_null(made);
    assert_int_equal(freed, 0); // the test's hold is left
    SSL_free(made);
    assert_int_equal(freed, 1);                 // and no other
    assert_int_equal(write(ends[0], "", 1), 1); // the socket is its owner's
    close(ends[0]);
    close(ends[1]);
    SSL_CTX_free(tls);
    event_base_free(base);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_connection_that_cannot_be_made_is_freed_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
