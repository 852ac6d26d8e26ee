#include "router/answer_private.h"

#include "base/utf8.h"
#include "net/http.h"

#include <inttypes.h>
#include <math.h>

static void append_logprob(buffer *out, float logprob)
{
    if (!isfinite(logprob) || logprob < ANSWER_LOGPROB_MIN)
        logprob = ANSWER_LOGPROB_MIN;
    buffer_printf(out, "%.9g", (double)logprob);
}

static bool is_utf8(slice text)
{
    for (size_t at = 0; at < text.size;) {
        size_t size = utf8_sequence_size(text.data + at, text.size - at);
        if (size == 0)
            return false;
        at += size;
    }
    return true;
}

// A token's text as a JSON string. Tokens that are not whole characters are spelt "bytes:\xf0", so
// that two of them are never the same key.
void answer_append_token_text(buffer *out, slice bytes)
{
    if (is_utf8(bytes)) {
        buffer_append_json(out, bytes);
        return;
    }
    buffer_append_text(out, "\"bytes:");
    for (size_t i = 0; i < bytes.size; i++)
        buffer_printf(out, "\\\\x%02x", (unsigned char)bytes.data[i]);
    buffer_append_byte(out, '"');
}

static void append_bytes(buffer *out, slice bytes)
{
    buffer_append_byte(out, '[');
    for (size_t i = 0; i < bytes.size; i++)
        buffer_printf(out, i ? ",%u" : "%u", (unsigned char)bytes.data[i]);
    buffer_append_byte(out, ']');
}

// ---- log-probabilities ------------------------------------------------------------------------

static void append_chat_entry(buffer *out, slice bytes, float logprob)
{
    buffer_append_text(out, "{\"token\":");
    buffer_append_json(out, bytes);
    buffer_append_text(out, ",\"logprob\":");
    append_logprob(out, logprob);
    buffer_append_text(out, ",\"bytes\":");
    append_bytes(out, bytes);
}

static void append_chat_logprobs(const answer *a, const stream *s, const stream_part *part,
                                 buffer *out)
{
    const tokenizer *tokens = s->decoder.tokens;
    buffer_append_text(out, "{\"content\":[");
    for (size_t i = part->first; i < part->last; i++) {
        const stream_token *t = &s->tokens[i];
        if (i > part->first)
            buffer_append_byte(out, ',');
        append_chat_entry(out, tokenizer_token_bytes(tokens, t->id), t->logprob);
        buffer_append_text(out, ",\"top_logprobs\":[");
        for (uint32_t k = 0; k < t->top_count && k < a->request->top_logprobs; k++) {
            if (k)
                buffer_append_byte(out, ',');
            append_chat_entry(out, tokenizer_token_bytes(tokens, s->top_ids[t->top_first + k]),
                              s->top_logprobs[t->top_first + k]);
            buffer_append_byte(out, '}');
        }
        buffer_append_text(out, "]}");
    }
    buffer_append_text(out, "],\"refusal\":null}");
}

static void append_tops(const answer *a, const stream *s, const stream_token *t, buffer *out)
{
    buffer_append_byte(out, '{');
    for (uint32_t k = 0; k < t->top_count && k < a->request->top_logprobs; k++) {
        if (k)
            buffer_append_byte(out, ',');
        answer_append_token_text(
            out, tokenizer_token_bytes(s->decoder.tokens, s->top_ids[t->top_first + k]));
        buffer_append_byte(out, ':');
        append_logprob(out, s->top_logprobs[t->top_first + k]);
    }
    buffer_append_byte(out, '}');
}

// Entries of a chunk: `lead` tokens of the prompt, then those of the part.
static const stream_token *entry_at(const stream *s, const stream_part *part, size_t lead, size_t i)
{
    return i < lead ? &s->scores[i] : &s->tokens[part->first + i - lead];
}

