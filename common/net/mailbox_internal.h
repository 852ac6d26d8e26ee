// What mailbox.c and mailbox_pair.c share: events that own an nng message. Not for others.
#pragma once

#include "net/mailbox.h"

#include <nng/nng.h>

#define MAILBOX_URL_MAX 192

// A new event, NULL where memory is short. It takes `message` (may be NULL) over only on success.
mailbox_event *mailbox_event_new(mailbox_event_kind kind, void *owner, nng_msg *message);
// A copy of `data` as an nng message; NULL where memory is short.
nng_msg *mailbox_message_new(slice data);
// A sentence for an nng error about `url`.
status mailbox_failed(error *failure, const char *url, const char *what, int code);
// Open a listener at `url` on `socket`; `real_url` gets the address with the port that the system
// picked.
status mailbox_listen(nng_socket socket, const char *url, char real_url[MAILBOX_URL_MAX],
                      error *failure);
// Begin to dial in the background; nng's code.
int mailbox_dial(nng_socket socket, const char *url, const char *peer_name);
// mailbox_tls.c: what tls+tcp addresses need before they start; 0 for others. nng's code.
int mailbox_secure_listener(nng_listener listener, const char *url);
int mailbox_secure_dialer(nng_dialer dialer, const char *url, const char *peer_name);
int mailbox_secure_stream_listener(nng_stream_listener *listener, const char *url);
int mailbox_secure_stream_dialer(nng_stream_dialer *dialer, const char *url, const char *peer_name);
bool mailbox_encrypted(const char *url);
// nng 1.5's TLS lets a stream's operation wait for ever that begins when the connection has just
// failed, and tells nobody. So of an encrypted one it is asked afterwards: true: close the stream.
bool mailbox_failed_unheard(nng_stream *stream);
// An event of a server goes back: the context may receive the next request.
void mailbox_request_release(void *context);
// Call `close` with `argument` a little later, on a thread of its own: it may wait. What is under
// way on a connection ends meanwhile. nng 1.5 loses a connection's receive for ever, and with it
// the thread that buries connections, where one of its sockets is closed between a message's head
// and its body (its issues 1543 and 1813); so the owner of a socket first stops receiving and
// sending.
void mailbox_close_later(void (*close)(void *argument), void *argument);
