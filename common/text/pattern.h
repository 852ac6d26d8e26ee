// A text that is looked for in a stream of bytes. The failure table (Knuth, Morris, Pratt 1977)
// makes that linear whatever both are: a byte costs two comparisons on average.
#pragma once

#include "base/buffer.h"

typedef struct pattern {
    slice text;         // at least one byte; the caller's
    uint32_t *fallback; // [text.size], the caller's. [i]: the longest proper beginning that ends
                        // text[0, i + 1)
    uint32_t matched;   // bytes of it that end the stream so far
} pattern;

// Fill the table of a pattern that has its text.
void pattern_prepare(pattern *p);
// The next byte of the stream; true where the pattern ends with it. Then nothing may follow until
// `matched` is less than all of the text: 0, or pattern_again.
static inline bool pattern_push(pattern *p, char byte)
{
    while (p->matched > 0 && p->text.data[p->matched] != byte)
        p->matched = p->fallback[p->matched - 1];
    if (p->text.data[p->matched] == byte)
        p->matched++;
    return p->matched == p->text.size;
}
// Go on behind a match, for one that overlaps it.
static inline void pattern_again(pattern *p)
{
    p->matched = p->fallback[p->matched - 1];
}
