// One side of a hand-off for the tests: a pool, a hand-off and the events it gave, for one thread.
//
// A page's bytes are a function of (content, page), so that every test can say what must have
// arrived.
#pragma once

#include "handoff/handoff.h"

#include "base/clock.h"
#include "harness/fabric_exec.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <fcntl.h>

#define PEER_PAGES 192
#define PEER_PAGE_TOKENS 32u
#define PEER_EVENTS 512

typedef struct peer {
    handoff *h;
    handoff_settings settings;
    handoff_identity identity;
    uint8_t *pool;
    size_t page_bytes;
    handoff_event events[PEER_EVENTS]; // taken and not yet matched
    int count;
    int shipped; // SHIPPED events, which are only counted
} peer;

static inline void peer_settings(handoff_settings *settings)
{
    *settings = (handoff_settings){ .host = "127.0.0.1",
                                    .transports = "tcp,self",
                                    .devices = "",
                                    .checksums = true,
                                    .run_bytes = 262144,
                                    .window = 4,
                                    .suspect_us = 500000,
                                    .fail_us = 1200000,
                                    .connect_us = 3000000,
                                    .peers = 64 };
}

static inline void peer_prepare(peer *p, uint64_t incarnation, size_t page_bytes)
{
    *p = (peer){ .page_bytes = page_bytes };
    peer_settings(&p->settings);
    p->identity = (handoff_identity){ .incarnation = incarnation,
                                      .model_name = "model",
                                      .architecture = "llama",
                                      .kv_layout = "cpu-f16-1",
                                      .weights = { 1, 2 },
                                      .numeric_id = { 3, 4 },
                                      .page_tokens = PEER_PAGE_TOKENS,
                                      .context = PEER_PAGES * PEER_PAGE_TOKENS,
                                      .vocabulary = 1000,
                                      .page_bytes = page_bytes };
    p->pool = calloc(PEER_PAGES, page_bytes);
}

static inline void peer_open(peer *p, bool listen)
{
    error failure;
    if (handoff_open(&p->settings, &p->identity, listen, p->pool, PEER_PAGES * p->page_bytes, &p->h,
                     &failure) != STATUS_OK) {
        fprintf(stderr, "%s\n", failure.text);
        abort();
    }
}

static inline void peer_close(peer *p)
{
    handoff_close(p->h);
    free(p->pool);
}

static inline handoff_peer peer_address(const peer *p)
{
    handoff_peer address = { .incarnation = p->identity.incarnation };
    handoff_address(p->h, address.host, &address.port);
    return address;
}

static inline void peer_take_events(peer *p)
{
    handoff_event *event;
    while ((event = handoff_event_next(p->h))) {
        if (p->count == PEER_EVENTS)
            abort();
        if (event->kind == HANDOFF_SHIPPED)
            p->shipped++;
        else
            p->events[p->count++] = *event;
        handoff_event_free(event);
    }
}

// Wait for the event of this kind and key; false when it does not come in time.
static inline bool peer_wait(peer *p, handoff_event_kind kind, handoff_key key, int64_t timeout_us,
                             handoff_event *found)
{
    uint64_t end_us = clock_now_us() + (uint64_t)timeout_us;
    for (;;) {
        peer_take_events(p);
        for (int i = 0; i < p->count; i++) {
            if (p->events[i].kind != kind || p->events[i].key.number != key.number ||
                p->events[i].key.attempt != key.attempt)
                continue;
            if (found)
                *found = p->events[i];
            p->events[i] = p->events[--p->count];
            return true;
        }
        if (clock_now_us() > end_us)
            return false;
        clock_sleep_us(200);
    }
}

static inline uint8_t peer_byte(uint32_t content, uint32_t page, size_t at)
{
    uint32_t x = content * 2654435761u + page * 40503u + (uint32_t)at * 2246822519u;
    return (uint8_t)((x ^ x >> 15) >> 8);
}

// Give page `index` of the sequence, at `page` of the pool, the bytes of `content`.
static inline void peer_fill(peer *p, int32_t page, uint32_t content, uint32_t index)
{
    uint8_t *data = p->pool + (size_t)page * p->page_bytes;
    for (size_t i = 0; i < p->page_bytes; i++)
        data[i] = peer_byte(content, index, i);
}

static inline bool peer_holds(const peer *p, int32_t page, uint32_t content, uint32_t index)
{
    const uint8_t *data = p->pool + (size_t)page * p->page_bytes;
    for (size_t i = 0; i < p->page_bytes; i++)
        if (data[i] != peer_byte(content, index, i))
            return false;
    return true;
}

static inline bool peer_untouched(const peer *p, int32_t page)
{
    const uint8_t *data = p->pool + (size_t)page * p->page_bytes;
    for (size_t i = 0; i < p->page_bytes; i++)
        if (data[i] != 0)
            return false;
    return true;
}

// `count` pages of the pool from `base`, every `step`-th.
static inline void peer_pages(int32_t *pages, int32_t count, int32_t base, int32_t step)
{
    for (int32_t i = 0; i < count; i++)
        pages[i] = base + i * step;
}

// File descriptors that this process has open.
static inline int peer_open_files(void)
{
    int count = 0;
    for (int fd = 0; fd < 1024; fd++)
        count += fcntl(fd, F_GETFD) >= 0;
    return count;
}
