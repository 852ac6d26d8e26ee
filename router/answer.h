// The JSON of answers, whole and in chunks, as OpenAI's API shapes it. Written by hand into a
// buffer: these lines are the router's hottest code. Pure functions over an answer's identity and
// its stream.
//
// Log-probabilities are taken before any filter; what is not finite or below it becomes
// ANSWER_LOGPROB_MIN, because JSON has no infinity.
#pragma once

#include "router/stream.h"

#define ANSWER_LOGPROB_MIN (-9999.0f)

typedef struct answer {
    const char *id; // "chatcmpl-..." or "cmpl-..."
    uint64_t created_s;
    const char *model;
    const char *fingerprint;
    const request *request;
    stream *stream;
    uint64_t cached_tokens; // of the prompt, at most its length
    bool begun;             // a chunk was written: the role is out
} answer;

// One SSE event ("data: {...}\n\n") with what is new, and the finish reason once the stream is
// done. Appends nothing where nothing is new.
void answer_chunk(answer *a, buffer *out);
// The event with the usage, and the end mark.
void answer_usage_chunk(const answer *a, buffer *out);
void answer_done_mark(buffer *out);
// An error in a stream that has begun.
void answer_error_chunk(const char *type, const char *code, const char *message, buffer *out);
// The whole object, for requests that do not stream.
void answer_whole(answer *a, buffer *out);
