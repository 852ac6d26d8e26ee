// Tools in requests and in answers: what is refused and how, the grammar of forced calls, and what
// clients get, whole and in chunks.
#include "router_fixture.h"

#include "router/answer.h"
#include "text/grammar.h"

#include <stdio.h>

#define BODY "{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]"
#define F "{\"type\":\"function\",\"function\":{\"name\":\"f\"}}"
#define G                                                                                          \
    "{\"type\":\"function\",\"function\":{\"name\":\"g-2\",\"description\":\"d\",\"strict\":true," \
    "\"parameters\":{\"properties\":{\"a\":{\"type\":\"integer\"}}}}}"
#define NAMED(name) "{\"type\":\"function\",\"function\":{\"name\":\"" name "\"}}"

static const char hermes[] =
    "{% if tools %}<tools>{{ tools|tojson }}</tools><tool_call>{% endif %}{% for m in messages %}"
    "{{ m.content }}{% endfor %}{% if add_generation_prompt %}>{% if think %}<think>\n{% endif %}"
    "{% endif %}{# </think> #}{% if documents %}{{ documents[0].title }}{% endif %}";

static void template_set(const char *source)
{
    error failure = { 0 };
    chat_close(fixture_model->chat);
    if (chat_open(slice_of(source), SLICE(""), SLICE(""), &fixture_model->chat, &failure) !=
        STATUS_OK)
        fail_msg("%s", failure.text);
    fixture_model->tools = chat_traits_of(fixture_model->chat)->tools;
    fixture_model->reasons = chat_traits_of(fixture_model->chat)->thinks;
}

static request parsed(const char *body)
{
    request r = { 0 };
    error failure;
    if (fixture_parse(REQUEST_CHAT, slice_of(body), 2048, &r, &failure) != STATUS_OK)
        fail_msg("%s: %s", body, failure.text);
    return r;
}

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
    assert_int_equal(r.tools.grammar.size, 0);
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
    if (tool_request_parse(fixture_model, &fixture_settings, json, &r, &shown, &failure) !=
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
        r.grammar.data,
        "template\n{\"sequence\":[\"<tool_call>\\n\",{\"repeat\":{\"any\":[{\"sequence\":["
        "\"{\\\"name\\\": \\\"f\\\", \\\"arguments\\\": \",{\"json_schema\":{\"type\":\"object\","
        "\"properties\":{},\"additionalProperties\":false}},\"}\"]},{\"sequence\":["
        "\"{\\\"name\\\": \\\"g-2\\\", \\\"arguments\\\": \",{\"json_schema\":{\"properties\":{"
        "\"a\":{\"type\":\"integer\"}},\"type\":\"object\"}},\"}\"]}]},\"min\":1,\"max\":8,"
        "\"separator\":\"\\n</tool_call>\\n<tool_call>\\n\"},\"\\n</tool_call>\"]}");
    tool_request_close(&r);
    r = forced("\"parallel_tool_calls\":false,\"tool_choice\":\"required\"");
    assert_non_null(strstr(r.grammar.data, "\"max\":1,"));
    tool_request_close(&r);
    r = forced("\"tool_choice\":" NAMED("g-2"));
    assert_non_null(strstr(r.grammar.data, "\"max\":1,"));
    assert_null(strstr(r.grammar.data, "\\\"f\\\""));
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
        if (grammar_compile(buffer_slice(&r.grammar), &g, &failure) != STATUS_OK)
            fail_msg("%s: %s", l->name, failure.text);
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

// ---- answers ----------------------------------------------------------------------------------

static const slice names[] = { { "f", 1 }, { "g", 1 } };

// Ids are random: they become "ID".
static void ids_hide(buffer *text)
{
    for (char *at = text->data; at && (at = strstr(at, "\"id\":\"")); at += 6) {
        char *end = strchr(at + 6, '"');
        assert_true(end - at - 6 == 29 || end - at - 6 == 9);
        memmove(at + 8, end, strlen(end) + 1);
        memcpy(at + 6, "ID", 2);
    }
    text->size = text->data ? strlen(text->data) : 0;
}

