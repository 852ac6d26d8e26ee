// Answers of /tokenize and /detokenize.
#include "router/answer_private.h"

static void write_tokens(const answer *a, buffer *out)
{
    const token_list *ids = &a->request->prompts[0].tokens;
    const tokenizer *tokens = a->request->model->prompt.tokens;
    buffer_printf(out, "{\"count\":%zu,\"max_model_len\":%u,\"tokens\":[", ids->count,
                  model_context(a->request->model));
    for (size_t i = 0; i < ids->count; i++)
        buffer_printf(out, i > 0 ? ",%d" : "%d", ids->ids[i]);
    buffer_append_text(out, "],\"token_strs\":");
    if (!a->request->token_texts) {
        buffer_append_text(out, "null}");
        return;
    }
    buffer_append_byte(out, '[');
    for (size_t i = 0; i < ids->count; i++) {
        if (i > 0)
            buffer_append_byte(out, ',');
        answer_append_token_text(out, tokenizer_token_bytes(tokens, ids->ids[i]));
    }
    buffer_append_text(out, "]}");
}

static void write_text(const answer *a, buffer *out)
{
    const token_list *ids = &a->request->prompts[0].tokens;
    detokenizer decoder =
        detokenizer_begin(a->request->model->prompt.tokens, !a->request->skip_special_tokens);
    buffer text = { 0 };
    for (size_t i = 0; i < ids->count; i++)
        detokenizer_push(&decoder, ids->ids[i], &text); // ids were checked
    detokenizer_end(&decoder, &text);
    buffer_append_text(out, "{\"prompt\":");
    buffer_append_json(out, buffer_slice(&text));
    buffer_append_byte(out, '}');
    buffer_close(&text);
}

const answer_shape answer_shape_tokenize = { "tok", NULL, NULL, write_tokens, answer_error };
const answer_shape answer_shape_detokenize = { "tok", NULL, NULL, write_text, answer_error };
