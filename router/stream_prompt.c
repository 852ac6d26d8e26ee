// A prompt that is echoed or scored: its text, and how likely its tokens were.
#include "router/stream_private.h"

#include <stdlib.h>

// The text of each token, and where it begins.
static status prompt_text(stream *s, const token_list *prompt)
{
    detokenizer decoder = detokenizer_begin(s->decoder.tokens, s->decoder.keep_control);
    for (size_t i = 0; i < prompt->count; i++) {
        size_t before = s->text.size;
        if (s->scores)
            s->scores[i].character_begin = s->raw_characters;
        if (detokenizer_push(&decoder, prompt->ids[i], &s->text) != STATUS_OK)
            return STATUS_INTERNAL; // ids were checked
        s->raw_characters += stream_characters(stream_text_from(s, before));
    }
    size_t before = s->text.size;
    detokenizer_end(&decoder, &s->text);
    s->raw_characters += stream_characters(stream_text_from(s, before));
    return s->text.overflow ? STATUS_NO_MEMORY : STATUS_OK;
}

status stream_prompt(stream *s, const token_list *prompt)
{
    if (request_scores_prompt(s->request)) {
        s->scores = calloc(prompt->count, sizeof *s->scores);
        if (!s->scores)
            return STATUS_NO_MEMORY;
        for (size_t i = 0; i < prompt->count; i++)
            s->scores[i].id = prompt->ids[i];
        s->prompt = prompt;
        s->score_count = 1;
    }
    return s->request->echo ? prompt_text(s, prompt) : STATUS_OK;
}

stream_result stream_scores_push(stream *s, const Penstock__PromptScores *m)
{
    size_t known = s->score_count;
    if (!s->scores || m->first_position + m->n_tokens > s->prompt->count)
        return STREAM_BROKEN;
    if (m->first_position > known)
        return STREAM_GAP;
    for (size_t i = known - m->first_position; i < m->n_tokens; i++) {
        stream_token *entry = &s->scores[s->score_count];
        size_t begin = entry->character_begin;
        if (m->tokens[i]->id != s->prompt->ids[s->score_count] ||
            !stream_token_fill(s, m->tokens[i], entry))
            return STREAM_BROKEN;
        entry->character_begin = begin;
        s->score_count++;
    }
    return s->score_count > known ? STREAM_MORE : STREAM_NOTHING;
}

bool stream_lacks_scores(const stream *s)
{
    return s->scores && s->score_count < s->prompt->count;
}