static void message_gives(tool_request *offered, bool reasons, const char *text,
                          const char *expected)
{
    tool_answer a;
    buffer out = { 0 };
    assert_true(tool_answer_begin(&a, offered, reasons, false));
    for (const char *c = text; *c && !tool_answer_push(&a, (slice){ c, 1 }); c++)
        ;
    tool_answer_end(&a);
    tool_answer_append_message(&a, &out);
    ids_hide(&out);
    assert_string_equal(out.data, expected);
    tool_answer_close(&a);
    buffer_close(&out);
}

static void whole_messages_have_the_shape_of_openai(void **state)
{
    (void)state;
    tool_request offered = {
        .format = TOOL_FORMAT_HERMES, .parallel = true, .names = (slice *)names, .name_count = 2
    };
    message_gives(&offered, false, "hi", "\"content\":\"hi\"");
    message_gives(&offered, false, "", "\"content\":\"\"");
    message_gives(&offered, true, "<think>\nhm\n</think>\nhi",
                  "\"content\":\"hi\",\"reasoning_content\":\"hm\"");
    message_gives(&offered, false, "<think>hm</think>hi", "\"content\":\"<think>hm</think>hi\"");
    static const char two[] = "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": \"\\u00e9\"}}"
                              "</tool_call><tool_call>{\"name\": \"g\"}</tool_call>";
    message_gives(&offered, false, two,
                  "\"content\":null,\"tool_calls\":[{\"id\":\"ID\",\"type\":\"function\","
                  "\"function\":{\"name\":\"f\",\"arguments\":\"{\\\"a\\\": \\\"\\\\u00e9\\\"}\"}},"
                  "{\"id\":\"ID\",\"type\":\"function\",\"function\":{\"name\":\"g\","
                  "\"arguments\":\"{}\"}}]");
    message_gives(&offered, false, "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": ",
                  "\"content\":\"<tool_call>{\\\"name\\\": \\\"f\\\", \\\"arguments\\\": "
                  "{\\\"a\\\": \"");
    offered.parallel = false;
    message_gives(
        &offered, false, two,
        "\"content\":null,\"tool_calls\":[{\"id\":\"ID\",\"type\":\"function\","
        "\"function\":{\"name\":\"f\",\"arguments\":\"{\\\"a\\\": \\\"\\\\u00e9\\\"}\"}}]");
    offered = (tool_request){
        .format = TOOL_FORMAT_MISTRAL, .parallel = true, .names = (slice *)names, .name_count = 2
    };
    message_gives(&offered, false, "[TOOL_CALLS][{\"name\": \"g\", \"arguments\": {}}]",
                  "\"content\":null,\"tool_calls\":[{\"id\":\"ID\",\"type\":\"function\","
                  "\"function\":{\"name\":\"g\",\"arguments\":\"{}\"}}]");
}

static void chunk_gives(tool_answer *a, const char *text, bool first, const char *expected)
{
    buffer out = { 0 };
    tool_answer_push(a, slice_of(text));
    assert_int_equal(tool_answer_has_news(a), expected[0] && !first);
    tool_answer_append_delta(a, first, &out);
    ids_hide(&out);
    assert_string_equal(buffer_slice(&out).data, expected);
    tool_answer_taken(a);
    assert_false(tool_answer_has_news(a));
    buffer_close(&out);
}

static void chunks_tell_what_is_new(void **state)
{
    (void)state;
    tool_request offered = {
        .format = TOOL_FORMAT_HERMES, .parallel = true, .names = (slice *)names, .name_count = 2
    };
    tool_answer a;
    assert_true(tool_answer_begin(&a, &offered, true, true));
    chunk_gives(&a, "", true, "\"role\":\"assistant\",\"content\":null");
    chunk_gives(&a, "so", false, "\"reasoning_content\":\"so\"");
    chunk_gives(&a, " </think> a", false, "\"content\":\"a\"");
    chunk_gives(&a, "\n<tool_call>{\"name\": \"f\"", false, "");
    chunk_gives(&a, ", \"arguments\": {\"a", false,
                "\"tool_calls\":[{\"index\":0,\"id\":\"ID\",\"type\":\"function\",\"function\":{"
                "\"name\":\"f\",\"arguments\":\"{\\\"a\"}}]");
    chunk_gives(&a, "\": 1}}</tool_call> <tool_call>{\"name\": \"g\", \"arguments\": {}}", false,
                "\"tool_calls\":[{\"index\":0,\"function\":{\"arguments\":\"\\\": 1}\"}},{"
                "\"index\":1,\"id\":\"ID\",\"type\":\"function\",\"function\":{\"name\":\"g\","
                "\"arguments\":\"{}\"}}]");
    chunk_gives(&a, "</tool_call>", false, "");
    assert_int_equal(a.whole_count, 2);
    tool_answer_close(&a);
}

