// Open connections and requests under way, counted by client address.
#include "net/http_private.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>

static uint32_t peer_bucket(const uint8_t key[16])
{
    uint32_t sum = 2166136261u;
    for (int i = 0; i < 16; i++)
        sum = (sum ^ key[i]) * 16777619u;
    return sum % HTTP_ADDRESS_BUCKETS;
}

static const uint8_t mapped[12] = { [10] = 0xff, [11] = 0xff };

void http_peer_address(const struct sockaddr *from, uint8_t address[16])
{
    memset(address, 0, 16);
    if (from->sa_family == AF_INET6) {
        memcpy(address, &((const struct sockaddr_in6 *)from)->sin6_addr, 16);
    } else if (from->sa_family == AF_INET) {
        memcpy(address, mapped, sizeof mapped);
        memcpy(address + 12, &((const struct sockaddr_in *)from)->sin_addr, 4);
    }
}

http_peer *http_peer_take(http_server *s, const uint8_t address[16])
{
    uint8_t key[16] = { 0 };
    memcpy(key, address, memcmp(address, mapped, sizeof mapped) == 0 ? 16 : 8);
    http_peer **bucket = &s->peers[peer_bucket(key)];
    http_peer *p = *bucket;
    while (p && memcmp(p->key, key, 16) != 0)
        p = p->next;
    if (!p) {
        p = calloc(1, sizeof *p);
        if (!p)
            return NULL;
        memcpy(p->key, key, 16);
        p->next = *bucket;
        *bucket = p;
    }
    if (p->count >= s->settings->connections_per_address &&
        !http_proxies_trust(&s->proxies, address))
        return NULL;
    p->count++;
    return p;
}

void http_peer_release(http_server *s, http_peer *p)
{
    if (--p->count > 0)
        return;
    http_peer **link = &s->peers[peer_bucket(p->key)];
    while (*link != p)
        link = &(*link)->next;
    *link = p->next;
    free(p);
}

// A key is cut to /64 where it is no mapped IPv4 address; all of ::/64 is our own.
bool http_peer_is_local(const http_peer *p)
{
    static const uint8_t six[16] = { 0 };
    static const uint8_t four[13] = { [10] = 0xff, [11] = 0xff, [12] = 127 };
    return memcmp(p->key, six, sizeof six) == 0 || memcmp(p->key, four, sizeof four) == 0;
}

void http_peer_format(const http_peer *p, char text[HTTP_ADDRESS_TEXT])
{
    char address[INET6_ADDRSTRLEN];
    if (memcmp(p->key, mapped, sizeof mapped) == 0) {
        inet_ntop(AF_INET, p->key + 12, text, HTTP_ADDRESS_TEXT);
        return;
    }
    inet_ntop(AF_INET6, p->key, address, sizeof address);
    snprintf(text, HTTP_ADDRESS_TEXT, "%s/64", address);
}
