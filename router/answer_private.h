// Inside the writing of answers: the shapes, one file each.
#pragma once

#include "router/answer.h"

extern const answer_shape answer_shape_messages, answer_shape_messages_count; // answer_messages.c
extern const answer_shape answer_shape_tokenize, answer_shape_detokenize;     // answer_tokenize.c

// OpenAI's error object.
void answer_error(int status_code, const char *param, const char *code, const char *message,
                  bool event, buffer *out);
// A token's text as a JSON string. Tokens that are not whole characters are spelt "bytes:\xf0", so
// that two of them are never the same.
void answer_append_token_text(buffer *out, slice bytes);
