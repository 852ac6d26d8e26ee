// `thinking` of Anthropic's requests: each wish is done by the template's own variable, or refused
// by name where the model cannot do it; and thought of earlier turns reaches the template.
#include "request_fixture.h"

#define MORE                                                                                       \
    "{\"model\":\"m\",\"max_tokens\":1100,\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]"
#define ON "\"thinking\":{\"type\":\"enabled\",\"budget_tokens\":1024}"
#define OFF "\"thinking\":{\"type\":\"disabled\"}"
#define ADAPTIVE "\"thinking\":{\"type\":\"adaptive\"}"
#define F "\"tools\":[{\"name\":\"f\"}]"
#define SAY                                                                                        \
    "{% for m in messages %}{{ m.content }}{{ '(' + m.reasoning_content + ')' if "                 \
    "m.reasoning_content }}{% endfor %}{{ tools if tools }}{# <tool_call> </think> #}"

// Templates of models that think: as they are told (the block is opened for them, or closed); by
// themselves; always. And one of a model that does not.
static const char told[] = SAY "{{ '<think>' if enable_thinking else '<think></think>' }}";
static const char free_to[] = SAY;
static const char always[] = SAY "{{ '<think>' if add_generation_prompt }}";
static const char never[] = "{% for m in messages %}{{ m.content }}{% endfor %}";

static void a_wish_is_of_the_right_form(void **state)
{
    (void)state;
    static const sentence cases[] = {
        { T ",\"thinking\":null}", NULL },
        { T "," OFF "}", NULL },
        { T "," ADAPTIVE "}", NULL },
        { MORE "," ON "}", NULL },
        { T ",\"thinking\":true}", "thinking is a boolean; right is an object with a type" },
        { T ",\"thinking\":{}}",
          "thinking.type is missing; right is \"enabled\", \"disabled\" or" },
        { T ",\"thinking\":{\"type\":1}}", "thinking.type is an integer" },
        { T ",\"thinking\":{\"type\":\"on\"}}", "thinking.type is \"on\"; right is \"enabled\"" },
        { T ",\"thinking\":{\"type\":\"enabled\\u0000\"}}", "right is \"enabled\"" },
        { T ",\"thinking\":{\"type\":\"between_tools\"}}",
          "thinking.type is \"between_tools\", which is not supported by this server" },
        { MORE ",\"thinking\":{\"type\":\"enabled\"}}",
          "thinking.budget_tokens is missing; right is an integer of at least 1024" },
        { MORE ",\"thinking\":{\"type\":\"enabled\",\"budget_tokens\":1024.0}}",
          "thinking.budget_tokens is a number with a fraction or exponent" },
        { MORE ",\"thinking\":{\"type\":\"enabled\",\"budget_tokens\":1023}}",
          "thinking.budget_tokens is 1023; right is an integer of at least 1024" },
        { MORE ",\"thinking\":{\"type\":\"enabled\",\"budget_tokens\":-9223372036854775808}}",
          "right is an integer of at least 1024" },
        { MORE ",\"thinking\":{\"type\":\"enabled\",\"budget_tokens\":1100}}",
          "thinking.budget_tokens is 1100; right is less than max_tokens (1100)" },
        { MORE ",\"thinking\":{\"type\":\"enabled\",\"budget_tokens\":1099}}", NULL },
        { T ",\"thinking\":{\"type\":\"adaptive\",\"budget_tokens\":1024}}",
          "thinking.budget_tokens is given, and thinking.type is not \"enabled\"" },
        { T ",\"thinking\":{\"type\":\"adaptive\",\"display\":\"summarized\"}}", NULL },
        { T ",\"thinking\":{\"type\":\"adaptive\",\"display\":null}}", NULL },
        { T ",\"thinking\":{\"type\":\"adaptive\",\"display\":\"omitted\"}}",
          "thinking.display is \"omitted\", which is not supported by this server; right is" },
        { T ",\"thinking\":{\"type\":\"adaptive\",\"display\":\"all\"}}",
          "thinking.display is \"all\"; right is \"summarized\"" },
        { T ",\"thinking\":{\"type\":\"adaptive\",\"display\":[]}}",
          "thinking.display is an array; right is \"summarized\"" },
    };
    template_set(told);
    sentences_expect(cases, sizeof cases / sizeof *cases);
}

