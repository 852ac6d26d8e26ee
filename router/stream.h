// The answer of one request as its tokens come in: put in order, freed of repeats, turned into
// text, watched for stop strings.
//
// Workers report tokens by output index. What is already here is dropped, a gap is an error of that
// attempt. The tokens received so far are what the next attempt goes on from. Text that may be the
// beginning of a stop string, or half a character, is held back. A stop string ends the answer: the
// text ends before it, tokens after the one that completed it are neither delivered nor billed. The
// token of an end-of-generation or stop id is billed but gives no text. A stream belongs to the
// router's loop.
//
// Where the request asks for it, the text that was let through is told apart at once into thought,
// content and calls of functions (tools_answer.h).
#pragma once

#include "net/message.h"
#include "router/request.h"
#include "router/tools_answer.h"
#include "text/detokenizer.h"

// A generated token with what the client may ask to know of it.
typedef struct stream_token {
    int32_t id;
    float logprob;
    uint64_t logits_hash;
    uint32_t top_first, top_count; // in stream.top_ids and top_logprobs
    size_t text_end;               // bytes of raw text up to and with this token
    size_t character_begin;        // characters of raw text before it
} stream_token;

typedef struct stream {
    const request *request;
    size_t max_tokens;
    stop *stops; // its own: the request's strings
    detokenizer decoder;
    token_list received;   // generated tokens in order, earlier attempts included
    bool notes;            // the request asks for more than text, or its choices are ranked
    stream_token *tokens;  // with notes, one of each that was received; else NULL
    size_t token_capacity; // of tokens
    int32_t *top_ids;
    float *top_logprobs;
    size_t top_count, top_capacity;
    buffer text;     // let through, and not yet taken by stream_take
    buffer raw;      // scratch: text of the tokens at hand
    size_t raw_size; // bytes of text that tokens have given
    size_t raw_characters;
    size_t through;                      // bytes of text let through in all
    bool text_taken;                     // `text` is forgotten at the next push
    size_t taken_tokens;                 // tokens whose entries were taken
    size_t billed;                       // tokens that count
    size_t right_guesses, wrong_guesses; // as workers report them
    size_t visible; // tokens that may have entries: the ending id is not among them
    bool done;
    Penstock__Finish finish; // where done
    // Where the prompt gets log-probabilities; else NULL.
    stream_token *scores; // [prompt tokens], the first of which has no log-probability
    size_t score_count;   // known, the first one included
    const token_list *prompt;
    bool stopped_by_text; // a stop string, or the end of the one call that was wanted
    tool_answer *parts;   // NULL: the answer is nothing but text
} stream;

typedef enum stream_result {
    STREAM_NOTHING, // all of it was known
    STREAM_MORE,    // new tokens
    STREAM_DONE,    // and the last of them
    STREAM_GAP,     // tokens are missing: the attempt has failed
    STREAM_BROKEN,  // a token that the vocabulary lacks, or no memory
} stream_result;

// `r` and the tokenizer must outlive it. At most `max_tokens` are believed. STATUS_NO_MEMORY:
// nothing is left to close.
status stream_begin(stream *s, const request *r, size_t max_tokens, const tokenizer *tokens);
void stream_close(stream *s);
stream_result stream_push(stream *s, const message_token_update *update);

// Its prompt, which must outlive the stream; before the first push. Where it is echoed, the answer
// begins with its text; where it gets log-probabilities, the stream waits for their scores.
// STATUS_NO_MEMORY.
status stream_prompt(stream *s, const token_list *prompt);
// Scores of the prompt, taken in as tokens are. STREAM_DONE does not occur.
stream_result stream_scores_push(stream *s, const Penstock__PromptScores *scores);
// Whether some are missing: no token may come before.
bool stream_lacks_scores(const stream *s);

// What is new since the last take, for one chunk: the text (valid until the next push or take) and
// the entries [first, last) of `tokens` whose text is out.
typedef struct stream_part {
    slice text;
    size_t first, last;
} stream_part;
stream_part stream_take(stream *s);
// "stop" or "length".
const char *stream_finish_name(const stream *s);
