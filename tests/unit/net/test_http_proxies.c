// Who a client is behind proxies: the setting, the field, and what the server makes of both.
#include "http_fixture.h"
#include "net/http_proxies.h"

// ---- the setting ------------------------------------------------------------------------------

static status parse_one(const char *text, http_proxies *p, error *failure)
{
    char *items[] = { (char *)text };
    config_strings texts = { 1, items };
    return http_proxies_parse(&texts, p, failure);
}

static void address_of(const char *text, uint8_t address[16])
{
    memset(address, 0, 16);
    if (inet_pton(AF_INET6, text, address) == 1)
        return;
    address[10] = address[11] = 0xff;
    assert_int_equal(inet_pton(AF_INET, text, address + 12), 1);
}

static bool trusts(const char *network, const char *text)
{
    http_proxies p;
    error failure = { 0 };
    uint8_t address[16];
    if (parse_one(network, &p, &failure) != STATUS_OK)
        fail_msg("%s", failure.text);
    address_of(text, address);
    return http_proxies_trust(&p, address);
}

static void networks_hold_their_addresses_and_no_others(void **state)
{
    (void)state;
    assert_true(trusts("192.0.2.7", "192.0.2.7"));
    assert_true(trusts("192.0.2.7", "::ffff:192.0.2.7")); // the same, as a listener of [::] sees it
    assert_false(trusts("192.0.2.7", "192.0.2.6"));
    assert_true(trusts("10.0.0.0/8", "10.255.0.1"));
    assert_false(trusts("10.0.0.0/8", "11.0.0.1"));
    assert_true(trusts("192.0.2.128/25", "192.0.2.200"));
    assert_false(trusts("192.0.2.128/25", "192.0.2.127"));
    assert_true(trusts("192.0.2.6/31", "192.0.2.7"));
    assert_false(trusts("192.0.2.6/31", "192.0.2.8"));
    assert_true(trusts("0.0.0.0/0", "8.8.8.8"));
    assert_false(trusts("0.0.0.0/0", "2001:db8::1")); // of its own family only
    assert_true(trusts("::/0", "2001:db8::1"));
    assert_true(trusts("2001:db8::/33", "2001:db8:7fff::1"));
    assert_false(trusts("2001:db8::/33", "2001:db8:8000::1"));
    assert_true(trusts("2001:db8::7/128", "2001:db8::7"));
    assert_false(trusts("2001:db8::7", "2001:db8::8"));
}

static void what_is_no_network_is_named(void **state)
{
    (void)state;
    static const char *const wrong[] = {
        "",
        "proxy.example",
        "10.0.0",
        "10.0.0.0.0",
        "010.0.0.1",
        "10.0.0.1 ",
        " 10.0.0.1",
        "10.0.0.0/",
        "10.0.0.0/33",
        "10.0.0.0/-1",
        "10.0.0.0/8x",
        "10.0.0.0/8/8",
        "10.0.0.0/0008",
        "10.0.0.0/99999999999999999999",
        "10.0.0.1/8",
        "/8",
        "[::1]",
        "::1/129",
        "2001:db8::1/32",
        "fe80::1%eth0",
        "*",
        "10.0.0.1:80",
        "1111:2222:3333:4444:5555:6666:7777:8888:9999:aaaa:bbbb:cccc:dddd:eeee:ffff",
        "2001:db8::/32\n",
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        http_proxies p;
        error failure = { 0 };
        if (parse_one(wrong[i], &p, &failure) != STATUS_BAD_CONFIG)
            fail_msg("\"%s\" was taken", wrong[i]);
        assert_string_equal(failure.param, "http.trusted_proxies");
        assert_non_null(strstr(failure.text, "right is an address such as 192.0.2.7"));
        assert_int_equal(p.count, 0);
    }
    char *many[HTTP_PROXIES_MAX + 1];
    for (size_t i = 0; i <= HTTP_PROXIES_MAX; i++)
        many[i] = (char *)"10.0.0.1";
    config_strings texts = { HTTP_PROXIES_MAX + 1, many };
    http_proxies p;
    error failure = { 0 };
    assert_int_equal(http_proxies_parse(&texts, &p, &failure), STATUS_BAD_CONFIG);
    assert_non_null(strstr(failure.text, "has 65 entries; at most 64 are allowed"));
    texts.count--;
    assert_int_equal(http_proxies_parse(&texts, &p, &failure), STATUS_OK);
}

// ---- the field --------------------------------------------------------------------------------