static void append_completion_logprobs(const answer *a, const stream *s, const stream_part *part,
                                       size_t lead, buffer *out)
{
    size_t count = lead + part->last - part->first;
    buffer_append_text(out, "{\"tokens\":[");
    for (size_t i = 0; i < count; i++) {
        if (i > 0)
            buffer_append_byte(out, ',');
        answer_append_token_text(
            out, tokenizer_token_bytes(s->decoder.tokens, entry_at(s, part, lead, i)->id));
    }
    buffer_append_text(out, "],\"token_logprobs\":[");
    for (size_t i = 0; i < count; i++) {
        if (i > 0)
            buffer_append_byte(out, ',');
        if (i == 0 && lead > 0) // nothing came before it
            buffer_append_text(out, "null");
        else
            append_logprob(out, entry_at(s, part, lead, i)->logprob);
    }
    buffer_append_text(out, "],\"top_logprobs\":");
    if (a->request->top_logprobs > 0) {
        buffer_append_byte(out, '[');
        for (size_t i = 0; i < count; i++) {
            if (i > 0)
                buffer_append_byte(out, ',');
            if (i == 0 && lead > 0)
                buffer_append_text(out, "null");
            else
                append_tops(a, s, entry_at(s, part, lead, i), out);
        }
        buffer_append_byte(out, ']');
    } else {
        buffer_append_text(out, "null");
    }
    buffer_append_text(out, ",\"text_offset\":[");
    for (size_t i = 0; i < count; i++)
        buffer_printf(out, i > 0 ? ",%zu" : "%zu", entry_at(s, part, lead, i)->character_begin);
    buffer_append_text(out, "]}");
}

// A member of prompt_logprobs: "id":{...}. `rank` 0: not among the alternatives.
static void append_prompt_entry(const stream *s, int32_t id, float logprob, uint32_t rank,
                                buffer *out)
{
    buffer_printf(out, "\"%d\":{\"logprob\":", id);
    append_logprob(out, logprob);
    if (rank > 0)
        buffer_printf(out, ",\"rank\":%u,\"decoded_token\":", rank);
    else
        buffer_append_text(out, ",\"rank\":null,\"decoded_token\":");
    answer_append_token_text(out, tokenizer_token_bytes(s->decoder.tokens, id));
    buffer_append_byte(out, '}');
}

// Of each token of the prompt but the first: itself, then the alternatives that it is not.
static void append_prompt_logprobs(const answer *a, const stream *s, buffer *out)
{
    if (!a->request->prompt_logprobs)
        return;
    buffer_append_text(out, ",\"prompt_logprobs\":[null"); // nothing came before the first one
    for (size_t i = 1; i < s->score_count; i++) {
        const stream_token *t = &s->scores[i];
        const int32_t *ids = s->top_ids + t->top_first;
        uint32_t rank = 0;
        for (uint32_t k = 0; k < t->top_count && rank == 0; k++)
            rank = ids[k] == t->id ? k + 1 : 0;
        buffer_append_text(out, ",{");
        append_prompt_entry(s, t->id, t->logprob, rank, out);
        for (uint32_t k = 0; k < t->top_count && k < a->request->prompt_top_logprobs; k++) {
            if (ids[k] == t->id)
                continue;
            buffer_append_byte(out, ',');
            append_prompt_entry(s, ids[k], s->top_logprobs[t->top_first + k], k + 1, out);
        }
        buffer_append_byte(out, '}');
    }
    buffer_append_byte(out, ']');
}

// `first`: it is the beginning of the choice, where an echoed prompt stands.
static void append_logprobs(const answer *a, const stream *s, const stream_part *part, bool first,
                            buffer *out)
{
    size_t lead = first && s->scores && a->request->echo ? s->prompt->count : 0;
    buffer_append_text(out, ",\"logprobs\":");
    if (!a->request->logprobs || (part->first == part->last && lead == 0 && s->billed > 0))
        buffer_append_text(out, "null");
    else if (a->request->kind == REQUEST_CHAT)
        append_chat_logprobs(a, s, part, out);
    else
        append_completion_logprobs(a, s, part, lead, out);
}

// ---- the common parts -------------------------------------------------------------------------

static void append_head(const answer *a, const char *fingerprint, const char *object, buffer *out)
{
    buffer_printf(out, "{\"id\":\"%s\",\"object\":\"%s\",\"created\":%" PRIu64 ",\"model\":", a->id,
                  object, a->created_s);
    buffer_append_json(out, slice_of(a->model));
    buffer_printf(out, ",\"system_fingerprint\":\"%s\",\"choices\":[", fingerprint);
}

