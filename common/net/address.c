#include "net/address.h"

#include <stdio.h>

static bool port_parse(slice text, uint16_t *port)
{
    uint32_t value = 0;
    if (text.size == 0 || text.size > 5)
        return false;
    for (size_t i = 0; i < text.size; i++) {
        if (text.data[i] < '0' || text.data[i] > '9')
            return false;
        value = value * 10 + (uint32_t)(text.data[i] - '0');
    }
    if (value > 65535)
        return false;
    *port = (uint16_t)value;
    return true;
}

// Cut `text` into host and port at the colon that separates them; false where brackets do not fit.
static bool address_split(slice text, slice *host, slice *port, bool *has_port)
{
    const char *end = text.data + text.size;
    *has_port = false;
    if (text.size > 0 && text.data[0] == '[') {
        const char *close = memchr(text.data, ']', text.size);
        if (!close || close == text.data + 1)
            return false;
        *host = (slice){ text.data + 1, (size_t)(close - text.data) - 1 };
        if (close + 1 == end)
            return true;
        if (close[1] != ':')
            return false;
        *port = (slice){ close + 2, (size_t)(end - close) - 2 };
        *has_port = true;
        return true;
    }
    const char *first = memchr(text.data, ':', text.size);
    const char *last = memrchr(text.data, ':', text.size);
    *host = text;
    if (!first || first != last)
        return true; // a name, an IPv4 address, or an IPv6 address without a port
    *host = (slice){ text.data, (size_t)(first - text.data) };
    *port = (slice){ first + 1, (size_t)(end - first) - 1 };
    *has_port = true;
    return true;
}

static bool host_is_plain(slice host)
{
    for (size_t i = 0; i < host.size; i++) {
        unsigned char c = (unsigned char)host.data[i];
        bool plain = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                     strchr(".-_:%", c) != NULL;
        if (c == 0 || !plain)
            return false;
    }
    return true;
}

status address_parse(slice text, int port_default, address *parsed, error *failure)
{
    slice host = { "", 0 }, port = { "", 0 };
    bool has_port;
    address a = { .port = 0 };
    if (text.size == 0 || !address_split(text, &host, &port, &has_port) || !host_is_plain(host) ||
        host.size >= sizeof a.host)
        return error_set(failure, STATUS_INVALID, "address",
                         "\"%.*s\" is not an address; right are host:port, [IPv6]:port and :port",
                         (int)(text.size < 200 ? text.size : 200), text.data);
    if (has_port ? !port_parse(port, &a.port) : port_default < 0)
        return error_set(failure, STATUS_INVALID, "address",
                         "\"%.*s\" has no port between 0 and 65535 behind its last colon",
                         (int)(text.size < 200 ? text.size : 200), text.data);
    if (!has_port)
        a.port = (uint16_t)port_default;
    memcpy(a.host, host.data, host.size);
    a.host[host.size] = 0;
    *parsed = a;
    return STATUS_OK;
}

void address_format(const address *a, char text[272])
{
    const char *shape = strchr(a->host, ':') ? "[%s]:%u" : "%s:%u";
    snprintf(text, 272, shape, a->host, a->port);
}
