// The Messages API in terms of chat requests and answers.
#include "router_fixture.h"

#include "router/tools_messages.h"

#include <stdio.h>
#include <stdlib.h>

// Both are JSON with ' for ".
static json_t *read_json(const char *text)
{
    char copy[2000];
    json_error_t why;
    snprintf(copy, sizeof copy, "%s", text);
    for (char *c = copy; *c; c++)
        *c = *c == '\'' ? '"' : *c;
    json_t *json = json_loads(copy, 0, &why);
    if (!json)
        fail_msg("%s: %s", text, why.text);
    return json;
}

static void becomes(const char *body, const char *converted)
{
    error failure = { 0 };
    json_t *given = read_json(body), *expected = read_json(converted), *made = json_object();
    if (tools_messages_convert(given, made, &failure) != STATUS_OK)
        fail_msg("%s: %s", body, failure.text);
    if (!json_equal(made, expected)) {
        char *text = json_dumps(made, 0);
        fail_msg("%s\nbecame %s, not\n%s", body, text, converted);
    }
    json_decref(given);
    json_decref(expected);
    json_decref(made);
}

static void conversations_become_chats(void **state)
{
    (void)state;
    becomes("{'system': 'S', 'messages': [{'role': 'user', 'content': 'U'}]}",
            "{'messages': [{'role': 'system', 'content': 'S'}, {'role': 'user', 'content': 'U'}]}");
    becomes(
        "{'system': [{'type': 'text', 'text': 'S'}], 'messages': [{'role': 'user', 'content': "
        "[{'type': 'text', 'text': 'a', 'cache_control': {}}]}]}",
        "{'messages': [{'role': 'system', 'content': [{'type': 'text', 'text': 'S'}]}, {'role': "
        "'user', 'content': [{'type': 'text', 'text': 'a'}]}]}");
    becomes(
        "{'messages': [{'role': 'assistant', 'content': [{'type': 'thinking', 'thinking': 't', "
        "'signature': ''}, {'type': 'redacted_thinking', 'data': 'x'}, {'type': 'text', 'text': "
        "'a'}, {'type': 'tool_use', 'id': 'i', 'name': 'f', 'input': {'x': 1}}]}, {'role': "
        "'user', 'content': [{'type': 'tool_result', 'tool_use_id': 'i', 'content': 'r'}, "
        "{'type': 'tool_result', 'tool_use_id': 'j'}, {'type': 'text', 'text': 'b'}]}, {'role': "
        "'user', 'content': [{'type': 'tool_result', 'tool_use_id': 'k', 'content': [{'type': "
        "'text', 'text': 'r'}]}]}]}",
        "{'messages': [{'role': 'assistant', 'reasoning_content': 't', 'content': [{'type': "
        "'text', 'text': 'a'}], 'tool_calls': [{'id': 'i', 'type': 'function', 'function': "
        "{'name': 'f', 'arguments': {'x': 1}}}]}, {'role': 'tool', 'tool_call_id': 'i', "
        "'content': 'r'}, {'role': 'tool', 'tool_call_id': 'j', 'content': ''}, {'role': 'user', "
        "'content': [{'type': 'text', 'text': 'b'}]}, {'role': 'tool', 'tool_call_id': 'k', "
        "'content': [{'type': 'text', 'text': 'r'}]}]}");
}

#define M "'messages': [{'role': 'user', 'content': 'U'}]"

static void tools_become_functions(void **state)
{
    (void)state;
    becomes("{" M
            ", 'tools': [{'name': 'f', 'description': 'd', 'input_schema': {'type': 'object'}}, "
            "{'type': 'custom', 'name': 'g', 'input_schema': {}}]}",
            "{" M ", 'tools': [{'type': 'function', 'function': {'name': 'f', 'description': 'd', "
            "'parameters': {'type': 'object'}}}, {'type': 'function', 'function': {'name': 'g', "
            "'parameters': {}}}]}");
    becomes("{" M
            ", 'tools': [], 'tool_choice': {'type': 'auto', 'disable_parallel_tool_use': true}}",
            "{" M ", 'tool_choice': 'auto', 'parallel_tool_calls': false}");
    becomes("{" M ", 'tool_choice': {'type': 'any'}}", "{" M ", 'tool_choice': 'required'}");
    becomes("{" M ", 'tool_choice': {'type': 'none'}}", "{" M ", 'tool_choice': 'none'}");
    becomes("{" M ", 'tool_choice': {'type': 'tool', 'name': 'f'}}",
            "{" M ", 'tool_choice': {'type': 'function', 'function': {'name': 'f'}}}");
}

