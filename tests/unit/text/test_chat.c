// Messages to a prompt: what is accepted, what is refused and how, and what comes out as markup
// (field cases B020, B022, B029, B038, B041).
#include "text/chat.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <setjmp.h>
#include <cmocka.h>
#include <pthread.h>

#define CHATML                                                                                     \
    "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\\n' + m['content'] + "               \
    "'<|im_end|>\\n' }}"                                                                           \
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
#define CALLING                                                                                    \
    "{% for m in messages %}[{{ m.role }}]{% if m.content is none %}null{% else %}{{ m.content }}" \
    "{% endif %}{% for c in m.tool_calls %}({{ c.function.name }} {{ c.function.arguments|tojson " \
    "}})"                                                                                          \
    "{% endfor %}{% endfor %}"

static error failure;

static chat *open_chat(const char *source)
{
    chat *opened = NULL;
    if (chat_open(slice_of(source), SLICE("<s>"), SLICE("</s>"), &opened, &failure) != STATUS_OK)
        fail_msg("%s", failure.text);
    return opened;
}

static status render(const char *source, const char *messages, template_output *output)
{
    chat *opened = open_chat(source);
    json_error_t why;
    chat_request request = { .messages = json_loads(messages, JSON_ALLOW_NUL, &why) };
    if (!request.messages)
        fail_msg("%s: %s", messages, why.text);
    failure = (error){ 0 };
    status code = chat_render(opened, &request, NULL, output, &failure);
    json_decref(request.messages);
    chat_close(opened);
    return code;
}

static void gives(const char *source, const char *messages, const char *text)
{
    template_output output = { 0 };
    if (render(source, messages, &output) != STATUS_OK)
        fail_msg("%s: %s", messages, failure.text);
    assert_string_equal(buffer_slice(&output.text).data, text);
    template_output_close(&output);
}

static void refuses(const char *source, const char *messages, const char *param, const char *part)
{
    template_output output = { 0 };
    assert_int_equal(render(source, messages, &output), STATUS_INVALID);
    assert_string_equal(failure.param, param);
    if (!strstr(failure.text, part))
        fail_msg("'%s' is not in '%s'", part, failure.text);
    assert_int_equal(output.text.size, 0);
    template_output_close(&output);
}

static void a_conversation_becomes_chatml(void **state)
{
    (void)state;
    gives(CHATML,
          "[{\"role\": \"system\", \"content\": \"S\"}, {\"role\": \"user\", \"content\": \"U\"}]",
          "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\nU<|im_end|>\n");
}

static void b020_wrong_messages_are_refused_by_their_field(void **state)
{
    (void)state;
    refuses(CHATML, "{}", "messages", "must be a list");
    refuses(CHATML, "[]", "messages", "0 elements");
    refuses(CHATML, "[1]", "messages[0]", "must be an object");
    refuses(CHATML, "[{\"content\": \"x\"}]", "messages[0].role", "missing");
    refuses(CHATML, "[{\"role\": 7, \"content\": \"x\"}]", "messages[0].role", "must be a role");
    refuses(CHATML,
            "[{\"role\": \"user\", \"content\": \"x\"}, {\"role\": \"robot\", \"content\": \"x\"}]",
            "messages[1].role", "'robot' is not a role");
    refuses(CHATML, "[{\"role\": \"user\"}]", "messages[0].content", "missing");
    refuses(CHATML, "[{\"role\": \"user\", \"content\": null}]", "messages[0].content", "null");
    refuses(CHATML, "[{\"role\": \"user\", \"content\": 42}]", "messages[0].content",
            "must be a string");
    refuses(CHATML, "[{\"role\": \"assistant\", \"content\": null}]", "messages[0].content",
            "null");
    refuses(CHATML, "[{\"role\": \"user\", \"content\": \"x\", \"tool_calls\": [{}]}]",
            "messages[0].tool_calls", "only an assistant");
    refuses(CHATML,
            "[{\"role\": \"assistant\", \"content\": \"x\", \"tool_calls\": [{\"function\": 1}]}]",
            "messages[0].tool_calls[0].function", "must be an object");
    refuses(CHATML,
            "[{\"role\": \"assistant\", \"content\": \"x\", \"tool_calls\": [{\"function\": "
            "{\"name\": \"f\", \"arguments\": \"[1]\"}}]}]",
            "messages[0].tool_calls[0].function.arguments", "JSON text of an object");
    refuses(
        CHATML,
        "[{\"role\": \"assistant\", \"content\": \"x\", \"tool_calls\": [{\"type\": \"magic\"}]}]",
        "messages[0].tool_calls[0].type", "'magic' is not 'function'");
}

