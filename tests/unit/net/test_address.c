// Addresses are read and written by one rule.
#include "net/address.h"

#include <stdarg.h>
#include <setjmp.h>
#include <cmocka.h>

static const struct {
    const char *text;
    int port_default;
    const char *formatted; // NULL: refused
} cases[] = {
    { "127.0.0.1:8080", -1, "127.0.0.1:8080" },
    { "[::]:8080", -1, "[::]:8080" },
    { "[::1]:0", -1, "[::1]:0" },
    { "[2001:db8::5]:9000", -1, "[2001:db8::5]:9000" },
    { "[fe80::1%eth0]:9000", -1, "[fe80::1%eth0]:9000" },
    { "::", 8080, "[::]:8080" },
    { "::1", 7, "[::1]:7" },
    { "[::1]", 7, "[::1]:7" },
    { "router.example", 80, "router.example:80" },
    { ":8080", -1, ":8080" },
    { "::1", -1, NULL },
    { "host", -1, NULL },
    { "host:", 80, NULL },
    { "host:65536", -1, NULL },
    { "host:-1", -1, NULL },
    { "host:8x", -1, NULL },
    { "[::1", 80, NULL },
    { "[]:80", -1, NULL },
    { "[::1]80", -1, NULL },
    { "", 80, NULL },
    { "a b:80", -1, NULL },
    { "http://h:80", -1, NULL },
};

static void each_address_has_one_reading(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        address a;
        error failure = { 0 };
        status result = address_parse(slice_of(cases[i].text), cases[i].port_default, &a, &failure);
        if (!cases[i].formatted) {
            if (result != STATUS_INVALID)
                fail_msg("\"%s\" was accepted", cases[i].text);
            assert_true(failure.text[0] != 0);
            continue;
        }
        char text[272];
        if (result != STATUS_OK)
            fail_msg("\"%s\": %s", cases[i].text, failure.text);
        address_format(&a, text);
        assert_string_equal(text, cases[i].formatted);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(each_address_has_one_reading) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