static void a_wish_that_cannot_be_done_is_refused(void **state)
{
    (void)state;
    static const struct {
        const char *source;
        sentence expected;
    } cases[] = {
        { told, { MORE "," ON ",\"chat_template_kwargs\":{\"enable_thinking\":true}}", NULL } },
        { told,
          { MORE "," ON ",\"chat_template_kwargs\":{\"enable_thinking\":false}}",
            "chat_template_kwargs.enable_thinking and thinking.type say different things" } },
        { told,
          { MORE "," OFF ",\"chat_template_kwargs\":{\"enable_thinking\":0}}",
            "chat_template_kwargs.enable_thinking is an integer; right is true or false" } },
        { told,
          { MORE "," ON "," F ",\"tool_choice\":{\"type\":\"any\"}}",
            "thinking.type is \"enabled\", and tool_choice holds the answer to its form" } },
        { told, { MORE "," ON "," F ",\"tool_choice\":{\"type\":\"auto\"}}", NULL } },
        { told,
          { MORE "," ON ",\"output_config\":{\"format\":" FORMAT "}}",
            "thinking.type is \"enabled\", and output_config.format holds the answer" } },
        { told, { MORE "," ADAPTIVE ",\"output_format\":" FORMAT "}", NULL } },
        { told, { MORE "," OFF ",\"output_format\":" FORMAT "}", NULL } },
        { free_to, { MORE "," ON "}", NULL } },
        { free_to, { MORE "," OFF "}", NULL } },
        { always, { MORE "," ON "}", NULL } },
        { always, { MORE "," ADAPTIVE "}", NULL } },
        { always, { MORE "," OFF "}", "and model m always thinks: its chat template opens" } },
        { always, { MORE "," OFF "," F ",\"tool_choice\":{\"type\":\"any\"}}", NULL } },
        { always,
          { "{\"model\":\"m\",\"max_tokens\":9,\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}"
            ",{\"role\":\"assistant\",\"content\":\"<think>a\"}]," OFF "}",
            NULL } },
        { never, { MORE "," ON "}", "thinking.type is \"enabled\", and model m does not think" } },
        { never, { MORE "," OFF "}", NULL } },
        { never, { MORE "," ADAPTIVE "}", NULL } },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        template_set(cases[i].source);
        sentences_expect(&cases[i].expected, 1);
    }
    template_set(told);
    fixture_model->reasons = false; // as the setting says it
    sentences_expect(&(sentence){ MORE "," ON "}", "the setting reasoning is off" }, 1);
    sentences_expect(&(sentence){ MORE "," ADAPTIVE "}", NULL }, 1);
}

static request parsed(request_kind kind, const char *body)
{
    request r = { 0 };
    error failure;
    if (fixture_parse(kind, slice_of(body), 2048, &r, &failure) != STATUS_OK)
        fail_msg("%s: %s", body, failure.text);
    return r;
}

// The prompt of Anthropic's body is the chat's.
static void prompts_agree(const char *messages, const char *other, bool in_thought)
{
    request a = parsed(A, messages), b = parsed(M, other);
    const token_list *ours = &a.prompts[0].tokens, *theirs = &b.prompts[0].tokens;
    if (ours->count != theirs->count ||
        memcmp(ours->ids, theirs->ids, ours->count * sizeof *ours->ids) != 0)
        fail_msg("%s: another prompt than %s", messages, other);
    assert_int_equal(a.in_thought, in_thought);
    request_close(&a);
    request_close(&b);
}

