// Tools in requests: what is refused and how, and the grammar of forced calls.
#include "tools_fixture.h"

#include "text/grammar.h"

static void refused(const char *body, status code, const char *param, const char *part)
{
    request r = { 0 };
    error failure;
    status result = fixture_parse(REQUEST_CHAT, slice_of(body), 2048, &r, &failure);
    if (result != code || strcmp(failure.param, param) != 0 || !strstr(failure.text, part))
        fail_msg("%s: %d '%s' '%s'", body, result, failure.param, failure.text);
}

static void wrong_tools_are_refused_by_their_field(void **state)
{
    (void)state;
    static const struct {
        const char *fields, *param, *part;
    } rows[] = {
        { "\"tools\":{}", "tools", "must be an array" },
        { "\"tools\":[1]", "tools[0]", "must be an object" },
        { "\"tools\":[{\"type\":\"web_search\"}]", "tools[0].type", "no other tools" },
        { "\"tools\":[" F ",{\"type\":\"function\"}]", "tools[1].function", "must be an object" },
        { "\"tools\":[{\"type\":\"function\",\"function\":{}}]", "tools[0].function.name",
          "1 to 64 characters" },
        { "\"tools\":[" NAMED("a b") "]", "tools[0].function.name", "1 to 64" },
        { "\"tools\":[" NAMED("a\\u0000") "]", "tools[0].function.name", "1 to 64" },
        { "\"tools\":[" NAMED("") "]", "tools[0].function.name", "1 to 64" },
        { "\"tools\":[" NAMED(
              "a234567890123456789012345678901234567890123456789012345678901234x") "]",
          "tools[0].function.name", "1 to 64" },
        { "\"tools\":[" F "," F "]", "tools[1].function.name", "earlier function" },
        { "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"description\":1}}]",
          "tools[0].function.description", "a string" },
        { "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"strict\":1}}]",
          "tools[0].function.strict", "true or false" },
        { "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":[]}}]",
          "tools[0].function.parameters", "JSON Schema" },
        { "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":{\"type\":"
          "\"array\"}}}]",
          "tools[0].function.parameters.type", "\"object\"" },
        { "\"tools\":[" F "],\"tool_choice\":\"any\"", "tool_choice", "\"required\"" },
        { "\"tools\":[" F "],\"tool_choice\":7", "tool_choice", "\"required\"" },
        { "\"tools\":[" F "],\"tool_choice\":{\"type\":\"function\"}", "tool_choice", "name" },
        { "\"tools\":[" F "],\"tool_choice\":" NAMED("h"), "tool_choice", "\"h\"" },
        { "\"tool_choice\":\"required\"", "tool_choice", "only allowed with tools" },
        { "\"tool_choice\":" NAMED("f"), "tool_choice", "only allowed with tools" },
        { "\"tools\":[" F "],\"parallel_tool_calls\":1", "parallel_tool_calls", "true or false" },
        { "\"documents\":[1]", "documents[0]", "must be an object" },
        { "\"add_generation_prompt\":true,\"continue_final_message\":true",
          "continue_final_message", "at most one" },
        { "\"continue_final_message\":1", "continue_final_message", "true or false" },
    };
    template_set(hermes);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char body[600];
        snprintf(body, sizeof body, BODY ",%s}", rows[i].fields);
        refused(body, STATUS_INVALID, rows[i].param, rows[i].part);
    }
    refused(BODY ",\"functions\":[{}]}", STATUS_UNSUPPORTED, "functions", "functions");
    refused(BODY ",\"function_call\":\"auto\"}", STATUS_UNSUPPORTED, "function_call",
            "function_call");
}

static void too_many_tools_are_refused(void **state)
{
    (void)state;
    buffer body = { 0 };
    template_set(hermes);
    buffer_append_text(&body, BODY ",\"tools\":[");
    for (int i = 0; i < 129; i++)
        buffer_printf(&body, "%s" NAMED("f%d"), i ? "," : "", i);
    buffer_append_text(&body, "]}");
    refused(body.data, STATUS_INVALID, "tools", "129 functions; right is at most 128");
    buffer_clear(&body);
    buffer_append_text(&body,
                       BODY ",\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\","
                            "\"description\":\"");
    for (int i = 0; i < 1 << 17; i++)
        buffer_append_byte(&body, 'x');
    buffer_append_text(&body, "\"}}]}");
    refused(body.data, STATUS_INVALID, "tools", "bytes of JSON");
    buffer_close(&body);
}

