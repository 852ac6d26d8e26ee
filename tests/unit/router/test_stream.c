// Tokens in any order of arrival become one text.
#include "router_fixture.h"
#include "router/answer.h"
#include "router/stream_private.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define BYTE(c) (TINY_MODEL_BYTE_FIRST + (c))
#define END 2 // <|im_end|>

// One update of up to 64 tokens whose texts are the bytes of `text`.
static stream_result push_text(stream *s, uint32_t first, slice text, Penstock__Finish finish)
{
    Penstock__Token tokens[64], *pointers[64];
    Penstock__TokenUpdate u = PENSTOCK__TOKEN_UPDATE__INIT;
    assert_true(text.size <= 64);
    for (size_t i = 0; i < text.size; i++) {
        penstock__token__init(&tokens[i]);
        tokens[i].id = BYTE((unsigned char)text.data[i]);
        tokens[i].logprob = -(float)(first + i);
        tokens[i].logits_hash = first + i + 1;
        pointers[i] = &tokens[i];
    }
    if (finish == PENSTOCK__FINISH__FINISH_STOP && text.size > 0)
        tokens[text.size - 1].id = END;
    u.first_index = first;
    u.n_tokens = text.size;
    u.tokens = pointers;
    u.finish = finish;
    return stream_push(s, &u);
}

#define NONE PENSTOCK__FINISH__FINISH_NONE
#define LENGTH PENSTOCK__FINISH__FINISH_LENGTH
#define STOP PENSTOCK__FINISH__FINISH_STOP

static request parsed(const char *more)
{
    request r;
    error failure;
    char body[512];
    snprintf(body, sizeof body, "{\"model\":\"m\",\"prompt\":\"abc\"%s}", more);
    if (fixture_parse(REQUEST_COMPLETION, slice_of(body), 2048, &r, &failure) != STATUS_OK)
        fail_msg("%s", failure.text);
    return r;
}

static void begin(stream *s, const request *r)
{
    assert_int_equal(stream_begin(s, r, (size_t)r->prompts[0].max_tokens, fixture_model->tokens),
                     STATUS_OK);
}

static void take_into(stream *s, buffer *text)
{
    stream_part part = stream_take(s);
    buffer_append_slice(text, part.text);
}

static void repeats_are_dropped_and_gaps_are_errors(void **state)
{
    (void)state;
    request r = parsed("");
    stream s;
    buffer text = { 0 };
    begin(&s, &r);
    assert_int_equal(push_text(&s, 0, SLICE("he"), NONE), STREAM_MORE);
    assert_int_equal(push_text(&s, 0, SLICE("he"), NONE), STREAM_NOTHING);
    assert_int_equal(push_text(&s, 1, SLICE("el"), NONE), STREAM_MORE);
    assert_int_equal(push_text(&s, 4, SLICE("o"), NONE), STREAM_GAP);
    assert_int_equal(s.received.count, 3);
    assert_int_equal(push_text(&s, 3, SLICE("lo"), LENGTH), STREAM_DONE);
    assert_int_equal(push_text(&s, 5, SLICE("!"), NONE), STREAM_NOTHING);
    take_into(&s, &text);
    assert_string_equal(text.data, "hello");
    assert_int_equal(s.billed, 5);
    assert_string_equal(stream_finish_name(&s), "length");
    buffer_close(&text);
    stream_close(&s);
    request_close(&r);
}

static void the_ending_token_is_billed_and_silent(void **state)
{
    (void)state;
    request r = parsed(",\"logprobs\":0");
    stream s;
    begin(&s, &r);
    assert_int_equal(push_text(&s, 0, SLICE("hi."), STOP), STREAM_DONE);
    stream_part part = stream_take(&s);
    assert_true(slice_equal(part.text, SLICE("hi")));
    assert_int_equal(part.last, 2);
    assert_int_equal(s.billed, 3);
    assert_string_equal(stream_finish_name(&s), "stop");
    stream_close(&s);
    request_close(&r);
}

