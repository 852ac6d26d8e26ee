// A bare socket against a mailbox: whoever speaks no protocol, or speaks it byte by byte.
#pragma once

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

// How long a socket waits for what it wants to hear, or for whoever comes.
static inline void bare_wait_long(int fd)
{
    struct timeval patience = { .tv_sec = 30 };
    assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience), 0);
}

// Connected to the port of `url` on this machine.
static inline int bare_reach(const char *url)
{
    struct sockaddr_in to = { .sin_family = AF_INET,
                              .sin_port = htons((uint16_t)atoi(strrchr(url, ':') + 1)),
                              .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_true(fd >= 0);
    bare_wait_long(fd);
    assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof to), 0);
    return fd;
}

// Until the other side ends the connection, whether or not it had read everything. A process that
// was stopped and goes on is interrupted.
static inline void bare_hear_end(int fd)
{
    uint8_t rest[1024];
    ssize_t got;
    do
        got = recv(fd, rest, sizeof rest, 0);
    while (got > 0 || (got < 0 && errno == EINTR));
    assert_true(got == 0 || errno == ECONNRESET);
    close(fd);
}
