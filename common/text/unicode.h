// UTF-8 and Unicode for text that came from outside: finding and repairing what is not well-formed,
// and normal form C. The shape of one sequence is in base/utf8. One of the two doors to utf8proc.
//
// Ill-formed bytes follow the WHATWG rule (Unicode 15, section 3.9, "maximal subpart"): the longest
// beginning of a sequence that could have become a character is one unit, and so is each other
// stray byte; a unit becomes one U+FFFD. Plain functions; any thread.
#pragma once

#include "base/buffer.h"
#include "base/status.h"

#define UNICODE_REPLACEMENT "\xef\xbf\xbd"

// Bytes (at least 1) of the ill-formed unit at the front of `text`, which must not be empty nor
// begin with a well-formed sequence. *unfinished: more bytes could still make it a character.
size_t unicode_ill_formed_size(slice text, bool *unfinished);
// Bytes at the front of `text` that are well-formed.
size_t unicode_valid_size(slice text);
// Append `text` with each ill-formed unit replaced.
void unicode_append_valid(buffer *out, slice text);
// The code point of the well-formed sequence at `data`, and its bytes.
int32_t unicode_decode(const char *data, size_t *size);
// Append a code point (not a surrogate, at most U+10FFFF).
void unicode_append(buffer *out, int32_t code_point);

// True where `text` is certainly in normal form C already (all of it below U+0300).
bool unicode_is_composed(slice text);
// Append the normal form C of well-formed `text`; time O(n log n) also for long runs of marks.
// STATUS_NO_MEMORY where memory is short.
status unicode_append_composed(buffer *out, slice text);