answer_usage answer_usage_of(const answer *a)
{
    answer_usage usage = { 0 };
    const request_prompt *prompt = NULL;
    for (size_t i = 0; i < a->choice_count; i++) {
        const answer_choice *c = &a->choices[i];
        usage.generated += c->stream->billed;
        usage.right_guesses += c->stream->right_guesses;
        usage.wrong_guesses += c->stream->wrong_guesses;
        if (c->prompt == prompt)
            continue;
        prompt = c->prompt; // its first choice
        usage.prompt += prompt->tokens.count;
        usage.cached += c->cached_tokens;
    }
    return usage;
}

static double mean_logprob(const stream *s)
{
    double sum = 0;
    for (size_t i = 0; i < s->billed; i++)
        sum += (double)s->tokens[i].logprob;
    return s->billed ? sum / (double)s->billed : 0;
}

void answer_rank(answer *a)
{
    size_t shown = (size_t)a->request->n, made = a->request->choices;
    for (size_t i = 0; shown < made && i < a->choice_count; i++) {
        size_t first = i - i % made, better = 0;
        double mean = mean_logprob(a->choices[i].stream);
        for (size_t k = first; k < first + made; k++) {
            double other = mean_logprob(a->choices[k].stream);
            better += other > mean || (k < i && !(other < mean));
        }
        a->choices[i].index = first / made * shown + better;
        a->choices[i].hidden = better >= shown;
    }
}

static void append_usage(const answer *a, buffer *out)
{
    answer_usage usage = answer_usage_of(a);
    buffer_printf(out,
                  "\"usage\":{\"prompt_tokens\":%" PRIu64 ",\"completion_tokens\":%" PRIu64
                  ",\"total_tokens\":%" PRIu64
                  ",\"prompt_tokens_details\":{\"cached_tokens\":%" PRIu64
                  "},\"completion_tokens_details\":{\"accepted_prediction_tokens\":%" PRIu64
                  ",\"rejected_prediction_tokens\":%" PRIu64 "}}",
                  usage.prompt, usage.generated, usage.prompt + usage.generated, usage.cached,
                  usage.right_guesses, usage.wrong_guesses);
}

// The hashes of tokens [first, last), the ending one included.
static void append_hashes(const answer *a, const stream *s, size_t first, size_t last, buffer *out)
{
    if (!a->request->logits_hash)
        return;
    buffer_append_text(out, ",\"penstock\":{\"logits_hash\":[");
    for (size_t i = first; i < last; i++)
        buffer_printf(out, i > first ? ",\"%016" PRIx64 "\"" : "\"%016" PRIx64 "\"",
                      s->tokens[i].logits_hash);
    buffer_append_text(out, "]}");
}

static void append_finish(const stream *s, buffer *out)
{
    bool calls =
        s->parts && s->parts->whole_count > 0 && s->finish != PENSTOCK__FINISH__FINISH_LENGTH;
    if (s->done)
        buffer_printf(out, ",\"finish_reason\":\"%s\"",
                      calls ? "tool_calls" : stream_finish_name(s));
    else
        buffer_append_text(out, ",\"finish_reason\":null");
}

// ---- answers ----------------------------------------------------------------------------------

static bool is_chat(const answer *a)
{
    return a->request->kind == REQUEST_CHAT;
}

// The new text of a chunk, in the member where it belongs.
static void append_delta(const answer *a, stream *s, slice text, bool first, buffer *out)
{
    if (!is_chat(a)) {
        buffer_append_text(out, "\"text\":");
        buffer_append_json(out, text);
        return;
    }
    buffer_append_text(out, "\"delta\":{");
    if (s->parts) {
        tool_answer_append_delta(s->parts, first, out);
        tool_answer_taken(s->parts);
    } else {
        buffer_append_text(out, first ? "\"role\":\"assistant\",\"content\":" : "\"content\":");
        buffer_append_json(out, text);
    }
    buffer_append_byte(out, '}');
}