static void what_is_not_served_is_refused_by_its_field(void **state)
{
    (void)state;
    static const struct {
        const char *body, *param;
        status code;
    } rows[] = {
        { "{}", "messages", STATUS_INVALID },
        { "{'messages': []}", "messages", STATUS_INVALID },
        { "{'messages': [1]}", "messages[0].role", STATUS_INVALID },
        { "{'messages': [{'role': 'system', 'content': 'x'}]}", "messages[0].role",
          STATUS_INVALID },
        { "{'messages': [{'role': 'user'}]}", "messages[0].content", STATUS_INVALID },
        { "{'messages': [{'role': 'user', 'content': []}]}", "messages[0].content",
          STATUS_INVALID },
        { "{'messages': [{'role': 'user', 'content': [1]}]}", "messages[0].content[0]",
          STATUS_INVALID },
        { "{'messages': [{'role': 'user', 'content': [{'type': 'image'}]}]}",
          "messages[0].content[0]", STATUS_UNSUPPORTED },
        { "{'messages': [{'role': 'user', 'content': [{'type': 'tool_use'}]}]}",
          "messages[0].content[0]", STATUS_UNSUPPORTED },
        { "{'messages': [{'role': 'user', 'content': [{'type': 'text'}]}]}",
          "messages[0].content[0]", STATUS_INVALID },
        { "{'messages': [{'role': 'assistant', 'content': [{'type': 'tool_use', 'id': 'i', 'name': "
          "'f'}]}]}",
          "messages[0].content[0]", STATUS_INVALID },
        { "{'messages': [{'role': 'user', 'content': [{'type': 'tool_result', 'tool_use_id': 'i', "
          "'content': [{'type': 'image'}]}]}]}",
          "messages[0].content[0]", STATUS_UNSUPPORTED },
        { "{'system': 7, " M "}", "system", STATUS_INVALID },
        { "{" M ", 'tools': {}}", "tools", STATUS_INVALID },
        { "{" M ", 'tools': [{'type': 'bash_20250124', 'name': 'bash'}]}", "tools[0].type",
          STATUS_UNSUPPORTED },
        { "{" M ", 'tools': [{'name': 'f'}]}", "tools[0].input_schema", STATUS_INVALID },
        { "{" M ", 'tools': [{'input_schema': {}}]}", "tools[0].name", STATUS_INVALID },
        { "{" M ", 'tool_choice': 'auto'}", "tool_choice", STATUS_INVALID },
        { "{" M ", 'tool_choice': {'type': 'tool'}}", "tool_choice", STATUS_INVALID },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        error failure = { 0 };
        json_t *body = read_json(rows[i].body), *converted = json_object();
        if (tools_messages_convert(body, converted, &failure) != rows[i].code ||
            strcmp(failure.param, rows[i].param) != 0)
            fail_msg("%s: '%s' '%s'", rows[i].body, failure.param, failure.text);
        json_decref(body);
        json_decref(converted);
    }
}

// ---- answers ----------------------------------------------------------------------------------

static const slice names[] = { { "f", 1 }, { "g", 1 } };
static const char written[] =
    "<think>t</think>a <tool_call>{\"name\": \"f\", \"arguments\": {\"x\": [1]}}</tool_call>"
    "<tool_call>{\"name\": \"g\"}</tool_call>";

