#include "router/prompt.h"

#include "base/clock.h"
#include "checkpoint/gguf.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#define TEMPLATE_BYTES_MAX (1u << 20)

// "dir/SmolLM2-135M-Instruct.Q4_1.gguf" to "SmolLM2-135M-Instruct".
static void name_from_path(const char *path, char *name, size_t size)
{
    const char *slash = strrchr(path, '/');
    snprintf(name, size, "%s", slash ? slash + 1 : path);
    char *end = strrchr(name, '.');
    if (end && end > name && strcmp(end, ".gguf") == 0)
        *end = 0;
    end = strrchr(name, '.');
    if (end && end > name && (end[1] == 'Q' || end[1] == 'q' || end[1] == 'F' || end[1] == 'f') &&
        isdigit((unsigned char)end[2]))
        *end = 0;
}

static status context_read(const gguf *file, uint32_t *context, error *failure)
{
    status result = STATUS_OK;
    slice architecture;
    char key[128];
    uint64_t value;
    TRY(gguf_get_string(file, "general.architecture", &architecture, failure));
    snprintf(key, sizeof key, "%.*s.context_length",
             (int)(architecture.size < 64 ? architecture.size : 64), architecture.data);
    TRY(gguf_get_u64(file, key, &value, failure));
    if (value == 0 || value > MESSAGE_TOKENS_MAX)
        return error_set(failure, STATUS_BAD_FILE, key, "%s is %llu; right is 1 to %u", key,
                         (unsigned long long)value, MESSAGE_TOKENS_MAX);
    *context = (uint32_t)value;
fail:
    return result;
}

static status chat_compile(slice source, prompt_model *model, error *failure)
{
    status result = chat_open(
        source, tokenizer_token_bytes(model->tokens, tokenizer_bos(model->tokens)),
        tokenizer_token_bytes(model->tokens, tokenizer_eos(model->tokens)), &model->chat, failure);
    if (result == STATUS_OK) {
        model->tools = chat_traits_of(model->chat)->tools;
        model->reasons = chat_traits_of(model->chat)->thinks;
    }
    return result;
}

// A template from a file of its own.
static status template_read(const char *path, prompt_model *model, error *failure)
{
    buffer text = { .limit = TEMPLATE_BYTES_MAX };
    char piece[4096];
    size_t count;
    FILE *file = fopen(path, "re");
    if (!file)
        return error_set(failure, STATUS_BAD_CONFIG, "chat_template",
                         "cannot open the chat template %s: %s", path, strerror(errno));
    while (!text.overflow && (count = fread(piece, 1, sizeof piece, file)) > 0)
        buffer_append(&text, piece, count);
    bool broken = ferror(file) != 0;
    fclose(file);
    status result = STATUS_OK;
    if (broken)
        result = error_set(failure, STATUS_BAD_CONFIG, "chat_template",
                           "the chat template %s cannot be read", path);
    else if (text.overflow)
        result =
            error_set(failure, STATUS_BAD_CONFIG, "chat_template",
                      "the chat template %s is larger than %u bytes", path, TEMPLATE_BYTES_MAX);
    else
        result = chat_compile(buffer_slice(&text), model, failure);
    if (result != STATUS_OK && !broken && !text.overflow)
        error_prefix(failure, "%s", path);
    buffer_close(&text);
    return result;
}

static status chat_read(const gguf *file, const char *template_path, prompt_model *model,
                        error *failure)
{
    slice source;
    if (template_path[0])
        return template_read(template_path, model, failure);
    if (!gguf_has(file, "tokenizer.chat_template", NULL))
        return STATUS_OK;
    status result = gguf_get_string(file, "tokenizer.chat_template", &source, failure);
    return result == STATUS_OK ? chat_compile(source, model, failure) : result;
}

status prompt_model_open(const char *path, const char *name, const char *template_path,
                         prompt_model *model, error *failure)
{
    status result = STATUS_OK;
    gguf *file = NULL;
    *model = (prompt_model){ 0 };
    TRY(gguf_open(path, &file, failure));
    TRY(tokenizer_open(file, &model->tokens, failure));
    TRY(chat_read(file, template_path, model, failure));
    TRY(context_read(file, &model->context, failure));
    TRY(gguf_digest(file, &model->identity.weights, failure));
    model->identity.vocabulary = tokenizer_token_count(model->tokens);
    if (name[0])
        snprintf(model->identity.name, sizeof model->identity.name, "%s", name);
    else
        name_from_path(path, model->identity.name, sizeof model->identity.name);
    gguf_close(file);
    return STATUS_OK;
fail:
    if (file)
        gguf_close(file);
    prompt_model_close(model);
    return result;
}

void prompt_model_close(prompt_model *model)
{
    chat_close(model->chat);
    if (model->tokens)
        tokenizer_close(model->tokens);
    *model = (prompt_model){ 0 };
}

// Exactly one BOS in front, where the tokenizer wants one. `first` is where this prompt begins in
// `ids`.
static status bos_ensure(const prompt_model *model, token_list *ids, size_t first, error *failure)
{
    int32_t bos = tokenizer_bos(model->tokens);
    if (!tokenizer_adds_bos(model->tokens) || bos == TOKENIZER_NO_ID ||
        (ids->count > first && ids->ids[first] == bos))
        return STATUS_OK;
    if (!token_list_append(ids, bos))
        return error_set(failure, STATUS_NO_MEMORY, "", "no memory for the prompt");
    memmove(ids->ids + first + 1, ids->ids + first, (ids->count - first - 1) * sizeof *ids->ids);
    ids->ids[first] = bos;
    return STATUS_OK;
}

status prompt_encode_chat(const prompt_model *model, encoder *e, const chat_request *conversation,
                          size_t limit, token_list *ids, bool *in_thought, error *failure)
{
    status result = STATUS_OK;
    template_output output = { 0 };
    encoder_segment *segments = NULL;
    size_t first = ids->count;
    chat_request request = *conversation;
    request.now_s = (int64_t)clock_wall_s();
    *in_thought = false;
    if (!model->chat)
        return error_set(failure, STATUS_UNSUPPORTED, "messages",
                         "model %s has no chat template; use /v1/completions",
                         model->identity.name);
    TRY(chat_render(model->chat, &request, NULL, &output, failure));
    segments = calloc(output.segment_count + 1, sizeof *segments);
    if (!segments) {
        result = error_set(failure, STATUS_NO_MEMORY, "", "no memory for the prompt");
        goto fail;
    }
    for (size_t i = 0; i < output.segment_count; i++)
        segments[i] = (encoder_segment){ { output.text.data + output.segments[i].offset,
                                           output.segments[i].size },
                                         output.segments[i].from_template };
    TRY(encoder_encode(e, segments, output.segment_count, limit, ids, failure));
    TRY(bos_ensure(model, ids, first, failure));
    *in_thought = model->reasons && chat_opens_reasoning(model->chat, &request, &output);
fail:
    free(segments);
    template_output_close(&output);
    return result;
}

status prompt_encode_text(const prompt_model *model, encoder *e, slice text, size_t limit,
                          token_list *ids, error *failure)
{
    size_t first = ids->count;
    status result = encoder_encode_text(e, text, false, limit, ids, failure);
    return result == STATUS_OK ? bos_ensure(model, ids, first, failure) : result;
}
