// What clients read: choices and their rank, prompts that are echoed, Anthropic's events.
#include "router/answer.h"
#include "router_fixture.h"

#include <stdio.h>
#include <stdlib.h>

#define BYTE(c) (TINY_MODEL_BYTE_FIRST + (c))
#define NONE PENSTOCK__FINISH__FINISH_NONE
#define LENGTH PENSTOCK__FINISH__FINISH_LENGTH

typedef struct choice_world {
    request r;
    stream streams[8];
    answer_choice choices[8];
    answer a;
} choice_world;

static void world_open(choice_world *w, request_kind kind, const char *body, size_t count)
{
    error failure;
    *w = (choice_world){ 0 };
    if (fixture_parse(kind, slice_of(body), 2048, &w->r, &failure) != STATUS_OK)
        fail_msg("%s", failure.text);
    assert_int_equal(count, w->r.prompt_count * w->r.choices);
    for (size_t i = 0; i < count; i++) {
        const request_prompt *p = &w->r.prompts[i / w->r.choices];
        assert_int_equal(
            stream_begin(&w->streams[i], &w->r, (size_t)p->max_tokens, fixture_model->tokens),
            STATUS_OK);
        if (w->r.echo)
            assert_int_equal(stream_prompt(&w->streams[i], &p->tokens), STATUS_OK);
        w->choices[i] = (answer_choice){
            .index = i, .stream = &w->streams[i], .prompt = p, .fingerprint = "fp"
        };
    }
    w->a = (answer){
        .id = "x-1", .model = "m", .request = &w->r, .choices = w->choices, .choice_count = count
    };
}

static void world_close(choice_world *w)
{
    for (size_t i = 0; i < w->a.choice_count; i++)
        stream_close(&w->streams[i]);
    request_close(&w->r);
}

static stream_result push(stream *s, const char *text, float logprob, Penstock__Finish finish)
{
    Penstock__Token tokens[32], *pointers[32];
    Penstock__TokenUpdate u = PENSTOCK__TOKEN_UPDATE__INIT;
    size_t count = strlen(text);
    assert_true(count <= 32);
    for (size_t i = 0; i < count; i++) {
        penstock__token__init(&tokens[i]);
        tokens[i].id = BYTE((unsigned char)text[i]);
        tokens[i].logprob = logprob;
        pointers[i] = &tokens[i];
    }
    u.first_index = (uint32_t)s->received.count;
    u.n_tokens = count;
    u.tokens = pointers;
    u.finish = finish;
    return stream_push(s, &u);
}

static const char *text_of(json_t *choices, size_t index)
{
    json_t *choice = json_array_get(choices, index);
    assert_int_equal(json_integer_value(json_object_get(choice, "index")), index);
    return json_string_value(json_object_get(choice, "text"));
}

static void the_best_are_shown_in_their_order_prompt_by_prompt(void **state)
{
    (void)state;
    choice_world w;
    buffer out = { 0 };
    world_open(&w, REQUEST_COMPLETION,
               "{\"model\":\"m\",\"prompt\":[\"a\",\"bc\"],\"n\":2,\"best_of\":3}", 6);
    static const struct {
        const char *text;
        float logprob;
    } made[] = {
        { "aaa", -2 }, { "b", -1 }, { "cccc", -1 }, { "d", -3 }, { "ee", -2 }, { "f", -9 }
    };
    for (size_t i = 0; i < 6; i++)
        assert_int_equal(push(&w.streams[i], made[i].text, made[i].logprob, LENGTH), STREAM_DONE);
    answer_rank(&w.a);
    answer_shape_of(REQUEST_COMPLETION)->whole(&w.a, &out);
    json_t *object = json_loads(out.data, JSON_REJECT_DUPLICATES, NULL);
    json_t *choices = json_object_get(object, "choices"), *usage = json_object_get(object, "usage");
    assert_int_equal(json_array_size(choices), 4);
    assert_string_equal(text_of(choices, 0), "b"); // as likely as "cccc", and before it
    assert_string_equal(text_of(choices, 1), "cccc");
    assert_string_equal(text_of(choices, 2), "ee");
    assert_string_equal(text_of(choices, 3), "d");
    assert_int_equal(json_integer_value(json_object_get(usage, "prompt_tokens")), 3);
    assert_int_equal(json_integer_value(json_object_get(usage, "completion_tokens")), 12);
    json_decref(object);
    buffer_close(&out);
    world_close(&w);
}

