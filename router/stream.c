#include "router/stream_private.h"

#include <stdlib.h>

status stream_begin(stream *s, const request *r, size_t max_tokens, const tokenizer *tokens)
{
    *s = (stream){ .request = r,
                   .max_tokens = max_tokens,
                   .notes = r->logprobs || r->logits_hash || r->choices > (size_t)r->n };
    s->decoder = detokenizer_continue(tokens, !r->skip_special_tokens);
    status result = stop_open_again(r->stops, &s->stops);
    if (result != STATUS_OK || (r->tools.format == TOOL_FORMAT_NONE && !r->reasons))
        return result;
    const char *mark = tool_format_mark(r->tools.format);
    if (mark)
        s->decoder.shown = tokenizer_special_find(tokens, slice_of(mark));
    s->parts = calloc(1, sizeof *s->parts);
    if (s->parts && tool_answer_begin(s->parts, &r->tools, r->reasons, r->in_thought))
        return STATUS_OK;
    stream_close(s);
    return STATUS_NO_MEMORY;
}

void stream_close(stream *s)
{
    token_list_close(&s->received);
    free(s->tokens);
    free(s->top_ids);
    free(s->top_logprobs);
    free(s->scores);
    stop_close(s->stops);
    buffer_close(&s->text);
    buffer_close(&s->raw);
    if (s->parts)
        tool_answer_close(s->parts);
    free(s->parts);
    *s = (stream){ 0 };
}

static bool tokens_reserve(stream *s)
{
    if (!s->notes || s->received.count < s->token_capacity)
        return true;
    size_t capacity = s->token_capacity ? 2 * s->token_capacity : 32;
    stream_token *grown = realloc(s->tokens, capacity * sizeof *grown);
    if (!grown)
        return false;
    s->tokens = grown;
    s->token_capacity = capacity;
    return true;
}

static bool tops_reserve(stream *s, size_t extra)
{
    if (s->top_count + extra <= s->top_capacity)
        return true;
    size_t capacity = (s->top_capacity ? 2 * s->top_capacity : 64) + extra;
    int32_t *ids = realloc(s->top_ids, capacity * sizeof *ids);
    if (ids)
        s->top_ids = ids;
    float *logprobs = realloc(s->top_logprobs, capacity * sizeof *logprobs);
    if (logprobs)
        s->top_logprobs = logprobs;
    if (!ids || !logprobs)
        return false;
    s->top_capacity = capacity;
    return true;
}

size_t stream_characters(slice text)
{
    size_t count = 0;
    for (size_t i = 0; i < text.size; i++)
        count += ((unsigned char)text.data[i] & 0xc0) != 0x80;
    return count;
}

slice stream_text_from(const stream *s, size_t begin)
{
    slice text = buffer_slice(&s->text); // never a null pointer, however little there is
    return (slice){ text.data + begin, text.size - begin };
}

// The text behind `before` was let through; true where the answer is over with it.
static bool text_arrived(stream *s, size_t before)
{
    slice fresh = stream_text_from(s, before);
    s->through += fresh.size;
    return s->parts && fresh.size > 0 && tool_answer_push(s->parts, fresh);
}

// The text that is new in `raw` goes through the stop strings; true where one is complete.
static bool text_push(stream *s)
{
    slice fresh = buffer_slice(&s->raw);
    s->raw_size += fresh.size;
    s->raw_characters += stream_characters(fresh);
    size_t before = s->text.size;
    bool stopped = fresh.size > 0 && stop_push(s->stops, fresh, &s->text);
    buffer_clear(&s->raw);
    if (stopped && s->request->include_stop)
        buffer_append_slice(&s->text, stop_string(s->stops, stop_matched(s->stops)));
    return text_arrived(s, before) || stopped;
}

// What was held back goes out.
static void text_finish(stream *s)
{
    if (s->stopped_by_text)
        return;
    detokenizer_end(&s->decoder, &s->raw);
    if (text_push(s)) { // an unfinished character completed one
        s->stopped_by_text = true;
        s->finish = PENSTOCK__FINISH__FINISH_STOP;
        return;
    }
    size_t before = s->text.size;
    stop_end(s->stops, &s->text);
    text_arrived(s, before);
}

