// Anthropic's /v1/messages: what changes nothing is checked all the same, and refusals name fields
// as their clients write them.
#include "request_fixture.h"

#define MESSAGES(list) "{\"model\":\"m\",\"max_tokens\":9,\"messages\":[" list "]}"
#define BLOCK(block) MESSAGES("{\"role\":\"user\",\"content\":[" block "]}")
#define TOOL(members) T ",\"tools\":[{\"name\":\"f\"," members "}]}"
#define USE "{\"type\":\"tool_use\",\"id\":\"a\",\"name\":\"f\",\"input\":{}"
#define RESULT "{\"type\":\"tool_result\",\"tool_use_id\":\"a\""

static void types_of_members_without_effect_are_checked(void **state)
{
    (void)state;
    static const sentence cases[] = {
        { T ",\"cache_control\":{\"type\":\"ephemeral\",\"ttl\":\"1h\"},\"inference_geo\":\"eu\","
            "\"speed\":\"fast\",\"user_profile_id\":\"u\",\"workspace_id\":\"w\","
            "\"diagnostics\":{\"previous_message_id\":null}}",
          NULL },
        { T ",\"cache_control\":true}", "cache_control is a boolean; right is an object" },
        { T ",\"cache_control\":{\"type\":\"forever\"}}",
          "cache_control.type is \"forever\"; right is \"ephemeral\"" },
        { T ",\"cache_control\":{\"type\":\"ephemeral\",\"ttl\":5}}",
          "cache_control.ttl is an integer; right is \"5m\" or \"1h\"" },
        { T ",\"cache_control\":{\"type\":\"ephemeral\",\"ttl\":\"1h\\u0000\"}}",
          "right is \"5m\" or \"1h\"" },
        { T ",\"inference_geo\":1}", "inference_geo is an integer; right is a string" },
        { T ",\"speed\":\"slow\"}", "speed is \"slow\"; right is \"standard\" or \"fast\"" },
        { T ",\"speed\":[]}", "speed is an array; right is \"standard\" or \"fast\"" },
        { T ",\"user_profile_id\":{}}", "user_profile_id is an object; right is a string" },
        { T ",\"workspace_id\":1.5}", "workspace_id is a number with a fraction or exponent" },
        { T ",\"diagnostics\":[]}", "diagnostics is an array; right is an object" },
        { T ",\"diagnostics\":{\"previous_message_id\":7}}",
          "diagnostics.previous_message_id is an integer; right is a string" },
        { BLOCK("{\"type\":\"text\",\"text\":\"a\",\"citations\":null,\"cache_control\":null}"),
          NULL },
        { BLOCK("{\"type\":\"text\",\"text\":\"a\",\"citations\":{\"enabled\":true}}"),
          "messages[0].content[0].citations is an object; right is an array of objects" },
        { BLOCK("{\"type\":\"text\",\"text\":\"a\",\"citations\":[{},1]}"),
          "messages[0].content[0].citations[1] is an integer; right is an object" },
        { BLOCK("{\"type\":\"text\",\"text\":\"a\",\"cache_control\":{\"ttl\":\"2h\"}}"),
          "messages[0].content[0].cache_control.ttl is \"2h\"" },
        { T ",\"system\":[{\"type\":\"text\",\"text\":\"a\",\"cache_control\":1}]}",
          "system[0].cache_control is an integer; right is an object" },
        { BLOCK("{\"type\":\"text\",\"text\":5}"),
          "messages[0].content[0].text is an integer; right is a string" },
        { BLOCK("{\"type\":\"tool_result\",\"tool_use_id\":null}"),
          "messages[0].content[0].tool_use_id is missing; right is a string" },
        { MESSAGES("{\"role\":\"assistant\",\"content\":[{\"type\":\"tool_use\",\"id\":\"x\"}]}"),
          "messages[0].content[0].input is missing; right is an object" },
        { MESSAGES("{\"role\":\"assistant\",\"content\":[{\"type\":\"tool_use\",\"input\":{},"
                   "\"id\":\"x\",\"name\":[]}]}"),
          "messages[0].content[0].name is an array; right is a string" },
        { BLOCK(RESULT ",\"is_error\":true,\"toolset_name\":\"x\"}"), NULL },
        { BLOCK(RESULT ",\"is_error\":\"true\"}"),
          "messages[0].content[0].is_error is a string; right is true or false" },
        { BLOCK(RESULT ",\"content\":[{\"type\":\"text\",\"text\":\"a\",\"cache_control\":0}]}"),
          "messages[0].content[0].content[0].cache_control is an integer" },
        { BLOCK(RESULT ",\"toolset_name\":1}"), "content[0].toolset_name is an integer" },
        { MESSAGES("{\"role\":\"assistant\",\"content\":[" USE ",\"caller\":\"direct\"}]}"),
          "messages[0].content[0].caller is a string; right is an object" },
        { MESSAGES("{\"role\":\"assistant\",\"content\":[" USE ",\"cache_control\":[]}]}"),
          "messages[0].content[0].cache_control is an array" },
        { T ",\"metadata\":\"x\"}", "metadata is a string; right is an object" },
    };
    sentences_expect(cases, sizeof cases / sizeof *cases);
}