static stream_result score(stream *s, uint32_t first, const char *text)
{
    Penstock__Token tokens[32], *pointers[32];
    Penstock__PromptScores m = PENSTOCK__PROMPT_SCORES__INIT;
    m.first_position = first;
    m.n_tokens = strlen(text);
    m.tokens = pointers;
    for (size_t i = 0; i < m.n_tokens; i++) {
        penstock__token__init(&tokens[i]);
        tokens[i].id = BYTE((unsigned char)text[i]);
        tokens[i].logprob = -(float)(first + i);
        pointers[i] = &tokens[i];
    }
    return stream_scores_push(s, &m);
}

static void scores_come_in_order_and_are_those_of_the_prompt(void **state)
{
    (void)state;
    choice_world w;
    buffer out = { 0 };
    world_open(&w, REQUEST_COMPLETION,
               "{\"model\":\"m\",\"prompt\":\"abcde\",\"echo\":true,\"logprobs\":0,"
               "\"max_tokens\":0}",
               1);
    stream *s = &w.streams[0];
    assert_true(stream_lacks_scores(s));
    assert_int_equal(score(s, 2, "cd"), STREAM_GAP);
    assert_int_equal(score(s, 1, "bx"), STREAM_BROKEN);
    assert_int_equal(score(s, 1, "bc"), STREAM_MORE);
    assert_int_equal(score(s, 1, "bc"), STREAM_NOTHING);  // another attempt tells them again
    assert_int_equal(score(s, 2, "cdef"), STREAM_BROKEN); // beyond its end
    assert_true(stream_lacks_scores(s));
    assert_int_equal(score(s, 2, "cde"), STREAM_MORE);
    assert_false(stream_lacks_scores(s));
    assert_int_equal(push(s, "z", -1, NONE), STREAM_DONE); // drawn, and not wanted
    answer_shape_of(REQUEST_COMPLETION)->whole(&w.a, &out);
    json_t *object = json_loads(out.data, JSON_REJECT_DUPLICATES, NULL);
    json_t *choice = json_array_get(json_object_get(object, "choices"), 0);
    json_t *logprobs = json_object_get(json_object_get(choice, "logprobs"), "token_logprobs");
    assert_string_equal(json_string_value(json_object_get(choice, "text")), "abcde");
    assert_int_equal(json_array_size(logprobs), 5);
    assert_true(json_is_null(json_array_get(logprobs, 0)));
    for (size_t i = 1; i < 5; i++)
        assert_true(json_number_value(json_array_get(logprobs, i)) == -(double)i);
    json_decref(object);
    buffer_close(&out);
    world_close(&w);
}

// The names of the events, a letter each, and the text of their deltas.
static void events_read(char *data, char *names, buffer *text)
{
    size_t count = 0;
    for (char *line = strtok(data, "\n"); line; line = strtok(NULL, "\n")) {
        if (strncmp(line, "event: ", 7) == 0)
            continue;
        assert_memory_equal(line, "data: ", 6);
        json_t *event = json_loads(line + 6, JSON_REJECT_DUPLICATES, NULL);
        assert_non_null(event);
        const char *type = json_string_value(json_object_get(event, "type"));
        const char *fresh =
            json_string_value(json_object_get(json_object_get(event, "delta"), "text"));
        if (fresh)
            buffer_append_text(text, fresh);
        names[count++] = type[0] == 'c' ? type[14] : type[8]; // s(tart) d(elta) (st)o(p)
        if (type[0] == 'c' && type[15] == 't' && type[16] == 'o')
            names[count - 1] = 'o';
        json_decref(event);
    }
    names[count] = 0;
}

