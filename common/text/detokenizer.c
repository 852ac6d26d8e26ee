#include "text/detokenizer.h"

#include "text/unicode.h"

detokenizer detokenizer_begin(const tokenizer *t, bool keep_control)
{
    return (detokenizer){ .tokens = t,
                          .keep_control = keep_control,
                          .shown = TOKENIZER_NO_ID,
                          .drop_space = tokenizer_adds_space(t) };
}

detokenizer detokenizer_continue(const tokenizer *t, bool keep_control)
{
    return (detokenizer){ .tokens = t, .keep_control = keep_control, .shown = TOKENIZER_NO_ID };
}

status detokenizer_push(detokenizer *d, int32_t id, buffer *text)
{
    if (id < 0 || id >= tokenizer_token_count(d->tokens))
        return STATUS_NOT_FOUND;
    if (!d->keep_control && id != d->shown && tokenizer_is_control(d->tokens, id))
        return STATUS_OK;
    detokenizer_push_bytes(d, tokenizer_token_bytes(d->tokens, id), text);
    return STATUS_OK;
}

// Complete what is held with bytes of `bytes`; the number taken. Held bytes are always an
// unfinished beginning, so at each step they get longer, become a character or turn out ill-formed.
static size_t finish_held(detokenizer *d, slice bytes, buffer *text)
{
    size_t taken = 0;
    while (d->held_count > 0 && taken < bytes.size) {
        bool unfinished;
        d->held[d->held_count] = (uint8_t)bytes.data[taken];
        slice held = { (const char *)d->held, (size_t)d->held_count + 1 };
        if (unicode_valid_size(held) == held.size) {
            buffer_append_slice(text, held);
            d->held_count = 0;
            return taken + 1;
        }
        size_t ill = unicode_ill_formed_size(held, &unfinished);
        if (!unfinished) {
            // The new byte does not belong to it: it is looked at again, by itself.
            CHECK(ill == d->held_count);
            buffer_append_text(text, UNICODE_REPLACEMENT);
            d->held_count = 0;
            return taken;
        }
        d->held_count++;
        taken++;
    }
    return taken;
}

void detokenizer_push_bytes(detokenizer *d, slice bytes, buffer *text)
{
    if (bytes.size > 0 && d->drop_space) {
        d->drop_space = false;
        if (bytes.data[0] == ' ')
            bytes = (slice){ bytes.data + 1, bytes.size - 1 };
    }
    size_t taken = finish_held(d, bytes, text);
    slice rest = { bytes.data + taken, bytes.size - taken };
    while (rest.size > 0) {
        size_t valid = unicode_valid_size(rest);
        bool unfinished;
        buffer_append(text, rest.data, valid);
        rest = (slice){ rest.data + valid, rest.size - valid };
        if (rest.size == 0)
            return;
        size_t ill = unicode_ill_formed_size(rest, &unfinished);
        if (unfinished) {
            CHECK(ill == rest.size && ill < sizeof(d->held));
            memcpy(d->held, rest.data, ill);
            d->held_count = (uint8_t)ill;
            return;
        }
        buffer_append_text(text, UNICODE_REPLACEMENT);
        rest = (slice){ rest.data + ill, rest.size - ill };
    }
}

void detokenizer_end(detokenizer *d, buffer *text)
{
    if (d->held_count > 0)
        buffer_append_text(text, UNICODE_REPLACEMENT);
    d->held_count = 0;
}
