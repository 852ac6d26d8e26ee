// Proxies in front of a server that are believed when they name their client.
//
// A proxy appends the address that it was called from to the field X-Forwarded-For; what stands
// left of that may have been written by anybody. So the field is read from the right, and only as
// long as the address that it was got from is a trusted proxy's: the first one that is not trusted
// is the client. From anyone else the field is not read at all. Pure functions; any thread.
#pragma once

#include "base/config.h"
#include "net/http_head.h"

#define HTTP_PROXIES_MAX 64
#define HTTP_PROXY_HOPS_MAX 32 // addresses of a field that are looked at

// Addresses are of IPv6 in network order; those of IPv4 are mapped (::ffff:192.0.2.7).
typedef struct http_network {
    uint8_t address[16];
    unsigned bits; // that count, of 128
} http_network;

typedef struct http_proxies {
    size_t count;
    http_network items[HTTP_PROXIES_MAX];
} http_proxies;

// Addresses ("192.0.2.7", "2001:db8::7") and networks ("10.0.0.0/8"). STATUS_BAD_CONFIG and a
// sentence for anything else, and for more than HTTP_PROXIES_MAX.
status http_proxies_parse(const config_strings *texts, http_proxies *parsed, error *failure);
bool http_proxies_trust(const http_proxies *p, const uint8_t octets[16]);
// `octets` are the connection's address, and become the client's. A port behind an address is
// skipped. What is no address (a name, a word) ends the search: the client is then the proxy that
// passed it on.
void http_proxies_follow(const http_proxies *p, const http_head *head, uint8_t octets[16]);