// ---- through a stream -------------------------------------------------------------------------

// A delta into the message that came so far, as clients do it.
static void delta_join(json_t *joined, json_t *delta)
{
    const char *name;
    json_t *value;
    json_object_foreach(delta, name, value)
    {
        json_t *old = json_object_get(joined, name);
        if (json_is_string(value) && json_is_string(old)) {
            json_object_set_new(
                joined, name,
                json_sprintf("%s%s", json_string_value(old), json_string_value(value)));
        } else if (strcmp(name, "tool_calls") != 0) {
            json_object_set(joined, name, value);
        } else if (!old) {
            json_object_set_new(joined, name, json_deep_copy(value));
        } else {
            json_t *call = json_array_get(value, 0);
            size_t index = (size_t)json_integer_value(json_object_get(call, "index"));
            json_t *target = json_object_get(json_array_get(old, index), "function");
            json_t *piece = json_object_get(json_object_get(call, "function"), "arguments");
            if (index == json_array_size(old))
                json_array_append_new(old, json_deep_copy(call));
            else
                json_object_set_new(
                    target, "arguments",
                    json_sprintf("%s%s", json_string_value(json_object_get(target, "arguments")),
                                 json_string_value(piece)));
        }
    }
}

// The choice of an answer whose model wrote `text`, a byte a token: whole, or the chunks put
// together as clients do it. `used` is how many tokens were taken before the stream was done.
static json_t *answered(const char *body, const char *text, bool length, bool in_chunks,
                        size_t *used)
{
    request r = parsed(body);
    stream s;
    buffer out = { 0 };
    answer_choice choice = { .stream = &s, .prompt = &r.prompts[0], .fingerprint = "fp" };
    answer a = { .id = "x", .model = "m", .request = &r, .choices = &choice, .choice_count = 1 };
    const answer_shape *shape = answer_shape_of(REQUEST_CHAT);
    assert_int_equal(stream_begin(&s, &r, 2000, fixture_model->tokens), STATUS_OK);
    for (size_t i = 0; !s.done; i++) {
        Penstock__Token token = PENSTOCK__TOKEN__INIT, *pointer = &token;
        Penstock__TokenUpdate u = PENSTOCK__TOKEN_UPDATE__INIT;
        bool last = text[i] == '\0';
        token.id = last ? 2 : TINY_MODEL_BYTE_FIRST + (unsigned char)text[i];
        u.first_index = (uint32_t)i;
        u.n_tokens = last && length ? 0 : 1;
        u.tokens = &pointer;
        u.finish = !last    ? PENSTOCK__FINISH__FINISH_NONE
                   : length ? PENSTOCK__FINISH__FINISH_LENGTH
                            : PENSTOCK__FINISH__FINISH_STOP;
        stream_push(&s, &u);
        *used = i + 1;
        if (in_chunks)
            shape->chunk(&a, &choice, &out);
    }
    if (!in_chunks)
        shape->whole(&a, &out);
    stream_close(&s);
    request_close(&r);
    json_t *object = json_object();
    slice rest = buffer_slice(&out), line;
    if (!in_chunks) {
        json_t *whole = json_loads(out.data, JSON_REJECT_DUPLICATES, NULL);
        json_object_update(object, json_array_get(json_object_get(whole, "choices"), 0));
        json_decref(whole);
    }
    json_t *joined = json_object();
    while (in_chunks && slice_take_line(&rest, &line)) {
        json_t *event = line.size ? json_loadb(line.data + 6, line.size - 6, 0, NULL) : NULL;
        json_t *part = json_array_get(json_object_get(event, "choices"), 0);
        json_object_update(object, part);
        delta_join(joined, json_object_get(part, "delta"));
        json_decref(event);
    }
    if (in_chunks)
        json_object_set(object, "message", joined);
    json_decref(joined);
    buffer_close(&out);
    return object;
}