static void a_stop_string_ends_text_and_bill_wherever_it_is_cut(void **state)
{
    (void)state;
    for (size_t piece = 1; piece <= 16; piece++) {
        request r = parsed(",\"logprobs\":0,\"stop\":[\"lo w\",\"zzz\"]");
        stream s;
        buffer text = { 0 };
        begin(&s, &r);
        slice all = SLICE("hello world, and");
        stream_result result = STREAM_MORE;
        for (size_t at = 0; at < all.size && result != STREAM_DONE; at += piece) {
            size_t size = all.size - at < piece ? all.size - at : piece;
            result = push_text(&s, (uint32_t)at, (slice){ all.data + at, size }, NONE);
            take_into(&s, &text);
        }
        assert_int_equal(result, STREAM_DONE);
        assert_string_equal(text.data, "hel");
        assert_int_equal(s.billed, 7); // up to the w
        assert_int_equal(s.taken_tokens, 3);
        assert_string_equal(stream_finish_name(&s), "stop");
        buffer_close(&text);
        stream_close(&s);
        request_close(&r);
    }
}

static void what_looked_like_a_stop_comes_out_at_the_end(void **state)
{
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        request r = parsed(",\"logprobs\":0,\"stop\":[\"ld!!\"]");
        stream s;
        buffer text = { 0 };
        begin(&s, &r);
        push_text(&s, 0, SLICE("world"), NONE);
        take_into(&s, &text);
        assert_string_equal(text.data, "wor");
        assert_int_equal(s.taken_tokens, 3); // entries wait with their text
        push_text(&s, 5, SLICE("!"), i ? STOP : NONE);
        if (!i)
            push_text(&s, 6, SLICE("?"), LENGTH);
        take_into(&s, &text);
        assert_string_equal(text.data, i ? "world" : "world!?");
        buffer_close(&text);
        stream_close(&s);
        request_close(&r);
    }
}

static void nothing_is_kept_of_tokens_that_nobody_asks_for(void **state)
{
    (void)state;
    request r = parsed("");
    stream s;
    begin(&s, &r);
    push_text(&s, 0, SLICE("hello"), NONE);
    stream_part part = stream_take(&s);
    assert_true(slice_equal(part.text, SLICE("hello")));
    assert_int_equal(part.last - part.first, 0);
    assert_null(s.tokens);
    stream_close(&s);
    request_close(&r);
}

static void half_characters_wait_and_become_one_replacement_at_the_end(void **state)
{
    (void)state;
    request r = parsed("");
    stream s;
    buffer text = { 0 };
    begin(&s, &r);
    push_text(&s, 0, SLICE("a\xf0\x9f"), NONE);
    take_into(&s, &text);
    assert_string_equal(text.data, "a");
    push_text(&s, 3, SLICE("\x99\x82\xf0\x9f"), LENGTH);
    take_into(&s, &text);
    assert_string_equal(text.data, "a\xf0\x9f\x99\x82\xef\xbf\xbd");
    buffer_close(&text);
    stream_close(&s);
    request_close(&r);
}

static void a_worker_that_says_too_much_is_not_believed(void **state)
{
    (void)state;
    request r = parsed(",\"max_tokens\":2");
    stream s;
    begin(&s, &r);
    assert_int_equal(push_text(&s, 0, SLICE("abc"), NONE), STREAM_BROKEN);
    stream_close(&s);
    Penstock__Token token = PENSTOCK__TOKEN__INIT, *pointer = &token;
    Penstock__TokenUpdate u = PENSTOCK__TOKEN_UPDATE__INIT;
    token.id = 1000000;
    u.n_tokens = 1;
    u.tokens = &pointer;
    begin(&s, &r);
    assert_int_equal(stream_push(&s, &u), STREAM_BROKEN);
    stream_close(&s);
    request_close(&r);
}

// The answer to one scripted stream, whole or in chunks.
static void answer_build(bool is_chat, bool in_chunks, buffer *out)
{
    request r = parsed(",\"logprobs\":1,\"logits_hash\":true");
    stream s;
    r.kind = is_chat ? REQUEST_CHAT : REQUEST_COMPLETION;
    begin(&s, &r);
    answer_choice choice = { .stream = &s, .prompt = &r.prompts[0], .fingerprint = "fp" };
    answer a = { .id = "x-1",
                 .created_s = 1,
                 .model = "m\"",
                 .request = &r,
                 .choices = &choice,
                 .choice_count = 1 };
    const answer_shape *shape = answer_shape_of(r.kind);
    push_text(&s, 0, SLICE("q\"\n\x01"), NONE);
    if (in_chunks)
        shape->chunk(&a, &choice, out);
    push_text(&s, 4, SLICE("\xc3\xa9z"), LENGTH);
    if (in_chunks)
        shape->chunk(&a, &choice, out);
    else
        shape->whole(&a, out);
    stream_close(&s);
    request_close(&r);
}