static void a_model_without_a_place_for_tools_refuses_them(void **state)
{
    (void)state;
    static const char none[] = BODY ",\"tools\":[" F "],\"tool_choice\":\"none\"}";
    template_set("{{ messages[0].content }}");
    refused(BODY ",\"tools\":[" F "]}", STATUS_UNSUPPORTED, "tools", "no place for tools");
    request r = parsed(none); // they are not shown
    assert_int_equal(r.tools.format, TOOL_FORMAT_NONE);
    request_close(&r);
    template_set("{{ tools }}{{ messages[0].content }}");
    refused(BODY ",\"tools\":[" F "]}", STATUS_UNSUPPORTED, "tools", "tool_format");
    fixture_model->tools = TOOL_FORMAT_LLAMA3; // as the setting would
    r = parsed(BODY ",\"tools\":[" F "]}");
    assert_int_equal(r.tools.format, TOOL_FORMAT_LLAMA3);
    request_close(&r);
}

static void the_choice_says_whether_calls_are_forced(void **state)
{
    (void)state;
    template_set(hermes);
    request r = parsed(BODY ",\"tools\":[" F "," G "]}");
    assert_true(r.tools.format == TOOL_FORMAT_HERMES && !r.tools.forced && r.tools.parallel);
    assert_int_equal(r.tools.name_count, 2);
    assert_true(slice_equal(r.tools.names[1], SLICE("g-2")));
    assert_int_equal(r.tools.calls.size, 0);
    size_t shown = r.prompts[0].tokens.count;
    request_close(&r);
    r = parsed(BODY ",\"tools\":[" F "," G "],\"tool_choice\":\"none\"}");
    assert_true(r.tools.format == TOOL_FORMAT_NONE && r.prompts[0].tokens.count < shown);
    request_close(&r);
}

static tool_request forced(const char *fields)
{
    char body[800];
    tool_request r;
    error failure = { 0 };
    json_t *shown;
    snprintf(body, sizeof body, BODY ",\"tools\":[" F "," G "],%s}", fields);
    json_t *json = json_loads(body, 0, NULL);
    if (tool_request_parse(fixture_model, &fixture_settings, json, false, &r, &shown, &failure) !=
        STATUS_OK)
        fail_msg("%s: %s", body, failure.text);
    assert_ptr_equal(shown, json_object_get(json, "tools"));
    assert_true(r.forced);
    json_decref(json);
    return r;
}

static void forced_calls_have_a_grammar(void **state)
{
    (void)state;
    template_set(hermes);
    tool_request r = forced("\"tool_choice\":\"required\"");
    assert_string_equal(
        r.calls.data,
        "{\"sequence\":[\"<tool_call>\\n\",{\"repeat\":{\"any\":[{\"sequence\":["
        "\"{\\\"name\\\": \\\"f\\\", \\\"arguments\\\": \",{\"json_schema\":{\"type\":\"object\","
        "\"properties\":{},\"additionalProperties\":false}},\"}\"]},{\"sequence\":["
        "\"{\\\"name\\\": \\\"g-2\\\", \\\"arguments\\\": \",{\"json_schema\":{\"properties\":{"
        "\"a\":{\"type\":\"integer\"}},\"type\":\"object\"}},\"}\"]}]},\"min\":1,\"max\":8,"
        "\"separator\":\"\\n</tool_call>\\n<tool_call>\\n\"},\"\\n</tool_call>\"]}");
    tool_request_close(&r);
    r = forced("\"parallel_tool_calls\":false,\"tool_choice\":\"required\"");
    assert_non_null(strstr(r.calls.data, "\"max\":1,"));
    tool_request_close(&r);
    r = forced("\"tool_choice\":" NAMED("g-2"));
    assert_non_null(strstr(r.calls.data, "\"max\":1,"));
    assert_null(strstr(r.calls.data, "\\\"f\\\""));
    tool_request_close(&r);
}

// What the grammar of each format lets through, and that its parser finds the calls in it.
static void forced_calls_of_every_format_match_their_grammar(void **state)
{
    (void)state;
    template_set(hermes);
    for (int format = TOOL_FORMAT_HERMES; format < TOOL_FORMAT_COUNT; format++) {
        const tool_layout *l = tool_layout_of((tool_format)format);
        grammar *g = NULL;
        error failure = { 0 };
        buffer text = { 0 };
        fixture_model->tools = (tool_format)format;
        tool_request r = forced("\"tool_choice\":\"required\"");
        buffer_append_text(&text, "template\n");
        buffer_append_slice(&text, buffer_slice(&r.calls));
        if (grammar_compile(buffer_slice(&text), &g, &failure) != STATUS_OK)
            fail_msg("%s: %s", l->name, failure.text);
        buffer_clear(&text);
        buffer_printf(&text, "%s%s\"f\"%s{}%s%s%s\"g-2\"%s{\"a\": -7}%s%s", l->before_all,
                      l->before_name, l->before_arguments, l->after_arguments, l->between,
                      l->before_name, l->before_arguments, l->after_arguments, l->after_all);
        assert_int_equal(grammar_match_of(g, buffer_slice(&text)), GRAMMAR_COMPLETE);
        assert_int_equal(grammar_match_of(g, (slice){ text.data, text.size / 2 }), GRAMMAR_PREFIX);
        assert_int_equal(grammar_match_of(g, SLICE("Sure")), GRAMMAR_NO);
        tool_answer a;
        assert_true(tool_answer_begin(&a, &r, false, false));
        tool_answer_push(&a, buffer_slice(&text));
        tool_answer_end(&a);
        assert_int_equal(a.whole_count, 2);
        assert_int_equal(a.content.size, 0);
        assert_string_equal(a.calls[1].arguments.data, "{\"a\": -7}");
        tool_answer_close(&a);
        buffer_close(&text);
        grammar_release(g);
        tool_request_close(&r);
    }
}

