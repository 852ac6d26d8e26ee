// Stop strings in a stream of text: finds the first one that is completed and lets through only
// what cannot be part of one.
//
// The match that ends first wins; of several that end at the same byte, the
// longest. So the text before the stop does not depend on how the stream is
// cut. One failure table a string (text/pattern.h): each byte is looked at
// once for each string, whatever the strings' lengths. One thread.
#pragma once

#include "base/buffer.h"
#include "base/status.h"

typedef struct stop stop;

#define STOP_STRINGS_MAX 64
#define STOP_BYTES_MAX ((size_t)1 << 20) // all strings together

// Copies the strings. Empty strings, too many or too long ones: STATUS_INVALID with param "stop".
// `count` 0 is fine: everything passes.
status stop_open(const slice *strings, size_t count, stop **opened, error *failure);
// The same strings, for a text of its own: they are not copied, so `other` must outlive it, and may
// have come as far as it likes. STATUS_NO_MEMORY.
status stop_open_again(const stop *other, stop **opened);
void stop_close(stop *s); // NULL is allowed

// Text as it comes. What is now certain goes to `text`. True when a stop string is complete: it and
// what follows it are dropped, and `s` lets nothing through any more.
bool stop_push(stop *s, slice arrived, buffer *text);
// The end of the stream: what was held back goes to `text` (nothing after a match).
void stop_end(stop *s, buffer *text);
// How many bytes are held back now.
size_t stop_held(const stop *s);
// The index of the string that matched, or -1.
int stop_matched(const stop *s);
slice stop_string(const stop *s, int index);