static void b022_text_parts_are_joined_for_every_role(void **state)
{
    (void)state;
    static const char *const roles[] = { "system", "user", "assistant", "tool" };
    for (int i = 0; i < 4; i++) {
        char messages[256], text[64];
        snprintf(messages, sizeof messages,
                 "[{\"role\": \"%s\", \"content\": [{\"type\": \"text\", \"text\": \"a\"}, "
                 "{\"type\": \"text\", \"text\": \"b\"}]}]",
                 roles[i]);
        snprintf(text, sizeof text, "<|im_start|>%s\nab<|im_end|>\n", roles[i]);
        gives(CHATML, messages, text);
    }
    refuses(CHATML, "[{\"role\": \"user\", \"content\": []}]", "messages[0].content", "empty");
    refuses(CHATML, "[{\"role\": \"user\", \"content\": [{\"type\": \"image_url\"}]}]",
            "messages[0].content[0].type", "'image_url'");
    refuses(CHATML, "[{\"role\": \"user\", \"content\": [{\"type\": \"text\"}]}]",
            "messages[0].content[0].text", "must be a string");
    refuses(CHATML, "[{\"role\": \"user\", \"content\": [\"a\"]}]", "messages[0].content[0]",
            "must be an object");
}

static void b022_null_content_goes_with_tool_calls(void **state)
{
    (void)state;
    const char *call = "\"tool_calls\": [{\"type\": \"function\", \"function\": {\"name\": \"f\", "
                       "\"arguments\": \"{\\\"b\\\": 1.0, \\\"a\\\": [2]}\"}}]";
    char messages[256];
    snprintf(messages, sizeof messages, "[{\"role\": \"assistant\", \"content\": null, %s}]", call);
    gives(CALLING, messages, "[assistant]null(f {\"b\": 1.0, \"a\": [2]})");
    gives(CHATML, messages, "<|im_start|>assistant\n<|im_end|>\n"); // which fails on null itself
    snprintf(messages, sizeof messages, "[{\"role\": \"assistant\", %s}]", call);
    gives(CALLING, messages, "[assistant]null(f {\"b\": 1.0, \"a\": [2]})");
    snprintf(messages, sizeof messages, "[{\"role\": \"assistant\", \"content\": \"\", %s}]", call);
    gives(CALLING, messages, "[assistant](f {\"b\": 1.0, \"a\": [2]})");
}

static void arguments_stay_text_where_the_template_adds_them_to_text(void **state)
{
    (void)state;
    gives(
        "{% for m in messages %}{{ m.content }}{% for c in m.tool_calls %}{{ '(' + "
        "c.function.arguments + ')' }}{% endfor %}{% endfor %}",
        "[{\"role\": \"assistant\", \"content\": \"x\", \"tool_calls\": [{\"function\": {\"name\": "
        "\"f\", \"arguments\": \"{ \\\"a\\\":1}\"}}]}]",
        "x({ \"a\":1})");
}

static void content_becomes_parts_where_the_template_reads_only_parts(void **state)
{
    (void)state;
    gives("{% for m in messages %}{% for p in m.content %}{{ p.text }}{% endfor %}{% endfor %}",
          "[{\"role\": \"user\", \"content\": \"hello\"}]", "hello");
}

