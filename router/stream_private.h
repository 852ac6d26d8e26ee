// Inside the stream: stream.c (the answer), stream_prompt.c (a prompt that is echoed).
#pragma once

#include "router/stream.h"

// Keep what a message says of a token in `entry`. False: no memory.
bool stream_token_fill(stream *s, const message_token *t, stream_token *entry);
size_t stream_characters(slice text);