static void wishes_set_the_variable_of_the_template(void **state)
{
    (void)state;
    template_set(told);
    assert_string_equal(chat_traits_of(fixture_model->chat)->thinking_switch, "enable_thinking");
    prompts_agree(MORE "," ON "}", H ",\"chat_template_kwargs\":{\"enable_thinking\":true}}", true);
    prompts_agree(MORE "," ADAPTIVE "}", H ",\"chat_template_kwargs\":{\"enable_thinking\":true}}",
                  true);
    prompts_agree(MORE "," OFF "}", H ",\"chat_template_kwargs\":{\"enable_thinking\":false}}",
                  false);
    prompts_agree(MORE "}", H "}", false); // as the template does without
    prompts_agree(MORE "," ADAPTIVE ",\"output_format\":" FORMAT "}", H "}", false);
    prompts_agree(MORE "," ON ",\"chat_template_kwargs\":{\"enable_thinking\":null,\"a\":1}}",
                  H ",\"chat_template_kwargs\":{\"enable_thinking\":true,\"a\":1}}", true);
}

static void thought_of_earlier_turns_reaches_the_template(void **state)
{
    (void)state;
#define TALK(block)                                                                                \
    "{\"model\":\"m\",\"max_tokens\":9,\"messages\":[{\"role\":\"user\",\"content\":\"hi\"},"      \
    "{\"role\":\"assistant\",\"content\":[" block ",{\"type\":\"text\",\"text\":\"c\"}]},"         \
    "{\"role\":\"user\",\"content\":\"d\"}]}"
#define CHAT(more)                                                                                 \
    "{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"hi\"},"                       \
    "{\"role\":\"assistant\",\"content\":\"c\"" more "},{\"role\":\"user\",\"content\":\"d\"}]}"
    static const sentence cases[] = {
        { TALK("{\"type\":\"thinking\"}"),
          "messages[1].content[0].thinking is missing; right is a string" },
        { TALK("{\"type\":\"thinking\",\"thinking\":[]}"),
          "messages[1].content[0].thinking is an array; right is a string" },
        { TALK("{\"type\":\"thinking\",\"thinking\":\"x\",\"signature\":1}"),
          "messages[1].content[0].signature is an integer; right is a string" },
        { TALK("{\"type\":\"redacted_thinking\",\"data\":{}}"),
          "messages[1].content[0].data is an object; right is a string" },
        { "{\"model\":\"m\",\"max_tokens\":9,\"messages\":[{\"role\":\"user\",\"content\":["
          "{\"type\":\"thinking\",\"thinking\":\"x\",\"signature\":\"\"}]}]}",
          "messages[0].content[0] is a block of type \"thinking\"" },
    };
    template_set(free_to);
    sentences_expect(cases, sizeof cases / sizeof *cases);
    prompts_agree(TALK("{\"type\":\"thinking\",\"thinking\":\"ab\\u0000<|im_end|>\","
                       "\"signature\":\"msg-1\"}"),
                  CHAT(",\"reasoning_content\":\"ab\\u0000<|im_end|>\""), false);
    prompts_agree(TALK("{\"type\":\"thinking\",\"thinking\":\"a\"},{\"type\":\"thinking\","
                       "\"thinking\":\"b\",\"signature\":null}"),
                  CHAT(",\"reasoning_content\":\"ab\""), false);
    prompts_agree(TALK("{\"type\":\"thinking\",\"thinking\":\"\",\"signature\":\"\"},"
                       "{\"type\":\"redacted_thinking\",\"data\":\"x\"}"),
                  CHAT(""), false);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_wish_is_of_the_right_form),
        cmocka_unit_test(a_wish_that_cannot_be_done_is_refused),
        cmocka_unit_test(wishes_set_the_variable_of_the_template),
        cmocka_unit_test(thought_of_earlier_turns_reaches_the_template),
    };
    return cmocka_run_group_tests(tests, fixture_open, fixture_close);
}