// The text of an answer or chunk; the counts of its hashes and log-probabilities are added up.
static void answer_read(const char *text, bool is_chat, bool in_chunks, buffer *joined,
                        size_t *hashes, size_t *logprobs)
{
    json_t *object = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
    if (!object)
        fail_msg("not JSON: %s", text);
    json_t *choice = json_array_get(json_object_get(object, "choices"), 0);
    json_t *holder = !is_chat ? choice : json_object_get(choice, in_chunks ? "delta" : "message");
    json_t *entries = json_object_get(choice, "logprobs");
    buffer_append_text(joined,
                       json_string_value(json_object_get(holder, is_chat ? "content" : "text")));
    *hashes += json_array_size(json_object_get(json_object_get(choice, "penstock"), "logits_hash"));
    *logprobs += json_array_size(json_object_get(entries, is_chat ? "content" : "tokens"));
    json_decref(object);
}

static void answers_are_json_and_chunks_add_up_to_the_whole(void **state)
{
    (void)state;
    fixture_settings.debug = true;
    for (int i = 0; i < 4; i++) {
        bool is_chat = i & 1, in_chunks = i & 2;
        buffer out = { 0 }, joined = { 0 };
        size_t hashes = 0, logprobs = 0, events = 0;
        answer_build(is_chat, in_chunks, &out);
        if (!in_chunks)
            answer_read(out.data, is_chat, false, &joined, &hashes, &logprobs);
        for (char *line = in_chunks ? strtok(out.data, "\n") : NULL; line;
             line = strtok(NULL, "\n")) {
            assert_memory_equal(line, "data: ", 6);
            answer_read(line + 6, is_chat, true, &joined, &hashes, &logprobs);
            events++;
        }
        assert_string_equal(joined.data, "q\"\n\x01\xc3\xa9z");
        assert_int_equal(hashes, 7);
        assert_int_equal(logprobs, 7);
        assert_int_equal(events, in_chunks ? 2 : 0);
        buffer_close(&joined);
        buffer_close(&out);
    }
}

// A buffer that nothing was put into has no memory; its text is empty all the same.
static void a_text_that_has_not_begun_is_empty(void **state)
{
    (void)state;
    request r = parsed(",\"echo\":true");
    stream s;
    begin(&s, &r);
    assert_null(s.text.data);
    assert_non_null(stream_text_from(&s, 0).data);
    assert_int_equal(stream_text_from(&s, 0).size, 0);
    assert_int_equal(stream_prompt(&s, &r.prompts[0].tokens), STATUS_OK);
    assert_true(slice_equal(stream_text_from(&s, 1), SLICE("bc")));
    assert_int_equal(stream_text_from(&s, 3).size, 0);
    assert_int_equal(s.raw_characters, 3);
    stream_close(&s);
    request_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(repeats_are_dropped_and_gaps_are_errors),
        cmocka_unit_test(the_ending_token_is_billed_and_silent),
        cmocka_unit_test(a_stop_string_ends_text_and_bill_wherever_it_is_cut),
        cmocka_unit_test(what_looked_like_a_stop_comes_out_at_the_end),
        cmocka_unit_test(nothing_is_kept_of_tokens_that_nobody_asks_for),
        cmocka_unit_test(half_characters_wait_and_become_one_replacement_at_the_end),
        cmocka_unit_test(a_worker_that_says_too_much_is_not_believed),
        cmocka_unit_test(a_text_that_has_not_begun_is_empty),
        cmocka_unit_test(answers_are_json_and_chunks_add_up_to_the_whole),
    };
    return cmocka_run_group_tests(tests, fixture_open, fixture_close);
}