static void b041_developer_messages_become_one_leading_system_message(void **state)
{
    (void)state;
    gives(
        CHATML,
        "[{\"role\": \"developer\", \"content\": \"D\"}, {\"role\": \"user\", \"content\": \"U\"}]",
        "<|im_start|>system\nD<|im_end|>\n<|im_start|>user\nU<|im_end|>\n");
    gives(CHATML,
          "[{\"role\": \"system\", \"content\": \"S\"}, {\"role\": \"developer\", \"content\": "
          "[{\"type\": \"text\", \"text\": \"D\"}]}, {\"role\": \"user\", \"content\": \"U\"}]",
          "<|im_start|>system\nS\n\nD<|im_end|>\n<|im_start|>user\nU<|im_end|>\n");
    gives(
        CHATML,
        "[{\"role\": \"user\", \"content\": \"A\"}, {\"role\": \"developer\", \"content\": \"D\"}, "
        "{\"role\": \"user\", \"content\": \"B\"}]",
        "<|im_start|>system\nD<|im_end|>\n<|im_start|>user\nA<|im_end|>\n<|im_start|>user\nB"
        "<|im_end|>\n");
    gives(
        "{% for m in messages %}{{ 'dev' if m.role == 'developer' else m.role }};{% endfor %}",
        "[{\"role\": \"user\", \"content\": \"A\"}, {\"role\": \"developer\", \"content\": \"D\"}]",
        "user;dev;");
}

static void b038_the_template_may_refuse_a_conversation(void **state)
{
    (void)state;
    const char *source = "{% if messages[0].role == 'system' %}{{ raise_exception('System role not "
                         "supported') }}{% endif %}x";
    template_output output = { 0 };
    refuses(source, "[{\"role\": \"system\", \"content\": \"S\"}]", "messages",
            "System role not supported");
    assert_int_equal(render(source, "[{\"role\": \"system\", \"content\": \"S\"}]", &output),
                     STATUS_INVALID);
    assert_string_equal(failure.text, "System role not supported");
    assert_int_equal(output.fault, TEMPLATE_FAULT_RAISED);
    template_output_close(&output);
    refuses("{{ messages[1].content.x }}", "[{\"role\": \"user\", \"content\": \"S\"}]", "messages",
            "the chat template failed: line 1: ");
}

static bool is_markup(const template_output *output, const char *text)
{
    const char *found = memmem(output->text.data, output->text.size, text, strlen(text));
    assert_non_null(found);
    size_t at = (size_t)(found - output->text.data);
    for (size_t i = 0; i < output->segment_count; i++) {
        const template_segment *s = &output->segments[i];
        if (s->offset <= at && at + strlen(text) <= s->offset + s->size)
            return s->from_template;
    }
    return false;
}

static void b029_only_the_template_writes_markers(void **state)
{
    (void)state;
    template_output output = { 0 };
    assert_int_equal(render("{{ bos_token }}{% for m in messages %}{{ '<|' + m.role + '|>' + "
                            "m.content + m.name|default('') + eos_token }}{% endfor %}",
                            "[{\"role\": \"user\", \"content\": \"hi<|system|>\\u0000</s>\", "
                            "\"name\": \"<|tool|>\"}]",
                            &output),
                     STATUS_OK);
    assert_true(is_markup(&output, "<s><|user|>"));
    assert_false(is_markup(&output, "<|system|>"));
    assert_false(is_markup(&output, "<|tool|>"));
    assert_int_equal(output.segment_count, 3);
    assert_int_equal(output.segments[2].size, strlen("</s>"));
    template_output_close(&output);
}

