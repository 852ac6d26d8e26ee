#include "net/fabric_private.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>

// Values that do not depend on the configuration; the reasons are measured, not guessed. Those of a
// transport (the part of the name behind UCX_) are set only where the list names it, because UCX
// warns of settings that nothing reads.
static const char *const fixed_settings[][2] = {
    { "UCX_SOCKADDR_TLS_PRIORITY", "tcp" }, // the default prefers rdmacm, which binds without RDMA
    { "UCX_TCP_CM_REUSEADDR", "y" },        // else a restart waits a minute for its port
    { "UCX_TCP_TX_SEG_SIZE", "256k" },      // 8 KiB segments cost half of the bandwidth
    { "UCX_TCP_RX_SEG_SIZE", "256k" },      //
    { "UCX_RNDV_SCHEME", "am" },         // fragments go by receive id, not by address (fabric.h);
    { "UCX_TCP_PUT_ENABLE", "n" },       // without this TCP puts by address all the same, and a
                                         // late answer to a put aborts the sender of a killed peer
    { "UCX_ZCOPY_THRESH", "inf" },       // see copies_anyway
    { "UCX_MAX_RNDV_RAILS", "1" },       // one device carries a pair
    { "UCX_KEEPALIVE_INTERVAL", "1s" },  // an idle connection that died is noticed
    { "UCX_TCP_KEEPIDLE", "1s" },        //
    { "UCX_TCP_KEEPINTVL", "1s" },       //
    { "UCX_TCP_KEEPCNT", "3" },          //
    { "UCX_TCP_MAX_NUM_EPS", "1024" },   // 256 by default
    { "UCX_POSIX_ERROR_HANDLING", "y" }, // shared memory is refused with error handling otherwise
    { "UCX_SYSV_ERROR_HANDLING", "y" },  //
};

static uint32_t same_address(const struct sockaddr *a, const struct sockaddr_storage *b)
{
    if (a == NULL || a->sa_family != b->ss_family)
        return 0;
    if (a->sa_family == AF_INET)
        return ((const struct sockaddr_in *)a)->sin_addr.s_addr ==
               ((const struct sockaddr_in *)b)->sin_addr.s_addr;
    if (a->sa_family == AF_INET6)
        return memcmp(&((const struct sockaddr_in6 *)a)->sin6_addr,
                      &((const struct sockaddr_in6 *)b)->sin6_addr, 16) == 0;
    return 0;
}

// Name of the interface that holds the address.
static status find_interface(const char *host, char name[64], error *failure)
{
    struct sockaddr_storage address;
    socklen_t size;
    status result = fabric_resolve(host, 0, true, &address, &size, failure);
    if (result != STATUS_OK)
        return result;
    struct ifaddrs *list;
    if (getifaddrs(&list) != 0)
        return error_set(failure, STATUS_IO, "fabric.host", "the interfaces cannot be listed");
    bool found = false;
    for (struct ifaddrs *i = list; i && !found; i = i->ifa_next) {
        found = same_address(i->ifa_addr, &address);
        if (found)
            snprintf(name, 64, "%s", i->ifa_name);
    }
    freeifaddrs(list);
    if (found)
        return STATUS_OK;
    return error_set(failure, STATUS_BAD_CONFIG, "fabric.host",
                     "fabric.host is \"%s\", but no interface of this machine holds that address",
                     host);
}

// True for a list of transports of which none sends straight from memory by hardware. Over TCP a
// zero-copy send is one that the kernel copies from our pages, and UCX 1.13 has a fault in it: when
// the peer resets the connection while such a send waits for room, it is given back twice, and an
// assertion ends this process with its peer (tests/unit/net/test_fabric.c). With a copy into
// UCX's own segments that cannot happen, and no difference of speed or processor time was measured.
// UCX_TCP_MAX_IOV=0, which would take zero-copy away from TCP alone, stops its short messages too.
static bool copies_anyway(const char *transports)
{
    static const char *const known[] = { "tcp", "self", "posix", "sysv", "cma", "mm", "sm", "shm" };
    bool all = *transports != 0;
    for (const char *at = transports; *at && all; at += *at == ',') {
        size_t length = strcspn(at, ",");
        bool found = false;
        for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
            found |= strlen(known[i]) == length && strncmp(at, known[i], length) == 0;
        all = found;
        at += length;
    }
    return all;
}