static void blocks_hold_thought_text_and_calls(void **state)
{
    (void)state;
    tool_answer a;
    buffer out = { 0 };
    tool_request offered = {
        .format = TOOL_FORMAT_HERMES, .parallel = true, .names = (slice *)names, .name_count = 2
    };
    assert_true(tool_answer_begin(&a, &offered, true, false));
    tool_answer_push(&a, slice_of(written));
    tool_answer_end(&a);
    buffer_append_byte(&out, '[');
    tools_messages_append_content(&a, &out);
    buffer_append_byte(&out, ']');
    json_t *blocks = json_loads(out.data, 0, NULL);
    json_t *expected =
        json_pack("[{s:s, s:s, s:s}, {s:s, s:s}, {s:s, s:s, s:s, s:{s:[i]}}, {s:s, "
                  "s:s, s:s, s:{}}]",
                  "type", "thinking", "thinking", "t", "signature", "", "type", "text", "text", "a",
                  "type", "tool_use", "id", a.calls[0].id, "name", "f", "input", "x", 1, "type",
                  "tool_use", "id", a.calls[1].id, "name", "g", "input");
    assert_non_null(expected);
    assert_true(json_equal(blocks, expected));
    json_decref(blocks);
    json_decref(expected);
    buffer_close(&out);
    tool_answer_close(&a);
}

// One event of a stream into the blocks that came so far.
static void event_join(json_t *blocks, json_t *event, size_t *open)
{
    const char *type = json_string_value(json_object_get(event, "type"));
    size_t index = (size_t)json_integer_value(json_object_get(event, "index"));
    json_t *delta = json_object_get(event, "delta"), *block = json_array_get(blocks, index);
    const char *kind = json_string_value(json_object_get(delta, "type"));
    if (strcmp(type, "content_block_start") == 0) {
        assert_int_equal(index, json_array_size(blocks));
        assert_int_equal(*open, SIZE_MAX);
        *open = index;
        json_array_append(blocks, json_object_get(event, "content_block"));
        return;
    }
    assert_int_equal(index, *open);
    if (strcmp(type, "content_block_stop") == 0) {
        *open = SIZE_MAX;
        return;
    }
    const char *from = strcmp(kind, "text_delta") == 0       ? "text"
                       : strcmp(kind, "thinking_delta") == 0 ? "thinking"
                                                             : "partial_json";
    const char *into = strcmp(from, "partial_json") == 0 ? "joined" : from;
    const char *old = json_string_value(json_object_get(block, into));
    json_object_set_new(
        block, into,
        json_sprintf("%s%s", old ? old : "", json_string_value(json_object_get(delta, from))));
}

static void events_build_the_same_blocks(void **state)
{
    (void)state;
    for (size_t piece = 1; piece < sizeof written; piece += 7) {
        tool_answer a;
        tools_messages_blocks state_of = { 0 };
        buffer out = { 0 };
        json_t *blocks = json_array();
        size_t open = SIZE_MAX;
        slice rest, line;
        tool_request offered = {
            .format = TOOL_FORMAT_HERMES, .parallel = true, .names = (slice *)names, .name_count = 2
        };
        assert_true(tool_answer_begin(&a, &offered, true, false));
        for (size_t at = 0; at < strlen(written); at += piece) {
            size_t left = strlen(written) - at;
            tool_answer_push(&a, (slice){ written + at, left < piece ? left : piece });
            tools_messages_append_events(&a, &state_of, false, &out);
            tool_answer_taken(&a);
        }
        tool_answer_end(&a);
        tools_messages_append_events(&a, &state_of, true, &out);
        rest = buffer_slice(&out);
        while (slice_take_line(&rest, &line)) {
            json_t *event = line.size > 6 && line.data[0] == 'd'
                                ? json_loadb(line.data + 6, line.size - 6, 0, NULL)
                                : NULL;
            if (event)
                event_join(blocks, event, &open);
            json_decref(event);
        }
        assert_int_equal(open, SIZE_MAX);
        assert_int_equal(json_array_size(blocks), 4);
        static const char *const texts[] = { "thinking", "text", "joined", "joined" };
        static const char *const values[] = { "t", "a", "{\"x\": [1]}", "{}" };
        for (size_t i = 0; i < 4; i++)
            assert_string_equal(
                json_string_value(json_object_get(json_array_get(blocks, i), texts[i])), values[i]);
        json_decref(blocks);
        buffer_close(&out);
        tool_answer_close(&a);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(conversations_become_chats),
        cmocka_unit_test(tools_become_functions),
        cmocka_unit_test(what_is_not_served_is_refused_by_its_field),
        cmocka_unit_test(blocks_hold_thought_text_and_calls),
        cmocka_unit_test(events_build_the_same_blocks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
