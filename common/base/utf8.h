// The shape of UTF-8, for the places where bytes from outside meet text: error sentences, log
// lines, JSON.
//
// Source: Unicode 15, table 3-7 (well-formed byte sequences). Normalisation and properties are in
// text/unicode. Plain functions; any thread.
#pragma once

#include <stddef.h>

// Bytes (1 to 4) of the well-formed sequence at `data`, or 0 where the first of the `size` bytes
// does not begin one (overlong, surrogate, past U+10FFFF, cut off). 0 for size 0.
size_t utf8_sequence_size(const char *data, size_t size);

// How much of `text` to show where there is room for `most` bytes: no cut goes through a character.
// An int, as a precision of printf wants it.
int utf8_fit(const char *text, size_t most);

// Replace in place every byte of the NUL-terminated `text` that is a control character or not part
// of a well-formed sequence by '?'.
void utf8_make_printable(char *text);