static bool is_read(const char *name, const char *transports)
{
    if (strcmp(name, "UCX_ZCOPY_THRESH") == 0)
        return copies_anyway(transports);
    static const char *const prefixes[][2] = { { "UCX_TCP_", "tcp" },
                                               { "UCX_POSIX_", "posix" },
                                               { "UCX_SYSV_", "sysv" } };
    for (size_t i = 0; i < 3; i++)
        if (strncmp(name, prefixes[i][0], strlen(prefixes[i][0])) == 0)
            return *transports == 0 || strstr(transports, prefixes[i][1]) ||
                   strstr(transports, "all") || (i > 0 && strstr(transports, "sm")) ||
                   (i > 0 && strstr(transports, "shm"));
    return true;
}

status fabric_environment(const char *transports, const char *devices, const char *host,
                          error *failure)
{
    char interface[64] = "";
    if (*devices == 0 && *host != 0 && getenv("UCX_NET_DEVICES") == NULL) {
        status result = find_interface(host, interface, failure);
        if (result != STATUS_OK)
            return result;
        devices = interface;
    }
    int failed = 0;
    for (size_t i = 0; i < sizeof(fixed_settings) / sizeof(fixed_settings[0]); i++)
        if (is_read(fixed_settings[i][0], transports))
            failed |= setenv(fixed_settings[i][0], fixed_settings[i][1], 0);
    // A device with addresses of both families offers the IPv4 one first, where an IPv6 peer finds
    // nobody.
    if (strchr(host, ':') && is_read("UCX_TCP_AF_PRIO", transports))
        failed |= setenv("UCX_TCP_AF_PRIO", "inet6,inet", 0);
    if (*transports)
        failed |= setenv("UCX_TLS", transports, 0);
    if (*devices)
        failed |= setenv("UCX_NET_DEVICES", devices, 0);
    if (failed)
        return error_set(failure, STATUS_NO_MEMORY, "", "the environment cannot grow");
    return STATUS_OK;
}

status fabric_resolve(const char *host, uint16_t port, bool names, struct sockaddr_storage *address,
                      socklen_t *size, error *failure)
{
    struct addrinfo hints = { .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM };
    hints.ai_flags = AI_NUMERICSERV | (names ? 0 : AI_NUMERICHOST);
    char service[8];
    snprintf(service, sizeof(service), "%u", port);
    struct addrinfo *list = NULL;
    int code = getaddrinfo(host, service, &hints, &list);
    if (code != 0 || list == NULL || list->ai_addrlen > sizeof(*address))
        return error_set(failure, names ? STATUS_BAD_CONFIG : STATUS_INVALID, "fabric.host",
                         "\"%s\" is not %s: %s", host, names ? "an address or name" : "an address",
                         gai_strerror(code));
    memcpy(address, list->ai_addr, list->ai_addrlen);
    *size = list->ai_addrlen;
    freeaddrinfo(list);
    return STATUS_OK;
}

void fabric_format_address(const struct sockaddr_storage *address, char host[64], uint16_t *port)
{
    char service[8] = "0";
    socklen_t size =
        address->ss_family == AF_INET6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in);
    host[0] = 0;
    if (getnameinfo((const struct sockaddr *)address, size, host, 64, service, sizeof(service),
                    NI_NUMERICHOST | NI_NUMERICSERV) != 0)
        snprintf(host, 64, "unknown");
    *port = (uint16_t)strtoul(service, NULL, 10);
}