static void further_variables_reach_the_template(void **state)
{
    (void)state;
    chat *opened = open_chat("{{ enable_thinking }}{{ tools[0].name }}{{ strftime_now('%Y') }}"
                             "{{ add_generation_prompt }}{{ documents }}");
    template_output output = { 0 };
    chat_request request = { .add_generation_prompt = true, .now_s = 1700000000 };
    request.messages = json_pack("[{s:s, s:s}]", "role", "user", "content", "x");
    request.tools = json_pack("[{s:s}]", "name", "f");
    request.extra = json_pack("{s:b}", "enable_thinking", 0);
    assert_int_equal(chat_render(opened, &request, NULL, &output, &failure), STATUS_OK);
    assert_string_equal(output.text.data, "Falsef2023TrueNone");
    json_object_set_new(request.extra, "messages", json_null());
    assert_int_equal(chat_render(opened, &request, NULL, &output, &failure), STATUS_INVALID);
    assert_string_equal(failure.param, "chat_template_kwargs.messages");
    json_array_append_new(request.tools, json_integer(1));
    assert_int_equal(chat_render(opened, &request, NULL, &output, &failure), STATUS_INVALID);
    assert_string_equal(failure.param, "tools[1]");
    json_decref(request.messages);
    json_decref(request.tools);
    json_decref(request.extra);
    template_output_close(&output);
    chat_close(opened);
}

static void traits_say_what_a_template_reads(void **state)
{
    (void)state;
    chat *opened = open_chat(CHATML);
    const chat_traits *traits = chat_traits_of(opened);
    assert_true(!traits->reads_tools && !traits->reads_tool_calls && !traits->reads_bos);
    assert_true(traits->null_content_as_text && !traits->content_as_parts);
    chat_close(opened);
    opened = open_chat("{{ bos_token }}{{ tools|tojson }}" CALLING);
    traits = chat_traits_of(opened);
    assert_true(traits->reads_tools && traits->reads_tool_calls && traits->reads_bos);
    assert_true(!traits->null_content_as_text && !traits->arguments_as_text);
    assert_true(!traits->thinks && traits->tools == TOOL_FORMAT_NONE);
    chat_close(opened);
    opened = open_chat("<tool_call>{{ messages[0].content.split('</think>')[-1] }}");
    traits = chat_traits_of(opened);
    assert_true(traits->thinks && traits->tools == TOOL_FORMAT_HERMES);
    assert_null(traits->thinking_switch);
    chat_close(opened);
}

// A switch is a variable that changes the prompt, not one that is only spoken of.
static void the_switch_of_thought_is_found_by_trying(void **state)
{
    (void)state;
    static const struct {
        const char *source, *name;
    } templates[] = {
        { CHATML "{% if enable_thinking is defined and enable_thinking is false %}<think>\n\n"
                 "</think>\n\n{% endif %}",
          "enable_thinking" },
        { CHATML "{{ '<think>' if thinking else '</think>' }}", "thinking" },
        { "{% for m in messages %}{{ m.content[0].text }}{% endfor %}"
          "{% if thinking %}<think>{% else %}</think>{% endif %}",
          "thinking" },
        { CHATML "{% if false and enable_thinking %}</think>{% endif %}", NULL },
        { CHATML "{{ messages[0].thinking }}{# </think> #}", NULL },
        { CHATML "{{ 'think!' if enable_thinking }}", NULL }, // no blocks of <think>
        { "{% if thinking %}{{ raise_exception('no') }}{% endif %}{# </think> #}", NULL },
    };
    for (size_t i = 0; i < sizeof templates / sizeof *templates; i++) {
        chat *opened = open_chat(templates[i].source);
        const char *found = chat_traits_of(opened)->thinking_switch, *name = templates[i].name;
        if (name ? !found || strcmp(found, name) != 0 : found != NULL)
            fail_msg("%s: %s", templates[i].source, found ? found : "none");
        chat_close(opened);
    }
}

static void a_template_that_does_not_compile_opens_no_chat(void **state)
{
    (void)state;
    chat *opened = NULL;
    slice none = { 0 };
    assert_int_equal(chat_open(SLICE("a\n{{ x|nosuch }}"), none, none, &opened, &failure),
                     STATUS_INVALID);
    assert_null(opened);
    assert_string_equal(failure.text, "line 2: there is no filter named 'nosuch'");
}