static void stream_finish(stream *s, Penstock__Finish finish)
{
    s->done = true;
    s->finish = finish;
    text_finish(s);
    if (s->parts)
        tool_answer_end(s->parts);
}

bool stream_token_fill(stream *s, const message_token *t, stream_token *entry)
{
    if (!tops_reserve(s, t->n_top_ids))
        return false;
    *entry = (stream_token){ .id = t->id,
                             .logprob = t->logprob,
                             .logits_hash = t->logits_hash,
                             .top_first = (uint32_t)s->top_count,
                             .top_count = (uint32_t)t->n_top_ids,
                             .character_begin = s->raw_characters };
    for (size_t i = 0; i < t->n_top_ids; i++) {
        s->top_ids[s->top_count] = t->top_ids[i];
        s->top_logprobs[s->top_count++] = i < t->n_top_logprobs ? t->top_logprobs[i] : 0;
    }
    return true;
}

static void text_end_note(stream *s)
{
    if (s->notes)
        s->tokens[s->received.count - 1].text_end = s->raw_size;
}

// Take one new token. `ends`: it is the id that ended the generation, so its text is not part of
// the answer.
static stream_result token_push(stream *s, const message_token *t, bool ends)
{
    if (s->received.count >= s->max_tokens || !tokens_reserve(s) ||
        (s->notes && !stream_token_fill(s, t, &s->tokens[s->received.count])) ||
        !token_list_append(&s->received, t->id))
        return STREAM_BROKEN;
    s->billed = s->received.count;
    if (ends) {
        text_end_note(s);
        return STREAM_MORE;
    }
    if (detokenizer_push(&s->decoder, t->id, &s->raw) != STATUS_OK)
        return STREAM_BROKEN;
    s->stopped_by_text = text_push(s);
    text_end_note(s);
    s->visible = s->received.count;
    if (s->parts && s->parts->no_memory)
        return STREAM_BROKEN;
    return s->stopped_by_text ? STREAM_DONE : STREAM_MORE;
}

stream_result stream_push(stream *s, const message_token_update *update)
{
    size_t known = s->received.count;
    stream_result result = STREAM_NOTHING;
    if (s->done)
        return STREAM_NOTHING;
    if (s->text_taken)
        buffer_clear(&s->text);
    s->text_taken = false;
    if (update->first_index > known)
        return STREAM_GAP;
    bool final = update->finish != PENSTOCK__FINISH__FINISH_NONE;
    if (s->max_tokens == 0) { // nothing but the prompt was wanted; workers draw one token at least
        stream_finish(s, PENSTOCK__FINISH__FINISH_LENGTH);
        return STREAM_DONE;
    }
    if (update->first_index + update->n_tokens > known) {
        s->right_guesses += update->right_guesses;
        s->wrong_guesses += update->wrong_guesses;
    }
    for (size_t i = known - update->first_index; i < update->n_tokens; i++) {
        bool ends = i + 1 == update->n_tokens && update->finish == PENSTOCK__FINISH__FINISH_STOP;
        result = token_push(s, update->tokens[i], ends);
        if (result == STREAM_BROKEN)
            return result;
        if (result == STREAM_DONE) {
            stream_finish(s, PENSTOCK__FINISH__FINISH_STOP);
            return result;
        }
    }
    if (final) {
        stream_finish(s, update->finish);
        return STREAM_DONE;
    }
    return result;
}

// Whether the entry of token `index` may go out: with its text, not before it, and not for text
// that a stop string took away.
static bool entry_is_out(const stream *s, size_t index)
{
    if (s->stopped_by_text)
        return (index ? s->tokens[index - 1].text_end : 0) < s->through;
    size_t held = s->done ? 0 : stop_held(s->stops);
    return s->tokens[index].text_end <= s->raw_size - held;
}

stream_part stream_take(stream *s)
{
    size_t last = s->taken_tokens;
    while (s->notes && last < s->visible && entry_is_out(s, last))
        last++;
    stream_part part = { buffer_slice(&s->text), s->taken_tokens, last };
    s->taken_tokens = last;
    s->text_taken = true;
    return part;
}

const char *stream_finish_name(const stream *s)
{
    return s->finish == PENSTOCK__FINISH__FINISH_LENGTH ? "length" : "stop";
}
