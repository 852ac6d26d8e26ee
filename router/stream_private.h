// Inside the stream: stream.c (the answer), stream_prompt.c (a prompt that is echoed).
#pragma once

#include "router/stream.h"

// Keep what a message says of a token in `entry`. False: no memory.
bool stream_token_fill(stream *s, const message_token *t, stream_token *entry);
size_t stream_characters(slice text);
// What is in `text` from this byte on, the answer's as the prompt's.
slice stream_text_from(const stream *s, size_t begin);