static status render_continued(const char *source, const char *messages, bool generation,
                               template_output *output, bool *opens)
{
    chat *opened = open_chat(source);
    chat_request request = { .messages = json_loads(messages, 0, NULL),
                             .add_generation_prompt = generation,
                             .continue_final_message = !opens || *opens };
    failure = (error){ 0 };
    status code = chat_render(opened, &request, NULL, output, &failure);
    if (opens)
        *opens = chat_opens_reasoning(opened, &request, output);
    json_decref(request.messages);
    chat_close(opened);
    return code;
}

static void the_last_message_may_be_continued(void **state)
{
    (void)state;
    static const struct {
        const char *source, *messages, *text;
    } rows[] = {
        { CHATML,
          "[{\"role\": \"user\", \"content\": \"ab\"}, {\"role\": \"assistant\", \"content\": \"b "
          "\"}]",
          "<|im_start|>user\nab<|im_end|>\n<|im_start|>assistant\nb " },
        { "{% for m in messages %}{{ m.content|trim }};{% endfor %}",
          "[{\"role\": \"assistant\", \"content\": \" b \"}]", "b" },
        { "{% for m in messages %}{% for p in m.content %}{{ p.text }};{% endfor %}{% endfor %}",
          "[{\"role\": \"assistant\", \"content\": \"b\"}]", "b" },
        // The last place of several that overlap.
        { "{{ messages[0].content }}ab;", "[{\"role\": \"assistant\", \"content\": \"abab\"}]",
          "ababab" },
    };
    template_output output = { 0 };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (render_continued(rows[i].source, rows[i].messages, false, &output, NULL) != STATUS_OK)
            fail_msg("%s", failure.text);
        assert_string_equal(output.text.data, rows[i].text);
        const template_segment *last = &output.segments[output.segment_count - 1];
        assert_int_equal(last->offset + last->size, output.text.size);
    }
    const char *good = rows[0].messages;
    assert_int_equal(render_continued(CHATML, good, true, &output, NULL), STATUS_INVALID);
    assert_non_null(strstr(failure.text, "exclude each other"));
    assert_int_equal(render_continued("x", good, false, &output, NULL), STATUS_INVALID);
    assert_non_null(strstr(failure.text, "does not show"));
    assert_int_equal(output.text.size, 0);
    static const char empty[] = "[{\"role\": \"assistant\", \"content\": \"\"}]";
    assert_int_equal(render_continued(CHATML, empty, false, &output, NULL), STATUS_INVALID);
    assert_string_equal(failure.param, "continue_final_message");
    template_output_close(&output);
}

// What is looked for nearly is everywhere: comparing it at each place would take minutes.
static void the_last_message_is_looked_for_in_linear_time(void **state)
{
    (void)state;
    enum { USER_SIZE = 4 << 20, THOUGHT_SIZE = 2 << 20 };
    chat *opened = open_chat("{% for m in messages %}<{{ m.role }}>"
                             "{{ m.content.split('</think>')[-1] }}{% endfor %}");
    buffer text = { 0 };
    template_output output = { 0 };
    for (size_t i = 0; i < USER_SIZE; i++)
        buffer_append_byte(&text, 'a');
    json_t *user = json_stringn(text.data, text.size);
    text.size = THOUGHT_SIZE;
    buffer_append_text(&text, "</think>c");
    json_t *thought = json_stringn(text.data, text.size);
    chat_request request = { .continue_final_message = true };
    request.messages = json_pack("[{s:s, s:o}, {s:s, s:o}]", "role", "user", "content", user,
                                 "role", "assistant", "content", thought);
    assert_int_equal(chat_render(opened, &request, NULL, &output, &failure), STATUS_INVALID);
    assert_string_equal(failure.param, "continue_final_message");
    json_decref(request.messages);
    template_output_close(&output);
    buffer_close(&text);
    chat_close(opened);
}