// The client of a request with these fields that came from `from`, where 10.0.0.0/8 and
// 2001:db8::/32 are proxies.
static void expect_client(const char *from, const char *fields, const char *client)
{
    char *items[] = { (char *)"10.0.0.0/8", (char *)"2001:db8::/32" };
    config_strings texts = { 2, items };
    http_proxies p;
    error failure = { 0 };
    http_refusal refusal = { 0 };
    http_head head;
    uint8_t found[16], wanted[16];
    buffer request = { 0 };
    buffer_printf(&request, "GET / HTTP/1.1\r\nHost: a\r\n%s\r\n", fields);
    assert_int_equal(http_proxies_parse(&texts, &p, &failure), STATUS_OK);
    assert_true(http_head_parse(request.data, request.size, &head, &refusal));
    address_of(from, found);
    address_of(client, wanted);
    http_proxies_follow(&p, &head, found);
    if (memcmp(found, wanted, 16) != 0)
        fail_msg("from %s with\n%sit is not %s", from, fields, client);
    buffer_close(&request);
}

static void the_rightmost_address_that_is_not_trusted_is_the_client(void **state)
{
    (void)state;
    expect_client("10.0.0.1", "X-Forwarded-For: 192.0.2.7\r\n", "192.0.2.7");
    expect_client("10.0.0.1", "x-forwarded-for: 192.0.2.7\r\n", "192.0.2.7");
    expect_client("10.0.0.1", "X-Forwarded-For: 192.0.2.7, 10.0.0.2 ,\t10.0.0.3\r\n", "192.0.2.7");
    // What the client itself wrote stands left of it.
    expect_client("10.0.0.1", "X-Forwarded-For: 1.1.1.1, 192.0.2.7\r\n", "192.0.2.7");
    expect_client("10.0.0.1", "X-Forwarded-For: 10.9.9.9, 127.0.0.1, 192.0.2.7, 10.0.0.2\r\n",
                  "192.0.2.7");
    // Several fields are one list.
    expect_client("10.0.0.1", "X-Forwarded-For: 1.1.1.1\r\nX-Forwarded-For: 192.0.2.7\r\n",
                  "192.0.2.7");
    expect_client("10.0.0.1",
                  "X-Forwarded-For: 192.0.2.7\r\nA: b\r\nX-Forwarded-For: 10.0.0.2, 10.0.0.3\r\n",
                  "192.0.2.7");
    // All of them are proxies: the first.
    expect_client("10.0.0.1", "X-Forwarded-For: 10.0.0.9, 10.0.0.2\r\n", "10.0.0.9");
    expect_client("10.0.0.1", "", "10.0.0.1");
    // Of IPv6, and with ports.
    expect_client("2001:db8::1", "X-Forwarded-For: 2600::7\r\n", "2600::7");
    expect_client("2001:db8::1", "X-Forwarded-For: [2600::7]:4711, 10.0.0.2:80\r\n", "2600::7");
    expect_client("::ffff:10.0.0.1", "X-Forwarded-For: ::ffff:192.0.2.7\r\n", "192.0.2.7");
    expect_client("10.0.0.1", "X-Forwarded-For: 192.0.2.7:65535\r\n", "192.0.2.7");
}

static void from_anyone_else_nothing_is_believed(void **state)
{
    (void)state;
    expect_client("192.0.2.1", "X-Forwarded-For: 192.0.2.7\r\n", "192.0.2.1");
    expect_client("127.0.0.1", "X-Forwarded-For: 10.0.0.2\r\n", "127.0.0.1");
    expect_client("2600::1", "X-Forwarded-For: 2001:db8::1, 10.0.0.2\r\n", "2600::1");
    expect_client("10.0.0.1", "X-Forwarded-For: 192.0.2.7, 198.51.100.1\r\n", "198.51.100.1");
    expect_client("10.0.0.1",
                  "X-Real-IP: 192.0.2.7\r\nForwarded: for=192.0.2.7\r\nX-Forwarded: 192.0.2.7\r\n",
                  "10.0.0.1");
}

static void what_is_no_address_ends_the_search(void **state)
{
    (void)state;
    static const char *const hostile[] = {
        "unknown",
        "_hidden",
        "localhost",
        "192.0.2.7;",
        "192.0.2",
        "192.0.2.7.8",
        "0x7f000001",
        "3232235777",
        "192.000.2.7",
        "192.0.2.7:",
        "192.0.2.7:99999",
        "192.0.2.7:port",
        "[2600::7",
        "2600::7]",
        "[192.0.2.7]x",
        "\"192.0.2.7\"",
        "fe80::1%1",
        "192.0.2.7 192.0.2.8",
        "..",
        ":",
        "::::",
        "[]:80",
        "%00",
        "\xc3\xa9",
        "",
    };
    for (size_t i = 0; i < sizeof hostile / sizeof *hostile; i++) {
        char fields[256];
        snprintf(fields, sizeof fields, "X-Forwarded-For: %s\r\n", hostile[i]);
        expect_client("10.0.0.1", fields, "10.0.0.1");
        snprintf(fields, sizeof fields, "X-Forwarded-For: 1.1.1.1, %s, 10.0.0.2\r\n", hostile[i]);
        expect_client("10.0.0.1", fields, "10.0.0.2");
    }
    expect_client("10.0.0.1", "X-Forwarded-For: ,,,\r\n", "10.0.0.1");
    expect_client("10.0.0.1", "X-Forwarded-For: 1.1.1.1,\r\n", "10.0.0.1");
}