static void write_chunk(const answer *a, answer_choice *c, buffer *out)
{
    bool had_begun = c->begun;
    stream *s = c->stream;
    stream_part part = stream_take(s);
    bool news = s->parts ? tool_answer_has_news(s->parts) : part.text.size > 0;
    if (!news && part.first == part.last && had_begun && !s->done)
        return;
    c->begun = true;
    buffer_append_text(out, "data: ");
    append_head(a, c->fingerprint, is_chat(a) ? "chat.completion.chunk" : "text_completion", out);
    buffer_printf(out, "{\"index\":%zu,", c->index);
    append_delta(a, s, part.text, !had_begun, out);
    append_logprobs(a, s, &part, !had_begun, out);
    append_finish(s, out);
    append_hashes(a, s, part.first, s->done ? s->billed : part.last, out);
    buffer_append_text(out, "}]");
    if (a->request->continuous_usage) {
        buffer_append_byte(out, ',');
        append_usage(a, out);
    }
    buffer_append_text(out, "}\n\n");
}

static void write_end(const answer *a, buffer *out)
{
    if (a->request->include_usage) {
        buffer_append_text(out, "data: ");
        append_head(a, a->choices[0].fingerprint,
                    is_chat(a) ? "chat.completion.chunk" : "text_completion", out);
        buffer_append_text(out, "],");
        append_usage(a, out);
        buffer_append_text(out, "}\n\n");
    }
    buffer_append_text(out, "data: [DONE]\n\n");
}

void answer_error(int status_code, const char *param, const char *code, const char *message,
                  bool event, buffer *out)
{
    if (event)
        buffer_append_text(out, "data: ");
    http_error_body(out, http_error_type(status_code), param, code, message);
    if (event)
        buffer_append_text(out, "\n\n");
}

static void append_text(const answer *a, const stream *s, slice text, buffer *out)
{
    if (!is_chat(a)) {
        buffer_append_text(out, "\"text\":");
        buffer_append_json(out, text);
        return;
    }
    buffer_append_text(out, "\"message\":{\"role\":\"assistant\",");
    if (s->parts) {
        tool_answer_append_message(s->parts, out);
    } else {
        buffer_append_text(out, "\"content\":");
        buffer_append_json(out, text);
    }
    buffer_append_text(out, ",\"refusal\":null}");
}

static void write_whole_choice(const answer *a, answer_choice *c, buffer *out)
{
    stream_part part = stream_take(c->stream);
    buffer_printf(out, "{\"index\":%zu,", c->index);
    append_text(a, c->stream, part.text, out);
    append_logprobs(a, c->stream, &part, true, out);
    if (!is_chat(a))
        append_prompt_logprobs(a, c->stream, out);
    append_finish(c->stream, out);
    append_hashes(a, c->stream, part.first, c->stream->billed, out);
    buffer_append_byte(out, '}');
}

static void write_whole(const answer *a, buffer *out)
{
    append_head(a, a->choices[0].fingerprint, is_chat(a) ? "chat.completion" : "text_completion",
                out);
    for (size_t index = 0; index < a->request->prompt_count * (size_t)a->request->n; index++) {
        if (index > 0)
            buffer_append_byte(out, ',');
        for (size_t i = 0; i < a->choice_count; i++)
            if (a->choices[i].index == index && !a->choices[i].hidden)
                write_whole_choice(a, &a->choices[i], out);
    }
    buffer_append_byte(out, ']');
    if (is_chat(a)) // one prompt
        append_prompt_logprobs(a, a->choices[0].stream, out);
    buffer_append_byte(out, ',');
    append_usage(a, out);
    buffer_append_byte(out, '}');
}

const answer_shape *answer_shape_of(request_kind kind)
{
    static const answer_shape talk = { "chatcmpl", write_chunk, write_end, write_whole,
                                       answer_error };
    static const answer_shape text = { "cmpl", write_chunk, write_end, write_whole, answer_error };
    static const answer_shape *const shapes[REQUEST_KINDS] = {
        [REQUEST_CHAT] = &talk,
        [REQUEST_COMPLETION] = &text,
        [REQUEST_MESSAGES] = &answer_shape_messages,
        [REQUEST_MESSAGES_COUNT] = &answer_shape_messages_count,
        [REQUEST_TOKENIZE] = &answer_shape_tokenize,
        [REQUEST_DETOKENIZE] = &answer_shape_detokenize,
    };
    return shapes[kind];
}