static void a_format_beside_tools_leaves_the_choice(void **state)
{
    (void)state;
    template_set(hermes);
    static const char *const formats[] = {
        "{\"type\":\"json_object\"}",
        "{\"type\":\"json_schema\",\"json_schema\":{\"name\":\"n\",\"schema\":{\"type\":\"object\","
        "\"properties\":{\"b\":{\"type\":\"boolean\"}},\"required\":[\"b\"]}}}",
    };
    for (int i = 0; i < 2; i++) {
        char body[800];
        grammar *g = NULL;
        snprintf(body, sizeof body, BODY ",\"tools\":[" F "],\"response_format\":%s}", formats[i]);
        request r = parsed(body);
        assert_int_equal(grammar_compile(buffer_slice(&r.grammar), &g, NULL), STATUS_OK);
        assert_int_equal(grammar_match_of(g, SLICE("{\"b\": true}")), GRAMMAR_COMPLETE);
        assert_int_equal(grammar_match_of(g, SLICE("<tool_call>\n{\"name\": \"f\", \"arguments\": "
                                                   "{}}\n</tool_call>")),
                         GRAMMAR_COMPLETE);
        assert_int_equal(grammar_match_of(g, SLICE("Sure")), GRAMMAR_NO);
        grammar_release(g);
        request_close(&r);
    }
    refused(BODY ",\"tools\":[" F "],\"tool_choice\":\"required\",\"response_format\":{\"type\":"
                 "\"json_object\"}}",
            STATUS_INVALID, "response_format", "right is one");
    refused(BODY
            ",\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":{"
            "\"uniqueItems\":true,\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"array\","
            "\"uniqueItems\":true}}}}}],\"tool_choice\":\"required\"}",
            STATUS_UNSUPPORTED, "tools", "uniqueItems");
}

static void integers_beyond_64_bits_may_stand_in_schemas(void **state)
{
    (void)state;
    template_set(hermes);
    request r = parsed(BODY ",\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\","
                            "\"parameters\":{\"properties\":{\"a\":{\"maximum\":"
                            "18446744073709551615}}}}}]}");
    request_close(&r);
    refused(BODY ",\"seed\":18446744073709551616}", STATUS_INVALID, "", "too big integer");
    refused(BODY ",\"x\":[18446744073709551616]}", STATUS_INVALID, "", "too big integer");
    refused(BODY ",\"tools\":[18446744073709551616]}", STATUS_INVALID, "", "too big integer");
}

static void the_prompt_ends_as_asked(void **state)
{
    (void)state;
    template_set(hermes);
    request r = parsed(BODY "}");
    size_t usual = r.prompts[0].tokens.count;
    assert_true(r.reasons && !r.in_thought);
    request_close(&r);
    r = parsed(BODY ",\"add_generation_prompt\":false}");
    assert_true(r.prompts[0].tokens.count < usual);
    request_close(&r);
    r = parsed(BODY ",\"continue_final_message\":true}");
    assert_true(r.prompts[0].tokens.count < usual);
    request_close(&r);
    r = parsed(BODY ",\"chat_template_kwargs\":{\"think\":true}}");
    assert_true(r.reasons && r.in_thought);
    request_close(&r);
    r = parsed(BODY ",\"documents\":[{\"title\":\"abc\"}]}");
    assert_true(r.prompts[0].tokens.count > usual);
    request_close(&r);
    fixture_model->reasons = false; // as the setting would
    r = parsed(BODY ",\"chat_template_kwargs\":{\"think\":true}}");
    assert_true(!r.reasons && !r.in_thought);
    request_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wrong_tools_are_refused_by_their_field),
        cmocka_unit_test(too_many_tools_are_refused),
        cmocka_unit_test(a_model_without_a_place_for_tools_refuses_them),
        cmocka_unit_test(the_choice_says_whether_calls_are_forced),
        cmocka_unit_test(forced_calls_have_a_grammar),
        cmocka_unit_test(forced_calls_of_every_format_match_their_grammar),
        cmocka_unit_test(a_format_beside_tools_leaves_the_choice),
        cmocka_unit_test(integers_beyond_64_bits_may_stand_in_schemas),
        cmocka_unit_test(the_prompt_ends_as_asked),
    };
    return cmocka_run_group_tests(tests, fixture_open, fixture_close);
}
