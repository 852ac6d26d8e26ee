// How a pair finds its peer: one side listens, the other one dials until somebody answers. Who
// connects must greet as a pair does (net/mailbox_wire.h) within 10 s; the first that did is handed
// to the owner, and everybody who comes later is turned away. Up to MEETING_GUESTS may be greeting
// at a time, so that a silent stranger keeps nobody out. Not for others than mailbox_*.c.
#pragma once

#include "net/mailbox_internal.h"

#define MEETING_GUESTS 8

typedef struct mailbox_meeting mailbox_meeting;

// 10 s from when somebody has connected, TLS's handshake included. Tests change it, for the
// meetings that they open afterwards.
extern int mailbox_greeting_ms;

// On one of nng's threads, once or more often: `stream` is a peer that has greeted. True: the owner
// has taken it, and nobody else is offered; false: it is turned away.
typedef bool mailbox_met(void *owner, nng_stream *stream);

// STATUS_IO and a sentence where the address cannot be used. `real_url`: with the port that the
// system picked. Nothing is offered before mailbox_meeting_begin.
status mailbox_meeting_listen(const char *url, mailbox_met *met, void *owner,
                              char real_url[MAILBOX_URL_MAX], mailbox_meeting **made,
                              error *failure);
status mailbox_meeting_dial(const char *url, const char *peer_name, mailbox_met *met, void *owner,
                            mailbox_meeting **made, error *failure);
void mailbox_meeting_begin(mailbox_meeting *m);
// Offer nobody any more; does not wait. NULL is allowed.
void mailbox_meeting_stop(mailbox_meeting *m);
// Waits for what is under way, but not for peers; never inside `met`. NULL is allowed.
void mailbox_meeting_close(mailbox_meeting *m);
