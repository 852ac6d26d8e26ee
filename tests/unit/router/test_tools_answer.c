// Tools and thought in answers: what clients get, whole and in chunks, and through a stream.
#include "tools_fixture.h"

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

// The end of a call and text behind it may come in one piece: nothing of the call is lost.
static void blocks_of_calls_end_before_what_follows(void **state)
{
    (void)state;
    tool_request offered = {
        .format = TOOL_FORMAT_HERMES, .parallel = true, .names = (slice *)names, .name_count = 2
    };
    static const char *const pieces[] = { "<tool_call>{\"name\": \"f\", \"arguments\": {\"a",
                                          "\": 1}}</tool_call>so it is" };
    tool_answer parts;
    assert_true(tool_answer_begin(&parts, &offered, false, false));
    stream s = { .parts = &parts };
    answer a = { 0 };
    answer_choice c = { .stream = &s, .begun = true };
    buffer out = { 0 };
    for (size_t i = 0; i < 2; i++) {
        tool_answer_push(&parts, slice_of(pieces[i]));
        if (i == 1)
            tool_answer_end(&parts);
        answer_shape_of(REQUEST_MESSAGES)->chunk(&a, &c, &out);
    }
    const char *end = strstr(out.data, "\"partial_json\":\"\\\": 1}\"");
    const char *text = strstr(out.data, "\"text_delta\",\"text\":\"so it is\"");
    assert_non_null(end);
    assert_true(text > end);
    tool_answer_close(&parts);
    buffer_close(&out);
}

// Each of the marks stands in the text, behind the one before it.
static void stand_in_order(const char *text, const char *const *marks, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const char *found = strstr(text, marks[i]);
        if (!found)
            fail_msg("%s is not there, or not in its place: %s", marks[i], text);
        text = found + strlen(marks[i]);
    }
}

// In pieces of `size` bytes; `whole`: not as a stream.
static void said_in_order(const char *said, size_t size, bool whole, const char *const *marks,
                          size_t count)
{
    tool_request offered = {
        .format = TOOL_FORMAT_HERMES, .parallel = true, .names = (slice *)names, .name_count = 2
    };
    tool_answer parts;
    assert_true(tool_answer_begin(&parts, &offered, true, false));
    stream s = { .parts = &parts };
    answer_choice c = { .stream = &s, .begun = true };
    answer a = { .id = "x", .model = "m", .choices = &c, .choice_count = 1 };
    const answer_shape *shape = answer_shape_of(REQUEST_MESSAGES);
    buffer out = { 0 };
    for (slice rest = slice_of(said); rest.size > 0;) {
        slice piece = { rest.data, rest.size < size ? rest.size : size };
        rest = (slice){ rest.data + piece.size, rest.size - piece.size };
        tool_answer_push(&parts, piece);
        if (rest.size == 0)
            tool_answer_end(&parts);
        if (!whole)
            shape->chunk(&a, &c, &out);
    }
    if (whole)
        shape->whole(&a, &out);
    stand_in_order(out.data, marks, count);
    tool_answer_close(&parts);
    buffer_close(&out);
}

static void blocks_come_in_the_order_in_which_they_were_said(void **state)
{
    (void)state;
    static const char said[] =
        "<think>hm</think>1<tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>2"
        "<tool_call>{\"name\": \"g\", \"arguments\": {}}</tool_call>3";
    static const char *const blocks[] = {
        "\"index\":0,\"content_block\":{\"type\":\"thinking\"",
        "\"index\":1,\"content_block\":{\"type\":\"text\"",
        "\"index\":1,\"delta\":{\"type\":\"text_delta\",\"text\":\"1\"",
        "\"name\":\"f\"",
        "\"index\":2,\"delta\":{\"type\":\"input_json_delta\"",
        "\"index\":3,\"delta\":{\"type\":\"text_delta\",\"text\":\"2\"",
        "\"name\":\"g\"",
        "\"index\":5,\"delta\":{\"type\":\"text_delta\",\"text\":\"3\"",
    };
    static const char *const parts[] = {
        "\"thinking\":\"hm\"", "\"text\":\"1\"", "\"name\":\"f\"",
        "\"text\":\"2\"",      "\"name\":\"g\"", "\"text\":\"3\""
    };
    for (size_t size = 1; size < sizeof said; size++)
        said_in_order(said, size, false, blocks, sizeof blocks / sizeof *blocks);
    said_in_order(said, sizeof said, true, parts, sizeof parts / sizeof *parts);
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
        cmocka_unit_test(whole_messages_have_the_shape_of_openai),
        cmocka_unit_test(chunks_tell_what_is_new),
        cmocka_unit_test(blocks_of_calls_end_before_what_follows),
        cmocka_unit_test(blocks_come_in_the_order_in_which_they_were_said),
        cmocka_unit_test(streams_and_whole_answers_say_the_same),
        cmocka_unit_test(thought_is_told_apart_in_streams_too),
    };
    return cmocka_run_group_tests(tests, fixture_open, fixture_close);
}