static void stream_gives(const char *fields, const char *text, bool length, const char *finish,
                         const char *content, const char *calls, size_t tokens)
{
    char body[800];
    snprintf(body, sizeof body, BODY ",\"tools\":[" F "," G "]%s}", fields);
    for (int in_chunks = 0; in_chunks < 2; in_chunks++) {
        size_t used = 0;
        buffer seen = { 0 };
        json_t *choice = answered(body, text, length, in_chunks, &used), *call;
        json_t *message = json_object_get(choice, "message");
        json_t *got = json_object_get(message, "content");
        size_t index;
        json_array_foreach(json_object_get(message, "tool_calls"), index, call)
        {
            json_t *function = json_object_get(call, "function");
            buffer_printf(&seen, "%s(%s)", json_string_value(json_object_get(function, "name")),
                          json_string_value(json_object_get(function, "arguments")));
        }
        assert_string_equal(json_string_value(json_object_get(choice, "finish_reason")), finish);
        assert_string_equal(json_is_string(got) ? json_string_value(got) : "null", content);
        assert_string_equal(buffer_slice(&seen).data, calls);
        assert_int_equal(used, tokens ? tokens : strlen(text) + 1);
        buffer_close(&seen);
        json_decref(choice);
    }
}

static void streams_and_whole_answers_say_the_same(void **state)
{
    (void)state;
    template_set(hermes);
    static const char call[] = "<tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>";
    static const char two[] = "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": [1]}}"
                              "</tool_call>\n<tool_call>{\"name\": \"g-2\"}</tool_call>";
    stream_gives("", "hi", false, "stop", "hi", "", 0);
    stream_gives("", call, false, "tool_calls", "null", "f({})", 0);
    stream_gives("", two, false, "tool_calls", "null", "f({\"a\": [1]})g-2({})", 0);
    stream_gives("", two, true, "length", "null", "f({\"a\": [1]})g-2({})", 0);
    // One call is enough: what would follow is not generated.
    stream_gives(",\"parallel_tool_calls\":false", two, false, "tool_calls", "null",
                 "f({\"a\": [1]})",
                 sizeof "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": [1]}}" - 1);
    // A stop string ends the answer before anything is read from it.
    stream_gives(",\"stop\":\"</tool_call>\"", call, false, "tool_calls", "null", "f({})",
                 sizeof call - 1);
    stream_gives(",\"stop\":\"name\"", call, false, "stop", "<tool_call>{\"", "",
                 sizeof "<tool_call>{\"name" - 1);
    stream_gives(",\"tool_choice\":\"none\"", call, false, "stop", call, "", 0);
}

static void thought_is_told_apart_in_streams_too(void **state)
{
    (void)state;
    template_set(hermes);
    for (int in_chunks = 0; in_chunks < 2; in_chunks++) {
        size_t used;
        json_t *choice = answered(BODY ",\"chat_template_kwargs\":{\"think\":true}}",
                                  "one two\n</think>\n\nthree", false, in_chunks, &used);
        json_t *message = json_object_get(choice, "message");
        assert_string_equal(json_string_value(json_object_get(message, "reasoning_content")),
                            "one two");
        assert_string_equal(json_string_value(json_object_get(message, "content")), "three");
        json_decref(choice);
    }
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
        cmocka_unit_test(the_prompt_ends_as_asked),
        cmocka_unit_test(whole_messages_have_the_shape_of_openai),
        cmocka_unit_test(chunks_tell_what_is_new),
        cmocka_unit_test(streams_and_whole_answers_say_the_same),
        cmocka_unit_test(thought_is_told_apart_in_streams_too),
    };
    return cmocka_run_group_tests(tests, fixture_open, fixture_close);
}