static void types_of_members_of_tools_are_checked(void **state)
{
    (void)state;
    static const sentence cases[] = {
        { TOOL("\"type\":5"), "tools[0].type is an integer; right is a string" },
        { TOOL("\"type\":\"bash_20250124\""), "tools[0] is a tool that the server" },
        { TOOL("\"strict\":1"), "tools[0].strict is an integer; right is true or false" },
        { TOOL("\"defer_loading\":\"no\""), "tools[0].defer_loading is a string" },
        { TOOL("\"eager_input_streaming\":{}"), "tools[0].eager_input_streaming is an object" },
        { TOOL("\"cache_control\":{\"type\":1}"), "tools[0].cache_control.type is an integer" },
        { TOOL("\"input_examples\":[\"x\"]"),
          "tools[0].input_examples[0] is a string; right is an object" },
        { TOOL("\"allowed_callers\":\"direct\""),
          "tools[0].allowed_callers is a string; right is an array of strings" },
        { TOOL("\"allowed_callers\":[\"direct\",{}]"),
          "tools[0].allowed_callers[1] is an object; right is a string" },
        { TOOL("\"allowed_callers\":[\"code_execution_20250825\"]"),
          "tools[0].allowed_callers lacks \"direct\"" },
        { T ",\"tool_choice\":{\"type\":\"auto\",\"disable_parallel_tool_use\":1}}",
          "tool_choice.disable_parallel_tool_use is an integer; right is true or false" },
        { T ",\"tool_choice\":{\"type\":\"auto\",\"disable_parallel_tool_use\":null}}", NULL },
    };
    sentences_expect(cases, sizeof cases / sizeof *cases);
}