static void messages_are_opened_filled_and_closed(void **state)
{
    (void)state;
    choice_world w;
    buffer out = { 0 }, text = { 0 };
    char names[64];
    const answer_shape *shape = answer_shape_of(REQUEST_MESSAGES);
    world_open(&w, REQUEST_MESSAGES,
               "{\"model\":\"m\",\"max_tokens\":9,\"messages\":[{\"role\":\"user\",\"content\":"
               "\"hi\"}]}",
               1);
    push(&w.streams[0], "he\"", -1, NONE);
    shape->chunk(&w.a, &w.choices[0], &out);
    push(&w.streams[0], "\n", -1, NONE);
    shape->chunk(&w.a, &w.choices[0], &out);
    push(&w.streams[0], "llo", -1, LENGTH);
    shape->chunk(&w.a, &w.choices[0], &out);
    shape->end(&w.a, &out);
    assert_non_null(strstr(out.data, "\"stop_reason\":\"max_tokens\""));
    events_read(out.data, names, &text);
    assert_string_equal(text.data, "he\"\nllo");
    // message_start, block start, three deltas, block stop, message_delta, message_stop
    assert_string_equal(names, "ssdddods");
    buffer_close(&out);
    buffer_close(&text);
    world_close(&w);
}

// As clients show it again, thought is signed: with the id of the answer.
static void thought_is_a_block_of_its_own(void **state)
{
    (void)state;
    choice_world w;
    buffer out = { 0 }, text = { 0 }, whole = { 0 };
    char names[64];
    const answer_shape *shape = answer_shape_of(REQUEST_MESSAGES);
    const char *body = "{\"model\":\"m\",\"max_tokens\":64,\"messages\":[{\"role\":\"user\","
                       "\"content\":\"hi\"}]}";
    template_set("{{ messages[0].content }}<think>{# </think> #}");
    world_open(&w, REQUEST_MESSAGES, body, 1);
    static const char *const pieces[] = { "Hm", " \"a\"\n</th", "ink>\n\nYes" };
    for (size_t i = 0; i < 3; i++) {
        push(&w.streams[0], pieces[i], -1, i == 2 ? LENGTH : NONE);
        shape->chunk(&w.a, &w.choices[0], &out);
    }
    shape->end(&w.a, &out);
    static const char signature[] =
        "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":"
        "{\"type\":\"signature_delta\",\"signature\":\"x-1\"}}\n\nevent: content_block_stop\n";
    assert_non_null(strstr(out.data, signature));
    assert_non_null(
        strstr(out.data, "\"delta\":{\"type\":\"thinking_delta\",\"thinking\":\"Hm\"}"));
    events_read(out.data, names, &text);
    assert_string_equal(text.data, "Yes");
    // message_start, block start, two pieces and the signature, stop; start, text, stop; the ends
    assert_string_equal(names, "ssdddosdods");
    world_close(&w);
    world_open(&w, REQUEST_MESSAGES, body, 1);
    push(&w.streams[0], "Hm</think>Yes", -1, LENGTH);
    shape->whole(&w.a, &whole);
    assert_non_null(strstr(whole.data,
                           "\"content\":[{\"type\":\"thinking\",\"thinking\":\"Hm\","
                           "\"signature\":\"x-1\"},{\"type\":\"text\",\"text\":\"Yes\"}]"));
    buffer_close(&out);
    buffer_close(&text);
    buffer_close(&whole);
    world_close(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_best_are_shown_in_their_order_prompt_by_prompt),
        cmocka_unit_test(scores_come_in_order_and_are_those_of_the_prompt),
        cmocka_unit_test(messages_are_opened_filled_and_closed),
        cmocka_unit_test(thought_is_a_block_of_its_own),
    };
    return cmocka_run_group_tests(tests, fixture_open, fixture_close);
}
