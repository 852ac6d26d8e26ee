#include "net/http_proxies.h"

#include "net/address.h"

#include <arpa/inet.h>

#define ELEMENT_MAX 64 // the longest address with a port is shorter

// ---- the setting ------------------------------------------------------------------------------

// An address of either family, as IPv6. `bits`: those of its own family.
static bool address_read(const char *text, uint8_t octets[16], unsigned *bits)
{
    memset(octets, 0, 16);
    *bits = 128;
    if (inet_pton(AF_INET6, text, octets) == 1)
        return true;
    octets[10] = octets[11] = 0xff;
    *bits = 32;
    return inet_pton(AF_INET, text, octets + 12) == 1;
}

static bool bit_of(const uint8_t octets[16], unsigned bit)
{
    return octets[bit / 8] >> (7 - bit % 8) & 1;
}

// NULL, or what is wrong.
static const char *network_parse(const char *text, http_network *n)
{
    char host[INET6_ADDRSTRLEN];
    const char *slash = strchr(text, '/');
    size_t size = slash ? (size_t)(slash - text) : strlen(text);
    unsigned family, length = 0;
    if (size >= sizeof host)
        return "is no address";
    memcpy(host, text, size);
    host[size] = 0;
    if (!address_read(host, n->address, &family))
        return "is no address";
    n->bits = 128;
    if (!slash)
        return NULL;
    const char *digits = slash + 1;
    size_t count = strspn(digits, "0123456789");
    for (size_t i = 0; i < count && count <= 3; i++)
        length = length * 10 + (unsigned)(digits[i] - '0');
    if (count == 0 || count > 3 || digits[count] != 0 || length > family)
        return "has no length of a network behind the slash";
    n->bits = 128 - family + length;
    for (unsigned i = n->bits; i < 128; i++)
        if (bit_of(n->address, i))
            return "is no network: it has bits behind its length";
    return NULL;
}

status http_proxies_parse(const config_strings *texts, http_proxies *parsed, error *failure)
{
    parsed->count = 0;
    if (texts->count > HTTP_PROXIES_MAX)
        return error_set(failure, STATUS_BAD_CONFIG, "http.trusted_proxies",
                         "http.trusted_proxies has %zu entries; at most %d are allowed",
                         texts->count, HTTP_PROXIES_MAX);
    for (size_t i = 0; i < texts->count; i++) {
        const char *wrong = network_parse(texts->items[i], &parsed->items[i]);
        if (wrong)
            return error_set(failure, STATUS_BAD_CONFIG, "http.trusted_proxies",
                             "http.trusted_proxies: \"%.80s\" %s; right is an address such as "
                             "192.0.2.7 or a network such as 10.0.0.0/8 or 2001:db8::/32",
                             texts->items[i], wrong);
    }
    parsed->count = texts->count;
    return STATUS_OK;
}

// ---- requests ---------------------------------------------------------------------------------

static bool network_holds(const http_network *n, const uint8_t octets[16])
{
    unsigned whole = n->bits / 8, rest = n->bits % 8;
    if (memcmp(n->address, octets, whole) != 0)
        return false;
    return rest == 0 || (n->address[whole] ^ octets[whole]) >> (8 - rest) == 0;
}

bool http_proxies_trust(const http_proxies *p, const uint8_t octets[16])
{
    for (size_t i = 0; i < p->count; i++)
        if (network_holds(&p->items[i], octets))
            return true;
    return false;
}

// The last element of a list with commas, without blanks around it; `list` loses it.
static slice last_take(slice *list)
{
    size_t begin = list->size, end = list->size;
    while (begin > 0 && list->data[begin - 1] != ',')
        begin--;
    slice last = { list->data + begin, end - begin };
    list->size = begin > 0 ? begin - 1 : 0;
    while (last.size > 0 && (last.data[0] == ' ' || last.data[0] == '\t'))
        last = (slice){ last.data + 1, last.size - 1 };
    while (last.size > 0 && (last.data[last.size - 1] == ' ' || last.data[last.size - 1] == '\t'))
        last.size--;
    return last;
}

static bool element_read(slice element, uint8_t read[16])
{
    address parsed;
    error unused;
    unsigned bits;
    return element.size > 0 && element.size < ELEMENT_MAX &&
           address_parse(element, 0, &parsed, &unused) == STATUS_OK &&
           address_read(parsed.host, read, &bits);
}

void http_proxies_follow(const http_proxies *p, const http_head *head, uint8_t octets[16])
{
    size_t hops = 0;
    // Several fields of the name are one list, in their order.
    for (size_t i = head->field_count; i > 0; i--) {
        slice list = head->fields[i - 1].value;
        if (!http_text_equal(head->fields[i - 1].name, "X-Forwarded-For"))
            continue;
        do {
            uint8_t next[16];
            if (hops++ == HTTP_PROXY_HOPS_MAX || !http_proxies_trust(p, octets) ||
                !element_read(last_take(&list), next))
                return;
            memcpy(octets, next, 16);
        } while (list.size > 0);
    }
}