static void refusals_name_fields_as_the_client_wrote_them(void **state)
{
    (void)state;
    static const sentence cases[] = {
        { T ",\"stop_sequences\":[\"a\",5]}",
          "stop_sequences[1] is an integer; right is a string" },
        { T ",\"stop_sequences\":[\"\"]}", "stop_sequences holds an empty string" },
        { T ",\"stop_sequences\":[\"1\",\"2\",\"3\",\"4\",\"5\",\"6\",\"7\",\"8\",\"9\",\"10\","
            "\"11\",\"12\",\"13\",\"14\",\"15\",\"16\",\"17\"]}",
          "stop_sequences has 17 strings; right is at most 16" },
        { TOOL("\"input_schema\":7"), "tools[0].input_schema must be a JSON Schema object" },
        { TOOL("\"input_schema\":{\"type\":\"array\"}"),
          "tools[0].input_schema.type must be \"object\"" },
        { TOOL("\"description\":1"), "tools[0].description must be a string" },
        { T ",\"tools\":[{\"name\":\"a b\"}]}", "tools[0].name must be" },
        { T ",\"tools\":[{}]}", "tools[0].name must be" },
        { T ",\"tools\":[{\"name\":\"f\"},{\"name\":\"f\"}]}",
          "tools[1].name is the name of an earlier function" },
        { T ",\"service_tier\":\"gold\"}", "service_tier is \"gold\"; right is \"auto\"" },
        { T ",\"service_tier\":\"gold\"}", "\"standard_only\"" },
        { T ",\"service_tier\":5}", "service_tier is an integer; right is \"auto\"" },
        { T ",\"service_tier\":\"standard_only\"}", NULL },
        { MESSAGES(""), "messages is an empty array; right is at least one message" },
        { MESSAGES("{\"role\":\"assistant\",\"content\":\"So\"}"), NULL },
        { MESSAGES("{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"assistant\",\"content\":[]}"),
          "messages[1].content, the last message, is the assistant's and has no text" },
        { MESSAGES("{\"role\":\"assistant\",\"content\":[" USE "}]}"),
          "messages[0].content, the last message, is the assistant's and calls a tool" },
    };
    sentences_expect(cases, sizeof cases / sizeof *cases);
}

// Half a character would be shown as '?'.
static void what_a_refusal_quotes_is_cut_between_characters(void **state)
{
    (void)state;
    static const struct {
        request_kind kind;
        const char *body; // with a place for the text
    } cases[] = {
        { C, "{\"model\":\"%s\",\"prompt\":\"a\"}" },
        { A, T ",\"speed\":\"%s\"}" },
        { A, T ",\"service_tier\":\"%s\"}" },
        { A, T ",\"metadata\":{\"%s\":\"a\"}}" },
        { A, T ",\"thinking\":{\"type\":\"%s\"}}" },
        { A, T ",\"thinking\":{\"type\":\"adaptive\",\"display\":\"%s\"}}" },
        { A, T ",\"output_config\":{\"%s\":1}}" },
        { A, BLOCK("{\"type\":\"%s\"}") },
        { A,
          T ",\"tools\":[{\"name\":\"f\"}],\"tool_choice\":{\"type\":\"tool\",\"name\":\"%s\"}}" },
        { M, "{\"model\":\"m\",\"messages\":[{\"role\":\"%s\",\"content\":\"a\"}]}" },
        { C, P ",\"speculate\":\"%s\"}" },
        { C, P ",\"structured_outputs\":{\"%s\":1}}" },
        { C, P ",\"logit_bias\":{\"%s\":1}}" },
    };
    for (size_t i = 0; i < 2 * sizeof cases / sizeof *cases; i++) {
        char text[160] = "";
        buffer body = { 0 };
        request r = { 0 };
        error failure;
        if (i % 2 == 1)
            strcat(text, "a");
        while (strlen(text) < sizeof text - 3)
            strcat(text, "\xc3\xa9");
        const char *at = strstr(cases[i / 2].body, "%s");
        buffer_append(&body, cases[i / 2].body, (size_t)(at - cases[i / 2].body));
        buffer_append_text(&body, text);
        buffer_append_text(&body, at + 2);
        assert_int_not_equal(
            fixture_parse(cases[i / 2].kind, buffer_slice(&body), 2048, &r, &failure), STATUS_OK);
        if (!strstr(failure.text, "\xc3\xa9") || strchr(failure.text, '?'))
            fail_msg("%s: %s", body.data, failure.text);
        buffer_close(&body);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(types_of_members_without_effect_are_checked),
        cmocka_unit_test(types_of_members_of_tools_are_checked),
        cmocka_unit_test(refusals_name_fields_as_the_client_wrote_them),
        cmocka_unit_test(what_a_refusal_quotes_is_cut_between_characters),
    };
    return cmocka_run_group_tests(tests, fixture_open, fixture_close);
}
