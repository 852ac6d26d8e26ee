// B035: a prompt has exactly one BOS where its tokenizer wants one, and none elsewhere, whether it
// comes as text, as a conversation or behind a BOS that is there already.
#include "router/prompt.h"

#include "harness/small_tokenizer.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <setjmp.h>
#include <cmocka.h>
#include <stdlib.h>
#include <unistd.h>

static const char with_bos[] =
    "{{ bos_token }}{% for m in messages %}[{{ m['role'] }}]{{ m['content'] }}{% endfor %}";
static const char without_bos[] =
    "{% for m in messages %}[{{ m['role'] }}]{{ m['content'] }}{% endfor %}";

typedef enum wish { ABSENT, NO, YES } wish; // tokenizer.ggml.add_bos_token

// A model file with nothing but a tokenizer and a template.
static void model_make(bool pieces, const char *pre, wish adds, const char *markup,
                       prompt_model *model)
{
    const char *merges[] = { "h i", NULL }, *texts[] = { "h", "i", "hi", NULL };
    const char *controls[] = { "<s>", "</s>", NULL };
    char path[] = "/tmp/penstock-prompt-XXXXXX";
    int file = mkstemp(path);
    gguf_builder b = { 0 };
    error failure = { 0 };
    assert_true(file >= 0);
    gguf_builder_string(&b, "general.architecture", "llama");
    gguf_builder_u32(&b, "llama.context_length", 100);
    if (pieces)
        small_tokenizer_put_pieces(&b, &(small_pieces){ true, texts, controls, NULL });
    else
        small_tokenizer_put(&b, &(small_tokenizer){ pre, merges, controls, NULL });
    gguf_builder_u32(&b, "tokenizer.ggml.bos_token_id", pieces ? 260 : 257);
    gguf_builder_u32(&b, "tokenizer.ggml.eos_token_id", pieces ? 261 : 258);
    if (adds != ABSENT)
        gguf_builder_bool(&b, "tokenizer.ggml.add_bos_token", adds == YES);
    gguf_builder_string(&b, "tokenizer.chat_template", markup);
    buffer bytes = gguf_builder_finish(&b);
    assert_int_equal(write(file, bytes.data, bytes.size), bytes.size);
    close(file);
    if (prompt_model_open(path, "m", "", model, &failure) != STATUS_OK)
        fail_msg("%s", failure.text);
    unlink(path);
    buffer_close(&bytes);
}

static int bos_count(const prompt_model *model, const token_list *ids)
{
    int count = 0;
    for (size_t i = 0; i < ids->count; i++)
        count += ids->ids[i] == tokenizer_bos(model->tokens);
    if (count > 0)
        assert_int_equal(ids->ids[0], tokenizer_bos(model->tokens));
    return count;
}

static void bos_expect(const prompt_model *model, int in_text, int in_chat)
{
    encoder *e;
    error failure = { 0 };
    token_list text = { 0 }, forged = { 0 }, talk = { 0 };
    json_t *messages = json_pack("[{s:s,s:s}]", "role", "user", "content", "hi <s>");
    assert_int_equal(encoder_open(model->tokens, &e), STATUS_OK);
    assert_int_equal(prompt_encode_text(model, e, SLICE("hi"), 99, &text, &failure), STATUS_OK);
    assert_int_equal(bos_count(model, &text), in_text);
    // A text that spells the BOS is text; it does not stand for it.
    assert_int_equal(prompt_encode_text(model, e, SLICE("<s>hi"), 99, &forged, &failure),
                     STATUS_OK);
    assert_int_equal(bos_count(model, &forged), in_text);
    assert_true(forged.count >= text.count + 2);
    chat_request conversation = { .messages = messages, .add_generation_prompt = true };
    bool in_thought = true;
    assert_int_equal(prompt_encode_chat(model, e, &conversation, 99, &talk, &in_thought, &failure),
                     STATUS_OK);
    assert_false(in_thought);
    assert_int_equal(bos_count(model, &talk), in_chat);
    token_list_close(&text);
    token_list_close(&forged);
    token_list_close(&talk);
    json_decref(messages);
    encoder_close(e);
}

static void b035_there_is_one_bos_or_none(void **state)
{
    (void)state;
    const struct {
        bool pieces;
        const char *pre;
        wish adds;
        int in_text; // in a chat without the template's own
    } cases[] = {
        { false, "gpt-2", ABSENT, 0 },
        { false, "gpt-2", NO, 0 },
        { false, "gpt-2", YES, 1 },
        { false, "llama-bpe", ABSENT, 1 }, // as Llama 3 files mean it
        { false, "llama-bpe", NO, 0 },
        { true, NULL, ABSENT, 1 },
        { true, NULL, NO, 0 },
        { true, NULL, YES, 1 },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        prompt_model model;
        model_make(cases[i].pieces, cases[i].pre, cases[i].adds, with_bos, &model);
        bos_expect(&model, cases[i].in_text, 1);
        prompt_model_close(&model);
        model_make(cases[i].pieces, cases[i].pre, cases[i].adds, without_bos, &model);
        bos_expect(&model, cases[i].in_text, cases[i].in_text);
        prompt_model_close(&model);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(b035_there_is_one_bos_or_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
