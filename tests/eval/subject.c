#include "eval/subject.h"

#include "base/utf8.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

// Bytes of logits that a chunk may take, and its bounds: a large vocabulary gets shorter chunks.
#define CHUNK_BYTES ((size_t)64 << 20)
#define CHUNK_MIN 16
#define CHUNK_MAX 256

status subject_name_parse(const char *text, const char *kv_type, subject_name *name, error *failure)
{
    const char *mark = strstr(text, ",kv=");
    size_t size = mark ? (size_t)(mark - text) : strlen(text);
    const char *type = mark ? mark + 4 : kv_type;
    tensor_type known;
    if (size == 0 || size >= sizeof name->path)
        return error_set(failure, STATUS_INVALID, "model",
                         "'%.80s' names no model; it must be FILE or FILE,kv=TYPE", text);
    status result = engine_kv_type_of(type, &known, failure);
    if (result != STATUS_OK)
        return result;
    *name = (subject_name){ 0 };
    memcpy(name->path, text, size);
    snprintf(name->kv_type, sizeof name->kv_type, "%s", type);
    return STATUS_OK;
}

status subject_names(const eval_options *o, subject_name names[SUBJECT_NAMES_MAX], int *count,
                     error *failure)
{
    status result = STATUS_OK;
    *count = 0;
    for (int m = 0; m < o->model_count; m++) {
        int types = strstr(o->models[m], ",kv=") ? 1 : o->kv_type_count;
        for (int k = 0; k < types; k++)
            TRY(subject_name_parse(o->models[m], o->kv_types[k], &names[(*count)++], failure));
    }
fail:
    return result;
}

// Kind and bytes of every token, in the order of their ids.
static status vocabulary_digest(subject *s)
{
    hash_stream *stream = hash_stream_begin();
    if (!stream)
        return STATUS_NO_MEMORY;
    for (int32_t id = 0; id < tokenizer_token_count(s->tokenizer); id++) {
        slice bytes = tokenizer_token_bytes(s->tokenizer, id);
        uint32_t head[2] = { (uint32_t)bytes.size,
                             (uint32_t)tokenizer_token_kind(s->tokenizer, id) };
        hash_stream_add(stream, head, sizeof head);
        hash_stream_add(stream, bytes.data, bytes.size);
    }
    s->vocabulary = hash_stream_end(stream);
    return STATUS_OK;
}

static int32_t chunk_of(int32_t vocabulary)
{
    size_t rows = CHUNK_BYTES / ((size_t)vocabulary * sizeof(float));
    return rows < CHUNK_MIN ? CHUNK_MIN : rows > CHUNK_MAX ? CHUNK_MAX : (int32_t)rows;
}

status subject_open(const subject_name *name, subject *s, error *failure)
{
    gguf *file = NULL;
    status result;
    *s = (subject){ .name = *name };
    const char *slash = strrchr(s->name.path, '/');
    snprintf(s->file, sizeof s->file, "%.127s", slash ? slash + 1 : s->name.path);
    utf8_make_printable(s->file);
    TRY(engine_kv_type_of(name->kv_type, &s->kv_type, failure));
    TRY(gguf_open(name->path, &file, failure));
    TRY(model_config_read(file, &s->config, failure));
    TRY(tokenizer_open(file, &s->tokenizer, failure));
    TRY(encoder_open(s->tokenizer, &s->encoder));
    TRY(vocabulary_digest(s));
    s->bos = tokenizer_adds_bos(s->tokenizer) ? tokenizer_bos(s->tokenizer) : TOKENIZER_NO_ID;
    s->chunk = chunk_of(s->config.vocabulary);
    gguf_close(file);
    return STATUS_OK;
fail:
    if (result == STATUS_NO_MEMORY)
        error_set(failure, result, "", "memory is short for the tokenizer");
    if (file) {
        error_prefix(failure, "%s", name->path);
        gguf_close(file);
    }
    subject_close(s);
    return result;
}

status subject_load(subject *s, int32_t context, int threads, const char *level, error *failure)
{
    forced_settings settings = { s->name.path, level, threads, s->kv_type, context, s->chunk };
    return forced_open(&settings, &s->model, failure);
}

void subject_close(subject *s)
{
    forced_close(s->model);
    if (s->encoder)
        encoder_close(s->encoder);
    if (s->tokenizer)
        tokenizer_close(s->tokenizer);
    *s = (subject){ 0 };
}

status subject_compare(const subject *reference, const subject *s, error *failure)
{
    if (s->config.vocabulary != reference->config.vocabulary)
        return error_set(failure, STATUS_INVALID, "model",
                         "%s has a vocabulary of %d tokens and the reference %s one of %d; only "
                         "models with the same tokenizer can be compared",
                         s->file, s->config.vocabulary, reference->file,
                         reference->config.vocabulary);
    if (!hash128_equal(s->vocabulary, reference->vocabulary) || s->bos != reference->bos)
        return error_set(failure, STATUS_INVALID, "model",
                         "%s has another tokenizer than the reference %s; only models with the "
                         "same one can be compared",
                         s->file, reference->file);
    return STATUS_OK;
}

status subject_encode(const subject *s, slice text, token_list *tokens, error *failure)
{
    return encoder_encode_text(s->encoder, text, false, SUBJECT_TOKENS_MAX, tokens, failure);
}

size_t subject_token_size(const subject *s, int32_t token)
{
    return tokenizer_token_bytes(s->tokenizer, token).size;
}

status subject_file_read(const char *path, buffer *text, error *failure)
{
    FILE *file = fopen(path, "rb");
    size_t count = 1;
    if (!file)
        return error_set(failure, STATUS_IO, "file", "%s cannot be read: %s", path,
                         strerror(errno));
    text->limit = SUBJECT_TEXT_MAX;
    while (count > 0 && buffer_reserve(text, 1 << 16)) {
        count = fread(text->data + text->size, 1, 1 << 16, file);
        text->size += count;
    }
    bool broken = ferror(file) != 0;
    fclose(file);
    if (text->overflow)
        return error_set(failure, STATUS_TOO_LARGE, "file", "%s is larger than %zu MiB", path,
                         SUBJECT_TEXT_MAX >> 20);
    if (broken)
        return error_set(failure, STATUS_IO, "file", "%s cannot be read: %s", path,
                         strerror(errno));
    return STATUS_OK;
}
