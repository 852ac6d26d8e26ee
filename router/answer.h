// What clients read: answers, whole and in chunks, in the shape of the API that was asked. Written
// by hand into a buffer: these lines are the router's hottest code. Pure functions over an answer's
// identity and the streams of its choices.
//
// A shape is one table of functions, each in a file of its own where it is more than a variant. A
// further API adds a shape and a row in answer_shape_of; nobody else knows how an answer looks.
//
// Log-probabilities are taken before any filter; what is not finite or below it becomes
// ANSWER_LOGPROB_MIN, because JSON has no infinity.
#pragma once

#include "router/stream.h"

#define ANSWER_LOGPROB_MIN (-9999.0f)

// What a shape that writes its text in blocks has open.
typedef enum answer_block {
    ANSWER_BLOCK_NONE,
    ANSWER_BLOCK_TEXT,
    ANSWER_BLOCK_THOUGHT,
    ANSWER_BLOCK_CALL,
} answer_block;

// One sequence of the answer.
typedef struct answer_choice {
    size_t index; // as clients count: all of the first prompt, then those of the second
    stream *stream;
    const request_prompt *prompt;
    uint64_t cached_tokens;  // of the prompt, at most its length
    const char *fingerprint; // of the version that made it
    bool begun;              // a chunk of it was written
    answer_block block;      // of a stream: the open one, and its place
    size_t block_index;
    bool hidden; // it was made, and others of its prompt are better
} answer_choice;

typedef struct answer {
    const char *id; // with the shape's prefix
    uint64_t created_s;
    const char *model;
    const request *request;
    answer_choice *choices;
    size_t choice_count;
} answer;

// All have ended: where more were made of each prompt than are shown, those of the highest mean
// log-probability are, the best one first; the others are hidden.
void answer_rank(answer *a);

// What is billed: each prompt once, the tokens of every choice.
typedef struct answer_usage {
    uint64_t prompt, cached, generated;
    uint64_t right_guesses, wrong_guesses; // tokens that workers guessed (speculative decoding)
} answer_usage;
answer_usage answer_usage_of(const answer *a);

// Every function appends to `out`. Of a question that is answered without workers (`request_is_
// computed` says which) there are no choices, and only `whole` and `error` are asked for.
typedef struct answer_shape {
    const char *id_prefix; // "chatcmpl"
    // SSE events with what is new of one choice, and its finish reason once its stream is done.
    // Nothing where nothing is new.
    void (*chunk)(const answer *a, answer_choice *c, buffer *out);
    // What follows the last chunk of the last choice: usage where it was asked for, the end mark.
    void (*end)(const answer *a, buffer *out);
    // The whole object, for requests that do not stream.
    void (*whole)(const answer *a, buffer *out);
    // An error object; `param` and `code` may be NULL. As an event where the stream has begun.
    void (*error)(int status_code, const char *param, const char *code, const char *message,
                  bool event, buffer *out);
} answer_shape;

const answer_shape *answer_shape_of(request_kind kind);