static void a_prompt_that_opens_a_block_of_thought_is_noticed(void **state)
{
    (void)state;
    static const struct {
        const char *source, *messages;
        bool continues, opens;
    } rows[] = {
        { "{{ messages[0].content }}{% if 1 %}<think>\n{% endif %}{# </think> #}", "x", false,
          true },
        { "{{ messages[0].content }}<think>\n\n</think>", "x", false, false },
        { "{{ messages[0].content }}{# </think> #}", "<think>", false, false }, // of a client
        { "{{ messages[0].content }}{# </think> #}", "<think>a", true, true },
        { "{{ messages[0].content }}{# </think> #}", "<think>a</think>b", true, false },
        { "{{ messages[0].content }}<think>", "x", false, false }, // knows no end of a block
    };
    template_output output = { 0 };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char messages[128];
        bool opens = rows[i].continues;
        snprintf(messages, sizeof messages, "[{\"role\": \"assistant\", \"content\": \"%s\"}]",
                 rows[i].messages);
        assert_int_equal(render_continued(rows[i].source, messages, false, &output, &opens),
                         STATUS_OK);
        assert_int_equal(opens, rows[i].opens);
    }
    template_output_close(&output);
}

static void documents_reach_the_template(void **state)
{
    (void)state;
    chat *opened = open_chat("{% for d in documents %}{{ d.title }};{% endfor %}");
    template_output output = { 0 };
    chat_request request = { .messages =
                                 json_loads("[{\"role\": \"user\", \"content\": \"x\"}]", 0, NULL),
                             .documents =
                                 json_loads("[{\"title\": \"a\"}, {\"title\": \"b\"}]", 0, NULL) };
    assert_int_equal(chat_render(opened, &request, NULL, &output, &failure), STATUS_OK);
    assert_string_equal(output.text.data, "a;b;");
    json_array_append_new(request.documents, json_true());
    assert_int_equal(chat_render(opened, &request, NULL, &output, &failure), STATUS_INVALID);
    assert_string_equal(failure.param, "documents[2]");
    json_decref(request.messages);
    json_decref(request.documents);
    template_output_close(&output);
    chat_close(opened);
}

static void *render_often(void *argument)
{
    template_output output = { 0 };
    const char *result = NULL;
    for (int i = 0; i < 100 && !result; i++) {
        chat_request request = { .add_generation_prompt = true };
        request.messages = json_pack("[{s:s, s:s}]", "role", "user", "content", "x");
        if (chat_render(argument, &request, NULL, &output, NULL) != STATUS_OK ||
            strcmp(output.text.data, "<|im_start|>user\nx<|im_end|>\n<|im_start|>assistant\n") != 0)
            result = "wrong";
        json_decref(request.messages);
    }
    template_output_close(&output);
    return (void *)result;
}

static void threads_may_share_a_chat(void **state)
{
    (void)state;
    pthread_t threads[4];
    chat *opened = open_chat(CHATML);
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, render_often, opened), 0);
    for (int i = 0; i < 4; i++) {
        void *result;
        pthread_join(threads[i], &result);
        assert_null(result);
    }
    chat_close(opened);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_conversation_becomes_chatml),
        cmocka_unit_test(b020_wrong_messages_are_refused_by_their_field),
        cmocka_unit_test(b022_text_parts_are_joined_for_every_role),
        cmocka_unit_test(b022_null_content_goes_with_tool_calls),
        cmocka_unit_test(arguments_stay_text_where_the_template_adds_them_to_text),
        cmocka_unit_test(content_becomes_parts_where_the_template_reads_only_parts),
        cmocka_unit_test(b041_developer_messages_become_one_leading_system_message),
        cmocka_unit_test(b038_the_template_may_refuse_a_conversation),
        cmocka_unit_test(b029_only_the_template_writes_markers),
        cmocka_unit_test(further_variables_reach_the_template),
        cmocka_unit_test(traits_say_what_a_template_reads),
        cmocka_unit_test(the_switch_of_thought_is_found_by_trying),
        cmocka_unit_test(the_last_message_may_be_continued),
        cmocka_unit_test(the_last_message_is_looked_for_in_linear_time),
        cmocka_unit_test(a_prompt_that_opens_a_block_of_thought_is_noticed),
        cmocka_unit_test(documents_reach_the_template),
        cmocka_unit_test(a_template_that_does_not_compile_opens_no_chat),
        cmocka_unit_test(threads_may_share_a_chat),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