static void a_long_list_is_read_to_a_bound(void **state)
{
    (void)state;
    buffer fields = { 0 };
    buffer_append_text(&fields, "X-Forwarded-For: 192.0.2.7");
    for (int i = 0; i < HTTP_PROXY_HOPS_MAX - 1; i++)
        buffer_append_text(&fields, ", 10.0.0.2");
    buffer_append_text(&fields, "\r\n");
    expect_client("10.0.0.1", fields.data, "192.0.2.7");
    fields.size -= 2;
    buffer_append_text(&fields, ", 10.0.0.3\r\n");
    expect_client("10.0.0.1", fields.data, "10.0.0.2");
    buffer_clear(&fields);
    buffer_append_text(&fields, "X-Forwarded-For: ");
    for (int i = 0; i < 100000; i++)
        buffer_append_byte(&fields, '7');
    buffer_append_text(&fields, "\r\n");
    expect_client("10.0.0.1", fields.data, "10.0.0.1");
    buffer_close(&fields);
}

// ---- the server -------------------------------------------------------------------------------

static char *loopback[] = { (char *)"127.0.0.0/8" };

static int start_behind_proxies(void **state)
{
    trusted_proxies = (config_strings){ 1, loopback };
    return server_start(state);
}

static void assert_answered(const char *client)
{
    pthread_mutex_lock(&answered_lock);
    assert_string_equal(answered_client, client);
    pthread_mutex_unlock(&answered_lock);
}

static void clients_are_told_apart_behind_a_proxy(void **state)
{
    (void)state;
    buffer answer = { 0 };
    expect_status("GET /hello HTTP/1.1\r\n" REST "X-Forwarded-For: 1.1.1.1, 192.0.2.7\r\n\r\n", 200,
                  &answer);
    assert_answered("192.0.2.7");
    expect_status("GET /hello HTTP/1.1\r\n" REST "X-Forwarded-For: 2600:0:0:1::7\r\n\r\n", 200,
                  &answer);
    assert_answered("2600:0:0:1::/64");
    expect_status("GET /hello HTTP/1.1\r\n" REST "\r\n", 200, &answer);
    assert_answered("127.0.0.1");
    expect_status("GET /hello HTTP/1.1\r\n" REST "X-Forwarded-For: evil\r\n\r\n", 200, &answer);
    assert_answered("127.0.0.1");
    buffer_close(&answer);
}

// 20 are allowed: of a client's requests under way, not of the proxy's connections.
static void the_limit_of_an_address_is_the_clients(void **state)
{
    (void)state;
    int open[25];
    buffer answer = { 0 };
    int begun = atomic_load(&closes);
    atomic_store(&unanswered, 0);
    for (int i = 0; i < 25; i++) {
        open[i] = client_open();
        client_send(open[i],
                    i < 20
                        ? "GET /never HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: 192.0.2.7\r\n\r\n"
                        : "GET /never HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: 192.0.2.8\r\n\r\n");
    }
    wait_for(&unanswered, 25);
    expect_status("GET /hello HTTP/1.1\r\n" REST "X-Forwarded-For: 192.0.2.7\r\n\r\n", 503,
                  &answer);
    assert_non_null(strstr(answer.data, "there are too many requests of this address"));
    assert_non_null(strstr(answer.data, "Retry-After: 1\r\n"));
    expect_status("GET /hello HTTP/1.1\r\n" REST "X-Forwarded-For: 192.0.2.9\r\n\r\n", 200,
                  &answer);
    // A refusal leaves the proxy's connection open: others use it.
    int proxy = client_open();
    client_send(proxy, "GET /hello HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: 192.0.2.7\r\n\r\n");
    client_read(proxy, "}}", &answer);
    client_send(proxy, "GET /hello HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: 192.0.2.8\r\n\r\n");
    client_read(proxy, "hello", &answer);
    assert_non_null(strstr(answer.data, "HTTP/1.1 200 "));
    close(proxy);
    for (int i = 0; i < 25; i++)
        close(open[i]);
    wait_for(&closes, begun + 25);
    expect_status("GET /hello HTTP/1.1\r\n" REST "X-Forwarded-For: 192.0.2.7\r\n\r\n", 200,
                  &answer);
    buffer_close(&answer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(networks_hold_their_addresses_and_no_others),
        cmocka_unit_test(what_is_no_network_is_named),
        cmocka_unit_test(the_rightmost_address_that_is_not_trusted_is_the_client),
        cmocka_unit_test(from_anyone_else_nothing_is_believed),
        cmocka_unit_test(what_is_no_address_ends_the_search),
        cmocka_unit_test(a_long_list_is_read_to_a_bound),
        cmocka_unit_test(clients_are_told_apart_behind_a_proxy),
        cmocka_unit_test(the_limit_of_an_address_is_the_clients),
    };
    return cmocka_run_group_tests(tests, start_behind_proxies, server_stop);
}
